/* dispatch.c: functions that the transports of one worker, and listen streams, share: finding the exchange of a channel
 * to which a message belongs, the end of a channel whose connection has ended, and the limits of processes. */
#include "upstream/transport/listen_stream.h"

MP_REFUSED(refused_upstream_processes, "upstream_processes", MP_LIMIT_REACHED,
           "programs of upstreams over limits.upstreams.processes, or started too often")

MP_COUNTER(upstream_handed_on, "upstream_questions_handed_on", "", "",
           "questions of upstreams whose call had ended: they went on to another call of the channel, or were refused")

/* Time in which MP_UPSTREAM_ENDS programs of an upstream may end by themselves: more are started after it, since a
 * program that goes on crashing needs a person, or time. */
#define ENDS_WITHIN_MS ((uint64_t)MP_LIMIT(upstream_ends_within_ms, 60000))

/* -- messages ------------------------------------------------------------------------------------------------------ */

/* A search in the exchanges of a channel, newest first: for those with this id, or for those that were sent. */
typedef struct {
    bool has_id;
    int64_t id;
    mp_own_exchange **list; /* counted references, in memory of `room` or of the heap */
    size_t count, most;
    mp_own_exchange *room[16];
} search;

static void look_at(search *it, mp_own_exchange *exchange)
{
    if (!exchange->has_id || (it->has_id ? exchange->super.id != it->id : !atomic_load(&exchange->was_sent)))
        return;
    if (it->count == it->most) {
        mp_own_exchange **more = mp_new(it->most * 2 * sizeof *more);
        memcpy(more, it->list, it->count * sizeof *more);
        if (it->list != it->room)
            free(it->list);
        it->list = more;
        it->most *= 2;
    }
    it->list[it->count++] = mp_exchange_ref(exchange);
}

/* Looks at each running exchange of the channel. Those of a transport of one worker are on the worker's list, oldest
 * first; exchanges of other transports are on the list of the upstream, which they leave before they are freed. */
static void look_for(search *it, mp_channel *channel)
{
    it->list = it->room;
    it->most = sizeof it->room / sizeof *it->room;
    if (channel->transport->one_worker) {
        for (mp_link *link = mp_link_last(&channel->exchanges); link != &channel->exchanges; link = link->prev)
            look_at(it, mp_container(link, mp_own_exchange, in_channel));
        return;
    }
    mp_upstream *upstream = channel->upstream;
    MP_LOCKED(&upstream->lock);
    for (mp_link *link = mp_link_last(&upstream->running); link != &upstream->running; link = link->prev) {
        mp_own_exchange *exchange = mp_container(link, mp_own_exchange, in_upstream);
        if (exchange->super.channel == channel)
            look_at(it, exchange);
    }
}

static void end_search(search *it)
{
    for (size_t i = 0; i < it->count; i++)
        mp_exchange_unref(it->list[i]);
    if (it->list != it->room)
        free(it->list);
}

static mp_own_exchange *MP_NULLABLE keep_found(search *it, size_t i)
{
    mp_own_exchange *found = i < it->count ? mp_exchange_ref(it->list[i]) : NULL;
    end_search(it);
    return found;
}

/* The exchange whose request has this id, an integer, with a counted reference for the caller. */
static mp_own_exchange *MP_NULLABLE exchange_of(mp_channel *channel, mp_str id)
{
    search it = {.has_id = true};
    if (id.len == 0 || !mp_json_int(id, &it.id))
        return NULL;
    look_for(&it, channel);
    return keep_found(&it, 0);
}

/* Index of the exchange that gets a message: one whose task can ask a client if the message is a question, then one
 * that is not pending, then the first in the list. */
static size_t best_of(const search *it, bool is_question)
{
    size_t best = 0;
    int most = -1;
    for (size_t i = 0; i < it->count; i++) {
        const mp_own_exchange *one = it->list[i];
        int fitness = (is_question && one->takes_questions ? 2 : 0) + (atomic_load(&one->is_pending) ? 0 : 1);
        if (fitness > most) {
            best = i;
            most = fitness;
        }
    }
    return best;
}

/* The exchange that gets a question: the newest whose task can ask a client; if there is none, the newest. */
static mp_own_exchange *MP_NULLABLE asked(mp_channel *channel)
{
    search it = {0};
    look_for(&it, channel);
    return keep_found(&it, best_of(&it, true));
}

/* A token is the number of its request, also where an upstream has made a text of it. */
static mp_str progress_token(mp_str params)
{
    mp_str token = mp_message_member(params, "progressToken");
    bool is_text = token.len >= 2 && token.ptr[0] == '"';
    return is_text ? (mp_str){token.ptr + 1, token.len - 2} : token;
}

/* The newest exchange of the channel; with `alone`: only if no other runs. */
static mp_own_exchange *MP_NULLABLE newest(mp_channel *channel, bool alone)
{
    search it = {0};
    look_for(&it, channel);
    return keep_found(&it, alone && it.count > 1 ? it.count : best_of(&it, false));
}

static bool ends_with(mp_str text, const char *end)
{
    size_t len = strlen(end);
    return text.len >= len && memcmp(text.ptr + text.len - len, end, len) == 0;
}

/* True for notifications that belong to the channel and to none of its exchanges. */
static bool is_about_the_channel(mp_str method)
{
    return ends_with(method, "/list_changed") || mp_str_is(method, "notifications/resources/updated") ||
           mp_str_is(method, "notifications/subscriptions/acknowledged") || mp_str_is(method, "notifications/tasks") ||
           mp_str_is(method, "notifications/tasks/status");
}

/* The exchange that a message belongs to, with a counted reference. */
static mp_own_exchange *MP_NULLABLE owner_of(mp_channel *channel, const mp_envelope *envelope)
{
    if (envelope->is_nameless)
        return channel->transport->one_worker ? newest(channel, true) : NULL;
    if (envelope->kind == MP_KIND_RESPONSE)
        return exchange_of(channel, envelope->id);
    if (envelope->kind == MP_KIND_REQUEST)
        return asked(channel);
    if (mp_str_is(envelope->method, "notifications/progress"))
        return exchange_of(channel, progress_token(envelope->params));
    if (is_about_the_channel(envelope->method))
        return NULL;
    return newest(channel, mp_str_is(envelope->method, "notifications/message"));
}

/* The upstream cancels a question. Which exchange has it is not known here, so each that takes questions gets the
 * message. */
static void take_back(mp_channel *channel, const mp_envelope *envelope, mp_str bytes)
{
    search it = {0};
    look_for(&it, channel);
    for (size_t i = 0; i < it.count; i++)
        if (it.list[i]->takes_questions)
            mp_exchange_take(it.list[i], channel->worker, 0, envelope, bytes);
    end_search(&it);
}

/* Handles a message that no exchange takes: notifications and requests are observed, others dropped. */
static void observe_message(mp_channel *channel, const mp_envelope *envelope, mp_str bytes)
{
    bool is_note = envelope->kind == MP_KIND_NOTE && !mp_str_is(envelope->method, "notifications/progress");
    if (is_note || envelope->kind == MP_KIND_REQUEST)
        mp_observe_message(channel, envelope, bytes);
    else
        mp_channel_count_dropped(channel);
}

/* A message has too many values. If it may answer any request, because its id is behind the values, all of them fail.
 */
static void refuse_many(mp_channel *channel, const mp_envelope *envelope)
{
    bool is_answer = envelope->may_answer && channel->transport->one_worker, has_id = envelope->id.len > 0;
    mp_own_exchange *exchange = is_answer && has_id ? exchange_of(channel, envelope->id) : NULL;
    if (exchange != NULL)
        mp_exchange_settle(exchange, MP_FAILURE_TOO_LARGE, mp_many_values);
    else if (is_answer && !has_id)
        mp_channel_fail_all(channel, MP_FAILURE_TOO_LARGE, mp_many_values);
    else
        mp_channel_count_dropped(channel);
    mp_exchange_unref(exchange);
}

/* The answer to a request cannot be read. Over a connection that all requests share, the request fails: the one that
 * the message names, or that is alone under way. */
static void refuse_unreadable(mp_channel *channel, const mp_envelope *envelope)
{
    bool has_id = envelope->id.len > 0;
    char why[sizeof((mp_upstream_failure *)0)->why];
    mp_own_exchange *exchange = has_id ? exchange_of(channel, envelope->id) : newest(channel, true);
    if (exchange == NULL)
        return;
    snprintf(why, sizeof why, "an answer that is no JSON-RPC message: %s", mp_envelope_problem(envelope));
    if (exchange->has_id)
        mp_exchange_settle(exchange, MP_FAILURE_UNREADABLE, why);
    mp_exchange_unref(exchange);
}

static bool take_one(mp_channel *channel, mp_str bytes)
{
    mp_envelope *envelope = &channel->worker->envelope;
    mp_envelope_read_any(envelope, bytes, MP_UPSTREAM_VALUES);
    if (envelope->has_many)
        refuse_many(channel, envelope);
    else if (envelope->is_broken_answer && !envelope->is_nameless && channel->transport->one_worker)
        refuse_unreadable(channel, envelope);
    if (envelope->kind == MP_KIND_BROKEN || (envelope->kind == MP_KIND_INVALID && !envelope->is_nameless))
        return envelope->has_many;
    if (envelope->kind == MP_KIND_NOTE && mp_str_is(envelope->method, "notifications/cancelled")) {
        take_back(channel, envelope, bytes);
        return true;
    }
    mp_own_exchange *exchange = owner_of(channel, envelope);
    if (exchange == NULL)
        observe_message(channel, envelope, bytes);
    else if (envelope->kind == MP_KIND_RESPONSE && !channel->transport->one_worker)
        mp_channel_count_dropped(channel); /* over HTTP an answer is valid only on the stream of its own request */
    else if (envelope->kind == MP_KIND_RESPONSE && bytes.len > exchange->answer)
        mp_exchange_settle(exchange, MP_FAILURE_TOO_LARGE, "the answer is larger than `answer`");
    else
        mp_exchange_take(exchange, channel->worker, 0, envelope, bytes);
    mp_exchange_unref(exchange);
    return true;
}

bool mp_channel_message(mp_channel *channel, mp_str bytes)
{
    mp_str text = mp_str_trim(bytes);
    if (text.len == 0 || (text.ptr[0] != '{' && text.ptr[0] != '['))
        return false;
    if (text.ptr[0] == '{')
        return take_one(channel, text);
    mp_envelope *envelope = &channel->worker->envelope;
    mp_envelope_read_any(envelope, text, MP_UPSTREAM_VALUES);
    if (envelope->has_many)
        refuse_many(channel, envelope);
    if (envelope->kind != MP_KIND_ARRAY)
        return envelope->has_many;
    mp_str element;
    mp_json_cursor cursor = {text.ptr, text.ptr + text.len};
    mp_json_next(&cursor);
    while ((element = mp_message_next(&cursor)).ptr != NULL)
        take_one(channel, element);
    return true;
}

/* -- questions whose exchange has ended ---------------------------------------------------------------------------- */

typedef struct {
    mp_channel *channel; /* a counted reference */
    size_t len;
    char bytes[];
} handed_message;

static void deliver_handed(void *content, mp_loop *MP_NULLABLE loop)
{
    const handed_message *it = content;
    if (loop != NULL)
        take_one(it->channel, (mp_str){it->bytes, it->len});
    mp_channel_unref(it->channel);
}

void mp_channel_hand_on(mp_channel *channel, mp_str bytes)
{
    const handed_message message = {mp_channel_ref(channel), bytes.len};
    mp_stat_add(&mp_stat_upstream_handed_on, 1);
    mp_loop_send(channel->worker->loop, deliver_handed, &message, sizeof message, bytes);
}

void mp_exchange_hand_on(const mp_exchange *exchange, mp_str bytes)
{
    mp_channel_hand_on(exchange->channel, bytes);
}

/* -- the end of a connection --------------------------------------------------------------------------------------- */

void mp_channel_fail_all(mp_channel *channel, mp_failure_reason reason, const char *why)
{
    size_t count = 0, all = 0;
    for (mp_link *link = mp_link_first(&channel->exchanges); link != &channel->exchanges; link = link->next)
        all++;
    mp_own_exchange **list = mp_new((all + 1) * sizeof *list);
    MP_EACH(mp_own_exchange, exchange, &channel->exchanges, in_channel)
        list[count++] = mp_exchange_ref(exchange);
    for (size_t i = 0; i < count; i++) {
        mp_upstream_failure failure = mp_upstream_failure_of(reason, atomic_load(&list[i]->was_sent), why);
        failure.is_known = i > 0;
        mp_exchange_fail(list[i], failure);
        mp_exchange_unref(list[i]);
    }
    free(list);
}

void mp_channel_drop_exchanges(mp_channel *channel)
{
    mp_link *link;
    while ((link = mp_link_take(&channel->exchanges)) != NULL)
        mp_exchange_unref(mp_container(link, mp_own_exchange, in_channel));
}

void mp_channel_broken(mp_channel *channel, mp_failure_reason reason, const char *why)
{
    mp_channel_ref(channel);
    mp_channel_fail_all(channel, reason, why);
    if (!mp_channel_lost(channel))
        mp_channel_end(channel); /* the channel was not open yet */
    mp_channel_unref(channel);
}

/* -- processes ----------------------------------------------------------------------------------------------------- */

bool mp_channel_may_start(mp_channel *channel, mp_failure_reason *reason, int64_t *retry_ms)
{
    mp_upstream *upstream = channel->upstream;
    uint64_t now = mp_monotonic_ms();
    *reason = MP_FAILURE_NONE;
    *retry_ms = -1;
    pthread_mutex_lock(&upstream->lock);
    uint64_t oldest = upstream->ends[upstream->end_count % MP_UPSTREAM_ENDS]; /* 0 if fewer programs have ended */
    if (oldest != 0 && now < oldest + ENDS_WITHIN_MS) {
        *reason = MP_FAILURE_DOWN;
        *retry_ms = (int64_t)(oldest + ENDS_WITHIN_MS - now);
    } else if (!mp_channel_use_place(channel)) {
        *reason = MP_FAILURE_BUSY;
    } else {
        upstream->processes++;
        upstream->total_starts++;
    }
    pthread_mutex_unlock(&upstream->lock);
    if (*reason != MP_FAILURE_NONE)
        mp_stat_add(&mp_stat_refused_upstream_processes, 1);
    return *reason == MP_FAILURE_NONE;
}

void mp_upstream_put_ends(mp_upstream *upstream, mp_upstream_failure *failure)
{
    char why[sizeof failure->why];
    pthread_mutex_lock(&upstream->lock);
    snprintf(why, sizeof why, "%d programs ended by themselves within a minute; the last: %s", MP_UPSTREAM_ENDS,
             upstream->end_why);
    pthread_mutex_unlock(&upstream->lock);
    *failure = mp_upstream_failure_of(MP_FAILURE_DOWN, false, why);
}

void mp_upstream_ended_by_itself(mp_upstream *upstream, const char *why)
{
    MP_LOCKED(&upstream->lock);
    snprintf(upstream->end_why, sizeof upstream->end_why, "%s", why);
    upstream->ends[upstream->end_count++ % MP_UPSTREAM_ENDS] = mp_monotonic_ms();
}

void mp_upstream_stopped(mp_upstream *upstream)
{
    pthread_mutex_lock(&upstream->lock);
    upstream->processes--;
    pthread_mutex_unlock(&upstream->lock);
    atomic_fetch_sub(&upstream->places, 1);
    mp_cap_release(&upstream->table->processes);
}
