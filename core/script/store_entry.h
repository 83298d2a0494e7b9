/* store_entry.h: what is in a store, as its own files see it. */
#ifndef MP_SCRIPT_STORE_ENTRY_H
#define MP_SCRIPT_STORE_ENTRY_H

#include "script/store.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#define LEVELS 12 /* of four entries one reaches the level above */

typedef struct entry {
    mp_str key;
    char *text;
    size_t len;
    uint64_t until;
    size_t slot;    /* 1-based place in the heap; 0: stays */
    mp_link change; /* in store->changed, when the file has not seen its last change */
    bool is_kept;   /* in the file, once it has been written there */
    bool is_saved;  /* the file may have it */
    int height;
    struct entry *next[];
} entry;

struct mp_store {
    pthread_mutex_t lock;
    int64_t most_entries, entries;
    size_t most_bytes, bytes;
    entry **heap;
    size_t heap_count, heap_cap;
    _Atomic uint64_t first; /* when the first expires */
    uint64_t chance;

    mp_store_file *file; /* NULL: in memory alone */
    const char *const *prefixes;
    mp_link changed, gone; /* what the file has not seen: entries, and before them keys that are no more */
    pthread_cond_t news;
    bool is_closing;

    entry *heads[LEVELS];
};

/* ms of CLOCK_MONOTONIC. */
static inline uint64_t mp_store_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static inline uint64_t mp_store_until(uint64_t now, uint64_t life_ms)
{
    return life_ms >= MP_STORE_FOREVER - now ? MP_STORE_FOREVER : now + life_ms;
}

/* store_changes.c, all under the lock. */
bool mp_store_keeps(const mp_store *store, mp_str key);
void mp_store_note_change(mp_store *store, entry *e);
void mp_store_note_end(mp_store *store, entry *e);
void mp_store_drop_changes(mp_store *store);

#endif
