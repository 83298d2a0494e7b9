/* sql_memory.h: limits of the memory that SQLite takes for scripts. The thread of a database has an account, and all
 * memory that SQLite allocates on that thread counts for it: pages, temporary tables, sorting, values. A connection
 * is used by one thread only. */
#ifndef MP_DATA_SQL_MEMORY_H
#define MP_DATA_SQL_MEMORY_H

#include "base/base.h"

/* Which limit of the gateway has refused a statement or an allocation. */
typedef enum {
    MP_SQL_NOT_REFUSED,
    MP_SQL_OVER_MEMORY,  /* over `most` of the account */
    MP_SQL_OVER_HEAP,    /* over `most_heap` of the account, or the script's part of it */
    MP_SQL_OVER_PREPARE, /* preparing the statement took more than MP_SQL_PREPARE_BYTES */
    MP_SQL_OVER_LENGTH   /* the statement is longer than MP_MAX_STATEMENT_BYTES */
} mp_sql_refused;

typedef struct {
    int64_t used;              /* bytes */
    int64_t most;              /* limit of this account: limits.sqlite.memory */
    int64_t most_heap;         /* limit of all accounts of the process */
    unsigned script;           /* of the script that has opened the database: the number that mp_holdings has of it */
    mp_sql_refused refused_by; /* the limit that has refused an allocation or a statement since the owner reset this */
    /* `used` before the statement that is being prepared, which nothing interrupts; -1: none is being prepared. */
    int64_t prepares_from;
} mp_sql_account;

/* bytes that preparing one statement may take: views and subqueries that refer to each other make a short text grow
 * without a bound. A schema of 10,000 tables takes as many. */
#define MP_SQL_PREPARE_BYTES (16 << 20)

/* From now on, allocations of SQLite on this thread count for `account`. NULL: they are not counted and not limited. */
void mp_sql_account_use(mp_sql_account *MP_NULLABLE account);

#endif
