/* channel.c: channels by their key: one task of all workers opens a channel, the others wait for it; idle and lost
 * channels end. acquire.c has the requests of tasks for a channel. */
#include "upstream/transport/listen_stream.h"

MP_GAUGE(upstream_channels, "upstream_channels", "", "", "channels to upstreams that are open or being opened",
         MP_SHOWN_BY_LABELS)
MP_COUNTER(upstream_opened, "upstream_opened", "", "", "channels to upstreams that were opened")

/* ms before a refused credential is tried again, unless the failure gives another time */
#define BARRED_MS 60000
#define MOST_ENDED 64 /* channels that one sweep of an upstream ends */

/* -- channels ------------------------------------------------------------------------------------------------------ */

mp_channel *mp_channel_ref(mp_channel *channel)
{
    atomic_fetch_add_explicit(&channel->refs, 1, memory_order_relaxed);
    return channel;
}

void mp_channel_release_place(mp_channel *channel)
{
    if (!atomic_exchange(&channel->has_place, false))
        return;
    atomic_fetch_sub(&channel->upstream->places, 1);
    mp_cap_release(&channel->upstream->table->processes);
}

bool mp_channel_use_place(mp_channel *channel)
{
    mp_cap *cap = &channel->upstream->table->processes;
    if (atomic_exchange(&channel->has_place, false))
        return true;
    if (!mp_account_take(&cap->used, 1, channel->part->limits.processes))
        return false;
    atomic_fetch_add(&channel->upstream->places, 1);
    return true;
}

void mp_channel_unref(mp_channel *MP_NULLABLE channel)
{
    if (channel == NULL || atomic_fetch_sub_explicit(&channel->refs, 1, memory_order_acq_rel) != 1)
        return;
    mp_channel_release_place(channel);
    mp_upstream_part_unref(channel->part);
    mp_upstream_unref(channel->upstream);
    free(channel->server_info);
    free(channel->token);
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

mp_str mp_channel_server_info(const mp_channel *channel)
{
    mp_channel *shared = (mp_channel *)(uintptr_t)channel;
    MP_LOCKED(&shared->upstream->lock);
    mp_str server_info = {channel->server_info, channel->server_info_len};
    return server_info;
}

mp_str mp_channel_name(const mp_channel *channel)
{
    return mp_str_of(channel->upstream->name);
}

mp_str mp_channel_key_text(const mp_channel *channel)
{
    return mp_str_of(channel->key_text);
}

mp_str mp_channel_revision(const mp_channel *channel)
{
    return channel->revision == NULL ? MP_STR_NONE : mp_str_of(channel->revision);
}

const char *mp_channel_transport(const mp_channel *channel)
{
    return channel->transport->name;
}

static void deliver_closing(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_channel *channel = mp_container(message, mp_channel, closing);
    if (loop != NULL) {
        if (!atomic_load(&channel->closing_host->is_over)) {
            channel->transport->close(channel, channel->closing_is_lost);
            if (channel->closing_is_lost && channel->closing_host == channel->worker)
                mp_observe_event(channel, MP_OBSERVED_LOST);
        }
        mp_channel_unref(channel);
        return;
    }
    atomic_store(&channel->closing_host->is_over, true);
    mp_upstream_host *other = channel->transport->one_worker ? NULL : mp_upstreams_live_host(channel->upstream->table);
    if (other == NULL) {
        mp_channel_unref(channel);
        return;
    }
    channel->closing_host = other;
    mp_loop_post(other->loop, message);
}

static void disown_channel(mp_channel *channel)
{
    mp_upstreams *table = channel->upstream->table;
    MP_LOCKED(&table->lock);
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
}

void mp_channel_close_soon(mp_channel *channel, bool is_lost)
{
    disown_channel(channel);
    channel->closing_is_lost = is_lost;
    channel->closing.deliver = deliver_closing;
    channel->closing_host = channel->worker;
    mp_loop_post(channel->worker->loop, &channel->closing);
}

bool mp_channel_detach(mp_channel *channel, bool is_lost)
{
    mp_channel_key *key = channel->key;
    if (key == NULL)
        return false;
    mp_upstream *upstream = channel->upstream;
    channel->key = NULL;
    channel->is_lost = is_lost;
    key->channel = MP_UNSET;
    key->state = MP_KEY_IDLE;
    if (channel->is_claimed)
        upstream->opening--;
    channel->is_claimed = false;
    upstream->channels--;
    mp_cap_release(&upstream->table->channels);
    mp_stat_add(&mp_stat_upstream_channels, -1);
    return true;
}

mp_channel *mp_channel_claim(mp_upstream *upstream, mp_channel_key *key, mp_upstream_host *worker)
{
    mp_channel *channel = mp_new(sizeof *channel);
    atomic_init(&channel->refs, 1); /* the reference of the key */
    channel->upstream = mp_upstream_ref(upstream);
    channel->transport = upstream->transport;
    channel->part = mp_upstream_part_ref(upstream->part);
    channel->serial = atomic_fetch_add(&upstream->table->serial, 1) + 1;
    channel->worker = worker;
    channel->key = key;
    channel->is_claimed = true;
    channel->used_at = mp_monotonic_ms();
    atomic_init(&channel->has_place, upstream->part->it.kind == MP_UPSTREAM_COMMAND);
    atomic_fetch_add(&upstream->places, upstream->part->it.kind == MP_UPSTREAM_COMMAND);
    channel->key_text = mp_dup(key->node.key);
    key->channel = channel;
    key->state = MP_KEY_CLAIMED;
    upstream->channels++;
    upstream->opening++;
    mp_stat_add(&mp_stat_upstream_channels, 1);
    return channel;
}

void mp_channels_close(mp_link *ended, bool is_lost)
{
    MP_EACH_TAKEN(mp_channel, channel, ended, in_ended)
        mp_channel_close_soon(channel, is_lost);
}

/* -- the life of a channel ----------------------------------------------------------------------------------------- */

void mp_channel_own(mp_channel *channel, mp_str session_id)
{
    mp_upstreams *table = channel->upstream->table;
    pthread_mutex_lock(&table->lock);
    pthread_mutex_lock(&channel->upstream->lock);
    /* if the channel ends after this, disown_channel() waits for the table's lock and finds the owner that is set below
     */
    bool has_ended = channel->key == NULL;
    pthread_mutex_unlock(&channel->upstream->lock);
    if (channel->owner == NULL && !has_ended) {
        bool is_new;
        mp_channel_owner *owner = mp_map_need(&table->owners, session_id, sizeof *owner, &is_new);
        channel->owner = owner;
        mp_link_put(&owner->channels, &channel->in_owner);
        atomic_fetch_add(&table->owned, 1);
    }
    pthread_mutex_unlock(&table->lock);
}

bool mp_channel_opened(mp_channel *channel, mp_str server_info, mp_str revision, mp_str session)
{
    mp_upstream *upstream = channel->upstream;
    MP_LOCKED(&upstream->lock);
    mp_channel_key *key = channel->key;
    bool is_claimed = key != NULL && channel->is_claimed;
    if (is_claimed) {
        channel->server_info = mp_dup(server_info);
        channel->server_info_len = server_info.len;
        channel->revision = mp_dup(revision);
        channel->session = mp_dup(session);
        channel->is_claimed = false;
        channel->is_open = channel->is_fresh = true;
        channel->used_at = mp_monotonic_ms();
        key->state = MP_KEY_OPEN;
        key->failures = 0;
        upstream->opening--;
        upstream->total_opened++;
        mp_upstream_note_answer(upstream, key);
        snprintf(upstream->revision, sizeof upstream->revision, "%s", channel->revision);
        mp_stat_add(&mp_stat_upstream_opened, 1);
        MP_EACH_TAKEN(mp_channel_request, request, &key->requests, link) {
            request->result = MP_ACQUIRE_OPEN;
            request->channel = mp_channel_ref(channel);
            mp_channel_request_wake(request);
        }
    }
    return is_claimed;
}

void mp_channel_authorize(mp_channel *channel, mp_str token)
{
    char *before = NULL;
    pthread_mutex_lock(&channel->upstream->lock);
    if (channel->token == NULL || !mp_str_is(token, channel->token)) {
        before = channel->token;
        channel->token = mp_dup(token);
    }
    pthread_mutex_unlock(&channel->upstream->lock);
    free(before);
}

/* Opening a channel of the key has failed: refuses the waiting requests for it, and further ones until retry_at. Under
 * the upstream's lock. */
static void rest_key(mp_upstream *upstream, mp_channel_key *key, const mp_upstream_failure *failure)
{
    const mp_upstream_config *config = &upstream->part->it;
    bool is_barred = failure->reason == MP_FAILURE_BARRED;
    uint64_t ms = is_barred ? BARRED_MS
                            : mp_backoff_ms(++key->failures, config->circuit_open_min_ms, config->circuit_open_max_ms);
    if (is_barred && failure->retry_after_ms > 0)
        ms = (uint64_t)failure->retry_after_ms;
    key->state = is_barred ? MP_KEY_BARRED : MP_KEY_RESTING;
    key->retry_at = mp_monotonic_ms() + ms;
    snprintf(key->why, sizeof key->why, "%s", failure->why);
    ms = mp_channel_key_wait_ms(upstream, key);
    MP_EACH_TAKEN(mp_channel_request, request, &key->requests, link) {
        mp_channel_request_refuse(request, is_barred ? MP_FAILURE_BARRED : MP_FAILURE_DOWN, key->why, ms);
        mp_channel_request_wake(request);
    }
}

/* Ends the probe of the circuit if this channel was the probe and was not opened. Under the lock. */
static void give_up_probe(mp_channel *channel)
{
    mp_upstream *upstream = channel->upstream;
    if (channel->is_probe && channel->is_claimed)
        mp_circuit_give_up_probe(&upstream->circuit, mp_monotonic_ms(), &upstream->part->it);
    channel->is_probe = false;
}

static void look_for_open(mp_node *node, void *ctx)
{
    const mp_channel_key *key = mp_container(node, mp_channel_key, node);
    if (key->state == MP_KEY_OPEN && !mp_channel_key_is_of_caller(key))
        *(bool *)ctx = true;
}

/* A shared channel could not be opened: the upstream is down, unless another one is open. Under the lock. */
static void note_unopened(mp_upstream *upstream, const mp_channel_key *key, const mp_upstream_failure *failure)
{
    bool has_open = false, is_barred = key->state == MP_KEY_BARRED;
    mp_map_each(&upstream->keys, look_for_open, &has_open);
    if (is_barred || upstream->error[0] == '\0') {
        snprintf(upstream->error, sizeof upstream->error, "%s", failure->why);
        upstream->error_at = (int64_t)time(NULL);
    }
    upstream->is_unauthorized |= is_barred;
    upstream->cannot_open =
        !has_open && failure->reason != MP_FAILURE_STOPPED && failure->reason != MP_FAILURE_CANCELLED;
    mp_upstream_note_state(upstream);
}

void mp_channel_failed(mp_channel *channel, const mp_upstream_failure *failure)
{
    mp_upstream *upstream = channel->upstream;
    mp_link ended = {0};
    pthread_mutex_lock(&upstream->lock);
    mp_channel_key *key = channel->key;
    give_up_probe(channel);
    bool was_claimed = key != NULL && channel->is_claimed && mp_channel_detach(channel, false);
    if (was_claimed) {
        rest_key(upstream, key, failure);
        if (!mp_channel_key_is_of_caller(key))
            note_unopened(upstream, key, failure);
        mp_channel_requests_pump(&upstream->room, &ended);
    }
    pthread_mutex_unlock(&upstream->lock);
    if (was_claimed)
        mp_channel_close_soon(channel, false);
    mp_channels_close(&ended, false);
}

/* An upstream that is started anew loses all its sessions: one line in a second, with the number of those that were
 * lost since the gateway's start. Under the lock. */
static void log_loss(mp_upstream *upstream, const char *transport)
{
    uint64_t now = mp_monotonic_ms();
    if (upstream->loss_logged_ms != 0 && now < upstream->loss_logged_ms + 1000)
        return;
    upstream->loss_logged_ms = now;
    mp_log(MP_INFO, "upstream session lost", mp_log_str("upstream", mp_str_of(upstream->name)),
           mp_log_str("transport", mp_str_of(transport)), mp_log_int("lost", (int64_t)upstream->total_lost));
}

/* Ends the channel if it is claimed (`only_claimed`), open (`only_open`), or in any case. True if it had not ended
 * before. */
static bool end_channel(mp_channel *channel, bool only_claimed, bool only_open, bool is_lost)
{
    mp_upstream *upstream = channel->upstream;
    mp_link ended = {0};
    pthread_mutex_lock(&upstream->lock);
    mp_channel_key *key = channel->key;
    give_up_probe(channel);
    bool ends = key != NULL && (!only_claimed || channel->is_claimed) && (!only_open || channel->is_open) &&
                mp_channel_detach(channel, is_lost);
    if (ends) {
        if (is_lost) {
            upstream->total_lost++;
            log_loss(upstream, channel->transport->name);
        }
        mp_channel_requests_pump(&key->requests, &ended);
        mp_channel_requests_pump(&upstream->room, &ended);
    }
    pthread_mutex_unlock(&upstream->lock);
    if (ends)
        mp_channel_close_soon(channel, is_lost);
    mp_channels_close(&ended, false);
    return ends;
}

void mp_channel_hold(mp_channel *channel, bool is_held)
{
    MP_LOCKED(&channel->upstream->lock);
    channel->is_held = is_held;
    channel->used_at = mp_monotonic_ms();
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

void mp_channel_end_unused(mp_channel *channel)
{
    mp_upstream *upstream = channel->upstream;
    pthread_mutex_lock(&upstream->lock);
    bool is_used = channel->running > 0;
    channel->ends_unused = is_used; /* then the next sweep ends the channel */
    pthread_mutex_unlock(&upstream->lock);
    if (!is_used)
        mp_channel_end(channel);
}

/* -- the sweep ----------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_upstream *upstream;
    mp_link *ended;
    uint64_t now;
    int count;
    bool is_last; /* the process ends: no worker sends messages any more */
    const mp_upstream_host *worker;
} sweep;

static void sweep_key(mp_node *node, void *ctx)
{
    sweep *it = ctx;
    mp_channel_key *key = mp_container(node, mp_channel_key, node);
    mp_channel *channel = key->channel;
    const mp_upstream_config *config = &it->upstream->part->it;
    if (channel != NULL) {
        bool is_idle = channel->is_open && channel->running == 0 && (it->is_last || atomic_load(&channel->said) == 0) &&
                       (it->is_last || channel->upstream->is_retired || channel->ends_unused ||
                        (!channel->is_held && it->now >= channel->used_at + config->idle_stop_ms));
        if (is_idle && it->count < MOST_ENDED && mp_channel_detach(channel, false)) {
            mp_link_init(&channel->in_ended);
            mp_link_put(it->ended, &channel->in_ended);
            it->count++;
        }
    } else if (mp_link_is_alone(&key->requests) &&
               (key->state == MP_KEY_IDLE || it->now > key->retry_at + config->circuit_open_max_ms)) {
        mp_map_drop(&it->upstream->keys, node);
        free(key);
    }
}

static void end_if_bound(mp_node *node, void *ctx)
{
    sweep *it = ctx;
    mp_channel *channel = mp_container(node, mp_channel_key, node)->channel;
    if (channel != NULL && channel->worker == it->worker && channel->transport->one_worker &&
        mp_channel_detach(channel, false)) {
        mp_link_init(&channel->in_ended);
        mp_link_put(it->ended, &channel->in_ended);
    }
}

void mp_channels_end_worker(mp_upstream *upstream, const mp_upstream_host *worker)
{
    mp_link ended = {0};
    sweep it = {.upstream = upstream, .ended = &ended, .worker = worker};
    pthread_mutex_lock(&upstream->lock);
    mp_map_each(&upstream->keys, end_if_bound, &it);
    pthread_mutex_unlock(&upstream->lock);
    mp_channels_close(&ended, false);
}

void mp_channels_sweep(mp_upstream *upstream, uint64_t now)
{
    mp_link ended = {0};
    sweep it = {.upstream = upstream, .ended = &ended, .now = now};
    pthread_mutex_lock(&upstream->lock);
    it.is_last = atomic_load(&upstream->table->is_ending);
    mp_map_each(&upstream->keys, sweep_key, &it);
    mp_channel_requests_pump(&upstream->room, &ended);
    pthread_mutex_unlock(&upstream->lock);
    mp_channels_close(&ended, false);
}
