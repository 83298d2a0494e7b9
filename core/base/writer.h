/* writer.h: lines for a descriptor, queued under a mutex held for a memcpy, written by a thread of their own: whoever puts one
 * never waits for whoever reads it. */
#ifndef MP_BASE_WRITER_H
#define MP_BASE_WRITER_H

#include "buf.h"
#include <pthread.h>
#include <stdbool.h>

typedef struct mp_writer {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    mp_buf queue;
    size_t most;   /* bytes that wait */
    int fd, busy;  /* the writer's own; what the thread writes to, -1 for nothing */
    bool is_stale; /* `busy` is no longer the writer's: the thread closes it */
    bool is_running, is_ending;
    /* On the writer's thread: `lost` were queued and cannot be written, for this errno. NULL: nobody wants to know. */
    void (*failed)(mp_str lost, int error);
} mp_writer;

#define MP_WRITER(descriptor, bytes, on_failed)                                                                        \
    {                                                                                                                  \
        .lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .most = (bytes), .fd = (descriptor),      \
        .busy = -1, .failed = (on_failed)                                                                              \
    }

/* False when no thread can be had. */
bool mp_writer_start(mp_writer *writer);
/* Writes what is queued, then ends the thread. Quiet when it does not run. */
void mp_writer_stop(mp_writer *writer);
/* Any thread. OFF: it does not run, and the line is not queued. */
typedef enum { MP_WRITER_QUEUED, MP_WRITER_FULL, MP_WRITER_OFF } mp_writer_result;
mp_writer_result mp_writer_put(mp_writer *writer, mp_str line);
/* Takes `fd` over, -1 for none: what is queued, and what is put from now on, goes there. The one before is closed, as soon as
 * nothing is written to it. */
void mp_writer_swap(mp_writer *writer, int fd);

/* All of it, now, however often it takes: 0, or an errno with what is left in `s`. */
int mp_write_all(int fd, mp_str *s);

#endif
