/* opening.c: how an accepted connection begins: with a PROXY header where its address wants one, then with TLS, then
 * with the first bytes of HTTP. */
#include "http.h"
#include "forwarded.h"

MP_REFUSED(
    refused_proxy, "proxy_protocol", MP_FAULT,
    "connections without a PROXY header, or from peers that are no trusted proxies, at addresses with proxy_protocol")

static void begin_request(mp_conn *conn)
{
    const mp_endpoint *endpoint = &conn->listener->endpoint;
    mp_tls_slot *tls = endpoint->tls;
    conn->reads_requests = tls == NULL;
    if (tls != NULL)
        mp_tls_accept(conn, tls);
    else if (endpoint->http2)
        mp_http2_await_preface(conn);
    else
        h2o_accept(&conn->server->accept, conn->socket);
}

/* -- the PROXY header ---------------------------------------------------------------------------------------------- */

static void refuse_connection(mp_conn *conn, const char *why)
{
    mp_stat_add(&mp_stat_refused_proxy, 1);
    mp_refused(MP_CAUSE_PROXY, mp_str_of(why), mp_log_str("address", mp_conn_peer(conn)));
    h2o_socket_close(conn->socket);
}

static void on_late(mp_timer *timer)
{
    refuse_connection(mp_container(timer, mp_conn, first), "the PROXY header took longer than 10 s");
}

static void on_header(h2o_socket_t *socket, const char *MP_NULLABLE error)
{
    mp_conn *conn = socket->on_close.data;
    mp_proxy_header header;
    if (error != NULL && socket->input->size == 0) {
        h2o_socket_close(socket); /* a probe of the proxy, which connects and leaves */
        return;
    }
    if (error != NULL) {
        refuse_connection(conn, "the connection ended before its PROXY header did");
        return;
    }
    mp_proxy_result result = mp_proxy_header_read((mp_str){socket->input->bytes, socket->input->size}, &header);
    const char *why = header.why;
    if (result == MP_PROXY_PARTIAL)
        return;
    if (result == MP_PROXY_BROKEN) {
        refuse_connection(conn, why == NULL ? "" : why);
        return;
    }
    mp_timer_stop(conn->server->loop, &conn->first);
    h2o_socket_read_stop(socket);
    h2o_buffer_consume(&socket->input, header.bytes);
    conn->is_hidden = !header.has_ip;
    if (header.has_ip)
        mp_ip_write(&header.ip, conn->peer);
    begin_request(conn);
}

static void await_header(mp_conn *conn)
{
    if (mp_str_is(mp_conn_peer(conn), MP_PEER_GONE)) {
        h2o_socket_close(conn->socket); /* a probe as well: it left by a reset, before it was accepted */
        return;
    }
    if (!mp_conn_is_trusted(conn, conn->listener->endpoint.proxies)) {
        refuse_connection(conn, "the peer is no trusted proxy");
        return;
    }
    mp_timer_start(conn->server->loop, &conn->first, MP_HANDSHAKE_MS, on_late);
    h2o_socket_read_start(conn->socket, on_header);
}

void mp_conn_open(mp_conn *conn)
{
    if (conn->listener->endpoint.has_proxy_header)
        await_header(conn);
    else
        begin_request(conn);
}
