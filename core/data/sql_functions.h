/* sql_functions.h: SQL functions in the place of SQLite's own, whose work grows with the product of two arguments' lengths. */
#ifndef MP_DATA_SQL_FUNCTIONS_H
#define MP_DATA_SQL_FUNCTIONS_H

#include <sqlite3.h>

/* Registers instr, replace, trim, ltrim and rtrim. An SQLite error code. */
int mp_sql_functions(sqlite3 *db);

#endif
