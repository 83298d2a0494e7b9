/* state.h: one JSON-RPC request from its start to its answer, and its parts: requests to its client, its place in a
 * batch, its subscriptions, its resumable stream. */
#ifndef MP_RPC_CALL_STATE_H
#define MP_RPC_CALL_STATE_H

#include "rpc/observe/tap.h"
#include "rpc/stream/stream.h"

struct mp_call {
    mp_link link; /* link in rpc->calls or rpc->detached, then in rpc->ended */
    mp_rpc *rpc;
    const mp_transport *transport;
    mp_stream *stream; /* counted reference, never NULL; or, where mp_call_is_of_stream() is false, rpc->no_stream,
                          borrowed. own_stream.c changes it. */
    mp_session *MP_NULLABLE session; /* counted reference; NULL in stateless revisions */
    mp_batch *MP_NULLABLE batch;     /* NULL if the call is not part of a batch */
    mp_feed *MP_NULLABLE feed;       /* counted reference; NULL until the events of the call's stream have ids */
    const mp_era *MP_NULLABLE era;   /* NULL: the revision is not known yet, see mp_call_era */
    mp_timer limit, prime;
    uint64_t limit_ms;
    size_t weight;          /* number of JSON values in the message: see mp_envelope */
    void *MP_NULLABLE user; /* pointer that belongs to the hooks */
    bool ended, is_being_cancelled, opens_session, id_is_free, is_detached;
    bool has_place; /* the call is counted in limits.calls_in_flight, until it ends or becomes a subscription */
    bool is_unix;   /* the request came by a Unix socket */
    bool is_hidden; /* neither counted nor shown to taps: a question of a page of the gateway's own */
    mp_console *MP_NULLABLE console; /* borrowed, valid until the call has ended; NULL: a call of a client */
    int status;            /* HTTP status chosen by mp_call_forbid or mp_call_put_off; 0: the default status */
    int sent_status, code; /* for the request log: the HTTP status of the answer, and the code of its error; 0: none */
    const char *MP_NULLABLE outcome; /* outcome of the call in one word; NULL: ok */
    uint64_t began;                  /* start of the turn that read the request, by mp_monotonic_us */
    /* of the tool, prompt or resource that the call is for; NULL: not known */
    mp_thing_metrics *MP_NULLABLE thing_metrics;
    mp_trace *MP_NULLABLE trace; /* owned; NULL: the call is not recorded, or has ended */
    size_t bytes_in, bytes_out;
    mp_link client_requests;
    mp_owner *MP_NULLABLE owner;           /* whose place a detached call has; NULL: one of the gateway itself */
    mp_subscriber *MP_NULLABLE subscriber; /* NULL if the call does not listen to topics */
    uint64_t mark;                         /* 0: it was not asked for yet */
    uint64_t serial;                       /* number of the call, unique in its rpc */
    unsigned share;                        /* see mp_call_share */
    mp_link in_session;                    /* guarded by the session's lock, like `serial`, `rpc` and `id` */
    /* The message by which its thread cancels it is on its way; guarded by the session's lock, and so not beside flags
     * of the call's thread: the compiler reads several of those at once. */
    bool is_cancel_posted;
    mp_principal *principal; /* counted reference, never NULL; mp_nobody once the call has ended */
    char *MP_NULLABLE
    authorization; /* owned; Authorization of its request, which has ended; NULL: not kept (config->keeps_tokens) */
    mp_str id, method, params, progress_token;
    char *MP_NULLABLE own_params;    /* owned, the bytes of `params`; NULL: they are in `bytes`, or there are none */
    const mp_flat *MP_NULLABLE flat; /* in `bytes`; NULL: the arguments are not known */
    size_t flat_count;
    bool has_arguments;
    mp_str said_client, said_trace; /* of such arguments' message: spans in _meta, see rpc/call.h */
    mp_str name;                    /* of the tool, resource, prompt or task that is called; unescaped, may be empty */
    bool is_pooled;                 /* `bytes` has MP_CALL_ROOM bytes: the call goes to the free list of its rpc */
    _Alignas(mp_flat) char bytes[]; /* the arguments, then the bytes of the texts */
};

/* A call of at most this size comes from a free list. Enough for the usual params and their arguments. */
#define MP_CALL_ROOM 1024

/* -- call.c -------------------------------------------------------------------------------------------------------- */

/* Starts a call from rpc->envelope, in the place that the caller got from mp_session_table_take_call(). `stream` is
 * rpc->no_stream over HTTP+SSE and stdio. Returns NULL, and gives the place back, if the session was closed meanwhile,
 * or if its transport has one stream and the id is in use. */
mp_call *MP_NULLABLE mp_call_start(mp_rpc *rpc, const mp_transport *transport, mp_stream *stream,
                                   mp_session *MP_NULLABLE session, const mp_era *MP_NULLABLE era);
/* Starts a call of a batch from rpc->envelope, as mp_call_start does. False if the session was closed meanwhile. */
bool mp_call_start_in(mp_rpc *rpc, mp_batch *batch, mp_session *session);
/* Adds the call to its session. False if the session was closed meanwhile. Also false if its calls share one stream
 * and the id is in use (B-27). */
bool mp_call_join(mp_call *call, mp_session *session);
/* Stores the Authorization header of `stream`, or the one that another process has sealed, while the call runs, if
 * config->keeps_tokens. */
void mp_call_keep_token(mp_call *call, const mp_stream *stream);
/* Frees params that are not among the call's `bytes`. */
void mp_call_forget_params(mp_call *call);
/* Frees the header that mp_call_keep_token stored. */
void mp_call_forget_token(mp_call *call);
/* Serves notifications/cancelled: cancels the call of the session with this id, on any worker. */
void mp_call_cancel_by_id(mp_session *session, mp_str id);
/* Finds the call of this rpc with this id. For stdio only, where all calls share one stream. */
mp_call *MP_NULLABLE mp_call_find(mp_rpc *rpc, mp_str id);

typedef enum { MP_CANCEL_QUIET, MP_CANCEL_ANSWER } mp_cancel_manner;
/* Cancels the call: first its handler, then its requests to the client. ANSWER answers with an error that has the
 * text `why`; QUIET ends the stream without an answer. */
void mp_call_cancel(mp_call *call, const char *why, const mp_stat *counter, mp_cancel_manner manner);
/* True for a request that an operator runs, and whose spans the operator sees. The requests by which a console opens
 * its session have texts as ids, and are not shown. */
bool mp_call_is_shown(const mp_call *call);
/* The session was closed: cancels its calls on this rpc. */
void mp_calls_end(mp_rpc *rpc, mp_session *session);
/* Cancels the calls of this rpc whose sign-in has ended. */
void mp_calls_sign_out(mp_rpc *rpc, const mp_stat *counter);
/* Frees the calls that ended in this turn. */
void mp_calls_sweep(mp_rpc *rpc);
/* Frees the free list. */
void mp_calls_free_spare(mp_rpc *rpc);

/* -- own_stream.c: the HTTP request that a call answers ------------------------------------------------------------ */

/* False over HTTP+SSE and stdio, for detached calls, and once the client has disconnected or reads the answer on
 * another connection. */
bool mp_call_is_of_stream(const mp_call *call);
/* The call begins without a stream. */
void mp_call_without_stream(mp_call *call);
/* The call begins, and answers this request. `left` runs if its client leaves before. */
void mp_call_take_stream(mp_call *call, mp_stream *stream, void (*left)(void *call, mp_stream *stream));
/* The call begins, and shares the stream of its batch: its client's departure is not noticed. */
void mp_call_share_stream(mp_call *call, mp_stream *stream);
/* The call is without its stream from now on, which is not ended by this. */
void mp_call_leave_stream(mp_call *call);
/* The call is about to end: a disconnect of its client no longer matters. */
void mp_call_ignore_client(mp_call *call);
/* The call takes time: its client's departure is noticed at once. */
void mp_call_watch_client(mp_call *call);
/* Sends `json` as an event without an id on the call's own stream. -1 if no client reads the stream. */
int mp_call_send_event(mp_call *call, mp_str json);

/* -- resume.c: calls that a client can resume ---------------------------------------------------------------------- */

/* The feed of the call's stream; NULL: its events have no ids. Opens the event stream if they can have ids. */
mp_feed *MP_NULLABLE mp_call_need_feed(mp_call *call);
/* Sends an event on the call's feed; the event with `is_last` ends the call's stream. -1 if no client reads the
 * event and it is not kept. */
int mp_call_put(mp_call *call, mp_feed *feed, mp_str json, bool is_last);
/* Called when the call has ended: ends its feed, if it has one. */
void mp_call_end_feed(mp_call *call);
/* Called when the call takes time: its event stream opens after a short delay if its revision primes streams, and after
 * the time between two heartbeats where its client takes event streams. */
void mp_call_prime_soon(mp_call *call);

/* -- batch.c: calls that share an answer --------------------------------------------------------------------------- */

#define MP_BATCH_MAX 64 /* limit of the messages in a batch */

/* `stream` is rpc->no_stream over stdio. The batch holds a counted reference to it. `session` is borrowed: each call
 * of the batch has a reference. The creator leaves the batch once all calls are in it. */
mp_batch *mp_batch_new(mp_rpc *rpc, mp_stream *stream, mp_session *session);
/* Adds a call to the batch. Returns the stream of the batch. The call later leaves the batch, with or without an
 * answer. */
mp_stream *mp_batch_enter(mp_batch *batch);
void mp_batch_add(mp_batch *batch, mp_str answer);
/* Leaves the batch. The last call that leaves sends the answers and frees the batch. */
void mp_batch_leave(mp_batch *batch);
extern const mp_transport mp_batch_transport;

/* -- listen.c: calls that listen to topics ------------------------------------------------------------------------- */

void mp_call_unlisten(mp_call *call);
/* Answers one of `parts` parts of the calls that listen to topics; with 1 all of them. */
void mp_subscribers_end(mp_rpc *rpc, uint64_t parts);
/* Sends publications to the calls that listen to their topics, at most `budget` messages. */
void mp_subscribers_notify(mp_rpc *rpc, int budget);

/* -- detached.c ---------------------------------------------------------------------------------------------------- */

void mp_detached_cancel(mp_rpc *rpc, const char *why);

/* -- client_request.c: requests to the client ---------------------------------------------------------------------- */

/* Takes a client's response. False if no call of the session waits for this id. */
bool mp_session_answer(mp_session *session, mp_str id, bool is_error, mp_str answer);
/* The call is cancelled: notifies its client that the requests to it need no answer. */
void mp_client_requests_cancel(mp_call *call);
/* The call has ended: frees its requests to the client. */
void mp_client_requests_forget(mp_call *call);
/* The client can send no more answers: fails all requests to clients of this rpc. */
void mp_client_requests_fail(mp_rpc *rpc);

/* -- metrics.c: histograms --------------------------------------------------------------------------------------- */

/* Counts a call that has ended, and its time, `us`. */
void mp_call_observe(const mp_call *call, uint64_t us);
/* Keeps what operators see of a call that has ended after `us`: it still has its principal. */
void mp_call_keep_ended(const mp_call *call, uint64_t us);
/* Appends the calls that are kept as JSON objects, separated by commas, newest first. */
void mp_ended_calls_put(const mp_rpc *rpc, mp_buf *out);
void mp_ended_calls_free(mp_ended_calls *MP_NULLABLE kept);
/* How the call has ended, as error.type: the code of its error, or a word; "" for success. May be written to `room`. */
const char *mp_call_error_type(const mp_call *call, char room[16]);

/* -- trace.c: the span of a call --------------------------------------------------------------------------------- */

/* Records the call if it is to be recorded. Called where mp_traces_are_on() or an operator runs the call, while
 * rpc->envelope has its message. */
void mp_call_begin_trace(mp_call *call);
/* The call has ended: hands its trace over. */
void mp_call_end_trace(mp_call *call, mp_trace *trace);

/* -- request_log.c: a line of the log for each request ------------------------------------------------------------- */

/* One word for the reason that a call ended before its answer. */
const char *mp_end_cause(const mp_stat *counter);
/* Appends the name of the tool, resource or prompt in `params` (mp_shown_name), and the client as "name version".
 * `session` may be NULL. */
void mp_call_names(mp_str params, const mp_session *MP_NULLABLE session, mp_buf *name, mp_buf *client);
/* Logs a call that has ended. */
void mp_log_call(mp_call *call);
/* Shows taps that the call begins, or that it has ended. */
void mp_call_tap(const mp_call *call);
/* Logs the notification or response in rpc->envelope. `stream` is rpc->no_stream over stdio; `session` may be NULL. */
void mp_log_message(mp_rpc *rpc, const mp_stream *stream, const mp_session *MP_NULLABLE session);
/* Logs a GET or DELETE that was served. */
void mp_log_http(mp_rpc *rpc, const mp_stream *stream, const mp_session *MP_NULLABLE session, int status);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_tool_cancelled, mp_stat_tool_gone, mp_stat_tool_shutdown, mp_stat_tool_time;

#endif
