/* writer.c: two buffers, one that is filled and one that is written. */
#include "writer.h"
#include <errno.h>
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

/* Under the lock. A second descriptor of the same file would be simpler, but when there is no other left is when there is
 * something to log. */
static void let_go(mp_writer *writer)
{
    if (writer->is_stale)
        close(writer->busy);
    writer->busy = -1;
    writer->is_stale = false;
}

static void *write_queue(void *ctx)
{
    mp_writer *writer = ctx;
    mp_buf batch = {0};
    for (;;) {
        pthread_mutex_lock(&writer->lock);
        let_go(writer);
        while (writer->queue.len == 0 && !writer->is_ending)
            pthread_cond_wait(&writer->wake, &writer->lock);
        bool done = writer->queue.len == 0;
        mp_buf full = writer->queue;
        writer->queue = batch;
        batch = full;
        int fd = done ? -1 : writer->fd;
        writer->busy = fd;
        pthread_mutex_unlock(&writer->lock);
        if (done)
            break;
        mp_str rest = mp_buf_str(&batch);
        int error = mp_write_all(fd, &rest);
        if (error != 0 && writer->failed != NULL)
            writer->failed(rest, error);
        batch.len = 0;
    }
    mp_buf_clear(&batch);
    return NULL;
}

bool mp_writer_start(mp_writer *writer)
{
    writer->is_ending = false;
    writer->is_running = pthread_create(&writer->thread, NULL, write_queue, writer) == 0;
    return writer->is_running;
}

void mp_writer_stop(mp_writer *writer)
{
    pthread_mutex_lock(&writer->lock);
    bool was_running = writer->is_running;
    writer->is_ending = true;
    writer->is_running = false;
    pthread_cond_signal(&writer->wake);
    pthread_mutex_unlock(&writer->lock);
    if (!was_running)
        return;
    pthread_join(writer->thread, NULL);
    mp_buf_clear(&writer->queue);
}

mp_writer_result mp_writer_put(mp_writer *writer, mp_str line)
{
    mp_writer_result result = MP_WRITER_OFF;
    pthread_mutex_lock(&writer->lock);
    if (writer->is_running && writer->queue.len + line.len > writer->most) {
        result = MP_WRITER_FULL;
    } else if (writer->is_running) {
        mp_buf_put(&writer->queue, line);
        pthread_cond_signal(&writer->wake);
        result = MP_WRITER_QUEUED;
    }
    pthread_mutex_unlock(&writer->lock);
    return result;
}

void mp_writer_swap(mp_writer *writer, int fd)
{
    pthread_mutex_lock(&writer->lock);
    int before = writer->fd;
    writer->fd = fd;
    if (before >= 0 && before == writer->busy)
        writer->is_stale = true;
    else if (before >= 0)
        close(before);
    pthread_mutex_unlock(&writer->lock);
}
