/* pending.h: exchanges that wait without a task until a client's retry takes them up, and the table that finds them;
 * for the files of this module alone.
 *
 * A pending exchange stays on the worker that sent it: timers, slots and the transport are there. A task that takes it
 * up, on any worker, has a resumed exchange: it asks the first worker for one event after another by messages, and that
 * worker performs its replies. At most one event is on its way, so a task that makes the exchange pending again knows
 * what it has not read and sends it back.
 *
 *   pending   an exchange that waits, or one that was taken up; at its worker
 *   resumed   a pending exchange as the task that has taken it up sees it
 *   entry     a handle in the table of the process, for one use: of a pending exchange, or of bytes that the call of a
 *             script keeps until its retry */
#ifndef MP_UPSTREAM_PENDING_H
#define MP_UPSTREAM_PENDING_H

#include "upstream/transport.h"

typedef struct mp_pending_exchange mp_pending_exchange;
typedef struct mp_pending_entry mp_pending_entry;
typedef struct mp_resumed_exchange mp_resumed_exchange;
typedef struct mp_pending_table mp_pending_table;

struct mp_pending_exchange {
    atomic_int refs;
    mp_upstreams *table;
    mp_upstream_host *worker;
    mp_own_exchange *exchange; /* a counted reference; worker's thread. Its channel may be read on any thread */
    mp_pending_entry
        *MP_NULLABLE entry; /* guarded by the table's lock; NULL: the exchange was taken up, or its handle is gone */

    /* Members for the worker's thread. */
    mp_link in_worker;
    mp_link kept;            /* of mp_queued_event, oldest first */
    size_t note_bytes;       /* bytes of the notifications in `kept` */
    mp_str *cancel_messages; /* messages to the upstream that are sent if the exchange is not taken up in time */
    size_t cancel_count;
    mp_resumed_exchange *MP_NULLABLE resumed; /* a counted reference; NULL: pending */
    bool is_wanted;                           /* the resumed exchange waits for an event */
    /* an event was posted to a resumed exchange that has made the exchange pending again since: it will be sent back */
    bool awaits_return;
    bool is_over;
};

/* The exchange as the task that has taken it up sees it. At most one event has arrived here and was not taken. Its
 * flags by its state (0, 1, or - for either):
 *
 *                         is_asked  super.is_ended  failure.reason  has_left  is_pending_again
 *   waits for an event    1         0               0               0         0
 *   has got an event      0         0               0               0         0
 *   has got the answer    0         1               0               0         0
 *   has got a failure     0         1               1               0         0
 *   the task has left     -         1               -               1         0
 *   was made pending again -         1               0               1         1 */
struct mp_resumed_exchange {
    mp_exchange super; /* its channel is that of pending->exchange */
    atomic_int refs;
    mp_pending_exchange *pending; /* a counted reference */

    /* Members for the thread of the task. */
    bool is_asked;         /* an event was asked for, and has not come */
    bool has_left;         /* the task needs the exchange no more, or has made it pending again */
    bool is_pending_again; /* the task has made the exchange pending again and left: an event on its way belongs to the
                        pending exchange */
};

/* The kinds of messages from a resumed exchange to the worker of a pending exchange. */
typedef enum {
    MP_RESUMED_ATTACH,     /* a resumed exchange exists now, and waits for an event */
    MP_RESUMED_ASK,        /* the resumed exchange waits for an event */
    MP_RESUMED_REPLY,      /* `bytes` answer a question */
    MP_RESUMED_LEAVE,      /* the task does not need the exchange any more */
    MP_RESUMED_PEND_AGAIN, /* the task has made the exchange pending again */
    MP_RESUMED_GIVE_BACK   /* news that came behind PEND_AGAIN: an event, or NULL for the failure */
} mp_resumed_word;

typedef struct {
    mp_resumed_word word;
    mp_resumed_exchange *resumed;       /* a counted reference */
    mp_queued_event *MP_NULLABLE event; /* PEND_AGAIN: an event that was not read, or NULL; GIVE_BACK: the news */
    bool is_asked;                      /* PEND_AGAIN: the resumed exchange has asked for an event that has not come */
    mp_str *cancel_messages;            /* set if the message is PEND_AGAIN */
    size_t cancel_count;
    size_t len;
    char bytes[]; /* the text of REPLY and LEAVE */
} mp_resumed_message;

/* -- pending.c ----------------------------------------------------------------------------------------------------- */

typedef enum {
    MP_PENDING_EXPIRED, /* the handle of the pending exchange has expired, so no retry can take it up */
    MP_PENDING_STOPPED  /* a reload has removed the upstream: a retry gets the failure */
} mp_pending_cause;

mp_pending_exchange *mp_pending_ref(mp_pending_exchange *pending);
void mp_pending_unref(mp_pending_exchange *MP_NULLABLE pending);
/* Posts the end of a pending exchange to its worker. Any thread; the caller holds no lock. */
void mp_pending_post_end(mp_pending_exchange *pending, mp_pending_cause cause);
/* Ends the pending exchanges of a host whose loop ends. On its thread, or when all loops have ended. */
void mp_pending_table_leave(mp_upstream_host *host);

/* A message of a resumed exchange has arrived at the worker. */
void mp_pending_deliver(void *content, mp_loop *MP_NULLABLE loop);
mp_str *mp_pending_copy_cancel_messages(const mp_pending_options *options);

/* -- resumed_exchange.c -------------------------------------------------------------------------------------------- */

mp_resumed_exchange *mp_resumed_exchange_ref(mp_resumed_exchange *resumed);
void mp_resumed_exchange_unref(mp_resumed_exchange *MP_NULLABLE resumed);
/* From the worker: sends the resumed exchange an event, or (NULL) the failure of the exchange. Takes over what
 * `failure` owns. */
void mp_resumed_exchange_post_news(mp_resumed_exchange *resumed, mp_queued_event *MP_NULLABLE event,
                                   mp_upstream_failure failure);

/* -- pending_table.c ----------------------------------------------------------------------------------------------- */

mp_pending_table *mp_pending_table_new(void);
void mp_pending_table_free(mp_pending_table *all_pending);
/* Reserves an entry within the limits of pending calls. NULL: `failure` names the limit. Cannot be looked up before
 * mp_pending_table_publish(). The functions of pending_table.c: any thread; the caller holds no lock. */
mp_pending_entry *MP_NULLABLE mp_pending_table_reserve(mp_upstreams *table, const mp_pending_options *options,
                                                       mp_upstream_failure *failure);
/* Writes a handle, by which the pending exchange is found from now on; without a pending exchange, the handle stands
 * for `bytes`, which the table takes over. */
void mp_pending_table_publish(mp_upstreams *table, mp_pending_entry *entry, mp_pending_exchange *MP_NULLABLE pending,
                              char *MP_NULLABLE bytes, size_t len, char handle[MP_PENDING_HANDLE]);
/* Takes the pending exchange of the handle, with a counted reference, out of the table; NULL: there is none for this
 * principal. */
mp_pending_exchange *MP_NULLABLE mp_pending_table_take(mp_upstreams *table, mp_str handle, mp_str principal);
/* The exchange of a pending exchange has failed: its handle does not count for limits any more. */
void mp_pending_table_note_failed(mp_pending_exchange *pending);
/* Removes the handle of a pending exchange from the table. */
void mp_pending_table_forget(mp_pending_exchange *pending);
/* Ends the pending exchanges and the bytes that no task has taken up in time. */
void mp_pending_table_sweep(mp_upstreams *table, uint64_t now);
/* Ends the pending exchanges of an upstream that a reload has removed; with NULL: all pending exchanges, and nothing is
 * pending from now on. */
void mp_pending_table_end(mp_upstreams *table, const mp_upstream *MP_NULLABLE upstream);

#endif
