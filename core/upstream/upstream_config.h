/* upstream_config.h: what moonpool.yaml says about one upstream. Immutable once it is read. Counted: a generation of scripts has a list
 * of them, and a channel keeps the one that it was opened with. The configuration's loader fills it (core/gateway/config_upstreams.c).
 *
 *   pair    a name and a value; an array of pairs ends with a pair without a name
 *   list    an array of texts that ends with NULL */
#ifndef MP_UPSTREAM_CONFIG_H
#define MP_UPSTREAM_CONFIG_H

#include "telemetry/telemetry.h"
#include <stdatomic.h>

typedef struct {
    char *name, *value;
} mp_pair;

typedef struct {
    uint64_t least_ms, most_ms;
} mp_time_range;

typedef enum { MP_UPSTREAM_URL, MP_UPSTREAM_COMMAND } mp_upstream_kind;
typedef enum {
    MP_UPSTREAM_REVISION_AUTO, /* transport and revision are found out */
    MP_UPSTREAM_REVISION_MODERN,
    MP_UPSTREAM_REVISION_LEGACY,
    MP_UPSTREAM_REVISION_SSE /* the transport HTTP+SSE */
} mp_upstream_revision;
typedef enum {
    MP_UPSTREAM_PER_AUTO, /* by the upstream's transport and revision */
    MP_UPSTREAM_PER_PRINCIPAL,
    MP_UPSTREAM_PER_SESSION,
    MP_UPSTREAM_PER_CALL,
    MP_UPSTREAM_PER_GATEWAY
} mp_upstream_per;
typedef enum { MP_UPSTREAM_RETRY_READ_ONLY, MP_UPSTREAM_RETRY_HINTED, MP_UPSTREAM_RETRY_NEVER } mp_upstream_retry;
typedef enum { MP_UPSTREAM_PRIVATE_FALSE, MP_UPSTREAM_PRIVATE_TRUE } mp_upstream_private;

typedef struct {
    atomic_int refs;
    char *name;
    int line; /* of the entry in the configuration file, for messages */
    mp_upstream_kind kind;

    /* The connection part. While it is the same, an upstream keeps its channels across reloads. */
    char *url;                      /* URL only */
    mp_upstream_revision revision;  /* `sse`: URL only */
    mp_upstream_private is_private; /* a name in `url` may lead to addresses that are not public */
    char *bearer;                   /* the token for the header Authorization; NULL: none. A secret */
    mp_pair *headers;               /* further headers of each request; NULL: none. The values may be secrets */
    char *ca, *certificate, *key;   /* PEM files for TLS; each may be NULL */
    char **argv;                    /* COMMAND only: the program and its arguments */
    mp_pair *env;                   /* variables of the program; NULL: none. The values may be secrets */
    char *cwd;                      /* COMMAND only: the program's folder, never NULL */

    uint64_t timeout_ms, timeout_total_ms;      /* of a request: without a sign of life of it; in all */
    uint64_t connect_ms, open_ms;               /* of a connection; of opening a channel */
    int64_t calls, waiting;                     /* requests in flight, and those that wait for their turn */
    uint64_t idle_stop_ms;                      /* an unused channel is closed after this time */
    int64_t most;                               /* processes of this upstream */
    size_t memory;                              /* resident bytes of one process and its descendants; 0: no limit */
    int64_t failures;                           /* failures in a row that open the circuit */
    mp_time_range circuit;                      /* how long the circuit stays open: the first time, and at most */
    uint64_t keep_ms, list_wait_ms, refresh_ms; /* lists: kept while the upstream is down; waited for; read again */

    /* What only lua/moonpool/upstream uses. */
    char *prefix;        /* of the names that clients see; may be empty, never NULL */
    char **only, **hide; /* patterns of the upstream's own names; NULL: none */
    mp_pair *rename;     /* the upstream's own name -> the name after the prefix; NULL: none */
    mp_pair *describe;   /* the upstream's own name -> its description; NULL: none */
    char **pass;         /* names of client headers that are sent on, in lower case; NULL: none */
    mp_upstream_per per;
    mp_upstream_retry retry;
    int64_t longest; /* bytes of a name that clients see; longer ones are shortened */
} mp_upstream_config;

/* Limits over all upstreams. */
typedef struct {
    int64_t channels, processes;
    size_t answer;      /* bytes of one message of an upstream */
    size_t queue;       /* bytes of progress and log messages that wait for one request's task */
    int64_t list_items; /* items of one list */
    size_t list_bytes;  /* bytes of one list */
} mp_upstream_limits;

mp_upstream_config *mp_upstream_config_new(mp_str name);
/* Any thread; NULL is allowed in mp_upstream_config_unref. */
mp_upstream_config *mp_upstream_config_ref(mp_upstream_config *config);
void mp_upstream_config_unref(mp_upstream_config *config);
/* Appends the connection part in a canonical form: equal parts give equal bytes. They contain secrets. */
void mp_upstream_config_put_connection(const mp_upstream_config *config, mp_buf *out);

void mp_pairs_free(mp_pair *pairs);

#endif
