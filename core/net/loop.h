/* loop.h: what the files of this room see of a loop. */
#ifndef MP_NET_LOOP_H
#define MP_NET_LOOP_H

#include "h2o_abi.h"
#include "heap.h"
#include "net.h"
#include <stdatomic.h>
#include <sys/epoll.h>

/* A second epoll set that h2o's loop sees as one socket: it can ask for what h2o's own cannot, EPOLLRDHUP above all,
 * and h2o never reads what is in it. */
typedef struct mp_seat mp_seat;

typedef struct {
    int fd;
    h2o_socket_t *socket;
    mp_seat *seats; /* of all watches */
    uint32_t seat_count, free;
} mp_mux;

typedef struct {
    _Atomic(mp_message *) head; /* newest first; `closed_mark` once the loop has ended */
    mp_watch wake;              /* an eventfd: written when the box stops being empty, and to stop the loop */
} mp_mailbox;

struct mp_loop {
    h2o_evloop_t *h2o;
    mp_mux mux;
    mp_mailbox mailbox;
    mp_heap timers;
    uint64_t now;         /* 0: the clock has not been read since the last wake-up */
    uint64_t measured_at; /* 0: it is not */
    uint64_t chance;
    bool (*turn)(void *ctx);
    void *turn_ctx;
    mp_link dirty; /* event streams with something to write and no write under way */
    mp_link servers;
    mp_link children; /* programs that it runs */
    int64_t child_count;
    atomic_bool stopping;
};

int mp_mux_open(mp_loop *loop);
void mp_mux_close(mp_loop *loop);

int mp_mailbox_open(mp_loop *loop);
void mp_mailbox_wake(mp_loop *loop);
/* Delivers what has arrived. */
void mp_mailbox_deliver(mp_loop *loop);
/* From now on messages are delivered to nobody, those that wait at once. */
void mp_mailbox_shut(mp_loop *loop);
void mp_mailbox_close(mp_loop *loop);

/* child.c: when the loop has ended, and once more when it is freed. */
void mp_child_end_all(mp_loop *loop);

/* A number below `range`, for jitter only; 0 when `range` is 0. */
uint64_t mp_loop_chance(mp_loop *loop, uint64_t range);
/* The events of one turn, without its bottom. */
void mp_loop_turn(mp_loop *loop, bool may_wait);

#endif
