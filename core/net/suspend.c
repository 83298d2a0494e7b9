/* suspend.c: suspends the listeners of a server whose thread is stuck. With SO_REUSEPORT the kernel still gives such
 * a socket its share of new connections, which would wait forever, so another thread ends its listening: shutdown()
 * removes a TCP socket from its group but keeps it bound; listen() adds it again. */
#define _GNU_SOURCE /* accept4 */
#include "http.h"
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

/* An accepted connection that is handed to another server. */
typedef struct {
    mp_message super;
    mp_server *server;
    size_t index; /* index of its listener among the listeners of a server */
    int fd;
} handover;

static void discard_handover(handover *given)
{
    close(given->fd);
    mp_server_count(-1);
    free(given);
}

static void deliver_handover(mp_message *message, mp_loop *loop)
{
    handover *given = mp_container(message, handover, super);
    mp_link *link = loop == NULL ? NULL : given->server->listeners.next;
    for (size_t i = 0; i < given->index && link != NULL; i++)
        link = link->next == &given->server->listeners ? NULL : link->next;
    if (link == NULL || given->server->is_draining) {
        discard_handover(given);
        return;
    }
    h2o_socket_t *socket = h2o_evloop_socket_create(loop->h2o, given->fd, H2O_SOCKET_FLAG_IS_ACCEPTED_CONNECTION);
    setsockopt(given->fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); /* libh2o sets it when it accepts */
    mp_server_begin(mp_container(link, mp_listener, link), socket);
    free(given);
}

/* The kernel accepted these connections before limits.connections was checked: there are at most MP_BACKLOG of them. */
static void hand_over_queue(const mp_listener *listener, size_t index, mp_server *to)
{
    int fd;
    while ((fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0 || errno == ECONNABORTED ||
           errno == EINTR) {
        if (fd < 0)
            continue;
        handover *given = mp_new(sizeof *given);
        *given = (handover){{.deliver = deliver_handover}, to, index, fd};
        mp_server_count(1);
        mp_loop_post(to->loop, &given->super);
    }
}

void mp_server_suspend(mp_server *server, mp_server *to)
{
    size_t index = 0;
    pthread_mutex_lock(&server->listen_lock);
    for (mp_link *link = server->listeners.next; link != &server->listeners; link = link->next, index++) {
        mp_listener *listener = mp_container(link, mp_listener, link);
        if (listener->fd < 0 || listener->is_unix || listener->is_suspended)
            continue;
        if (to != NULL)
            hand_over_queue(listener, index, to);
        listener->is_suspended = shutdown(listener->fd, SHUT_RD) == 0;
    }
    pthread_mutex_unlock(&server->listen_lock);
}

bool mp_listener_resume(mp_listener *listener)
{
    mp_server *server = listener->server;
    pthread_mutex_lock(&server->listen_lock);
    bool was_suspended = listener->is_suspended;
    if (was_suspended && !server->is_draining && listen(listener->fd, MP_BACKLOG) != 0)
        mp_log(MP_ERROR, "cannot resume listening", mp_log_str("why", mp_str_of(strerror(errno))),
               mp_log_str("hint", MP_STR("this worker takes no more connections: restart the gateway")));
    listener->is_suspended = false;
    pthread_mutex_unlock(&server->listen_lock);
    return was_suspended && !server->is_draining;
}
