// Which descriptor is which TCP connection, and how many of its bytes have passed.
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "format.h"

struct connection;

// The TCP connection behind a descriptor, NULL for anything else. Asks the kernel once per descriptor.
struct connection* connection_of(int fd);

// A call is done; `bytes` < 0: it failed with errno.
void note_call(struct connection* connection, enum call call, enum direction direction, uint64_t begin_ns,
               int64_t bytes);

// What happened to descriptors.
void descriptor_accepted(int fd);
void descriptor_connected(int fd, const struct sockaddr* peer, uint64_t begin_ns);
void descriptor_new(int fd);  // a socket that is not connected yet
void descriptor_copied(int from, int to);
void descriptor_closing(int fd);  // before it is closed: afterwards another thread may have got its number

// When the process ends: a record for every connection that is open.
void connections_still_open(void);

// After a fork, in the child: what is inherited is found again when it is used.
void connections_reset(void);
