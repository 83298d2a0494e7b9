/* watch.c: foreign descriptors: an inner epoll set, hosted in h2o's loop as one socket that is never read. */
#include "loop.h"
#include <unistd.h>

/* Runs inside h2o's loop. The inner set is level-triggered in the outer one: what does not fit the batch wakes us
 * again. */
static void on_mux(h2o_socket_t *socket, const char *error)
{
    (void)error;
    mp_mux *mux = socket->data;
    int count = epoll_wait(mux->fd, mux->ready, (int)(sizeof mux->ready / sizeof *mux->ready), 0);
    mux->count = count < 0 ? 0 : count;
    for (mux->next = 0; mux->next < mux->count;) {
        struct epoll_event *event = &mux->ready[mux->next++];
        mp_watch *watch = event->data.ptr;
        if (watch != NULL)
            watch->ready(watch, event->events);
    }
    mux->count = 0;
}

int mp_mux_open(mp_loop *loop)
{
    mp_mux *mux = &loop->mux;
    mux->fd = epoll_create1(EPOLL_CLOEXEC);
    if (mux->fd < 0)
        return -1;
    mux->socket = h2o_evloop_socket_create(loop->h2o, mux->fd, H2O_SOCKET_FLAG_DONT_READ);
    mux->socket->data = mux;
    h2o_socket_read_start(mux->socket, on_mux);
    return 0;
}

void mp_mux_close(mp_loop *loop)
{
    if (loop->mux.socket != NULL)
        h2o_socket_close(loop->mux.socket); /* closes the descriptor */
    loop->mux.socket = NULL;
}

int mp_watch_start(mp_loop *loop, mp_watch *watch, int fd, uint32_t events, void (*ready)(mp_watch *, uint32_t))
{
    if (watch->active && watch->fd != fd)
        mp_watch_stop(loop, watch);
    struct epoll_event event = {.events = events, .data.ptr = watch};
    if (epoll_ctl(loop->mux.fd, watch->active ? EPOLL_CTL_MOD : EPOLL_CTL_ADD, fd, &event) != 0)
        return -1;
    *watch = (mp_watch){.fd = fd, .active = true, .ready = ready};
    return 0;
}

void mp_watch_stop(mp_loop *loop, mp_watch *watch)
{
    if (!watch->active)
        return;
    watch->active = false;
    epoll_ctl(loop->mux.fd, EPOLL_CTL_DEL, watch->fd, NULL);
    for (int i = loop->mux.next; i < loop->mux.count; i++)
        if (loop->mux.ready[i].data.ptr == watch)
            loop->mux.ready[i].data.ptr = NULL;
}
