/* heap.h: a priority queue of timers. It reads no clock: `now` is an argument, in milliseconds. A zeroed heap is
 * empty. */
#ifndef MP_LOOP_HEAP_H
#define MP_LOOP_HEAP_H

#include "loop.h"

typedef struct {
    mp_timer **slots;
    uint32_t count, cap;
} mp_heap;

/* Starts the timer, or moves a started one to another time. */
void mp_heap_put(mp_heap *heap, mp_timer *timer, uint64_t at);
void mp_heap_drop(mp_heap *heap, mp_timer *timer);
/* Stops the first timer that is due and returns it; NULL if none is due. */
mp_timer *MP_NULLABLE mp_heap_take(mp_heap *heap, uint64_t now);
/* Milliseconds until the first timer is due, at most `most`. */
uint64_t mp_heap_wait(const mp_heap *heap, uint64_t now, uint64_t most);
/* Stops all timers. */
void mp_heap_clear(mp_heap *heap);

#endif
