/* resume.c: Streamable HTTP calls that a client can resume: the events of their streams have ids and are kept. */
#include "state.h"

#define PRIME_MS 250 /* delay before a call gets its event stream, and its client an id to resume with */

/* The session that stores events of the call for a client that resumes; NULL: events of the call have no ids. */
static mp_session *MP_NULLABLE resumable(const mp_call *call)
{
    mp_session *session = call->session;
    bool has_ids = session != NULL && session->event_log != NULL && call->batch == NULL && !call->opens_session;
    return has_ids ? session : NULL;
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
    MP_EACH(mp_call, call, &session->calls_of, in_session) {
        if (call->rpc == rpc && call->serial == serial)
            found = call;
    }
    pthread_mutex_unlock(&session->lock);
    if (found != NULL)
        leave_stream(found);
}

static bool has_priming(const mp_call *call)
{
    return call->era != NULL && call->era->has_priming;
}

mp_feed *MP_NULLABLE mp_call_need_feed(mp_call *call)
{
    mp_feed *feed = call->feed;
    if (feed != NULL)
        return feed;
    mp_session *session = resumable(call);
    mp_event_log *log = session == NULL ? NULL : session->event_log;
    if (session == NULL || log == NULL || mp_stream_open_events(call->stream, NULL, 0) != 0)
        return NULL;
    feed = mp_feed_new_of_call(session, log, &(mp_feed_call){call->id, call->rpc, call->serial, leave_call_stream});
    uint64_t number = feed->number;
    call->feed = feed;
    if (has_priming(call)) {
        mp_scoped_buf event = {0};
        mp_put_priming(&event, number, 0);
        mp_stream_send(call->stream, mp_buf_str(&event));
    }
    return call->feed; /* if the client is gone, the send may have ended the call */
}

/* Sends `parcel` with the call's own connection. If the client is gone, that takes the stream from the call and frees
 * its reference. */
static bool send_parcel(mp_call *call, mp_feed *feed, mp_parcel parcel)
{
    parcel.feed = feed;
    parcel.own = mp_stream_ref(call->stream);
    bool is_delivered = mp_reader_send(call->rpc, feed->session, &parcel);
    mp_stream_unref(parcel.own);
    return is_delivered;
}

int mp_call_put(mp_call *call, mp_feed *feed, mp_str json, bool is_last)
{
    mp_parcel parcel = {.json = json, .hangs_up = is_last, .is_last = is_last, .is_answer = is_last};
    return send_parcel(call, feed, parcel) ? 0 : -1;
}

void mp_call_end_feed(mp_call *call)
{
    mp_timer_stop(call->rpc->loop, &call->prime);
    mp_feed *feed = call->feed;
    if (feed == NULL)
        return;
    if (!feed->is_over)
        send_parcel(call, feed, (mp_parcel){.hangs_up = true, .is_last = true});
    call->feed = NULL;
    mp_feed_unref(feed);
}

bool mp_call_detach(mp_call *call, uint64_t ms)
{
    mp_feed *feed = call->ended || !has_priming(call) ? NULL : mp_call_need_feed(call);
    if (feed == NULL)
        return false;
    mp_scoped_buf retry = {0};
    mp_put_retry(&retry, ms);
    send_parcel(call, feed, (mp_parcel){.bytes = mp_buf_str(&retry), .hangs_up = true});
    leave_stream(call);
    return true;
}

static bool is_primed(const mp_call *call)
{
    return has_priming(call) && resumable(call) != NULL;
}

/* An answer that takes long begins as an event stream, whose comments keep it open: proxies close what is silent. */
static void on_prime(mp_timer *timer)
{
    mp_call *call = mp_container(timer, mp_call, prime);
    if (is_primed(call))
        mp_call_need_feed(call);
    else if (mp_call_is_of_stream(call))
        mp_stream_keep_alive(call->stream);
}

void mp_call_prime_soon(mp_call *call)
{
    if (call->feed != NULL || call->prime.slot != 0 || call->batch != NULL || call->opens_session)
        return;
    if (is_primed(call))
        mp_timer_start(call->rpc->loop, &call->prime, PRIME_MS, on_prime);
    else if (mp_names_events(call->stream))
        mp_timer_start(call->rpc->loop, &call->prime, call->rpc->config->heartbeat_ms, on_prime);
}
