/* heap.h: timers in order of time. Knows no clock: `now` is an argument. A zeroed heap is empty. */
#ifndef MP_NET_HEAP_H
#define MP_NET_HEAP_H

#include "net.h"

typedef struct {
    mp_timer **slots;
    uint32_t count, cap;
} mp_heap;

/* Starts the timer, or moves it. */
void mp_heap_put(mp_heap *heap, mp_timer *timer, uint64_t at);
void mp_heap_drop(mp_heap *heap, mp_timer *timer);
/* The first timer that is due, stopped; NULL when there is none. */
mp_timer *mp_heap_take(mp_heap *heap, uint64_t now);
/* Milliseconds until the first is due, at most `most`. */
uint64_t mp_heap_wait(const mp_heap *heap, uint64_t now, uint64_t most);
/* Stops all. */
void mp_heap_clear(mp_heap *heap);

#endif
