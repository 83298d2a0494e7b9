/* park.c: a parked exchange on its home, the worker that sent it: the events that are kept for the next task, and the
 * messages that the relay of that task sends. */
#include "upstream/pending/park.h"

/* Bytes of notifications that are kept of a parked exchange: a client shows them when its user comes back. */
#define PARKED_NOTES_BYTES ((size_t)MP_LIMIT(upstream_park_notes, 64 << 10))

MP_COUNTER(upstream_park_dropped, "dropped", "reason", "upstream_parked",
           "notifications of upstreams for parked exchanges, over 64 KiB, or progress that newer progress replaced")

/* -- counted references -------------------------------------------------------------------------------------------- */

mp_park *mp_park_ref(mp_park *park)
{
    atomic_fetch_add_explicit(&park->refs, 1, memory_order_relaxed);
    return park;
}

static bool is_note(const mp_queued_event *event, const char *MP_NULLABLE method)
{
    return event->event.kind == MP_EVENT_NOTE && (method == NULL || mp_str_is(event->event.method, method));
}

/* Takes an event that is no longer kept out of note_bytes or exchange->queued. */
static void uncount_event(mp_park *park, const mp_queued_event *event)
{
    if (is_note(event, NULL))
        park->note_bytes -= event->size;
    else
        mp_exchange_release(park->exchange, event->size);
}

static void discard_event(mp_park *park, mp_queued_event *event)
{
    mp_link_drop(&event->link);
    uncount_event(park, event);
    free(event);
}

static void clear_kept(mp_park *park)
{
    while (!mp_link_is_alone(&park->kept))
        discard_event(park, mp_container(park->kept.next, mp_queued_event, link));
}

static void clear_cancel_messages(mp_park *park)
{
    for (size_t i = 0; i < park->cancel_count; i++)
        free((char *)(uintptr_t)park->cancel_messages[i].ptr);
    free(park->cancel_messages);
    park->cancel_messages = MP_UNSET;
    park->cancel_count = 0;
}

void mp_park_unref(mp_park *MP_NULLABLE park)
{
    if (park == NULL || atomic_fetch_sub_explicit(&park->refs, 1, memory_order_acq_rel) != 1)
        return;
    clear_kept(park);
    clear_cancel_messages(park);
    mp_exchange_unref(park->exchange);
    free(park);
}

/* -- the home: what is kept ---------------------------------------------------------------------------------------- */

/* The first kept notification of this method (NULL: any); NULL: there is none. */
static mp_queued_event *MP_NULLABLE find_note(const mp_park *park, const char *MP_NULLABLE method)
{
    MP_EACH(mp_queued_event, event, &park->kept, link) {
        if (is_note(event, method))
            return event;
    }
    return NULL;
}

/* The kept question that a notification withdraws; NULL: there is none. */
static mp_queued_event *MP_NULLABLE find_withdrawn(const mp_park *park, const mp_queued_event *note)
{
    mp_str id = mp_message_member(note->event.params, "requestId");
    for (mp_link *link = mp_link_first(&park->kept); link != &park->kept && id.len > 0; link = link->next) {
        mp_queued_event *event = mp_container(link, mp_queued_event, link);
        if (event->event.kind == MP_EVENT_REQUEST && mp_json_id_eq(event->event.id, id))
            return event;
    }
    return NULL;
}

static void count_dropped(void)
{
    mp_stat_add(&mp_stat_upstream_park_dropped, 1);
}

/* Keeps an event that came while no task waits for it. A question stays counted in exchange->queued. */
static void keep_event(mp_park *park, mp_queued_event *event)
{
    mp_link_init(&event->link);
    if (!is_note(event, NULL)) {
        mp_link_put(&park->kept, &event->link);
        return;
    }
    mp_exchange_release(park->exchange, event->size);
    if (is_note(event, "notifications/cancelled")) {
        mp_queued_event *withdrawn = find_withdrawn(park, event);
        if (withdrawn != NULL) {
            park->exchange->questions--;
            discard_event(park, withdrawn);
            free(event);
            return;
        }
    }
    bool is_parked = park->relay == NULL;
    mp_queued_event *before = find_note(park, "notifications/progress");
    if (is_parked && before != NULL && is_note(event, "notifications/progress")) {
        discard_event(park, before);
        count_dropped();
    }
    mp_link_put(&park->kept, &event->link);
    park->note_bytes += event->size;
    size_t most = is_parked ? PARKED_NOTES_BYTES : (size_t)MP_UPSTREAM_QUEUE;
    while (park->note_bytes > most) {
        mp_queued_event *oldest = find_note(park, "notifications/message");
        if (oldest == NULL && (oldest = find_note(park, NULL)) == NULL)
            break;
        discard_event(park, oldest);
        count_dropped();
    }
}

/* Keeps the events that the task of the exchange has not taken. */
static void keep_all(mp_park *park)
{
    for (mp_queued_event *event; (event = mp_exchange_take_event(park->exchange)) != NULL;)
        keep_event(park, event);
}

/* Sends the relay the next event or the failure, if it waits for one. */
static void serve_relay(mp_park *park)
{
    const mp_own_exchange *exchange = park->exchange;
    mp_relay *relay = park->relay;
    if (relay == NULL || !park->is_wanted || park->awaits_return)
        return;
    mp_link *link = mp_link_take(&park->kept);
    if (link != NULL) {
        mp_queued_event *event = mp_container(link, mp_queued_event, link);
        park->is_wanted = false;
        uncount_event(park, event);
        mp_relay_post_news(relay, event, (mp_upstream_failure){0});
    } else if (exchange->super.failure.reason != MP_FAILURE_NONE || exchange->super.is_ended) {
        mp_upstream_failure failure = exchange->super.failure;
        if (failure.reason == MP_FAILURE_NONE)
            failure = mp_upstream_failure_of(MP_FAILURE_CANCELLED, true, "the exchange is over");
        failure.head = failure.head == NULL ? NULL : mp_dup((mp_str){failure.head, failure.head_len});
        failure.body = failure.body == NULL ? NULL : mp_dup((mp_str){failure.body, failure.body_len});
        park->is_wanted = false;
        mp_relay_post_news(relay, NULL, failure);
    }
}

/* Called when the exchange has an event or has failed. */
static void on_ready(void *ctx)
{
    mp_park *park = ctx;
    keep_all(park);
    if (park->relay == NULL && park->exchange->super.failure.reason != MP_FAILURE_NONE && mp_link_is_alone(&park->kept))
        mp_parks_note_failed(park);
    serve_relay(park);
}

/* -- the home: the end --------------------------------------------------------------------------------------------- */

/* Ends a park at its home. `message` as for mp_exchange_cancel. May free the park. */
static void close_park(mp_park *park, mp_str message)
{
    if (park->is_over)
        return;
    park->is_over = true;
    park->exchange->super.ready = NULL; /* the exchange stays until the park is freed */
    mp_exchange_cancel(&park->exchange->super, message);
    park->exchange->is_detached = true;
    mp_link_drop(&park->in_home);
    clear_kept(park);
    clear_cancel_messages(park);
    mp_relay *relay = park->relay;
    park->relay = NULL;
    mp_park_unref(park); /* the reference of the home */
    mp_relay_unref(relay);
}

static void send_cancel_messages(mp_park *park)
{
    for (size_t i = 0; i < park->cancel_count; i++)
        mp_exchange_say(park->exchange, park->cancel_messages[i]);
}

typedef struct {
    mp_park *park; /* a counted reference */
    mp_park_cause cause;
} end_message;

static void deliver_end(void *content, mp_loop *MP_NULLABLE loop)
{
    const end_message *it = content;
    mp_park *park = it->park;
    mp_upstream_host *of_channel = park->exchange->super.channel->home;
    if (loop != NULL && !park->is_over && park->relay == NULL) {
        send_cancel_messages(park);
        if (it->cause == MP_PARK_EXPIRED)
            close_park(park, MP_STR_NONE);
        else if (!park->exchange->super.is_ended)
            mp_exchange_end_with(park->exchange, MP_FAILURE_STOPPED, "a reload removed the upstream");
    }
    if (atomic_fetch_sub(&park->table->park_ends, 1) == 1 && loop != NULL)
        mp_loop_wake(of_channel->loop); /* the worker may be ending, and waits until parked calls are cancelled */
    mp_park_unref(park);
}

void mp_park_post_end(mp_park *park, mp_park_cause cause)
{
    const end_message message = {mp_park_ref(park), cause};
    atomic_fetch_add(&park->table->park_ends, 1);
    mp_loop_send(park->home->loop, deliver_end, &message, sizeof message, MP_STR_NONE);
}

void mp_parks_leave_home(mp_upstream_host *host)
{
    while (!mp_link_is_alone(&host->parks)) {
        mp_park *park = mp_container(host->parks.next, mp_park, in_home);
        mp_parks_forget(park);
        close_park(park, MP_STR_NONE);
    }
}

/* -- the home: messages of the relay ------------------------------------------------------------------------------- */

static void post_home_ended(mp_relay *relay)
{
    mp_relay_post_news(relay, NULL,
                       mp_upstream_failure_of(MP_FAILURE_STOPPED, true, "the worker of the exchange has ended"));
}

static void attach_relay(mp_park *park, mp_relay *relay)
{
    clear_cancel_messages(park);
    park->relay = mp_relay_ref(relay);
    park->is_wanted = true;
    if (park->is_over) { /* the worker that holds the exchange has ended meanwhile */
        park->relay = NULL;
        post_home_ended(relay);
        mp_relay_unref(relay);
        return;
    }
    mp_exchange_go_on(park->exchange);
    serve_relay(park);
}

/* Keeps an event that a relay received but did not read, before events that have arrived since. */
static void keep_first(mp_park *park, mp_queued_event *event)
{
    mp_link_init(&event->link);
    mp_link_put(mp_link_first(&park->kept), &event->link);
    if (is_note(event, NULL))
        park->note_bytes += event->size;
    else
        mp_exchange_hold(park->exchange, event->size, INT64_MAX);
}

/* The task of the relay has parked the exchange again. */
static void park_again(mp_park *park, mp_relay_message *it)
{
    mp_relay_unref(park->relay);
    park->relay = NULL;
    mp_queued_event *event = it->event;
    if (event != NULL)
        keep_first(park, event);
    else
        park->awaits_return = park->awaits_return || (it->is_asked && !park->is_wanted);
    it->event = NULL;
    park->is_wanted = false;
    park->cancel_messages = it->cancel_messages;
    park->cancel_count = it->cancel_count;
    it->cancel_messages = MP_UNSET;
    it->cancel_count = 0;
    if (!park->exchange->super.is_ended)
        mp_exchange_pause(park->exchange);
    on_ready(park);
}

/* A relay has returned an event, because the exchange was parked again before the event arrived: keeps it first. */
static void take_back(mp_park *park, mp_relay_message *it)
{
    mp_queued_event *event = it->event;
    it->event = NULL;
    park->awaits_return = false;
    if (event != NULL)
        keep_first(park, event);
    serve_relay(park);
}

static void perform_message(mp_park *park, mp_relay_message *it)
{
    switch (it->word) {
    case MP_RELAY_ATTACH:
        attach_relay(park, it->relay);
        break;
    case MP_RELAY_ASK:
        park->is_wanted = park->relay != NULL;
        serve_relay(park);
        break;
    case MP_RELAY_REPLY:
        if (!park->is_over)
            mp_exchange_reply(&park->exchange->super, (mp_str){it->bytes, it->len});
        break;
    case MP_RELAY_LEAVE:
        close_park(park, (mp_str){it->bytes, it->len});
        break;
    case MP_RELAY_PARK:
        park_again(park, it);
        break;
    case MP_RELAY_GIVE_BACK:
        take_back(park, it);
        break;
    }
}

void mp_park_deliver(void *content, mp_loop *MP_NULLABLE loop)
{
    mp_relay_message *it = content;
    if (loop != NULL) {
        perform_message(it->relay->park, it);
    } else if (it->word == MP_RELAY_ATTACH || it->word == MP_RELAY_ASK) {
        post_home_ended(it->relay);
    }
    free(it->event);
    for (size_t i = 0; i < it->cancel_count; i++)
        free((char *)(uintptr_t)it->cancel_messages[i].ptr);
    free(it->cancel_messages);
    mp_relay_unref(it->relay);
}

mp_str *mp_park_copy_cancel_messages(const mp_park_options *options)
{
    mp_str *copy = mp_new((options->cancel_count + 1) * sizeof *copy);
    for (size_t i = 0; i < options->cancel_count; i++)
        copy[i] = (mp_str){mp_dup(options->cancel_messages[i]), options->cancel_messages[i].len};
    return copy;
}

bool mp_own_exchange_park(mp_exchange *super, const mp_park_options *options, char handle[MP_PARK_HANDLE],
                          mp_upstream_failure *failure)
{
    mp_own_exchange *exchange = mp_container(super, mp_own_exchange, super);
    bool is_over = mp_exchange_is_over(super);
    if (is_over || !exchange->is_started || !exchange->has_id) {
        *failure = mp_upstream_failure_of(MP_FAILURE_CANCELLED, is_over, "the exchange is over, or has not begun");
        return false;
    }
    mp_upstreams *table = super->host->table;
    mp_park_entry *entry = mp_parks_reserve(table, options, failure);
    if (entry == NULL)
        return false;
    mp_park *park = mp_new(sizeof *park);
    atomic_init(&park->refs, 2); /* the reference of the home, and one of this function */
    park->table = table;
    park->home = super->host;
    park->exchange = exchange; /* takes the reference that the task of the exchange had */
    park->cancel_messages = mp_park_copy_cancel_messages(options);
    park->cancel_count = options->cancel_count;
    mp_link_put(&park->home->parks, &park->in_home);
    free(super->taken);
    super->taken = NULL;
    super->ready = on_ready;
    super->ctx = park;
    if (!super->is_ended)
        mp_exchange_pause(exchange);
    mp_parks_publish(table, entry, park, NULL, 0, handle);
    on_ready(park);
    mp_park_unref(park);
    return true;
}
