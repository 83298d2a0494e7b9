/* event_reader.c: reads events of text/event-stream. A line that is complete in the given bytes is read in place; only
 * a line that is cut by their end is copied. */
#include "mcp.h"

#define KEPT_BYTES ((size_t)64 << 10) /* a buffer above this size is freed after its event */
#define MAX_RETRY_DIGITS 9

enum { MARK_BYTES = 3, MARK_OVER = 4 };

static const char byte_order_mark[] = "\xef\xbb\xbf";

static mp_event_result fail_reading(mp_event_reader *reader, mp_event_result result)
{
    mp_event_reader_clear(reader);
    reader->failed = (uint8_t)result;
    return result;
}

static void empty_buffer(mp_buf *buf)
{
    if (buf->cap > KEPT_BYTES)
        mp_buf_clear(buf);
    buf->len = 0;
}

/* Ends an event. True if it has data; an event without data is ignored. */
static bool end_event(mp_event_reader *reader, mp_event *event)
{
    if (reader->has_next) {
        mp_buf old = reader->id;
        reader->id = reader->next_id;
        reader->next_id = old;
        reader->next_id.len = 0;
        reader->has_next = false;
    }
    reader->is_given = true;
    if (!reader->has_data)
        return false;
    event->kind = reader->kind.len == 0 ? MP_STR("message") : mp_buf_str(&reader->kind);
    event->data = mp_buf_str(&reader->data);
    return true;
}

/* Begins an event after the one that was given. */
static void begin_event(mp_event_reader *reader)
{
    empty_buffer(&reader->data);
    empty_buffer(&reader->kind);
    reader->has_data = reader->is_given = false;
}

static void set_retry(mp_event_reader *reader, mp_str value)
{
    uint32_t ms = 0;
    if (value.len == 0 || value.len > MAX_RETRY_DIGITS)
        return;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9')
            return;
        ms = ms * 10 + (uint32_t)(value.ptr[i] - '0');
    }
    reader->has_retry = true;
    reader->retry_ms = ms;
}

static bool add_data(mp_event_reader *reader, mp_str value)
{
    size_t separator = reader->has_data;
    if (value.len + separator > reader->most || reader->data.len > reader->most - value.len - separator)
        return false;
    if (separator > 0)
        mp_buf_putc(&reader->data, '\n');
    mp_buf_put(&reader->data, value);
    reader->has_data = true;
    return true;
}

/* Reads a line that is not empty. False if the event is too large. */
static bool read_field(mp_event_reader *reader, mp_str line)
{
    mp_str value = line, name = mp_str_cut(&value, ':');
    if (value.len > 0 && value.ptr[0] == ' ')
        value = mp_str_from(value, 1);
    if (mp_str_is(name, "data"))
        return add_data(reader, value);
    if (mp_str_is(name, "event")) {
        reader->kind.len = 0;
        mp_buf_put(&reader->kind, value);
    } else if (mp_str_is(name, "id")) {
        if (value.len > 0 && memchr(value.ptr, '\0', value.len) != NULL)
            return true;
        reader->next_id.len = 0;
        mp_buf_put(&reader->next_id, value);
        reader->has_next = true;
    } else if (mp_str_is(name, "retry")) {
        set_retry(reader, value);
    }
    return true;
}

/* The first CR or LF, or `end`. */
static const char *find_line_end(const char *at, const char *end)
{
    size_t left = (size_t)(end - at);
    const char *lf = memchr(at, '\n', left), *cr = memchr(at, '\r', lf == NULL ? left : (size_t)(lf - at));
    return cr != NULL ? cr : lf != NULL ? lf : end;
}

/* Skips a byte order mark at the start of the stream. What begins like one and is none is the start of the first
 * line. */
static void skip_mark(mp_event_reader *reader, mp_str *bytes)
{
    while (reader->mark < MARK_BYTES && bytes->len > 0 && bytes->ptr[0] == byte_order_mark[reader->mark]) {
        reader->mark++;
        *bytes = mp_str_from(*bytes, 1);
    }
    if (reader->mark == MARK_BYTES)
        reader->mark = MARK_OVER;
    if (reader->mark == MARK_OVER || bytes->len == 0)
        return;
    mp_buf_put(&reader->line, (mp_str){byte_order_mark, reader->mark});
    reader->mark = MARK_OVER;
}

/* Takes the next line from `*bytes`. False if it is not complete: then its bytes are in `line`. */
static bool take_line(mp_event_reader *reader, mp_str *bytes, mp_str *line)
{
    if (reader->after_cr && bytes->len > 0) {
        if (bytes->ptr[0] == '\n')
            *bytes = mp_str_from(*bytes, 1);
        reader->after_cr = false;
    }
    if (bytes->len == 0)
        return false;
    const char *end = find_line_end(bytes->ptr, bytes->ptr + bytes->len);
    *line = (mp_str){bytes->ptr, (size_t)(end - bytes->ptr)};
    bool is_whole = line->len < bytes->len;
    if ((reader->line.len > 0 || !is_whole) && line->len <= reader->most) {
        mp_buf_put(&reader->line, *line);
        *line = mp_buf_str(&reader->line);
    }
    reader->after_cr = is_whole && *end == '\r';
    *bytes = mp_str_from(*bytes, (size_t)(end - bytes->ptr) + is_whole);
    return is_whole;
}

mp_event_result mp_event_read(mp_event_reader *reader, mp_str *bytes, mp_event *event)
{
    if (reader->failed != 0)
        return (mp_event_result)reader->failed;
    if (reader->is_given)
        begin_event(reader);
    if (reader->mark != MARK_OVER)
        skip_mark(reader, bytes);
    for (;;) {
        mp_str line = MP_STR_NONE;
        bool is_whole = reader->mark == MARK_OVER && take_line(reader, bytes, &line);
        if (line.len > reader->most)
            return fail_reading(reader, MP_EVENT_LONG_LINE);
        if (!is_whole)
            return MP_EVENT_NONE;
        bool is_event = line.len == 0 && end_event(reader, event);
        if (line.len == 0 && !is_event)
            begin_event(reader);
        if (line.len > 0 && !read_field(reader, line))
            return fail_reading(reader, MP_EVENT_TOO_LARGE);
        empty_buffer(&reader->line);
        if (is_event)
            return MP_EVENT_COMPLETE;
    }
}

void mp_event_reader_clear(mp_event_reader *reader)
{
    mp_buf_clear(&reader->line);
    mp_buf_clear(&reader->data);
    mp_buf_clear(&reader->kind);
    mp_buf_clear(&reader->id);
    mp_buf_clear(&reader->next_id);
}
