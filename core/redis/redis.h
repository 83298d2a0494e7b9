/* redis.h: connections to servers that speak the protocol of Redis (RESP2).
 *
 *   redis     one connection to one server, for all tasks of a worker: it connects when a command needs it
 *   command   one or more requests that are sent together, and the replies to them
 *   message   what was published on a channel that a subscription follows
 *
 * Everything belongs to the thread of the loop. Replies come in the order of the requests. A request is sent once. */
#ifndef MP_REDIS_REDIS_H
#define MP_REDIS_REDIS_H

#include "net/net.h"

typedef struct mp_redis mp_redis;
typedef struct mp_redis_command mp_redis_command;

typedef struct {
    const char *host; /* lower case; IPv6 without brackets */
    uint16_t port;
    bool is_tls;
    int database;
    mp_str user, password; /* empty: none */
    mp_address_policy policy;
    unsigned holder; /* number of the script that the connection is for, as of mp_outgoing_take; 0: the gateway */
} mp_redis_server;

/* `server` is copied. Both must outlive the connection: `loop` and `client`, which gives addresses and TLS. */
mp_redis *mp_redis_new(mp_loop *loop, mp_client *client, const mp_redis_server *server);
/* Closes the connection. What it had not answered is unavailable or unknown. */
void mp_redis_free(mp_redis *MP_NULLABLE redis);
/* Requests that are queued or not answered. */
size_t mp_redis_load(const mp_redis *redis);

/* How a command ended. */
typedef enum {
    MP_REDIS_WAITS,       /* it has not */
    MP_REDIS_ANSWERED,    /* all replies are there */
    MP_REDIS_UNAVAILABLE, /* it was not sent, and never will be */
    MP_REDIS_UNKNOWN,     /* it was sent, and may have run or may run yet */
} mp_redis_end;

/* `done` runs once when the command has ended, perhaps inside mp_redis_send. It only marks and enqueues. */
mp_redis_command *mp_redis_command_new(void (*done)(void *ctx), void *ctx);
/* Adds a request: its words are copied. Returns -1: it, or all requests together, are too large. */
int mp_redis_command_add(mp_redis_command *command, int count, const char **words, const size_t *lens);
/* Queues the command, which stays the caller's, for a script with the number `script` of mp_holder_number. -1: the
 * connection has too much to do, for all scripts or for this one, and nothing has changed. */
int mp_redis_send(mp_redis *redis, mp_redis_command *command, unsigned script, mp_err *err);
/* Frees a command, now or with its replies. One that has not ended: nobody waits for it any more; what was not sent is
 * never sent, else the replies are read and dropped. `is_late`: because its time is over; a connection whose server has
 * been silent for long is closed then. Returns how it stands; `done` will not run. */
mp_redis_end mp_redis_command_free(mp_redis_command *command, bool is_late);
mp_redis_end mp_redis_end_of(const mp_redis_command *command);
/* Why it is unavailable or unknown; "" if it is not. */
const char *mp_redis_why(const mp_redis_command *command);

/* A value of a reply. A list is followed by its values. */
typedef struct {
    enum { MP_REDIS_NIL, MP_REDIS_INTEGER, MP_REDIS_TEXT, MP_REDIS_ERROR, MP_REDIS_LIST } kind;
    int64_t integer; /* of an integer; of a list: how many values it has */
    mp_str text;     /* of a text or an error; borrowed from the command */
} mp_redis_value;

/* The values of all replies, one after another, for mp_redis_next. Empty: the replies were too large together. */
const char *MP_NULLABLE mp_redis_replies(const mp_redis_command *command);
const char *mp_redis_next(const char *at, mp_redis_value *value);

/* A subscription has a connection of its own, which is opened again when it is lost, and when it is silent. */
typedef struct mp_redis_subscription mp_redis_subscription;

/* Receives the messages of the channel. The functions only mark and enqueue. */
typedef struct {
    void (*message)(void *ctx, mp_str channel, mp_str payload);
    void (*gap)(void *ctx); /* messages may have been missed before the next one: each new connection begins with it */
    void *ctx;
} mp_redis_reader;

/* Begins to follow the channel `channel`, or with `is_pattern` the channels of a pattern. `server`, `channel` and
 * `reader` are copied; `loop` and `client` outlive the subscription. */
mp_redis_subscription *mp_redis_subscribe(mp_loop *loop, mp_client *client, const mp_redis_server *server,
                                          mp_str channel, bool is_pattern, const mp_redis_reader *reader);
/* True if the server has refused it, as an ACL does. It is tried again, with pauses that grow to a minute. */
bool mp_redis_subscription_is_refused(const mp_redis_subscription *subscription);
void mp_redis_subscription_free(mp_redis_subscription *MP_NULLABLE subscription);

const char *mp_redis_version(void); /* of hiredis, which is linked in */

#endif
