/* expiry.c: at the time at which credentials expire, ends the event streams that they opened; the client
 * reconnects with new credentials. A call in flight continues. */
#include "state.h"

#define DAY_MS ((uint64_t)86400000)

/* Milliseconds until the credentials expire, at most a day, because the clock may be set meanwhile. */
static uint64_t ms_until(int64_t expires)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t seconds = expires - (int64_t)now.tv_sec;
    if (seconds <= 0)
        return 0;
    uint64_t ms = (uint64_t)seconds > DAY_MS / 1000 ? DAY_MS : (uint64_t)seconds * 1000;
    return ms - (uint64_t)now.tv_nsec / 1000000;
}

void mp_expiry_start(mp_rpc *rpc, mp_timer *timer, int64_t expires, void (*fire)(mp_timer *timer))
{
    if (expires != 0 && rpc->config->streams_expire)
        mp_timer_start(rpc->loop, timer, ms_until(expires), fire);
}

bool mp_expiry_is_over(int64_t expires)
{
    return ms_until(expires) == 0;
}
