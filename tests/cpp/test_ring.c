// The thread recorder's ring: nothing is lost before it is full, what is lost is counted, and records of one thread
// come out in their order, whoever else writes.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "ring.h"

#define CHECK(what)                                                              \
    do {                                                                         \
        if (!(what)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #what); \
            exit(1);                                                             \
        }                                                                        \
    } while (0)

enum { WRITERS = 4, EACH = 200000 };

static _Atomic uint64_t refused;

static struct record numbered(uint32_t thread, uint64_t number) {
    return (struct record){.begin_ns = number, .thread = thread, .kind = KIND_CALL};
}

static void full_ring_loses_and_counts(void) {
    struct record record;
    for (uint64_t i = 0; i < RING_SLOTS; i++) CHECK(ring_push(&(struct record){.begin_ns = i}));
    for (int i = 0; i < 7; i++) CHECK(!ring_push(&(struct record){.begin_ns = 99}));
    CHECK(ring_take_lost() == 7);
    CHECK(ring_take_lost() == 0);
    for (uint64_t i = 0; i < RING_SLOTS; i++) {
        CHECK(ring_pop(&record));
        CHECK(record.begin_ns == i);
    }
    CHECK(!ring_pop(&record));
}

static void* write_many(void* argument) {
    uint32_t thread = (uint32_t)(uintptr_t)argument;
    for (uint64_t i = 1; i <= EACH; i++) {
        struct record record = numbered(thread, i);
        if (!ring_push(&record)) atomic_fetch_add(&refused, 1);
    }
    return NULL;
}

static void many_writers_keep_their_order(void) {
    pthread_t threads[WRITERS];
    uint64_t last[WRITERS] = {0}, seen = 0, lost = 0;
    for (uintptr_t i = 0; i < WRITERS; i++)
        CHECK(pthread_create(&threads[i], NULL, write_many, (void*)i) == 0);
    while (seen + lost < (uint64_t)WRITERS * EACH) {
        struct record record;
        lost += ring_take_lost();
        if (!ring_pop(&record)) {
            ring_wait(1);
            continue;
        }
        CHECK(record.begin_ns > last[record.thread]);
        last[record.thread] = record.begin_ns;
        seen++;
    }
    for (int i = 0; i < WRITERS; i++) pthread_join(threads[i], NULL);
    CHECK(lost == atomic_load(&refused));
}

static void reset_ring_is_empty_and_works(void) {
    struct record record = numbered(1, 5);
    CHECK(ring_push(&record));
    ring_reset();
    CHECK(!ring_pop(&record));
    record = numbered(1, 6);
    CHECK(ring_push(&record));
    CHECK(ring_pop(&record));
    CHECK(record.begin_ns == 6);
}

int main(void) {
    full_ring_loses_and_counts();
    many_writers_keep_their_order();
    reset_ring_is_empty_and_works();
    return 0;
}
