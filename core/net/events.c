/* events.c: event streams, and large bodies: what is queued, written piece by piece; heartbeats; readers that stall. */
#include "http.h"

#define PIECES 32
#define PIECE_BYTES (128 * 1024) /* a reader must take so much within `stall_ms` */

void mp_stream_queue(mp_stream *stream, mp_str bytes)
{
    mp_queue_put(&stream->queue, bytes);
    mp_stat_add(MP_STAT_QUEUE_BYTES, (int64_t)bytes.len);
}

static void drop_queued(mp_stream *stream, size_t bytes)
{
    mp_queue_drop(&stream->queue, bytes);
    mp_stat_add(MP_STAT_QUEUE_BYTES, -(int64_t)bytes);
}

void mp_stream_forget_queue(mp_stream *stream)
{
    if (stream->queue.bytes > 0)
        drop_queued(stream, stream->queue.bytes);
    stream->flying = 0;
}

/* Writes are gathered until the end of the turn. */
void mp_stream_write_soon(mp_stream *stream)
{
    if (stream->req != NULL && !stream->is_writing && mp_link_is_alone(&stream->dirty))
        mp_link_put(&stream->server->loop->dirty, &stream->dirty);
}

static void on_time(mp_timer *timer);

/* The timer is moved only to be earlier; when it fires too early it is set again. */
static void arm(mp_stream *stream)
{
    mp_loop *loop = stream->server->loop;
    const mp_http_limits *limits = &stream->server->limits;
    uint64_t now = mp_loop_now(loop), after;
    if (stream->is_writing)
        after = limits->stall_ms;
    else if (stream->state == MP_STREAM_EVENTS)
        after = limits->heartbeat_ms - mp_loop_chance(loop, limits->heartbeat_ms / 10 + 1);
    else
        return;
    uint64_t at = stream->wrote_at + after;
    if (stream->timer.slot == 0 || at < stream->timer.at)
        mp_timer_start(loop, &stream->timer, at > now ? at - now : 0, on_time);
}

static void on_time(mp_timer *timer)
{
    mp_stream *stream = mp_container(timer, mp_stream, timer);
    if (stream->state == MP_STREAM_GONE)
        return;
    const mp_http_limits *limits = &stream->server->limits;
    uint64_t quiet = mp_loop_now(stream->server->loop) - stream->wrote_at;
    if (stream->is_writing && quiet >= limits->stall_ms) {
        mp_stream_lose(stream, true);
        return;
    }
    if (!stream->is_writing && stream->state == MP_STREAM_EVENTS &&
        quiet >= limits->heartbeat_ms - limits->heartbeat_ms / 10) {
        mp_stream_queue(stream, MP_STR(":\n\n"));
        mp_stream_write_soon(stream);
        return; /* the write arms the timer */
    }
    arm(stream);
}

static void flush(mp_stream *stream)
{
    h2o_iovec_t pieces[PIECES];
    size_t count = mp_queue_peek(&stream->queue, pieces, PIECES, PIECE_BYTES, &stream->flying);
    bool is_last = stream->state == MP_STREAM_ENDED && stream->flying == stream->queue.bytes;
    if (count == 0 && !is_last) {
        arm(stream);
        return;
    }
    stream->is_writing = true;
    stream->wrote_at = mp_loop_now(stream->server->loop);
    arm(stream);
    if (is_last) {
        mp_stream_stop_watching(stream);
        stream->is_finished = true;
    }
    /* The last one may dispose of the request, and so of the stream, at once. */
    h2o_send(stream->req, pieces, count, is_last ? H2O_SEND_STATE_FINAL : H2O_SEND_STATE_IN_PROGRESS);
}

void mp_stream_flush_dirty(mp_loop *loop)
{
    mp_link *link;
    while ((link = mp_link_take(&loop->dirty)) != NULL)
        flush(mp_container(link, mp_stream, dirty));
}

static void tell_drained(mp_stream *stream)
{
    void (*drained)(void *, mp_stream *) = stream->drained;
    stream->drained = NULL;
    if (drained != NULL)
        drained(stream->drained_ctx, stream);
}

/* libh2o has written what it was given. */
void mp_stream_on_proceed(h2o_generator_t *generator, h2o_req_t *req)
{
    (void)req;
    mp_stream *stream = mp_container(generator, mp_stream, generator);
    drop_queued(stream, stream->flying);
    stream->flying = 0;
    if (stream->queue.bytes == 0 && stream->state == MP_STREAM_EVENTS)
        tell_drained(stream); /* while is_writing keeps what it sends from being written apart */
    stream->is_writing = false;
    stream->wrote_at = mp_loop_now(stream->server->loop);
    if (stream->state == MP_STREAM_GONE) {
        stream->is_finished = true;
        h2o_send(stream->req, NULL, 0, H2O_SEND_STATE_ERROR);
    } else {
        flush(stream);
    }
}

/* Takes the request's 8 KB of input back from a stream that may be open for hours. libh2o would look for it again
 * before a next request on the connection: there must not be one. */
static void shrink(mp_stream *stream)
{
    static const h2o_iovec_t get = {H2O_STRLIT("GET")}, root = {H2O_STRLIT("/")}, none = {H2O_STRLIT("")};
    h2o_req_t *req = stream->req;
    req->http1_is_persistent = 0;
    req->headers.size = 0;
    req->input.method = req->method = get;
    req->input.path = req->path = req->path_normalized = root;
    req->input.query_at = req->query_at = SIZE_MAX;
    req->input.authority = req->authority = none;
    req->upgrade = h2o_iovec_init(NULL, 0);
    h2o_buffer_consume(&stream->conn->socket->input, stream->conn->socket->input->size);
    stream->view = (mp_request){0};
}

int mp_stream_open_events(mp_stream *stream, const mp_header *headers, size_t count)
{
    if (stream->state != MP_STREAM_ASKED)
        return -1;
    if (mp_str_is(stream->view.method, "HEAD")) {
        mp_stream_answer(stream, 200, "text/event-stream", MP_STR(""), headers, count);
        return -1;
    }
    h2o_req_t *req = stream->req;
    bool is_get = mp_str_is(stream->view.method, "GET") && req->entity.base == NULL;
    if (req->version < 0x101)
        req->http1_is_persistent = 0; /* no chunks: only the end of the connection ends the stream */
    h2o_add_header(&req->pool, &req->res.headers, H2O_TOKEN_CACHE_CONTROL, NULL, H2O_STRLIT("no-cache, no-transform"));
    h2o_add_header_by_str(&req->pool, &req->res.headers, H2O_STRLIT("x-accel-buffering"), 0, NULL, H2O_STRLIT("no"));
    mp_stream_start(stream, 200, SIZE_MAX, "text/event-stream", headers, count);
    if (is_get)
        shrink(stream);
    stream->state = MP_STREAM_EVENTS;
    stream->is_events = true;
    mp_stat_add(MP_STAT_STREAMS_OPEN, 1);
    mp_stream_watch(stream);
    mp_stream_queue(stream, MP_STR(": ok\n\n")); /* an empty send would keep the head back */
    mp_stream_write_soon(stream);
    return 0;
}

int mp_stream_send(mp_stream *stream, mp_str bytes)
{
    if (stream->state != MP_STREAM_EVENTS)
        return -1;
    if (bytes.len == 0)
        return 0;
    if (bytes.len > stream->server->limits.stream_queue ||
        stream->queue.bytes > stream->server->limits.stream_queue - bytes.len) {
        mp_stat_add(MP_STAT_DROPPED_SLOW, 1);
        mp_stream_lose(stream, true);
        return -1;
    }
    mp_stream_queue(stream, bytes);
    mp_stream_write_soon(stream);
    return 0;
}

size_t mp_stream_room(const mp_stream *stream)
{
    size_t most = stream->server->limits.stream_queue;
    return stream->queue.bytes < most ? most - stream->queue.bytes : 0;
}

void mp_stream_on_drained(mp_stream *stream, void (*drained)(void *ctx, mp_stream *stream), void *ctx)
{
    stream->drained = drained;
    stream->drained_ctx = ctx;
}
