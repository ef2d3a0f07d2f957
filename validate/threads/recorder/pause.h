// Recording can be paused: while there is a file `paused` in the folder of the logs, sends and receives leave no
// records. Connections that come and go do, so that they keep their numbers.
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// Every call looks here, so nothing that is written often shares the cache line.
struct pause {
    // Goes up by one whenever recording is paused and whenever it is resumed: odd while it is paused.
    _Alignas(64) _Atomic uint32_t turn;
    // Since when records are made again; 0: from the beginning.
    _Atomic uint64_t resumed_ns;
};
extern struct pause pause_state;

static inline uint32_t pause_turn(void) {
    return atomic_load_explicit(&pause_state.turn, memory_order_relaxed);
}

static inline bool is_paused(uint32_t turn) { return turn & 1; }

// Looks for the file, and notes in the log when it has come or gone.
void pause_look(const char* folder);

// After a fork, in the child.
void pause_reset(void);
