/* refusal.c: the budgets of log lines per cause, and the lines of `run --trace`. */
#include "refusal.h"
#include "stats.h"

MP_COUNTER(suppressed_log, "dropped", "reason", "refusals", "log lines about refusals above 10 a second of one cause")

/* Lines per second about one cause, so that a scan does not fill the log; the next line has the number of those that
 * were left out. */
#define MAX_LINES MP_LIMIT(log_refusals, 10)
#define MAX_FIELDS 12
#define MAX_TRACED_BYTES 200 /* bytes of one value in a trace line */

typedef struct {
    const char *name, *hint;
} cause_text;

#define CAUSE_TEXT(id, name, hint) {name, hint},
static const cause_text texts[] = {MP_CAUSES(CAUSE_TEXT)};
#undef CAUSE_TEXT

/* Two threads may both reset a budget when a second begins; the cost is at most one line too many. */
static struct {
    _Atomic int64_t second, used, suppressed;
} budgets[MP_CAUSE_COUNT];

static bool trace_is_on, trace_has_color; /* set before threads start */

bool mp_refusal_begin(mp_cause cause)
{
    if (!trace_is_on && !mp_log_wants(MP_INFO))
        return false;
    int64_t second = (int64_t)(mp_monotonic_ms() / 1000);
    if (atomic_exchange_explicit(&budgets[cause].second, second, memory_order_relaxed) != second)
        atomic_store_explicit(&budgets[cause].used, 0, memory_order_relaxed);
    if (atomic_fetch_add_explicit(&budgets[cause].used, 1, memory_order_relaxed) < MAX_LINES)
        return true;
    atomic_fetch_add_explicit(&budgets[cause].suppressed, 1, memory_order_relaxed);
    mp_stat_add(&mp_stat_suppressed_log, 1);
    return false;
}

static void trace_refusal(mp_cause cause, mp_str why, const mp_log_field *fields, int64_t suppressed)
{
    mp_buf line = {0};
    mp_trace_put_time(&line);
    mp_trace_put(&line, MP_TRACE_BAD, MP_STR("refused"));
    mp_buf_putc(&line, ' ');
    mp_trace_put(&line, MP_TRACE_PLAIN, mp_str_of(texts[cause].name));
    mp_buf_put(&line, MP_STR(": "));
    mp_trace_put(&line, MP_TRACE_PLAIN, why);
    for (; fields->key != NULL; fields++) {
        mp_scoped_buf value = {0};
        if (fields->text.ptr != NULL && fields->text.len == 0)
            continue;
        mp_buf_printf(&value, " %s=", fields->key);
        if (fields->text.ptr == NULL)
            mp_buf_printf(&value, "%lld", (long long)fields->number);
        else
            mp_buf_put(&value, fields->text);
        mp_trace_put(&line, MP_TRACE_DIM, mp_buf_str(&value));
    }
    if (suppressed > 0)
        mp_buf_printf(&line, " (%lld more like it were not printed)", (long long)suppressed);
    mp_buf_put(&line, MP_STR("\n              hint: "));
    mp_buf_put(&line, mp_str_of(texts[cause].hint));
    mp_trace_write(&line);
}

void mp_refusal_write(mp_cause cause, mp_str why, const mp_log_field *fields)
{
    int64_t suppressed = atomic_exchange_explicit(&budgets[cause].suppressed, 0, memory_order_relaxed);
    if (trace_is_on)
        trace_refusal(cause, why, fields, suppressed);
    if (!mp_log_wants(MP_INFO))
        return;
    mp_log_field all[MAX_FIELDS + 5];
    size_t count = 0;
    all[count++] = mp_log_str("cause", mp_str_of(texts[cause].name));
    for (; fields->key != NULL && count < MAX_FIELDS; fields++)
        if (fields->text.ptr == NULL || fields->text.len > 0)
            all[count++] = *fields;
    all[count++] = mp_log_str("why", why);
    all[count++] = mp_log_str("hint", mp_str_of(texts[cause].hint));
    if (suppressed > 0)
        all[count++] = mp_log_int("suppressed", suppressed);
    all[count] = (mp_log_field){0};
    mp_log_write(MP_INFO, "refused", all);
}

/* -- trace ------------------------------------------------------------------------------------------------------ */

void mp_trace_start(bool has_color)
{
    trace_is_on = true;
    trace_has_color = has_color;
}

bool mp_trace_is_on(void)
{
    return trace_is_on;
}

void mp_trace_put_time(mp_buf *line)
{
    struct timespec now;
    struct tm here;
    clock_gettime(CLOCK_REALTIME, &now);
    localtime_r(&now.tv_sec, &here);
    char *room = mp_buf_room(line, 16);
    line->len += strftime(room, 16, "%H:%M:%S", &here);
    mp_buf_printf(line, ".%03ld  ", now.tv_nsec / 1000000);
}

void mp_trace_put(mp_buf *line, mp_trace_color color, mp_str text)
{
    static const char *const codes[] = {NULL, "\033[32m", "\033[33m", "\033[31m", "\033[2m"};
    bool is_colored = trace_has_color && codes[color] != NULL;
    if (is_colored)
        mp_buf_put(line, mp_str_of(codes[color]));
    mp_log_put_text(line, text, MAX_TRACED_BYTES);
    if (is_colored)
        mp_buf_put(line, MP_STR("\033[0m"));
}

void mp_trace_write(mp_buf *line)
{
    mp_buf_putc(line, '\n');
    mp_log_put_line(mp_buf_str(line));
    mp_buf_clear(line);
}
