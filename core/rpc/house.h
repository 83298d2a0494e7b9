/* house.h: what the files of this room share.
 *
 *   held     an event stream that belongs to a session: HTTP+SSE's only one, or the GET stream of Streamable HTTP
 *
 * Who may touch what: a session's fields are immutable, atomic, or under its lock; a held stream, and a call but for the
 * fields that its session's ring shows, belong to the thread of their rpc. */
#ifndef MP_RPC_HOUSE_H
#define MP_RPC_HOUSE_H

#include "envelope.h"
#include "era.h"
#include <pthread.h>
#include <stdatomic.h>

#define MP_RPC_MAX 64    /* workers */
#define MP_SESSION_ID 32 /* hex digits: 128 random bits */

typedef struct {
    mp_session *session; /* counted */
    mp_stream *stream;   /* counted */
    int fd;              /* its socket: open for as long as session->held points here */
    mp_rpc *rpc;
    bool was_idle; /* draining: no call of its session ran a tick ago, so what those sent is here by now */
    mp_link link;  /* in rpc->held */
} mp_held;

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
    bool is_sse;
    mp_table *table;
    mp_owner *owner;
    uint64_t opened_at;
    atomic_int refs, log_level, calls;
    _Atomic uint64_t used_at;
    _Atomic(mp_card *) card; /* NULL until initialize */

    pthread_mutex_t lock;
    bool closed;
    uint64_t rpcs;    /* bit per rpc that has, or had, something of this session */
    mp_held *held;    /* NULL when nobody reads */
    mp_link calls_of; /* calls, by mp_call.in_session */
    mp_link asks;     /* what was asked of the client, by mp_ask.in_session */

    mp_link follows; /* these two under the lock of the table's topics */
    size_t follow_count;
};

struct mp_call {
    mp_link link; /* in rpc->calls or rpc->jobs, then rpc->ended */
    mp_rpc *rpc;
    mp_stream *stream;   /* counted; NULL over HTTP+SSE, or when its reader left */
    mp_session *session; /* counted; NULL in 2026-07-28 */
    mp_batch *batch;     /* whose answers it shares; NULL for most */
    const mp_era *era;
    mp_timer limit;
    uint64_t limit_ms;
    void *user;
    bool ended, opens_session, id_is_free, is_job;
    mp_link asks;            /* what it asked its client */
    mp_listening *listening; /* NULL for most */
    uint64_t serial;         /* unique in its rpc */
    mp_link in_session;      /* under the session's lock, with `serial`, `rpc` and `id` */
    mp_str id, method, params, progress_token, principal;
    char bytes[];
};

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
    mp_link calls, jobs, ended, held;
    mp_publisher *publisher;
    mp_timer sweep;
    mp_envelope envelope; /* of the message being served */
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

/* -- headers.c: what HTTP's headers mean here -- */

bool mp_type_is_json(const mp_stream *stream);
/* Whether Accept takes every one of the NULL-terminated media types. */
bool mp_accepts(const mp_stream *stream, const char *const *types);
/* The value of `name` in a query; its count of appearances in `count`. */
mp_str mp_query_value(mp_str query, const char *name, int *count);
/* Decodes =?base64?…?= (H-4, H-5) to `out`; plain values are given as they are. -1 for a broken one. */
int mp_header_text(mp_str value, mp_buf *out, mp_str *text);

/* -- table.c -- */

/* Counted; NULL when unknown, closed, or another principal's. Marks it used. */
mp_session *mp_session_find(mp_rpc *rpc, mp_str id, mp_str principal);
/* A new one in the table, counted for the caller; NULL when a cap refuses it. `owner` is what the cap counts by. */
mp_session *mp_session_new(mp_rpc *rpc, bool is_sse, mp_str owner);
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
typedef enum { MP_PLACE_LISTENER, MP_PLACE_JOB, MP_PLACES } mp_place;
/* False, and counted, when all are taken. */
bool mp_table_take_place(mp_table *table, mp_place place);
void mp_table_give_place(mp_table *table, mp_place place);

/* -- held.c -- */

/* Draining: ends the streams that carry no call, or all. */
void mp_held_drain(mp_rpc *rpc, bool all);

/* Appends `json`, which has no line breaks, as an event. */
void mp_put_event(mp_buf *out, mp_str json);
/* Makes `stream` (already an event stream) the session's. -1 when it has one whose reader is still there, or is closed. */
int mp_held_start(mp_rpc *rpc, mp_session *session, mp_stream *stream);
/* Whether a reader is there, asked of its socket now. */
bool mp_session_has_reader(mp_session *session);
/* Sends a message on the session's stream, from any rpc. Quietly dropped and counted where nobody reads. */
void mp_session_send(mp_rpc *from, mp_session *session, mp_str json);
/* The session was closed: ends its stream here, calls its calls off. */
void mp_rpc_forget(mp_rpc *rpc, mp_session *session);

/* -- call.c -- */

/* Starts a call from the envelope just read. `stream` is NULL over HTTP+SSE. NULL when the session was closed meanwhile, or
 * (HTTP+SSE) when it still answers a request with this id. */
mp_call *mp_call_start(mp_rpc *rpc, mp_stream *stream, mp_session *session, const mp_era *era);
/* The same for a call of a batch: false when the session was closed meanwhile. */
bool mp_call_start_in(mp_rpc *rpc, mp_batch *batch, mp_session *session);
/* notifications/cancelled: calls off whichever call of the session has this id. */
void mp_call_cancel_by_id(mp_session *session, mp_str id);

typedef enum { MP_CANCEL_QUIET, MP_CANCEL_TELL } mp_cancel_manner;
/* Calls it off, innermost first. TELL answers with an error; QUIET ends the answer without one. */
void mp_call_cancel(mp_call *call, const char *why, mp_stat counter, mp_cancel_manner manner);

/* Frees what ended in this turn. */
void mp_calls_sweep(mp_rpc *rpc);

/* -- batch.c -- */

/* Answers a body that is an array. */
void mp_serve_batch(mp_rpc *rpc, mp_stream *stream, mp_session *session);
/* A call joins the batch, and gets its stream, counted; it adds its answer, if it has one, and leaves. */
mp_stream *mp_batch_enter(mp_batch *batch);
void mp_batch_add(mp_batch *batch, mp_str answer);
void mp_batch_leave(mp_batch *batch);

/* -- topics.c -- */

mp_topics *mp_topics_new(const mp_rpc_config *config);
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

/* -- rpc.c -- */

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

extern const mp_str mp_anonymous; /* the principal of a client that no auth script knows */

#endif
