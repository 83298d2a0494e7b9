/* tap_text.c: the text of an event for the readers of taps. Each call of a client has two events while a tap shows it,
 * so the parts that all events have are written without formats. */
#include "tap.h"

#define MAX_VALUE_BYTES 256 /* longest text of a member that a client or a script chose */
#define MAX_MEMBERS 64      /* members of one object whose shapes are shown */
#define MAX_DEPTH 4         /* levels of objects whose shapes are shown */
#define USUAL_BYTES 1024    /* usual bytes of an event */

mp_str mp_tap_cut(mp_str text)
{
    if (text.len > MAX_VALUE_BYTES)
        for (text.len = MAX_VALUE_BYTES;
             text.len > MAX_VALUE_BYTES - 4 && ((unsigned char)text.ptr[text.len] & 0xc0) == 0x80;)
            text.len--;
    return text;
}

mp_str mp_shown_name(mp_str name)
{
    mp_str rest = name;
    mp_str_cut(&rest, ':');
    if (rest.ptr == NULL)
        return name;
    for (size_t i = 0; i < rest.len; i++)
        if (rest.ptr[i] == '?' || rest.ptr[i] == '#')
            rest.len = i;
    name.len = (size_t)(rest.ptr + rest.len - name.ptr);
    if (!mp_str_starts(rest, MP_STR("//")))
        return name;
    mp_str authority = mp_str_from(rest, 2);
    authority = mp_str_cut(&authority, '/');
    size_t at = authority.len;
    while (at > 0 && authority.ptr[at - 1] != '@')
        at--;
    return at == 0 ? name : mp_str_from(name, (size_t)(authority.ptr + at - name.ptr));
}

mp_str mp_tap_mark(mp_tap_event *event)
{
    if (event->session.len > 0 && event->mark.text[0] == '\0')
        event->mark = mp_session_mark_of(event->session);
    return mp_str_of(event->mark.text);
}

/* -- arguments ----------------------------------------------------------------------------------------------------- */

/* Skips the value that begins with `first`; the number of its elements or members. */
static size_t skip_value(mp_json_cursor *cursor, mp_json_token first)
{
    size_t count = 0;
    bool is_object = first.type == MP_JSON_T_OPEN_OBJECT;
    if (!is_object && first.type != MP_JSON_T_OPEN_ARRAY)
        return 0;
    for (int depth = 1; depth > 0;) {
        mp_json_token token = mp_json_next(cursor);
        bool opens = token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT;
        bool closes = token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT;
        if (token.type == MP_JSON_T_END)
            break;
        count += depth == 1 && !closes;
        depth += opens - closes;
    }
    return is_object ? count / 2 : count; /* a member is a key and a value */
}

static void put_shape(mp_buf *out, mp_json_cursor *cursor, mp_json_token first, int depth, bool has_types);

/* Appends a text of JSON that begins with `what`. */
static void put_size(mp_buf *out, mp_str what, size_t size)
{
    mp_buf_put(out, what);
    mp_json_put_int(out, (int64_t)size);
    mp_buf_putc(out, '"');
}

/* The members of an object that has been opened: their names, and the shapes of their values. */
static void put_members(mp_buf *out, mp_json_cursor *cursor, int depth, bool has_types)
{
    size_t count = 0, left_out = 0;
    mp_buf_putc(out, has_types ? '{' : '[');
    for (mp_json_token key; (key = mp_json_next(cursor)).type == MP_JSON_T_STRING;) {
        mp_json_token value = mp_json_next(cursor);
        if (++count > MAX_MEMBERS || key.span.len > MAX_VALUE_BYTES) {
            skip_value(cursor, value);
            left_out++;
            continue;
        }
        if (out->ptr[out->len - 1] != '{' && out->ptr[out->len - 1] != '[')
            mp_buf_putc(out, ',');
        mp_buf_putc(out, '"');
        mp_buf_put(out, key.span);
        mp_buf_putc(out, '"');
        if (has_types) {
            mp_buf_putc(out, ':');
            put_shape(out, cursor, value, depth + 1, true);
        } else {
            skip_value(cursor, value);
        }
    }
    if (left_out > 0)
        mp_buf_printf(out, "%s\"…\"%s", left_out < count ? "," : "", has_types ? ":\"more members\"" : "");
    mp_buf_putc(out, has_types ? '}' : ']');
}

/* Appends the type of a value, and its size, but nothing of a text, a number or a list. */
static void put_shape(mp_buf *out, mp_json_cursor *cursor, mp_json_token first, int depth, bool has_types)
{
    switch (first.type) {
    case MP_JSON_T_STRING:
        put_size(out, MP_STR("\"string of "), first.span.len);
        break;
    case MP_JSON_T_INTEGER:
        mp_buf_put(out, MP_STR("\"integer\""));
        break;
    case MP_JSON_T_FLOAT:
        mp_buf_put(out, MP_STR("\"number\""));
        break;
    case MP_JSON_T_OPEN_ARRAY:
        put_size(out, MP_STR("\"array of "), skip_value(cursor, first));
        break;
    case MP_JSON_T_OPEN_OBJECT:
        if (depth < MAX_DEPTH)
            put_members(out, cursor, depth, has_types);
        else
            put_size(out, MP_STR("\"object of "), skip_value(cursor, first));
        break;
    default:
        mp_buf_put(out, first.type == MP_JSON_T_NULL ? MP_STR("\"null\"") : MP_STR("\"boolean\""));
    }
}

/* Appends JSON without line ends, which are white space in it: an event of the stream is one line. */
static void put_line(mp_buf *out, mp_str json)
{
    size_t start = out->len;
    mp_buf_put(out, json);
    for (size_t i = start; i < out->len; i++)
        if (out->ptr[i] == '\n' || out->ptr[i] == '\r')
            out->ptr[i] = ' ';
}

static void put_number(mp_buf *out, mp_str name, int64_t number)
{
    if (number == 0)
        return;
    mp_buf_put(out, name);
    mp_json_put_int(out, number);
}

static void put_arguments(mp_buf *out, const mp_tap_event *event, mp_tap_arguments form)
{
    if (form == MP_TAP_NONE)
        return;
    if (event->params_bytes > MP_TAP_SCAN_BYTES) {
        put_number(out, MP_STR(",\"arguments\":\"params of "), (int64_t)event->params_bytes);
        mp_buf_put(out, MP_STR(" bytes\""));
        return;
    }
    if (event->arguments.len == 0)
        return;
    mp_buf_put(out, MP_STR(",\"arguments\":"));
    if (form == MP_TAP_FULL) {
        put_line(out, event->arguments);
        return;
    }
    mp_json_cursor cursor = {event->arguments.ptr, event->arguments.ptr + event->arguments.len};
    mp_json_next(&cursor);
    put_members(out, &cursor, 0, form == MP_TAP_SHAPES);
}

/* -- an event ------------------------------------------------------------------------------------------------------ */

/* Appends a member; `name` is its key as JSON, after a comma and before a colon. */
static void put_member(mp_buf *out, mp_str name, mp_str text)
{
    if (text.len == 0)
        return;
    mp_str shown = mp_tap_cut(text);
    mp_buf_put(out, name);
    mp_json_put_string(out, shown);
    if (shown.len < text.len) {
        out->len--;
        mp_buf_put(out, MP_STR("…\""));
    }
}

/* Appends a time as milliseconds with two digits after the point. */
static void put_ms(mp_buf *out, uint64_t us)
{
    uint64_t hundredths = (us + 5) / 10;
    mp_buf_put(out, MP_STR(",\"ms\":"));
    mp_json_put_int(out, (int64_t)(hundredths / 100));
    mp_buf_put(out, (mp_str){(char[]){'.', (char)('0' + hundredths / 10 % 10), (char)('0' + hundredths % 10)}, 3});
}

/* Appends all but the arguments. */
static void put_head(mp_buf *out, mp_tap_event *event)
{
    if (event->us == 0 && event->began != 0)
        event->us = mp_monotonic_us() - event->began;
    mp_buf_put(out, MP_STR("data: {\"event\":\""));
    mp_buf_put(out, mp_str_of(event->event));
    mp_buf_put(out, MP_STR("\",\"time\":\""));
    mp_log_put_time(out);
    mp_buf_putc(out, '"');
    if (event->serial != 0) {
        mp_buf_put(out, MP_STR(",\"call\":\""));
        mp_json_put_int(out, event->worker);
        mp_buf_putc(out, '-');
        mp_json_put_int(out, (int64_t)event->serial);
        mp_buf_putc(out, '"');
    }
    put_member(out, MP_STR(",\"method\":"), event->method);
    put_member(out, MP_STR(",\"name\":"), mp_shown_name(event->name));
    put_member(out, MP_STR(",\"outcome\":"), event->outcome);
    put_number(out, MP_STR(",\"code\":"), event->code);
    put_number(out, MP_STR(",\"status\":"), event->status);
    if (event->us > 0)
        put_ms(out, event->us);
    put_member(out, MP_STR(",\"why\":"), event->why);
    put_member(out, MP_STR(",\"principal\":"), event->principal);
    put_member(out, MP_STR(",\"client\":"), event->client);
    put_member(out, MP_STR(",\"session\":"), mp_tap_mark(event));
    put_member(out, MP_STR(",\"revision\":"), event->revision);
    put_member(out, MP_STR(",\"transport\":"), event->transport);
    put_member(out, MP_STR(",\"address\":"), event->address);
    put_number(out, MP_STR(",\"in\":"), (int64_t)event->in);
    put_number(out, MP_STR(",\"out\":"), (int64_t)event->out);
}

void mp_tap_put_texts(mp_buf *out, mp_tap_event *event, unsigned forms, mp_str texts[MP_TAP_FORMS])
{
    size_t head = 0, ends[MP_TAP_FORMS];
    mp_buf_room(out, USUAL_BYTES);
    for (unsigned form = 0; form < MP_TAP_FORMS; form++) {
        if ((forms >> form & 1) != 0) {
            if (head == 0) {
                put_head(out, event);
                head = out->len;
            } else {
                mp_buf_room(out, head); /* from now on out->ptr stays until the head is copied */
                mp_buf_put(out, (mp_str){out->ptr, head});
            }
            put_arguments(out, event, (mp_tap_arguments)form);
            mp_buf_put(out, MP_STR("}\n\n"));
        }
        ends[form] = out->len;
    }
    for (unsigned form = 0; form < MP_TAP_FORMS; form++) {
        size_t from = form == 0 ? 0 : ends[form - 1];
        texts[form] = (mp_str){out->ptr + from, ends[form] - from};
    }
}
