/* events.c: writes queued event streams and large bodies piece by piece, sends heartbeats, and ends stalled readers. */
#include "http.h"

MP_GAUGE(streams_open, "streams_open", "", "", "event streams with a connected reader")
MP_COUNTER(dropped_slow, "dropped", "reason", "slow",
           "messages that did not fit the queue of a stalled reader: the first ends its stream, and other workers may "
           "send more until it has ended")
MP_COUNTER(dropped_answers, "dropped", "reason", "answers", "answers cut off because limits.answers was exceeded")

#define PIECES 32
#define PIECE_BYTES (128 * 1024) /* a reader must read this much within MP_STALL_MS */

/* a reader that read nothing for this time may be ended to free memory for others */
#define SLOW_MS 1000
#define SPARED_BYTES (64 * 1024) /* streams in which fewer bytes wait are ended only above nearly_full() */
#define MAX_VICTIMS 16           /* streams ended for one answer, at most */
/* Answers of the admin listener up to this size are counted whether they fit or not: /metrics with many series. The
 * listener has few connections, and operators ask while clients have filled limits.answers. */
#define PAGE_BYTES (1024 * 1024)

/* The account has the bytes that wait for their readers, of all streams and pipes of the process. Those of a pipe are
 * counted whether they fit or not, and are not given up.
 *   above limits.answers   no new call begins, and readers of many bytes that have read nothing for SLOW_MS are ended
 *   above nearly_full()    each answer ends the readers of its worker that have read nothing for the longest time, and
 *                          SLOW_MS ends those of few bytes, too
 *   above full()           nothing more is added: an answer or an event ends its own stream
 * The sum is compared before the bytes are added, since an answer may be as large as its own limits say: at most full()
 * and one answer. What a batch collects, and what is on its way to another worker's stream, fits below full(). */
static int64_t nearly_full(const mp_server *server)
{
    return (int64_t)(server->limits.answers + server->limits.answers / 4);
}

size_t mp_answers_before(size_t answers, size_t stream_queue)
{
    size_t share = answers / 16;
    return share > stream_queue ? share : stream_queue;
}

static int64_t full(size_t answers)
{
    return (int64_t)(answers + answers / 2);
}

bool mp_answers_take(size_t bytes, size_t limit)
{
    return mp_account_take(&mp_account_queue_bytes, (int64_t)bytes, full(limit));
}

void mp_answers_give(size_t bytes)
{
    mp_account_give(&mp_account_queue_bytes, (int64_t)bytes);
}

static mp_pace unqueued = MP_PACE_INIT; /* bytes that left the account */

static void uncount_bytes(mp_stream *stream, size_t bytes)
{
    size_t counted = bytes < stream->counted ? bytes : stream->counted;
    if (counted == 0)
        return;
    stream->counted -= counted;
    mp_account_give(&mp_account_queue_bytes, (int64_t)counted);
    mp_pace_count(&unqueued, counted);
}

/* Ends a stream to free its queue: the queue is freed in a later turn, since a write of it may be in progress. */
void mp_stream_end_for_room(mp_stream *stream)
{
    mp_stat_add(&mp_stat_dropped_answers, 1);
    uncount_bytes(stream, stream->counted);
    mp_stream_lose(stream, true);
}

/* Of the server's streams with more than `spared` bytes, that whose reader has read nothing for the longest time; NULL
 * if nothing is being written. */
static mp_stream *MP_NULLABLE find_slowest(const mp_server *server, const mp_stream *newest, size_t spared)
{
    mp_stream *slowest = NULL;
    for (const mp_link *link = mp_link_first(&server->conns); link != &server->conns; link = link->next) {
        const mp_conn *conn = mp_container(link, mp_conn, link);
        MP_EACH(mp_stream, stream, &conn->streams, link) {
            if (stream != newest && stream->is_writing && !stream->is_lost && stream->counted > spared &&
                (slowest == NULL || stream->wrote_at < slowest->wrote_at))
                slowest = stream;
        }
    }
    return slowest;
}

/* Ends streams until `more` bytes fit below nearly_full(); those of few bytes only while the others are above it. */
static void make_room(const mp_server *server, const mp_stream *newest, int64_t more)
{
    int64_t most = nearly_full(server), used;
    for (int i = 0; i < MAX_VICTIMS && (used = mp_account_used(&mp_account_queue_bytes)) + more > most; i++) {
        mp_stream *slowest = find_slowest(server, newest, SPARED_BYTES);
        if (slowest == NULL && used > most)
            slowest = find_slowest(server, newest, 0);
        if (slowest == NULL)
            return;
        mp_stream_end_for_room(slowest);
    }
}

bool mp_stream_is_crowded(const mp_stream *stream)
{
    const mp_server *server = stream->server;
    return server != NULL && mp_account_used(&mp_account_queue_bytes) > (int64_t)server->limits.answers;
}

unsigned mp_stream_room_s(const mp_stream *stream)
{
    const mp_server *server = stream->server;
    int64_t most = server == NULL ? INT64_MAX : (int64_t)server->limits.answers;
    int64_t over = mp_account_used(&mp_account_queue_bytes) - most;
    return mp_pace_refuse(&unqueued, mp_monotonic_us(), over > 0 ? (uint64_t)over : 0, 0);
}

bool mp_stream_count(const mp_live *live, size_t bytes)
{
    mp_stream *stream = live->stream;
    const mp_server *server = live->conn->server;
    int64_t more = (int64_t)bytes;
    bool is_page = bytes <= PAGE_BYTES && mp_listener_is_admin(live->conn->listener);
    make_room(server, stream, more);
    if (is_page)
        mp_account_add(&mp_account_queue_bytes, more);
    else if (!mp_account_take(&mp_account_queue_bytes, more, full(server->limits.answers) + more))
        return false;
    stream->counted += bytes;
    return true;
}

/* Queues a few bytes of the gateway's own, which are counted whether they fit or not. */
static void queue_own(mp_stream *stream, mp_str bytes)
{
    mp_queue_put(&stream->queue, bytes);
    stream->counted += bytes.len;
    mp_account_add(&mp_account_queue_bytes, (int64_t)bytes.len);
}

static void drop_queued(mp_stream *stream, size_t bytes)
{
    mp_queue_drop(&stream->queue, bytes);
    if (stream->answers > stream->queue.bytes)
        stream->answers = stream->queue.bytes;
    uncount_bytes(stream, bytes);
}

void mp_stream_forget_queue(mp_stream *stream)
{
    if (stream->queue.bytes > 0)
        mp_queue_drop(&stream->queue, stream->queue.bytes);
    uncount_bytes(stream, stream->counted);
    stream->flying = 0;
    stream->answers = 0;
}

/* Writes are collected until the end of the turn. */
void mp_stream_write_soon(mp_stream *stream)
{
    if (stream->live != NULL && !stream->is_writing && !stream->is_lost && mp_link_is_alone(&stream->dirty))
        mp_link_put(&stream->loop->dirty, &stream->dirty);
}

static void on_time(mp_timer *timer);

static uint64_t stall_ms_of(const mp_live *live)
{
    return MP_STALL_MS * (live->stream->is_passage ? 2 : 1);
}

/* Moves the timer only to an earlier time; if it fires too early it is started again. */
static void start_timer(const mp_live *live)
{
    mp_stream *stream = live->stream;
    mp_loop *loop = stream->loop;
    const mp_http_limits *limits = &live->conn->server->limits;
    uint64_t now = mp_loop_now(loop), at = stream->wrote_at;
    if (stream->is_writing)
        at = at + stall_ms_of(live) < now + SLOW_MS ? at + stall_ms_of(live) : now + SLOW_MS;
    else if (stream->state == MP_STREAM_EVENTS && !stream->is_passage)
        at += limits->heartbeat_ms - mp_loop_chance(loop, limits->heartbeat_ms / 10 + 1);
    else
        return;
    if (stream->timer.slot == 0 || at < stream->timer.at)
        mp_timer_start(loop, &stream->timer, at > now ? at - now : 0, on_time);
}

static void on_time(mp_timer *timer)
{
    mp_stream *stream = mp_container(timer, mp_stream, timer);
    const mp_live *live = stream->live;
    if (live == NULL || stream->state == MP_STREAM_GONE || stream->is_lost)
        return;
    const mp_http_limits *limits = &live->conn->server->limits;
    uint64_t quiet = mp_loop_now(stream->loop) - stream->wrote_at;
    if (stream->is_writing && quiet >= stall_ms_of(live)) {
        mp_stream_lose(stream, true);
        return;
    }
    size_t spared = mp_account_used(&mp_account_queue_bytes) > nearly_full(live->conn->server) ? 0 : SPARED_BYTES;
    if (stream->is_writing && quiet >= SLOW_MS && stream->counted > spared && mp_stream_is_crowded(stream)) {
        mp_stream_end_for_room(stream);
        return;
    }
    if (!stream->is_writing && stream->state == MP_STREAM_EVENTS && !stream->is_passage &&
        quiet >= limits->heartbeat_ms - limits->heartbeat_ms / 10) {
        queue_own(stream, MP_STR(":\n\n"));
        mp_stream_write_soon(stream);
        return; /* the write will start the timer */
    }
    start_timer(live);
}

void mp_stream_expect_progress(const mp_live *live)
{
    live->stream->wrote_at = mp_loop_now(live->stream->loop);
    start_timer(live);
}

static void flush_events(const mp_live *live)
{
    mp_stream *stream = live->stream;
    h2o_iovec_t pieces[PIECES];
    size_t count = mp_queue_peek(&stream->queue, pieces, PIECES, PIECE_BYTES, &stream->flying);
    bool is_last = stream->state == MP_STREAM_ENDED && stream->flying == stream->queue.bytes;
    if (count == 0 && !is_last) {
        start_timer(live);
        return;
    }
    stream->is_writing = true;
    mp_stream_expect_progress(live);
    if (is_last) {
        mp_stream_stop_watching(live);
        stream->is_finished = true;
    }
    /* The last send may dispose of the request, and so of the stream, immediately. */
    h2o_send(live->req, pieces, count, is_last ? H2O_SEND_STATE_FINAL : H2O_SEND_STATE_IN_PROGRESS);
}

/* Resets the stream (HTTP/2 only). */
static void reset_stream(const mp_live *live)
{
    mp_stream *stream = mp_stream_ref(live->stream);
    mp_http2 *h2 = live->conn->http2;
    if (h2 != NULL)
        mp_http2_reset(h2, live);
    if (stream->live != NULL)
        mp_stream_forget_queue(stream); /* libh2o has copied what it writes */
    mp_stream_unref(stream);
}

void mp_stream_flush_dirty(mp_loop *loop)
{
    mp_link *link;
    while ((link = mp_link_take(&loop->dirty)) != NULL) {
        mp_stream *stream = mp_container(link, mp_stream, dirty);
        const mp_live *live = stream->live;
        if (live == NULL)
            continue;
        if (stream->is_lost)
            reset_stream(live);
        else
            flush_events(live);
    }
}

static void call_drained(mp_stream *stream)
{
    void (*MP_NULLABLE drained)(void *, mp_stream *) = stream->drained;
    stream->drained = NULL;
    if (drained != NULL)
        drained(stream->drained_ctx, stream);
}

/* libh2o has written the pieces of the last send. */
void mp_stream_on_proceed(h2o_generator_t *generator, h2o_req_t *req)
{
    mp_stream *stream = mp_container(generator, mp_stream, generator);
    drop_queued(stream, stream->flying);
    stream->flying = 0;
    if (stream->queue.bytes == 0 && stream->state == MP_STREAM_EVENTS)
        /* before is_writing is cleared: what the callback sends is then written together with the rest */
        call_drained(stream);
    stream->is_writing = false;
    stream->wrote_at = mp_loop_now(stream->loop);
    const mp_live *live = stream->live;
    if (stream->is_lost) {
        return; /* mp_stream_flush_dirty resets it */
    } else if (stream->state == MP_STREAM_GONE) {
        stream->is_finished = true;
        h2o_send(req, NULL, 0, H2O_SEND_STATE_ERROR);
    } else if (live != NULL) {
        flush_events(live);
    }
}

/* Frees the input of the connection, on which no other request may follow. */
static void free_connection_input(const mp_live *live)
{
    static const h2o_iovec_t get = {H2O_STRLIT("GET")}, root = {H2O_STRLIT("/")}, none = {H2O_STRLIT("")};
    h2o_req_t *req = live->req;
    h2o_socket_t *socket = live->conn->socket;
    req->http1_is_persistent = 0;
    req->headers.size = 0;
    req->input.method = req->method = get;
    req->input.path = req->path = req->path_normalized = root;
    req->input.query_at = req->query_at = SIZE_MAX;
    req->input.authority = req->authority = none;
    req->upgrade = req->entity = h2o_iovec_init(NULL, 0);
    h2o_buffer_consume(&socket->input, socket->input->size);
    mp_body_budget_forget(live->conn);
}

/* Frees the request's 8 KB of input, or its body, for a stream that may stay open for hours. */
static void free_input(const mp_live *live)
{
    mp_http2 *h2 = live->conn->http2;
    if (h2 != NULL)
        mp_http2_free_body(h2, live);
    else
        free_connection_input(live);
    live->stream->head = &mp_no_request_head;
}

void mp_stream_forget_request(mp_stream *stream)
{
    const mp_live *live = stream->live;
    if (live != NULL && stream->state == MP_STREAM_EVENTS && stream->head->view.method.len > 0)
        free_input(live);
}

/* False if the connection has too many event streams. `can_wait`: see mp_http2_admit_events. */
static bool has_room_for_events(const mp_live *live, bool can_wait)
{
    mp_http2 *h2 = live->conn->http2;
    live->stream->is_admitted = h2 != NULL && mp_http2_admit_events(h2, can_wait);
    return h2 == NULL || live->stream->is_admitted;
}

/* As has_room_for_events; and then the request is refused. */
static bool admit_events(const mp_live *live)
{
    if (has_room_for_events(live, false))
        return true;
    mp_stream_answer(live->stream, 503, "text/plain; charset=utf-8",
                     MP_STR("too many event streams on this connection: open another one\n"),
                     &(mp_header){"retry-after", MP_STR("0")}, 1);
    return false;
}

static void begin_events(const mp_live *live, const mp_header *MP_NULLABLE headers, size_t count)
{
    mp_stream *stream = live->stream;
    h2o_req_t *req = live->req;
    bool is_get = mp_str_is(stream->head->view.method, "GET") && req->entity.base == NULL;
    if (req->version < 0x101)
        req->http1_is_persistent = 0; /* no chunked encoding: the end of the connection ends the stream */
    h2o_add_header(&req->pool, &req->res.headers, H2O_TOKEN_CACHE_CONTROL, NULL, H2O_STRLIT("no-cache, no-transform"));
    h2o_add_header_by_str(&req->pool, &req->res.headers, H2O_STRLIT("x-accel-buffering"), 0, NULL, H2O_STRLIT("no"));
    mp_stream_start(live, 200, SIZE_MAX, "text/event-stream", headers, count);
    if (is_get)
        free_input(live);
    stream->state = MP_STREAM_EVENTS;
    stream->is_events = true;
    mp_stat_add(&mp_stat_streams_open, 1);
    mp_stream_detect_close(stream);
    queue_own(stream, MP_STR(": ok\n\n")); /* an empty send would not write the head */
    mp_stream_write_soon(stream);
}

int mp_stream_open_events(mp_stream *stream, const mp_header *MP_NULLABLE headers, size_t count)
{
    const mp_live *live = stream->live;
    if (live == NULL || stream->state != MP_STREAM_ASKED)
        return -1;
    if (mp_str_is(stream->head->view.method, "HEAD")) {
        mp_stream_answer(stream, 200, "text/event-stream", MP_STR(""), headers, count);
        return -1;
    }
    if (!admit_events(live))
        return -1;
    begin_events(live, headers, count);
    return 0;
}

void mp_stream_keep_alive(mp_stream *stream)
{
    const mp_live *live = stream->live;
    if (live != NULL && stream->state == MP_STREAM_ASKED && has_room_for_events(live, true))
        begin_events(live, NULL, 0);
}

int mp_stream_open_passage(mp_stream *stream, int status, size_t length, const mp_header *MP_NULLABLE headers,
                           size_t count)
{
    const mp_live *live = stream->live;
    if (live == NULL || stream->state != MP_STREAM_ASKED)
        return -1;
    if (length == SIZE_MAX && !admit_events(live))
        return -1;
    if (length == SIZE_MAX && live->req->version < 0x101)
        live->req->http1_is_persistent = 0; /* no chunked encoding: the end of the connection ends the answer */
    mp_stream_start(live, status, length, NULL, headers, count);
    stream->state = MP_STREAM_EVENTS;
    stream->is_passage = true;
    stream->is_events = length == SIZE_MAX;
    mp_stream_detect_close(stream);
    return 0;
}

static int send_bytes(mp_stream *stream, mp_str bytes, bool is_answer)
{
    const mp_live *live = stream->live;
    if (live == NULL || stream->state != MP_STREAM_EVENTS)
        return -1;
    if (bytes.len == 0)
        return 0;
    size_t most = live->conn->server->limits.stream_queue;
    size_t room =
        bytes.len < most ? most - bytes.len : most; /* one event may be larger than the limit for the others */
    bool is_overfull = is_answer ? stream->answers > mp_answers_before(live->conn->server->limits.answers, most)
                                 : !stream->is_passage && stream->queue.bytes - stream->answers > room;
    if (is_overfull) {
        mp_stat_add(&mp_stat_dropped_slow, 1);
        mp_stream_lose(stream, true);
        return -1;
    }
    if (!mp_stream_count(live, bytes.len)) {
        mp_stream_end_for_room(stream);
        return -1;
    }
    mp_queue_put(&stream->queue, bytes);
    stream->answers += is_answer ? bytes.len : 0;
    mp_stream_write_soon(stream);
    return 0;
}

int mp_stream_send(mp_stream *stream, mp_str bytes)
{
    return send_bytes(stream, bytes, false);
}

int mp_stream_send_answer(mp_stream *stream, mp_str bytes)
{
    return send_bytes(stream, bytes, true);
}

size_t mp_stream_room(const mp_stream *stream)
{
    const mp_live *live = stream->live;
    if (live == NULL || stream->state != MP_STREAM_EVENTS)
        return 0;
    size_t most = live->conn->server->limits.stream_queue;
    return stream->queue.bytes < most ? most - stream->queue.bytes : 0;
}

size_t mp_stream_queued(const mp_stream *stream)
{
    return stream->queue.bytes;
}

void mp_stream_on_drained(mp_stream *stream, void (*MP_NULLABLE drained)(void *ctx, mp_stream *stream),
                          void *MP_NULLABLE ctx)
{
    stream->drained = drained;
    stream->drained_ctx = ctx;
}
