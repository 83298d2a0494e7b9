/* database.h: an SQLite database of a script, on a thread of its own that runs statements one after another.
 *
 *   statement   SQL with its parameters; after it ran, its result */
#ifndef MP_DATA_DATABASE_H
#define MP_DATA_DATABASE_H

#include "net/net.h"
#include <stdatomic.h>

typedef struct mp_database mp_database;

/* Gives SQLite an allocator that counts memory per database. Call it before the process first uses SQLite; repeating it
 * is harmless. */
void mp_sql_memory_start(void);

#define MP_MAX_SQL_BYTES (1 << 20) /* bytes of SQL, in one text of several statements */
/* bytes of one statement: preparing it compares lists of terms with each other, and nothing interrupts that */
#define MP_MAX_STATEMENT_BYTES (64 << 10)
#define MP_MAX_SQL_PARAMS 1000

#define MP_SQL_ROWS MP_LIMIT(sql_rows, 10000) /* rows of one result */
/* Bytes of one result, of one value, and of the parameters of one statement: a sixteenth of the bytes that all results
 * and parameters may hold. */
#define MP_SQL_BYTES ((size_t)MP_LIMIT(sql_bytes, 16 << 20))

typedef struct {
    size_t memory; /* bytes that SQLite may allocate for one database */
} mp_database_limits;

/* The databases of one worker that were closed and whose threads may still run. */
typedef struct {
    mp_link leaving;
} mp_databases;

typedef enum { MP_SQL_QUERY, MP_SQL_EXEC, MP_SQL_BEGIN, MP_SQL_COMMIT, MP_SQL_ROLLBACK, MP_SQL_CLOSE } mp_sql_kind;

/* One statement. A value in `params` and `result` is a tag and its data: 'i' integer or 'r' real, 8 bytes; 't' text or
 * 'b' blob, the length in 4 bytes and the bytes; 'n' NULL, no data. */
typedef struct mp_statement {
    mp_sql_kind kind;
    bool in_transaction; /* the statement fails if the transaction has ended */
    char *sql;
    mp_buf
        params; /* count in 4 bytes; then for each its name as a text value, empty if it is positional, and its value */
    uint32_t param_count;
    bool has_names;
    size_t held;     /* bytes of the statement in the account sqlite_bytes */
    unsigned script; /* that runs it: a number of mp_holder_number, also of the script that opens a database */

    bool failed;
    mp_buf result; /* if failed, the error; else the number of columns in 4 bytes, their names as texts, the values of
                      the rows */
    uint32_t columns;
    int64_t rows, changes, last_id;

    atomic_bool is_off; /* the statement was cancelled: it ends as soon as it can */
    /* Called on the loop when the statement has run; frees the statement. If the loop has ended, `loop` is NULL,
     * this may be any thread, and the owner is about to cancel the statement. */
    void (*done)(struct mp_statement *statement, mp_loop *MP_NULLABLE loop);
    mp_message message; /* this member and those below are for database.c alone */
    mp_link link;
    mp_loop *loop;
} mp_statement;

/* Makes a handle of the database at `rest` below the folder `root`. `root` may contain symbolic links, `rest` may
 * not; NULL `root`: in memory. The first statement opens the file, and after a CLOSE the next statement. `setup` is
 * SQL that runs when the file is opened. */
mp_database *mp_database_new(const char *MP_NULLABLE root, const char *MP_NULLABLE rest, bool is_read_only,
                             const char *MP_NULLABLE setup, const mp_database_limits *limits, unsigned script);
/* Queues a statement. Returns -1 if too many wait, or too many of its script, or no thread can be started; the
 * statement is then unchanged. A rollback is never refused after a statement was accepted. */
int mp_database_run(mp_database *database, mp_loop *loop, mp_statement *statement);
/* The name of the database's file, without its folder; ":memory:" if there is no file. Valid as long as the
 * database. */
mp_str mp_database_name(const mp_database *database);
/* Cancels all statements, for each of which `done` is called, and closes the database. Returns before that is
 * finished. The caller must not use the database any more. */
void mp_database_leave(mp_databases *all, mp_database *database);
/* The number of closed databases whose threads still run. */
int64_t mp_databases_count(mp_databases *all);
/* Waits until the threads of all closed databases have ended. Called before the loops of their statements are freed. */
void mp_databases_end(mp_databases *all);
/* Sets the bytes that the statement holds. False, counting a refusal, if all statements of the process would hold more
 * than 256 MiB, or those of its script leave too little of them to others. */
bool mp_statement_hold(mp_statement *statement, size_t bytes);
void mp_statement_free(mp_statement *statement);

void mp_sql_put_int(mp_buf *to, int64_t value);
void mp_sql_put_real(mp_buf *to, double value);
/* Appends a value. `tag`: 't' text or 'b' blob. */
void mp_sql_put_bytes(mp_buf *to, char tag, mp_str bytes);
void mp_sql_put_null(mp_buf *to);

#endif
