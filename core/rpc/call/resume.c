/* resume.c: Streamable HTTP calls that a client can resume: the events of their streams have ids and are kept. */
#include "call.h"

#define PRIME_MS 250 /* delay before a call gets its event stream, and its client an id to resume with */

static bool can_resume(const mp_call *call)
{
    return call->session != NULL && call->session->event_log != NULL && call->batch == NULL && !call->opens_session;
}

/* Closes the call's own connection; the call goes on. */
static void leave_stream(mp_call *call)
{
    mp_stream *stream = mp_stream_ref(call->stream);
    mp_call_leave_stream(call);
    mp_stream_end(stream);
    mp_stream_unref(stream);
}

/* mp_feed.on_resumed: the client of the call has reconnected on another connection. */
static void leave_call_stream(mp_rpc *rpc, mp_session *session, uint64_t serial)
{
    mp_call *found = NULL;
    pthread_mutex_lock(&session->lock);
    for (mp_link *link = session->calls_of.next; link != &session->calls_of; link = link->next) {
        mp_call *call = mp_container(link, mp_call, in_session);
        if (call->rpc == rpc && call->serial == serial)
            found = call;
    }
    pthread_mutex_unlock(&session->lock);
    if (found != NULL)
        leave_stream(found);
}

bool mp_call_has_feed(mp_call *call)
{
    if (call->feed != NULL)
        return true;
    if (!can_resume(call) || mp_stream_open_events(call->stream, NULL, 0) != 0)
        return false;
    call->feed = mp_feed_new_of_call(call->session, call->rpc, call->serial, leave_call_stream);
    if (call->era->has_priming) {
        mp_buf event = {0};
        mp_put_priming(&event, call->feed->number, 0);
        mp_stream_send(call->stream, mp_buf_str(&event));
        mp_buf_clear(&event);
    }
    return true;
}

int mp_call_put(mp_call *call, mp_str json, bool is_last)
{
    mp_parcel parcel = {.feed = call->feed, .json = json, .hangs_up = is_last, .is_last = is_last};
    /* if the client is gone, the send takes the stream from the call and frees its reference */
    parcel.own = mp_stream_ref(call->stream);
    bool is_delivered = mp_reader_send(call->rpc, call->session, &parcel);
    mp_stream_unref(parcel.own);
    return is_delivered ? 0 : -1;
}

void mp_call_end_feed(mp_call *call)
{
    mp_timer_stop(call->rpc->loop, &call->prime);
    if (call->feed == NULL)
        return;
    if (!call->feed->is_over)
        mp_reader_send(call->rpc, call->session,
                       &(mp_parcel){.feed = call->feed, .own = call->stream, .hangs_up = true, .is_last = true});
    mp_feed_unref(call->feed);
    call->feed = NULL;
}

bool mp_call_detach(mp_call *call, uint64_t ms)
{
    if (call->ended || call->era == NULL || !call->era->has_priming || !mp_call_has_feed(call))
        return false;
    mp_buf retry = {0};
    mp_put_retry(&retry, ms);
    mp_parcel parcel = {.feed = call->feed, .own = call->stream, .bytes = mp_buf_str(&retry), .hangs_up = true};
    mp_reader_send(call->rpc, call->session, &parcel);
    mp_buf_clear(&retry);
    leave_stream(call);
    return true;
}

static void on_prime(mp_timer *timer)
{
    mp_call_has_feed(mp_container(timer, mp_call, prime));
}

void mp_call_prime_soon(mp_call *call)
{
    if (call->feed == NULL && call->prime.slot == 0 && call->era != NULL && call->era->has_priming && can_resume(call))
        mp_timer_start(call->rpc->loop, &call->prime, PRIME_MS, on_prime);
}
