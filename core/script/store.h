/* store.h: texts by key that all workers of the process share: sorted, bounded, each with a time after which it is gone.
 * Any thread; the one lock is held for a look-up and a copy. */
#ifndef MP_SCRIPT_STORE_H
#define MP_SCRIPT_STORE_H

#include "script/script.h"

#define MP_STORE_FOREVER UINT64_MAX

typedef enum { MP_STORE_DONE, MP_STORE_THERE, MP_STORE_FULL, MP_STORE_NO_NUMBER } mp_store_result;

/* `life_ms` counts from now; MP_STORE_FOREVER stays. THERE only where `only_new`: the key has a text, which stays. */
mp_store_result mp_store_set(mp_store *store, mp_str key, mp_str text, uint64_t life_ms, bool only_new);
/* Appends the text to `out`; false when there is none. */
bool mp_store_get(mp_store *store, mp_str key, mp_buf *out);
void mp_store_delete(mp_store *store, mp_str key);
/* Appends the first key after `after` (ptr == NULL: the first at all) that begins with `prefix`; false when none does. */
bool mp_store_next(mp_store *store, mp_str prefix, mp_str after, mp_buf *out);
/* Adds to the whole number that the text is, 0 when there is none; an existing one keeps its time. */
mp_store_result mp_store_incr(mp_store *store, mp_str key, int64_t n, uint64_t life_ms, int64_t *sum);
/* Takes one of what a bucket holds: up to `burst`, one more every `interval_us`. DONE; THERE when it is empty, and then one is there
 * in `*wait_us`; or FULL. The text is when the bucket is full again, in microseconds since 1970. */
mp_store_result mp_store_take(mp_store *store, mp_str key, uint64_t interval_us, uint64_t burst, uint64_t *wait_us);
/* Forgets some of what is past its time: cheap when nothing is. */
void mp_store_sweep(mp_store *store);

/* -- for store_file.c: what the file has not seen yet ------------------------------------------------------------ */

typedef struct mp_store_file mp_store_file;

/* From now on changes of keys that begin with one of `prefixes`, NULL-terminated, are remembered for the file. */
void mp_store_track(mp_store *store, mp_store_file *file, const char *const *prefixes);
/* As mp_store_set, of what the file has already. */
mp_store_result mp_store_load(mp_store *store, mp_str key, mp_str text, uint64_t life_ms);

typedef enum { MP_STORE_QUIET, MP_STORE_CHANGED, MP_STORE_CLOSING } mp_store_news;

/* Until something has changed, at most so long; CLOSING once nothing has and mp_store_close was called. */
mp_store_news mp_store_await(mp_store *store, uint64_t most_ms);
/* At most so long, whatever changes; true at once when the store closes. */
bool mp_store_nap(mp_store *store, uint64_t most_ms);
void mp_store_close(mp_store *store);

/* One change, in front of its key and its text. */
typedef struct {
    bool is_gone;
    uint64_t until; /* on the clock of CLOCK_MONOTONIC, in ms, or MP_STORE_FOREVER */
    size_t key_len, len;
} mp_store_change;

/* Appends changes to `out`, at most about so many bytes; gives their number. */
int64_t mp_store_take_changes(mp_store *store, mp_buf *out, size_t most);

/* Writes what is left, closes the file. */
void mp_store_file_close(mp_store_file *file);

#endif
