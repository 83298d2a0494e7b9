/* watch.c: foreign descriptors: an inner epoll set, hosted in h2o's loop as one socket that is never read. */
#include "loop.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define FEWEST 64

/* Events name a seat and who sat there, not a watch: a descriptor that was closed before its watch stopped stays in the
 * set for as long as a child that is about to run its program shares it, and tells of itself when the watch is gone. */
struct mp_seat {
    mp_watch *watch; /* NULL: free */
    uint32_t sitting;
    uint32_t next; /* free one */
};

static mp_watch *watch_of(const mp_mux *mux, uint64_t name)
{
    const mp_seat *seat = &mux->seats[(uint32_t)name];
    return seat->sitting == (uint32_t)(name >> 32) ? seat->watch : NULL;
}

static uint64_t name_of(const mp_mux *mux, uint32_t at)
{
    return (uint64_t)mux->seats[at].sitting << 32 | at;
}

/* Seat 0 is nobody's. */
static uint32_t sit(mp_mux *mux, mp_watch *watch)
{
    if (mux->free == 0) {
        uint32_t count = mux->seat_count == 0 ? FEWEST : mux->seat_count * 2;
        mux->seats = mp_resize(mux->seats, count * sizeof *mux->seats);
        for (uint32_t i = count; i-- > mux->seat_count;)
            mux->seats[i] = (mp_seat){.next = i + 1 == count ? 0 : i + 1};
        mux->free = mux->seat_count == 0 ? 1 : mux->seat_count;
        mux->seat_count = count;
    }
    uint32_t at = mux->free;
    mux->free = mux->seats[at].next;
    mux->seats[at].watch = watch;
    return at;
}

static void rise(mp_mux *mux, uint32_t at)
{
    mux->seats[at] = (mp_seat){.sitting = mux->seats[at].sitting + 1, .next = mux->free};
    mux->free = at;
}

/* Runs inside h2o's loop. The inner set is level-triggered in the outer one: what does not fit the batch wakes us
 * again. */
static void on_mux(h2o_socket_t *socket, const char *error)
{
    (void)error;
    mp_mux *mux = socket->data;
    struct epoll_event ready[64];
    int count = epoll_wait(mux->fd, ready, (int)(sizeof ready / sizeof *ready), 0);
    for (int i = 0; i < count; i++) {
        mp_watch *watch = watch_of(mux, ready[i].data.u64); /* which those before may have stopped */
        if (watch != NULL)
            watch->ready(watch, ready[i].events);
    }
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
    free(loop->mux.seats);
    loop->mux.seats = NULL;
}

int mp_watch_start(mp_loop *loop, mp_watch *watch, int fd, uint32_t events, void (*ready)(mp_watch *, uint32_t))
{
    mp_mux *mux = &loop->mux;
    if (watch->seat != 0 && watch->fd != fd)
        mp_watch_stop(loop, watch);
    uint32_t at = watch->seat != 0 ? watch->seat : sit(mux, watch);
    struct epoll_event event = {.events = events, .data.u64 = name_of(mux, at)};
    int failed = watch->seat != 0 ? epoll_ctl(mux->fd, EPOLL_CTL_MOD, fd, &event) : -1;
    if (watch->seat == 0 || (failed != 0 && errno == ENOENT)) /* closed and opened anew */
        failed = epoll_ctl(mux->fd, EPOLL_CTL_ADD, fd, &event);
    if (failed != 0) {
        if (watch->seat == 0)
            rise(mux, at);
        return -1;
    }
    *watch = (mp_watch){.fd = fd, .seat = at, .ready = ready};
    return 0;
}

void mp_watch_stop(mp_loop *loop, mp_watch *watch)
{
    if (watch->seat == 0)
        return;
    epoll_ctl(loop->mux.fd, EPOLL_CTL_DEL, watch->fd, NULL);
    rise(&loop->mux, watch->seat);
    watch->seat = 0;
}
