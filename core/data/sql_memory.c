/* sql_memory.c: the allocator of SQLite: malloc, counted per account. */
#include "data/sql_memory.h"
#include "data/database.h"
#include <malloc.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdlib.h>

static _Thread_local mp_sql_account *mine;
static _Atomic int64_t heap; /* bytes of all accounts */

/* True if the account of this thread allows `size` more bytes. charge() counts them. */
static bool has_room(int64_t size)
{
    if (mine == NULL)
        return true;
    const char *over = mine->used + size > mine->most                ? "limits.sqlite.memory"
                       : atomic_load(&heap) + size > mine->most_heap ? "limits.sqlite.heap"
                                                                     : NULL;
    if (over != NULL)
        mine->refused_by = over;
    return over == NULL;
}

static void charge(int64_t size)
{
    if (mine == NULL)
        return;
    mine->used += size;
    atomic_fetch_add_explicit(&heap, size, memory_order_relaxed);
}

static int size_of(void *block)
{
    return block == NULL ? 0 : (int)malloc_usable_size(block);
}

static void *MP_NULLABLE allocate(int size)
{
    if (!has_room(size))
        return NULL;
    void *block = malloc((size_t)size);
    charge(size_of(block));
    return block;
}

static void release(void *block)
{
    charge(-size_of(block));
    free(block);
}

static void *MP_NULLABLE resize(void *block, int size)
{
    int before = size_of(block);
    if (size > before && !has_room(size - before))
        return NULL;
    void *moved = realloc(block, (size_t)size);
    if (moved != NULL)
        charge(size_of(moved) - before);
    return moved;
}

static int round_up(int size)
{
    return (size + 7) & ~7;
}

static int start(void *ctx)
{
    (void)ctx;
    return SQLITE_OK;
}

static void stop(void *ctx)
{
    (void)ctx;
}

static void configure(void)
{
    static const sqlite3_mem_methods methods = {allocate, release, resize, size_of, round_up, start, stop, NULL};
    if (sqlite3_config(SQLITE_CONFIG_MALLOC, &methods) != SQLITE_OK)
        abort(); /* SQLite refuses it after its first use: the limits would have no effect */
}

void mp_sql_memory_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, configure);
}

void mp_sql_account_use(mp_sql_account *account)
{
    mine = account;
}
