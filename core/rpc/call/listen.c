/* listen.c: calls that listen to topics (subscriptions/listen). They last until their client disconnects, its
 * credentials expire or the gateway stops. They have no time limit, and do not count among the calls in flight. */
#include "state.h"

typedef struct {
    mp_node node; /* a topic in publisher->topics */
    mp_link listeners;
} listened_topic;

typedef struct {
    mp_link link; /* link in topic->listeners: the listeners that got the current publication are at the end */
    listened_topic *topic;
    mp_call *call;
    uint64_t notified; /* number of the last publication sent to this listener; compare publisher->number */
} listener;

struct mp_subscriber {
    mp_call *call;
    mp_timer expiry;
    char *closing;           /* owned: the call's result when the gateway ends the call */
    mp_owner *owner;         /* its place is counted for it */
    mp_topic_holder *holder; /* what the topics take is counted for it */
    size_t held_bytes;
    size_t count;
    listener listeners[];
};

static listened_topic *MP_NULLABLE find_topic(mp_rpc *rpc, mp_str name)
{
    mp_node *node = mp_map_find(&rpc->publisher->topics, name);
    return node == NULL ? NULL : mp_container(node, listened_topic, node);
}

static listened_topic *need_topic(mp_rpc *rpc, mp_str name)
{
    bool is_new;
    listened_topic *topic = mp_map_need(&rpc->publisher->topics, name, sizeof *topic, &is_new);
    if (is_new) {
        mp_topic_set_listened(rpc, name, true);
    }
    return topic;
}

static void remove_listener(mp_rpc *rpc, listener *l)
{
    mp_link_drop(&l->link);
    listened_topic *topic = l->topic;
    if (!mp_link_is_alone(&topic->listeners))
        return;
    mp_topic_set_listened(rpc, topic->node.key, false);
    mp_map_drop(&rpc->publisher->topics, &topic->node);
    free(topic);
}

/* Notifies a client that the call is over, if the call has no stream of its own that ends (B-6). */
static void notify_end(mp_call *call)
{
    mp_scoped_buf json = {0};
    mp_buf_put(&json, MP_STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/cancelled\",\"params\":{\"requestId\":"));
    mp_buf_put(&json, call->id);
    mp_buf_put(&json, MP_STR("}}"));
    call->transport->respond(call->rpc, call->session, mp_buf_str(&json));
}

static void end_subscriber(const mp_subscriber *subscriber)
{
    mp_call *call = subscriber->call;
    char *closing = mp_dup(mp_str_of(subscriber->closing));
    mp_call_unlisten(call);
    if (call->transport->notifies_end)
        notify_end(call);
    mp_call_answer(call, mp_str_of(closing));
    free(closing);
}

static void on_expired(mp_timer *timer)
{
    const mp_subscriber *subscriber = mp_container(timer, mp_subscriber, expiry);
    const mp_call *call = subscriber->call;
    if (!mp_expiry_is_over(call->principal->expires)) {
        mp_expiry_start(call->rpc, timer, call->principal->expires, on_expired);
        return;
    }
    mp_stat_add(&mp_stat_streams_expired, 1);
    end_subscriber(subscriber);
}

/* True if the call listens to the topic already, because the client named the topic twice: the call's listener is
 * then the last of the list. */
static bool is_last_listener(const listened_topic *topic, const mp_call *call)
{
    return !mp_link_is_alone(&topic->listeners) && mp_container(topic->listeners.prev, listener, link)->call == call;
}

mp_listen_result mp_call_listen(mp_call *call, const mp_str *topics, size_t count, mp_str closing)
{
    mp_rpc *rpc = call->rpc;
    mp_owner *owner;
    if (call->ended || rpc->draining)
        return MP_LISTEN_OVER;
    if (call->is_detached || call->subscriber != NULL || count > (size_t)MP_MAX_SUBSCRIPTIONS ||
        (owner = mp_quota_take_for(rpc->table, MP_QUOTA_SUBSCRIBER, call->principal, mp_call_address(call))) == NULL)
        return MP_LISTEN_TOO_MANY;
    size_t held = mp_topic_weight(MP_STR_NONE); /* the subscriber */
    for (size_t i = 0; i < count; i++)
        held += mp_topic_weight(topics[i]);
    mp_topic_holder *holder = mp_topics_take(mp_session_table_topics(rpc->table), mp_owner_name(owner), held);
    if (holder == NULL) {
        mp_quota_give_for(rpc->table, MP_QUOTA_SUBSCRIBER, owner);
        return MP_LISTEN_NO_ROOM;
    }
    mp_subscriber *subscriber = mp_new(sizeof *subscriber + count * sizeof *subscriber->listeners);
    subscriber->owner = owner;
    subscriber->holder = holder;
    subscriber->held_bytes = held;
    subscriber->call = call;
    subscriber->closing = mp_dup(closing);
    mp_expiry_start(rpc, &subscriber->expiry, call->principal->expires, on_expired);
    for (size_t i = 0; i < count; i++) {
        listened_topic *topic = need_topic(rpc, topics[i]);
        if (is_last_listener(topic, call))
            continue;
        listener *l = &subscriber->listeners[subscriber->count++];
        *l = (listener){.topic = topic, .call = call};
        mp_link_put(&topic->listeners, &l->link);
    }
    call->subscriber = subscriber;
    return MP_LISTEN_STARTED;
}

void mp_call_stay(mp_call *call)
{
    mp_timer_stop(call->rpc->loop, &call->limit);
    mp_stream_detect_close(call->stream);
    mp_stream_forget_request(call->stream);
    mp_call_forget_params(call);
    call->has_place = false;
    mp_session_table_give_call(call->rpc->table, call->share, call->bytes_in);
}

void mp_call_unlisten(mp_call *call)
{
    mp_subscriber *subscriber = call->subscriber;
    if (subscriber == NULL)
        return;
    for (size_t i = 0; i < subscriber->count; i++)
        remove_listener(call->rpc, &subscriber->listeners[i]);
    mp_owner *owner = subscriber->owner;
    call->subscriber = NULL;
    mp_timer_stop(call->rpc->loop, &subscriber->expiry);
    mp_topics_give(mp_session_table_topics(call->rpc->table), subscriber->holder, subscriber->held_bytes);
    free(subscriber->closing);
    free(subscriber);
    mp_quota_give_for(call->rpc->table, MP_QUOTA_SUBSCRIBER, owner);
}

void mp_subscribers_end(mp_rpc *rpc, uint64_t parts)
{
    uint64_t count = 0;
    MP_EACH(mp_call, call, &rpc->calls, link)
        count += call->subscriber != NULL;
    count = (count + parts - 1) / parts;
    MP_EACH(mp_call, call, &rpc->calls, link) {
        const mp_subscriber *subscriber = call->subscriber;
        if (subscriber != NULL && count-- > 0)
            end_subscriber(subscriber);
        if (count == 0)
            break;
    }
}

static void send_publication(mp_call *call, const mp_publication *publication)
{
    mp_scoped_buf json = {0};
    mp_buf_put(&json, publication->before);
    mp_buf_put(&json, call->id);
    mp_buf_put(&json, publication->after);
    mp_call_send(call, mp_buf_str(&json)); /* if the client is gone, the send ends the call */
}

/* The next call that has not got the publication; moves it to the end of the list. NULL if all have got it. */
static mp_call *MP_NULLABLE next_to_notify(mp_rpc *rpc, const mp_publication *publication)
{
    mp_publisher *publisher = rpc->publisher;
    listened_topic *topic = find_topic(rpc, publication->topic);
    if (topic == NULL)
        return NULL;
    listener *first = mp_container(topic->listeners.next, listener, link);
    if (first->notified == publisher->number)
        return NULL;
    first->notified = publisher->number;
    mp_link_drop(&first->link);
    mp_link_put(&topic->listeners, &first->link);
    return first->call;
}

void mp_subscribers_notify(mp_rpc *rpc, int budget)
{
    mp_publisher *publisher = rpc->publisher;
    for (; budget > 0; budget--) {
        if (publisher->notifying == NULL) {
            publisher->notifying = mp_publications_take(&publisher->to_calls);
            publisher->number++;
        }
        mp_publication *publication = publisher->notifying;
        if (publication == NULL)
            return;
        mp_call *call = next_to_notify(rpc, publication);
        if (call != NULL) {
            send_publication(call, publication);
        } else {
            mp_publication_unref(publication);
            publisher->notifying = NULL;
        }
    }
}
