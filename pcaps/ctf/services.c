/* Three services in a row (web -> app -> db, by Unix sockets) that annotate every call as BlkKin's library does.
 *
 *   services db | app | web       serves until it is ended
 *   services load CLIENTS CALLS   so many clients at once, so many calls each
 *
 * A call is one span: `cs` and `cr` by who calls, `sr` and `ss` by who serves. The three ids travel in the
 * message. app calls db once or twice per call; every fifth call of web ends without asking app. */
#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "annotations.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

struct call {
    long trace, span, parent;
    char name[24];
    int number;
};

static const char *self;

static int port_of(const char *service) {
    return !strcmp(service, "web") ? 80 : !strcmp(service, "app") ? 8009 : !strcmp(service, "db") ? 3306 : 0;
}

static void event(const struct call *c, const char *what) {
    lttng_ust_tracepoint(zipkin, timestamp, c->name, self, port_of(self), "127.0.0.1", c->trace, c->span, c->parent,
                         what);
}

static void keyval(const struct call *c, const char *key, const char *value) {
    lttng_ust_tracepoint(zipkin, keyval, c->name, self, port_of(self), "127.0.0.1", c->trace, c->span, c->parent,
                         key, value);
}

static long fresh(void) {
    long id = 0;
    while (id == 0)
        if (getrandom(&id, sizeof id, 0) != sizeof id) abort();
    return id;
}

static struct sockaddr_un place(const char *service) {
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    snprintf(at.sun_path, sizeof at.sun_path, "%s.sock", service);
    return at;
}

static int reach(const char *service) {
    struct sockaddr_un at = place(service);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at)) abort();
    return fd;
}

/* One call over `fd`, on behalf of `for_call` (NULL: a new trace). */
static void ask(int fd, const struct call *for_call, const char *name, int number) {
    struct call c = {.trace = for_call ? for_call->trace : fresh(), .span = fresh(), .number = number};
    c.parent = for_call ? for_call->span : 0;
    snprintf(c.name, sizeof c.name, "%s", name);
    event(&c, "cs");
    if (write(fd, &c, sizeof c) != sizeof c || read(fd, &c, sizeof c) != sizeof c) abort();
    event(&c, "cr");
}

static void *serve(void *arg) {
    int fd = (int)(long)arg, next = -1;
    struct call c;
    char text[64];
    while (read(fd, &c, sizeof c) == sizeof c) {
        event(&c, "sr");
        usleep(200 + c.number * 37 % 400);
        if (!strcmp(self, "web")) {
            snprintf(text, sizeof text, "/item?name=\"user %d\"\n", c.number);
            keyval(&c, "http.uri", text);
            if (c.number % 5) {
                if (next < 0) next = reach("app");
                ask(next, &c, "item", c.number);
            }
        } else if (!strcmp(self, "app")) {
            if (next < 0) next = reach("db");
            for (int i = 0; i <= c.number % 2; i++) ask(next, &c, i ? "update" : "select", c.number);
        } else {
            event(&c, "rows found");
        }
        event(&c, "ss");
        if (write(fd, &c, sizeof c) != sizeof c) abort();
    }
    close(fd);
    if (next >= 0) close(next);
    return NULL;
}

static void *client(void *arg) {
    int fd = reach("web"), calls = (int)(long)arg;
    for (int i = 0; i < calls; i++) ask(fd, NULL, "get item", i);
    close(fd);
    return NULL;
}

static int load(int clients, int calls) {
    pthread_t threads[64];
    if (clients > 64) return 2;
    for (int i = 0; i < clients; i++) pthread_create(&threads[i], NULL, client, (void *)(long)calls);
    for (int i = 0; i < clients; i++) pthread_join(threads[i], NULL);
    return 0;
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    self = argv[1];
    if (!strcmp(self, "load")) return argc == 4 ? load(atoi(argv[2]), atoi(argv[3])) : 2;
    struct sockaddr_un at = place(self);
    unlink(at.sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) || listen(fd, 64)) abort();
    for (;;) {
        int taken = accept(fd, NULL, NULL);
        pthread_t thread;
        if (taken < 0 || pthread_create(&thread, NULL, serve, (void *)(long)taken)) abort();
        pthread_detach(thread);
    }
}
