/* channel.c: channels by their key: one task of all workers opens a channel, the others wait for it; channels that are idle, lost or in
 * the way end. This file is long because all of it works on one state machine (mp_key_state). */
#include "upstream/transport.h"
#include <stdio.h>
#include <stdlib.h>

MP_GAUGE(upstream_channels, "upstream_channels", "", "", "channels to upstreams that are open or being opened")
MP_GAUGE(upstream_takes, "upstream_takes", "", "", "tasks that wait for a channel to an upstream")
MP_COUNTER(upstream_opened, "upstream_opened", "", "", "channels to upstreams that were opened")
MP_COUNTER(upstream_evicted, "upstream_evicted", "", "",
           "idle channels to upstreams that were closed to make room for another one")
MP_COUNTER(refused_upstream_busy, "refused", "reason", "upstream_busy",
           "calls of upstreams over `calls` and `waiting`, or over limits.upstreams")
MP_COUNTER(refused_upstream_down, "refused", "reason", "upstream_down",
           "calls of upstreams that failed a moment ago, or refused the credential")

#define EVICTABLE_MS 60000 /* a channel that is idle for this time may end to make room for another one */
#define BARRED_MS 60000    /* time before a refused credential is tried again, unless the failure says another one */
#define MOST_ENDED 64      /* channels that one sweep of an upstream ends */

/* -- channels ------------------------------------------------------------------------------------------------------ */

mp_channel *mp_channel_ref(mp_channel *channel)
{
    atomic_fetch_add_explicit(&channel->refs, 1, memory_order_relaxed);
    return channel;
}

void mp_channel_unref(mp_channel *channel)
{
    if (channel == NULL || atomic_fetch_sub_explicit(&channel->refs, 1, memory_order_acq_rel) != 1)
        return;
    mp_upstream_part_unref(channel->part);
    mp_upstream_unref(channel->upstream);
    free(channel->card);
    free(channel->revision);
    free(channel->session);
    free(channel->given);
    free(channel->key_text);
    free(channel);
}

uint64_t mp_channel_serial(const mp_channel *channel)
{
    return channel->serial;
}

int64_t mp_channel_next_id(mp_channel *channel)
{
    return atomic_fetch_add_explicit(&channel->next_id, 1, memory_order_relaxed) + 1;
}

mp_str mp_channel_card(const mp_channel *channel)
{
    mp_channel *shared = (mp_channel *)(uintptr_t)channel;
    pthread_mutex_lock(&shared->upstream->lock);
    mp_str card = {channel->card, channel->card_len};
    pthread_mutex_unlock(&shared->upstream->lock);
    return card;
}

mp_str mp_channel_name(const mp_channel *channel)
{
    return mp_str_of(channel->upstream->name);
}

mp_str mp_channel_key_text(const mp_channel *channel)
{
    return mp_str_of(channel->key_text);
}

const char *mp_channel_transport(const mp_channel *channel)
{
    return channel->transport->name;
}

static void deliver_closing(mp_message *message, mp_loop *loop)
{
    mp_channel *channel = mp_container(message, mp_channel, closing);
    if (loop != NULL) {
        if (!atomic_load(&channel->closing_host->is_over))
            channel->transport->close(channel, channel->closing_is_lost);
        mp_channel_unref(channel);
        return;
    }
    atomic_store(&channel->closing_host->is_over, true);
    mp_upstream_host *other = channel->transport->has_home ? NULL : mp_upstreams_live_host(channel->upstream->table);
    channel->closing_host = other;
    if (other != NULL)
        mp_loop_post(other->loop, message);
    else
        mp_channel_unref(channel);
}

static void disown(mp_channel *channel)
{
    mp_upstreams *table = channel->upstream->table;
    pthread_mutex_lock(&table->lock);
    mp_channel_owner *owner = channel->owner;
    channel->owner = NULL;
    if (owner != NULL) {
        mp_link_drop(&channel->in_owner);
        atomic_fetch_sub(&table->owned, 1);
        if (mp_link_is_alone(&owner->channels)) {
            mp_map_drop(&table->owners, &owner->node);
            free(owner);
        }
    }
    pthread_mutex_unlock(&table->lock);
}

void mp_channel_close_soon(mp_channel *channel, bool is_lost)
{
    disown(channel);
    channel->closing_is_lost = is_lost;
    channel->closing.deliver = deliver_closing;
    channel->closing_host = channel->home;
    mp_loop_post(channel->home->loop, &channel->closing);
}

bool mp_channel_detach(mp_channel *channel, bool is_lost)
{
    mp_channel_key *key = channel->key;
    if (key == NULL)
        return false;
    mp_upstream *upstream = channel->upstream;
    channel->key = NULL;
    channel->is_lost = is_lost;
    key->channel = NULL;
    key->state = MP_KEY_IDLE;
    if (channel->is_claimed)
        upstream->opening--;
    channel->is_claimed = false;
    upstream->channels--;
    atomic_fetch_sub(&upstream->table->channels, 1);
    mp_stat_add(&mp_stat_upstream_channels, -1);
    return true;
}

/* Under the upstream's lock. Room for the channel was found. */
static mp_channel *channel_new(mp_upstream *upstream, mp_channel_key *key, mp_upstream_host *home)
{
    mp_channel *channel = mp_new(sizeof *channel);
    atomic_init(&channel->refs, 1); /* the key's */
    channel->upstream = mp_upstream_ref(upstream);
    channel->transport = upstream->transport;
    channel->part = mp_upstream_part_ref(upstream->part);
    channel->serial = atomic_fetch_add(&upstream->table->serial, 1) + 1;
    channel->home = home;
    channel->key = key;
    channel->is_claimed = true;
    channel->used_at = mp_monotonic_ms();
    mp_link_init(&channel->in_owner);
    mp_link_init(&channel->exchanges);
    mp_link_init(&channel->standings);
    channel->key_text = mp_dup(key->node.key);
    key->channel = channel;
    key->state = MP_KEY_CLAIMED;
    upstream->channels++;
    upstream->opening++;
    mp_stat_add(&mp_stat_upstream_channels, 1);
    return channel;
}

/* -- takes --------------------------------------------------------------------------------------------------------- */

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
static void wake(mp_take *take)
{
    mp_stat_add(&mp_stat_upstream_takes, -1);
    atomic_fetch_add_explicit(&take->refs, 1, memory_order_relaxed);
    take->message.deliver = deliver_take;
    mp_loop_post(take->host->loop, &take->message);
}

static void refuse(mp_take *take, const char *reason, const char *why, uint64_t retry_ms)
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
    if (channel != NULL && channel->is_open && channel->running == 0 && channel->used_at <= search->before) {
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
        refuse(take, "stopped", "the upstream is being replaced, or the gateway stops", 0);
        return;
    }
    mp_channel_key *key = need_key(upstream, take->key);
    if (key->state == MP_KEY_CLAIMED) {
        wait_in(take, &key->takes);
        return;
    }
    if ((key->state == MP_KEY_RESTING || key->state == MP_KEY_BARRED) && now < key->retry_at) {
        refuse(take, key->state == MP_KEY_BARRED ? "barred" : "down", key->why, key->retry_at - now);
        return;
    }
    mp_circuit_answer may = mp_circuit_ask(&upstream->circuit, now, config->open_ms, &wait_ms);
    if (may == MP_CIRCUIT_REFUSE) {
        refuse(take, "down", upstream->error, wait_ms);
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
    take->channel = mp_channel_ref(channel_new(upstream, key, take->host));
}

/* Those who wait in the list decide anew, in their order. Under the upstream's lock. */
static void pump(mp_link *waiting, mp_link *ended)
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
        wake(take);
    }
}

/* Without a lock. */
static void close_ended(mp_link *ended, bool is_lost)
{
    for (mp_link *link; (link = mp_link_take(ended)) != NULL;)
        mp_channel_close_soon(mp_container(link, mp_channel, in_ended), is_lost);
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
    close_ended(&ended, false);
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

/* -- the life of a channel ----------------------------------------------------------------------------------------- */

void mp_channel_own(mp_channel *channel, mp_str session_id)
{
    mp_upstreams *table = channel->upstream->table;
    pthread_mutex_lock(&channel->upstream->lock);
    bool has_ended = channel->key == NULL;
    pthread_mutex_unlock(&channel->upstream->lock);
    pthread_mutex_lock(&table->lock);
    if (channel->owner == NULL && !has_ended) {
        bool is_new;
        mp_channel_owner *owner = mp_map_need(&table->owners, session_id, sizeof *owner, &is_new);
        if (is_new)
            mp_link_init(&owner->channels);
        channel->owner = owner;
        mp_link_put(&owner->channels, &channel->in_owner);
        atomic_fetch_add(&table->owned, 1);
    }
    pthread_mutex_unlock(&table->lock);
}

bool mp_channel_opened(mp_channel *channel, mp_str card, mp_str revision, mp_str session)
{
    mp_upstream *upstream = channel->upstream;
    pthread_mutex_lock(&upstream->lock);
    mp_channel_key *key = channel->key;
    bool is_claimed = key != NULL && channel->is_claimed;
    if (is_claimed) {
        channel->card = mp_dup(card);
        channel->card_len = card.len;
        channel->revision = mp_dup(revision);
        channel->session = mp_dup(session);
        channel->is_claimed = false;
        channel->is_open = true;
        channel->used_at = mp_monotonic_ms();
        key->state = MP_KEY_OPEN;
        key->failures = 0;
        upstream->opening--;
        upstream->total_opened++;
        snprintf(upstream->revision, sizeof upstream->revision, "%s", channel->revision);
        mp_stat_add(&mp_stat_upstream_opened, 1);
        for (mp_link *link; (link = mp_link_take(&key->takes)) != NULL;) {
            mp_take *take = mp_container(link, mp_take, link);
            take->result = MP_TAKE_OPEN;
            take->channel = mp_channel_ref(channel);
            wake(take);
        }
    }
    pthread_mutex_unlock(&upstream->lock);
    return is_claimed;
}

/* The key rests, and so do those who wait for it. Under the lock. */
static void rest(mp_channel_key *key, const mp_upstream_config *config, const mp_upstream_failure *failure)
{
    bool is_barred = strcmp(failure->reason, "barred") == 0;
    uint64_t ms = is_barred ? BARRED_MS
                            : mp_backoff_ms(++key->failures, config->circuit_open_min_ms, config->circuit_open_max_ms);
    if (is_barred && failure->retry_after_ms > 0)
        ms = (uint64_t)failure->retry_after_ms;
    key->state = is_barred ? MP_KEY_BARRED : MP_KEY_RESTING;
    key->retry_at = mp_monotonic_ms() + ms;
    snprintf(key->why, sizeof key->why, "%s", failure->why);
    for (mp_link *link; (link = mp_link_take(&key->takes)) != NULL;) {
        mp_take *take = mp_container(link, mp_take, link);
        refuse(take, is_barred ? "barred" : "down", key->why, ms);
        wake(take);
    }
}

void mp_channel_failed(mp_channel *channel, const mp_upstream_failure *failure)
{
    mp_upstream *upstream = channel->upstream;
    mp_link ended = {&ended, &ended};
    pthread_mutex_lock(&upstream->lock);
    mp_channel_key *key = channel->key;
    bool was_claimed = key != NULL && channel->is_claimed && mp_channel_detach(channel, false);
    if (was_claimed) {
        rest(key, &upstream->part->it, failure);
        pump(&upstream->room, &ended);
    }
    pthread_mutex_unlock(&upstream->lock);
    if (was_claimed)
        mp_channel_close_soon(channel, false);
    close_ended(&ended, false);
}

/* Ends the channel if it is claimed (`only_claimed`), open (`only_open`), or in any case. True if it had not ended before. */
static bool end_channel(mp_channel *channel, bool only_claimed, bool only_open, bool is_lost)
{
    mp_upstream *upstream = channel->upstream;
    mp_link ended = {&ended, &ended};
    pthread_mutex_lock(&upstream->lock);
    mp_channel_key *key = channel->key;
    bool ends = key != NULL && (!only_claimed || channel->is_claimed) && (!only_open || channel->is_open) &&
                mp_channel_detach(channel, is_lost);
    if (ends) {
        if (is_lost)
            upstream->total_lost++;
        pump(&key->takes, &ended);
        pump(&upstream->room, &ended);
    }
    pthread_mutex_unlock(&upstream->lock);
    if (ends)
        mp_channel_close_soon(channel, is_lost);
    close_ended(&ended, false);
    return ends;
}

void mp_channel_give_back(mp_channel *channel)
{
    end_channel(channel, true, false, false);
}

bool mp_channel_lost(mp_channel *channel)
{
    return end_channel(channel, false, true, true);
}

void mp_channel_end(mp_channel *channel)
{
    end_channel(channel, false, false, false);
}

/* -- the sweep ----------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_upstream *upstream;
    mp_link *ended;
    uint64_t now;
    int count;
    bool ends_all;
    const mp_upstream_host *home;
} sweep;

static void sweep_key(mp_node *node, void *ctx)
{
    sweep *it = ctx;
    mp_channel_key *key = mp_container(node, mp_channel_key, node);
    mp_channel *channel = key->channel;
    const mp_upstream_config *config = &it->upstream->part->it;
    if (channel != NULL) {
        bool is_idle = channel->is_open && channel->running == 0 &&
                       (it->ends_all || it->now >= channel->used_at + config->idle_stop_ms);
        if (is_idle && it->count < MOST_ENDED && mp_channel_detach(channel, false)) {
            mp_link_init(&channel->in_ended);
            mp_link_put(it->ended, &channel->in_ended);
            it->count++;
        }
    } else if (mp_link_is_alone(&key->takes) &&
               (key->state == MP_KEY_IDLE || it->now > key->retry_at + config->circuit_open_max_ms)) {
        mp_map_drop(&it->upstream->keys, node);
        free(key);
    }
}

static void end_if_home(mp_node *node, void *ctx)
{
    sweep *it = ctx;
    mp_channel *channel = mp_container(node, mp_channel_key, node)->channel;
    if (channel != NULL && channel->home == it->home && channel->transport->has_home &&
        mp_channel_detach(channel, false)) {
        mp_link_init(&channel->in_ended);
        mp_link_put(it->ended, &channel->in_ended);
    }
}

void mp_channels_end_home(mp_upstream *upstream, const mp_upstream_host *home)
{
    mp_link ended = {&ended, &ended};
    sweep it = {.upstream = upstream, .ended = &ended, .home = home};
    pthread_mutex_lock(&upstream->lock);
    mp_map_each(&upstream->keys, end_if_home, &it);
    pthread_mutex_unlock(&upstream->lock);
    close_ended(&ended, false);
}

void mp_channels_sweep(mp_upstream *upstream, uint64_t now)
{
    mp_link ended = {&ended, &ended};
    sweep it = {.upstream = upstream, .ended = &ended, .now = now};
    pthread_mutex_lock(&upstream->lock);
    it.ends_all = upstream->is_retired || atomic_load(&upstream->table->is_ending);
    mp_map_each(&upstream->keys, sweep_key, &it);
    pump(&upstream->room, &ended);
    pthread_mutex_unlock(&upstream->lock);
    close_ended(&ended, false);
}
