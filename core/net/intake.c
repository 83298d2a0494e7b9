/* intake.c: limits the bytes of request bodies that libh2o buffers before any handler sees the request, and so before
 * authentication. All servers of the process share one budget (limits.bodies). A connection whose next bytes exceed it
 * is answered with 503. What it sends afterwards is read and discarded, so that the client can read the answer.
 *
 * Every read of a request passes through this file: it defines `h2o_socket_read_start` in place of libh2o's weak one
 * (cmake/patches/h2o). */
#include "http.h"

MP_GAUGE(body_bytes, "body_bytes", "", "",
         "bytes of requests being received or answered, without the first 16 KiB of each")
MP_COUNTER(refused_bodies, "refused", "reason", "bodies", "requests whose bodies did not fit limits.bodies")

static _Atomic int64_t gathered;        /* bytes counted for all servers of the process */
static mp_pace returned = MP_PACE_INIT; /* bytes that are no longer counted */

/* libh2o's own h2o_socket_read_start. */
void libh2o_socket_read_start(h2o_socket_t *socket, h2o_socket_cb callback);

/* Replaces the count of the connection by `bytes`. Returns the sum of all connections. */
static int64_t count_bytes(mp_conn *conn, size_t bytes)
{
    int64_t more = (int64_t)bytes - (int64_t)conn->body_bytes;
    if (more == 0)
        return 0;
    conn->body_bytes = bytes;
    if (more < 0)
        mp_pace_count(&returned, (uint64_t)-more);
    mp_stat_add(&mp_stat_body_bytes, more);
    return atomic_fetch_add(&gathered, more) + more;
}

void mp_intake_count(mp_conn *conn)
{
    size_t size = conn->socket->input->size;
    count_bytes(conn, size > MP_INTAKE_FREE ? size : 0);
}

void mp_intake_forget(mp_conn *conn)
{
    count_bytes(conn, 0);
}

bool mp_intake_set(mp_conn *conn, size_t bytes)
{
    size_t before = conn->body_bytes;
    int64_t sum = count_bytes(conn, bytes > MP_INTAKE_FREE ? bytes : 0);
    return conn->body_bytes > before && sum > (int64_t)conn->server->limits.bodies;
}

/* Frees the input that was read. libh2o does not use it any more: the connection only waits to be closed. */
static void drop_input(h2o_socket_t *socket)
{
    h2o_buffer_consume(&socket->input, socket->input->size);
}

static void on_refusal_written(h2o_socket_t *socket, const char *error)
{
    mp_conn *conn = socket->on_close.data;
    if (error != NULL)
        conn->read(socket, error); /* libh2o closes the connection */
    else
        shutdown(h2o_socket_get_fd(socket), SHUT_WR);
}

unsigned mp_intake_room_s(const mp_conn *conn)
{
    int64_t over = atomic_load_explicit(&gathered, memory_order_relaxed) - (int64_t)conn->server->limits.bodies;
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
                            number_text(mp_intake_room_s(conn)),
                            {(char *)(uintptr_t)after, sizeof after - 1}};
    mp_stat_add(&mp_stat_refused_bodies, 1);
    mp_refused(MP_CAUSE_BODIES, MP_STR("the bodies of all requests are over limits.bodies"), mp_log_int("status", 503),
               mp_log_str("address", mp_conn_peer(conn)));
    conn->is_refused = true;
    count_bytes(conn, 0);
    drop_input(conn->socket);
    h2o_socket_write(conn->socket, pieces, 3, on_refusal_written);
}

/* Discards input of a refused connection, at most one maximum body. libh2o's own time limit still applies. */
static void discard_input(mp_conn *conn)
{
    conn->discarded += conn->socket->input->size;
    drop_input(conn->socket);
    if (conn->discarded > conn->server->limits.body && !h2o_socket_is_writing(conn->socket))
        conn->read(conn->socket, h2o_socket_error_closed);
}

/* Bytes of a request arrived, or the connection ended. */
static void on_read(h2o_socket_t *socket, const char *error)
{
    mp_conn *conn = socket->on_close.data;
    if (conn->http2 != NULL) {
        conn->server->read_http2(conn, error);
        return;
    }
    if (error == NULL && conn->is_refused) {
        discard_input(conn);
        return;
    }
    size_t size = socket->input->size;
    if (error == NULL && (size > MP_INTAKE_FREE || conn->body_bytes > 0) && mp_intake_set(conn, size)) {
        refuse_body(conn);
        return;
    }
    conn->read(socket, error); /* may close and free the connection */
}

/* Replaces libh2o's function of this name, and calls it. */
void h2o_socket_read_start(h2o_socket_t *socket, h2o_socket_cb callback)
{
    mp_conn *conn = mp_conn_of(socket);
    if (conn != NULL && conn->reads_requests) {
        conn->read = callback;
        callback = on_read;
    }
    libh2o_socket_read_start(socket, callback);
}
