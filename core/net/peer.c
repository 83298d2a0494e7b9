/* peer.c: noticing that a peer has left. While a request is answered libh2o does not read its socket, and so would see
 * neither FIN nor reset until a write fails. A half-close counts as leaving. */
#define _GNU_SOURCE /* POLLRDHUP */
#include "http.h"
#include <poll.h>

bool mp_peer_left(int fd)
{
    struct pollfd poller = {.fd = fd, .events = POLLRDHUP};
    return poll(&poller, 1, 0) > 0;
}

static void on_left(mp_watch *watch, uint32_t events)
{
    mp_stream *stream = mp_container(watch, mp_stream, peer);
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        mp_stream_lose(stream, false);
    else
        mp_tls_listen_for_goodbye(stream->conn);
}

/* Edge-triggered and without EPOLLIN: bytes of a next request wake nobody. Those of TLS may be a goodbye. */
void mp_stream_watch(mp_stream *stream)
{
    if (stream->state >= MP_STREAM_ENDED || stream->peer.seat != 0)
        return;
    mp_conn *conn = stream->conn;
    mp_watch_start(stream->server->loop, &stream->peer, h2o_socket_get_fd(conn->socket),
                   EPOLLRDHUP | EPOLLET | (conn->tls == NULL ? 0 : EPOLLIN), on_left);
    if (conn->tls != NULL)
        mp_tls_listen_for_goodbye(conn);
}

/* Before libh2o closes the descriptor, and before a last send: an event behind that would send once more. */
void mp_stream_stop_watching(mp_stream *stream)
{
    mp_watch_stop(stream->server->loop, &stream->peer);
    if (stream->conn != NULL && stream->conn->tls != NULL)
        mp_tls_stop_listening(stream->conn);
}
