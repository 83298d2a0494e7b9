/* rpc.h: the server role of MCP: what a client sends and gets, up to the point where a message has a meaning.
 *
 *   session    what `initialize` opens, in stateful revisions only
 *   table      the sessions of the process, shared by all workers
 *   call       a JSON-RPC request in flight: freed after its answer
 *   note       a JSON-RPC notification: never answered
 *   principal  the identity that authentication gave a request
 *   authn      an HTTP request whose authentication is pending
 *
 * Everything belongs to the thread of its rpc, but for the table and sessions. This module writes no answers of its own, except
 * parse errors and invalid requests, the errors of a missing or unknown version, and HTTP refusals. Every method is a Lua function,
 * which is reached through the hooks. */
#ifndef MP_RPC_H
#define MP_RPC_H

#include "mcp/mcp.h"
#include "net/net.h"
#include "processes.h"
#include "telemetry/telemetry.h"
#include "trace/trace.h"

typedef struct mp_table mp_table;
typedef struct mp_rpc mp_rpc;
typedef struct mp_session mp_session;
typedef struct mp_call mp_call;
typedef struct mp_principal mp_principal;
typedef struct mp_authn mp_authn;
typedef struct mp_thing_metrics mp_thing_metrics;

/* -- the server role, one per worker --------------------------------------------------------------------------- */

typedef struct {
    const char *MP_NULLABLE mcp, *MP_NULLABLE sse, *MP_NULLABLE messages; /* paths; NULL disables the transport */
    const char *prefix;       /* path prefix that a proxy adds, as clients see it; "": none */
    const char *const *hosts; /* allowed in Host and Origin: see mp_hosts_have */
    const char *const
        *MP_NULLABLE origins; /* origins of pages that may read answers; NULL-terminated; "*" allows all */
    /* scheme and host as clients see them; NULL: taken from the Host of each request */
    const char *MP_NULLABLE public_url;
    uint64_t idle_ms, initialize_within_ms;
    int64_t max_sessions, max_sessions_per_principal, max_calls;
    size_t max_values; /* limit of the JSON values in one body, or in one line of stdio */
    uint64_t call_ms;  /* time limit of a call; after that it is cancelled with an error */
    int64_t max_listeners;
    int64_t replay_events;        /* events kept for one session; 0: no events are kept */
    size_t answers, stream_queue; /* as in mp_http_limits, for messages on their way to the thread of their stream */
    uint64_t request_ms;  /* as in mp_http_limits, which also limits how long connections of other processes are kept */
    uint64_t overload_ms; /* a request that waited longer for its worker is refused as overload; 0: no limit */
    const char *MP_NULLABLE
    instance;            /* the id of this gateway among gateways that call each other; NULL: it has no upstreams */
    bool is_child;       /* another gateway runs this one as a program */
    bool streams_expire; /* an event stream ends when the credentials that opened it expire */
    bool keeps_tokens;   /* calls keep the Authorization of their request: an upstream gets a token of each caller */
} mp_rpc_config;

/* Limits that are no keys. */
#define MP_MAX_TASKS MP_LIMIT(tasks, 1024)                 /* that run in the background */
#define MP_MAX_SUBSCRIPTIONS MP_LIMIT(subscriptions, 1024) /* topics of one session, or of one call that listens */
#define MP_REPLAY_TOTAL MP_LIMIT(replay_total, 64 << 20)   /* bytes of stored events of all sessions: the oldest go */

/* What clients may know about authentication. All texts may be empty. */
typedef struct {
    bool is_asked;            /* false: there are no auth scripts, and every request is anonymous */
    mp_str realm, scopes;     /* for the challenge; scopes separated by spaces */
    mp_str resource_metadata; /* members of the RFC 9728 metadata, as JSON; empty: no metadata is served */
} mp_auth_facts;

/* How the rpc hands work to Lua, and cancels it. A hook only enqueues work: it runs no Lua before it returns. */
typedef struct {
    void (*on_call)(void *ctx, mp_call *call);
    /* `era`: known once the session is initialized. `method` and `params`, a span or empty, are valid only during this
     * C call. */
    void (*on_note)(void *ctx, const mp_era *MP_NULLABLE era, mp_session *MP_NULLABLE session, mp_str method,
                    mp_str params);
    /* The call is cancelled: its handler must unwind, without an answer. Not called for an answered call. */
    void (*on_cancel)(void *ctx, mp_call *call, const char *why);
    /* Returns how clients authenticate. Called when the rpc gets `ctx`; the result is valid for as long as the rpc
     * has `ctx`. */
    const mp_auth_facts *(*auth)(void *ctx);
    /* Authenticate this request: answer once, with mp_authn_admit or mp_authn_refuse. */
    void (*on_entry)(void *ctx, mp_authn *entry);
    /* Appends the principal as text, for another process; nothing if it is of scripts that are no more. */
    void (*put_principal)(void *ctx, const mp_principal *principal, mp_buf *out);
    /* Another process of the gateway has sent an order about a task of this one (lua/moonpool/tasks/tasks.lua). False if there is no room for it. */
    bool (*on_order)(void *ctx, mp_str text);
    /* The request has ended: its auth script must unwind, without a decision. */
    void (*on_entry_cancel)(void *ctx, mp_authn *entry);
} mp_rpc_hooks;

/* `processes` is borrowed for the life of the table. */
mp_table *mp_table_new(const mp_rpc_config *config, mp_processes *processes);
/* Calls `ended` with the id of each session that ends from now on: once for each, on any thread, without a lock. Call it before the first
 * rpc is made. */
void mp_table_on_session_end(mp_table *table, void (*ended)(void *ctx, mp_str session_id), void *ctx);
/* Replaces the configuration by one with the same paths and `replay_events`. The previous one stays borrowed until
 * every rpc has the new one. Any thread may call this, one at a time. */
void mp_table_configure(mp_table *table, const mp_rpc_config *config);
void mp_table_free(mp_table *table);

/* -- sessions.per_principal while the gateway is several processes: what a process says to the newest one, and both while an upgrade is tried --------- */

typedef enum {
    MP_OWNERS_NONE, /* nothing is said: no other process has to know */
    MP_OWNERS_OWN,  /* how many sessions each principal has in this process */
    MP_OWNERS_ALL   /* what others have said, too */
} mp_owners_said;

/* From now on mp_table_put_owners() has all of this, and then what changes. Any thread. */
void mp_table_say_owners(mp_table *table, mp_owners_said which);
/* Appends what has not been said yet, as far as `out` has at most `room` bytes then. */
void mp_table_put_owners(mp_table *table, mp_buf *out, size_t room);
/* Takes what another process has said. */
void mp_table_take_owners(mp_table *table, mp_str body);
/* This process has ended: it has no sessions. 0: all others, since new sessions begin elsewhere from now on. */
void mp_table_forget_owners(mp_table *table, uint16_t number);

/* `config` and `hooks` are borrowed for the life of the rpc, or until it gets another configuration. */
mp_rpc *mp_rpc_new(const mp_rpc_config *config, mp_table *table, mp_loop *loop, const mp_rpc_hooks *hooks, void *ctx);
/* Replaces the configuration. Called on the rpc's thread. */
void mp_rpc_configure(mp_rpc *rpc, const mp_rpc_config *config);
/* The number of the rpc in its table, from 0: the first part of the name of a call. Any thread. */
unsigned mp_rpc_index(const mp_rpc *rpc);
/* Writes a new id, for a task. */
void mp_rpc_make_id(const mp_rpc *rpc, char id[MP_ID + 1]);
/* True if another living process of the gateway made this id of a task. */
bool mp_rpc_is_elsewhere(const mp_rpc *rpc, mp_str id);
/* Sends an order about the task with this id to the process that runs it. False if it cannot be sent; what cannot be delivered later is logged. */
bool mp_rpc_order(mp_rpc *rpc, mp_str id, mp_str text);
/* Hands new calls and notifications to `ctx` from now on. Calls in flight stay with the previous `ctx`. Pending
 * authentications start again with the new auth scripts. */
void mp_rpc_hand_to(mp_rpc *rpc, void *ctx);
/* The on_request function of a listener. */
void mp_rpc_serve(void *rpc, mp_stream *stream);
/* The on_request function of the listener for other processes of the gateway. Their headers may have MP_HOP_HEADERS bytes, since they tell who the client is. */
#define MP_HOP_HEADERS ((size_t)256 << 10)
void mp_rpc_serve_hop(void *rpc, mp_stream *stream);
/* Serves one client on a pipe (stdio). The rpc borrows the pipe for the rest of its life. `ended` is the pipe's
 * `on_end`. */
void mp_rpc_serve_pipe(mp_rpc *rpc, mp_pipe *pipe, void (*ended)(void *ctx, int error), void *ctx);
/* What waits at the end of a turn. */
typedef struct {
    size_t waiting, preempted;   /* tasks that have not begun, and those that were preempted and are to go on */
    uint64_t begun, interrupted; /* tasks that have begun so far, and those of them that were preempted at least once */
} mp_load;
/* Tells the rpc what waits at the end of a turn. While too much waits, new requests are refused: see overload.c. */
void mp_rpc_press(mp_rpc *rpc, const mp_load *load);
/* Drains: refuses new calls and sessions with 503. Event streams that carry no call end now, other streams after
 * their last answer. Calls in flight go on; detached calls go on as long as a client's call does. mp_rpc_abort ends
 * all of them, each with an error to its client. `ms`: until the process ends at the latest. */
void mp_rpc_drain(mp_rpc *rpc, uint64_t ms);
void mp_rpc_abort(mp_rpc *rpc, const char *why);
int64_t mp_rpc_calls(const mp_rpc *rpc); /* Number of calls in flight, detached calls included. */
/* Sends publications, a limited number in each turn, and frees the calls that ended in this turn. Called at the
 * bottom of a turn, after Lua has run. True if publications remain to be sent. */
bool mp_rpc_sweep(mp_rpc *rpc);
/* True if mp_rpc_sweep has something to do. */
bool mp_rpc_has_work(const mp_rpc *rpc);
/* Frees the memory that the rpc keeps for new calls. On its thread. */
void mp_rpc_return_memory(mp_rpc *rpc);
void mp_rpc_free(mp_rpc *rpc);

/* -- for operators ------------------------------------------------------------------------------------------------- */

#define MP_SESSION_PAGES 16 /* pages of the list of sessions */

/* Appends the sessions of one page as JSON objects, separated by commas. Any thread; the table's locks are held while sessions are
 * counted, not while they are written. */
void mp_table_put_sessions(mp_table *table, unsigned page, uint64_t now_ms, mp_buf *out);
/* Ends the session with this mark (mp_session_mark_of) as its client would by DELETE. Returns the number of sessions with the mark, and ends
 * none unless it is 1. Any thread. */
int mp_table_end_session(mp_table *table, mp_str mark);

/* What an operator asks of each worker: a list of its calls, or of its event streams (`serial` and `mark` are 0), or the end of one, which is named by
 * its worker and serial, a call also by its mark. Embedded in its owner. */
#define MP_STREAMS_PAGE 200
typedef struct mp_call_inquiry {
    /* Called on the thread of each worker. `json`: the calls of the worker as JSON objects, separated by commas. `ended`: the call was found
     * and is cancelled. Where the worker's loop has ended, `is_over`, on the thread that frees it. */
    void (*answer)(struct mp_call_inquiry *inquiry, mp_str json, bool ended, bool is_over);
    unsigned worker;       /* of the call or stream */
    uint64_t serial, mark; /* of the call or stream */
    bool is_of_streams;
    unsigned page;        /* of a list of streams: each worker puts MP_STREAMS_PAGE on one */
    atomic_bool has_more; /* some worker has streams on the next page */
} mp_call_inquiry;

/* -- console.c: a client inside the process -- */

/* What an operator runs: a client of one worker without a connection. It sends JSON-RPC messages and gets those for it, one at a time. */
typedef struct mp_console mp_console;

/* Each takes the `ctx` of the settings. */
typedef struct {
    /* A message for the client, on the thread of the worker. After mp_console_close() one more may come. `mark`: of the call that it answers; 0: it is no answer of a call. */
    void (*send)(void *ctx, uint64_t mark, mp_str json);
    /* The console is freed: nothing is sent any more. On any thread. */
    void (*freed)(void *ctx);
} mp_console_hooks;

typedef struct {
    mp_str id;        /* of the principal; empty: `local` */
    mp_str principal; /* JSON of its id, scopes and claims, for Lua; empty: `local` */
    mp_str caller;    /* whom the audit names */
    bool is_hidden;   /* neither counted, audited nor shown to taps: questions of the gateway's own pages */
    const mp_console_hooks *hooks;
    void *ctx;
} mp_console_settings;

/* `worker`: below mp_table_rpcs(). Copies the texts. These three functions: any one thread, without waiting. */
mp_console *mp_console_open(mp_table *table, unsigned worker, const mp_console_settings *settings);
/* True while a hidden console waits for its answer. */
bool mp_rpc_is_asked(const mp_rpc *rpc);
void mp_console_send(mp_console *console, mp_str json);
/* Cancels the console's calls. Later the console is freed; the caller uses it no more. `is_operator`: the operator has asked for it, else the
 * reader has left. */
void mp_console_close(mp_console *console, bool is_operator);

/* The number of workers that serve. */
unsigned mp_table_rpcs(mp_table *table);
/* Asks the first `count` workers; each answers once. The caller keeps `inquiry` until all have. */
void mp_table_inquire(mp_table *table, unsigned count, mp_call_inquiry *inquiry);

/* -- taps: calls as they begin and end, for operators (request/tap.c) ------------------------------------------------- */

#define MP_TAPS 8 /* the most open taps: each costs every call a comparison of its filter */

/* How arguments are shown: not at all, by their names, by the types and sizes of their values, or as they are. */
typedef enum { MP_TAP_NONE, MP_TAP_NAMES, MP_TAP_SHAPES, MP_TAP_FULL } mp_tap_arguments;

/* Patterns in which '*' stands for any text; NULL: all. `tool` is the name of the tool or prompt, or a resource's URI; `session` a mark. With
 * `outcome` or `slower_us` above 0 only ends of calls are admitted, and refusals. */
typedef struct {
    const char *MP_NULLABLE tool;
    const char *MP_NULLABLE principal;
    const char *MP_NULLABLE session;
    const char *MP_NULLABLE method;
    const char *MP_NULLABLE outcome;
    uint64_t slower_us;
    uint32_t sample; /* of 1,000,000 calls, these are admitted, with all of their events; 0: all calls */
    mp_tap_arguments arguments;
} mp_tap_filter;

/* `wake` runs on any thread, with a lock held: when the first event was queued or dropped after mp_tap_open or mp_tap_rest, and when the queue has become
 * long. It may post a message, nothing else. */
typedef struct {
    void (*wake)(void *ctx);
    void *ctx;
} mp_tap_hooks;

typedef struct {
    uint64_t sent, dropped; /* events since the tap was opened */
} mp_tap_totals;

typedef struct mp_tap mp_tap;

/* Copies `filter`. NULL if MP_TAPS taps are open. Any thread. */
mp_tap *MP_NULLABLE mp_tap_open(const mp_tap_filter *filter, const mp_tap_hooks *hooks);
/* Moves queued events to `out`, at most `most` bytes of them, as events of an event stream. After the last one follows the number of events that
 * were dropped, if there are any. True if events are left. On one thread, which closes the tap, too. */
bool mp_tap_take(mp_tap *tap, size_t most, mp_buf *out);
/* True if nothing has come since mp_tap_take: then `wake` is called for what comes next. Until this gives true, `wake` is called for long queues alone, and
 * the reader takes from time to time what has come. */
bool mp_tap_rest(mp_tap *tap);
/* `wake` is not called after this. */
mp_tap_totals mp_tap_close(mp_tap *tap);

/* -- records: calls with what they got from outside, for `moonpool replay` (request/record.c) ---------------------------- */

typedef struct {
    /* patterns of names in which '*' stands for any text; ends with NULL. NULL or empty: none */
    char **MP_NULLABLE tools;
} mp_record_limits;

typedef struct {
    uint64_t last; /* the serial of the last line that was kept */
    uint64_t next; /* the serial of the last line that was read: `after` of the next page */
    uint64_t lost; /* lines after `after` that are not kept any longer */
    bool has_more; /* further lines are there */
    bool is_on;    /* calls are recorded */
    bool is_asked; /* a recording of mp_record_begin goes on */
} mp_record_page;

extern atomic_bool mp_record_on;

/* True if some calls are recorded: one load. */
static inline bool mp_record_is_on(void)
{
    return __builtin_expect(atomic_load_explicit(&mp_record_on, memory_order_relaxed), 0);
}

/* The functions of records may be called on any thread. */
void mp_record_configure(const mp_record_limits *wanted);
/* Keeps the lines also in the file `path`, and takes those that are there. Called once, after mp_record_configure, before threads use records. */
int mp_record_open(const char *path, mp_err *err);
/* Records calls of the tools that `pattern` admits for `ms`, `most` calls at most. False if such a recording goes on already. */
bool mp_record_begin(const char *pattern, uint64_t ms, uint64_t most);
/* False if no recording of mp_record_begin went on. */
bool mp_record_end(void);
/* True if calls of this tool are recorded now. */
bool mp_record_wants(mp_str tool);
/* Like mp_record_wants, for a call that is recorded if so: it counts as one of a recording of mp_record_begin. */
bool mp_record_claim(mp_str tool);
size_t mp_record_call_bytes(void);
/* Keeps a line of JSON. CUT: its call was over mp_record_call_bytes(). SKIPPED: it says why nothing of the call is there. */
typedef enum { MP_RECORD_WHOLE, MP_RECORD_CUT, MP_RECORD_SKIPPED } mp_record_kind;
void mp_record_put(mp_str line, mp_record_kind kind);
/* Appends the lines whose serials are above `after`, the last `last` of them, up to `most` bytes, but always one line if there is one. */
mp_record_page mp_record_read(uint64_t after, size_t last, size_t most, mp_buf *out);
size_t mp_record_count(void);

/* -- decisions before there is a call: the audit and the log ------------------------------------------------------- */

typedef struct {
    const char *event;
    int status;                                /* id of the call; 0: there is no call yet */
    const mp_principal *MP_NULLABLE principal; /* NULL: not known */
    mp_str session, why;                       /* may be empty; of the session's id, only a hash is written */
    mp_str caller;                             /* who used the admin listener; may be empty */
    bool tells_host;                           /* the line shows Host and Origin, because one of them is the reason */
} mp_decision;

/* A hash of a session's id. Lines of the log and the audit use it to tell sessions apart; it gives no access to the session. */
typedef struct {
    char text[9];
} mp_session_mark;
mp_session_mark mp_session_mark_of(mp_str id);

/* Writes an audit line, if an audit log is configured; its id is the mark of the request. `stream` still has its request. */
void mp_audit_request(mp_stream *stream, const mp_decision *made);
extern const mp_decision mp_host_refused;

/* Logs a refused request at info, within the line budget of its reason, with the request's mark if it has one. `stream` still
 * has its request. */
void mp_log_refused(const mp_stream *stream, mp_cause cause, int status, mp_str why);

/* -- Host and Origin (hosts.c) -------------------------------------------------------------------------------------- */

/* The name or address of a Host header, without its port; empty if it is none. */
mp_str mp_host_name(mp_str host);
/* True if a NULL-terminated list of names has the one of a Host header: "*" is every name, "*.example.com" every name below example.com. */
bool mp_hosts_have(const char *const *list, mp_str host);
/* What an Origin has in the place of a Host header; empty if it is no origin of http or https. */
mp_str mp_origin_host(mp_str origin);

/* -- secrets (principal.c) ------------------------------------------------------------------------------------------ */

/* A SHA-256 hash: what is kept of a secret to recognize it. */
typedef struct {
    unsigned char bytes[32];
} mp_secret_hash;
mp_secret_hash mp_secret_hash_of(mp_str secret);
/* Takes a time that does not depend on where the two differ. */
bool mp_secret_hash_is(const mp_secret_hash *a, const mp_secret_hash *b);

/* -- principals and authentication -------------------------------------------------------------------------------------------------- */

/* A principal is immutable and belongs to one thread. These two principals are static and belong to all threads: the
 * anonymous client, and the local user who started the gateway with stdio. */
extern mp_principal *const mp_nobody, *const mp_lone;
/* Returns a counted reference for the caller. Principals with equal `binding` share their sessions. `expires`:
 * seconds since 1970; 0: never. */
mp_principal *mp_principal_new(mp_str id, mp_str binding, int64_t expires);
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
/* Authentication waits for an op: starts its time limit, and detects a client that disconnects. Refuses the request
 * with 503 if too many are pending. */
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

/* The principal lacks `scopes` (separated by spaces): the call's error is sent with HTTP 403 and a challenge that
 * names them. False if the HTTP status of the call is sent already, or the transport has none. */
bool mp_call_forbid(mp_call *call, mp_str scopes);
/* The principal exceeds a rate or quota: the call's error is sent with HTTP 429 and Retry-After. False if the HTTP
 * status of the call is sent already, or the transport has none. */
bool mp_call_put_off(mp_call *call, int64_t seconds);
/* The memory that the call needs is not there now: cancels the call and answers with an error that has the text `why`, with HTTP 503 and
 * Retry-After if the HTTP status of the call is still to be sent. Adds one to `counter`. */
void mp_call_refuse_crowded(mp_call *call, const char *why, const mp_stat *counter);

/* True if the call waited longer than overload.wait before it began now, at `now_us` of the monotonic clock, and is to be refused by
 * mp_call_refuse_late. */
bool mp_call_is_late(mp_call *call, uint64_t now_us);
/* Refuses such a call: an error, with HTTP 503 and Retry-After if the HTTP status of the call is still to be sent. */
void mp_call_refuse_late(mp_call *call);
/* True while the call's worker refuses requests because they wait too long. */
bool mp_call_is_overloaded(const mp_call *call);

/* -- a call, as lua/moonpool uses it ------------------------------------------------------------ */

/* A call is valid from on_call until mp_call_answer, mp_call_fail or on_cancel, and is freed at the end of that
 * turn. */
mp_str mp_call_method(const mp_call *call);
mp_str mp_call_params(const mp_call *call); /* span of a JSON object, or empty */
/* The arguments of a tools/call in the order that the client wrote them, at most MP_FLAT_MAX, with different names without escapes; their
 * spans are valid as long as the call. `*count` is 0 where the client sent no arguments. NULL when the arguments are not known:
 * the method is another one, or the message has something that this reader leaves to mp_call_params and its decoder (quick.c). Where it
 * is not NULL, the params have no members but name, arguments and _meta, no object in them repeats a key, and _meta has no member of the
 * protocol but the version, the client's name and capabilities and the progress token. */
const mp_flat *MP_NULLABLE mp_call_flat(const mp_call *call, size_t *count);
mp_str mp_call_tool(const mp_call *call);   /* params.name, where mp_call_flat is not NULL; else empty */
size_t mp_call_weight(const mp_call *call); /* estimate of the bytes that the call's message takes in Lua */
const mp_era *MP_NULLABLE mp_call_era(const mp_call *call); /* NULL in an HTTP+SSE session before `initialize` */
mp_session *MP_NULLABLE
mp_call_session(const mp_call *call);   /* NULL in stateless revisions, and at `initialize` over Streamable HTTP */
mp_str mp_call_id(const mp_call *call); /* id of the request, as JSON */
/* The mark of the call (mark.h): the one of its HTTP request if that has one, else made when it is first asked for. mp_call_known_mark() makes none:
 * 0. */
uint64_t mp_call_mark(mp_call *call);
uint64_t mp_call_known_mark(const mp_call *call);
mp_str mp_call_progress_token(const mp_call *call); /* span, or empty */
mp_principal *mp_call_principal(const mp_call *call);
/* Of a call by a console: whom the audit names, and the JSON of its principal (both are valid until the call has ended); else empty. */
mp_str mp_call_operator(const mp_call *call);
/* True for a question of a page of the gateway's own: a console whose settings say so. */
bool mp_call_is_hidden(const mp_call *call);
/* True for a request that an operator runs: those by which a console opens its session have texts as ids. An operator sees where its time went. */
bool mp_call_is_shown(const mp_call *call);
mp_str mp_call_described_principal(const mp_call *call);
/* The address of the call's client, by a trusted proxy if one is in front: an IP address, "unix", or empty over stdio and for detached calls. */
mp_str mp_call_address(const mp_call *call);
void *MP_NULLABLE mp_call_user(const mp_call *call); /* pointer that belongs to the hooks */
void mp_call_set_user(mp_call *call, void *MP_NULLABLE user);
/* Finds a header of the HTTP request that carries the call. `count` is 0 over HTTP+SSE, for detached calls and once the client has
 * disconnected, and -1 over stdio, which has no headers. Where `config->keeps_tokens`, Authorization is found all the same; a
 * detached call has that of the call that started it. */
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
/* As mp_stream_on_delivery, of the answer to the call; at once, with MP_DELIVERY_UNKNOWN, if the call has no HTTP request of its own. */
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
/* The call runs this tool, gets this prompt or reads this resource: its outcome, and a tool's time, count for it, too. */
void mp_call_measure(mp_call *call, mp_thing_metrics *thing);
/* The result that will answer the call has "isError": true. */
void mp_call_fails(mp_call *call);
/* Answers and ends the call. `result` is a complete JSON value. */
void mp_call_answer(mp_call *call, mp_str result);
/* mp_call_answer in two steps, for a result that is written in pieces: the caller appends it to the buffer, which belongs to the rpc, and
 * then ends the answer. Between the two nothing else of this rpc may run. NULL when the call has ended or is being cancelled: then there
 * is nothing to end. A caller that finds the result too large does not end the answer, but fails the call. */
mp_buf *MP_NULLABLE mp_call_begin_answer(mp_call *call);
void mp_call_end_answer(mp_call *call);
/* Answers with an error and ends the call. `data` is a JSON value or empty. */
void mp_call_fail(mp_call *call, int code, mp_str message, mp_str data);

/* Listens to topics, without a time limit: publications are sent on the call's stream until its client disconnects,
 * or the gateway stops and answers with the result `closing`. Returns STARTED: the hooks must not use the call any
 * more. OVER: the gateway is stopping. */
typedef enum { MP_LISTEN_STARTED, MP_LISTEN_OVER, MP_LISTEN_TOO_MANY } mp_listen_result;
mp_listen_result mp_call_listen(mp_call *call, const mp_str *topics, size_t count, mp_str closing);

/* Makes a detached call with the id, method, session and principal of `like`. No message is sent for it, it survives
 * the end of its session, and an answer only ends it. It is cancelled after `ms`, and when the gateway stops and no
 * client's call is left. on_call is not called for it. Returns NULL above MP_MAX_TASKS. */
mp_call *MP_NULLABLE mp_call_spawn(const mp_call *like, uint64_t ms);
bool mp_rpc_is_draining(const mp_rpc *rpc);
/* Makes a detached call of the newest revision that does not come from another call. Returns NULL above MP_MAX_TASKS. */
mp_call *MP_NULLABLE mp_call_spawn_alone(mp_rpc *rpc, mp_principal *principal, uint64_t ms);
/* Cancels a detached call. */
void mp_call_stop(mp_call *call, const char *why);

/* -- a session, as lua/moonpool uses it --------------------------------------------------------- */

const mp_era *MP_NULLABLE mp_session_era(const mp_session *session); /* NULL before `initialize` */
mp_str mp_session_id(const mp_session *session);
/* True if a session of any principal has this id and is open. The id must not come from a client. */
bool mp_session_is_known(mp_rpc *rpc, mp_str id);
mp_str mp_session_client(const mp_session *session);
mp_str mp_session_capabilities(const mp_session *session);
/* The lowest level of notifications/message that the client wants: 0 (debug) to 7 (emergency); -1 before
 * logging/setLevel. */
int mp_session_log_level(const mp_session *session);
void mp_session_set_log_level(mp_session *session, int level);

/* Subscribes the session to a topic until the session ends. The part of the topic's name behind a NUL is the
 * audience. A session has one audience for each topic: a later subscription replaces the audience, and
 * mp_session_unfollow ignores it. */
typedef enum { MP_FOLLOW_DONE, MP_FOLLOW_CLOSED, MP_FOLLOW_TOO_MANY } mp_follow_result;
mp_follow_result mp_session_follow(mp_session *session, mp_str topic);
void mp_session_unfollow(mp_session *session, mp_str topic);
/* Changes the audience of all subscriptions of the session that have one (its principal's scopes may have changed). */
void mp_session_follow_as(mp_session *session, mp_str audience);

/* -- metrics ------------------------------------------------------------------------------------------------------- */

#define MP_MAX_TOOL_METRICS 1500 /* room for the times of tools */

typedef enum { MP_MEASURED_TOOL, MP_MEASURED_PROMPT, MP_MEASURED_RESOURCE, MP_MEASURED_KINDS } mp_measured;
/* The metrics of the tool, prompt or resource with this name; never freed, the same over reloads. Any thread. */
mp_thing_metrics *mp_thing_metrics_of(mp_measured kind, mp_str name);
#define MP_FAILURES 8 /* failures of a tool that are kept: the last ones */

/* A call of a tool, prompt or resource that did not succeed. */
typedef struct {
    uint64_t mark;       /* of the call */
    int64_t at;          /* in seconds since 1970 */
    uint64_t us;         /* how long it took */
    const char *outcome; /* a literal */
    int code;            /* of the JSON-RPC error; 0: none */
} mp_tool_failure;

typedef struct {
    int64_t calls, errors;   /* calls that have ended, and those among them that did not succeed */
    uint64_t p50_us, p99_us; /* 0: not known, or not a tool */
    size_t failure_count;    /* of `failures`, newest first */
    mp_tool_failure failures[MP_FAILURES];
} mp_tool_numbers;

/* What was measured of the tool, prompt or resource with this name; zeros if nothing was. Any thread. */
void mp_tool_numbers_of(mp_measured kind, mp_str name, mp_tool_numbers *numbers);

/* -- publishing ------------------------------------------------------------------------------------------------ */

/* Publishes on a topic, on all workers: sends `plain` to the sessions that subscribe to it; sends `before`, the
 * call's id and `after` to the calls that listen to it. A text with ptr == NULL is not sent. Of several publications
 * on a topic in one turn only the last is sent. */
void mp_topic_publish(mp_rpc *rpc, mp_str topic, mp_str plain, mp_str before, mp_str after);
/* Appends the audiences of the topic that have subscribers, one per line. */
void mp_topic_audiences(mp_rpc *rpc, mp_str topic, mp_buf *out);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_workers_overloaded, mp_stat_replay_bytes, mp_stat_refused_origin, mp_stat_sessions_sse,
    mp_stat_sessions_http;

#endif
