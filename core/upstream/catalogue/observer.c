/* observer.c: observations: messages of upstreams that belong to no exchange, and gaps in the streams that carry them.
 * They are queued for the Lua state of the worker that holds the stream. */
#include "upstream/transport/listen_stream.h"

MP_COUNTER(upstream_observed, "upstream_observed", "", "",
           "messages of upstreams that belong to no call, and were given to Lua")
MP_COUNTER(upstream_dropped_observed, "dropped", "reason", "upstream_observed",
           "messages of upstreams that belong to no call, over 1 MiB that wait")

MP_GAUGE(upstream_observed_bytes, "upstream_observed_bytes", "", "",
         "bytes of messages of upstreams that belong to no call and wait for Lua, which takes them one by one")
MP_COUNTER(upstream_dropped_strays, "dropped", "reason", "upstream_questions",
           "questions of upstreams that belong to no call, over 256 in a minute")

#define STRAYS_WITHIN_MS 60000
/* the observer is notified again after this time: the task that it started may have failed */
#define TELL_AGAIN_MS 1000

typedef struct {
    mp_link link; /* in host->observed */
    mp_observation it;
    size_t size;
    char bytes[];
} observed;

static void free_observed(observed *one)
{
    mp_stat_add(&mp_stat_upstream_observed_bytes, -(int64_t)one->size);
    mp_channel_unref(one->it.channel);
    free(one);
}

static void put_observed(mp_upstream_host *host, observed *one)
{
    mp_link_init(&one->link);
    mp_link_put(&host->observed, &one->link);
    host->observed_bytes += one->size;
    uint64_t now = mp_loop_now(host->loop);
    if (host->on_observed == NULL || (host->observer_told_at != 0 && now < host->observer_told_at + TELL_AGAIN_MS))
        return;
    host->observer_told_at = now;
    host->on_observed(host->observer);
}

static observed *observed_new(mp_channel *channel, mp_observation_kind kind, size_t bytes)
{
    observed *one = mp_new(sizeof *one + bytes);
    one->it.kind = kind;
    one->it.channel = mp_channel_ref(channel);
    one->size = sizeof *one + bytes;
    mp_stat_add(&mp_stat_upstream_observed_bytes, (int64_t)one->size);
    return one;
}

void mp_observe_event(mp_channel *channel, mp_observation_kind kind)
{
    if (kind == MP_OBSERVED_GAP && channel->has_gap)
        return;
    channel->has_gap = channel->has_gap || kind == MP_OBSERVED_GAP;
    put_observed(channel->worker, observed_new(channel, kind, 0));
}

void mp_observe_end(mp_channel *channel, int64_t id, int status)
{
    observed *one = observed_new(channel, MP_OBSERVED_ENDED, 0);
    one->it.stream_id = id;
    one->it.status = status;
    put_observed(channel->worker, one);
}

/* Counts a request of the upstream that belongs to no exchange. False if there were too many: the request gets no
 * answer then, since an upstream that asks again after each answer would keep the gateway busy for ever. */
static bool count_stray(mp_channel *channel)
{
    uint64_t now = mp_loop_now(channel->worker->loop);
    int64_t most = MP_UPSTREAM_QUESTIONS;
    if (now >= channel->strays_since_ms + STRAYS_WITHIN_MS) {
        channel->strays_since_ms = now;
        channel->strays = 0;
    }
    channel->strays++;
    if (channel->strays <= most)
        return true;
    if (channel->strays == most + 1)
        mp_upstream_note(channel->upstream, "asks endlessly outside of calls, and gets no answers for a minute");
    mp_stat_add(&mp_stat_upstream_dropped_strays, 1);
    return false;
}

void mp_observe_message(mp_channel *channel, const mp_envelope *envelope, mp_str bytes)
{
    mp_upstream_host *host = channel->worker;
    if (envelope->kind == MP_KIND_REQUEST && !count_stray(channel))
        return;
    if (host->observed_bytes + bytes.len > (size_t)MP_UPSTREAM_QUEUE) {
        mp_stat_add(&mp_stat_upstream_dropped_observed, 1);
        mp_observe_event(channel, MP_OBSERVED_GAP);
        return;
    }
    size_t size = bytes.len + envelope->method.len;
    observed *one = observed_new(channel, MP_OBSERVED_MESSAGE, size);
    char *at = one->bytes;
    memcpy(at, bytes.ptr, bytes.len);
    one->it.bytes = (mp_str){at, bytes.len};
    if (envelope->kind == MP_KIND_REQUEST)
        one->it.id = (mp_str){at + (envelope->id.ptr - bytes.ptr), envelope->id.len};
    memcpy(at + bytes.len, envelope->method.ptr, envelope->method.len);
    one->it.method = (mp_str){at + bytes.len, envelope->method.len};
    mp_stat_add(&mp_stat_upstream_observed, 1);
    put_observed(host, one);
}

void mp_observed_clear(mp_upstream_host *host)
{
    mp_link *link;
    if (host->observation != NULL)
        free_observed(host->observation);
    host->observation = NULL;
    while ((link = mp_link_take(&host->observed)) != NULL)
        free_observed(mp_container(link, observed, link));
    host->observed_bytes = 0;
}

void mp_upstream_observe(mp_upstream_host *host, void (*MP_NULLABLE there_is)(void *ctx), void *MP_NULLABLE ctx)
{
    host->on_observed = there_is;
    host->observer = ctx;
    host->observer_told_at = 0;
    if (there_is != NULL && !mp_link_is_alone(&host->observed))
        there_is(ctx);
}

void mp_upstream_observe_no_more(mp_upstream_host *host, const void *ctx)
{
    if (host->observer == ctx)
        mp_upstream_observe(host, NULL, NULL);
}

const mp_observation *MP_NULLABLE mp_upstream_observed(mp_upstream_host *host)
{
    observed *before = host->observation;
    if (before != NULL)
        free_observed(before);
    host->observation = NULL;
    mp_link *link = mp_link_take(&host->observed);
    if (link == NULL) {
        host->observer_told_at = 0;
        return NULL;
    }
    observed *one = mp_container(link, observed, link);
    host->observed_bytes -= one->size;
    if (one->it.kind == MP_OBSERVED_GAP)
        one->it.channel->has_gap = false;
    host->observation = one;
    return &one->it;
}
