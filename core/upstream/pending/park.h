/* park.h: exchanges that wait without a task until a client's retry takes them up, and the table that finds them; for
 * the files of this module alone.
 *
 * A parked exchange stays on the worker that sent it, its home: timers, slots and the transport are there. A task that
 * takes it up, on any worker, has a relay: it asks the home for one event after another by messages, and the home
 * performs its replies. At most one event is on its way, so a task that parks the exchange again knows what it has not
 * read and sends it back.
 *
 *   park    a parked exchange, or one that was taken up; at its home
 *   relay   the end of the task that has taken it up
 *   entry   a handle in the table of the process: a park, or bytes that a script's call keeps until its retry. A handle
 *           is used once */
#ifndef MP_UPSTREAM_PARK_H
#define MP_UPSTREAM_PARK_H

#include "upstream/transport.h"

typedef struct mp_park mp_park;
typedef struct mp_park_entry mp_park_entry;
typedef struct mp_relay mp_relay;
typedef struct mp_parks mp_parks;

struct mp_park {
    atomic_int refs;
    mp_upstreams *table;
    mp_upstream_host *home;
    mp_own_exchange *exchange; /* a counted reference; home's thread. Its channel may be read on any thread */
    mp_park_entry
        *MP_NULLABLE entry; /* guarded by the table's lock; NULL: the exchange was taken up, or its handle is gone */

    /* Members for the home's thread. */
    mp_link in_home;
    mp_link kept;            /* of mp_queued_event, oldest first */
    size_t note_bytes;       /* of the notifications in `kept` */
    mp_str *cancel_messages; /* messages to the upstream that are sent if the exchange is not taken up in time */
    size_t cancel_count;
    mp_relay *MP_NULLABLE relay; /* a counted reference; NULL: parked */
    bool is_wanted;              /* the relay waits for an event */
    bool awaits_return; /* news are on their way to a relay that has parked the exchange again, and come back */
    bool is_over;
};

/* The exchange as the task that has taken it up sees it. At most one event has arrived here and was not taken. Its
 * flags by its state (0, 1, or - for either):
 *
 *                         is_asked  super.is_ended  failure.reason  has_left  has_parked
 *   waits for an event    1         0               0               0         0
 *   has got an event      0         0               0               0         0
 *   has got the answer    0         1               0               0         0
 *   has got a failure     0         1               1               0         0
 *   the task has left     -         1               -               1         0
 *   was parked again      -         1               0               1         1 */
struct mp_relay {
    mp_exchange super; /* its channel is that of park->exchange */
    atomic_int refs;
    mp_park *park; /* a counted reference */

    /* Members for the thread of the task. */
    bool is_asked;   /* an event was asked for, and has not come */
    bool has_left;   /* the task needs the exchange no more, or has parked it */
    bool has_parked; /* the task has parked the exchange again and left: an event on its way belongs to the park */
};

/* The kinds of messages from a relay to the home of a park. */
typedef enum {
    MP_RELAY_ATTACH,   /* a relay exists now, and waits for an event */
    MP_RELAY_ASK,      /* the relay waits for an event */
    MP_RELAY_REPLY,    /* `bytes` answer a question */
    MP_RELAY_LEAVE,    /* the task does not need the exchange any more */
    MP_RELAY_PARK,     /* the task has parked the exchange again */
    MP_RELAY_GIVE_BACK /* news that came behind PARK: an event, or NULL for the failure */
} mp_relay_word;

typedef struct {
    mp_relay_word word;
    mp_relay *relay;                    /* a counted reference */
    mp_queued_event *MP_NULLABLE event; /* PARK: the event that the task has not read, or NULL; GIVE_BACK */
    bool is_asked;                      /* PARK: the relay has asked for an event that has not come */
    mp_str *cancel_messages;            /* PARK */
    size_t cancel_count;
    size_t len;
    char bytes[]; /* REPLY, LEAVE */
} mp_relay_message;

/* -- park.c -------------------------------------------------------------------------------------------------------- */

typedef enum {
    MP_PARK_EXPIRED, /* the handle of the park has expired, so no retry can take it up */
    MP_PARK_STOPPED  /* a reload has removed the upstream: a retry gets the failure */
} mp_park_cause;

mp_park *mp_park_ref(mp_park *park);
void mp_park_unref(mp_park *MP_NULLABLE park);
/* Posts the end of a park to its home. Any thread; the caller holds no lock. */
void mp_park_post_end(mp_park *park, mp_park_cause cause);
/* Ends the parks of a host whose loop ends. On its thread, or when all loops have ended. */
void mp_parks_leave_home(mp_upstream_host *host);

/* A message of a relay has arrived at the home. */
void mp_park_deliver(void *content, mp_loop *MP_NULLABLE loop);
mp_str *mp_park_copy_cancel_messages(const mp_park_options *options);

/* -- relay.c ------------------------------------------------------------------------------------------------------- */

mp_relay *mp_relay_ref(mp_relay *relay);
void mp_relay_unref(mp_relay *MP_NULLABLE relay);
/* From the home: sends the relay an event, or (NULL) the failure of the exchange. Takes over what `failure` owns. */
void mp_relay_post_news(mp_relay *relay, mp_queued_event *MP_NULLABLE event, mp_upstream_failure failure);

/* -- park_table.c -------------------------------------------------------------------------------------------------- */

mp_parks *mp_parks_new(void);
void mp_parks_free(mp_parks *parks);
/* Reserves an entry within the limits of parked calls. NULL: `failure` names the limit. Cannot be looked up before
 * mp_parks_publish(). Any thread; the caller holds no lock. The same holds for the functions below. */
mp_park_entry *MP_NULLABLE mp_parks_reserve(mp_upstreams *table, const mp_park_options *options,
                                            mp_upstream_failure *failure);
/* Writes a handle, by which the park is found from now on; without a park, the handle stands for `bytes`, which the
 * table takes over. */
void mp_parks_publish(mp_upstreams *table, mp_park_entry *entry, mp_park *MP_NULLABLE park, char *MP_NULLABLE bytes,
                      size_t len, char handle[MP_PARK_HANDLE]);
/* The park of the handle, with a counted reference, if the principal is its own; NULL: there is none. The handle is
 * used up. */
mp_park *MP_NULLABLE mp_parks_take(mp_upstreams *table, mp_str handle, mp_str principal);
/* The exchange of a park has failed: its handle does not count for limits any more. */
void mp_parks_note_failed(mp_park *park);
/* Removes the handle of a park from the table. */
void mp_parks_forget(mp_park *park);
/* Ends the parks and the bytes that no task has taken up in time. */
void mp_parks_sweep(mp_upstreams *table, uint64_t now);
/* Ends the parks of an upstream that a reload has removed; with NULL: all parks, and nothing is parked from now on. */
void mp_parks_end(mp_upstreams *table, const mp_upstream *MP_NULLABLE upstream);

#endif
