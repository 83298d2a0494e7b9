/* reader.c: connections that read the event streams of sessions, and messages that other threads send on them. */
#include "stream.h"

MP_COUNTER(dropped_gone, "dropped", "reason", "gone", "messages whose reader had disconnected")
MP_COUNTER(closed_gone, "sessions_closed", "reason", "gone",
           "the client of an HTTP+SSE stream disconnected, or that of an initialize without its answer")
MP_COUNTER(closed_slow, "sessions_closed", "reason", "slow", "the reader of an HTTP+SSE stream stalled")
MP_COUNTER(closed_expired, "sessions_closed", "reason", "expired", "the credentials of an HTTP+SSE stream expired")
MP_COUNTER(streams_expired, "streams_ended", "reason", "expired", "streams ended because their credentials expired")

#define EXPIRED_LOOK_MS 20 /* time between two checks whether the calls of an expired reader are answered */

/* The field of the session, or of a call's feed, that points to the reader of that stream. */
static mp_reader *MP_NULLABLE *slot_of(mp_session *session, mp_feed *MP_NULLABLE feed)
{
    return feed == NULL || feed->number == 0 ? &session->reader : &feed->reader;
}

/* The connection is closed: removes the reader from its session and frees it. Called on the thread of reader->rpc. */
static void free_reader(mp_reader *reader)
{
    mp_session *session = reader->session;
    pthread_mutex_lock(&session->lock);
    mp_feed *feed = reader->feed;
    mp_reader *MP_NULLABLE *slot = slot_of(session, feed);
    bool current = *slot == reader;
    if (current)
        *slot = NULL;
    mp_link_drop(&reader->in_session);
    pthread_mutex_unlock(&session->lock);
    atomic_store_explicit(&session->used_at, mp_loop_now(reader->rpc->loop), memory_order_relaxed);

    bool slow = mp_stream_was_slow(reader->stream);
    mp_stream_on_gone(reader->stream, NULL, NULL);
    mp_stream_on_drained(reader->stream, NULL, NULL);
    mp_timer_stop(reader->rpc->loop, &reader->expiry);
    mp_stream_unref(reader->stream);
    mp_link_drop(&reader->link);
    if (feed != NULL)
        mp_feed_unref(feed);
    free(reader);
    if (current && session->is_sse) /* over HTTP+SSE the end of the stream ends the session (E-6) */
        mp_session_close(session, slow ? &mp_stat_closed_slow : &mp_stat_closed_gone);
    mp_session_unref(session);
}

static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    free_reader(ctx);
}

void mp_reader_end(mp_reader *reader)
{
    mp_stream *stream = mp_stream_ref(reader->stream);
    free_reader(reader);
    mp_stream_end(stream);
    mp_stream_unref(stream);
}

/* True if the client has not closed the connection. The caller has the session's lock: a reader leaves its session
 * before its socket is closed, so `fd` is still the reader's socket. */
static bool is_connected(const mp_reader *reader)
{
    return reader->fd >= 0 && !mp_peer_left(reader->fd);
}

bool mp_session_has_reader(mp_session *session)
{
    MP_LOCKED(&session->lock);
    const mp_reader *reader = session->reader;
    return reader != NULL && is_connected(reader);
}

/* -- a client opens a stream, or resumes one ----------------------------------------------------------------------- */

typedef struct {
    mp_rpc *rpc;
    mp_session *session;
    uint64_t serial; /* `serial` and `on_resumed` are set for the feed of a call whose own connection is replaced; else
                        0 and NULL */
    void (*MP_NULLABLE on_resumed)(mp_rpc *rpc, mp_session *session, uint64_t serial);
} replacement_message;

/* A reader of `session` on this rpc for which `matches` is true, or NULL. Only this thread can end the reader. */
static mp_reader *MP_NULLABLE find_here(mp_rpc *rpc, mp_session *session,
                                        bool (*matches)(const mp_reader *reader, uint64_t number), uint64_t number)
{
    mp_reader *found = NULL;
    MP_LOCKED(&session->lock);
    for (mp_link *link = mp_link_first(&session->readers); link != &session->readers && found == NULL;
         link = link->next) {
        mp_reader *reader = mp_container(link, mp_reader, in_session);
        if (reader->rpc == rpc && matches(reader, number))
            found = reader;
    }
    return found;
}

static bool is_replaced(const mp_reader *reader, MP_UNUSED uint64_t number)
{
    return reader->is_replaced;
}

static void deliver_replacement(void *content, mp_loop *MP_NULLABLE loop)
{
    const replacement_message *message = content;
    mp_reader *reader;
    while (loop != NULL && (reader = find_here(message->rpc, message->session, is_replaced, 0)) != NULL)
        mp_reader_end(reader);
    if (loop != NULL && message->on_resumed != NULL)
        message->on_resumed(message->rpc, message->session, message->serial);
    mp_session_unref(message->session);
}

/* Another connection reads the stream from now on: notifies `rpc`, whose connection read it before. `feed` is the
 * call's feed, or NULL. */
static void post_replacement(mp_session *session, mp_rpc *rpc, const mp_feed *MP_NULLABLE feed)
{
    replacement_message message = {.rpc = rpc, .session = mp_session_ref(session)};
    if (feed != NULL) {
        message.serial = feed->serial;
        message.on_resumed = feed->on_resumed;
    }
    mp_loop_send(rpc->loop, deliver_replacement, &message, sizeof message, MP_STR_NONE);
}

static mp_reader *reader_new(mp_rpc *rpc, mp_session *session, mp_stream *stream)
{
    mp_reader *reader = mp_new(sizeof *reader);
    *reader = (mp_reader){.session = session,
                          .stream = stream,
                          .fd = mp_stream_fd(stream),
                          .rpc = rpc,
                          .serial = ++rpc->last_serial,
                          .began_us = mp_monotonic_us(),
                          .expires = rpc->principal->expires,
                          .sign_in = rpc->principal->sign_in};
    return reader;
}

/* Makes `reader` the reader of the feed, in place of the previous one. The caller has the session's lock. */
static void take_over(mp_reader *reader, mp_feed *MP_NULLABLE feed)
{
    mp_session *session = reader->session;
    mp_reader *MP_NULLABLE *slot = slot_of(session, feed), *before = *slot;
    reader->feed = feed;
    reader->number = feed == NULL ? 0 : feed->number;
    if (before != NULL) {
        before->is_replaced = true;
        post_replacement(session, before->rpc, NULL);
    } else if (feed != NULL && feed->number > 0 && !feed->is_over && !feed->is_resumed) {
        feed->is_resumed = true;
        post_replacement(session, feed->rpc, feed);
    }
    *slot = reader;
    mp_link_put(&session->readers, &reader->in_session);
    session->rpcs |= UINT64_C(1) << reader->rpc->index;
}

/* True if an expired reader stays open for answers: over HTTP+SSE answers have no other way to the client. */
static bool may_answer(mp_reader *reader)
{
    uint64_t now = mp_loop_now(reader->rpc->loop);
    if (reader->expired_at == 0)
        reader->expired_at = now;
    return reader->session->is_sse && atomic_load(&reader->session->calls) > 0 &&
           now < reader->expired_at + reader->rpc->config->call_ms;
}

static void end_expired(mp_reader *reader)
{
    mp_stat_add(&mp_stat_streams_expired, 1);
    if (reader->session->is_sse)
        mp_session_close(reader->session, &mp_stat_closed_expired);
    mp_reader_end(reader);
}

static void on_expired(mp_timer *timer)
{
    mp_reader *reader = mp_container(timer, mp_reader, expiry);
    if (!mp_expiry_is_over(reader->expires)) {
        mp_expiry_start(reader->rpc, timer, reader->expires, on_expired);
    } else if (may_answer(reader)) {
        mp_timer_start(reader->rpc->loop, timer, EXPIRED_LOOK_MS, on_expired);
    } else {
        end_expired(reader);
    }
}

void mp_readers_sign_out(mp_rpc *rpc)
{
    MP_EACH(mp_reader, reader, &rpc->readers, link)
        if (mp_ended_has(reader->sign_in))
            end_expired(reader);
}

/* The reader is in its session: takes references, detects that the connection closes, starts the timer of the
 * credentials. */
static void activate_reader(mp_reader *reader)
{
    mp_expiry_start(reader->rpc, &reader->expiry, reader->expires, on_expired);
    mp_session_ref(reader->session);
    mp_stream_ref(reader->stream);
    mp_link_put(&reader->rpc->readers, &reader->link);
    mp_stream_on_gone(reader->stream, on_gone, reader);
}

int mp_reader_start(mp_rpc *rpc, mp_session *session, mp_stream *stream)
{
    mp_reader *reader = reader_new(rpc, session, stream);
    reader->was_idle = !session->is_sse;
    pthread_mutex_lock(&session->lock);
    mp_event_log *log = session->event_log;
    const mp_reader *before = session->reader;
    mp_feed *feed = session->feed;
    bool refused = session->closed || (before != NULL && is_connected(before));
    if (!refused) {
        if (feed == NULL && log != NULL)
            session->feed = feed = mp_feed_new(session, log);
        if (feed != NULL) {
            mp_feed_ref(feed);
            reader->sent = feed->last;
        }
        take_over(reader, feed);
    }
    pthread_mutex_unlock(&session->lock);
    if (refused) {
        free(reader);
        return -1;
    }
    activate_reader(reader);
    const mp_era *era = mp_session_era(session);
    if (feed != NULL && era != NULL && era->has_priming) {
        mp_scoped_buf event = {0};
        mp_put_priming(&event, 0, reader->sent);
        mp_stream_send(stream, mp_buf_str(&event));
    }
    return 0;
}

static void on_drained(void *ctx, mp_stream *stream);

/* Sends as many events of the log as fit the connection. The reader is live once the last event is sent.
 * `has_all_room`: the connection's queue is empty, so an event that does not fit never will. */
static void catch_up(mp_reader *reader, mp_feed *feed, bool has_all_room)
{
    mp_session *session = reader->session;
    mp_stream *stream = reader->stream;
    mp_scoped_buf events = {0};
    pthread_mutex_lock(&session->lock);
    mp_feed_rest rest = mp_feed_read(feed, &reader->sent, mp_stream_room(stream), &events);
    bool never_fits = rest == MP_FEED_MORE && events.len == 0 && has_all_room;
    bool ends = rest == MP_FEED_GAP || never_fits || (rest == MP_FEED_ALL && feed->is_over);
    reader->is_behind = rest != MP_FEED_ALL;
    pthread_mutex_unlock(&session->lock);
    if (rest == MP_FEED_MORE)
        mp_stream_on_drained(stream, on_drained, reader);
    if (mp_stream_send(stream, mp_buf_str(&events)) == 0 &&
        ends) /* on -1 the client has disconnected, and `reader` is freed */
        mp_reader_end(reader);
}

static void on_drained(void *ctx, MP_UNUSED mp_stream *stream)
{
    mp_reader *reader = ctx;
    mp_feed *feed = reader->feed;
    if (feed != NULL)
        catch_up(reader, feed, true);
}

bool mp_reader_resume(mp_rpc *rpc, mp_session *session, mp_stream *stream, mp_str last_event_id)
{
    mp_reader *reader = reader_new(rpc, session, stream);
    reader->is_behind = true;
    pthread_mutex_lock(&session->lock);
    mp_feed *feed = mp_feed_find(session, last_event_id, &reader->sent);
    if (feed != NULL)
        take_over(reader, feed);
    pthread_mutex_unlock(&session->lock);
    if (feed == NULL) {
        free(reader);
        return false;
    }
    activate_reader(reader);
    if (mp_stream_open_events(stream, NULL, 0) == 0)
        catch_up(reader, feed, false);
    else
        free_reader(reader);
    return true;
}

/* -- sending ------------------------------------------------------------------------------------------------ */

typedef struct {
    mp_rpc *rpc;
    mp_session *session;
    uint64_t serial;      /* serial of the reader */
    uint64_t number, seq; /* of the feed and the event: another reader of the feed may send it */
    bool is_kept, hangs_up, is_answer;
    bool is_overfull; /* a message did not fit: the reader's stream ends */
    size_t len;       /* bytes of the message, which limits.answers counts */
    char bytes[];
} event_message;

/* The answer to a call counts against the share of limits.answers that its stream has, any other event against
 * limits.stream_queue. */
static int send_to(mp_stream *stream, mp_str bytes, bool is_answer)
{
    return is_answer ? mp_stream_send_answer(stream, bytes) : mp_stream_send(stream, bytes);
}

static void send_here(mp_reader *reader, uint64_t seq, mp_str bytes, bool hangs_up, bool is_answer)
{
    if (seq > 0)
        reader->sent = seq;
    if (send_to(reader->stream, bytes, is_answer) == 0 &&
        hangs_up) /* on -1 the client has disconnected, and `reader` is freed */
        mp_reader_end(reader);
}

/* True if the message is for this reader, which is one of message->rpc. */
static bool is_for(const event_message *message, const mp_reader *reader)
{
    return message->is_overfull ? reader->serial == message->serial
                                : reader->number == message->number && !reader->is_replaced;
}

static size_t *posted_of(mp_reader *reader, bool is_answer)
{
    return is_answer ? &reader->posted_answers : &reader->posted_bytes;
}

/* Counts a message no more, because it has arrived, and returns the reader that it is for; NULL: there is none any
 * more. Only this thread ends the readers of message->rpc, so the result stays valid without the lock. */
static mp_reader *MP_NULLABLE take_message(const event_message *message)
{
    mp_session *session = message->session;
    mp_reader *found = NULL;
    mp_answers_give(message->len);
    MP_LOCKED(&session->lock);
    MP_EACH(mp_reader, reader, &session->readers, in_session) {
        if (reader->rpc != message->rpc)
            continue;
        if (reader->serial == message->serial)
            *posted_of(reader, message->is_answer) -= message->len;
        if (is_for(message, reader))
            found = reader;
    }
    return found;
}

static void deliver_event(void *content, mp_loop *MP_NULLABLE loop)
{
    const event_message *message = content;
    mp_reader *reader = take_message(message);
    if (loop == NULL || reader == NULL)
        mp_stat_add(&mp_stat_dropped_gone, message->len > 0 && !message->is_kept);
    else if (message->is_overfull)
        mp_stream_lose(reader->stream, true); /* frees the reader */
    else if (!reader->is_behind &&
             (message->seq == 0 ||
              message->seq > reader->sent)) /* otherwise the event log has sent the event already */
        send_here(reader, message->seq, (mp_str){message->bytes, message->len}, message->hangs_up, message->is_answer);
    mp_session_unref(message->session);
}

/* Counts bytes on their way to the reader, whose worker may be stuck. They must fit into limits.answers, and into the
 * room of its stream. The caller has the session's lock. */
static bool take_room(const mp_rpc *from, mp_reader *reader, size_t bytes, bool is_answer)
{
    size_t most = from->config->stream_queue, *posted = posted_of(reader, is_answer);
    size_t room = is_answer      ? mp_answers_before(from->config->answers, most)
                  : bytes < most ? most - bytes
                                 : most; /* one event may be larger than the limit for the others */
    if (*posted > room || !mp_answers_take(bytes, from->config->answers))
        return false;
    *posted += bytes;
    return true;
}

/* Posts `bytes` to the thread of the reader. The caller has the session's lock, so messages keep the order of their
 * events. False if they do not fit: then the reader's stream ends, as when its client does not read. */
static bool send_message(const mp_rpc *from, mp_reader *reader, uint64_t seq, mp_str bytes, bool is_kept,
                         const mp_parcel *parcel)
{
    bool fits = !reader->is_overfull && take_room(from, reader, bytes.len, parcel->is_answer);
    if (seq > 0)
        reader->posted = seq;
    if (!fits) {
        mp_stat_add(&mp_stat_dropped_slow, bytes.len > 0 && !is_kept);
        if (reader->is_overfull)
            return false;
        reader->is_overfull = true;
        bytes = MP_STR_NONE;
    }
    const event_message message = {.rpc = reader->rpc,
                                   .session = mp_session_ref(reader->session),
                                   .serial = reader->serial,
                                   .number = reader->number,
                                   .seq = seq,
                                   .is_kept = is_kept,
                                   .hangs_up = parcel->hangs_up,
                                   .is_answer = parcel->is_answer,
                                   .is_overfull = !fits,
                                   .len = bytes.len};
    mp_loop_send(reader->rpc->loop, deliver_event, &message, sizeof message, bytes);
    return fits;
}

bool mp_reader_send(mp_rpc *from, mp_session *session, const mp_parcel *parcel)
{
    mp_scoped_buf bytes = {0};
    uint64_t seq = 0;
    bool is_kept = false, has_event = parcel->json.len > 0;
    pthread_mutex_lock(&session->lock);
    mp_feed *feed = parcel->feed == NULL ? session->feed : parcel->feed;
    mp_reader *MP_NULLABLE current = *slot_of(session, feed);
    mp_reader *here = NULL;
    bool is_read = current != NULL;
    if (has_event && feed != NULL) {
        is_kept = mp_feed_put(feed, parcel->json);
        seq = feed->last;
        mp_put_event_id(&bytes, feed->number, seq);
    }
    if (has_event)
        mp_put_event(&bytes, parcel->json);
    else
        mp_buf_put(&bytes, parcel->bytes);
    if (parcel->is_last && feed != NULL)
        mp_feed_end(feed);
    if (current != NULL && !current->is_behind) { /* a reader that is behind finds the event in the log */
        if (current->rpc == from && current->posted <= current->sent && !current->is_overfull)
            here = current;
        else
            is_read = send_message(from, current, seq, mp_buf_str(&bytes), is_kept, parcel);
    }
    pthread_mutex_unlock(&session->lock);

    bool is_delivered = is_kept || is_read;
    if (here != NULL) {
        send_here(here, seq, mp_buf_str(&bytes), parcel->hangs_up, parcel->is_answer);
    } else if (current == NULL && mp_stream_is_open(parcel->own)) {
        bool sent = send_to(parcel->own, mp_buf_str(&bytes), parcel->is_answer) == 0;
        is_delivered |= sent;
        if (sent && parcel->hangs_up)
            mp_stream_end(parcel->own);
    } else if (has_event && !is_delivered && current == NULL) {
        mp_stat_add(&mp_stat_dropped_gone, 1);
    }
    return is_delivered;
}

static void send_on_session(mp_rpc *from, mp_session *MP_NULLABLE session, mp_str json, bool is_answer)
{
    if (session == NULL)
        mp_stat_add(&mp_stat_dropped_gone, 1);
    else
        mp_reader_send(from, session, &(mp_parcel){.own = from->no_stream, .json = json, .is_answer = is_answer});
}

void mp_reader_notify(mp_rpc *from, mp_session *MP_NULLABLE session, mp_str json)
{
    send_on_session(from, session, json, false);
}

void mp_reader_respond(mp_rpc *from, mp_session *MP_NULLABLE session, mp_str json)
{
    send_on_session(from, session, json, true);
}

/* -- the end ------------------------------------------------------------------------------------------------------ */

/* A live reader of a call's feed is left: its stream ends with the call's last message, which has been sent. */
static bool ends_with_session(const mp_reader *reader, MP_UNUSED uint64_t number)
{
    return reader->number == 0 || reader->is_behind || reader->is_replaced;
}

void mp_readers_end(mp_rpc *rpc, mp_session *session)
{
    mp_reader *reader;
    while ((reader = find_here(rpc, session, ends_with_session, 0)) != NULL)
        mp_reader_end(reader);
}

void mp_readers_drain(mp_rpc *rpc, bool all)
{
    MP_EACH(mp_reader, reader, &rpc->readers, link) {
        mp_session *session = reader->session;
        bool is_idle = reader->number == 0 && (!session->is_sse || atomic_load(&session->calls) == 0);
        bool was_idle = reader->was_idle;
        reader->was_idle = is_idle;
        if (!all && !(is_idle && was_idle))
            continue;
        if (session->is_sse)
            mp_session_close(session, &mp_stat_closed_shutdown); /* names the reason; otherwise free_reader counts a
                                                                    client that disconnected */
        mp_reader_end(reader);
    }
}
