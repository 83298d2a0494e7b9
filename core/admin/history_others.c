/* history_others.c: the numbers of the other processes of the gateway, and rows that the process before this one has
 * measured. */
#include "history_state.h"
#include "json/json.h"
#include <math.h>

/* -- numbers ------------------------------------------------------------------------------------------------------- */

static void put_cells(mp_buf *out, const char *name, const double *cells)
{
    mp_buf_printf(out, "%s", name);
    for (int i = 0; i < MP_SERIES_CELLS; i++)
        mp_buf_printf(out, " %.0f", cells[i]);
    mp_buf_putc(out, '\n');
}

void mp_history_put_numbers(const mp_history *history, mp_buf *out)
{
    mp_history_reading now;
    mp_history_read_own(history, &now);
    for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++)
        mp_buf_printf(out, "%s %lld\n", mp_history_numbers[n].name, (long long)now.counts[n]);
    put_cells(out, "cells of calls", now.calls);
    put_cells(out, "cells of turns", now.turns);
    mp_buf_printf(out, "good %.0f\ncpu_us %lld\n", now.good, (long long)now.cpu_us);
}

static int64_t cut_number(mp_str *line)
{
    int64_t number = 0;
    return mp_json_int(mp_str_cut(line, ' '), &number) ? number : 0;
}

static bool cut_start(mp_str *line, const char *start)
{
    bool is_it = mp_str_starts(*line, mp_str_of(start));
    if (is_it)
        *line = mp_str_from(*line, strlen(start));
    return is_it;
}

/* Reads a line of the numbers. One with an unknown name is from another version of this program, and is skipped. */
static void read_line(mp_history_reading *to, mp_str line)
{
    bool is_of_calls = cut_start(&line, "cells of calls ");
    if (is_of_calls || cut_start(&line, "cells of turns ")) {
        for (int i = 0; i < MP_SERIES_CELLS; i++)
            (is_of_calls ? to->calls : to->turns)[i] = (double)cut_number(&line);
    } else if (cut_start(&line, "good ")) {
        to->good = (double)cut_number(&line);
    } else if (cut_start(&line, "cpu_us ")) {
        to->cpu_us = (uint64_t)cut_number(&line);
    } else {
        size_t n = mp_history_find(mp_str_cut(&line, ' '));
        if (n < MP_HISTORY_NUMBERS)
            to->counts[n] = cut_number(&line);
    }
}

void mp_history_take_numbers(mp_history *history, uint16_t number, mp_str text)
{
    mp_history_reading now = {.at_us = mp_monotonic_us()};
    int i = 0;
    while (text.len > 0)
        read_line(&now, mp_str_cut(&text, '\n'));
    while (i < history->other_count && history->others[i].number != number)
        i++;
    if (i < history->other_count) {
        history->others[i].last = now;
    } else if (i <= MP_OLDER_MOST) { /* no row of this process includes the earlier counts of that process */
        history->others[i] = (mp_history_other){number, now, now};
        history->other_count++;
    }
}

/* Adds the difference of the counters of two readings to `to`, and with `has_levels` also the gauges of the later one.
 */
static void add_between(mp_history_reading *to, const mp_history_reading *first, const mp_history_reading *last,
                        bool has_levels)
{
    for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++) {
        if (!mp_history_is_level(n))
            to->counts[n] += last->counts[n] - first->counts[n];
        else if (has_levels)
            to->counts[n] += last->counts[n];
    }
    for (int i = 0; i < MP_SERIES_CELLS; i++) {
        to->calls[i] += last->calls[i] - first->calls[i];
        to->turns[i] += last->turns[i] - first->turns[i];
    }
    to->good += last->good - first->good;
    to->cpu_us += last->cpu_us - first->cpu_us;
}

void mp_history_add_others(const mp_history *history, mp_history_reading *to)
{
    static const mp_history_reading nothing;
    add_between(to, &nothing, &history->left, false);
    for (int i = 0; i < history->other_count; i++)
        add_between(to, &history->others[i].first, &history->others[i].last, true);
}

void mp_history_settle(mp_history *history, const mp_processes *processes)
{
    for (int i = 0; i < history->other_count;) {
        mp_history_other *one = &history->others[i];
        if (mp_processes_has(processes, one->number)) {
            i++;
            continue;
        }
        add_between(&history->left, &one->first, &one->last, false);
        *one = history->others[--history->other_count];
    }
}

/* -- rows of the process before this one --------------------------------------------------------------------------- */

typedef struct {
    mp_history *history;
    mp_history_span span;
    int64_t until_ms; /* of the newest row; -1: not read yet */
    uint64_t shifted;
} taking;

/* The number of rows between the newest row of the process before this one and the first row of this one, at least one:
 * a row that both processes measured is not lost. */
static int64_t rows_before(const mp_history *history, const taking *of)
{
    int64_t every = (int64_t)mp_history_every_ms(of->span);
    uint64_t first = history->started_ms + history->own * MP_HISTORY_STEP_MS; /* monotonic */
    int64_t first_ms = (int64_t)mp_clock_ms(CLOCK_REALTIME) - (int64_t)(mp_monotonic_ms() - first);
    int64_t rows = (first_ms - of->until_ms + every / 2) / every;
    return rows < 1 ? 1 : rows;
}

/* Makes place for `more` rows of the hour before row 0. */
static void shift_rows(mp_history *history, uint64_t more)
{
    mp_history *before = mp_new(sizeof *before);
    *before = *history;
    for (size_t i = 0; i < sizeof history->hour / sizeof *history->hour; i++)
        for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++)
            history->hour[i].values[n] = NAN;
    for (size_t i = 0; i < sizeof history->day / sizeof *history->day; i++)
        for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++)
            history->day[i].values[n] = NAN;
    for (uint64_t i = 0; i < before->serial && i < 720; i++) {
        uint64_t serial = before->serial - 1 - i;
        *mp_history_row_at(history, MP_HISTORY_HOUR, serial + more) =
            *mp_history_row_at(before, MP_HISTORY_HOUR, serial);
    }
    for (uint64_t i = 0; i < before->serial / STEPS && i < 1440; i++) {
        uint64_t serial = before->serial / STEPS - 1 - i;
        *mp_history_row_at(history, MP_HISTORY_DAY, serial + more / STEPS) =
            *mp_history_row_at(before, MP_HISTORY_DAY, serial);
    }
    history->serial += more;
    history->own += more;
    history->started_ms -= more * MP_HISTORY_STEP_MS; /* may be before the start of the machine: the sums wrap */
    free(before);
}

static void take_number(taking *of, size_t number, mp_str list)
{
    mp_history *history = of->history;
    int64_t count = list.len > 0;
    int64_t most = (int64_t)(of->span == MP_HISTORY_DAY ? 1440 : 720);
    for (size_t i = 0; i < list.len; i++)
        count += list.ptr[i] == ',';
    for (; count > most; count--)
        mp_str_cut(&list, ',');
    int64_t steps = of->span == MP_HISTORY_DAY ? STEPS : 1; /* rows of the last hour that make one row of the day */
    int64_t index = (int64_t)history->own / steps - rows_before(history, of) - (count - 1);
    if (index < 0 && index > -2 * 1440) {
        uint64_t more = (uint64_t)(-index * steps + STEPS - 1) / STEPS * STEPS;
        shift_rows(history, more);
        of->shifted += more;
        index += (int64_t)more / steps;
    }
    for (; count > 0; count--, index++) {
        mp_str value = mp_str_cut(&list, ',');
        char text[32];
        snprintf(text, sizeof text, "%.*s", MP_STR_ARG(value));
        if (index >= 0 && (int64_t)history->own / steps - index <= most && !mp_str_is(value, "null"))
            mp_history_row_at(history, of->span, (uint64_t)index)->values[number] = strtof(text, NULL);
    }
}

static bool enters_values(MP_UNUSED void *ctx, unsigned level, mp_str key)
{
    return level == 1 && mp_str_is(key, "values");
}

static int see_member(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    taking *of = ctx;
    if (level == 1 && mp_str_is(key, "span"))
        of->span = mp_str_is(value, "\"day\"") ? MP_HISTORY_DAY : MP_HISTORY_HOUR;
    else if (level == 1 && mp_str_is(key, "until_ms"))
        mp_json_int(value, &of->until_ms);
    else if (level == 2 && type == MP_JSON_ARRAY && of->until_ms > 0 && mp_history_find(key) < MP_HISTORY_NUMBERS)
        take_number(of, mp_history_find(key), mp_str_trim((mp_str){value.ptr + 1, value.len - 2}));
    return 0;
}

uint64_t mp_history_take_rows(mp_history *history, mp_str json)
{
    taking of = {.history = history, .until_ms = -1};
    if (history->serial > 0)
        mp_json_scan(json, &(mp_json_visitor){.enter = enters_values, .member = see_member, .ctx = &of}, NULL, NULL);
    return of.shifted;
}
