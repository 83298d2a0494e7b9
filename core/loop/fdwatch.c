/* fdwatch.c: watches descriptors that are not libh2o's: an inner epoll set, which libh2o's loop sees as one socket
 * that it never reads. */
#include "state.h"
#include <errno.h>

#define FIRST_SLOTS 64
#define BATCH 64
#define MOST_BATCHES 4 /* of one turn, which serves about as many events of libh2o at most */

/* An epoll event carries the index of a slot and the slot's generation, not a pointer to a watch. A descriptor that
 * was closed before its watch stopped remains in the set as long as a forked child that has not yet run its program
 * shares it, and reports events after the watch is gone. */
struct mp_fdslot {
    mp_fdwatch *MP_NULLABLE watch; /* NULL: the slot is free */
    uint32_t generation;
    uint32_t next; /* the next free slot */
};

static mp_fdwatch *MP_NULLABLE watch_of(const mp_mux *mux, uint64_t tag)
{
    const mp_fdslot *slot = &mux->slots[(uint32_t)tag];
    return slot->generation == (uint32_t)(tag >> 32) ? slot->watch : NULL;
}

static uint64_t event_tag(const mp_mux *mux, uint32_t at)
{
    return (uint64_t)mux->slots[at].generation << 32 | at;
}

/* Takes a free slot for `watch`. Slot 0 is never used: it means "not watched". */
static uint32_t take_slot(mp_mux *mux, mp_fdwatch *watch)
{
    if (mux->free == 0) {
        uint32_t count = mux->slot_count == 0 ? FIRST_SLOTS : mux->slot_count * 2;
        mux->slots = mp_resize(mux->slots, count * sizeof *mux->slots);
        for (uint32_t i = count; i-- > mux->slot_count;)
            mux->slots[i] = (mp_fdslot){.next = i + 1 == count ? 0 : i + 1};
        mux->free = mux->slot_count == 0 ? 1 : mux->slot_count;
        mux->slot_count = count;
    }
    uint32_t at = mux->free;
    mux->free = mux->slots[at].next;
    mux->slots[at].watch = watch;
    return at;
}

static void free_slot(mp_mux *mux, uint32_t at)
{
    mux->slots[at] = (mp_fdslot){.generation = mux->slots[at].generation + 1, .next = mux->free};
    mux->free = at;
}

/* The inner set is level-triggered in the outer one: events that do not fit the batch wake the loop again. */
static void serve_watches(mp_mux *mux)
{
    struct epoll_event ready[BATCH];
    int count = epoll_wait(mux->fd, ready, (int)(sizeof ready / sizeof *ready), 0);
    mux->events += count > 0 ? (unsigned)count : 0;
    mux->has_more = count == BATCH;
    for (int i = 0; i < count; i++) {
        /* an earlier callback of this batch may have stopped it */
        mp_fdwatch *watch = watch_of(mux, ready[i].data.u64);
        if (watch != NULL)
            watch->ready(watch, ready[i].events);
    }
}

/* Runs inside libh2o's loop. */
static void on_mux(h2o_socket_t *socket, MP_UNUSED const char *error)
{
    serve_watches(socket->data);
}

void mp_mux_serve(mp_loop *loop)
{
    int batches = 0;
    do
        serve_watches(&loop->mux);
    while (loop->mux.has_more && ++batches < MOST_BATCHES);
}

int mp_mux_open(mp_loop *loop)
{
    mp_mux *mux = &loop->mux;
    mux->fd = epoll_create1(EPOLL_CLOEXEC);
    if (mux->fd < 0)
        return -1;
    h2o_socket_t *socket = h2o_evloop_socket_create(loop->h2o, mux->fd, H2O_SOCKET_FLAG_DONT_READ);
    socket->data = mux;
    h2o_socket_read_start(socket, on_mux);
    mux->socket = socket;
    return 0;
}

void mp_mux_close(mp_loop *loop)
{
    if (loop->mux.socket != NULL)
        h2o_socket_close(loop->mux.socket); /* closes the descriptor */
    loop->mux.socket = NULL;
    free(loop->mux.slots);
    loop->mux.slots = MP_UNSET;
}

int mp_fdwatch_start(mp_loop *loop, mp_fdwatch *watch, int fd, uint32_t events, void (*ready)(mp_fdwatch *, uint32_t))
{
    mp_mux *mux = &loop->mux;
    if (watch->slot != 0 && watch->fd != fd)
        mp_fdwatch_stop(loop, watch);
    uint32_t at = watch->slot != 0 ? watch->slot : take_slot(mux, watch);
    struct epoll_event event = {.events = events, .data.u64 = event_tag(mux, at)};
    int failed = watch->slot != 0 ? epoll_ctl(mux->fd, EPOLL_CTL_MOD, fd, &event) : -1;
    if (watch->slot == 0 || (failed != 0 && errno == ENOENT)) /* the descriptor was closed and reopened */
        failed = epoll_ctl(mux->fd, EPOLL_CTL_ADD, fd, &event);
    if (failed != 0) {
        if (watch->slot == 0)
            free_slot(mux, at);
        return -1;
    }
    *watch = (mp_fdwatch){.fd = fd, .slot = at, .ready = ready};
    return 0;
}

void mp_fdwatch_stop(mp_loop *loop, mp_fdwatch *watch)
{
    if (watch->slot == 0)
        return;
    epoll_ctl(loop->mux.fd, EPOLL_CTL_DEL, watch->fd, NULL);
    free_slot(&loop->mux, watch->slot);
    watch->slot = 0;
}
