#define _GNU_SOURCE
#include "life.h"

#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "connections.h"
#include "moment.h"
#include "pause.h"
#include "writer.h"

void recorder_finish(void) {
    if (!writer_closing()) return;
    connections_still_open();
    writer_close();
}

// The log may only begin again when what is inherited was forgotten.
static void in_child(void) {
    own_thread_reset();
    connections_reset();
    pause_reset();
    writer_reset();
}

__attribute__((constructor)) static void begin(void) {
    writer_begin();
    pthread_atfork(NULL, NULL, in_child);
    at_quick_exit(recorder_finish);
}

__attribute__((destructor)) static void end(void) { recorder_finish(); }
