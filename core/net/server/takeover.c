/* takeover.c: hands connections over to another server, and suspends the listeners of a server whose thread is stuck.
 * With SO_REUSEPORT the kernel still gives such a socket its share of new connections, which would wait forever, so
 * another thread ends its listening: shutdown() removes a TCP socket from its group but keeps it bound; listen() adds
 * it again. Both act on all descriptors of a socket, so one that another server or process has, too, is left as it is:
 * another thread accepts its connections for as long as this one is stuck. */
#define _GNU_SOURCE /* for accept4 */
#include "http.h"
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

MP_ACCOUNT(hop_connections, "hop_connections", "", "", "connections of other processes of the gateway or its cluster")

/* An accepted connection that is handed to another server. */
typedef struct {
    mp_link link; /* in server->handovers */
    int address;  /* the number of its listener's address */
    mp_account *account;
    int fd;
    size_t tried; /* see mp_server_begin */
} handover;

/* Takes the oldest connection that waits for the server; NULL if there is none. */
static handover *MP_NULLABLE take_handover(mp_server *server)
{
    pthread_mutex_lock(&server->handover_lock);
    mp_link *link = mp_link_take(&server->handovers);
    pthread_mutex_unlock(&server->handover_lock);
    if (link == NULL)
        return NULL;
    atomic_fetch_sub(&server->handed, 1);
    atomic_fetch_sub(&server->load, 1); /* mp_server_begin counts it again */
    return mp_container(link, handover, link);
}

static void drop_handover(const handover *given)
{
    close(given->fd);
    mp_account_give(given->account, 1);
}

void mp_server_begin_accepted(mp_listener *listener, int fd, size_t tried)
{
    h2o_socket_t *socket =
        h2o_evloop_socket_create(listener->server->loop->h2o, fd, H2O_SOCKET_FLAG_IS_ACCEPTED_CONNECTION);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* libh2o sets it when it accepts */
    mp_server_begin(listener, socket, tried);
}

static mp_listener *MP_NULLABLE find_listener(mp_server *server, int address)
{
    MP_EACH(mp_listener, listener, &server->listeners, link) {
        if (listener->endpoint.address == address)
            return listener;
    }
    return NULL;
}

void mp_server_take_handovers(mp_server *server)
{
    for (handover *given; (given = take_handover(server)) != NULL; free(given)) {
        mp_listener *listener = find_listener(server, given->address);
        if (listener == NULL)
            drop_handover(given);
        else
            mp_server_begin_accepted(listener, given->fd, given->tried);
    }
}

static void take_handovers(void *ctx)
{
    mp_server_take_handovers(ctx);
}

bool mp_server_takes_connections(const mp_server *server)
{
    return !atomic_load_explicit(&server->takes_none, memory_order_relaxed) &&
           !atomic_load_explicit(&server->is_stuck, memory_order_relaxed);
}

/* Holding handover_lock. */
static void put_handover(mp_server *to, const handover *from)
{
    handover *given = mp_new(sizeof *given);
    *given = *from;
    given->link = (mp_link){0};
    atomic_fetch_add(&to->handed, 1);
    atomic_fetch_add(&to->load, 1);
    mp_link_put(&to->handovers, &given->link);
}

static void notify_server(mp_server *to)
{
    mp_loop_call(to->loop, take_handovers, to); /* a loop that has ended leaves them to mp_server_drop_handovers */
}

static bool hand_over(mp_server *to, const handover *given)
{
    pthread_mutex_lock(&to->handover_lock);
    bool is_taken = mp_server_takes_connections(to);
    if (is_taken)
        put_handover(to, given);
    pthread_mutex_unlock(&to->handover_lock);
    if (is_taken)
        notify_server(to);
    return is_taken;
}

static handover handover_of(const mp_listener *listener, int fd, size_t tried)
{
    return (handover){
        .address = listener->endpoint.address, .account = mp_listener_account(listener), .fd = fd, .tried = tried};
}

bool mp_server_hand_over(mp_server *to, const mp_listener *from, int fd, size_t tried)
{
    const handover given = handover_of(from, fd, tried);
    return hand_over(to, &given);
}

static void set_flag(mp_server *server, _Atomic bool *flag, bool value)
{
    MP_LOCKED(&server->handover_lock);
    atomic_store(flag, value);
}

void mp_server_take_none(mp_server *server)
{
    set_flag(server, &server->takes_none, true);
}

void mp_server_recover(mp_server *server)
{
    set_flag(server, &server->is_stuck, false);
}

void mp_server_drop_handovers(mp_server *server)
{
    for (handover *given; (given = take_handover(server)) != NULL; free(given))
        drop_handover(given);
}

/* `to` takes none if it drains, or is stuck too. */
static void hand_over_or_drop(mp_server *to, const handover *given)
{
    if (!hand_over(to, given))
        drop_handover(given);
}

/* Accepts a connection and puts it among the handovers of `to`, if that takes any. Holds the lock for both, so that
 * `to` cannot begin to refuse them in between, which would lose the connection. -1 with errno. */
static int accept_for(const mp_listener *listener, mp_server *to)
{
    pthread_mutex_lock(&to->handover_lock);
    int fd = -1;
    errno = EAGAIN;
    if (mp_server_takes_connections(to))
        fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    int error = errno;
    const handover given = handover_of(listener, fd, 0);
    if (fd >= 0)
        put_handover(to, &given);
    pthread_mutex_unlock(&to->handover_lock);
    errno = error;
    return fd;
}

/* Hands over the connections that wait to be accepted, as many as the limit has places for. */
static void hand_over_queue(const mp_listener *listener, mp_server *to)
{
    while (mp_listener_count(listener)) {
        if (accept_for(listener, to) >= 0) {
            notify_server(to);
            continue;
        }
        int error = errno;
        mp_account_give(mp_listener_account(listener), 1);
        if (error != ECONNABORTED && error != EINTR)
            return;
    }
}

void mp_server_suspend(mp_server *server, mp_server *MP_NULLABLE to)
{
    set_flag(server, &server->is_stuck, true);
    pthread_mutex_lock(&server->listen_lock);
    MP_EACH(mp_listener, listener, &server->listeners, link) {
        if (listener->fd < 0 || listener->is_suspended || atomic_load(&listener->is_held))
            continue;
        if (to != NULL)
            hand_over_queue(listener, to);
        if (!listener->endpoint.is_shared)
            listener->is_suspended = shutdown(listener->fd, SHUT_RD) == 0;
    }
    pthread_mutex_unlock(&server->listen_lock);
    for (handover *given; (given = to == NULL ? NULL : take_handover(server)) != NULL; free(given))
        hand_over_or_drop(to, given);
    if (to == NULL)
        mp_server_drop_handovers(server);
}

bool mp_listener_resume(mp_listener *listener)
{
    mp_server *server = listener->server;
    MP_LOCKED(&server->listen_lock);
    bool was_suspended = listener->is_suspended;
    if (was_suspended && !server->is_draining && listen(listener->fd, MP_BACKLOG) != 0)
        mp_log(MP_ERROR, "cannot resume listening", mp_log_str("why", mp_str_of(strerror(errno))),
               mp_log_str("hint", MP_STR("this worker takes no more connections: restart the gateway")));
    listener->is_suspended = false;
    return was_suspended && !server->is_draining;
}

int mp_server_sockets(mp_server *server, int address, int *fds, int most)
{
    int count = 0;
    MP_LOCKED(&server->listen_lock);
    for (mp_link *link = mp_link_first(&server->listeners); link != &server->listeners && count < most;
         link = link->next) {
        const mp_listener *listener = mp_container(link, const mp_listener, link);
        int fd =
            listener->fd < 0 || listener->endpoint.address != address ? -1 : fcntl(listener->fd, F_DUPFD_CLOEXEC, 0);
        if (fd >= 0)
            fds[count++] = fd;
    }
    return count;
}
