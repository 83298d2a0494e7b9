/* log.c: lines are composed by the caller, written by the log's thread. */
#include "log.h"
#include "stats.h"
#include "visible.h"
#include "writer.h"
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#define QUEUE_CAP (1u << 20)
#define VALUE_CAP 512

/* Where nobody reads stderr any more, there is nowhere left to say so. */
static mp_writer writer = MP_WRITER(STDERR_FILENO, QUEUE_CAP, NULL);

static _Atomic mp_log_level least_level = MP_INFO;
static const char *const level_names[] = {"debug", "info", "warn", "error"};

bool mp_log_wants(mp_log_level level)
{
    return level >= atomic_load_explicit(&least_level, memory_order_relaxed);
}

static bool is_plain(mp_str s)
{
    size_t width = 1;
    for (size_t i = 0; i < s.len; i += width) {
        unsigned char c = (unsigned char)s.ptr[i];
        width = mp_visible_at(s, i);
        if (width == 0 || c == ' ' || c == '"' || c == '=' || c == '\\')
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
    size_t width = 1;
    for (size_t i = 0; i < s.len; i += width) {
        unsigned char c = (unsigned char)s.ptr[i];
        size_t visible = mp_visible_at(s, i);
        width = visible == 0 ? 1 : visible;
        if (c == '"' || c == '\\')
            mp_buf_putc(line, '\\');
        if (c == '\n')
            mp_buf_put(line, MP_STR("\\n"));
        else if (visible == 0)
            mp_buf_printf(line, "\\x%02x", c);
        else
            mp_buf_put(line, (mp_str){s.ptr + i, width});
    }
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

void mp_log_write(mp_log_level level, const char *event, const mp_log_field *fields)
{
    mp_buf line = {0};
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

    mp_str text = mp_buf_str(&line);
    mp_writer_result result = mp_writer_put(&writer, text);
    if (result == MP_WRITER_FULL)
        mp_stat_add(MP_STAT_DROPPED_LOG, 1);
    else if (result == MP_WRITER_OFF)
        mp_write_all(STDERR_FILENO, &text);
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
    mp_writer_stop(&writer);
}
