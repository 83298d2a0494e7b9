/* transport.h: Streamable HTTP, HTTP+SSE and stdio: each reads requests, starts calls, and has a table of functions
 * that send answers. */
#ifndef MP_RPC_TRANSPORT_H
#define MP_RPC_TRANSPORT_H

#include "rpc/auth/auth.h"
#include "rpc/request/hop.h"

/* JSON values in one body, or in one line of stdio: 100,000 take some 10 ms to decode */
#define MP_MAX_VALUES ((size_t)MP_LIMIT(values, 100000))

/* -- http.c: the tables of the HTTP transports --------------------------------------------------------------------- */

extern const mp_transport mp_streamable_transport, mp_sse_transport;

/* -- streamable.c, http_sse.c: one function for each path ---------------------------------------------------------- */

void mp_serve_streamable(mp_rpc *rpc, mp_stream *stream);
void mp_serve_sse(mp_rpc *rpc, mp_stream *stream);
void mp_serve_messages(mp_rpc *rpc, mp_stream *stream);

/* -- message.c: serves the message in rpc->envelope ---------------------------------------------------------------- */

/* Answers 400, or 413 for too many JSON values, to a message that cannot be read. */
void mp_refuse_envelope(mp_rpc *rpc, mp_stream *stream);
/* Passes on, or drops, the notification or response in rpc->envelope, which came by `stream` (rpc->no_stream over
 * stdio). */
void mp_serve_note(mp_rpc *rpc, const mp_stream *stream, mp_session *session);
/* Serves a request of a session whose transport has one stream: starts a call, or sends an error. `post`: the HTTP
 * request that brought it; rpc->no_stream over stdio. */
void mp_serve_session_request(mp_rpc *rpc, const mp_stream *post, mp_session *session);
/* Serves a request of a stateless revision that came without headers: starts a call, or sends an error. */
void mp_serve_stateless_message(mp_rpc *rpc, const mp_transport *transport);
/* Logs and counts why a request is not served, and sends the error. `session`: NULL, or the one whose client gets
 * it. */
void mp_refuse_message(mp_rpc *rpc, const mp_transport *transport, mp_session *MP_NULLABLE session, mp_cause cause,
                       int code, const char *message);
/* The error of a request for which mp_session_table_take_call() had no place. */
extern const char mp_too_many_calls[];

/* -- batch_body.c: an array of messages ---------------------------------------------------------------------------- */

/* Serves the array in the body of `stream`. */
void mp_serve_batch(mp_rpc *rpc, mp_stream *stream, mp_session *session);
/* Serves the array in a line of stdio. */
void mp_serve_batch_line(mp_rpc *rpc, mp_session *session, mp_str line);

/* -- stdio.c ------------------------------------------------------------------------------------------------------- */

struct mp_stdio {
    mp_rpc *rpc;
    mp_pipe *pipe; /* borrowed */
    mp_session
        *session; /* counted reference to the session of the stateful revisions, which lives as long as the process */
    void (*ended)(void *ctx, int error);
    void *ctx;
};

void mp_stdio_free(mp_stdio *MP_NULLABLE stdio); /* `stdio` may be NULL */

/* -- hop/edge.c ---------------------------------------------------------------------------------------------------- */

/* `serve` serves a request whose process was not known, or has ended, once more. */
mp_hops *mp_hops_new(mp_rpc *rpc, void (*serve)(mp_rpc *rpc, mp_stream *stream, mp_principal *principal));
/* The keys of sealed headers; made at the first call, since they need OpenSSL. */
const mp_seal_key *mp_hops_keys(mp_rpc *rpc);
/* True if another process is to serve the request of the principal rpc->principal: it has been sent on, or refused. */
bool mp_hop_send_on(mp_rpc *rpc, mp_stream *stream, mp_hop_endpoint endpoint);
/* Passes on the bytes of answers that have arrived. Called at the end of a turn. */
void mp_hops_turn(mp_rpc *rpc);
bool mp_hops_have_work(const mp_rpc *rpc);
/* Ends event streams without a call; those of HTTP+SSE, which a client cannot resume, not before the drain. */
void mp_hops_drain(mp_rpc *rpc, bool is_leave);
/* Ends all requests that were sent on, with an error for each client that has got nothing yet. */
void mp_hops_abort(mp_rpc *rpc);
void mp_hops_free(mp_rpc *rpc);

/* -- console.c ----------------------------------------------------------------------------------------------------- */

/* The worker ends: gives back the rpc's references, after its calls have ended. */
void mp_consoles_free(mp_rpc *rpc);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_dropped_unmatched, mp_stat_refused_answers;

#endif
