/* state.h: sessions of the stateful revisions, the process-wide table that holds them, and principals. Locks are
 * taken in this order: a shard of the table, a session; the index of topics, a session; the event log last. The lock
 * of the owners is taken alone. */
#ifndef MP_RPC_SESSION_STATE_H
#define MP_RPC_SESSION_STATE_H

#include "data/data.h"
#include "rpc/request/request.h"
#include <pthread.h>
#include <stdatomic.h>

#define MP_RPC_MAX 64       /* limit of the workers: a session has one bit for each */
#define MP_PRINCIPAL_KEY 32 /* bytes of a SHA-256 digest */
#define MP_KEPT_OWNER 8     /* digits by which the store knows the owner of a session (store_rooms.c) */

/* -- transports ---------------------------------------------------------------------------------------------------- */

/* How messages reach a client. Each transport has one constant table, which a session and a call get when they
 * begin. Batches and detached calls have tables of their own. `json` is one whole message. */
struct mp_transport {
    const char *name; /* name for the log: "http", "sse", "stdio" */
    bool is_pipe;
    bool has_one_stream; /* true for one stream per session: all messages share it, so ids must differ among the
                            session's calls */
    bool notifies_end;   /* true if the end of a subscription does not end a stream: a notification reports its end
                            instead (B-6) */
    /* Sends a message before the call's answer. -1 if no client reads it and it is not kept for a client that
     * resumes. */
    int (*send)(mp_call *call, mp_str json);
    /* Sends the answer of the call, with this HTTP status unless one was sent. */
    void (*answer)(mp_call *call, int status, mp_str json);
    /* Ends the call's stream without an answer (Y-1). NULL if the call has no stream of its own. */
    void (*MP_NULLABLE drop)(mp_call *call);
    /* Sends a message of the session, from the thread of `from`. Dropped and counted if no client reads the
     * session's stream. */
    void (*notify)(mp_rpc *from, mp_session *session, mp_str json);
    /* Sends the answer of a request for which no call was made. Only pipes take one without a session. */
    void (*respond)(mp_rpc *rpc, mp_session *MP_NULLABLE session, mp_str json);
};

/* -- principal.c --------------------------------------------------------------------------------------------------- */

struct mp_principal {
    int refs;         /* number of references; below 0: a static principal */
    int64_t expires;  /* seconds since 1970; 0: never */
    uint64_t sign_in; /* see mp_principal_set_sign_in */
    unsigned char key[MP_PRINCIPAL_KEY];
    mp_str id;
    void (*on_unused)(void *keeper);
    void *MP_NULLABLE keeper; /* NULL: the principal is freed with its last reference */
    char bytes[];
};

/* Compares two keys in a time that does not depend on where they differ. */
bool mp_principal_key_is(const mp_principal *principal, const unsigned char key[MP_PRINCIPAL_KEY]);

/* The share number of a request that no call serves yet, such as one that waits for authentication; as mp_call_share.
 */
unsigned mp_principal_share(const mp_principal *principal, const mp_stream *stream);

/* -- session.c, sessions.c ----------------------------------------------------------------------------------------- */

/* The values that the client sent at `initialize`, and the negotiated revision. Never changes. */
typedef struct {
    const mp_era *era;
    mp_str client, capabilities; /* JSON texts, which lie in `bytes` */
    char bytes[];
} mp_client_info;

/* A principal, or the address of an anonymous client, that has sessions. */
typedef struct mp_owner mp_owner;
typedef struct mp_kept mp_kept;

/* The session's part of the event log, guarded by the log's lock. */
typedef struct {
    mp_link events, feeds; /* events: oldest first */
    int64_t count;
    size_t bytes;
    uint64_t last_number;     /* number of the feed that was made last */
    uint64_t base;            /* of a revived session: numbers up to this one are of earlier processes */
    _Atomic uint64_t highest; /* number of a feed, or of an event of the session's own feed; read without a lock */
    bool is_unsaved;          /* the session is closed: the store gets no more changes of its events */
} mp_session_log;

/* Whether the store has a record of a session. LEFT_OUT: it has no place for one, and the session ends with the process
 */
typedef enum { MP_KEPT_NONE, MP_KEPT_STORED, MP_KEPT_LEFT_OUT } mp_kept_state;

struct mp_session {
    mp_node node; /* link in its shard */
    char id[MP_ID + 1];
    unsigned char principal[MP_PRINCIPAL_KEY]; /* key of the session's owner */
    bool is_sse;            /* the session's transport is HTTP+SSE or stdio: transport->has_one_stream */
    bool was_revived;       /* an earlier process opened it */
    bool closed;            /* guarded by `lock` */
    char *MP_NULLABLE user; /* id of the session's owner, for operators; NULL: anonymous */
    char *peer;             /* address of the client that opened the session; empty over stdio */
    const mp_transport *transport;
    mp_session_table *table;
    mp_owner *owner;
    mp_kept *MP_NULLABLE kept; /* NULL: it ends with the process */
    uint64_t opened_at;
    uint64_t highest;                     /* of a revived session: mp_session_log.highest by its record */
    char owner_digits[MP_KEPT_OWNER + 1]; /* in the keys of its record and events: the store counts shares by them */
    void (*MP_NULLABLE on_free)(
        mp_session *session);            /* a copy of its table's hook, since a session may outlive the table */
    mp_event_log *MP_NULLABLE event_log; /* NULL: events have no ids */
    atomic_int refs, log_level, calls;
    _Atomic uint64_t used_at; /* when it was last in use, or doubted by mp_session_doubt(), in ms of the loop's clock */
    _Atomic bool is_named;    /* a request has named the session: its client has the id */
    _Atomic bool is_doubted;  /* its client may have left without the id */
    _Atomic bool is_revived;  /* an earlier process opened the session, and no request has named it since */
    /* up to when the session may be used without its record being written again, in ms of the loop's clock; 0: the
     * store has none */
    _Atomic uint64_t covered_until;
    _Atomic uint64_t kept_again_at;                   /* the record was not taken: when it is tried again */
    _Atomic uint64_t kept_highest;                    /* log.highest as the record has it */
    _Atomic int record;                               /* an mp_kept_state */
    _Atomic bool is_changed;                          /* the record has older facts */
    _Atomic(mp_client_info *MP_NULLABLE) client_info; /* NULL until `initialize` has succeeded */

    pthread_mutex_t lock;          /* guards `closed`, and the fields up to the empty line */
    uint64_t rpcs;                 /* one bit for each rpc that has, or had, a reader or a call of this session */
    mp_reader *MP_NULLABLE reader; /* reader of the session's own stream; NULL: no client reads it */
    mp_feed *MP_NULLABLE
    feed; /* feed of the session's own stream, once a client has read it and if events have ids; counted reference */
    mp_link readers; /* list of all mp_reader, linked by in_session */
    mp_session_log log;
    mp_link calls_of;        /* list of calls, linked by mp_call.in_session */
    mp_link client_requests; /* list of unanswered requests to the client, linked by mp_client_request.in_session */

    mp_link subscriptions; /* `subscriptions` and `subscription_count` are guarded by the lock of the table's topics */
    size_t subscription_count;
};

/* Adds a new session to the table and returns it with a counted reference for the caller. NULL if a cap refuses it:
 * sessions are counted by principal, or by `peer` for anonymous clients. */
mp_session *MP_NULLABLE mp_session_new(mp_rpc *rpc, const mp_transport *transport, const mp_principal *principal,
                                       mp_str peer);
mp_session *mp_session_ref(mp_session *session);
void mp_session_unref(mp_session *session);
/* The session of this id, with a counted reference, marked as used. NULL if the id is unknown, the session is
 * closed, or it belongs to another principal: these cases take equal time, and are audited (B-32). `stream` carries
 * the request. */
mp_session *MP_NULLABLE mp_session_find(mp_rpc *rpc, mp_stream *stream, mp_str id);
/* True if a request has named the session: its client has the id. */
bool mp_session_is_named(mp_session *session);
/* The client may have left before it had the session's id: unless a request names the session within
 * 30 s, it ends. */
void mp_session_doubt(mp_session *session);
/* Removes the session from the table and ends its streams and calls on every worker. False if it was closed before. */
bool mp_session_close(mp_session *session, const mp_stat *reason);
void mp_client_info_free(mp_client_info *MP_NULLABLE client_info); /* NULL is allowed */
/* Stores the values negotiated by `initialize`. False if the session has values already: the first handshake wins
 * (B-14). */
bool mp_session_set_client(mp_session *session, const mp_era *era, mp_str client, mp_str capabilities);

/* -- sessions.c ---------------------------------------------------------------------------------------------------- */

/* Callbacks by which the higher folders end their parts of a session. */
typedef struct {
    void (*on_closing)(mp_session *session);            /* called under the session's lock */
    void (*on_closed)(mp_session *session);             /* called without a lock, before the table drops the session */
    void (*end_here)(mp_rpc *rpc, mp_session *session); /* called on the thread of each rpc in session->rpcs */
    void (*MP_NULLABLE on_free)(mp_session *session);   /* called when the session's last reference is dropped */
    /* Appends the topics that the session subscribes to, each by mp_kept_put, after a byte: '1' if its client has asked
     * for it. */
    void (*put_topics)(mp_session *session, mp_buf *out);
    void (*take_topics)(mp_session *session, mp_str topics); /* subscribes to those that put_topics wrote */
    /* Takes an event that an earlier process gave to mp_kept_set_event, in the order of feeds and events. False: it was
     * not taken, and no client can resume after it. */
    bool (*take_event)(mp_session *session, uint64_t feed, uint64_t seq, mp_str text);
    /* No more events follow. `highest`: mp_session_log.highest in an earlier process. */
    void (*end_events)(mp_session *session, uint64_t highest);
} mp_session_hooks;

/* `processes`, `hooks`, `topics` and `event_log` (or NULL) are borrowed for the life of the table. */
mp_session_table *mp_sessions_new(const mp_rpc_config *config, mp_processes *processes, const mp_session_hooks *hooks,
                                  mp_topics *topics, mp_event_log *MP_NULLABLE event_log);
void mp_sessions_configure(mp_session_table *table, const mp_rpc_config *config);
/* Closes all sessions. */
void mp_sessions_free(mp_session_table *table);
mp_processes *mp_session_table_processes(const mp_session_table *table);
mp_topics *mp_session_table_topics(mp_session_table *table);
const mp_session_hooks *mp_session_table_hooks(const mp_session_table *table);
const mp_rpc_config *mp_session_table_config(mp_session_table *table);
/* Sessions that are added from now on are kept. */
void mp_session_table_set_kept(mp_session_table *table, mp_kept *kept);
mp_event_log *MP_NULLABLE mp_session_table_event_log(mp_session_table *table);
/* Adds the rpc to the table for good. Returns the index of the rpc. */
unsigned mp_session_table_join(mp_session_table *table, mp_rpc *rpc);
mp_rpc *mp_session_table_rpc(mp_session_table *table, unsigned index);
/* Closes sessions that are idle, or not initialized in time, in the rpc's share of the shards. */
void mp_session_table_sweep(mp_rpc *rpc);

/* Counts one more call in flight, for rpc->envelope, whose bytes it keeps while those of its request may be gone: over
 * HTTP+SSE and stdio they always are. False, which is counted, if limits.calls_in_flight has no place for this client,
 * or limits.bodies no room. An operator's question always has a place: core/admin has its own limit. */
bool mp_session_table_take_call(mp_rpc *rpc);
/* `share`: rpc->share when it was taken; `size`: that of the message. */
void mp_session_table_give_call(mp_session_table *table, unsigned share, size_t size);
bool mp_session_table_has_calls(void);
/* The limit that refused a request. The seconds of its Retry-After follow from the rate at which places of the limit
 * become free. A place of MEMORY becomes free with each call that ends. */
typedef enum {
    MP_CAPACITY_CALLS,
    MP_CAPACITY_MEMORY,
    MP_CAPACITY_SESSIONS,
    MP_CAPACITY_AUTHN,
    MP_CAPACITIES
} mp_capacity;
unsigned mp_session_table_room_s(mp_session_table *table, mp_capacity room);
/* Things whose number is limited in the whole gateway. */
typedef enum { MP_QUOTA_SUBSCRIBER, MP_QUOTA_DETACHED, MP_QUOTA_AUTHN, MP_QUOTAS } mp_quota;
/* Counts one more request whose authentication is pending, for the client's mp_stream_share. False, which is counted:
 * there is no place, or none for this client. */
bool mp_session_table_take_authn(mp_session_table *table, unsigned share);
void mp_session_table_give_authn(mp_session_table *table, unsigned share);
/* Takes a place for the principal, or for the address of a client without one, SUBSCRIBER or DETACHED. These places are
 * held for long: of a limit of 16 or more each client has, in this process, as many as are free for the others, so half
 * at most. NULL, which is counted: there is none, or no further one for this client. */
mp_owner *MP_NULLABLE mp_quota_take_for(mp_session_table *table, mp_quota quota, const mp_principal *principal,
                                        mp_str address);
void mp_quota_give_for(mp_session_table *table, mp_quota quota, mp_owner *owner);
/* Takes a place for a background task of the gateway itself. False, which is counted: there is none. */
bool mp_own_job_take(void);
void mp_own_job_give(void);

/* A session to be added to the table. */
typedef struct {
    mp_str id;       /* of the earlier process that opened it; empty: it is a new one */
    mp_str digits;   /* its owner_digits, of a session with an id */
    mp_owner *owner; /* it was counted for */
    const mp_transport *transport;
    const unsigned char *principal;
    mp_str user, peer; /* user without ptr: anonymous */
    uint64_t opened_at, used_at;
} mp_session_facts;
/* The open session with this id, with a counted reference. */
mp_session *MP_NULLABLE mp_session_of_id(mp_session_table *table, mp_str id);
/* Adds it, with a counted reference for the caller. */
mp_session *mp_session_add(mp_session_table *table, const mp_session_facts *facts);
/* Counts one more session, for that owner. NULL, which is counted: a cap is reached. `is_new`: the last free ones are
 * for owners that have few. */
mp_owner *MP_NULLABLE mp_session_count(mp_session_table *table, mp_str owner, bool is_new);
void mp_session_uncount(mp_session_table *table, mp_owner *owner);

/* -- kept.c: records of sessions in the store, from which another process revives them ------------------------------
 */

struct mp_kept {
    mp_store *store;
    const mp_session_hooks *hooks;
    _Atomic uint64_t idle_ms;
    atomic_bool ends_all; /* also sessions that end with the process leave no record */
    pthread_mutex_t lock; /* held from reading a session's facts until the store has them; taken before all others */
};

mp_kept *mp_kept_new(mp_store *store, const mp_session_hooks *hooks, uint64_t idle_ms);
void mp_kept_free(mp_kept *MP_NULLABLE kept);
/* The session is new, and is kept from now on unless `kept` is NULL. `digits`: as in mp_session_facts; empty: they are
 * made from the name `owner`. */
void mp_kept_take_in(mp_session *session, mp_kept *MP_NULLABLE kept, mp_str digits, mp_str owner);
void mp_kept_note_state(mp_session *session, mp_kept_state state);
/* The process that owns the store has no place for the session's record; as mp_store_refused. */
void mp_kept_note_refused(mp_session *session, mp_str key, bool is_there);
/* Appends a text of a record; takes one from the begin of `rest`, or returns false. */
void mp_kept_put(mp_buf *out, mp_str text);
bool mp_kept_take(mp_str *rest, mp_str *text);
/* The begin of a record. Its texts follow: user, peer, revision, client, capabilities, topics. */
typedef struct {
    unsigned char sum[MP_SHA256_BYTES]; /* of the bytes after it */
    unsigned char principal[MP_PRINCIPAL_KEY];
    uint64_t opened_at, used_at; /* ms since 1970; by this record it was not used after `used_at` */
    uint64_t highest;            /* of mp_session_log */
    int32_t format, log_level, has_user, unused;
} mp_kept_head;
#define MP_KEPT_FORMAT 1
/* Of the keys of records. The session's id and owner_digits follow. */
#define MP_KEPT_SESSION MP_STR("session:")
/* Of the keys of events. The session's id, the feed and the event's number, both in hex with 16 digits, and
 * owner_digits follow. */
#define MP_KEPT_EVENT MP_STR("event:")
#define MP_KEPT_DIGITS 16
/* How much the wall clock is ahead of that of the loops, in ms. */
uint64_t mp_kept_ahead(void);
/* True if a client reads the session's stream, or a call of it runs. */
static inline bool mp_session_is_in_use(mp_session *session)
{
    MP_LOCKED(&session->lock);
    return session->reader != NULL || atomic_load(&session->calls) > 0;
}
/* Writes the session's record, the first one too. Nothing happens if the session was closed. */
void mp_session_write(mp_session *session);
/* A request names a revived session. */
void mp_session_note_revived(mp_session *session);
/* A process that revives a session numbers its feeds and events from this much above the highest number before. */
#define MP_KEPT_JUMP ((uint64_t)1 << 20)
/* True if the session has a record that has to be written again: it has other facts now, does not cover its use, or
 * half of MP_KEPT_JUMP numbers of feeds or events were used since it was written. */
bool mp_session_is_to_be_kept(mp_session *session, uint64_t now);
/* The session was closed. `is_for_good`: no other process is to revive it. */
void mp_session_forget(mp_session *session, bool is_for_good);
/* True if the store is given the events of the session, for a client that resumes in another process. */
bool mp_kept_has_events(const mp_session *session);
/* Stores an event of a session that is kept, or removes it. Events are in the file a moment later: nobody waits. They
 * are deleted with the session's record (mp_store_forget). */
void mp_kept_set_event(const mp_session *session, uint64_t feed, uint64_t seq, mp_str text);
void mp_kept_drop_event(const mp_session *session, uint64_t feed, uint64_t seq);
/* As mp_session_table_keep (revive.c). */
void mp_sessions_keep(mp_session_table *table, mp_store *store, const mp_transport *transport, bool keeps,
                      bool is_first);

/* -- owners.c: who has how many sessions --------------------------------------------------------------------------- */

typedef struct mp_owners mp_owners;

/* `number`: that of this process. */
mp_owners *mp_owners_new(uint16_t number);
void mp_owners_free(mp_owners *owners);
/* Counts one more session of the owner `name`. NULL: it has `most` in all processes. */
mp_owner *MP_NULLABLE mp_owners_count(mp_owners *owners, mp_str name, int64_t most);
/* True if the owner may have the session that was just counted: as mp_holdings_add. */
bool mp_owners_may_have(mp_owners *owners, const mp_owner *owner, int64_t all, int64_t free_places, int64_t kept);
void mp_owners_uncount(mp_owners *owners, mp_owner *owner);
mp_str mp_owner_name(const mp_owner *owner); /* valid until it has no sessions */
/* As mp_session_table_say_owners and so on. `number`: that of this process, which may have changed until then. */
void mp_owners_say(mp_owners *owners, mp_owners_said which, uint16_t number);
void mp_owners_put(mp_owners *owners, mp_buf *out, size_t room);
void mp_owners_take(mp_owners *owners, mp_str body);
void mp_owners_forget(mp_owners *owners, uint16_t number);

/* -- expiry.c: event streams end with the credentials that opened them --------------------------------------------- */

/* Starts a timer that calls `fire` when credentials expire, or earlier: then mp_expiry_is_over is false, and the
 * caller starts the timer again. `fire` never runs for credentials that do not expire, or if streams may outlast
 * credentials. */
void mp_expiry_start(mp_rpc *rpc, mp_timer *timer, int64_t expires, void (*fire)(mp_timer *timer));
bool mp_expiry_is_over(int64_t expires);

/* Sign-ins that have ended, for as long as access tokens of them may be left: of the whole process, any thread. */
bool mp_ended_put(uint64_t sign_in, uint32_t seconds); /* true: it is new; false, too, if there is no place */
bool mp_ended_has(uint64_t sign_in);                   /* takes no lock */
bool mp_ended_are_known(void);                         /* all are here: see mp_sign_ins_doubt() */
void mp_ended_sweep(void);                             /* forgets some whose time is over */

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_closed_idle, mp_stat_calls, mp_stat_closed_shutdown, mp_stat_refused_auth_pending;
/* Appends to `all` the sessions of one shard, each with a counted reference. */
typedef struct {
    mp_session **list;
    size_t count, room;
} mp_session_list;
void mp_session_table_take_shard(mp_session_table *table, unsigned shard, mp_session_list *all);

#endif
