/* upstream.h: the client role of MCP: other MCP servers that this gateway calls. Bytes, time and bounds are here; what
 * a message means is Lua's (core/lib/upstream/channel.c, lua/moonpool/upstream).
 *
 *   upstream   an MCP server that is called, by the name that it has in the configuration
 *   channel    what an upstream takes for one client of its own: a session, a process, or all of a stateless server. It
 *              has a key, which Lua makes, and a server info, which Lua gives it once it is open. A channel that is
 *              lost is replaced by another one with the same key
 *   claim      the right and the duty of one task to open the channel of a key, while other tasks of all workers wait
 *   exchange   one message sent on a channel, up to its answer
 *   pending    an exchange without a task: its upstream has asked; the client's retry, on any worker, takes it up
 *   circuit    after failures in a row an upstream is called no more for a while, then by one task alone
 *   catalogue  what an upstream listed, as bytes; one for each class of clients
 *   host       one worker's part: its loop and its HTTP client
 *
 * mp_upstreams and everything that a name or key finds belong to the process and are shared by all workers under a lock
 * that is never held across I/O or a callback. A host, a request, and an exchange as its task sees it belong to one
 * worker's thread. */
#ifndef MP_UPSTREAM_H
#define MP_UPSTREAM_H

#include "mcp/mcp.h"
#include "net/net.h"

typedef struct mp_upstreams mp_upstreams;
typedef struct mp_upstream mp_upstream;
typedef struct mp_upstream_host mp_upstream_host;
typedef struct mp_channel mp_channel;
typedef struct mp_exchange mp_exchange;
typedef struct mp_channel_request mp_channel_request;

/* -- configuration ------------------------------------------------------------------------------------------------- */

typedef enum { MP_UPSTREAM_URL, MP_UPSTREAM_COMMAND } mp_upstream_kind;
typedef enum { MP_REVISION_AUTO, MP_REVISION_MODERN, MP_REVISION_LEGACY, MP_REVISION_SSE } mp_upstream_revision;

/* One upstream of the configuration. Lists end with NULL and may be NULL; texts may be NULL where the comment says
 * so. */
typedef struct {
    char *name;
    mp_upstream_kind kind;
    mp_upstream_revision revision;
    /* The connection part: an upstream keeps its channels over a reload while these are equal. */
    char *MP_NULLABLE url;                /* URL */
    char **argv, **env, *MP_NULLABLE cwd; /* COMMAND; env: "NAME=value"; cwd may be NULL */
    char **headers;                       /* "name: value", sent with each request */
    char *MP_NULLABLE authorization;      /* the value of Authorization; NULL: none, or that of a channel's token */
    /* how the library in Lua gets tokens for this upstream, as text that is only compared; NULL: it gets none */
    char *MP_NULLABLE credential;
    char *MP_NULLABLE tls_ca, *MP_NULLABLE tls_certificate, *MP_NULLABLE tls_key; /* paths; each may be NULL */
    bool is_private; /* the URL's name may lead to private addresses */
    /* Settings that may change while channels stay open. */
    uint64_t timeout_ms;       /* limit of the time in which an exchange brings no message */
    uint64_t timeout_total_ms; /* limit of the time of an exchange */
    uint64_t open_ms;          /* limit of the time that a task waits for another one to open a channel */
    int64_t calls, waiting;    /* exchanges that run at once; exchanges above that wait in order */
    uint64_t idle_stop_ms;     /* a channel without exchanges is closed after this time */
    int64_t most;              /* channels of this upstream; 0: no limit but limits.upstreams */
    size_t memory;             /* COMMAND: bytes of one process tree; 0: no limit */
    int64_t circuit_failures;  /* failures in a row that open the circuit */
    uint64_t circuit_open_min_ms, circuit_open_max_ms;
    uint64_t list_wait_ms, refresh_ms; /* used only by Lua */
} mp_upstream_config;

/* Limits of all upstreams of the process (limits.upstreams). */
typedef struct {
    int64_t channels, processes;
    size_t answer; /* bytes of one message of an upstream */
} mp_upstream_limits;

/* Limits that no key sets, since no well-behaved server comes near them; each bounds the memory that another server may
 * take. */
/* bytes of progress and logs that wait for one request */
#define MP_UPSTREAM_QUEUE MP_LIMIT(upstream_queue, 1 << 20)
#define MP_UPSTREAM_LIST_BYTES MP_LIMIT(upstream_list_bytes, 32 << 20) /* bytes of one list: 10,000 tools of 3 KiB */
/* bytes of results kept for one call while its client is asked */
#define MP_UPSTREAM_JOURNAL MP_LIMIT(upstream_journal, 1 << 20)
/* Time that a client has to answer questions of an upstream, or a script's: a person has left who needs longer. */
#define MP_UPSTREAM_PENDING_MS ((uint64_t)MP_LIMIT(upstream_pending_ms, 300000))
/* Requests that an upstream may send before it answers one of the gateway, including refused ones; one more for each
 * second. Without a request of the gateway: in a minute. */
#define MP_UPSTREAM_QUESTIONS MP_LIMIT(upstream_questions_per_request, 256)

extern const mp_stat mp_stat_refused_upstream_questions;

/* -- the table of the process -------------------------------------------------------------------------------------- */

mp_upstreams *mp_upstreams_new(void);
/* Call it when all hosts are freed. */
void mp_upstreams_free(mp_upstreams *MP_NULLABLE table);
/* Replaces the list, which is copied. An upstream whose connection part is unchanged keeps its channels. Exchanges that
 * run on one that was changed or removed may finish within `drain_ms`. Any thread, one at a time. */
void mp_upstreams_configure(mp_upstreams *table, const mp_upstream_config *const *list, size_t count,
                            const mp_upstream_limits *limits, uint64_t drain_ms);
/* A session of a client has ended: ends the channels that belong to it. Any thread, without locks. */
void mp_upstreams_end_session(mp_upstreams *table, mp_str session_id);
/* An id of this process, for the header by which gateways in a circle recognize themselves: 32 hex digits. */
const char *mp_upstreams_instance(const mp_upstreams *table);
/* The header moonpool-hops of requests that come from no other gateway: the instances that run this one as a program,
 * and its own. */
const char *mp_upstreams_hops(const mp_upstreams *table);

typedef enum { MP_UPSTREAM_UNUSED, MP_UPSTREAM_UP, MP_UPSTREAM_DOWN, MP_UPSTREAM_BARRED } mp_upstream_state;

enum {
    MP_UPSTREAM_PIDS = 16,   /* programs of an upstream whose process ids are reported */
    MP_UPSTREAM_CLASSES = 8, /* classes of its clients that are reported */
    MP_UPSTREAM_CLASS = 48   /* bytes of the name of a class, with a zero byte */
};

/* The number of open channels for one class of clients; see lua/moonpool/upstream/class.lua. */
typedef struct {
    char name[MP_UPSTREAM_CLASS];
    int64_t channels;
} mp_upstream_class_count;

/* Facts about one upstream for people and metrics. */
typedef struct {
    const char *name; /* copies, owned by the report */
    mp_upstream_kind kind;
    mp_upstream_state state;
    char revision[24]; /* revision of the channel that was opened last; "" if none was */
    const char *transport;
    int64_t channels, opening, running, waiting, pending;
    uint64_t calls, errors, lost, dropped, refused, opened; /* since the start of the process */
    uint64_t p50_us, p99_us; /* of exchanges with an answer, rounded up to a power of 2^(1/4) */
    uint64_t retry_ms;       /* DOWN, BARRED: until the next attempt; 0: the next request */
    const char *circuit;     /* "closed"; "open": calls are refused; "probing": one request tries whether it is back */
    int64_t circuit_since;   /* start of this state, in seconds since 1970; 0: since the start of the process */
    int64_t failures;        /* failures in a row since the last success */
    char error[160];         /* the last failure; "" if there was none */
    int64_t error_at, state_since; /* seconds since 1970; state_since 0: since the start of the process */
    mp_upstream_class_count
        classes[MP_UPSTREAM_CLASSES];    /* channels by class; the first element without a name ends the list */
    int64_t processes, restarts;         /* COMMAND: programs that run; restarts so far */
    int64_t pids[MP_UPSTREAM_PIDS];      /* COMMAND: of its programs, as far as they are known; 0: none */
    uint64_t memory;                     /* COMMAND: of all processes, in bytes */
    const char *MP_NULLABLE definitions; /* the text of mp_upstreams_describe; NULL: none */
} mp_upstream_report;

/* The caller frees the array with mp_upstream_report_free. */
mp_upstream_report *mp_upstreams_report(mp_upstreams *table, size_t *count);
void mp_upstream_report_free(mp_upstream_report *reports, size_t count);
/* Stores members of a JSON object that describe the upstream's lists, for reports. Any thread. False: too long, or no
 * such upstream. */
bool mp_upstreams_describe(mp_upstreams *table, mp_str name, mp_str definitions);

/* -- one worker's part --------------------------------------------------------------------------------------------- */

mp_upstream_host *mp_upstream_host_new(mp_upstreams *table, mp_loop *loop, const mp_client_limits *limits);
void mp_upstream_host_configure(mp_upstream_host *host, const mp_client_limits *limits);
/* Handles answers, failures and timers that are due, at the end of a turn, before tasks run. True if some were. */
bool mp_upstream_turn(mp_upstream_host *host);
/* Sends the requests that began in this turn of the loop. Their answers and failures are handled by
 * mp_upstream_turn. */
void mp_upstream_send(mp_upstream_host *host);
/* True if mp_upstream_turn has something to do at once: the loop does not wait for events then. */
bool mp_upstream_has_work(const mp_upstream_host *host);
/* The worker has nothing left to do and is about to stop its loop: closes idle channels. True once nothing is left to
 * wait for; call it again in each turn until then. */
bool mp_upstream_host_end(mp_upstream_host *host);
/* The loop has ended: nothing is sent from now on. */
void mp_upstream_host_over(mp_upstream_host *host);
/* All loops have ended, and no task is left on this host: ends the messages that nothing waits for. */
void mp_upstream_host_settle(mp_upstream_host *MP_NULLABLE host);
/* Call it when all hosts are settled, before the loop of this one is freed. */
void mp_upstream_host_free(mp_upstream_host *MP_NULLABLE host);

/* -- failures ------------------------------------------------------------------------------------------------------ */

typedef enum {
    MP_FAILURE_NONE,
#define FAILURE(constant, name, outage) MP_FAILURE_##constant,
#include "failure.def"
#undef FAILURE
} mp_failure_reason;

/* The name of the reason in failure.def; and the reason of a name, or MP_FAILURE_NONE. */
const char *mp_failure_name(mp_failure_reason reason);
mp_failure_reason mp_failure_named(mp_str name);

/* The reason why an exchange or a request for a channel has no answer. */
typedef struct {
    mp_failure_reason reason; /* NONE: no failure */
    bool may_have_run;        /* the upstream may have received the message */
    bool is_known;            /* it says nothing new of whether the upstream is there */
    int status;               /* 0: none */
    int64_t retry_after_ms;   /* -1: unknown */
    char why[160];            /* text for operators; it may name addresses and is not shown to clients */
    char *MP_NULLABLE head, *MP_NULLABLE body; /* owned; may be NULL */
    size_t head_len, body_len;
} mp_upstream_failure;

void mp_upstream_failure_clear(mp_upstream_failure *failure);

/* -- channels ------------------------------------------------------------------------------------------------------ */

typedef enum {
    MP_ACQUIRE_WAITS,   /* `done` will be called */
    MP_ACQUIRE_OPEN,    /* the channel is open */
    MP_ACQUIRE_PROBE,   /* the channel is open, and so is its circuit breaker: the first request must be a harmless one,
                           whose outcome decides whether the breaker closes */
    MP_ACQUIRE_CLAIMED, /* the task opens it: mp_channel_opened or mp_channel_failed, or it gives the claim back */
    MP_ACQUIRE_REFUSED
} mp_channel_request_result;

typedef struct {
    mp_str name, key;
    void (*done)(
        void *ctx); /* called at the end of a turn; not before the request is returned, not after it is freed */
    void *ctx;
} mp_channel_request_options;

/* Requests the channel of a key. The caller frees the request; a channel in it that was not fetched is given back.
 * NULL: no upstream has this name, as `failure` says, which owns nothing then. */
mp_channel_request *MP_NULLABLE
mp_channel_request_new(mp_upstream_host *host, const mp_channel_request_options *options, mp_upstream_failure *failure);
mp_channel_request_result mp_channel_request_result_of(const mp_channel_request *request);
/* OPEN, PROBE, CLAIMED: the channel, with a counted reference for the caller; later calls return NULL. */
mp_channel *MP_NULLABLE mp_channel_request_fetch(mp_channel_request *request);
const mp_upstream_failure *mp_channel_request_failure(const mp_channel_request *request);
/* The channel of a key, with a counted reference, if it is open and the circuit is closed: nothing waits, is claimed or
 * counted. Else NULL. */
mp_channel *MP_NULLABLE mp_channel_find_open(mp_upstream_host *host, mp_str name, mp_str key);
/* The time in ms that a waiting request for a channel may wait. */
uint64_t mp_channel_request_open_ms(const mp_channel_request *request);
/* Ends a request for a channel after `open`: BUSY if a limit is full, OPEN if the channel is still being opened. */
void mp_channel_request_expire(mp_channel_request *request);
void mp_channel_request_free(mp_channel_request *MP_NULLABLE request);

/* The channel belongs to a client's session and ends with it. The caller then looks whether the session is still open,
 * and calls mp_upstreams_end_session if it is not. */
void mp_channel_own(mp_channel *channel, mp_str session_id);
/* A channel that is being opened, and on which no exchange runs, uses another transport of its kind from now on: "http"
 * or "sse". False: it cannot. Call it on the claimer's thread. */
bool mp_channel_use(mp_channel *channel, mp_str transport);
/* `server_info` is JSON text; `revision` and `session` become headers of requests over HTTP and may be empty. False if
 * the claim is gone. */
bool mp_channel_opened(mp_channel *channel, mp_str server_info, mp_str revision, mp_str session);
/* Opening failed: tasks that wait get this failure; the key rests for a while, or is barred until `retry_after_ms`
 * where the reason is BARRED. */
void mp_channel_failed(mp_channel *channel, const mp_upstream_failure *failure);
/* The task that has the claim ends without a result. The next waiter gets the claim. No effect without a claim. */
void mp_channel_give_back(mp_channel *channel);
/* The upstream has forgotten this session: the next request opens another channel. True for the first call. */
bool mp_channel_lost(mp_channel *channel);
/* Ends the channel, with a message to the upstream if the transport has one for that. */
void mp_channel_end(mp_channel *channel);
/* The task that the channel belongs to has ended: ends it as soon as no exchange runs or is pending on it. */
void mp_channel_end_unused(mp_channel *channel);
/* Requests of the channel over HTTP are sent with this bearer token from now on. Any thread. */
void mp_channel_authorize(mp_channel *channel, mp_str token);
uint64_t mp_channel_serial(const mp_channel *channel);
int64_t mp_channel_next_id(mp_channel *channel);
/* Empty before mp_channel_opened. Valid as long as the reference. */
mp_str mp_channel_server_info(const mp_channel *channel);
/* Sets the name of the kinds of questions that clients of the channel can answer, for reports. Before
 * mp_channel_opened. */
void mp_channel_classify(mp_channel *channel, mp_str name);
const char *mp_channel_transport(const mp_channel *channel); /* "http", "sse" or "stdio" */
mp_str mp_channel_revision(const mp_channel *channel);       /* of an open channel */
mp_channel *mp_channel_ref(mp_channel *channel);
void mp_channel_unref(mp_channel *MP_NULLABLE channel);

/* -- exchanges ----------------------------------------------------------------------------------------------------- */

typedef enum {
    MP_EVENT_ANSWER,
    MP_EVENT_REQUEST,
    MP_EVENT_NOTE,
    MP_EVENT_ACCEPTED /* the upstream has received a message that has no answer */
} mp_exchange_event_kind;

typedef struct {
    mp_exchange_event_kind kind;
    mp_str method; /* REQUEST, NOTE */
    mp_str id;     /* REQUEST: a span */
    mp_str params; /* REQUEST, NOTE: a span; empty: none */
    mp_str bytes;  /* the whole message */
    mp_str answer; /* ANSWER: span of the result or the error */
    bool is_error;
    int status; /* HTTP status; 0 over other transports */
} mp_exchange_event;

typedef struct {
    mp_str message;
    bool has_id;
    int64_t id;
    const char *const *MP_NULLABLE headers; /* "Name: value"; ends with NULL; may be NULL */
    mp_str revision;                        /* instead of the server info's; may be empty */
    mp_str session;                         /* over HTTP: instead of the server info's; may be empty */
    uint64_t timeout_ms, total_ms;          /* 0: as configured */
    size_t answer;                          /* cap in bytes; 0: as configured */
    bool is_retry;                          /* the same request was sent before; only counted */
    bool is_trial;   /* the upstream may not know the revision of the request: a refusal is not counted as a failure */
    bool is_opening; /* `initialize`: over HTTP it has no session id, and the answer with its result may give one */
    bool takes_questions; /* a request of the upstream that names no exchange goes to the newest of these first */
    mp_str cancel;        /* a message that is sent upstream if the exchange ends before its answer; may be empty */
    /* There is an event, or the exchange has failed. Marks and enqueues only. Not before mp_exchange_send returns. */
    void (*MP_NULLABLE ready)(void *ctx);
    void *ctx;
} mp_exchange_options;

/* NULL: `failure` says why. The caller has the exchange until mp_exchange_free. */
mp_exchange *MP_NULLABLE mp_exchange_send(mp_upstream_host *host, mp_channel *channel,
                                          const mp_exchange_options *options, mp_upstream_failure *failure);
/* The next event; NULL: none has arrived. Valid until the next call. */
const mp_exchange_event *MP_NULLABLE mp_exchange_next(mp_exchange *exchange);
/* Returns the event that mp_exchange_next would return, without taking it. */
const mp_exchange_event *MP_NULLABLE mp_exchange_peek(const mp_exchange *exchange);
mp_channel *mp_exchange_channel(const mp_exchange *exchange);
int64_t mp_exchange_id(const mp_exchange *exchange);
/* The session id that an exchange which `is_opening` has opened; empty: none. */
mp_str mp_exchange_session(const mp_exchange *exchange);
/* True after the answer was taken, after a failure, and after mp_exchange_cancel. */
bool mp_exchange_is_over(const mp_exchange *exchange);
/* NULL: it has not failed, or events are still to be taken. */
const mp_upstream_failure *MP_NULLABLE mp_exchange_failure(const mp_exchange *exchange);
/* Sends a response to a request of the upstream, also if the exchange has ended. An empty one: the upstream has taken
 * its request back. False if it cannot be sent any more. */
bool mp_exchange_reply(mp_exchange *exchange, mp_str message);
/* Gives a question, a whole message, to another exchange of the channel, as this one has ended; or refuses it. */
void mp_exchange_hand_on(const mp_exchange *exchange, mp_str bytes);
/* Ends the exchange. `message` (a notification; empty: that of the options) is sent where the connection stays open. */
void mp_exchange_cancel(mp_exchange *exchange, mp_str message);
/* Cancels the exchange unless it is over. A message without an id is still sent. */
void mp_exchange_free(mp_exchange *MP_NULLABLE exchange);

/* -- what upstreams say without being asked ------------------------------------------------------------------------ */

/* Over stdio and HTTP+SSE all messages of the upstream arrive on the channel's one connection. Over Streamable HTTP
 * they need listen streams: one GET of a channel with a session, and requests whose answer does not end; the worker
 * that opened the channel holds them. A request of the upstream goes to the only exchange that runs on the channel,
 * else to the newest; a message that belongs to no exchange is observed. */

typedef enum {
    MP_OBSERVED_MESSAGE, /* a notification or a request that belongs to no exchange */
    MP_OBSERVED_GAP,     /* messages may be missing: the GET was opened again, or more came than MP_UPSTREAM_QUEUE */
    MP_OBSERVED_ENDED,   /* the stream of a request (or, with the id 0, the GET) has ended; nothing opens it again */
    MP_OBSERVED_LOST     /* the channel was lost */
} mp_observation_kind;

typedef struct {
    mp_observation_kind kind;
    mp_channel *channel; /* the channel may have ended meanwhile */
    mp_str method, bytes;
    mp_str id;         /* id of a request: a span of `bytes` */
    int64_t stream_id; /* ENDED: the id of the request */
    int status;        /* ENDED: HTTP status of the answer to the last attempt; 0: the stream had begun */
} mp_observation;

/* `there_is` is called once when there is something to take, until mp_upstream_observed has returned NULL. It marks
 * and enqueues only. The worker's thread, like the functions below. */
void mp_upstream_observe(mp_upstream_host *host, void (*MP_NULLABLE there_is)(void *ctx), void *MP_NULLABLE ctx);
/* No effect if another observer has taken the place of `ctx`. */
void mp_upstream_observe_no_more(mp_upstream_host *host, const void *ctx);
/* The next observation, valid until the next call; NULL: there is none. */
const mp_observation *MP_NULLABLE mp_upstream_observed(mp_upstream_host *host);

typedef struct mp_listen_stream_opening mp_listen_stream_opening;
typedef struct {
    int64_t id;                             /* of the request; 0: the GET of the channel */
    mp_str message;                         /* the request; empty: GET */
    mp_str revision;                        /* value of the header while the channel is being opened; may be empty */
    const char *const *MP_NULLABLE headers; /* "Name: value"; ends with NULL; may be NULL */
    /* Called when the head of the answer has arrived, or the request has failed. Not before mp_channel_listen returns,
     * not after mp_listen_stream_free. */
    void (*done)(void *ctx);
    void *ctx;
} mp_listen_stream_options;

/* Opens a listen stream, unless it is open. It lives until mp_channel_unlisten or the end of the channel, also after
 * mp_listen_stream_free. */
mp_listen_stream_opening *mp_channel_listen(mp_upstream_host *host, mp_channel *channel,
                                            const mp_listen_stream_options *options);
/* The HTTP status; 200: the stream is open; -1: no answer; 0: not known yet. */
int mp_listen_stream_status(const mp_listen_stream_opening *opening);
void mp_listen_stream_free(mp_listen_stream_opening *MP_NULLABLE opening);
/* A channel that is held is not ended for being idle. Any thread. */
void mp_channel_hold(mp_channel *channel, bool is_held);
/* Closes the stream of the request. Any thread. */
void mp_channel_unlisten(mp_channel *channel, int64_t id);
/* The name of the channel's upstream, and its key, valid as long as the reference. */
mp_str mp_channel_name(const mp_channel *channel);
mp_str mp_channel_key_text(const mp_channel *channel);

/* -- pending exchanges --------------------------------------------------------------------------------------------- */

#define MP_PENDING_HANDLE 33 /* bytes of a handle: 128 random bits as hexadecimal digits, and a NUL */

typedef struct {
    mp_str principal;              /* the principal that may resume it; opaque */
    uint64_t ms;                   /* time limit; 0 or more than MP_UPSTREAM_PENDING_MS means that */
    const mp_str *cancel_messages; /* messages that are sent upstream if nothing takes it up in time; copied */
    size_t cancel_count;
} mp_pending_options;

/* Lets the exchange continue without a task: its slot becomes free, its time limits stop, its events are stored (of
 * progress the latest, of other notifications 64 KiB). True: the caller has the handle in place of the exchange. False:
 * `failure` has the reason. */
bool mp_exchange_make_pending(mp_exchange *exchange, const mp_pending_options *options, char handle[MP_PENDING_HANDLE],
                              mp_upstream_failure *failure);
/* The pending exchange of a handle, on this host from now on; NULL: there is none for this principal. `ready` as in
 * mp_exchange_options. A handle works once. Any worker. */
mp_exchange *MP_NULLABLE mp_exchange_take_up(mp_upstream_host *host, mp_str handle, mp_str principal,
                                             void (*ready)(void *ctx), void *ctx);
/* Keeps bytes for a retry, within the limits of pending exchanges; `options->cancel_messages` is unused. Any thread. */
bool mp_journal_keep(mp_upstreams *table, mp_str bytes, const mp_pending_options *options,
                     char handle[MP_PENDING_HANDLE], mp_upstream_failure *failure);
/* The bytes of a handle; the caller frees them. NULL: none for this principal. A handle works once. Any thread. */
char *MP_NULLABLE mp_journal_take(mp_upstreams *table, mp_str handle, mp_str principal, size_t *len);
/* The client has disconnected and does not know the handle: ends the exchange, or frees the bytes, of any principal.
 * Any thread. */
void mp_pending_abandon(mp_upstreams *table, mp_str handle);
mp_upstreams *mp_upstream_host_table(const mp_upstream_host *host);

/* -- catalogues ---------------------------------------------------------------------------------------------------- */

#define MP_CATALOGUE_HASH 32

typedef enum { MP_PUBLISH_NEW, MP_PUBLISH_EQUAL, MP_PUBLISH_UNKNOWN, MP_PUBLISH_TOO_LARGE } mp_publish_result;

/* Stores `bytes` as the catalogue of the class. `hash` is their SHA-256. EQUAL: the class had these bytes already; or a
 * reload has replaced the upstream `claimed` by another one, so that its lists are no longer used. `claimed` may be
 * NULL. Any thread. */
mp_publish_result mp_catalogue_publish(mp_upstreams *table, mp_upstream *MP_NULLABLE claimed, mp_str name,
                                       mp_str class_name, mp_str bytes, const unsigned char hash[MP_CATALOGUE_HASH]);
/* The number of catalogues that were published and differed from the one before. A thread that sees a catalogue reads
 * at least the number that it was published with. Any thread. */
int64_t mp_catalogue_publications(const mp_upstreams *table);
typedef struct mp_catalogue mp_catalogue;
/* The first character of the name of a class that belongs to one caller. It is also in the key of each channel of that
 * caller, and in no other. An upstream keeps 256 of them. */
#define MP_CALLER_CLASS '@'
/* Calls found(class, hash, ctx) for each class of a caller that has a catalogue, under the upstream's lock: it may not
 * wait, nor call this module. Any thread. */
void mp_catalogue_each_caller(mp_upstreams *table, mp_str name, void (*found)(mp_str, mp_str, void *), void *ctx);
/* A counted reference; NULL: none was published. `*is_stale`: it was published before a reload changed the upstream's
 * connection. Any thread. */
mp_catalogue *MP_NULLABLE mp_catalogue_find(mp_upstreams *table, mp_str name, mp_str class_name, bool *is_stale);
mp_str mp_catalogue_bytes(const mp_catalogue *catalogue);
mp_str mp_catalogue_hash(const mp_catalogue *catalogue);
void mp_catalogue_unref(mp_catalogue *MP_NULLABLE catalogue);
/* Single flight over all workers: the claimed upstream if no other task lists this class now, else NULL. The caller
 * releases it. */
mp_upstream *MP_NULLABLE mp_catalogue_claim(mp_upstreams *table, mp_str name, mp_str class_name);
void mp_catalogue_release(mp_upstream *claimed, mp_str class_name);

#endif
