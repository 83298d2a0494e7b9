/* acquire.c: requests of tasks for a channel: which one gets a channel, which one opens it, which ones
 * wait for which limit, and which idle channel ends to make room. */
#include "upstream/transport.h"

MP_GAUGE(upstream_takes, "upstream_takes", "", "", "tasks that wait for a channel to an upstream")
MP_COUNTER(upstream_evicted, "upstream_evicted", "", "",
           "idle channels to upstreams that were closed to make room for another one")
MP_REFUSED(refused_upstream_busy, "upstream_busy", MP_LIMIT_REACHED,
           "calls of upstreams over `calls` and `waiting`, or over limits.upstreams")
MP_REFUSED(refused_upstream_down, "upstream_down", MP_FAULT,
           "calls of upstreams that failed a moment ago, or refused the credential")

/* ms without a request, after which a channel may end to make room for another one */
#define EVICT_IDLE_MS MP_LIMIT(upstream_evict_idle_ms, 1000)
#define MAX_FRESH_MS 30000 /* ms that a newly opened channel has for its first request */

static void unref_request(mp_channel_request *request)
{
    if (atomic_fetch_sub_explicit(&request->refs, 1, memory_order_acq_rel) != 1)
        return;
    mp_channel_unref(request->channel);
    mp_upstream_unref(request->upstream);
    mp_upstream_failure_clear(&request->failure);
    free(request);
}

static void deliver_request(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_channel_request *request = mp_container(message, mp_channel_request, message);
    if (loop != NULL && request->done != NULL)
        request->done(request->ctx);
    unref_request(request);
}

/* Resumes the task of a waiting request, which has its result now. Under the upstream's lock. */
void mp_channel_request_wake(mp_channel_request *request)
{
    mp_stat_add(&mp_stat_upstream_takes, -1);
    atomic_fetch_add_explicit(&request->refs, 1, memory_order_relaxed);
    request->message.deliver = deliver_request;
    mp_loop_post(request->host->loop, &request->message);
}

void mp_channel_request_refuse(mp_channel_request *request, mp_failure_reason reason, const char *why,
                               uint64_t retry_ms)
{
    request->result = MP_ACQUIRE_REFUSED;
    request->failure = mp_upstream_failure_of(reason, false, why);
    if (retry_ms > 0)
        request->failure.retry_after_ms = (int64_t)retry_ms;
    bool is_busy = reason == MP_FAILURE_BUSY;
    request->upstream->total_refused++;
    mp_stat_add(is_busy ? &mp_stat_refused_upstream_busy : &mp_stat_refused_upstream_down, 1);
}

static void wait_in(mp_channel_request *request, mp_link *list)
{
    request->result = MP_ACQUIRE_WAITS;
    mp_link_put(list, &request->link);
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

/* Ends the wait of a request for a limit of all upstreams. Under cap_lock. */
static void leave_cap(mp_channel_request *request)
{
    mp_cap *cap = request->cap;
    if (cap == NULL)
        return;
    mp_link_drop(&request->in_cap);
    cap->waiters--;
    request->cap = NULL;
}

/* Takes a place within a limit of all upstreams, if no older request waits for it. False: this request waits. */
static bool reserve_place(mp_channel_request *request, mp_cap *cap, int64_t limit)
{
    mp_upstreams *table = request->upstream->table;
    MP_LOCKED(&table->cap_lock);
    bool is_first = mp_link_is_alone(&cap->waiting) || cap->waiting.next == &request->in_cap;
    bool may = is_first && mp_account_take(&cap->used, 1, limit); /* mp_channel_use_place() takes without this lock */
    /* the request leaves the list in which it waits if it was counted now, or if it has to wait for another limit than
     * before */
    if (may == (request->cap == cap))
        leave_cap(request);
    if (!may && request->cap == NULL) {
        request->cap = cap;
        cap->waiters++;
        mp_link_put(&cap->waiting, &request->in_cap);
    }
    return may;
}

static void leave_room(mp_channel_request *request)
{
    mp_upstreams *table = request->upstream->table;
    request->lacks = NULL;
    if (request->cap == NULL)
        return;
    MP_LOCKED(&table->cap_lock);
    leave_cap(request);
}

void mp_cap_release(mp_cap *cap)
{
    mp_account_give(&cap->used, 1);
    atomic_store(&cap->has_freed, true);
}

/* NULL: a channel is counted for the request, and a process if the upstream is a program. Else the limit that is
 * full. */
static const char *MP_NULLABLE lacks_of(mp_channel_request *request)
{
    const mp_upstream *upstream = request->upstream;
    mp_upstreams *table = upstream->table;
    const mp_upstream_part *part = upstream->part;
    int64_t places = atomic_load(&upstream->places); /* also processes that have not ended though their channel has */
    if (part->it.most > 0 && (upstream->channels >= part->it.most || places >= part->it.most)) {
        leave_room(request);
        return "the upstream has `most` sessions or programs";
    }
    if (!reserve_place(request, &table->channels, part->limits.channels))
        return "limits.upstreams.channels are open";
    if (part->it.kind != MP_UPSTREAM_COMMAND || reserve_place(request, &table->processes, part->limits.processes))
        return NULL;
    mp_cap_release(&table->channels);
    return "limits.upstreams.processes run";
}

static mp_channel_key *need_key(mp_upstream *upstream, mp_str text)
{
    bool is_new;
    mp_channel_key *key = mp_map_need(&upstream->keys, text, sizeof *key, &is_new);
    return key;
}

/* Gives the request its result, or lets it wait. Under the upstream's lock; the caller then closes the channels in
 * `ended` without the lock. */
static void decide_request(mp_channel_request *request, mp_link *ended)
{
    mp_upstream *upstream = request->upstream;
    const mp_upstream_config *config = &upstream->part->it;
    uint64_t now = mp_monotonic_ms(), wait_ms = 0;
    request->lacks = NULL;
    if (upstream->is_retired || atomic_load(&upstream->table->is_ending)) {
        leave_room(request);
        mp_channel_request_refuse(request, MP_FAILURE_STOPPED, "the upstream is being replaced, or the gateway stops",
                                  0);
        return;
    }
    mp_channel_key *key = need_key(upstream, request->key);
    if (key->state == MP_KEY_CLAIMED) {
        leave_room(request);
        wait_in(request, &key->requests);
        return;
    }
    if (mp_channel_key_rests(key, now)) {
        leave_room(request);
        mp_channel_request_refuse(request, key->state == MP_KEY_BARRED ? MP_FAILURE_BARRED : MP_FAILURE_DOWN, key->why,
                                  mp_channel_key_wait_ms(upstream, key));
        return;
    }
    mp_circuit_answer may = mp_circuit_ask(&upstream->circuit, now, config->open_ms, &wait_ms);
    if (may == MP_CIRCUIT_REFUSE) {
        leave_room(request);
        mp_channel_request_refuse(request, MP_FAILURE_DOWN, upstream->error, wait_ms);
        return;
    }
    if (key->state == MP_KEY_OPEN) {
        leave_room(request);
        request->result = may == MP_CIRCUIT_PROBE ? MP_ACQUIRE_PROBE : MP_ACQUIRE_OPEN;
        if (may == MP_CIRCUIT_PROBE)
            mp_circuit_begin_probe(&upstream->circuit, now);
        request->channel = mp_channel_ref(key->channel);
        key->channel->used_at = now;
        return;
    }
    const char *lacks = lacks_of(request);
    bool is_own_limit = lacks != NULL && request->cap == NULL;
    bool is_one_leaving = atomic_load(&upstream->places) > upstream->channels;
    if (is_own_limit && !is_one_leaving && mp_channels_evict(upstream, ended))
        lacks = lacks_of(request);
    request->lacks = lacks;
    if (lacks != NULL) {
        wait_in(request, &upstream->room);
        return;
    }
    request->result = MP_ACQUIRE_CLAIMED;
    mp_channel *channel = mp_channel_ref(mp_channel_claim(upstream, key, request->host));
    /* the probe begins only now: while it waited for a place, all other requests would have been refused */
    if (may == MP_CIRCUIT_PROBE) {
        mp_circuit_begin_probe(&upstream->circuit, now);
        channel->is_probe = true;
    }
    request->channel = channel;
}

/* Decides again about all requests that wait in the list, oldest first. Under the upstream's lock. */
void mp_channel_requests_pump(mp_link *waiting, mp_link *ended)
{
    mp_link again = {0};
    mp_link_move(waiting, &again);
    MP_EACH_TAKEN(mp_channel_request, request, &again, link) {
        mp_stat_add(&mp_stat_upstream_takes, -1);
        decide_request(request, ended);
        if (request->result == MP_ACQUIRE_WAITS)
            continue;
        mp_stat_add(&mp_stat_upstream_takes, 1);
        mp_channel_request_wake(request);
    }
}

mp_channel_request *MP_NULLABLE
mp_channel_request_new(mp_upstream_host *host, const mp_channel_request_options *options, mp_upstream_failure *failure)
{
    mp_upstream *upstream = mp_upstreams_find(host->table, options->name);
    if (upstream == NULL) {
        *failure = mp_upstream_failure_of(MP_FAILURE_UNKNOWN, false, "the configuration has no upstream of this name");
        return NULL;
    }
    mp_channel_request *request = mp_new(sizeof *request + options->key.len);
    atomic_init(&request->refs, 1);
    request->host = host;
    request->done = options->done;
    request->ctx = options->ctx;
    if (options->key.len > 0)
        memcpy(request->bytes, options->key.ptr, options->key.len);
    request->key = (mp_str){request->bytes, options->key.len};
    request->upstream = upstream;
    mp_link ended = {0};
    pthread_mutex_lock(&upstream->lock);
    request->open_ms = upstream->part->it.open_ms;
    decide_request(request, &ended);
    pthread_mutex_unlock(&upstream->lock);
    mp_channels_close(&ended, false);
    return request;
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

mp_channel_request_result mp_channel_request_result_of(const mp_channel_request *request)
{
    MP_LOCKED(&request->upstream->lock);
    return request->result;
}

void mp_channel_request_expire(mp_channel_request *request)
{
    MP_LOCKED(&request->upstream->lock);
    if (request->result == MP_ACQUIRE_WAITS) {
        const char *lacks = request->lacks;
        leave_room(request);
        mp_link_drop(&request->link);
        mp_stat_add(&mp_stat_upstream_takes, -1);
        mp_channel_request_refuse(request, lacks == NULL ? MP_FAILURE_OPEN : MP_FAILURE_BUSY,
                                  lacks == NULL ? "no channel was opened within `open`" : lacks, 0);
    }
}

mp_channel *MP_NULLABLE mp_channel_request_fetch(mp_channel_request *request)
{
    mp_channel *channel = request->channel;
    request->channel = NULL;
    return channel;
}

const mp_upstream_failure *mp_channel_request_failure(const mp_channel_request *request)
{
    return &request->failure;
}

uint64_t mp_channel_request_open_ms(const mp_channel_request *request)
{
    return request->open_ms;
}

void mp_channel_request_free(mp_channel_request *MP_NULLABLE request)
{
    if (request == NULL)
        return;
    request->done = NULL;
    mp_channel *unused = NULL;
    pthread_mutex_lock(&request->upstream->lock);
    if (request->result == MP_ACQUIRE_WAITS) {
        leave_room(request);
        mp_link_drop(&request->link);
        request->result = MP_ACQUIRE_REFUSED;
        mp_stat_add(&mp_stat_upstream_takes, -1);
    } else if (request->result == MP_ACQUIRE_CLAIMED && request->channel != NULL) {
        unused = mp_channel_ref(request->channel);
    } else if (request->result == MP_ACQUIRE_PROBE && request->channel != NULL) {
        mp_circuit_give_up_probe(&request->upstream->circuit, mp_monotonic_ms(), &request->upstream->part->it);
    }
    pthread_mutex_unlock(&request->upstream->lock);
    if (unused != NULL) {
        mp_channel_give_back(unused);
        mp_channel_unref(unused);
    }
    unref_request(request);
}
