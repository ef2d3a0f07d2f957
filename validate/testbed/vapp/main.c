// vapp ADDRESS:PORT [--below ADDRESS:PORT]... [--threads N] [--dispatcher] [--go P] [--most N] [--work US]
// [--pause US] [--seed N] [--service NAME --annotate LIBRARY]: one server of the random topology. Ends at SIGTERM.
#define _GNU_SOURCE
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "spans.h"
#include "vapp.h"

enum { WAITING = 4096, STACK = 512 * 1024 };

struct settings settings = {.threads = 16, .go = 0.5, .most = 8, .seed = 1, .service = "vapp"};
static const char* annotations;  // library that notes spans

// Requests that the dispatcher received and no worker has taken yet.
static struct {
    pthread_mutex_t lock;
    pthread_cond_t filled, emptied;
    struct {
        int fd;
        struct message* request;
    } places[WAITING];
    unsigned first, count;
} queue = {.lock = PTHREAD_MUTEX_INITIALIZER,
           .filled = PTHREAD_COND_INITIALIZER,
           .emptied = PTHREAD_COND_INITIALIZER};

static int watched;  // epoll of the dispatcher

static void start(void* (*body)(void*), void* argument) {
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, STACK);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    if (pthread_create(&thread, &attributes, body, argument) != 0) {
        perror("vapp: thread");
        exit(1);
    }
    pthread_attr_destroy(&attributes);
}

static void* serve_connection(void* argument) {
    int fd = (int)(intptr_t)argument;
    struct message* request = malloc(sizeof *request);
    while (request != NULL && receive(fd, request, false) && serve(fd, request)) {}
    free(request);
    close(fd);
    return NULL;
}

static void* accept_connections(void* argument) {
    int listener = (int)(intptr_t)argument;
    for (;;) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
        if (fd < 0) continue;
        if (!settings.dispatcher) {
            start(serve_connection, (void*)(intptr_t)fd);
            continue;
        }
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
        epoll_ctl(watched, EPOLL_CTL_ADD, fd, &event);
    }
    return NULL;
}

static void* dispatch(void* unused) {
    (void)unused;
    for (;;) {
        struct epoll_event ready[64];
        int count = epoll_wait(watched, ready, 64, -1);
        for (int i = 0; i < count; i++) {
            struct message* request = malloc(sizeof *request);
            if (request == NULL || !receive(ready[i].data.fd, request, false)) {
                close(ready[i].data.fd);
                free(request);
                continue;
            }
            pthread_mutex_lock(&queue.lock);
            while (queue.count == WAITING) pthread_cond_wait(&queue.emptied, &queue.lock);
            unsigned place = (queue.first + queue.count++) % WAITING;
            queue.places[place].fd = ready[i].data.fd;
            queue.places[place].request = request;
            pthread_cond_signal(&queue.filled);
            pthread_mutex_unlock(&queue.lock);
        }
    }
    return NULL;
}

static void* take_requests(void* unused) {
    (void)unused;
    for (;;) {
        pthread_mutex_lock(&queue.lock);
        while (queue.count == 0) pthread_cond_wait(&queue.filled, &queue.lock);
        int fd = queue.places[queue.first].fd;
        struct message* request = queue.places[queue.first].request;
        queue.first = (queue.first + 1) % WAITING;
        queue.count--;
        pthread_cond_signal(&queue.emptied);
        pthread_mutex_unlock(&queue.lock);
        bool good = serve(fd, request);
        free(request);
        struct epoll_event event = {.events = EPOLLIN | EPOLLONESHOT, .data.fd = fd};
        if (!good || epoll_ctl(watched, EPOLL_CTL_MOD, fd, &event) != 0) close(fd);
    }
    return NULL;
}

static void read_options(int count, char** words) {
    enum { BELOW = 1, THREADS, DISPATCHER, GO, MOST, WORK, PAUSE, SEED, SERVICE, ANNOTATE };
    static const struct option known[] = {{"below", required_argument, NULL, BELOW},
                                          {"threads", required_argument, NULL, THREADS},
                                          {"dispatcher", no_argument, NULL, DISPATCHER},
                                          {"go", required_argument, NULL, GO},
                                          {"most", required_argument, NULL, MOST},
                                          {"work", required_argument, NULL, WORK},
                                          {"pause", required_argument, NULL, PAUSE},
                                          {"seed", required_argument, NULL, SEED},
                                          {"service", required_argument, NULL, SERVICE},
                                          {"annotate", required_argument, NULL, ANNOTATE},
                                          {0}};
    for (int option; (option = getopt_long(count, words, "", known, NULL)) != -1;) {
        switch (option) {
            case BELOW:
                if (settings.below_count == MOST_BELOW) exit(2);
                settings.below[settings.below_count++] = optarg;
                break;
            case THREADS:
                settings.threads = atoi(optarg);
                break;
            case DISPATCHER:
                settings.dispatcher = true;
                break;
            case GO:
                settings.go = atof(optarg);
                break;
            case MOST:
                settings.most = atoi(optarg);
                break;
            case WORK:
                settings.work_us = atof(optarg);
                break;
            case PAUSE:
                settings.pause_us = atof(optarg);
                break;
            case SEED:
                settings.seed = strtoull(optarg, NULL, 10);
                break;
            case SERVICE:
                settings.service = optarg;
                break;
            case ANNOTATE:
                annotations = optarg;
                break;
            default:
                exit(2);
        }
    }
    if (optind + 1 != count) {
        fprintf(stderr, "usage: vapp ADDRESS:PORT [OPTION]...\n");
        exit(2);
    }
    settings.name = words[optind];
}

int main(int count, char** words) {
    sigset_t wanted;
    int heard;
    read_options(count, words);
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    sigaddset(&wanted, SIGINT);
    pthread_sigmask(SIG_BLOCK, &wanted, NULL);  // all threads inherit it; sigwait below takes the signal
    if (annotations != NULL) load_annotations(annotations);  // its threads inherit the mask, too
    int listener = listen_at(settings.name);
    if (settings.dispatcher) {
        watched = epoll_create1(EPOLL_CLOEXEC);
        start(dispatch, NULL);
        for (int i = 0; i < settings.threads; i++) start(take_requests, NULL);
    }
    start(accept_connections, (void*)(intptr_t)listener);
    printf("vapp: %s is ready\n", settings.name);
    fflush(stdout);
    sigwait(&wanted, &heard);
    exit(0);
}
