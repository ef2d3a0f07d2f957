#define _GNU_SOURCE
#include "pause.h"

#include <limits.h>
#include <stdio.h>
#include <unistd.h>

#include "format.h"
#include "moment.h"
#include "ring.h"

struct pause pause_state;

void pause_look(const char* folder) {
    char path[PATH_MAX + 8];
    snprintf(path, sizeof path, "%s/paused", folder);
    bool wanted = access(path, F_OK) == 0;
    if (wanted == is_paused(pause_turn())) return;
    struct record record = {
        .begin_ns = now_ns(), .thread = own_thread(), .kind = wanted ? KIND_PAUSED : KIND_RESUMED};
    if (!wanted) atomic_store(&pause_state.resumed_ns, record.begin_ns);
    atomic_fetch_add(&pause_state.turn, 1);
    ring_push(&record);
}

void pause_reset(void) {
    atomic_store(&pause_state.turn, 0);
    atomic_store(&pause_state.resumed_ns, 0);
}
