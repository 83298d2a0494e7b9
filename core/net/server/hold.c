/* hold.c: listening sockets that another process of the gateway has, too: this one does not accept there, without a
 * change of the socket, which would be a change for both. */
#include "http.h"
#include <sys/socket.h>

MP_GAUGE(kept_connections, "kept_connections", "", "",
         "open client connections of an older process, from before its upgrade")

/* between GOAWAY and the end of an idle connection: the client's last requests arrive in this time */
#define LEAVING_MS 1000

void mp_server_share(mp_server *server, int address)
{
    MP_LOCKED(&server->listen_lock);
    MP_EACH(mp_listener, listener, &server->listeners, link) {
        if (listener->fd < 0 || listener->endpoint.address != address)
            continue;
        listener->endpoint.is_shared = true;
        if (listener->is_suspended && listen(listener->fd, MP_BACKLOG) == 0)
            listener->is_suspended = false;
    }
}

/* Makes libh2o accept connections, or stop, as mp_server_hold demands. On the server's thread. */
static void apply_hold(void *ctx)
{
    mp_server *server = ctx;
    MP_EACH(mp_listener, listener, &server->listeners, link) {
        h2o_socket_t *socket = listener->socket;
        if (socket == NULL)
            continue;
        if (atomic_load(&listener->is_held)) {
            h2o_socket_read_stop(socket);
        } else {
            /* also after a pause of accepting: the timer of the pause may have fired while the listener was held,
             * without effect */
            listener->is_paused = false;
            h2o_socket_read_start(socket, mp_server_on_accept);
        }
    }
}

void mp_server_hold(mp_server *server, int address, bool is_held)
{
    pthread_mutex_lock(&server->listen_lock);
    MP_EACH(mp_listener, listener, &server->listeners, link) {
        if (listener->endpoint.address == address)
            atomic_store(&listener->is_held, is_held);
    }
    pthread_mutex_unlock(&server->listen_lock);
    mp_loop_call(server->loop, apply_hold, server);
}

/* Lets clients of HTTP/2 open no more streams here: GOAWAY at first, then the end of a connection without streams. One
 * that was just accepted has time for its first request. */
static void on_leaving(mp_timer *timer)
{
    mp_server *server = mp_container(timer, mp_server, leaving);
    uint64_t now = mp_loop_now(server->loop);
    MP_EACH(mp_conn, conn, &server->conns, link) {
        mp_http2 *h2 = conn->http2;
        bool is_new = conn->opened_at != 0 && now < conn->opened_at + LEAVING_MS;
        if (h2 != NULL && conn->listener->is_left && !is_new)
            mp_http2_drain(h2);
    }
    mp_timer_start(server->loop, timer, LEAVING_MS, on_leaving);
}

static void leave_listeners(void *ctx)
{
    mp_server *server = ctx;
    if (server->is_draining || server->is_leaving)
        return;
    server->is_leaving = true;
    mp_server_close_listeners(server, false);
    int64_t kept = 0;
    MP_EACH(mp_conn, conn, &server->conns, link)
        kept += conn->listener->is_left;
    mp_stat_add(&mp_stat_kept_connections, kept);
    mp_timer_start(server->loop, &server->leaving, 0, on_leaving);
}

void mp_server_leave(mp_server *server, bool but_inner)
{
    server->keeps_inner = but_inner;
    mp_loop_call(server->loop, leave_listeners, server);
}
