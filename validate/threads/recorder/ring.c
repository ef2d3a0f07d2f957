// The bounded queue of D. Vyukov for many producers: every slot has a turn, which says whose it is.
#include "ring.h"

#include <linux/futex.h>
#include <stdatomic.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

struct slot {
    // Position that may write here; one more: may be read. Stored less the index of the slot, so that zeroed memory
    // is an empty ring and a process that never talks TCP never touches it.
    _Atomic uint32_t turn;
    struct record record;
};

_Static_assert(sizeof(struct slot) == 64, "one cache line");

static _Alignas(4096) struct slot slots[RING_SLOTS];
static _Atomic uint32_t tail;
static uint32_t head;
static _Atomic uint64_t lost;
static _Atomic uint32_t bell;

bool ring_push(const struct record* record) {
    uint32_t at = atomic_load_explicit(&tail, memory_order_relaxed);
    for (;;) {
        uint32_t index = at % RING_SLOTS;
        struct slot* slot = &slots[index];
        int32_t ahead = (int32_t)(atomic_load_explicit(&slot->turn, memory_order_acquire) + index - at);
        if (ahead < 0) {
            atomic_fetch_add_explicit(&lost, 1, memory_order_relaxed);
            return false;
        }
        if (ahead > 0) {
            at = atomic_load_explicit(&tail, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(&tail, &at, at + 1, memory_order_relaxed,
                                                         memory_order_relaxed)) {
            slot->record = *record;
            atomic_store_explicit(&slot->turn, at + 1 - index, memory_order_release);
            break;
        }
    }
    if (at % (RING_SLOTS / 4) == 0) {
        atomic_fetch_add_explicit(&bell, 1, memory_order_relaxed);
        syscall(SYS_futex, &bell, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
    }
    return true;
}

bool ring_pop(struct record* record) {
    uint32_t index = head % RING_SLOTS;
    struct slot* slot = &slots[index];
    if (atomic_load_explicit(&slot->turn, memory_order_acquire) + index != head + 1) return false;
    *record = slot->record;
    atomic_store_explicit(&slot->turn, head + RING_SLOTS - index, memory_order_release);
    head++;
    return true;
}

uint64_t ring_take_lost(void) { return atomic_exchange_explicit(&lost, 0, memory_order_relaxed); }

void ring_wait(unsigned milliseconds) {
    uint32_t heard = atomic_load_explicit(&bell, memory_order_relaxed);
    struct timespec patience = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
    syscall(SYS_futex, &bell, FUTEX_WAIT_PRIVATE, heard, &patience, NULL, 0);
}

void ring_reset(void) {
    if (atomic_load(&tail) != 0) madvise(slots, sizeof slots, MADV_DONTNEED);
    head = 0;
    atomic_store(&tail, 0);
    atomic_store(&lost, 0);
}
