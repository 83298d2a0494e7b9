/* rpc.h: MCP as a client sees it, up to the point where a message means something.
 *
 *   era        a revision's facts: how it opens, what a hang-up means, which headers mirror the body
 *   envelope   one JSON-RPC message, located in its bytes
 *   session    what a client said at `initialize`; revisions before 2026-07-28 only
 *   table      the sessions of the process, shared by all workers
 *   call       a JSON-RPC request being answered: gone with its answer
 *   note       a JSON-RPC notification: never answered
 *   principal  whom the credentials of a request name
 *   entry      an HTTP request while the language above finds that out
 *
 * This room composes no answer of its own but parse errors (-32700, -32600), the 2026-07-28 ladder (-32602, -32020, -32022)
 * and HTTP refusals. Every method is a Lua function, reached through the hooks. */
#ifndef MP_RPC_H
#define MP_RPC_H

#include "base/base.h"
#include "net/net.h"

typedef struct mp_table mp_table;
typedef struct mp_rpc mp_rpc;
typedef struct mp_session mp_session;
typedef struct mp_call mp_call;
typedef struct mp_principal mp_principal;
typedef struct mp_entry mp_entry;

/* -- era ------------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *date;
    bool has_sessions;    /* opens with `initialize`; 2026-07-28 opens with nothing */
    bool has_batches;     /* a body may be an array of messages */
    bool mirrors_headers; /* MCP-Protocol-Version must equal _meta; Mcp-Method and Mcp-Name the body */
    bool hang_up_cancels; /* a dropped answer stream calls its work off */
    bool has_priming;     /* an event stream opens with an id and no data; the server may let the client reconnect */
} mp_era;

extern const mp_era mp_eras[]; /* oldest first */
extern const size_t mp_era_count;
const mp_era *mp_era_find(mp_str date); /* NULL when unknown */

/* -- the server role, one per worker --------------------------------------------------------------------------- */

typedef struct {
    const char *mcp, *sse, *messages; /* paths; NULL switches one off */
    const char *prefix;               /* what stands before them where clients are, "" for nothing */
    const char *const *hosts;         /* allowed in Host and Origin, without port; NULL-terminated; "*" allows all */
    const char *const *origins;       /* pages that may read what is answered; NULL-terminated; "*" allows all */
    const char *public_url;           /* scheme and host as clients see them; NULL: as each request's Host says */
    uint64_t idle_ms, initialize_within_ms;
    int64_t max_sessions, max_sessions_per_principal, max_calls;
    uint64_t call_ms;          /* a call that takes longer is called off with an error */
    int64_t max_subscriptions; /* topics of one session, or of one call that listens */
    int64_t max_listeners, max_jobs;
    int64_t replay_events; /* kept of one session; 0 keeps none */
    size_t replay_bytes, replay_total;
    uint64_t entry_ms;   /* what finding out who asks may take */
    int64_t max_entries; /* requests for which that waits */
    bool streams_expire; /* an event stream ends when its reader's principal does */
} mp_rpc_config;

/* What clients may know of how they are let in. All texts may be empty. */
typedef struct {
    bool is_asked;            /* else everybody is let in as nobody */
    mp_str realm, scopes;     /* of the challenge; scopes with spaces between them */
    mp_str resource_metadata; /* members of the document of RFC 9728, as JSON; empty: there is none */
} mp_auth_facts;

/* How a call is handed to the language above, and called off. None may run Lua under the caller: they enqueue. */
typedef struct {
    void (*on_call)(void *ctx, mp_call *call);
    /* `session` is NULL in 2026-07-28. `params` is a span, or empty; both are valid during the call only. */
    void (*on_note)(void *ctx, const mp_era *era, mp_session *session, mp_str method, mp_str params);
    /* The call is off: answer nothing, unwind. Not called once the call was answered. */
    void (*on_cancel)(void *ctx, mp_call *call, const char *why);
    const mp_auth_facts *(*auth)(void *ctx);
    /* Somebody asks to come in, and is admitted or refused, once. */
    void (*on_entry)(void *ctx, mp_entry *entry);
    /* The entry is over: decide nothing, unwind. */
    void (*on_entry_cancel)(void *ctx, mp_entry *entry);
} mp_rpc_hooks;

mp_table *mp_table_new(const mp_rpc_config *config);
/* Another configuration, with the same paths and the same `replay_events`. The one before is borrowed until every rpc has
 * another too. Any thread, one at a time. */
void mp_table_configure(mp_table *table, const mp_rpc_config *config);
void mp_table_free(mp_table *table);

/* `config` and `hooks` are borrowed for the life of the rpc, or until it gets another. */
mp_rpc *mp_rpc_new(const mp_rpc_config *config, mp_table *table, mp_loop *loop, const mp_rpc_hooks *hooks, void *ctx);
/* On its thread. */
void mp_rpc_configure(mp_rpc *rpc, const mp_rpc_config *config);
/* Whether Host and Origin are among `config->hosts`: the guard against DNS rebinding, for every listener (Z-1, Z-2). */
bool mp_host_is_served(const mp_rpc_config *config, const mp_stream *stream);
/* Why it is not, and where that is decided. */
const char *mp_host_refusal(const mp_rpc_config *config, const mp_stream *stream);
/* From now on new calls and notifications go to `ctx`; those that run stay where they are. Who waits to be let in is looked at
 * anew: nobody comes in by rules that have gone. */
void mp_rpc_hand_to(mp_rpc *rpc, void *ctx);
/* A listener's on_request. */
void mp_rpc_serve(void *rpc, mp_stream *stream);
/* One client on a pipe (stdio), for the life of the rpc, which borrows it. `ended` is the pipe's `on_end`. */
void mp_rpc_serve_pipe(mp_rpc *rpc, mp_pipe *pipe, void (*ended)(void *ctx, int error), void *ctx);
/* No new calls or sessions (503); event streams that carry no call end now, others once their last answer is out.
 * Calls go on, and jobs as long as there are calls; `mp_rpc_abort` ends them, each with an error to its client. */
void mp_rpc_drain(mp_rpc *rpc);
void mp_rpc_abort(mp_rpc *rpc, const char *why);
int64_t mp_rpc_calls(const mp_rpc *rpc); /* jobs among them */
/* Sends what was published, as much as fits a turn, and frees what ended in it. Bottom of the turn, after the language
 * above had its share. True when there is more to send. */
bool mp_rpc_sweep(mp_rpc *rpc);
void mp_rpc_free(mp_rpc *rpc);

/* -- audit.c: what is decided before there is a call -- */

typedef struct {
    const char *event;
    int status;                    /* 0: none yet */
    const mp_principal *principal; /* NULL: not known */
    mp_str session, why;           /* may be empty; of the session only a hash is told */
    bool tells_host;               /* as it is what was wrong */
} mp_decision;

/* A line of the audit, where there is one. While the stream has its request. */
void mp_audit_request(const mp_stream *stream, const mp_decision *made);
extern const mp_decision mp_host_refused;

/* -- who asks -------------------------------------------------------------------------------------------------- */

/* Immutable, and of one thread, but for these two: a client that nobody asks who it is, and whoever started us. */
extern mp_principal *const mp_nobody, *const mp_lone;
/* Counted for the caller. What one opens is another's when their `binding` is the same. `expires`: seconds since 1970; 0: never. */
mp_principal *mp_principal_new(mp_str id, mp_str binding, int64_t expires);
mp_principal *mp_principal_ref(mp_principal *principal);
void mp_principal_unref(mp_principal *principal);
mp_str mp_principal_id(const mp_principal *principal);
/* It stays when its last reference goes, which `rest` is told; until `forsake`. */
void mp_principal_keep(mp_principal *principal, void (*rest)(void *keeper), void *keeper);
void mp_principal_forsake(mp_principal *principal);

/* Valid from on_entry until it is admitted, refused or cancelled. */
mp_stream *mp_entry_stream(const mp_entry *entry);
void *mp_entry_user(const mp_entry *entry); /* the hooks' own pointer */
void mp_entry_set_user(mp_entry *entry, void *user);
/* It will take time: from now on that is limited, and a client that leaves is noticed. Refuses it where too many wait. */
void mp_entry_park(mp_entry *entry);
/* Serves the request, as this principal's; may end in calls to the hooks. */
void mp_entry_admit(mp_entry *entry, mp_principal *principal);

typedef struct {
    int status;     /* 401 challenges its client */
    bool has_token; /* which was not good enough */
    int retry;      /* seconds until it is worth another try; 0: not said */
    mp_str message; /* for people, and for everybody */
    mp_str reason;  /* for the audit alone; may be empty */
} mp_refusal;
void mp_entry_refuse(mp_entry *entry, const mp_refusal *refusal);

/* The call needs scopes (with spaces between them) that its principal lacks: the error that answers it comes as 403, with a
 * challenge that names them. False where its answer has begun, or is none of HTTP. */
bool mp_call_forbid(mp_call *call, mp_str scopes);
/* It asks too often: the error that answers it comes as 429, with Retry-After. False as above. */
bool mp_call_put_off(mp_call *call, int64_t seconds);

/* -- a call, as the language above sees it --------------------------------------------------------------------- */

/* Valid from on_call until mp_call_answer, mp_call_fail or on_cancel; then it is freed at the end of the turn. */
mp_str mp_call_method(const mp_call *call);
mp_str mp_call_params(const mp_call *call);         /* an object's span, or empty */
const mp_era *mp_call_era(const mp_call *call);     /* NULL: an HTTP+SSE session that has not initialized */
mp_session *mp_call_session(const mp_call *call);   /* NULL in 2026-07-28, and at `initialize` over Streamable HTTP */
mp_str mp_call_id(const mp_call *call);             /* as JSON */
mp_str mp_call_progress_token(const mp_call *call); /* a span, or empty */
mp_principal *mp_call_principal(const mp_call *call);
/* Whence it came: the peer's address, "unix", or empty over stdio and for jobs. */
mp_str mp_call_address(const mp_call *call);
void *mp_call_user(const mp_call *call); /* the hooks' own pointer */
void mp_call_set_user(mp_call *call, void *user);
/* A header of the request that carries the call; absent (count 0) over HTTP+SSE and once its client left; count -1 over
 * stdio, which has none. */
mp_str mp_call_header(const mp_call *call, const char *name, int *count);
/* It will take time: from now on a client that leaves is noticed, and its time runs (limits.call.time). */
void mp_call_park(mp_call *call);
/* Calls it off, like a client that cancels, but with an error that says why; counted as `counter`. */
void mp_call_abort(mp_call *call, const char *why, mp_stat counter);
/* Allows it less time than the config does. */
void mp_call_within(mp_call *call, uint64_t ms);
/* Takes the limit away: the call waits for something that has one of its own. */
void mp_call_unhurried(mp_call *call);

/* `initialize` succeeded with this revision: makes the session (or completes an HTTP+SSE one). `client` and `capabilities` are
 * the spans the client sent. -1 when a cap refuses it (429), or another `initialize` was quicker: the call is then answered. */
int mp_call_open_session(mp_call *call, const mp_era *era, mp_str client, mp_str capabilities);
/* Sends a whole JSON-RPC message on the call's own stream, before the answer. -1 when nobody reads it any more, and it is
 * not kept for a client that comes back. */
int mp_call_send(mp_call *call, mp_str json);
/* Lets the client's connection go while the call goes on; the client comes back for the rest, after `ms` at the earliest.
 * False, and nothing happens, where its revision or the call's stream has no such thing. */
bool mp_call_detach(mp_call *call, uint64_t ms);
/* Asks the client, on the call's own stream: a request of ours (revisions before 2026-07-28). `done` gets the client's
 * result, or its error, once, unless the call ends before. NULL when nobody can be asked. */
typedef struct mp_ask mp_ask;
mp_ask *mp_call_ask(mp_call *call, mp_str method, mp_str params, void (*done)(void *ctx, bool is_error, mp_str answer),
                    void *ctx);
/* Takes back what it has asked and nobody has answered: the client is told, who waits gets an error. */
void mp_call_withdraw(mp_call *call);
/* Answers and ends the call. `result` is a complete JSON value. */
void mp_call_answer(mp_call *call, mp_str result);
/* Answers with an error and ends the call. `data` is a JSON value or empty. */
void mp_call_fail(mp_call *call, int code, mp_str message, mp_str data);

/* Listens to topics, with no time limit: publications go out on the call's stream, until its client leaves or the gateway
 * stops and answers `closing`. STARTED: it is no more the hooks'. OVER: the gateway stops already. */
typedef enum { MP_LISTEN_STARTED, MP_LISTEN_OVER, MP_LISTEN_TOO_MANY } mp_listen_result;
mp_listen_result mp_call_listen(mp_call *call, const mp_str *topics, size_t count, mp_str closing);

/* A call like this one that belongs to nobody: nothing can be sent on it, its session's end is not its own, an answer only
 * ends it. It is called off after `ms`, and when the gateway stops and no client's call is left. on_call is not told of it.
 * NULL over tasks.max. */
mp_call *mp_call_spawn(const mp_call *like, uint64_t ms);
bool mp_rpc_is_draining(const mp_rpc *rpc);
/* One that no call began, of the newest revision. NULL over tasks.max. */
mp_call *mp_call_spawn_alone(mp_rpc *rpc, mp_principal *principal, uint64_t ms);
/* Calls such a one off. */
void mp_call_stop(mp_call *job, const char *why);

/* -- a session, as the language above sees it ------------------------------------------------------------------ */

const mp_era *mp_session_era(const mp_session *session); /* NULL before initialize */
mp_str mp_session_id(const mp_session *session);
mp_str mp_session_client(const mp_session *session);
mp_str mp_session_capabilities(const mp_session *session);
/* The least level of notifications/message it wants, as a number 0 (debug) to 7 (emergency); -1 before logging/setLevel. */
int mp_session_log_level(const mp_session *session);
void mp_session_set_log_level(mp_session *session, int level);

/* Gets what is published on the topic, until the session ends. What stands behind a NUL in its name is the audience, for whoever
 * publishes to choose from: a session that follows it has one, the last; unfollowing takes any. */
typedef enum { MP_FOLLOW_DONE, MP_FOLLOW_CLOSED, MP_FOLLOW_TOO_MANY } mp_follow_result;
mp_follow_result mp_session_follow(mp_session *session, mp_str topic);
void mp_session_unfollow(mp_session *session, mp_str topic);
/* This is the audience of all that it follows from now on. */
void mp_session_follow_as(mp_session *session, mp_str audience);

/* -- publishing ------------------------------------------------------------------------------------------------ */

/* Sends `plain` to the sessions that follow the topic, and before, the call's id, after to the calls that listen to it; on
 * all rpcs, each once. ptr == NULL: not to these. Of what one rpc publishes on a topic in one turn the last is sent. */
void mp_topic_publish(mp_rpc *rpc, mp_str topic, mp_str plain, mp_str before, mp_str after);
/* The audiences with which a topic is followed or listened to, a line each. */
void mp_topic_audiences(mp_rpc *rpc, mp_str topic, mp_buf *out);

#endif
