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

// Writes what there is and the end of the log. Once.
void writer_finish(void);
