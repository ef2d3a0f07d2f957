// One request: work, calls to the tier below, and an answer that tells where it has been.
#define _GNU_SOURCE
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "spans.h"
#include "vapp.h"

enum { POOL = 1024 };

// Connections to a server below that nobody uses; any thread may take one.
static struct {
    pthread_mutex_t lock;
    int free[POOL];
    int count;
} pools[MOST_BELOW];

static _Thread_local uint64_t state;

double draw(void) {
    if (state == 0) state = settings.seed * 0x9E3779B97F4A7C15u + (uint64_t)syscall(SYS_gettid);
    state += 0x9E3779B97F4A7C15u;  // splitmix64
    uint64_t z = state;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

static double microseconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static void work(void) {
    if (settings.work_us > 0) {
        double until = microseconds() - settings.work_us * log(1 - draw());
        while (microseconds() < until) {}
    }
    if (settings.pause_us > 0) {
        double pause = -settings.pause_us * log(1 - draw());
        struct timespec time = {(time_t)(pause / 1e6), (long)(fmod(pause, 1e6) * 1e3)};
        nanosleep(&time, NULL);
    }
}

static int take(int which) {
    int fd = -1;
    pthread_mutex_lock(&pools[which].lock);
    if (pools[which].count > 0) fd = pools[which].free[--pools[which].count];
    pthread_mutex_unlock(&pools[which].lock);
    return fd >= 0 ? fd : connect_to(settings.below[which]);
}

static void give_back(int which, int fd) {
    pthread_mutex_lock(&pools[which].lock);
    bool room = pools[which].count < POOL;
    if (room) pools[which].free[pools[which].count++] = fd;
    pthread_mutex_unlock(&pools[which].lock);
    if (!room) close(fd);
}

// Asks a server below and appends what its answer tells; false when there was none.
static bool ask(int which, const char* identity, const struct span* made_for, struct message* answer,
                char* path, size_t* size) {
    char request[512], ids[80];
    struct span call = span_below(made_for);
    int length = snprintf(request, sizeof request, "GET / HTTP/1.1\r\nHost: %s\r\n", settings.below[which]);
    if (identity[0] != 0)
        length +=
            snprintf(request + length, sizeof request - (size_t)length, "X-Request-ID: %s\r\n", identity);
    span_header(&call, ids, sizeof ids);
    length += snprintf(request + length, sizeof request - (size_t)length, "%s\r\n", ids);
    int fd = take(which);
    if (fd < 0) return false;
    note(&call, "cs", NULL);
    if (!send_all(fd, request, (size_t)length) || !receive(fd, answer, true)) {
        close(fd);
        return false;
    }
    note(&call, "cr", NULL);
    give_back(which, fd);
    if (*size + answer->body_size + 3 > LARGEST / 2) return false;
    *size += (size_t)sprintf(path + *size, "(%.*s)", (int)answer->body_size, answer->body);
    return true;
}

bool serve(int fd, const struct message* request) {
    static _Thread_local char path[LARGEST / 2];
    static _Thread_local struct message answer;
    char identity[64], head[256];
    const struct span own = span_of(request);
    note(&own, "sr", NULL);
    header(request, "X-Request-ID", identity, sizeof identity);
    if (own.parent == 0 && identity[0] != 0) note(&own, "request_id", identity);
    size_t size = (size_t)sprintf(path, "%s", settings.name);
    bool good = true;
    work();
    for (int calls = 0; calls < settings.most && settings.below_count > 0 && draw() < settings.go; calls++) {
        int which = (int)(draw() * settings.below_count);
        good &= ask(which, identity, &own, &answer, path, &size);
        work();
    }
    int length =
        snprintf(head, sizeof head, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\n\r\n",
                 good ? "200 OK" : "502 Bad Gateway", size);
    note(&own, "ss", NULL);
    // Now in one piece, now in two, as servers do.
    if (draw() < 0.5) return send_all(fd, head, (size_t)length) && send_all(fd, path, size);
    static _Thread_local char whole[LARGEST];
    memcpy(whole, head, (size_t)length);
    memcpy(whole + length, path, size);
    return send_all(fd, whole, (size_t)length + size);
}
