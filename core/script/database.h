/* database.h: an SQLite database on a thread of its own, which runs what it is given, in order.
 *
 *   statement   one piece of SQL with its parameters, and then what it gave */
#ifndef MP_SCRIPT_DATABASE_H
#define MP_SCRIPT_DATABASE_H

#include "net/net.h"
#include <stdatomic.h>

typedef struct mp_database mp_database;

typedef struct {
    int64_t rows; /* of one result */
    size_t bytes; /* of one result, one value */
    uint64_t busy_ms;
    int64_t queue; /* statements that wait */
} mp_database_limits;

typedef enum { MP_SQL_QUERY, MP_SQL_EXEC, MP_SQL_BEGIN, MP_SQL_COMMIT, MP_SQL_ROLLBACK, MP_SQL_CLOSE } mp_sql_kind;

/* Values, in parameters and results: a tag, then 8 bytes (i, r) or their count in 4 bytes and themselves (t, b); 'n' alone. */
typedef struct mp_statement {
    mp_sql_kind kind;
    bool in_transaction; /* it fails where that is over */
    char *sql;
    mp_buf params; /* count in 4 bytes; each with a text before it, its name, which is empty for positional ones */
    uint32_t param_count;
    bool has_names;

    bool failed;
    mp_buf result; /* what went wrong; or: columns' count in 4 bytes, their names as texts, the rows' values */
    uint32_t columns;
    int64_t rows, changes, last_id;

    atomic_bool is_off; /* nobody waits for it: it ends as soon as it can */
    /* On the loop; the time to free it. `loop` is NULL when that has ended: then it may be any thread, and whoever waited may be
     * about to call it off. */
    void (*done)(struct mp_statement *statement, mp_loop *loop);
    mp_message message; /* these are the database's */
    mp_link link;
    mp_loop *loop;
} mp_statement;

/* `root` is resolved as it is, `rest` below it through no symbolic link; a NULL `root` is a database in memory. Nothing is
 * opened before the first statement, nor after one that closes before the next. `setup` runs as it opens. */
mp_database *mp_database_new(const char *root, const char *rest, bool is_read_only, const char *setup,
                             const mp_database_limits *limits);
/* -1: too many wait, or no thread can be had; nothing has happened. A rollback always finds room, where others did. */
int mp_database_run(mp_database *database, mp_loop *loop, mp_statement *statement);
/* Ends what runs, drops what waits (each is done), closes. */
void mp_database_free(mp_database *database);

void mp_statement_free(mp_statement *statement);

void mp_sql_put_int(mp_buf *to, int64_t value);
void mp_sql_put_real(mp_buf *to, double value);
/* `tag`: 't' or 'b'. */
void mp_sql_put_bytes(mp_buf *to, char tag, mp_str bytes);
void mp_sql_put_null(mp_buf *to);

#endif
