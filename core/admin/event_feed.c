#include "event_feed.h"
#include "history.h"
#include "json/json.h"
#include <math.h>

MP_REFUSED(refused_readers, "admin_readers", MP_LIMIT_REACHED,
           "requests for /api/live and /api/history above 16, and for /api/tap above 8")
MP_COUNTER(dropped_live, "dropped", "reason", "live", "events of /api/live for which a slow reader had no room")

#define TICK_MS 1000
/* readers of /api/live, one for each open page of the dashboard, and of /api/history while they are answered */
#define MAX_READERS MP_LIMIT(admin_readers, 16)
/* after this time the stream ends, and its reader connects again, with its token */
#define MAX_READ_MS (3600 * 1000)
#define SLICE 2000 /* numbers that one turn writes */
#define PAUSE_MS 1 /* between two slices: not in one turn */

struct mp_admin_live {
    mp_loop *loop;
    mp_history *history;
    mp_timer step, tick;
    mp_history_reading last; /* reading of the tick before */
    mp_link readers, answers;
    int reader_count, answer_count;
    unsigned tick_number;
};

/* -- events -------------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_link link;
    mp_admin_live *live;
    mp_stream *stream;    /* counted reference */
    uint64_t until;       /* monotonic ms */
    bool has_all;         /* the reader has got `sent`: only differences are written */
    unsigned tick_number; /* tick of the reader's last event */
    mp_history_row sent;
} reader;

static void on_tick(mp_timer *timer);

static void close_reader(reader *of)
{
    mp_stream_on_gone(of->stream, NULL, NULL);
    mp_stream_unref(of->stream);
    mp_link_drop(&of->link);
    of->live->reader_count--;
    free(of);
}

static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    close_reader(ctx);
}

static void end_reader(reader *of)
{
    mp_stream *stream = mp_stream_ref(of->stream);
    close_reader(of);
    mp_stream_end(stream);
    mp_stream_unref(stream);
}

/* Appends an event with the numbers that differ from those that the reader knows. */
static void put_event(const reader *of, const mp_history_row *row, mp_buf *out)
{
    mp_buf_put(out, MP_STR("data: {\"at_ms\":"));
    mp_json_put_int(out, (int64_t)mp_clock_ms(CLOCK_REALTIME));
    for (size_t n = 0; n < MP_HISTORY_NUMBERS; n++) {
        float before = of->sent.values[n], now = row->values[n];
        bool is_same = isnan(before) ? isnan(now) : before <= now && before >= now;
        if (of->has_all && is_same)
            continue;
        mp_buf_printf(out, ",\"%s\":", mp_history_name(n));
        mp_history_put(out, now);
    }
    mp_buf_put(out, MP_STR("}\n\n"));
}

/* Sends a reader the numbers that have changed. If its stream has no room, the next event has these changes, too. */
static void tell_reader(reader *of, const mp_history_row *row)
{
    mp_scoped_buf out = {0};
    put_event(of, row, &out);
    if (out.len > mp_stream_room(of->stream)) {
        mp_stat_add(&mp_stat_dropped_live, 1);
    } else {
        of->sent = *row;
        of->has_all = true;
        mp_stream_send(of->stream, mp_buf_str(&out)); /* a failed send closes the reader */
    }
}

/* Returns a reader that has not got the event of this tick. The list is searched from the start each time, since a
 * write to one reader may end other readers. */
static reader *MP_NULLABLE find_untold(const mp_admin_live *live)
{
    MP_EACH(reader, of, &live->readers, link) {
        if (of->tick_number != live->tick_number)
            return of;
    }
    return NULL;
}

static void on_tick(mp_timer *timer)
{
    mp_admin_live *live = mp_container(timer, mp_admin_live, tick);
    mp_history_reading now;
    mp_history_row row;
    mp_history_measure(live->history, &live->last, &now, &row);
    live->last = now;
    live->tick_number++;
    for (reader *of; (of = find_untold(live)) != NULL;) {
        of->tick_number = live->tick_number;
        if (mp_loop_now(live->loop) >= of->until)
            end_reader(of);
        else
            tell_reader(of, &row);
    }
    if (live->reader_count > 0)
        mp_timer_start(live->loop, &live->tick, TICK_MS, on_tick);
}

/* True if one more than `count` fits; otherwise refuses the request. */
static bool has_room(int count, mp_stream *stream)
{
    if (count < MAX_READERS)
        return true;
    char json[80];
    mp_stat_add(&mp_stat_refused_readers, 1);
    snprintf(json, sizeof json, "{\"error\":\"%d such requests are open: close one of them\"}\n", (int)MAX_READERS);
    mp_stream_answer(stream, 503, "application/json", mp_str_of(json), NULL, 0);
    return false;
}

void mp_api_live(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    mp_admin_live *live = mp_admin_live_of(admin);
    if (!has_room(live->reader_count, stream))
        return;
    if (mp_stream_open_events(stream, NULL, 0) != 0) /* HEAD, which is answered, or a client that has left */
        return;
    reader *of = mp_new(sizeof *of);
    of->live = live;
    of->stream = mp_stream_ref(stream);
    of->until = mp_loop_now(live->loop) + MAX_READ_MS;
    mp_link_put(&live->readers, &of->link);
    mp_stream_on_gone(stream, on_gone, of);
    if (live->reader_count++ == 0) {
        mp_history_row row; /* the first event comes after a second, with what happened in it */
        mp_history_measure(live->history, &live->last, &live->last, &row);
        mp_timer_start(live->loop, &live->tick, TICK_MS, on_tick);
    }
}

/* -- history ------------------------------------------------------------------------------------------------------- */

/* An answer, written in slices so that no turn of the admin thread is long. */
typedef struct {
    mp_link link;
    mp_timer next;
    mp_admin_live *live;
    mp_stream *stream; /* counted reference */
    mp_history_span span;
    bool wanted[MP_HISTORY_NUMBERS];
    size_t number;           /* number of the event that is being written */
    uint64_t first, end, at; /* rows: of the answer, and the one that comes next */
    mp_buf out;
} answer;

static void free_answer(answer *of)
{
    mp_timer_stop(of->live->loop, &of->next);
    mp_stream_on_gone(of->stream, NULL, NULL);
    mp_stream_unref(of->stream);
    mp_link_drop(&of->link);
    of->live->answer_count--;
    mp_buf_clear(&of->out);
    free(of);
}

static void on_answer_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    free_answer(ctx);
}

/* Writes one number after another; false: all are written. */
static bool write_slice(answer *of)
{
    int left = SLICE;
    for (; of->number < MP_HISTORY_NUMBERS; of->number++, of->at = of->first) {
        if (!of->wanted[of->number])
            continue;
        if (of->at == of->first)
            mp_buf_printf(&of->out, "%s\"%s\":[", of->out.ptr[of->out.len - 1] == '{' ? "" : ",",
                          mp_history_name(of->number));
        for (; of->at < of->end; of->at++) {
            if (left-- == 0)
                return true;
            if (of->at != of->first)
                mp_buf_putc(&of->out, ',');
            mp_history_put(&of->out, mp_history_value(of->live->history, of->span, of->at, of->number));
        }
        mp_buf_putc(&of->out, ']');
    }
    return false;
}

static void on_next(mp_timer *timer)
{
    answer *of = mp_container(timer, answer, next);
    mp_loop_measure(of->live->loop, MP_MEASURE_ADMIN);
    if (write_slice(of)) {
        mp_timer_start(of->live->loop, &of->next, PAUSE_MS, on_next);
        return;
    }
    mp_buf_put(&of->out, MP_STR("}}\n"));
    mp_stream_on_gone(of->stream, NULL, NULL);
    mp_stream_answer(of->stream, 200, "application/json", mp_buf_str(&of->out), NULL, 0);
    free_answer(of);
}

/* Reads span=hour|day and numbers=a,b. False if the query has anything else. */
static bool read_query(mp_str query, answer *of)
{
    bool has_all = true;
    while (query.len > 0) {
        mp_str value = mp_str_cut(&query, '&'), key = mp_str_cut(&value, '=');
        if (mp_str_is(key, "span") && (mp_str_is(value, "hour") || mp_str_is(value, "day"))) {
            of->span = mp_str_is(value, "day") ? MP_HISTORY_DAY : MP_HISTORY_HOUR;
            continue;
        }
        if (!mp_str_is(key, "numbers"))
            return false;
        has_all = false;
        while (value.len > 0) {
            size_t number = mp_history_find(mp_str_cut(&value, ','));
            if (number == MP_HISTORY_NUMBERS)
                return false;
            of->wanted[number] = true;
        }
    }
    for (size_t n = 0; n < MP_HISTORY_NUMBERS && has_all; n++)
        of->wanted[n] = true;
    return true;
}

void mp_api_history(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    mp_admin_live *live = mp_admin_live_of(admin);
    answer asked = {.live = live, .span = MP_HISTORY_HOUR};
    if (!read_query(mp_stream_request(stream)->query, &asked)) {
        mp_stream_answer(stream, 400, "application/json",
                         MP_STR("{\"error\":\"the query is span=hour or span=day, and numbers=calls,p99_ms,…\"}\n"),
                         NULL, 0);
        return;
    }
    if (!has_room(live->answer_count, stream))
        return;
    answer *of = mp_new(sizeof *of);
    *of = asked;
    of->stream = mp_stream_ref(stream);
    of->end = mp_history_serial(live->history, of->span);
    of->first = of->at = of->end - mp_history_count(live->history, of->span);
    mp_buf_printf(&of->out, "{\"span\":\"%s\",\"every_ms\":%llu,\"until_ms\":%llu,\"values\":{",
                  of->span == MP_HISTORY_DAY ? "day" : "hour", (unsigned long long)mp_history_every_ms(of->span),
                  (unsigned long long)mp_history_until_ms(live->history, of->span));
    mp_link_put(&live->answers, &of->link);
    live->answer_count++;
    mp_stream_on_gone(stream, on_answer_gone, of);
    on_next(&of->next);
}

/* -- several processes --------------------------------------------------------------------------------------------- */

void mp_admin_live_put_numbers(const mp_admin_live *live, mp_buf *out)
{
    mp_history_put_numbers(live->history, out);
}

void mp_admin_live_take_numbers(mp_admin_live *live, uint16_t number, mp_str text)
{
    mp_history_take_numbers(live->history, number, text);
}

void mp_admin_live_settle(mp_admin_live *live, const mp_processes *processes)
{
    mp_history_settle(live->history, processes);
}

void mp_admin_live_take_rows(mp_admin_live *live, mp_str json)
{
    uint64_t shifted = mp_history_take_rows(live->history, json);
    MP_EACH(answer, of, &live->answers, link) {
        uint64_t more = of->span == MP_HISTORY_DAY ? shifted / MP_HISTORY_SHIFT : shifted;
        of->first += more;
        of->at += more;
        of->end += more;
    }
}

/* -- the whole ----------------------------------------------------------------------------------------------------- */

static void on_step(mp_timer *timer)
{
    mp_admin_live *live = mp_container(timer, mp_admin_live, step);
    mp_timer_start(live->loop, &live->step, mp_history_step(live->history), on_step);
}

void mp_admin_live_start(mp_admin_live *live)
{
    on_step(&live->step);
}

void mp_admin_live_configure(mp_admin_live *live)
{
    while (!mp_link_is_alone(&live->readers))
        end_reader(mp_container(live->readers.next, reader, link));
}

mp_admin_live *mp_admin_live_new(mp_loop *loop)
{
    mp_admin_live *live = mp_new(sizeof *live);
    live->loop = loop;
    live->history = mp_history_new();
    return live;
}

void mp_admin_live_free(mp_admin_live *MP_NULLABLE live)
{
    if (live == NULL)
        return;
    while (!mp_link_is_alone(&live->readers))
        close_reader(mp_container(live->readers.next, reader, link));
    while (!mp_link_is_alone(&live->answers))
        free_answer(mp_container(live->answers.next, answer, link));
    mp_timer_stop(live->loop, &live->step);
    mp_timer_stop(live->loop, &live->tick);
    mp_history_free(live->history);
    free(live);
}
