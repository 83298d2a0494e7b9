/* tap.h: what the module itself puts into taps; rpc.h has what opens and reads them. */
#ifndef MP_RPC_TAP_H
#define MP_RPC_TAP_H

#include "rpc/rpc.h"

#define MP_TAP_FORMS 4 /* of mp_tap_arguments */

/* One event. Texts may be empty; members that are 0 or empty are left out. */
typedef struct {
    const char *event;
    mp_str call, method, name, principal, session, client, revision, transport, address, why;
    mp_str params;  /* JSON object of the request, or empty; its arguments are shown as the tap's form has them */
    mp_str outcome; /* of what has ended */
    int code, status;
    uint64_t us;
    size_t in, out;
} mp_tap_event;

extern atomic_uint mp_tap_count;

/* True if a tap is open: one load, so that calls may ask before they compose an event. */
static inline bool mp_tap_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&mp_tap_count, memory_order_relaxed) != 0, 0);
}

/* Queues the event for each tap that admits it. Any thread; takes the lock of the taps. */
void mp_tap_put(const mp_tap_event *event);

#endif
