/* preface.c: what precedes HTTP/2: libh2o's settings, and prior knowledge: a connection without TLS begins with
 * the preface of HTTP/2, or is HTTP/1. */
#include "http2.h"

#define NEVER_MS (365 * 86400000ULL)
#define MAX_REQUESTS 1000 /* above libh2o's limit of streams: no request waits in its queue */

void mp_http2_configure(h2o_globalconf_t *config, h2o_hostconf_t *host)
{
    config->http1.upgrade_to_http2 = 0;    /* a connection that libh2o upgrades would skip the guard (guard.c) */
    config->http2.idle_timeout = NEVER_MS; /* http2.c has time limits of its own */
    config->http2.max_concurrent_requests_per_connection = MAX_REQUESTS;
    config->http2.latency_optimization.min_rtt = UINT_MAX; /* off */
    host->http2.push_preload = 0;
    host->http2.reprioritize_blocking_assets = 0;
}

static void on_first_bytes(h2o_socket_t *socket, const char *MP_NULLABLE error)
{
    mp_conn *conn = socket->on_close.data;
    size_t size = socket->input->size, known = size < MP_HTTP2_PREFACE_BYTES ? size : MP_HTTP2_PREFACE_BYTES;
    if (error != NULL) {
        h2o_socket_close(socket);
        return;
    }
    bool is_http2 = memcmp(socket->input->bytes, MP_HTTP2_PREFACE, known) == 0;
    if (is_http2 && known < MP_HTTP2_PREFACE_BYTES)
        return;
    mp_timer_stop(conn->server->loop, &conn->first);
    if (is_http2) {
        mp_http2_accept(conn);
        return;
    }
    conn->reads_requests = true;
    h2o_accept(&conn->server->accept, socket); /* reads the bytes that are there */
}

static void on_no_bytes(mp_timer *timer)
{
    mp_conn *conn = mp_container(timer, mp_conn, first);
    if (conn->socket->input->size > 0)
        mp_conn_refused(conn, MP_CAUSE_TIME, MP_STR("the preface of HTTP/2 took longer than limits.request_time"));
    h2o_socket_close(conn->socket);
}

void mp_http2_await_preface(mp_conn *conn)
{
    conn->reads_requests = false;
    mp_timer_start(conn->server->loop, &conn->first, conn->server->limits.request_ms, on_no_bytes);
    h2o_socket_read_start(conn->socket, on_first_bytes);
    if (conn->socket->input->size > 0)
        on_first_bytes(conn->socket, NULL); /* these bytes came together with the PROXY header */
}
