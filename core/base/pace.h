/* pace.h: how fast places of a limited resource become free, and when a client that was refused will find one.
 *
 * The owner counts the places that become free; a refusal asks for the seconds of Retry-After. The rate is measured
 * while clients are refused: otherwise places become free only as fast as they are taken. Each refused client is given
 * the next place that no other client was sent away for. So clients that come back when they were told to are served
 * one after another, at the rate at which places become free, and not all at once.
 *
 * Any thread. `now_us` is the time of the monotonic clock in microseconds; specs pass times of their own. */
#ifndef MP_BASE_PACE_H
#define MP_BASE_PACE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define MP_PACE_MAX_S 60 /* seconds; the longest Retry-After that a client gets */

typedef struct {
    _Atomic uint64_t freed; /* places that have become free so far */
    pthread_mutex_t lock;   /* guards the members below */
    uint64_t since_us;      /* begin of the window in which places are counted */
    uint64_t freed_then;    /* `freed` at that time */
    uint64_t refused_us;    /* when a client was refused last; 0: never */
    bool is_taught;         /* only mp_pace_learn sets the rate */
    double per_us;          /* places that become free in a microsecond; 0: not known */
    uint64_t next_us;       /* when the place of the client that was refused last becomes free */
} mp_pace;

#define MP_PACE_INIT {.lock = PTHREAD_MUTEX_INITIALIZER}

void mp_pace_init(mp_pace *pace);

/* Counts places that have become free. */
static inline void mp_pace_count(mp_pace *pace, uint64_t places)
{
    atomic_fetch_add_explicit(&pace->freed, places, memory_order_relaxed);
}

/* Sets the number of places that have become free since the start, for an owner that counts them itself. */
static inline void mp_pace_set(mp_pace *pace, uint64_t freed)
{
    atomic_store_explicit(&pace->freed, freed, memory_order_relaxed);
}

/* Records that `places` became free within `us` microseconds while others waited for them: for an owner that measures
 * itself and does not call mp_pace_count. */
void mp_pace_learn(mp_pace *pace, uint64_t places, uint64_t us);
/* The time in which `places` become free, in microseconds; 0: not known. */
uint64_t mp_pace_time_us(mp_pace *pace, uint64_t places);
/* Gives `places` to a client that is refused now. Returns the seconds, 1 to MP_PACE_MAX_S, after which they are free.
 * `ahead`: places that others wait for, and that become free before. */
unsigned mp_pace_refuse(mp_pace *pace, uint64_t now_us, uint64_t ahead, uint64_t places);

#endif
