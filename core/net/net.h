/* net.h: time and bytes. The only room that knows libh2o.
 *
 *   loop     one thread's events: sockets, timers, foreign descriptors, messages from other threads
 *   server   the HTTP side of one loop
 *   stream   one HTTP request and its answer: undecided, then either one body or an event stream (SSE)
 *   gone     the peer has left, or the answer is out: the stream's request no longer exists
 *   pipe     one peer on two descriptors, a line a message: a process's stdin and stdout
 *   pool     threads for what blocks
 *
 * Everything belongs to the thread of its loop, but `mp_loop_post`, `mp_loop_stop`, `mp_peer_left` and the pool.
 * Callbacks may run under frames of libh2o: they mark and enqueue, they never run Lua.
 * Times are milliseconds of CLOCK_MONOTONIC. */
#ifndef MP_NET_H
#define MP_NET_H

#include "base/base.h"
#include "child.h"
#include "client.h"
#include "files.h"
#include "message.h"
#include "pool.h"
#include "tls.h"

typedef struct mp_loop mp_loop;
typedef struct mp_server mp_server;
typedef struct mp_stream mp_stream;

/* -- loop ------------------------------------------------------------------------------------------------------ */

mp_loop *mp_loop_new(mp_err *err);
void mp_loop_free(mp_loop *loop);
/* Read after the last wake-up, or since. */
uint64_t mp_loop_now(const mp_loop *loop);
/* What runs at the bottom of each turn, below no foreign frame: true when it did something or has more to do. */
void mp_loop_on_turn(mp_loop *loop, bool (*turn)(void *ctx), void *ctx);
/* Runs until `mp_loop_stop`, once; then ends what its servers have open, and `gone` runs for it. */
void mp_loop_run(mp_loop *loop);
/* From any thread. */
void mp_loop_stop(mp_loop *loop);
/* At the bottom of a turn: what the rest of it takes of the processor is counted (reload_turns). */
void mp_loop_measure(mp_loop *loop);

/* Something to happen later. Embedded in its owner; zeroed is stopped. */
typedef struct mp_timer {
    uint64_t at;
    uint32_t slot; /* 1-based place in the heap; 0 = stopped */
    void (*fire)(struct mp_timer *timer);
} mp_timer;

/* Starting a started timer moves it. Timers fire at the bottom of a turn, stopped first, so `fire` may free or restart
 * it. */
void mp_timer_start(mp_loop *loop, mp_timer *timer, uint64_t after_ms, void (*fire)(mp_timer *timer));
void mp_timer_stop(mp_loop *loop, mp_timer *timer);

/* A descriptor that is not HTTP's. Embedded; zeroed is stopped. `events` are epoll's. */
typedef struct mp_watch {
    int fd;
    uint32_t seat; /* among the watches of its loop; 0 = stopped */
    void (*ready)(struct mp_watch *watch, uint32_t events);
} mp_watch;

int mp_watch_start(mp_loop *loop, mp_watch *watch, int fd, uint32_t events, void (*ready)(mp_watch *, uint32_t));
/* After it, `ready` is not called again, not even for events already read. */
void mp_watch_stop(mp_loop *loop, mp_watch *watch);

/* From any thread. */
void mp_loop_post(mp_loop *loop, mp_message *message);

/* -- listening ------------------------------------------------------------------------------------------------- */

typedef struct {
    char text[128]; /* "127.0.0.1:7300", "[::1]:7300", "unix:/run/moonpool.sock": what was bound, port 0 resolved */
    bool is_loopback, is_unix; /* a Unix socket is both */
    uint16_t port;
} mp_address;

/* Binds `where` `count` times (one descriptor per worker, SO_REUSEPORT), in order; listens. On failure nothing stays
 * open, and `err` names the address and the remedy. Sets keepalive and TCP_USER_TIMEOUT (`dead_peer_ms`), which
 * accepted sockets inherit. A Unix socket left by a dead process is replaced, one that answers is not; it is bound
 * once and its descriptor duplicated. */
int mp_listen(const char *where, int count, uint64_t dead_peer_ms, int *fds, mp_address *bound, mp_err *err);
/* Whether only this machine reaches what listens there; false where that cannot be told. */
bool mp_is_near(const char *where);
/* Closes `fds` (-1 where a server took one over), and removes a Unix socket's file. */
void mp_unlisten(const mp_address *bound, const int *fds, int count);

/* Whether the peer of a connected socket has closed or reset its side. Any thread, as long as nobody closes `fd`. */
bool mp_peer_left(int fd);

/* -- server ---------------------------------------------------------------------------------------------------- */

typedef struct {
    size_t body;           /* bytes of a request body */
    size_t headers;        /* bytes of a request's target, and of its headers' names and values: 431 above */
    uint64_t handshake_ms; /* from accepting a connection to the end of its TLS handshake */
    uint64_t request_ms;   /* from the first byte of a request to its last, and idle keep-alive */
    uint64_t heartbeat_ms; /* between comments on a quiet event stream */
    size_t stream_queue;   /* bytes queued for one event stream */
    uint64_t stall_ms;     /* a reader that takes nothing for so long is ended as slow */
    int64_t connections;   /* accepted at once by all servers of the process */
} mp_http_limits;

typedef struct {
    void (*on_request)(void *ctx, mp_stream *stream);
    void *ctx;
    int64_t reserve;  /* connections beyond the limit that this listener still takes */
    mp_tls_slot *tls; /* NULL: it speaks plainly; else outlives the server */
} mp_door;            /* what a listener leads to */

mp_server *mp_server_new(mp_loop *loop, const mp_http_limits *limits, mp_err *err);
/* Other limits, but `request_ms`, which stays. On its thread. */
void mp_server_configure(mp_server *server, const mp_http_limits *limits);
/* Takes `fd` over. `door` is copied. */
int mp_server_listen(mp_server *server, int fd, const mp_door *door, mp_err *err);
/* Stops listening, ends idle connections; answers under way go on. `done` runs once no connection is left. */
void mp_server_drain(mp_server *server, void (*done)(void *ctx), void *ctx);
/* When mp_loop_run has returned or was never called; any thread. Streams that somebody still counts remain, gone. */
void mp_server_free(mp_server *server);

/* -- a request ------------------------------------------------------------------------------------------------- */

/* What was asked: valid until the stream is gone or ended, or a GET has become an event stream; then all is empty,
 * headers too. */
typedef struct {
    mp_str method, path, query, host, body; /* path is normalized, without the query; query without '?' */
} mp_request;

const mp_request *mp_stream_request(const mp_stream *stream);
/* A header by its lower-case name; ptr == NULL when absent. `count` (may be NULL) gets how many there are of it. */
mp_str mp_stream_header(const mp_stream *stream, const char *name, int *count);
/* Its values one by one: `*at` is 0 at first; ptr == NULL behind the last. */
mp_str mp_stream_next_header(const mp_stream *stream, const char *name, size_t *at);
/* The peer's address, "127.0.0.1" or "unix"; empty when gone. */
mp_str mp_stream_peer(const mp_stream *stream);
/* Who the peer is by its certificate; NULL without TLS, and when gone. Read when first asked for; valid as long as the
 * request. */
const mp_tls_peer *mp_stream_tls(const mp_stream *stream);
mp_loop *mp_stream_loop(const mp_stream *stream);

/* -- an answer ------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name; /* lower case, a literal */
    mp_str value;     /* copied */
} mp_header;

/* Counted: the server holds one while the request lives. Whoever keeps a stream beyond on_request takes another. */
mp_stream *mp_stream_ref(mp_stream *stream);
void mp_stream_unref(mp_stream *stream);

/* `gone` runs once, when the request ends for whatever reason other than a call of ours; never after `answer` or `end`.
 * It may run inside any function below. NULL takes it back. */
void mp_stream_on_gone(mp_stream *stream, void (*gone)(void *ctx, mp_stream *stream), void *ctx);
/* From now on a peer that leaves is noticed at once: for answers that take time. Event streams do it by themselves. */
void mp_stream_watch(mp_stream *stream);
bool mp_stream_is_open(const mp_stream *stream);
/* The socket, for mp_peer_left; -1 when gone. */
int mp_stream_fd(const mp_stream *stream);

/* Goes out with the answer, whichever it is, and with nothing once that has begun. */
void mp_stream_add_header(mp_stream *stream, mp_header header);
/* Sends one body and ends. `type` NULL: no content-type. Quiet when gone. `body` is copied. */
void mp_stream_answer(mp_stream *stream, int status, const char *type, mp_str body, const mp_header *headers,
                      size_t count);
/* Starts an event stream; its head, and a comment, are on the wire at the end of the turn. -1 when gone; also for HEAD,
 * which is answered by it. */
int mp_stream_open_events(mp_stream *stream, const mp_header *headers, size_t count);
bool mp_stream_is_events(const mp_stream *stream);
/* Queues `bytes` (whole events, copied). -1 when gone, or when they do not fit: then the stream is ended as slow and
 * `gone` runs. */
int mp_stream_send(mp_stream *stream, mp_str bytes);
/* Bytes that an event stream's queue still takes. */
size_t mp_stream_room(const mp_stream *stream);
/* `drained` runs once, when all that is queued has been written: the time to send more. It may send, and end. */
void mp_stream_on_drained(mp_stream *stream, void (*drained)(void *ctx, mp_stream *stream), void *ctx);
/* Sends what is queued, then ends the answer. A stream that has not been answered at all is answered 500. */
void mp_stream_end(mp_stream *stream);
/* Why it is gone: true if its reader stalled. */
bool mp_stream_was_slow(const mp_stream *stream);

/* -- lines ----------------------------------------------------------------------------------------------------- */

typedef struct mp_pipe mp_pipe;

typedef struct {
    void (*on_line)(void *ctx, mp_str line); /* without its end, "\n" or "\r\n"; valid during the call */
    void (*on_long)(void *ctx);              /* a line was above the limit, and is dropped */
    /* 0: no more lines come, answers still go out. Else an errno, EPIPE as a rule: nobody reads. At most one of each. */
    void (*on_end)(void *ctx, int error);
} mp_pipe_hooks;

/* Takes both descriptors over, pipes, sockets, terminals or files; whoever shares them finds them as they were. Lines have
 * at most `longest` bytes; while more than `most_queued` wait to be written nothing is read. */
mp_pipe *mp_pipe_new(mp_loop *loop, int in, int out, size_t longest, size_t most_queued, mp_err *err);
/* Begins to read; `hooks` are copied. They may run inside any function below but `send` and `free`. */
void mp_pipe_start(mp_pipe *pipe, const mp_pipe_hooks *hooks, void *ctx);
/* Queues a line (copied; its end is added), above the limit too. -1 when nobody reads any more. */
int mp_pipe_send(mp_pipe *pipe, mp_str line);
/* Whether that many bytes more stay below the limit, or nothing waits: to be asked for what may be dropped. */
bool mp_pipe_has_room(const mp_pipe *pipe, size_t bytes);
/* Writes what the peer takes now; the rest follows as it takes it. For the bottom of each turn. */
void mp_pipe_flush(mp_pipe *pipe);
size_t mp_pipe_queued(const mp_pipe *pipe);
/* Not from a hook. What is queued is dropped. */
void mp_pipe_free(mp_pipe *pipe);

#endif
