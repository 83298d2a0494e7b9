/* intake.c: limits the bytes of request bodies that libh2o buffers before any handler sees the request, and so before
 * authentication. All servers of the process share one budget (limits.bodies). A connection whose next bytes exceed it
 * is answered with 503. What it sends afterwards is read and discarded, so that the client can read the answer.
 *
 * libh2o calls `h2o_socket_read_start` through the dynamic linker, which prefers the definition in the executable to
 * that in the library. That is how every read of a request passes through this file. */
#define _GNU_SOURCE /* for RTLD_NEXT */
#include "http.h"
#include <dlfcn.h>

MP_GAUGE(body_bytes, "body_bytes", "", "",
         "bytes of requests being received or answered, without the first 16 KiB of each")
MP_COUNTER(refused_bodies, "refused", "reason", "bodies", "requests whose bodies did not fit limits.bodies")

static _Atomic int64_t gathered; /* bytes counted for all servers of the process */

typedef void (*start_function)(h2o_socket_t *socket, h2o_socket_cb callback);

static start_function libh2o_read_start(void)
{
    static _Atomic(start_function) found;
    start_function start = atomic_load_explicit(&found, memory_order_relaxed);
    if (start == NULL) {
        void *symbol = dlsym(RTLD_NEXT, "h2o_socket_read_start");
        memcpy(&start, &symbol, sizeof start);
        atomic_store_explicit(&found, start, memory_order_relaxed);
    }
    return start;
}

/* Replaces the count of the connection by `bytes`. Returns the sum of all connections. */
static int64_t count_bytes(mp_conn *conn, size_t bytes)
{
    int64_t more = (int64_t)bytes - (int64_t)conn->body_bytes;
    if (more == 0)
        return 0;
    conn->body_bytes = bytes;
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

static void refuse_body(mp_conn *conn)
{
    static const char answer[] = "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
                                 "content-type: text/plain; charset=utf-8\r\ncontent-length: 60\r\n\r\n"
                                 "too many request bodies at once: try again in a few seconds\n";
    mp_stat_add(&mp_stat_refused_bodies, 1);
    mp_refused(MP_CAUSE_BODIES, MP_STR("the bodies of all requests are over limits.bodies"), mp_log_int("status", 503),
               mp_log_str("address", mp_conn_peer(conn)));
    conn->is_refused = true;
    count_bytes(conn, 0);
    drop_input(conn->socket);
    h2o_iovec_t bytes = {(char *)(uintptr_t)answer, sizeof answer - 1};
    h2o_socket_write(conn->socket, &bytes, 1, on_refusal_written);
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
__attribute__((visibility("default"))) void h2o_socket_read_start(h2o_socket_t *socket, h2o_socket_cb callback)
{
    mp_conn *conn = mp_conn_of(socket);
    if (conn != NULL && conn->reads_requests) {
        conn->read = callback;
        callback = on_read;
    }
    libh2o_read_start()(socket, callback);
}
