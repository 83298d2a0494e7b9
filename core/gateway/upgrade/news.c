/* news.c: news: what Lua states of one process tell those of the others (host.bus.relay). A Lua state leaves its
 * message in a bounded buffer, the main thread sends it, and the main thread of each other process gives it to one
 * worker. Links make a star: the newest process has one to each older one, so news of an older process go by the
 * newest, which sends them on to all but the one that they came from. Every process gets each at most once.
 *
 * What has no room is dropped, and counted; what waits already stays. The others are then told that something was lost,
 * so that they look at what the store has. Body of a message: the number of the process that it is of, "1" or "0"
 * (put_body), the topic, each with a NUL; the text. */
#include "state.h"
#include "gateway/watchdog.h"

MP_COUNTER(dropped_news, "dropped", "reason", "news",
           "messages between the processes of this gateway for which there was no room")

#define MAX_WAITING ((size_t)1 << 20) /* bytes that wait for the main thread */
#define MAX_BODY (MP_LINK_BYTES - 1)  /* bytes of one message, which must fit into one message of a link */
#define MAX_UNTAKEN 256               /* messages of other processes that wait for workers */
#define LOST MP_STR("lost elsewhere") /* topic of the message that is sent after others were lost */

/* -- from a Lua state ---------------------------------------------------------------------------------------------- */

/* takes_part: false while the process before this one has the links to all others, and is to send this on. */
static void put_body(mp_buf *out, int64_t origin, bool takes_part, mp_str topic, mp_str text)
{
    out->len = 0;
    mp_buf_printf(out, "%lld%c%d%c", (long long)origin, 0, takes_part, 0);
    mp_buf_put(out, topic);
    mp_buf_putc(out, '\0');
    mp_buf_put(out, text);
}

static void put_own(mp_buf *out, const mp_upgrade *upgrade, mp_str topic, mp_str text)
{
    put_body(out, mp_processes_number(upgrade->shared->processes), upgrade->state != MP_UPGRADE_JOINS, topic, text);
}

/* Queues a message for the other processes; false if it does not fit. Any thread. */
static bool relay_publication(void *ctx, mp_str topic, mp_str text)
{
    mp_upgrade *upgrade = ctx;
    size_t len = topic.len + 1 + text.len;
    if (!mp_processes_are_several(upgrade->shared->processes))
        return true;
    pthread_mutex_lock(&upgrade->lock);
    bool fits = len < MAX_BODY - 16 && upgrade->news.len + sizeof len + len <= MAX_WAITING;
    if (fits) {
        mp_buf_put(&upgrade->news, (mp_str){(const char *)&len, sizeof len});
        mp_buf_put(&upgrade->news, topic);
        mp_buf_putc(&upgrade->news, '\0');
        mp_buf_put(&upgrade->news, text);
    } else {
        upgrade->has_lost_news = true;
    }
    pthread_mutex_unlock(&upgrade->lock);
    if (!fits)
        mp_stat_add(&mp_stat_dropped_news, 1);
    mp_upgrade_wake(upgrade);
    return fits;
}

void mp_upgrade_carry_news(mp_upgrade *upgrade)
{
    mp_bus_relay_by(upgrade->shared->process_state.bus, relay_publication, upgrade);
}

/* -- to other processes -------------------------------------------------------------------------------------------- */

static void offer_news(const mp_upgrade *upgrade, mp_process_link *MP_NULLABLE to,
                       const mp_process_link *MP_NULLABLE from, mp_str body)
{
    mp_scoped_buf lost = {0};
    if (to == NULL || to == from)
        return;
    put_own(&lost, upgrade, LOST, MP_STR_NONE);
    if (!mp_process_link_offer(to, MP_SAY_NEWS, body, mp_buf_str(&lost)))
        mp_stat_add(&mp_stat_dropped_news, 1);
}

/* Sends to all processes to which this one has a link, but for the one that it came `from`. The other end of a commit
 * has links to all: this process sends to that one alone from then on. */
static void send_on(mp_upgrade *upgrade, const mp_process_link *MP_NULLABLE from, mp_str body)
{
    mp_upgrade_state state = upgrade->state;
    bool is_committed = state == MP_UPGRADE_COMMITS || state == MP_UPGRADE_OLDER;
    bool is_alone = state == MP_UPGRADE_JOINS && from == NULL; /* the process before this one sends it on */
    offer_news(upgrade, upgrade->link, from, body);
    if (state >= MP_UPGRADE_TRIES && state <= MP_UPGRADE_COMMITS)
        offer_news(upgrade, upgrade->newer.link, from, body);
    for (int i = 0; i < upgrade->older_count && !is_committed && !is_alone; i++)
        offer_news(upgrade, upgrade->older[i].link, from, body);
}

void mp_upgrade_run_news(mp_upgrade *upgrade)
{
    mp_scoped_buf body = {0};
    pthread_mutex_lock(&upgrade->lock);
    mp_buf news = upgrade->news;
    bool has_lost = upgrade->has_lost_news;
    upgrade->news = (mp_buf){0};
    upgrade->has_lost_news = false;
    pthread_mutex_unlock(&upgrade->lock);
    for (size_t at = 0, len; at < news.len; at += len) {
        memcpy(&len, news.ptr + at, sizeof len);
        at += sizeof len;
        mp_str text = {news.ptr + at, len}, topic = mp_str_cut(&text, '\0');
        put_own(&body, upgrade, topic, text);
        send_on(upgrade, NULL, mp_buf_str(&body));
    }
    if (has_lost) {
        put_own(&body, upgrade, LOST, MP_STR_NONE);
        send_on(upgrade, NULL, mp_buf_str(&body));
    }
    mp_buf_clear(&news);
}

/* -- from other processes ------------------------------------------------------------------------------------------ */

typedef struct {
    mp_upgrade *upgrade;
    mp_worker *worker;
    size_t len;
    char news[]; /* topic, '\0', text */
} news_message;

static void deliver_news(void *content, mp_loop *MP_NULLABLE loop)
{
    const news_message *it = content;
    mp_str text = {it->news, it->len}, topic = mp_str_cut(&text, '\0');
    mp_account_give(&it->upgrade->untaken, 1);
    if (loop != NULL)
        mp_vm_bus_deliver(mp_worker_vm(it->worker), topic, text);
}

/* Gives a message to a worker that makes progress. */
static void tell_worker(mp_upgrade *upgrade, mp_str news)
{
    const mp_worker_shared *shared = upgrade->shared;
    int i = 0;
    while (i < shared->worker_count &&
           (mp_worker_has_ended(shared->workers[i]) || mp_watchdog_is_stuck(shared->watchdog, i)))
        i++;
    if (i == shared->worker_count || !mp_account_take(&upgrade->untaken, 1, MAX_UNTAKEN)) {
        mp_stat_add(&mp_stat_dropped_news, 1);
        return;
    }
    const news_message message = {upgrade, shared->workers[i], news.len};
    mp_loop_send(mp_worker_loop(message.worker), deliver_news, &message, sizeof message, news);
}

void mp_upgrade_take_news(mp_upgrade *upgrade, mp_process_link *from, mp_str body)
{
    int64_t origin;
    mp_scoped_buf further = {0};
    mp_str text = body, number = mp_str_cut(&text, '\0'), part = mp_str_cut(&text, '\0');
    mp_str news = text, topic = mp_str_cut(&text, '\0');
    if (!mp_json_int(number, &origin) || topic.len == 0)
        return;
    bool is_committed = upgrade->state == MP_UPGRADE_COMMITS || upgrade->state == MP_UPGRADE_OLDER;
    /* a message that this process has sent comes back from the newest process */
    if (origin != mp_processes_number(upgrade->shared->processes))
        tell_worker(upgrade, news);
    put_body(&further, origin, true, topic, text);
    if (mp_str_is(part, "0") &&
        is_committed) /* its sender relies on the links of this process, which it has got meanwhile */
        offer_news(upgrade, from, NULL, mp_buf_str(&further));
    else
        send_on(upgrade, from, mp_buf_str(&further));
}
