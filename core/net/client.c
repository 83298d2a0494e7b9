/* client.c: runs the sockets and timers of libcurl in our loop. The callbacks here only mark and enqueue. Transfers end
 * in `drive`, outside every other function of libcurl.
 *
 * Connections that no transfer uses are kept by time, limits.idle_ms, and not by number: a cache smaller than what is
 * in flight would close a connection at the end of each transfer, and open one for the next. libcurl closes those that
 * are too old when it looks for a connection. While transfers run and none begins, a handle that connects to nothing
 * makes it look: `sweep`. */
#include "transfer.h"
#include <errno.h>
#include <stdlib.h>
#include <sys/epoll.h>

MP_GAUGE(http_requests, "http_requests", "", "", "outgoing HTTP requests in flight")

#define MIN_SWEEP_MS 1000 /* libcurl counts the age of connections in seconds */

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

static void end_sweep(mp_client *client)
{
    if (client->sweeper == NULL)
        return;
    client->curl->multi_remove_handle(client->multi, client->sweeper);
    client->curl->easy_cleanup(client->sweeper);
    client->sweeper = NULL;
}

static void close_all(mp_client *client)
{
    mp_timer_stop(client->loop, &client->idle);
    mp_timer_stop(client->loop, &client->sweep);
    end_sweep(client);
    while (client->kept_count > 0)
        client->curl->easy_cleanup(client->kept[--client->kept_count]);
    if (client->multi != NULL)
        client->curl->multi_cleanup(client->multi);
    client->multi = NULL;
    mp_timer_stop(client->loop, &client->timer);
}

void mp_client_free(mp_client *client)
{
    if (client == NULL)
        return;
    close_all(client);
    free(client);
}

static void on_idle(mp_timer *timer)
{
    close_all(mp_container(timer, mp_client, idle));
}

/* -- driving ------------------------------------------------------------------------------------------------------- */

static void drive(mp_client *client, curl_socket_t socket, int events)
{
    int running, left;
    CURLMsg *message;
    client->is_due = false;
    client->curl->multi_socket_action(client->multi, socket, events, &running);
    while ((message = client->curl->multi_info_read(client->multi, &left)) != NULL) {
        CURLcode result = message->data.result;
        mp_transfer *transfer;
        if (message->easy_handle == client->sweeper) {
            end_sweep(client);
            continue;
        }
        client->curl->easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &transfer);
        mp_transfer_end(transfer, result);
    }
}

/* May free the watch. */
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
    drive(client, watch->fd, flags);
}

static int on_socket(CURL *easy, curl_socket_t socket, int what, void *ctx, void *own)
{
    (void)easy;
    mp_client *client = ctx;
    socket_watch *watch = own;
    if (what == CURL_POLL_REMOVE) {
        if (watch != NULL) {
            mp_fdwatch_stop(client->loop, &watch->super);
            client->curl->multi_assign(client->multi, socket, NULL);
            free(watch);
        }
        return 0;
    }
    if (watch == NULL) {
        watch = mp_new(sizeof *watch);
        watch->client = client;
        client->curl->multi_assign(client->multi, socket, watch);
    }
    uint32_t events =
        ((what & CURL_POLL_IN) != 0 ? (uint32_t)EPOLLIN : 0) | ((what & CURL_POLL_OUT) != 0 ? (uint32_t)EPOLLOUT : 0);
    return mp_fdwatch_start(client->loop, &watch->super, socket, events, on_ready);
}

static void on_timer(mp_timer *timer)
{
    drive(mp_container(timer, mp_client, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int on_timeout(CURLM *multi, long ms, void *ctx)
{
    (void)multi;
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
        drive(client, CURL_SOCKET_TIMEOUT, 0);
}

/* -- handles ------------------------------------------------------------------------------------------------------- */

CURL *mp_client_take(mp_client *client)
{
    return client->kept_count > 0 ? client->kept[--client->kept_count] : client->curl->easy_init();
}

void mp_client_give(mp_client *client, CURL *easy)
{
    if (client->kept_count == MP_KEPT_HANDLES || client->multi == NULL) {
        client->curl->easy_cleanup(easy);
        return;
    }
    client->curl->easy_reset(easy);
    client->kept[client->kept_count++] = easy;
}

/* -- unused connections -------------------------------------------------------------------------------------------- */

static curl_socket_t open_no_socket(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)ctx;
    (void)purpose;
    (void)address;
    return CURL_SOCKET_BAD;
}

/* Adds a handle whose connection fails before it has a socket: libcurl has closed unused connections by then. */
static void begin_sweep(mp_client *client)
{
    const mp_curl_api *curl = client->curl;
    CURL *easy = client->sweeper == NULL ? curl->easy_init() : NULL;
    if (easy == NULL)
        return;
    curl->easy_setopt(easy, CURLOPT_URL, "http://127.0.0.1/");
    curl->easy_setopt(easy, CURLOPT_PROXY, "");
    curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, MP_NAMES_S);
    curl->easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl->easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_no_socket);
    curl->easy_setopt(easy, CURLOPT_MAXAGE_CONN, (long)(client->limits.idle_ms / 1000));
    if (curl->multi_add_handle(client->multi, easy) == CURLM_OK)
        client->sweeper = easy;
    else
        curl->easy_cleanup(easy);
}

static void on_sweep(mp_timer *timer);

/* The connection of a transfer that has ended is too old at the second sweep after it, if not at the first. */
static void expect_sweep(mp_client *client)
{
    uint64_t ms = client->limits.idle_ms < MIN_SWEEP_MS ? MIN_SWEEP_MS : client->limits.idle_ms + MIN_SWEEP_MS;
    if (client->sweep.slot == 0)
        mp_timer_start(client->loop, &client->sweep, ms, on_sweep);
}

static void on_sweep(mp_timer *timer)
{
    mp_client *client = mp_container(timer, mp_client, sweep);
    if (client->active == 0)
        return; /* on_idle closes all */
    begin_sweep(client);
    if (client->has_ended)
        expect_sweep(client);
    client->has_ended = false;
}

/* -- transfers ----------------------------------------------------------------------------------------------------- */

/* No more connections are kept than requests may be in flight. */
static void set_limits(mp_client *client)
{
    client->curl->multi_setopt(client->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)client->limits.per_host);
    client->curl->multi_setopt(client->multi, CURLMOPT_MAXCONNECTS, (long)client->limits.requests);
}

static int open_multi(mp_client *client, mp_err *err)
{
    const mp_curl_api *curl = client->curl;
    client->multi = curl->multi_init();
    if (client->multi == NULL)
        return mp_err_set(err, "libcurl cannot create a handle");
    curl->multi_setopt(client->multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl->multi_setopt(client->multi, CURLMOPT_SOCKETDATA, client);
    curl->multi_setopt(client->multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    curl->multi_setopt(client->multi, CURLMOPT_TIMERDATA, client);
    curl->multi_setopt(client->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    set_limits(client);
    return 0;
}

void mp_client_configure(mp_client *client, const mp_client_limits *limits)
{
    client->limits = *limits;
    if (client->multi != NULL)
        set_limits(client);
}

void mp_client_enter(mp_client *client)
{
    mp_timer_stop(client->loop, &client->idle);
    client->active++;
    mp_stat_add(&mp_stat_http_requests, 1);
}

int mp_client_add(mp_client *client, CURL *easy, mp_err *err)
{
    if (client->multi == NULL && open_multi(client, err) != 0)
        return -1;
    if (client->curl->multi_add_handle(client->multi, easy) != CURLM_OK)
        return mp_err_set(err, "libcurl refused the request");
    return 0;
}

void mp_client_remove(mp_client *client, CURL *easy)
{
    if (client->multi != NULL)
        client->curl->multi_remove_handle(client->multi, easy);
    mp_stat_add(&mp_stat_http_requests, -1);
    client->has_ended = true;
    if (--client->active == 0)
        mp_timer_start(client->loop, &client->idle, client->limits.idle_ms, on_idle);
    else
        expect_sweep(client);
}
