/* sql_memory.c: the allocator of SQLite: malloc, counted per account. */
#include "data/sql_memory.h"
#include "data/database.h"
#include <malloc.h>
#include <sqlite3.h>

MP_ACCOUNT(sqlite_heap_bytes, "sqlite_heap_bytes", "", "",
           "bytes that SQLite has allocated for the databases of scripts")

MP_REFUSED(refused_sqlite_heap, "sqlite_heap", MP_LIMIT_REACHED,
           "SQL statements for which the databases of all scripts, or those of their script, hold too much memory")

#define KEPT 8 /* scripts share the last eighth of the memory: each takes as much of it as it leaves to others */

static mp_holdings holdings; /* the bytes of each script's databases */

static _Thread_local mp_sql_account *MP_NULLABLE mine;

MP_REFUSED(refused_sqlite_prepare, "sqlite_prepare", MP_LIMIT_REACHED,
           "SQL statements that take more than 16 MiB of memory to prepare")

/* Counts `size` bytes more for this thread. False if one of the limits has no room for them. */
static bool take_bytes(int64_t size)
{
    mp_sql_account *own = mine;
    if (own == NULL)
        return true;
    bool is_over = own->prepares_from >= 0 && own->used + size - own->prepares_from > MP_SQL_PREPARE_BYTES;
    mp_sql_refused over = is_over                        ? MP_SQL_OVER_PREPARE
                          : own->used + size > own->most ? MP_SQL_OVER_MEMORY
                                                         : MP_SQL_NOT_REFUSED;
    mp_stat_add(&mp_stat_refused_sqlite_prepare, is_over && own->refused_by == MP_SQL_NOT_REFUSED);
    if (over == MP_SQL_NOT_REFUSED && !mp_holdings_take(&holdings, &mp_account_sqlite_heap_bytes, own->script, size,
                                                        own->most_heap, own->most_heap / KEPT)) {
        mp_stat_add(&mp_stat_refused_sqlite_heap, own->refused_by == MP_SQL_NOT_REFUSED);
        over = MP_SQL_OVER_HEAP;
    }
    if (over != MP_SQL_NOT_REFUSED)
        own->refused_by = over;
    else
        own->used += size;
    return over == MP_SQL_NOT_REFUSED;
}

/* Counts memory that SQLite allocates or frees without a check of the limit. */
static void count_bytes(int64_t size)
{
    if (mine == NULL || size == 0)
        return;
    mine->used += size;
    mp_holdings_give(&holdings, &mp_account_sqlite_heap_bytes, mine->script, -size);
}

static int size_of(void *MP_NULLABLE block)
{
    return block == NULL ? 0 : (int)malloc_usable_size(block);
}

static void *MP_NULLABLE allocate_block(int size)
{
    if (!take_bytes(size))
        return NULL;
    void *block = malloc((size_t)size);
    count_bytes(size_of(block) - size); /* malloc has returned a block of another size, or none */
    return block;
}

static void release_block(void *block)
{
    count_bytes(-size_of(block));
    free(block);
}

static void *MP_NULLABLE resize_block(void *MP_NULLABLE block, int size)
{
    int before = size_of(block), more = size > before ? size - before : 0;
    if (more > 0 && !take_bytes(more))
        return NULL;
    void *moved = realloc(block, (size_t)size);
    count_bytes((moved == NULL ? before : size_of(moved)) - before - more);
    return moved;
}

static int round_up(int size)
{
    return (size + 7) & ~7;
}

static int start_memory(MP_UNUSED void *ctx)
{
    return SQLITE_OK;
}

static void stop(MP_UNUSED void *ctx) {}

static void configure_memory(void)
{
    static const sqlite3_mem_methods methods = {allocate_block, release_block, resize_block, size_of,
                                                round_up,       start_memory,  stop,         NULL};
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK)
        abort(); /* SQLite refuses it after its first use: the limits would have no effect */
}

void mp_sql_memory_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure_memory);
}

void mp_sql_account_use(mp_sql_account *MP_NULLABLE account)
{
    mine = account;
}
