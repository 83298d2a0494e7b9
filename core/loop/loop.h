/* loop.h: the events of one thread: sockets, timers, watched descriptors, messages from other threads.
 *
 * Everything belongs to the thread of its loop, except `mp_loop_post`, `mp_loop_stop`, `mp_loop_wake` and
 * `mp_loop_turns`. Callbacks may run inside libh2o: they only mark and enqueue, and never run Lua. Times are
 * milliseconds of CLOCK_MONOTONIC. */
#ifndef MP_LOOP_H
#define MP_LOOP_H

#include "telemetry/telemetry.h"
#include "message.h"

typedef struct mp_loop mp_loop;

mp_loop *MP_NULLABLE mp_loop_new(mp_err *err);
void mp_loop_free(mp_loop *MP_NULLABLE loop);
/* The time of the current turn, in milliseconds of the monotonic clock: read once after each wake-up. */
uint64_t mp_loop_now(const mp_loop *loop);
/* The time of the current turn, in microseconds. */
uint64_t mp_loop_now_us(const mp_loop *loop);
/* Sets the function that runs at the bottom of each turn, outside libh2o: it returns true if it has more to do at once.
 * `has_work` returns true if `turn` is to run before the loop waits: it is asked when callbacks ran since the bottom.
 * NULL: it always is then. */
void mp_loop_on_turn(mp_loop *loop, bool (*turn)(void *ctx), bool (*MP_NULLABLE has_work)(void *ctx), void *ctx);
/* Runs until `mp_loop_stop`; may be called once. Then closes all connections of its servers, and `gone` runs for
 * their streams. */
void mp_loop_run(mp_loop *loop);
/* May be called on any thread. */
void mp_loop_stop(mp_loop *loop);
/* The number of turns begun; rises at least once a second while the loop runs. Any thread: a loop whose number does
 * not change is stuck. */
uint64_t mp_loop_turns(const mp_loop *loop);
/* The times of the loop's turns are those of worker `number` in /metrics. Before the loop runs. */
void mp_loop_name(mp_loop *loop, unsigned number);
/* Ends the loop's wait for events. Any thread. */
void mp_loop_wake(mp_loop *loop);
/* Kinds of work whose turns are counted by their processor time: in reload_turns, memory_turns, asked_turns (of workers
 * that the admin listener asks) and admin_turns (of the admin thread). */
typedef enum { MP_MEASURE_RELOAD, MP_MEASURE_MEMORY, MP_MEASURE_ASKED, MP_MEASURE_ADMIN, MP_MEASURES } mp_measure;
/* The processor time of this turn from here to its end is counted for this kind of work. */
void mp_loop_measure(mp_loop *loop, mp_measure kind);

/* A timer, embedded in its owner's struct. A zeroed timer is stopped. */
typedef struct mp_timer {
    uint64_t at;
    uint32_t slot; /* 1-based index in the heap; 0: stopped */
    void (*fire)(struct mp_timer *timer);
} mp_timer;

/* Starting a started timer moves it. Timers fire at the bottom of a turn and are stopped before `fire` runs, so
 * `fire` may free or restart them. */
void mp_timer_start(mp_loop *loop, mp_timer *timer, uint64_t after_ms, void (*fire)(mp_timer *timer));
void mp_timer_stop(mp_loop *loop, mp_timer *timer);

/* Watches a descriptor that is not an HTTP connection. Embedded in its owner's struct; a zeroed watch is stopped.
 * `events` are epoll's. */
typedef struct mp_fdwatch {
    int fd;
    uint32_t slot; /* index among the watches of the loop; 0: stopped */
    void (*ready)(struct mp_fdwatch *watch, uint32_t events);
} mp_fdwatch;

int mp_fdwatch_start(mp_loop *loop, mp_fdwatch *watch, int fd, uint32_t events, void (*ready)(mp_fdwatch *, uint32_t));
/* After this, `ready` is not called again, not even for events that were already read. */
void mp_fdwatch_stop(mp_loop *loop, mp_fdwatch *watch);

/* Delivers `message` on the loop's thread. Any thread. */
void mp_loop_post(mp_loop *loop, mp_message *message);
/* Posts a message of its own with a copy of `size` bytes of `content`, and the bytes of `text` right behind them. The
 * copy is freed when `deliver` has returned; its `loop` is NULL if the loop has ended. Any thread. */
void mp_loop_send(mp_loop *loop, void (*deliver)(void *content, mp_loop *MP_NULLABLE loop), const void *content,
                  size_t size, mp_str text);
/* Calls act(ctx) on the thread of the loop, unless the loop has ended. Any thread. */
void mp_loop_call(mp_loop *loop, void (*act)(void *ctx), void *ctx);

extern const mp_stat mp_stat_loop_us;

#endif
