/* exchange.c: one message that is sent on a channel, up to its answer: time limits, events for its task, and the
 * messages between the thread of the task and the thread of the transport. slots.c decides when it may be sent; event.c
 * makes the events. */
#include "upstream/pending/pending.h"
#include <assert.h>

MP_GAUGE(upstream_exchanges, "upstream_exchanges", "", "",
         "messages to upstreams that wait for their answer or for their turn")
MP_COUNTER(upstream_calls, "upstream_calls", "", "", "requests sent to upstreams", MP_SHOWN_BY_LABELS)
MP_REFUSED(refused_upstream_questions, "upstream_questions", MP_FAULT,
           "requests that ended because their upstream asked more than 256 questions")
MP_GAUGE(upstream_event_bytes, "upstream_event_bytes", "", "",
         "bytes of messages of upstreams that wait for their calls")
MP_GAUGE(upstream_ordered_bytes, "upstream_ordered_bytes", "", "",
         "bytes of messages to upstreams that are on their way to the worker of their channel")
MP_COUNTER(upstream_dropped_notes, "dropped", "reason", "upstream_queue",
           "notifications of upstreams over 1 MiB that wait for one request")

mp_own_exchange *mp_exchange_ref(mp_own_exchange *exchange)
{
    atomic_fetch_add_explicit(&exchange->refs, 1, memory_order_relaxed);
    return exchange;
}

bool mp_exchange_hold(mp_own_exchange *exchange, size_t size, int64_t most)
{
    bool fits = mp_account_take(&exchange->queued, (int64_t)size, most);
    if (fits)
        mp_stat_add(&mp_stat_upstream_event_bytes, (int64_t)size);
    return fits;
}

void mp_exchange_release(mp_own_exchange *exchange, size_t size)
{
    mp_account_give(&exchange->queued, (int64_t)size);
    mp_stat_add(&mp_stat_upstream_event_bytes, -(int64_t)size);
}

static void free_event(mp_own_exchange *exchange, mp_queued_event *event)
{
    mp_exchange_release(exchange, event->size);
    free(event);
}

/* Frees an event that the task will not take. A question that did not come on the stream of its own request may belong
 * to another exchange: it goes on to that, or is refused. */
static void discard_event(mp_own_exchange *exchange, mp_queued_event *event)
{
    if (mp_event_is_guess(&event->event) && !exchange->asks_too_much && !exchange->super.host->is_over)
        exchange->super.host->hand_on(exchange->super.channel, event->event.bytes);
    free_event(exchange, event);
}

static void free_events(mp_own_exchange *exchange)
{
    MP_EACH_TAKEN(mp_queued_event, event, &exchange->super.events, link)
        discard_event(exchange, event);
    free(exchange->super.taken);
    exchange->super.taken = NULL;
}

/* Returns the mp_own_exchange whose member `super` is `exchange`. */
static mp_own_exchange *own_of(mp_exchange *exchange)
{
    return mp_container(exchange, mp_own_exchange, super);
}

void mp_exchange_unref(mp_own_exchange *MP_NULLABLE exchange)
{
    if (exchange == NULL || atomic_fetch_sub_explicit(&exchange->refs, 1, memory_order_acq_rel) != 1)
        return;
    free_events(exchange);
    mp_free_texts(exchange->headers);
    mp_upstream_failure_clear(&exchange->super.failure);
    mp_upstream_part_unref(exchange->part);
    mp_channel_unref(exchange->super.channel);
    free((char *)(uintptr_t)exchange->message.ptr);
    free((char *)(uintptr_t)exchange->cancel.ptr);
    free((char *)(uintptr_t)exchange->revision.ptr);
    free((char *)(uintptr_t)exchange->session.ptr);
    free(exchange->super.given);
    free(exchange);
}

/* -- messages from the task's thread to the transport's ------------------------------------------------------------ */

typedef enum { SEND, REPLY, SAY, LEAVE } action;

typedef struct {
    mp_own_exchange *exchange; /* a counted reference */
    action action;
    size_t size; /* bytes of the message and, for SEND, of the exchange: counted in worker->ordered until it arrives */
    size_t len;
    char bytes[];
} action_message;

/* True if the task's thread is the transport's. */
static bool is_direct(const mp_own_exchange *exchange)
{
    return !exchange->transport->one_worker || exchange->super.channel->worker == exchange->super.host;
}

/* True if the upstream may have received the message. */
static bool may_have_run(const mp_own_exchange *exchange)
{
    const mp_upstream_transport *transport = exchange->transport;
    return transport->has_sent != NULL ? transport->has_sent(exchange)
                                       : atomic_load(&((mp_own_exchange *)(uintptr_t)exchange)->was_sent);
}

/* Gives the message to the transport. On the transport's thread. */
static void perform_action(mp_own_exchange *exchange, action what, mp_str bytes)
{
    const mp_upstream_transport *transport = exchange->transport;
    bool is_bound = transport->one_worker;
    if (what == SEND) {
        if (is_bound && !exchange->super.channel->is_closed) {
            mp_link_put(&exchange->super.channel->exchanges, &exchange->in_channel);
            mp_exchange_ref(exchange);
        }
        transport->send(exchange);
    } else if (what == REPLY || what == SAY) {
        if (may_have_run(exchange))
            transport->say(exchange, bytes, what == REPLY);
    } else {
        transport->leave(exchange);
        if (is_bound && !mp_link_is_alone(&exchange->in_channel)) {
            mp_link_drop(&exchange->in_channel);
            mp_exchange_unref(exchange);
        }
    }
}

static void post_failure(mp_own_exchange *exchange, mp_upstream_failure failure);

static void deliver_deed(void *content, mp_loop *MP_NULLABLE loop)
{
    const action_message *it = content;
    mp_account_give(&it->exchange->super.channel->worker->ordered, (int64_t)it->size);
    mp_stat_add(&mp_stat_upstream_ordered_bytes, -(int64_t)it->size);
    if (loop != NULL && !it->exchange->super.channel->worker->is_over) {
        perform_action(it->exchange, it->action, (mp_str){it->bytes, it->len});
    } else if (it->action == SEND) {
        post_failure(it->exchange,
                     mp_upstream_failure_of(MP_FAILURE_STOPPED, false, "the worker of the channel has ended"));
    }
    mp_exchange_unref(it->exchange);
}

/* Counts a message in worker->ordered; false if it does not fit. LEAVE always fits: it follows a SEND that did, and
 * without it the exchange would stay. */
static bool take_room(mp_upstream_host *worker, action what, size_t size)
{
    if (what == LEAVE)
        mp_account_add(&worker->ordered, (int64_t)size);
    else if (!mp_account_take_posted(&worker->ordered, size))
        return false;
    mp_stat_add(&mp_stat_upstream_ordered_bytes, (int64_t)size);
    return true;
}

/* False if too much is on its way to the channel's worker, which may be stuck: then nothing was sent. */
static bool give_message(mp_own_exchange *exchange, action what, mp_str bytes)
{
    if (is_direct(exchange)) {
        perform_action(exchange, what, bytes);
        return true;
    }
    mp_upstream_host *worker = exchange->super.channel->worker;
    size_t held = what == SEND ? sizeof *exchange + exchange->message.len : 0;
    size_t size = sizeof(action_message) + bytes.len + held;
    if (!take_room(worker, what, size)) {
        mp_stat_add(&mp_stat_refused_upstream_busy, 1);
        return false;
    }
    const action_message message = {mp_exchange_ref(exchange), what, size, bytes.len};
    mp_loop_send(worker->loop, deliver_deed, &message, sizeof message, bytes);
    return true;
}

/* -- the end, on the task's thread --------------------------------------------------------------------------------- */

/* Posts `granted` to the exchange that has got a slot; `next` is NULL if none has. Under the upstream's lock. */
static void tell_granted(mp_own_exchange *MP_NULLABLE next)
{
    if (next == NULL)
        return;
    mp_exchange_ref(next);
    mp_loop_post(next->super.host->loop, &next->granted);
}

void mp_exchanges_grant(mp_upstream *upstream)
{
    for (mp_own_exchange *next; (next = mp_slot_grant(upstream)) != NULL;)
        tell_granted(next);
}

/* Asserts the table of mp_own_exchange, for the task's thread. */
static void check_flags(MP_UNUSED const mp_own_exchange *exchange)
{
#ifdef MP_SPEC_BUILD
    bool has_failed = exchange->super.failure.reason != MP_FAILURE_NONE, is_ended = exchange->super.is_ended;
    assert(is_ended || (!exchange->has_answer && !has_failed));
    assert(!exchange->has_answer || (exchange->is_started && !has_failed));
    assert(!exchange->has_result || exchange->has_answer);
    assert(exchange->is_started || is_ended ||
           (!exchange->asks_too_much && !exchange->is_pending && !exchange->is_detached));
    assert(is_ended || !exchange->is_detached || (!exchange->has_id && !exchange->is_pending));
#endif
}

/* Ends the exchange: its timers stop, and its slot is free. May free the exchange, unless the caller has a
 * reference. */
static void finish_exchange(mp_own_exchange *exchange)
{
    if (exchange->super.is_ended)
        return;
    exchange->super.is_ended = true;
    mp_link_drop(&exchange->in_host);
    mp_timer_stop(exchange->super.host->loop, &exchange->silence);
    mp_timer_stop(exchange->super.host->loop, &exchange->total);
    mp_upstream *upstream = exchange->super.channel->upstream;
    pthread_mutex_lock(&upstream->lock);
    tell_granted(mp_slot_leave(upstream, exchange));
    pthread_mutex_unlock(&upstream->lock);
    mp_stat_add(&mp_stat_upstream_exchanges, -1);
    check_flags(exchange);
    if (exchange->is_started)
        give_message(exchange, LEAVE, MP_STR_NONE);
    mp_exchange_unref(exchange); /* the reference of the host */
}

static void call_ready(mp_own_exchange *exchange)
{
    if (!exchange->is_detached && exchange->super.ready != NULL)
        exchange->super.ready(exchange->super.ctx);
}

/* Ends the exchange with a failure, and takes over what `failure` owns. */
static void fail_here(mp_own_exchange *exchange, mp_upstream_failure failure)
{
    if (exchange->super.is_ended) {
        mp_upstream_failure_clear(&failure);
        return;
    }
    mp_exchange_ref(exchange);
    exchange->super.failure = failure;
    finish_exchange(exchange);
    call_ready(exchange);
    mp_exchange_unref(exchange);
}

typedef struct {
    mp_own_exchange *exchange; /* a counted reference */
    mp_upstream_failure failure;
    bool is_accepted;
    int status;
} outcome_message;

static void accept_here(mp_own_exchange *exchange, int status);

static void deliver_outcome(void *content, mp_loop *MP_NULLABLE loop)
{
    outcome_message *it = content;
    if (loop == NULL)
        mp_upstream_failure_clear(&it->failure);
    else if (it->is_accepted)
        accept_here(it->exchange, it->status);
    else
        fail_here(it->exchange, it->failure);
    mp_exchange_unref(it->exchange);
}

static void post_failure(mp_own_exchange *exchange, mp_upstream_failure failure)
{
    const outcome_message message = {mp_exchange_ref(exchange), .failure = failure};
    mp_loop_send(exchange->super.host->loop, deliver_outcome, &message, sizeof message, MP_STR_NONE);
}

void mp_exchange_fail(mp_own_exchange *exchange, mp_upstream_failure failure)
{
    if (is_direct(exchange))
        fail_here(exchange, failure);
    else
        post_failure(exchange, failure);
}

void mp_exchange_fail_with(mp_own_exchange *exchange, mp_failure_reason reason, const char *why)
{
    mp_exchange_fail(exchange, mp_upstream_failure_of(reason, may_have_run(exchange), why));
}

void mp_exchanges_end(mp_upstream_host *host)
{
    while (!mp_link_is_alone(&host->unfinished))
        fail_here(mp_container(host->unfinished.next, mp_own_exchange, in_host),
                  mp_upstream_failure_of(MP_FAILURE_STOPPED, true, "the gateway stops"));
}

void mp_exchanges_stop(mp_upstream *upstream, mp_failure_reason reason, const char *why)
{
    mp_link *const lists[] = {&upstream->running, &upstream->waiting};
    MP_LOCKED(&upstream->lock);
    for (int i = 0; i < 2; i++)
        MP_EACH(mp_own_exchange, exchange, lists[i], in_upstream) {
            post_failure(exchange, mp_upstream_failure_of(reason, atomic_load(&exchange->was_sent), why));
        }
}

/* -- events -------------------------------------------------------------------------------------------------------- */

/* Drops the oldest notification that the task has not taken, which makes room for a newer one. */
static void drop_oldest_note(mp_own_exchange *exchange)
{
    for (mp_link *link = mp_link_first(&exchange->super.events); link != &exchange->super.events; link = link->next) {
        mp_queued_event *oldest = mp_container(link, mp_queued_event, link);
        if (oldest->event.kind != MP_EVENT_NOTE)
            continue;
        mp_link_drop(link);
        mp_stat_add(&mp_stat_upstream_dropped_notes, 1);
        free_event(exchange, oldest);
        return;
    }
}

static void on_total(mp_timer *timer);

/* How many requests the upstream may have sent by now: one more each second, for servers that ping all the time. */
static int64_t allowed_questions(const mp_own_exchange *exchange)
{
    int64_t seconds = (int64_t)((mp_monotonic_us() - exchange->began_us) / 1000000);
    return MP_UPSTREAM_QUESTIONS + seconds;
}

/* Counts a request of the upstream. Beyond MP_UPSTREAM_QUESTIONS the exchange ends in the next turn: callbacks of the
 * HTTP client must not send. A pending exchange ends in the next turn, too. */
static void count_question(mp_own_exchange *exchange)
{
    exchange->questions++;
    exchange->all_questions++;
    if (exchange->all_questions <= allowed_questions(exchange) || exchange->asks_too_much)
        return;
    exchange->asks_too_much = true;
    exchange->total_at = atomic_load(&exchange->is_pending) ? 0 : mp_monotonic_ms();
    mp_timer_start(exchange->super.host->loop, &exchange->total, 0, on_total);
}

/* Adds an event to the exchange, which owns it from then on. On the task's thread. */
static void enqueue_event(mp_own_exchange *exchange, mp_queued_event *event)
{
    bool is_answer = event->event.kind == MP_EVENT_ANSWER || event->event.kind == MP_EVENT_ACCEPTED;
    if (exchange->super.is_ended || exchange->is_detached || (exchange->asks_too_much && !is_answer)) {
        discard_event(exchange, event);
        return;
    }
    mp_exchange_ref(exchange);
    mp_exchange_event_kind kind = event->event.kind;
    mp_link_init(&event->link);
    mp_link_put(&exchange->super.events, &event->link);
    if (kind == MP_EVENT_NOTE && mp_account_used(&exchange->queued) > MP_UPSTREAM_QUEUE)
        drop_oldest_note(exchange); /* may be the one just added, while older ones are being delivered */
    if (kind == MP_EVENT_REQUEST)
        count_question(exchange);
    if (is_answer) {
        exchange->has_answer = true;
        exchange->has_result = kind == MP_EVENT_ANSWER && !event->event.is_error;
        finish_exchange(exchange);
    } else {
        mp_timer_start(exchange->super.host->loop, &exchange->silence, exchange->timeout_ms, exchange->silence.fire);
    }
    check_flags(exchange);
    call_ready(exchange);
    mp_exchange_unref(exchange);
}

static void deliver_event(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_queued_event *event = mp_container(message, mp_queued_event, message);
    mp_own_exchange *exchange = event->exchange;
    if (loop == NULL)
        free_event(exchange, event);
    else
        enqueue_event(exchange, event);
    mp_exchange_unref(exchange);
}

void mp_exchange_pass(mp_own_exchange *exchange, const mp_upstream_host *here, mp_queued_event *event)
{
    if (here == exchange->super.host) {
        enqueue_event(exchange, event);
        return;
    }
    event->message.deliver = deliver_event;
    event->exchange = mp_exchange_ref(exchange);
    mp_loop_post(exchange->super.host->loop, &event->message);
}

static void accept_here(mp_own_exchange *exchange, int status)
{
    mp_queued_event *event = mp_new(sizeof *event);
    event->event = (mp_exchange_event){.kind = MP_EVENT_ACCEPTED, .status = status};
    if (exchange->super.is_ended || exchange->is_detached) {
        free(event);
        exchange->has_answer = exchange->has_answer || !exchange->super.is_ended;
        finish_exchange(exchange);
        return;
    }
    enqueue_event(exchange, event);
}

void mp_exchange_accepted(mp_own_exchange *exchange, int status)
{
    if (is_direct(exchange)) {
        accept_here(exchange, status);
        return;
    }
    const outcome_message message = {mp_exchange_ref(exchange), .is_accepted = true, .status = status};
    mp_loop_send(exchange->super.host->loop, deliver_outcome, &message, sizeof message, MP_STR_NONE);
}

/* -- the task's side ----------------------------------------------------------------------------------------------- */

void mp_exchange_say(mp_own_exchange *exchange, mp_str message)
{
    if (exchange->is_started && !exchange->super.is_ended && !exchange->super.host->is_over)
        give_message(exchange, SAY, message);
}

void mp_exchange_end_with(mp_own_exchange *exchange, mp_failure_reason reason, const char *why)
{
    if (exchange->is_started && exchange->cancel.len > 0)
        give_message(exchange, SAY, exchange->cancel);
    mp_exchange_ref(exchange);
    fail_here(exchange, mp_upstream_failure_of(reason, exchange->is_started && may_have_run(exchange), why));
    mp_exchange_unref(exchange);
}

static void on_silence(mp_timer *timer)
{
    mp_own_exchange *exchange = mp_container(timer, mp_own_exchange, silence);
    if (mp_link_is_alone(&exchange->super.events) && exchange->questions <= 0 && !atomic_load(&exchange->is_pending))
        mp_exchange_end_with(exchange, MP_FAILURE_TIMEOUT, "no sign of life within `timeout`");
    else /* the time does not count: events wait for the task, or a client has to answer first */
        mp_timer_start(exchange->super.host->loop, timer, exchange->timeout_ms, on_silence);
}

static void on_total(mp_timer *timer)
{
    mp_own_exchange *exchange = mp_container(timer, mp_own_exchange, total);
    if (!exchange->asks_too_much) {
        mp_exchange_end_with(exchange, MP_FAILURE_TOTAL, "no answer within `timeout_total`");
        return;
    }
    mp_stat_add(&mp_stat_refused_upstream_questions, 1);
    mp_exchange_end_with(exchange, MP_FAILURE_QUESTIONS, "more questions than one request may bring, 256");
}

static void start_exchange(mp_own_exchange *exchange)
{
    exchange->is_started = true;
    exchange->began_us = mp_monotonic_us();
    mp_timer_start(exchange->super.host->loop, &exchange->silence, exchange->timeout_ms, on_silence);
    mp_exchange_ref(exchange);
    if (!give_message(exchange, SEND, MP_STR_NONE)) {
        exchange->is_started = false;
        fail_here(exchange,
                  mp_upstream_failure_of(MP_FAILURE_BUSY, false, "the worker of the channel takes no messages now"));
    } else if (exchange->has_id) {
        mp_stat_add(&mp_stat_upstream_calls, 1);
        mp_series_add(exchange->super.channel->upstream->series.calls, 1);
    }
    check_flags(exchange);
    mp_exchange_unref(exchange);
}

static void deliver_granted(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_own_exchange *exchange = mp_container(message, mp_own_exchange, granted);
    if (loop != NULL && !exchange->super.is_ended)
        start_exchange(exchange);
    mp_exchange_unref(exchange);
}

mp_queued_event *MP_NULLABLE mp_exchange_take_event(mp_own_exchange *exchange)
{
    mp_link *link = mp_link_take(&exchange->super.events);
    if (link == NULL)
        return NULL;
    if (mp_link_is_alone(&exchange->super.events) && !exchange->super.is_ended && exchange->transport->resume != NULL)
        exchange->transport->resume(exchange);
    return mp_container(link, mp_queued_event, link);
}

/* -- what its task does -------------------------------------------------------------------------------------------- */

static mp_queued_event *MP_NULLABLE take_own(mp_exchange *exchange)
{
    mp_queued_event *event = mp_exchange_take_event(own_of(exchange));
    if (event != NULL)
        mp_exchange_release(own_of(exchange), event->size);
    return event;
}

/* Sends an answer to a question whose exchange has ended. */
static bool send_apart(const mp_exchange *ended, mp_str message)
{
    mp_upstream_failure failure;
    mp_exchange *apart =
        mp_exchange_send(ended->host, ended->channel, &(mp_exchange_options){.message = message}, &failure);
    mp_exchange_free(apart); /* a message without an id is still sent */
    return apart != NULL;
}

static bool reply_own(mp_exchange *super, mp_str message)
{
    mp_own_exchange *exchange = own_of(super);
    exchange->questions -= exchange->questions > 0;
    if (!exchange->is_started)
        return false;
    if (super->is_ended)
        return message.len == 0 || send_apart(super, message);
    mp_timer_start(super->host->loop, &exchange->silence, exchange->timeout_ms, on_silence);
    return message.len == 0 || give_message(exchange, REPLY, message);
}

static void cancel_own(mp_exchange *super, mp_str message)
{
    mp_own_exchange *exchange = own_of(super);
    if (super->is_ended)
        return;
    if (message.len == 0)
        message = exchange->cancel;
    if (exchange->is_started && message.len > 0 && !super->host->is_over)
        give_message(exchange, SAY, message);
    mp_exchange_ref(exchange);
    finish_exchange(exchange);
    free_events(exchange);
    mp_exchange_unref(exchange);
}

static void leave_own(mp_exchange *super)
{
    mp_own_exchange *exchange = own_of(super);
    if (exchange->has_id || super->host->is_over)
        cancel_own(super, MP_STR_NONE);
    exchange->is_detached = true;
    check_flags(exchange);
    mp_exchange_unref(exchange);
}

static const mp_exchange_kind own_kind = {take_own, reply_own, cancel_own, mp_own_exchange_make_pending, leave_own};

static mp_str copy_str(mp_str text)
{
    return text.len == 0 ? MP_STR_NONE : (mp_str){mp_dup(text), text.len};
}

mp_exchange *MP_NULLABLE mp_exchange_send(mp_upstream_host *host, mp_channel *channel,
                                          const mp_exchange_options *options, mp_upstream_failure *failure)
{
    mp_upstream *upstream = channel->upstream;
    mp_own_exchange *exchange = mp_new(sizeof *exchange);
    atomic_init(&exchange->refs, 1);
    exchange->super =
        (mp_exchange){.kind = &own_kind, .channel = mp_channel_ref(channel), .host = host, .id = options->id};
    exchange->transport = channel->transport;
    exchange->part = mp_upstream_part_ref(channel->part);
    exchange->has_id = options->has_id;
    exchange->takes_questions = options->takes_questions;
    exchange->is_trial = options->is_trial;
    exchange->is_opening = options->is_opening;
    exchange->granted.deliver = deliver_granted;
    if (options->is_retry)
        mp_series_add(channel->upstream->series.retries, 1);
    pthread_mutex_lock(&upstream->lock);
    const mp_upstream_config *config = &upstream->part->it;
    exchange->timeout_ms = options->timeout_ms > 0 ? options->timeout_ms : config->timeout_ms;
    exchange->total_ms = options->total_ms > 0 ? options->total_ms : config->timeout_total_ms;
    exchange->answer = options->answer > 0 ? options->answer : upstream->part->limits.answer;
    mp_failure_reason refusal = host->is_over ? MP_FAILURE_STOPPED : mp_slot_enter(upstream, exchange);
    /* Read under the lock: later another worker may give the exchange a slot, and `granted` starts it. */
    bool waits = exchange->is_waiting;
    if (refusal != MP_FAILURE_NONE)
        upstream->total_refused++;
    pthread_mutex_unlock(&upstream->lock);
    if (refusal != MP_FAILURE_NONE) {
        bool is_busy = refusal == MP_FAILURE_BUSY;
        *failure = mp_upstream_failure_of(refusal, false, "the channel has ended");
        if (is_busy)
            snprintf(failure->why, sizeof failure->why,
                     "`calls: %lld` of its requests run, and `waiting: %lld` of them wait", (long long)config->calls,
                     (long long)config->waiting);
        if (is_busy)
            mp_stat_add(&mp_stat_refused_upstream_busy, 1);
        exchange->super.is_ended = true;
        mp_exchange_unref(exchange);
        return NULL;
    }
    mp_stat_add(&mp_stat_upstream_exchanges, 1);
    mp_link_put(&host->unfinished, &exchange->in_host);
    mp_exchange_ref(exchange);
    exchange->message = copy_str(options->message);
    exchange->cancel = copy_str(options->cancel);
    exchange->revision = copy_str(options->revision);
    exchange->session = copy_str(options->session);
    exchange->headers = mp_copy_texts(options->headers);
    exchange->silence.fire = on_silence;
    exchange->total_at = mp_monotonic_ms() + exchange->total_ms;
    mp_timer_start(host->loop, &exchange->total, exchange->total_ms, on_total);
    if (!waits)
        start_exchange(exchange);
    exchange->super.ready = options->ready; /* not before this function returns */
    exchange->super.ctx = options->ctx;
    return &exchange->super;
}

void mp_exchange_pause(mp_own_exchange *exchange)
{
    mp_upstream *upstream = exchange->super.channel->upstream;
    uint64_t now = mp_monotonic_ms();
    atomic_store(&exchange->is_pending, true);
    exchange->total_at = exchange->total_at > now ? exchange->total_at - now : 0;
    mp_timer_stop(exchange->super.host->loop, &exchange->total);
    MP_LOCKED(&upstream->lock);
    tell_granted(mp_slot_give_back(upstream, exchange));
    check_flags(exchange);
}

void mp_exchange_go_on(mp_own_exchange *exchange)
{
    mp_upstream *upstream = exchange->super.channel->upstream;
    atomic_store(&exchange->is_pending, false);
    if (exchange->super.is_ended)
        return;
    uint64_t left = exchange->total_at;
    exchange->total_at = mp_monotonic_ms() + left;
    mp_timer_start(exchange->super.host->loop, &exchange->total, left, on_total);
    mp_timer_start(exchange->super.host->loop, &exchange->silence, exchange->timeout_ms, on_silence);
    MP_LOCKED(&upstream->lock);
    mp_slot_take_again(upstream, exchange);
}

/* -- as its task sees it ------------------------------------------------------------------------------------------- */

const mp_exchange_event *MP_NULLABLE mp_exchange_next(mp_exchange *exchange)
{
    free(exchange->taken);
    exchange->taken = exchange->kind->take(exchange);
    return exchange->taken == NULL ? NULL : &exchange->taken->event;
}

mp_channel *mp_exchange_channel(const mp_exchange *exchange)
{
    return exchange->channel;
}

int64_t mp_exchange_id(const mp_exchange *exchange)
{
    return exchange->id;
}

mp_str mp_exchange_session(const mp_exchange *exchange)
{
    return exchange->given == NULL ? MP_STR_NONE : mp_str_of(exchange->given);
}

bool mp_exchange_is_over(const mp_exchange *exchange)
{
    return exchange->is_ended && mp_link_is_alone(&exchange->events);
}

const mp_upstream_failure *MP_NULLABLE mp_exchange_failure(const mp_exchange *exchange)
{
    bool has_failed = exchange->failure.reason != MP_FAILURE_NONE && mp_link_is_alone(&exchange->events);
    return has_failed ? &exchange->failure : NULL;
}

bool mp_exchange_reply(mp_exchange *exchange, mp_str message)
{
    return exchange->kind->reply(exchange, message);
}

void mp_exchange_cancel(mp_exchange *exchange, mp_str message)
{
    exchange->kind->cancel(exchange, message);
}

bool mp_exchange_make_pending(mp_exchange *exchange, const mp_pending_options *options, char handle[MP_PENDING_HANDLE],
                              mp_upstream_failure *failure)
{
    return exchange->kind->make_pending(exchange, options, handle, failure);
}

void mp_exchange_free(mp_exchange *MP_NULLABLE exchange)
{
    if (exchange == NULL)
        return;
    exchange->ready = NULL;
    exchange->kind->leave(exchange);
}
