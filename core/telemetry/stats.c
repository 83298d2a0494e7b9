#include "stats.h"
#include <stdatomic.h>

#define SLOTS 257 /* 256 threads, and one that the rest share */

typedef struct {
    _Alignas(64) _Atomic int64_t values[MP_STATS];
} slot;

static slot slots[SLOTS];
static atomic_int next_slot = 1;
static _Thread_local int own_slot;

#define NAME(id, family, label, value, text) {family, label, value, text},
static const mp_stat_name names[MP_STATS] = {MP_GAUGES(NAME) MP_COUNTERS(NAME)};
#undef NAME

void mp_stat_thread(void)
{
    int got = atomic_fetch_add(&next_slot, 1);
    own_slot = got < SLOTS ? got : 0;
}

void mp_stat_add(mp_stat stat, int64_t n)
{
    atomic_fetch_add_explicit(&slots[own_slot].values[stat], n, memory_order_relaxed);
}

int64_t mp_stat_read(mp_stat stat)
{
    int64_t sum = 0;
    for (int i = 0; i < SLOTS; i++)
        sum += atomic_load_explicit(&slots[i].values[stat], memory_order_relaxed);
    return sum;
}

mp_stat_name mp_stat_name_of(mp_stat stat)
{
    return names[stat];
}
