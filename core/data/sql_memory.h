/* sql_memory.h: limits of the memory that SQLite takes for scripts. The thread of a database has an account, and all
 * memory that SQLite allocates on that thread counts for it: pages, temporary tables, sorting, values. A connection
 * is used by one thread only. */
#ifndef MP_DATA_SQL_MEMORY_H
#define MP_DATA_SQL_MEMORY_H

#include "base/base.h"

typedef struct {
    int64_t used;      /* bytes */
    int64_t most;      /* limit of this account: limits.sqlite.memory */
    int64_t most_heap; /* limit of all accounts of the process */
    /* The name of the limit that refused the last failed allocation. NULL if no allocation failed since the owner
     * set this to NULL. */
    const char *MP_NULLABLE refused_by;
} mp_sql_account;

/* From now on, allocations of SQLite on this thread count for `account`. NULL: they are not counted and not limited. */
void mp_sql_account_use(mp_sql_account *MP_NULLABLE account);

#endif
