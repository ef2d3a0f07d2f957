/* A library that is only loaded when its own thread has called a function of libc: as tracers do. */
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <sys/socket.h>
#include <time.h>

int came;
static sem_t called;

static void* call(void* unused) {
    sendmmsg(-1, NULL, 0, 0); /* nobody called it before */
    sem_post(&called);
    return unused;
}

__attribute__((constructor)) static void load(void) {
    pthread_t thread;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 5;
    sem_init(&called, 0, 0);
    pthread_create(&thread, NULL, call, NULL);
    came = sem_timedwait(&called, &until) == 0;
}
