/* writer.h: writes lines to a descriptor from a thread of its own. Queuing a line holds a mutex only for a memcpy,
 * so a slow reader of the descriptor never blocks the caller. */
#ifndef MP_TELEMETRY_WRITER_H
#define MP_TELEMETRY_WRITER_H

#include "base/base.h"
#include "rotate.h"
#include <pthread.h>
#include <stdbool.h>

typedef struct mp_writer {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    mp_buf queue;
    size_t most; /* capacity of the queue, in bytes */
    /* fd: owned by the writer; busy: the descriptor that the thread is writing to, or -1 */
    int fd, busy;
    bool is_stale;                       /* `busy` was replaced meanwhile: the thread closes it */
    bool is_running, is_ending, is_over; /* is_over: the thread has written everything and ends */
    bool is_left;                        /* the thread was abandoned in a blocked write: no more lines are written */
    int64_t writing;                     /* number of lines that the thread is writing */
    mp_rotation rotation;
    uint64_t looked_at_ms,
        turn_after_ms;   /* of the thread: when it last looked at the file; before when it does not rename it again */
    atomic_bool is_torn; /* the last write to the file ended inside of a line */
    /* Runs on the writer's thread when the lines `lost` could not be written; `error` is the errno. May be NULL. */
    void (*MP_NULLABLE failed)(mp_str lost, int error);
    /* Runs on the writer's thread, at most every MP_WRITER_COMPLAIN_MS, when the file could not be renamed or opened anew: lines go on to the file
     * that is open. May be NULL. */
    void (*MP_NULLABLE not_turned)(const char *what, int error);
} mp_writer;

#define MP_WRITER_COMPLAIN_MS 10000

#define MP_WRITER(descriptor, bytes, on_failed, on_not_turned)                                                         \
    {.lock = PTHREAD_MUTEX_INITIALIZER,                                                                                \
     .wake = PTHREAD_COND_INITIALIZER,                                                                                 \
     .most = (bytes),                                                                                                  \
     .fd = (descriptor),                                                                                               \
     .busy = -1,                                                                                                       \
     .rotation = MP_ROTATION,                                                                                          \
     .failed = (on_failed),                                                                                            \
     .not_turned = (on_not_turned)}

/* False if the thread cannot be started. */
bool mp_writer_start(mp_writer *writer);
/* Writes the queued lines, then ends the thread. If that takes longer than mp_writer_patience(), because the reader
 * of a pipe does not read, the thread stays in its write until the process ends. Returns the number of lines that
 * were not written. Does nothing if the writer is not running. */
int64_t mp_writer_stop(mp_writer *writer);
/* How long the end of a writer waits for a reader, in ms: a second, or less after mp_writer_hurry. Any thread. */
int mp_writer_patience(void);
void mp_writer_hurry(int ms);
/* Any thread. OFF: the writer is not running and the line was not queued. LOST: the writer was abandoned in a
 * blocked write, see mp_writer_stop. */
typedef enum { MP_WRITER_QUEUED, MP_WRITER_FULL, MP_WRITER_OFF, MP_WRITER_LOST } mp_writer_result;
mp_writer_result mp_writer_put(mp_writer *writer, mp_str line);
/* Takes ownership of `fd` (-1: none). Lines that are queued now and later go there. The previous descriptor is
 * closed once no write to it is in progress, unless it is stderr. */
void mp_writer_swap(mp_writer *writer, int fd);

/* The number of lines in `text`. */
int64_t mp_count_lines(mp_str text);
/* Blocks until all of `s` is written. Returns 0, or an errno with the unwritten part left in `s`. */
int mp_write_all(int fd, mp_str *s);

#endif
