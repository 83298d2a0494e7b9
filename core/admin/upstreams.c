#include "upstreams.h"
#include "json/json.h"

static void put_number(mp_buf *out, const char *name, int64_t value)
{
    mp_buf_printf(out, ",\"%s\":", name);
    mp_json_put_int(out, value);
}

static void put_time(mp_buf *out, const char *name, int64_t seconds)
{
    char when[32];
    struct tm parts;
    time_t at = (time_t)seconds;
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&at, &parts));
    mp_buf_printf(out, ",\"%s\":\"%s\"", name, when);
}

static void put_error(mp_buf *out, const mp_upstream_report *report)
{
    mp_buf_put(out, MP_STR(",\"error\":"));
    mp_json_put_string(out, mp_str_of(report->error));
    put_time(out, "error_at", report->error_at);
}

static void put_classes(mp_buf *out, const mp_upstream_report *report)
{
    mp_buf_put(out, MP_STR(",\"classes\":{"));
    for (size_t i = 0; i < MP_UPSTREAM_CLASSES && report->classes[i].channels > 0; i++) {
        if (i > 0)
            mp_buf_putc(out, ',');
        mp_json_put_string(out, mp_str_of(report->classes[i].name));
        mp_buf_putc(out, ':');
        mp_json_put_int(out, report->classes[i].channels);
    }
    mp_buf_putc(out, '}');
}

static void put_pids(mp_buf *out, const mp_upstream_report *report)
{
    bool is_first = true;
    mp_buf_put(out, MP_STR(",\"pids\":["));
    for (size_t i = 0; i < MP_UPSTREAM_PIDS; i++) {
        if (report->pids[i] == 0)
            continue;
        if (!is_first)
            mp_buf_putc(out, ',');
        is_first = false;
        mp_json_put_int(out, report->pids[i]);
    }
    mp_buf_putc(out, ']');
}

static void put_report(mp_buf *out, const mp_upstream_report *report)
{
    static const char *const states[] = {"unused", "up", "down", "barred"};
    bool is_program = report->kind == MP_UPSTREAM_COMMAND;
    mp_json_put_string(out, mp_str_of(report->name));
    mp_buf_printf(out, ":{\"kind\":\"%s\",\"state\":\"%s\"", is_program ? "command" : "url", states[report->state]);
    if (report->revision[0] != '\0') {
        mp_buf_put(out, MP_STR(",\"revision\":"));
        mp_json_put_string(out, mp_str_of(report->revision));
    }
    mp_buf_printf(out, ",\"transport\":\"%s\"", report->transport);
    put_number(out, "channels", report->channels);
    if (report->classes[0].channels > 0)
        put_classes(out, report);
    put_number(out, "opening", report->opening);
    if (is_program) {
        put_number(out, "processes", report->processes);
        put_number(out, "restarts", report->restarts);
        put_number(out, "memory_bytes", (int64_t)report->memory);
        put_pids(out, report);
    }
    put_number(out, "running", report->running);
    put_number(out, "waiting", report->waiting);
    put_number(out, "pending", report->pending);
    put_number(out, "opened", (int64_t)report->opened);
    put_number(out, "calls", (int64_t)report->calls);
    put_number(out, "errors", (int64_t)report->errors);
    put_number(out, "lost", (int64_t)report->lost);
    put_number(out, "dropped", (int64_t)report->dropped);
    put_number(out, "refused", (int64_t)report->refused);
    put_number(out, "p50_us", (int64_t)report->p50_us);
    put_number(out, "p99_us", (int64_t)report->p99_us);
    mp_buf_printf(out, ",\"circuit\":\"%s\"", report->circuit);
    if (report->circuit_since != 0)
        put_time(out, "circuit_since", report->circuit_since);
    put_number(out, "failures_in_row", report->failures);
    if (report->state == MP_UPSTREAM_DOWN || report->state == MP_UPSTREAM_BARRED)
        put_number(out, "retry_ms", (int64_t)report->retry_ms);
    if (report->error[0] != '\0')
        put_error(out, report);
    if (report->definitions != NULL)
        mp_buf_printf(out, ",%s", report->definitions);
    mp_buf_putc(out, '}');
}

void mp_admin_put_upstreams(mp_buf *out, mp_upstreams *table)
{
    size_t count;
    mp_upstream_report *reports = mp_upstreams_report(table, &count);
    mp_buf_putc(out, '{');
    for (size_t i = 0; i < count; i++) {
        if (i > 0)
            mp_buf_putc(out, ',');
        put_report(out, &reports[i]);
    }
    mp_buf_putc(out, '}');
    mp_upstream_report_free(reports, count);
}

/* -- /metrics ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *name, *text;
    int64_t (*value)(const mp_upstream_report *report);
} gauge;

static int64_t is_up(const mp_upstream_report *report)
{
    return report->state != MP_UPSTREAM_DOWN && report->state != MP_UPSTREAM_BARRED;
}

static int64_t channels(const mp_upstream_report *report)
{
    return report->channels;
}

static int64_t processes(const mp_upstream_report *report)
{
    return report->processes;
}

static int64_t restarts(const mp_upstream_report *report)
{
    return report->restarts;
}

/* The number in the member "withheld" of the text that Lua made. */
int64_t mp_admin_withheld(const mp_upstream_report *report)
{
    const char *mark = "\"withheld\":", *at = report->definitions == NULL ? NULL : strstr(report->definitions, mark);
    for (; at != NULL; at = strstr(at, mark)) {
        at += strlen(mark);
        if (*at >= '0' && *at <= '9')
            return strtoll(at, NULL, 10);
    }
    return 0;
}

void mp_admin_put_upstream_metrics(mp_buf *out, mp_upstreams *table)
{
    static const gauge gauges[] = {
        {"moonpool_upstream_up", "0 while requests to the upstream are refused: it fails, or refuses the credential",
         is_up},
        {"moonpool_upstream_channels", "sessions, programs or shared channels that are open or being opened", channels},
        {"moonpool_upstream_processes", "processes of the upstream's program", processes},
        {"moonpool_upstream_restarts", "starts of the upstream's program after the first", restarts},
        {"moonpool_upstream_withheld", "definitions of the upstream that clients do not get", mp_admin_withheld},
    };
    size_t count;
    mp_upstream_report *reports = mp_upstreams_report(table, &count);
    for (size_t i = 0; count > 0 && i < sizeof gauges / sizeof *gauges; i++) {
        const gauge *one = &gauges[i];
        mp_metrics_put_head(out, one->name, "", "gauge", one->text);
        for (size_t at = 0; at < count; at++)
            mp_buf_printf(out, "%s{upstream=\"%s\"} %lld\n", one->name, reports[at].name,
                          (long long)one->value(&reports[at]));
    }
    mp_upstream_report_free(reports, count);
}
