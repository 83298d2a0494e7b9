/* pipe.c: one peer on two descriptors, with one message per line. Input is buffered until a line is complete. Output
 * is buffered until the peer reads it; while more than `most_queued` bytes of it wait, no input is read. Descriptors
 * that epoll refuses, such as those of regular files, are always ready: a timer reads them. */
#include "os.h"
#include "loop/queue.h"
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

MP_ACCOUNT(queue_bytes, "queue_bytes", "", "",
           "bytes of events, of answers above 4 KiB and of batches, that wait for their readers")

#define PIECE ((size_t)64 << 10)
#define KEPT_BYTES ((size_t)256 << 10) /* capacity of the input buffer that is kept after a long line */
#define PIECES 32
/* Lines delivered per turn. Less than the calls that run per turn, so that a flood of lines does not build up. */
#define LINES_PER_TURN 16

typedef struct {
    int fd;
    /* other processes share the descriptor and expect it to block: its flags are restored at the end */
    bool is_restored;
    mp_fdwatch watch;
} end;

struct mp_pipe {
    mp_loop *loop;
    mp_pipe_hooks hooks;
    void *ctx;
    size_t longest, most_queued;
    end in, out;
    mp_buf input;
    size_t at, seen; /* offsets in `input`: `at` is the start of the next line; up to `seen` there is no line break */
    mp_queue queue;
    mp_timer timer;   /* timer after which reading continues */
    bool is_file;     /* the input is a regular file */
    uint64_t written; /* bytes that the peer's end of the pipe has taken, since the beginning */
    bool awaits_room, is_skipping, is_full, is_over, is_ended, is_broken;
    bool is_deaf;      /* no more input is delivered */
    bool is_finishing; /* the output is closed as soon as the queue is empty */
};

/* -- descriptors --------------------------------------------------------------------------------------------------- */

/* O_NONBLOCK affects every process that shares an open file description, such as a terminal or `2>&1`. So the file
 * is opened again for this process alone, where that yields the same file. */
static int open_anew(int fd, mode_t type, int access)
{
    unsigned number;
    /* opening /proc/self/fd of a pty's master would make a new pty */
    if (!S_ISFIFO(type) && (!isatty(fd) || ioctl(fd, TIOCGPTN, &number) == 0))
        return -1;
    char path[32];
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    return open(path, access | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

static int take_descriptor(end *one, int fd, int access)
{
    struct stat about;
    int flags = fcntl(fd, F_GETFL);
    one->fd = fd;
    if (flags < 0 || fstat(fd, &about) != 0)
        return -1;
    if ((flags & O_ACCMODE) != access && (flags & O_ACCMODE) != O_RDWR) {
        errno = EBADF;
        return -1;
    }
    int own = open_anew(fd, about.st_mode, access);
    if (own >= 0) {
        close(fd);
        one->fd = own;
    } else if (!(flags & O_NONBLOCK) && !S_ISREG(about.st_mode)) {
        fcntl(fd, F_SETFL, flags | O_NONBLOCK);
        one->is_restored = true;
    }
    return 0;
}

static void give_back(mp_loop *loop, end *one)
{
    mp_fdwatch_stop(loop, &one->watch);
    if (one->fd < 0)
        return;
    if (one->is_restored)
        fcntl(one->fd, F_SETFL, fcntl(one->fd, F_GETFL) & ~O_NONBLOCK);
    close(one->fd);
    one->fd = -1;
}

mp_pipe *MP_NULLABLE mp_pipe_new(mp_loop *loop, int in, int out, size_t longest, size_t most_queued, mp_err *err)
{
    mp_pipe *pipe = mp_new(sizeof *pipe);
    pipe->loop = loop;
    pipe->longest = longest;
    pipe->most_queued = most_queued;
    pipe->out.fd = out;
    if (take_descriptor(&pipe->in, in, O_RDONLY) == 0 && take_descriptor(&pipe->out, out, O_WRONLY) == 0)
        return pipe;
    mp_err_set(err, "cannot use stdin and stdout: %s", strerror(errno));
    mp_pipe_free(pipe);
    return NULL;
}

void mp_pipe_free(mp_pipe *pipe)
{
    mp_timer_stop(pipe->loop, &pipe->timer);
    give_back(pipe->loop, &pipe->out); /* in reverse order, since both may be the same socket */
    give_back(pipe->loop, &pipe->in);
    mp_account_give(&mp_account_queue_bytes, (int64_t)pipe->queue.bytes);
    mp_queue_drop(&pipe->queue, pipe->queue.bytes);
    mp_buf_clear(&pipe->input);
    free(pipe);
}

/* -- output -------------------------------------------------------------------------------------------------------- */

static void on_time(mp_timer *timer);

static void stop_reading(mp_pipe *pipe)
{
    mp_timer_stop(pipe->loop, &pipe->timer);
    mp_fdwatch_stop(pipe->loop, &pipe->in.watch);
}

static void drop_queued(mp_pipe *pipe, size_t bytes)
{
    mp_queue_drop(&pipe->queue, bytes);
    mp_account_give(&mp_account_queue_bytes, (int64_t)bytes);
}

static void break_off(mp_pipe *pipe, int error)
{
    pipe->is_broken = true;
    if (!pipe->hooks.reads_to_end) {
        pipe->is_deaf = true;
        stop_reading(pipe);
    }
    mp_fdwatch_stop(pipe->loop, &pipe->out.watch);
    drop_queued(pipe, pipe->queue.bytes);
    pipe->hooks.on_end(pipe->ctx, error);
}

/* Besides room to write, the watch reports that the peer closed its end. */
static void on_out(mp_fdwatch *watch, uint32_t events)
{
    mp_pipe *pipe = mp_container(watch, mp_pipe, out.watch);
    if (events & (EPOLLERR | EPOLLHUP))
        break_off(pipe, EPIPE);
    else
        mp_pipe_flush(pipe);
}

static void await_room(mp_pipe *pipe, bool wanted)
{
    pipe->awaits_room = wanted;
    if (mp_fdwatch_start(pipe->loop, &pipe->out.watch, pipe->out.fd, wanted ? EPOLLOUT : 0, on_out) != 0 && wanted)
        break_off(pipe, errno);
}

/* Returns the number of bytes written; 0 if the peer reads nothing now, -1 if it closed its end. */
static ssize_t write_some(mp_pipe *pipe)
{
    h2o_iovec_t queued[PIECES];
    struct iovec pieces[PIECES];
    size_t bytes;
    size_t count = mp_queue_peek(&pipe->queue, queued, PIECES, 2 * PIECE, &bytes);
    for (size_t i = 0; i < count; i++)
        pieces[i] = (struct iovec){queued[i].base, queued[i].len};
    ssize_t written;
    do
        written = writev(pipe->out.fd, pieces, (int)count);
    while (written < 0 && errno == EINTR);
    return written < 0 && errno == EAGAIN ? 0 : written;
}

void mp_pipe_flush(mp_pipe *pipe)
{
    if (pipe->queue.bytes == 0)
        return;
    ssize_t written = 1;
    while (pipe->queue.bytes > 0 && written > 0) {
        written = write_some(pipe);
        if (written > 0) {
            drop_queued(pipe, (size_t)written);
            pipe->written += (uint64_t)written;
        }
    }
    if (written < 0) {
        break_off(pipe, errno);
        return;
    }
    if (pipe->awaits_room != (pipe->queue.bytes > 0))
        await_room(pipe, !pipe->awaits_room);
    if (pipe->is_finishing && pipe->queue.bytes == 0)
        give_back(pipe->loop, &pipe->out);
    if (pipe->is_full && !pipe->is_ended && pipe->queue.bytes <= pipe->most_queued / 2) {
        pipe->is_full = false;
        mp_timer_start(pipe->loop, &pipe->timer, 0, on_time);
    }
}

bool mp_pipe_has_room(const mp_pipe *pipe, size_t bytes)
{
    size_t queued = pipe->queue.bytes;
    return queued == 0 || (queued <= pipe->most_queued && bytes <= pipe->most_queued - queued);
}

int mp_pipe_send(mp_pipe *pipe, mp_str line)
{
    if (pipe->is_broken || pipe->is_finishing)
        return -1;
    mp_queue_put(&pipe->queue, line);
    mp_queue_put(&pipe->queue, MP_STR("\n"));
    mp_account_add(&mp_account_queue_bytes, (int64_t)line.len + 1);
    if (!mp_pipe_has_room(pipe, 0)) {
        pipe->is_full = true;
        stop_reading(pipe);
    }
    return 0;
}

size_t mp_pipe_queued(const mp_pipe *pipe)
{
    return pipe->queue.bytes;
}

uint64_t mp_pipe_written(const mp_pipe *pipe)
{
    return pipe->written;
}

void mp_pipe_finish(mp_pipe *pipe)
{
    pipe->is_finishing = true;
    if (pipe->queue.bytes == 0)
        give_back(pipe->loop, &pipe->out);
}

/* -- input --------------------------------------------------------------------------------------------------------- */

/* Moves the incomplete last line to the front of the buffer. Discards a line that is already too long. */
static void keep_incomplete_line(mp_pipe *pipe)
{
    mp_buf *input = &pipe->input;
    if (input->len - pipe->at > pipe->longest + 1) { /* one extra byte: it may be the '\r' before the line end */
        if (!pipe->is_skipping)
            pipe->hooks.on_long(pipe->ctx);
        pipe->is_skipping = true;
        pipe->at = input->len;
    }
    if (pipe->at == input->len && input->cap > KEPT_BYTES)
        mp_buf_clear(input);
    else if (pipe->at > 0)
        memmove(input->ptr, input->ptr + pipe->at, input->len - pipe->at);
    if (input->ptr != NULL)
        input->len -= pipe->at;
    pipe->at = 0;
    pipe->seen = input->len;
}

/* Delivers one line; false if no complete line is buffered. */
static bool deliver_line(mp_pipe *pipe)
{
    mp_buf *input = &pipe->input;
    size_t unseen = input->len - pipe->seen;
    const char *stop = unseen == 0 ? NULL : memchr(input->ptr + pipe->seen, '\n', unseen);
    if (stop == NULL) {
        keep_incomplete_line(pipe);
        return false;
    }
    mp_str line = {input->ptr + pipe->at, (size_t)(stop - input->ptr) - pipe->at};
    pipe->at = pipe->seen = pipe->at + line.len + 1;
    if (line.len > 0 && line.ptr[line.len - 1] == '\r')
        line.len--;
    if (pipe->is_skipping)
        pipe->is_skipping = false;
    else if (line.len > pipe->longest)
        pipe->hooks.on_long(pipe->ctx);
    else
        pipe->hooks.on_line(pipe->ctx, line);
    return true;
}

static void read_some(mp_pipe *pipe)
{
    ssize_t count;
    do
        count = read(pipe->in.fd, mp_buf_room(&pipe->input, PIECE), PIECE);
    while (count < 0 && errno == EINTR);
    if (count > 0) {
        pipe->input.len += (size_t)count;
    } else if (count == 0 || errno != EAGAIN) {
        pipe->is_over = true;
        mp_buf_putc(&pipe->input, '\n'); /* the last line may lack a line end */
    }
}

static void on_in(mp_fdwatch *watch, uint32_t events);

/* Delivers some lines and arranges for the remaining ones to be delivered in a later turn. */
static void deliver_lines(mp_pipe *pipe)
{
    int lines = 0;
    while (lines < LINES_PER_TURN && !pipe->is_full && !pipe->is_deaf && deliver_line(pipe))
        lines++;
    if (pipe->is_full || pipe->is_deaf || pipe->is_ended)
        return;
    if (lines == LINES_PER_TURN || pipe->is_file) {
        mp_fdwatch_stop(pipe->loop, &pipe->in.watch);
        mp_timer_start(pipe->loop, &pipe->timer, 0, on_time);
    } else if (!pipe->is_over && pipe->in.watch.slot == 0 &&
               mp_fdwatch_start(pipe->loop, &pipe->in.watch, pipe->in.fd, EPOLLIN, on_in) != 0) {
        pipe->is_file = true;
        mp_timer_start(pipe->loop, &pipe->timer, 0, on_time);
    }
    if (pipe->is_over && lines < LINES_PER_TURN) {
        stop_reading(pipe);
        pipe->is_ended = true;
        pipe->hooks.on_end(pipe->ctx, 0);
    }
}

/* Buffered lines are delivered before more input is read. */
static void on_time(mp_timer *timer)
{
    mp_pipe *pipe = mp_container(timer, mp_pipe, timer);
    if (pipe->is_file && !pipe->is_over && pipe->seen == pipe->input.len)
        read_some(pipe);
    deliver_lines(pipe);
}

static void on_in(mp_fdwatch *watch, MP_UNUSED uint32_t events)
{
    mp_pipe *pipe = mp_container(watch, mp_pipe, in.watch);
    read_some(pipe);
    deliver_lines(pipe);
}

void mp_pipe_start(mp_pipe *pipe, const mp_pipe_hooks *hooks, void *ctx)
{
    pipe->hooks = *hooks;
    pipe->ctx = ctx;
    await_room(pipe, false);
    deliver_lines(pipe);
}
