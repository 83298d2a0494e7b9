/* lookup.c: looks up host names, each on a thread of its own that ends with the lookup: getaddrinfo takes as long as
 * the name server lets it, and nothing can end it before. */
#include "lookup.h"
#include <arpa/inet.h>
#include <netdb.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>

MP_GAUGE(lookups, "lookups", "", "", "name lookups in progress, including those of cancelled requests")

#define KEPT_MS 60000
#define MAX_NAMES 1024   /* whose addresses are kept: less than a megabyte. Any more are looked up for each request */
#define MAX_ADDRESSES 32 /* of a name: a connection is hardly ever tried at more */

struct mp_lookup {
    mp_message message;
    mp_link link; /* among the `waits` of its name; alone: the answer is on its way */
    mp_loop *loop;
    atomic_int holders; /* the request; the name or the message */
    char *MP_NULLABLE addresses;
    mp_lookup_done *MP_NULLABLE done; /* NULL: cancelled; the loop's thread alone uses it */
    void *ctx;
};

typedef struct {
    mp_node node;
    mp_link waits;               /* of mp_lookup */
    bool is_running;             /* a thread looks it up, and uses this struct */
    char *MP_NULLABLE addresses; /* NULL: none are known */
    uint64_t found_at, used_at;  /* ms */
} name;

static struct {
    pthread_mutex_t lock; /* of all in here, the names and the links of their lookups */
    mp_map names;         /* empty without `slots` until the first lookup */
    int64_t running;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void release(mp_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->holders, 1) > 1)
        return;
    free(lookup->addresses);
    free(lookup);
}

/* A request of a loop that has ended still exists, and cancels its lookup. */
static void deliver(mp_message *message, mp_loop *loop)
{
    mp_lookup *lookup = mp_container(message, mp_lookup, message);
    if (loop != NULL && lookup->done != NULL) {
        lookup->done(lookup->ctx, lookup->addresses);
        release(lookup);
    }
    release(lookup);
}

/* -- names: the caller has the lock -------------------------------------------------------------------------------- */

static bool is_fresh(const name *it, uint64_t now)
{
    return it->addresses != NULL && now - it->found_at < KEPT_MS;
}

static void drop_name(name *it)
{
    mp_map_drop(&table.names, &it->node);
    free(it->addresses);
    free(it);
}

static void drop_old(mp_node *node, void *now)
{
    name *it = mp_container(node, name, node);
    if (!it->is_running && !is_fresh(it, *(uint64_t *)now))
        drop_name(it);
}

/* Takes `found`, which may be NULL, and sends it to all who wait. Their loops exist: each of them cancels its lookup
 * before its loop is freed. */
static void end_lookup(name *it, char *MP_NULLABLE found)
{
    uint64_t now = mp_monotonic_ms();
    free(it->addresses);
    it->addresses = found;
    it->found_at = it->used_at = now;
    it->is_running = false;
    table.running--;
    mp_stat_add(&mp_stat_lookups, -1);
    for (mp_link *link; (link = mp_link_take(&it->waits)) != NULL;) {
        mp_lookup *lookup = mp_container(link, mp_lookup, link);
        lookup->addresses = found == NULL ? NULL : mp_dup(mp_str_of(found));
        mp_loop_post(lookup->loop, &lookup->message);
    }
    if (table.names.count > MAX_NAMES)
        drop_name(it);
    mp_map_each(&table.names, drop_old, &now);
}

/* -- the thread ---------------------------------------------------------------------------------------------------- */

static void put_address(mp_buf *out, const struct sockaddr *address)
{
    char text[INET6_ADDRSTRLEN];
    bool is_v6 = address->sa_family == AF_INET6;
    const void *bytes = is_v6 ? (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr
                              : (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr;
    if ((is_v6 || address->sa_family == AF_INET) && inet_ntop(address->sa_family, bytes, text, sizeof text) != NULL)
        mp_buf_printf(out, is_v6 ? "%s[%s]" : "%s%s", out->len == 0 ? "" : ",", text);
}

static char *MP_NULLABLE look_up(const char *host)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    mp_buf text = {0};
    if (getaddrinfo(host, NULL, &hints, &found) != 0)
        return NULL;
    int left = MAX_ADDRESSES;
    for (const struct addrinfo *one = found; one != NULL && left > 0; one = one->ai_next, left--)
        put_address(&text, one->ai_addr);
    freeaddrinfo(found);
    if (text.len == 0)
        return NULL;
    mp_buf_putc(&text, '\0');
    return text.ptr;
}

static void *MP_NULLABLE run(void *ctx)
{
    mp_crash_thread("lookup", 0);
    name *it = ctx;
    char *MP_NULLABLE found = look_up(it->node.key.ptr);
    pthread_mutex_lock(&table.lock);
    end_lookup(it, found);
    pthread_mutex_unlock(&table.lock);
    return NULL;
}

/* Signals are blocked on the thread, because the timers that send them belong to the workers. */
static bool start_thread(name *it)
{
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    it->is_running = pthread_create(&thread, NULL, run, it) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!it->is_running)
        return false;
    pthread_detach(thread);
    table.running++;
    mp_stat_add(&mp_stat_lookups, 1);
    return true;
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

bool mp_lookup_known(mp_str host, uint64_t idle_ms, mp_buf *addresses)
{
    pthread_mutex_lock(&table.lock);
    uint64_t now = mp_monotonic_ms();
    mp_node *node = table.names.slots == NULL ? NULL : mp_map_find(&table.names, host);
    name *it = node == NULL ? NULL : mp_container(node, name, node);
    bool is_known = it != NULL && is_fresh(it, now) && now - it->used_at < idle_ms;
    if (is_known) {
        it->used_at = now;
        mp_buf_put(addresses, mp_str_of(it->addresses));
    }
    pthread_mutex_unlock(&table.lock);
    return is_known;
}

/* The name with a lookup in progress; NULL if there can be none. The caller has the lock. */
static name *MP_NULLABLE need_running(mp_str host, int64_t most)
{
    bool is_new = false;
    if (table.names.slots == NULL)
        mp_map_init(&table.names);
    name *it = mp_map_need(&table.names, host, sizeof *it, &is_new);
    if (is_new)
        mp_link_init(&it->waits);
    if (it->is_running || (table.running < most && start_thread(it)))
        return it;
    if (it->addresses == NULL)
        drop_name(it);
    return NULL;
}

mp_lookup *MP_NULLABLE mp_lookup_start(mp_loop *loop, mp_str host, int64_t most, mp_lookup_done *done, void *ctx)
{
    mp_lookup *lookup = NULL;
    pthread_mutex_lock(&table.lock);
    name *it = need_running(host, most);
    if (it != NULL) {
        lookup = mp_new(sizeof *lookup);
        *lookup = (mp_lookup){.message.deliver = deliver, .loop = loop, .holders = 2, .done = done, .ctx = ctx};
        mp_link_put(&it->waits, &lookup->link);
    }
    pthread_mutex_unlock(&table.lock);
    return lookup;
}

void mp_lookup_cancel(mp_lookup *MP_NULLABLE lookup)
{
    if (lookup == NULL)
        return;
    pthread_mutex_lock(&table.lock);
    bool is_waiting = !mp_link_is_alone(&lookup->link);
    mp_link_drop(&lookup->link);
    pthread_mutex_unlock(&table.lock);
    lookup->done = NULL;
    if (is_waiting)
        release(lookup);
    release(lookup);
}
