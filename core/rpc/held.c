/* held.c: the event streams that belong to a session, and what is sent on them from other threads. */
#include "house.h"
#include <stdlib.h>

#define EXPIRED_LOOK_MS 20

void mp_put_event(mp_buf *out, mp_str json)
{
    mp_buf_put(out, MP_STR("event: message\ndata: "));
    mp_buf_put(out, json);
    mp_buf_put(out, MP_STR("\n\n"));
}

void mp_put_event_id(mp_buf *out, uint64_t number, uint64_t seq)
{
    mp_buf_printf(out, "id: %llu-%llu\n", (unsigned long long)number, (unsigned long long)seq);
}

void mp_put_priming(mp_buf *out, uint64_t number, uint64_t seq)
{
    mp_put_event_id(out, number, seq);
    mp_buf_put(out, MP_STR("data: \n\n"));
}

/* Where it says who reads one of the session's streams. */
static mp_held **reader_of(mp_session *session, mp_feed *feed)
{
    return feed == NULL || feed->number == 0 ? &session->held : &feed->reader;
}

/* The stream is over, for whatever reason: nobody reads. On the thread of held->rpc. */
static void let_go(mp_held *held)
{
    mp_session *session = held->session;
    pthread_mutex_lock(&session->lock);
    mp_held **reader = reader_of(session, held->feed);
    bool current = *reader == held;
    if (current)
        *reader = NULL;
    mp_link_drop(&held->in_session);
    pthread_mutex_unlock(&session->lock);
    atomic_store_explicit(&session->used_at, mp_loop_now(held->rpc->loop), memory_order_relaxed);

    bool slow = mp_stream_was_slow(held->stream);
    mp_stream_on_gone(held->stream, NULL, NULL);
    mp_stream_on_drained(held->stream, NULL, NULL);
    mp_timer_stop(held->rpc->loop, &held->expiry);
    mp_stream_unref(held->stream);
    mp_link_drop(&held->link);
    if (held->feed != NULL)
        mp_feed_unref(held->feed);
    free(held);
    if (current && session->is_sse) /* E-6: the end of its stream is the end of the session */
        mp_session_close(session, slow ? MP_STAT_CLOSED_SLOW : MP_STAT_CLOSED_GONE);
    mp_session_unref(session);
}

static void on_gone(void *ctx, mp_stream *stream)
{
    (void)stream;
    let_go(ctx);
}

static void end_held(mp_held *held)
{
    mp_stream *stream = mp_stream_ref(held->stream);
    let_go(held);
    mp_stream_end(stream);
    mp_stream_unref(stream);
}

/* Asked under the session's lock: `held` leaves the session before its socket is closed, so `fd` is its own. */
static bool is_read(const mp_held *held)
{
    return held->fd >= 0 && !mp_peer_left(held->fd);
}

bool mp_session_has_reader(mp_session *session)
{
    pthread_mutex_lock(&session->lock);
    bool has = session->held != NULL && is_read(session->held);
    pthread_mutex_unlock(&session->lock);
    return has;
}

/* -- a client comes, or comes back ------------------------------------------------------------------------------- */

typedef struct {
    mp_message super;
    mp_rpc *rpc;
    mp_session *session;
    uint64_t serial; /* of the call whose own connection it is; 0: a held one */
} replacement;

/* A held stream of `session` on this rpc, which therefore only this thread can end. */
static mp_held *find_here(mp_rpc *rpc, mp_session *session, bool (*is_it)(const mp_held *held, uint64_t number),
                          uint64_t number)
{
    mp_held *found = NULL;
    pthread_mutex_lock(&session->lock);
    for (mp_link *link = session->readers.next; link != &session->readers && found == NULL; link = link->next) {
        mp_held *held = mp_container(link, mp_held, in_session);
        if (held->rpc == rpc && is_it(held, number))
            found = held;
    }
    pthread_mutex_unlock(&session->lock);
    return found;
}

static bool is_replaced(const mp_held *held, uint64_t number)
{
    (void)number;
    return held->is_replaced;
}

static void deliver_replacement(mp_message *message, mp_loop *loop)
{
    replacement *news = mp_container(message, replacement, super);
    mp_held *held;
    while (loop != NULL && (held = find_here(news->rpc, news->session, is_replaced, 0)) != NULL)
        end_held(held);
    if (loop != NULL && news->serial > 0)
        mp_call_leave_stream(news->rpc, news->session, news->serial);
    mp_session_unref(news->session);
    free(news);
}

static void post_replacement(mp_session *session, mp_rpc *rpc, uint64_t serial)
{
    replacement *news = mp_new(sizeof *news);
    *news = (replacement){{.deliver = deliver_replacement}, rpc, mp_session_ref(session), serial};
    mp_loop_post(rpc->loop, &news->super);
}

static mp_held *held_new(mp_rpc *rpc, mp_session *session, mp_stream *stream)
{
    mp_held *held = mp_new(sizeof *held);
    *held = (mp_held){.session = session,
                      .stream = stream,
                      .fd = mp_stream_fd(stream),
                      .rpc = rpc,
                      .expires = rpc->principal->expires};
    return held;
}

/* Under the session's lock: `held` reads from now on, and whoever did before does no more. */
static void take_over(mp_held *held, mp_feed *feed)
{
    mp_session *session = held->session;
    mp_held **reader = reader_of(session, feed);
    held->feed = feed;
    held->number = feed == NULL ? 0 : feed->number;
    if (*reader != NULL) {
        (*reader)->is_replaced = true;
        post_replacement(session, (*reader)->rpc, 0);
    } else if (held->number > 0 && !feed->is_over) {
        post_replacement(session, feed->rpc, feed->serial);
    }
    *reader = held;
    mp_link_put(&session->readers, &held->in_session);
    session->rpcs |= UINT64_C(1) << held->rpc->index;
}

/* Answers of HTTP+SSE have no other way: they may still come. */
static bool may_answer(mp_held *held)
{
    uint64_t now = mp_loop_now(held->rpc->loop);
    if (held->expired_at == 0)
        held->expired_at = now;
    return held->session->is_sse && atomic_load(&held->session->calls) > 0 &&
           now < held->expired_at + held->rpc->config->call_ms;
}

static void on_expired(mp_timer *timer)
{
    mp_held *held = mp_container(timer, mp_held, expiry);
    if (!mp_expiry_is_over(held->expires)) {
        mp_expiry_start(held->rpc, timer, held->expires, on_expired);
    } else if (may_answer(held)) {
        mp_timer_start(held->rpc->loop, timer, EXPIRED_LOOK_MS, on_expired);
    } else {
        mp_stat_add(MP_STAT_STREAMS_EXPIRED, 1);
        if (held->session->is_sse)
            mp_session_close(held->session, MP_STAT_CLOSED_EXPIRED);
        end_held(held);
    }
}

/* It is in its session: the rest. */
static void hold(mp_held *held)
{
    mp_expiry_start(held->rpc, &held->expiry, held->expires, on_expired);
    mp_session_ref(held->session);
    mp_stream_ref(held->stream);
    mp_link_put(&held->rpc->held, &held->link);
    mp_stream_on_gone(held->stream, on_gone, held);
}

int mp_held_start(mp_rpc *rpc, mp_session *session, mp_stream *stream)
{
    mp_held *held = held_new(rpc, session, stream);
    held->was_idle = !session->is_sse;
    pthread_mutex_lock(&session->lock);
    bool refused = session->closed || (session->held != NULL && is_read(session->held));
    if (!refused) {
        if (session->feed == NULL && session->replay != NULL)
            session->feed = mp_feed_new(session, NULL);
        if (session->feed != NULL) {
            mp_feed_ref(session->feed);
            held->sent = session->feed->last;
        }
        take_over(held, session->feed);
    }
    pthread_mutex_unlock(&session->lock);
    if (refused) {
        free(held);
        return -1;
    }
    hold(held);
    const mp_era *era = mp_session_era(session);
    if (held->feed != NULL && era != NULL && era->has_priming) {
        mp_buf event = {0};
        mp_put_priming(&event, 0, held->sent);
        mp_stream_send(stream, mp_buf_str(&event));
        mp_buf_clear(&event);
    }
    return 0;
}

static void on_drained(void *ctx, mp_stream *stream);

/* Sends what is kept, as far as the reader takes it; then the stream is live. */
static void catch_up(mp_held *held, bool has_all_room)
{
    mp_session *session = held->session;
    mp_stream *stream = held->stream;
    mp_buf events = {0};
    pthread_mutex_lock(&session->lock);
    mp_feed_rest rest = mp_feed_read(held->feed, &held->sent, mp_stream_room(stream), &events);
    bool never_fits = rest == MP_FEED_MORE && events.len == 0 && has_all_room;
    bool ends = rest == MP_FEED_GAP || never_fits || (rest == MP_FEED_ALL && held->feed->is_over);
    held->is_behind = rest != MP_FEED_ALL;
    pthread_mutex_unlock(&session->lock);
    if (rest == MP_FEED_MORE)
        mp_stream_on_drained(stream, on_drained, held);
    if (mp_stream_send(stream, mp_buf_str(&events)) == 0 && ends) /* else it is gone, and `held` with it */
        end_held(held);
    mp_buf_clear(&events);
}

static void on_drained(void *ctx, mp_stream *stream)
{
    (void)stream;
    catch_up(ctx, true);
}

bool mp_held_resume(mp_rpc *rpc, mp_session *session, mp_stream *stream, mp_str last_event_id)
{
    mp_held *held = held_new(rpc, session, stream);
    held->is_behind = true;
    pthread_mutex_lock(&session->lock);
    mp_feed *feed = mp_feed_find(session, last_event_id, &held->sent);
    if (feed != NULL)
        take_over(held, feed);
    pthread_mutex_unlock(&session->lock);
    if (feed == NULL) {
        free(held);
        return false;
    }
    hold(held);
    if (mp_stream_open_events(stream, NULL, 0) == 0)
        catch_up(held, false);
    else
        let_go(held);
    return true;
}

/* -- what goes out ------------------------------------------------------------------------------------------------ */

typedef struct {
    mp_message super;
    mp_rpc *rpc;
    mp_session *session;
    uint64_t number, seq;
    bool is_kept, hangs_up;
    size_t len;
    char bytes[];
} letter;

static void send_here(mp_held *held, uint64_t seq, mp_str bytes, bool hangs_up)
{
    if (seq > 0)
        held->sent = seq;
    if (mp_stream_send(held->stream, bytes) == 0 && hangs_up) /* else it is gone, and `held` with it */
        end_held(held);
}

static bool is_live(const mp_held *held, uint64_t number)
{
    return held->number == number && !held->is_replaced;
}

static void deliver_letter(mp_message *message, mp_loop *loop)
{
    letter *mail = mp_container(message, letter, super);
    if (loop != NULL) {
        mp_held *held = find_here(mail->rpc, mail->session, is_live, mail->number);
        if (held == NULL)
            mp_stat_add(MP_STAT_DROPPED_GONE, mail->len > 0 && !mail->is_kept);
        else if (!held->is_behind && (mail->seq == 0 || mail->seq > held->sent)) /* else the store gave it already */
            send_here(held, mail->seq, (mp_str){mail->bytes, mail->len}, mail->hangs_up);
    }
    mp_session_unref(mail->session);
    free(mail);
}

/* Under the session's lock, so that letters keep the order of their events. */
static void post_letter(mp_held *held, uint64_t seq, mp_str bytes, bool is_kept, bool hangs_up)
{
    letter *mail = mp_new(sizeof *mail + bytes.len);
    *mail = (letter){{.deliver = deliver_letter},
                     held->rpc,
                     mp_session_ref(held->session),
                     held->number,
                     seq,
                     is_kept,
                     hangs_up,
                     bytes.len};
    if (bytes.len > 0)
        memcpy(mail->bytes, bytes.ptr, bytes.len);
    if (seq > 0)
        held->posted = seq;
    mp_loop_post(held->rpc->loop, &mail->super);
}

bool mp_held_send(mp_rpc *from, mp_session *session, const mp_parcel *parcel)
{
    mp_buf bytes = {0};
    uint64_t seq = 0;
    bool is_kept = false, has_event = parcel->json.len > 0;
    pthread_mutex_lock(&session->lock);
    mp_feed *feed = parcel->feed == NULL ? session->feed : parcel->feed;
    mp_held *reader = *reader_of(session, feed), *here = NULL;
    if (has_event && feed != NULL) {
        is_kept = mp_feed_put(feed, parcel->json);
        seq = feed->last;
        mp_put_event_id(&bytes, feed->number, seq);
    }
    if (has_event)
        mp_put_event(&bytes, parcel->json);
    else
        mp_buf_put(&bytes, parcel->bytes);
    if (parcel->is_last)
        feed->is_over = true;
    if (reader != NULL && !reader->is_behind) { /* one that is behind finds it in the store */
        if (reader->rpc == from && reader->posted <= reader->sent)
            here = reader;
        else
            post_letter(reader, seq, mp_buf_str(&bytes), is_kept, parcel->hangs_up);
    }
    pthread_mutex_unlock(&session->lock);

    bool is_heard = is_kept || reader != NULL;
    if (here != NULL) {
        send_here(here, seq, mp_buf_str(&bytes), parcel->hangs_up);
    } else if (reader == NULL && parcel->own != NULL) {
        bool sent = mp_stream_send(parcel->own, mp_buf_str(&bytes)) == 0;
        is_heard |= sent;
        if (sent && parcel->hangs_up)
            mp_stream_end(parcel->own);
    } else if (has_event && !is_heard) {
        mp_stat_add(MP_STAT_DROPPED_GONE, 1);
    }
    mp_buf_clear(&bytes);
    return is_heard;
}

void mp_session_send(mp_rpc *from, mp_session *session, mp_str json)
{
    if (from->stdio.pipe != NULL)
        mp_stdio_send(from, json);
    else
        mp_held_send(from, session, &(mp_parcel){.json = json});
}

/* -- the end ------------------------------------------------------------------------------------------------------ */

/* A call's stream that is live ends with the call's last message, which is on its way. */
static bool ends_with_session(const mp_held *held, uint64_t number)
{
    (void)number;
    return held->number == 0 || held->is_behind || held->is_replaced;
}

void mp_rpc_forget(mp_rpc *rpc, mp_session *session)
{
    mp_held *held;
    while ((held = find_here(rpc, session, ends_with_session, 0)) != NULL)
        end_held(held);
    for (mp_link *link = rpc->calls.next, *next; link != &rpc->calls; link = next) {
        next = link->next;
        mp_call *call = mp_container(link, mp_call, link);
        if (call->session == session && !call->opens_session)
            mp_call_cancel(call, "the session ended", MP_STAT_TOOL_GONE, MP_CANCEL_TELL);
    }
}

/* While draining: streams that carry no call end now, HTTP+SSE ones once their last call is answered. */
void mp_held_drain(mp_rpc *rpc, bool all)
{
    for (mp_link *link = rpc->held.next, *next; link != &rpc->held; link = next) {
        next = link->next;
        mp_held *held = mp_container(link, mp_held, link);
        mp_session *session = held->session;
        bool is_idle = held->number == 0 && (!session->is_sse || atomic_load(&session->calls) == 0);
        bool was_idle = held->was_idle;
        held->was_idle = is_idle;
        if (!all && !(is_idle && was_idle))
            continue;
        if (session->is_sse)
            mp_session_close(session,
                             MP_STAT_CLOSED_SHUTDOWN); /* ours to name; else let_go would say its client left */
        end_held(held);
    }
}
