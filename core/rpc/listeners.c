/* listeners.c: calls that listen: they wait for what is published until their client leaves or the gateway stops, have no
 * time limit, and do not count among the calls in flight. */
#include "topics.h"
#include <stdlib.h>

typedef struct {
    mp_node node; /* in publisher->topics */
    mp_link ears;
} heard_topic;

typedef struct {
    mp_link link; /* in topic->ears, those that heard the last publication behind */
    heard_topic *topic;
    mp_call *call;
    uint64_t heard; /* the number of the last */
} ear;

struct mp_listening {
    mp_call *call;
    mp_timer expiry;
    char *closing; /* its result, for when the gateway ends it */
    size_t count;
    ear ears[];
};

static heard_topic *find_heard(mp_rpc *rpc, mp_str name)
{
    mp_node *node = mp_map_find(&rpc->publisher->topics, name);
    return node == NULL ? NULL : mp_container(node, heard_topic, node);
}

static heard_topic *need_heard(mp_rpc *rpc, mp_str name)
{
    bool is_new;
    heard_topic *topic = mp_map_need(&rpc->publisher->topics, name, sizeof *topic, &is_new);
    if (is_new) {
        mp_link_init(&topic->ears);
        mp_topic_set_heard(rpc, name, true);
    }
    return topic;
}

static void stop_hearing(mp_rpc *rpc, ear *e)
{
    mp_link_drop(&e->link);
    heard_topic *topic = e->topic;
    if (!mp_link_is_alone(&topic->ears))
        return;
    mp_topic_set_heard(rpc, topic->node.key, false);
    mp_map_drop(&rpc->publisher->topics, &topic->node);
    free(topic);
}

/* A stream that ends tells by that alone; lines of stdio go on. */
static void tell_end(mp_call *call)
{
    mp_buf json = {0};
    mp_buf_put(&json, MP_STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":"));
    mp_buf_put(&json, call->id);
    mp_buf_put(&json, MP_STR("}}"));
    mp_stdio_answer(call->rpc, mp_buf_str(&json));
    mp_buf_clear(&json);
}

static void end_listening(mp_call *call)
{
    char *closing = mp_dup(mp_str_of(call->listening->closing));
    mp_call_unlisten(call);
    if (call->rpc->stdio.pipe != NULL)
        tell_end(call); /* B-6 */
    mp_call_answer(call, mp_str_of(closing));
    free(closing);
}

static void on_expired(mp_timer *timer)
{
    mp_call *call = mp_container(timer, mp_listening, expiry)->call;
    if (!mp_expiry_is_over(call->principal->expires)) {
        mp_expiry_start(call->rpc, timer, call->principal->expires, on_expired);
        return;
    }
    mp_stat_add(MP_STAT_STREAMS_EXPIRED, 1);
    end_listening(call);
}

/* A name that stands twice is heard once: the call's ear is the last then. */
static bool hears(const heard_topic *topic, const mp_call *call)
{
    return !mp_link_is_alone(&topic->ears) && mp_container(topic->ears.prev, ear, link)->call == call;
}

mp_listen_result mp_call_listen(mp_call *call, const mp_str *topics, size_t count, mp_str closing)
{
    mp_rpc *rpc = call->rpc;
    if (call->ended || rpc->draining)
        return MP_LISTEN_OVER;
    if (call->is_job || call->listening != NULL || count > (size_t)rpc->config->max_subscriptions ||
        !mp_table_take_place(rpc->table, MP_PLACE_LISTENER))
        return MP_LISTEN_TOO_MANY;
    mp_listening *listening = mp_new(sizeof *listening + count * sizeof *listening->ears);
    listening->call = call;
    listening->closing = mp_dup(closing);
    mp_expiry_start(rpc, &listening->expiry, call->principal->expires, on_expired);
    for (size_t i = 0; i < count; i++) {
        heard_topic *topic = need_heard(rpc, topics[i]);
        if (hears(topic, call))
            continue;
        ear *e = &listening->ears[listening->count++];
        *e = (ear){.topic = topic, .call = call};
        mp_link_put(&topic->ears, &e->link);
    }
    call->listening = listening;
    mp_timer_stop(rpc->loop, &call->limit);
    if (call->stream != NULL)
        mp_stream_watch(call->stream);
    mp_table_count_call(rpc->table, -1);
    return MP_LISTEN_STARTED;
}

void mp_call_unlisten(mp_call *call)
{
    mp_listening *listening = call->listening;
    if (listening == NULL)
        return;
    for (size_t i = 0; i < listening->count; i++)
        stop_hearing(call->rpc, &listening->ears[i]);
    call->listening = NULL;
    mp_timer_stop(call->rpc->loop, &listening->expiry);
    free(listening->closing);
    free(listening);
    mp_table_give_place(call->rpc->table, MP_PLACE_LISTENER);
    mp_table_count_call(call->rpc->table, 1);
}

void mp_listeners_end(mp_rpc *rpc)
{
    for (mp_link *link = rpc->calls.next, *next; link != &rpc->calls; link = next) {
        next = link->next;
        mp_call *call = mp_container(link, mp_call, link);
        if (call->listening != NULL)
            end_listening(call);
    }
}

static void tell(mp_call *call, const mp_publication *what)
{
    mp_buf json = {0};
    mp_buf_put(&json, what->before);
    mp_buf_put(&json, call->id);
    mp_buf_put(&json, what->after);
    mp_call_send(call, mp_buf_str(&json)); /* may find the client gone, which ends the call */
    mp_buf_clear(&json);
}

/* The next that has not heard it, which goes behind the others; NULL when all have. */
static mp_call *next_to_hear(mp_rpc *rpc)
{
    mp_publisher *publisher = rpc->publisher;
    heard_topic *topic = find_heard(rpc, publisher->telling->topic);
    if (topic == NULL)
        return NULL;
    ear *first = mp_container(topic->ears.next, ear, link);
    if (first->heard == publisher->number)
        return NULL;
    first->heard = publisher->number;
    mp_link_drop(&first->link);
    mp_link_put(&topic->ears, &first->link);
    return first->call;
}

void mp_listeners_tell(mp_rpc *rpc, int budget)
{
    mp_publisher *publisher = rpc->publisher;
    for (; budget > 0; budget--) {
        if (publisher->telling == NULL) {
            publisher->telling = mp_lane_take(&publisher->to_listeners);
            publisher->number++;
        }
        if (publisher->telling == NULL)
            return;
        mp_call *call = next_to_hear(rpc);
        if (call != NULL) {
            tell(call, publisher->telling);
        } else {
            mp_publication_unref(publisher->telling);
            publisher->telling = NULL;
        }
    }
}
