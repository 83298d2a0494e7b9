/* sql.h: a statement as SQLite runs it, on the thread of its database. */
#ifndef MP_DATA_SQL_H
#define MP_DATA_SQL_H

#include "data/database.h"
#include "data/sql_memory.h"
#include <sqlite3.h>

#define MP_SQL_CACHED 32

/* Prepared statements, the last used first. */
typedef struct {
    sqlite3_stmt *of[MP_SQL_CACHED];
    int count;
} mp_sql_cache;

void mp_sql_cache_clear(mp_sql_cache *cache);
/* Runs statements without parameters or results. Returns SQLite's code. */
int mp_sql_exec(sqlite3 *db, const char *sql, mp_sql_account *account);
/* Runs the statement, and sets its result. -1 if it failed. */
int mp_sql_run(sqlite3 *db, mp_sql_cache *cache, mp_statement *statement, mp_sql_account *account);
/* The last error of the connection as a text. If memory ran out, it names the limit. */
const char *mp_sql_words(sqlite3 *db, mp_sql_account *account);
/* Sets the statement's result to an error. Gives -1. */
int mp_sql_fail(mp_statement *statement, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
