/* connection.h: one connection of a pool, and the statement that runs on it; for pool.c. */
#ifndef MP_POSTGRES_CONNECTION_H
#define MP_POSTGRES_CONNECTION_H

#include "library.h"
#include "postgres.h"

#define MP_PREPARED 64 /* statements of one connection: what the server keeps of each is some 10 KB */

typedef struct mp_postgres_connection mp_postgres_connection;

/* Receives the notifications of a connection that a lease keeps. Its functions only mark and enqueue. */
typedef struct {
    void (*notified)(void *ctx, const char *channel, const char *payload);
    void (*lost)(void *ctx); /* a connection of the pool was lost */
    void *ctx;
} mp_postgres_listener;

struct mp_postgres {
    mp_loop *loop;
    mp_client *client;
    mp_postgres_server server; /* owns its texts */
    mp_link connections;       /* the one that was used last is first */
    mp_link waiting;           /* leases, the oldest first */
    int64_t count, opening;    /* connections; those that are being opened */
    int64_t queued;            /* leases in `waiting` */
    uint64_t retry_at;         /* ms: when the next connection may be opened */
    uint64_t pause_ms;
    bool is_down; /* a line of the log has said so */
    mp_err why;   /* of the last failure */
    const mp_postgres_listener *MP_NULLABLE listener;
};

struct mp_postgres_lease {
    mp_link link; /* in postgres->waiting */
    mp_postgres *pool;
    mp_postgres_connection *MP_NULLABLE of; /* NULL: it waits for one, or has lost it */
    mp_postgres_statement statement;
    bool is_sent, had_connection, is_marked;
    int tries; /* connections that were lost before the statement was sent */
    mp_postgres_end end;
    mp_buf result;
    size_t rows, held; /* rows of the statement so far; bytes of `result` that are counted */
    bool has_columns;  /* `result` has those of the present query */
    char *MP_NULLABLE why;
    char state[6];
    void (*done)(void *ctx);
    void *ctx;
};

/* What the connection waits for. */
typedef enum { NOTHING, DEALLOCATING, PREPARING, RUNNING, ROLLING_BACK } mp_postgres_step;

typedef struct {
    char *MP_NULLABLE sql;       /* NULL: it is not prepared, or of no use any more */
    unsigned *MP_NULLABLE types; /* OIDs of its parameters, with which it was prepared; NULL as `sql` */
    int count;                   /* of its parameters */
    bool is_prepared;            /* the server has one of this name */
    uint64_t used;
} mp_prepared;

struct mp_postgres_connection {
    mp_link link;
    mp_postgres *pool;
    mp_dial *MP_NULLABLE dial;
    mp_errand *MP_NULLABLE errand; /* that opens it, or cancels its statement */
    PGconn *MP_NULLABLE conn;      /* NULL: it is being opened */
    mp_gate gate;
    mp_fdwatch watch;
    uint32_t events;
    mp_timer timer;                       /* of an unused connection, or of one that is set apart */
    int counted;                          /* its descriptors that mp_outgoing_take has counted */
    bool is_apart;                        /* it ends a statement or a transaction that nobody waits for */
    mp_postgres_lease *MP_NULLABLE lease; /* that has it */
    uint64_t ends_at;                     /* ms: how old it gets */
    mp_postgres_step step;
    int queries; /* of a pipeline whose results are missing */
    bool is_pipeline;
    bool is_paused;                    /* its lease has not taken the rows yet */
    bool is_spoiled;                   /* it must be closed instead of being used again */
    bool has_failed;                   /* the step has */
    size_t loose;                      /* bytes that have come and belong to no row, error or notification yet */
    size_t noise;                      /* such bytes of earlier steps, which may be kept as long as the connection */
    mp_prepared *MP_NULLABLE prepared; /* the one that the step is about */
    uint64_t uses;
    mp_prepared statements[MP_PREPARED];
};

/* Frees what is known of the statement. `is_prepared`: the server still has it. */
void mp_postgres_forget(mp_prepared *prepared, bool is_prepared);
/* Begins the statement of its lease. False: the connection is lost, and freed. */
void mp_postgres_begin(mp_postgres_connection *it);
/* The receiver of a connection's notices, with the connection as `ctx`; that of libpq writes to the standard error. */
void mp_postgres_take_notice(void *ctx, const PGresult *notice);
/* Reads what is there, and sends and watches what is left. */
void mp_postgres_go(mp_postgres_connection *it);
/* Sends a rollback. */
void mp_postgres_roll_back(mp_postgres_connection *it);
void mp_postgres_drop_result(mp_postgres_lease *lease);
void mp_postgres_end_statement(mp_postgres_lease *lease, mp_postgres_end end, const char *MP_NULLABLE why);

/* Of pool.c. The connection has failed: frees it. */
void mp_postgres_lose(mp_postgres_connection *it, const char *why);
/* It has nothing to do, and no lease. */
void mp_postgres_settle(mp_postgres_connection *it);

#endif
