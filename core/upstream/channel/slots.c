/* slots.c: the exchanges that run on an upstream at once (`calls`), those that wait (`waiting`), and the numbers that
 * an exchange changes at its end. All functions are called under the upstream's lock. */
#include "upstream/transport.h"

MP_COUNTER(upstream_errors, "upstream_errors", "", "", "requests to upstreams that ended without an answer",
           MP_SHOWN_BY_LABELS)

mp_failure_reason mp_slot_enter(mp_upstream *upstream, mp_own_exchange *exchange)
{
    mp_channel *channel = exchange->super.channel;
    const mp_upstream_config *config = &upstream->part->it;
    if (channel->key == NULL)
        return MP_FAILURE_LOST;
    bool needs_slot = exchange->has_id && !channel->is_claimed;
    if (needs_slot && upstream->calls >= config->calls) {
        if (upstream->waiters >= config->waiting)
            return MP_FAILURE_BUSY;
        upstream->waiters++;
        exchange->is_waiting = true;
        mp_link_put(&upstream->waiting, &exchange->in_upstream);
    } else {
        exchange->has_slot = needs_slot;
        upstream->calls += needs_slot;
        mp_link_put(&upstream->running, &exchange->in_upstream);
    }
    exchange->is_listed = true;
    channel->running++;
    channel->is_fresh = false;
    upstream->total_calls += exchange->has_id;
    return MP_FAILURE_NONE;
}

mp_own_exchange *MP_NULLABLE mp_slot_grant(mp_upstream *upstream)
{
    mp_link *link = upstream->calls < upstream->part->it.calls ? mp_link_take(&upstream->waiting) : NULL;
    if (link == NULL)
        return NULL;
    mp_own_exchange *next = mp_container(link, mp_own_exchange, in_upstream);
    mp_link_put(&upstream->running, link);
    upstream->waiters--;
    upstream->calls++;
    next->is_waiting = false;
    next->has_slot = true;
    return next;
}

mp_own_exchange *MP_NULLABLE mp_slot_give_back(mp_upstream *upstream, mp_own_exchange *exchange)
{
    if (!exchange->has_slot)
        return NULL;
    exchange->has_slot = false;
    upstream->calls--;
    return mp_slot_grant(upstream);
}

void mp_slot_take_again(mp_upstream *upstream, mp_own_exchange *exchange)
{
    if (!exchange->is_listed || !exchange->has_id)
        return;
    exchange->has_slot = true;
    upstream->calls++;
}

/* The step of the histogram of answer times: a power of 2^(1/4). */
static unsigned time_step(uint64_t us)
{
    unsigned step = 0;
    double least = 1;
    while (step < MP_TIME_STEPS - 1 && (double)us > least) {
        least *= 1.189207115;
        step++;
    }
    return step;
}

/* True if the exchange tried a newer revision and the upstream may know only older ones: it refuses the request, or
 * gives no answer to it. */
static bool is_refused_trial(const mp_own_exchange *exchange)
{
    const mp_upstream_failure *failure = &exchange->super.failure;
    int status = failure->status;
    if (!exchange->is_trial)
        return false;
    if (status >= 400 && status < 500)
        return status != 401 && status != 403 && status != 429;
    if (exchange->is_opening)
        return false; /* `initialize`, which all but HTTP+SSE know */
    return failure->reason == MP_FAILURE_TIMEOUT || failure->reason == MP_FAILURE_CLOSED ||
           failure->reason == MP_FAILURE_UNREADABLE || failure->reason == MP_FAILURE_TOO_LARGE;
}

static void count_result(mp_upstream *upstream, const mp_own_exchange *exchange)
{
    const mp_upstream_failure *failure = &exchange->super.failure;
    const mp_channel *channel = exchange->super.channel;
    const mp_channel_key *key = channel->key;
    uint64_t now = mp_monotonic_ms();
    if (exchange->has_answer) {
        uint64_t us = mp_monotonic_us() - exchange->began_us;
        upstream->times[time_step(us)]++;
        mp_series_observe(upstream->series.seconds, &mp_bounds_call, (double)us);
        mp_circuit_success(&upstream->circuit, now);
        mp_upstream_note_answer(upstream, key);
    } else if (failure->reason != MP_FAILURE_NONE && !is_refused_trial(exchange)) {
        if (exchange->has_id) {
            mp_stat_add(&mp_stat_upstream_errors, 1);
            mp_series_add(failure->may_have_run ? upstream->series.unknown : upstream->series.not_run, 1);
        }
        mp_upstream_note_failure(upstream, failure);
    }
    if (failure->status > 0 && !mp_upstream_failure_is_outage(failure))
        mp_circuit_success(&upstream->circuit, now); /* the upstream is reachable and answers */
    /* a token of an authorization server is renewed first: if it is refused then, mp_channel_failed is called */
    if (failure->status == 401 && channel->token == NULL && key != NULL && !mp_channel_key_is_of_caller(key))
        upstream->is_unauthorized = true;
    mp_upstream_note_state(upstream);
}

mp_own_exchange *MP_NULLABLE mp_slot_leave(mp_upstream *upstream, mp_own_exchange *exchange)
{
    mp_own_exchange *next = NULL;
    if (exchange->is_listed) {
        mp_link_drop(&exchange->in_upstream);
        exchange->is_listed = false;
        upstream->waiters -= exchange->is_waiting;
        exchange->is_waiting = false;
        next = mp_slot_give_back(upstream, exchange);
    }
    exchange->super.channel->running--;
    exchange->super.channel->used_at = mp_monotonic_ms();
    count_result(upstream, exchange);
    return next;
}
