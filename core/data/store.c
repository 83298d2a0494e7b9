/* store.c: a skip list of all entries, sorted by key, and a heap of those that expire. An expired entry is never returned. Later calls free
 * expired entries, a few at a time. */
#include "data/store_entry.h"
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

MP_GAUGE(store_entries, "store_entries", "", "", "entries of the store")
MP_GAUGE(store_bytes, "store_bytes", "", "", "bytes of keys and values in the store")

#define MAX_SWEPT 64 /* limit of the expired entries that one call frees */

mp_store *mp_store_new(int64_t entries, size_t bytes)
{
    mp_store *store = mp_new(sizeof *store);
    pthread_mutex_init(&store->lock, NULL);
    store->most_entries = entries;
    store->most_bytes = bytes;
    atomic_init(&store->first, UINT64_MAX);
    if (getrandom(&store->chance, sizeof store->chance, GRND_NONBLOCK) < 0)
        store->chance = mp_store_now();
    store->chance |= 1;
    mp_link_init(&store->changed);
    mp_link_init(&store->gone);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&store->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return store;
}

void mp_store_limit(mp_store *store, int64_t entries, size_t bytes)
{
    pthread_mutex_lock(&store->lock);
    store->most_entries = entries;
    store->most_bytes = bytes;
    pthread_mutex_unlock(&store->lock);
}

static void entry_free(entry *e)
{
    free(e->text);
    free(e);
}

void mp_store_free(mp_store *MP_NULLABLE store)
{
    if (store == NULL)
        return;
    if (store->file != NULL)
        mp_store_file_close(store->file);
    for (entry *e = store->heads[0], *next; e != NULL; e = next) {
        next = e->next[0];
        entry_free(e);
    }
    mp_stat_add(&mp_stat_store_entries, -store->entries);
    mp_stat_add(&mp_stat_store_bytes, -(int64_t)store->bytes);
    free(store->heap);
    mp_store_drop_changes(store);
    pthread_cond_destroy(&store->news);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* -- order ----------------------------------------------------------------------------------------------------- */

static int compare(mp_str a, mp_str b)
{
    size_t least = a.len < b.len ? a.len : b.len;
    int order = least == 0 ? 0 : memcmp(a.ptr, b.ptr, least);
    return order != 0 ? order : (a.len > b.len) - (a.len < b.len);
}

/* Finds, on every level, the link to the first entry that is not before `key`. Returns that entry. */
static entry *find_place(mp_store *store, mp_str key, entry **places[LEVELS])
{
    entry **row = store->heads;
    for (int level = LEVELS - 1; level >= 0; level--) {
        while (row[level] != NULL && compare(row[level]->key, key) < 0)
            row = row[level]->next;
        places[level] = &row[level];
    }
    return *places[0];
}

static int random_height(mp_store *store)
{
    store->chance ^= store->chance << 13;
    store->chance ^= store->chance >> 7;
    store->chance ^= store->chance << 17;
    int height = 1;
    for (uint64_t bits = store->chance; height < LEVELS && (bits & 3) == 0; bits >>= 2)
        height++;
    return height;
}

/* -- time ------------------------------------------------------------------------------------------------------ */

static void place(mp_store *store, entry *e, size_t index)
{
    store->heap[index] = e;
    e->slot = index + 1;
}

static void settle(mp_store *store, entry *e, size_t index)
{
    for (size_t parent; index > 0 && store->heap[parent = (index - 1) / 2]->until > e->until; index = parent)
        place(store, store->heap[parent], index);
    for (size_t child; (child = index * 2 + 1) < store->heap_count; index = child) {
        if (child + 1 < store->heap_count && store->heap[child + 1]->until < store->heap[child]->until)
            child++;
        if (e->until <= store->heap[child]->until)
            break;
        place(store, store->heap[child], index);
    }
    place(store, e, index);
}

static void stop_clock(mp_store *store, entry *e)
{
    if (e->slot == 0)
        return;
    size_t index = e->slot - 1;
    entry *last = store->heap[--store->heap_count];
    if (last != e)
        settle(store, last, index);
    e->slot = 0;
}

static void start_clock(mp_store *store, entry *e, uint64_t until)
{
    stop_clock(store, e);
    e->until = until;
    if (until == UINT64_MAX)
        return;
    if (store->heap_count == store->heap_cap) {
        store->heap_cap = store->heap_cap == 0 ? 64 : store->heap_cap * 2;
        store->heap = mp_resize(store->heap, store->heap_cap * sizeof *store->heap);
    }
    settle(store, e, store->heap_count++);
}

static void count(mp_store *store, int64_t entries, int64_t bytes)
{
    store->entries += entries;
    store->bytes += (size_t)bytes;
    mp_stat_add(&mp_stat_store_entries, entries);
    mp_stat_add(&mp_stat_store_bytes, bytes);
}

static void forget(mp_store *store, entry *e)
{
    mp_store_note_end(store, e);
    entry **places[LEVELS];
    find_place(store, e->key, places);
    for (int level = 0; level < e->height; level++)
        *places[level] = e->next[level];
    stop_clock(store, e);
    count(store, -1, -(int64_t)(e->key.len + e->len));
    entry_free(e);
}

/* Frees one expired entry. False if there is none. */
static bool forget_one(mp_store *store, uint64_t now)
{
    if (store->heap_count == 0 || store->heap[0]->until > now)
        return false;
    forget(store, store->heap[0]);
    return true;
}

static void enter(mp_store *store)
{
    pthread_mutex_lock(&store->lock);
}

static void leave(mp_store *store)
{
    atomic_store_explicit(&store->first, store->heap_count == 0 ? UINT64_MAX : store->heap[0]->until,
                          memory_order_relaxed);
    pthread_mutex_unlock(&store->lock);
}

void mp_store_sweep(mp_store *store)
{
    uint64_t first = atomic_load_explicit(&store->first, memory_order_relaxed), now;
    if (first == UINT64_MAX || first > (now = mp_store_now()))
        return;
    enter(store);
    for (int i = 0; i < MAX_SWEPT && forget_one(store, now); i++)
        continue;
    leave(store);
}

/* -- operations of callers ------------------------------------------------------------------------------------- */

/* The entry of `key`, or NULL. An expired entry is freed. */
static entry *MP_NULLABLE find(mp_store *store, mp_str key, uint64_t now)
{
    entry **places[LEVELS];
    entry *e = find_place(store, key, places);
    if (e == NULL || compare(e->key, key) != 0)
        return NULL;
    if (e->until > now)
        return e;
    forget(store, e);
    return NULL;
}

/* True if the new bytes fit the limits. Frees expired entries to make room. */
static bool has_room(mp_store *store, int64_t entries, size_t old_bytes, size_t bytes, uint64_t now)
{
    do {
        size_t others = store->bytes - old_bytes;
        if (store->entries + entries <= store->most_entries && bytes <= store->most_bytes &&
            others <= store->most_bytes - bytes)
            return true;
    } while (forget_one(store, now));
    return false;
}

static entry *add(mp_store *store, mp_str key)
{
    int height = random_height(store);
    size_t links = (size_t)height * sizeof(entry *);
    entry *e = mp_new(sizeof *e + links + key.len);
    char *bytes = (char *)e + sizeof *e + links;
    if (key.len > 0)
        memcpy(bytes, key.ptr, key.len);
    e->key = (mp_str){bytes, key.len};
    e->until = UINT64_MAX;
    e->height = height;
    e->is_kept = mp_store_keeps(store, key);
    mp_link_init(&e->change);
    entry **places[LEVELS];
    find_place(store, key, places);
    for (int level = 0; level < height; level++) {
        e->next[level] = *places[level];
        *places[level] = e;
    }
    count(store, 1, (int64_t)key.len);
    return e;
}

/* Sets the value of `*at`, the entry of the key. NULL: makes the entry. */
static mp_store_result put(mp_store *store, entry *MP_NULLABLE *at, mp_str key, mp_str text, uint64_t now)
{
    entry *old = *at;
    if (!has_room(store, old == NULL ? 1 : 0, old == NULL ? 0 : key.len + old->len, key.len + text.len, now))
        return MP_STORE_FULL;
    entry *e = *at = old != NULL ? old : add(store, key);
    count(store, 0, (int64_t)text.len - (int64_t)e->len);
    free(e->text);
    e->text = mp_dup(text);
    e->len = text.len;
    return MP_STORE_DONE;
}

mp_store_result mp_store_set(mp_store *store, mp_str key, mp_str text, uint64_t life_ms, bool only_new)
{
    uint64_t now = mp_store_now();
    enter(store);
    entry *e = find(store, key, now);
    mp_store_result result = e != NULL && only_new ? MP_STORE_THERE : put(store, &e, key, text, now);
    if (result == MP_STORE_DONE) {
        start_clock(store, e, mp_store_until(now, life_ms));
        mp_store_note_change(store, e);
    }
    leave(store);
    return result;
}

mp_store_result mp_store_replace(mp_store *store, mp_str key, mp_str old, mp_str text)
{
    uint64_t now = mp_store_now();
    enter(store);
    entry *e = find(store, key, now);
    mp_store_result result = MP_STORE_THERE;
    if (e != NULL && compare((mp_str){e->text, e->len}, old) == 0)
        result = put(store, &e, key, text, now);
    if (result == MP_STORE_DONE)
        mp_store_note_change(store, e);
    leave(store);
    return result;
}

mp_store_result mp_store_load(mp_store *store, mp_str key, mp_str text, uint64_t life_ms)
{
    uint64_t now = mp_store_now();
    enter(store);
    entry *e = find(store, key, now);
    mp_store_result result = put(store, &e, key, text, now);
    if (result == MP_STORE_DONE) {
        start_clock(store, e, mp_store_until(now, life_ms));
        e->is_saved = true;
    }
    leave(store);
    return result;
}

bool mp_store_get(mp_store *store, mp_str key, mp_buf *out)
{
    enter(store);
    const entry *e = find(store, key, mp_store_now());
    if (e != NULL)
        mp_buf_put(out, (mp_str){e->text, e->len});
    leave(store);
    return e != NULL;
}

void mp_store_delete(mp_store *store, mp_str key)
{
    enter(store);
    entry *e = find(store, key, mp_store_now());
    if (e != NULL)
        forget(store, e);
    leave(store);
}

bool mp_store_next(mp_store *store, mp_str prefix, mp_str after, mp_buf *out)
{
    uint64_t now = mp_store_now();
    bool starts = after.ptr == NULL;
    entry **places[LEVELS];
    enter(store);
    const entry *e = find_place(store, starts ? prefix : after, places);
    while (e != NULL && (e->until <= now || (!starts && compare(e->key, after) <= 0)))
        e = e->next[0];
    bool found = e != NULL && mp_str_starts(e->key, prefix);
    if (found)
        mp_buf_put(out, e->key);
    leave(store);
    return found;
}

/* Reads the value of an entry as an integer. False if it is not an integer. */
static bool number_of(const entry *e, int64_t *n)
{
    char *end;
    *n = strtoll(e->text, &end, 10);
    return e->len > 0 && end == e->text + e->len;
}

static mp_store_result put_number(mp_store *store, entry **at, mp_str key, int64_t n, uint64_t now)
{
    char text[24];
    int len = snprintf(text, sizeof text, "%" PRId64, n);
    return put(store, at, key, (mp_str){text, (size_t)len}, now);
}

mp_store_result mp_store_incr(mp_store *store, mp_str key, int64_t n, uint64_t life_ms, int64_t *sum)
{
    uint64_t now = mp_store_now();
    enter(store);
    entry *e = find(store, key, now);
    bool is_new = e == NULL;
    mp_store_result result = MP_STORE_DONE;
    int64_t was = 0;
    if (!is_new && !number_of(e, &was))
        result = MP_STORE_NO_NUMBER;
    if (result == MP_STORE_DONE) {
        *sum = (int64_t)((uint64_t)was + (uint64_t)n);
        result = put_number(store, &e, key, *sum, now);
        if (result == MP_STORE_DONE && is_new)
            start_clock(store, e, mp_store_until(now, life_ms));
        if (result == MP_STORE_DONE)
            mp_store_note_change(store, e);
    }
    leave(store);
    return result;
}

mp_store_result mp_store_take(mp_store *store, mp_str key, uint64_t interval_us, uint64_t burst, uint64_t *wait_us)
{
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    uint64_t wall = (uint64_t)clock.tv_sec * 1000000 + (uint64_t)clock.tv_nsec / 1000, now = mp_store_now();
    uint64_t whole = interval_us * burst; /* time in which an empty bucket becomes full */
    enter(store);
    entry *e = find(store, key, now);
    int64_t text = 0;
    uint64_t full_at = e != NULL && number_of(e, &text) && text > 0 ? (uint64_t)text : 0;
    if (full_at < wall)
        full_at = wall;
    if (full_at > wall + whole) /* the system clock was set back */
        full_at = wall + whole;
    full_at += interval_us;
    mp_store_result result = MP_STORE_THERE;
    if (full_at <= wall + whole) {
        result = put_number(store, &e, key, (int64_t)full_at, now);
        if (result == MP_STORE_DONE) {
            start_clock(store, e, mp_store_until(now, (full_at - wall) / 1000 + 1));
            mp_store_note_change(store, e);
        }
    } else {
        *wait_us = full_at - wall - whole;
    }
    leave(store);
    return result;
}
