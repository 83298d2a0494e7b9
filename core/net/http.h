/* http.h: what the files of this room see of servers, connections and streams.
 *
 * A stream is ours and counted; the request is libh2o's and ends when libh2o says so. Between them stands a token in
 * the request's pool, whose dispose is the one thing that happens exactly once however a request ends: it clears
 * `stream->req`. So `req == NULL` is the only test that is needed before touching a request. */
#ifndef MP_NET_HTTP_H
#define MP_NET_HTTP_H

#include "loop.h"
#include "queue.h"

typedef struct {
    mp_link link;
    mp_server *server;
    h2o_socket_t *socket; /* NULL once draining */
    mp_door door;
    bool is_paused;
} mp_listener;

typedef struct mp_tls_conn mp_tls_conn;

typedef struct {
    mp_link link;
    mp_server *server;
    mp_listener *listener;
    h2o_socket_t *socket;
    mp_stream *stream; /* the request being served, if any */
    char peer[48];     /* filled when asked for */
    mp_tls_conn *tls;  /* NULL: it has none */
} mp_conn;

struct mp_server {
    mp_link link; /* in its loop */
    mp_loop *loop;
    mp_http_limits limits;
    h2o_globalconf_t config;
    h2o_context_t context;
    h2o_accept_ctx_t accept;
    mp_link listeners, conns;
    size_t conn_count;
    size_t streams;   /* that exist: the structure outlives mp_server_free until the last is gone */
    mp_stream *spare; /* linked by `gone_ctx` */
    size_t spare_count;
    mp_timer timer; /* tries again to accept, and to end a drain */
    bool is_draining, is_freed;
    uint64_t complain_at;
    void (*drained)(void *ctx);
    void *drained_ctx;
};

typedef enum {
    MP_STREAM_ASKED,  /* nothing decided */
    MP_STREAM_EVENTS, /* an event stream */
    MP_STREAM_ENDED,  /* we have said our last; bytes may still be queued */
    MP_STREAM_GONE,   /* ended for any other reason */
} mp_stream_state;

struct mp_stream {
    h2o_generator_t generator;
    mp_server *server;
    mp_conn *conn;
    h2o_req_t *req; /* NULL once libh2o has disposed of it */
    uint32_t refs;
    mp_stream_state state;
    bool is_events, was_slow;
    bool is_started;  /* h2o_start_response was called */
    bool is_writing;  /* an h2o_send is under way: there must not be a second */
    bool is_finished; /* the last h2o_send was called: there must not be another */
    mp_request view;
    void (*gone)(void *ctx, mp_stream *stream);
    void *gone_ctx;
    void (*drained)(void *ctx, mp_stream *stream);
    void *drained_ctx;
    mp_watch peer;
    mp_timer timer; /* heartbeat while idle, stall while writing */
    mp_link dirty;
    mp_queue queue;
    size_t flying; /* bytes at the front of the queue that libh2o is writing */
    uint64_t wrote_at;
};

/* stream.c */
mp_stream *mp_stream_begin(mp_conn *conn, h2o_req_t *req);
void mp_stream_start(mp_stream *stream, int status, size_t content_length, const char *type, const mp_header *headers,
                     size_t count);
void mp_stream_stop_watching(mp_stream *stream);
/* The request's end for a reason that is not ours: tells the owner, and takes the connection down. */
void mp_stream_lose(mp_stream *stream, bool is_slow);

/* events.c */
void mp_stream_write_soon(mp_stream *stream);
void mp_stream_flush_dirty(mp_loop *loop);
/* libh2o is no longer interested in what is queued. */
void mp_stream_forget_queue(mp_stream *stream);
void mp_stream_on_proceed(h2o_generator_t *generator, h2o_req_t *req);
void mp_stream_queue(mp_stream *stream, mp_str bytes);

/* framing.c */
/* `input` begins with the head of a request that libh2o has understood. False: it must not be served, nor anything behind it. */
bool mp_framing_is_plain(mp_str input);

/* As mp_stream_peer gives it. */
mp_str mp_conn_peer(mp_conn *conn);

/* tls_conn.c */
/* Shakes hands with a connection whose listener has a slot, then begins to read requests. */
void mp_tls_accept(mp_conn *conn);
void mp_tls_end(mp_conn *conn);
/* Bytes came, or may have come, that libh2o does not read yet: are they a goodbye, the request is lost soon. */
void mp_tls_listen_for_goodbye(mp_conn *conn);
void mp_tls_stop_listening(mp_conn *conn);

/* server.c */
/* Ends what is open. On the thread that accepted: libh2o's input buffers hang on variables of that thread. */
void mp_server_close(mp_server *server);
mp_stream *mp_server_stream(mp_server *server);
void mp_server_recycle(mp_server *server, mp_stream *stream);

#endif
