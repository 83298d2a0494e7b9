/* room.c: takes of one upstream that wait for limits.upstreams get room from the idle channels of all. */
#include "upstream/state.h"
#include <stdlib.h>

#define MOST_AT_ONCE 16 /* channels that one sweep ends for others */

typedef struct {
    int64_t channels, programs; /* that are open or being opened; of them, those of programs */
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

/* Ends the channel of all upstreams that was idle longest. False: none was idle for long enough. */
static bool end_one(mp_upstream *const *list, size_t count, bool only_programs)
{
    mp_upstream *from = NULL;
    uint64_t oldest = UINT64_MAX;
    mp_link ended = {&ended, &ended};
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

/* Ends as many channels as takes wait for, less those that are about to be free. */
static void serve_cap(mp_upstreams *table, const mp_cap *cap, int64_t limit, int64_t live, mp_upstream *const *list,
                      size_t count, bool only_programs)
{
    pthread_mutex_lock(&table->cap_lock);
    int64_t waiters = cap->waiters, used = atomic_load(&cap->used);
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
