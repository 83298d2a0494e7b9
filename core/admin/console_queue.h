/* console_queue.h: messages from consoles (rpc/observe.h), which live on the threads of workers, to one reader on the
 * admin thread. An answer of a worker's Lua to a page, or what a client of an operator's call would get.
 *
 *     queue = mp_console_queue_new(&(mp_console_queue_settings){loop, 1 << 20, &mp_stat_dropped_x, take, overflow,
 *     freed, reader}); console = mp_console_queue_open(queue, table, worker, &settings);
 *     ... `take` gets each message, in the order in which that worker has sent them
 *     mp_console_close(console, false);
 *     mp_console_queue_close(queue);
 *
 * Ownership: an queue is counted. The reader has one reference until mp_console_queue_close(), each console one until
 * it is freed, and a message to the admin thread one while it is on its way. `freed` runs when the last one is gone, so
 * a reader that is freed by it outlives all that may still send to it.
 *
 * Bound: messages that answer no call are dropped and counted while `most_bytes` wait. Answers have as much room again
 * beside them; an answer without room is dropped, too, and `overflow` says so, since the reader would wait for it
 * forever. */
#ifndef MP_ADMIN_CONSOLE_QUEUE_H
#define MP_ADMIN_CONSOLE_QUEUE_H

#include "rpc/observe.h"

typedef struct mp_console_queue mp_console_queue;

typedef struct {
    mp_loop *loop;          /* loop of the admin thread */
    size_t most_bytes;      /* limit of the bytes of waiting messages */
    const mp_stat *dropped; /* counts messages that were dropped because there was no room */
    /* A message, on the admin thread. `mark`: of the call that it answers; 0: it answers none. It may close the
     * queue. */
    void (*take)(void *ctx, uint64_t mark, mp_str json);
    /* An answer was dropped; on the admin thread, after the messages before it. It may close the queue. */
    void (*overflow)(void *ctx);
    /* Called when the last reference was given back, on any thread: frees the memory of `ctx`. */
    void (*freed)(void *ctx);
    void *ctx;
} mp_console_queue_settings;

/* -- functions for the admin thread -------------------------------------------------------------------------------- */

mp_console_queue *mp_console_queue_new(const mp_console_queue_settings *settings);
/* Opens a console whose messages come to the queue. Sets the hooks of `settings` and their ctx; the caller sets its
 * other members, and closes the console by mp_console_close(). */
mp_console *mp_console_queue_open(mp_console_queue *queue, mp_session_table *table, unsigned worker,
                                  mp_console_settings *settings);
/* Gives the reader's reference back. `take` and `overflow` are not called any more; messages are freed. */
void mp_console_queue_close(mp_console_queue *queue);
/* The number of messages that were dropped because there was no room. */
uint64_t mp_console_queue_dropped(mp_console_queue *queue);

/* -- any thread ---------------------------------------------------------------------------------------------------- */

mp_console_queue *mp_console_queue_ref(mp_console_queue *queue);
void mp_console_queue_unref(mp_console_queue *queue);

#endif
