/* pool.h: work that blocks, part of the door net.h: a few threads of the process that do it for all loops.
 *
 *   job     one piece of work, of whoever asked for it; its memory outlives `done`
 *
 * Jobs begin in the order they were given; several run at once. */
#ifndef MP_NET_POOL_H
#define MP_NET_POOL_H

#include "base/base.h"
#include "message.h"

typedef struct mp_job {
    void (*work)(struct mp_job *job); /* on a thread of the pool: touches nothing but the job */
    /* On the loop, at the bottom of a turn, once, however it went: the time to free it. `loop` is NULL when the loop has
     * ended; then it may be any thread, and whoever waited is still there, for its cancel. */
    void (*done)(struct mp_job *job, struct mp_loop *loop);
    mp_message message; /* these are the pool's */
    mp_link link;
    struct mp_loop *loop;
} mp_job;

/* Before the first job: how many threads at most, and how many jobs that none of them has begun. */
void mp_pool_start(int64_t threads, int64_t queue);
/* When no loop runs any more, and before they are freed: waits for what is under way. What has not begun is done without
 * having worked. */
void mp_pool_stop(void);

/* -1: the queue is full, or no thread can be had; nothing has happened. `loop` is the caller's own. */
int mp_pool_run(struct mp_loop *loop, mp_job *job);
/* True: it had not begun, and never will; it is the caller's again. False: it is under way or over, and `done` comes. */
bool mp_pool_take_back(mp_job *job);

#endif
