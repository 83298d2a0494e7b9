/* server.c: the HTTP server of one loop: accepts connections up to the limit, passes requests on, drains. */
#define _GNU_SOURCE /* accept4 */
#include "http.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

MP_ACCOUNT(connections, "connections", "", "", "open client connections")
MP_COUNTER(requests, "requests", "", "", "HTTP requests received")
MP_COUNTER(connections_handed_over, "connections_handed_over", "", "", "connections given to a worker that had fewer")
MP_REFUSED(refused_own, "admin_connections", MP_LIMIT_REACHED,
           "times that accepting paused at 256 connections to the admin listener")
MP_REFUSED(refused_connections, "connections", MP_LIMIT_REACHED, "times that accepting paused at limits.connections")
MP_REFUSED(refused_hop_connections, "hop_connections", MP_LIMIT_REACHED,
           "times that accepting paused at 65536 connections of other processes")

MP_REFUSED(refused_share, "connection_shares", MP_LIMIT_REACHED,
           "connections of addresses that have more than others, in the last 64th of limits.connections")

/* The last part of limits.connections is for addresses that have few connections: a 64th, or 8 where that is less. A
 * limit below 64 is too low to be shared. */
#define KEPT 64
#define KEPT_LEAST 8
#define SERVER_DESCRIPTORS 2 /* descriptors that libh2o opens for a server: a pipe */
#define ACCEPT_BATCH 16
#define RETRY_MS 10          /* interval at which a listener paused at the limit checks for room */
#define STARVED_RETRY_MS 100 /* retry interval when out of file descriptors */
#define DRAIN_TICK_MS 20
#define COMPLAIN_EVERY_MS 10000
#define FREE_TURNS 1000
#define WRITE_TURNS 10 /* turns in which the answers are written that requests get at the end */
/* a drain leaves a new connection this time, since its first request may be on its way */
#define FIRST_REQUEST_MS 200
/* connections that wait to be taken over by one server: more would wait long if it is stuck */
#define MAX_HANDED 64

typedef struct {
    h2o_handler_t super;
    mp_server *server;
} handler;

static _Atomic int64_t max_connections; /* limits.connections */
static atomic_int overloads;            /* the sum of the arguments of mp_servers_press */
static mp_holdings holdings;            /* the connections of each address, by mp_conn_share */
static _Atomic int64_t held;            /* number of connections in `holdings` */
static _Atomic int64_t begun;           /* number of connections of all addresses that a server has; no operator's */

static int64_t most_of_all(void)
{
    return atomic_load_explicit(&max_connections, memory_order_relaxed);
}

/* The limit of the listener's account. */
static int64_t most_of(const mp_listener *listener)
{
    return listener->endpoint.reserve + (listener->endpoint.is_inner ? 0 : most_of_all());
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

static void refuse_request(const mp_live *live, mp_cause cause, int status, mp_str why)
{
    mp_stream *stream = live->stream;
    mp_str line = mp_str_trim(why);
    mp_conn_count_refusal(cause);
    mp_refused(cause, line, mp_log_int("status", status), mp_log_str("method", stream->head->view.method),
               mp_log_str("path", stream->head->view.path), mp_log_str("address", mp_stream_address(stream)));
    live->req->http1_is_persistent = 0;
    char seconds[16];
    mp_header retry = {"retry-after", {seconds, 0}};
    if (cause == MP_CAUSE_BODIES)
        retry.value.len = (size_t)snprintf(seconds, sizeof seconds, "%u", mp_body_budget_room_s(live->conn));
    mp_stream_answer(stream, status, "text/plain; charset=utf-8", why, &retry, cause == MP_CAUSE_BODIES ? 1 : 0);
}

/* HTTP/1: describes an ambiguity in the request at the beginning of the connection's input; NULL: there is none. */
static const char *MP_NULLABLE find_fault(mp_conn *conn, const h2o_req_t *req)
{
    const h2o_buffer_t *input = conn->socket->input;
    return mp_framing_fault((mp_str){input->bytes, input->size}, req->version & 0xff);
}

static size_t most_headers(const mp_conn *conn)
{
    size_t own = conn->listener->endpoint.headers;
    return own > 0 ? own : MP_MAX_HEADERS;
}

static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
    mp_server *server = ((handler *)self)->server;
    mp_conn *conn = req->conn->callbacks->get_socket(req->conn)->on_close.data;
    const mp_live *live = mp_stream_begin(conn, req);
    conn->opened_at = 0;
    if (conn->listener->endpoint.most > 0) { /* the first of the list has been idle for longest: make_room() */
        mp_link_drop(&conn->link);
        mp_link_put(&conn->server->conns, &conn->link);
    }
    if (conn->listener->is_left)
        req->http1_is_persistent = 0; /* another process serves the client's next connection */
    mp_http2 *h2 = conn->http2;
    mp_stat_add(&mp_stat_requests, 1);
    const mp_early_refusal *refusal = h2 == NULL ? conn->refusal : mp_http2_refusal_of(h2, live);
    const char *fault = h2 == NULL ? find_fault(conn, req) : NULL;
    if (refusal != NULL)
        refuse_request(live, refusal->cause, refusal->status, refusal->why);
    else if (conn->is_ended) /* its client may have seen the end, and asks again elsewhere */
        refuse_request(live, MP_CAUSE_CONNECTIONS, 503, MP_STR("the connection was ended to make room for another\n"));
    else if (fault != NULL)
        refuse_request(live, MP_CAUSE_HTTP, 400, mp_str_of(fault));
    else if (live->stream->head->bytes > most_headers(conn))
        refuse_request(live, MP_CAUSE_SIZE, 431, MP_STR("the request headers are too large\n"));
    else if (req->entity.len > server->limits.body)
        refuse_request(live, MP_CAUSE_SIZE, 413, MP_STR("the request body is too large\n"));
    else
        conn->listener->endpoint.on_request(conn->listener->endpoint.ctx, live->stream);
    return 0;
}

/* -- connections --------------------------------------------------------------------------------------------------- */

static void end_conn(mp_conn *conn)
{
    if (conn->is_counted) {
        mp_holdings_change(&holdings, conn->share, -1);
        atomic_fetch_sub_explicit(&held, 1, memory_order_relaxed);
    }
    mp_body_budget_forget(conn);
    if (conn->is_closed != NULL)
        *conn->is_closed = true;
    mp_delivery_end_conn(conn);
    mp_timer_stop(conn->server->loop, &conn->first);
    mp_http2_free(conn->http2);
    mp_link_drop(&conn->link);
    mp_tls_conn_free(conn->tls);
    if (conn->listener->is_left)
        mp_stat_add(&mp_stat_kept_connections, -1);
    conn->server->conn_count--;
    atomic_fetch_sub_explicit(&conn->server->load, 1, memory_order_relaxed);
    if (conn->listener->endpoint.reserve == 0)
        atomic_fetch_sub_explicit(&begun, 1, memory_order_relaxed);
    mp_account_give(mp_listener_account(conn->listener), 1);
    if (mp_listener_is_admin(conn->listener))
        mp_spares_fill(&conn->server->spares);
    free(conn);
}

bool mp_listener_count(const mp_listener *listener)
{
    return mp_account_take(mp_listener_account(listener), 1, most_of(listener));
}

static void on_time(mp_timer *timer);

void mp_servers_press(int by)
{
    atomic_fetch_add_explicit(&overloads, by, memory_order_relaxed);
}

/* The number of connections from which on the listener accepts none. A listener with a reserve is never overloaded. */
static int64_t most_connections(const mp_listener *listener)
{
    int64_t most = most_of(listener);
    if (listener->endpoint.reserve == 0 && atomic_load_explicit(&overloads, memory_order_relaxed) > 0)
        most -= most / 10;
    return most;
}

/* True if the server may have no more connections of its own, regardless of other servers. */
static bool is_full(const mp_listener *listener)
{
    return listener->endpoint.most > 0 && (int64_t)listener->server->conn_count >= listener->endpoint.most;
}

/* True at limits.connections, and not already where an overload is the reason to accept no more. */
static bool is_process_full(const mp_listener *listener)
{
    return !listener->endpoint.is_inner && mp_account_used(&mp_account_connections) >= most_of(listener);
}

static bool has_room(const mp_listener *listener)
{
    return !is_full(listener) && mp_account_used(mp_listener_account(listener)) < most_connections(listener);
}

/* Connections wait in the kernel's queue until there is room again. */
static void pause_accepting(mp_listener *listener, h2o_socket_t *socket, uint64_t ms)
{
    mp_server *server = listener->server;
    h2o_socket_read_stop(socket);
    listener->is_paused = true;
    if (server->timer.slot == 0)
        mp_timer_start(server->loop, &server->timer, ms, on_time);
}

static bool has_unread(const mp_conn *conn)
{
    char byte;
    return recv(h2o_socket_get_fd(conn->socket), &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
}

/* True between two requests, if no byte of the next one has arrived. */
static bool is_idle(const mp_conn *conn)
{
    if (conn->opened_at != 0 && mp_loop_now(conn->server->loop) < conn->opened_at + FIRST_REQUEST_MS)
        return false;
    return mp_link_is_alone(&conn->streams) && h2o_socket_is_reading(conn->socket) && conn->socket->input->size == 0 &&
           !has_unread(conn);
}

/* The oldest connection that has not sent a whole request, soon after it came, though all that it sent was read; where
 * there is none, the first of the list that is idle between two requests: it is idle for longest, or came first. NULL:
 * neither, or, `of` NULL, a new one may turn out to send nothing. `of`: of those that count for the address of this
 * one, which is none of them. Never one of another process: what it sends at that moment may have run. */
static mp_conn *MP_NULLABLE find_idle(mp_server *server, const mp_conn *MP_NULLABLE of)
{
    mp_conn *MP_NULLABLE oldest = NULL;
    uint64_t now = mp_loop_now(server->loop);
    bool has_new = false;
    MP_EACH(mp_conn, conn, &server->conns, link) {
        bool is_new = conn->opened_at != 0 && mp_link_is_alone(&conn->streams);
        if (conn->is_ended || conn->listener->endpoint.is_inner ||
            (of != NULL && (conn == of || !conn->is_counted || conn->share != of->share)))
            continue;
        if (is_new && now >= conn->opened_at + FIRST_REQUEST_MS && !has_unread(conn))
            return conn;
        has_new = has_new || is_new;
        if (oldest == NULL && !is_new && is_idle(conn))
            oldest = conn;
    }
    return of == NULL && has_new ? NULL : oldest;
}

static bool end_early(mp_conn *MP_NULLABLE conn)
{
    if (conn == NULL)
        return false;
    conn->is_ended = true;
    shutdown(h2o_socket_get_fd(conn->socket), SHUT_RDWR); /* libh2o reads the end of the file and closes */
    return true;
}

static void on_asked(void *ctx)
{
    mp_server *server = ctx;
    atomic_store(&server->is_asked, false);
    if (mp_account_used(&mp_account_connections) >= most_of_all())
        end_early(find_idle(server, NULL));
}

/* Asks one sibling, at each call the next one, to end an idle connection. */
static void ask_sibling(mp_server *server)
{
    for (size_t i = 0; i < server->sibling_count; i++) {
        mp_server *other = server->siblings[server->last_asked++ % server->sibling_count];
        if (other == server || !mp_server_takes_connections(other))
            continue;
        if (!atomic_exchange(&other->is_asked, true))
            mp_loop_call(other->loop, on_asked, other);
        return;
    }
}

/* Makes room for a connection that waits: otherwise as many idle ones as the listener or the process may have would
 * keep everybody else out. */
static void make_room(mp_server *server, h2o_socket_t *socket)
{
    struct pollfd waiting = {.fd = h2o_socket_get_fd(socket), .events = POLLIN};
    if (poll(&waiting, 1, 0) > 0 && !end_early(find_idle(server, NULL)))
        ask_sibling(server);
}

/* Writes the answer directly to the socket, which libh2o does not write to. */
static void refuse_directly(const mp_conn *conn, mp_str why)
{
    mp_scoped_buf answer = {0};
    mp_buf_printf(&answer,
                  "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n"
                  "content-type: text/plain\r\ncontent-length: %zu\r\n\r\n%.*s",
                  why.len, MP_STR_ARG(why));
    send(h2o_socket_get_fd(conn->socket), answer.ptr, answer.len, MSG_DONTWAIT | MSG_NOSIGNAL);
}

/* A proxy and a Unix socket have the connections of many clients. */
static bool has_share(mp_conn *conn)
{
    return !conn->listener->is_unix && !mp_conn_is_trusted(conn, conn->listener->endpoint.proxies);
}

/* Counts the connection for its address. True if this address may have it, if need be in place of an idle one. One
 * that another server has accepted for this one counts when it arrives: else those on their way would fill the last
 * places, and all of them be refused. */
static bool may_have(mp_conn *conn)
{
    int64_t most = most_of_all(), kept = most / KEPT > KEPT_LEAST ? most / KEPT : KEPT_LEAST;
    if (conn->listener->endpoint.reserve > 0)
        return true;
    int64_t others = atomic_fetch_add_explicit(&begun, 1, memory_order_relaxed);
    if (!has_share(conn))
        return true;
    conn->is_counted = true;
    int64_t all = atomic_fetch_add_explicit(&held, 1, memory_order_relaxed);
    return mp_holdings_add(&holdings, mp_conn_share(conn), 1, all, most - others, kept) || most < KEPT ||
           conn->server->is_draining || conn->listener->is_left || end_early(find_idle(conn->server, conn));
}

static void refuse_share(mp_conn *conn)
{
    mp_str why = MP_STR("too many connections of this address: try again later\n");
    mp_stat_add(&mp_stat_refused_share, 1);
    mp_refused(MP_CAUSE_CONNECTIONS, mp_str_trim(why), mp_log_str("address", mp_conn_peer(conn)));
    if (conn->listener->endpoint.tls == NULL) {
        char request[4096]; /* one that nobody has read would reset the connection, perhaps before its client reads */
        recv(h2o_socket_get_fd(conn->socket), request, sizeof request, MSG_DONTWAIT);
        refuse_directly(conn, why);
    }
    h2o_socket_close(conn->socket);
}

/* Hands the connection, for which its address has no place, to the next sibling, which may have an idle one of that
 * address. False: none takes it. */
static bool pass_on(const mp_conn *conn, size_t tried)
{
    mp_server *server = conn->server;
    size_t count = server->sibling_count, own = 0;
    while (own < count && server->siblings[own] != server)
        own++;
    for (size_t i = 1; own < count && tried + i < count; i++) {
        mp_server *next = server->siblings[(own + i) % count];
        if (atomic_load_explicit(&next->handed, memory_order_relaxed) >= MAX_HANDED)
            continue;
        int fd = fcntl(h2o_socket_get_fd(conn->socket), F_DUPFD_CLOEXEC, 0);
        if (fd < 0)
            return false;
        mp_account_add(&mp_account_connections, 1); /* which end_conn() gives back */
        if (mp_server_hand_over(next, conn->listener, fd, tried + i))
            return true;
        mp_account_give(&mp_account_connections, 1);
        close(fd);
    }
    return false;
}

void mp_server_begin(mp_listener *listener, h2o_socket_t *socket, size_t tried)
{
    mp_server *server = listener->server;
    mp_conn *conn = mp_new(sizeof *conn);
    *conn = (mp_conn){.server = server, .listener = listener, .socket = socket, .opened_at = mp_loop_now(server->loop)};
    mp_link_put(&server->conns, &conn->link);
    if (listener->is_left)
        mp_stat_add(&mp_stat_kept_connections, 1);
    server->conn_count++;
    atomic_fetch_add_explicit(&server->load, 1, memory_order_relaxed);
    mp_conn_own(conn);
    if (may_have(conn))
        mp_conn_open(conn);
    else if (pass_on(conn, tried))
        h2o_socket_close(socket);
    else
        refuse_share(conn);
}

static void resume_accepting(mp_server *server)
{
    MP_EACH(mp_listener, listener, &server->listeners, link) {
        h2o_socket_t *socket = listener->socket;
        if (socket == NULL || !listener->is_paused || atomic_load(&listener->is_held))
            continue;
        if (has_room(listener)) {
            listener->is_paused = false;
            h2o_socket_read_start(socket, mp_server_on_accept);
            continue;
        }
        if (is_full(listener) || is_process_full(listener))
            make_room(server, socket);
        if (server->timer.slot == 0)
            mp_timer_start(server->loop, &server->timer, RETRY_MS, on_time);
    }
}

static void log_accept_error(mp_server *server, int error)
{
    uint64_t now = mp_loop_now(server->loop);
    if (now < server->complain_at)
        return;
    server->complain_at = now + COMPLAIN_EVERY_MS;
    mp_log(MP_WARN, "cannot accept", mp_log_str("error", mp_str_of(strerror(error))));
}

/* The server that the next connection is for: one with clearly fewer connections than this one, or this one. The kernel
 * chooses a listening socket by a hash of addresses and ports: of 64 connections one of two workers gets 36 and more as
 * often as not. */
static mp_server *find_taker(mp_server *server)
{
    mp_server *least = server;
    int64_t own = atomic_load_explicit(&server->load, memory_order_relaxed), fewest = own;
    for (size_t i = 0; i < server->sibling_count; i++) {
        mp_server *other = server->siblings[i];
        int64_t load = atomic_load_explicit(&other->load, memory_order_relaxed);
        if (load < fewest && mp_server_takes_connections(other) &&
            atomic_load_explicit(&other->handed, memory_order_relaxed) < MAX_HANDED) {
            least = other;
            fewest = load;
        }
    }
    return own - fewest > 1 + fewest / 8 ? least : server;
}

/* Accepts a connection in place of libh2o, for another server, or for this one if the other takes none any more. False,
 * with errno, if there is none. */
static bool accept_for(mp_listener *listener, h2o_socket_t *socket, mp_server *taker)
{
    int fd = accept4(h2o_socket_get_fd(socket), NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0)
        return false;
    if (mp_server_hand_over(taker, listener, fd, 0))
        mp_stat_add(&mp_stat_connections_handed_over, 1);
    else
        mp_server_begin_accepted(listener, fd, 0);
    return true;
}

/* Accepts one connection. False if there is none to accept for now. */
static bool accept_one(mp_listener *listener, h2o_socket_t *socket)
{
    mp_server *server = listener->server;
    bool is_ending = server->is_draining ||
                     (server->is_leaving && !mp_listener_stays(listener)); /* the listener is about to be closed */
    if (atomic_load(&listener->is_held))
        return false;
    if (is_full(listener) && !is_ending) {
        mp_stat_add(&mp_stat_refused_own, 1);
        make_room(server, socket);
        pause_accepting(listener, socket, RETRY_MS);
        return false;
    }
    /* while the server ends, all waiting connections are accepted: see mp_server_close_listeners */
    int64_t most = is_ending ? INT64_MAX : most_connections(listener);
    if (!mp_account_take(mp_listener_account(listener), 1, most)) {
        mp_stat_add(listener->endpoint.is_inner ? &mp_stat_refused_hop_connections : &mp_stat_refused_connections, 1);
        if (is_process_full(listener))
            make_room(server, socket);
        pause_accepting(listener, socket, RETRY_MS);
        return false;
    }
    mp_server *taker = is_ending ? server : find_taker(server);
    if (taker != server) {
        if (accept_for(listener, socket, taker))
            return true;
    } else {
        h2o_socket_t *accepted = h2o_evloop_socket_accept(socket);
        if (accepted != NULL) {
            mp_server_begin(listener, accepted, 0);
            return true;
        }
    }
    int error = errno;
    mp_account_give(mp_listener_account(listener), 1);
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM) {
        log_accept_error(server, error);
        if (mp_listener_is_admin(listener) && mp_spares_give(&server->spares))
            return true;
        if (!is_ending)
            pause_accepting(listener, socket, STARVED_RETRY_MS);
    }
    if (error == EINVAL) /* the watchdog suspended this listener, and this thread is running again */
        return mp_listener_resume(listener);
    return error == ECONNABORTED || error == EINTR;
}

void mp_server_on_accept(h2o_socket_t *socket, const char *MP_NULLABLE error)
{
    mp_listener *listener = socket->data;
    for (int i = 0; error == NULL && i < ACCEPT_BATCH; i++)
        if (!accept_one(listener, socket))
            break;
}

/* -- life ---------------------------------------------------------------------------------------------------------- */

static void close_of_loop(mp_link *link)
{
    mp_server_close(mp_container(link, mp_server, link));
}

mp_server *MP_NULLABLE mp_server_new(mp_loop *loop, const mp_http_limits *limits, mp_err *err)
{
    if (!mp_loop_has_descriptors(SERVER_DESCRIPTORS)) {
        mp_err_set(err, "cannot create an HTTP server: %s", strerror(errno));
        mp_err_hint(err, "raise the limit of open files (ulimit -n)");
        return NULL;
    }
    mp_server *server = mp_new(sizeof *server);
    server->loop = loop;
    server->limits = *limits;
    atomic_store(&max_connections, limits->connections);
    pthread_mutex_init(&server->listen_lock, NULL);
    pthread_mutex_init(&server->handover_lock, NULL);
    mp_link_put(&loop->servers, &server->link);
    server->end_conn = end_conn;
    server->accept_http2 = mp_http2_accept;
    server->read_http2 = mp_http2_read;
    loop->flush = mp_stream_flush_dirty;
    loop->close_server = close_of_loop;

    h2o_globalconf_t *config = &server->config;
    h2o_config_init(config);
    config->server_name = h2o_iovec_init(H2O_STRLIT("moonpool"));
    /* libh2o refuses a chunked body that reaches its limit, but other bodies only above it. Raise its limit by one:
     * this module checks the exact limit. */
    config->max_request_entity_size = limits->body + 1;
    config->http1.req_timeout = limits->request_ms;
    h2o_hostconf_t *host = h2o_config_register_host(config, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    mp_http2_configure(config, host);
    /* The fallback path also receives targets that do not begin with '/'. */
    handler *all = (handler *)h2o_create_handler(&host->fallback_path, sizeof *all);
    all->super.on_req = on_request;
    all->server = server;
    h2o_context_init(&server->context, loop->h2o, config);
    server->accept = (h2o_accept_ctx_t){.ctx = &server->context, .hosts = config->hosts};
    return server;
}

void mp_server_configure(mp_server *server, const mp_http_limits *limits)
{
    server->limits = *limits;
    atomic_store(&max_connections, limits->connections);
    server->config.max_request_entity_size = limits->body + 1;
}

int mp_server_listen(mp_server *server, int fd, const mp_endpoint *endpoint, MP_UNUSED mp_err *err)
{
    mp_listener *listener = mp_new(sizeof *listener);
    *listener = (mp_listener){.server = server, .endpoint = *endpoint, .fd = fd};
    struct sockaddr_storage address = {0};
    socklen_t len = sizeof address;
    listener->is_unix = getsockname(fd, (struct sockaddr *)&address, &len) == 0 && address.ss_family == AF_UNIX;
    h2o_socket_t *socket = h2o_evloop_socket_create(server->loop->h2o, fd, H2O_SOCKET_FLAG_DONT_READ);
    socket->data = listener;
    h2o_socket_read_start(socket, mp_server_on_accept);
    listener->socket = socket;
    if (mp_listener_is_admin(listener))
        mp_spares_fill(&server->spares);
    /* the server may serve already, and other threads look at its listeners */
    MP_LOCKED(&server->listen_lock);
    mp_link_put(&server->listeners, &listener->link);
    return 0;
}

void mp_server_trust(mp_server *server, size_t proxies_index, const mp_proxies *MP_NULLABLE proxies)
{
    MP_EACH(mp_listener, listener, &server->listeners, link) {
        if (listener->endpoint.proxies_index == proxies_index)
            listener->endpoint.proxies = proxies;
    }
}

/* Closing a listener resets the connections that wait in its queue, so accept them first; at a held one, another
 * process accepts them. */
void mp_server_close_listeners(mp_server *server, bool with_inner)
{
    MP_EACH(mp_listener, listener, &server->listeners, link) {
        h2o_socket_t *socket = listener->socket;
        if (socket == NULL || (mp_listener_stays(listener) && !with_inner))
            continue;
        while (accept_one(listener, socket))
            ;
        pthread_mutex_lock(&server->listen_lock);
        listener->fd = -1;
        h2o_socket_close(socket);
        listener->socket = NULL;
        listener->is_left = server->is_leaving && !mp_listener_stays(listener);
        pthread_mutex_unlock(&server->listen_lock);
    }
}

static void end_idle(mp_server *server)
{
    MP_EACH(mp_conn, conn, &server->conns, link) {
        mp_http2 *h2 = conn->http2;
        if (h2 != NULL)
            mp_http2_drain(h2);
        else if (is_idle(conn))
            shutdown(h2o_socket_get_fd(conn->socket), SHUT_RDWR); /* libh2o reads the end of the file and closes */
    }
}

static void on_time(mp_timer *timer)
{
    mp_server *server = mp_container(timer, mp_server, timer);
    if (!server->is_draining) {
        resume_accepting(server);
    } else if (server->conn_count > 0) {
        end_idle(server);
        mp_timer_start(server->loop, timer, DRAIN_TICK_MS, on_time);
    } else {
        server->drained(server->drained_ctx);
    }
}

void mp_server_balance(mp_server *server, mp_server *const *siblings, size_t count)
{
    server->siblings = siblings;
    server->sibling_count = count;
}

size_t mp_server_connections(const mp_server *server)
{
    return server->conn_count;
}

void mp_server_drain(mp_server *server, void (*done)(void *ctx), void *ctx)
{
    server->is_draining = true;
    mp_server_take_none(server);
    server->drained = done;
    server->drained_ctx = ctx;
    mp_server_take_handovers(server); /* connections that were handed over before the line above */
    mp_server_close_listeners(server, true);
    h2o_context_request_shutdown(&server->context); /* later requests are answered with "connection: close" */
    end_idle(server);
    mp_timer_start(server->loop, &server->timer, 0, on_time);
}

/* Answers a request that has arrived only in part, for which there is no stream and libh2o has no answer. The process
 * ends within a second. Writes directly to the socket, if nothing else is being written. A client that keeps sending
 * may be reset before it reads this. */
static void refuse_part(mp_conn *conn)
{
    h2o_socket_t *socket = conn->socket;
    if (!mp_link_is_alone(&conn->streams) || conn->tls != NULL || conn->http2 != NULL || conn->is_refused ||
        socket->input->size == 0 || h2o_socket_is_writing(socket))
        return;
    conn->is_refused = true;
    refuse_directly(conn, MP_STR("the gateway is stopping\n"));
}

/* `turn`: how often it was called before. */
static void end_all(mp_server *server, int turn)
{
    for (mp_link *link = mp_link_first(&server->conns), *next; link != &server->conns; link = next) {
        next = link->next;
        mp_conn *conn = mp_container(link, mp_conn, link);
        refuse_part(conn);
        mp_http2 *h2 = conn->http2;
        if (h2 != NULL && mp_http2_refuse_parts(h2))
            conn->is_refused = true;
        if (h2 != NULL && conn->is_refused && turn < WRITE_TURNS)
            continue; /* until the answers are written */
        shutdown(h2o_socket_get_fd(conn->socket), SHUT_RDWR);
        if (conn->http2 == NULL && !mp_link_is_alone(&conn->streams)) /* frees at most this connection */
            mp_stream_lose(mp_container(conn->streams.next, mp_stream, link), false);
    }
}

void mp_server_close(mp_server *server)
{
    mp_timer_stop(server->loop, &server->timer);
    mp_timer_stop(server->loop, &server->leaving);
    server->is_draining = true;
    mp_server_take_none(server);
    mp_server_close_listeners(server, true);
    /* libh2o closes connections in its own turns: the first turn closes those that have been answered, later turns
     * those that were shut down. */
    for (int i = 0; server->conn_count > 0 && i < FREE_TURNS; i++) {
        mp_loop_turn(server->loop, false);
        end_all(server, i);
    }
}

static void free_h2o(mp_server *server)
{
    h2o_multithread_queue_t *queue = server->context.queue;
    if (h2o_timeout_is_linked(&server->context.http2._graceful_shutdown_timeout))
        h2o_timeout_unlink(&server->context.http2._graceful_shutdown_timeout);
    h2o_context_dispose(&server->context);
    free(queue); /* libh2o closes its sockets but does not free the struct */
    h2o_config_dispose(&server->config);
}

void mp_server_free(mp_server *MP_NULLABLE server)
{
    if (server == NULL)
        return;
    mp_server_close(server);
    mp_server_drop_handovers(server);
    mp_spares_end(&server->spares);
    mp_link_drop(&server->link);
    if (server->conn_count == 0)
        free_h2o(server);
    MP_EACH_TAKEN(mp_listener, listener, &server->listeners, link)
        free(listener);
    mp_server_return_memory(server);
    server->is_freed = true;
    if (server->streams == 0)
        mp_server_release(server);
}
