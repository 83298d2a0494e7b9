/* take.c: tasks that take a channel: who gets one, who opens one, who waits for which room, and which idle channel makes room. */
#include "upstream/transport.h"
#include <stdlib.h>

MP_GAUGE(upstream_takes, "upstream_takes", "", "", "tasks that wait for a channel to an upstream")
MP_COUNTER(upstream_evicted, "upstream_evicted", "", "",
           "idle channels to upstreams that were closed to make room for another one")
MP_COUNTER(refused_upstream_busy, "refused", "reason", "upstream_busy",
           "calls of upstreams over `calls` and `waiting`, or over limits.upstreams")
MP_COUNTER(refused_upstream_down, "refused", "reason", "upstream_down",
           "calls of upstreams that failed a moment ago, or refused the credential")

#define EVICTABLE_MS 60000 /* a channel that is idle for this time may end to make room for another one */

static void take_unref(mp_take *take)
{
    if (atomic_fetch_sub_explicit(&take->refs, 1, memory_order_acq_rel) != 1)
        return;
    mp_channel_unref(take->channel);
    mp_upstream_unref(take->upstream);
    mp_upstream_failure_clear(&take->failure);
    free(take);
}

static void deliver_take(mp_message *message, mp_loop *loop)
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

void mp_take_refuse(mp_take *take, const char *reason, const char *why, uint64_t retry_ms)
{
    take->result = MP_TAKE_REFUSED;
    mp_upstream_failure_set(&take->failure, reason, false, why);
    if (retry_ms > 0)
        take->failure.retry_after_ms = (int64_t)retry_ms;
    bool is_busy = strcmp(reason, "busy") == 0;
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
    mp_channel *oldest;
    uint64_t before;
} idle_search;

static void look_for_idle(mp_node *node, void *ctx)
{
    idle_search *search = ctx;
    mp_channel *channel = mp_container(node, mp_channel_key, node)->channel;
    if (channel != NULL && channel->is_open && channel->running == 0 && !channel->is_held &&
        channel->used_at <= search->before) {
        search->before = channel->used_at;
        search->oldest = channel;
    }
}

/* Ends the channel that was idle longest, if it was idle for long. Under the lock; close_soon is posted by the message below. */
static bool evict(mp_upstream *upstream, mp_link *ended)
{
    uint64_t now = mp_monotonic_ms();
    idle_search search = {.before = now > EVICTABLE_MS ? now - EVICTABLE_MS : 0};
    mp_map_each(&upstream->keys, look_for_idle, &search);
    if (search.oldest == NULL || !mp_channel_detach(search.oldest, false))
        return false;
    mp_link_init(&search.oldest->in_ended);
    mp_link_put(ended, &search.oldest->in_ended);
    mp_stat_add(&mp_stat_upstream_evicted, 1);
    return true;
}

static bool reserve_channel(mp_upstream *upstream)
{
    mp_upstreams *table = upstream->table;
    const mp_upstream_part *part = upstream->part;
    if (part->it.most > 0 && upstream->channels >= part->it.most)
        return false;
    if (atomic_fetch_add(&table->channels, 1) < part->limits.channels)
        return true;
    atomic_fetch_sub(&table->channels, 1);
    return false;
}

static mp_channel_key *need_key(mp_upstream *upstream, mp_str text)
{
    bool is_new;
    mp_channel_key *key = mp_map_need(&upstream->keys, text, sizeof *key, &is_new);
    if (is_new)
        mp_link_init(&key->takes);
    return key;
}

/* Gives the take its result, or lets it wait. Under the upstream's lock; the caller closes the channels in `ended` without it. */
static void decide(mp_take *take, mp_link *ended)
{
    mp_upstream *upstream = take->upstream;
    const mp_upstream_config *config = &upstream->part->it;
    uint64_t now = mp_monotonic_ms(), wait_ms = 0;
    if (upstream->is_retired || atomic_load(&upstream->table->is_ending)) {
        mp_take_refuse(take, "stopped", "the upstream is being replaced, or the gateway stops", 0);
        return;
    }
    mp_channel_key *key = need_key(upstream, take->key);
    if (key->state == MP_KEY_CLAIMED) {
        wait_in(take, &key->takes);
        return;
    }
    if ((key->state == MP_KEY_RESTING || key->state == MP_KEY_BARRED) && now < key->retry_at) {
        mp_take_refuse(take, key->state == MP_KEY_BARRED ? "barred" : "down", key->why, key->retry_at - now);
        return;
    }
    mp_circuit_answer may = mp_circuit_ask(&upstream->circuit, now, config->open_ms, &wait_ms);
    if (may == MP_CIRCUIT_REFUSE) {
        mp_take_refuse(take, "down", upstream->error, wait_ms);
        return;
    }
    if (key->state == MP_KEY_OPEN) {
        take->result = may == MP_CIRCUIT_PROBE ? MP_TAKE_PROBE : MP_TAKE_OPEN;
        take->channel = mp_channel_ref(key->channel);
        key->channel->used_at = now;
        return;
    }
    if (!reserve_channel(upstream) && !(evict(upstream, ended) && reserve_channel(upstream))) {
        wait_in(take, &upstream->room);
        return;
    }
    take->result = MP_TAKE_CLAIMED;
    take->channel = mp_channel_ref(mp_channel_claim(upstream, key, take->host));
}

/* Those who wait in the list decide anew, in their order. Under the upstream's lock. */
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

mp_take *mp_channel_take(mp_upstream_host *host, const mp_take_options *options)
{
    mp_take *take = mp_new(sizeof *take + options->key.len);
    atomic_init(&take->refs, 1);
    take->host = host;
    take->done = options->done;
    take->ctx = options->ctx;
    mp_link_init(&take->link);
    if (options->key.len > 0)
        memcpy(take->bytes, options->key.ptr, options->key.len);
    take->key = (mp_str){take->bytes, options->key.len};
    take->upstream = mp_upstreams_find(host->table, options->name);
    if (take->upstream == NULL) {
        take->result = MP_TAKE_REFUSED;
        mp_upstream_failure_set(&take->failure, "unknown", false, "the configuration has no upstream of this name");
        return take;
    }
    mp_link ended = {&ended, &ended};
    pthread_mutex_lock(&take->upstream->lock);
    take->open_ms = take->upstream->part->it.open_ms;
    decide(take, &ended);
    pthread_mutex_unlock(&take->upstream->lock);
    mp_channels_close(&ended, false);
    return take;
}

mp_take_result mp_take_result_of(const mp_take *take)
{
    if (take->upstream == NULL)
        return take->result;
    pthread_mutex_lock(&take->upstream->lock);
    mp_take_result result = take->result;
    pthread_mutex_unlock(&take->upstream->lock);
    return result;
}

mp_channel *mp_take_fetch(mp_take *take)
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

void mp_take_free(mp_take *take)
{
    if (take == NULL)
        return;
    take->done = NULL;
    mp_channel *unused = NULL;
    if (take->upstream != NULL) {
        pthread_mutex_lock(&take->upstream->lock);
        if (take->result == MP_TAKE_WAITS) {
            mp_link_drop(&take->link);
            take->result = MP_TAKE_REFUSED;
            mp_stat_add(&mp_stat_upstream_takes, -1);
        } else if (take->result == MP_TAKE_CLAIMED && take->channel != NULL) {
            unused = mp_channel_ref(take->channel);
        }
        pthread_mutex_unlock(&take->upstream->lock);
    }
    if (unused != NULL) {
        mp_channel_give_back(unused);
        mp_channel_unref(unused);
    }
    take_unref(take);
}
