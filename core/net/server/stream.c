/* stream.c: one HTTP request as its handler sees it, and answers with one body. */
#define _GNU_SOURCE /* for struct ucred */
#include "http.h"
#include <arpa/inet.h>
#include <netinet/in.h>

MP_COUNTER(streams_slow, "streams_ended", "reason", "slow", "streams ended because their reader stalled")

/* Larger bodies are written in pieces, so that a stalled reader is noticed. */
#define AT_ONCE (64 * 1024)

/* Smaller answers are not counted in limits.answers: a connection of HTTP/1.1 has one of them at a time, and with
 * HTTP/2 limits.bodies counts them with their requests. */
#define UNCOUNTED 4096

static const h2o_headers_t no_headers;
const mp_request_head mp_no_request_head = {.headers = &no_headers};

static void leave_state(mp_stream *stream, mp_stream_state to)
{
    if (stream->state == MP_STREAM_EVENTS && !stream->is_passage)
        mp_stat_add(&mp_stat_streams_open, -1);
    stream->state = to;
    stream->head = &mp_no_request_head;
}

static void call_gone(mp_stream *stream)
{
    leave_state(stream, MP_STREAM_GONE);
    if (stream->gone != NULL)
        stream->gone(stream->gone_ctx, stream);
}

/* libh2o frees the request's pool. The socket is still open, but nothing may be sent any more. */
static void on_dispose(void *memory)
{
    const mp_live *live = memory;
    mp_stream *stream = live->stream;
    mp_http2 *h2 = live->conn->http2;
    mp_stream_stop_watching(live);
    mp_timer_stop(stream->loop, &stream->timer);
    mp_link_drop(&stream->dirty);
    mp_stream_forget_queue(stream);
    if (stream->state < MP_STREAM_ENDED)
        call_gone(stream);
    mp_delivery_end_request(live);
    stream->head = &mp_no_request_head;
    mp_link_drop(&stream->link);
    live->conn->is_begun = false;
    if (h2 != NULL)
        mp_http2_forget(h2, live);
    stream->live = NULL;
    mp_stream_unref(stream);
}

static mp_str str_of(h2o_iovec_t bytes)
{
    return (mp_str){bytes.base, bytes.len};
}

/* "GET http://host/path HTTP/1.1": clients may send an absolute URL, but libh2o treats all of it as the path. */
static void take_absolute(mp_request *view, h2o_req_t *req)
{
    mp_str url = str_of(req->input.path), rest = url;
    mp_str scheme = mp_str_cut(&rest, ':');
    if (!(mp_str_is_nocase(scheme, "http") || mp_str_is_nocase(scheme, "https")) || !mp_str_starts(rest, MP_STR("//")))
        return;
    rest = mp_str_from(rest, 2);
    size_t len = 0;
    while (len < rest.len && rest.ptr[len] != '/' && rest.ptr[len] != '?')
        len++;
    view->host = (mp_str){rest.ptr, len};
    rest = mp_str_from(rest, len);
    mp_str target = mp_str_cut(&rest, '?');
    size_t query_at, *indexes;
    view->path = str_of(h2o_url_normalize_path(&req->pool, target.ptr, target.len, &query_at, &indexes));
    view->query = rest;
}

static void read_request(mp_request *view, h2o_req_t *req)
{
    *view = (mp_request){
        .method = str_of(req->method),
        .path = str_of(req->path_normalized),
        .query = req->query_at == SIZE_MAX ? MP_STR_NONE : mp_str_from(str_of(req->path), req->query_at + 1),
        .body = str_of(req->entity),
    };
    /* libh2o uses the configured host if the Host header is missing */
    if (req->authority.base != req->hostconf->authority.hostport.base)
        view->host = str_of(req->authority);
    if (req->input.path.len > 0 && req->input.path.base[0] != '/')
        take_absolute(view, req);
}

mp_live *mp_stream_begin(mp_conn *conn, h2o_req_t *req)
{
    mp_live *live = h2o_mem_alloc_shared(&req->pool, sizeof *live, on_dispose);
    mp_stream *stream = mp_server_stream(conn->server);
    mp_delivery_next_request(conn);
    *live = (mp_live){.stream = stream, .conn = conn, .req = req};
    stream->loop = conn->server->loop;
    stream->server = conn->server;
    stream->live = live;
    stream->refs = 1; /* the reference of `live` */
    stream->generator.proceed = mp_stream_on_proceed;
    mp_link_init(&stream->dirty);
    mp_link_init(&stream->link);
    mp_request_head *head = h2o_mem_alloc_pool(&req->pool, sizeof *head);
    *head = (mp_request_head){.headers = &req->headers};
    read_request(&head->view, req);
    mp_request_read_headers(head, req);
    stream->head = head;
    if (head->known_counts[MP_HEADER_X_FORWARDED_FOR] + head->known_counts[MP_HEADER_FORWARDED] > 0)
        mp_live_find_client(live);
    mp_link_put(&conn->streams, &stream->link);
    return live;
}

mp_stream *mp_stream_ref(mp_stream *stream)
{
    stream->refs++;
    return stream;
}

void mp_stream_unref(mp_stream *stream)
{
    mp_server *server = stream->server;
    if (--stream->refs > 0)
        return;
    if (server == NULL)
        free(stream);
    else
        mp_server_recycle(server, stream);
}

mp_stream *mp_stream_new_gone(mp_loop *loop)
{
    mp_stream *stream = mp_new(sizeof *stream);
    stream->loop = loop;
    stream->refs = 1;
    stream->state = MP_STREAM_GONE;
    stream->head = &mp_no_request_head;
    return stream;
}

const mp_request *mp_stream_request(const mp_stream *stream)
{
    return &stream->head->view;
}

mp_str mp_stream_peer(const mp_stream *stream)
{
    const mp_live *live = stream->live;
    return live == NULL ? MP_STR_NONE : mp_conn_peer(live->conn);
}

bool mp_stream_reached(const mp_stream *stream, mp_str address)
{
    const mp_live *live = stream->live;
    return live != NULL && mp_conn_reached(live->conn, address);
}

uint64_t mp_stream_mark(mp_stream *stream)
{
    if (stream->mark == 0)
        stream->mark = mp_mark_new();
    return stream->mark;
}

uint64_t mp_stream_known_mark(const mp_stream *stream)
{
    return stream->mark;
}

bool mp_stream_is_unix(const mp_stream *stream)
{
    const mp_live *live = stream->live;
    return live != NULL && live->conn->listener->is_unix;
}

bool mp_stream_unix_user(const mp_stream *stream, uint32_t *uid)
{
    const mp_live *live = stream->live;
    struct ucred peer;
    if (live == NULL || !live->conn->listener->is_unix ||
        getsockopt(h2o_socket_get_fd(live->conn->socket), SOL_SOCKET, SO_PEERCRED, &peer, &(socklen_t){sizeof peer}) !=
            0)
        return false;
    *uid = peer.uid;
    return true;
}

/* A copy that lives as long as the request. */
static mp_str keep_text(const mp_live *live, mp_str text)
{
    char *copy = h2o_mem_alloc_pool(&live->req->pool, text.len + 1);
    memcpy(copy, text.len > 0 ? text.ptr : "", text.len);
    copy[text.len] = '\0';
    return (mp_str){copy, text.len};
}

void mp_stream_set_origin(mp_stream *stream, mp_str address, mp_str base, uint64_t mark)
{
    mp_live *live = stream->live;
    stream->mark = mark;
    if (live == NULL)
        return;
    live->client = keep_text(live, address).ptr;
    live->base = keep_text(live, base);
}

mp_str mp_stream_edge(const mp_stream *stream)
{
    const mp_live *live = stream->live;
    bool is_from_node = live != NULL && live->conn->listener->endpoint.is_inner && !live->conn->listener->is_unix;
    return is_from_node ? mp_stream_header(stream, MP_EDGE_HEADER, NULL) : MP_STR_NONE;
}

mp_str mp_stream_base(const mp_stream *stream)
{
    const mp_live *live = stream->live;
    return live == NULL ? MP_STR_NONE : live->base;
}

mp_loop *mp_stream_loop(const mp_stream *stream)
{
    return stream->loop;
}

void mp_stream_on_gone(mp_stream *stream, void (*MP_NULLABLE gone)(void *ctx, mp_stream *stream), void *MP_NULLABLE ctx)
{
    stream->gone = gone;
    stream->gone_ctx = ctx;
}

bool mp_stream_is_open(const mp_stream *stream)
{
    return stream->state < MP_STREAM_ENDED;
}

bool mp_stream_is_events(const mp_stream *stream)
{
    return stream->is_events;
}

bool mp_stream_was_slow(const mp_stream *stream)
{
    return stream->was_slow;
}

int mp_stream_fd(const mp_stream *stream)
{
    const mp_live *live = stream->live;
    return live != NULL && stream->state < MP_STREAM_ENDED ? h2o_socket_get_fd(live->conn->socket) : -1;
}

static const char *reason_of(int status)
{
    static const struct {
        int status;
        const char *reason;
    } reasons[] = {
        {200, "OK"},
        {202, "Accepted"},
        {204, "No Content"},
        {304, "Not Modified"},
        {400, "Bad Request"},
        {401, "Unauthorized"},
        {403, "Forbidden"},
        {404, "Not Found"},
        {405, "Method Not Allowed"},
        {406, "Not Acceptable"},
        {409, "Conflict"},
        {413, "Content Too Large"},
        {415, "Unsupported Media Type"},
        {421, "Misdirected Request"},
        {429, "Too Many Requests"},
        {431, "Request Header Fields Too Large"},
        {499, "Client Closed Request"},
        {500, "Internal Server Error"},
        {502, "Bad Gateway"},
        {503, "Service Unavailable"},
        {508, "Loop Detected"},
        {504, "Gateway Timeout"},
    };
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == status)
            return reasons[i].reason;
    return "Unknown";
}

/* Copies a header value without the bytes that would end its header line. */
static char *copy_value(char *to, mp_str value)
{
    for (size_t i = 0; i < value.len; i++)
        *to++ = (unsigned char)value.ptr[i] < ' ' && value.ptr[i] != '\t' ? ' ' : value.ptr[i];
    return to;
}

void mp_stream_add_header(mp_stream *stream, mp_header header)
{
    const mp_live *live = stream->live;
    if (live == NULL || stream->is_started)
        return;
    h2o_mem_pool_t *pool = &live->req->pool;
    char *value = h2o_mem_alloc_pool(pool, header.value.len + 1);
    copy_value(value, header.value);
    h2o_add_header_by_str(pool, &live->req->res.headers, header.name, strlen(header.name), 0, NULL, value,
                          header.value.len);
}

void mp_stream_start(const mp_live *live, int status, size_t content_length, const char *MP_NULLABLE type,
                     const mp_header *MP_NULLABLE headers, size_t count)
{
    h2o_req_t *req = live->req;
    h2o_mem_pool_t *pool = &req->pool;
    req->res.status = status;
    req->res.reason = reason_of(status);
    req->res.content_length = content_length;
    if (live->conn->server->is_draining)
        req->http1_is_persistent = 0;
    h2o_vector_reserve(pool, &req->res.headers, count + 4);
    if (type != NULL)
        h2o_add_header(pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, type, strlen(type));
    size_t size = 0;
    if (headers == NULL)
        count = 0;
    for (size_t i = 0; i < count; i++)
        size += headers[i].value.len;
    char *values = count == 0 ? NULL : h2o_mem_alloc_pool(pool, size);
    for (size_t i = 0; i < count; i++) {
        char *value = values;
        values = copy_value(values, headers[i].value);
        h2o_add_header_by_str(pool, &req->res.headers, headers[i].name, strlen(headers[i].name), 0, NULL, value,
                              headers[i].value.len);
    }
    live->stream->is_started = true;
    h2o_start_response(req, &live->stream->generator);
}

void mp_stream_answer(mp_stream *stream, int status, const char *MP_NULLABLE type, mp_str body,
                      const mp_header *MP_NULLABLE headers, size_t count)
{
    const mp_live *live = stream->live;
    if (live == NULL || stream->state != MP_STREAM_ASKED)
        return;
    bool has_body = body.len > 0 && status != 204 && !mp_str_is(stream->head->view.method, "HEAD");
    bool is_counted = has_body && body.len > UNCOUNTED;
    if (is_counted && !mp_stream_count(live, body.len)) {
        stream->gone = NULL; /* its owner has answered it */
        mp_stream_end_for_room(stream);
        return;
    }
    /* A 204 has no Content-Length, not even 0. */
    mp_stream_start(live, status, status == 204 ? SIZE_MAX : body.len, type, headers, count);
    if (has_body && body.len > AT_ONCE) {
        mp_queue_put(&stream->queue, body);
        leave_state(stream, MP_STREAM_ENDED);
        mp_stream_write_soon(stream);
        return;
    }
    h2o_iovec_t copy = {NULL, 0};
    if (has_body) {
        copy = h2o_iovec_init(h2o_mem_alloc_pool(&live->req->pool, body.len), body.len);
        memcpy(copy.base, body.ptr, body.len);
    }
    mp_stream_stop_watching(live);
    leave_state(stream, MP_STREAM_ENDED);
    stream->is_writing = stream->is_finished = true;
    /* A Unix socket has no TCP_USER_TIMEOUT, and with HTTP/2 each stream has a window of its own. */
    if (is_counted || live->conn->listener->is_unix || live->conn->http2 != NULL)
        mp_stream_expect_progress(live);
    h2o_send(live->req, &copy, has_body ? 1 : 0, H2O_SEND_STATE_FINAL);
}

void mp_stream_end(mp_stream *stream)
{
    if (stream->state == MP_STREAM_ASKED) {
        mp_stream_answer(stream, 500, NULL, MP_STR(""), NULL, 0);
    } else if (stream->state == MP_STREAM_EVENTS) {
        leave_state(stream, MP_STREAM_ENDED);
        mp_stream_write_soon(stream);
    }
}

/* Shuts the connection down without closing the descriptor: libh2o's writes then fail, and libh2o closes it in its
 * own turn. With HTTP/2 the stream alone is reset, at the end of the turn. */
static void shut_down_socket(const mp_live *live)
{
    mp_stream *stream = live->stream;
    mp_stream_stop_watching(live);
    mp_link_drop(&stream->dirty);
    if (live->conn->http2 != NULL) {
        stream->is_lost = true;
        mp_link_put(&stream->loop->dirty, &stream->dirty);
        return;
    }
    shutdown(h2o_socket_get_fd(live->conn->socket), SHUT_RDWR);
    live->req->http1_is_persistent = 0;
    if (stream->is_writing || stream->is_finished)
        return; /* the write in progress fails by itself */
    if (!stream->is_started)
        mp_stream_start(live, 499, 0, NULL, NULL, 0);
    stream->is_finished = true;
    h2o_send(live->req, NULL, 0, H2O_SEND_STATE_ERROR); /* may dispose of the request immediately */
}

void mp_stream_lose(mp_stream *stream, bool is_slow)
{
    if (stream->state == MP_STREAM_GONE)
        return;
    mp_stream_ref(stream);
    if (is_slow && stream->is_events && !stream->was_slow)
        mp_stat_add(&mp_stat_streams_slow, 1);
    stream->was_slow |= is_slow;
    if (stream->state < MP_STREAM_ENDED)
        call_gone(stream);
    const mp_live *live = stream->live;
    if (live != NULL)
        shut_down_socket(live);
    mp_stream_unref(stream);
}
