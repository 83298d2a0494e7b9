/* store.h: a key-value store that all workers of the process share. Keys are sorted; entries, bytes and lifetimes are bounded.
 * Any thread may call these functions: one lock is held for a look-up and a copy. */
#ifndef MP_DATA_STORE_H
#define MP_DATA_STORE_H

#include "telemetry/telemetry.h"

typedef struct mp_store mp_store;

/* `entries` and `bytes` (of keys and values together) are the store's limits. */
mp_store *mp_store_new(int64_t entries, size_t bytes);
/* Changes the limits. Entries that are over the new limits stay. */
void mp_store_limit(mp_store *store, int64_t entries, size_t bytes);
/* Loads the entries of the SQLite file at `path`, and saves later changes there. NULL: the store is in memory only. Call it before
 * any other thread uses the store. After -1 the store may only be freed. */
int mp_store_keep(mp_store *store, const char *MP_NULLABLE path, mp_err *err);
/* Saves changes that are not in the file yet, then frees the store. */
void mp_store_free(mp_store *MP_NULLABLE store);

#define MP_STORE_FOREVER UINT64_MAX

typedef enum { MP_STORE_DONE, MP_STORE_THERE, MP_STORE_FULL, MP_STORE_NO_NUMBER } mp_store_result;

/* Sets the value of a key. The value expires after `life_ms`, or never (MP_STORE_FOREVER). With `only_new`, an
 * existing value stays, and the result is THERE. FULL: a limit of the store is reached. */
mp_store_result mp_store_set(mp_store *store, mp_str key, mp_str text, uint64_t life_ms, bool only_new);
/* Appends the value of a key to `out`. False if the key has no value. */
bool mp_store_get(mp_store *store, mp_str key, mp_buf *out);
/* Replaces the value of a key if it equals `old`; the value expires when the old one would have. THERE: the key has another value, or none. */
mp_store_result mp_store_replace(mp_store *store, mp_str key, mp_str old, mp_str text);
void mp_store_delete(mp_store *store, mp_str key);
/* Appends the first key after `after` (ptr NULL: the first key) that begins with `prefix`. False if there is none. */
bool mp_store_next(mp_store *store, mp_str prefix, mp_str after, mp_buf *out);
/* Adds `n` to the value of the key, an integer; a key without a value counts as 0. `life_ms` applies to a new value
 * only. NO_NUMBER: the value is not an integer. */
mp_store_result mp_store_incr(mp_store *store, mp_str key, int64_t n, uint64_t life_ms, int64_t *sum);
/* Takes a token from a bucket that holds up to `burst` tokens and gets one more every `interval_us`. DONE: the token
 * was taken. THERE: the bucket is empty, and gets a token in `*wait_us`. FULL: a limit of the store is reached. The
 * value of the key is the time when the bucket is full again, in microseconds since 1970. */
mp_store_result mp_store_take(mp_store *store, mp_str key, uint64_t interval_us, uint64_t burst, uint64_t *wait_us);
/* Frees some expired entries. Cheap if there are none. */
void mp_store_sweep(mp_store *store);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_store_bytes, mp_stat_store_unsaved;

#endif
