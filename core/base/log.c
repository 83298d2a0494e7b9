/* log.c: lines are composed on the caller's stack, queued under a mutex held for a memcpy, written by the log thread. */
#include "log.h"
#include "buf.h"
#include "stats.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_CAP (1u << 20)
#define VALUE_CAP 512

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    mp_buf queue;
    bool running, ending;
} writer = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};

static _Atomic mp_log_level least_level = MP_INFO;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

bool mp_log_wants(mp_log_level level)
{
    return level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

static bool is_plain(mp_str s)
{
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c <= ' ' || c == '"' || c == '=' || c == '\\' || c == 0x7f)
            return false;
    }
    return s.len > 0;
}

static void put_value(mp_buf *line, mp_str s)
{
    bool cut = s.len > VALUE_CAP;
    if (cut) {
        s.len = VALUE_CAP;
        while (s.len > 0 && ((unsigned char)s.ptr[s.len] & 0xc0) == 0x80) /* never inside a UTF-8 character */
            s.len--;
    }
    if (is_plain(s) && !cut) {
        mp_buf_put(line, s);
        return;
    }
    mp_buf_putc(line, '"');
    for (size_t i = 0; i < s.len; i++) {
        unsigned char c = (unsigned char)s.ptr[i];
        if (c == '"' || c == '\\')
            mp_buf_putc(line, '\\');
        if (c == '\n')
            mp_buf_put(line, MP_STR("\\n"));
        else if (c < ' ' || c == 0x7f)
            mp_buf_printf(line, "\\x%02x", c);
        else
            mp_buf_putc(line, (char)c);
    }
    mp_buf_put(line, cut ? MP_STR("...\"") : MP_STR("\""));
}

static void put_time(mp_buf *line)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char *room = mp_buf_room(line, 32);
    line->len += strftime(room, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    mp_buf_printf(line, ".%03ldZ", now.tv_nsec / 1000000);
}

static void write_all(mp_str s)
{
    while (s.len > 0) {
        ssize_t n = write(STDERR_FILENO, s.ptr, s.len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return; /* nobody reads us any more: there is nowhere left to say so */
        s = mp_str_from(s, (size_t)n);
    }
}

void mp_log_write(mp_log_level level, const char *event, const mp_log_field *fields)
{
    mp_buf line = {0};
    put_time(&line);
    mp_buf_printf(&line, " %-5s %-16s", level_names[level], event);
    for (; fields->key != NULL; fields++) {
        mp_buf_printf(&line, " %s=", fields->key);
        if (fields->text.ptr == NULL)
            mp_buf_printf(&line, "%lld", (long long)fields->number);
        else
            put_value(&line, fields->text);
    }
    mp_buf_putc(&line, '\n');

    pthread_mutex_lock(&writer.lock);
    bool running = writer.running;
    if (running && writer.queue.len + line.len > QUEUE_CAP) {
        mp_stat_add(MP_STAT_DROPPED_LOG, 1);
    } else if (running) {
        mp_buf_put(&writer.queue, mp_buf_str(&line));
        pthread_cond_signal(&writer.wake);
    }
    pthread_mutex_unlock(&writer.lock);
    if (!running)
        write_all(mp_buf_str(&line));
    mp_buf_clear(&line);
}

static void *write_queue(void *unused)
{
    (void)unused;
    mp_buf batch = {0};
    for (;;) {
        pthread_mutex_lock(&writer.lock);
        while (writer.queue.len == 0 && !writer.ending)
            pthread_cond_wait(&writer.wake, &writer.lock);
        bool done = writer.queue.len == 0;
        mp_buf full = writer.queue;
        writer.queue = batch;
        batch = full;
        pthread_mutex_unlock(&writer.lock);
        if (done)
            break;
        write_all(mp_buf_str(&batch));
        batch.len = 0;
    }
    mp_buf_clear(&batch);
    return NULL;
}

void mp_log_from(mp_log_level least)
{
    atomic_store_explicit(&least_level, least, memory_order_relaxed);
}

void mp_log_start(mp_log_level least)
{
    mp_log_from(least);
    writer.ending = false;
    writer.running = pthread_create(&writer.thread, NULL, write_queue, NULL) == 0;
}

void mp_log_stop(void)
{
    pthread_mutex_lock(&writer.lock);
    bool running = writer.running;
    writer.ending = true;
    writer.running = false;
    pthread_cond_signal(&writer.wake);
    pthread_mutex_unlock(&writer.lock);
    if (!running)
        return;
    pthread_join(writer.thread, NULL);
    mp_buf_clear(&writer.queue);
}
