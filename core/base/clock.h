/* clock.h: the time in milliseconds or microseconds. The monotonic clock never goes back and starts at an arbitrary
 * time; the wall clock counts from 1970 and may be set. */
#ifndef MP_BASE_CLOCK_H
#define MP_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

/* The time of `clock` in microseconds: CLOCK_MONOTONIC, CLOCK_REALTIME or CLOCK_THREAD_CPUTIME_ID. */
static inline uint64_t mp_clock_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static inline uint64_t mp_clock_ms(clockid_t clock)
{
    return mp_clock_us(clock) / 1000;
}

/* Milliseconds of the monotonic clock. */
static inline uint64_t mp_monotonic_ms(void)
{
    return mp_clock_ms(CLOCK_MONOTONIC);
}

/* Microseconds of the monotonic clock. */
static inline uint64_t mp_monotonic_us(void)
{
    return mp_clock_us(CLOCK_MONOTONIC);
}

#endif
