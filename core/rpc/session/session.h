/* session.h: sessions of the stateful revisions, the table of the process that holds them, and principals.
 *
 * Locks, in the order in which they are taken: a shard of the table, a session, topics' index before a session, the event log
 * last. The owners' lock is taken alone. */
#ifndef MP_RPC_SESSION_H
#define MP_RPC_SESSION_H

#include "rpc/request/request.h"
#include <pthread.h>
#include <stdatomic.h>

#define MP_RPC_MAX 64       /* workers: a session has a bit for each */
#define MP_SESSION_ID 32    /* hex digits: 128 random bits */
#define MP_PRINCIPAL_KEY 32 /* bytes of a SHA-256 digest */

/* -- transports ---------------------------------------------------------------------------------------------------- */

/* How messages reach a client. Each transport has one constant table, which a session and a call get when they begin. Batches and
 * detached calls have tables of their own. `json` is one whole message. */
struct mp_transport {
    const char *name;    /* for the log: "http", "sse", "stdio" */
    bool has_one_stream; /* of a session: all its messages share one stream, so ids must differ among its calls */
    bool notifies_end;   /* no stream ends with a subscriber's call: a notification says that it is over (B-6) */
    /* Sends a message before the call's answer. -1 when no client reads it and it is not kept for one that resumes. */
    int (*send)(mp_call *call, mp_str json);
    /* Sends the answer of the call, with this HTTP status if that is still to be sent. */
    void (*answer)(mp_call *call, int status, mp_str json);
    /* Ends the call's stream without an answer (Y-1). NULL: the call has no stream of its own. */
    void (*drop)(mp_call *call);
    /* Sends a message of the session, from the thread of `from`. Dropped and counted when no client reads. */
    void (*notify)(mp_rpc *from, mp_session *session, mp_str json);
    /* Sends the answer of a request for which no call was made. */
    void (*respond)(mp_rpc *rpc, mp_session *session, mp_str json);
};

/* -- principal.c --------------------------------------------------------------------------------------------------- */

struct mp_principal {
    int refs;        /* below 0: static */
    int64_t expires; /* seconds since 1970; 0: never */
    unsigned char key[MP_PRINCIPAL_KEY];
    mp_str id;
    void (*on_unused)(void *keeper); /* NULL: freed with its last reference */
    void *keeper;
    char bytes[];
};

/* Takes the same time wherever the keys differ. */
bool mp_principal_key_is(const mp_principal *principal, const unsigned char key[MP_PRINCIPAL_KEY]);

/* -- session.c, table.c ----------------------------------------------------------------------------------------------------- */

/* What the client sent at `initialize`, and the revision that was agreed on. Never changes. */
typedef struct {
    const mp_era *era;
    mp_str client, capabilities; /* spans of JSON */
    char bytes[];
} mp_card;

/* A principal, or the address of an anonymous client, that has sessions. */
typedef struct {
    mp_node node;
    int64_t sessions;
    char name[];
} mp_owner;

/* The part of the event log that is one session's, under the log's lock. */
typedef struct {
    mp_link events, feeds; /* oldest first */
    int64_t count;
    size_t bytes;
    uint64_t last_number; /* of a feed */
} mp_session_log;

struct mp_session {
    mp_node node; /* in its shard */
    char id[MP_SESSION_ID + 1];
    unsigned char principal[MP_PRINCIPAL_KEY]; /* the key of its owner */
    const mp_transport *transport;
    bool is_sse;   /* HTTP+SSE or stdio: transport->has_one_stream */
    char peer[48]; /* the address that opened it; empty over stdio */
    mp_table *table;
    mp_owner *owner;
    uint64_t opened_at;
    void (*on_free)(mp_session *session); /* of the table's hooks: a session may outlive its table */
    mp_event_log *event_log;              /* NULL: events have no ids */
    atomic_int refs, log_level, calls;
    _Atomic uint64_t used_at; /* loop ms of the latest request */
    _Atomic(mp_card *) card;  /* NULL until `initialize` has succeeded */

    pthread_mutex_t lock; /* guards the fields up to the empty line */
    bool closed;
    uint64_t rpcs;     /* a bit for each rpc that has, or had, a reader or a call of this session */
    mp_reader *reader; /* of the session's own stream; NULL: no client reads it */
    mp_feed *feed;     /* of that stream, once it was read, if events have ids; counted */
    mp_link readers;   /* all mp_reader, by in_session */
    mp_session_log log;
    mp_link calls_of;        /* calls, by mp_call.in_session */
    mp_link client_requests; /* unanswered ones, by mp_client_request.in_session */

    mp_link subscriptions; /* with the next under the lock of the table's topics */
    size_t subscription_count;
};

/* A new session in the table, counted for the caller. NULL when a cap refuses it: the caps count by principal, or by `peer` for
 * anonymous clients. */
mp_session *mp_session_new(mp_rpc *rpc, const mp_transport *transport, const mp_principal *principal, mp_str peer);
mp_session *mp_session_ref(mp_session *session);
void mp_session_unref(mp_session *session);
/* The session of this id: counted, and marked as used. NULL when it is unknown, closed, or another principal's: these take equal
 * time, and are audited (B-32). `stream` carries the request. */
mp_session *mp_session_find(mp_rpc *rpc, const mp_stream *stream, mp_str id);
/* Takes the session out of the table and ends its streams and calls on every worker. False when it was closed before. */
bool mp_session_close(mp_session *session, const mp_stat *reason);
/* Stores what `initialize` agreed on. False when it is stored already: the first handshake wins (B-14). */
bool mp_session_set_card(mp_session *session, const mp_era *era, mp_str client, mp_str capabilities);

/* -- table.c ------------------------------------------------------------------------------------------------------- */

/* How the folders above end what they have of a session. */
typedef struct {
    void (*on_closing)(mp_session *session);            /* under the session's lock */
    void (*on_closed)(mp_session *session);             /* without a lock, before the table forgets the session */
    void (*end_here)(mp_rpc *rpc, mp_session *session); /* on the thread of each rpc in session->rpcs */
    void (*on_free)(mp_session *session);               /* its last reference is gone */
} mp_session_hooks;

/* `hooks`, `topics` and `event_log` (or NULL) are borrowed for the life of the table. */
mp_table *mp_sessions_new(const mp_rpc_config *config, const mp_session_hooks *hooks, mp_topics *topics,
                          mp_event_log *event_log);
void mp_sessions_configure(mp_table *table, const mp_rpc_config *config);
/* Closes all sessions. */
void mp_sessions_free(mp_table *table);
mp_topics *mp_table_topics(mp_table *table);
mp_event_log *mp_table_event_log(mp_table *table);
/* Adds the rpc to the table for good: its index. */
unsigned mp_table_join(mp_table *table, mp_rpc *rpc);
mp_rpc *mp_table_rpc(mp_table *table, unsigned index);
/* Closes sessions that are idle or not initialized for too long, in the rpc's share of the shards. */
void mp_table_sweep(mp_rpc *rpc);

/* Calls in flight in the process (limits.calls_in_flight). */
bool mp_table_has_room(mp_table *table);
bool mp_table_has_calls(mp_table *table);
void mp_table_count_call(mp_table *table, int n);
/* Things that the process has a limited number of. */
typedef enum { MP_QUOTA_SUBSCRIBER, MP_QUOTA_DETACHED, MP_QUOTA_AUTHN, MP_QUOTAS } mp_quota;
/* False, and counted, when the limit is reached. */
bool mp_quota_take(mp_table *table, mp_quota quota);
void mp_quota_give(mp_table *table, mp_quota quota);

/* -- expiry.c: event streams end with the credentials that opened them --------------------------------------------- */

/* `fire` runs when credentials expire, or earlier: then mp_expiry_is_over is false, and the caller starts the timer again. It
 * never runs for credentials that do not expire, or if streams may outlast them. */
void mp_expiry_start(mp_rpc *rpc, mp_timer *timer, int64_t expires, void (*fire)(mp_timer *timer));
bool mp_expiry_is_over(int64_t expires);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_closed_shutdown, mp_stat_refused_auth_pending;

#endif
