/* subscription.c: a connection that follows a channel. It asks the server now and then whether it is there, since a
 * channel may be silent for days. */
#include "connection.h"

#define BEAT_MS 1000
#define QUIET_MS MP_LIMIT(redis_quiet_ms, 3000) /* between two questions whether the server is there */
#define LATE_MS 3000 /* ms after which a server that has not answered is silent: connection.c closes the connection */
#define CONNECT_MS 10000 /* until a subscription is given up whose connection is neither open nor refused */
#define RETRY_MS 250     /* between two attempts; connection.c makes fewer while a server is away */
/* ms until a subscription that the server has refused is tried again: first, and at most, while they double */
#define REFUSED_MS ((uint64_t)MP_LIMIT(redis_refused_ms, 5000))
#define REFUSED_MOST_MS 60000

struct mp_redis_subscription {
    mp_loop *loop;
    mp_redis *redis;
    mp_redis_follower follower;
    char *place; /* "cache.internal:6379" */
    mp_str channel;
    bool is_pattern;
    mp_redis_command *MP_NULLABLE command; /* SUBSCRIBE or PING */
    uint64_t asked_at;                     /* ms: when it was sent */
    mp_timer beat;
    bool is_subscribed;
    uint64_t refused_ms; /* until it is tried again, if the server has refused it; else 0 */
    mp_redis_reader reader;
};

static void on_message(void *ctx, const mp_buf *values)
{
    const mp_redis_subscription *it = ctx;
    mp_redis_value list, channel, payload = {.kind = MP_REDIS_NIL};
    const char *at = mp_redis_next(values->ptr, &list);
    for (int64_t i = 0; i < list.integer; i++) {
        channel = payload;
        at = mp_redis_next(at, &payload);
    }
    it->reader.message(it->reader.ctx, channel.text, payload.text);
}

static void on_beat(mp_timer *timer);

static void on_lost(void *ctx)
{
    mp_redis_subscription *it = ctx;
    it->is_subscribed = false;
    mp_timer_start(it->loop, &it->beat, 0, on_beat);
}

/* The server has answered SUBSCRIBE. */
static void take_confirmation(mp_redis_subscription *it, const char *MP_NULLABLE replies)
{
    mp_redis_value reply = {.kind = MP_REDIS_NIL};
    if (replies != NULL)
        mp_redis_next(replies, &reply);
    it->is_subscribed = reply.kind == MP_REDIS_LIST;
    if (it->is_subscribed) {
        it->refused_ms = 0;
        it->reader.gap(it->reader.ctx);
    } else if (it->refused_ms > 0) {
        it->refused_ms = it->refused_ms < REFUSED_MOST_MS / 2 ? 2 * it->refused_ms : REFUSED_MOST_MS;
    } else {
        it->refused_ms = REFUSED_MS;
        mp_str why = reply.kind == MP_REDIS_ERROR ? mp_redis_error_kind(reply.text) : MP_STR("no subscription");
        mp_log(MP_WARN, "redis subscription refused", mp_log_str("server", mp_str_of(it->place)),
               mp_log_str("channel", it->channel), mp_log_str("why", why),
               mp_log_str("hint", MP_STR("the ACL of its user needs +subscribe (for a pattern +psubscribe) and the "
                                         "channel, as in &NAME:*")));
    }
}

static void on_done(void *ctx)
{
    mp_redis_subscription *it = ctx;
    const mp_redis_command *command = it->command;
    if (command != NULL && !it->is_subscribed && mp_redis_end_of(command) == MP_REDIS_ANSWERED)
        take_confirmation(it, mp_redis_replies(command));
    mp_timer_start(it->loop, &it->beat, 0, on_beat);
}

static void ask(mp_redis_subscription *it)
{
    const char *words[] = {it->is_subscribed ? "PING" : it->is_pattern ? "PSUBSCRIBE" : "SUBSCRIBE", it->channel.ptr};
    size_t lens[] = {strlen(words[0]), it->channel.len};
    it->command = mp_redis_command_new(on_done, it);
    mp_redis_command *command = MP_NEVER_NULL(it->command);
    mp_err err;
    it->asked_at = mp_loop_now(it->loop);
    if (mp_redis_command_add(command, it->is_subscribed ? 1 : 2, words, lens) != 0 ||
        mp_redis_send(it->redis, command, 0, &err) != 0) { /* never: the connection has no other command */
        mp_redis_command_free(command, false);
        it->command = NULL;
    }
}

static void on_beat(mp_timer *timer)
{
    mp_redis_subscription *it = mp_container(timer, mp_redis_subscription, beat);
    uint64_t passed = mp_loop_now(it->loop) - it->asked_at;
    if (it->command != NULL) {
        mp_redis_command *command = MP_NEVER_NULL(it->command);
        bool is_late = passed >= (it->is_subscribed ? LATE_MS : CONNECT_MS);
        if (is_late || mp_redis_end_of(command) != MP_REDIS_WAITS) {
            it->command = NULL;
            mp_redis_command_free(command, is_late);
        }
    }
    uint64_t pause = it->is_subscribed ? (uint64_t)QUIET_MS : it->refused_ms > 0 ? it->refused_ms : RETRY_MS;
    if (it->command == NULL && passed >= pause)
        ask(it);
    mp_timer_start(it->loop, &it->beat, it->is_subscribed ? BEAT_MS : RETRY_MS, on_beat);
}

mp_redis_subscription *mp_redis_subscribe(mp_loop *loop, mp_client *client, const mp_redis_server *server,
                                          mp_str channel, bool is_pattern, const mp_redis_reader *reader)
{
    mp_redis_subscription *it = mp_new(sizeof *it);
    char place[320];
    snprintf(place, sizeof place, "%s:%u", server->host, server->port);
    it->loop = loop;
    it->place = mp_dup(mp_str_of(place));
    it->channel = (mp_str){mp_dup(channel), channel.len};
    it->is_pattern = is_pattern;
    it->reader = *reader;
    it->follower = (mp_redis_follower){on_message, on_lost, it};
    it->redis = mp_redis_new(loop, client, server);
    mp_redis_set_follower(it->redis, &it->follower);
    mp_timer_start(loop, &it->beat, 0, on_beat);
    return it;
}

bool mp_redis_subscription_is_refused(const mp_redis_subscription *it)
{
    return it->refused_ms > 0;
}

void mp_redis_subscription_free(mp_redis_subscription *MP_NULLABLE it)
{
    if (it == NULL)
        return;
    if (it->command != NULL)
        mp_redis_command_free(MP_NEVER_NULL(it->command), false);
    mp_redis_free(it->redis);
    mp_timer_stop(it->loop, &it->beat);
    free((char *)(uintptr_t)it->channel.ptr);
    free(it->place);
    free(it);
}
