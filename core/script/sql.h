/* sql.h: a statement as SQLite runs it, on the thread of its database. */
#ifndef MP_SCRIPT_SQL_H
#define MP_SCRIPT_SQL_H

#include "script/database.h"
#include <sqlite3.h>

#define MP_SQL_CACHED 32

/* Prepared statements, the last used first. */
typedef struct {
    sqlite3_stmt *of[MP_SQL_CACHED];
    int count;
} mp_sql_cache;

void mp_sql_cache_clear(mp_sql_cache *cache);
/* Fills the result. -1 when it failed. */
int mp_sql_run(sqlite3 *db, mp_sql_cache *cache, mp_statement *statement, const mp_database_limits *limits);
/* Instead of a result: why there is none. Gives -1. */
int mp_sql_fail(mp_statement *statement, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
