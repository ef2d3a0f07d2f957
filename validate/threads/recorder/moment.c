#define _GNU_SOURCE
#include "moment.h"

#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Thread_local uint32_t thread_id __attribute__((tls_model("initial-exec")));

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

uint32_t own_thread(void) {
    if (thread_id == 0) thread_id = (uint32_t)syscall(SYS_gettid);
    return thread_id;
}

void own_thread_reset(void) { thread_id = 0; }
