/* writer.h: writes lines to a descriptor from a thread of its own. Queuing a line holds a mutex only for a memcpy,
 * so a slow reader of the descriptor never blocks the caller.
 *
 * Several processes may append to one file, each with whole lines. Its names are given by another program, which sends
 * SIGUSR1; record.file alone is renamed here. */
#ifndef MP_TELEMETRY_WRITER_H
#define MP_TELEMETRY_WRITER_H

#include "stats.h"

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
    const mp_stat *waiting;              /* gauge of the lines that are queued or being written */
    char *MP_NULLABLE path;              /* owned; NULL: no file. Set before threads start */
    _Atomic int64_t full_bytes; /* a file of this size is renamed to PATH.1, in place of the one before; 0: never */
    /* the thread's: when it last looked at the file, and from when on it may complain again */
    uint64_t looked_at_ms, complain_after_ms;
    atomic_bool is_torn; /* the last write to the file ended inside of a line */
    /* Runs on the writer's thread when the lines `lost` could not be written; `error` is the errno. May be NULL. */
    void (*MP_NULLABLE failed)(mp_str lost, int error);
    /* Called on the writer's thread, at most every MP_WRITER_COMPLAIN_MS, when the file could not be reopened
     * (`opened`) or `renamed`: lines are still written to the open file. May be NULL. */
    void (*MP_NULLABLE not_replaced)(const char *step, int error);
} mp_writer;

#define MP_WRITER_COMPLAIN_MS 10000

#define MP_WRITER(descriptor, bytes, gauge, on_failed, on_not_replaced)                                                \
    {.lock = PTHREAD_MUTEX_INITIALIZER,                                                                                \
     .wake = PTHREAD_COND_INITIALIZER,                                                                                 \
     .most = (bytes),                                                                                                  \
     .waiting = (gauge),                                                                                               \
     .fd = (descriptor),                                                                                               \
     .busy = -1,                                                                                                       \
     .failed = (on_failed),                                                                                            \
     .not_replaced = (on_not_replaced)}

/* Opens `path` for appending, with mode 0600, without blocking: on a FIFO that no process reads, it fails instead of
 * waiting. -1 with errno. A regular file is opened for reading, too, if it may be read: the writer looks at its last
 * byte. */
int mp_open_lines(const char *path);
/* Sets the error for a file that mp_open_lines could not open; `key` of the configuration names it. Returns -1. */
int mp_lines_refused(const char *key, const char *path, int error, mp_err *err);
/* Sets the path of the file for the lines. The thread reopens the file if another program has renamed or removed it. */
void mp_writer_set_path(mp_writer *writer, const char *path);

/* False if the thread cannot be started. */
bool mp_writer_start(mp_writer *writer);
/* Writes the queued lines, then ends the thread. If that takes longer than mp_writer_patience(), because the reader
 * of a pipe does not read, or longer than a second, the thread stays in its write until the process ends. Returns the
 * number of lines that were not written. Does nothing if the writer is not running. */
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
