/* client.c: runs the sockets and timers of libcurl in our loop. The callbacks here only mark and enqueue. Transfers end
 * in `drive`, outside every other function of libcurl.
 *
 * Connections that no transfer uses are kept by time, limits.idle_ms, and not by number: a cache smaller than what is
 * in flight would close a connection at the end of each transfer, and open one for the next. libcurl closes those that
 * are too old when it looks for a connection. While transfers run and none begins, a handle that connects to nothing
 * makes it look: `sweep`. While descriptors are tight, unused connections are not kept. */
#include "transfer.h"
#include <errno.h>
#include <sys/epoll.h>

MP_GAUGE(http_requests, "http_requests", "", "", "outgoing HTTP requests in flight")

#define MIN_SWEEP_MS 1000 /* libcurl counts the age of connections in seconds */
#define LOOK_MS 1000      /* interval at which a client with unused connections looks whether descriptors are tight */

typedef struct {
    mp_fdwatch super;
    mp_client *client;
} socket_watch;

mp_client *mp_client_new(mp_loop *loop, const mp_client_limits *limits)
{
    mp_client *client = mp_new(sizeof *client);
    client->loop = loop;
    client->limits = *limits;
    return client;
}

static void end_sweep(mp_client *client, const mp_curl_api *curl, CURLM *multi)
{
    CURL *sweeper = client->sweeper;
    if (sweeper == NULL)
        return;
    client->sweeper = NULL;
    curl->multi_remove_handle(multi, sweeper);
    curl->easy_cleanup(sweeper);
}

static void close_all(mp_client *client)
{
    const mp_curl_api *curl = client->curl;
    CURLM *multi = client->multi;
    mp_timer_stop(client->loop, &client->idle);
    mp_timer_stop(client->loop, &client->sweep);
    if (curl != NULL) {
        if (multi != NULL)
            end_sweep(client, curl, multi);
        while (client->kept_count > 0)
            curl->easy_cleanup(client->kept[--client->kept_count]);
        if (multi != NULL)
            curl->multi_cleanup(multi);
    }
    client->multi = NULL;
    mp_timer_stop(client->loop, &client->timer);
}

void mp_client_free(mp_client *MP_NULLABLE client)
{
    if (client == NULL)
        return;
    close_all(client);
    free(client->counted);
    free(client);
}

static bool is_tight(const mp_client *client)
{
    return !client->limits.is_inner && mp_outgoing_is_tight();
}

static void on_idle(mp_timer *timer);

/* Looks whether unused connections have to be closed; at once where descriptors are tight. */
static void look_later(mp_client *client)
{
    uint64_t now = mp_loop_now(client->loop), left = client->idle_until > now ? client->idle_until - now : 0;
    mp_timer_start(client->loop, &client->idle, is_tight(client) ? 0 : left < LOOK_MS ? left : LOOK_MS, on_idle);
}

static void on_idle(mp_timer *timer)
{
    mp_client *client = mp_container(timer, mp_client, idle);
    if (is_tight(client) || mp_loop_now(client->loop) >= client->idle_until)
        close_all(client);
    else
        look_later(client);
}

/* -- driving ------------------------------------------------------------------------------------------------------- */

static void drive_socket(mp_client *client, curl_socket_t socket, int events)
{
    int running, left;
    CURLMsg *message;
    const mp_curl_api *curl = client->curl;
    CURLM *multi = client->multi;
    if (curl == NULL || multi == NULL)
        return;
    client->is_due = false;
    curl->multi_socket_action(multi, socket, events, &running);
    while ((message = curl->multi_info_read(multi, &left)) != NULL) {
        CURLcode result = message->data.result;
        mp_transfer *transfer;
        if (message->easy_handle == client->sweeper) {
            end_sweep(client, curl, multi);
            continue;
        }
        curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        mp_transfer_end(transfer, result);
    }
}

/* A descriptor of the client is ready. May free the watch. */
static void on_ready(mp_fdwatch *watch, uint32_t events)
{
    mp_client *client = mp_container(watch, socket_watch, super)->client;
    int flags = 0;
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP)) != 0)
        flags |= CURL_CSELECT_IN;
    if ((events & EPOLLOUT) != 0)
        flags |= CURL_CSELECT_OUT;
    if ((events & EPOLLERR) != 0)
        flags |= CURL_CSELECT_ERR;
    drive_socket(client, watch->fd, flags);
}

static int on_socket(MP_UNUSED CURL *easy, curl_socket_t socket, int what, void *ctx, void *MP_NULLABLE own)
{
    mp_client *client = ctx;
    const mp_curl_api *curl = client->curl;
    CURLM *multi = client->multi;
    socket_watch *watch = own;
    if (curl == NULL || multi == NULL)
        return -1;
    if (what == CURL_POLL_REMOVE) {
        if (watch != NULL) {
            MP_UNSEEN_READS(mp_fdwatch_stop(client->loop, &watch->super));
            curl->multi_assign(multi, socket, NULL);
            free(watch);
        }
        return 0;
    }
    if (watch == NULL) {
        watch = mp_new(sizeof *watch);
        watch->client = client;
        curl->multi_assign(multi, socket, watch);
    }
    uint32_t events =
        ((what & CURL_POLL_IN) != 0 ? (uint32_t)EPOLLIN : 0) | ((what & CURL_POLL_OUT) != 0 ? (uint32_t)EPOLLOUT : 0);
    return mp_fdwatch_start(client->loop, &watch->super, socket, events, on_ready);
}

static void on_timer(mp_timer *timer)
{
    drive_socket(mp_container(timer, mp_client, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int on_timeout(MP_UNUSED CURLM *multi, long ms, void *ctx)
{
    mp_client *client = ctx;
    client->is_due = ms == 0;
    if (ms < 0)
        mp_timer_stop(client->loop, &client->timer);
    else
        mp_timer_start(client->loop, &client->timer, (uint64_t)ms, on_timer);
    return 0;
}

void mp_client_begin(mp_client *client)
{
    if (client->is_due && client->multi != NULL)
        drive_socket(client, CURL_SOCKET_TIMEOUT, 0);
}

/* -- handles ------------------------------------------------------------------------------------------------------- */

CURL *MP_NULLABLE mp_client_take(mp_client *client, const mp_curl_api *curl)
{
    return client->kept_count > 0 ? client->kept[--client->kept_count] : curl->easy_init();
}

void mp_client_give(mp_client *client, const mp_curl_api *curl, CURL *easy)
{
    if (client->kept_count == MP_KEPT_HANDLES || client->multi == NULL) {
        curl->easy_cleanup(easy);
        return;
    }
    curl->easy_reset(easy);
    client->kept[client->kept_count++] = easy;
}

/* -- unused connections -------------------------------------------------------------------------------------------- */

static curl_socket_t open_no_socket(MP_UNUSED void *ctx, MP_UNUSED curlsocktype purpose,
                                    MP_UNUSED struct curl_sockaddr *address)
{
    return CURL_SOCKET_BAD;
}

/* Starts a request that fails before it opens a socket: by then libcurl has closed unused connections. */
static void begin_sweep(mp_client *client)
{
    const mp_curl_api *curl = client->curl;
    CURLM *multi = client->multi;
    if (curl == NULL || multi == NULL || client->sweeper != NULL)
        return; /* without a multi handle, no request got beyond its lookup */
    CURL *easy = curl->easy_init();
    if (easy == NULL)
        return;
    curl->easy_setopt(easy, CURLOPT_URL, "http://127.0.0.1/");
    curl->easy_setopt(easy, CURLOPT_PROXY, "");
    curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, MP_NAMES_S);
    curl->easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl->easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_no_socket);
    curl->easy_setopt(easy, CURLOPT_MAXAGE_CONN, is_tight(client) ? 0L : (long)(client->limits.idle_ms / 1000));
    if (curl->multi_add_handle(multi, easy) == CURLM_OK)
        client->sweeper = easy;
    else
        curl->easy_cleanup(easy);
}

static void on_sweep(mp_timer *timer);

/* The connection of a transfer that has ended is too old at the second sweep after it, if not at the first. */
static void expect_sweep(mp_client *client)
{
    uint64_t ms = client->limits.idle_ms < MIN_SWEEP_MS ? MIN_SWEEP_MS : client->limits.idle_ms + MIN_SWEEP_MS;
    if (client->sweep.slot != 0)
        return;
    client->sweep_at = mp_loop_now(client->loop) + ms;
    mp_timer_start(client->loop, &client->sweep, LOOK_MS, on_sweep);
}

static void on_sweep(mp_timer *timer)
{
    mp_client *client = mp_container(timer, mp_client, sweep);
    if (client->active == 0)
        return; /* on_idle closes all */
    bool is_early = mp_loop_now(client->loop) < client->sweep_at;
    if (is_early)
        mp_timer_start(client->loop, timer, LOOK_MS, on_sweep);
    if (!is_early || is_tight(client))
        begin_sweep(client);
    if (is_early)
        return;
    if (client->has_ended)
        expect_sweep(client);
    client->has_ended = false;
}

/* -- transfers ----------------------------------------------------------------------------------------------------- */

/* No more connections are kept than requests may be in flight. */
static void set_limits(const mp_client_limits *limits, const mp_curl_api *curl, CURLM *multi)
{
    curl->multi_setopt(multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)limits->per_host);
    curl->multi_setopt(multi, CURLMOPT_MAXCONNECTS, (long)limits->requests);
}

static CURLM *MP_NULLABLE open_multi(mp_client *client, const mp_curl_api *curl, mp_err *err)
{
    CURLM *multi = curl->multi_init();
    if (multi == NULL) {
        mp_err_set(err, "libcurl cannot create a handle");
        return NULL;
    }
    curl->multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl->multi_setopt(multi, CURLMOPT_SOCKETDATA, client);
    curl->multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    curl->multi_setopt(multi, CURLMOPT_TIMERDATA, client);
    curl->multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    set_limits(&client->limits, curl, multi);
    client->multi = multi;
    return multi;
}

void mp_client_configure(mp_client *client, const mp_client_limits *limits)
{
    const mp_curl_api *curl = client->curl;
    CURLM *multi = client->multi;
    client->limits = *limits;
    if (curl != NULL && multi != NULL)
        set_limits(limits, curl, multi);
}

void mp_client_enter(mp_client *client)
{
    mp_timer_stop(client->loop, &client->idle);
    client->active++;
    mp_stat_add(&mp_stat_http_requests, !client->limits.is_inner);
}

int mp_client_add(mp_client *client, const mp_curl_api *curl, CURL *easy, mp_err *err)
{
    CURLM *multi = client->multi;
    if (multi == NULL && (multi = open_multi(client, curl, err)) == NULL)
        return -1;
    if (curl->multi_add_handle(multi, easy) != CURLM_OK)
        return mp_err_set(err, "libcurl refused the request");
    return 0;
}

void mp_client_remove(mp_client *client, const mp_curl_api *curl, CURL *easy)
{
    CURLM *multi = client->multi;
    if (multi != NULL)
        curl->multi_remove_handle(multi, easy);
    mp_stat_add(&mp_stat_http_requests, client->limits.is_inner ? 0 : -1);
    client->has_ended = true;
    client->idle_until = mp_loop_now(client->loop) + client->limits.idle_ms;
    if (--client->active == 0)
        look_later(client);
    else
        expect_sweep(client);
}
