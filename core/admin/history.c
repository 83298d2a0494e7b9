#include "history_state.h"
#include "saturation.h"
#include "json/json.h"
#include <math.h>

const mp_history_number mp_history_numbers[] = {
    {"calls", RATE, "calls"},
    {"errors", ERRORS, NULL},
    {"p50_ms", HALF_CALLS, NULL},
    {"p99_ms", MOST_CALLS, NULL},
    {"loop_p99_ms", MOST_TURNS, NULL},
    {"calls_running", LEVEL, "requests_in_flight"},
    {"calls_waiting", LEVEL, "calls_waiting"},
    {"requests", RATE, "requests"},
    {"sessions", LEVEL, "sessions"},
    {"sessions_opened", RATE, "sessions_opened"},
    {"streams", LEVEL, "streams_open"},
    {"connections", LEVEL, "connections"},
    {"listeners", LEVEL, "listeners"},
    {"subscriptions", LEVEL, "subscriptions"},
    {"jobs", LEVEL, "jobs"},
    {"tasks", LEVEL, "tasks"},
    {"ops", LEVEL, "ops"},
    {"auth_pending", LEVEL, "auth_pending"},
    {"refused", RATE, "refused"},
    {"faults", RATE, "tool_faults"},
    {"aborted", RATE, "tool_aborted"},
    {"dropped", RATE, "dropped"},
    {"lua_bytes", LEVEL, "lua_bytes"},
    {"resident_bytes", RESIDENT, NULL},
    {"queue_bytes", LEVEL, "queue_bytes"},
    {"body_bytes", LEVEL, "body_bytes"},
    {"replay_bytes", LEVEL, "replay_bytes"},
    {"store_entries", LEVEL, "store_entries"},
    {"store_bytes", LEVEL, "store_bytes"},
    {"cpu", CPU, NULL},
    {"states", LEVEL, "vms"},
    {"states_draining", LEVEL, "vms_draining"},
    {"http_requests", LEVEL, "http_requests"},
    {"child_processes", LEVEL, "child_processes"},
    {"statements", LEVEL, "statements"},
    {"pool_jobs", LEVEL, "pool_jobs"},
    {"upstream_calls", RATE, "upstream_calls"},
    {"upstream_errors", RATE, "upstream_errors"},
    {"upstream_exchanges", LEVEL, "upstream_exchanges"},
    {"workers_stuck", LEVEL, "workers_stuck"},
};

_Static_assert(sizeof mp_history_numbers / sizeof *mp_history_numbers == MP_HISTORY_NUMBERS,
               "the rows have one value for each number");

static const struct {
    uint64_t every_ms;
    size_t most;
} spans[] = {[MP_HISTORY_HOUR] = {MP_HISTORY_STEP_MS, 720}, [MP_HISTORY_DAY] = {STEPS * MP_HISTORY_STEP_MS, 1440}};

_Static_assert(sizeof(mp_history) < 1 << 20, "the dashboard's history has less than 1 MiB");

mp_history *mp_history_new(void)
{
    mp_history *history = mp_new(sizeof *history);
    size_t count;
    history->stats = mp_stat_list(&count);
    for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++) {
        for (size_t i = 0; mp_history_numbers[n].family != NULL && i < count; i++) {
            if (strcmp(history->stats[i]->family, mp_history_numbers[n].family) != 0)
                continue;
            if (history->count[n]++ == 0)
                history->first[n] = i;
        }
    }
    return history;
}

void mp_history_free(mp_history *MP_NULLABLE history)
{
    free(history);
}

const char *MP_NULLABLE mp_history_name(size_t number)
{
    return number < MP_HISTORY_NUMBERS ? mp_history_numbers[number].name : NULL;
}

size_t mp_history_find(mp_str name)
{
    size_t i = 0;
    while (i < MP_HISTORY_NUMBERS && !mp_str_is(name, mp_history_numbers[i].name))
        i++;
    return i;
}

/* -- measuring ----------------------------------------------------------------------------------------------------- */

void mp_history_read_own(const mp_history *history, mp_history_reading *now)
{
    now->at_us = mp_monotonic_us();
    now->cpu_us = mp_process_us();
    for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++) {
        now->counts[n] = mp_history_numbers[n].kind == RESIDENT ? mp_resident_bytes() : 0;
        for (size_t i = 0; i < history->count[n]; i++)
            now->counts[n] += mp_stat_read(history->stats[history->first[n] + i]);
    }
    double good[MP_SERIES_CELLS];
    mp_series_sum("mcp_server_operation_duration_seconds", NULL, now->calls);
    mp_series_sum("mcp_server_operation_duration_seconds", "", good);
    mp_series_sum("moonpool_loop_turn_seconds", NULL, now->turns);
    now->good = 0;
    for (int i = 0; i <= mp_bounds_call.count; i++)
        now->good += good[i];
}

/* The time in ms within which `share` of the calls between two readings ended; NAN if there were none. */
static float quantile(const double *before, const double *now, double share)
{
    double cells[MP_SERIES_CELLS];
    for (int i = 0; i < MP_SERIES_CELLS; i++)
        cells[i] = now[i] - before[i];
    double us = mp_series_quantile(&mp_bounds_call, cells, share);
    return us < 0 ? NAN : (float)(us / 1000);
}

static double errors_since(const mp_history_reading *before, const mp_history_reading *now)
{
    double all = 0;
    for (int i = 0; i <= mp_bounds_call.count; i++)
        all += now->calls[i] - before->calls[i];
    all -= now->good - before->good;
    return all < 0 ? 0 : all; /* a request that has ended between the two sums */
}

static float value_of(size_t n, const mp_history_reading *before, const mp_history_reading *now)
{
    double seconds = (double)(now->at_us - before->at_us) / 1e6;
    if (mp_history_is_level(n))
        return mp_history_numbers[n].kind == RESIDENT && now->counts[n] == 0 ? NAN : (float)now->counts[n];
    if (before->at_us == 0 || seconds <= 0)
        return NAN;
    switch (mp_history_numbers[n].kind) {
    case RATE:
        return (float)((double)(now->counts[n] - before->counts[n]) / seconds);
    case ERRORS: /* without metrics no call is measured */
        return !mp_series_is_on() ? NAN : (float)(errors_since(before, now) / seconds);
    case HALF_CALLS:
        return quantile(before->calls, now->calls, 0.5);
    case MOST_CALLS:
        return quantile(before->calls, now->calls, 0.99);
    case MOST_TURNS:
        return quantile(before->turns, now->turns, 0.99);
    default:
        return (float)((double)(now->cpu_us - before->cpu_us) / 1e6 / seconds);
    }
}

void mp_history_measure(const mp_history *history, const mp_history_reading *before, mp_history_reading *now,
                        mp_history_row *row)
{
    mp_history_read_own(history, now);
    mp_history_add_others(history, now);
    for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++)
        row->values[n] = value_of(n, before, now);
}

/* -- rows ---------------------------------------------------------------------------------------------------------- */

mp_history_row *mp_history_row_at(const mp_history *history, mp_history_span span, uint64_t serial)
{
    mp_history *own = (mp_history *)(uintptr_t)history;
    size_t room = spans[span].most + SPARE;
    return (span == MP_HISTORY_HOUR ? own->hour : own->day) + serial % room;
}

/* A row of the day: rates and times of the whole minute, levels as their means. */
static void add_minute(mp_history *history, const mp_history_reading *now)
{
    uint64_t last = history->serial / STEPS - 1;
    mp_history_row *row = mp_history_row_at(history, MP_HISTORY_DAY, last);
    for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++) {
        if (!mp_history_is_level(n)) {
            row->values[n] = value_of(n, &history->minute, now);
            continue;
        }
        double sum = 0;
        int count = 0;
        for (uint64_t i = last * STEPS; i < history->serial; i++) {
            float one = mp_history_row_at(history, MP_HISTORY_HOUR, i)->values[n];
            sum += isnan(one) ? 0 : (double)one;
            count += !isnan(one);
        }
        row->values[n] = count == 0 ? NAN : (float)(sum / count);
    }
    history->minute = *now;
}

static void add_row(mp_history *history, const mp_history_row *row, const mp_history_reading *now)
{
    *mp_history_row_at(history, MP_HISTORY_HOUR, history->serial++) = *row;
    if (history->serial % STEPS == 0)
        add_minute(history, now);
}

uint64_t mp_history_step(mp_history *history)
{
    uint64_t now_ms = mp_monotonic_ms();
    mp_history_row row, none;
    mp_history_reading now;
    if (history->serial == 0)
        history->started_ms = now_ms;
    uint64_t due = history->started_ms + history->serial * MP_HISTORY_STEP_MS;
    if (now_ms < due)
        return due - now_ms;
    for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++)
        none.values[n] = NAN;
    mp_history_measure(history, &history->step, &now, &row);
    for (uint64_t missed = (now_ms - due) / MP_HISTORY_STEP_MS; missed > 0; missed--)
        add_row(history, &none, &now);
    add_row(history, &row, &now);
    history->step = now;
    if (history->minute.at_us == 0)
        history->minute = now;
    due = history->started_ms + history->serial * MP_HISTORY_STEP_MS;
    return due > now_ms ? due - now_ms : 1;
}

uint64_t mp_history_serial(const mp_history *history, mp_history_span span)
{
    return span == MP_HISTORY_HOUR ? history->serial : history->serial / STEPS;
}

size_t mp_history_count(const mp_history *history, mp_history_span span)
{
    uint64_t all = mp_history_serial(history, span);
    return all < spans[span].most ? (size_t)all : spans[span].most;
}

uint64_t mp_history_every_ms(mp_history_span span)
{
    return spans[span].every_ms;
}

uint64_t mp_history_until_ms(const mp_history *history, mp_history_span span)
{
    uint64_t rows = mp_history_serial(history, span) * (span == MP_HISTORY_DAY ? STEPS : 1);
    uint64_t at = history->started_ms + (rows == 0 ? 0 : rows - 1) * MP_HISTORY_STEP_MS, now = mp_monotonic_ms();
    return mp_clock_ms(CLOCK_REALTIME) - (now > at ? now - at : 0);
}

float mp_history_value(const mp_history *history, mp_history_span span, uint64_t serial, size_t number)
{
    return mp_history_row_at(history, span, serial)->values[number];
}

void mp_history_put(mp_buf *out, float value)
{
    if (isnan(value)) {
        mp_buf_put(out, MP_STR("null"));
        return;
    }
    int64_t thousandths = llround((double)value * 1000);
    if (thousandths < 0)
        mp_buf_putc(out, '-');
    thousandths = llabs(thousandths);
    mp_json_put_int(out, thousandths / 1000);
    int64_t rest = thousandths % 1000;
    if (rest == 0)
        return;
    char digits[4] = {'.', (char)('0' + rest / 100), (char)('0' + rest / 10 % 10), (char)('0' + rest % 10)};
    mp_buf_put(out, (mp_str){digits, rest % 10 != 0 ? 4 : rest % 100 != 0 ? 3 : 2});
}
