/* rpc.h: the server role of MCP: what a client sends and gets, up to the point where a message has a meaning. The role
 * of each worker and the table of the process are here; call.h, session.h and observe.h have the rest.
 *
 *   session    what `initialize` opens, in stateful revisions only
 *   table      the sessions of the process, shared by all workers
 *   call       a JSON-RPC request in flight: freed after its answer
 *   note       a JSON-RPC notification: never answered
 *   principal  the identity that authentication gave a request
 *   authn      an HTTP request whose authentication is pending
 *
 * Everything belongs to the thread of its rpc, but for the table and sessions. This module writes no answers of its
 * own, except parse errors and invalid requests, the errors of a missing or unknown version, and HTTP refusals. Every
 * method is a Lua function, which is reached through the hooks. */
#ifndef MP_RPC_H
#define MP_RPC_H

#include "mcp/mcp.h"
#include "net/net.h"
#include "processes.h"
#include "telemetry/telemetry.h"
#include "trace/trace.h"

typedef struct mp_session_table mp_session_table;
typedef struct mp_store mp_store;
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
    uint64_t idle_ms;
    int64_t max_sessions, max_sessions_per_principal, max_calls;
    uint64_t call_ms; /* time limit of a call; after that it is cancelled with an error */
    int64_t max_listeners;
    int64_t replay_events;        /* events kept for one session; 0: no events are kept */
    size_t bodies;                /* as in mp_http_limits, for what calls keep of their requests */
    size_t answers, stream_queue; /* as in mp_http_limits, for messages on their way to the thread of their stream */
    uint64_t request_ms, heartbeat_ms; /* as in mp_http_limits; request_ms also for idle connections of processes */
    uint64_t overload_ms; /* a request that waited longer for its worker is refused as overload; 0: no limit */
    const char *MP_NULLABLE instance; /* the id of this gateway for those that call each other; NULL: no upstreams */
    bool is_child;                    /* another gateway runs this one as a program */
    bool streams_expire;              /* an event stream ends when the credentials that opened it expire */
    /* TLS between nodes: the DNS name in all certificates, and the path of their authorities; NULL: without */
    const char *MP_NULLABLE nodes_name, *MP_NULLABLE nodes_ca;
    const char *MP_NULLABLE challenges; /* folder with a file for each challenge of ACME; NULL: none */
    bool keeps_tokens; /* calls keep the Authorization of their request: an upstream gets a token of each caller */
} mp_rpc_config;

/* Limits that no key sets. */
#define MP_MAX_TASKS MP_LIMIT(tasks, 1024) /* MCP tasks that run in the background */
/* bytes of stored events of all sessions: the oldest go */
#define MP_REPLAY_TOTAL MP_LIMIT(replay_total, 64 << 20)

/* The facts about authentication that clients may know. All texts may be empty. */
typedef struct {
    bool is_asked;            /* false: there are no auth scripts, and every request is anonymous */
    mp_str realm, scopes;     /* for the challenge; scopes separated by spaces */
    mp_str resource_metadata; /* members of the RFC 9728 metadata, as JSON; empty: no metadata is served */
    bool has_pages;           /* the gateway is an authorization server, with the pages of lua/moonpool/sign_in */
} mp_auth_facts;

/* How the rpc hands work to Lua, and cancels it. A hook only enqueues work: it runs no Lua before it returns. */
typedef struct {
    void (*on_call)(void *ctx, mp_call *call);
    /* `era`: known once the session is initialized. `method` and `params`, a span or empty, are valid only during this
     * C call. `share`: as mp_call_share. */
    void (*on_note)(void *ctx, const mp_era *MP_NULLABLE era, mp_session *MP_NULLABLE session, mp_str method,
                    mp_str params, unsigned share);
    /* The call is cancelled: its handler must unwind, without an answer. Not called for an answered call. */
    void (*on_cancel)(void *ctx, mp_call *call, const char *why);
    /* Returns how clients authenticate. Called when the rpc gets `ctx`; the result is valid for as long as the rpc
     * has `ctx`. */
    const mp_auth_facts *(*auth)(void *ctx);
    /* Answer once, by mp_authn_admit or mp_authn_refuse. `share`: low 8 bits by the address, others by the token */
    void (*on_entry)(void *ctx, mp_authn *entry, unsigned share);
    /* Appends the principal as text, for another process; nothing if it is of scripts that are no more. */
    void (*put_principal)(void *ctx, const mp_principal *principal, mp_buf *out);
    /* Delivers a message of another process about a task of this one (lua/moonpool/tasks/tasks.lua); or `is_switch`: of
     * another node, about what an operator has switched there: mp_rpc_answer_switch(). False if it does not fit. */
    bool (*on_message)(void *ctx, bool is_switch, mp_str text);
    /* The request has ended: its auth script must unwind, without a decision. */
    void (*on_entry_cancel)(void *ctx, mp_authn *entry);
    /* Tasks that begin before a new call of the share. True: none of it waits or was preempted; it has turns left */
    size_t (*ahead)(void *ctx, unsigned share, bool *is_alone, bool *has_credit);
} mp_rpc_hooks;

/* `processes` is borrowed for the life of the table. */
mp_session_table *mp_session_table_new(const mp_rpc_config *config, mp_processes *processes);
/* Calls `ended` once with the id of each session that ends, on any thread, without a lock. Before the first rpc. */
void mp_session_table_on_session_end(mp_session_table *table, void (*ended)(void *ctx, mp_str session_id), void *ctx);
/* From now on sessions of Streamable HTTP have records in the store, if `keeps`; else those there are removed.
 * `is_first`: no other process of the gateway runs: earlier ones' are revived. Before the first rpc is made. */
void mp_session_table_keep(mp_session_table *table, mp_store *store, bool keeps, bool is_first);
/* From now on a session that ends with the process leaves no record: nobody is to revive it. */
void mp_session_table_forget_kept(mp_session_table *table);
/* Replaces the configuration by one with the same paths and `replay_events`. The previous one stays borrowed until
 * every rpc has the new one. Any thread may call this, one at a time. */
void mp_session_table_configure(mp_session_table *table, const mp_rpc_config *config);
void mp_session_table_free(mp_session_table *table);

/* -- sessions.per_principal in several processes: what each says to the newest, and both during a trial -- */

typedef enum {
    MP_OWNERS_NONE, /* nothing is sent: no other process has to know */
    MP_OWNERS_OWN,  /* how many sessions each principal has in this process */
    MP_OWNERS_ALL   /* also what other processes have sent */
} mp_owners_said;

/* From now on mp_session_table_put_owners() writes the numbers that `which` selects, and each change. Any thread. */
void mp_session_table_say_owners(mp_session_table *table, mp_owners_said which);
/* Appends the changes that were not given yet, until `out` has `room` bytes. */
void mp_session_table_put_owners(mp_session_table *table, mp_buf *out, size_t room);
/* Takes the numbers that another process gave by mp_session_table_put_owners(). */
void mp_session_table_take_owners(mp_session_table *table, mp_str body);
/* A process has no sessions any more. 0: all other ones, since new sessions begin elsewhere from now on. */
void mp_session_table_forget_owners(mp_session_table *table, uint16_t number);

/* `config` and `hooks` are borrowed for the life of the rpc, or until it gets another configuration. */
mp_rpc *mp_rpc_new(const mp_rpc_config *config, mp_session_table *table, mp_loop *loop, const mp_rpc_hooks *hooks,
                   void *ctx);
void mp_rpc_configure(mp_rpc *rpc, const mp_rpc_config *config); /* replaces it; on the rpc's thread */
/* The number of the rpc in its table, from 0: the first part of the name of a call. Any thread. */
unsigned mp_rpc_index(const mp_rpc *rpc);
mp_processes *mp_rpc_processes(const mp_rpc *rpc);
/* Another process of the cluster has this one's number: takes another one and a uid, ends its sessions; or false. */
bool mp_rpc_renumber(mp_rpc *rpc);
typedef enum { MP_NODE_MAY_LIVE, MP_NODE_LIVES, MP_NODE_IS_GONE } mp_node_life;
mp_node_life mp_rpc_ask_node(mp_rpc *rpc, uint16_t number); /* as it answers; MAY_LIVE: it is being asked */
void mp_rpc_make_id(const mp_rpc *rpc, mp_str owner, char id[MP_ID + 1]);
bool mp_rpc_is_elsewhere(const mp_rpc *rpc, mp_str id); /* another process that is known made this id of a task */
/* True if no living process, of a cluster: none with this uid, made this id of a task. False if not all are known. */
bool mp_rpc_is_orphan(mp_rpc *rpc, mp_str id, mp_str uid);
/* Sends a message about the task to the process that runs it, or returns false. What is lost later is logged. */
bool mp_rpc_send_task_message(mp_rpc *rpc, mp_str id, mp_str text);
/* Sends the text to all other nodes, for `on_message`. `done` runs once, perhaps inside this function. */
mp_node_round *mp_rpc_tell_nodes(mp_rpc *rpc, mp_str text, void (*done)(void *ctx), void *ctx);
void mp_rpc_free_round(mp_rpc *rpc, mp_node_round *round);          /* in any case; what is under way goes on */
void mp_rpc_answer_switch(mp_rpc *rpc, uint64_t id, bool is_taken); /* it holds here, or not: see on_message */
/* Hands new calls and notifications to `ctx` from now on. Pending authentications start again with its auth scripts. */
void mp_rpc_hand_to(mp_rpc *rpc, void *ctx);
/* The on_request function of a listener. */
void mp_rpc_serve(void *rpc, mp_stream *stream);
/* The same of the listener for other processes of the gateway, whose headers say who the client is. */
#define MP_HOP_HEADERS ((size_t)256 << 10)
void mp_rpc_serve_hop(void *rpc, mp_stream *stream);
/* Serves one client on a pipe (stdio), which is borrowed for the rest of its life. `ended`: the pipe's `on_end`. */
void mp_rpc_serve_pipe(mp_rpc *rpc, mp_pipe *pipe, void (*ended)(void *ctx, int error), void *ctx);
/* The load of a VM at the end of a turn. */
typedef struct {
    size_t waiting, preempted;   /* tasks that have not begun, and those that were preempted and wait to continue */
    uint64_t begun, interrupted; /* tasks that have begun so far, and those of them that were preempted at least once */
} mp_load;
void mp_rpc_press(mp_rpc *rpc, const mp_load *load); /* the load at the end of a turn: see overload.c */
/* The node leaves its cluster: subscriptions/listen ends within 5 s; sessions are unknown (404) once the rpc drains. */
void mp_rpc_leave(mp_rpc *rpc);
/* Drains: refuses new calls and sessions with 503. Event streams without a call end now, others after their last
 * answer. Calls in flight go on, detached ones as long as a client's call does. `ms`: until the process ends. */
void mp_rpc_drain(mp_rpc *rpc, uint64_t ms);
void mp_rpc_abort(mp_rpc *rpc, const char *why); /* ends all of them, each with an error to its client */
int64_t mp_rpc_calls(const mp_rpc *rpc);         /* in flight, detached ones included */
/* Sends publications, a limited number, and frees the calls that ended in this turn. Called at its bottom, after Lua.
 * True if publications remain to be sent. */
bool mp_rpc_sweep(mp_rpc *rpc);
bool mp_rpc_has_work(const mp_rpc *rpc); /* mp_rpc_sweep has something to do */
/* Frees the memory that the rpc keeps for new calls. On its thread. */
void mp_rpc_return_memory(mp_rpc *rpc);
void mp_rpc_free(mp_rpc *rpc);

/* -- Host and Origin (hosts.c) ------------------------------------------------------------------------------------- */

/* The name or address of a Host header, without its port; empty if it is none. */
mp_str mp_host_name(mp_str host);
/* True if a NULL-terminated list of names has the one of a Host header: "*" is every name, "*.example.com" every name
 * below example.com. */
bool mp_hosts_have(const char *const *list, mp_str host);
/* The part of an Origin that equals a Host header; empty if it is no origin of http or https. */
mp_str mp_origin_host(mp_str origin);

#endif
