/* http2.c: one HTTP/2 connection: how it begins, counts what its requests hold, keeps time, resets streams, ends. */
#include "http2.h"

MP_GAUGE(http2_connections, "http2_connections", "", "", "open client connections that use HTTP/2")

enum {
    MAX_EVENTS = 50,      /* event streams of one connection: libh2o allows 100 streams, and calls need some */
    STREAM_BYTES = 8192,  /* memory of a request and of a short answer, without headers and body */
    FIELD_BYTES = 256,    /* memory of a header, without the bytes of its name and value */
    SMALL_BYTES = 32768,  /* memory of one small request, which is refused later than others */
    NEW_STREAMS = 4,      /* requests are counted again when their number has grown by this */
    MAX_UNREAD = 16,      /* answers that the socket does not take, while there is no room for requests */
    BODIES_PER_CONN = 4,  /* the bodies of one connection have at most this number of times limits.body */
    GOAWAY_MS = 1000,     /* ms from the first GOAWAY to the last, while streams are open */
    COUNT_BYTES = 4096,   /* requests are counted again when this number of bytes has arrived */
    STOP_BYTES = 8 << 20, /* half of a stream's window */
    NO_ERROR = 0,
    INTERNAL_ERROR = 2,
    REFUSED_STREAM = 7,
    CANCEL = 8,
};

mp_http2 *MP_NULLABLE mp_http2_of(const h2o_http2_conn_t *h2o)
{
    return ((mp_conn *)h2o->sock->on_close.data)->http2;
}

static uint64_t now_of(const mp_http2 *h2)
{
    return mp_loop_now(h2->conn->server->loop);
}

static size_t stream_count(const h2o_http2_conn_t *h2o)
{
    return kh_size(h2o->streams);
}

/* -- time limits --------------------------------------------------------------------------------------------------- */

static void on_time(mp_timer *timer);

/* A deadline is limits.request_time after its beginning, and the timer of a started timer is not later. */
static void expect_end(mp_http2 *h2)
{
    mp_server *server = h2->conn->server;
    if (h2->timer.slot == 0)
        mp_timer_start(server->loop, &h2->timer, server->limits.request_ms, on_time);
}

/* Sends GOAWAY. libh2o closes the connection when the frame is written. No stream may be open. */
static void say_goodbye(h2o_http2_conn_t *h2o)
{
    if (h2o->state != H2O_HTTP2_CONN_STATE_OPEN)
        return;
    h2o_http2_encode_goaway_frame(&h2o->_write.buf, h2o->pull_stream_ids.max_open, NO_ERROR, h2o_iovec_init(NULL, 0));
    h2o_http2_conn_request_write(h2o);
    h2o->state = H2O_HTTP2_CONN_STATE_HALF_CLOSED;
}

static void cut_connection(mp_http2 *h2)
{
    shutdown(h2o_socket_get_fd(h2->conn->socket), SHUT_RDWR); /* libh2o reads the end of the file and closes */
}

/* The time at which the reception of a request began, as guard.c stored it. */
static uint64_t began_at(const h2o_http2_stream_t *stream)
{
    return (uint64_t)stream->req.timestamps.request_begin_at.tv_sec * 1000 +
           (uint64_t)stream->req.timestamps.request_begin_at.tv_usec / 1000;
}

/* Answers requests whose bodies take too long. Returns the beginning of the oldest that is still received. */
static uint64_t end_late_requests(mp_http2 *h2, h2o_http2_conn_t *h2o)
{
    static const mp_early_refusal late = {MP_CAUSE_TIME, 408,
                                          MP_STR("the request took longer than limits.request_time\n")};
    uint64_t now = now_of(h2), oldest = UINT64_MAX;
    h2o_http2_stream_t *stream;
    MP_HTTP2_EACH(h2o, stream)
    {
        if (stream->state != H2O_HTTP2_STREAM_STATE_RECV_BODY)
            continue;
        uint64_t began = began_at(stream);
        if (now - began >= h2->conn->server->limits.request_ms)
            mp_http2_answer_early(h2, stream, &late);
        else if (began < oldest)
            oldest = began;
    }
    return oldest;
}

static uint64_t earlier(uint64_t oldest, uint64_t since)
{
    return since != 0 && since < oldest ? since : oldest;
}

static void on_time(mp_timer *timer)
{
    mp_http2 *h2 = mp_container(timer, mp_http2, timer);
    mp_server *server = h2->conn->server;
    uint64_t now = now_of(h2), most = server->limits.request_ms;
    h2o_http2_conn_t *h2o = h2->h2o;
    if (h2o == NULL || h2o->state != H2O_HTTP2_CONN_STATE_OPEN) {
        cut_connection(h2); /* the last bytes were not taken in time */
        return;
    }
    if (h2->partial_since != 0 && now - h2->partial_since >= most) {
        mp_http2_count_refusal(h2, &mp_stat_http2_refused_time, "a frame took longer than limits.request_time");
        cut_connection(h2);
        return;
    }
    uint64_t oldest = earlier(earlier(end_late_requests(h2, h2o), h2->partial_since), h2->quiet_since);
    if (h2->quiet_since != 0 && now - h2->quiet_since >= most) {
        say_goodbye(h2o);
        oldest = now;
    }
    if (oldest != UINT64_MAX)
        mp_timer_start(server->loop, timer, oldest + most - now, on_time);
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

/* The answer to requests for which limits.bodies has no room. */
static const mp_early_refusal crowded = {MP_CAUSE_BODIES, 503,
                                         MP_STR("too many request bodies at once: try again in a few seconds\n")};

/* The record of a request that was answered before its last frame; NULL: it was not, or is too old. */
static mp_http2_early *MP_NULLABLE find_early(const mp_http2 *h2, uint32_t id)
{
    mp_http2_early *early = h2->early;
    size_t count = h2->early_count < MP_HTTP2_EARLY ? h2->early_count : MP_HTTP2_EARLY;
    for (size_t i = 0; early != NULL && i < count; i++)
        if (early[i].id == id)
            return &early[i];
    return NULL;
}

bool mp_http2_was_answered_early(const mp_http2 *h2, uint32_t id)
{
    return find_early(h2, id) != NULL;
}

void mp_http2_count_swallowed(mp_http2 *h2, h2o_http2_conn_t *h2o, uint32_t id, size_t bytes)
{
    mp_http2_early *early = find_early(h2, id);
    if (early == NULL)
        return;
    size_t before = early->swallowed;
    early->swallowed += bytes;
    /* Some clients take a reset for a failure if it comes together with the answer. */
    if (before < STOP_BYTES && before + bytes >= STOP_BYTES && h2o_http2_conn_get_stream(h2o, id) == NULL) {
        h2o_http2__encode_rst_stream_frame(&h2o->_write.buf, id, NO_ERROR);
        h2o_http2_conn_request_write(h2o);
    }
}

/* Further frames of the body are swallowed. After STOP_BYTES of them the client gets RST_STREAM, unless it has got it
 * already: then `swallowed` begins there. */
static void remember_early(mp_http2 *h2, uint32_t id, size_t swallowed)
{
    mp_http2_early *early = h2->early;
    if (early == NULL)
        h2->early = early = mp_new(MP_HTTP2_EARLY * sizeof *early);
    early[h2->early_count++ % MP_HTTP2_EARLY] = (mp_http2_early){.id = id, .swallowed = swallowed};
}

static void reset_stream(h2o_http2_stream_t *stream, int error)
{
    h2o_http2_conn_t *h2o = mp_http2_conn_of(&stream->req);
    h2o_http2__encode_rst_stream_frame(&h2o->_write.buf, stream->stream_id, error);
    h2o_http2_conn_request_write(h2o);
    h2o_http2_stream_reset(h2o, stream);
}

void mp_http2_refuse_stream(mp_http2 *h2, h2o_http2_stream_t *stream)
{
    mp_stat_add(&mp_stat_refused_bodies, 1);
    mp_refused(MP_CAUSE_BODIES, MP_STR("limits.bodies has no room for more of this address"),
               mp_log_str("address", mp_conn_peer(h2->conn)));
    remember_early(h2, stream->stream_id, STOP_BYTES);
    reset_stream(stream, REFUSED_STREAM);
}

void mp_http2_answer_early(mp_http2 *h2, h2o_http2_stream_t *stream, const mp_early_refusal *refusal)
{
    h2o_http2_conn_t *h2o = mp_http2_conn_of(&stream->req);
    remember_early(h2, stream->stream_id, 0);
    h2o_buffer_consume(&stream->_req_body, stream->_req_body->size);
    h2->refusal = refusal;
    h2o_http2_stream_set_state(h2o, stream, H2O_HTTP2_STREAM_STATE_REQ_PENDING);
    h2o_http2_stream_set_state(h2o, stream, H2O_HTTP2_STREAM_STATE_SEND_HEADERS);
    h2o_process_request(&stream->req);
    h2->refusal = NULL;
}

/* -- bytes --------------------------------------------------------------------------------------------------------- */

/* The memory of a request's head is kept where libh2o keeps the client's priority of the stream for its log, which is
 * not used. */
#define head_bytes(stream) ((stream)->received_priority.dependency)

void mp_http2_weigh_head(const mp_http2 *h2, h2o_req_t *req)
{
    size_t bytes = req->input.method.len + req->input.path.len + req->input.authority.len;
    for (size_t i = 0; i < req->headers.size; i++)
        bytes += req->headers.entries[i].name->len + req->headers.entries[i].value.len;
    if (bytes < 2 * h2->block_bytes)
        bytes = 2 * h2->block_bytes; /* to compress a block, libh2o allocates twice its size */
    head_bytes(mp_http2_stream_of(req)) = (uint32_t)(bytes + FIELD_BYTES * req->headers.size);
}

static size_t bytes_of(const h2o_http2_stream_t *stream)
{
    return STREAM_BYTES + head_bytes(stream) + mp_body_budget_held(stream->_req_body);
}

/* The memory of all requests of the connection. An event stream counts with its body alone, if it still has one: it may
 * stay open for hours. */
static size_t count_bytes(const mp_http2 *h2, const h2o_http2_conn_t *h2o)
{
    h2o_http2_stream_t *stream;
    size_t bytes = mp_body_budget_held(h2o->_headers_unparsed) + mp_tls_partial(h2->conn);
    if (h2->conn->socket->input->size > 0)
        bytes += mp_body_budget_held(h2->conn->socket->input);
    MP_HTTP2_EACH(h2o, stream)
    bytes += bytes_of(stream);
    MP_EACH(const mp_stream, own, &h2->conn->streams, link) {
        const mp_live *live = own->live;
        if (live != NULL && own->state == MP_STREAM_EVENTS) {
            stream = mp_http2_stream_of(live->req);
            bytes -= bytes_of(stream) - mp_body_budget_held(stream->_req_body);
        }
    }
    return bytes;
}

static void set_bytes(const mp_http2 *h2, const h2o_http2_conn_t *h2o)
{
    mp_body_budget_set(h2->conn, count_bytes(h2, h2o), false);
}

void mp_http2_free_body(mp_http2 *h2, const mp_live *live)
{
    h2o_http2_stream_t *own = mp_http2_stream_of(live->req);
    live->req->entity = h2o_iovec_init(NULL, 0);
    if (own->_req_body != NULL && own->_req_body->size > 0)
        h2o_buffer_consume(&own->_req_body, own->_req_body->size);
    if (live->conn->body_bytes > 0)
        set_bytes(h2, mp_http2_conn_of(live->req));
}

const mp_early_refusal *MP_NULLABLE mp_http2_refusal_of(mp_http2 *h2, const mp_live *live)
{
    const h2o_http2_stream_t *own = mp_http2_stream_of(live->req);
    const h2o_http2_conn_t *h2o = mp_http2_conn_of(live->req);
    bool is_small = own->_req_body == NULL || own->_req_body->size <= MP_INTAKE_FREE;
    if (h2->refusal != NULL)
        return h2->refusal;
    if (!is_small || stream_count(h2o) >= h2->counted_streams + NEW_STREAMS)
        set_bytes(h2, h2o); /* one read may bring many requests */
    if (mp_body_budget_has_room(h2->conn, is_small))
        return NULL;
    mp_stat_add(&mp_stat_refused_bodies, 1);
    mp_http2_free_body(h2, live);
    return &crowded;
}

/* The newest request that is still arriving, of those that hold a body or of all; NULL if there is none. */
static h2o_http2_stream_t *MP_NULLABLE newest_arriving(const h2o_http2_conn_t *h2o, bool has_body)
{
    h2o_http2_stream_t *stream, *newest = NULL;
    MP_HTTP2_EACH(h2o, stream)
    if (stream->state == H2O_HTTP2_STREAM_STATE_RECV_BODY && (!has_body || stream->_req_body->size > 0) &&
        (newest == NULL || stream->stream_id > newest->stream_id))
        newest = stream;
    return newest;
}

bool mp_http2_refuse_parts(mp_http2 *h2)
{
    static const mp_early_refusal stopping = {MP_CAUSE_STOPPING, 503, MP_STR("the gateway is stopping\n")};
    const h2o_http2_conn_t *h2o = h2->h2o;
    h2o_http2_stream_t *stream = NULL;
    bool had_some = false;
    while (h2o != NULL && h2o->state == H2O_HTTP2_CONN_STATE_OPEN && (stream = newest_arriving(h2o, false)) != NULL) {
        mp_http2_answer_early(h2, stream, &stopping);
        had_some = true;
    }
    return had_some;
}

/* An answer that is complete and waits for its stream's window; NULL if there is none. */
static h2o_http2_stream_t *MP_NULLABLE find_unread(const h2o_http2_conn_t *h2o)
{
    h2o_http2_stream_t *stream;
    MP_HTTP2_EACH(h2o, stream)
    if (stream->state == H2O_HTTP2_STREAM_STATE_SEND_BODY_IS_FINAL && stream->output_window._avail <= 0 &&
        !h2o_linklist_is_linked(&stream->_refs.link))
        return stream;
    return NULL;
}

/* The number of answers that wait for the socket. */
static size_t count_unread(const h2o_http2_conn_t *h2o)
{
    h2o_http2_stream_t *stream;
    size_t count = 0;
    MP_HTTP2_EACH(h2o, stream)
    count += stream->state == H2O_HTTP2_STREAM_STATE_END_STREAM;
    return count;
}

/* Ends one of the connection's requests: the newest with a body; or the newest that is arriving; or one whose answer is
 * not read. False if there is none. */
static bool shed_request(mp_http2 *h2, const h2o_http2_conn_t *h2o)
{
    h2o_http2_stream_t *stream = newest_arriving(h2o, true);
    if (stream == NULL)
        stream = newest_arriving(h2o, false);
    if (stream != NULL) {
        mp_http2_answer_early(h2, stream, &crowded);
    } else if ((stream = find_unread(h2o)) != NULL) {
        reset_stream(stream, CANCEL);
    } else {
        return false;
    }
    mp_stat_add(&mp_stat_refused_bodies, 1);
    return true;
}

/* Counts the memory of the connection's requests in limits.bodies. Sheds requests while the sum of all connections is
 * above it, or this connection is above its share. It is the sum that is compared, however little this connection has
 * received: a comparison of what it has received with what it had would let the sum creep up. */
static void count_requests(mp_http2 *h2, const h2o_http2_conn_t *h2o)
{
    size_t most = BODIES_PER_CONN * h2->conn->server->limits.body + SMALL_BYTES;
    bool is_over;
    h2->taken = 0;
    h2->counted_streams = stream_count(h2o);
    do {
        size_t bytes = count_bytes(h2, h2o);
        is_over = mp_body_budget_set(h2->conn, bytes, bytes <= SMALL_BYTES) || bytes > most;
    } while (is_over && shed_request(h2, h2o));
    if (is_over && count_unread(h2o) > MAX_UNREAD) {
        mp_http2_count_refusal(h2, &mp_stat_http2_refused_streams, "too many answers are not read");
        cut_connection(h2);
    }
}

static bool has_grown(const mp_http2 *h2, const h2o_http2_conn_t *h2o)
{
    size_t streams = stream_count(h2o);
    return h2->taken >= COUNT_BYTES || streams >= h2->counted_streams + NEW_STREAMS ||
           (h2->conn->body_bytes > 0 && streams != h2->counted_streams) ||
           (h2->conn->body_bytes == 0 && h2->conn->socket->input->size > MP_INTAKE_FREE);
}

/* -- streams ------------------------------------------------------------------------------------------------------- */

bool mp_http2_admit_events(mp_http2 *h2, bool can_wait)
{
    if (h2->events >= (can_wait ? MAX_EVENTS / 2 : MAX_EVENTS))
        return false;
    h2->events++;
    return true;
}

void mp_http2_forget(mp_http2 *h2, const mp_live *live)
{
    const mp_stream *stream = live->stream;
    const h2o_http2_conn_t *h2o = mp_http2_conn_of(live->req);
    if (stream->is_admitted)
        h2->events--;
    if (stream->state == MP_STREAM_ENDED && !stream->is_lost)
        mp_http2_earn(h2);
    if (h2->conn->body_bytes > 0)
        set_bytes(h2, h2o);
    if (stream_count(h2o) == 0) {
        h2->quiet_since = now_of(h2);
        expect_end(h2);
    }
}

void mp_http2_note_reset(mp_http2 *h2, uint32_t id)
{
    MP_EACH(mp_stream, stream, &h2->conn->streams, link) {
        const mp_live *live = stream->live;
        if (live != NULL && mp_http2_stream_of(live->req)->stream_id == id)
            stream->was_reset = true;
    }
    mp_delivery_reset_stream(h2->conn, id);
}

static void on_stalled(mp_timer *timer)
{
    mp_http2 *h2 = mp_container(timer, mp_http2, stalled);
    if (h2->h2o == NULL || (h2o_socket_is_writing(h2->conn->socket) && h2->conn->socket->bytes_written == h2->written))
        cut_connection(h2);
}

/* A stream was slow: because of its window, or because the socket takes nothing, which ends the connection. */
static void expect_write(mp_http2 *h2)
{
    mp_server *server = h2->conn->server;
    if (!h2o_socket_is_writing(h2->conn->socket) || h2->stalled.slot != 0)
        return;
    h2->written = h2->conn->socket->bytes_written;
    mp_timer_start(server->loop, &h2->stalled, MP_STALL_MS, on_stalled);
}

void mp_http2_reset(mp_http2 *h2, const mp_live *live)
{
    const mp_stream *stream = live->stream;
    h2o_http2_stream_t *own = mp_http2_stream_of(live->req);
    if (own->state != H2O_HTTP2_STREAM_STATE_END_STREAM)
        reset_stream(own, stream->was_slow ? CANCEL : INTERNAL_ERROR);
    if (stream->was_slow)
        expect_write(h2);
}

/* -- the connection ------------------------------------------------------------------------------------------------ */

/* Replaces libh2o's function of this name: libh2o calls it once for each connection, when it frees the connection. */
void h2o_http2_scheduler_dispose(h2o_http2_scheduler_node_t *root)
{
    mp_http2 *h2 = mp_http2_of(mp_container(root, h2o_http2_conn_t, scheduler));
    free(root->_queue);
    root->_queue = NULL;
    if (h2 == NULL)
        return;
    mp_fdwatch_stop(h2->conn->server->loop, &h2->peer);
    h2->h2o = NULL;
    if (h2->is_freed != NULL)
        *h2->is_freed = true;
    h2->is_freed = NULL;
}

/* Called after a read: starts or ends the time limits, and counts. */
static void settle_frames(mp_http2 *h2, const h2o_http2_conn_t *h2o)
{
    if (h2o->state == H2O_HTTP2_CONN_STATE_IS_CLOSING) {
        expect_end(h2);
        return;
    }
    bool is_partial = h2->conn->socket->input->size > 0 || h2->is_block_open || !h2->has_settings;
    if (!is_partial)
        h2->partial_since = 0;
    else if (h2->partial_since == 0)
        h2->partial_since = now_of(h2);
    if (stream_count(h2o) > 0)
        h2->quiet_since = 0;
    else if (h2->quiet_since == 0)
        h2->quiet_since = now_of(h2);
    if (has_grown(h2, h2o))
        count_requests(h2, h2o);
    expect_end(h2);
}

void mp_http2_read(mp_http2 *h2, const char *MP_NULLABLE error)
{
    mp_conn *conn = h2->conn;
    const mp_tls_conn *tls = conn->tls;
    h2o_socket_t *socket = conn->socket;
    const h2o_http2_conn_t *h2o = h2->h2o;
    bool is_freed = h2o == NULL;
    if (h2o != NULL && error != NULL) {
        cut_connection(h2); /* without this, a write that the client does not take would keep its streams alive */
    } else if (h2o != NULL && h2o->state == H2O_HTTP2_CONN_STATE_IS_CLOSING) {
        h2o_buffer_consume(&socket->input, socket->input->size); /* libh2o would collect it */
        return;
    }
    h2->is_freed = &is_freed;
    conn->read(socket, error);
    if (h2o == NULL || is_freed)
        return;
    h2->is_freed = NULL;
    if (error != NULL)
        return;
    mp_body_budget_shrink(&socket->input); /* one read may bring many frames and half of the next one */
    settle_frames(h2, h2o);
    if (tls != NULL && mp_tls_is_ended(tls))
        cut_connection(h2);
}

static void on_left(mp_fdwatch *watch, uint32_t events)
{
    mp_http2 *h2 = mp_container(watch, mp_http2, peer);
    mp_delivery_end_input(h2->conn, (events & (EPOLLHUP | EPOLLERR)) == 0);
    cut_connection(h2);
}

/* libh2o reads at once if the socket's buffer has bytes: it gets an empty buffer until the guard is in place. */
void mp_http2_accept(mp_conn *conn)
{
    mp_server *server = conn->server;
    h2o_socket_t *socket = conn->socket;
    mp_http2 *h2 = mp_new(sizeof *h2);
    conn->http2 = h2;
    h2->conn = conn;
    mp_stat_add(&mp_stat_http2_connections, 1);
    conn->reads_requests = true;
    h2o_buffer_t *received = socket->input;
    h2o_buffer_init(&socket->input, &h2o_socket_buffer_prototype);
    h2o_http2_accept(&server->accept, socket, *h2o_get_timestamp(server->accept.ctx, NULL, NULL));
    h2o_http2_conn_t *h2o = socket->data;
    h2->h2o = h2o;
    mp_http2_install_guard(h2, h2o);
    socket->input = received;
    h2->partial_since = h2->quiet_since = now_of(h2);
    /* libh2o stops reading while more than 512 KiB wait to be written, and would miss the end of the connection. */
    mp_fdwatch_start(server->loop, &h2->peer, h2o_socket_get_fd(socket), EPOLLRDHUP | EPOLLET, on_left);
    expect_end(h2);
    if (socket->input->size > 0)
        mp_http2_read(h2, NULL);
}

void mp_http2_free(mp_http2 *MP_NULLABLE h2)
{
    if (h2 == NULL)
        return;
    mp_loop *loop = h2->conn->server->loop;
    mp_timer_stop(loop, &h2->timer);
    mp_timer_stop(loop, &h2->stalled);
    mp_stat_add(&mp_stat_http2_connections, -1);
    free(h2->early);
    free(h2);
}

void mp_http2_drain(mp_http2 *h2)
{
    h2o_http2_conn_t *h2o = h2->h2o;
    if (h2o == NULL || h2o->state != H2O_HTTP2_CONN_STATE_OPEN)
        return;
    if (!h2->has_preface) {
        cut_connection(h2);
    } else if (h2->leaving_since == 0) {
        h2->leaving_since = now_of(h2);
        h2o_http2_encode_goaway_frame(&h2o->_write.buf, INT32_MAX, NO_ERROR, h2o_iovec_init(NULL, 0));
        h2o_http2_conn_request_write(h2o);
    } else if (stream_count(h2o) == 0) {
        say_goodbye(h2o);
    } else if (!h2->takes_no_streams && now_of(h2) - h2->leaving_since >= GOAWAY_MS && !h2->is_block_open) {
        h2->takes_no_streams = true;
        h2o_http2_encode_goaway_frame(&h2o->_write.buf, h2o->pull_stream_ids.max_open, NO_ERROR,
                                      h2o_iovec_init(NULL, 0));
        h2o_http2_conn_request_write(h2o);
    }
}
