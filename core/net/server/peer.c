/* peer.c: detects that a client has disconnected. While a request is being answered libh2o does not read its socket,
 * and would notice neither FIN nor reset until a write fails. A half-closed connection counts as disconnected.
 *
 * The socket usually stays registered for reading, and libh2o tells of the first event that it does not read: a
 * pipelined request, or the end. Only then, or where the registration is gone, the socket is watched here. */
#include "http.h"

bool mp_stream_has_client(const mp_stream *stream)
{
    return mp_stream_is_open(stream) && !mp_peer_left(mp_stream_fd(stream));
}

static void lose_stream(mp_stream *stream)
{
    mp_stream_lose(stream, false);
}

static void on_left(mp_fdwatch *watch, uint32_t events)
{
    mp_stream *stream = mp_container(watch, mp_stream, peer);
    const mp_live *live = stream->live;
    mp_tls_conn *tls = live == NULL ? NULL : live->conn->tls;
    if (events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR))
        lose_stream(stream);
    else if (tls != NULL)
        mp_tls_watch_for_close_notify(tls, lose_stream);
}

/* Edge-triggered and without EPOLLIN, so that pipelined requests cause no events. With TLS, arriving bytes are
 * checked for a close_notify. */
static void watch_peer(mp_stream *stream, const mp_conn *conn)
{
    mp_fdwatch_start(stream->loop, &stream->peer, h2o_socket_get_fd(conn->socket),
                     EPOLLRDHUP | EPOLLET | (conn->tls == NULL ? 0 : EPOLLIN), on_left);
}

int h2o_socket_is_polled(h2o_socket_t *socket);
void h2o_socket_on_unread(h2o_socket_t *socket);

/* In place of libh2o's, which does nothing: something has come, and the socket is registered no more. It runs while
 * libh2o takes its events, so nothing may be closed here. */
void h2o_socket_on_unread(h2o_socket_t *socket)
{
    const mp_conn *conn = mp_conn_of(socket);
    if (conn == NULL || conn->http2 != NULL)
        return;
    MP_EACH(mp_stream, stream, &conn->streams, link)
        if (stream->detects_close && stream->peer.slot == 0)
            watch_peer(stream, conn);
}

void mp_stream_detect_close(mp_stream *stream)
{
    const mp_live *live = stream->live;
    if (live == NULL || stream->state >= MP_STREAM_ENDED || stream->detects_close)
        return;
    if (live->conn->http2 != NULL)
        return; /* the connection is watched */
    mp_tls_conn *tls = live->conn->tls;
    stream->detects_close = true;
    if (!h2o_socket_is_polled(live->conn->socket))
        watch_peer(stream, live->conn);
    if (tls != NULL)
        mp_tls_watch_for_close_notify(tls, lose_stream);
}

void mp_stream_stop_watching(const mp_live *live)
{
    mp_tls_conn *tls = live->conn->tls;
    live->stream->detects_close = false;
    mp_fdwatch_stop(live->stream->loop, &live->stream->peer);
    if (tls != NULL)
        mp_tls_stop_listening(tls);
}
