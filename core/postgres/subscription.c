/* subscription.c: listens to a channel, by a lease that keeps a connection of a pool of its own. It asks the server now
 * and then whether it is there, since a channel may be silent for days. */
#include "connection.h"

#define BEAT_MS 1000
#define QUIET_MS MP_LIMIT(postgres_quiet_ms, 3000) /* between two questions whether the server is there */
#define LATE_MS 3000                               /* ms after which a server that has not answered is silent */
#define CONNECT_MS 10000 /* until a subscription is given up whose connection is neither open nor refused */
#define RETRY_MS 250     /* between two attempts; pool.c makes fewer while a server is away */
#define REFUSED_MS 5000  /* until a subscription that the server has refused is tried again */
#define CONNECTIONS 2    /* of the pool: one may be ending while the next one is opened */

struct mp_postgres_subscription {
    mp_loop *loop;
    mp_postgres *pool;
    mp_postgres_listener listener;
    mp_postgres_reader reader;
    mp_postgres_lease *MP_NULLABLE lease; /* that has the connection, or waits for one */
    mp_postgres_query listen, ask;        /* the first owns its text */
    mp_postgres_statement statement;      /* one of them, which runs or has run last */
    mp_str channel;
    uint64_t asked_at; /* ms: when it began to run */
    mp_timer beat;
    bool runs, is_listening, is_refused;
};

static void on_beat(mp_timer *timer);

static void on_notified(void *ctx, const char *channel, const char *payload)
{
    const mp_postgres_subscription *it = ctx;
    it->reader.message(it->reader.ctx, mp_str_of(channel), mp_str_of(payload));
}

static void on_event(void *ctx)
{
    mp_postgres_subscription *it = ctx;
    mp_timer_start(it->loop, &it->beat, 0, on_beat);
}

static void give_up(mp_postgres_subscription *it)
{
    mp_postgres_lease *lease = it->lease;
    it->runs = false;
    it->is_listening = false;
    it->lease = NULL;
    if (lease != NULL)
        mp_postgres_lease_free(lease);
}

static void log_refused(mp_postgres_subscription *it)
{
    const mp_postgres_server *server = &it->pool->server;
    char place[320];
    if (it->is_refused)
        return;
    it->is_refused = true;
    snprintf(place, sizeof place, "%s:%d", server->host, server->port);
    mp_log(MP_WARN, "postgres subscription refused", mp_log_str("server", mp_str_of(place)),
           mp_log_str("channel", it->channel), mp_log_str("why", mp_str_of(mp_postgres_why(MP_NEVER_NULL(it->lease)))));
}

/* The statement has ended. */
static void take_end(mp_postgres_subscription *it, mp_postgres_end end)
{
    it->runs = false;
    mp_postgres_drop_result(MP_NEVER_NULL(it->lease));
    if (end == MP_POSTGRES_DONE && !it->is_listening) {
        it->is_listening = true;
        it->is_refused = false;
        it->reader.gap(it->reader.ctx);
    } else if (end != MP_POSTGRES_DONE) {
        if (end == MP_POSTGRES_FAILED)
            log_refused(it);
        give_up(it);
    }
}

static void ask(mp_postgres_subscription *it)
{
    mp_err err;
    if (it->lease == NULL)
        it->lease = mp_postgres_lease_new(it->pool, on_event, it);
    it->statement = (mp_postgres_statement){it->is_listening ? &it->ask : &it->listen, 1, .is_marked = true};
    it->asked_at = mp_loop_now(it->loop);
    it->runs = mp_postgres_run(MP_NEVER_NULL(it->lease), &it->statement, &err) == 0;
}

static void on_beat(mp_timer *timer)
{
    mp_postgres_subscription *it = mp_container(timer, mp_postgres_subscription, beat);
    uint64_t passed = mp_loop_now(it->loop) - it->asked_at;
    const mp_postgres_lease *lease = it->lease;
    if (lease != NULL && lease->of == NULL && it->is_listening)
        give_up(it); /* the connection is lost */
    if (it->runs && lease != NULL) {
        mp_postgres_end end = mp_postgres_end_of(lease);
        if (end != MP_POSTGRES_WAITS)
            take_end(it, end);
        else if (passed >= (it->is_listening ? LATE_MS : CONNECT_MS))
            give_up(it);
    }
    uint64_t pause = it->is_listening ? (uint64_t)QUIET_MS : it->is_refused ? REFUSED_MS : RETRY_MS;
    if (!it->runs && passed >= pause)
        ask(it);
    mp_timer_start(it->loop, &it->beat, it->is_listening ? BEAT_MS : RETRY_MS, on_beat);
}

mp_postgres_subscription *mp_postgres_subscribe(mp_loop *loop, mp_client *client, const mp_postgres_server *server,
                                                mp_str channel, const mp_postgres_reader *reader)
{
    mp_postgres_subscription *it = mp_new(sizeof *it);
    mp_postgres_server own = *server;
    mp_buf sql = {0};
    own.size = CONNECTIONS;
    it->loop = loop;
    it->pool = mp_postgres_new(loop, client, &own);
    it->listener = (mp_postgres_listener){on_notified, on_event, it};
    it->pool->listener = &it->listener;
    it->reader = *reader;
    it->channel = (mp_str){mp_dup(channel), channel.len};
    mp_buf_put(&sql, MP_STR("LISTEN \""));
    for (size_t i = 0; i < channel.len; i++) {
        if (channel.ptr[i] == '"')
            mp_buf_putc(&sql, '"');
        mp_buf_putc(&sql, channel.ptr[i]);
    }
    mp_buf_put(&sql, (mp_str){"\"", 2}); /* with the zero byte */
    it->listen.sql = sql.ptr;
    it->ask.sql = "SELECT 1";
    mp_timer_start(loop, &it->beat, 0, on_beat);
    return it;
}

void mp_postgres_subscription_free(mp_postgres_subscription *MP_NULLABLE it)
{
    if (it == NULL)
        return;
    give_up(it);
    it->pool->listener = NULL;
    mp_postgres_free(it->pool);
    mp_timer_stop(it->loop, &it->beat);
    mp_str_free(it->channel);
    free((char *)(uintptr_t)it->listen.sql);
    free(it);
}
