/* lookup.c: looks up host names, each on a thread of its own that ends with the lookup: getaddrinfo takes as long as
 * the name server lets it, and nothing can end it before. While no name server answers, the addresses that a name had
 * stay in use, as RFC 8767 has it; a name that does not exist any more has none. */
#include "lookup.h"
#include <arpa/inet.h>
#include <netdb.h>

MP_GAUGE(lookups, "lookups", "", "", "name lookups in progress, including those of cancelled requests")
MP_COUNTER(old_addresses, "old_addresses", "", "",
           "outgoing requests to addresses of an earlier lookup, because no name server answered")

#define KEPT_MS 60000
/* how long old addresses are used: longer than most outages of name servers, shorter than a server stays reachable at
 * its former address */
#define OLD_MS 3600000
/* ms before a name's old addresses are used, if its lookup takes longer: the client timer of RFC 8767 */
#define PATIENCE_MS 1800
/* from a failed lookup of a name to the next one, which takes a thread for some seconds */
#define RETRY_MS 5000
/* names with cached addresses: less than a megabyte. Further names are looked up for each request */
#define MAX_NAMES 1024
#define MAX_ADDRESSES 32 /* addresses of one name: a connection is hardly ever tried at more */

struct mp_lookup {
    mp_message message;
    mp_link link; /* in the `waits` of its name; in no list: the answer was posted */
    mp_loop *loop;
    struct name *name;  /* valid while this wait is in its `waits` */
    mp_timer patience;  /* runs only if the name has old addresses */
    atomic_int holders; /* the request; the name or the message */
    char *MP_NULLABLE addresses;
    mp_lookup_done *MP_NULLABLE done; /* NULL: cancelled; the loop's thread alone uses it */
    void *ctx;
};

typedef struct name {
    mp_node node;
    mp_link waits;                        /* list of mp_lookup */
    bool is_running;                      /* a thread looks it up, and uses this struct */
    unsigned holder;                      /* of the descriptor of that thread, as of mp_outgoing_take */
    bool is_overdue;                      /* no name server has answered in time since `found_at` */
    char *MP_NULLABLE addresses;          /* NULL: none are known */
    uint64_t found_at, used_at, retry_at; /* ms */
} name;

static struct {
    pthread_mutex_t lock; /* guards all members of this struct, the names, and the links of their lookups */
    mp_map names;         /* empty without `slots` until the first lookup */
    int64_t running;
} table = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void release_lookup(mp_lookup *lookup)
{
    if (atomic_fetch_sub(&lookup->holders, 1) > 1)
        return;
    free(lookup->addresses);
    free(lookup);
}

/* Answers the request, unless it was cancelled. */
static void answer_lookup(mp_lookup *lookup)
{
    mp_lookup_done *MP_NULLABLE done = lookup->done;
    if (done == NULL)
        return;
    done(lookup->ctx, lookup->addresses);
    release_lookup(lookup);
}

/* A request of a loop that has ended still exists, and cancels its lookup. */
static void deliver_answer(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_lookup *lookup = mp_container(message, mp_lookup, message);
    if (loop != NULL) {
        mp_timer_stop(loop, &lookup->patience);
        answer_lookup(lookup);
    }
    release_lookup(lookup);
}

/* -- names: the caller has the lock -------------------------------------------------------------------------------- */

static bool is_younger(const name *it, uint64_t age_ms, uint64_t now)
{
    return it->addresses != NULL && now - it->found_at < age_ms;
}

static void drop_name(name *it)
{
    mp_map_drop(&table.names, &it->node);
    free(it->addresses);
    free(it);
}

typedef struct {
    uint64_t age_ms, now;
} ages;

static void drop_older(mp_node *node, void *ctx)
{
    const ages *than = ctx;
    name *it = mp_container(node, name, node);
    if (!it->is_running && !is_younger(it, than->age_ms, than->now))
        drop_name(it);
}

/* Sends the addresses, if there are any, to all requests that wait. Their loops exist: each request cancels its lookup
 * before its loop is freed. */
static void answer_all(name *it)
{
    MP_EACH_TAKEN(mp_lookup, lookup, &it->waits, link) {
        lookup->addresses = mp_dup_text(it->addresses);
        if (it->is_overdue)
            mp_stat_add(&mp_stat_old_addresses, 1);
        mp_loop_post(lookup->loop, &lookup->message);
    }
}

/* Stores the addresses `found`, of which it takes ownership; NULL: the lookup has failed. If no name server has
 * answered, old addresses stay, and true is returned if there are some. Frees a name without addresses. */
static bool end_lookup(name *it, char *MP_NULLABLE found, bool is_unanswered)
{
    uint64_t now = mp_monotonic_ms();
    it->is_overdue = is_unanswered && is_younger(it, OLD_MS, now);
    it->retry_at = now + RETRY_MS;
    it->used_at = now;
    if (!it->is_overdue) {
        free(it->addresses);
        it->addresses = found;
        it->found_at = now;
    }
    table.running--;
    mp_outgoing_give(1, it->holder);
    mp_stat_add(&mp_stat_lookups, -1);
    answer_all(it);
    ages than = {table.names.count > MAX_NAMES ? KEPT_MS : OLD_MS, now};
    mp_map_each(&table.names, drop_older, &than);
    bool is_overdue = it->is_overdue;
    it->is_running = false;
    if (it->addresses == NULL || table.names.count > MAX_NAMES)
        drop_name(it);
    return is_overdue;
}

/* -- the log, without the lock ------------------------------------------------------------------------------------- */

static void warn_overdue(const char *host)
{
    mp_log(MP_WARN, "name server silent", mp_log_str("host", mp_str_of(host)),
           mp_log_str("hint", MP_STR("requests go to the addresses that the host had, for an hour at most; "
                                     "check the name servers of /etc/resolv.conf")));
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

/* `*code` is that of getaddrinfo. */
static char *MP_NULLABLE look_up(const char *host, int *code)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
    mp_buf text = {0};
    *code = getaddrinfo(host, NULL, &hints, &found);
    if (*code != 0)
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

static void *MP_NULLABLE run_lookups(void *ctx)
{
    mp_crash_thread("lookup", 0);
    name *it = ctx;
    int code;
    char *host = mp_dup(it->node.key), *MP_NULLABLE found = look_up(host, &code);
    bool is_unanswered = code == EAI_AGAIN || code == EAI_SYSTEM || code == EAI_MEMORY, is_found = found != NULL;
    pthread_mutex_lock(&table.lock);
    bool was_overdue = it->is_overdue;
    bool is_overdue = end_lookup(it, found, is_unanswered);
    pthread_mutex_unlock(&table.lock);
    if (is_overdue && !was_overdue)
        warn_overdue(host);
    else if (is_found && was_overdue)
        mp_log(MP_INFO, "name server answers", mp_log_str("host", mp_str_of(host)));
    free(host);
    return NULL;
}

/* Signals are blocked on the thread, because the timers that send them belong to the workers. */
static bool start_thread(name *it)
{
    pthread_t thread;
    if (!mp_outgoing_take(1, it->holder)) /* a socket to the name server */
        return false;
    it->is_running = mp_thread_start(&thread, run_lookups, it) == 0;
    if (!it->is_running) {
        mp_outgoing_give(1, it->holder);
        return false;
    }
    pthread_detach(thread);
    table.running++;
    mp_stat_add(&mp_stat_lookups, 1);
    return true;
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

/* Appends the addresses that no name server has confirmed in time, and looks for newer ones meanwhile. */
static bool use_old(name *it, int64_t most, uint64_t now, mp_buf *addresses)
{
    if (!it->is_overdue || !is_younger(it, OLD_MS, now))
        return false;
    if (!it->is_running && now >= it->retry_at && table.running < most)
        start_thread(it);
    mp_buf_put(addresses, mp_str_of(it->addresses));
    mp_stat_add(&mp_stat_old_addresses, 1);
    return true;
}

bool mp_lookup_known(mp_str host, uint64_t idle_ms, int64_t most, mp_buf *addresses)
{
    MP_LOCKED(&table.lock);
    uint64_t now = mp_monotonic_ms();
    mp_node *node = !mp_map_is_made(&table.names) ? NULL : mp_map_find(&table.names, host);
    name *it = node == NULL ? NULL : mp_container(node, name, node);
    bool is_known = it != NULL && is_younger(it, KEPT_MS, now) && now - it->used_at < idle_ms && !it->is_overdue;
    if (is_known) {
        it->used_at = now;
        mp_buf_put(addresses, mp_str_of(it->addresses));
    } else if (it != NULL) {
        is_known = use_old(it, most, now, addresses);
    }
    return is_known;
}

/* No answer came in time: the request goes to the old addresses, and later requests do not wait. */
static void on_patience(mp_timer *timer)
{
    mp_lookup *lookup = mp_container(timer, mp_lookup, patience);
    char *MP_NULLABLE host = NULL;
    pthread_mutex_lock(&table.lock);
    bool is_waiting = !mp_link_is_alone(&lookup->link);
    if (is_waiting) { /* a name server is still being asked, so the name keeps its old addresses */
        name *it = lookup->name;
        mp_link_drop(&lookup->link);
        lookup->addresses = mp_dup(mp_str_of(it->addresses));
        host = it->is_overdue ? NULL : mp_dup(it->node.key);
        it->is_overdue = true;
    }
    pthread_mutex_unlock(&table.lock);
    if (!is_waiting)
        return;
    if (host != NULL)
        warn_overdue(host);
    free(host);
    mp_stat_add(&mp_stat_old_addresses, 1);
    answer_lookup(lookup);
    release_lookup(lookup); /* the name does not list this lookup any more */
}

/* The name with a lookup in progress; NULL if there can be none. The caller has the lock. */
static name *MP_NULLABLE need_running(mp_str host, int64_t most, unsigned holder)
{
    bool is_new = false;
    if (!mp_map_is_made(&table.names))
        mp_map_init(&table.names);
    name *it = mp_map_need(&table.names, host, sizeof *it, &is_new);
    if (it->is_running)
        return it;
    it->holder = holder;
    if (table.running < most && start_thread(it))
        return it;
    if (it->addresses == NULL)
        drop_name(it);
    return NULL;
}

mp_lookup *MP_NULLABLE mp_lookup_start(mp_loop *loop, mp_str host, int64_t most, unsigned holder, mp_lookup_done *done,
                                       void *ctx)
{
    mp_lookup *lookup = NULL;
    MP_LOCKED(&table.lock);
    name *it = need_running(host, most, holder);
    if (it != NULL) {
        lookup = mp_new(sizeof *lookup);
        *lookup = (mp_lookup){
            .message.deliver = deliver_answer, .loop = loop, .name = it, .holders = 2, .done = done, .ctx = ctx};
        mp_link_put(&it->waits, &lookup->link);
        if (is_younger(it, OLD_MS, mp_monotonic_ms()))
            mp_timer_start(loop, &lookup->patience, PATIENCE_MS, on_patience);
    }
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
    mp_timer_stop(lookup->loop, &lookup->patience);
    if (is_waiting)
        release_lookup(lookup);
    release_lookup(lookup);
}
