/* log.c: callers compose the lines; the log's thread writes them. */
#include "log.h"
#include "stats.h"
#include "base/base.h"
#include "writer.h"
#include <limits.h>
#include <poll.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

MP_COUNTER(dropped_log, "dropped", "reason", "log", "log lines that did not fit the queue")

#define QUEUE_CAP (1u << 20)
#define VALUE_CAP 512

/* Lines that could not be written are only counted: there is no other place to report them. */
static void failed(mp_str lost, int error)
{
    (void)error;
    mp_stat_add(&mp_stat_dropped_log, mp_count_lines(lost));
}

static mp_writer writer = MP_WRITER(STDERR_FILENO, QUEUE_CAP, failed);

static _Atomic mp_log_level least_level = MP_INFO;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

static _Atomic uint64_t warnings;

uint64_t mp_log_warnings(void)
{
    return atomic_load_explicit(&warnings, memory_order_relaxed);
}

bool mp_log_wants(mp_log_level level)
{
    return level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

static bool is_plain(mp_str s)
{
    size_t width = 1;
    for (size_t i = 0; i < s.len; i += width) {
        unsigned char c = (unsigned char)s.ptr[i];
        width = mp_utf8_visible_at(s, i);
        if (width == 0 || c == ' ' || c == '"' || c == '=' || c == '\\')
            return false;
    }
    return s.len > 0;
}

/* Cuts `s` to at most `most` bytes, not inside a UTF-8 character. Returns true if anything was cut. */
static bool cut_to(mp_str *s, size_t most)
{
    if (s->len <= most)
        return false;
    s->len = most;
    while (s->len > 0 && ((unsigned char)s->ptr[s->len] & 0xc0) == 0x80)
        s->len--;
    return true;
}

/* Appends `s` escaped. If `quoted`, quotes and backslashes are escaped, too. */
static void put_escaped(mp_buf *line, mp_str s, bool quoted)
{
    size_t width = 1;
    for (size_t i = 0; i < s.len; i += width) {
        unsigned char c = (unsigned char)s.ptr[i];
        size_t visible = mp_utf8_visible_at(s, i);
        width = visible == 0 ? 1 : visible;
        if (quoted && (c == '"' || c == '\\'))
            mp_buf_putc(line, '\\');
        if (c == '\n')
            mp_buf_put(line, MP_STR("\\n"));
        else if (visible == 0)
            mp_buf_printf(line, "\\x%02x", c);
        else
            mp_buf_put(line, (mp_str){s.ptr + i, width});
    }
}

void mp_log_put_text(mp_buf *line, mp_str text, size_t most)
{
    bool cut = cut_to(&text, most);
    put_escaped(line, text, false);
    if (cut)
        mp_buf_put(line, MP_STR("..."));
}

static void put_value(mp_buf *line, mp_str s)
{
    bool cut = cut_to(&s, VALUE_CAP);
    if (is_plain(s) && !cut) {
        mp_buf_put(line, s);
        return;
    }
    mp_buf_putc(line, '"');
    put_escaped(line, s, true);
    mp_buf_put(line, cut ? MP_STR("...\"") : MP_STR("\""));
}

void mp_log_put_time(mp_buf *line)
{
    struct timespec now;
    struct tm utc;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    char *room = mp_buf_room(line, 32);
    line->len += strftime(room, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    mp_buf_printf(line, ".%03ldZ", now.tv_nsec / 1000000);
}

/* Writes to stderr for at most mp_writer_patience(), as fast as its reader reads. */
static void write_now(mp_str text)
{
    struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
    while (text.len > 0 && poll(&out, 1, mp_writer_patience()) == 1) {
        mp_str piece = {text.ptr,
                        /* a write of at most PIPE_BUF bytes does not block a pipe that poll() reports as writable */
                        text.len < PIPE_BUF ? text.len : PIPE_BUF};
        text = mp_str_from(text, piece.len);
        if (mp_write_all(STDERR_FILENO, &piece) != 0)
            break;
    }
}

void mp_log_put_line(mp_str text)
{
    mp_writer_result result = mp_writer_put(&writer, text);
    if (result == MP_WRITER_OFF)
        write_now(text);
    else if (result != MP_WRITER_QUEUED)
        mp_stat_add(&mp_stat_dropped_log, 1);
}

void mp_log_write(mp_log_level level, const char *event, const mp_log_field *fields)
{
    mp_buf line = {0};
    if (level >= MP_WARN)
        atomic_fetch_add_explicit(&warnings, 1, memory_order_relaxed);
    mp_log_put_time(&line);
    mp_buf_printf(&line, " %-5s %-*s", level_names[level], fields->key == NULL ? 0 : 16, event);
    for (; fields->key != NULL; fields++) {
        mp_buf_printf(&line, " %s=", fields->key);
        if (fields->text.ptr == NULL)
            mp_buf_printf(&line, "%lld", (long long)fields->number);
        else
            put_value(&line, fields->text);
    }
    mp_buf_putc(&line, '\n');

    mp_log_put_line(mp_buf_str(&line));
    mp_buf_clear(&line);
}

void mp_log_from(mp_log_level least)
{
    atomic_store_explicit(&least_level, least, memory_order_relaxed);
}

void mp_log_start(mp_log_level least)
{
    mp_log_from(least);
    mp_writer_start(&writer);
}

void mp_log_stop(void)
{
    mp_stat_add(&mp_stat_dropped_log, mp_writer_stop(&writer));
}

void mp_log_hurry(int ms)
{
    mp_writer_hurry(ms);
}
