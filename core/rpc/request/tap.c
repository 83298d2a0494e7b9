/* tap.c: the taps of the process. A worker that has an event asks each tap whether its filter admits the event, formats the event once for each
 * form of arguments, and appends it to the queues. The lock is held for each of these steps, so formatting is bounded: see MAX_SCAN_BYTES. */
#include "request.h"
#include "tap.h"
#include <pthread.h>
#include <stdlib.h>

MP_COUNTER(tap_sent, "tap_events", "result", "sent", "events of calls that a tap has queued for its reader")
MP_COUNTER(tap_dropped, "tap_events", "result", "dropped", "events of calls over the rate or the queue of a tap")
MP_GAUGE(taps, "taps", "", "", "open taps of the admin listener")

#define QUEUE_CAP ((size_t)4 << 20)       /* bytes queued for one tap */
#define MAX_RATE 1000                     /* events of one tap in a second */
#define MAX_SCAN_BYTES ((size_t)64 << 10) /* params above this are shown by their size alone */
#define MAX_VALUE_BYTES 256               /* longest text of a member that a client or a script chose */
#define MAX_MEMBERS 64                    /* members of one object whose shapes are shown */
#define MAX_DEPTH 4                       /* levels of objects whose shapes are shown */

struct mp_tap {
    mp_tap_filter filter;
    mp_tap_hooks hooks;
    mp_buf queue;                   /* complete events of an event stream */
    bool is_awake;                  /* `wake` was called, and mp_tap_take not since */
    uint64_t second, sent, dropped; /* `dropped`: since the beginning */
    uint64_t reported;              /* of `dropped` */
    int in_second;
};

atomic_uint mp_tap_count;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static mp_tap *taps[MP_TAPS];

/* -- filters ------------------------------------------------------------------------------------------------------- */

static mp_str cut(mp_str text)
{
    if (text.len > MAX_VALUE_BYTES)
        for (text.len = MAX_VALUE_BYTES;
             text.len > MAX_VALUE_BYTES - 4 && ((unsigned char)text.ptr[text.len] & 0xc0) == 0x80;)
            text.len--;
    return text;
}

static bool admits(const char *pattern, mp_str text)
{
    return pattern == NULL || mp_pattern_matches(pattern, cut(text));
}

/* True if the tap has only what has ended. */
static bool wants_ends(const mp_tap_filter *filter)
{
    return filter->outcome != NULL || filter->slower_us > 0;
}

/* The form in which the tap gets the arguments of this event. Those of a call are in the event of its beginning, if the tap has that. */
static mp_tap_arguments form_of(const mp_tap_filter *filter, const mp_tap_event *event)
{
    return event->outcome.len == 0 || wants_ends(filter) ? filter->arguments : MP_TAP_NONE;
}

/* True if the call is one of the sample. Both events of a call have its number, so both are in it, or none. What belongs to no call is. */
static bool is_sampled(uint32_t sample, mp_str call)
{
    uint64_t hash = 1469598103934665603u;
    if (sample == 0 || call.len == 0)
        return true;
    for (size_t i = 0; i < call.len; i++)
        hash = (hash ^ (unsigned char)call.ptr[i]) * 1099511628211u;
    hash ^= hash >> 32;
    hash *= 0x9e3779b97f4a7c15u; /* numbers that follow each other differ in a few bits alone */
    return (hash >> 32) % 1000000 < sample;
}

static bool is_admitted(const mp_tap_filter *filter, const mp_tap_event *event)
{
    return (!wants_ends(filter) || event->outcome.len > 0) && event->us >= filter->slower_us &&
           admits(filter->method, event->method) && admits(filter->tool, event->name) &&
           admits(filter->principal, event->principal) && admits(filter->session, event->session) &&
           admits(filter->outcome, event->outcome) && is_sampled(filter->sample, event->call);
}

/* -- arguments ----------------------------------------------------------------------------------------------------- */

static int see_arguments(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    mp_str *found = ctx;
    (void)level;
    if (type == MP_JSON_OBJECT && mp_str_is(key, "arguments"))
        *found = value;
    return 0;
}

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
        mp_buf_printf(out, "\"string of %zu\"", first.span.len);
        break;
    case MP_JSON_T_INTEGER:
        mp_buf_put(out, MP_STR("\"integer\""));
        break;
    case MP_JSON_T_FLOAT:
        mp_buf_put(out, MP_STR("\"number\""));
        break;
    case MP_JSON_T_OPEN_ARRAY:
        mp_buf_printf(out, "\"array of %zu\"", skip_value(cursor, first));
        break;
    case MP_JSON_T_OPEN_OBJECT:
        if (depth < MAX_DEPTH)
            put_members(out, cursor, depth, has_types);
        else
            mp_buf_printf(out, "\"object of %zu\"", skip_value(cursor, first));
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

static void put_arguments(mp_buf *out, mp_str params, mp_tap_arguments form)
{
    mp_str found = MP_STR_NONE;
    if (form == MP_TAP_NONE || params.len == 0)
        return;
    if (params.len > MAX_SCAN_BYTES) {
        mp_buf_printf(out, ",\"arguments\":\"params of %zu bytes\"", params.len);
        return;
    }
    mp_json_visitor visitor = {.member = see_arguments, .ctx = &found};
    if (mp_json_scan(params, &visitor, NULL, NULL) != MP_JSON_OK || found.len == 0)
        return;
    mp_buf_put(out, MP_STR(",\"arguments\":"));
    if (form == MP_TAP_FULL) {
        put_line(out, found);
        return;
    }
    mp_json_cursor cursor = {found.ptr, found.ptr + found.len};
    mp_json_next(&cursor);
    put_members(out, &cursor, 0, form == MP_TAP_SHAPES);
}

/* -- an event ------------------------------------------------------------------------------------------------------ */

static void put_member(mp_buf *out, const char *name, mp_str text)
{
    if (text.len == 0)
        return;
    mp_str shown = cut(text);
    mp_buf_printf(out, ",\"%s\":", name);
    mp_json_put_string(out, shown);
    if (shown.len < text.len) {
        out->len--;
        mp_buf_put(out, MP_STR("…\""));
    }
}

static void put_event(mp_buf *out, const mp_tap_event *event, mp_tap_arguments form)
{
    mp_buf_printf(out, "data: {\"event\":\"%s\",\"time\":\"", event->event);
    mp_log_put_time(out);
    mp_buf_putc(out, '"');
    put_member(out, "call", event->call);
    put_member(out, "method", event->method);
    put_member(out, "name", event->name);
    put_member(out, "outcome", event->outcome);
    if (event->code != 0)
        mp_buf_printf(out, ",\"code\":%d", event->code);
    if (event->status != 0)
        mp_buf_printf(out, ",\"status\":%d", event->status);
    if (event->us > 0)
        mp_buf_printf(out, ",\"ms\":%.2f", (double)event->us / 1000);
    put_member(out, "why", event->why);
    put_member(out, "principal", event->principal);
    put_member(out, "client", event->client);
    put_member(out, "session", event->session);
    put_member(out, "revision", event->revision);
    put_member(out, "transport", event->transport);
    put_member(out, "address", event->address);
    if (event->in > 0)
        mp_buf_printf(out, ",\"in\":%zu", event->in);
    if (event->out > 0)
        mp_buf_printf(out, ",\"out\":%zu", event->out);
    put_arguments(out, event->params, form);
    mp_buf_put(out, MP_STR("}\n\n"));
}

/* True if the tap takes one more event in this second. */
static bool has_rate(mp_tap *tap, uint64_t second)
{
    if (tap->second != second) {
        tap->second = second;
        tap->in_second = 0;
    }
    return tap->in_second++ < MAX_RATE;
}

static void queue_event(mp_tap *tap, mp_str text)
{
    if (tap->queue.len + text.len > QUEUE_CAP) {
        tap->dropped++;
        mp_stat_add(&mp_stat_tap_dropped, 1);
        return;
    }
    mp_buf_put(&tap->queue, text);
    tap->sent++;
    mp_stat_add(&mp_stat_tap_sent, 1);
}

void mp_tap_put(const mp_tap_event *event)
{
    mp_buf texts[MP_TAP_FORMS] = {{0}};
    uint64_t second = mp_monotonic_ms() / 1000;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MP_TAPS; i++) {
        mp_tap *tap = taps[i];
        if (tap == NULL || !is_admitted(&tap->filter, event))
            continue;
        if (has_rate(tap, second)) {
            mp_tap_arguments form = form_of(&tap->filter, event);
            mp_buf *text = &texts[form];
            if (text->len == 0)
                put_event(text, event, form);
            queue_event(tap, mp_buf_str(text));
        } else {
            tap->dropped++;
            mp_stat_add(&mp_stat_tap_dropped, 1);
        }
        if (!tap->is_awake) {
            tap->is_awake = true;
            tap->hooks.wake(tap->hooks.ctx);
        }
    }
    pthread_mutex_unlock(&lock);
    for (int i = 0; i < MP_TAP_FORMS; i++)
        mp_buf_clear(&texts[i]);
}

/* -- taps ---------------------------------------------------------------------------------------------------------- */

static char *copy(const char *pattern)
{
    return pattern == NULL ? NULL : mp_dup(mp_str_of(pattern));
}

mp_tap *mp_tap_open(const mp_tap_filter *filter, const mp_tap_hooks *hooks)
{
    mp_tap *tap = NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MP_TAPS && tap == NULL; i++)
        if (taps[i] == NULL)
            tap = taps[i] = mp_new(sizeof *tap);
    if (tap != NULL) {
        tap->hooks = *hooks;
        tap->filter =
            (mp_tap_filter){copy(filter->tool),    copy(filter->principal), copy(filter->session), copy(filter->method),
                            copy(filter->outcome), filter->slower_us,       filter->sample,        filter->arguments};
        atomic_fetch_add(&mp_tap_count, 1);
        mp_stat_add(&mp_stat_taps, 1);
    }
    pthread_mutex_unlock(&lock);
    return tap;
}

mp_tap_totals mp_tap_close(mp_tap *tap)
{
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MP_TAPS; i++)
        if (taps[i] == tap)
            taps[i] = NULL;
    atomic_fetch_sub(&mp_tap_count, 1);
    pthread_mutex_unlock(&lock);
    mp_stat_add(&mp_stat_taps, -1);
    mp_tap_totals totals = {tap->sent, tap->dropped};
    const char *patterns[] = {tap->filter.tool, tap->filter.principal, tap->filter.session, tap->filter.method,
                              tap->filter.outcome};
    for (size_t i = 0; i < sizeof patterns / sizeof *patterns; i++)
        free((char *)patterns[i]);
    mp_buf_clear(&tap->queue);
    free(tap);
    return totals;
}

/* The bytes of the first whole events of the queue, at most `most`. */
static size_t whole_events(const mp_buf *queue, size_t most)
{
    if (queue->len <= most)
        return queue->len;
    while (most > 1 && !(queue->ptr[most - 1] == '\n' && queue->ptr[most - 2] == '\n'))
        most--;
    return most > 1 ? most : 0;
}

bool mp_tap_take(mp_tap *tap, size_t most, mp_buf *out)
{
    pthread_mutex_lock(&lock);
    size_t bytes = whole_events(&tap->queue, most);
    mp_buf_put(out, (mp_str){tap->queue.ptr, bytes});
    if (bytes > 0 && bytes < tap->queue.len)
        memmove(tap->queue.ptr, tap->queue.ptr + bytes, tap->queue.len - bytes);
    tap->queue.len -= bytes;
    bool has_more = tap->queue.len > 0;
    if (!has_more && tap->dropped > tap->reported) {
        mp_buf_printf(out, "data: {\"event\":\"dropped\",\"count\":%llu}\n\n",
                      (unsigned long long)(tap->dropped - tap->reported));
        tap->reported = tap->dropped;
    }
    tap->is_awake = has_more;
    pthread_mutex_unlock(&lock);
    return has_more;
}
