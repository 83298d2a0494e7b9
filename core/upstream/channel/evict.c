/* evict.c: ends idle channels of any upstream while tasks wait for a channel within limits.upstreams, which all
 * upstreams share. */
#include "upstream/state.h"

#define MOST_AT_ONCE 16 /* channels that one sweep ends to make room */
#define MOST_SERVED 64  /* waiting requests that are served in one go */

typedef struct {
    int64_t channels, programs; /* open channels and those being opened; how many of these are programs */
} census;

static census count_channels(mp_upstream *const *list, size_t count)
{
    census found = {0};
    for (size_t i = 0; i < count; i++) {
        pthread_mutex_lock(&list[i]->lock);
        found.channels += list[i]->channels;
        found.programs += list[i]->part->it.kind == MP_UPSTREAM_COMMAND ? list[i]->channels : 0;
        pthread_mutex_unlock(&list[i]->lock);
    }
    return found;
}

/* Ends the channel of any upstream that was idle longest. False: none was idle for long enough. */
static bool end_one(mp_upstream *const *list, size_t count, bool only_programs)
{
    mp_upstream *from = NULL;
    uint64_t oldest = UINT64_MAX;
    mp_link ended = {0};
    for (size_t i = 0; i < count; i++) {
        pthread_mutex_lock(&list[i]->lock);
        bool fits = !only_programs || list[i]->part->it.kind == MP_UPSTREAM_COMMAND;
        uint64_t since = fits ? mp_channels_idle_since(list[i]) : UINT64_MAX;
        pthread_mutex_unlock(&list[i]->lock);
        if (since < oldest) {
            oldest = since;
            from = list[i];
        }
    }
    if (from == NULL)
        return false;
    pthread_mutex_lock(&from->lock);
    bool has_ended = mp_channels_evict(from, &ended);
    pthread_mutex_unlock(&from->lock);
    mp_channels_close(&ended, false);
    return has_ended;
}

/* Ends as many idle channels as requests wait for the limit `cap`, less the channels that are ending already. */
static void serve_cap(mp_upstreams *table, const mp_cap *cap, int64_t limit, int64_t live, mp_upstream *const *list,
                      size_t count, bool only_programs)
{
    pthread_mutex_lock(&table->cap_lock);
    int64_t waiters = cap->waiters, used = mp_account_used(&cap->used);
    pthread_mutex_unlock(&table->cap_lock);
    int64_t free_soon = (used > live ? used - live : 0) + (limit > used ? limit - used : 0);
    for (int i = 0; i < MOST_AT_ONCE && waiters > free_soon; i++, free_soon++)
        if (!end_one(list, count, only_programs))
            return;
}

void mp_upstreams_make_room(mp_upstreams *table, mp_upstream *const *list, size_t count)
{
    pthread_mutex_lock(&table->cap_lock);
    bool is_needed = table->channels.waiters > 0 || table->processes.waiters > 0;
    pthread_mutex_unlock(&table->cap_lock);
    if (!is_needed)
        return;
    pthread_mutex_lock(&table->lock);
    mp_upstream_limits limits = table->limits;
    pthread_mutex_unlock(&table->lock);
    census live = count_channels(list, count);
    serve_cap(table, &table->processes, limits.processes, live.programs, list, count, true);
    serve_cap(table, &table->channels, limits.channels, live.channels, list, count, false);
}

/* -- serving ------------------------------------------------------------------------------------------------------- */

/* The request that has waited longest for the limit `cap`, if it has room; else NULL. Under cap_lock. */
static mp_channel_request *MP_NULLABLE first_of(const mp_cap *cap, int64_t limit)
{
    if (mp_link_is_alone(&cap->waiting) || mp_account_used(&cap->used) >= limit)
        return NULL;
    return mp_container(cap->waiting.next, mp_channel_request, in_cap);
}

/* Retries the oldest waiting request for a channel. False: no limit has room, or that request is `*before` again, which
 * is no progress. */
static bool serve_first(mp_upstreams *table, const mp_upstream_limits *limits, const mp_channel_request **before)
{
    pthread_mutex_lock(&table->cap_lock);
    const mp_channel_request *first = first_of(&table->processes, limits->processes);
    if (first == NULL || first == *before)
        first = first_of(&table->channels, limits->channels);
    mp_upstream *upstream = first == NULL || first == *before ? NULL : mp_upstream_ref(first->upstream);
    *before = first;
    pthread_mutex_unlock(&table->cap_lock);
    if (upstream == NULL)
        return false;
    mp_link ended = {0};
    pthread_mutex_lock(&upstream->lock);
    mp_channel_requests_pump(&upstream->room, &ended);
    pthread_mutex_unlock(&upstream->lock);
    mp_channels_close(&ended, false);
    mp_upstream_unref(upstream);
    return true;
}

void mp_upstreams_serve_waiting(mp_upstreams *table)
{
    bool is_freed = atomic_exchange(&table->processes.has_freed, false);
    if (!atomic_exchange(&table->channels.has_freed, false) && !is_freed)
        return;
    pthread_mutex_lock(&table->lock);
    mp_upstream_limits limits = table->limits;
    pthread_mutex_unlock(&table->lock);
    const mp_channel_request *before = NULL;
    int count = 0;
    while (count < MOST_SERVED && serve_first(table, &limits, &before))
        count++;
    if (count == MOST_SERVED)
        atomic_store(&table->channels.has_freed, true); /* the next call of this function serves further requests */
}
