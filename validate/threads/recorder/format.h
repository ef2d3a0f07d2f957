// What a thread log is made of: one file per process, a header and then records of one size, in the byte order of
// the machine. docs/threads.md describes it; reconstruct/threads/log.py reads it.
#pragma once

#include <stdint.h>

#define LOG_MAGIC "TAPSTHR1"

struct log_header {
    char magic[8];
    uint32_t header_bytes;
    uint32_t record_bytes;
    uint32_t pid;
    uint32_t parent;
    uint64_t started_ns;  // CLOCK_REALTIME, as every time in the log
    uint64_t network;     // inode of the network namespace: addresses mean nothing beyond it
    uint32_t slots;       // of the ring
    uint32_t reserved;
    char host[64];
    char program[64];
};

enum kind {
    KIND_CALL = 1,     // a thread sent or received
    KIND_OPEN = 2,     // a connection is used for the first time
    KIND_CLOSE = 3,    // its last descriptor was closed
    KIND_STILL = 4,    // it was open when the process ended
    KIND_LOST = 5,     // the ring was full: so many records are missing before this one
    KIND_END = 6,      // the process ended and everything before is written
    KIND_PAUSED = 7,   // from here on calls are left out
    KIND_RESUMED = 8,  // no longer
};

enum how {
    HOW_ACCEPTED = 1,
    HOW_CONNECTED = 2,
    HOW_FOUND = 3,  // inherited, or opened by a call that the recorder does not see
};

enum direction { DIRECTION_RECEIVED = 0, DIRECTION_SENT = 1 };

enum call {
    CALL_READ = 1,
    CALL_READV,
    CALL_RECV,
    CALL_RECVFROM,
    CALL_RECVMSG,
    CALL_RECVMMSG,
    CALL_WRITE,
    CALL_WRITEV,
    CALL_SEND,
    CALL_SENDTO,
    CALL_SENDMSG,
    CALL_SENDMMSG,
    CALL_SENDFILE,
    CALL_SPLICE,
    CALL_SHUTDOWN,
};

#define UNKNOWN_BYTES UINT64_MAX

struct record {
    uint64_t begin_ns;
    uint32_t connection;  // number within the process, from 1
    uint32_t thread;      // as gettid gives it
    uint8_t kind;
    uint8_t what;       // enum call or enum how
    uint8_t direction;  // OPEN: 4 or 6, the version of IP
    uint8_t reserved;
    union {
        int32_t error;     // errno of a call that failed
        uint16_t port[2];  // OPEN: own, peer's
    };
    union {
        struct {
            uint64_t end_ns;
            uint64_t offset;  // of the first byte in the stream of its direction
            uint64_t bytes;   // 0: end of stream, or shut down
            uint64_t reserved;
        } call;
        struct {
            uint8_t own[16];  // IPv4 in the first four bytes
            uint8_t peer[16];
        } open;
        struct {  // CLOSE, STILL: bytes that passed through the recorder, and those that the kernel counted
            uint64_t seen[2];
            uint64_t counted[2];
        } close;
        struct {
            uint64_t lost;
            uint64_t written;
        } end;
    };
};

_Static_assert(sizeof(struct record) == 56, "the reader relies on it");
_Static_assert(sizeof(struct log_header) == 176, "the reader relies on it");
