/* resumed_exchange.c: a resumed exchange: represents a pending exchange on the worker of the task that has taken it up,
 * and exchanges messages with the worker that sent the exchange. */
#include "upstream/pending/pending.h"

/* -- counted references -------------------------------------------------------------------------------------------- */

mp_resumed_exchange *mp_resumed_exchange_ref(mp_resumed_exchange *resumed)
{
    atomic_fetch_add_explicit(&resumed->refs, 1, memory_order_relaxed);
    return resumed;
}

/* Takes the event that has arrived; NULL: none. */
static mp_queued_event *MP_NULLABLE take_event(mp_resumed_exchange *resumed)
{
    mp_link *link = mp_link_take(&resumed->super.events);
    return link == NULL ? NULL : mp_container(link, mp_queued_event, link);
}

void mp_resumed_exchange_unref(mp_resumed_exchange *MP_NULLABLE resumed)
{
    if (resumed == NULL || atomic_fetch_sub_explicit(&resumed->refs, 1, memory_order_acq_rel) != 1)
        return;
    free(take_event(resumed));
    free(resumed->super.taken);
    mp_upstream_failure_clear(&resumed->super.failure);
    mp_pending_unref(resumed->pending);
    free(resumed);
}

/* -- messages ------------------------------------------------------------------------------------------------------ */

/* Sends a message, without its resumed exchange and bytes yet, to the worker. */
static void send_worker(mp_resumed_exchange *resumed, mp_resumed_message message, mp_str bytes)
{
    message.resumed = mp_resumed_exchange_ref(resumed);
    message.len = bytes.len;
    mp_loop_send(resumed->pending->worker->loop, mp_pending_deliver, &message, sizeof message, bytes);
}

/* A message from the worker to the resumed exchange: an event, or the failure of the exchange. */
typedef struct {
    mp_resumed_exchange *resumed; /* a counted reference */
    mp_queued_event *MP_NULLABLE event;
    mp_upstream_failure failure;
} news_message;

static void deliver_news(void *content, mp_loop *MP_NULLABLE loop)
{
    news_message *it = content;
    mp_resumed_exchange *resumed = it->resumed;
    mp_exchange *exchange = &resumed->super;
    if (loop != NULL && !resumed->has_left) {
        resumed->is_asked = false;
        exchange->failure = it->failure;
        exchange->is_ended = it->event == NULL || it->event->event.kind == MP_EVENT_ANSWER;
        if (it->event != NULL) {
            mp_link_init(&it->event->link);
            mp_link_put(&exchange->events, &it->event->link);
        }
        if (exchange->ready != NULL)
            exchange->ready(exchange->ctx);
    } else if (loop != NULL &&
               resumed->is_pending_again) { /* the worker waits for what it sent, also if that was the failure */
        mp_upstream_failure_clear(&it->failure);
        send_worker(resumed, (mp_resumed_message){.word = MP_RESUMED_GIVE_BACK, .event = it->event}, MP_STR_NONE);
    } else {
        free(it->event);
        mp_upstream_failure_clear(&it->failure);
    }
    mp_resumed_exchange_unref(resumed);
}

void mp_resumed_exchange_post_news(mp_resumed_exchange *resumed, mp_queued_event *MP_NULLABLE event,
                                   mp_upstream_failure failure)
{
    const news_message message = {.resumed = mp_resumed_exchange_ref(resumed), .event = event, .failure = failure};
    mp_loop_send(resumed->super.host->loop, deliver_news, &message, sizeof message, MP_STR_NONE);
}

/* -- the resumed exchange, on the thread of its task --------------------------------------------------------------- */

static mp_resumed_exchange *resumed_of(mp_exchange *exchange)
{
    return mp_container(exchange, mp_resumed_exchange, super);
}

static mp_queued_event *MP_NULLABLE take_and_ask(mp_exchange *exchange)
{
    mp_resumed_exchange *resumed = resumed_of(exchange);
    mp_queued_event *event = take_event(resumed);
    if (event == NULL && !resumed->is_asked && !exchange->is_ended) {
        resumed->is_asked = true;
        send_worker(resumed, (mp_resumed_message){.word = MP_RESUMED_ASK}, MP_STR_NONE);
    }
    return event;
}

static bool reply_by_resumed(mp_exchange *exchange, mp_str message)
{
    bool is_over = mp_exchange_is_over(exchange);
    if (!is_over)
        send_worker(resumed_of(exchange), (mp_resumed_message){.word = MP_RESUMED_REPLY}, message);
    return !is_over;
}

static void cancel_by_resumed(mp_exchange *exchange, mp_str message)
{
    mp_resumed_exchange *resumed = resumed_of(exchange);
    if (resumed->has_left)
        return;
    resumed->has_left = exchange->is_ended = true;
    send_worker(resumed, (mp_resumed_message){.word = MP_RESUMED_LEAVE}, message);
}

static void leave_resumed(mp_exchange *exchange)
{
    cancel_by_resumed(exchange, MP_STR_NONE);
    mp_resumed_exchange_unref(resumed_of(exchange));
}

/* The task makes the exchange pending again: returns the event that was not read to the worker. */
static bool make_pending_again(mp_exchange *exchange, const mp_pending_options *options, char handle[MP_PENDING_HANDLE],
                               mp_upstream_failure *failure)
{
    mp_resumed_exchange *resumed = resumed_of(exchange);
    mp_upstreams *table = exchange->host->table;
    if (mp_exchange_is_over(exchange)) {
        *failure = mp_upstream_failure_of(MP_FAILURE_CANCELLED, true, "the exchange is over");
        return false;
    }
    mp_pending_entry *entry = mp_pending_table_reserve(table, options, failure);
    if (entry == NULL)
        return false;
    const mp_resumed_message message = {.word = MP_RESUMED_PEND_AGAIN,
                                        .event = take_event(resumed),
                                        .is_asked = resumed->is_asked,
                                        .cancel_messages = mp_pending_copy_cancel_messages(options),
                                        .cancel_count = options->cancel_count};
    resumed->has_left = resumed->is_pending_again = exchange->is_ended = true;
    /* sent before the handle is valid, so that messages of the next resumed exchange arrive after it */
    send_worker(resumed, message, MP_STR_NONE);
    mp_pending_table_publish(table, entry, resumed->pending, NULL, 0, handle);
    mp_exchange_free(exchange);
    return true;
}

static const mp_exchange_kind resumed_kind = {take_and_ask, reply_by_resumed, cancel_by_resumed, make_pending_again,
                                              leave_resumed};

mp_exchange *MP_NULLABLE mp_exchange_take_up(mp_upstream_host *host, mp_str handle, mp_str principal,
                                             void (*ready)(void *ctx), void *ctx)
{
    mp_pending_exchange *pending = mp_pending_table_take(host->table, handle, principal);
    if (pending == NULL)
        return NULL;
    mp_resumed_exchange *resumed = mp_new(sizeof *resumed);
    atomic_init(&resumed->refs, 1); /* the reference of the task */
    resumed->super = (mp_exchange){
        .kind = &resumed_kind, .channel = pending->exchange->super.channel, .host = host, .ready = ready, .ctx = ctx};
    resumed->pending = pending;
    resumed->is_asked = true;
    send_worker(resumed, (mp_resumed_message){.word = MP_RESUMED_ATTACH}, MP_STR_NONE);
    return &resumed->super;
}
