/* store_changes.c: the changes that are not in the file yet. Each key is recorded at most once. So the number of
 * changes is bounded by the entries of the store and the keys of the file, however slow the file is. */
#include "data/store_entry.h"
#include <stdlib.h>

MP_GAUGE(store_unsaved, "store_unsaved", "", "", "changes of the store that are not in its file yet")

/* A deleted key that the file may still contain. */
typedef struct {
    mp_link link;
    mp_str key;
} leftover;

static void put_change(mp_store *store, mp_link *into, mp_link *link)
{
    if (mp_link_is_alone(&store->changed) && mp_link_is_alone(&store->gone))
        pthread_cond_signal(&store->news);
    mp_link_put(into, link);
    mp_stat_add(&mp_stat_store_unsaved, 1);
}

void mp_store_note_change(mp_store *store, entry *e)
{
    if (e->is_kept && mp_link_is_alone(&e->change))
        put_change(store, &store->changed, &e->change);
}

void mp_store_note_end(mp_store *store, entry *e)
{
    if (!mp_link_is_alone(&e->change))
        mp_stat_add(&mp_stat_store_unsaved, -1);
    mp_link_drop(&e->change);
    if (!e->is_saved)
        return;
    leftover *left = mp_new(sizeof *left + e->key.len);
    left->key = (mp_str){(char *)(left + 1), e->key.len};
    memcpy(left + 1, e->key.ptr, e->key.len);
    put_change(store, &store->gone, &left->link);
}

bool mp_store_keeps(const mp_store *store, mp_str key)
{
    for (const char *const *prefix = store->prefixes; prefix != NULL && *prefix != NULL; prefix++)
        if (mp_str_starts(key, mp_str_of(*prefix)))
            return true;
    return false;
}

void mp_store_drop_changes(mp_store *store)
{
    for (mp_link *link; (link = mp_link_take(&store->gone)) != NULL;)
        free(mp_container(link, leftover, link));
}

void mp_store_change_all(mp_store *store)
{
    pthread_mutex_lock(&store->lock);
    for (entry *e = store->heads[0]; e != NULL; e = e->next[0])
        mp_store_note_change(store, e);
    pthread_mutex_unlock(&store->lock);
}

/* -- for the file -------------------------------------------------------------------------------------------------- */

void mp_store_track(mp_store *store, mp_store_file *file, const char *const *prefixes)
{
    store->file = file;
    store->prefixes = prefixes;
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
    bool is_quiet = mp_link_is_alone(&store->changed) && mp_link_is_alone(&store->gone);
    return !is_quiet ? MP_STORE_CHANGED : store->is_closing ? MP_STORE_CLOSING : MP_STORE_QUIET;
}

mp_store_news mp_store_await(mp_store *store, uint64_t most_ms)
{
    uint64_t until = mp_store_until(mp_store_now(), most_ms);
    pthread_mutex_lock(&store->lock);
    while (news_of(store) == MP_STORE_QUIET && wait_news(store, until))
        continue;
    mp_store_news news = news_of(store);
    pthread_mutex_unlock(&store->lock);
    return news;
}

bool mp_store_nap(mp_store *store, uint64_t most_ms)
{
    uint64_t until = mp_store_until(mp_store_now(), most_ms);
    pthread_mutex_lock(&store->lock);
    while (!store->is_closing && wait_news(store, until))
        continue;
    bool is_closing = store->is_closing;
    pthread_mutex_unlock(&store->lock);
    return is_closing;
}

void mp_store_close(mp_store *store)
{
    pthread_mutex_lock(&store->lock);
    store->is_closing = true;
    pthread_cond_signal(&store->news);
    pthread_mutex_unlock(&store->lock);
}

static void put_taken(mp_buf *out, const mp_store_change *change, mp_str key, mp_str text)
{
    mp_buf_put(out, (mp_str){(const char *)change, sizeof *change});
    mp_buf_put(out, key);
    mp_buf_put(out, text);
}

/* Deleted keys are written first: if such a key has an entry again, that entry is among the later changes. */
int64_t mp_store_take_changes(mp_store *store, mp_buf *out, size_t most)
{
    int64_t taken = 0;
    mp_link *link;
    size_t end = out->len + most;
    pthread_mutex_lock(&store->lock);
    for (; out->len < end && (link = mp_link_take(&store->gone)) != NULL; taken++) {
        leftover *left = mp_container(link, leftover, link);
        put_taken(out, &(mp_store_change){.is_gone = true, .key_len = left->key.len}, left->key, MP_STR_NONE);
        free(left);
    }
    for (; out->len < end && (link = mp_link_take(&store->changed)) != NULL; taken++) {
        entry *e = mp_container(link, entry, change);
        e->is_saved = true;
        put_taken(out, &(mp_store_change){.until = e->until, .key_len = e->key.len, .len = e->len}, e->key,
                  (mp_str){e->text, e->len});
    }
    pthread_mutex_unlock(&store->lock);
    return taken;
}
