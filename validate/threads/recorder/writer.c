#define _GNU_SOURCE
#include "writer.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "format.h"
#include "moment.h"
#include "pause.h"
#include "ring.h"

enum { BATCH = 512, SHORTEST_MS = 10, LONGEST_MS = 160, HIGH_DESCRIPTOR = 700, STACK = 256 * 1024 };

enum { IDLE, STARTING, RUNNING, FAILED, FINISHED };

static _Atomic int state;
static _Atomic int log_fd = -1;
static _Atomic bool draining;  // whoever set it reads the ring
static char folder[PATH_MAX];
static char program[sizeof((struct log_header){0}).program];
static uint32_t process;
static uint64_t written;

uint32_t writer_process(void) { return process; }

int writer_descriptor(void) { return atomic_load_explicit(&log_fd, memory_order_relaxed); }

// Not write(): that one is recorded. False: the disk is full or the descriptor gone.
static bool write_all(const void* data, size_t bytes) {
    const char* at = data;
    while (bytes > 0) {
        long done = syscall(SYS_write, atomic_load(&log_fd), at, bytes);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return false;
        at += done;
        bytes -= (size_t)done;
    }
    return true;
}

// Writes what is in the ring. Returns how many records that were.
static unsigned drain(void) {
    static struct record batch[BATCH];
    unsigned total = 0;
    for (;;) {
        unsigned count = 0;
        uint64_t lost = ring_take_lost();
        if (lost > 0)
            batch[count++] = (struct record){.begin_ns = now_ns(), .kind = KIND_LOST, .end = {.lost = lost}};
        while (count < BATCH && ring_pop(&batch[count])) count++;
        if (count == 0) return total;
        if (atomic_load(&state) == FAILED) continue;
        if (!write_all(batch, count * sizeof batch[0])) atomic_store(&state, FAILED);
        written += count;
        total += count;
    }
}

static bool try_drain(unsigned* count) {
    if (atomic_exchange(&draining, true)) return false;
    *count = drain();
    atomic_store(&draining, false);
    return true;
}

static void* help(void* unused) {
    (void)unused;
    prctl(PR_SET_NAME, "tapscope-log");
    unsigned pause_ms = SHORTEST_MS;
    while (atomic_load(&state) == RUNNING) {
        unsigned count = 0;
        pause_look(folder);
        try_drain(&count);
        if (count > 0)
            pause_ms = SHORTEST_MS;
        else if (pause_ms < LONGEST_MS)
            pause_ms *= 2;
        ring_wait(pause_ms);
    }
    return NULL;
}

static bool start_helper(void) {
    sigset_t all, before;
    pthread_attr_t attributes;
    pthread_t thread;
    sigfillset(&all);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // the server's handlers are none of its business
    int failed = pthread_create(&thread, &attributes, help, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return failed == 0;
}

static bool open_log(void) {
    struct log_header header = {.magic = LOG_MAGIC,
                                .header_bytes = sizeof header,
                                .record_bytes = sizeof(struct record),
                                .pid = process,
                                .parent = (uint32_t)getppid(),
                                .started_ns = now_ns(),
                                .slots = RING_SLOTS};
    struct stat network;
    if (stat("/proc/self/ns/net", &network) == 0) header.network = network.st_ino;
    gethostname(header.host, sizeof header.host - 1);
    memcpy(header.program, program, sizeof header.program);
    char path[PATH_MAX + 128];
    char name[sizeof header.program];
    memcpy(name, header.program, sizeof name);
    for (char* c = name; *c; c++)
        if (*c == '/' || *c == ' ') *c = '_';
    snprintf(path, sizeof path, "%s/%s-%u-%llu.threads", folder, name, process,
             (unsigned long long)header.started_ns);
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0644);
    if (fd < 0) {
        dprintf(STDERR_FILENO, "tapscope: %s: %s; threads are not recorded\n", path, strerror(errno));
        return false;
    }
    // Low numbers belong to the server, which may count on getting them.
    int high = fcntl(fd, F_DUPFD_CLOEXEC, HIGH_DESCRIPTOR);
    if (high >= 0) {
        syscall(SYS_close, fd);
        fd = high;
    }
    atomic_store(&log_fd, fd);
    return write_all(&header, sizeof header);
}

bool writer_ready(void) {
    int now = atomic_load_explicit(&state, memory_order_acquire);
    if (now == RUNNING || now == STARTING) return true;
    if (now != IDLE || folder[0] == 0) return false;
    int idle = IDLE;
    if (!atomic_compare_exchange_strong(&state, &idle, STARTING)) return writer_ready();
    bool good = open_log();
    if (good) pause_look(folder);
    atomic_store(&state, good ? RUNNING : FAILED);
    if (good && !start_helper()) atomic_store(&state, FAILED);
    return atomic_load(&state) == RUNNING;
}

bool writer_closing(void) {
    int running = RUNNING;
    if ((uint32_t)syscall(SYS_getpid) != process) return false;  // a child of vfork()
    return atomic_compare_exchange_strong(&state, &running, FINISHED);
}

void writer_close(void) {
    unsigned count = 0;
    for (int tries = 0; tries < 1000 && !try_drain(&count); tries++) sched_yield();
    struct record end = {.begin_ns = now_ns(), .thread = own_thread(), .kind = KIND_END};
    end.end.written = written;
    write_all(&end, sizeof end);
}

void writer_reset(void) {
    int fd = atomic_exchange(&log_fd, -1);
    if (fd >= 0) syscall(SYS_close, fd);
    process = (uint32_t)syscall(SYS_getpid);
    written = 0;
    atomic_store(&draining, false);
    ring_reset();
    atomic_store(&state, IDLE);
}

void writer_begin(void) {
    const char* told = getenv("TAPSCOPE_THREADS_DIR");
    if (told != NULL && strlen(told) < sizeof folder) strcpy(folder, told);
    // Now: a server may write its title over it later.
    snprintf(program, sizeof program, "%s", program_invocation_short_name);
    process = (uint32_t)syscall(SYS_getpid);
}
