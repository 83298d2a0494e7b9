/* os.h: files, programs and threads of the system, as events of a loop; its memory in pages; and listening sockets.
 *
 *   pipe   one peer on two descriptors, a line per message: stdin and stdout of a process
 *   pool   threads for blocking work
 *
 * Everything belongs to the thread of its loop, except the pool. */
#ifndef MP_OS_H
#define MP_OS_H

#include "loop/loop.h"
#include "child.h"
#include "files.h"
#include "pages.h"
#include "reaper.h"
#include "pool.h"
#include "process.h"
#include "slabs.h"
#include "sockets.h"

/* Moves the variables of the environment to where /proc/PID/environ does not show them: programs of scripts run as the
 * same user and could read it. Called before anything keeps a text of getenv(), which is emptied. libpq's variables
 * (PGHOST and others) are found only by the other two then: it would use what a script has not given. */
void mp_environment_hide(void);
const char *MP_NULLABLE mp_environment_get(const char *name);
char **mp_environment_all(void); /* for a program; the caller frees the list, but not its texts */

/* -- lines ----------------------------------------------------------------------------------------------------- */

typedef struct mp_pipe mp_pipe;

typedef struct {
    /* `line` is without its line end (LF, or CR and LF) and valid during the call */
    void (*on_line)(void *ctx, mp_str line);
    void (*on_long)(void *ctx); /* a line exceeded the limit and was dropped */
    /* error 0: the input ended; output can still be sent. Else an errno, usually EPIPE: the peer closed its end.
     * Each of the two happens at most once. */
    void (*on_end)(void *ctx, int error);
    bool reads_to_end; /* input is read to its end even if the peer no longer reads; else on_end is the last hook */
} mp_pipe_hooks;

/* Takes ownership of both descriptors, which may be pipes, sockets, terminals or files. Their flags are restored at
 * the end for other processes that share them. A line has at most `longest` bytes. While more than `most_queued`
 * bytes wait to be written, nothing is read. */
mp_pipe *MP_NULLABLE mp_pipe_new(mp_loop *loop, int in, int out, size_t longest, size_t most_queued, mp_err *err);
/* Begins to read; `hooks` is copied. The hooks may run inside any function below except `send` and `free`. */
void mp_pipe_start(mp_pipe *pipe, const mp_pipe_hooks *hooks, void *ctx);
/* Queues a line (copied; the line end is added), even above the queue limit. Returns -1 if the peer closed its end. */
int mp_pipe_send(mp_pipe *pipe, mp_str line);
/* True if `bytes` more fit under the queue limit, or the queue is empty. Check it before sending a message that may
 * be dropped. */
bool mp_pipe_has_room(const mp_pipe *pipe, size_t bytes);
/* Writes as much as the peer accepts now; the rest is written as the peer reads. Call it at the bottom of each turn. */
void mp_pipe_flush(mp_pipe *pipe);
size_t mp_pipe_queued(const mp_pipe *pipe);
/* The number of bytes written since the beginning: an earlier line is out, whole or in part, if it began before. */
uint64_t mp_pipe_written(const mp_pipe *pipe);
/* Closes the output when all queued bytes are written: the peer then reads end-of-file. No more bytes can be sent;
 * input is still read. For pipes, not for a descriptor that is input and output at once. */
void mp_pipe_finish(mp_pipe *pipe);
/* Frees the pipe and drops queued bytes. Must not be called from a hook. */
void mp_pipe_free(mp_pipe *pipe);

extern mp_account mp_account_queue_bytes;

#endif
