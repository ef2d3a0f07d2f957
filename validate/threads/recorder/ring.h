// Records on their way from the server's threads to the helper thread: bounded, without locks, and safe in signal
// handlers. A producer never waits; when the ring is full its record is lost and counted.
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "format.h"

enum { RING_SLOTS = 16384 };

// Any thread. False: there was no room.
bool ring_push(const struct record* record);

// One thread at a time. False: there is nothing (or its producer is not done yet).
bool ring_pop(struct record* record);

// Records lost since the last call.
uint64_t ring_take_lost(void);

// Waits until a quarter of the ring was filled, or so long.
void ring_wait(unsigned milliseconds);

// After a fork, in the child: empty, whatever the parent's threads were doing.
void ring_reset(void);
