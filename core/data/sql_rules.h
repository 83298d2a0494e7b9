/* sql_rules.h: the functions, modules of virtual tables and pragmas that a script's SQL may use. Everything that is
 * not listed is denied. */
#ifndef MP_DATA_SQL_RULES_H
#define MP_DATA_SQL_RULES_H

#include "base/base.h"
#include <sqlite3.h>

typedef enum { MP_SQL_FUNCTION, MP_SQL_MODULE, MP_SQL_PRAGMA } mp_sql_thing;

/* UNKNOWN is denied, too: the linked SQLite has a name that is on neither list. */
typedef enum { MP_SQL_UNKNOWN, MP_SQL_ALLOWED, MP_SQL_DENIED } mp_sql_verdict;

mp_sql_verdict mp_sql_judge(mp_sql_thing thing, const char *name);
/* For sqlite3_set_authorizer: NULL if the SQL is allowed, else the reason. The arguments are those of the
 * authorizer. */
const char *MP_NULLABLE mp_sql_refusal(int action, const char *one, const char *two);
/* Removes or replaces everything that is not allowed in a connection, and sets the connection's limits. Called
 * before any SQL runs. Returns an SQLite error code. */
int mp_sql_restrict(sqlite3 *db);

#endif
