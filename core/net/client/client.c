/* client.c: the client of one loop: its transfers, the handles that it keeps, and its lanes. */
#include "transfer.h"
#include <moonpool/version.h>
#include <openssl/ssl.h>

MP_REFUSED(refused_http, "http", MP_LIMIT_REACHED, "outgoing requests over 256 of one worker")
MP_GAUGE(http_requests, "http_requests", "", "", "outgoing HTTP requests in flight")
MP_GAUGE(http_handles, "http_handles", "", "",
         "handles of outgoing HTTP requests that are kept for the next ones: no more than were in flight in the last "
         "0.4 s, or sixteen for each client")

#define WINDOW_MS 200 /* two of them end before core/gateway/trim.c returns the memory of clients that have left */
#define RARELY_MS 2000
#define ALWAYS_KEPT 16 /* handles that are kept as long as a lane is open */
#define FREED_AT_ONCE 256

static mp_lane_limits lane_limits(const mp_client_limits *limits)
{
    return (mp_lane_limits){.requests = limits->requests, .per_host = limits->per_host, .idle_ms = limits->idle_ms};
}

mp_client *mp_client_new(mp_loop *loop, const mp_client_limits *limits)
{
    static const mp_lane_hooks hooks = {mp_transfer_on_end, mp_transfer_is_on_kept};
    mp_client *client = mp_new(sizeof *client);
    mp_lane_limits own = lane_limits(limits);
    client->loop = loop;
    client->limits = *limits;
    client->way = limits->is_inner ? &mp_inner_way : &mp_curl_way;
    snprintf(client->agent, sizeof client->agent, "User-Agent: moonpool/%.*s", (int)strcspn(MOONPOOL_VERSION, "+"),
             MOONPOOL_VERSION);
    if (!limits->is_inner)
        mp_lanes_init(&client->lanes, loop, &own, &hooks);
    return client;
}

void mp_client_configure(mp_client *client, const mp_client_limits *limits)
{
    mp_lane_limits own = lane_limits(limits);
    client->limits = *limits;
    mp_lanes_configure(&client->lanes, &own);
}

void mp_client_begin(mp_client *client)
{
    mp_lanes_drive(&client->lanes);
}

void mp_client_enter(mp_client *client)
{
    client->active++;
    if (client->active > client->kept.most)
        client->kept.most = client->active;
    mp_stat_add(&mp_stat_http_requests, 1);
}

void mp_client_leave(mp_client *client)
{
    client->active--;
    mp_stat_add(&mp_stat_http_requests, -1);
}

const char *mp_client_version(void)
{
    return mp_curl_version();
}

/* -- handles ------------------------------------------------------------------------------------------------------- */

static void free_kept(mp_client *client, const mp_curl_api *curl, int most)
{
    mp_stat_add(&mp_stat_http_handles, -most);
    for (; most > 0; most--)
        mp_handle_free(curl, client->kept.handles[--client->kept.count]);
}

static int64_t wanted_handles(const mp_client *client)
{
    int64_t most = client->kept.most > client->kept.before ? client->kept.most : client->kept.before;
    int64_t least = client->lanes.open > 0 ? ALWAYS_KEPT : 0;
    return most - client->active > least ? most - client->active : least;
}

static void on_window(mp_timer *timer);

/* Few handles stay as long as there are transfers or connections, and are looked at rarely. */
static void count_window(mp_client *client)
{
    uint64_t ms = client->kept.count > ALWAYS_KEPT ? WINDOW_MS : RARELY_MS;
    bool is_late = client->kept.timer.slot == 0 || client->kept.timer.at > mp_loop_now(client->loop) + ms;
    if (is_late && client->kept.count > (client->active > 0 ? ALWAYS_KEPT : 0))
        mp_timer_start(client->loop, &client->kept.timer, ms, on_window);
}

/* Frees handles, some in each turn, and begins the next window when all are freed that are not wanted. */
static void on_window(mp_timer *timer)
{
    mp_client *client = mp_container(timer, mp_client, kept.timer);
    const mp_curl_api *curl = client->curl;
    int64_t excess = client->kept.count - wanted_handles(client);
    if (curl != NULL && excess > 0)
        free_kept(client, curl, excess < FREED_AT_ONCE ? (int)excess : FREED_AT_ONCE);
    if (excess > FREED_AT_ONCE) {
        mp_timer_start(client->loop, timer, 0, on_window);
        return;
    }
    client->kept.before = client->kept.most;
    client->kept.most = client->active;
    count_window(client);
}

mp_handle *MP_NULLABLE mp_client_take(mp_client *client, const mp_curl_api *curl)
{
    if (client->kept.count == 0)
        return mp_handle_new(curl);
    mp_stat_add(&mp_stat_http_handles, -1);
    return client->kept.handles[--client->kept.count];
}

void mp_client_give(mp_client *client, const mp_curl_api *curl, mp_handle *handle)
{
    handle->owner = MP_UNSET;
    if (client->kept.count >= wanted_handles(client)) {
        mp_handle_free(curl, handle);
        count_window(client);
        return;
    }
    if (client->kept.count == client->kept.size) {
        client->kept.size = 2 * client->kept.size + ALWAYS_KEPT;
        client->kept.handles = mp_resize(client->kept.handles, (size_t)client->kept.size * sizeof(mp_handle *));
    }
    client->kept.handles[client->kept.count++] = handle;
    mp_stat_add(&mp_stat_http_handles, 1);
    count_window(client);
}

void mp_client_free(mp_client *MP_NULLABLE client)
{
    if (client == NULL)
        return;
    const mp_curl_api *curl = client->curl;
    client->way->clear(client);
    mp_timer_stop(client->loop, &client->kept.timer);
    SSL_CTX_free(client->tls.context);
    mp_tls_unref(client->tls.own);
    if (curl != NULL)
        free_kept(client, curl, client->kept.count);
    free(client->kept.handles);
    free(client);
}

/* -- transfers ----------------------------------------------------------------------------------------------------- */

static void free_answer(mp_transfer *transfer)
{
    mp_transfer_discard(transfer);
    mp_buf_clear(&transfer->head);
    mp_buf_clear(&transfer->body);
    free(transfer->failure);
    free(transfer);
}

mp_transfer *MP_NULLABLE mp_transfer_start(mp_client *client, const mp_outgoing *outgoing, mp_err *err)
{
    if (client->active >= client->limits.requests) {
        mp_stat_add(&mp_stat_refused_http, 1);
        mp_err_set(err, "too many outgoing requests in flight");
        mp_err_hint(err, "the limit is %lld", (long long)client->limits.requests);
        return NULL;
    }
    mp_transfer *transfer = mp_new(sizeof *transfer);
    transfer->client = client;
    transfer->how = *outgoing;
    int failed = client->way->start(transfer, err);
    transfer->how.url = MP_UNSET;
    transfer->how.ca = transfer->how.certificate = transfer->how.key = NULL;
    transfer->how.tls = NULL;
    transfer->how.unix_path = transfer->how.connect_to = NULL;
    transfer->how.headers = NULL;
    if (failed == 0)
        return transfer;
    free_answer(transfer);
    return NULL;
}

void mp_transfer_free(mp_transfer *MP_NULLABLE transfer)
{
    if (transfer == NULL)
        return;
    transfer->client->way->end(transfer);
    free_answer(transfer);
}

int mp_transfer_status(const mp_transfer *transfer)
{
    return transfer->status;
}

mp_str mp_transfer_head(const mp_transfer *transfer)
{
    return mp_buf_str(&transfer->head);
}

mp_str mp_transfer_body(const mp_transfer *transfer)
{
    return mp_buf_str(&transfer->body);
}

void mp_transfer_take(mp_transfer *transfer)
{
    mp_transfer_discard(transfer);
    if (!transfer->is_paused || transfer->is_over)
        return;
    transfer->is_paused = false;
    transfer->client->way->go_on(transfer);
}

bool mp_transfer_is_over(const mp_transfer *transfer)
{
    return transfer->is_over;
}

const mp_err *MP_NULLABLE mp_transfer_failure(const mp_transfer *transfer)
{
    return transfer->failure;
}

mp_transfer_trouble mp_transfer_trouble_of(const mp_transfer *transfer)
{
    return transfer->is_crowded    ? MP_TRANSFER_CROWDED
           : transfer->was_refused ? MP_TRANSFER_REFUSED
           : transfer->has_head    ? MP_TRANSFER_OTHER
           : transfer->is_unread   ? MP_TRANSFER_UNSENT
           : transfer->is_partial  ? MP_TRANSFER_PARTIAL
           : transfer->was_sent    ? MP_TRANSFER_UNANSWERED
                                   : MP_TRANSFER_UNSENT;
}
