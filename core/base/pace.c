/* pace.c: measures the rate at which places become free, and hands the places to come to clients that are refused. */
#include "pace.h"
#include "locked.h"

#define WINDOW_US 250000        /* length of a window, at least */
#define LONG_WINDOW_US 10000000 /* length of a window in which few places became free */
#define ENOUGH_PLACES 8         /* places from which a window's rate means something */
#define MEMORY_US 1000000.0     /* how much of the past the rate remembers */

void mp_pace_init(mp_pace *pace)
{
    *pace = (mp_pace){.per_us = 0};
    pthread_mutex_init(&pace->lock, NULL);
}

static void learn_rate(mp_pace *pace, uint64_t places, uint64_t us)
{
    double rate = (double)places / (double)us, weight = (double)us / MEMORY_US;
    if (pace->per_us <= 0 || weight > 1)
        weight = 1;
    pace->per_us += (rate - pace->per_us) * weight;
}

void mp_pace_learn(mp_pace *pace, uint64_t places, uint64_t us)
{
    MP_LOCKED(&pace->lock);
    if (us > 0)
        learn_rate(pace, places, us);
    pace->is_taught = true;
}

/* The places that became free since the window began. Threads count one after another, so that a sum may be less than
 * an earlier one. */
static uint64_t freed_since(const mp_pace *pace)
{
    uint64_t freed = atomic_load_explicit(&pace->freed, memory_order_relaxed);
    return freed > pace->freed_then ? freed - pace->freed_then : 0;
}

/* Counts in a window from now on, if clients are refused again after a time without refusals; ends the window if enough
 * places have become free in it to know the rate. */
static void measure_rate(mp_pace *pace, uint64_t now_us)
{
    uint64_t freed = atomic_load_explicit(&pace->freed, memory_order_relaxed);
    uint64_t places = freed_since(pace), us = now_us - pace->since_us;
    bool is_new = pace->refused_us == 0 || now_us - pace->refused_us > LONG_WINDOW_US;
    bool is_over = (us >= WINDOW_US && places >= ENOUGH_PLACES) || (us >= LONG_WINDOW_US && places > 0);
    if (!is_new && is_over)
        learn_rate(pace, places, us);
    if (is_new || is_over) {
        pace->since_us = now_us;
        pace->freed_then = freed;
    }
    pace->refused_us = now_us;
}

uint64_t mp_pace_time_us(mp_pace *pace, uint64_t places)
{
    MP_LOCKED(&pace->lock);
    double per_us = pace->per_us;
    return per_us <= 0 ? 0 : (uint64_t)((double)places / per_us);
}

/* The present rate. It falls while no place becomes free, so that a stalled resource does not keep its earlier rate. In
 * a window that has not ended, it assumes at most one place more than have become free. */
static double rate_now(const mp_pace *pace, uint64_t now_us)
{
    if (pace->is_taught || now_us <= pace->since_us + WINDOW_US)
        return pace->per_us;
    double most = (double)(freed_since(pace) + 1) / (double)(now_us - pace->since_us);
    return pace->per_us <= 0 || most < pace->per_us ? most : pace->per_us;
}

unsigned mp_pace_refuse(mp_pace *pace, uint64_t now_us, uint64_t ahead, uint64_t places)
{
    const uint64_t most_us = MP_PACE_MAX_S * UINT64_C(1000000);
    pthread_mutex_lock(&pace->lock);
    if (!pace->is_taught)
        measure_rate(pace, now_us);
    double per_us = rate_now(pace, now_us), ahead_us = 0, own_us = 0;
    if (per_us > 0) {
        ahead_us = (double)ahead / per_us;
        own_us = (double)places / per_us;
    }
    double from_us = ahead_us;
    if (pace->next_us > now_us && (double)(pace->next_us - now_us) > from_us)
        from_us = (double)(pace->next_us - now_us);
    double wait_us = from_us + own_us;
    uint64_t us = wait_us > (double)most_us ? most_us : (uint64_t)wait_us;
    pace->next_us = now_us + us;
    pthread_mutex_unlock(&pace->lock);
    unsigned seconds = (unsigned)((us + 999999) / 1000000);
    return seconds == 0 ? 1 : seconds;
}
