/* state.h: the struct of a loop, for the files of this module, of os and of net. */
#ifndef MP_LOOP_STATE_H
#define MP_LOOP_STATE_H

#include "h2o_abi.h"
#include "heap.h"
#include "loop.h"
#include <stdatomic.h>
#include <sys/epoll.h>

/* A second epoll set, which libh2o's loop sees as one socket. It can watch for events that libh2o's own set cannot,
 * mainly EPOLLRDHUP, and libh2o never reads from the descriptors in it. */
typedef struct mp_fdslot mp_fdslot;

typedef struct {
    int fd;
    h2o_socket_t *MP_NULLABLE socket;
    unsigned events;  /* events of watches in this turn */
    bool has_more;    /* there were more than were taken last */
    mp_fdslot *slots; /* number of watches */
    uint32_t slot_count, free;
} mp_mux;

typedef struct {
    _Atomic(mp_message *) head; /* newest first; points at mailbox.c's `closed` once the loop has ended */
    mp_fdwatch wake;            /* an eventfd: written when the mailbox was empty, and to stop the loop */
} mp_mailbox;

struct mp_loop {
    h2o_evloop_t *h2o;
    mp_mux mux;
    mp_mailbox mailbox;
    mp_heap timers;
    uint64_t now_us; /* 0: the clock has not been read since the last wake-up */
    /* processor time in microseconds at mp_loop_measure, for each kind of work; 0: the turn is not measured */
    uint64_t measured_at[MP_MEASURES];
    uint64_t chance;
    unsigned slow; /* for mp_loop_most_events */
    bool (*MP_NULLABLE turn)(void *ctx), (*MP_NULLABLE has_work)(void *ctx);
    void *MP_NULLABLE turn_ctx;
    mp_link dirty; /* event streams with queued bytes and no write in progress */
    mp_link servers;
    mp_link programs; /* running programs (mp_program) */
    /* Functions of other modules that a loop calls; NULL until the first server or the first program sets them. */
    void (*MP_NULLABLE flush)(mp_loop *loop);        /* writes what streams have queued in this turn */
    void (*MP_NULLABLE close_server)(mp_link *link); /* of `servers` */
    void (*MP_NULLABLE end_programs)(mp_loop *loop); /* the loop has ended, or is freed */
    int64_t child_count;                             /* programs of scripts */
    atomic_bool stopping;
    mp_series turn_times;       /* 0: the turns are not measured one by one */
    atomic_uint_fast64_t turns; /* turns begun so far: the watchdog compares it */
};

/* False with errno: `count` descriptors cannot be opened. To ask before libh2o opens some: libh2o aborts the process
 * when it cannot open its descriptors. */
bool mp_loop_has_descriptors(int count);

/* Descriptors that are held for the time when the process has none left: for four connections of the operator at once,
 * with their files. They are copies of stdin, since any descriptor will do. All 0: none is open. */
#define MP_SPARES 12
typedef struct {
    int descriptors[MP_SPARES];
    size_t count; /* the first so many are open */
} mp_spares;
void mp_spares_fill(mp_spares *spares); /* opens those that are missing, as far as that is possible */
bool mp_spares_give(mp_spares *spares); /* closes those for one connection; false: there are none */
void mp_spares_end(mp_spares *spares);  /* closes all */
int mp_mux_open(mp_loop *loop);
void mp_mux_close(mp_loop *loop);
/* Serves what the watches have ready; outside libh2o's turn, which serves a part of it. */
void mp_mux_serve(mp_loop *loop);

int mp_mailbox_open(mp_loop *loop);
void mp_mailbox_wake(mp_loop *loop);
/* Delivers the messages that have arrived. */
void mp_mailbox_deliver(mp_loop *loop);
/* Delivers the waiting messages, and every later one, with `loop == NULL`. */
void mp_mailbox_shut(mp_loop *loop);
void mp_mailbox_close(mp_loop *loop);

/* A random number below `range`, for jitter only; 0 if `range` is 0. */
uint64_t mp_loop_chance(mp_loop *loop, uint64_t range);
/* How many events of libh2o the next turn takes, after a turn of `us` microseconds that has served `events`.
 * `has_left`: its time ended before its work. `*slow` counts slow turns in a row. */
int mp_loop_most_events(unsigned *slow, uint64_t us, unsigned events, bool has_left);
/* Processes the events of one turn, without what runs at the bottom of a turn. */
void mp_loop_turn(mp_loop *loop, bool may_wait);

#endif
