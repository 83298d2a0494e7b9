/* role.h: one worker's server role, and the declarations that the folders of this module share. A file includes role.h,
 * the header of its own folder, and those of folders below it:
 *
 *   observe     what operators follow: taps, recorded calls, the log of refusals
 *   request     an HTTP request before its sender is known: headers, Host and Origin, refusals, the audit
 *   session     sessions, the table of the process that holds them, principals
 *   stream      event streams: readers, the log of events for clients that resume, topics
 *   call        one JSON-RPC request from its start to its answer
 *   auth        requests whose authentication is pending, and the metadata of RFC 9728
 *   transport   Streamable HTTP, HTTP+SSE and stdio: from a request to a call, and from an answer to bytes
 *
 * Threads: a session's fields are immutable, atomic, or guarded by its lock. A reader, and a call but for the fields
 * that its session's list shows, belong to the thread of their rpc. */
#ifndef MP_RPC_ROLE_H
#define MP_RPC_ROLE_H

#include "rpc/call.h"
#include "rpc/inside.h"
#include "rpc/observe.h"
#include "rpc/session.h"

typedef struct mp_batch mp_batch;
typedef struct mp_ended_calls mp_ended_calls;
typedef struct mp_event_log mp_event_log;
typedef struct mp_feed mp_feed;
typedef struct mp_publisher mp_publisher;
typedef struct mp_hop mp_hop;
typedef struct mp_hops mp_hops;
typedef struct mp_reader mp_reader;
typedef struct mp_stdio mp_stdio;
typedef struct mp_subscriber mp_subscriber;
typedef struct mp_topics mp_topics;
typedef struct mp_transport mp_transport;

/* The load of a worker, and whether it refuses requests because of it (overload.c). */
typedef struct {
    uint64_t late_us;   /* overload.wait; UINT64_MAX: off */
    bool is_overloaded; /* requests are refused: see mp_request_is_shed */
    bool is_watched;    /* the worker is overloaded, or something waited at the end of its last turn */
    size_t waiting;     /* tasks that had not begun at the end of the last turn */
    uint64_t
        since_us;   /* begin of the window in which tasks are counted that begin while others wait; 0: nothing waits */
    uint64_t begun; /* tasks begun before that window, without `late` */
    uint64_t interrupted;  /* tasks preempted at least once before `part_us` */
    uint64_t part_begun;   /* tasks begun before `part_us` */
    double preempted_part; /* the share of preempted tasks among those that began in the last windows */
    uint64_t part_us;      /* begin of the window in which the time is measured */
    uint64_t round_us;     /* time that a new task would wait because it is preempted, by that part */
    uint64_t late;         /* calls refused as they were to begin */
    uint64_t refused_us;   /* when a request was refused last */
    size_t ahead;          /* tasks that begin before the request whose wait was estimated last, at most */
    mp_pace pace;          /* rate at which tasks begin while other tasks wait */
} mp_pressure;

struct mp_rpc {
    const mp_rpc_config *config;
    mp_session_table *table;
    mp_processes *processes;
    mp_hops *hops; /* owned: requests that other processes serve */
    mp_loop *loop;
    const mp_rpc_hooks *hooks;
    void *ctx;                 /* context pointer of the hooks */
    const mp_auth_facts *auth; /* how clients authenticate, from the hooks of `ctx`; borrowed until the rpc is handed to
                                  another context */
    unsigned index;            /* index of this rpc in the session table */
    bool draining, has_left;   /* has_left: see mp_rpc_leave */
    uint64_t left_ms;          /* when it has left */
    mp_timer leave;
    uint64_t ends_at; /* monotonic ms at which the process ends at the latest, if `draining` */
    mp_pressure pressure;
    bool is_input_over; /* stdio: the client has closed its end, so no answer to a request to the client can come */
    uint64_t last_serial;
    int64_t count, detached_count;                   /* number of calls in `calls` and `detached` */
    mp_link calls, detached, ended, readers, authns; /* lists of mp_call (three), mp_reader, mp_authn */
    mp_ended_calls *MP_NULLABLE ended_calls;         /* owned, the last ones, for operators; NULL: none has ended yet */
    mp_publisher *publisher;
    mp_account reply_bytes;      /* clients' answers to questions of its calls, on their way here from other threads */
    mp_stream *no_stream;        /* owned; it is gone: the stream of calls without one */
    mp_stdio *MP_NULLABLE stdio; /* owned; NULL unless stdio is served */
    mp_link consoles;            /* list of mp_console, each with a reference of the rpc */
    unsigned questions;          /* consoles of pages of the gateway's own, which wait for an answer */
    mp_console *MP_NULLABLE console; /* whose message is being served; NULL: of a client of a transport */
    bool is_hidden;                  /* calls of the console are hidden: see mp_call.is_hidden */
    mp_timer sweep;
    char listed_host[64]; /* a Host that `config` lists; for mp_request_is_served alone */
    size_t listed_host_len;
    mp_call *spare_calls; /* free list of calls, linked by `user` */
    size_t spare_call_count;
    /* About the message that is being served: */
    mp_envelope envelope;
    mp_principal *principal;       /* principal of the message that is being served; borrowed */
    unsigned share;                /* as mp_call_share, of `principal` or of the client's address */
    const mp_hop *MP_NULLABLE hop; /* the sealed facts of the process that sent the request; NULL: a client sent it */
    uint64_t authn_began_us;    /* start of its authentication by scripts, by mp_monotonic_us; 0: there was none, or no
                                   call is recorded */
    bool names_foreign_session; /* the request's Mcp-Session-Id belongs to another principal: for the log, never for the
                                   client */
    mp_buf scratch;
};

/* serve.c: routes an authenticated request to its transport. */
void mp_serve_as(mp_rpc *rpc, mp_stream *stream, mp_principal *principal);

#endif
