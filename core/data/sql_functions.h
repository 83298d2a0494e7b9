/* sql_functions.h: replacements for SQL functions of SQLite whose time grows with the product of two arguments'
 * lengths. */
#ifndef MP_DATA_SQL_FUNCTIONS_H
#define MP_DATA_SQL_FUNCTIONS_H

#include <sqlite3.h>

/* Registers instr, replace, trim, ltrim and rtrim. Returns an SQLite error code. */
int mp_sql_functions(sqlite3 *db);

#endif
