/* tap.c: the readers of taps. A tap wakes the admin thread by a message when an event comes after a pause; from then on
 * the thread takes what has come every BATCH_MS, for all readers in one turn, until nothing comes: a thousand events a
 * second cost it a few turns. The events go into the reader's stream as far as it has room, and wait in the tap
 * meanwhile, which drops and counts what is over its queue. */
#include "tap.h"
#include "query_slots.h"
#include "event_feed.h"

MP_COUNTER(tap_batches, "tap_batches", "", "", "batches of events that went from a tap to its reader")

#define BATCH_MS 40
#define MAX_SECONDS 3600
#define MAX_PATTERN 256
#define LEAST_STREAM_QUEUE ((size_t)256 << 10) /* an event with its arguments fits */
#define NOTE_ROOM 256                          /* bytes of an event of this file */

typedef struct {
    mp_link link; /* in mp_admin_taps, while `stream` is not NULL */
    mp_admin_taps *taps;
    mp_stream *MP_NULLABLE stream; /* counted reference; NULL once the reader has left */
    mp_tap *tap;
    mp_message news;
    bool is_awake;         /* the timer that serves all readers will take the events of this tap */
    unsigned batch_number; /* number of the batch in which the tap was looked at last */
    atomic_bool is_posted; /* `news` was posted and not delivered */
    atomic_int refs;       /* a reference of the list, and one of `news` while it is posted */
    mp_timer limit;
    mp_loop *loop;
    mp_admin_caller caller;
    mp_tap_arguments arguments;
} reader;

struct mp_admin_taps {
    mp_admin *admin;
    mp_link readers;
    mp_timer batch; /* runs while a reader is awake */
    unsigned batch_number;
};

static void unref_reader(reader *of)
{
    if (atomic_fetch_sub(&of->refs, 1) == 1)
        free(of);
}

/* Closes the tap. The stream may have ended already. */
static void close_reader(reader *of)
{
    mp_stream *stream = of->stream;
    char why[96];
    if (stream == NULL)
        return;
    of->stream = NULL;
    mp_tap_totals totals = mp_tap_close(of->tap);
    snprintf(why, sizeof why, "%llu events, %llu dropped", (unsigned long long)totals.sent,
             (unsigned long long)totals.dropped);
    mp_audit_request(
        stream, &(mp_decision){.event = "tap closed", .caller = mp_str_of(of->caller.name), .why = mp_str_of(why)});
    mp_log(MP_INFO, "tap closed", mp_log_str("caller", mp_str_of(of->caller.name)),
           mp_log_int("events", (int64_t)totals.sent), mp_log_int("dropped", (int64_t)totals.dropped));
    mp_timer_stop(of->loop, &of->limit);
    mp_stream_on_gone(stream, NULL, NULL);
    mp_stream_on_drained(stream, NULL, NULL);
    mp_stream_unref(stream);
    mp_link_drop(&of->link);
    unref_reader(of);
}

static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    close_reader(ctx);
}

/* Writes the events that wait, then why the stream ends. */
static void end_reader(reader *of, const char *why)
{
    mp_scoped_buf out = {0};
    mp_stream *stream = of->stream;
    if (stream == NULL)
        return;
    mp_stream_ref(stream);
    size_t room = mp_stream_room(stream);
    atomic_fetch_add(&of->refs, 1); /* a failed send closes the reader */
    if (room > NOTE_ROOM) {
        mp_tap_take(of->tap, room - NOTE_ROOM, &out);
        mp_buf_printf(&out, "data: {\"event\":\"tap closed\",\"why\":\"%s\"}\n\n", why);
        mp_stream_send(stream, mp_buf_str(&out));
    }
    close_reader(of);
    unref_reader(of);
    mp_stream_end(stream);
    mp_stream_unref(stream);
}

static void on_limit(mp_timer *timer)
{
    end_reader(mp_container(timer, reader, limit), "the time of the tap is over");
}

static void on_drained(void *ctx, mp_stream *stream);
static void on_batch(mp_timer *timer);

/* Moves events from the tap to the stream. Events that do not fit are moved when the client has read; later events are
 * taken by the timer. */
static void pump_events(reader *of)
{
    mp_scoped_buf out = {0};
    mp_admin_taps *taps = of->taps;
    mp_stream *stream = of->stream;
    if (stream == NULL)
        return;
    size_t room = mp_stream_room(stream);
    bool is_empty = room >= mp_admin_settings(taps->admin)->http.stream_queue;
    bool has_more = mp_tap_take(of->tap, room > NOTE_ROOM ? room - NOTE_ROOM : 0, &out);
    of->is_awake = !has_more;
    if (out.len > 0)
        mp_stat_add(&mp_stat_tap_batches, 1);
    if (of->is_awake && taps->batch.slot == 0)
        mp_timer_start(of->loop, &taps->batch, BATCH_MS, on_batch);
    if (out.len == 0 && has_more && is_empty)
        end_reader(of, "limits.stream_queue is too small for an event");
    else if (mp_stream_send(stream, mp_buf_str(&out)) == 0 && has_more) /* a failed send has closed the reader */
        mp_stream_on_drained(stream, on_drained, of);
}

static void on_drained(void *ctx, MP_UNUSED mp_stream *stream)
{
    pump_events(ctx);
}

/* Returns a reader that is awake and not in this batch yet. The list is searched from the start each time, since a
 * write to one reader may end other readers. */
static reader *MP_NULLABLE find_awake(const mp_admin_taps *taps)
{
    MP_EACH(reader, of, &taps->readers, link) {
        if (of->is_awake && of->batch_number != taps->batch_number)
            return of;
    }
    return NULL;
}

static void on_batch(mp_timer *timer)
{
    mp_admin_taps *taps = mp_container(timer, mp_admin_taps, batch);
    mp_loop_measure(mp_admin_loop(taps->admin), MP_MEASURE_ADMIN);
    taps->batch_number++;
    for (reader *of; (of = find_awake(taps)) != NULL;) {
        of->batch_number = taps->batch_number;
        if (mp_tap_rest(of->tap))
            of->is_awake = false;
        else
            pump_events(of);
    }
}

static void on_news(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    reader *of = mp_container(message, reader, news);
    atomic_store(&of->is_posted, false);
    if (loop != NULL)
        pump_events(of);
    unref_reader(of);
}

/* Wakes the admin thread for a tap. On any thread, with the lock of the taps. */
static void wake_reader(void *ctx)
{
    reader *of = ctx;
    if (atomic_exchange(&of->is_posted, true))
        return;
    atomic_fetch_add(&of->refs, 1);
    mp_loop_post(of->loop, &of->news);
}

/* -- the request --------------------------------------------------------------------------------------------------- */

typedef struct {
    char tool[MAX_PATTERN], principal[MAX_PATTERN], session[MAX_PATTERN], method[MAX_PATTERN], outcome[MAX_PATTERN];
    char arguments[16], slower[16], seconds[16], sample[16];
} tap_request;

/* Decodes a value of a query. False if it does not fit, or is not encoded as it must be. */
static bool decode_value(mp_str value, char *to, size_t room)
{
    size_t len = 0;
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i] == '+' ? ' ' : value.ptr[i];
        if (c == '%') {
            int high = i + 2 < value.len ? mp_hex_digit(value.ptr[i + 1]) : -1;
            int low = high < 0 ? -1 : mp_hex_digit(value.ptr[i + 2]);
            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            i += 2;
        }
        if (c == '\0' || len + 1 >= room)
            return false;
        to[len++] = c;
    }
    to[len] = '\0';
    return true;
}

static const char *MP_NULLABLE read_query(mp_str query, tap_request *asked)
{
    struct {
        const char *name;
        char *to;
        size_t room;
    } known[] = {{"tool", asked->tool, MAX_PATTERN},
                 {"principal", asked->principal, MAX_PATTERN},
                 {"session", asked->session, MAX_PATTERN},
                 {"method", asked->method, MAX_PATTERN},
                 {"outcome", asked->outcome, MAX_PATTERN},
                 {"arguments", asked->arguments, sizeof asked->arguments},
                 {"slower", asked->slower, sizeof asked->slower},
                 {"seconds", asked->seconds, sizeof asked->seconds},
                 {"sample", asked->sample, sizeof asked->sample}};
    while (query.len > 0) {
        mp_str value = mp_str_cut(&query, '&'), key = mp_str_cut(&value, '=');
        size_t i = 0;
        while (i < sizeof known / sizeof *known && !mp_str_is(key, known[i].name))
            i++;
        if (i == sizeof known / sizeof *known)
            return "the query may have tool, principal, session, method, outcome, slower, sample, arguments and "
                   "seconds";
        if (!decode_value(value, known[i].to, known[i].room))
            return "a value of the query is too long, or not percent-encoded";
    }
    return NULL;
}

static const char *const forms[] = {"none", "names", "shapes", "full", NULL};

/* The number in a text, from 0 to `most`; -1 if it is none. */
static int64_t number_of(const char *text, int64_t most)
{
    int64_t n = 0;
    if (*text == '\0')
        return -1;
    for (; *text != '\0'; text++) {
        if (*text < '0' || *text > '9' || n > most)
            return -1;
        n = n * 10 + (*text - '0');
    }
    return n <= most ? n : -1;
}

static const char *MP_NULLABLE given(const char *text)
{
    return *text == '\0' ? NULL : text;
}

/* Reads the query. NULL, or why the request makes no sense. */
static const char *MP_NULLABLE read_question(mp_str query, mp_tap_arguments most, tap_request *asked,
                                             mp_tap_filter *filter, int64_t *seconds)
{
    const char *wrong = read_query(query, asked);
    if (wrong != NULL)
        return wrong;
    *filter = (mp_tap_filter){given(asked->tool),
                              given(asked->principal),
                              given(asked->session),
                              given(asked->method),
                              given(asked->outcome),
                              0,
                              0,
                              MP_TAP_SHAPES};
    if (filter->arguments > most)
        filter->arguments = most;
    if (given(asked->arguments) != NULL) {
        int i = 0;
        while (forms[i] != NULL && strcmp(forms[i], asked->arguments) != 0)
            i++;
        if (forms[i] == NULL)
            return "arguments is none, names, shapes or full";
        filter->arguments = (mp_tap_arguments)i;
    }
    int64_t slower = given(asked->slower) == NULL ? 0 : number_of(asked->slower, 24 * 3600 * 1000);
    *seconds = given(asked->seconds) == NULL ? MAX_SECONDS : number_of(asked->seconds, MAX_SECONDS);
    if (given(asked->sample) != NULL) {
        char *end;
        double part = strtod(asked->sample, &end);
        if (*end != '\0' || !(part > 0 && part <= 1))
            return "sample is a part of the calls, above 0 and at most 1";
        filter->sample = part < 1 ? (uint32_t)(part * 1000000 + 0.5) : 0;
        if (part < 1 && filter->sample == 0)
            filter->sample = 1;
    }
    if (slower < 0)
        return "slower is a number of milliseconds";
    if (*seconds < 1)
        return "seconds is a number from 1 to 3600";
    filter->slower_us = (uint64_t)slower * 1000;
    return NULL;
}

static void open_reader(mp_admin_taps *taps, mp_stream *stream, const mp_admin_caller *caller,
                        const mp_tap_filter *filter, int64_t seconds)
{
    reader *made = mp_new(sizeof *made);
    made->taps = taps;
    made->loop = mp_stream_loop(stream);
    made->caller = *caller;
    made->arguments = filter->arguments;
    made->news = (mp_message){.deliver = on_news};
    atomic_init(&made->refs, 1);
    mp_tap *tap = mp_tap_open(filter, &(mp_tap_hooks){wake_reader, made});
    if (tap == NULL) {
        char why[80];
        free(made);
        mp_stat_add(&mp_stat_refused_readers, 1);
        snprintf(why, sizeof why, "%d taps are open: end one of them", MP_TAPS);
        mp_admin_refuse(stream, 503, mp_str_of(why));
        return;
    }
    made->tap = tap;
    made->stream = mp_stream_ref(stream);
    mp_link_put(&taps->readers, &made->link);
    mp_audit_request(stream, &(mp_decision){.event = "tap opened",
                                            .caller = mp_str_of(caller->name),
                                            .why = mp_stream_request(stream)->query});
    mp_log(MP_INFO, "tap opened", mp_log_str("caller", mp_str_of(caller->name)),
           mp_log_str("arguments", mp_str_of(forms[filter->arguments])));
    if (mp_stream_open_events(stream, NULL, 0) != 0) { /* HEAD, which is answered, or a client that has left */
        close_reader(made);
        return;
    }
    mp_stream_on_gone(stream, on_gone, made);
    mp_timer_start(made->loop, &made->limit, (uint64_t)seconds * 1000, on_limit);
    mp_scoped_buf out = {0};
    mp_buf_printf(&out, "data: {\"event\":\"tap opened\",\"arguments\":\"%s\",\"seconds\":%lld}\n\n",
                  forms[filter->arguments], (long long)seconds);
    mp_stream_send(stream, mp_buf_str(&out));
}

void mp_api_tap(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    tap_request asked = {0};
    mp_tap_filter filter;
    int64_t seconds;
    const mp_runtime_config *settings = mp_admin_settings(admin);
    mp_tap_arguments most = settings->config->admin_tap;
    const char *wrong = read_question(mp_stream_request(stream)->query, most, &asked, &filter, &seconds);
    if (wrong != NULL)
        mp_admin_refuse(stream, 400, mp_str_of(wrong));
    else if (filter.arguments > most)
        mp_admin_refuse(stream, 403, MP_STR("admin.tap in the configuration does not allow that much of arguments"));
    else if (settings->http.stream_queue < LEAST_STREAM_QUEUE)
        mp_admin_refuse(stream, 503, MP_STR("limits.stream_queue is below 256KiB, which a tap needs"));
    else
        open_reader(mp_admin_taps_of(admin), stream, caller, &filter, seconds);
}

/* -- all readers --------------------------------------------------------------------------------------------------- */

/* Ends a reader that the configuration no longer allows; false: there is none. */
static bool end_refused(mp_admin_taps *taps)
{
    const mp_config *config = mp_admin_settings(taps->admin)->config;
    MP_EACH(reader, of, &taps->readers, link) {
        const char *why = NULL;
        mp_processes *processes = mp_admin_gateway_of(taps->admin)->processes;
        if (!of->caller.is_process && !mp_processes_is_newest(processes))
            why = "another process has taken over, which sees the calls of all: tap again";
        else if (of->arguments > config->admin_tap)
            why = "admin.tap has changed";
        else if (!mp_admin_access_has(mp_admin_access_of(taps->admin), &of->caller))
            why = "the caller has no longer the role operate";
        if (why != NULL) {
            end_reader(of, why);
            return true;
        }
    }
    return false;
}

void mp_admin_taps_configure(mp_admin_taps *taps)
{
    /* begins again after each reader: ending one writes to it, and a failed write may end other readers */
    while (end_refused(taps))
        ;
}

mp_admin_taps *mp_admin_taps_new(mp_admin *admin)
{
    mp_admin_taps *taps = mp_new(sizeof *taps);
    taps->admin = admin;
    return taps;
}

void mp_admin_taps_free(mp_admin_taps *MP_NULLABLE taps)
{
    if (taps == NULL)
        return;
    while (!mp_link_is_alone(&taps->readers))
        close_reader(mp_container(taps->readers.next, reader, link));
    if (taps->batch.slot != 0)
        mp_timer_stop(mp_admin_loop(taps->admin), &taps->batch);
    free(taps);
}
