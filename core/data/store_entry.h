/* store_entry.h: the structs of a store, for the files store*.c. */
#ifndef MP_DATA_STORE_ENTRY_H
#define MP_DATA_STORE_ENTRY_H

#include "data/store_later.h"
#include "data/store_rooms.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

typedef struct mp_store_file mp_store_file;
typedef struct mp_store_link mp_store_link;
typedef struct mp_store_server mp_store_server;
typedef struct mp_store_move mp_store_move;
typedef struct mp_store_outbox mp_store_outbox;

/* How operations are done on a store that another process owns. */
typedef struct {
    /* Does one, and waits for its result: some 50 ms at most. */
    mp_store_result (*run)(mp_store *store, const mp_store_operation *operation, mp_buf *MP_NULLABLE out,
                           int64_t *MP_NULLABLE n);
    /* Begins one, and returns at once. Its `done` runs on the loop of `later`. */
    void (*begin)(mp_store_later *later);
} mp_store_elsewhere;

#define MP_STORE_PATH 108 /* size of a buffer for the path of a Unix socket */

#define LEVELS 12 /* limit of the levels of the skip list: one entry of four reaches the next level */

typedef struct entry {
    mp_str key;
    char *text;
    size_t len;
    uint64_t until;
    uint64_t rank;        /* the order of the heap, see mp_room_rank */
    size_t slot;          /* 1-based index in the heap of its room; 0: the entry never expires */
    mp_link change;       /* link in a list of changes, until the file has the entry's last change */
    bool is_kept;         /* the entry's key has a prefix that is saved to the file */
    bool is_saved;        /* the file may contain the entry */
    uint8_t height, room; /* `room`: its mp_room_id */
    uint32_t moved;       /* equal to store->moves: the key is in the journal of the running hand-over */
    struct entry *next[];
} entry;

/* Changes that are not in the file: of entries, and of deleted keys, each list in the order of the changes. */
typedef struct {
    mp_link changed, gone;
} mp_store_changes;

struct mp_store {
    pthread_mutex_t lock;
    int64_t most_entries, entries;
    size_t most_bytes, bytes;
    mp_room rooms[MP_ROOMS];
    _Atomic uint64_t first; /* when the first entry expires */
    uint64_t chance;

    mp_store_file *MP_NULLABLE file; /* NULL: the store is in memory only */
    bool is_tracked;                 /* changes are recorded for a file */
    bool saves_sessions;             /* also those of the keys that are saved with sessions */
    mp_store_changes urgent, others; /* urgent: clients may wait for them; they are written first */
    /* numbers of urgent changes: all so far, those up to the batch that is being written, and those in the file */
    uint64_t urgent_noted, urgent_taken, urgent_written;
    pthread_cond_t news;
    bool is_closing;
    /* waits of mp_store_when_saved, the oldest first: `waiters` for changes that no batch has yet, `written` for those
     * of the batch that is being written, or sent to the process that owns the store */
    mp_link waiters, written;
    atomic_int waiting; /* how many wait */
    bool is_saving;     /* the file is open, and its last write has not failed */
    bool is_late;       /* the disk, or the owner, takes long: no wait begins until the next write is done */
    bool is_ending;     /* the process ends: no wait begins any more */

    atomic_bool is_own;        /* this process owns the store: is changed under the lock */
    mp_buf *MP_NULLABLE moved; /* while entries are handed over: the keys that change meanwhile, see store_move.c */
    size_t most_moved;         /* limit of the bytes of `moved` */
    bool is_moved_full;
    uint32_t moves;          /* number of hand-overs that were begun */
    mp_store_link *link;     /* connection to the process that owns the store */
    mp_store_outbox *outbox; /* changes that the process which owns the store has not taken yet */
    mp_store_refused *MP_NULLABLE on_refused;
    void *MP_NULLABLE refused_ctx;
    _Atomic(mp_store *MP_NULLABLE) near; /* see mp_store_near */
    const mp_store_elsewhere *elsewhere; /* how its operations are done while this process does not own it */
    mp_store_server *MP_NULLABLE server;
    mp_store_move *MP_NULLABLE move;

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
void mp_store_note_change(mp_store *store, entry *e);
void mp_store_note_end(mp_store *store, entry *e);
/* Moves recorded changes to `to`, which has none; frees them. */
void mp_store_move_changes(mp_store_changes *from, mp_store_changes *to);
void mp_store_drop_changes(mp_store_changes *changes);

/* Functions of store.c. The caller holds the lock. */
uint64_t mp_store_first(const mp_store *store); /* when the first entry expires, or UINT64_MAX */
entry *MP_NULLABLE mp_store_find_after(mp_store *store, mp_str key, bool is_after);
entry *mp_store_put_back(mp_store *store, mp_str key, mp_str text, uint64_t until);
void mp_store_forget(mp_store *store, entry *e);

/* -- functions for store_file.c: changes that are not in the file yet -------------------------------------------- */

/* From now on, records changes of the keys that the file has (mp_store_prefix), for the file. */
void mp_store_track(mp_store *store, mp_store_file *file);
/* Like mp_store_set, for an entry that was read from the file: it may be more than its room takes. FULL: scripts have
 * more than the limits of the whole store. */
mp_store_result mp_store_load(mp_store *store, mp_str key, mp_str text, uint64_t life_ms);

typedef enum { MP_STORE_QUIET, MP_STORE_CHANGED, MP_STORE_CLOSING } mp_store_news;

/* Waits for a change, at most `most_ms`. CLOSING: mp_store_close was called, and no change is left. */
mp_store_news mp_store_await(mp_store *store, uint64_t most_ms);
/* Sleeps for `most_ms`, or until somebody waits for the file. Returns true at once when the store is closed. */
bool mp_store_nap(mp_store *store, uint64_t most_ms);
/* Changes whether the file can be written. With false, nobody waits for it any more. */
void mp_store_set_saving(mp_store *store, bool is_saving);
/* Call it when changes were taken: if no urgent one is left, the waits so far are for these. True if there are such
 * waits, or none may begin because the file is late. */
bool mp_store_take_waiters(mp_store *store);
/* The changes that were taken are in the file, here or of the owner: ends the waits for them. */
void mp_store_tell_written(mp_store *store);
/* Tells those who wait if one has waited for too long. */
void mp_store_tell_late(mp_store *store);
void mp_store_close(mp_store *store);
/* ms; a disk or an owner that takes longer is in trouble, and clients do not wait for it */
#define MP_STORE_LATE_MS 1000
/* As MP_STORE_SAVED. The caller holds the lock. */
mp_store_result mp_store_is_saved(const mp_store *store, uint64_t change, bool is_certain, uint64_t *number);

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

/* A row of the file, for a store that was handed over: what differs is recorded as a change. */
void mp_store_compare(mp_store *store, mp_str key, mp_str text, uint64_t until);
/* Records as changed some of the entries after `*after` that were compared with no row of the file; sets `*after` to
 * the last entry that it looked at. False: there are no more. */
bool mp_store_change_new(mp_store *store, mp_buf *after);

/* Begins to write the file of mp_store_keep_later, now that this process owns the store. */
void mp_store_file_adopt(mp_store_file *file);
/* Writes the remaining changes and closes the file. If another process owns the store, that process writes the changes
 * that are not in the file. */
void mp_store_file_close(mp_store_file *file);

#endif
