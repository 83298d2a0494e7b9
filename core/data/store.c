/* store.c: a skip list of all entries, sorted by key, and a heap of those that expire. An expired entry is never
 * returned. Later calls free expired entries, a few at a time. The functions of an operation are in one file, so that
 * the compiler can join them. */
#include "data/store_wire.h"
#include <inttypes.h>

MP_GAUGE(store_entries, "store_entries", "", "", "entries of the store")
MP_GAUGE(store_bytes, "store_bytes", "", "", "bytes of keys and values in the store")

#define MAX_SWEPT 64                      /* limit of the expired entries that one call frees */
#define MAX_KEYS_BYTES ((size_t)64 << 10) /* bytes of keys that are copied at once under the lock */

void mp_store_limit(mp_store *store, int64_t entries, size_t bytes)
{
    MP_LOCKED(&store->lock);
    store->most_entries = entries;
    store->most_bytes = bytes;
    mp_rooms_limit(store->rooms, entries, bytes);
    if (store->near != NULL)
        mp_store_limit(store->near, entries, bytes);
}

static void entry_free(entry *e)
{
    free(e->text);
    free(e);
}

void mp_store_detach(mp_store *store, mp_store_rest *rest)
{
    *rest = (mp_store_rest){.first = store->heads[0], .entries = store->entries, .bytes = store->bytes};
    for (int i = 0; i < MP_ROOMS; i++)
        rest->heaps[i] = store->rooms[i].heap;
    mp_store_move_changes(&store->urgent, &rest->urgent);
    mp_store_move_changes(&store->others, &rest->others);
    memset(store->heads, 0, sizeof store->heads);
    mp_rooms_clear(store->rooms);
    store->entries = 0;
    store->bytes = 0;
    atomic_store_explicit(&store->first, UINT64_MAX, memory_order_relaxed);
}

void mp_store_discard(mp_store_rest *rest)
{
    mp_stat_add(&mp_stat_store_entries, -rest->entries);
    mp_stat_add(&mp_stat_store_bytes, -(int64_t)rest->bytes);
    mp_store_drop_changes(&rest->urgent);
    mp_store_drop_changes(&rest->others);
    for (entry *e = rest->first, *next; e != NULL; e = next) {
        next = e->next[0];
        entry_free(e);
    }
    for (int i = 0; i < MP_ROOMS; i++)
        free(rest->heaps[i]);
}

bool mp_store_is_own(mp_store *store)
{
    return atomic_load(&store->is_own);
}

double mp_store_fullest(mp_store *store)
{
    MP_LOCKED(&store->lock);
    double most = mp_rooms_fullest(store->rooms), near = store->near == NULL ? 0 : mp_store_fullest(store->near);
    return near > most ? near : most;
}

/* -- order ----------------------------------------------------------------------------------------------------- */

static int compare_keys(mp_str a, mp_str b)
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
        while (row[level] != NULL && compare_keys(row[level]->key, key) < 0)
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

static void place_entry(mp_room *room, entry *e, size_t index)
{
    room->heap[index] = e;
    e->slot = index + 1;
}

static void settle_entry(mp_room *room, entry *e, size_t index)
{
    for (size_t parent; index > 0 && room->heap[parent = (index - 1) / 2]->rank > e->rank; index = parent)
        place_entry(room, room->heap[parent], index);
    for (size_t child; (child = index * 2 + 1) < room->heap_count; index = child) {
        if (child + 1 < room->heap_count && room->heap[child + 1]->rank < room->heap[child]->rank)
            child++;
        if (e->rank <= room->heap[child]->rank)
            break;
        place_entry(room, room->heap[child], index);
    }
    place_entry(room, e, index);
}

static void stop_clock(mp_store *store, entry *e)
{
    mp_room *room = &store->rooms[e->room];
    if (e->slot == 0)
        return;
    size_t index = e->slot - 1;
    entry *last = room->heap[--room->heap_count];
    if (last != e)
        settle_entry(room, last, index);
    e->slot = 0;
}

static void start_clock(mp_store *store, entry *e, uint64_t until)
{
    stop_clock(store, e);
    e->until = until;
    if (until == UINT64_MAX)
        return;
    mp_room *room = &store->rooms[e->room];
    e->rank = mp_room_rank((mp_room_id)e->room, until, e->text);
    if (room->heap_count == room->heap_cap) {
        room->heap_cap = room->heap_cap == 0 ? 64 : room->heap_cap * 2;
        room->heap = mp_resize(room->heap, room->heap_cap * sizeof *room->heap);
    }
    settle_entry(room, e, room->heap_count++);
}

/* When the first entry expires. Quotas are ordered by periods of 70 minutes (mp_room_rank), so one of theirs may have
 * expired that long before. */
uint64_t mp_store_first(const mp_store *store)
{
    uint64_t first = UINT64_MAX;
    for (const mp_room *room = store->rooms; room < store->rooms + MP_ROOMS; room++)
        if (room->heap_count > 0 && room->heap[0]->until < first)
            first = room->heap[0]->until;
    return first;
}

/* Adds `entries` and `bytes`, which may be negative, to the counts of the store and of the entry's room. */
static void count_entry(mp_store *store, const entry *e, int64_t entries, int64_t bytes)
{
    mp_room_count(&store->rooms[e->room], (mp_room_id)e->room, e->key, entries, bytes);
    store->entries += entries;
    store->bytes += (size_t)bytes;
    mp_stat_add(&mp_stat_store_entries, entries);
    mp_stat_add(&mp_stat_store_bytes, bytes);
}

/* The first event of the session whose record has the key; NULL: it has none, or `key` is that of something else. */
static entry *MP_NULLABLE event_of(mp_store *store, mp_room_id room, mp_str key)
{
    entry **places[LEVELS];
    char prefix[MP_ROOM_EVENTS_OF];
    mp_str begin = mp_room_events_of(room, key, prefix);
    entry *found = begin.len == 0 ? NULL : find_place(store, begin, places);
    return found != NULL && mp_str_starts(found->key, begin) ? found : NULL;
}

static void forget_events(mp_store *store, mp_room_id room, mp_str key)
{
    for (entry *event; (event = event_of(store, room, key)) != NULL;)
        mp_store_forget(store, event);
}

void mp_store_forget(mp_store *store, entry *e)
{
    forget_events(store, (mp_room_id)e->room, e->key);
    mp_store_note_end(store, e);
    entry **places[LEVELS];
    find_place(store, e->key, places);
    for (int level = 0; level < e->height; level++)
        *places[level] = e->next[level];
    stop_clock(store, e);
    count_entry(store, e, -1, -(int64_t)(e->key.len + e->len));
    entry_free(e);
}

/* Frees one expired entry of the room, or one event of the session whose record has expired. False if there is none. */
static bool forget_one(mp_store *store, mp_room *room, uint64_t now)
{
    if (room->heap_count == 0 || room->heap[0]->until > now)
        return false;
    entry *e = room->heap[0], *event = event_of(store, (mp_room_id)e->room, e->key);
    mp_store_forget(store, event != NULL ? event : e);
    return true;
}

/* Takes the lock. False: another process owns the store, and the lock is not held. */
static bool enter_store(mp_store *store)
{
    pthread_mutex_lock(&store->lock);
    if (atomic_load_explicit(&store->is_own, memory_order_relaxed))
        return true;
    pthread_mutex_unlock(&store->lock);
    return false;
}

static void leave_store(mp_store *store)
{
    atomic_store_explicit(&store->first, mp_store_first(store), memory_order_relaxed);
    pthread_mutex_unlock(&store->lock);
}

static void sweep_own(mp_store *store)
{
    uint64_t first = atomic_load_explicit(&store->first, memory_order_relaxed), now;
    if (first == UINT64_MAX || first > (now = mp_store_now()))
        return;
    if (!enter_store(store))
        return;
    int swept = 0;
    for (mp_room *room = store->rooms; room < store->rooms + MP_ROOMS; room++)
        while (swept < MAX_SWEPT && forget_one(store, room, now))
            swept++;
    leave_store(store);
}

void mp_store_sweep(mp_store *store)
{
    mp_store *near = atomic_load_explicit(&store->near, memory_order_acquire);
    sweep_own(store);
    mp_store_tell_late(store);
    if (near != NULL)
        sweep_own(near);
}

/* -- entries ---------------------------------------------------------------------------------------------------- */

/* The entry of `key`, or NULL. An expired entry is freed. */
static entry *MP_NULLABLE find_entry(mp_store *store, mp_str key, uint64_t now)
{
    entry **places[LEVELS];
    entry *e = find_place(store, key, places);
    if (e == NULL || compare_keys(e->key, key) != 0)
        return NULL;
    if (e->until > now)
        return e;
    mp_store_forget(store, e);
    return NULL;
}

/* Drops the entry of the lowest rank, but not `old`. False if there is none. */
static bool evict_one(mp_store *store, mp_room_id id, const entry *MP_NULLABLE old)
{
    mp_room *room = &store->rooms[id];
    size_t at = room->heap_count > 0 && room->heap[0] == old ? 1 : 0;
    if (!mp_room_evicts(id) || at >= room->heap_count)
        return false;
    mp_store_forget(store, room->heap[at]);
    mp_room_note_evicted(id);
    return true;
}

/* True if the room takes `bytes` for the key, in the place of `old`. Frees expired entries to make room, and drops
 * others where the room's rule says so. */
static bool has_room(mp_store *store, mp_room_id id, const entry *MP_NULLABLE old, mp_str key, size_t bytes,
                     uint64_t now)
{
    mp_room *room = &store->rooms[id];
    int64_t entries = old == NULL ? 1 : 0;
    int64_t more = (int64_t)bytes - (int64_t)(old == NULL ? 0 : old->key.len + old->len);
    bool fits = bytes <= room->most_bytes || more <= 0;
    while (fits && !mp_room_takes(room, id, key, entries, more))
        if (!forget_one(store, room, now) && !evict_one(store, id, old))
            fits = false;
    if (!fits)
        mp_room_refuse(room, id, now);
    return fits;
}

static entry *add_entry(mp_store *store, mp_str key)
{
    const mp_store_prefix *prefix = mp_room_prefix(key);
    int height = random_height(store);
    size_t links = (size_t)height * sizeof(entry *);
    entry *e = mp_new(sizeof *e + links + key.len);
    char *bytes = (char *)e + sizeof *e + links;
    if (key.len > 0)
        memcpy(bytes, key.ptr, key.len);
    e->key = (mp_str){bytes, key.len};
    e->until = UINT64_MAX;
    e->height = (uint8_t)height;
    e->room = (uint8_t)prefix->room;
    e->is_kept =
        store->is_tracked && prefix->saved != MP_UNSAVED && (prefix->saved == MP_SAVED || store->saves_sessions);
    entry **places[LEVELS];
    find_place(store, key, places);
    for (int level = 0; level < height; level++) {
        e->next[level] = *places[level];
        *places[level] = e;
    }
    count_entry(store, e, 1, (int64_t)key.len);
    return e;
}

static void set_text(mp_store *store, entry *e, mp_str text)
{
    count_entry(store, e, 0, (int64_t)text.len - (int64_t)e->len);
    free(e->text);
    e->text = mp_dup(text);
    e->len = text.len;
}

/* Sets the value of `*at`, the entry of the key. NULL: makes the entry. */
static mp_store_result put_entry(mp_store *store, entry *MP_NULLABLE *at, mp_str key, mp_str text, uint64_t now)
{
    entry *old = *at;
    mp_room_id room = old == NULL ? mp_room_prefix(key)->room : (mp_room_id)old->room;
    if (!has_room(store, room, old, key, key.len + text.len, now))
        return MP_STORE_FULL;
    entry *e = *at = old != NULL ? old : add_entry(store, key);
    set_text(store, e, text);
    return MP_STORE_DONE;
}

/* The first entry whose key is not before `key`, or is behind it; NULL: there is none. It may have expired. */
entry *MP_NULLABLE mp_store_find_after(mp_store *store, mp_str key, bool is_after)
{
    entry **places[LEVELS];
    entry *e = find_place(store, key, places);
    return e != NULL && is_after && compare_keys(e->key, key) == 0 ? e->next[0] : e;
}

/* Sets an entry as it was in another process, whatever the limits are. */
entry *mp_store_put_back(mp_store *store, mp_str key, mp_str text, uint64_t until)
{
    entry **places[LEVELS];
    entry *e = find_place(store, key, places);
    if (e == NULL || compare_keys(e->key, key) != 0)
        e = add_entry(store, key);
    set_text(store, e, text);
    start_clock(store, e, until);
    return e;
}

mp_store_result mp_store_load(mp_store *store, mp_str key, mp_str text, uint64_t life_ms)
{
    uint64_t now = mp_store_now();
    pthread_mutex_lock(&store->lock);
    const mp_room *scripts = &store->rooms[MP_ROOM_SCRIPTS];
    bool fits = mp_room_prefix(key)->room != MP_ROOM_SCRIPTS ||
                (scripts->entries < store->most_entries && key.len + text.len <= store->most_bytes &&
                 scripts->bytes <= store->most_bytes - key.len - text.len);
    if (fits)
        mp_store_put_back(store, key, text, mp_store_until(now, life_ms))->is_saved = true;
    leave_store(store);
    return fits ? MP_STORE_DONE : MP_STORE_FULL;
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
    return put_entry(store, at, key, (mp_str){text, (size_t)len}, now);
}

/* -- operations: the functions in_x run under the lock ------------------------------------------------------------- */

static mp_store_result in_set(mp_store *store, mp_str key, mp_str text, uint64_t life_ms, bool only_new)
{
    uint64_t now = mp_store_now();
    entry *e = find_entry(store, key, now);
    mp_store_result result = e != NULL && only_new ? MP_STORE_THERE : put_entry(store, &e, key, text, now);
    if (result == MP_STORE_DONE) {
        start_clock(store, e, mp_store_until(now, life_ms));
        mp_store_note_change(store, e);
    }
    return result;
}

static bool has_text(const entry *MP_NULLABLE e, mp_str text)
{
    if (e == NULL || text.ptr == NULL)
        return e == NULL && text.ptr == NULL;
    return compare_keys((mp_str){e->text, e->len}, text) == 0;
}

static mp_store_result in_cas(mp_store *store, mp_str key, mp_str old, mp_str text, uint64_t life_ms)
{
    uint64_t now = mp_store_now();
    entry *e = find_entry(store, key, now);
    if (!has_text(e, old))
        return MP_STORE_THERE;
    if (text.ptr == NULL) {
        if (e != NULL)
            mp_store_forget(store, e);
        return MP_STORE_DONE;
    }
    mp_store_result result = put_entry(store, &e, key, text, now);
    if (result == MP_STORE_DONE) {
        if (life_ms != MP_STORE_SAME_LIFE)
            start_clock(store, e, mp_store_until(now, life_ms));
        mp_store_note_change(store, e);
    }
    return result;
}

static mp_store_result in_get(mp_store *store, mp_str key, mp_buf *out)
{
    const entry *e = find_entry(store, key, mp_store_now());
    if (e == NULL)
        return MP_STORE_NONE;
    mp_buf_put(out, (mp_str){e->text, e->len});
    return MP_STORE_DONE;
}

static mp_store_result in_delete(mp_store *store, mp_str key)
{
    entry *e = find_entry(store, key, mp_store_now());
    if (e != NULL)
        mp_store_forget(store, e);
    else /* events may be there whose session's record was refused, or has never come */
        forget_events(store, mp_room_prefix(key)->room, key);
    return MP_STORE_DONE;
}

static mp_store_result in_keys(mp_store *store, mp_str prefix, mp_str after, uint64_t most, mp_buf *out, int64_t *count)
{
    uint64_t now = mp_store_now();
    size_t end = out->len + MAX_KEYS_BYTES;
    bool starts = after.ptr == NULL;
    *count = 0;
    for (const entry *e = mp_store_find_after(store, starts ? prefix : after, !starts);
         e != NULL && mp_str_starts(e->key, prefix) && (uint64_t)*count < most && out->len < end; e = e->next[0]) {
        if (e->until <= now)
            continue;
        uint32_t len = (uint32_t)e->key.len;
        mp_buf_put(out, (mp_str){(const char *)&len, sizeof len});
        mp_buf_put(out, e->key);
        ++*count;
    }
    return MP_STORE_DONE;
}

static mp_store_result in_incr(mp_store *store, mp_str key, int64_t n, uint64_t life_ms, int64_t *sum)
{
    uint64_t now = mp_store_now();
    entry *e = find_entry(store, key, now);
    bool is_new = e == NULL;
    int64_t was = 0;
    if ((!is_new && !number_of(e, &was)) || __builtin_add_overflow(was, n, sum))
        return MP_STORE_NO_NUMBER;
    mp_store_result result = put_number(store, &e, key, *sum, now);
    if (result == MP_STORE_DONE && is_new)
        start_clock(store, e, mp_store_until(now, life_ms));
    else if (result == MP_STORE_DONE && e->slot != 0 && e->rank != mp_room_rank((mp_room_id)e->room, e->until, e->text))
        start_clock(store, e, e->until);
    if (result == MP_STORE_DONE)
        mp_store_note_change(store, e);
    return result;
}

/* The time in microseconds since 1970. */
static uint64_t wall_us(void)
{
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    return (uint64_t)clock.tv_sec * 1000000 + (uint64_t)clock.tv_nsec / 1000;
}

static mp_store_result in_take(mp_store *store, mp_str key, uint64_t interval_us, uint64_t burst, uint64_t *wait_us)
{
    uint64_t wall = wall_us(), now = mp_store_now();
    uint64_t whole = interval_us * burst; /* time in which an empty bucket becomes full */
    entry *e = find_entry(store, key, now);
    int64_t text = 0;
    uint64_t full_at = e != NULL && number_of(e, &text) && text > 0 ? (uint64_t)text : 0;
    if (full_at < wall)
        full_at = wall;
    if (full_at > wall + whole) /* the system clock was set back */
        full_at = wall + whole;
    full_at += interval_us;
    if (full_at > wall + whole) {
        *wait_us = full_at - wall - whole;
        return MP_STORE_THERE;
    }
    mp_store_result result = put_number(store, &e, key, (int64_t)full_at, now);
    if (result == MP_STORE_DONE) {
        start_clock(store, e, mp_store_until(now, (full_at - wall) / 1000 + 1));
        mp_store_note_change(store, e);
    }
    return result;
}

/* The key of the last fence that was given: fences rise also when the wall clock was set back. It expires once that
 * clock must be right again, so that a store without locks is empty at last. */
#define FENCE MP_STR("fence:")
#define FENCE_LIFE_MS ((uint64_t)30 * 86400 * 1000)

static mp_store_result put_for(mp_store *store, mp_str key, int64_t n, uint64_t now, uint64_t life_ms)
{
    entry *e = find_entry(store, key, now);
    mp_store_result result = put_number(store, &e, key, n, now);
    if (result == MP_STORE_DONE) {
        start_clock(store, e, mp_store_until(now, life_ms));
        mp_store_note_change(store, e);
    }
    return result;
}

static mp_store_result in_lock(mp_store *store, mp_str key, uint64_t life_ms, int64_t *fence)
{
    uint64_t now = mp_store_now();
    if (find_entry(store, key, now) != NULL)
        return MP_STORE_THERE;
    int64_t last = 0, wall = (int64_t)wall_us();
    const entry *e = find_entry(store, FENCE, now);
    *fence = e != NULL && number_of(e, &last) && last >= wall ? last + 1 : wall;
    mp_store_result result = put_for(store, FENCE, *fence, now, FENCE_LIFE_MS);
    return result == MP_STORE_DONE ? put_for(store, key, *fence, now, life_ms) : result;
}

static mp_store_result in_set_locked(mp_store *store, const mp_store_operation *it)
{
    int64_t fence;
    const entry *e = find_entry(store, it->old, mp_store_now());
    if (e == NULL || !number_of(e, &fence) || fence != it->n)
        return MP_STORE_THERE;
    return in_set(store, it->key, it->text, it->number, false);
}

/* Prefix of the keys by which the processes of a gateway count the places of a semaphore that they hold: the
 * semaphore's name, a NUL and the holder follow. The value is the number of places, above 0. */
#define PLACES "place:"

static mp_store_result in_place(mp_store *store, mp_str name, mp_str who, int64_t n, int64_t most)
{
    uint64_t now = mp_store_now();
    int64_t sum = 0, own = 0, count;
    mp_scoped_buf key = {0};
    mp_buf_put(&key, MP_STR(PLACES));
    mp_buf_put(&key, name);
    mp_buf_putc(&key, '\0');
    for (const entry *e = mp_store_find_after(store, mp_buf_str(&key), false);
         e != NULL && mp_str_starts(e->key, mp_buf_str(&key)); e = e->next[0])
        if (e->until > now && number_of(e, &count))
            *(mp_str_eq(mp_str_from(e->key, key.len), who) ? &own : &sum) += count;
    mp_buf_put(&key, who);
    mp_store_result result = MP_STORE_THERE;
    if (n <= own || n <= most - sum) {
        entry *e = find_entry(store, mp_buf_str(&key), now);
        if (n == 0) {
            if (e != NULL)
                mp_store_forget(store, e);
            return MP_STORE_DONE;
        }
        result = put_for(store, mp_buf_str(&key), n, now, MP_STORE_PLACE_MS);
    }
    return result;
}

/* -- operations of callers ----------------------------------------------------------------------------------------- */

static inline mp_store_result run_operation(mp_store *store, const mp_store_operation *it, mp_buf *out, int64_t *n)
{
    switch (it->kind) {
    case MP_STORE_SET:
        return in_set(store, it->key, it->text, it->number, it->n != 0);
    case MP_STORE_GET:
        return in_get(store, it->key, out);
    case MP_STORE_REPLACE:
    case MP_STORE_CAS:
        return in_cas(store, it->key, (it->n & MP_STORE_NO_OLD) != 0 ? MP_STR_NONE : it->old,
                      (it->n & MP_STORE_NO_TEXT) != 0 ? MP_STR_NONE : it->text, it->number);
    case MP_STORE_DELETE:
        return in_delete(store, it->key);
    case MP_STORE_KEYS:
        return in_keys(store, it->key, it->n != 0 ? it->old : MP_STR_NONE, it->number, out, n);
    case MP_STORE_INCR:
        return in_incr(store, it->key, it->n, it->number, n);
    case MP_STORE_TAKE:
        return in_take(store, it->key, it->number, (uint64_t)it->n, (uint64_t *)n);
    case MP_STORE_PLACE:
        return in_place(store, it->key, it->text, it->n, (int64_t)it->number);
    case MP_STORE_LOCK:
        return in_lock(store, it->key, it->number, n);
    case MP_STORE_SET_LOCKED:
        return in_set_locked(store, it);
    case MP_STORE_SAVED:
        return mp_store_is_saved(store, it->number, it->n != 0, (uint64_t *)n);
    case MP_STORE_KINDS:
        break;
    }
    return MP_STORE_AWAY;
}

mp_store_result mp_store_run(mp_store *store, const mp_store_operation *operation, mp_buf *out, int64_t *n)
{
    if (!enter_store(store))
        return MP_STORE_AWAY;
    mp_store_result result = run_operation(store, operation, out, n);
    leave_store(store);
    return result;
}

mp_store_result mp_store_do(mp_store *store, const mp_store_operation *operation, mp_buf *out, int64_t *n)
{
    if (!enter_store(store))
        return store->elsewhere->run(store, operation, out, n);
    mp_store_result result = run_operation(store, operation, out, n);
    leave_store(store);
    return result;
}

/* Does the operation here, or lets the process that owns the store do it. */
static inline mp_store_result operate(mp_store *store, mp_store_operation operation, mp_buf *MP_NULLABLE out,
                                      int64_t *MP_NULLABLE n)
{
    mp_buf no_text = {0};
    int64_t no_number = 0;
    if (!enter_store(store))
        return store->elsewhere->run(store, &operation, out, n);
    mp_store_result result = run_operation(store, &operation, out != NULL ? out : &no_text, n != NULL ? n : &no_number);
    leave_store(store);
    return result;
}

#define OPERATION(what, ...) ((mp_store_operation){.kind = MP_STORE_##what, __VA_ARGS__})

mp_store_result mp_store_set(mp_store *store, mp_str key, mp_str text, uint64_t life_ms, bool only_new)
{
    return operate(store, OPERATION(SET, .key = key, .text = text, .number = life_ms, .n = only_new), NULL, NULL);
}

mp_store_operation mp_store_cas_operation(mp_str key, mp_str old, mp_str text, uint64_t life_ms)
{
    mp_store_operation it = OPERATION(REPLACE, .key = key, .text = text, .old = old, .number = life_ms);
    it.n = (old.ptr == NULL ? MP_STORE_NO_OLD : 0) | (text.ptr == NULL ? MP_STORE_NO_TEXT : 0);
    if (it.n != 0 || life_ms != MP_STORE_SAME_LIFE)
        it.kind = MP_STORE_CAS;
    return it;
}

mp_store_result mp_store_cas(mp_store *store, mp_str key, mp_str old, mp_str text, uint64_t life_ms)
{
    return operate(store, mp_store_cas_operation(key, old, text, life_ms), NULL, NULL);
}

mp_store_result mp_store_get(mp_store *store, mp_str key, mp_buf *out)
{
    return operate(store, OPERATION(GET, .key = key), out, NULL);
}

mp_store_result mp_store_delete(mp_store *store, mp_str key)
{
    return operate(store, OPERATION(DELETE, .key = key), NULL, NULL);
}

mp_store_result mp_store_keys(mp_store *store, mp_str prefix, mp_str after, uint64_t most, mp_buf *out, int64_t *count)
{
    return operate(store, OPERATION(KEYS, .key = prefix, .old = after, .number = most, .n = after.ptr != NULL), out,
                   count);
}

mp_store_result mp_store_incr(mp_store *store, mp_str key, int64_t n, uint64_t life_ms, int64_t *sum)
{
    return operate(store, OPERATION(INCR, .key = key, .number = life_ms, .n = n), NULL, sum);
}

mp_store_result mp_store_take(mp_store *store, mp_str key, uint64_t interval_us, uint64_t burst, uint64_t *wait_us)
{
    return operate(store, OPERATION(TAKE, .key = key, .number = interval_us, .n = (int64_t)burst), NULL,
                   (int64_t *)wait_us);
}
