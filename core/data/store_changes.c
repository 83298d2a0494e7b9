/* store_changes.c: the changes that are not in the file yet, or not in the process that takes the store over. Each key
 * is recorded at most once. So the number of changes is bounded by the entries of the store and the keys of the file,
 * however slow the file is. */
#include "data/store_entry.h"

MP_GAUGE(store_unsaved, "store_unsaved", "", "", "changes of the store that are not in its file yet")

/* A deleted key that the file may still contain. */
typedef struct {
    mp_link link;
    mp_str key;
} leftover;

/* True if answers to clients are held back until changes of this room are in the file: these are written first. */
static bool is_urgent(mp_room_id room)
{
    return room == MP_ROOM_SESSIONS || room == MP_ROOM_SIGN_IN;
}

static bool is_empty(const mp_store_changes *changes)
{
    return mp_link_is_alone(&changes->changed) && mp_link_is_alone(&changes->gone);
}

static bool has_changes(const mp_store *store)
{
    return !is_empty(&store->urgent) || !is_empty(&store->others);
}

/* Counts one more change of this room, and returns the lists in which to record it. */
static mp_store_changes *record_of(mp_store *store, mp_room_id room)
{
    if (!has_changes(store))
        pthread_cond_signal(&store->news);
    mp_stat_add(&mp_stat_store_unsaved, 1);
    store->urgent_noted += is_urgent(room);
    return is_urgent(room) ? &store->urgent : &store->others;
}

static void put_leftover(mp_store *store, mp_str key)
{
    leftover *left = mp_new(sizeof *left + key.len);
    left->key = (mp_str){(char *)(left + 1), key.len};
    memcpy(left + 1, key.ptr, key.len);
    mp_link_put(&record_of(store, mp_room_prefix(key)->room)->gone, &left->link);
}

/* A key is in the journal at most once, unless it is deleted and made again. A hand-over whose journal is full is
 * broken off. */
static void put_moved(mp_store *store, mp_buf *moved, mp_str key)
{
    uint32_t len = (uint32_t)key.len;
    if (moved->len + sizeof len + key.len > store->most_moved) {
        store->is_moved_full = true;
        return;
    }
    mp_buf_put(moved, (mp_str){(const char *)&len, sizeof len});
    mp_buf_put(moved, key);
}

static void note_moved(mp_store *store, mp_buf *moved, entry *e)
{
    if (e->moved != store->moves)
        put_moved(store, moved, e->key);
    e->moved = store->moves;
}

void mp_store_note_change(mp_store *store, entry *e)
{
    if (store->moved != NULL)
        note_moved(store, store->moved, e);
    if (e->is_kept && mp_link_is_alone(&e->change))
        mp_link_put(&record_of(store, (mp_room_id)e->room)->changed, &e->change);
}

void mp_store_note_end(mp_store *store, entry *e)
{
    if (store->moved != NULL)
        note_moved(store, store->moved, e);
    if (!mp_link_is_alone(&e->change))
        mp_stat_add(&mp_stat_store_unsaved, -1);
    mp_link_drop(&e->change);
    if (e->is_saved)
        put_leftover(store, e->key);
}

void mp_store_move_changes(mp_store_changes *from, mp_store_changes *to)
{
    mp_link_move(&from->changed, &to->changed);
    mp_link_move(&from->gone, &to->gone);
}

void mp_store_drop_changes(mp_store_changes *changes)
{
    int64_t count = 0;
    for (; mp_link_take(&changes->changed) != NULL; count++)
        continue;
    for (mp_link *link; (link = mp_link_take(&changes->gone)) != NULL; count++)
        free(mp_container(link, leftover, link));
    mp_stat_add(&mp_stat_store_unsaved, -count);
}

void mp_store_change_all(mp_store *store)
{
    MP_LOCKED(&store->lock);
    for (entry *e = store->heads[0]; e != NULL; e = e->next[0])
        mp_store_note_change(store, e);
}

/* -- a file that this process opens after another one ------------------------------------------------------------- */

#define SAME_MS 50 /* two computations of one expiry differ by less */

static bool is_same(const entry *e, mp_str text, uint64_t until)
{
    uint64_t apart = e->until > until ? e->until - until : until - e->until;
    return mp_str_eq((mp_str){e->text, e->len}, text) && apart < SAME_MS;
}

static void compare_row(mp_store *store, entry *MP_NULLABLE e, mp_str key, mp_str text, uint64_t until)
{
    if (e == NULL || !mp_str_eq(e->key, key)) {
        put_leftover(store, key);
    } else if (!e->is_saved) {
        e->is_saved = true;
        if (!is_same(e, text, until))
            mp_store_note_change(store, e);
    }
}

void mp_store_compare(mp_store *store, mp_str key, mp_str text, uint64_t until)
{
    MP_LOCKED(&store->lock);
    entry *e = mp_store_find_after(store, key, false);
    if (atomic_load(&store->is_own)) /* otherwise the store was handed over a moment ago, and has no entries here */
        compare_row(store, e, key, text, until);
}

#define MAX_LOOKED 1000 /* entries that are looked at in one hold of the lock */

bool mp_store_change_new(mp_store *store, mp_buf *after)
{
    mp_str from = mp_buf_str(after);
    MP_LOCKED(&store->lock);
    entry *e = mp_store_find_after(store, from, from.ptr != NULL), *last = NULL;
    for (int i = 0; i < MAX_LOOKED && e != NULL; i++, last = e, e = e->next[0])
        if (!e->is_saved)
            mp_store_note_change(store, e);
    after->len = 0;
    if (last != NULL)
        mp_buf_put(after, last->key);
    return e != NULL;
}

/* -- for the file -------------------------------------------------------------------------------------------------- */

void mp_store_save_sessions(mp_store *store)
{
    store->saves_sessions = true;
}

void mp_store_track(mp_store *store, mp_store_file *file)
{
    store->file = file;
    store->is_tracked = true;
}

/* Waits, under the lock. False if the time is over. */
static bool wait_news(mp_store *store, uint64_t until)
{
    if (until == UINT64_MAX)
        return pthread_cond_wait(&store->news, &store->lock) == 0;
    struct timespec time = {(time_t)(until / 1000), (long)(until % 1000) * 1000000};
    return pthread_cond_timedwait(&store->news, &store->lock, &time) == 0;
}

static mp_store_news news_of(const mp_store *store)
{
    bool is_quiet = !has_changes(store) && mp_link_is_alone(&store->waiters);
    return !is_quiet ? MP_STORE_CHANGED : store->is_closing ? MP_STORE_CLOSING : MP_STORE_QUIET;
}

mp_store_news mp_store_await(mp_store *store, uint64_t most_ms)
{
    uint64_t until = mp_store_until(mp_store_now(), most_ms);
    MP_LOCKED(&store->lock);
    while (news_of(store) == MP_STORE_QUIET && wait_news(store, until))
        continue;
    return news_of(store);
}

bool mp_store_nap(mp_store *store, uint64_t most_ms)
{
    uint64_t until = mp_store_until(mp_store_now(), most_ms);
    MP_LOCKED(&store->lock);
    while (!store->is_closing && mp_link_is_alone(&store->waiters) && wait_news(store, until))
        continue;
    return store->is_closing;
}

void mp_store_close(mp_store *store)
{
    MP_LOCKED(&store->lock);
    store->is_closing = true;
    pthread_cond_signal(&store->news);
}

static void put_taken(mp_buf *out, const mp_store_change *change, mp_str key, mp_str text)
{
    mp_buf_put(out, (mp_str){(const char *)change, sizeof *change});
    mp_buf_put(out, key);
    mp_buf_put(out, text);
}

/* Deleted keys are written first: if such a key has an entry again, that entry is among the later changes. Both are
 * urgent, or none is. */
static int64_t take_some(mp_store_changes *from, mp_buf *out, size_t end)
{
    int64_t taken = 0;
    mp_link *link;
    for (; out->len < end && (link = mp_link_take(&from->gone)) != NULL; taken++) {
        leftover *left = mp_container(link, leftover, link);
        put_taken(out, &(mp_store_change){.is_gone = true, .key_len = left->key.len}, left->key, MP_STR_NONE);
        free(left);
    }
    for (; out->len < end && (link = mp_link_take(&from->changed)) != NULL; taken++) {
        entry *e = mp_container(link, entry, change);
        e->is_saved = true;
        put_taken(out, &(mp_store_change){.until = e->until, .key_len = e->key.len, .len = e->len}, e->key,
                  (mp_str){e->text, e->len});
    }
    return taken;
}

int64_t mp_store_take_changes(mp_store *store, mp_buf *out, size_t most)
{
    size_t end = out->len + most;
    MP_LOCKED(&store->lock);
    int64_t taken = take_some(&store->urgent, out, end);
    return taken + take_some(&store->others, out, end);
}

/* -- who waits for the file ---------------------------------------------------------------------------------------- */

MP_COUNTER(store_late, "store_late", "", "",
           "times that clients were answered before the file had their sessions, since its disk, or the process that "
           "owns the store, took above a second")

typedef struct {
    mp_link link;
    mp_loop *loop;
    void (*deliver)(void *content, mp_loop *MP_NULLABLE loop);
    void *ctx;
    uint64_t since; /* ms */
} waiter;

static void tell(mp_store *store, mp_link *ready)
{
    MP_EACH_TAKEN(waiter, it, ready, link) {
        mp_loop_send(it->loop, it->deliver, &it->ctx, sizeof it->ctx, MP_STR_NONE);
        free(it);
        atomic_fetch_sub(&store->waiting, 1);
    }
}

void mp_store_when_saved(mp_store *store, mp_loop *loop, void (*deliver)(void *content, mp_loop *MP_NULLABLE loop),
                         void *ctx)
{
    pthread_mutex_lock(&store->lock);
    bool is_behind = store->is_saving || !atomic_load(&store->is_own);
    bool waits = is_behind && !store->is_late && !store->is_ending;
    if (waits) {
        waiter *it = mp_new(sizeof *it);
        *it = (waiter){.loop = loop, .deliver = deliver, .ctx = ctx, .since = mp_monotonic_ms()};
        mp_link_put(&store->waiters, &it->link);
        atomic_fetch_add(&store->waiting, 1);
        pthread_cond_signal(&store->news);
    }
    pthread_mutex_unlock(&store->lock);
    if (!waits)
        deliver(&ctx, loop);
}

static bool has_waited_long(const mp_link *list, uint64_t now)
{
    return !mp_link_is_alone(list) && now - mp_container(list->next, waiter, link)->since >= MP_STORE_LATE_MS;
}

void mp_store_tell_late(mp_store *store)
{
    mp_link ready = {0}, waiting = {0};
    if (atomic_load_explicit(&store->waiting, memory_order_relaxed) == 0)
        return;
    uint64_t now = mp_monotonic_ms();
    pthread_mutex_lock(&store->lock);
    bool was_late = store->is_late,
         is_late = has_waited_long(&store->written, now) || has_waited_long(&store->waiters, now);
    if (is_late) {
        store->is_late = true;
        mp_link_move(&store->written, &ready);
        mp_link_move(&store->waiters, &waiting);
        mp_stat_add(&mp_stat_store_late, 1);
    }
    pthread_mutex_unlock(&store->lock);
    if (is_late && !was_late)
        mp_log(MP_WARN, "store not saved",
               mp_log_str("why", MP_STR("the disk, or the process that writes it, is slow")),
               mp_log_str("hint", MP_STR("clients are answered all the same; a restart may lose sessions until "
                                         "store_unsaved is 0")));
    tell(store, &ready);
    tell(store, &waiting);
}

void mp_store_finish_waits(mp_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->is_ending = true;
    pthread_mutex_unlock(&store->lock);
    while (atomic_load(&store->waiting) > 0) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        mp_store_tell_late(store);
    }
}

/* Ends the waits for the changes that were taken. */
static void tell_taken(mp_store *store, bool is_written)
{
    mp_link ready = {0};
    pthread_mutex_lock(&store->lock);
    store->is_late = false;
    if (is_written)
        store->urgent_written = store->urgent_taken;
    mp_link_move(&store->written, &ready);
    pthread_mutex_unlock(&store->lock);
    tell(store, &ready);
}

void mp_store_tell_written(mp_store *store)
{
    tell_taken(store, true);
}

void mp_store_set_saving(mp_store *store, bool is_saving)
{
    mp_link waiting = {0};
    pthread_mutex_lock(&store->lock);
    store->is_saving = is_saving;
    /* otherwise another process has taken the store over with all changes: waits go on until its file has them */
    bool tells = !is_saving && atomic_load(&store->is_own);
    if (tells)
        mp_link_move(&store->waiters, &waiting);
    pthread_mutex_unlock(&store->lock);
    tell(store, &waiting);
    if (tells)
        tell_taken(store, false);
}

bool mp_store_take_waiters(mp_store *store)
{
    MP_LOCKED(&store->lock);
    if (is_empty(&store->urgent)) {
        store->urgent_taken = store->urgent_noted;
        if (mp_link_is_alone(&store->written))
            mp_link_move(&store->waiters, &store->written);
    }
    return (store->is_late && !store->is_ending) || !mp_link_is_alone(&store->written);
}

mp_store_result mp_store_is_saved(const mp_store *store, uint64_t change, bool is_certain, uint64_t *number)
{
    *number = change != 0 ? change : store->urgent_noted;
    bool is_hopeless = !store->is_saving || store->is_late;
    if (is_certain && is_hopeless && store->file != NULL)
        return MP_STORE_NONE;
    return is_hopeless || store->urgent_written >= *number ? MP_STORE_DONE : MP_STORE_THERE;
}
