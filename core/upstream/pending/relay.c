/* relay.c: a relay: represents a parked exchange on the worker of the task that has taken it up, and exchanges messages
 * with the worker that holds the exchange, its home. */
#include "upstream/pending/park.h"

/* -- counted references -------------------------------------------------------------------------------------------- */

mp_relay *mp_relay_ref(mp_relay *relay)
{
    atomic_fetch_add_explicit(&relay->refs, 1, memory_order_relaxed);
    return relay;
}

/* Takes the event that has arrived; NULL: none. */
static mp_queued_event *MP_NULLABLE take_event(mp_relay *relay)
{
    mp_link *link = mp_link_take(&relay->super.events);
    return link == NULL ? NULL : mp_container(link, mp_queued_event, link);
}

void mp_relay_unref(mp_relay *MP_NULLABLE relay)
{
    if (relay == NULL || atomic_fetch_sub_explicit(&relay->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(take_event(relay));
    free(relay->super.taken);
    mp_upstream_failure_clear(&relay->super.failure);
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

/* A message from the home to the relay: an event, or the failure of the exchange. */
typedef struct {
    mp_relay *relay; /* a counted reference */
    mp_queued_event *MP_NULLABLE event;
    mp_upstream_failure failure;
} news_message;

static void deliver_news(void *content, mp_loop *MP_NULLABLE loop)
{
    news_message *it = content;
    mp_relay *relay = it->relay;
    mp_exchange *exchange = &relay->super;
    if (loop != NULL && !relay->has_left) {
        relay->is_asked = false;
        exchange->failure = it->failure;
        exchange->is_ended = it->event == NULL || it->event->event.kind == MP_EVENT_ANSWER;
        if (it->event != NULL) {
            mp_link_init(&it->event->link);
            mp_link_put(&exchange->events, &it->event->link);
        }
        if (exchange->ready != NULL)
            exchange->ready(exchange->ctx);
    } else if (loop != NULL && relay->has_parked) { /* the home waits for what it sent, also if that was the failure */
        mp_upstream_failure_clear(&it->failure);
        send_home(relay, (mp_relay_message){.word = MP_RELAY_GIVE_BACK, .event = it->event}, MP_STR_NONE);
    } else {
        free(it->event);
        mp_upstream_failure_clear(&it->failure);
    }
    mp_relay_unref(relay);
}

void mp_relay_post_news(mp_relay *relay, mp_queued_event *MP_NULLABLE event, mp_upstream_failure failure)
{
    const news_message message = {.relay = mp_relay_ref(relay), .event = event, .failure = failure};
    mp_loop_send(relay->super.host->loop, deliver_news, &message, sizeof message, MP_STR_NONE);
}

/* -- the relay, on the thread of its task -------------------------------------------------------------------------- */

static mp_relay *relay_of(mp_exchange *exchange)
{
    return mp_container(exchange, mp_relay, super);
}

static mp_queued_event *MP_NULLABLE take_and_ask(mp_exchange *exchange)
{
    mp_relay *relay = relay_of(exchange);
    mp_queued_event *event = take_event(relay);
    if (event == NULL && !relay->is_asked && !exchange->is_ended) {
        relay->is_asked = true;
        send_home(relay, (mp_relay_message){.word = MP_RELAY_ASK}, MP_STR_NONE);
    }
    return event;
}

static bool reply_by_relay(mp_exchange *exchange, mp_str message)
{
    bool is_over = mp_exchange_is_over(exchange);
    if (!is_over)
        send_home(relay_of(exchange), (mp_relay_message){.word = MP_RELAY_REPLY}, message);
    return !is_over;
}

static void cancel_by_relay(mp_exchange *exchange, mp_str message)
{
    mp_relay *relay = relay_of(exchange);
    if (relay->has_left)
        return;
    relay->has_left = exchange->is_ended = true;
    send_home(relay, (mp_relay_message){.word = MP_RELAY_LEAVE}, message);
}

static void leave_relay(mp_exchange *exchange)
{
    cancel_by_relay(exchange, MP_STR_NONE);
    mp_relay_unref(relay_of(exchange));
}

/* The task parks the exchange again: returns the event that was not read to the home. */
static bool park_again(mp_exchange *exchange, const mp_park_options *options, char handle[MP_PARK_HANDLE],
                       mp_upstream_failure *failure)
{
    mp_relay *relay = relay_of(exchange);
    mp_upstreams *table = exchange->host->table;
    if (mp_exchange_is_over(exchange)) {
        *failure = mp_upstream_failure_of(MP_FAILURE_CANCELLED, true, "the exchange is over");
        return false;
    }
    mp_park_entry *entry = mp_parks_reserve(table, options, failure);
    if (entry == NULL)
        return false;
    const mp_relay_message message = {.word = MP_RELAY_PARK,
                                      .event = take_event(relay),
                                      .is_asked = relay->is_asked,
                                      .cancel_messages = mp_park_copy_cancel_messages(options),
                                      .cancel_count = options->cancel_count};
    relay->has_left = relay->has_parked = exchange->is_ended = true;
    /* sent before the handle is valid, so that messages of the next relay arrive after it */
    send_home(relay, message, MP_STR_NONE);
    mp_parks_publish(table, entry, relay->park, NULL, 0, handle);
    mp_exchange_free(exchange);
    return true;
}

static const mp_exchange_kind resumed = {take_and_ask, reply_by_relay, cancel_by_relay, park_again, leave_relay};

mp_exchange *MP_NULLABLE mp_exchange_take_up(mp_upstream_host *host, mp_str handle, mp_str principal,
                                             void (*ready)(void *ctx), void *ctx)
{
    mp_park *park = mp_parks_take(host->table, handle, principal);
    if (park == NULL)
        return NULL;
    mp_relay *relay = mp_new(sizeof *relay);
    atomic_init(&relay->refs, 1); /* the reference of the task */
    relay->super = (mp_exchange){
        .kind = &resumed, .channel = park->exchange->super.channel, .host = host, .ready = ready, .ctx = ctx};
    relay->park = park;
    relay->is_asked = true;
    send_home(relay, (mp_relay_message){.word = MP_RELAY_ATTACH}, MP_STR_NONE);
    return &relay->super;
}
