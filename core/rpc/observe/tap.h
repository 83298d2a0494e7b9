/* tap.h: functions by which this module puts events into taps. Those that open and read taps are in rpc/observe.h. */
#ifndef MP_RPC_TAP_H
#define MP_RPC_TAP_H

#include "rpc/role.h"

#define MP_TAP_FORMS 4                       /* of mp_tap_arguments */
#define MP_TAP_SCAN_BYTES ((size_t)64 << 10) /* params above this are shown by their size alone */

/* One event. Texts may be empty; members that are 0 or empty are left out. What taps decide by may be given as it is
 * known: the mark of a session and the time of a call are computed where a filter or the text of the event needs
 * them. */
typedef struct {
    const char *event;
    uint64_t serial; /* number of the call in its worker; 0: the event is of no call */
    unsigned worker;
    mp_str method, name, principal, client, revision, transport, address, why;
    bool is_name_unknown; /* `name` was not looked for yet, and `client` neither */
    mp_str session;       /* id of the session; taps show its mark alone */
    mp_str arguments;     /* JSON object, shown as the tap's form has it; or empty */
    size_t params_bytes;  /* of the params that have the arguments */
    mp_str outcome;       /* outcome of an event that ends something */
    int code, status;
    uint64_t began; /* start of the call that has ended, by mp_monotonic_us; 0: its time is not shown */
    size_t in, out;
    uint64_t us;          /* computed from `began` */
    mp_session_mark mark; /* computed from `session` */
    /* The result of mp_tap_wants, a bit for each tap of the thread's list: those that get the event, and those that
     * decide by its name. */
    bool was_asked;
    unsigned takers, undecided;
} mp_tap_event;

extern atomic_uint mp_tap_count;

/* True if a tap is open: one load, so that calls may ask before they compose an event. */
static inline bool mp_tap_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&mp_tap_count, memory_order_relaxed) != 0, 0);
}

/* Asks each tap once. True if one takes the event, or may do so when it knows the name: then the thread fills the
 * fields that are shown but that no filter compares, and calls mp_tap_put before it asks for another event. What a tap
 * admits and has no rate for is dropped and counted here. Any thread; without a lock, but after a tap was opened or
 * closed, and to wake a reader. */
bool mp_tap_wants(mp_tap_event *event);
/* Queues the event for each tap that takes it; asks the taps if mp_tap_wants did not. Any thread; takes the lock of the
 * taps if one takes the event. */
void mp_tap_put(mp_tap_event *event);

/* -- tap_text.c ---------------------------------------------------------------------------------------------------- */

/* The beginning of a text that a client or a script chose: readers see no more of it, and filters compare no more. */
mp_str mp_tap_cut(mp_str text);
/* A name as operators see it. Of a URI, its user, query and fragment are left out, which may be secrets; where it has a
 * user, its scheme, too: `https://ann:key@example.com/a?b=c` is shown as `example.com/a`. A part of `name`. */
mp_str mp_shown_name(mp_str name);
/* The mark of the session, computed once; empty without a session. */
mp_str mp_tap_mark(mp_tap_event *event);
/* Appends the event to `out`, which is empty, once for each bit of `forms`; texts[form] is a span of it. */
void mp_tap_put_texts(mp_buf *out, mp_tap_event *event, unsigned forms, mp_str texts[MP_TAP_FORMS]);

#endif
