/* body_budget.c: limits the bytes of request bodies that libh2o buffers before any handler sees the request, and so
 * before authentication. All servers of the process share one budget (limits.bodies). While the sum is above it, or
 * an address holds so much of it that others would be refused, each connection concerned that receives more is answered
 * with 503, so the sum falls again whatever made it grow. What the connection sends afterwards is read and discarded,
 * so that the client can read the answer.
 *
 * What is counted is the memory that buffers occupy, not the bytes in them. A request that arrives by one read, is
 * small, and is answered in the same turn, is not counted: most are.
 *
 * Every read of a request passes through this file: it defines `h2o_socket_read_start` in place of libh2o's weak one
 * (cmake/patches/h2o). */
#include "http.h"

MP_ACCOUNT(body_bytes, "body_bytes", "", "",
           "bytes of requests being received or answered, without small ones that arrived at once")
MP_REFUSED(refused_bodies, "bodies", MP_LIMIT_REACHED, "requests whose bodies did not fit limits.bodies")

enum {
    PAGE = 4096,
    MAPPED = 256 << 10, /* from this size on malloc maps a block (gateway.c), whose pages are resident once used */
    LARGE = 32 << 10,   /* from this size on, input is moved to a mapped block, and below it out of one */
};

/* memory of a request without its body: its headers, decoded and as they came, and what reads them */
#define BESIDE_BODY ((size_t)3 * MP_MAX_HEADERS)

/* bytes of a refused request that are discarded: more than clients send by mistake; their time is libh2o's limit */
#define MAX_DISCARDED ((size_t)256 << 20)

static mp_holdings holdings;            /* the bytes of each address, by mp_conn_share */
static mp_pace returned = MP_PACE_INIT; /* bytes that are no longer counted */

/* libh2o's own h2o_socket_read_start. */
void libh2o_socket_read_start(h2o_socket_t *socket, h2o_socket_cb callback);
int h2o_http1_answered_early(h2o_socket_t *socket);

/* Replaces the count of the connection by `bytes`. */
static void count_bytes(mp_conn *conn, size_t bytes)
{
    int64_t more = (int64_t)bytes - (int64_t)conn->body_bytes;
    if (more == 0)
        return;
    conn->body_bytes = bytes;
    if (more < 0)
        mp_pace_count(&returned, (uint64_t)-more);
    mp_account_add(&mp_account_body_bytes, more);
    if (conn->is_counted)
        mp_holdings_change(&holdings, conn->share, more);
}

size_t mp_body_budget_held(const h2o_buffer_t *MP_NULLABLE buffer)
{
    if (buffer == NULL || buffer->bytes == NULL)
        return 0; /* libh2o's constant empty buffer */
    size_t bytes = buffer->capacity < MAPPED ? buffer->capacity : (size_t)(buffer->bytes - buffer->_buf) + buffer->size;
    return (bytes + sizeof *buffer + PAGE - 1) / PAGE * PAGE;
}

void mp_body_budget_shrink(h2o_buffer_t **buffer)
{
    h2o_buffer_t *large = *buffer, *small;
    if (large->bytes == NULL || large->capacity <= 2 * LARGE || large->size > LARGE)
        return;
    h2o_buffer_init(&small, &h2o_socket_buffer_prototype);
    memcpy(h2o_buffer_reserve(&small, large->size).base, large->bytes, large->size);
    small->size = large->size;
    h2o_buffer_dispose(&large);
    *buffer = small;
}

void mp_body_budget_expect(h2o_buffer_t **buffer, size_t more)
{
    if ((*buffer)->bytes != NULL && (*buffer)->size + more > LARGE && (*buffer)->capacity < MAPPED)
        h2o_buffer_reserve(buffer, MAPPED);
}

void mp_body_budget_forget(mp_conn *conn)
{
    count_bytes(conn, 0);
}

bool mp_body_budget_set(mp_conn *conn, size_t bytes, bool is_small)
{
    count_bytes(conn, bytes);
    return bytes > 0 && !mp_body_budget_has_room(conn, is_small);
}

/* True if the process holds no other request, and this one is not larger than limits.body allows: else no client could
 * send the largest body where limits.body is above seven eighths of limits.bodies. HTTP/2 has what it reads twice for
 * a moment: in the buffer of its input, and in that of the body. */
static bool is_alone(const mp_conn *conn, int64_t all)
{
    const mp_http_limits *limits = &conn->server->limits;
    size_t most = limits->body + BESIDE_BODY + (conn->http2 == NULL ? 0 : mp_body_budget_held(conn->socket->input));
    return (int64_t)conn->body_bytes == all && limits->body <= limits->bodies && conn->body_bytes <= most;
}

/* An address alone leaves an eighth to the large requests of others; with small requests it may fill half of that. */
bool mp_body_budget_has_room(const mp_conn *conn, bool is_small)
{
    int64_t most = (int64_t)conn->server->limits.bodies, eighth = most / 8;
    int64_t all = mp_account_used(&mp_account_body_bytes), free_bytes = most + (is_small ? eighth : 0) - all;
    if (is_alone(conn, all))
        return true;
    int64_t kept = eighth + (is_small ? eighth / 2 : 0);
    if (free_bytes < 0 || free_bytes > kept || !conn->is_counted)
        return free_bytes >= 0;
    return mp_holdings_add(&holdings, conn->share, 0, all, free_bytes, kept);
}

/* HTTP/1: counts the connection's input. True if there is no room for it. */
static bool count_input(mp_conn *conn)
{
    const h2o_buffer_t *input = conn->socket->input;
    size_t bytes = mp_body_budget_held(input) + mp_tls_partial(conn);
    return mp_body_budget_set(conn, bytes, input->size <= MP_INTAKE_FREE);
}

/* Frees the input that was read. libh2o does not use it any more: the connection only waits to be closed. */
static void drop_input(h2o_socket_t *socket)
{
    h2o_buffer_consume(&socket->input, socket->input->size);
}

static void on_refusal_written(h2o_socket_t *socket, const char *MP_NULLABLE error)
{
    mp_conn *conn = socket->on_close.data;
    if (error != NULL)
        conn->read(socket, error); /* libh2o closes the connection */
    else
        shutdown(h2o_socket_get_fd(socket), SHUT_WR);
}

unsigned mp_body_budget_room_s(const mp_conn *conn)
{
    int64_t over = mp_account_used(&mp_account_body_bytes) - (int64_t)conn->server->limits.bodies;
    size_t own = conn->body_bytes;
    uint64_t ahead = over > (int64_t)own ? (uint64_t)over - own : 0;
    return mp_pace_refuse(&returned, mp_monotonic_us(), ahead, own);
}

/* A number from 1 to 60 as a text that lives for ever. */
static h2o_iovec_t number_text(unsigned number)
{
    static const char digits[] = "123456789101112131415161718192021222324252627282930"
                                 "313233343536373839404142434445464748495051525354555657585960";
    size_t at = number < 10 ? number - 1 : 9 + 2 * (size_t)(number - 10);
    return (h2o_iovec_t){(char *)(uintptr_t)&digits[at], number < 10 ? 1 : 2};
}

static void refuse_body(mp_conn *conn)
{
    static const char before[] = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: ";
    static const char after[] = "\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: 60\r\n\r\n"
                                "too many request bodies at once: try again in a few seconds\n";
    _Static_assert(MP_PACE_MAX_S == 60, "number_text has all values");
    h2o_iovec_t pieces[] = {{(char *)(uintptr_t)before, sizeof before - 1},
                            number_text(mp_body_budget_room_s(conn)),
                            {(char *)(uintptr_t)after, sizeof after - 1}};
    mp_stat_add(&mp_stat_refused_bodies, 1);
    mp_refused(MP_CAUSE_BODIES, MP_STR("limits.bodies has no room for more of this address"), mp_log_int("status", 503),
               mp_log_str("address", mp_conn_peer(conn)));
    conn->is_refused = true;
    count_bytes(conn, 0);
    drop_input(conn->socket);
    h2o_socket_write(conn->socket, pieces, 3, on_refusal_written);
}

/* Replaces libh2o's function of this name: a request is answered of which a part has not come yet. Nonzero: the
 * connection reads on. What comes is discarded: with unread input the connection would be reset when it is closed, and
 * its client, which may be sending, would lose the answer (RFC 9112 9.6). */
int h2o_http1_answered_early(h2o_socket_t *socket)
{
    mp_conn *conn = mp_conn_of(socket);
    if (conn == NULL || conn->server->is_draining)
        return 0;
    conn->is_refused = true;
    count_bytes(conn, 0);
    drop_input(socket);
    shutdown(h2o_socket_get_fd(socket), SHUT_WR);
    return 1;
}

/* Discards input of a refused connection. libh2o's own time limit still applies. */
static void discard_input(mp_conn *conn)
{
    conn->discarded += conn->socket->input->size;
    drop_input(conn->socket);
    if (conn->discarded > MAX_DISCARDED && !h2o_socket_is_writing(conn->socket))
        conn->read(conn->socket, h2o_socket_error_closed);
}

/* True while the connection's request waits for its answer. */
static bool is_pending(const mp_conn *conn)
{
    return !mp_link_is_alone(&conn->streams) &&
           mp_container(conn->streams.next, mp_stream, link)->state < MP_STREAM_ENDED;
}

/* HTTP/1: lets libh2o read. A request that is then incomplete, or waits for its answer, is counted, however small it
 * is. If there is no room, one that is incomplete is refused; one that waits for its answer gets it, and the next
 * request is refused. */
static void read_input(mp_conn *conn, const char *MP_NULLABLE error)
{
    h2o_socket_t *socket = conn->socket;
    bool is_closed = false;
    conn->is_closed = &is_closed;
    conn->read(socket, error);
    if (is_closed)
        return;
    conn->is_closed = NULL;
    if (conn->body_bytes > 0 || (socket->input->size == 0 && mp_tls_partial(conn) == 0))
        return;
    bool is_incomplete = h2o_socket_is_reading(socket) && !h2o_socket_is_writing(socket);
    if ((is_incomplete || is_pending(conn)) && count_input(conn) && is_incomplete)
        refuse_body(conn);
}

/* HTTP/1: true if the bytes that have arrived do not fit. Small requests that arrive at once are refused only if not
 * even small ones fit; those to the admin listener are never refused. */
static bool is_too_much(mp_conn *conn, size_t size)
{
    if (size > MP_INTAKE_FREE || conn->body_bytes > 0)
        return count_input(conn);
    return size > 0 && !mp_listener_is_admin(conn->listener) && !mp_body_budget_has_room(conn, true);
}

/* Bytes of a request arrived, or the connection ended. */
static void on_read(h2o_socket_t *socket, const char *MP_NULLABLE error)
{
    mp_conn *conn = socket->on_close.data;
    mp_http2 *h2 = conn->http2;
    if (error != NULL)
        mp_delivery_end_input(conn, error == h2o_socket_error_closed);
    size_t size = socket->input->size;
    if (h2 != NULL)
        conn->server->read_http2(h2, error);
    else if (error == NULL && conn->is_refused)
        discard_input(conn);
    else if (error == NULL && is_too_much(conn, size))
        refuse_body(conn);
    else {
        mp_body_budget_expect(&socket->input, 0);
        read_input(conn, error);
    }
}

/* HTTP/1: libh2o begins to read a request, bytes of which may be there already: behind the last request, behind a PROXY
 * header, or read to find out whether they are HTTP/2. They are counted, and refused if they do not fit. libh2o also
 * begins to read again in a request, after a 100 (Continue): that one is refused with its next bytes. */
static void count_begun(mp_conn *conn)
{
    size_t size = conn->socket->input->size;
    bool is_next = !conn->is_begun;
    conn->is_begun = true;
    if (conn->http2 != NULL || (conn->body_bytes == 0 && size == 0))
        return;
    if (is_next)
        mp_body_budget_shrink(&conn->socket->input);
    if (is_too_much(conn, size) && is_next && size > 0) {
        mp_delivery_next_request(conn);
        refuse_body(conn);
    } else if (conn->body_bytes == 0) {
        count_input(conn); /* a small one, which may wait for its answer */
    }
}

/* Replaces libh2o's function of this name, and calls it. */
void h2o_socket_read_start(h2o_socket_t *socket, h2o_socket_cb callback)
{
    mp_conn *conn = mp_conn_of(socket);
    if (conn != NULL && conn->reads_requests) {
        conn->read = callback;
        callback = on_read;
        count_begun(conn);
    }
    libh2o_socket_read_start(socket, callback);
}
