/* store_entry.h: the structs of a store, for store.c, store_changes.c and store_file.c. */
#ifndef MP_DATA_STORE_ENTRY_H
#define MP_DATA_STORE_ENTRY_H

#include "data/store.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

typedef struct mp_store_file mp_store_file;

#define LEVELS 12 /* limit of the levels of the skip list: one entry of four reaches the next level */

typedef struct entry {
    mp_str key;
    char *text;
    size_t len;
    uint64_t until;
    size_t slot;    /* 1-based index in the heap; 0: the entry never expires */
    mp_link change; /* link in store->changed, until the file has the entry's last change */
    bool is_kept;   /* the entry's key has a prefix that is saved to the file */
    bool is_saved;  /* the file may contain the entry */
    int height;
    struct entry *next[];
} entry;

struct mp_store {
    pthread_mutex_t lock;
    int64_t most_entries, entries;
    size_t most_bytes, bytes;
    entry **heap;
    size_t heap_count, heap_cap;
    _Atomic uint64_t first; /* when the first entry expires */
    uint64_t chance;

    mp_store_file *MP_NULLABLE file; /* NULL: the store is in memory only */
    const char *const *prefixes;
    mp_link changed, gone; /* changes that are not in the file: of entries, and of deleted keys */
    pthread_cond_t news;
    bool is_closing;

    entry *heads[LEVELS];
};

/* The time in ms of CLOCK_MONOTONIC. */
static inline uint64_t mp_store_now(void)
{
    return mp_monotonic_ms();
}

static inline uint64_t mp_store_until(uint64_t now, uint64_t life_ms)
{
    return life_ms >= MP_STORE_FOREVER - now ? MP_STORE_FOREVER : now + life_ms;
}

/* Functions of store_changes.c. The caller holds the lock. */
bool mp_store_keeps(const mp_store *store, mp_str key);
void mp_store_note_change(mp_store *store, entry *e);
void mp_store_note_end(mp_store *store, entry *e);
void mp_store_drop_changes(mp_store *store);

/* -- functions for store_file.c: changes that are not in the file yet -------------------------------------------- */

/* From now on, records changes of keys that begin with one of `prefixes` (ends with NULL), for the file. */
void mp_store_track(mp_store *store, mp_store_file *file, const char *const *prefixes);
/* Like mp_store_set, for an entry that was read from the file. */
mp_store_result mp_store_load(mp_store *store, mp_str key, mp_str text, uint64_t life_ms);

typedef enum { MP_STORE_QUIET, MP_STORE_CHANGED, MP_STORE_CLOSING } mp_store_news;

/* Waits for a change, at most `most_ms`. CLOSING: mp_store_close was called, and no change is left. */
mp_store_news mp_store_await(mp_store *store, uint64_t most_ms);
/* Sleeps for `most_ms`. Returns true at once when the store is closed. */
bool mp_store_nap(mp_store *store, uint64_t most_ms);
void mp_store_close(mp_store *store);

/* One change, followed by its key and value. */
typedef struct {
    bool is_gone;
    uint64_t until; /* when it expires: ms of CLOCK_MONOTONIC, or MP_STORE_FOREVER */
    size_t key_len, len;
} mp_store_change;

/* Moves recorded changes to `out`, about `most` bytes. Returns their number. */
int64_t mp_store_take_changes(mp_store *store, mp_buf *out, size_t most);

/* Records every entry with a saved prefix as changed, because the file is a new one. */
void mp_store_change_all(mp_store *store);

/* Writes the remaining changes, and closes the file. */
void mp_store_file_close(mp_store_file *file);

#endif
