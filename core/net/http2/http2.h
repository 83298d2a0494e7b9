/* http2.h: HTTP/2 connections. libh2o's HTTP/2 can be aborted, stopped or filled by a few frames, so it never sees a
 * frame that the guard has not checked. docs/dev/libh2o.md lists what the guard assumes.
 *
 *   http2.c    one connection: its begin, its streams, its time limits, its end
 *   guard.c    reads each frame before libh2o does: refuses, swallows or changes it
 *   preface.c  tells the versions apart where there is no TLS
 *   head.c     reads each block of headers before libh2o does
 *
 * Everything runs on the thread of the connection's server. */
#ifndef MP_NET_HTTP2_H
#define MP_NET_HTTP2_H

#include "abi.h"
#include "net/server/http.h"

#define MP_HTTP2_PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define MP_HTTP2_PREFACE_BYTES 24
/* requests answered before their last frame that are remembered: all that are open */
#define MP_HTTP2_EARLY 100

typedef struct {
    uint32_t id;
    size_t swallowed; /* bytes of the body that came after the answer; after a reset, more */
} mp_http2_early;

struct mp_http2 {
    mp_conn *conn;
    h2o_http2_conn_t *MP_NULLABLE h2o; /* NULL: libh2o has freed its connection, and the socket may still be closing */
    ssize_t (*next)(h2o_http2_conn_t *h2o, const uint8_t *bytes, size_t len, const char **why);
    bool *MP_NULLABLE is_freed; /* during a read: set to true when libh2o frees its connection; else NULL */
    mp_timer timer;             /* checks the time limits */
    mp_timer stalled;           /* ends the connection unless the socket takes bytes */
    size_t written;             /* bytes given to the socket when that timer was started */
    mp_fdwatch peer;
    /* Frames that cost more to serve than to send are paid for from this account, see guard.c. */
    int64_t credit;
    uint64_t credited_at;
    uint32_t block_id; /* the stream of the block of headers that is being received */
    size_t block_bytes;
    size_t taken;                                /* bytes of requests received since they were last counted */
    size_t counted_streams;                      /* streams at that time */
    size_t events;                               /* open event streams */
    uint64_t partial_since;                      /* an incomplete preface, frame or block of headers; 0: none */
    uint64_t quiet_since;                        /* time from which on no stream is open; 0: there are streams */
    uint64_t leaving_since;                      /* the first GOAWAY was sent; 0: none was */
    bool has_preface, has_settings;              /* the client's preface and its first SETTINGS were received */
    bool is_block_open, is_block_swallowed;      /* CONTINUATION frames must follow */
    bool is_last_frame;                          /* the block of headers ends its request: no body follows */
    bool takes_no_streams;                       /* the last GOAWAY was sent: newer requests are ignored */
    bool is_refused;                             /* the connection was ended by the guard */
    const mp_early_refusal *MP_NULLABLE refusal; /* on_request shall answer the current request with it */
    mp_http2_early *MP_NULLABLE early; /* further frames of their bodies are swallowed; NULL: there was none */
    size_t early_count;
};

extern const mp_stat mp_stat_refused_bodies; /* declared in body_budget.c */

/* implemented in guard.c */
extern const mp_stat mp_stat_http2_refused_headers, mp_stat_http2_refused_streams, mp_stat_http2_refused_time;
/* Puts the guard in front of libh2o's reader. Call it before libh2o has read a byte of the connection. */
void mp_http2_install_guard(mp_http2 *h2, h2o_http2_conn_t *h2o);
/* Gives back credit for an answer that was sent to its end. */
void mp_http2_earn(mp_http2 *h2);
/* Counts and logs frames that end the connection. */
void mp_http2_count_refusal(mp_http2 *h2, const mp_stat *stat, const char *why);

/* implemented in http2.c */
/* NULL: the connection is none that mp_http2_accept has begun. */
mp_http2 *MP_NULLABLE mp_http2_of(const h2o_http2_conn_t *h2o);
/* Answers a request whose body is still arriving. Further frames of the body are swallowed. */
void mp_http2_answer_early(mp_http2 *h2, h2o_http2_stream_t *stream, const mp_early_refusal *refusal);
/* Ends a request whose body is still arriving with RST_STREAM, which allows the client to send it again. */
void mp_http2_refuse_stream(mp_http2 *h2, h2o_http2_stream_t *stream);
/* Stores the memory that the head of a request occupies, for limits.bodies. Call it when libh2o has decoded the
 * head. */
void mp_http2_weigh_head(const mp_http2 *h2, h2o_req_t *req);
bool mp_http2_was_answered_early(const mp_http2 *h2, uint32_t id);
/* Counts bytes of a body whose request was answered early. A client that still sends although the answer is complete
 * gets RST_STREAM before the window of the stream is used up. */
void mp_http2_count_swallowed(mp_http2 *h2, h2o_http2_conn_t *h2o, uint32_t id, size_t bytes);

/* The client has sent RST_STREAM for this stream. */
void mp_http2_note_reset(mp_http2 *h2, uint32_t id);

#define MP_HTTP2_EACH(h2o, stream)                                                                                     \
    for (khiter_t at_ = 0; at_ < kh_end((h2o)->streams); at_++)                                                        \
        if (kh_exist((h2o)->streams, at_) && ((stream) = kh_val((h2o)->streams, at_)) != NULL)

#endif
