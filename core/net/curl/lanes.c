/* lanes.c: runs the sockets and timers of libcurl in our loop. The callbacks here only mark and enqueue. Transfers end
 * in `drive`, outside every other function of libcurl.
 *
 * A lane is a multi handle. Where a transfer begins or ends, all connections to its host in the handle are looked at:
 * with all transfers in one handle, each would cost more the more are in flight. A transfer goes to the first lane with
 * room for its destination. A lane is in use only while those before it are full, so that there are no more connections
 * than transfers were in flight at once, although nobody here knows which are free, and the last lanes become idle
 * first, and are closed.
 *
 * Connections that no transfer uses are kept by time, limits.idle_ms, and not by number: a cache smaller than what is
 * in flight would close a connection at the end of each transfer, and open one for the next. libcurl closes those that
 * are too old when it looks for a connection. While transfers run and none begins, a handle that connects to nothing
 * makes it look: `sweep`. While descriptors are tight, unused connections are not kept. */
#include "lanes.h"

MP_GAUGE(
    http_lanes, "http_lanes", "", "",
    "groups of at most 64 outgoing HTTP requests to one server at once; one stays until its connections are closed")

#define ROOM 64            /* transfers of one destination in a lane */
#define LANE_DESCRIPTORS 2 /* of a multi handle, by which another thread may wake it */
#define MIN_SWEEP_MS 1000  /* libcurl counts the age of connections in seconds */
#define LOOK_MS 1000       /* interval at which a lane with unused connections looks whether descriptors are tight */

struct mp_lane {
    mp_lanes *lanes;
    const mp_curl_api *curl;
    CURLM *multi;
    int number, descriptors;
    unsigned holder;
    mp_timer timer;            /* libcurl's timer */
    mp_link due;               /* in lanes->due while the timer is to run at once */
    mp_timer idle;             /* closes the lane, with its unused connections, while it has no transfer */
    uint64_t idle_until;       /* time of the loop from which on no unused connection is kept */
    uint64_t sweep_at;         /* time of the loop of the next sweep, unless descriptors are tight before */
    mp_timer sweep;            /* closes unused connections while other transfers run */
    CURL *MP_NULLABLE sweeper; /* see begin_sweep; NULL: no sweep is under way */
    bool has_ended;            /* a transfer has ended since the last sweep */
    int64_t active;            /* transfers that it has */
};

static void end_sweep(mp_lane *lane)
{
    CURL *sweeper = lane->sweeper;
    if (sweeper == NULL)
        return;
    lane->sweeper = NULL;
    lane->curl->multi_remove_handle(lane->multi, sweeper);
    lane->curl->easy_cleanup(sweeper);
}

static void close_lane(mp_lane *lane)
{
    mp_lanes *lanes = lane->lanes;
    mp_loop *loop = lanes->sockets.loop;
    mp_timer_stop(loop, &lane->idle);
    mp_timer_stop(loop, &lane->sweep);
    end_sweep(lane);
    lane->curl->multi_cleanup(lane->multi);
    mp_timer_stop(loop, &lane->timer);
    mp_link_drop(&lane->due);
    if (lane->descriptors > 0)
        mp_outgoing_give(lane->descriptors, lane->holder);
    lanes->list[lane->number] = NULL;
    lanes->open--;
    mp_stat_add(&mp_stat_http_lanes, -1);
    free(lane);
}

static void on_idle(mp_timer *timer);

/* Looks whether unused connections have to be closed; at once where descriptors are tight. */
static void look_later(mp_lane *lane)
{
    mp_loop *loop = lane->lanes->sockets.loop;
    uint64_t now = mp_loop_now(loop), left = lane->idle_until > now ? lane->idle_until - now : 0;
    mp_timer_start(loop, &lane->idle, mp_outgoing_is_tight() ? 0 : left < LOOK_MS ? left : LOOK_MS, on_idle);
}

static void on_idle(mp_timer *timer)
{
    mp_lane *lane = mp_container(timer, mp_lane, idle);
    if (mp_outgoing_is_tight() || mp_loop_now(lane->lanes->sockets.loop) >= lane->idle_until)
        close_lane(lane);
    else
        look_later(lane);
}

/* -- driving ------------------------------------------------------------------------------------------------------- */

static void drive(mp_lane *lane, curl_socket_t socket, int events)
{
    int running, left;
    CURLMsg *message;
    const mp_curl_api *curl = lane->curl;
    mp_link_drop(&lane->due);
    curl->multi_socket_action(lane->multi, socket, events, &running);
    while ((message = curl->multi_info_read(lane->multi, &left)) != NULL) {
        CURLcode result = message->data.result;
        if (message->easy_handle == lane->sweeper) {
            end_sweep(lane);
            continue;
        }
        lane->lanes->hooks.ended(curl, message->easy_handle, result);
    }
}

static void on_ready(void *owner, curl_socket_t fd, int events)
{
    drive(owner, fd, events);
}

static int on_socket(CURL *easy, curl_socket_t socket, int what, void *ctx, MP_UNUSED void *MP_NULLABLE own)
{
    mp_lane *lane = ctx;
    mp_lanes *lanes = lane->lanes;
    if (what != CURL_POLL_REMOVE)
        return mp_socket_watch_for(&lanes->sockets, lane, socket, what);
    mp_socket_rest(&lanes->sockets, socket, lanes->hooks.is_on_kept(lane->curl, easy));
    return 0;
}

static void on_timer(mp_timer *timer)
{
    drive(mp_container(timer, mp_lane, timer), CURL_SOCKET_TIMEOUT, 0);
}

static int on_timeout(MP_UNUSED CURLM *multi, long ms, void *ctx)
{
    mp_lane *lane = ctx;
    mp_lanes *lanes = lane->lanes;
    mp_link_drop(&lane->due);
    if (ms == 0)
        mp_link_put(&lanes->due, &lane->due);
    if (ms < 0)
        mp_timer_stop(lanes->sockets.loop, &lane->timer);
    else
        mp_timer_start(lanes->sockets.loop, &lane->timer, (uint64_t)ms, on_timer);
    return 0;
}

/* -- unused connections -------------------------------------------------------------------------------------------- */

static curl_socket_t open_no_socket(MP_UNUSED void *ctx, MP_UNUSED curlsocktype purpose,
                                    MP_UNUSED struct curl_sockaddr *address)
{
    return CURL_SOCKET_BAD;
}

/* Starts a request that fails before it opens a socket: by then libcurl has closed unused connections. */
static void begin_sweep(mp_lane *lane)
{
    const mp_curl_api *curl = lane->curl;
    mp_lanes *lanes = lane->lanes;
    if (lane->sweeper != NULL)
        return;
    CURL *easy = curl->easy_init();
    if (easy == NULL)
        return;
    curl->easy_setopt(easy, CURLOPT_URL, "http://127.0.0.1/");
    curl->easy_setopt(easy, CURLOPT_PROXY, "");
    curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    curl->easy_setopt(easy, CURLOPT_DNS_CACHE_TIMEOUT, MP_NAMES_S);
    curl->easy_setopt(easy, CURLOPT_FRESH_CONNECT, 1L);
    curl->easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_no_socket);
    curl->easy_setopt(easy, CURLOPT_MAXAGE_CONN, mp_outgoing_is_tight() ? 0L : (long)(lanes->limits.idle_ms / 1000));
    if (curl->multi_add_handle(lane->multi, easy) == CURLM_OK)
        lane->sweeper = easy;
    else
        curl->easy_cleanup(easy);
}

static void on_sweep(mp_timer *timer);

/* The connection of a transfer that has ended is too old at the second sweep after it, if not at the first. */
static void expect_sweep(mp_lane *lane)
{
    mp_lanes *lanes = lane->lanes;
    uint64_t ms = lanes->limits.idle_ms < MIN_SWEEP_MS ? MIN_SWEEP_MS : lanes->limits.idle_ms + MIN_SWEEP_MS;
    if (lane->sweep.slot != 0)
        return;
    lane->sweep_at = mp_loop_now(lanes->sockets.loop) + ms;
    mp_timer_start(lanes->sockets.loop, &lane->sweep, LOOK_MS, on_sweep);
}

static void on_sweep(mp_timer *timer)
{
    mp_lane *lane = mp_container(timer, mp_lane, sweep);
    mp_lanes *lanes = lane->lanes;
    if (lane->active == 0)
        return; /* on_idle closes all */
    bool is_early = mp_loop_now(lanes->sockets.loop) < lane->sweep_at;
    if (is_early)
        mp_timer_start(lanes->sockets.loop, timer, LOOK_MS, on_sweep);
    if (!is_early || mp_outgoing_is_tight())
        begin_sweep(lane);
    if (is_early)
        return;
    if (lane->has_ended)
        expect_sweep(lane);
    lane->has_ended = false;
}

/* -- lanes -------------------------------------------------------------------------------------------------------- */

/* No more connections are kept than requests may be in flight. */
static void set_limits(mp_lane *lane)
{
    const mp_lane_limits *limits = &lane->lanes->limits;
    lane->curl->multi_setopt(lane->multi, CURLMOPT_MAX_HOST_CONNECTIONS, (long)limits->per_host);
    lane->curl->multi_setopt(lane->multi, CURLMOPT_MAXCONNECTS, (long)limits->requests);
}

static mp_lane *MP_NULLABLE open_lane(mp_lanes *lanes, const mp_curl_api *curl, int number, mp_err *err)
{
    CURLM *multi = curl->multi_init();
    if (multi == NULL) {
        mp_err_set(err, "libcurl cannot create a handle");
        return NULL;
    }
    mp_lane *lane = mp_new(sizeof *lane);
    lane->lanes = lanes;
    lane->curl = curl;
    lane->multi = multi;
    lane->number = number;
    curl->multi_setopt(multi, CURLMOPT_SOCKETFUNCTION, on_socket);
    curl->multi_setopt(multi, CURLMOPT_SOCKETDATA, lane);
    curl->multi_setopt(multi, CURLMOPT_TIMERFUNCTION, on_timeout);
    curl->multi_setopt(multi, CURLMOPT_TIMERDATA, lane);
    curl->multi_setopt(multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
    set_limits(lane);
    lanes->list[number] = lane;
    lanes->open++;
    mp_stat_add(&mp_stat_http_lanes, 1);
    return lane;
}

/* Opens a lane, or takes the first one instead where descriptors are tight. The descriptors of the first one are not
 * counted. */
static mp_lane *MP_NULLABLE need_lane(mp_lanes *lanes, const mp_curl_api *curl, int number, unsigned holder,
                                      mp_err *err)
{
    mp_lane *lane = lanes->list[number];
    bool is_counted = number > 0;
    if (lane != NULL)
        return lane;
    if (is_counted && (mp_outgoing_is_tight() || !mp_outgoing_take(LANE_DESCRIPTORS, holder)))
        return need_lane(lanes, curl, 0, holder, err);
    lane = open_lane(lanes, curl, number, err);
    if (lane != NULL && is_counted) {
        lane->descriptors = LANE_DESCRIPTORS;
        lane->holder = holder;
    } else if (is_counted) {
        mp_outgoing_give(LANE_DESCRIPTORS, holder);
    }
    return lane;
}

/* The first lane with room. Connections to one host that have a limit are all in one lane, which keeps it. */
static int choose_lane(const mp_lanes *lanes, const mp_destination *destination)
{
    if (lanes->limits.per_host > 0)
        return 0;
    for (int i = 0; i < MP_LANES / 64; i++)
        if (destination->full[i] != UINT64_MAX)
            return 64 * i + __builtin_ctzll(~destination->full[i]);
    return 0;
}

/* -- public functions ---------------------------------------------------------------------------------------------- */

void mp_lanes_init(mp_lanes *lanes, mp_loop *loop, const mp_lane_limits *limits, const mp_lane_hooks *hooks)
{
    lanes->sockets.loop = loop;
    lanes->sockets.ready = on_ready;
    lanes->limits = *limits;
    lanes->hooks = *hooks;
    mp_map_init(&lanes->destinations);
}

void mp_lanes_clear(mp_lanes *lanes)
{
    for (int i = 0; i < MP_LANES; i++) {
        mp_lane *lane = lanes->list[i];
        if (lane != NULL)
            close_lane(lane);
    }
    mp_map_clear(&lanes->destinations);
    mp_sockets_clear(&lanes->sockets);
}

void mp_lanes_configure(mp_lanes *lanes, const mp_lane_limits *limits)
{
    lanes->limits = *limits;
    for (int i = 0; i < MP_LANES; i++) {
        mp_lane *lane = lanes->list[i];
        if (lane != NULL)
            set_limits(lane);
    }
}

void mp_lanes_drive(mp_lanes *lanes)
{
    mp_link due = {0};
    mp_link_move(&lanes->due, &due); /* what becomes due meanwhile waits for the next turn */
    MP_EACH_TAKEN(mp_lane, lane, &due, due)
        drive(lane, CURL_SOCKET_TIMEOUT, 0);
}

mp_destination *mp_lanes_enter(mp_lanes *lanes, mp_str key)
{
    bool is_new;
    mp_destination *destination = mp_map_need(&lanes->destinations, key, sizeof *destination, &is_new);
    destination->users++;
    return destination;
}

void mp_lanes_leave(mp_lanes *lanes, mp_destination *destination)
{
    if (--destination->users > 0)
        return;
    mp_map_drop(&lanes->destinations, &destination->node);
    free(destination);
}

mp_lane *MP_NULLABLE mp_lanes_add(mp_lanes *lanes, const mp_curl_api *curl, CURL *easy, mp_destination *destination,
                                  unsigned holder, mp_err *err)
{
    mp_lane *lane = need_lane(lanes, curl, choose_lane(lanes, destination), holder, err);
    if (lane == NULL)
        return NULL;
    if (curl->multi_add_handle(lane->multi, easy) != CURLM_OK) {
        mp_err_set(err, "libcurl refused the request");
        return NULL;
    }
    mp_timer_stop(lanes->sockets.loop, &lane->idle);
    lane->active++;
    if (++destination->in_flight[lane->number] >= ROOM)
        destination->full[lane->number / 64] |= (uint64_t)1 << lane->number % 64;
    return lane;
}

void mp_lanes_remove(mp_lane *lane, CURL *easy, mp_destination *destination)
{
    mp_lanes *lanes = lane->lanes;
    lane->curl->multi_remove_handle(lane->multi, easy);
    if (--destination->in_flight[lane->number] < ROOM)
        destination->full[lane->number / 64] &= ~((uint64_t)1 << lane->number % 64);
    lane->has_ended = true;
    lane->idle_until = mp_loop_now(lanes->sockets.loop) + lanes->limits.idle_ms;
    if (--lane->active == 0)
        look_later(lane);
    else
        expect_sweep(lane);
}
