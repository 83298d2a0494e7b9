/* take.c: requests of tasks for a channel, called takes: which one gets a channel, which one opens it, which ones wait
 * for which limit, and which idle channel ends to make room. */
#include "upstream/transport.h"
#include <stdlib.h>

MP_GAUGE(upstream_takes, "upstream_takes", "", "", "tasks that wait for a channel to an upstream")
MP_COUNTER(upstream_evicted, "upstream_evicted", "", "",
           "idle channels to upstreams that were closed to make room for another one")
MP_COUNTER(refused_upstream_busy, "refused", "reason", "upstream_busy",
           "calls of upstreams over `calls` and `waiting`, or over limits.upstreams")
MP_COUNTER(refused_upstream_down, "refused", "reason", "upstream_down",
           "calls of upstreams that failed a moment ago, or refused the credential")

/* ms without a request, after which a channel may end to make room for another one */
#define EVICT_IDLE_MS MP_LIMIT(upstream_evict_idle_ms, 1000)
#define MAX_FRESH_MS 30000 /* ms that a newly opened channel has for its first request */

static void take_unref(mp_take *take)
{
    if (atomic_fetch_sub_explicit(&take->refs, 1, memory_order_acq_rel) != 1)
        return;
    mp_channel_unref(take->channel);
    mp_upstream_unref(take->upstream);
    mp_upstream_failure_clear(&take->failure);
    free(take);
}

static void deliver_take(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_take *take = mp_container(message, mp_take, message);
    if (loop != NULL && take->done != NULL)
        take->done(take->ctx);
    take_unref(take);
}

/* A waiting take has its result: tells its task. Under the upstream's lock. */
void mp_take_wake(mp_take *take)
{
    mp_stat_add(&mp_stat_upstream_takes, -1);
    atomic_fetch_add_explicit(&take->refs, 1, memory_order_relaxed);
    take->message.deliver = deliver_take;
    mp_loop_post(take->host->loop, &take->message);
}

void mp_take_refuse(mp_take *take, mp_failure_reason reason, const char *why, uint64_t retry_ms)
{
    take->result = MP_TAKE_REFUSED;
    mp_upstream_failure_set(&take->failure, reason, false, why);
    if (retry_ms > 0)
        take->failure.retry_after_ms = (int64_t)retry_ms;
    bool is_busy = reason == MP_FAILURE_BUSY;
    take->upstream->total_refused++;
    mp_stat_add(is_busy ? &mp_stat_refused_upstream_busy : &mp_stat_refused_upstream_down, 1);
}

static void wait_in(mp_take *take, mp_link *list)
{
    take->result = MP_TAKE_WAITS;
    mp_link_put(list, &take->link);
    mp_stat_add(&mp_stat_upstream_takes, 1);
}

typedef struct {
    mp_channel *MP_NULLABLE oldest;
    uint64_t before, fresh_before;
} idle_search;

/* A search for the channel that is idle longest, of those that are idle for long enough to make room for another
 * one. */
static idle_search search_idle(void)
{
    uint64_t now = mp_monotonic_ms(), idle = (uint64_t)EVICT_IDLE_MS;
    return (idle_search){.before = now > idle ? now - idle : 0,
                         .fresh_before = now > MAX_FRESH_MS ? now - MAX_FRESH_MS : 0};
}

static void look_for_idle(mp_node *node, void *ctx)
{
    idle_search *search = ctx;
    mp_channel *channel = mp_container(node, mp_channel_key, node)->channel;
    if (channel != NULL && channel->is_open && channel->running == 0 && !channel->is_held &&
        channel->used_at <= search->before && (!channel->is_fresh || channel->used_at <= search->fresh_before)) {
        search->before = channel->used_at;
        search->oldest = channel;
    }
}

uint64_t mp_channels_idle_since(const mp_upstream *upstream)
{
    idle_search search = search_idle();
    mp_map_each(&((mp_upstream *)(uintptr_t)upstream)->keys, look_for_idle, &search);
    return search.oldest == NULL ? UINT64_MAX : search.before;
}

bool mp_channels_evict(mp_upstream *upstream, mp_link *ended)
{
    idle_search search = search_idle();
    mp_map_each(&upstream->keys, look_for_idle, &search);
    if (search.oldest == NULL || !mp_channel_detach(search.oldest, false))
        return false;
    mp_link_init(&search.oldest->in_ended);
    mp_link_put(ended, &search.oldest->in_ended);
    mp_stat_add(&mp_stat_upstream_evicted, 1);
    mp_log(MP_INFO, "idle channel ended for room", mp_log_str("upstream", mp_str_of(upstream->name)),
           mp_log_int("idle_ms", (int64_t)(mp_monotonic_ms() - search.before)));
    return true;
}

/* -- room ---------------------------------------------------------------------------------------------------------- */

/* Ends the wait of a take for a limit of all upstreams. Under cap_lock. */
static void leave_cap(mp_take *take)
{
    mp_cap *cap = take->cap;
    if (cap == NULL)
        return;
    mp_link_drop(&take->in_cap);
    cap->waiters--;
    take->cap = NULL;
}

/* Counts one more within a limit of all upstreams, if no older take waits for it. False: this take waits. */
static bool reserve(mp_take *take, mp_cap *cap, int64_t limit)
{
    mp_upstreams *table = take->upstream->table;
    pthread_mutex_lock(&table->cap_lock);
    bool is_first = mp_link_is_alone(&cap->waiting) || cap->waiting.next == &take->in_cap;
    bool may = is_first && mp_account_take(&cap->used, 1, limit); /* mp_channel_use_place() takes without this lock */
    if (may == (take->cap == cap)) /* counted, or refused by another limit than before: the old wait is over */
        leave_cap(take);
    if (!may && take->cap == NULL) {
        take->cap = cap;
        cap->waiters++;
        mp_link_put(&cap->waiting, &take->in_cap);
    }
    pthread_mutex_unlock(&table->cap_lock);
    return may;
}

static void leave_room(mp_take *take)
{
    mp_upstreams *table = take->upstream->table;
    take->lacks = NULL;
    if (take->cap == NULL)
        return;
    pthread_mutex_lock(&table->cap_lock);
    leave_cap(take);
    pthread_mutex_unlock(&table->cap_lock);
}

void mp_cap_release(mp_cap *cap)
{
    mp_account_give(&cap->used, 1);
    atomic_store(&cap->has_freed, true);
}

/* NULL: a channel is counted for the take, and a process if the upstream is a program. Else the limit that is full. */
static const char *MP_NULLABLE lacks_of(mp_take *take)
{
    const mp_upstream *upstream = take->upstream;
    mp_upstreams *table = upstream->table;
    const mp_upstream_part *part = upstream->part;
    int64_t places = atomic_load(&upstream->places); /* also processes that have not ended though their channel has */
    if (part->it.most > 0 && (upstream->channels >= part->it.most || places >= part->it.most)) {
        leave_room(take);
        return "the upstream has `most` sessions or programs";
    }
    if (!reserve(take, &table->channels, part->limits.channels))
        return "limits.upstreams.channels are open";
    if (part->it.kind != MP_UPSTREAM_COMMAND || reserve(take, &table->processes, part->limits.processes))
        return NULL;
    mp_cap_release(&table->channels);
    return "limits.upstreams.processes run";
}

static mp_channel_key *need_key(mp_upstream *upstream, mp_str text)
{
    bool is_new;
    mp_channel_key *key = mp_map_need(&upstream->keys, text, sizeof *key, &is_new);
    if (is_new)
        mp_link_init(&key->takes);
    return key;
}

/* Gives the take its result, or lets it wait. Under the upstream's lock; the caller then closes the channels in `ended`
 * without the lock. */
static void decide(mp_take *take, mp_link *ended)
{
    mp_upstream *upstream = take->upstream;
    const mp_upstream_config *config = &upstream->part->it;
    uint64_t now = mp_monotonic_ms(), wait_ms = 0;
    take->lacks = NULL;
    if (upstream->is_retired || atomic_load(&upstream->table->is_ending)) {
        leave_room(take);
        mp_take_refuse(take, MP_FAILURE_STOPPED, "the upstream is being replaced, or the gateway stops", 0);
        return;
    }
    mp_channel_key *key = need_key(upstream, take->key);
    if (key->state == MP_KEY_CLAIMED) {
        leave_room(take);
        wait_in(take, &key->takes);
        return;
    }
    if ((key->state == MP_KEY_RESTING || key->state == MP_KEY_BARRED) && now < key->retry_at) {
        leave_room(take);
        mp_take_refuse(take, key->state == MP_KEY_BARRED ? MP_FAILURE_BARRED : MP_FAILURE_DOWN, key->why,
                       key->retry_at - now);
        return;
    }
    mp_circuit_answer may = mp_circuit_ask(&upstream->circuit, now, config->open_ms, &wait_ms);
    if (may == MP_CIRCUIT_REFUSE) {
        leave_room(take);
        mp_take_refuse(take, MP_FAILURE_DOWN, upstream->error, wait_ms);
        return;
    }
    if (key->state == MP_KEY_OPEN) {
        leave_room(take);
        take->result = may == MP_CIRCUIT_PROBE ? MP_TAKE_PROBE : MP_TAKE_OPEN;
        if (may == MP_CIRCUIT_PROBE)
            mp_circuit_begin_probe(&upstream->circuit, now);
        take->channel = mp_channel_ref(key->channel);
        key->channel->used_at = now;
        return;
    }
    const char *lacks = lacks_of(take);
    bool is_own_limit = lacks != NULL && take->cap == NULL;
    bool is_one_leaving = atomic_load(&upstream->places) > upstream->channels;
    if (is_own_limit && !is_one_leaving && mp_channels_evict(upstream, ended))
        lacks = lacks_of(take);
    take->lacks = lacks;
    if (lacks != NULL) {
        wait_in(take, &upstream->room);
        return;
    }
    take->result = MP_TAKE_CLAIMED;
    mp_channel *channel = mp_channel_ref(mp_channel_claim(upstream, key, take->host));
    if (may == MP_CIRCUIT_PROBE) { /* only now: while a probe waited for room, all others would be refused */
        mp_circuit_begin_probe(&upstream->circuit, now);
        channel->is_probe = true;
    }
    take->channel = channel;
}

/* Decides again about all takes that wait in the list, oldest first. Under the upstream's lock. */
void mp_takes_pump(mp_link *waiting, mp_link *ended)
{
    mp_link again = {&again, &again};
    for (mp_link *link; (link = mp_link_take(waiting)) != NULL;)
        mp_link_put(&again, link);
    for (mp_link *link; (link = mp_link_take(&again)) != NULL;) {
        mp_take *take = mp_container(link, mp_take, link);
        mp_stat_add(&mp_stat_upstream_takes, -1);
        decide(take, ended);
        if (take->result == MP_TAKE_WAITS)
            continue;
        mp_stat_add(&mp_stat_upstream_takes, 1);
        mp_take_wake(take);
    }
}

mp_take *MP_NULLABLE mp_channel_take(mp_upstream_host *host, const mp_take_options *options,
                                     mp_upstream_failure *failure)
{
    mp_upstream *upstream = mp_upstreams_find(host->table, options->name);
    if (upstream == NULL) {
        mp_upstream_failure_set(failure, MP_FAILURE_UNKNOWN, false, "the configuration has no upstream of this name");
        return NULL;
    }
    mp_take *take = mp_new(sizeof *take + options->key.len);
    atomic_init(&take->refs, 1);
    take->host = host;
    take->done = options->done;
    take->ctx = options->ctx;
    mp_link_init(&take->link);
    mp_link_init(&take->in_cap);
    if (options->key.len > 0)
        memcpy(take->bytes, options->key.ptr, options->key.len);
    take->key = (mp_str){take->bytes, options->key.len};
    take->upstream = upstream;
    mp_link ended = {&ended, &ended};
    pthread_mutex_lock(&upstream->lock);
    take->open_ms = upstream->part->it.open_ms;
    decide(take, &ended);
    pthread_mutex_unlock(&upstream->lock);
    mp_channels_close(&ended, false);
    return take;
}

mp_channel *MP_NULLABLE mp_channel_find_open(mp_upstream_host *host, mp_str name, mp_str key)
{
    mp_upstream *upstream = mp_upstreams_find(host->table, name);
    if (upstream == NULL)
        return NULL;
    mp_channel *channel = NULL;
    pthread_mutex_lock(&upstream->lock);
    mp_node *node = mp_map_find(&upstream->keys, key);
    const mp_channel_key *found = node == NULL ? NULL : mp_container(node, mp_channel_key, node);
    bool may = !upstream->is_retired && !upstream->circuit.is_open && !atomic_load(&upstream->table->is_ending);
    if (may && found != NULL && found->state == MP_KEY_OPEN) {
        channel = mp_channel_ref(found->channel);
        channel->used_at = mp_monotonic_ms();
    }
    pthread_mutex_unlock(&upstream->lock);
    mp_upstream_unref(upstream);
    return channel;
}

mp_take_result mp_take_result_of(const mp_take *take)
{
    pthread_mutex_lock(&take->upstream->lock);
    mp_take_result result = take->result;
    pthread_mutex_unlock(&take->upstream->lock);
    return result;
}

void mp_take_expire(mp_take *take)
{
    pthread_mutex_lock(&take->upstream->lock);
    if (take->result == MP_TAKE_WAITS) {
        const char *lacks = take->lacks;
        leave_room(take);
        mp_link_drop(&take->link);
        mp_stat_add(&mp_stat_upstream_takes, -1);
        mp_take_refuse(take, lacks == NULL ? MP_FAILURE_OPEN : MP_FAILURE_BUSY,
                       lacks == NULL ? "no channel was opened within `open`" : lacks, 0);
    }
    pthread_mutex_unlock(&take->upstream->lock);
}

mp_channel *MP_NULLABLE mp_take_fetch(mp_take *take)
{
    mp_channel *channel = take->channel;
    take->channel = NULL;
    return channel;
}

const mp_upstream_failure *mp_take_failure(const mp_take *take)
{
    return &take->failure;
}

uint64_t mp_take_open_ms(const mp_take *take)
{
    return take->open_ms;
}

void mp_take_free(mp_take *MP_NULLABLE take)
{
    if (take == NULL)
        return;
    take->done = NULL;
    mp_channel *unused = NULL;
    pthread_mutex_lock(&take->upstream->lock);
    if (take->result == MP_TAKE_WAITS) {
        leave_room(take);
        mp_link_drop(&take->link);
        take->result = MP_TAKE_REFUSED;
        mp_stat_add(&mp_stat_upstream_takes, -1);
    } else if (take->result == MP_TAKE_CLAIMED && take->channel != NULL) {
        unused = mp_channel_ref(take->channel);
    } else if (take->result == MP_TAKE_PROBE && take->channel != NULL) {
        mp_circuit_give_up_probe(&take->upstream->circuit, mp_monotonic_ms(), &take->upstream->part->it);
    }
    pthread_mutex_unlock(&take->upstream->lock);
    if (unused != NULL) {
        mp_channel_give_back(unused);
        mp_channel_unref(unused);
    }
    take_unref(take);
}
