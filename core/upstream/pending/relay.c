/* relay.c: a relay: stands for a parked exchange on the worker of the task that has taken it up, and exchanges messages
 * with the exchange's home. */
#include "upstream/pending/park.h"
#include <stdlib.h>

/* -- counted references -------------------------------------------------------------------------------------------- */

mp_relay *mp_relay_ref(mp_relay *relay)
{
    atomic_fetch_add_explicit(&relay->refs, 1, memory_order_relaxed);
    return relay;
}

void mp_relay_unref(mp_relay *MP_NULLABLE relay)
{
    if (relay == NULL || atomic_fetch_sub_explicit(&relay->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(relay->event);
    mp_upstream_failure_clear(&relay->failure);
    mp_park_unref(relay->park);
    free(relay);
}

/* -- messages ------------------------------------------------------------------------------------------------------ */

/* Sends a message, without its relay and bytes yet, to the home. */
static void send_home(mp_relay *relay, mp_relay_message message, mp_str bytes)
{
    message.relay = mp_relay_ref(relay);
    message.len = bytes.len;
    mp_loop_send(relay->park->home->loop, mp_park_deliver, &message, sizeof message, bytes);
}

/* From the home to the relay: an event, or the failure of the exchange. */
typedef struct {
    mp_relay *relay; /* a counted reference */
    mp_queued_event *MP_NULLABLE event;
    mp_upstream_failure failure;
} news_message;

static void deliver_news(void *content, mp_loop *MP_NULLABLE loop)
{
    news_message *it = content;
    mp_relay *relay = it->relay;
    mp_exchange *front = loop == NULL ? NULL : relay->front;
    if (front != NULL) {
        relay->is_asked = false;
        relay->event = it->event;
        relay->failure = it->failure;
        if (front->ready != NULL)
            front->ready(front->ctx);
    } else if (loop != NULL && relay->has_parked && it->event != NULL) {
        send_home(relay, (mp_relay_message){.word = MP_RELAY_GIVE_BACK, .event = it->event}, MP_STR_NONE);
    } else {
        free(it->event);
        mp_upstream_failure_clear(&it->failure);
    }
    mp_relay_unref(relay);
}

void mp_relay_post_news(mp_relay *relay, mp_queued_event *MP_NULLABLE event,
                        const mp_upstream_failure *MP_NULLABLE failure)
{
    news_message message = {.relay = mp_relay_ref(relay), .event = event};
    if (failure != NULL)
        message.failure = *failure;
    mp_loop_send(relay->host->loop, deliver_news, &message, sizeof message, MP_STR_NONE);
}

/* -- the relay, on the thread of its task -------------------------------------------------------------------------- */

static void ask(mp_relay *relay)
{
    relay->is_asked = true;
    send_home(relay, (mp_relay_message){.word = MP_RELAY_ASK}, MP_STR_NONE);
}

const mp_exchange_event *MP_NULLABLE mp_relay_next(mp_relay *relay, mp_exchange *front)
{
    mp_queued_event *event = relay->event;
    free(front->taken);
    front->taken = event;
    relay->event = NULL;
    if (event != NULL) {
        relay->has_answer = event->event.kind == MP_EVENT_ANSWER;
        return &event->event;
    }
    if (!relay->is_asked && !mp_relay_is_over(relay))
        ask(relay);
    return NULL;
}

bool mp_relay_is_over(const mp_relay *relay)
{
    return relay->event == NULL &&
           (relay->has_answer || relay->failure.reason != MP_FAILURE_NONE || relay->front == NULL);
}

const mp_upstream_failure *MP_NULLABLE mp_relay_failure(const mp_relay *relay)
{
    return relay->failure.reason == MP_FAILURE_NONE ? NULL : &relay->failure;
}

bool mp_relay_reply(mp_relay *relay, mp_str message)
{
    bool is_over = mp_relay_is_over(relay);
    if (!is_over)
        send_home(relay, (mp_relay_message){.word = MP_RELAY_REPLY}, message);
    return !is_over;
}

void mp_relay_cancel(mp_relay *relay, mp_str message)
{
    if (relay->front == NULL)
        return;
    relay->front = NULL;
    send_home(relay, (mp_relay_message){.word = MP_RELAY_LEAVE}, message);
}

void mp_relay_park(mp_relay *relay, const mp_park_options *options)
{
    const mp_relay_message message = {.word = MP_RELAY_PARK,
                                      .event = relay->event,
                                      .is_asked = relay->is_asked,
                                      .farewell = mp_park_copy_farewell(options),
                                      .farewells = options->farewells};
    relay->event = NULL;
    relay->has_parked = true;
    relay->front = NULL;
    send_home(relay, message, MP_STR_NONE);
}

mp_exchange *MP_NULLABLE mp_exchange_take_up(mp_upstream_host *host, mp_str handle, mp_str principal,
                                             void (*ready)(void *ctx), void *ctx)
{
    mp_park *park = mp_parks_take(host->table, handle, principal);
    if (park == NULL)
        return NULL;
    mp_relay *relay = mp_new(sizeof *relay);
    mp_exchange *front = mp_new(sizeof *front);
    atomic_init(&relay->refs, 1); /* the reference of relay->front */
    relay->park = park;
    relay->host = host;
    relay->front = front;
    relay->is_asked = true;
    atomic_init(&front->refs, 1);
    front->relay = relay;
    front->channel = mp_channel_ref(park->exchange->channel);
    front->host = host;
    front->ready = ready;
    front->ctx = ctx;
    mp_link_init(&front->events);
    send_home(relay, (mp_relay_message){.word = MP_RELAY_ATTACH}, MP_STR_NONE);
    return front;
}
