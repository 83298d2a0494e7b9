/* http.h: the structs of servers, connections and streams, for the files of this module.
 *
 * A stream is ours and reference-counted. The request belongs to libh2o, which decides when it ends. They are
 * connected by an mp_live in the request's memory pool: its dispose callback runs exactly once, however a request ends,
 * and clears `stream->live`. What needs the request, or its connection, takes the mp_live. */
#ifndef MP_NET_HTTP_H
#define MP_NET_HTTP_H

#include "net/net.h"
#include "loop/state.h"
#include "loop/queue.h"
#include <pthread.h>

/* Limit of a request's target and headers, in bytes: browsers' have a few KiB. A larger request is answered with
 * 431. */
#define MP_MAX_HEADERS ((size_t)MP_LIMIT(headers, 64 << 10))
/* Time from accepting a connection to the end of its TLS handshake, and for a PROXY header: a few round trips. */
#define MP_HANDSHAKE_MS ((uint64_t)MP_LIMIT(handshake_ms, 10000))
/* A stream ends if its reader reads nothing for this time while bytes wait: a network is rarely away for longer. */
#define MP_STALL_MS ((uint64_t)MP_LIMIT(stall_ms, 30000))

typedef struct {
    mp_link link;
    mp_server *server;
    h2o_socket_t *MP_NULLABLE socket; /* NULL once draining */
    mp_endpoint endpoint;
    bool is_paused;
    bool is_left; /* mp_server_leave has closed it: its connections are in the gauge kept_connections */
    int fd; /* `fd`, `is_suspended` and changes of `is_held` are protected by the server's listen_lock; fd is -1 once
               closed */
    bool is_suspended, is_unix;
    _Atomic bool is_held; /* accepts no connections: see mp_server_hold */
} mp_listener;

/* The admin listener serves its operator also where there is no room for clients. */
static inline bool mp_listener_is_admin(const mp_listener *listener)
{
    return listener->endpoint.reserve > 0 && !listener->endpoint.is_inner;
}

/* defined in server.c and takeover.c */
extern mp_account mp_account_connections, mp_account_hop_connections;

/* The account that counts the listener's connections: that of clients and operators, or that of other processes. */
static inline mp_account *mp_listener_account(const mp_listener *listener)
{
    return listener->endpoint.is_inner ? &mp_account_hop_connections : &mp_account_connections;
}

/* the peer of a connection that was reset before anything asked for its address */
#define MP_PEER_GONE "unknown"

typedef struct mp_tls_conn mp_tls_conn;
typedef struct mp_http2 mp_http2;
typedef struct mp_delivery mp_delivery;

/* The answer to a request that has not arrived completely. */
typedef struct {
    mp_cause cause;
    int status;
    mp_str why;
} mp_early_refusal;

typedef struct {
    mp_link link;
    mp_server *server;
    mp_listener *listener;
    h2o_socket_t *socket;
    mp_link streams;            /* the requests being served: at most one with HTTP/1 */
    char peer[MP_ADDRESS_TEXT]; /* an address, "unix" or MP_PEER_GONE: filled by a PROXY header, or by the first call of
                              mp_conn_peer */
    unsigned share;             /* of `peer`, for mp_stream_share; 0: not computed yet */
    bool is_counted;            /* in the connections of its share */
    bool is_ended;              /* shut down to make room, and not closed yet */
    bool is_hidden;             /* its PROXY header has no address of the client: `peer` is the proxy */
    bool reads_requests;        /* the TLS handshake is complete, or there is none */
    bool is_begun;              /* HTTP/1: a request is being read or served */
    bool is_refused;            /* an error was sent before the whole request arrived: further input is discarded */
    mp_tls_conn *MP_NULLABLE tls; /* NULL: the connection does not use TLS */
    mp_http2 *MP_NULLABLE http2;  /* NULL: the connection uses HTTP/1, or is not decided yet */
    mp_timer first;               /* limits the time until the preface of HTTP/2, or another byte, arrives */
    h2o_socket_cb read;           /* libh2o's callback for bytes of requests; body_budget.c calls it */
    bool *MP_NULLABLE is_closed;  /* during a read of HTTP/1: set to true when the connection is closed; else NULL */
    size_t body_bytes;            /* bytes of the current requests, counted in limits.bodies */
    mp_delivery *MP_NULLABLE
    delivery; /* owned: the owners of an answer whose bytes the kernel has; NULL: no owner waits for its delivery */
    const mp_early_refusal *MP_NULLABLE refusal; /* HTTP/1: on_request answers the current request with it, if any */
    size_t discarded;                            /* bytes discarded since the request was refused */
    uint64_t opened_at; /* time of the loop when the connection was accepted; 0 once a request has arrived */
} mp_conn;

struct mp_server {
    mp_link link; /* link in the loop's list of servers */
    mp_loop *loop;
    mp_http_limits limits;
    h2o_globalconf_t config;
    h2o_context_t context;
    h2o_accept_ctx_t accept;
    pthread_mutex_t listen_lock; /* held while listeners are added, suspended, resumed or closed */
    mp_link listeners, conns;
    size_t conn_count;
    _Atomic int64_t load; /* conn_count and `handed`, for other threads */
    /* held while connections enter or leave `handovers`, and while takes_none and is_stuck change */
    pthread_mutex_t handover_lock;
    mp_link handovers;      /* connections that other servers handed over */
    _Atomic int64_t handed; /* connections that other servers handed over, and that are not served yet */
    /* While one of these is true, no server hands connections over to this one. */
    _Atomic bool takes_none;    /* the server drains */
    _Atomic bool is_stuck;      /* the server's thread does not run turns */
    _Atomic bool is_asked;      /* a sibling has asked this server to end an idle connection, and waits for that */
    mp_server *const *siblings; /* servers with listeners for the same addresses, this one among them */
    size_t sibling_count, last_asked; /* `last_asked`: which sibling was asked last */
    /* number of stream structs; the server struct outlives mp_server_free until the last one is freed */
    size_t streams;
    mp_stream *MP_NULLABLE spare; /* free list of streams, linked by `gone_ctx` */
    size_t spare_count;
    mp_timer timer;               /* timer that retries accept(), and ends a drain */
    bool is_leaving, keeps_inner; /* see mp_server_leave; keeps_inner: set before that */
    mp_timer leaving;             /* until clients of HTTP/2 get GOAWAY */
    bool is_draining, is_freed;
    mp_spares spares;                /* for connections of an admin listener */
    void (*end_conn)(mp_conn *conn); /* the socket was closed: frees the connection */
    /* mp_http2_accept and mp_http2_read, for the files that http2.c calls */
    void (*accept_http2)(mp_conn *conn);
    void (*read_http2)(mp_http2 *h2, const char *MP_NULLABLE error);
    uint64_t complain_at;
    void (*drained)(void *ctx);
    void *drained_ctx;
};

/* Processes of the same machine reach this one to its end, also where others have taken its addresses; and so do
 * other nodes while it leaves the cluster. */
static inline bool mp_listener_stays(const mp_listener *listener)
{
    return listener->endpoint.is_inner && (listener->is_unix || listener->server->keeps_inner);
}

typedef enum {
    MP_STREAM_ASKED,  /* neither answered nor an event stream yet */
    MP_STREAM_EVENTS, /* the stream is an event stream */
    MP_STREAM_ENDED,  /* our answer is complete; bytes of it may still be queued */
    MP_STREAM_GONE,   /* ended for any other reason, such as a client that disconnected */
} mp_stream_state;

/* The head of a request, before the request is answered. */
typedef struct {
    mp_request view;
    const h2o_headers_t *headers;           /* of the request; in mp_no_request_head an empty list */
    size_t bytes;                           /* bytes of the request's target, Host and headers */
    uint8_t known_counts[MP_KNOWN_HEADERS]; /* libh2o takes at most 100 headers */
    uint8_t known_first[MP_KNOWN_HEADERS];  /* the index of the first of each, where the count is not 0 */
} mp_request_head;

/* A request that is being served: in its memory pool. */
typedef struct {
    mp_stream *stream;
    mp_conn *conn;
    h2o_req_t *req;
    const char *MP_NULLABLE
    client;      /* the client's address by the request's headers; NULL: the connection's peer is the client */
    mp_str base; /* as mp_stream_base() */
} mp_live;

struct mp_stream {
    h2o_generator_t generator;
    mp_loop *loop;
    mp_server *MP_NULLABLE server; /* NULL: a stream of no request, see mp_stream_new_gone */
    mp_live *MP_NULLABLE live;     /* NULL once libh2o has disposed of the request */
    mp_link link;                  /* in the connection's list */
    uint64_t mark;                 /* 0: it was not asked for yet */
    uint32_t refs;
    mp_stream_state state : 8;
    bool is_events : 1, was_slow : 1;
    bool is_admitted : 1;   /* it counts among the event streams of its connection */
    bool is_passage : 1;    /* see mp_stream_open_passage */
    bool is_started : 1;    /* h2o_start_response was called */
    bool is_writing : 1;    /* an h2o_send is in progress: the next one waits */
    bool is_finished : 1;   /* the last h2o_send was called: no other may follow */
    bool was_reset : 1;     /* HTTP/2: the client has sent RST_STREAM */
    bool is_lost : 1;       /* HTTP/2: the stream will be reset at the end of the turn */
    bool detects_close : 1; /* HTTP/1: the end of the connection ends the stream */
    /* in the request's pool; without a method once the request has ended or was forgotten */
    const mp_request_head *head;
    void (*MP_NULLABLE gone)(void *ctx, mp_stream *stream);
    void *MP_NULLABLE gone_ctx;
    void (*MP_NULLABLE drained)(void *ctx, mp_stream *stream);
    void *MP_NULLABLE drained_ctx;
    mp_delivery *MP_NULLABLE delivery; /* owned; NULL: no owner waits for the delivery of the answer */
    mp_fdwatch peer;
    mp_timer timer; /* heartbeat while idle, stall limit while writing */
    mp_link dirty;
    mp_queue queue;
    size_t flying;  /* bytes at the front of the queue that libh2o is writing */
    size_t counted; /* bytes of the queue that are counted in limits.answers */
    size_t answers; /* bytes of the queue that belong to answers; at most those of the queue */
    uint64_t wrote_at;
};

/* implemented in stream.c */
extern const mp_request_head mp_no_request_head;
mp_live *mp_stream_begin(mp_conn *conn, h2o_req_t *req);
void mp_stream_start(const mp_live *live, int status, size_t content_length, const char *MP_NULLABLE type,
                     const mp_header *MP_NULLABLE headers, size_t count);

/* implemented in peer.c */
/* Call it before libh2o closes the descriptor and before the last send: an event after that would send again. */
void mp_stream_stop_watching(const mp_live *live);

/* implemented in client_address.c */
/* Finds the client of a request that has X-Forwarded-For or Forwarded. */
void mp_live_find_client(mp_live *live);
/* True if the connection's peer is one of these proxies. False if a PROXY header without an address hides the peer. */
bool mp_conn_is_trusted(mp_conn *conn, const mp_proxies *MP_NULLABLE proxies);

/* implemented in headers.c */
/* Finds the known headers of the request, and the size of its head. */
void mp_request_read_headers(mp_request_head *head, const h2o_req_t *req);

/* implemented in events.c */
void mp_stream_write_soon(mp_stream *stream);
void mp_stream_flush_dirty(mp_loop *loop);
/* Ends the stream if its reader reads nothing for MP_STALL_MS. */
void mp_stream_expect_progress(const mp_live *live);
/* The request has ended: frees the queued bytes, which libh2o no longer uses. */
void mp_stream_forget_queue(mp_stream *stream);
void mp_stream_on_proceed(h2o_generator_t *generator, h2o_req_t *req);
/* Counts bytes that are about to wait for the stream's reader, and ends streams of others if these take too much. False
 * if there is no room even so: the caller ends the stream. */
bool mp_stream_count(const mp_live *live, size_t bytes);
/* Ends a stream because the bytes that wait for its reader do not fit into the limit. */
void mp_stream_end_for_room(mp_stream *stream);

/* implemented in framing.c */
/* `input` begins with the head of a request of HTTP/1.`minor` that libh2o has parsed. Returns NULL if the request
 * states unambiguously where it ends and which host it is for. Otherwise returns the text of an error: neither this
 * request nor any bytes after it may be served. */
const char *MP_NULLABLE mp_framing_fault(mp_str input, int minor);

/* implemented in chunked.c */
/* True if the last request of this thread has a chunked body that mp_chunked's decoder has read. Reading the flag
 * clears it. */
bool mp_chunked_was_decoded(void);

/* implemented in body_budget.c */
/* A request that has not more bytes, arrives by one read and is answered in that turn is not counted. */
#define MP_INTAKE_FREE 16384
/* The bytes of memory that a buffer occupies. NULL: none. */
size_t mp_body_budget_held(const h2o_buffer_t *MP_NULLABLE buffer);
/* Moves the remaining bytes of a large buffer to a small one. No pointer into the buffer may exist. */
void mp_body_budget_shrink(h2o_buffer_t **buffer);
/* Before `more` bytes are added to a buffer: one that will be large gets a block of its own. A buffer that doubles its
 * size step by step would leave blocks behind that the heap does not return. */
void mp_body_budget_expect(h2o_buffer_t **buffer, size_t more);
/* Sets the bytes that are counted for the connection. True if there is no room for them: the caller then refuses the
 * bytes that have arrived. */
bool mp_body_budget_set(mp_conn *conn, size_t bytes, bool is_small);
/* True while the sum of all connections is within limits.bodies (for small requests, within nine eighths of it), and
 * the connection's address leaves room to others. A proxy and a Unix socket have the requests of many clients: they
 * need not. */
bool mp_body_budget_has_room(const mp_conn *conn, bool is_small);
/* The seconds of Retry-After for a request that does not fit: until enough bytes of other requests are freed. */
unsigned mp_body_budget_room_s(const mp_conn *conn);
/* Subtracts the connection's bytes from limits.bodies: its request, or the connection, has ended. */
void mp_body_budget_forget(mp_conn *conn);

/* implemented in delivery.c */
/* libh2o is about to dispose of the stream's request. */
void mp_delivery_end_request(const mp_live *live);
/* The client has sent another request: over HTTP/1 nothing more will be known. */
void mp_delivery_next_request(mp_conn *conn);
/* HTTP/2: the client has reset a stream. */
void mp_delivery_reset_stream(mp_conn *conn, uint32_t id);
/* The client's input has ended. `is_fin`: the client ended it; else the connection broke. */
void mp_delivery_end_input(mp_conn *conn, bool is_fin);
/* Reports that this side has closed the connection, unless its end was reported before. */
void mp_delivery_end_conn(mp_conn *conn);

/* implemented in http2.c */
/* Serves a connection whose client uses HTTP/2. May close and free the connection. */
void mp_http2_accept(mp_conn *conn);
/* Bytes arrived, or the connection ended. May close and free the connection. */
void mp_http2_read(mp_http2 *h2, const char *MP_NULLABLE error);
/* The connection is closed. */
void mp_http2_free(mp_http2 *MP_NULLABLE h2);
/* Call it repeatedly: sends GOAWAY, and closes the connection when its last stream has ended. */
void mp_http2_drain(mp_http2 *h2);
/* The process ends: answers the requests that have arrived in part with 503. False: there are none. */
bool mp_http2_refuse_parts(mp_http2 *h2);
/* The answer that on_request shall give to the current request; NULL: the request is complete. */
const mp_early_refusal *MP_NULLABLE mp_http2_refusal_of(mp_http2 *h2, const mp_live *live);
/* False if the connection has too many event streams. Otherwise one more is counted. `can_wait`: the answer can come
 * without a stream, so half of the streams are left to others. */
bool mp_http2_admit_events(mp_http2 *h2, bool can_wait);
/* The request will be freed, and its stream is not in the connection's list any more. */
void mp_http2_forget(mp_http2 *h2, const mp_live *live);
/* Frees the body of the request, which is used no more. */
void mp_http2_free_body(mp_http2 *h2, const mp_live *live);
/* Sends RST_STREAM for a stream that is lost, and ends its request. Call it outside of libh2o's callbacks, with a
 * reference to the stream. */
void mp_http2_reset(mp_http2 *h2, const mp_live *live);

/* implemented in http2/preface.c */
/* Call it before h2o_context_init. */
void mp_http2_configure(h2o_globalconf_t *config, h2o_hostconf_t *host);
/* Serves a connection without TLS: by HTTP/2 if its first bytes are the preface of HTTP/2, else by HTTP/1. */
void mp_http2_await_preface(mp_conn *conn);

/* implemented in connection.c */
/* The connection of a libh2o socket; NULL for a listener and for sockets that libh2o did not accept. */
mp_conn *MP_NULLABLE mp_conn_of(const h2o_socket_t *socket);
/* mp_stream_reached for a connection. */
bool mp_conn_reached(const mp_conn *conn, mp_str address);
/* The connection's address, as mp_stream_peer returns it. */
mp_str mp_conn_peer(mp_conn *conn);
/* Counts a refused request by its cause; other causes are counted where they are found. */
void mp_conn_count_refusal(mp_cause cause);
/* Counts and logs a request that gets no answer of this module. */
void mp_conn_refused(mp_conn *conn, mp_cause cause, mp_str why);
/* Makes the connection the owner of its socket. */
void mp_conn_own(mp_conn *conn);
/* A zeroed struct of a stream, which the server counts until mp_server_recycle. */
mp_stream *mp_server_stream(mp_server *server);
/* Keeps the struct as a spare one, or frees it. */
void mp_server_recycle(mp_server *server, mp_stream *stream);
/* Frees the struct of a server that has no streams. */
void mp_server_release(mp_server *server);

/* implemented in opening.c */
/* Begins to read an accepted connection: its PROXY header if its listener wants one, TLS, requests. May close and free
 * the connection. */
void mp_conn_open(mp_conn *conn);

/* implemented in tls_conn.c */
/* Performs the TLS handshake with a connection, then begins to read requests. */
void mp_tls_accept(mp_conn *conn, mp_tls_slot *slot);
void mp_tls_conn_free(mp_tls_conn *MP_NULLABLE tls);
/* Bytes may have arrived that libh2o does not read yet. If they are a TLS close_notify, the request is ended soon. */
void mp_tls_watch_for_close_notify(mp_tls_conn *tls, void (*left)(mp_stream *stream));
void mp_tls_stop_listening(mp_tls_conn *tls);
/* True if the client of this TLS connection has sent close_notify, and libh2o has read it. */
bool mp_tls_is_ended(const mp_tls_conn *tls);
/* The bytes of memory that OpenSSL holds for a record of which a part has arrived; 0 without TLS. */
size_t mp_tls_partial(const mp_conn *conn);

/* takeover.c */
/* Hands an accepted connection, which is counted in the account of `from`, over to another server's listener for the
 * same address. False, and nothing is done, if that server takes none: the connection is still the caller's. Any
 * thread. */
bool mp_server_hand_over(mp_server *to, const mp_listener *from, int fd, size_t tried);
/* False if the server drains, or its thread is stuck. Any thread. */
bool mp_server_takes_connections(const mp_server *server);
/* From when this returns, no connection is handed over to the server. Any thread. */
void mp_server_take_none(mp_server *server);
/* Serves an accepted connection, which is counted in the listener's account. On the server's thread. */
void mp_server_begin_accepted(mp_listener *listener, int fd, size_t tried);
/* Begins to serve the connections that were handed over. On the server's thread. */
void mp_server_take_handovers(mp_server *server);
/* Closes the connections that were handed over and are not served yet. */
void mp_server_drop_handovers(mp_server *server);
/* On the server's thread: listens again after mp_server_suspend. True if the listener was suspended. */
bool mp_listener_resume(mp_listener *listener);

/* implemented in hold.c */
extern const mp_stat mp_stat_kept_connections;

/* implemented in client_address.c */
unsigned mp_conn_share(mp_conn *conn);

/* implemented in server.c */
void mp_server_on_accept(h2o_socket_t *socket, const char *MP_NULLABLE error);
/* Closes the listeners, those for other processes of the gateway `with_inner`; connections that wait at one that is not
 * held are accepted first. */
void mp_server_close_listeners(mp_server *server, bool with_inner);
/* Closes everything that is open. Call it on the thread that accepted the connections: libh2o's input buffers use
 * thread-local variables. */
void mp_server_close(mp_server *server);
/* Begins to serve an accepted connection, which is already counted in the listener's account. `tried`: the number
 * of siblings that had no idle connection of its address to end in its place. */
void mp_server_begin(mp_listener *listener, h2o_socket_t *socket, size_t tried);
/* Counts a connection that is about to be accepted for another server. False if the limit has no place. */
bool mp_listener_count(const mp_listener *listener);

#endif
