/* upstream.h: the client role of MCP: other MCP servers that this gateway calls.
 *
 *   upstream   an MCP server that is called, by the name that it has in the configuration */
#ifndef MP_UPSTREAM_H
#define MP_UPSTREAM_H

#include "telemetry/telemetry.h"

/* -- configuration ------------------------------------------------------------------------------------------------- */

typedef enum { MP_UPSTREAM_URL, MP_UPSTREAM_COMMAND } mp_upstream_kind;
typedef enum { MP_REVISION_AUTO, MP_REVISION_MODERN, MP_REVISION_LEGACY, MP_REVISION_SSE } mp_upstream_revision;

/* One upstream of the configuration. Lists end with NULL and may be NULL; texts may be NULL where the comment says so. */
typedef struct {
    char *name;
    mp_upstream_kind kind;
    mp_upstream_revision revision;
    /* The connection part: an upstream keeps its channels over a reload while these are equal. */
    char *url;                                /* URL */
    char **argv, **env, *cwd;                 /* COMMAND; env: "NAME=value"; cwd may be NULL */
    char **headers;                           /* "name: value", sent with each request */
    char *bearer;                             /* may be NULL */
    char *tls_ca, *tls_certificate, *tls_key; /* paths; each may be NULL */
    bool is_private;                          /* the URL's name may lead to private addresses */
    /* What may change while channels stay. */
    uint64_t timeout_ms;       /* without a sign of life of an exchange */
    uint64_t timeout_total_ms; /* of an exchange, in all */
    uint64_t connect_ms;       /* until a connection is made */
    uint64_t open_ms;          /* that a task waits for another one to open a channel */
    int64_t calls, waiting;    /* exchanges that run at once; exchanges above that wait in order */
    uint64_t idle_stop_ms;     /* a channel without exchanges is closed after this time */
    int64_t most;              /* channels of this upstream; 0: no limit but limits.upstreams */
    size_t memory;             /* COMMAND: bytes of one process tree; 0: no limit */
    int64_t circuit_failures;  /* failures in a row that open the circuit */
    uint64_t circuit_open_min_ms, circuit_open_max_ms;
    uint64_t keep_ms, list_wait_ms, refresh_ms; /* for Lua */
} mp_upstream_config;

/* limits.upstreams: limits of the process. */
typedef struct {
    int64_t channels, processes;
    size_t answer;      /* bytes of one message of an upstream */
    size_t queue;       /* bytes of progress and logs that wait for the task of their exchange */
    size_t list_bytes;  /* bytes of one catalogue */
    int64_t list_items; /* for Lua */
} mp_upstream_limits;

#endif
