/* delivery.c: whether a client got an answer, as far as that can be known. libh2o reports no failure of its last write. The answer counts as
 * lost
 *   - if the request ended before all of the answer was written: the client has left, or has reset its stream of HTTP/2
 *   - over HTTP/1, if the client sends FIN instead of its next request, and with that FIN has not acknowledged all bytes: it closed its socket
 *     before the answer came
 * A client that read the answer and then left has got it. A reset proves nothing: proxies end connections that they no longer need by a reset, and
 * it arrives before an acknowledgement that the kernel has delayed. */
#include "http.h"
#include "http2.h"
#include <linux/sockios.h>
#include <stdlib.h>
#include <sys/ioctl.h>

struct mp_delivery {
    void (*settled)(void *ctx, bool is_lost);
    void *ctx;
};

void mp_stream_on_delivery(mp_stream *stream, void (*settled)(void *ctx, bool is_lost), void *ctx)
{
    if (stream->live == NULL || stream->delivery != NULL) {
        settled(ctx, stream->live == NULL);
        return;
    }
    mp_delivery *it = mp_new(sizeof *it);
    *it = (mp_delivery){settled, ctx};
    stream->delivery = it;
}

static void settle(mp_delivery *it, bool is_lost)
{
    it->settled(it->ctx, is_lost);
    free(it);
}

/* HTTP/2: not all of the answer was given to the socket, or the connection ends while the socket still writes. */
static bool is_unsent(const mp_live *live)
{
    const h2o_http2_stream_t *own = mp_container(live->req, h2o_http2_stream_t, req);
    bool is_closing = mp_http2_conn_of(live->req)->state == H2O_HTTP2_CONN_STATE_IS_CLOSING;
    return own->_data.size > 0 || (is_closing && h2o_socket_is_writing(live->conn->socket));
}

void mp_delivery_end_request(const mp_live *live)
{
    mp_conn *conn = live->conn;
    mp_stream *stream = live->stream;
    mp_delivery *it = stream->delivery;
    if (it == NULL)
        return;
    stream->delivery = NULL;
    bool is_over = stream->state == MP_STREAM_ENDED && stream->is_finished && !stream->is_lost && !stream->was_reset;
    bool is_lost = !is_over || (conn->http2 != NULL && is_unsent(live));
    if (is_lost || conn->http2 != NULL)
        settle(it, is_lost);
    else
        conn->delivery = it; /* the kernel has the answer */
}

void mp_delivery_next_request(mp_conn *conn)
{
    mp_delivery *it = conn->delivery;
    if (it == NULL)
        return;
    conn->delivery = NULL;
    settle(it, false);
}

void mp_delivery_end_input(mp_conn *conn, bool is_fin)
{
    mp_delivery *it = conn->delivery;
    int unacknowledged = 0;
    if (it == NULL)
        return;
    conn->delivery = NULL;
    if (is_fin && !conn->listener->is_unix)
        ioctl(h2o_socket_get_fd(conn->socket), SIOCOUTQ, &unacknowledged);
    settle(it, unacknowledged > 0);
}
