/* net.h: HTTP server and client, TLS.
 *
 *   server   the HTTP server of one loop
 *   stream   one HTTP request and its answer: undecided, then either one body or an event stream (SSE)
 *   gone     said of a stream whose request no longer exists: the client disconnected, or the answer is complete
 *
 * Everything belongs to the thread of its loop, except `mp_peer_left`. Callbacks may run inside libh2o: they only mark
 * and enqueue, and never run Lua. Times are milliseconds of CLOCK_MONOTONIC. */
#ifndef MP_NET_H
#define MP_NET_H

#include "os/os.h"
#include "net/client/client.h"
#include "net/tls/tls.h"

typedef struct mp_server mp_server;
typedef struct mp_stream mp_stream;

/* -- trusted proxies ------------------------------------------------------------------------------------------- */

/* The proxies in front of a listener that may say which client a request or a connection is from. Any thread. */
typedef struct mp_proxies mp_proxies;

/* Checks one item of trusted_proxies: an address, a network as 10.0.0.0/8, or "unix". -1 with the error. */
int mp_proxies_check(mp_str item, mp_err *err);
/* The items, which have passed the check and end with NULL, become a set. Returns NULL for no items. */
mp_proxies *MP_NULLABLE mp_proxies_new(char *const *MP_NULLABLE items);
void mp_proxies_free(mp_proxies *MP_NULLABLE proxies);

/* -- server ---------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t body;           /* limit of a request body, in bytes */
    size_t bodies;         /* limit of all request bodies in the process, in bytes */
    uint64_t request_ms;   /* time limit of arriving requests, first byte to last, and of idle keep-alive connections */
    uint64_t heartbeat_ms; /* between comments on a quiet event stream */
    size_t stream_queue;   /* limit of the bytes queued for one event stream */
    size_t answers;      /* limit of the bytes queued for all readers of the process: above it slow readers are ended */
    int64_t connections; /* limit of open connections of all servers of the process */
} mp_http_limits;

typedef struct {
    void (*on_request)(void *ctx, mp_stream *stream);
    void *ctx;
    int64_t reserve; /* additional connections that this listener accepts above `connections`; is_inner: its own */
    bool is_inner;   /* other processes of this gateway, or other nodes, connect to it, no clients */
    size_t headers;  /* limit of a request's target and headers, in bytes; 0: 64 KiB */
    mp_tls_slot *MP_NULLABLE tls; /* NULL: no TLS; must outlive the server */
    bool http2;                   /* clients may use HTTP/2: by ALPN with TLS, else by prior knowledge */
    int64_t most;                 /* limit of the server's own connections, beside `connections`; 0: none */
    /* The caller's number for the address. A connection may be handed over to a listener of another server with the
     * same number, which serves it alike. A server may have several listeners with one number. */
    int address;
    bool is_shared;                        /* another server or process has the socket, too: it is never shut down */
    const mp_proxies *MP_NULLABLE proxies; /* the trusted ones, until mp_server_trust sets others; NULL: none */
    size_t proxies_index;                  /* by which mp_server_trust finds the endpoint */
    bool has_proxy_header; /* connections begin with a PROXY header, and come from trusted proxies only */
} mp_endpoint;             /* how a listener serves its connections */

/* NULL, with the reason in `err`: there are too few descriptors. */
mp_server *MP_NULLABLE mp_server_new(mp_loop *loop, const mp_http_limits *limits, mp_err *err);
/* `by` 1: the process is overloaded, and accepts up to nine tenths of the limit; -1: that is over. Any thread. */
void mp_servers_press(int by);
void mp_server_configure(mp_server *server, const mp_http_limits *limits); /* request_ms stays. On its thread */
/* From now on the endpoints with this index trust other proxies, or none. On the server's thread. */
void mp_server_trust(mp_server *server, size_t proxies_index, const mp_proxies *MP_NULLABLE proxies);
int mp_server_listen(mp_server *server, int fd, const mp_endpoint *endpoint, mp_err *err); /* takes over `fd` */
/* Tells the server its `siblings`, itself perhaps among them, which have listeners for the same addresses and outlive
 * its loop: connections are handed over to one that has clearly fewer. Call it before the loops run. */
void mp_server_balance(mp_server *server, mp_server *const *siblings, size_t count);
size_t mp_server_connections(const mp_server *server); /* open ones that the server accepted. On its thread */
void mp_server_return_memory(mp_server *server);       /* frees what it keeps for new requests. On its thread */
/* Stops listening and closes idle connections; answers in progress continue. `done` runs once no connection is left. */
void mp_server_drain(mp_server *server, void (*done)(void *ctx), void *ctx);
/* Takes connections away from a server whose thread is stuck. Call it repeatedly while it is. Any thread.
 * Connections that wait to be accepted are handed to `to`, a sibling that makes progress, until limits.connections is
 * reached; NULL: there is no such sibling. Then the server's sockets that are not shared (mp_endpoint.is_shared) stop
 * listening, so that the kernel gives new connections to the other sockets of the port; those that still wait at them
 * are reset. A shared socket goes on listening, and the next call hands over what waits at it then. Sockets that
 * stopped listen again as soon as the server's thread runs a turn. */
void mp_server_suspend(mp_server *server, mp_server *MP_NULLABLE to);
/* The server's thread runs again: siblings may hand connections over to the server. Any thread. */
void mp_server_recover(mp_server *server);
/* Another process has an address's sockets, too: they are never shut down, and suspended ones listen. Any thread. */
void mp_server_share(mp_server *server, int address);
/* Accepts no connections at the sockets of an address, which go on listening, since another process accepts there; or
 * accepts again. Any thread: when it returns, nothing is accepted any more, also if the server's thread is stuck. */
void mp_server_hold(mp_server *server, int address, bool is_held);
/* Closes the listening sockets, `but_inner` those for clients, and accepts before what waits at those not held. Open
 * connections are served: an answer of HTTP/1 closes its own, a client of HTTP/2 gets GOAWAY. Any thread. */
void mp_server_leave(mp_server *server, bool but_inner);
/* Duplicates up to `most` sockets that listen for an address; returns how many: none once it drains. Any thread. */
int mp_server_sockets(mp_server *server, int address, int *fds, int most);
/* Call it when mp_loop_run has returned or was never called; any thread. Streams with references remain, gone. */
void mp_server_free(mp_server *MP_NULLABLE server);

/* -- a request ------------------------------------------------------------------------------------------------- */

/* Valid until the stream is gone or ended, or a GET became an event stream; then all members and headers are empty. */
typedef struct {
    mp_str method, path, query, host, body; /* path: normalized, without the query; query: without '?' */
} mp_request;

const mp_request *mp_stream_request(const mp_stream *stream);
/* The headers that most requests are asked for: they cost no search. */
typedef enum {
    MP_HEADER_ACCEPT,
    MP_HEADER_AUTHORIZATION,
    MP_HEADER_CONTENT_TYPE,
    MP_HEADER_FORWARDED,
    MP_HEADER_HOPS, /* moonpool-hops */
    MP_HEADER_LAST_EVENT_ID,
    MP_HEADER_MCP_METHOD,
    MP_HEADER_MCP_NAME,
    MP_HEADER_MCP_PROTOCOL_VERSION,
    MP_HEADER_MCP_SESSION_ID,
    MP_HEADER_ORIGIN,
    MP_HEADER_X_FORWARDED_FOR,
    MP_KNOWN_HEADERS
} mp_known_header;

/* The result of mp_stream_header for the name of a known header. */
mp_str mp_stream_known_header(const mp_stream *stream, mp_known_header which, int *MP_NULLABLE count);
/* The value of a header, by its lower-case name; ptr == NULL if absent. `count` gets the number of such headers. */
mp_str mp_stream_header(const mp_stream *stream, const char *name, int *MP_NULLABLE count);
/* Iterates over all headers, whose names are in lower case: set `*at` to 0 first. False after the last one. */
bool mp_stream_each_header(const mp_stream *stream, size_t *at, mp_str *name, mp_str *value);
/* The last value of the parameter `name` in a query string; `count` gets the number of times that it appears. */
mp_str mp_query_value(mp_str query, const char *name, int *count);
/* Iterates over the values of a header: set `*at` to 0 first; returns ptr == NULL after the last value. */
mp_str mp_stream_next_header(const mp_stream *stream, const char *name, size_t *at);
/* The client's address, as a trusted proxy in front gives it: "127.0.0.1" or "unix"; empty if the stream is gone. */
mp_str mp_stream_address(const mp_stream *stream);
#define MP_COUNTED_TEXT 50 /* size of the buffer for mp_address_counted */
/* What stands for the client at this address wherever clients are counted by address: sessions.per_principal, `by =
 * "address"`, wrong tokens. It is the address, but of an IPv6 address its network of 64 bits ("2001:db8:1:2::/64"):
 * whoever has one address there has all of them. A link-local address stands for itself, since its network is that of
 * everyone on the link. So does a text that is no address ("unix"). The result is `address` or is in `room`. */
mp_str mp_address_counted(mp_str address, char room[MP_COUNTED_TEXT]);
unsigned mp_stream_share(const mp_stream *stream); /* of mp_address_counted of the client: one for all its requests */
/* The address of the connection, or of its PROXY header, which may be a proxy's; empty if the stream is gone. */
mp_str mp_stream_peer(const mp_stream *stream);
/* Another process of this gateway has sent the request on. The address of its client, the begin of its URL as clients
 * see it ("https://host", may be empty), and its mark there are copied. Call it before anything asks for them. */
void mp_stream_set_origin(mp_stream *stream, mp_str address, mp_str base, uint64_t mark);
mp_str mp_stream_base(const mp_stream *stream); /* the begin of that URL; empty if no other process has sent it on */
#define MP_EDGE_HEADER "moonpool-edge"          /* has the name of the node that has sent a request on */
mp_str mp_stream_edge(const mp_stream *stream); /* that node; empty: a client or a process of this node has sent it */
/* True if `address`, an IP address that may be in brackets, is the one that the client has connected to. */
bool mp_stream_reached(const mp_stream *stream, mp_str address);
/* The mark of the request (mark.h): made when it is first asked for. mp_stream_known_mark() makes none: 0. */
uint64_t mp_stream_mark(mp_stream *stream);
uint64_t mp_stream_known_mark(const mp_stream *stream);
bool mp_stream_is_unix(const mp_stream *stream); /* its connection came by a Unix socket; false if it is gone */
/* The user of the process that opened the stream's connection, if it came by a Unix socket; else false. */
bool mp_stream_unix_user(const mp_stream *stream, uint32_t *uid);
/* The identity in the client's certificate, as long as the request; NULL without TLS, and if the stream is gone. */
const mp_tls_peer *MP_NULLABLE mp_stream_tls(const mp_stream *stream);
mp_loop *mp_stream_loop(const mp_stream *stream);

/* -- an answer ------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name; /* its bytes are a literal in lower case */
    mp_str value;     /* the structure is copied */
} mp_header;

/* The server holds one reference while the request lives. Take another to keep a stream after on_request returns. */
mp_stream *mp_stream_ref(mp_stream *stream);
/* A stream of no request, with a reference for the caller: it is gone, and stands where a pointer must not be NULL. */
mp_stream *mp_stream_new_gone(mp_loop *loop);
void mp_stream_unref(mp_stream *stream);

/* `gone` runs once when the request ends for a reason other than a call of ours; never after mp_stream_answer or
 * mp_stream_end. It may run inside any function below. `gone` NULL removes the callback. */
void mp_stream_on_gone(mp_stream *stream, void (*MP_NULLABLE gone)(void *ctx, mp_stream *stream),
                       void *MP_NULLABLE ctx);
/* The known fate of an answer when its connection ends, or earlier; see delivery.c. */
typedef enum { MP_DELIVERED, MP_DELIVERY_LOST, MP_DELIVERY_UNKNOWN } mp_delivery_end;
/* `settled` runs once, when the request has ended or later. */
void mp_stream_on_delivery(mp_stream *stream, void (*settled)(void *ctx, mp_delivery_end end), void *ctx);
/* From now on a disconnect is noticed at once. For answers that take time; event streams call it themselves. */
void mp_stream_detect_close(mp_stream *stream);
/* Frees the request of an event stream that may stay open for hours: its head and body read as absent, its connection
 * ends with it. A stream of a GET without a body has done so. */
void mp_stream_forget_request(mp_stream *stream);
bool mp_stream_is_open(const mp_stream *stream);
/* True if the stream is open and its client, as the kernel knows, has not disconnected: also while nothing is read. */
bool mp_stream_has_client(const mp_stream *stream);
int mp_stream_fd(const mp_stream *stream); /* the socket, for mp_peer_left; -1 if the stream is gone */

/* Counts bytes of answers that no stream has in its queue yet: a batch collects them, or they are on their way to a
 * stream of another worker. `limit` is limits.answers. False if they do not fit: nothing was counted. Any thread. */
bool mp_answers_take(size_t bytes, size_t limit);
void mp_answers_give(size_t bytes); /* ends the count */
/* The most bytes of answers that may wait for one stream when it gets another: a share of limits.answers, or more. */
size_t mp_answers_before(size_t answers, size_t stream_queue);
/* True if more than limits.answers bytes wait for their readers: refuse new calls. */
bool mp_stream_is_crowded(const mp_stream *stream);
/* The seconds of Retry-After of a request that is refused for that: until readers, at their pace, have read enough. */
unsigned mp_stream_room_s(const mp_stream *stream);
/* Adds a header to the answer, of whatever kind it will be. No effect once the answer has begun. */
void mp_stream_add_header(mp_stream *stream, mp_header header);
/* Sends one body, which is copied, and ends the stream. `type` NULL: no content-type. No effect on a gone stream. */
void mp_stream_answer(mp_stream *stream, int status, const char *MP_NULLABLE type, mp_str body,
                      const mp_header *MP_NULLABLE headers, size_t count);
/* Starts an event stream, with a comment at the end of the turn. -1: it is gone, or HEAD, which this call answers. */
int mp_stream_open_events(mp_stream *stream, const mp_header *MP_NULLABLE headers, size_t count);
void mp_stream_keep_alive(mp_stream *stream); /* the same if the connection has room; else nothing happens */
bool mp_stream_is_events(const mp_stream *stream);
/* Starts an answer whose bytes come from elsewhere: mp_stream_send() adds any part of it, and mp_stream_end() ends it.
 * `length`: of its body; SIZE_MAX: not known. No heartbeats, and no limit of its queue: the caller sends nothing while
 * much is queued. This reader has twice the time. -1: it is gone, or refused, since its connection has too many. */
int mp_stream_open_passage(mp_stream *stream, int status, size_t length, const mp_header *MP_NULLABLE headers,
                           size_t count);
/* Queues copies of complete events. -1: the stream is gone, or now ended as slow, with `gone`, as they do not fit. */
int mp_stream_send(mp_stream *stream, mp_str bytes);
/* As mp_stream_send, for an answer to a request of the client: queued however much waits, which the caller bounds. */
int mp_stream_send_answer(mp_stream *stream, mp_str bytes);
/* Free bytes in an event stream's queue, and bytes that wait in it. */
size_t mp_stream_room(const mp_stream *stream);
size_t mp_stream_queued(const mp_stream *stream);
/* `drained` runs once, when everything queued has been written. It may send and end. */
void mp_stream_on_drained(mp_stream *stream, void (*MP_NULLABLE drained)(void *ctx, mp_stream *stream),
                          void *MP_NULLABLE ctx);
/* Writes what is queued, then ends the answer. A stream that was not answered at all gets status 500. */
void mp_stream_end(mp_stream *stream);
/* Ends the stream, drops its bytes, and its connection unless others use it. Calls `gone`. `is_slow`: too slow. */
void mp_stream_lose(mp_stream *stream, bool is_slow);
bool mp_stream_was_slow(const mp_stream *stream); /* it is gone because its reader stalled */

/* The versions of the OpenSSL that is loaded, and of the libcurl that outgoing requests load; or why there is none. */
const char *mp_tls_version(void);
const char *mp_client_version(void);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_connections, mp_stat_queue_bytes, mp_stat_streams_open, mp_stat_dropped_slow;

#endif
