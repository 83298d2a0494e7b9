/* delivery.c: whether a client got an answer, as far as that can be known. libh2o reports no failure of its last write.
 * The owners of an answer are told what the kernel knows when the request has ended, when the client sends more, or
 * when a side ends the connection:
 *   - MP_DELIVERY_LOST: the request ended before all of the answer was written; or the client reset the stream of
 *     HTTP/2 although all of it was; or over HTTP/1 it sent FIN, and with that has not acknowledged all bytes: it
 *     closed its socket before the answer came
 *   - MP_DELIVERED: the client has acknowledged all bytes, and ends the connection by FIN: one that closes its socket
 *     with unread bytes sends a reset instead. Or this side closes, at its time limit, a connection that the client has
 *     left open
 *   - MP_DELIVERY_UNKNOWN: all else. A reset comes before an acknowledgement that the kernel has delayed, from clients
 *     that have read nothing, and from proxies that need the connection no more. After the last answer of a connection
 *     nothing comes at all. A next request may have been sent before the answer. */
#include "net/server/http.h"
#include "net/http2/http2.h"
#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

struct mp_delivery {
    mp_delivery *MP_NULLABLE next; /* another owner of the same answer */
    void (*settled)(void *ctx, mp_delivery_end end);
    void *ctx;
    uint32_t stream_id; /* HTTP/2: the stream of the answer; of the first in the list alone */
};

void mp_stream_on_delivery(mp_stream *stream, void (*settled)(void *ctx, mp_delivery_end end), void *ctx)
{
    if (stream->live == NULL) {
        settled(ctx, MP_DELIVERY_LOST);
        return;
    }
    mp_delivery *it = mp_new(sizeof *it);
    *it = (mp_delivery){.next = stream->delivery, .settled = settled, .ctx = ctx};
    stream->delivery = it;
}

/* Calls all owners of the delivery, if there are any. */
static void settle_delivery(mp_delivery *MP_NULLABLE *at, mp_delivery_end end)
{
    mp_delivery *MP_NULLABLE next = *at;
    *at = NULL;
    for (mp_delivery *it; (it = next) != NULL;) {
        next = it->next;
        it->settled(it->ctx, end);
        free(it);
    }
}

/* True if the client's kernel has acknowledged all bytes. Over a Unix socket it has them when they are written. */
static bool has_all_bytes(const mp_conn *conn)
{
    int unacknowledged = 0;
    if (!conn->listener->is_unix)
        ioctl(h2o_socket_get_fd(conn->socket), SIOCOUTQ, &unacknowledged);
    return unacknowledged == 0;
}

/* True if nothing can be sent to the client any more: it has reset the connection, or closed a Unix socket. */
static bool is_broken(const mp_conn *conn)
{
    struct pollfd poller = {.fd = h2o_socket_get_fd(conn->socket)};
    return poll(&poller, 1, 0) > 0; /* POLLHUP or POLLERR */
}

/* HTTP/2: not all of the answer was given to the socket, or the connection ends while the socket still writes. */
static bool is_unsent(const mp_live *live)
{
    const h2o_http2_stream_t *own = mp_http2_stream_of(live->req);
    bool is_closing = mp_http2_conn_of(live->req)->state == H2O_HTTP2_CONN_STATE_IS_CLOSING;
    return own->_data.size > 0 || (is_closing && h2o_socket_is_writing(live->conn->socket));
}

/* The kernel has the bytes of the answer: from now on the connection watches for the outcome. With HTTP/2 it watches
 * only for the last answer that has an owner. */
static void hand_to_conn(const mp_live *live, mp_delivery *it)
{
    mp_conn *conn = live->conn;
    bool is_http2 = conn->http2 != NULL;
    settle_delivery(&conn->delivery, MP_DELIVERY_UNKNOWN);
    live->stream->delivery = NULL;
    it->stream_id = is_http2 ? mp_http2_stream_of(live->req)->stream_id : 0;
    conn->delivery = it;
    if (is_http2 ? is_broken(conn) : !live->req->http1_is_persistent) /* the connection ends now */
        settle_delivery(&conn->delivery, MP_DELIVERY_UNKNOWN);
}

void mp_delivery_end_request(const mp_live *live)
{
    mp_stream *stream = live->stream;
    mp_delivery *it = stream->delivery;
    if (it == NULL)
        return;
    bool is_over = stream->state == MP_STREAM_ENDED && stream->is_finished && !stream->is_lost && !stream->was_reset;
    if (!is_over || (live->conn->http2 != NULL && is_unsent(live)))
        settle_delivery(&stream->delivery, MP_DELIVERY_LOST);
    else
        hand_to_conn(live, it);
}

void mp_delivery_next_request(mp_conn *conn)
{
    if (conn->http2 == NULL)
        settle_delivery(&conn->delivery, MP_DELIVERY_UNKNOWN);
}

void mp_delivery_reset_stream(mp_conn *conn, uint32_t id)
{
    const mp_delivery *it = conn->delivery;
    if (it != NULL && it->stream_id == id)
        settle_delivery(&conn->delivery, MP_DELIVERY_LOST);
}

/* Over HTTP/1 no other answer came after the one in question, so that the bytes that are missing are its. */
static mp_delivery_end judge_end(const mp_conn *conn, bool is_fin)
{
    mp_delivery_end missing = conn->http2 == NULL ? MP_DELIVERY_LOST : MP_DELIVERY_UNKNOWN;
    if (!is_fin) /* a Unix socket that is closed with unread bytes */
        return conn->listener->is_unix ? missing : MP_DELIVERY_UNKNOWN;
    if (!has_all_bytes(conn))
        return missing;
    return is_broken(conn) ? MP_DELIVERY_UNKNOWN : MP_DELIVERED;
}

void mp_delivery_end_input(mp_conn *conn, bool is_fin)
{
    if (conn->delivery != NULL)
        settle_delivery(&conn->delivery, judge_end(conn, is_fin));
}

void mp_delivery_end_conn(mp_conn *conn)
{
    settle_delivery(&conn->delivery, MP_DELIVERED);
}
