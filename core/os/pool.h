/* pool.h: a few threads that run blocking work for all loops; part of the public header os.h.
 *
 *   job   one piece of work, owned by its submitter; its memory must stay valid until `done` runs
 * Jobs begin in the order in which they were submitted; several run at once. */
#ifndef MP_OS_POOL_H
#define MP_OS_POOL_H

#include "telemetry/telemetry.h"
#include "loop/loop.h"
#include <pthread.h>

/* Starts a thread that blocks all signals: other threads handle them. Returns 0, or the code of an error. */
int mp_thread_start(pthread_t *thread, void *MP_NULLABLE (*run)(void *arg), void *MP_NULLABLE arg);
typedef struct mp_job {
    void (*work)(struct mp_job *job); /* runs on a thread of the pool and may touch only the job */
    /* Runs exactly once, on the loop at the bottom of a turn; it may free the job. Without a loop, it
     * has ended: then it may run on any thread, and the task that waits for the job still exists, to be cancelled. */
    void (*done)(struct mp_job *job, struct mp_loop *MP_NULLABLE loop);
    mp_message message; /* the members from here on are private to pool.c */
    mp_link link;
    struct mp_loop *loop;
} mp_job;

#define MP_POOL_THREADS MP_LIMIT(pool_threads, 4) /* of the process; they begin when they are first needed */
#define MP_POOL_QUEUE MP_LIMIT(pool_queue, 1024)  /* jobs that have not begun: some seconds of four threads */

void mp_pool_start(void); /* before the first job */
/* Call it when no loop runs, before the loops are freed. Waits for running jobs; others complete without `work`. */
void mp_pool_stop(void);

/* `loop` is the caller's own. -1, without side effects: the queue is full, or no thread can be started. */
int mp_pool_run(struct mp_loop *loop, mp_job *job);
/* True: the job never begins; the caller owns it again. False: it runs or has run, and `done` will be called. */
bool mp_pool_take_back(mp_job *job);

#endif
