/* call.h: who sends a request, the authentication of requests, and calls, as core/lib uses them for lua/moonpool. */
#ifndef MP_RPC_CALL_H
#define MP_RPC_CALL_H

#include "rpc/rpc.h"

/* -- principals and authentication --------------------------------------------------------------------------------- */

/* A principal is immutable and belongs to one thread. These two principals are static and belong to all threads: the
 * anonymous client, and the local user who started the gateway with stdio. */
extern mp_principal *const mp_nobody, *const mp_lone;
/* Returns a counted reference for the caller. Principals with equal `binding` share their sessions. `expires`:
 * seconds since 1970; 0: never. */
mp_principal *mp_principal_new(mp_str id, mp_str binding, int64_t expires);
/* The principal is from an access token of this sign-in, and its streams and calls end with it. 0: of none. */
void mp_principal_set_sign_in(mp_principal *principal, uint64_t sign_in);
mp_principal *mp_principal_ref(mp_principal *principal);
void mp_principal_unref(mp_principal *principal);
mp_str mp_principal_id(const mp_principal *principal);
/* The bytes in which two principals differ: a digest, not for people. */
mp_str mp_principal_key(const mp_principal *principal);
/* Keeps the principal in memory without references: when the last reference is dropped, `rest` is called and the
 * principal is not freed. mp_principal_forsake undoes that, and frees a principal without references. */
void mp_principal_keep(mp_principal *principal, void (*rest)(void *keeper), void *keeper);
/* The keeper that mp_principal_keep set; NULL if there is none, or after mp_principal_forsake. */
void *MP_NULLABLE mp_principal_keeper(const mp_principal *principal);
void mp_principal_forsake(mp_principal *principal);

/* Valid from on_entry until it is admitted, refused or cancelled. */
mp_stream *mp_authn_stream(const mp_authn *entry);
/* The principal, as put_principal wrote it, where another process has authenticated the request; else empty. */
mp_str mp_authn_packed(const mp_authn *entry);
void *MP_NULLABLE mp_authn_user(const mp_authn *entry); /* pointer that belongs to the hooks */
void mp_authn_set_user(mp_authn *entry, void *MP_NULLABLE user);
/* True for a request to a page of sign-in, which is not admitted but answered. */
bool mp_authn_is_page(const mp_authn *entry);
typedef struct {
    int status;
    const char *MP_NULLABLE type, *MP_NULLABLE event; /* event NULL: no audit line is written */
    mp_str body, reason;
    mp_header headers[16];
    size_t count;
} mp_page;
void mp_authn_answer(mp_authn *entry, const mp_page *page); /* all texts are copied */
/* Authentication waits for an op: its time limit begins. Refuses the request with 503 if too many are pending. */
void mp_authn_park(mp_authn *entry);
/* Serves the request for this principal; may call the hooks. */
void mp_authn_admit(mp_authn *entry, mp_principal *principal);

typedef struct {
    int status;     /* 401 sends the client a WWW-Authenticate challenge */
    bool has_token; /* the request has a token, and the token is not valid */
    int retry;      /* value of Retry-After in seconds; 0: no header */
    mp_str message; /* text for the client */
    mp_str reason;  /* reason for the audit only; may be empty */
} mp_refusal;
void mp_authn_refuse(mp_authn *entry, const mp_refusal *refusal);

/* A sign-in has ended: from now on no token of it is admitted in this process, and its streams and calls end, those of
 * other workers in their next turn. `seconds`: how long it is remembered. `rpc` NULL: nothing is served yet. */
void mp_sign_in_end(mp_rpc *MP_NULLABLE rpc, uint64_t sign_in, uint32_t seconds);
/* UNKNOWN: another process may know more; or the endings that the store has were not given to mp_sign_in_end yet, since
 * the process began or mp_sign_ins_doubt() was called. Its number, then, tells mp_sign_ins_know() that they were. 0:
 * they are known, and not doubted again. */
typedef enum { MP_SIGN_IN_LIVES, MP_SIGN_IN_ENDED, MP_SIGN_IN_UNKNOWN } mp_sign_in_state;
mp_sign_in_state mp_sign_in_state_of(const mp_rpc *MP_NULLABLE rpc, uint64_t sign_in);
uint64_t mp_sign_ins_doubt(bool is_again);
void mp_sign_ins_know(uint64_t doubt);

/* The principal lacks the scopes `needed` (with spaces between them): the error is sent with HTTP 403 and a challenge
 * that names those to ask for. False if the HTTP status of the call is sent, or the transport has none. */
bool mp_call_forbid(mp_call *call, mp_str needed, mp_str asked);
/* The principal exceeds a rate or quota: as mp_call_forbid, with HTTP 429 and Retry-After. */
bool mp_call_put_off(mp_call *call, int64_t seconds);
/* The memory that the call needs is not there now: cancels the call and answers with an error that has the text `why`,
 * with HTTP 503 and Retry-After if the HTTP status of the call is still to be sent. Adds one to `counter`. */
void mp_call_refuse_crowded(mp_call *call, const char *why, const mp_stat *counter);

/* A number for the call's principal, or its client's address where nobody is named; others may have it, too. */
unsigned mp_call_share(const mp_call *call);
/* True if the call waited longer than overload.wait before it began now, at `now_us` of the monotonic clock, and is to
 * be refused by mp_call_refuse_late. */
bool mp_call_is_late(mp_call *call, uint64_t now_us);
/* Refuses such a call: an error, with HTTP 503 and Retry-After if the HTTP status of the call is still to be sent. */
void mp_call_refuse_late(mp_call *call);
/* True while the call's worker refuses requests because they wait too long. */
bool mp_call_is_overloaded(const mp_call *call);

/* -- a call, as lua/moonpool uses it ------------------------------------------------------------ */

/* A call is valid from on_call until mp_call_answer, mp_call_fail or on_cancel, and freed at the end of that turn. */
mp_str mp_call_method(const mp_call *call);
mp_str mp_call_params(const mp_call *call); /* span of a JSON object, or empty */
/* The arguments of a tools/call in the order that the client wrote them, at most MP_FLAT_MAX, with different names
 * without escapes; their spans are valid as long as the call. `*count` is 0 where the client sent no arguments. NULL
 * when the arguments are not known: the method is another one, or the message has something that this reader leaves to
 * mp_call_params and its decoder (quick.c). Where it is not NULL, the params have no members but name, arguments and
 * _meta, no object in them repeats a key, and _meta has no member of the protocol but the version, the client's name
 * and capabilities and the progress token. */
const mp_flat *MP_NULLABLE mp_call_flat(const mp_call *call, size_t *count);
mp_str mp_call_tool(const mp_call *call); /* params.name, where mp_call_flat is not NULL; else empty */
/* Finds in _meta of such a call clientInfo, the span of an object, and traceparent, the span of a string; or nothing.
 * True if the call has a member `arguments`. */
bool mp_call_said(const mp_call *call, mp_str *client, mp_str *trace);
size_t mp_call_weight(const mp_call *call); /* estimate of the bytes that the call's message takes in Lua */
const mp_era *MP_NULLABLE mp_call_era(const mp_call *call);   /* NULL in an HTTP+SSE session before `initialize` */
mp_session *MP_NULLABLE mp_call_session(const mp_call *call); /* NULL where there is none, or none yet */
mp_str mp_call_id(const mp_call *call);                       /* id of the request, as JSON */
/* The mark of the call (mark.h): the one of its HTTP request if that has one, else made when it is first asked for. */
uint64_t mp_call_mark(mp_call *call);
uint64_t mp_call_known_mark(const mp_call *call);   /* makes none: 0 */
mp_str mp_call_progress_token(const mp_call *call); /* span, or empty */
mp_principal *mp_call_principal(const mp_call *call);
/* Of a call by a console, until it has ended: the name for the audit, and the JSON of its principal; else empty. */
mp_str mp_call_operator(const mp_call *call);
/* True for a question of a page of the gateway's own: a console whose settings say so. */
bool mp_call_is_hidden(const mp_call *call);
mp_str mp_call_described_principal(const mp_call *call);
/* The address of the call's client, by a trusted proxy if one is in front: an IP address, "unix", or empty over stdio
 * and for detached calls. */
mp_str mp_call_address(const mp_call *call);
void *MP_NULLABLE mp_call_user(const mp_call *call); /* pointer that belongs to the hooks */
void mp_call_set_user(mp_call *call, void *MP_NULLABLE user);
/* Finds a header of the HTTP request that carries the call. `count` is 0 over HTTP+SSE, for detached calls and once the
 * client has disconnected, and -1 over stdio, which has no headers. Where `config->keeps_tokens`, Authorization is
 * found all the same; a detached call has that of the call that started it. */
mp_str mp_call_header(const mp_call *call, const char *name, int *count);
/* True if another gateway sent the call, and gateways could be upstreams of each other. */
bool mp_call_is_of_gateway(const mp_call *call);
/* The call waits for an op: starts its time limit (limits.call.time), and detects a client that disconnects. */
void mp_call_park(mp_call *call);
/* Cancels the call and answers with an error that has the text `why`; adds one to the statistic `counter`. */
void mp_call_abort(mp_call *call, const char *why, const mp_stat *counter);
/* Lowers the time limit of the call. */
void mp_call_within(mp_call *call, uint64_t ms);
/* Removes the time limit: the call waits for an op that has a limit of its own. */
void mp_call_unhurried(mp_call *call);

/* `initialize` succeeded with this revision: makes the session, or completes the session of HTTP+SSE. `client` and
 * `capabilities` are spans of the client's params. Returns -1, with the call ended, if a cap refuses the session (429),
 * it is already initialized, or the client has left. */
int mp_call_open_session(mp_call *call, const mp_era *era, mp_str client, mp_str capabilities);
/* False if the call has an HTTP request, whose client has left as far as the kernel knows now. */
bool mp_call_has_client(const mp_call *call);
/* As mp_stream_on_delivery, of the answer to the call; at once, with MP_DELIVERY_UNKNOWN, if the call has no HTTP
 * request of its own. */
void mp_call_on_delivery(mp_call *call, void (*settled)(void *ctx, mp_delivery_end end), void *ctx);
/* Sends a whole JSON-RPC message on the call's own stream, before the answer. -1 if no client reads it and it is not
 * kept for a client that resumes. */
int mp_call_send(mp_call *call, mp_str json);
/* Closes the client's connection while the call goes on; the client resumes the stream after `ms` or later. Returns
 * false and does nothing if the revision has no resumption or the call's stream cannot be resumed. */
bool mp_call_detach(mp_call *call, uint64_t ms);
/* Sends a request to the client on the call's own stream, in stateful revisions. `done` gets the client's result or
 * error, once, unless the call ends before. Returns NULL if the client cannot get requests. */
typedef struct mp_client_request mp_client_request;
mp_client_request *MP_NULLABLE mp_call_ask(mp_call *call, mp_str method, mp_str params,
                                           void (*done)(void *ctx, bool is_error, mp_str answer), void *ctx);
/* Cancels the unanswered requests to the client: notifies the client, and calls each `done` with an error. */
void mp_call_withdraw(mp_call *call);
/* Identifies the request among all of its call. */
uint64_t mp_client_request_serial(const mp_client_request *request);
/* Cancels one request to the client, if it is unanswered: notifies the client. Its `done` is not called any more. */
void mp_call_withdraw_one(mp_call *call, uint64_t serial);
/* A scheduled job begins to run: its call is recorded from now on, if traces.sample says so. */
void mp_call_trace_job(mp_call *call, mp_str name);
/* The spans of the call; NULL if it is not recorded, and once it has ended. */
mp_trace *MP_NULLABLE mp_call_trace(const mp_call *call);
/* Counts the call for this tool, prompt or resource: its outcome, and the time of a tool. */
void mp_call_measure(mp_call *call, mp_thing_metrics *thing);
/* The result that will answer the call has "isError": true. */
void mp_call_fails(mp_call *call);
/* Answers and ends the call. `result` is a complete JSON value. */
void mp_call_answer(mp_call *call, mp_str result);
/* mp_call_answer in two steps: the caller appends the result to the buffer, which belongs to the rpc, and then ends the
 * answer. Between the two nothing else of this rpc may run. NULL when the call has ended or is being cancelled: then
 * there is nothing to end. A caller that finds the result too large fails the call instead of ending the answer. */
mp_buf *MP_NULLABLE mp_call_begin_answer(mp_call *call);
void mp_call_end_answer(mp_call *call);
/* Answers with an error and ends the call. `data` is a JSON value or empty. */
void mp_call_fail(mp_call *call, int code, mp_str message, mp_str data);

/* Sends publications of the topics on the call's stream, until its client leaves, or the gateway stops and answers with
 * the result `closing`. STARTED: after the first message, which may end the call, comes mp_call_stay. OVER: the gateway
 * is stopping. NO_ROOM: the topics of all calls and sessions, or those of this client, take too much memory. */
typedef enum { MP_LISTEN_STARTED, MP_LISTEN_OVER, MP_LISTEN_TOO_MANY, MP_LISTEN_NO_ROOM } mp_listen_result;
mp_listen_result mp_call_listen(mp_call *call, const mp_str *topics, size_t count, mp_str closing);
/* For a call that listens: gives back its time limit, place and request. The hooks must not use it any more. */
void mp_call_stay(mp_call *call);

/* Makes a detached call with the id, method, session and principal of `like`. No message is sent for it, it survives
 * the end of its session, and an answer only ends it. It is cancelled after `ms`, and when the gateway stops and no
 * client's call is left. on_call is not called for it. Returns NULL above MP_MAX_TASKS. */
mp_call *MP_NULLABLE mp_call_spawn(const mp_call *like, uint64_t ms);
bool mp_rpc_is_draining(const mp_rpc *rpc);
/* The same, of the newest revision and like no other call. `is_own`: it has one of the places of the gateway itself. */
mp_call *MP_NULLABLE mp_call_spawn_alone(mp_rpc *rpc, mp_principal *principal, bool is_own, uint64_t ms);
/* Cancels a detached call. */
void mp_call_stop(mp_call *call, const char *why);

#endif
