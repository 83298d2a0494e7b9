/* transport.h: what a transport to upstreams implements, and what it calls; for the files of this module alone.
 *
 * A transport of one worker has one connection for each channel: a process, or an event stream. The connection belongs
 * to the channel's worker, that of the task that opens it. All functions of the table run on that worker's thread.
 * Exchanges of tasks on other workers are posted to it, and what arrives is posted back: exchange.c does both. Any
 * other transport sends each exchange on the worker of its task.
 *
 * Nothing here may run Lua. The functions that a transport calls may be called inside callbacks of the loop. */
#ifndef MP_UPSTREAM_TRANSPORT_H
#define MP_UPSTREAM_TRANSPORT_H

#include "upstream/state.h"

/* Values of one message, which is read in one step: this many take 10 ms, as 16 MiB of text do. As Lua values they are
 * 64 MB, more than most calls may have. */
#define MP_UPSTREAM_VALUES ((size_t)MP_LIMIT(upstream_values, 1000000))
extern const char mp_many_values[]; /* reason of the failure of a request whose answer has more values */

struct mp_upstream_transport {
    const char *name; /* "http", "sse", "stdio" */
    bool one_worker;  /* a channel has one connection, which belongs to the channel's worker */
    /* Sends exchange->message. With one worker: the first exchange of a channel makes the connection
     * (channel->connection) first; the transport holds the exchange by mp_exchange_ref until the message is written. It
     * sets exchange->was_sent once the upstream may have received a byte, before it may fail. */
    void (*send)(mp_own_exchange *exchange);
    /* Sends a whole message (a reply to a question, a cancellation) on behalf of an exchange; nothing waits for it. */
    void (*say)(mp_own_exchange *exchange, mp_str message, bool is_reply);
    /* The task takes no more events of the exchange: frees the transport's memory for it. If `send` has not written the
     * message yet, it is not written. */
    void (*leave)(mp_own_exchange *exchange);
    /* The task has taken all waiting events. May be NULL. */
    void (*MP_NULLABLE resume)(mp_own_exchange *exchange);
    /* True if the upstream may have received the message. NULL: exchange->was_sent says it, as it
     * does with one worker. */
    bool (*MP_NULLABLE has_sent)(const mp_own_exchange *exchange);
    /* The channel has ended: closes its connection. `is_lost`: the upstream does not know it any more. */
    void (*close)(mp_channel *channel, bool is_lost);
    /* Called at the bottom of each turn of a host with a member of `hot`, `streams` or `processes`. True if it did
     * something. May be NULL. */
    bool (*MP_NULLABLE turn)(mp_upstream_host *host);
    /* True if `turn` has something to do at once: the loop does not wait for events then. Asked where `turn` is called.
     * May be NULL. */
    bool (*MP_NULLABLE has_work)(const mp_upstream_host *host);
    /* The worker ends, and its channels have ended: true once nothing of the transport is left on this host. Called
     * again and again. May be NULL. */
    bool (*MP_NULLABLE end_host)(mp_upstream_host *host);
    /* The loop has ended: frees the remaining memory of the transport. Exchanges fail before. May be NULL. */
    void (*MP_NULLABLE free_host)(mp_upstream_host *host);
};

/* The `hand_on` of all hosts. */
void mp_channel_hand_on(mp_channel *channel, mp_str bytes);

extern const mp_upstream_transport mp_upstream_http, mp_upstream_sse, mp_upstream_stdio;

/* -- http_headers.c ------------------------------------------------------------------------------------------------ */

/* The value of the answer's header, by its lower-case name; empty: it has none. */
mp_str mp_http_header(const mp_transfer *transfer, const char *name);
/* True if Content-Type is this type, with parameters or without. */
bool mp_http_has_type(const mp_transfer *transfer, const char *type);
/* Location of a redirect as operators see it, without query and fragment; empty where it has a user or is no text. */
mp_str mp_http_shown_location(const mp_transfer *transfer);
/* The URL at which a request to `url` has to be sent again (307 and 308), if it has the same origin; the caller frees
 * it. NULL: the answer is no such redirect. */
char *MP_NULLABLE mp_http_redirect(const char *MP_NULLABLE url, const mp_transfer *transfer);

#define MP_FIXED_HEADERS 6
/* Revisions from this one on have no sessions, and a stream that broke cannot be resumed. */
#define MP_FIRST_STATELESS "2026"

typedef struct {
    const char **list; /* ends with NULL */
    size_t count;
    mp_buf text[MP_FIXED_HEADERS];
    size_t texts;
} mp_http_headers;

/* The value of the header Mcp-Session-Id for a request of the channel; NULL: none. A channel that is open has a
 * session; while it is being opened, only the exchange that opens it (`is_opener`) sends the id that it was given. */
const char *MP_NULLABLE mp_http_session(const mp_channel *channel, bool is_opener);
/* The headers of a request: those of the configuration, of the channel, and of the exchange, which may be NULL. */
void mp_http_put_headers(mp_http_headers *to, const mp_upstream_host *host, const mp_channel *channel,
                         const mp_own_exchange *MP_NULLABLE exchange);
void mp_http_clear_headers(mp_http_headers *headers);
/* The failure by the status of an answer: it carries the status, the head and the beginning of the body. In http.c. */
mp_upstream_failure mp_http_status_failure(const mp_transfer *transfer, const mp_buf *body, mp_failure_reason reason,
                                           const char *why);
/* The failure of a transfer that has ended before its answer was complete. In http.c. */
mp_upstream_failure mp_http_lost_failure(const mp_transfer *transfer);
/* A GET of the upstream's URL with these headers, whose answer is read as it comes. The caller adds what to call, and
 * may change the rest. */
mp_outgoing mp_http_outgoing(const mp_upstream_part *part, const char *const *headers);

/* -- what a transport calls, for one exchange ---------------------------------------------------------------------- */

/* A message that belongs to the exchange. `bytes` is one JSON-RPC message, or an array of messages; it is copied.
 * Messages that are no answer to this exchange, no request and no notification are dropped and counted. On the thread
 * of the exchange's task, or, with one worker, of the channel's worker. Returns the number of answers to this exchange
 * (0 or 1). */
int mp_exchange_message(mp_own_exchange *exchange, int status, mp_str bytes);
/* The upstream has accepted a message without an id. */
void mp_exchange_accepted(mp_own_exchange *exchange, int status);
/* There will be no answer. Takes over what `failure` owns. Only the first failure counts, and none after the answer. */
void mp_exchange_fail(mp_own_exchange *exchange, mp_upstream_failure failure);
/* Like mp_exchange_fail, with a reason and a text alone. The failure's may_have_run is exchange->was_sent. */
void mp_exchange_fail_with(mp_own_exchange *exchange, mp_failure_reason reason, const char *why);
/* Like mp_exchange_fail_with, for a failure that a message of the upstream causes. If the answer or such a failure is
 * on its way to the task already, the message is dropped and counted: the task's worker may be stuck. On the
 * transport's thread. */
void mp_exchange_settle(mp_own_exchange *exchange, mp_failure_reason reason, const char *why);
mp_own_exchange *mp_exchange_ref(mp_own_exchange *exchange);
void mp_exchange_unref(mp_own_exchange *MP_NULLABLE exchange);

/* -- what a transport of one worker calls, for a channel ----------------------------------------------------------- */

/* A message has arrived on the connection of the channel, or on a listen stream. A response belongs to an exchange by
 * its id; notifications/progress by its token, which Lua makes equal to the id of its request; a log message to the
 * only exchange that runs. A request goes to the only exchange of the channel, else to the newest one. What belongs to
 * no exchange is observed (observer.c), but for responses and progress, which are dropped and counted. False: the bytes
 * are no JSON-RPC message. On the worker's thread. */
bool mp_channel_message(mp_channel *channel, mp_str bytes);
/* All exchanges of the channel fail with this reason. */
void mp_channel_fail_all(mp_channel *channel, mp_failure_reason reason, const char *why);
/* Gives back the references of `exchanges`, once the channel is closed. Tasks on other workers learn later that their
 * exchanges have ended, perhaps after the end of this loop. */
void mp_channel_drop_exchanges(mp_channel *channel);
/* Counts a message that belongs to no exchange. */
void mp_channel_count_dropped(mp_channel *channel);
/* A message that belongs to the exchange, and was read to `envelope`, on the thread of `here`. Returns the number of
 * answers. */
int mp_exchange_take(mp_own_exchange *exchange, const mp_upstream_host *here, int status, const mp_envelope *envelope,
                     mp_str bytes);
/* The span of a member of an object, a text with its quotation marks; empty if there is none, if it is an array or an
 * object, or if an escape is in the name. */
mp_str mp_message_member(mp_str object, const char *name);
/* The next element of an array, behind whose opening bracket the cursor is; ptr == NULL at its end. */
mp_str mp_message_next(mp_json_cursor *cursor);
/* The connection has ended by itself: all exchanges of the channel fail with this reason, and the next request for a
 * channel opens another one. The transport has closed the connection or will close it; `close` is still called later.
 */
void mp_channel_broken(mp_channel *channel, mp_failure_reason reason, const char *why);
/* A process is about to be started. False: it may not be, because too many have ended by themselves (DOWN, `retry_ms`)
 * or limits.upstreams.processes (BUSY) are used up. Each success is followed by one mp_upstream_stopped. On the
 * worker's thread. */
bool mp_channel_may_start(mp_channel *channel, mp_failure_reason *reason, int64_t *retry_ms);
/* A program has ended by itself, or could not be started. */
void mp_upstream_ended_by_itself(mp_upstream *upstream, const char *why);
/* Sets `failure` of a start that is refused: why the last program ended. */
void mp_upstream_put_ends(mp_upstream *upstream, mp_upstream_failure *failure);
void mp_upstream_stopped(mp_upstream *upstream);
/* Something happened to the upstream that people may want to know; no exchange has failed by it. */
void mp_upstream_note(mp_upstream *upstream, const char *why);

#endif
