/* house.h: what the files of this room share.
 *
 *   held     an event stream that a session's client reads: HTTP+SSE's only one, a GET of Streamable HTTP
 *   feed     an event stream as its client numbers it: it may outlive the connection that carries it
 *   replay   events of feeds, kept for clients that come back
 *
 * Who may touch what: a session's fields are immutable, atomic, or under its lock; a held stream, and a call but for the
 * fields that its session's ring shows, belong to the thread of their rpc. */
#ifndef MP_RPC_HOUSE_H
#define MP_RPC_HOUSE_H

#include "envelope.h"
#include "era.h"
#include "principal.h"
#include <pthread.h>
#include <stdatomic.h>

#define MP_RPC_MAX 64    /* workers */
#define MP_SESSION_ID 32 /* hex digits: 128 random bits */

typedef struct mp_feed mp_feed;
typedef struct mp_replay mp_replay;

typedef struct {
    mp_session *session; /* counted */
    mp_stream *stream;   /* counted */
    mp_feed *feed;       /* counted; NULL where events have no ids */
    uint64_t number;     /* the feed's; 0 also without one */
    int fd;              /* its socket: open for as long as the session points here */
    mp_rpc *rpc;
    bool was_idle;      /* draining: no call of its session ran a tick ago, so what those sent is here by now */
    mp_link link;       /* in rpc->held */
    mp_link in_session; /* in session->readers; with the next three under the session's lock */
    bool is_behind;     /* it still reads from the store; changed by its own thread */
    bool is_replaced;   /* its client has come back on another connection */
    mp_timer expiry;
    int64_t expires; /* its reader's principal; 0: never */
    uint64_t expired_at;
    uint64_t posted; /* the last event on its way here from another thread */
    uint64_t sent;   /* the last event on its stream; its own thread's */
} mp_held;

struct mp_feed {
    mp_link link;        /* in session->kept.feeds; with `refs`, `events` and `lost` under the store's lock */
    mp_session *session; /* whoever counts the feed counts it */
    int refs, events;
    uint64_t lost;   /* the latest event that is not kept any more, and none before it */
    uint64_t number; /* 0: the session's own stream, else a call's */
    mp_rpc *rpc;     /* the call's, with its serial */
    uint64_t serial;
    uint64_t last;   /* the latest event; with the rest under the session's lock */
    mp_held *reader; /* of a call's stream: who has resumed it */
    bool is_over;    /* the call has said its last */
};

/* What is kept of a session, under the store's lock. */
typedef struct {
    mp_link events, feeds; /* oldest first */
    int64_t count;
    size_t bytes;
    uint64_t last_number;
} mp_kept;

typedef struct mp_batch mp_batch;
typedef struct mp_topics mp_topics;
typedef struct mp_publisher mp_publisher;
typedef struct mp_listening mp_listening;

/* What `initialize` said. Never changes. */
typedef struct {
    const mp_era *era;
    mp_str client, capabilities;
    char bytes[];
} mp_card;

typedef struct {
    mp_node node;
    int64_t sessions;
    char name[];
} mp_owner; /* a principal that has sessions */

struct mp_session {
    mp_node node; /* in its shard */
    char id[MP_SESSION_ID + 1];
    unsigned char principal[MP_PRINCIPAL_KEY]; /* whose it is */
    bool is_sse;                               /* HTTP+SSE, or stdio: all that it is sent goes one way */
    char peer[48];                             /* whence it was opened; empty over stdio */
    mp_table *table;
    mp_owner *owner;
    uint64_t opened_at;
    mp_replay *replay; /* NULL: events have no ids */
    atomic_int refs, log_level, calls;
    _Atomic uint64_t used_at;
    _Atomic(mp_card *) card; /* NULL until initialize */

    pthread_mutex_t lock;
    bool closed;
    uint64_t rpcs;   /* bit per rpc that has, or had, something of this session */
    mp_held *held;   /* who reads the session's own stream; NULL when nobody does */
    mp_feed *feed;   /* that stream, once it was read, where events have ids; counted */
    mp_link readers; /* all mp_held, by in_session */
    mp_kept kept;
    mp_link calls_of; /* calls, by mp_call.in_session */
    mp_link asks;     /* what was asked of the client, by mp_ask.in_session */

    mp_link follows; /* these two under the lock of the table's topics */
    size_t follow_count;
};

struct mp_call {
    mp_link link; /* in rpc->calls or rpc->jobs, then rpc->ended */
    mp_rpc *rpc;
    mp_stream *stream;   /* counted; NULL over HTTP+SSE and stdio, or when its reader left */
    mp_session *session; /* counted; NULL in 2026-07-28 */
    mp_batch *batch;     /* whose answers it shares; NULL for most */
    mp_feed *feed;       /* counted; NULL until its stream's events have ids */
    const mp_era *era;
    mp_timer limit, prime;
    uint64_t limit_ms;
    void *user;
    bool ended, opens_session, id_is_free, is_job;
    int status;              /* of its answer; 0: what it says by itself */
    mp_link asks;            /* what it asked its client */
    mp_listening *listening; /* NULL for most */
    uint64_t serial;         /* unique in its rpc */
    mp_link in_session;      /* under the session's lock, with `serial`, `rpc` and `id` */
    mp_principal *principal; /* counted; NULL once it has ended */
    mp_str id, method, params, progress_token;
    char bytes[];
};

typedef struct {
    mp_pipe *pipe;       /* NULL: HTTP is served */
    mp_session *session; /* counted: of the revisions that have one, and of the process */
    bool is_over;        /* nothing more will come in */
    void (*ended)(void *ctx, int error);
    void *ctx;
} mp_stdio;

struct mp_rpc {
    const mp_rpc_config *config;
    mp_table *table;
    mp_loop *loop;
    const mp_rpc_hooks *hooks;
    void *ctx;
    unsigned index;
    bool draining;
    uint64_t last_serial;
    int64_t count, job_count;
    mp_link calls, jobs, ended, held, entries;
    mp_publisher *publisher;
    mp_stdio stdio;
    mp_timer sweep;
    mp_envelope envelope; /* of the message being served, with its principal, which is borrowed */
    mp_principal *principal;
    mp_buf scratch;
};

/* -- refuse.c: answers that no script gives -- */

/* One JSON-RPC error as an HTTP answer. `id` and `data` may be empty. */
void mp_refuse(mp_rpc *rpc, mp_stream *stream, int status, int code, mp_str id, const char *message, mp_str data);
/* The same with a header more. */
void mp_refuse_with(mp_rpc *rpc, mp_stream *stream, int status, mp_header header, const char *message);
void mp_accept_note(mp_stream *stream); /* 202, no body */
/* Appends {"jsonrpc":"2.0","id":…,"error":{…}}. */
void mp_put_error(mp_buf *out, mp_str id, int code, mp_str message, mp_str data);
/* Appends the error for an envelope that is no message; `what` it came as: "body", "line". */
void mp_put_envelope_error(mp_buf *out, const mp_envelope *envelope, const char *what);

/* The 2026-07-28 ladder's words, and the data of its errors: which versions are served so. */
extern const char mp_meta_is_missing[], mp_version_has_sessions[];
void mp_put_versions(mp_buf *out, mp_str requested);

/* -- headers.c: what HTTP's headers mean here -- */

/* Host alone. */
bool mp_host_is_listed(const mp_rpc_config *config, const mp_stream *stream);
bool mp_type_is_json(const mp_stream *stream);
/* Whether Accept takes every one of the NULL-terminated media types. */
bool mp_accepts(const mp_stream *stream, const char *const *types);
/* Whether Accept names text/event-stream before anything else. */
bool mp_prefers_events(const mp_stream *stream);
/* The value of `name` in a query; its count of appearances in `count`. */
mp_str mp_query_value(mp_str query, const char *name, int *count);
/* Decodes =?base64?…?= (H-4, H-5) to `out`; plain values are given as they are. -1 for a broken one. */
int mp_header_text(mp_str value, mp_buf *out, mp_str *text);

/* -- table.c -- */

/* Counted, and marked used; NULL when unknown, closed, or another's than rpc->principal, which take the same time (B-32). */
mp_session *mp_session_find(mp_rpc *rpc, mp_str id);
/* A new one in the table, counted for the caller; NULL when a cap refuses it. The cap counts by principal, or by `peer` where
 * that is nobody. */
mp_session *mp_session_new(mp_rpc *rpc, bool is_sse, const mp_principal *principal, mp_str peer);
mp_session *mp_session_ref(mp_session *session);
void mp_session_unref(mp_session *session);
/* Takes it out of the table and ends all it has, on every worker. Once; later ones do nothing and give false. */
bool mp_session_close(mp_session *session, mp_stat reason);
/* Closes sessions of this rpc's part of the table that are past their time. */
void mp_table_sweep(mp_rpc *rpc);
/* False when it has one already: the first handshake stands (B-14). */
bool mp_session_set_card(mp_session *session, const mp_era *era, mp_str client, mp_str capabilities);

/* limits.calls_in_flight is the process's. */
bool mp_table_has_room(mp_table *table);
bool mp_table_has_calls(mp_table *table);
void mp_table_count_call(mp_table *table, int n);
/* The rpc's place in the table, which then knows it for good. */
unsigned mp_table_join(mp_table *table, mp_rpc *rpc);
mp_rpc *mp_table_rpc(mp_table *table, unsigned index);
mp_topics *mp_table_topics(mp_table *table);
/* What the process has so many places for. */
typedef enum { MP_PLACE_LISTENER, MP_PLACE_JOB, MP_PLACE_ENTRY, MP_PLACES } mp_place;
/* False, and counted, when all are taken. */
bool mp_table_take_place(mp_table *table, mp_place place);
void mp_table_give_place(mp_table *table, mp_place place);

/* -- held.c -- */

/* Draining: ends the streams that carry no call, or all. */
void mp_held_drain(mp_rpc *rpc, bool all);

/* Appends `json`, which has no line breaks, as an event; before it, its id. */
void mp_put_event(mp_buf *out, mp_str json);
void mp_put_event_id(mp_buf *out, uint64_t number, uint64_t seq);
/* An id and no data: something to come back with before anything was said (S-29). */
void mp_put_priming(mp_buf *out, uint64_t number, uint64_t seq);
#define MP_EVENT_FRAME 80 /* bytes at most that both add to the JSON */
/* Makes `stream` (already an event stream) the session's. -1 when it has one whose reader is still there, or is closed. */
int mp_held_start(mp_rpc *rpc, mp_session *session, mp_stream *stream);
/* Makes `stream` (nothing is answered yet) go on with what the client read up to `last_event_id`, on whatever connection.
 * False when that is no id of the session's, or what followed it is not kept any more. */
bool mp_held_resume(mp_rpc *rpc, mp_session *session, mp_stream *stream, mp_str last_event_id);

/* Something for the reader of one of a session's streams. */
typedef struct {
    mp_feed *feed;  /* NULL: the session's own stream */
    mp_stream *own; /* a call's own connection, which reads until somebody resumes the feed; or NULL */
    mp_str json;    /* an event, which gets an id and is kept where the feed is; or empty */
    mp_str bytes;   /* what goes out as it is, when there is no event; or empty */
    bool hangs_up;  /* the connection ends with it */
    bool is_last;   /* so does the feed */
} mp_parcel;
/* From any rpc. False when nobody reads it and nobody will. */
bool mp_held_send(mp_rpc *from, mp_session *session, const mp_parcel *parcel);
/* Whether a reader is there, asked of its socket now. */
bool mp_session_has_reader(mp_session *session);
/* Sends a message on the session's stream, from any rpc. Quietly dropped and counted where nobody reads. */
void mp_session_send(mp_rpc *from, mp_session *session, mp_str json);
/* The session was closed: ends its stream here, calls its calls off. */
void mp_rpc_forget(mp_rpc *rpc, mp_session *session);

/* -- replay.c: what is not new or free, under the session's lock -- */

/* NULL when the configuration keeps nothing. */
mp_replay *mp_replay_new(const mp_rpc_config *config);
void mp_replay_configure(mp_replay *replay, const mp_rpc_config *config);
void mp_replay_free(mp_replay *replay);
/* A call's, or, without a call, the session's own. Counted for the caller. */
mp_feed *mp_feed_new(mp_session *session, const mp_call *call);
void mp_feed_ref(mp_feed *feed);
void mp_feed_unref(mp_feed *feed);
/* Numbers an event: feed->last. False when it is not kept. */
bool mp_feed_put(mp_feed *feed, mp_str json);
/* The feed that an event's id names, counted, if all that followed the event is kept. */
mp_feed *mp_feed_find(mp_session *session, mp_str id, uint64_t *seq);
typedef enum { MP_FEED_ALL, MP_FEED_MORE, MP_FEED_GAP } mp_feed_rest;
/* Appends what followed event `*seq`, as events, as far as there is room; moves `*seq`. GAP: some of it is gone. */
mp_feed_rest mp_feed_read(mp_feed *feed, uint64_t *seq, size_t room, mp_buf *out);
/* The session is closed: nothing of it is kept. */
void mp_replay_forget(mp_session *session);

/* -- resume.c: calls whose client may come back -- */

/* Whether the events of the call's stream have ids; opens the stream if that makes it so. */
bool mp_call_has_feed(mp_call *call);
/* An event on the call's feed; the last one ends the call's stream. -1 when nobody gets it. */
int mp_call_put(mp_call *call, mp_str json, bool is_last);
/* The call has ended: so has its feed, if it has one. */
void mp_call_end_feed(mp_call *call);
/* It takes time: where streams are primed, its stream will be opened. */
void mp_call_prime_soon(mp_call *call);
/* The client has come back on another connection. */
void mp_call_leave_stream(mp_rpc *rpc, mp_session *session, uint64_t serial);

/* -- call.c -- */

/* Starts a call from the envelope just read. `stream` is NULL over HTTP+SSE and stdio. NULL when the session was closed
 * meanwhile, or (HTTP+SSE) when it still answers a request with this id. */
mp_call *mp_call_start(mp_rpc *rpc, mp_stream *stream, mp_session *session, const mp_era *era);
/* The same for a call of a batch: false when the session was closed meanwhile. */
bool mp_call_start_in(mp_rpc *rpc, mp_batch *batch, mp_session *session);
/* notifications/cancelled: calls off whichever call of the session has this id. */
void mp_call_cancel_by_id(mp_session *session, mp_str id);
/* Stdio, where ids tell all there is apart: the call of this rpc with this id. */
mp_call *mp_call_find(mp_rpc *rpc, mp_str id);

typedef enum { MP_CANCEL_QUIET, MP_CANCEL_TELL } mp_cancel_manner;
/* Calls it off, innermost first. TELL answers with an error; QUIET ends the answer without one. */
void mp_call_cancel(mp_call *call, const char *why, mp_stat counter, mp_cancel_manner manner);

/* Frees what ended in this turn. */
void mp_calls_sweep(mp_rpc *rpc);

/* -- batch.c -- */

/* Answers a body that is an array. */
void mp_serve_batch(mp_rpc *rpc, mp_stream *stream, mp_session *session);
/* The same for a line of stdio. */
void mp_serve_batch_line(mp_rpc *rpc, mp_session *session, mp_str line);
/* A call joins the batch, and gets its stream, counted; it adds its answer, if it has one, and leaves. */
mp_stream *mp_batch_enter(mp_batch *batch);
void mp_batch_add(mp_batch *batch, mp_str answer);
void mp_batch_leave(mp_batch *batch);

/* -- topics.c -- */

mp_topics *mp_topics_new(const mp_rpc_config *config);
void mp_topics_configure(mp_topics *topics, const mp_rpc_config *config);
void mp_topics_free(mp_topics *topics);
mp_publisher *mp_publisher_new(void);
void mp_publisher_free(mp_publisher *publisher);
/* The session was closed. */
void mp_session_unfollow_all(mp_session *session);
/* Sends some of what was published: true when there is more. */
bool mp_publisher_turn(mp_rpc *rpc);

/* -- listeners.c -- */

/* The call is over. */
void mp_call_unlisten(mp_call *call);
/* Draining: ends all that listen. */
void mp_listeners_end(mp_rpc *rpc);

/* -- jobs.c -- */

void mp_jobs_call_off(mp_rpc *rpc, const char *why);

/* -- ask.c -- */

/* The client answers what it was asked: false when nobody in this session asked it. */
bool mp_session_answer(mp_session *session, mp_str id, bool is_error, mp_str answer);
/* The call is called off: its client need not answer any more, and is told. */
void mp_asks_call_off(mp_call *call);
/* The call is over: so is what it asked. */
void mp_asks_forget(mp_call *call);
/* No answer can come any more: whoever waits for one gets an error. */
void mp_asks_give_up(mp_rpc *rpc);

/* -- entry.c: finding out who asks -- */

void mp_entry_begin(mp_rpc *rpc, mp_stream *stream);
/* Other rules hold from now on. */
void mp_entries_restart(mp_rpc *rpc, void *old_ctx);
void mp_entries_call_off(mp_rpc *rpc, const char *why);

/* -- edge.c: what anybody may know -- */

/* Answers with the document of RFC 9728, whatever Origin says: false where the request is for something else. */
bool mp_serve_document(mp_rpc *rpc, mp_stream *stream);
/* Lets the page at Origin read what is answered, if the configuration does: true when that was all it asked. */
bool mp_serve_preflight(mp_rpc *rpc, mp_stream *stream);
/* Whether a page of this origin may read what is answered here. */
bool mp_origin_is_allowed(const mp_rpc_config *config, mp_str origin);
/* Appends what WWW-Authenticate says; `error` may be NULL, `scopes` empty. */
void mp_put_challenge(mp_rpc *rpc, const mp_stream *stream, mp_buf *out, const char *error, mp_str scopes);

/* -- expiry.c: event streams end with the token that opened them -- */

/* `fire` runs when credentials end, or sooner: then `is_over` is false, and it starts again. Never, where they do not end or
 * streams outlast them. */
void mp_expiry_start(mp_rpc *rpc, mp_timer *timer, int64_t expires, void (*fire)(mp_timer *timer));
bool mp_expiry_is_over(int64_t expires);

/* -- rpc.c -- */

/* The principal is known: answers the request. */
void mp_serve_as(mp_rpc *rpc, mp_stream *stream, mp_principal *principal);

/* The envelope is no message: 400. */
void mp_refuse_envelope(mp_rpc *rpc, mp_stream *stream);
/* The envelope is a notification or a response: hands it on, or drops it. */
void mp_note(mp_rpc *rpc, mp_session *session);

/* -- streamable.c, legacy.c: the transports -- */

void mp_serve_streamable(mp_rpc *rpc, mp_stream *stream);
void mp_serve_sse(mp_rpc *rpc, mp_stream *stream);
void mp_serve_messages(mp_rpc *rpc, mp_stream *stream);
/* An error for a request that no call was made for, on the session's stream. */
void mp_session_send_error(mp_rpc *rpc, mp_session *session, int code, const char *message);
/* The envelope is a request of an HTTP+SSE session. */
void mp_serve_sse_request(mp_rpc *rpc, mp_session *session);

/* -- stdio.c -- */

/* Sends an answer, or, where it does not come to a reader that stalls, anything else: -1 and counted when it is dropped. */
void mp_stdio_answer(mp_rpc *rpc, mp_str json);
int mp_stdio_send(mp_rpc *rpc, mp_str json);

#endif
