/* event.c: turns a message of an upstream into an event for the task of its exchange, with a copy of the bytes, or
 * drops the message and counts it. */
#include "upstream/transport.h"

MP_COUNTER(upstream_dropped_ids, "dropped", "reason", "upstream_id",
           "messages of upstreams that belong to no exchange, or are no JSON-RPC message")

const mp_exchange_event *MP_NULLABLE mp_exchange_peek(const mp_exchange *exchange)
{
    const mp_link *first = mp_link_first(&exchange->events);
    return first == &exchange->events ? NULL : &mp_container(first, mp_queued_event, link)->event;
}

/* The span of the copy at the place of `span` in `from`. */
static mp_str moved(mp_str span, mp_str from, const char *copy)
{
    return span.len == 0 ? MP_STR_NONE : (mp_str){copy + (span.ptr - from.ptr), span.len};
}

static size_t size_of(const mp_envelope *envelope, mp_str bytes)
{
    return bytes.len + envelope->method.len;
}

/* Makes an event with a copy of the bytes, whose size the caller has counted. */
static mp_queued_event *event_new(const mp_envelope *envelope, mp_exchange_event_kind kind, mp_str bytes, int status)
{
    size_t size = size_of(envelope, bytes);
    mp_queued_event *event = mp_new(sizeof *event + size);
    event->size = size;
    memcpy(event->bytes, bytes.ptr, bytes.len);
    mp_exchange_event *it = &event->event;
    it->kind = kind;
    it->bytes = (mp_str){event->bytes, bytes.len};
    it->status = status;
    if (kind == MP_EVENT_ANSWER) {
        it->answer = moved(envelope->answer, bytes, event->bytes);
        it->is_error = envelope->is_error;
        return event;
    }
    memcpy(event->bytes + bytes.len, envelope->method.ptr, envelope->method.len);
    it->method = (mp_str){event->bytes + bytes.len, envelope->method.len};
    it->id = moved(envelope->id, bytes, event->bytes);
    it->params = moved(envelope->params, bytes, event->bytes);
    return event;
}

void mp_channel_count_dropped(mp_channel *channel)
{
    mp_upstream *upstream = channel->upstream;
    mp_stat_add(&mp_stat_upstream_dropped_ids, 1);
    MP_LOCKED(&upstream->lock);
    upstream->total_dropped++;
}

/* `envelope` is read as the answer to its exchange: the only request under way. An upstream that could not read a
 * request, or refuses it before it looks at its id, says so in an error without one. */
static bool is_answer_to(const mp_envelope *envelope, const mp_own_exchange *exchange)
{
    if (envelope->is_nameless)
        return exchange->has_id;
    char room[MP_JSON_INT_BYTES];
    return exchange->has_id && mp_json_id_eq(envelope->id, mp_json_int_text(exchange->super.id, room));
}

/* True if a body with this HTTP status cannot hold the message: that of a refusal has an error at most, and that of a
 * 401 not even one, since a gateway before the upstream may have made it. */
static bool has_unfit_body(const mp_envelope *envelope, int status)
{
    return status >= 300 && (envelope->kind != MP_KIND_RESPONSE || !envelope->is_error || status == 401);
}

const char mp_many_values[] = "the answer has more than 1,000,000 values";

void mp_exchange_settle(mp_own_exchange *exchange, mp_failure_reason reason, const char *why)
{
    if (exchange->is_settled) {
        mp_channel_count_dropped(exchange->super.channel);
    } else {
        exchange->is_settled = true;
        mp_exchange_fail_with(exchange, reason, why);
    }
}

int mp_exchange_take(mp_own_exchange *exchange, const mp_upstream_host *here, int status, const mp_envelope *envelope,
                     mp_str bytes)
{
    int64_t notes = 2 * (int64_t)MP_UPSTREAM_QUEUE, questions = notes + (int64_t)exchange->answer;
    if (has_unfit_body(envelope, status)) {
        mp_channel_count_dropped(exchange->super.channel);
        return 0;
    }
    bool is_response = envelope->kind == MP_KIND_RESPONSE || envelope->is_nameless;
    if (is_response && !exchange->is_settled && is_answer_to(envelope, exchange)) {
        exchange->is_settled = true;
        mp_exchange_hold(exchange, size_of(envelope, bytes), INT64_MAX);
        mp_exchange_pass(exchange, here, event_new(envelope, MP_EVENT_ANSWER, bytes, status));
        return 1;
    }
    if (envelope->kind == MP_KIND_NOTE && mp_exchange_hold(exchange, size_of(envelope, bytes), notes))
        mp_exchange_pass(exchange, here, event_new(envelope, MP_EVENT_NOTE, bytes, status));
    else if (envelope->kind == MP_KIND_NOTE)
        mp_stat_add(&mp_stat_upstream_dropped_notes, 1);
    else if (envelope->kind != MP_KIND_REQUEST)
        mp_channel_count_dropped(exchange->super.channel);
    else if (mp_exchange_hold(exchange, size_of(envelope, bytes), questions))
        mp_exchange_pass(exchange, here, event_new(envelope, MP_EVENT_REQUEST, bytes, status));
    else if (here != exchange->super.host && !exchange->transport->one_worker)
        /* the question came on a listen stream of another worker */
        mp_channel_count_dropped(exchange->super.channel);
    else
        mp_exchange_settle(exchange, MP_FAILURE_TOO_LARGE,
                           "more unanswered requests of the upstream than `answer` bytes");
    return 0;
}

/* Passes on each message of an array. */
static int take_array(mp_own_exchange *exchange, mp_upstream_host *here, int status, mp_str bytes)
{
    mp_json_cursor cursor = {bytes.ptr, bytes.ptr + bytes.len};
    mp_str element;
    int answers = 0;
    mp_json_next(&cursor);
    while ((element = mp_message_next(&cursor)).ptr != NULL) {
        mp_envelope_read_any(&here->envelope, element, SIZE_MAX);
        answers += mp_exchange_take(exchange, here, status, &here->envelope, element);
    }
    return answers;
}

int mp_exchange_message(mp_own_exchange *exchange, int status, mp_str bytes)
{
    mp_upstream_host *host = exchange->transport->one_worker ? exchange->super.channel->worker : exchange->super.host;
    mp_envelope *envelope = &host->envelope;
    mp_envelope_read_any(envelope, bytes, MP_UPSTREAM_VALUES);
    if (envelope->has_many) {
        mp_exchange_settle(exchange, MP_FAILURE_TOO_LARGE, mp_many_values);
        return 1;
    }
    return envelope->kind == MP_KIND_ARRAY ? take_array(exchange, host, status, bytes)
                                           : mp_exchange_take(exchange, host, status, envelope, bytes);
}
