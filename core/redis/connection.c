/* connection.c: a connection to a server: connects, logs in, sends what tasks have queued, gives each command its
 * replies. A connection that fails is opened again when a command needs it, after a pause that grows. */
#include "connection.h"
#include "replies.h"
#include <errno.h>
#include <hiredis/hiredis.h>
#include <sys/epoll.h>
#include <unistd.h>

MP_GAUGE(redis_connections, "redis_connections", "", "", "open connections of scripts to Redis servers")
MP_GAUGE(redis_requests, "redis_requests", "", "",
         "requests to Redis servers that are queued or not answered, including those whose task waits no longer")
MP_GAUGE(redis_bytes, "redis_bytes", "", "", "bytes of replies of Redis servers that no task has taken yet")
MP_REFUSED(refused_requests, "redis_requests", MP_LIMIT_REACHED,
           "requests to Redis servers above 4,096 or 16 MiB that wait for one connection")

#define MAX_REQUESTS MP_LIMIT(redis_requests, 4096) /* of a connection: what a server answers in some 50 ms */
#define MAX_BYTES ((size_t)16 << 20)                /* of the requests that one connection has not sent */
#define KEPT 8 /* scripts share the last eighth of both: each has as much of it as it leaves to others */
#define MOST_BYTES ((int64_t)MAX_BYTES * KEPT / (KEPT - 1) + KEPT) /* one script may have MAX_BYTES */
#define MAX_HELD ((size_t)16 << 20)     /* bytes of replies that no task has taken: above it nothing more is read */
#define WRITE_BYTES ((size_t)256 << 10) /* handed to the socket at once */
#define READ_BYTES ((size_t)256 << 10)  /* read in one turn: other work of the loop waits meanwhile */
#define CONNECT_MS 5000                 /* until a new connection has logged in */
#define SILENT_MS 3000 /* a server that was silent for so long, while commands ran out of time, counts as dead */
#define IDLE_MS MP_LIMIT(redis_idle_ms, 60000) /* after the last command: servers limit how many clients they have */
#define FIRST_PAUSE_MS 50
#define LAST_PAUSE_MS 5000

typedef enum { CLOSED, DIALING, SHAKING_HANDS, LOGGING_IN, OPEN } stage;

struct mp_redis {
    mp_loop *loop;
    mp_client *client;
    mp_redis_server server; /* owns its texts */
    stage stage;
    mp_dial *MP_NULLABLE dial;
    mp_net_wire wire;
    mp_fdwatch watch;
    uint32_t events; /* that are watched */
    mp_replies *MP_NULLABLE replies;
    const mp_redis_follower *MP_NULLABLE follower;
    unsigned greetings;                /* replies to the login that are missing */
    mp_link waiting, sent, answered;   /* mp_redis_command; answered: their owners have not freed them yet */
    size_t requests, bytes;            /* requests in `waiting` and `sent`; bytes of `waiting` */
    mp_holdings requests_of, bytes_of; /* those of each script */
    mp_buf out;                        /* on its way to the socket */
    size_t out_at;                     /* bytes of it that were written */
    uint64_t put;                      /* bytes that this connection has put into `out` since it was opened */
    mp_timer again;                    /* writes and reads what is left, at the end of the turn */
    mp_timer idle;                     /* closes a connection that has nothing to do */
    mp_timer patience;                 /* time limit of connecting */
    uint64_t used_at;                  /* ms: when a command came last */
    uint64_t heard_at, retry_at;       /* ms: when bytes came last; when it may connect again */
    uint64_t pause_ms;
    size_t held;
    bool is_paused, is_down; /* is_down: a line of the log has said so */
    mp_err why;              /* of the last failure */
};

struct mp_redis_command {
    mp_link link;
    mp_redis *MP_NULLABLE redis; /* NULL: not queued, or the connection was freed */
    mp_buf text;                 /* the requests; empty once they are in `out` */
    unsigned script;             /* a number of mp_holder_number */
    unsigned count, missing;     /* requests; replies that have not come */
    uint64_t from;               /* where the requests begin in the bytes of the connection */
    mp_buf answer;
    size_t held;       /* bytes of `answer` that the connection counts */
    bool is_too_large; /* the replies together: they are dropped */
    mp_redis_end end;
    char *MP_NULLABLE why;
    void (*MP_NULLABLE done)(void *ctx); /* NULL: nobody waits for it */
    void *ctx;
};

static void connect_now(mp_redis *redis);
static void on_again(mp_timer *timer);
static void on_idle(mp_timer *timer);

/* -- commands ------------------------------------------------------------------------------------------------------ */

mp_redis_command *mp_redis_command_new(void (*done)(void *ctx), void *ctx)
{
    mp_redis_command *command = mp_new(sizeof *command);
    command->done = done;
    command->ctx = ctx;
    return command;
}

int mp_redis_command_add(mp_redis_command *command, int count, const char **words, const size_t *lens)
{
    char *text = NULL;
    size_t size = command->text.len;
    for (int i = 0; i < count; i++)
        if (lens[i] > MAX_BYTES || (size += lens[i] + 16) > MAX_BYTES)
            return -1;
    long long len = redisFormatCommandArgv(&text, count, words, lens);
    if (len < 0)
        abort(); /* no memory */
    mp_buf_put(&command->text, (mp_str){text, (size_t)len});
    redisFreeCommand(text);
    command->count++;
    return 0;
}

static void hold(mp_redis *redis, mp_redis_command *command, size_t bytes)
{
    mp_stat_add(&mp_stat_redis_bytes, (int64_t)bytes - (int64_t)command->held);
    redis->held += bytes - command->held;
    command->held = bytes;
    if (redis->is_paused && redis->held < MAX_HELD) {
        redis->is_paused = false;
        mp_timer_start(redis->loop, &redis->again, 0, on_again);
    }
}

/* Counts bytes of the command that wait to be sent. */
static void count_bytes(mp_redis *redis, const mp_redis_command *command, int64_t more)
{
    redis->bytes += (size_t)more;
    mp_holdings_change(&redis->bytes_of, command->script, more);
}

/* The command is in no list of requests any more. */
static void leave(mp_redis *redis, mp_redis_command *command)
{
    mp_link_drop(&command->link);
    redis->requests -= command->count;
    mp_holdings_change(&redis->requests_of, command->script, -(int64_t)command->count);
    mp_stat_add(&mp_stat_redis_requests, -(int64_t)command->count);
    count_bytes(redis, command, -(int64_t)command->text.len);
    mp_buf_clear(&command->text);
}

static void free_command(mp_redis_command *command)
{
    if (command->redis != NULL)
        hold(command->redis, command, 0);
    mp_link_drop(&command->link);
    mp_buf_clear(&command->text);
    mp_buf_clear(&command->answer);
    free(command->why);
    free(command);
}

static void end_command(mp_redis *redis, mp_redis_command *command, mp_redis_end end, const char *MP_NULLABLE why)
{
    leave(redis, command);
    if (command->done == NULL) {
        free_command(command);
        return;
    }
    command->end = end;
    command->why = mp_dup_text(why);
    mp_link_put(&redis->answered, &command->link);
    void (*done)(void *ctx) = command->done;
    command->done = NULL;
    done(command->ctx);
}

mp_redis_end mp_redis_end_of(const mp_redis_command *command)
{
    return command->end;
}

const char *mp_redis_why(const mp_redis_command *command)
{
    return command->why != NULL ? command->why : "";
}

const char *MP_NULLABLE mp_redis_replies(const mp_redis_command *command)
{
    return command->is_too_large ? NULL : command->answer.ptr;
}

/* -- failures ------------------------------------------------------------------------------------------------------ */

static void log_state(mp_redis *redis, bool is_down)
{
    char place[320];
    if (redis->is_down == is_down)
        return;
    redis->is_down = is_down;
    snprintf(place, sizeof place, "%s:%u", redis->server.host, redis->server.port);
    if (is_down)
        mp_log(MP_WARN, "redis unavailable", mp_log_str("server", mp_str_of(place)),
               mp_log_str("why", mp_str_of(redis->why.text)));
    else
        mp_log(MP_INFO, "redis available", mp_log_str("server", mp_str_of(place)));
}

/* Bytes that the server may have got if the connection is closed now: with TLS all, as a part of a record may be sent.
 */
static uint64_t written(const mp_redis *redis)
{
    return redis->wire.ssl != NULL ? redis->put : redis->put - (redis->out.len - redis->out_at);
}

static void close_connection(mp_redis *redis)
{
    mp_dial_cancel(redis->dial);
    redis->dial = NULL;
    mp_timer_stop(redis->loop, &redis->patience);
    mp_timer_stop(redis->loop, &redis->idle);
    mp_timer_stop(redis->loop, &redis->again);
    mp_fdwatch_stop(redis->loop, &redis->watch);
    if (redis->wire.fd >= 0) {
        mp_outgoing_give(1, redis->server.holder);
        mp_stat_add(&mp_stat_redis_connections, -1);
    }
    mp_net_wire_close(&redis->wire);
    mp_replies_free(redis->replies);
    redis->replies = NULL;
    if (redis->out.len > 0)
        explicit_bzero(redis->out.ptr, redis->out.len); /* it may have the password */
    mp_buf_clear(&redis->out);
    redis->out_at = 0;
    redis->events = 0;
    redis->is_paused = false;
    redis->stage = CLOSED;
}

/* Ends what was sent: whether the server has run it is known only if none of it was written. */
static void end_sent(mp_redis *redis, uint64_t until)
{
    MP_EACH(mp_redis_command, command, &redis->sent, link)
        end_command(redis, command, until > command->from ? MP_REDIS_UNKNOWN : MP_REDIS_UNAVAILABLE, redis->why.text);
}

/* The connection has failed. `why` is in redis->why. What was not sent waits for the next connection, if this one had
 * been open. */
static void lose(mp_redis *redis)
{
    bool was_open = redis->stage == OPEN;
    uint64_t until = written(redis), now = mp_loop_now(redis->loop);
    close_connection(redis);
    end_sent(redis, until);
    if (was_open) {
        redis->pause_ms = 0;
    } else {
        uint64_t longest = redis->pause_ms == 0 ? FIRST_PAUSE_MS : redis->pause_ms * 2;
        redis->pause_ms = longest < LAST_PAUSE_MS ? longest : LAST_PAUSE_MS;
        log_state(redis, true);
    }
    redis->retry_at =
        now + redis->pause_ms - (redis->pause_ms > 0 ? (now ^ (uintptr_t)redis >> 4) % (redis->pause_ms / 2) : 0);
    if (!was_open)
        MP_EACH(mp_redis_command, command, &redis->waiting, link)
            end_command(redis, command, MP_REDIS_UNAVAILABLE, redis->why.text);
    else if (!mp_link_is_alone(&redis->waiting))
        connect_now(redis);
    if (redis->follower != NULL)
        redis->follower->lost(redis->follower->ctx);
}

/* -- events -------------------------------------------------------------------------------------------------------- */

static void on_event(mp_fdwatch *watch, uint32_t events);

/* Watches for what the connection waits for. */
static void watch_events(mp_redis *redis)
{
    bool writes = redis->wire.wants_to_write || (redis->stage != SHAKING_HANDS && redis->out_at < redis->out.len);
    uint32_t wanted = (redis->is_paused ? 0 : (uint32_t)EPOLLIN | EPOLLRDHUP) | (writes ? (uint32_t)EPOLLOUT : 0);
    if (redis->watch.slot != 0 && wanted == redis->events)
        return;
    redis->events = wanted;
    if (mp_fdwatch_start(redis->loop, &redis->watch, redis->wire.fd, wanted, on_event) != 0) {
        mp_err_set(&redis->why, "%s", strerror(errno));
        lose(redis);
    }
}

/* Moves commands that wait to `out`, as far as there is room. */
static void take_waiting(mp_redis *redis)
{
    while (redis->stage == OPEN && redis->out.len < WRITE_BYTES && !mp_link_is_alone(&redis->waiting)) {
        mp_redis_command *command = mp_container(redis->waiting.next, mp_redis_command, link);
        mp_link_drop(&command->link);
        mp_link_put(&redis->sent, &command->link);
        command->from = redis->put;
        redis->put += command->text.len;
        count_bytes(redis, command, -(int64_t)command->text.len);
        if (redis->out.len == 0) { /* the usual case: nothing is copied */
            mp_buf empty = redis->out;
            redis->out = command->text;
            command->text = empty;
        } else {
            mp_buf_put(&redis->out, mp_buf_str(&command->text));
        }
        mp_buf_clear(&command->text);
    }
}

/* False: the connection is lost. */
static bool write_out(mp_redis *redis)
{
    for (;;) {
        take_waiting(redis);
        if (redis->out_at == redis->out.len)
            return true;
        ssize_t count = mp_net_wire_write(&redis->wire, redis->out.ptr + redis->out_at, redis->out.len - redis->out_at,
                                          &redis->why);
        if (count < 0) {
            lose(redis);
            return false;
        }
        if (count == 0)
            return true;
        redis->out_at += (size_t)count;
        if (redis->out_at < redis->out.len)
            continue;
        if (redis->stage == LOGGING_IN)
            explicit_bzero(redis->out.ptr, redis->out.len);
        redis->out.len = redis->out_at = 0;
        if (redis->out.cap > WRITE_BYTES)
            mp_buf_clear(&redis->out);
    }
}

/* -- replies ------------------------------------------------------------------------------------------------------- */

mp_str mp_redis_error_kind(mp_str text)
{
    size_t len = 0;
    while (len < text.len && len < 24 && text.ptr[len] >= 'A' && text.ptr[len] <= 'Z')
        len++;
    return len == 0 ? MP_STR("an error") : (mp_str){text.ptr, len};
}

/* A reply to the login. False: it is refused. */
static bool check_greeting(mp_redis *redis, const char *reply)
{
    mp_redis_value value;
    mp_redis_next(reply, &value);
    bool is_ping = redis->greetings == 1, has_select = redis->server.database != 0;
    bool is_select = has_select && redis->greetings == 2;
    if (value.kind != MP_REDIS_ERROR)
        return true;
    mp_str kind = mp_redis_error_kind(value.text);
    if (is_ping && (mp_str_is(kind, "NOPERM") || mp_str_is(kind, "LOADING") || mp_str_is(kind, "MASTERDOWN")))
        return true;
    if (is_ping && mp_str_is(kind, "NOAUTH"))
        mp_err_set(&redis->why, "the server wants a password: %s",
                   redis->server.holder == 0 ? "cluster.redis.password" : "redis.open takes 'user' and 'password'");
    else if (is_ping)
        mp_err_set(&redis->why, "the server refuses connections (%.*s)", MP_STR_ARG(kind));
    else if (is_select)
        mp_err_set(&redis->why, "the server refuses database %d (%.*s)", redis->server.database, MP_STR_ARG(kind));
    else
        mp_err_set(&redis->why, "the server refuses the user or the password (%.*s)", MP_STR_ARG(kind));
    return false;
}

/* True for a list of texts that begins with "message" or "pmessage". Replies to the commands of a follower do not. */
static bool is_message(const char *reply)
{
    mp_redis_value value, kind = {.kind = MP_REDIS_NIL};
    const char *at = mp_redis_next(reply, &value);
    int64_t count = value.kind == MP_REDIS_LIST ? value.integer : 0;
    for (int64_t i = 0; i < count; i++) {
        at = mp_redis_next(at, &value);
        if (value.kind != MP_REDIS_TEXT)
            return false;
        if (i == 0)
            kind = value;
    }
    return (count == 3 && mp_str_is(kind.text, "message")) || (count == 4 && mp_str_is(kind.text, "pmessage"));
}

/* A whole reply has come. False: the connection is lost. */
static bool take_reply(mp_redis *redis, mp_buf *reply)
{
    if (redis->greetings > 0) {
        if (!check_greeting(redis, reply->ptr)) {
            lose(redis);
            return false;
        }
        if (--redis->greetings == 0) {
            redis->stage = OPEN;
            redis->pause_ms = 0;
            mp_timer_stop(redis->loop, &redis->patience);
            mp_timer_start(redis->loop, &redis->idle, (uint64_t)IDLE_MS, on_idle);
            log_state(redis, false);
        }
        return true;
    }
    if (redis->follower != NULL && is_message(reply->ptr)) {
        redis->follower->message(redis->follower->ctx, reply);
        return true;
    }
    if (mp_link_is_alone(&redis->sent)) {
        mp_err_set(&redis->why, "the server sent a reply that nothing has asked for");
        lose(redis);
        return false;
    }
    mp_redis_command *command = mp_container(redis->sent.next, mp_redis_command, link);
    if (command->done != NULL && !command->is_too_large) {
        mp_buf *answer = &command->answer;
        if (answer->len == 0) { /* the usual case: nothing is copied */
            mp_buf own = *answer;
            *answer = *reply;
            *reply = own;
        } else if (answer->len + reply->len > MP_REDIS_REPLY_BYTES) {
            command->is_too_large = true;
            mp_buf_clear(answer);
        } else {
            mp_buf_put(answer, mp_buf_str(reply));
        }
        hold(redis, command, answer->cap);
    }
    if (--command->missing == 0)
        end_command(redis, command, MP_REDIS_ANSWERED, NULL);
    return true;
}

/* False: the connection is lost. */
static bool read_replies(mp_redis *redis)
{
    mp_replies *replies = MP_NEVER_NULL(redis->replies); /* there is one as long as there is a socket */
    char room[16384];
    for (size_t total = 0; total < READ_BYTES && !redis->is_paused;) {
        ssize_t count = mp_net_wire_read(&redis->wire, room, sizeof room, &redis->why);
        if (count < 0) {
            lose(redis);
            return false;
        }
        if (count == 0)
            return true;
        total += (size_t)count;
        redis->heard_at = mp_loop_now(redis->loop);
        mp_replies_feed(replies, (mp_str){room, (size_t)count});
        int found;
        while ((found = mp_replies_next(replies, &redis->why)) > 0)
            if (!take_reply(redis, mp_replies_last(replies)))
                return false;
        if (found < 0) {
            lose(redis);
            return false;
        }
        redis->is_paused = redis->held >= MAX_HELD;
    }
    if (!redis->is_paused && mp_net_wire_has_bytes(&redis->wire))
        mp_timer_start(redis->loop, &redis->again, 0, on_again);
    return true;
}

/* -- connecting ---------------------------------------------------------------------------------------------------- */

static void put_greeting(mp_redis *redis, int count, const char **words, const size_t *lens)
{
    char *text = NULL;
    long long len = redisFormatCommandArgv(&text, count, words, lens);
    if (len < 0)
        abort(); /* no memory */
    mp_buf_put(&redis->out, (mp_str){text, (size_t)len});
    redis->put += (size_t)len;
    redis->greetings++;
    explicit_bzero(text, (size_t)len);
    redisFreeCommand(text);
}

/* Logs in. PING shows that the server answers, which its system alone may have let in. */
static void log_in(mp_redis *redis)
{
    const mp_redis_server *server = &redis->server;
    char database[16];
    redis->stage = LOGGING_IN;
    if (server->password.len > 0) {
        bool has_user = server->user.len > 0;
        const char *words[] = {"AUTH", has_user ? server->user.ptr : server->password.ptr, server->password.ptr};
        size_t lens[] = {4, has_user ? server->user.len : server->password.len, server->password.len};
        put_greeting(redis, has_user ? 3 : 2, words, lens);
    }
    if (server->database != 0) {
        const char *words[] = {"SELECT", database};
        size_t lens[] = {6, (size_t)snprintf(database, sizeof database, "%d", server->database)};
        put_greeting(redis, 2, words, lens);
    }
    put_greeting(redis, 1, (const char *[]){"PING"}, (const size_t[]){4});
}

static void go_on(mp_redis *redis)
{
    if (redis->stage == SHAKING_HANDS) {
        int status = mp_net_wire_shake_hands(&redis->wire, &redis->why);
        if (status < 0) {
            lose(redis);
            return;
        }
        if (status > 0)
            log_in(redis);
    }
    if (redis->stage > SHAKING_HANDS && (!read_replies(redis) || !write_out(redis)))
        return;
    watch_events(redis);
}

static void on_event(mp_fdwatch *watch, uint32_t events)
{
    mp_redis *redis = mp_container(watch, mp_redis, watch);
    if (redis->is_paused && (events & (EPOLLHUP | EPOLLERR)) != 0) { /* it would be reported again and again */
        mp_err_set(&redis->why, "the server closed the connection");
        lose(redis);
        return;
    }
    go_on(redis);
}

static void on_again(mp_timer *timer)
{
    mp_redis *redis = mp_container(timer, mp_redis, again);
    if (redis->wire.fd >= 0)
        go_on(redis);
}

static void on_impatience(mp_timer *timer)
{
    mp_redis *redis = mp_container(timer, mp_redis, patience);
    mp_err_set(&redis->why, redis->stage == LOGGING_IN ? "the server takes connections and does not answer"
                                                       : "the connection timed out");
    lose(redis);
}

static void on_idle(mp_timer *timer)
{
    mp_redis *redis = mp_container(timer, mp_redis, idle);
    uint64_t now = mp_loop_now(redis->loop), ms = (uint64_t)IDLE_MS;
    if (redis->follower != NULL)
        return;
    if (redis->requests == 0 && now - redis->used_at >= ms)
        close_connection(redis);
    else
        mp_timer_start(redis->loop, timer, redis->requests > 0 ? ms : redis->used_at + ms - now, on_idle);
}

static void on_dialed(void *ctx, int fd, const mp_err *why)
{
    mp_redis *redis = ctx;
    redis->dial = NULL;
    if (fd < 0) {
        redis->why = *why;
        lose(redis);
        return;
    }
    redis->wire = (mp_net_wire){.fd = fd};
    mp_stat_add(&mp_stat_redis_connections, 1);
    redis->replies = mp_replies_new();
    redis->put = 0;
    redis->greetings = 0;
    redis->stage = SHAKING_HANDS;
    if (redis->server.is_tls) {
        struct ssl_ctx_st *context = mp_client_tls(redis->client, &redis->why);
        if (context == NULL) {
            lose(redis);
            return;
        }
        mp_net_wire_start_tls(&redis->wire, context, redis->server.host);
    }
    go_on(redis);
}

static void connect_now(mp_redis *redis)
{
    const mp_redis_server *server = &redis->server;
    redis->stage = DIALING;
    mp_timer_start(redis->loop, &redis->patience, CONNECT_MS, on_impatience);
    redis->dial =
        mp_dial_start(redis->client, server->host, server->port, &server->policy, server->holder, on_dialed, redis);
}

/* -- public functions ---------------------------------------------------------------------------------------------- */

mp_redis *mp_redis_new(mp_loop *loop, mp_client *client, const mp_redis_server *server)
{
    mp_redis *redis = mp_new(sizeof *redis);
    redis->loop = loop;
    redis->client = client;
    redis->server = *server;
    redis->server.host = mp_dup(mp_str_of(server->host));
    redis->server.user.ptr = mp_dup(server->user);
    redis->server.password.ptr = mp_dup(server->password);
    redis->wire.fd = -1;
    return redis;
}

void mp_redis_free(mp_redis *MP_NULLABLE redis)
{
    if (redis == NULL)
        return;
    uint64_t until = written(redis);
    close_connection(redis);
    mp_err_set(&redis->why, "the connection was closed, as its script is gone");
    end_sent(redis, until);
    MP_EACH(mp_redis_command, command, &redis->waiting, link)
        end_command(redis, command, MP_REDIS_UNAVAILABLE, redis->why.text);
    MP_EACH_TAKEN(mp_redis_command, command, &redis->answered, link) {
        hold(redis, command, 0);
        command->redis = NULL;
    }
    mp_timer_stop(redis->loop, &redis->again);
    mp_str_free(mp_str_of(redis->server.host));
    mp_str_free(redis->server.user);
    mp_str_free(redis->server.password);
    free(redis);
}

void mp_redis_set_follower(mp_redis *redis, const mp_redis_follower *follower)
{
    redis->follower = follower;
}

size_t mp_redis_load(const mp_redis *redis)
{
    return redis->requests;
}

/* True if the script may add `more` where `used` of `most` are taken. */
static bool has_room(mp_holdings *holdings, unsigned script, int64_t more, int64_t used, int64_t most)
{
    int64_t held = mp_holdings_change(holdings, script, 0), left = most - used - more + 1;
    return left > 0 && mp_may_hold_one_more(held + more - 1, 1, used + more - 1, left, most / KEPT);
}

int mp_redis_send(mp_redis *redis, mp_redis_command *command, unsigned script, mp_err *err)
{
    if (!has_room(&redis->requests_of, script, command->count, (int64_t)redis->requests, MAX_REQUESTS) ||
        !has_room(&redis->bytes_of, script, (int64_t)command->text.len, (int64_t)redis->bytes, MOST_BYTES)) {
        mp_stat_add(&mp_stat_refused_requests, 1);
        return mp_err_set(err,
                          "too many requests wait for this connection (%lld, or 16 MiB; scripts share the last eighth)",
                          (long long)MAX_REQUESTS);
    }
    command->script = script;
    redis->used_at = mp_loop_now(redis->loop);
    command->redis = redis;
    command->missing = command->count;
    redis->requests += command->count;
    mp_holdings_change(&redis->requests_of, script, command->count);
    count_bytes(redis, command, (int64_t)command->text.len);
    mp_stat_add(&mp_stat_redis_requests, command->count);
    mp_link_put(&redis->waiting, &command->link);
    if (redis->stage == CLOSED && mp_loop_now(redis->loop) < redis->retry_at)
        end_command(redis, command, MP_REDIS_UNAVAILABLE, redis->why.text);
    else if (redis->stage == CLOSED)
        connect_now(redis);
    else if (redis->stage == OPEN && redis->again.slot == 0)
        mp_timer_start(redis->loop, &redis->again, 0, on_again); /* all requests of a turn are written together */
    return 0;
}

/* True if someone waits for an earlier command, or for this one. */
static bool is_awaited(const mp_redis *redis, const mp_redis_command *command)
{
    MP_EACH(mp_redis_command, earlier, &redis->sent, link) {
        if (earlier == command)
            return false;
        if (earlier->done != NULL)
            return true;
    }
    return false;
}

mp_redis_end mp_redis_command_free(mp_redis_command *command, bool is_late)
{
    mp_redis *redis = command->redis;
    bool is_queued = redis != NULL && command->end == MP_REDIS_WAITS, is_sent = is_queued && command->text.len == 0;
    command->done = NULL;
    if (is_queued && !is_sent)
        leave(MP_NEVER_NULL(redis), command);
    if (!is_sent) {
        mp_redis_end stands = is_queued ? MP_REDIS_UNAVAILABLE : command->end;
        free_command(command);
        return stands;
    }
    mp_redis *of = MP_NEVER_NULL(redis);
    mp_redis_end stands = MP_REDIS_UNKNOWN; /* the connection sends what is in `out`, unless it is closed */
    mp_buf_clear(&command->answer);         /* the command is freed with its last reply */
    hold(of, command, 0);
    if (is_late && mp_loop_now(of->loop) - of->heard_at >= SILENT_MS && !is_awaited(of, command)) {
        if (written(of) <= command->from)
            stands = MP_REDIS_UNAVAILABLE;
        mp_err_set(&of->why, "the server has said nothing for %d s", SILENT_MS / 1000);
        lose(of);
    }
    return stands;
}
