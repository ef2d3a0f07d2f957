// The functions of libc that send, receive, open and close, put in front of the real ones. Nothing of what they move
// is looked at: only who called, on which connection, when, and how many bytes.
#define _GNU_SOURCE
// sendfile and sendfile64 are two functions here, whatever offsets the build is for.
#undef _FILE_OFFSET_BITS
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "connections.h"
#include "life.h"
#include "moment.h"
#include "writer.h"

#define PUBLIC __attribute__((visibility("default")))

// Functions that are put in front of libc's.
#define FUNCTIONS(each)                                                                                     \
    each(read) each(__read_chk) each(readv) each(recv) each(__recv_chk) each(recvfrom) each(__recvfrom_chk) \
        each(recvmsg) each(write) each(writev) each(send) each(sendto) each(sendmsg) each(recvmmsg)         \
            each(sendmmsg) each(sendfile) each(sendfile64) each(splice) each(shutdown) each(accept)         \
                each(accept4) each(connect) each(socket) each(dup) each(dup2) each(dup3) each(fcntl)        \
                    each(fcntl64) each(close) each(fclose) each(close_range) each(_exit)

#define PLACE(name) static _Atomic(void*) found_##name;
FUNCTIONS(PLACE)

// The next function of this name: libc's.
static void* find(_Atomic(void*)* place, const char* name) {
    void* found = atomic_load_explicit(place, memory_order_relaxed);
    if (found == NULL) {
        found = dlsym(RTLD_NEXT, name);
        atomic_store_explicit(place, found, memory_order_relaxed);
    }
    return found;
}

// All are looked up before there are threads. Later it might never come to an end: dlsym waits for the loader, while a
// library that is being loaded may wait for its own thread, which comes by here (LTTng's does).
__attribute__((constructor)) static void find_all(void) {
#define FIND(name) find(&found_##name, #name);
    FUNCTIONS(FIND)
}

// Declares `real`, libc's function of that name.
#define REAL(name) __typeof__(name)* real = (__typeof__(name)*)find(&found_##name, #name)

// Calls the real function and notes it, if the descriptor is a TCP connection.
#define RECORD(fd, call, direction, name, ...)                   \
    do {                                                         \
        REAL(name);                                              \
        struct connection* connection = connection_of(fd);       \
        if (connection == NULL) return real(__VA_ARGS__);        \
        uint64_t begin_ns = now_ns();                            \
        ssize_t moved = real(__VA_ARGS__);                       \
        note_call(connection, call, direction, begin_ns, moved); \
        return moved;                                            \
    } while (0)

#define RECEIVED DIRECTION_RECEIVED
#define SENT DIRECTION_SENT

// Bytes that are only looked at, and messages about errors, do not move on in the stream.
#define NOT_CONSUMED (MSG_PEEK | MSG_ERRQUEUE | MSG_OOB)

// Checked variants, which programs built with _FORTIFY_SOURCE call.
ssize_t __read_chk(int, void*, size_t, size_t);
ssize_t __recv_chk(int, void*, size_t, size_t, int);
ssize_t __recvfrom_chk(int, void*, size_t, size_t, int, struct sockaddr*, socklen_t*);

PUBLIC ssize_t read(int fd, void* buffer, size_t size) {
    RECORD(fd, CALL_READ, RECEIVED, read, fd, buffer, size);
}

PUBLIC ssize_t __read_chk(int fd, void* buffer, size_t size, size_t room) {
    RECORD(fd, CALL_READ, RECEIVED, __read_chk, fd, buffer, size, room);
}

PUBLIC ssize_t readv(int fd, const struct iovec* parts, int count) {
    RECORD(fd, CALL_READV, RECEIVED, readv, fd, parts, count);
}

PUBLIC ssize_t recv(int fd, void* buffer, size_t size, int flags) {
    RECORD(flags & NOT_CONSUMED ? -1 : fd, CALL_RECV, RECEIVED, recv, fd, buffer, size, flags);
}

PUBLIC ssize_t __recv_chk(int fd, void* buffer, size_t size, size_t room, int flags) {
    RECORD(flags & NOT_CONSUMED ? -1 : fd, CALL_RECV, RECEIVED, __recv_chk, fd, buffer, size, room, flags);
}

PUBLIC ssize_t recvfrom(int fd, void* restrict buffer, size_t size, int flags, struct sockaddr* restrict from,
                        socklen_t* restrict length) {
    RECORD(flags & NOT_CONSUMED ? -1 : fd, CALL_RECVFROM, RECEIVED, recvfrom, fd, buffer, size, flags, from,
           length);
}

PUBLIC ssize_t __recvfrom_chk(int fd, void* buffer, size_t size, size_t room, int flags,
                              struct sockaddr* from, socklen_t* length) {
    RECORD(flags & NOT_CONSUMED ? -1 : fd, CALL_RECVFROM, RECEIVED, __recvfrom_chk, fd, buffer, size, room,
           flags, from, length);
}

PUBLIC ssize_t recvmsg(int fd, struct msghdr* message, int flags) {
    RECORD(flags & NOT_CONSUMED ? -1 : fd, CALL_RECVMSG, RECEIVED, recvmsg, fd, message, flags);
}

PUBLIC ssize_t write(int fd, const void* data, size_t size) {
    RECORD(fd, CALL_WRITE, SENT, write, fd, data, size);
}

PUBLIC ssize_t writev(int fd, const struct iovec* parts, int count) {
    RECORD(fd, CALL_WRITEV, SENT, writev, fd, parts, count);
}

PUBLIC ssize_t send(int fd, const void* data, size_t size, int flags) {
    RECORD(fd, CALL_SEND, SENT, send, fd, data, size, flags);
}

PUBLIC ssize_t sendto(int fd, const void* data, size_t size, int flags, const struct sockaddr* to,
                      socklen_t length) {
    RECORD(fd, CALL_SENDTO, SENT, sendto, fd, data, size, flags, to, length);
}

PUBLIC ssize_t sendmsg(int fd, const struct msghdr* message, int flags) {
    RECORD(fd, CALL_SENDMSG, SENT, sendmsg, fd, message, flags);
}

static int64_t sum(const struct mmsghdr* messages, int count) {
    int64_t bytes = count < 0 ? -1 : 0;
    for (int i = 0; i < count; i++) bytes += messages[i].msg_len;
    return bytes;
}

PUBLIC int recvmmsg(int fd, struct mmsghdr* messages, unsigned count, int flags, struct timespec* timeout) {
    REAL(recvmmsg);
    struct connection* connection = flags & NOT_CONSUMED ? NULL : connection_of(fd);
    uint64_t begin_ns = now_ns();
    int done = real(fd, messages, count, flags, timeout);
    if (connection != NULL) note_call(connection, CALL_RECVMMSG, RECEIVED, begin_ns, sum(messages, done));
    return done;
}

PUBLIC int sendmmsg(int fd, struct mmsghdr* messages, unsigned count, int flags) {
    REAL(sendmmsg);
    struct connection* connection = connection_of(fd);
    uint64_t begin_ns = now_ns();
    int done = real(fd, messages, count, flags);
    if (connection != NULL) note_call(connection, CALL_SENDMMSG, SENT, begin_ns, sum(messages, done));
    return done;
}

PUBLIC ssize_t sendfile(int to, int from, off_t* offset, size_t size) {
    RECORD(to, CALL_SENDFILE, SENT, sendfile, to, from, offset, size);
}

PUBLIC ssize_t sendfile64(int to, int from, off64_t* offset, size_t size) {
    RECORD(to, CALL_SENDFILE, SENT, sendfile64, to, from, offset, size);
}

PUBLIC ssize_t splice(int from, off64_t* from_offset, int to, off64_t* to_offset, size_t size,
                      unsigned flags) {
    REAL(splice);
    struct connection* receiving = connection_of(from);
    struct connection* sending = connection_of(to);
    uint64_t begin_ns = now_ns();
    ssize_t moved = real(from, from_offset, to, to_offset, size, flags);
    if (receiving != NULL) note_call(receiving, CALL_SPLICE, RECEIVED, begin_ns, moved);
    if (sending != NULL) note_call(sending, CALL_SPLICE, SENT, begin_ns, moved);
    return moved;
}

PUBLIC int shutdown(int fd, int how) {
    REAL(shutdown);
    struct connection* connection = connection_of(fd);
    uint64_t begin_ns = now_ns();
    int done = real(fd, how);
    if (connection != NULL && done == 0)
        note_call(connection, CALL_SHUTDOWN, how == SHUT_RD ? RECEIVED : SENT, begin_ns, 0);
    return done;
}

PUBLIC int accept(int fd, struct sockaddr* restrict peer, socklen_t* restrict length) {
    REAL(accept);
    int got = real(fd, peer, length);
    if (got >= 0) descriptor_accepted(got);
    return got;
}

PUBLIC int accept4(int fd, struct sockaddr* restrict peer, socklen_t* restrict length, int flags) {
    REAL(accept4);
    int got = real(fd, peer, length, flags);
    if (got >= 0) descriptor_accepted(got);
    return got;
}

PUBLIC int connect(int fd, const struct sockaddr* peer, socklen_t length) {
    REAL(connect);
    uint64_t begin_ns = now_ns();
    int done = real(fd, peer, length);
    if (done == 0 || errno == EINPROGRESS || errno == EINTR) descriptor_connected(fd, peer, begin_ns);
    return done;
}

PUBLIC int socket(int domain, int type, int protocol) {
    REAL(socket);
    int got = real(domain, type, protocol);
    descriptor_new(got);
    return got;
}

PUBLIC int dup(int fd) {
    REAL(dup);
    int got = real(fd);
    if (got >= 0) descriptor_copied(fd, got);
    return got;
}

// The log's own descriptor is not the server's to replace.
static bool is_log(int fd) { return fd >= 0 && fd == writer_descriptor(); }

PUBLIC int dup2(int from, int to) {
    REAL(dup2);
    if (is_log(to)) return errno = EBADF, -1;
    if (from != to) descriptor_closing(to);
    int got = real(from, to);
    if (got >= 0) descriptor_copied(from, to);
    return got;
}

PUBLIC int dup3(int from, int to, int flags) {
    REAL(dup3);
    if (is_log(to)) return errno = EBADF, -1;
    descriptor_closing(to);
    int got = real(from, to, flags);
    if (got >= 0) descriptor_copied(from, to);
    return got;
}

#define FCNTL(name)                                                                                     \
    PUBLIC int name(int fd, int command, ...) {                                                         \
        REAL(name);                                                                                     \
        va_list rest;                                                                                   \
        va_start(rest, command);                                                                        \
        void* argument = va_arg(rest, void*);                                                           \
        va_end(rest);                                                                                   \
        int got = real(fd, command, argument);                                                          \
        if (got >= 0 && (command == F_DUPFD || command == F_DUPFD_CLOEXEC)) descriptor_copied(fd, got); \
        return got;                                                                                     \
    }

FCNTL(fcntl)
FCNTL(fcntl64)

PUBLIC int close(int fd) {
    REAL(close);
    if (is_log(fd)) return errno = EBADF, -1;
    descriptor_closing(fd);
    return real(fd);
}

PUBLIC int fclose(FILE* file) {
    REAL(fclose);
    if (file != NULL) descriptor_closing(fileno(file));
    return real(file);
}

PUBLIC int close_range(unsigned first, unsigned last, int flags) {
    REAL(close_range);
    int log = writer_descriptor();
    if (!((unsigned)flags & CLOSE_RANGE_CLOEXEC))
        for (unsigned fd = first; fd <= last && fd < 65536; fd++) descriptor_closing((int)fd);
    if (log < 0 || (unsigned)log < first || (unsigned)log > last) return real(first, last, flags);
    int below = (unsigned)log > first ? real(first, (unsigned)log - 1, flags) : 0;
    int above = (unsigned)log < last ? real((unsigned)log + 1, last, flags) : 0;
    return below < 0 ? below : above;
}

PUBLIC void closefrom(int first) { close_range((unsigned)(first < 0 ? 0 : first), ~0u, 0); }

PUBLIC _Noreturn void _exit(int status) {
    REAL(_exit);
    recorder_finish();
    real(status);
    __builtin_unreachable();
}

PUBLIC _Noreturn void _Exit(int status) { _exit(status); }
