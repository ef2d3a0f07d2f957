// HTTP/1.1 messages and sockets: as much of them as servers need that only talk to one another.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include "vapp.h"

void header(const struct message* message, const char* name, char* value, size_t room) {
    char start[64];
    int size = snprintf(start, sizeof start, "\r\n%s: ", name);
    const char* found = memmem(message->bytes, (size_t)(message->body - message->bytes), start, (size_t)size);
    value[0] = 0;
    if (found == NULL) return;
    found += size;
    const char* end = strstr(found, "\r\n");
    if (end != NULL && (size_t)(end - found) < room) snprintf(value, room, "%.*s", (int)(end - found), found);
}

bool receive(int fd, struct message* message, bool answer) {
    message->size = 0;
    size_t wanted = 0;  // not known before the head is there
    while (wanted == 0 || message->size < wanted) {
        ssize_t got = recv(fd, message->bytes + message->size, sizeof message->bytes - 1 - message->size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        message->size += (size_t)got;
        message->bytes[message->size] = 0;
        const char* end = strstr(message->bytes, "\r\n\r\n");
        if (end == NULL) continue;
        char length[32] = "0";
        message->body = end + 4;
        if (answer) header(message, "Content-Length", length, sizeof length);
        message->body_size = strtoul(length, NULL, 10);
        wanted = (size_t)(message->body - message->bytes) + message->body_size;
        if (wanted >= sizeof message->bytes) return false;
    }
    return true;
}

bool send_all(int fd, const char* bytes, size_t size) {
    while (size > 0) {
        ssize_t sent = send(fd, bytes, size, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR) continue;
        if (sent <= 0) return false;
        bytes += sent;
        size -= (size_t)sent;
    }
    return true;
}

static struct sockaddr_in place_of(const char* place) {
    char address[64];
    const char* colon = strrchr(place, ':');
    struct sockaddr_in found = {.sin_family = AF_INET};
    if (colon != NULL && (size_t)(colon - place) < sizeof address) {
        snprintf(address, sizeof address, "%.*s", (int)(colon - place), place);
        found.sin_port = htons((uint16_t)atoi(colon + 1));
        if (inet_pton(AF_INET, address, &found.sin_addr) == 1) return found;
    }
    fprintf(stderr, "vapp: %s is not ADDRESS:PORT\n", place);
    exit(2);
}

static int stream_socket(void) {
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    return fd;
}

int listen_at(const char* place) {
    struct sockaddr_in own = place_of(place);
    int fd = stream_socket();
    if (bind(fd, (struct sockaddr*)&own, sizeof own) != 0 || listen(fd, 1024) != 0) {
        fprintf(stderr, "vapp: cannot listen at %s: %s\n", place, strerror(errno));
        exit(1);
    }
    return fd;
}

int connect_to(const char* place) {
    struct sockaddr_in peer = place_of(place);
    int fd = stream_socket();
    if (connect(fd, (struct sockaddr*)&peer, sizeof peer) == 0) return fd;
    close(fd);
    return -1;
}
