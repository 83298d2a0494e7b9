/* writer.c: two buffers: callers fill one while the thread writes the other. */
#define _GNU_SOURCE /* for pthread_cond_clockwait, memrchr */
#include "writer.h"
#include "crash.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

int mp_write_all(int fd, mp_str *s)
{
    while (s->len > 0) {
        ssize_t n = write(fd, s->ptr, s->len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n == 0 ? EIO : errno;
        *s = mp_str_from(*s, (size_t)n);
    }
    return 0;
}

static void close_unless_stderr(int fd)
{
    if (fd != STDERR_FILENO)
        close(fd);
}

/* Call it under the lock. Marks the descriptor as no longer in use. The thread could work on a duplicate of it, but
 * a duplicate cannot be made when the process has run out of descriptors, which is when log lines matter. */
static void release_descriptor(mp_writer *writer)
{
    if (writer->is_stale)
        close_unless_stderr(writer->busy);
    writer->busy = -1;
    writer->is_stale = false;
}

int64_t mp_count_lines(mp_str text)
{
    int64_t lines = 0;
    for (mp_str_cut(&text, '\n'); text.ptr != NULL; mp_str_cut(&text, '\n'))
        lines++;
    return lines;
}

/* -- files --------------------------------------------------------------------------------------------------------- */

#define LOOK_MS 1000 /* minimum interval between two looks whether the file has another name */
#define LOOKS 8      /* a file may change between two looks */

int mp_open_lines(const char *path)
{
    struct stat is;
    int flags = O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = stat(path, &is) == 0 && !S_ISREG(is.st_mode) ? -1 : open(path, flags | O_RDWR, 0600);
    if (fd < 0)
        fd = open(path, flags | O_WRONLY, 0600);
    if (fd >= 0)
        fcntl(fd, F_SETFL, O_APPEND); /* clears O_NONBLOCK: the writer's thread may block */
    return fd;
}

int mp_lines_refused(const char *key, const char *path, int error, mp_err *err)
{
    mp_err_set(err, "%s: %s cannot be opened: %s", key, path,
               error == ENXIO ? "no process reads this FIFO" : strerror(error));
    return mp_err_hint(err, "%s",
                       error == ENXIO ? "start the process that reads the FIFO first, or name a regular file"
                                      : "the folder must exist, and this user needs permission to write in it");
}

void mp_writer_set_path(mp_writer *writer, const char *path)
{
    free(writer->path);
    writer->path = mp_dup(mp_str_of(path));
}

/* True if the file `fd` was renamed or removed. */
static bool is_moved(const char *path, int fd)
{
    struct stat own, named;
    if (fstat(fd, &own) != 0 || !S_ISREG(own.st_mode))
        return false;
    return stat(path, &named) != 0 || named.st_dev != own.st_dev || named.st_ino != own.st_ino;
}

/* Call it under the lock. The lines go to `fd` from now on. */
static void replace_descriptor(mp_writer *writer, int fd)
{
    int before = writer->fd;
    writer->fd = fd;
    atomic_store(&writer->is_torn, false);
    if (before >= 0 && before == writer->busy)
        writer->is_stale = true;
    else if (before >= 0)
        close_unless_stderr(before);
}

/* The thread, which has written to `before`, has opened the file as `opened`, and writes to it from now on. If another
 * thread has given the writer a descriptor meanwhile, that one is used instead: the file that has become `opened` may
 * have been renamed before the other thread opened its own. Returns the descriptor to which the thread has to write. */
static int use_descriptor(mp_writer *writer, int before, int opened)
{
    MP_LOCKED(&writer->lock);
    if (writer->fd == before)
        replace_descriptor(writer, opened);
    else
        close(opened);
    release_descriptor(writer);
    return writer->busy = writer->fd;
}

static void log_failure(mp_writer *writer, const char *step, int error)
{
    uint64_t now = mp_monotonic_ms();
    if (writer->not_replaced == NULL || now < writer->complain_after_ms)
        return;
    writer->complain_after_ms = now + MP_WRITER_COMPLAIN_MS;
    writer->not_replaced(step, error);
}

/* Opens the file again if another process has renamed or removed it. One that the gateway renames is looked at each
 * time: two renames remove it. */
static int follow_path(mp_writer *writer, int fd)
{
    uint64_t now = mp_monotonic_ms();
    const char *MP_NULLABLE path = writer->path;
    if (path == NULL || (atomic_load(&writer->full_bytes) == 0 && now < writer->looked_at_ms + LOOK_MS))
        return fd;
    writer->looked_at_ms = now;
    if (!is_moved(path, fd))
        return fd;
    int opened = mp_open_lines(path);
    if (opened >= 0)
        return use_descriptor(writer, fd, opened);
    log_failure(writer, "opened", errno);
    return fd;
}

/* Cuts from `rest` the whole lines that fit in `room` bytes; at least one line if `is_forced`. */
static mp_str take_lines(mp_str *rest, int64_t room, bool is_forced)
{
    mp_str all = *rest;
    if (room >= (int64_t)all.len) {
        *rest = mp_str_from(all, all.len);
        return all;
    }
    const char *end = room <= 0 ? NULL : memrchr(all.ptr, '\n', (size_t)room);
    if (end == NULL && is_forced)
        end = memchr(all.ptr, '\n', all.len);
    size_t len = end == NULL ? 0 : (size_t)(end - all.ptr) + 1;
    if (end == NULL && is_forced)
        len = all.len;
    *rest = mp_str_from(all, len);
    return (mp_str){all.ptr, len};
}

static bool is_regular(int fd)
{
    struct stat is;
    return fstat(fd, &is) == 0 && S_ISREG(is.st_mode);
}

/* True if the last one who wrote to the file was ended, or found the disk full, inside of a line. */
static bool ends_inside_line(int fd)
{
    static const struct timespec only_access[] = {{.tv_nsec = UTIME_NOW}, {.tv_nsec = UTIME_OMIT}};
    struct stat is;
    off_t before = 0;
    char last;
    for (int i = 0; i < LOOKS; i++) {
        if (fstat(fd, &is) != 0 || !S_ISREG(is.st_mode) || is.st_size == 0 ||
            pread(fd, &last, 1, is.st_size - 1) != 1 || last == '\n')
            return false;
        if (is.st_size == before)
            return true;
        before = is.st_size;
        /* futimens waits for the lock of the file: a write that reached the file by now has ended after it */
        futimens(fd, only_access);
    }
    return false;
}

/* Writes the bytes that fit, after a line end if `anew`, and removes them from `rest`. Returns 0 or an errno. */
static int write_once(int fd, mp_str *rest, bool anew)
{
    ssize_t n;
    const struct iovec parts[] = {{(char[]){'\n'}, 1}, {(void *)(uintptr_t)rest->ptr, rest->len}};
    do
        n = writev(fd, parts + !anew, 1 + anew);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        return n == 0 ? EIO : errno;
    *rest = mp_str_from(*rest, (size_t)n - anew);
    return 0;
}

/* The rest of `lines` from the beginning of the line in which `rest` begins. */
static mp_str from_line(mp_str lines, mp_str rest)
{
    const char *end = memrchr(lines.ptr, '\n', lines.len - rest.len);
    return end == NULL ? lines : mp_str_from(lines, (size_t)(end - lines.ptr) + 1);
}

/* Writes `lines`, and counts lines that cannot be written. After a part of a line, another process may have written:
 * such a line is begun again, once, after a line end. */
static void write_lines(mp_writer *writer, int fd, mp_str lines)
{
    mp_str rest = lines;
    const char *MP_NULLABLE again = NULL; /* the line that was begun again */
    bool is_torn = atomic_load(&writer->is_torn) || ends_inside_line(fd), anew = is_torn;
    int error = 0;
    while (rest.len > 0 && (error = write_once(fd, &rest, anew)) == 0) {
        mp_str line = from_line(lines, rest);
        is_torn = line.ptr < rest.ptr;
        /* otherwise the file takes few bytes at a time, and the line is continued */
        anew = is_torn && line.ptr != again;
        if (anew)
            rest = line, again = line.ptr;
    }
    atomic_store(&writer->is_torn, is_torn);
    if (error != 0 && writer->failed != NULL)
        writer->failed(rest, error);
}

/* The bytes that the file `fd` takes until it is full; `*is_empty`: it has none. INT64_MAX: it is never full. */
static int64_t room_left(const mp_writer *writer, int fd, bool *is_empty)
{
    struct stat is;
    int64_t full_bytes = atomic_load_explicit(&writer->full_bytes, memory_order_relaxed);
    *is_empty = true;
    if (full_bytes == 0 || fstat(fd, &is) != 0 || !S_ISREG(is.st_mode))
        return INT64_MAX;
    *is_empty = is.st_size == 0;
    return full_bytes - is.st_size;
}

/* Renames the full file `fd` to PATH.1 and makes a new one. Of several processes that find it full, the one that has
 * its lock does so. Returns the descriptor of the file that has the path now. -1 with errno; EWOULDBLOCK: another
 * process renames it. */
static int begin_file(mp_writer *writer, int fd)
{
    const char *MP_NULLABLE path = writer->path;
    if (path == NULL)
        return errno = ENOENT, -1;
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return -1;
    mp_scoped_buf before = {0};
    mp_buf_printf(&before, "%s.1", path);
    mp_buf_putc(&before, '\0');
    int made = is_moved(path, fd) || rename(path, before.ptr) == 0 ? mp_open_lines(path) : -1, error = errno;
    flock(fd, LOCK_UN);
    errno = error;
    return made;
}

/* Writes a batch of lines, to a new file whenever the one that is open is full. */
static void write_batch(mp_writer *writer, int fd, mp_str rest)
{
    bool is_stuck = false; /* the file is full and cannot be renamed */
    fd = follow_path(writer, fd);
    /* A pipe takes no more at once without a part of another process in it. */
    int64_t most = is_regular(fd) ? INT64_MAX : PIPE_BUF;
    while (rest.len > 0) {
        bool is_empty;
        int64_t room = is_stuck ? INT64_MAX : room_left(writer, fd, &is_empty);
        mp_str piece = take_lines(&rest, room < most ? room : most, room == INT64_MAX || is_empty);
        if (piece.len > 0) {
            write_lines(writer, fd, piece);
            continue;
        }
        int made = begin_file(writer, fd);
        if (made >= 0)
            fd = use_descriptor(writer, fd, made);
        else if (errno != EWOULDBLOCK)
            log_failure(writer, "renamed", errno);
        is_stuck = made < 0;
    }
}

/* -- the thread ---------------------------------------------------------------------------------------------------- */

static void *MP_NULLABLE write_queue(void *ctx)
{
    mp_writer *writer = ctx;
    mp_buf batch = {0};
    mp_crash_thread("writer", 0);
    for (;;) {
        pthread_mutex_lock(&writer->lock);
        release_descriptor(writer);
        mp_stat_add(writer->waiting, -writer->writing);
        writer->writing = 0;
        while (writer->queue.len == 0 && !writer->is_ending)
            pthread_cond_wait(&writer->wake, &writer->lock);
        bool done = writer->queue.len == 0;
        mp_buf full = writer->queue;
        writer->queue = batch;
        batch = full;
        int fd = done ? -1 : writer->fd;
        writer->busy = fd;
        writer->writing = mp_count_lines(mp_buf_str(&batch));
        writer->is_over = done;
        if (done)
            pthread_cond_broadcast(&writer->wake);
        pthread_mutex_unlock(&writer->lock);
        if (done)
            break;
        write_batch(writer, fd, mp_buf_str(&batch));
        batch.len = 0;
    }
    mp_buf_clear(&batch);
    return NULL;
}

bool mp_writer_start(mp_writer *writer)
{
    MP_LOCKED(&writer->lock); /* other threads may write lines already */
    writer->is_ending = writer->is_over = false;
    bool is_running = pthread_create(&writer->thread, NULL, write_queue, writer) == 0;
    writer->is_running = is_running;
    return is_running;
}

#define PATIENCE_MS 1000
static atomic_int patience_ms = PATIENCE_MS;

int mp_writer_patience(void)
{
    return atomic_load(&patience_ms);
}

void mp_writer_hurry(int ms)
{
    atomic_store(&patience_ms, ms);
}

/* Call it under the lock. Waits `ms` at most. True if all lines are written. */
static bool is_over_within(mp_writer *writer, int ms)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t ns = until.tv_nsec + ms * (int64_t)1000000;
    until.tv_sec += ns / 1000000000;
    until.tv_nsec = ns % 1000000000;
    while (!writer->is_over && pthread_cond_clockwait(&writer->wake, &writer->lock, CLOCK_MONOTONIC, &until) == 0)
        continue;
    return writer->is_over;
}

/* Call it under the lock. Waits until all lines are written: for a reader that does not read no longer than
 * mp_writer_patience(), for the thread, which may lack processor time, a second at most. */
static void await_end(mp_writer *writer)
{
    struct pollfd out = {.fd = writer->fd, .events = POLLOUT};
    if (!is_over_within(writer, mp_writer_patience()) && poll(&out, 1, 0) == 1)
        is_over_within(writer, PATIENCE_MS - mp_writer_patience());
}

int64_t mp_writer_stop(mp_writer *writer)
{
    int64_t lost = 0;
    pthread_mutex_lock(&writer->lock);
    bool was_running = writer->is_running;
    writer->is_ending = true;
    writer->is_running = false;
    pthread_cond_broadcast(&writer->wake);
    if (was_running)
        await_end(writer);
    if (was_running && !writer->is_over) {
        writer->is_left = true;
        lost = mp_count_lines(mp_buf_str(&writer->queue)) + writer->writing;
    }
    pthread_mutex_unlock(&writer->lock);
    if (!was_running)
        return 0;
    if (writer->is_left) {
        pthread_detach(writer->thread);
    } else {
        pthread_join(writer->thread, NULL);
        mp_buf_clear(&writer->queue);
    }
    return lost;
}

mp_writer_result mp_writer_put(mp_writer *writer, mp_str line)
{
    MP_LOCKED(&writer->lock);
    mp_writer_result result = writer->is_left ? MP_WRITER_LOST : MP_WRITER_OFF;
    if (writer->is_running && writer->queue.len + line.len > writer->most) {
        result = MP_WRITER_FULL;
    } else if (writer->is_running) {
        bool was_empty = writer->queue.len == 0; /* else the thread is awake, or has been woken */
        mp_buf_put(&writer->queue, line);
        mp_stat_add(writer->waiting, mp_count_lines(line));
        if (was_empty)
            pthread_cond_signal(&writer->wake);
        result = MP_WRITER_QUEUED;
    }
    return result;
}

void mp_writer_swap(mp_writer *writer, int fd)
{
    MP_LOCKED(&writer->lock);
    replace_descriptor(writer, fd);
}
