/* stream.h: the event streams of sessions, and what is published to them.
 *
 *   reader      an HTTP connection that reads a session's stream: HTTP+SSE's only one, or a GET of Streamable HTTP
 *   feed        an event stream as its client numbers it; it may outlive the connection that carries it
 *   event log   the events of feeds, kept for clients that resume (S-27 to S-31)
 *   topic       any name; it exists while a session subscribes to it or a call listens to it */
#ifndef MP_RPC_STREAM_H
#define MP_RPC_STREAM_H

#include "rpc/session/state.h"

/* topics of one session, or of one call that listens */
#define MP_MAX_SUBSCRIPTIONS MP_LIMIT(subscriptions, 1024)

struct mp_reader {
    mp_session *session;       /* counted reference */
    mp_stream *stream;         /* counted reference */
    mp_feed *MP_NULLABLE feed; /* counted reference; NULL where events have no ids */
    uint64_t number;           /* serial of the feed's call; 0: the session's own stream, or no feed */
    int fd;                    /* the reader's socket: open as long as the session points to this reader */
    bool is_behind;            /* the reader still reads from the event log; only its own thread changes this */
    bool is_replaced;          /* the client has reconnected on another connection; guarded by the session's lock */
    /* while draining: no call of its session ran one sweep ago, so the messages of those calls have arrived */
    bool was_idle;
    mp_rpc *rpc;
    uint64_t serial;    /* among the calls and readers of its rpc, for operators */
    uint64_t began_us;  /* by mp_monotonic_us */
    mp_link link;       /* link in rpc->readers */
    mp_link in_session; /* link in session->readers; guarded by the session's lock, like is_behind */
    mp_timer expiry;
    int64_t expires;  /* when the principal's credentials expire, in seconds since 1970; 0: never */
    uint64_t sign_in; /* of the principal that began to read */
    uint64_t expired_at;
    uint64_t posted; /* the last event posted by another thread; `posted`, both numbers of bytes and `is_overfull` are
                        under the session's lock */
    size_t posted_bytes, posted_answers; /* of messages from other threads on their way: of answers the second */
    bool is_overfull; /* a message of another thread did not fit: the reader's own thread is about to end the stream */
    uint64_t sent;    /* the last event sent on the reader's stream; only its own thread uses this */
};

struct mp_feed {
    mp_link link; /* link in session->log.feeds; guarded, like `refs`, `events` and `lost`, by the event log's lock */
    mp_session *session; /* each owner of a reference to the feed also has a reference to the session */
    mp_event_log *log;
    int refs, events;
    uint64_t lost;   /* the latest event that was dropped; earlier events are not kept either */
    uint64_t number; /* serial of a call; 0: the session's own stream */
    mp_rpc *rpc;     /* rpc of the call; `rpc` and `serial` are for on_resumed */
    uint64_t serial;
    /* Called on the thread of `rpc`: a client now reads the call's feed on another connection. */
    void (*MP_NULLABLE on_resumed)(mp_rpc *rpc, mp_session *session, uint64_t serial);
    /* `last`, `reader`, `is_over` and `is_resumed` are guarded by the session's lock */
    uint64_t last;                 /* the latest event */
    mp_reader *MP_NULLABLE reader; /* reader of a call's feed that a client has resumed; NULL: no such */
    bool is_over;                  /* no event follows; is set under the log's lock, too */
    bool is_resumed;               /* the call's thread knows, or is about to, that its own connection is replaced */
    uint64_t base;                 /* of a revived session: events up to this number are of earlier processes */
    size_t call_len;               /* bytes of the id of the call, of a session that is kept; else 0 */
    char call[];
};

/* -- reader.c ------------------------------------------------------------------------------------------------------ */

/* The gateway drains: ends the streams that carry no call, or all. */
void mp_readers_drain(mp_rpc *rpc, bool all);
/* Ends the stream; over HTTP+SSE its session ends, too. */
void mp_reader_end(mp_reader *reader);
/* Ends the streams of this rpc whose sign-in has ended. */
void mp_readers_sign_out(mp_rpc *rpc);
/* The session was closed: ends its streams on this rpc. */
void mp_readers_end(mp_rpc *rpc, mp_session *session);
/* Makes `stream` (already an event stream) the session's own stream. -1 if the session is closed or a client reads
 * its stream. */
int mp_reader_start(mp_rpc *rpc, mp_session *session, mp_stream *stream);
/* Answers `stream` with the events after `last_event_id`, which the client read on any connection. False if the
 * session has no such event, or a later event is not kept any more. */
bool mp_reader_resume(mp_rpc *rpc, mp_session *session, mp_stream *stream, mp_str last_event_id);

/* A message for the reader of one of a session's streams. */
typedef struct {
    mp_feed *MP_NULLABLE feed; /* NULL: the session's own stream */
    mp_stream *own;            /* the call's own connection, which reads the feed until a client resumes it;
                                * rpc->no_stream: none */
    mp_str json;               /* an event, which gets an id, and is kept if the feed keeps events; or empty */
    mp_str bytes;              /* bytes to send without an id if there is no event; or empty */
    bool hangs_up;             /* the connection ends after this message */
    bool is_last;              /* the feed ends after this message */
    bool is_answer;            /* limits.stream_queue does not bound it */
} mp_parcel;
/* Called on the thread of any rpc. False if no client reads the message and it is not kept. */
bool mp_reader_send(mp_rpc *from, mp_session *session, const mp_parcel *parcel);
/* Send `json` as an event on the session's own stream: mp_transport.notify and .respond of both HTTP transports.
 * Without a session nobody reads it. */
void mp_reader_notify(mp_rpc *from, mp_session *MP_NULLABLE session, mp_str json);
void mp_reader_respond(mp_rpc *from, mp_session *MP_NULLABLE session, mp_str json);
/* True if a client reads the session's own stream: checks the state of its socket. */
bool mp_session_has_reader(mp_session *session);

/* -- event_log.c: under the session's lock, but for new, configure, free, ref and unref ---------------------------- */

/* Returns NULL if the configuration keeps no events. */
mp_event_log *MP_NULLABLE mp_event_log_new(const mp_rpc_config *config);
void mp_event_log_configure(mp_event_log *MP_NULLABLE log, const mp_rpc_config *config);
void mp_event_log_free(mp_event_log *MP_NULLABLE log);
/* The feed of the session's own stream, with a counted reference for the caller. */
mp_feed *mp_feed_new(mp_session *session, mp_event_log *log);
/* The feed of a call, with a counted reference for the caller. */
typedef struct {
    mp_str id; /* of the request, as JSON */
    mp_rpc *rpc;
    uint64_t serial;
    void (*on_resumed)(mp_rpc *rpc, mp_session *session, uint64_t serial);
} mp_feed_call;
mp_feed *mp_feed_new_of_call(mp_session *session, mp_event_log *log, const mp_feed_call *call);
/* No event of the feed follows. */
void mp_feed_end(mp_feed *feed);
void mp_feed_ref(mp_feed *feed);
void mp_feed_unref(mp_feed *feed);
/* Numbers an event; the number is then in feed->last. False if the event is not kept. */
bool mp_feed_put(mp_feed *feed, mp_str json);
/* The feed that an event's id names, with a counted reference, if all later events are kept; `seq` gets the event's
 * number. */
mp_feed *MP_NULLABLE mp_feed_find(mp_session *session, mp_str id, uint64_t *seq);
typedef enum { MP_FEED_ALL, MP_FEED_MORE, MP_FEED_GAP } mp_feed_rest;
/* Appends the events after `*seq`, at most `room` bytes; moves `*seq`. GAP: some events are not kept any more. */
mp_feed_rest mp_feed_read(mp_feed *feed, uint64_t *seq, size_t room, mp_buf *out);
/* The session is closed: drops its events. */
void mp_event_log_forget(mp_session *session);
/* As mp_session_hooks.take_event and end_events. Without the session's lock: no other thread has the session. */
bool mp_feed_revive(mp_session *session, uint64_t number, uint64_t seq, mp_str text);
void mp_feeds_revived(mp_session *session, uint64_t highest);

/* -- pubsub.c: subscribers of topics ------------------------------------------------------------------------------- */

/* One publication in two forms: one for sessions, and one for calls that listen (subscriptions/listen), which is put
 * around the call's id. The process has one index from topics to sessions, and to rpcs with calls that listen. The
 * index has a lock of its own, taken before a session's. All other data belongs to the thread of an rpc. The rpc
 * that publishes sends to sessions; each rpc sends to its own calls. */
typedef struct {
    atomic_int refs;
    mp_str topic, plain, before, after; /* ptr == NULL: there is no publication in this form */
    char bytes[];
} mp_publication;

void mp_publication_unref(mp_publication *publication);

/* A queue of publications. Any thread may put into it, or ask for `count`; the other calls are of the rpc's thread. */
typedef struct {
    pthread_mutex_t lock; /* guards the other members */
    mp_link ring;
    mp_map by_topic; /* the last publication of each topic */
    atomic_size_t count;
    size_t bytes;
    size_t merge_above; /* with this number in the queue, a new publication replaces the last one of its topic */
} mp_publications;

/* Returns NULL if the queue is empty. */
mp_publication *MP_NULLABLE mp_publications_take(mp_publications *queue);

struct mp_publisher {
    mp_publications pending; /* publications of this turn */

    mp_publications to_sessions;
    /* The publication that is being sent to `sessions`; NULL: none. The sessions from index `next` on do not have it
     * yet; the publisher has a counted reference to each of them. */
    mp_publication *MP_NULLABLE sending;
    mp_session **sessions;
    size_t session_count, next;

    mp_publications to_calls;
    /* The publication that is being sent to the calls that listen to its topic; NULL: none. A call whose `notified` is
     * `number` has got it. */
    mp_publication *MP_NULLABLE notifying;
    uint64_t number;
    mp_map topics; /* topics that calls of this rpc listen to: call/listen.c */
};

mp_topics *mp_topics_new(void);
void mp_topics_free(mp_topics *topics);
/* A principal, or the address of anonymous clients, for which bytes of topics are counted. */
typedef struct mp_topic_holder mp_topic_holder;
/* The most bytes that a subscription to the topic takes. */
size_t mp_topic_weight(mp_str topic);
/* Counts `bytes` for the owner `name`. NULL, which is counted, if there is no room for all, or for this one. */
mp_topic_holder *MP_NULLABLE mp_topics_take(mp_topics *topics, mp_str name, size_t bytes);
void mp_topics_give(mp_topics *topics, mp_topic_holder *holder, size_t bytes);
mp_publisher *mp_publisher_new(void);
void mp_publisher_free(mp_publisher *publisher);
/* Records for other rpcs whether calls of this one listen to the topic. */
void mp_topic_set_listened(mp_rpc *rpc, mp_str topic, bool is_listened);
void mp_session_unsubscribe_all(mp_session *session);
/* As mp_session_hooks.put_topics and take_topics. */
void mp_session_put_topics(mp_session *session, mp_buf *out);
void mp_session_take_topics(mp_session *session, mp_str topics);
/* Queues the publications of this turn, and sends at most `budget` messages to sessions. */
void mp_publisher_turn(mp_rpc *rpc, int budget);
/* True if there are publications that this turn has to queue or to send. */
bool mp_publisher_has_news(const mp_rpc *rpc);
/* True if publications remain to be sent. */
bool mp_publisher_has_more(const mp_rpc *rpc);

/* Gauges and counters that other files read or count, too. */
extern const mp_stat mp_stat_closed_gone, mp_stat_dropped_answers, mp_stat_dropped_gone, mp_stat_dropped_slow,
    mp_stat_streams_expired;

#endif
