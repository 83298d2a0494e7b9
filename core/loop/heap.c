/* heap.c: a binary heap. Each timer stores its index, so that moving and stopping need no search. */
#include "heap.h"

static void put_at(mp_heap *heap, mp_timer *timer, uint32_t index)
{
    heap->slots[index] = timer;
    timer->slot = index + 1;
}

static void free_slot(mp_heap *heap, mp_timer *timer, uint32_t index)
{
    while (index > 0) {
        uint32_t parent = (index - 1) / 2;
        if (heap->slots[parent]->at <= timer->at)
            break;
        put_at(heap, heap->slots[parent], index);
        index = parent;
    }
    put_at(heap, timer, index);
}

static void sink_timer(mp_heap *heap, mp_timer *timer, uint32_t index)
{
    for (;;) {
        uint32_t child = index * 2 + 1;
        if (child >= heap->count)
            break;
        if (child + 1 < heap->count && heap->slots[child + 1]->at < heap->slots[child]->at)
            child++;
        if (timer->at <= heap->slots[child]->at)
            break;
        put_at(heap, heap->slots[child], index);
        index = child;
    }
    put_at(heap, timer, index);
}

static void sift_timer(mp_heap *heap, mp_timer *timer, uint32_t index)
{
    if (index > 0 && timer->at < heap->slots[(index - 1) / 2]->at)
        free_slot(heap, timer, index);
    else
        sink_timer(heap, timer, index);
}

void mp_heap_put(mp_heap *heap, mp_timer *timer, uint64_t at)
{
    timer->at = at;
    if (timer->slot != 0) {
        sift_timer(heap, timer, timer->slot - 1);
        return;
    }
    if (heap->count == heap->cap) {
        heap->cap = heap->cap == 0 ? 64 : heap->cap * 2;
        heap->slots = mp_resize(heap->slots, heap->cap * sizeof(*heap->slots));
    }
    free_slot(heap, timer, heap->count++);
}

void mp_heap_drop(mp_heap *heap, mp_timer *timer)
{
    if (timer->slot == 0)
        return;
    uint32_t index = timer->slot - 1;
    timer->slot = 0;
    mp_timer *last = heap->slots[--heap->count];
    if (last != timer)
        sift_timer(heap, last, index);
}

mp_timer *MP_NULLABLE mp_heap_take(mp_heap *heap, uint64_t now)
{
    if (heap->count == 0 || heap->slots[0]->at > now)
        return NULL;
    mp_timer *first = heap->slots[0];
    mp_heap_drop(heap, first);
    return first;
}

uint64_t mp_heap_wait(const mp_heap *heap, uint64_t now, uint64_t most)
{
    if (heap->count == 0)
        return most;
    uint64_t at = heap->slots[0]->at;
    if (at <= now)
        return 0;
    return at - now < most ? at - now : most;
}

void mp_heap_clear(mp_heap *heap)
{
    for (uint32_t i = 0; i < heap->count; i++)
        heap->slots[i]->slot = 0;
    free(heap->slots);
    *heap = (mp_heap){0};
}
