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
    if (stream->req == NULL || stream->delivery != NULL) {
        settled(ctx, stream->req == NULL);
        return;
    }
    stream->delivery = mp_new(sizeof *stream->delivery);
    *stream->delivery = (mp_delivery){settled, ctx};
}

static void settle(mp_delivery **at, bool is_lost)
{
    mp_delivery *it = *at;
    *at = NULL;
    it->settled(it->ctx, is_lost);
    free(it);
}

/* HTTP/2: not all of the answer was given to the socket, or the connection ends while the socket still writes. */
static bool is_unsent(const mp_stream *stream)
{
    const h2o_http2_stream_t *own = mp_container(stream->req, h2o_http2_stream_t, req);
    const h2o_http2_conn_t *h2o = stream->conn->http2->h2o;
    bool is_closing = h2o == NULL || h2o->state == H2O_HTTP2_CONN_STATE_IS_CLOSING;
    return own->_data.size > 0 || (is_closing && h2o_socket_is_writing(stream->conn->socket));
}

void mp_delivery_end_request(mp_stream *stream)
{
    mp_conn *conn = stream->conn;
    if (stream->delivery == NULL)
        return;
    bool is_over = stream->state == MP_STREAM_ENDED && stream->is_finished && !stream->is_lost && !stream->was_reset;
    bool is_lost = !is_over || (conn->http2 != NULL && is_unsent(stream));
    if (is_lost || conn->http2 != NULL) {
        settle(&stream->delivery, is_lost);
    } else { /* the kernel has the answer */
        conn->delivery = stream->delivery;
        stream->delivery = NULL;
    }
}

void mp_delivery_next_request(mp_conn *conn)
{
    if (conn->delivery != NULL)
        settle(&conn->delivery, false);
}

void mp_delivery_end_input(mp_conn *conn, bool is_fin)
{
    int unacknowledged = 0;
    if (conn->delivery == NULL)
        return;
    if (is_fin && !conn->listener->is_unix)
        ioctl(h2o_socket_get_fd(conn->socket), SIOCOUTQ, &unacknowledged);
    settle(&conn->delivery, unacknowledged > 0);
}
