// vApp: a server for request paths of any shape (vPath, 4.1). Each server asks servers of the next tier, as often
// as chance has it, and its answer says where the request has been.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { LARGEST = 1 << 16, MOST_BELOW = 16 };

struct settings {
    const char* name;     // as it is called: ADDRESS:PORT
    const char* service;  // what its spans are noted by
    const char* below[MOST_BELOW];
    int below_count;
    int threads;
    bool dispatcher;  // one thread receives, `threads` others work; else a thread per connection
    double go;        // chance that a call (and then another one) is made
    int most;         // calls for one request, at most
    double work_us;   // mean CPU time before, between and after calls
    double pause_us;  // the same, asleep
    uint64_t seed;
};

extern struct settings settings;

// A message that was received: head and, of an answer, body.
struct message {
    char bytes[LARGEST];
    size_t size;
    const char* body;
    size_t body_size;
};

// Receives one message. False: the other side has closed, or it makes no sense.
bool receive(int fd, struct message* message, bool answer);

// Value of a header field of a message, copied into `value`; "" if there is none.
void header(const struct message* message, const char* name, char* value, size_t room);

// Sends everything. False: the connection is gone.
bool send_all(int fd, const char* bytes, size_t size);

// Opens a socket at ADDRESS:PORT, listening or connected; ends the program or gives -1 when it cannot.
int listen_at(const char* place);
int connect_to(const char* place);

// Does what a request asks for and sends the answer. False: the connection is to be closed.
bool serve(int fd, const struct message* request);

// Chance; every thread has its own.
double draw(void);
