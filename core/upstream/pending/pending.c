/* pending.c: a pending exchange on the worker that sent it: the events that are kept for the next task, and the
 * messages that the resumed exchange of that task sends. */
#include "upstream/pending/pending.h"

/* Bytes of notifications that are kept of a pending exchange: a client shows them when its user comes back. */
#define PARKED_NOTES_BYTES ((size_t)MP_LIMIT(upstream_pending_notes, 64 << 10))

MP_COUNTER(upstream_pending_dropped, "dropped", "reason", "upstream_pending",
           "notifications of upstreams for pending exchanges, over 64 KiB, or progress that newer progress replaced")

/* -- counted references -------------------------------------------------------------------------------------------- */

mp_pending_exchange *mp_pending_ref(mp_pending_exchange *pending)
{
    atomic_fetch_add_explicit(&pending->refs, 1, memory_order_relaxed);
    return pending;
}

static bool is_note(const mp_queued_event *event, const char *MP_NULLABLE method)
{
    return event->event.kind == MP_EVENT_NOTE && (method == NULL || mp_str_is(event->event.method, method));
}

/* Subtracts the size of an event that is no longer kept from note_bytes or exchange->queued. */
static void uncount_event(mp_pending_exchange *pending, const mp_queued_event *event)
{
    if (is_note(event, NULL))
        pending->note_bytes -= event->size;
    else
        mp_exchange_release(pending->exchange, event->size);
}

static void discard_event(mp_pending_exchange *pending, mp_queued_event *event)
{
    mp_link_drop(&event->link);
    uncount_event(pending, event);
    free(event);
}

static void clear_kept(mp_pending_exchange *pending)
{
    while (!mp_link_is_alone(&pending->kept)) {
        mp_queued_event *event = mp_container(pending->kept.next, mp_queued_event, link);
        const mp_exchange *exchange = &pending->exchange->super;
        if (mp_event_is_guess(&event->event))
            exchange->host->hand_on(exchange->channel, event->event.bytes);
        discard_event(pending, event);
    }
}

static void clear_cancel_messages(mp_pending_exchange *pending)
{
    for (size_t i = 0; i < pending->cancel_count; i++)
        free((char *)(uintptr_t)pending->cancel_messages[i].ptr);
    free(pending->cancel_messages);
    pending->cancel_messages = MP_UNSET;
    pending->cancel_count = 0;
}

void mp_pending_unref(mp_pending_exchange *MP_NULLABLE pending)
{
    if (pending == NULL || atomic_fetch_sub_explicit(&pending->refs, 1, memory_order_acq_rel) != 1)
        return;
    clear_kept(pending);
    clear_cancel_messages(pending);
    mp_exchange_unref(pending->exchange);
    free(pending);
}

/* -- the worker: what is kept -------------------------------------------------------------------------------------- */

/* The first kept notification of this method (NULL: any); NULL: there is none. */
static mp_queued_event *MP_NULLABLE find_note(const mp_pending_exchange *pending, const char *MP_NULLABLE method)
{
    MP_EACH(mp_queued_event, event, &pending->kept, link) {
        if (is_note(event, method))
            return event;
    }
    return NULL;
}

/* The kept question that a notification withdraws; NULL: there is none. */
static mp_queued_event *MP_NULLABLE find_withdrawn(const mp_pending_exchange *pending, const mp_queued_event *note)
{
    mp_str id = mp_message_member(note->event.params, "requestId");
    for (mp_link *link = mp_link_first(&pending->kept); link != &pending->kept && id.len > 0; link = link->next) {
        mp_queued_event *event = mp_container(link, mp_queued_event, link);
        if (event->event.kind == MP_EVENT_REQUEST && mp_json_id_eq(event->event.id, id))
            return event;
    }
    return NULL;
}

static void count_dropped(void)
{
    mp_stat_add(&mp_stat_upstream_pending_dropped, 1);
}

/* Keeps an event that came while no task waits for it. A question stays counted in exchange->queued. */
static void keep_event(mp_pending_exchange *pending, mp_queued_event *event)
{
    mp_link_init(&event->link);
    if (!is_note(event, NULL)) {
        mp_link_put(&pending->kept, &event->link);
        return;
    }
    mp_exchange_release(pending->exchange, event->size);
    if (is_note(event, "notifications/cancelled")) {
        mp_queued_event *withdrawn = find_withdrawn(pending, event);
        if (withdrawn != NULL) {
            pending->exchange->questions--;
            discard_event(pending, withdrawn);
            free(event);
            return;
        }
    }
    bool is_pending = pending->resumed == NULL;
    mp_queued_event *before = find_note(pending, "notifications/progress");
    if (is_pending && before != NULL && is_note(event, "notifications/progress")) {
        discard_event(pending, before);
        count_dropped();
    }
    mp_link_put(&pending->kept, &event->link);
    pending->note_bytes += event->size;
    size_t most = is_pending ? PARKED_NOTES_BYTES : (size_t)MP_UPSTREAM_QUEUE;
    while (pending->note_bytes > most) {
        mp_queued_event *oldest = find_note(pending, "notifications/message");
        if (oldest == NULL && (oldest = find_note(pending, NULL)) == NULL)
            break;
        discard_event(pending, oldest);
        count_dropped();
    }
}

/* Keeps the events that the task of the exchange has not taken. */
static void keep_all(mp_pending_exchange *pending)
{
    for (mp_queued_event *event; (event = mp_exchange_take_event(pending->exchange)) != NULL;)
        keep_event(pending, event);
}

/* Sends the resumed exchange the next event or the failure, if it waits for one. */
static void serve_resumed(mp_pending_exchange *pending)
{
    const mp_own_exchange *exchange = pending->exchange;
    mp_resumed_exchange *resumed = pending->resumed;
    if (resumed == NULL || !pending->is_wanted || pending->awaits_return)
        return;
    mp_link *link = mp_link_take(&pending->kept);
    if (link != NULL) {
        mp_queued_event *event = mp_container(link, mp_queued_event, link);
        pending->is_wanted = false;
        uncount_event(pending, event);
        mp_resumed_exchange_post_news(resumed, event, (mp_upstream_failure){0});
    } else if (exchange->super.failure.reason != MP_FAILURE_NONE || exchange->super.is_ended) {
        mp_upstream_failure failure = exchange->super.failure;
        if (failure.reason == MP_FAILURE_NONE)
            failure = mp_upstream_failure_of(MP_FAILURE_CANCELLED, true, "the exchange is over");
        failure.head = failure.head == NULL ? NULL : mp_dup((mp_str){failure.head, failure.head_len});
        failure.body = failure.body == NULL ? NULL : mp_dup((mp_str){failure.body, failure.body_len});
        pending->is_wanted = false;
        mp_resumed_exchange_post_news(resumed, NULL, failure);
    }
}

/* Called when the exchange has an event or has failed. */
static void on_ready(void *ctx)
{
    mp_pending_exchange *pending = ctx;
    keep_all(pending);
    if (pending->resumed == NULL && pending->exchange->super.failure.reason != MP_FAILURE_NONE &&
        mp_link_is_alone(&pending->kept))
        mp_pending_table_note_failed(pending);
    serve_resumed(pending);
}

/* -- the worker: the end ------------------------------------------------------------------------------------------- */

/* Ends a pending exchange at its worker. `message` as for mp_exchange_cancel. May free the pending exchange. */
static void close_pending(mp_pending_exchange *pending, mp_str message)
{
    if (pending->is_over)
        return;
    pending->is_over = true;
    pending->exchange->super.ready = NULL; /* the exchange stays until the pending exchange is freed */
    mp_exchange_cancel(&pending->exchange->super, message);
    pending->exchange->is_detached = true;
    mp_link_drop(&pending->in_worker);
    clear_kept(pending);
    clear_cancel_messages(pending);
    mp_resumed_exchange *resumed = pending->resumed;
    pending->resumed = NULL;
    mp_pending_unref(pending); /* the reference of the worker */
    mp_resumed_exchange_unref(resumed);
}

static void send_cancel_messages(mp_pending_exchange *pending)
{
    for (size_t i = 0; i < pending->cancel_count; i++)
        mp_exchange_say(pending->exchange, pending->cancel_messages[i]);
}

typedef struct {
    mp_pending_exchange *pending; /* a counted reference */
    mp_pending_cause cause;
} end_message;

static void deliver_end(void *content, mp_loop *MP_NULLABLE loop)
{
    const end_message *it = content;
    mp_pending_exchange *pending = it->pending;
    mp_upstream_host *of_channel = pending->exchange->super.channel->worker;
    if (loop != NULL && !pending->is_over && pending->resumed == NULL) {
        send_cancel_messages(pending);
        if (it->cause == MP_PENDING_EXPIRED)
            close_pending(pending, MP_STR_NONE);
        else if (!pending->exchange->super.is_ended)
            mp_exchange_end_with(pending->exchange, MP_FAILURE_STOPPED, "a reload removed the upstream");
    }
    if (atomic_fetch_sub(&pending->table->pending_ends, 1) == 1 && loop != NULL)
        mp_loop_wake(of_channel->loop); /* the worker may be ending, and waits until pending calls are cancelled */
    mp_pending_unref(pending);
}

void mp_pending_post_end(mp_pending_exchange *pending, mp_pending_cause cause)
{
    const end_message message = {mp_pending_ref(pending), cause};
    atomic_fetch_add(&pending->table->pending_ends, 1);
    mp_loop_send(pending->worker->loop, deliver_end, &message, sizeof message, MP_STR_NONE);
}

void mp_pending_table_leave(mp_upstream_host *host)
{
    while (!mp_link_is_alone(&host->pending)) {
        mp_pending_exchange *pending = mp_container(host->pending.next, mp_pending_exchange, in_worker);
        mp_pending_table_forget(pending);
        close_pending(pending, MP_STR_NONE);
    }
}

/* -- the worker: messages of the resumed exchange ------------------------------------------------------------------ */

static void post_worker_ended(mp_resumed_exchange *resumed)
{
    mp_resumed_exchange_post_news(
        resumed, NULL, mp_upstream_failure_of(MP_FAILURE_STOPPED, true, "the worker of the exchange has ended"));
}

static void attach_resumed(mp_pending_exchange *pending, mp_resumed_exchange *resumed)
{
    clear_cancel_messages(pending);
    pending->resumed = mp_resumed_exchange_ref(resumed);
    pending->is_wanted = true;
    if (pending->is_over) { /* the worker that holds the exchange has ended meanwhile */
        pending->resumed = NULL;
        post_worker_ended(resumed);
        mp_resumed_exchange_unref(resumed);
        return;
    }
    mp_exchange_go_on(pending->exchange);
    serve_resumed(pending);
}

/* Keeps an event that a resumed exchange received but did not read, before events that have arrived since. */
static void keep_first(mp_pending_exchange *pending, mp_queued_event *event)
{
    mp_link_init(&event->link);
    mp_link_put(mp_link_first(&pending->kept), &event->link);
    if (is_note(event, NULL))
        pending->note_bytes += event->size;
    else
        mp_exchange_hold(pending->exchange, event->size, INT64_MAX);
}

/* The task of the resumed exchange has made the exchange pending again. */
static void make_pending_again(mp_pending_exchange *pending, mp_resumed_message *it)
{
    mp_resumed_exchange_unref(pending->resumed);
    pending->resumed = NULL;
    mp_queued_event *event = it->event;
    if (event != NULL)
        keep_first(pending, event);
    else
        pending->awaits_return = pending->awaits_return || (it->is_asked && !pending->is_wanted);
    it->event = NULL;
    pending->is_wanted = false;
    pending->cancel_messages = it->cancel_messages;
    pending->cancel_count = it->cancel_count;
    it->cancel_messages = MP_UNSET;
    it->cancel_count = 0;
    if (!pending->exchange->super.is_ended)
        mp_exchange_pause(pending->exchange);
    on_ready(pending);
}

/* A resumed exchange has returned an event, because the exchange was made pending again before the event arrived: keeps
 * it first. */
static void take_back(mp_pending_exchange *pending, mp_resumed_message *it)
{
    mp_queued_event *event = it->event;
    it->event = NULL;
    pending->awaits_return = false;
    if (event != NULL)
        keep_first(pending, event);
    serve_resumed(pending);
}

static void perform_message(mp_pending_exchange *pending, mp_resumed_message *it)
{
    switch (it->word) {
    case MP_RESUMED_ATTACH:
        attach_resumed(pending, it->resumed);
        break;
    case MP_RESUMED_ASK:
        pending->is_wanted = pending->resumed != NULL;
        serve_resumed(pending);
        break;
    case MP_RESUMED_REPLY:
        if (!pending->is_over)
            mp_exchange_reply(&pending->exchange->super, (mp_str){it->bytes, it->len});
        break;
    case MP_RESUMED_LEAVE:
        close_pending(pending, (mp_str){it->bytes, it->len});
        break;
    case MP_RESUMED_PEND_AGAIN:
        make_pending_again(pending, it);
        break;
    case MP_RESUMED_GIVE_BACK:
        take_back(pending, it);
        break;
    }
}

void mp_pending_deliver(void *content, mp_loop *MP_NULLABLE loop)
{
    mp_resumed_message *it = content;
    if (loop != NULL) {
        perform_message(it->resumed->pending, it);
    } else if (it->word == MP_RESUMED_ATTACH || it->word == MP_RESUMED_ASK) {
        post_worker_ended(it->resumed);
    }
    free(it->event);
    for (size_t i = 0; i < it->cancel_count; i++)
        free((char *)(uintptr_t)it->cancel_messages[i].ptr);
    free(it->cancel_messages);
    mp_resumed_exchange_unref(it->resumed);
}

mp_str *mp_pending_copy_cancel_messages(const mp_pending_options *options)
{
    mp_str *copy = mp_new((options->cancel_count + 1) * sizeof *copy);
    for (size_t i = 0; i < options->cancel_count; i++)
        copy[i] = (mp_str){mp_dup(options->cancel_messages[i]), options->cancel_messages[i].len};
    return copy;
}

bool mp_own_exchange_make_pending(mp_exchange *super, const mp_pending_options *options, char handle[MP_PENDING_HANDLE],
                                  mp_upstream_failure *failure)
{
    mp_own_exchange *exchange = mp_container(super, mp_own_exchange, super);
    bool is_over = mp_exchange_is_over(super);
    if (is_over || !exchange->is_started || !exchange->has_id) {
        *failure = mp_upstream_failure_of(MP_FAILURE_CANCELLED, is_over, "the exchange is over, or has not begun");
        return false;
    }
    mp_upstreams *table = super->host->table;
    mp_pending_entry *entry = mp_pending_table_reserve(table, options, failure);
    if (entry == NULL)
        return false;
    mp_pending_exchange *pending = mp_new(sizeof *pending);
    atomic_init(&pending->refs, 2); /* the reference of the worker, and one of this function */
    pending->table = table;
    pending->worker = super->host;
    pending->exchange = exchange; /* takes the reference that the task of the exchange had */
    pending->cancel_messages = mp_pending_copy_cancel_messages(options);
    pending->cancel_count = options->cancel_count;
    mp_link_put(&pending->worker->pending, &pending->in_worker);
    free(super->taken);
    super->taken = NULL;
    super->ready = on_ready;
    super->ctx = pending;
    if (!super->is_ended)
        mp_exchange_pause(exchange);
    mp_pending_table_publish(table, entry, pending, NULL, 0, handle);
    on_ready(pending);
    mp_pending_unref(pending);
    return true;
}
