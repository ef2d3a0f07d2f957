// When and in which thread something happens.
#pragma once

#include <stdint.h>

// CLOCK_REALTIME, ns.
uint64_t now_ns(void);

// The kernel's id of the calling thread.
uint32_t own_thread(void);

// After a fork, in the child, whose thread has another id.
void own_thread_reset(void);
