// The helper thread that writes a process's log, and the life of that log.
#pragma once

#include <stdbool.h>
#include <stdint.h>

// Begins the log if it is not begun yet. False: there is none (no folder given, or it cannot be written).
bool writer_ready(void);

// Id of the process that the log belongs to.
uint32_t writer_process(void);

// The log's own descriptor, -1 none. A server that closes "everything" must not close it.
int writer_descriptor(void);

// When the program is loaded: where logs are to be, and whose.
void writer_begin(void);

// When the process ends: true for the one thread that is to close the log, after its last records.
bool writer_closing(void);
void writer_close(void);

// After a fork, in the child: no log, until it has a connection.
void writer_reset(void);
