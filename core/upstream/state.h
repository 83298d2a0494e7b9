/* state.h: the structs of this module. A comment says which lock or thread guards each member. Locks are taken in this
 * order, and never two of a kind: the table, an upstream, the catalogues. */
#ifndef MP_UPSTREAM_STATE_H
#define MP_UPSTREAM_STATE_H

#include "upstream/upstream.h"
#include <pthread.h>
#include <stdatomic.h>

typedef struct mp_upstream_transport mp_upstream_transport;
typedef struct mp_channel_key mp_channel_key;
typedef struct mp_own_exchange mp_own_exchange;

/* A copy of one upstream's configuration. Immutable and counted. */
typedef struct {
    atomic_int refs;
    mp_upstream_config it;
    mp_upstream_limits limits;
    mp_address_policy policy; /* URL: the addresses to which its host name may lead */
    char *MP_NULLABLE url;    /* URL: normalized */
} mp_upstream_part;

typedef struct {
    bool is_open;   /* until retry_at only a probe is sent */
    bool is_probed; /* a task probes since probed_at */
    uint64_t probed_at;
    int64_t in_row;          /* failures since the last success */
    unsigned openings;       /* times that it opened since the last success */
    uint64_t retry_at;       /* ms of the monotonic clock */
    uint64_t changed_at;     /* when it was opened or closed, in ms; 0: never */
    uint64_t window_at;      /* start of the current half of the window, in ms */
    int64_t done[2], bad[2]; /* results in the current and the previous half of the window */
} mp_circuit;

#define MP_UPSTREAM_ENDS 5 /* programs of an upstream that may end by themselves in a minute */
#define MP_TIME_STEPS 112  /* steps of a factor of 2^(1/4), from 1 us */

typedef struct mp_catalogue_class {
    mp_node node; /* its key is the class */
    mp_catalogue *catalogue;
    bool is_claimed;
    bool is_stale; /* the catalogue was read before a reload changed the connection */
    uint64_t used; /* for a class of one caller: the value of the upstream's class_uses at its last use */
} mp_catalogue_class;

/* A limit that all upstreams share, and the requests for a channel that wait for it, oldest first. */
typedef struct {
    mp_account used;
    atomic_bool has_freed; /* a place was given back since mp_upstreams_serve_waiting last looked */
    mp_link waiting;       /* of mp_channel_request, by its member in_cap */
    int64_t waiters;
} mp_cap;

struct mp_upstreams {
    pthread_mutex_t lock; /* guards the members up to the empty line */
    mp_map by_name;       /* of mp_upstream: the upstreams of the configuration */
    mp_link all;          /* of mp_upstream, by its member in_all; also those that a reload removed from by_name */
    mp_map owners;        /* of owner: sessions that have channels of their own */
    mp_upstream_limits limits;
    mp_link hosts; /* of mp_upstream_host */
    int host_count, ended_hosts;

    pthread_mutex_t catalogue_lock; /* guards `catalogues` and `publications`; no lock is taken after it */
    mp_map catalogues;              /* of mp_catalogue, by their hash */
    _Atomic int64_t publications;   /* catalogues that replaced others */

    struct mp_pending_table *pending;
    atomic_int
        pending_ends; /* messages that end pending exchanges, on their way to the workers of the pending exchanges */
    atomic_bool has_ended_pending; /* true once the process is stopping: no exchange is pending any more */

    atomic_int owned; /* channels that belong to sessions */
    /* guards the lists of `channels` and `processes`; taken after an upstream's lock, or alone */
    pthread_mutex_t cap_lock;
    mp_cap channels, processes; /* against limits.upstreams */
    _Atomic uint64_t swept_at, serial;
    atomic_bool is_ending;
    char instance[33];
    char *hops;    /* marks of the gateways that run this one as a program, at any depth, and its own */
    int hop_count; /* number of gateways in `hops` that started this one as a program */
};

/* Counts an open channel of a class (report.c). */
void mp_upstream_report_class(mp_upstream_report *report, const char *name);
/* Replaces a process id of a program in the list of the upstream; 0: none (report.c). Takes the lock. */
void mp_upstream_note_pid(mp_upstream *upstream, int64_t before, int64_t now);

/* Series of /metrics (metrics.c). */
typedef struct {
    mp_series calls, not_run, unknown, retries, seconds;
} mp_upstream_series;

mp_upstream_series mp_upstream_series_of(mp_str name);

struct mp_upstream {
    atomic_int refs;
    mp_upstreams *table;
    const mp_upstream_transport *transport;
    char *name;
    mp_node node;   /* in by_name of the table, guarded by its lock */
    mp_link in_all; /* guarded by the table's lock */
    mp_link in_sweep;
    _Atomic int64_t pending; /* number of its exchanges that wait for a client's retry */

    pthread_mutex_t lock; /* guards all that follows */
    mp_upstream_part *part;
    bool is_retired; /* a reload has replaced or removed it */
    uint64_t drained_at;
    mp_map keys; /* of mp_channel_key */
    int64_t channels, opening;
    mp_link room;           /* requests for a channel that wait for a limit of channels or processes */
    mp_link running;        /* exchanges that have a slot, or need none, by their member in_upstream */
    mp_link waiting;        /* exchanges that wait for a slot, by their member in_upstream */
    int64_t calls, waiters; /* slots taken; exchanges that wait */
    mp_circuit circuit;
    bool is_unauthorized;          /* the last answer to the gateway's own credential was a refusal */
    bool cannot_open;              /* opening a shared channel failed, and nothing was answered since */
    mp_upstream_state noted_state; /* the state in the last log line about the upstream */
    int64_t noted_at;              /* time of the last log line, in seconds since 1970; 0: there was none */
    mp_map classes;                /* of mp_catalogue_class */
    uint64_t class_uses;
    mp_upstream_series series;
    uint64_t ends[MP_UPSTREAM_ENDS]; /* times at which the last programs have ended by themselves, in ms */
    unsigned end_count;
    char end_why[88];       /* why the last program ended */
    _Atomic int64_t places; /* processes that are counted for the upstream, started or not */
    int64_t processes;
    uint64_t memory;                /* memory of its processes in bytes, as measured last */
    int64_t pids[MP_UPSTREAM_PIDS]; /* process ids of its programs; 0: a free place */
    uint64_t loss_logged_ms;        /* when a line of the log named lost sessions last; 0: never */
    uint64_t total_calls, total_errors, total_lost, total_dropped, total_refused, total_opened, total_starts;
    uint32_t times[MP_TIME_STEPS];
    char revision[24], error[160];
    int64_t error_at;
    char *MP_NULLABLE definitions; /* text of mp_upstreams_describe; NULL: none */
};

typedef enum {
    MP_KEY_IDLE,    /* no channel, and no claim */
    MP_KEY_CLAIMED, /* `channel` is being opened */
    MP_KEY_OPEN,    /* `channel` is open */
    MP_KEY_RESTING, /* opening failed: refused until retry_at */
    MP_KEY_BARRED   /* the credential was refused: refused until retry_at */
} mp_key_state;

/* One sharing key: at most one channel at a time. Guarded by the upstream's lock. Freed by the sweep. */
struct mp_channel_key {
    mp_node node;
    mp_key_state state;
    mp_channel *channel; /* CLAIMED, OPEN: a counted reference */
    mp_link requests;    /* of mp_channel_request that wait, oldest first */
    unsigned failures;
    uint64_t retry_at;
    char why[160];
};

/* A channel, from its claim to its end. A later channel with the same key is another struct. */
struct mp_channel {
    atomic_int refs;
    mp_upstream *upstream; /* a counted reference */
    const mp_upstream_transport *transport;
    mp_upstream_part *part; /* a counted reference: as configured when it was claimed */
    uint64_t serial;
    _Atomic int64_t next_id;

    mp_channel_key *MP_NULLABLE key; /* guarded by the upstream's lock; NULL once the channel has ended */
    bool is_claimed, is_open, is_lost;
    bool is_probe; /* the channel is opened while the circuit breaker is open; the outcome decides whether it closes */
    bool is_held;  /* mp_channel_hold: the channel is not ended for being idle */
    bool is_fresh; /* no exchange has begun since the channel was opened */
    bool ends_unused; /* the channel ends with its last exchange, since its task has ended */
    int64_t running;  /* exchanges that run on the channel */
    /* messages without an answer that are on their way; the message that ends a session is sent after them */
    atomic_int said;
    uint64_t used_at;
    /* server_info, revision and session are set once, before is_open, and are read without the lock after `is_open` was
     * seen. */
    char *MP_NULLABLE server_info;
    char *MP_NULLABLE revision;
    char *MP_NULLABLE session;
    size_t server_info_len;
    char class[MP_UPSTREAM_CLASS]; /* guarded by the upstream's lock; "": none */
    char *MP_NULLABLE token;       /* guarded by the upstream's lock; NULL: none */

    /* `owner` and `in_owner` are guarded by the table's lock; NULL: the channel belongs to no session */
    struct mp_channel_owner *MP_NULLABLE owner;
    mp_link in_owner;
    mp_link in_ended; /* in the list of channels to close, until mp_channel_close_soon; thread that ends the channel */

    /* From here on "worker's thread" says that the thread of `worker` alone uses the member. */
    atomic_bool has_place;    /* a process is counted for the channel but was not started */
    mp_upstream_host *worker; /* the worker that claimed it; never changes */
    char *MP_NULLABLE given;  /* the session id that the upstream gave while the channel was opened; worker's thread */
    void *MP_NULLABLE connection; /* of the transport, on the worker's thread; NULL: not made yet, or closed */
    mp_link listen_streams;       /* listen streams; worker's thread */
    bool has_gap;                 /* an MP_OBSERVED_GAP waits to be taken; worker's thread */
    int64_t strays; /* requests of the upstream that belong to no exchange, since `strays_since_ms`; worker's thread */
    uint64_t strays_since_ms;
    char *key_text;     /* the text of the channel's key */
    mp_link exchanges;  /* transports of one worker: exchanges that were given to `send` and are not over, oldest first;
                           worker's thread */
    mp_message closing; /* posted once, to the worker */
    mp_upstream_host *closing_host; /* the worker that `closing` was posted to */
    bool closing_is_lost;
    bool is_closed; /* `close` was called; worker's thread */
};

struct mp_channel_request {
    atomic_int refs; /* a reference of the task, and one of a message that was posted and not delivered */
    mp_upstream_host *host;
    void (*MP_NULLABLE done)(void *ctx); /* NULL once the task has freed it; on its thread */
    void *ctx;
    mp_upstream *upstream; /* a counted reference */
    mp_message message;
    mp_str key; /* in `bytes` */
    uint64_t open_ms;

    mp_link link; /* guarded by the upstream's lock: in requests of a key, or in room of the upstream */
    const char *MP_NULLABLE lacks; /* guarded by the upstream's lock: why it waits in room; NULL: it waits for a key */
    /* `cap` and `in_cap` are guarded by the table's cap_lock. The limit that the request waits for; NULL: none. */
    mp_cap *MP_NULLABLE cap;
    mp_link in_cap;
    mp_channel_request_result result; /* guarded by the upstream's lock until the message is delivered */
    mp_channel *MP_NULLABLE channel;
    mp_upstream_failure failure;
    char bytes[];
};

typedef struct mp_queued_event mp_queued_event;

/* A message of an upstream that waits for the task of its exchange. */
struct mp_queued_event {
    mp_link link;
    mp_message message; /* posted to the task's thread */
    mp_own_exchange *exchange;
    mp_exchange_event event;
    size_t size; /* bytes that count for the limits of a queue */
    char bytes[];
};

/* True for a question that came beside the stream of its request: which request asks is a guess. */
static inline bool mp_event_is_guess(const mp_exchange_event *event)
{
    return event->kind == MP_EVENT_REQUEST && event->status == 0;
}

/* The functions of upstream.h that each kind of exchange implements; on the thread of its task. */
typedef struct {
    /* The next event, which the caller frees; NULL: none has arrived. */
    mp_queued_event *MP_NULLABLE (*take)(mp_exchange *exchange);
    bool (*reply)(mp_exchange *exchange, mp_str message);
    void (*cancel)(mp_exchange *exchange, mp_str message);
    bool (*make_pending)(mp_exchange *exchange, const mp_pending_options *options, char handle[MP_PENDING_HANDLE],
                         mp_upstream_failure *failure);
    void (*leave)(mp_exchange *exchange); /* mp_exchange_free: the task does not need the exchange any more */
} mp_exchange_kind;

/* An exchange as its task sees it; on the task's thread. */
struct mp_exchange {
    const mp_exchange_kind *kind;
    mp_channel *channel;
    mp_upstream_host *host; /* the worker of the task */
    int64_t id;
    void (*MP_NULLABLE ready)(void *ctx);
    void *ctx;
    mp_link events;                     /* list of mp_queued_event: events that have arrived and were not taken */
    mp_queued_event *MP_NULLABLE taken; /* the event that was taken last, which the task may still read */
    bool is_ended;                      /* no more events arrive */
    mp_upstream_failure failure;
    char *MP_NULLABLE given; /* the session id in the head of the answer, if the exchange is_opening */
};

/* An exchange that a task of this worker has sent, and that this worker holds, also while it is pending. The other
 * kind, for a task that has taken up a pending one, is the mp_resumed_exchange of pending.h.
 *
 * Its flags by its state, after each function of exchange.c (0, 1, or - for either). Builds for specs assert the
 * columns of the task's thread (check_flags). `was_sent` and `is_settled` are 0 until it runs, and may be either from
 * then on; the other flags are as mp_exchange_options has set them.
 *
 *                      task's thread                                                              upstream's lock
 *                      is_      is_    has_    has_    failure  is_     asks_     is_       has_  is_     is_
 *                      started  ended  answer  result  .reason  pending  too_much  detached  slot  listed  waiting
 *   waits for a slot   0        0      0       0       0        0       0         0         0     1       1
 *   has got the slot   0        0      0       0       0        0       0         0         1     1       0
 *   runs               1        0      0       0       0        0       -         - (1)     - (2) 1       0
 *   is pending         1        0      0       0       0        1       -         0         0     1       0
 *   was answered       1        1      1       - (3)   0        -       -         -         0     0       0
 *   has failed         - (4)    1      0       0       1        -       -         -         0     0       0
 *   was cancelled      -        1      0       0       0        -       -         -         0     0       0
 *
 *   (1) 1 only without an id: a notification is sent, though its task has left.
 *   (2) 0 without an id, and on a channel that is being opened, whose messages must not wait.
 *   (3) 0 if the answer is an error, or if the upstream has only accepted the message.
 *   (4) 0 also if the worker of the channel took no more messages. */
struct mp_own_exchange {
    mp_exchange super; /* has a counted reference of the channel */
    atomic_int refs;
    const mp_upstream_transport *transport;
    mp_upstream_part *part; /* a counted reference */
    bool has_id;
    bool takes_questions;                      /* the task of the exchange can ask a client */
    bool is_trial, is_opening;                 /* mp_exchange_options */
    mp_str message, cancel, revision, session; /* texts in memory of the exchange */
    char **MP_NULLABLE headers;                /* ends with NULL; NULL: none */
    size_t answer;                             /* cap in bytes */
    uint64_t timeout_ms, total_ms;

    mp_link in_upstream;                  /* guarded by the upstream's lock */
    bool has_slot, is_listed, is_waiting; /* is_waiting: it is among those that wait for a slot */

    /* Members for the task's thread. */
    mp_link in_host; /* in host->unfinished */
    mp_timer silence, total;
    uint64_t began_us;
    bool is_started;    /* the exchange was passed to the transport */
    bool has_answer;    /* the answer is among the events, or was taken */
    bool has_result;    /* the answer is a result, no error */
    bool is_detached;   /* the task has left; the message was posted and not delivered */
    mp_message granted; /* a slot became free; posted to `host` */

    mp_account queued; /* bytes of events that the task has not taken */
    bool is_settled;   /* the answer or the failure was posted to the task; for the transport's thread */

    atomic_bool was_sent;   /* the upstream may have received the message */
    int64_t questions;      /* requests of the upstream that the task has not answered; task's thread */
    int64_t all_questions;  /* requests of the upstream so far; task's thread, like `asks_too_much` */
    bool asks_too_much;     /* more than MP_UPSTREAM_QUESTIONS: the exchange ends in this turn or the next */
    atomic_bool is_pending; /* written on the task's thread */
    /* ms of the monotonic clock at which total_ms is over; pending: the ms that were left. Task's thread */
    uint64_t total_at;

    /* Members for the thread of the transport: the worker's, or the task's. */
    mp_link in_channel;
    void *MP_NULLABLE request; /* of the transport; NULL: it has none for the exchange */
};

struct mp_upstream_host {
    mp_upstreams *table;
    mp_link in_table; /* guarded by the table's lock */
    mp_loop *loop;
    mp_client *client;
    mp_client *stream_client;                   /* HTTP client for streams that do not end */
    mp_link listen_streams, hot_listen_streams; /* all listen streams; those with bytes to read */
    /* Gives a question, a whole message, to another exchange of the channel, because that which had it has ended: the
     * newest whose task can ask a client. If there is none, the question is observed, and refused. Any thread. */
    void (*hand_on)(mp_channel *channel, mp_str bytes);
    mp_link observed; /* observations that Lua has not taken */
    size_t observed_bytes;
    void *MP_NULLABLE observation; /* the observation that was taken last */
    void (*MP_NULLABLE on_observed)(void *ctx);
    void *MP_NULLABLE observer;
    uint64_t observer_told_at; /* ms when the observer was notified; 0: it has taken everything */
    mp_link hot;               /* HTTP requests where something has arrived, by their member `hot` */
    mp_link requests;          /* all HTTP requests of this host */
    size_t said;               /* number of `requests` without an answer: notifications and replies */
    mp_link unfinished;        /* exchanges of this host's tasks that have not ended, each with a counted reference */
    size_t held, most_held;    /* bytes of HTTP bodies that are incomplete, and their limit */
    /* bytes of messages that exchanges on other threads have sent to this host, and that have not arrived */
    mp_account ordered;
    mp_link processes, streams; /* connections of the transports stdio and sse */
    uint64_t sweep_us;          /* when this host checks next whether the table's sweep is due, in us */
    mp_link pending;            /* of mp_pending_exchange that this worker has sent, and that are not over */
    uint64_t pending_end_by;    /* ms; 0: mp_upstream_host_end was not called */
    uint64_t end_by;            /* ms; 0: mp_upstream_host_end was not called */
    atomic_bool is_over;        /* the loop has ended */
    mp_envelope envelope;       /* reused for each message that is read */
};

/* -- config.c ------------------------------------------------------------------------------------------------------ */

extern const mp_upstream_limits mp_upstream_default_limits;
mp_upstream_part *mp_upstream_part_new(const mp_upstream_config *config, const mp_upstream_limits *limits);
mp_upstream_part *mp_upstream_part_ref(mp_upstream_part *part);
void mp_upstream_part_unref(mp_upstream_part *MP_NULLABLE part);
/* True if channels of `a` are channels of `b`. */
bool mp_upstream_part_connects_like(const mp_upstream_part *a, const mp_upstream_config *b);

/* -- circuit.c: pure functions, under the upstream's lock ---------------------------------------------------------- */

typedef enum { MP_CIRCUIT_PASS, MP_CIRCUIT_PROBE, MP_CIRCUIT_REFUSE } mp_circuit_answer;
/* Whether a task may call now. PROBE: only this task may, for `probe_ms` from mp_circuit_begin_probe() on. REFUSE:
 * `*wait_ms` until the next attempt. */
mp_circuit_answer mp_circuit_ask(const mp_circuit *circuit, uint64_t now, uint64_t probe_ms, uint64_t *wait_ms);
void mp_circuit_begin_probe(mp_circuit *circuit, uint64_t now);
/* The task that was to probe has ended without a result: another task may probe after the shortest pause. Does nothing
 * if there was a result. */
void mp_circuit_give_up_probe(mp_circuit *circuit, uint64_t now, const mp_upstream_config *config);
void mp_circuit_success(mp_circuit *circuit, uint64_t now);
void mp_circuit_failure(mp_circuit *circuit, uint64_t now, const mp_upstream_config *config);
/* True while requests for a channel of the key are refused, because opening one failed. Under the upstream's lock. */
bool mp_channel_key_rests(const mp_channel_key *key, uint64_t now);
/* ms until the next request for a channel of the key is tried: the key and the circuit both allow it. Under the
 * upstream's lock. */
uint64_t mp_channel_key_wait_ms(const mp_upstream *upstream, const mp_channel_key *key);
/* The time of rest after `count` failures (1 or more): doubles from `least` to `most`, give or take a fifth. */
uint64_t mp_backoff_ms(unsigned count, uint64_t least, uint64_t most);

/* -- failure.c ----------------------------------------------------------------------------------------------------- */

#define MP_FAILURE_BODY 4096 /* bytes of an HTTP body that a failure keeps */

mp_upstream_failure mp_upstream_failure_of(mp_failure_reason reason, bool may_have_run, const char *why);
/* True if the failure says that the upstream is not there, not that it answered with an error. */
bool mp_upstream_failure_is_outage(const mp_upstream_failure *failure);

/* -- hops.c -------------------------------------------------------------------------------------------------------- */

/* Sets the members hops and hop_count of a table, whose member `instance` is set. */
void mp_upstreams_read_hops(mp_upstreams *table);
/* The text of the environment variable MOONPOOL_HOPS for a program that is an upstream. The caller frees it. NULL:
 * MAX_HOPS gateways in a row have started each other already. */
char *MP_NULLABLE mp_upstreams_hops_variable(const mp_upstreams *table);

/* -- record.c ------------------------------------------------------------------------------------------------------ */

/* A host whose loop has not ended; NULL: there is none. */
mp_upstream_host *MP_NULLABLE mp_upstreams_live_host(mp_upstreams *table);
/* The upstream of this name, with a counted reference; NULL: there is none. */
mp_upstream *MP_NULLABLE mp_upstreams_find(mp_upstreams *table, mp_str name);
/* Makes an upstream with one reference. */
mp_upstream *mp_upstream_new(mp_upstreams *table, mp_upstream_part *part, const mp_upstream_transport *transport);
/* Takes and gives back counted references to an upstream. */
mp_upstream *mp_upstream_ref(mp_upstream *upstream);
void mp_upstream_unref(mp_upstream *upstream);
/* Records a failure of the upstream for people and the circuit. Under the upstream's lock. */
void mp_upstream_note_failure(mp_upstream *upstream, const mp_upstream_failure *failure);
/* True for a channel that one caller has by auth.exchange: the upstream's answers to that caller's token say nothing
 * about other callers. */
bool mp_channel_key_is_of_caller(const mp_channel_key *key);
/* The state of the upstream as /status, gauges and scripts show it. Under the upstream's lock. */
mp_upstream_state mp_upstream_state_of(const mp_upstream *upstream);
/* Writes the log line of a change of mp_upstream_state_of(). Call it wherever that may have changed, under the
 * upstream's lock. */
void mp_upstream_note_state(mp_upstream *upstream);
/* An upstream has answered on a channel, or opened it. Under the upstream's lock. */
void mp_upstream_note_answer(mp_upstream *upstream, const mp_channel_key *MP_NULLABLE key);

/* -- catalogue.c --------------------------------------------------------------------------------------------------- */

/* Gives the catalogues of an upstream to the one that a reload puts in its place, as stale ones. Without the lock of an
 * upstream. */
void mp_catalogues_carry(mp_upstream *from, mp_upstream *to);

/* -- acquire.c ----------------------------------------------------------------------------------------------------- */

/* The functions of acquire.c are called under the upstream's lock. */
/* Resumes the task whose request for a channel has waited and has a result now. */
void mp_channel_request_wake(mp_channel_request *request);
void mp_channel_request_refuse(mp_channel_request *request, mp_failure_reason reason, const char *why,
                               uint64_t retry_ms);
/* Decides again, in their order, about all requests for a channel that wait in the list. The caller closes the channels
 * in `ended` without the lock. */
void mp_channel_requests_pump(mp_link *waiting, mp_link *ended);
/* Ends the channel that was idle longest, if it was idle for a second. Under the upstream's lock; the caller closes the
 * channels in `ended` without it. */
bool mp_channels_evict(mp_upstream *upstream, mp_link *ended);
/* The time of the last use of the channel that mp_channels_evict would end; UINT64_MAX: there is none. Under the
 * upstream's lock. */
uint64_t mp_channels_idle_since(const mp_upstream *upstream);
/* Gives a counted channel or process back. */
void mp_cap_release(mp_cap *cap);

/* -- evict.c ------------------------------------------------------------------------------------------------------- */

/* Ends idle channels of any upstream while requests for a channel wait for limits.upstreams. `list`: all upstreams. The
 * caller holds no lock. */
void mp_upstreams_make_room(mp_upstreams *table, mp_upstream *const *list, size_t count);
/* Serves requests for a channel that wait for limits.upstreams, in their order, if there may be room since the last
 * time. The caller holds no lock. */
void mp_upstreams_serve_waiting(mp_upstreams *table);

/* -- channel.c ----------------------------------------------------------------------------------------------------- */

/* A new channel that the task of `worker` has to open. Under the upstream's lock; the channel is counted already. */
mp_channel *mp_channel_claim(mp_upstream *upstream, mp_channel_key *key, mp_upstream_host *worker);
/* Starts a process that was counted for the channel, or else counts one more. False: limits.upstreams.processes run. */
bool mp_channel_use_place(mp_channel *channel);
/* The channel needs no process any more: gives back a process that was counted for it and not started. */
void mp_channel_release_place(mp_channel *channel);
/* Closes the channels of a list (`in_ended`). The caller holds no lock of an upstream. */
void mp_channels_close(mp_link *ended, bool is_lost);
/* Ends the channel: its key is free. Under the upstream's lock; the caller then calls mp_channel_close_soon without it.
 * True if it had not ended before: then the caller has a counted reference. */
bool mp_channel_detach(mp_channel *channel, bool is_lost);
/* Posts the end to the channel's worker, and gives the counted reference back. */
void mp_channel_close_soon(mp_channel *channel, bool is_lost);
/* Ends the channels of this worker. The caller holds no lock. */
void mp_channels_end_worker(mp_upstream *upstream, const mp_upstream_host *worker);
/* Closes idle channels, frees keys without channels, and wakes requests for a channel that wait. The caller holds no
 * lock. */
void mp_channels_sweep(mp_upstream *upstream, uint64_t now);
/* A session that owns channels; in table.owners. */
typedef struct mp_channel_owner {
    mp_node node;
    mp_link channels;
} mp_channel_owner;

/* -- exchange.c ---------------------------------------------------------------------------------------------------- */

/* Counts the bytes of an event that waits for the task. False if there would be more than `most`; INT64_MAX: counts in
 * any case. */
bool mp_exchange_hold(mp_own_exchange *exchange, size_t size, int64_t most);
void mp_exchange_release(mp_own_exchange *exchange, size_t size);
/* Gives an event, whose bytes are counted, to the task of the exchange, and takes it over. `here`: the host of the
 * calling thread. */
void mp_exchange_pass(mp_own_exchange *exchange, const mp_upstream_host *here, mp_queued_event *event);
/* mp_exchange_make_pending for an own exchange; in pending/pending.c. */
bool mp_own_exchange_make_pending(mp_exchange *exchange, const mp_pending_options *options,
                                  char handle[MP_PENDING_HANDLE], mp_upstream_failure *failure);
/* The next event; NULL: none has arrived. The caller frees it, and releases its size. On the task's thread. */
mp_queued_event *MP_NULLABLE mp_exchange_take_event(mp_own_exchange *exchange);
/* The task of a started exchange leaves it for a while: the slot is given back, the time limits stop. On the task's
 * thread. */
void mp_exchange_pause(mp_own_exchange *exchange);
/* Ends mp_exchange_pause: a task waits for the exchange again. */
void mp_exchange_go_on(mp_own_exchange *exchange);
/* Sends a message to the upstream for the exchange, such as a reply or a cancellation. */
void mp_exchange_say(mp_own_exchange *exchange, mp_str message);
/* Ends the exchange with a failure, and cancels it at the upstream. */
void mp_exchange_end_with(mp_own_exchange *exchange, mp_failure_reason reason, const char *why);

/* Ends all exchanges of the host's tasks, because its loop has ended. */
void mp_exchanges_end(mp_upstream_host *host);

/* Fails all exchanges that run on an upstream or wait for it. Any thread; the caller holds no lock. */
void mp_exchanges_stop(mp_upstream *upstream, mp_failure_reason reason, const char *why);
/* Gives exchanges that wait the slots that a higher `calls` allows. Under the upstream's lock. */
void mp_exchanges_grant(mp_upstream *upstream);

/* -- slots.c: all under the upstream's lock ------------------------------------------------------------------------ */

/* Takes a slot, or a place among those that wait for one. MP_FAILURE_NONE, or the reason for a refusal. */
mp_failure_reason mp_slot_enter(mp_upstream *upstream, mp_own_exchange *exchange);
/* Gives the slot of an exchange back while its client is asked a question. The exchange gets a slot again later, above
 * `calls` if need be. Returns the exchange that has got the slot, to which the caller posts `granted`; NULL: none
 * waits. */
mp_own_exchange *MP_NULLABLE mp_slot_give_back(mp_upstream *upstream, mp_own_exchange *exchange);
void mp_slot_take_again(mp_upstream *upstream, mp_own_exchange *exchange);
/* The next exchange that waits gets a slot, if there is one. Returns what mp_slot_give_back returns. */
mp_own_exchange *MP_NULLABLE mp_slot_grant(mp_upstream *upstream);
/* The exchange has ended: gives back its slot, and counts its outcome. Returns what mp_slot_give_back returns. */
mp_own_exchange *MP_NULLABLE mp_slot_leave(mp_upstream *upstream, mp_own_exchange *exchange);

/* Gauges and counters that several files count. */
extern const mp_stat mp_stat_refused_upstream_busy, mp_stat_upstream_dropped_notes;

#endif
