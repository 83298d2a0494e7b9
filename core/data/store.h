/* store.h: a key-value store that all workers of the process share. Keys are sorted; entries, bytes and lifetimes are
 * bounded.
 * Any thread may call these functions: one lock is held for a look-up and a copy.
 *
 * While a gateway is several processes, as after an upgrade, one of them owns the store, and the others follow it:
 * their operations go to the owner over a Unix socket. An operation waits there for at most 50 ms; then its result is
 * UNKNOWN, and later ones are AWAY at once, until the owner answers again: a stopped owner costs a process one such
 * wait. What is promised of an operation:
 *   - it is done at most once. It is sent again only if it was certainly not done: no whole operation was sent, or the
 *     owner said so
 *   - AWAY: it was not done, and will not be: it was not sent, or the owner said that it came too late
 *   - UNKNOWN: it was sent, and not answered. It may have been done, or be done in the next 40 ms, not later
 *   - one that only reads is AWAY where others are UNKNOWN
 *   - an operation on values of many megabytes may need more than 50 ms, and is UNKNOWN then
 * A store that is handed over takes everything with it: entries, lifetimes, buckets and counters. No operation is lost
 * or done twice by it. */
#ifndef MP_DATA_STORE_H
#define MP_DATA_STORE_H

#include "loop/loop.h"

typedef struct mp_store mp_store;

/* `entries` and `bytes` (of keys and values together) are the store's limits. They are divided among its rooms, see
 * store_rooms.h. */
mp_store *mp_store_new(int64_t entries, size_t bytes);
/* The store of this process alone, whose room is MP_ROOM_NEAR: its operations go to no other process, it is not handed
 * over and not saved. It is created when it is first used, has the limits of `store`, and is freed with it. */
#define MP_STORE_NEAR_PREFIX "near " /* of its keys */
mp_store *mp_store_near(mp_store *store);
/* Changes the limits. Entries that are over the new limits stay. */
void mp_store_limit(mp_store *store, int64_t entries, size_t bytes);
/* Loads the entries of the SQLite file at `path`, and saves later changes there. NULL: the store is in memory only.
 * Call it before any other thread uses the store. After -1 the store may only be freed. */
int mp_store_keep(mp_store *store, const char *MP_NULLABLE path, mp_err *err);
/* Before mp_store_keep or mp_store_keep_later: the file has sessions, their events, and tasks, too. */
void mp_store_save_sessions(mp_store *store);
/* Saves changes that are not in the file yet, then frees the store. A hand-over that runs is broken off. */
void mp_store_free(mp_store *MP_NULLABLE store);

/* -- several processes --------------------------------------------------------------------------------------------- */

/* Serves the store to the other processes of this user, at a Unix socket that is created at `path`, by a thread of its
 * own. While this process does not own the store, they are told who does. */
int mp_store_serve(mp_store *store, const char *path, mp_err *err);
/* From now on operations go to the process that serves `path`; the store has no entries of its own. May be called
 * again, with another path. -1: that process does not answer within a second, and nothing has changed. */
int mp_store_follow(mp_store *store, const char *path, mp_err *err);
/* As mp_store_keep, for a store that another process hands over: the file is opened once this process owns the store.
 * It is not loaded: what differs from the store is written, while the store is used. NULL: the store is in memory
 * only. */
void mp_store_keep_later(mp_store *store, const char *MP_NULLABLE path);
/* Hands the store over to the process that serves `path` and follows this one; then this one follows that. A thread
 * copies the entries while the store is used; for the last ones operations wait some milliseconds. `done` is called by
 * that thread once the file is closed. With `err` nothing has changed: this process owns the store, and the other one
 * has none of it. One hand-over at a time. */
void mp_store_hand_over(mp_store *store, const char *path, void (*done)(void *ctx, const mp_err *MP_NULLABLE err),
                        void *ctx);
bool mp_store_is_own(mp_store *store);
/* Tells a store that follows another process that its owner serves at `path` now. An open connection to the earlier
 * owner brings the same news, but a process that seldom uses the store may have none. */
void mp_store_turn(mp_store *store, const char *path);
/* True while another process hands its store over to this one. Once it is false, mp_store_is_own tells whether this
 * process has the store. */
bool mp_store_arrives(mp_store *store);

/* -- operations ---------------------------------------------------------------------------------------------------- */

#define MP_STORE_FOREVER UINT64_MAX

/* AWAY, UNKNOWN: another process owns the store, and does not answer, see above. */
typedef enum {
    MP_STORE_DONE,
    MP_STORE_THERE,
    MP_STORE_FULL,
    MP_STORE_NO_NUMBER,
    MP_STORE_NONE,
    MP_STORE_AWAY,
    MP_STORE_UNKNOWN
} mp_store_result;

/* Sets the value of a key. The value expires after `life_ms`, or never (MP_STORE_FOREVER). With `only_new`, an
 * existing value stays, and the result is THERE. FULL: a limit of the key's room is reached. */
mp_store_result mp_store_set(mp_store *store, mp_str key, mp_str text, uint64_t life_ms, bool only_new);
/* Appends the value of a key to `out`. NONE: the key has no value. */
mp_store_result mp_store_get(mp_store *store, mp_str key, mp_buf *out);
mp_store_result mp_store_delete(mp_store *store, mp_str key);
/* As mp_store_set, or with ptr NULL in `text` as mp_store_delete, but never waits: while another process owns the
 * store, the change goes into a queue, and is sent to the owner until it answers. FULL: the key's room, or the queue,
 * has no place; the queue always takes the end of a session. One thread at a time for each key. */
mp_store_result mp_store_post(mp_store *store, mp_str key, mp_str text, uint64_t life_ms);
/* `refused` is called, by a thread of the pool, with the key of each session's record that mp_store_post has queued,
 * and that the owner had no place for. `is_there`: it may have another one. Set it while no such thread runs. */
typedef void mp_store_refused(void *ctx, mp_str key, bool is_there);
void mp_store_on_refused(mp_store *store, mp_store_refused *MP_NULLABLE refused, void *MP_NULLABLE ctx);
/* Appends the first keys after `after` (ptr NULL: the first keys) that begin with `prefix`: at most `most`, and about
 * 64 KiB. Each is a uint32_t, its length, and its bytes. Sets `*count` to their number: 0 if there are none. */
mp_store_result mp_store_keys(mp_store *store, mp_str prefix, mp_str after, uint64_t most, mp_buf *out, int64_t *count);
/* ms after which the places of a semaphore (MP_STORE_PLACE) that their process has not reported again are free */
#define MP_STORE_PLACE_MS 5000
/* Calls deliver(&ctx, loop) on the thread of the loop once all changes so far to keys of sessions are in the file of
 * the process that owns the store, or that file cannot be written; at once if there is nothing to wait for. A killed
 * process loses no change that is in the file, a power cut those of the last second. `loop` is NULL if the loop has
 * ended. Any thread. */
void mp_store_when_saved(mp_store *store, mp_loop *loop, void (*deliver)(void *content, mp_loop *MP_NULLABLE loop),
                         void *ctx);
/* As mp_store_when_saved, but waits, a second at most. False: the file lacks changes, or the owner did not answer. */
bool mp_store_await_saved(mp_store *store);
/* Returns when all waits of mp_store_when_saved have ended, after a second at most; later ones end at once. Call it
 * when no loop runs any more, and before the `ctx` of a wait is freed. */
void mp_store_finish_waits(mp_store *store);
/* Frees some expired entries. Cheap if there are none. */
void mp_store_sweep(mp_store *store);
/* Begins to send the queue of mp_store_post to the owner. Cheap if it is empty. `loop` is the caller's own loop. */
void mp_store_send_outgoing(mp_store *store, mp_loop *loop);

/* How full the fullest of the rooms that refuse entries is, from 0 to 1. 0: another process owns the store. */
double mp_store_fullest(mp_store *store);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_store_bytes, mp_stat_store_unsaved;

#endif
