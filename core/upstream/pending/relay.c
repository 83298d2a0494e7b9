/* relay.c: the end of the task that has taken a parked exchange up: letters to the home, and what the home sends. */
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

static mp_letter *letter_new(mp_relay *relay, mp_letter_word word, mp_str bytes)
{
    mp_letter *it = mp_new(sizeof *it);
    it->super.deliver = mp_park_deliver_letter;
    it->word = word;
    it->relay = mp_relay_ref(relay);
    if (bytes.len > 0)
        it->bytes = (mp_str){mp_dup(bytes), bytes.len};
    return it;
}

static void post_home(mp_letter *it)
{
    mp_loop_post(it->relay->park->home->loop, &it->super);
}

/* From the home to the relay: an event, or the failure of the exchange. */
typedef struct {
    mp_message super;
    mp_relay *relay; /* a counted reference */
    mp_queued_event *MP_NULLABLE event;
    mp_upstream_failure failure;
} news;

static void deliver_news(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    news *it = mp_container(message, news, super);
    mp_relay *relay = it->relay;
    mp_exchange *front = loop == NULL ? NULL : relay->front;
    if (front != NULL) {
        relay->is_asked = false;
        relay->event = it->event;
        relay->failure = it->failure;
        if (front->ready != NULL)
            front->ready(front->ctx);
    } else if (loop != NULL && relay->has_parked && it->event != NULL) {
        mp_letter *back = letter_new(relay, MP_LETTER_GIVE_BACK, MP_STR_NONE);
        back->event = it->event;
        post_home(back);
    } else {
        free(it->event);
        mp_upstream_failure_clear(&it->failure);
    }
    mp_relay_unref(relay);
    free(it);
}

void mp_relay_post_news(mp_relay *relay, mp_queued_event *MP_NULLABLE event,
                        const mp_upstream_failure *MP_NULLABLE failure)
{
    news *it = mp_new(sizeof *it);
    it->super.deliver = deliver_news;
    it->relay = mp_relay_ref(relay);
    it->event = event;
    if (failure != NULL)
        it->failure = *failure;
    mp_loop_post(relay->host->loop, &it->super);
}

/* -- the relay, on the thread of its task -------------------------------------------------------------------------- */

static void ask(mp_relay *relay)
{
    relay->is_asked = true;
    post_home(letter_new(relay, MP_LETTER_ASK, MP_STR_NONE));
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
        post_home(letter_new(relay, MP_LETTER_REPLY, message));
    return !is_over;
}

void mp_relay_cancel(mp_relay *relay, mp_str message)
{
    if (relay->front == NULL)
        return;
    relay->front = NULL;
    post_home(letter_new(relay, MP_LETTER_LEAVE, message));
}

void mp_relay_park(mp_relay *relay, const mp_park_options *options)
{
    mp_letter *it = letter_new(relay, MP_LETTER_PARK, MP_STR_NONE);
    it->event = relay->event;
    it->is_asked = relay->is_asked;
    it->farewell = mp_park_copy_farewell(options);
    it->farewells = options->farewells;
    relay->event = NULL;
    relay->has_parked = true;
    relay->front = NULL;
    post_home(it);
}

mp_exchange *MP_NULLABLE mp_exchange_take_up(mp_upstream_host *host, mp_str handle, mp_str principal,
                                             void (*ready)(void *ctx), void *ctx)
{
    mp_park *park = mp_parks_take(host->table, handle, principal);
    if (park == NULL)
        return NULL;
    mp_relay *relay = mp_new(sizeof *relay);
    mp_exchange *front = mp_new(sizeof *front);
    atomic_init(&relay->refs, 1); /* the front's */
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
    post_home(letter_new(relay, MP_LETTER_ATTACH, MP_STR_NONE));
    return front;
}
