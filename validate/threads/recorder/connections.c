#define _GNU_SOURCE
#include "connections.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

// The kernel's own header knows the counters of bytes; glibc's netinet/tcp.h of Debian 12 does not.
#include <linux/tcp.h>

#include "moment.h"
#include "pause.h"
#include "ring.h"
#include "writer.h"

enum { DESCRIPTORS = 1 << 20, CONNECTIONS = 1 << 16 };

struct connection {
    _Atomic uint32_t number;
    _Atomic uint32_t descriptors;  // 0: this place is free
    _Atomic uint64_t bytes[2];     // by direction
    _Atomic uint32_t turn;         // pause_turn for which `bytes` are right
};

// No turns of recording: what a connection has that must be, and that is being, counted anew.
static const uint32_t STALE = UINT32_MAX, COUNTING = UINT32_MAX - 2;

// What a descriptor is: not known, no TCP connection, or FIRST + place of a connection.
enum { UNKNOWN, OTHER, FIRST };

static _Alignas(4096) _Atomic uint32_t states[DESCRIPTORS];
static _Alignas(4096) struct connection places[CONNECTIONS];
static _Atomic uint32_t last_number;
static _Atomic int highest;  // descriptor in use, at most

// Address as 16 bytes (IPv4, also when mapped into IPv6, as four), its port, and the version of IP; 0: neither.
static uint8_t read_address(const struct sockaddr* from, uint8_t* bytes, uint16_t* port) {
    memset(bytes, 0, 16);
    if (from->sa_family == AF_INET) {
        const struct sockaddr_in* v4 = (const struct sockaddr_in*)(const void*)from;
        memcpy(bytes, &v4->sin_addr, 4);
        *port = ntohs(v4->sin_port);
        return 4;
    }
    if (from->sa_family != AF_INET6) return 0;
    const struct sockaddr_in6* v6 = (const struct sockaddr_in6*)(const void*)from;
    *port = ntohs(v6->sin6_port);
    if (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr)) {
        memcpy(bytes, v6->sin6_addr.s6_addr + 12, 4);
        return 4;
    }
    memcpy(bytes, &v6->sin6_addr, 16);
    return 6;
}

// Bytes that the program has received and sent, as the kernel counts them. Not by what was acknowledged: who connected
// has a byte more there, for its SYN.
static void count_bytes(int fd, uint64_t bytes[2]) {
    struct tcp_info info;
    socklen_t length = sizeof info;
    int unread = 0;
    bytes[0] = bytes[1] = UNKNOWN_BYTES;
    memset(&info, 0, sizeof info);
    if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
    if (length < offsetof(struct tcp_info, tcpi_bytes_retrans) + sizeof info.tcpi_bytes_retrans) return;
    if (ioctl(fd, SIOCINQ, &unread) != 0) return;
    bytes[DIRECTION_RECEIVED] = info.tcpi_bytes_received - (unsigned)unread;
    bytes[DIRECTION_SENT] = info.tcpi_bytes_sent - info.tcpi_bytes_retrans + info.tcpi_notsent_bytes;
}

static struct connection* free_place(int fd) {
    for (uint32_t i = 0; i < CONNECTIONS; i++) {
        struct connection* place = &places[((uint32_t)fd + i) % CONNECTIONS];
        uint32_t none = 0;
        if (atomic_compare_exchange_strong(&place->descriptors, &none, 1)) return place;
    }
    return NULL;
}

static void set_state(int fd, uint32_t state) {
    atomic_store_explicit(&states[fd], state, memory_order_release);
    int seen = atomic_load_explicit(&highest, memory_order_relaxed);
    while (seen < fd && !atomic_compare_exchange_weak(&highest, &seen, fd)) {}
}

static bool in_range(int fd) { return fd >= 0 && fd < DESCRIPTORS; }

static struct connection* opened(int fd, enum how how, const struct sockaddr* peer, uint64_t begin_ns) {
    struct sockaddr_storage own;
    socklen_t length = sizeof own;
    struct record record = {
        .begin_ns = begin_ns, .thread = own_thread(), .kind = KIND_OPEN, .what = (uint8_t)how};
    if (getsockname(fd, (struct sockaddr*)&own, &length) != 0) return NULL;
    record.direction = read_address((struct sockaddr*)&own, record.open.own, &record.port[0]);
    if (record.direction == 0 || read_address(peer, record.open.peer, &record.port[1]) == 0) return NULL;
    if (!writer_ready()) return NULL;
    struct connection* place = free_place(fd);
    if (place == NULL) return NULL;
    uint64_t before[2] = {0, 0};
    if (how == HOW_FOUND) {
        count_bytes(fd, before);
        if (before[0] == UNKNOWN_BYTES) before[0] = before[1] = 0;
    }
    record.connection = atomic_fetch_add(&last_number, 1) + 1;
    atomic_store(&place->number, record.connection);
    atomic_store(&place->bytes[0], before[0]);
    atomic_store(&place->bytes[1], before[1]);
    atomic_store(&place->turn, pause_turn());
    ring_push(&record);
    set_state(fd, FIRST + (uint32_t)(place - places));
    return place;
}

static bool is_stream(int fd) {
    int type = 0;
    socklen_t length = sizeof type;
    return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &length) == 0 && type == SOCK_STREAM;
}

static struct connection* look_up(int fd) {
    int error = errno;
    struct connection* found = NULL;
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    // Before it is connected a socket has no peer; connect() and accept() tell when it has.
    if (is_stream(fd) && getpeername(fd, (struct sockaddr*)&peer, &length) == 0)
        found = opened(fd, HOW_FOUND, (struct sockaddr*)&peer, now_ns());
    if (found == NULL) set_state(fd, OTHER);
    errno = error;
    return found;
}

// Takes the kernel's counts, because bytes moved while recording was paused. One thread does; others wait, or their
// bytes would be counted twice. NULL when that takes too long (a signal handler waits for what it interrupted).
static struct connection* count_anew(int fd, struct connection* connection, uint32_t turn) {
    enum { PATIENCE = 1000 };
    int error = errno;
    for (int tries = 0; tries < PATIENCE; tries++) {
        uint32_t known = atomic_load(&connection->turn);
        if (known == turn) break;
        if (known == COUNTING) {
            sched_yield();
        } else if (atomic_compare_exchange_strong(&connection->turn, &known, COUNTING)) {
            uint64_t bytes[2];
            count_bytes(fd, bytes);
            for (int way = 0; way < 2 && bytes[0] != UNKNOWN_BYTES; way++)
                atomic_store(&connection->bytes[way], bytes[way]);
            atomic_store(&connection->turn, turn);
        }
    }
    errno = error;
    return atomic_load(&connection->turn) == turn ? connection : NULL;
}

struct connection* connection_of(int fd) {
    if (!in_range(fd)) return NULL;
    uint32_t state = atomic_load_explicit(&states[fd], memory_order_acquire);
    if (state == OTHER) return NULL;
    uint32_t turn = pause_turn();
    if (is_paused(turn)) return NULL;
    if (state == UNKNOWN) return look_up(fd);
    struct connection* connection = &places[state - FIRST];
    if (atomic_load_explicit(&connection->turn, memory_order_acquire) == turn) return connection;
    return count_anew(fd, connection, turn);
}

void note_call(struct connection* connection, enum call call, enum direction direction, uint64_t begin_ns,
               int64_t bytes) {
    int error = errno;
    // A call that found nothing to do says nothing; event loops make many of them.
    if (bytes < 0 && (error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == EINPROGRESS))
        return;
    if (is_paused(pause_turn())) return;
    if (begin_ns < atomic_load_explicit(&pause_state.resumed_ns, memory_order_relaxed)) {
        // Begun before, or while nothing was noted: who knows whether the kernel's counts had these bytes already.
        atomic_store(&connection->turn, STALE);
        return;
    }
    uint64_t moved = bytes > 0 ? (uint64_t)bytes : 0;
    struct record record = {
        .begin_ns = begin_ns,
        .connection = atomic_load_explicit(&connection->number, memory_order_relaxed),
        .thread = own_thread(),
        .kind = KIND_CALL,
        .what = (uint8_t)call,
        .direction = (uint8_t)direction,
        .error = bytes < 0 ? error : 0,
        .call = {.end_ns = now_ns(),
                 .offset =
                     atomic_fetch_add_explicit(&connection->bytes[direction], moved, memory_order_relaxed),
                 .bytes = moved},
    };
    ring_push(&record);
    errno = error;
}

// A number that was given anew. If it still stands for a connection, that one was closed without our seeing it.
static void renew(int fd) {
    uint32_t state = atomic_exchange(&states[fd], OTHER);
    if (state >= FIRST) atomic_fetch_sub(&places[state - FIRST].descriptors, 1);
}

void descriptor_accepted(int fd) {
    if (!in_range(fd)) return;
    int error = errno;
    struct sockaddr_storage peer;
    socklen_t length = sizeof peer;
    renew(fd);
    if (getpeername(fd, (struct sockaddr*)&peer, &length) == 0)
        opened(fd, HOW_ACCEPTED, (struct sockaddr*)&peer, now_ns());
    errno = error;
}

void descriptor_connected(int fd, const struct sockaddr* peer, uint64_t begin_ns) {
    if (!in_range(fd) || peer == NULL) return;
    int error = errno;
    // Asked again while it is under way, or once it is done: the connection is known.
    bool known = atomic_load(&states[fd]) >= FIRST;
    if (!known && (peer->sa_family == AF_INET || peer->sa_family == AF_INET6) && is_stream(fd))
        opened(fd, HOW_CONNECTED, peer, begin_ns);
    errno = error;
}

void descriptor_new(int fd) {
    if (in_range(fd)) renew(fd);
}

static void write_ends(int fd, const struct connection* connection, enum kind kind) {
    struct record record = {
        .begin_ns = now_ns(),
        .connection = atomic_load(&connection->number),
        .thread = own_thread(),
        .kind = (uint8_t)kind,
        .close = {.seen = {atomic_load(&connection->bytes[0]), atomic_load(&connection->bytes[1])}},
    };
    if (!is_paused(pause_turn()) && atomic_load(&connection->turn) == pause_turn())
        count_bytes(fd, record.close.counted);
    else  // it moved more than was seen, as it was meant to
        record.close.counted[0] = record.close.counted[1] = UNKNOWN_BYTES;
    ring_push(&record);
}

// True: this process has the memory for itself. A child of vfork() has not, and must not change it.
static bool own_memory(void) { return (uint32_t)syscall(SYS_getpid) == writer_process(); }

void descriptor_closing(int fd) {
    if (!in_range(fd) || atomic_load(&states[fd]) == UNKNOWN || !own_memory()) return;
    int error = errno;
    uint32_t state = atomic_exchange(&states[fd], UNKNOWN);
    if (state >= FIRST) {
        struct connection* connection = &places[state - FIRST];
        if (atomic_load(&connection->descriptors) == 1) write_ends(fd, connection, KIND_CLOSE);
        atomic_fetch_sub(&connection->descriptors, 1);
    }
    errno = error;
}

void descriptor_copied(int from, int to) {
    if (!in_range(to) || from == to || !own_memory()) return;
    uint32_t state = in_range(from) ? atomic_load(&states[from]) : UNKNOWN;
    if (state >= FIRST) atomic_fetch_add(&places[state - FIRST].descriptors, 1);
    set_state(to, state);
}

void connections_still_open(void) {
    int last = atomic_load(&highest);
    for (int fd = 0; fd <= last; fd++) {
        uint32_t state = atomic_load(&states[fd]);
        if (state >= FIRST) write_ends(fd, &places[state - FIRST], KIND_STILL);
    }
}

void connections_reset(void) {
    atomic_store(&last_number, 0);
    if (atomic_load(&highest) > 0) {
        madvise(states, sizeof states, MADV_DONTNEED);
        madvise(places, sizeof places, MADV_DONTNEED);
    }
    atomic_store(&highest, 0);
}
