/* postgres.h: PostgreSQL databases, by libpq.
 *
 *   postgres   the connections of one worker to one database; they are opened when statements need them
 *   lease      a task's place at a connection: it waits for one with its first statement, and has it until it ends
 *   statement  SQL with its parameters, which is sent once; or several that are sent together, as one transaction
 *
 * Everything belongs to the thread of the loop. */
#ifndef MP_POSTGRES_POSTGRES_H
#define MP_POSTGRES_POSTGRES_H

#include "net/net.h"

typedef struct mp_postgres mp_postgres;
typedef struct mp_postgres_lease mp_postgres_lease;

typedef struct {
    const char *host;             /* lower case; or the folder of a Unix socket */
    const char *MP_NULLABLE root; /* of a Unix socket: the path that the socket must lie in, links followed */
    uint16_t port;
    bool is_tls;   /* the server's certificate has to be for the host */
    bool prepares; /* statements are prepared; and settings are sent at the beginning, which a pooler may refuse */
    mp_str database, user, password; /* with a NUL at the end; password: empty: none */
    mp_address_policy policy;
    unsigned holder;    /* number of the script that the connections are for, as of mp_outgoing_take */
    int64_t size;       /* limit of connections */
    int64_t timeout_ms; /* after which the server itself ends a statement */
} mp_postgres_server;

/* `server` is copied. Both must outlive it: `loop` and `client`, which finds addresses. */
mp_postgres *mp_postgres_new(mp_loop *loop, mp_client *client, const mp_postgres_server *server);
/* Closes the connections. All leases must have been freed. */
void mp_postgres_free(mp_postgres *MP_NULLABLE postgres);
/* Waits a moment for requests to cancel statements that are on their way. Call it when no loop runs any more. */
void mp_postgres_stop(void);
int mp_postgres_version(void); /* of libpq, as 150012; 0: there is none. Loads it */

/* How a statement ended. */
typedef enum {
    MP_POSTGRES_WAITS,       /* it has not */
    MP_POSTGRES_DONE,        /* the whole result is there, or the last rows of it */
    MP_POSTGRES_MORE,        /* some rows are there, and mp_postgres_go_on asks for more */
    MP_POSTGRES_FAILED,      /* the server has refused it */
    MP_POSTGRES_UNAVAILABLE, /* it was not sent, and never will be */
    MP_POSTGRES_UNKNOWN,     /* it was sent, and may have run, or may still be running */
} mp_postgres_end;

/* All texts are borrowed until the statement has ended. */
typedef struct {
    const char *sql;
    int count;
    const char *const *values; /* each ends with a zero byte; SQL's null is none */
    const int *lens, *formats; /* as libpq has them: bytes of a value; 1: it is binary */
    const unsigned *types;     /* OIDs; 0: as the server finds out */
} mp_postgres_query;

typedef struct {
    const mp_postgres_query *queries;
    int count;
    bool is_stored; /* the server may keep it prepared */
    bool is_marked; /* it may leave something in its session: nobody else gets the connection */
    size_t fetch;   /* rows that are taken at once; 0: all, within the bounds of a result */
} mp_postgres_statement;

/* Runs `done` once when it has ended, or has rows; perhaps inside mp_postgres_run. It only marks and enqueues. */
mp_postgres_lease *mp_postgres_lease_new(mp_postgres *postgres, void (*done)(void *ctx), void *ctx);
/* Sends the statement, when a connection is free. The last one has ended, as DONE or FAILED. -1: too many wait. */
int mp_postgres_run(mp_postgres_lease *lease, const mp_postgres_statement *statement, mp_err *err);
/* Drops the rows that were taken and goes on with the statement, which stands at MORE. */
void mp_postgres_go_on(mp_postgres_lease *lease);
/* Gives the connection back. What runs is cancelled, and an open transaction is rolled back, before anyone else has
 * it. Returns how the statement stands; `done` will not run. */
mp_postgres_end mp_postgres_lease_free(mp_postgres_lease *lease);

mp_postgres_end mp_postgres_end_of(const mp_postgres_lease *lease);
/* Why it did not end as DONE, and the SQLSTATE, "" if there is none. */
const char *mp_postgres_why(const mp_postgres_lease *lease);
const char *mp_postgres_state(const mp_postgres_lease *lease);

/* What the result consists of, one after another. */
typedef struct {
    enum { MP_POSTGRES_COLUMN, MP_POSTGRES_ROW, MP_POSTGRES_CELL, MP_POSTGRES_NULL, MP_POSTGRES_COUNT } kind;
    mp_str text;    /* of a column its name; of a cell its value, as the server writes it */
    int64_t number; /* of a column the OID of its type; of a count the rows that the query has changed or given */
} mp_postgres_item;

/* A query's columns, its rows and the cells of each, its count; then the next query. NULL: that was the last. */
const char *MP_NULLABLE mp_postgres_items(const mp_postgres_lease *lease);
const char *MP_NULLABLE mp_postgres_next(const mp_postgres_lease *lease, const char *at, mp_postgres_item *item);

/* Listens to a channel, on a connection of its own, which is opened again when it is lost or silent. */
typedef struct mp_postgres_subscription mp_postgres_subscription;

/* Receives the messages of the channel. The functions only mark and enqueue. */
typedef struct {
    void (*message)(void *ctx, mp_str channel, mp_str payload);
    void (*gap)(void *ctx); /* messages may have been missed before the next one: each new connection begins with it */
    void *ctx;
} mp_postgres_reader;

/* `server`, `channel` and `reader` are copied; `loop` and `client` outlive the subscription. */
mp_postgres_subscription *mp_postgres_subscribe(mp_loop *loop, mp_client *client, const mp_postgres_server *server,
                                                mp_str channel, const mp_postgres_reader *reader);
void mp_postgres_subscription_free(mp_postgres_subscription *MP_NULLABLE subscription);

#endif
