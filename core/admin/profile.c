/* profile.c: a profile of the workers. Each worker begins and ends its part by a message, and gathers it on its own
 * thread. When the time is over, the parts are read here, a few stacks in each turn, and sent as far as the reader has
 * room. A worker that does not turn keeps its part, which is then left out.
 *
 * One file, because each step from the request to the last event changes the same state. */
#include "profile.h"
#include "query_slots.h"
#include "json/json.h"
#include <unistd.h>

MP_GAUGE(profiles, "profiles", "", "", "profiles that run")

/* bytes for the stacks that one worker gathers: some 4,000 stacks */
#define ROOM_BYTES MP_LIMIT(profile_bytes, 1 << 20)
#define MAX_SECONDS 300
#define MAX_HZ 1000
#define USUAL_SECONDS 30
#define USUAL_HZ 199 /* a prime, so that samples do not coincide with jobs that scripts run each 5 or 10 ms */
#define PROGRESS_MS 1000
#define LOOK_MS 10          /* ms between two checks whether the workers have ended their parts */
#define PATIENCE_MS 100     /* ms that the end of the process waits for a reader */
#define STACKS_IN_A_TURN 32 /* stacks that are written in one turn: they take some 200 us */
#define EVENT_ROOM ((size_t)96 << 10)
#define LEAST_STREAM_QUEUE ((size_t)256 << 10)

typedef enum { IDLE, GATHERING, ENDING, SENDING } state;

typedef struct {
    mp_profile *profile;
    int number; /* number of the worker */
} part;

struct mp_admin_profile {
    const mp_admin_gateway *gateway;
    mp_admin_access *access;
    state state;
    mp_loop *loop;
    mp_stream *MP_NULLABLE stream; /* counted reference; NULL: the reader has left */
    mp_admin_caller caller;
    mp_timer limit, clock; /* fires when the profile's time is over; fires for the next progress event, check of the
                              workers, or part of the answer */
    part *parts;           /* the workers that are sampled */
    int part_count, without_answer;
    uint64_t began_ms, ended_ms;
    int at_part;       /* position in the part that is being sent */
    size_t at_stack;   /* index of the next stack in that part */
    const char *cause; /* why it ended */
    bool stops_loop;   /* the thread ends as soon as no profile runs */
    mp_timer patience; /* limits the wait for a reader at the end of the process */
};

/* -- messages to workers ------------------------------------------------------------------------------------------- */

typedef struct {
    const mp_admin_gateway *gateway;
    int worker;
    mp_profile *MP_NULLABLE profile; /* counted reference; NULL: the end */
} profile_message;

static void deliver_message(void *content, mp_loop *MP_NULLABLE loop)
{
    const profile_message *given = content;
    if (loop != NULL && given->profile == NULL)
        mp_profile_end();
    else if (loop != NULL && !given->gateway->profile(given->gateway->self, given->worker, given->profile))
        mp_log(MP_ERROR, "no timer for the profile",
               mp_log_str("hint", MP_STR("raise the limit of pending signals (ulimit -i)")));
    mp_profile_unref(given->profile);
}

static void post_message(const mp_admin_gateway *gateway, int worker, mp_profile *MP_NULLABLE profile)
{
    const profile_message message = {gateway, worker, profile == NULL ? NULL : mp_profile_ref(profile)};
    mp_loop_send(gateway->worker_loop(gateway->self, worker), deliver_message, &message, sizeof message, MP_STR_NONE);
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

static mp_profile_totals totals_of(const mp_admin_profile *p)
{
    mp_profile_totals all = {0, 0};
    for (int i = 0; i < p->part_count; i++) {
        mp_profile_totals one = mp_profile_count(p->parts[i].profile);
        all.taken += one.taken;
        all.lost += one.lost;
    }
    return all;
}

/* Frees everything of a profile that is over: another one may begin. */
static void settle_profile(mp_admin_profile *p)
{
    mp_profile_totals totals = totals_of(p);
    mp_timer_stop(p->loop, &p->limit);
    mp_timer_stop(p->loop, &p->clock);
    mp_log(MP_INFO, "profile ended", mp_log_str("caller", mp_str_of(p->caller.name)),
           mp_log_str("why", mp_str_of(p->cause)), mp_log_int("samples", (int64_t)totals.taken),
           mp_log_int("lost", (int64_t)totals.lost));
    for (int i = 0; i < p->part_count; i++)
        mp_profile_unref(p->parts[i].profile);
    free(p->parts);
    p->parts = MP_UNSET;
    p->part_count = 0;
    p->state = IDLE;
    mp_stat_add(&mp_stat_profiles, -1);
    if (p->stops_loop)
        mp_loop_stop(p->loop);
}

/* Drops the stream, which may have ended already. */
static void drop_stream(mp_admin_profile *p)
{
    mp_stream *stream = p->stream;
    p->stream = NULL;
    if (stream == NULL)
        return;
    mp_stream_on_gone(stream, NULL, NULL);
    mp_stream_on_drained(stream, NULL, NULL);
    mp_stream_unref(stream);
}

static void send_end(mp_admin_profile *p, mp_stream *stream)
{
    mp_scoped_buf out = {0};
    mp_profile_totals totals = totals_of(p);
    mp_stream_ref(stream);
    drop_stream(p); /* a failed send settles nothing more */
    mp_buf_printf(&out, "data: {\"event\":\"profile ended\",\"why\":\"%s\",\"ms\":%llu,\"samples\":%llu,\"lost\":%llu,",
                  p->cause, (unsigned long long)(p->ended_ms - p->began_ms), (unsigned long long)totals.taken,
                  (unsigned long long)totals.lost);
    mp_buf_printf(&out, "\"workers_without_answer\":%d}\n\n", p->without_answer);
    mp_stream_send(stream, mp_buf_str(&out));
    mp_stream_end(stream);
    mp_stream_unref(stream);
    settle_profile(p);
}

/* -- sending ------------------------------------------------------------------------------------------------------- */

static const char *const phases[MP_PHASES] = {"read",    "decode", "auth",  "policy", "validate",
                                              "handler", "encode", "write", "gc"};

static void put_stack(mp_buf *out, int worker, const mp_profile_stack *stack)
{
    mp_buf_printf(out, "data: {\"event\":\"stack\",\"worker\":%d,\"count\":%llu,\"frames\":[\"%s\"", worker,
                  (unsigned long long)stack->count, phases[stack->phase]);
    for (size_t i = 0; i < stack->depth; i++) {
        unsigned line;
        mp_str text = mp_profile_frame(stack, i, &line);
        mp_buf_putc(out, ',');
        mp_json_put_string(out, text);
        if (line > 0) {
            out->len--;
            mp_buf_printf(out, ":%u\"", line);
        }
    }
    mp_buf_put(out, MP_STR("]}\n\n"));
}

static void on_drained(void *ctx, mp_stream *stream);

/* The next stack, of any part. */
static bool next_stack(mp_admin_profile *p, mp_profile_stack *stack)
{
    for (; p->at_part < p->part_count; p->at_part++, p->at_stack = 0) {
        const mp_profile *profile = p->parts[p->at_part].profile;
        size_t next = mp_profile_is_over(profile) ? mp_profile_read(profile, p->at_stack, stack) : 0;
        p->at_stack = next;
        if (next != 0)
            return true;
    }
    return false;
}

static void send_some(mp_timer *timer)
{
    mp_admin_profile *p = mp_container(timer, mp_admin_profile, clock);
    mp_stream *stream = p->stream;
    if (stream == NULL)
        return;
    mp_scoped_buf out = {0};
    mp_profile_stack stack;
    size_t room = mp_stream_room(stream);
    bool has_more = true;
    for (int i = 0; i < STACKS_IN_A_TURN && has_more && out.len + EVENT_ROOM < room; i++) {
        has_more = next_stack(p, &stack);
        if (has_more)
            put_stack(&out, p->parts[p->at_part].number, &stack);
    }
    bool is_full = has_more && out.len == 0;
    bool is_sent = out.len == 0 || mp_stream_send(stream, mp_buf_str(&out)) == 0; /* false if the reader has left */
    if (!is_sent)
        return;
    if (!has_more)
        send_end(p, stream);
    else if (is_full)
        mp_stream_on_drained(stream, on_drained, p);
    else
        mp_timer_start(p->loop, &p->clock, 0, send_some);
}

static void on_drained(void *ctx, MP_UNUSED mp_stream *stream)
{
    mp_admin_profile *p = ctx;
    mp_timer_start(p->loop, &p->clock, 0, send_some);
}

/* Waits until the workers have ended their parts. */
static void look_at_workers(mp_timer *timer)
{
    mp_admin_profile *p = mp_container(timer, mp_admin_profile, clock);
    p->without_answer = 0;
    for (int i = 0; i < p->part_count; i++)
        p->without_answer += !mp_profile_is_over(p->parts[i].profile);
    if (p->without_answer > 0 && mp_loop_now(p->loop) < p->ended_ms + MP_QUESTION_MS) {
        mp_timer_start(p->loop, &p->clock, LOOK_MS, look_at_workers);
        return;
    }
    mp_stat_add(&mp_stat_admin_unanswered, p->without_answer);
    if (p->stream == NULL) {
        settle_profile(p);
        return;
    }
    p->state = SENDING;
    mp_timer_start(p->loop, &p->clock, 0, send_some);
}

static void end_gathering(mp_admin_profile *p, const char *why)
{
    if (p->state != GATHERING)
        return;
    p->state = ENDING;
    p->cause = why;
    p->ended_ms = mp_loop_now(p->loop);
    mp_timer_stop(p->loop, &p->limit);
    for (int i = 0; i < p->part_count; i++)
        post_message(p->gateway, p->parts[i].number, NULL);
    mp_timer_start(p->loop, &p->clock, 0, look_at_workers);
}

/* The reader has left: ends the profile if it runs, or drops what is left to send. */
static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    mp_admin_profile *p = ctx;
    drop_stream(p);
    if (p->state == SENDING)
        settle_profile(p);
    else
        end_gathering(p, "the reader has left");
}

static void on_limit(mp_timer *timer)
{
    end_gathering(mp_container(timer, mp_admin_profile, limit), "its time is over");
}

static void tell_progress(mp_timer *timer)
{
    mp_admin_profile *p = mp_container(timer, mp_admin_profile, clock);
    mp_stream *stream = p->stream;
    if (stream == NULL)
        return;
    mp_scoped_buf out = {0};
    mp_timer_start(p->loop, &p->clock, PROGRESS_MS, tell_progress);
    if (mp_stream_room(stream) > EVENT_ROOM) {
        mp_buf_printf(&out, "data: {\"event\":\"progress\",\"ms\":%llu,\"samples\":%llu}\n\n",
                      (unsigned long long)(mp_loop_now(p->loop) - p->began_ms), (unsigned long long)totals_of(p).taken);
        mp_stream_send(stream, mp_buf_str(&out));
    }
}

/* -- the request --------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_profile_options options;
    int64_t seconds, worker, hz; /* `worker` -1: all workers */
    const char *wrong;
} profile_request;

static bool read_number(mp_json_type type, mp_str value, int64_t least, int64_t most, int64_t *to)
{
    return type == MP_JSON_NUMBER && mp_json_int(value, to) && *to >= least && *to <= most;
}

static const char *MP_NULLABLE read_tool(mp_json_type type, mp_str value, char *to, size_t room)
{
    mp_scoped_buf text = {0};
    if (type == MP_JSON_STRING)
        mp_json_unescape(&text, value);
    bool fits = type == MP_JSON_STRING && text.len > 0 && text.len < room && memchr(text.ptr, '\0', text.len) == NULL;
    if (fits) {
        memcpy(to, text.ptr, text.len);
        to[text.len] = '\0';
    }
    return fits ? NULL : "tool is a pattern of at most 255 bytes, as in search_*";
}

static int see_member(void *ctx, MP_UNUSED unsigned depth, mp_str key, mp_json_type type, mp_str value)
{
    profile_request *asked = ctx;
    if (mp_str_is(key, "seconds")) {
        if (!read_number(type, value, 1, MAX_SECONDS, &asked->seconds))
            asked->wrong = "seconds is a number from 1 to 300";
    } else if (mp_str_is(key, "hz")) {
        if (!read_number(type, value, 1, MAX_HZ, &asked->hz))
            asked->wrong = "hz is a number from 1 to 1000";
    } else if (mp_str_is(key, "worker")) {
        if (!read_number(type, value, 0, INT32_MAX, &asked->worker))
            asked->wrong = "worker is the number of a worker, from 0";
    } else if (mp_str_is(key, "memory")) {
        if (type != MP_JSON_TRUE && type != MP_JSON_FALSE)
            asked->wrong = "memory is true or false";
        asked->options.memory = type == MP_JSON_TRUE;
    } else if (mp_str_is(key, "tool")) {
        const char *wrong = read_tool(type, value, asked->options.tool, sizeof asked->options.tool);
        asked->wrong = wrong != NULL ? wrong : asked->wrong;
    } else {
        asked->wrong = "the members are seconds, hz, worker, tool and memory";
    }
    return 0;
}

static void add_parts(mp_admin_profile *p, const profile_request *asked, size_t bytes)
{
    int workers = p->gateway->worker_count;
    p->parts = mp_new((size_t)workers * sizeof *p->parts);
    for (int i = 0; i < workers; i++)
        if (asked->worker < 0 || asked->worker == i)
            p->parts[p->part_count++] = (part){mp_profile_new(&asked->options, bytes), i};
}

static void begin_profile(mp_admin_profile *p, mp_stream *stream, const mp_admin_caller *caller,
                          const profile_request *asked)
{
    char what[320];
    snprintf(what, sizeof what, "%s for %lld s%s%s", asked->options.memory ? "memory" : "time",
             (long long)asked->seconds, *asked->options.tool == '\0' ? "" : ", tool ", asked->options.tool);
    mp_audit_request(
        stream,
        &(mp_decision){.event = "profile requested", .caller = mp_str_of(caller->name), .why = mp_str_of(what)});
    if (mp_stream_open_events(stream, NULL, 0) != 0)
        return; /* the client has left */
    p->state = GATHERING;
    p->caller = *caller;
    p->loop = mp_stream_loop(stream);
    p->stream = mp_stream_ref(stream);
    p->began_ms = mp_loop_now(p->loop);
    p->at_part = 0;
    p->at_stack = 0;
    p->without_answer = 0;
    add_parts(p, asked, (size_t)ROOM_BYTES);
    mp_stat_add(&mp_stat_profiles, 1);
    mp_log(MP_INFO, "profile began", mp_log_str("caller", mp_str_of(caller->name)),
           mp_log_str("of", mp_str_of(asked->options.memory ? "memory" : "time")),
           mp_log_int("seconds", asked->seconds));
    for (int i = 0; i < p->part_count; i++)
        post_message(p->gateway, p->parts[i].number, p->parts[i].profile);
    mp_stream_on_gone(stream, on_gone, p);
    mp_timer_start(p->loop, &p->limit, (uint64_t)asked->seconds * 1000, on_limit);
    mp_timer_start(p->loop, &p->clock, PROGRESS_MS, tell_progress);
    mp_scoped_buf out = {0};
    mp_buf_printf(&out, "data: {\"event\":\"profile began\",\"pid\":%d,", (int)getpid());
    mp_buf_printf(&out, "\"seconds\":%lld,\"hz\":%lld,\"unit\":\"%s\",\"workers\":%d}\n\n", (long long)asked->seconds,
                  (long long)asked->hz, asked->options.memory ? "512 KiB" : "samples", p->part_count);
    mp_stream_send(stream, mp_buf_str(&out));
}

void mp_admin_profile_serve(mp_admin_profile *p, const mp_runtime_config *settings, mp_stream *stream,
                            const mp_admin_caller *caller)
{
    profile_request asked = {.seconds = USUAL_SECONDS, .hz = USUAL_HZ, .worker = -1};
    mp_json_type type = MP_JSON_OBJECT;
    mp_str body = mp_stream_request(stream)->body;
    if (body.len > 0 &&
        (mp_json_scan(body, &(mp_json_visitor){.member = see_member, .ctx = &asked}, &type, NULL) != MP_JSON_OK ||
         type != MP_JSON_OBJECT))
        asked.wrong = "send an object, as in {\"seconds\":30,\"tool\":\"search_*\"}";
    asked.options.hz = (unsigned)asked.hz;
    if (asked.wrong != NULL)
        mp_admin_refuse(stream, 400, mp_str_of(asked.wrong));
    else if (asked.worker >= p->gateway->worker_count)
        mp_admin_refuse(stream, 400, MP_STR("there is no such worker: the first one is 0"));
    else if (atomic_load(p->gateway->draining))
        mp_admin_refuse(stream, 503, MP_STR("the gateway is stopping"));
    else if (settings->http.stream_queue < LEAST_STREAM_QUEUE)
        mp_admin_refuse(stream, 503, MP_STR("limits.stream_queue is below 256KiB, which a profile needs"));
    else if (p->state != IDLE)
        mp_admin_refuse(stream, 409, MP_STR("another profile runs: wait until it is over"));
    else
        begin_profile(p, stream, caller, &asked);
}

void mp_admin_profile_serve_end(mp_admin_profile *p, mp_stream *stream, const mp_admin_caller *caller)
{
    if (p->state != GATHERING) {
        mp_admin_refuse(stream, 404, MP_STR("no profile runs"));
        return;
    }
    mp_audit_request(stream, &(mp_decision){.event = "profile ended by operator", .caller = mp_str_of(caller->name)});
    mp_stream_answer(stream, 200, "application/json", MP_STR("{\"ended\":true}\n"), NULL, 0);
    end_gathering(p, "an operator has ended it");
}

/* -- the gateway around it ----------------------------------------------------------------------------------------- */

void mp_admin_profile_configure(mp_admin_profile *p)
{
    mp_stream *stream = p->stream;
    if (p->state != IDLE && stream != NULL && !mp_admin_access_has(p->access, &p->caller)) {
        mp_stream_ref(stream);
        on_gone(p, stream);
        mp_stream_end(stream);
        mp_stream_unref(stream);
    }
}

void mp_admin_profile_stop(mp_admin_profile *p)
{
    end_gathering(p, "the gateway stops");
}

static void on_patience_over(mp_timer *timer)
{
    mp_loop_stop(mp_container(timer, mp_admin_profile, patience)->loop);
}

void mp_admin_profile_await(mp_admin_profile *p, mp_loop *loop)
{
    if (p->state == IDLE) {
        mp_loop_stop(loop);
        return;
    }
    p->stops_loop = true;
    mp_timer_start(loop, &p->patience, PATIENCE_MS, on_patience_over);
    end_gathering(p, "the gateway stops");
}

mp_admin_profile *mp_admin_profile_new(const mp_admin_gateway *gateway, mp_admin_access *access)
{
    mp_admin_profile *p = mp_new(sizeof *p);
    p->gateway = gateway;
    p->access = access;
    return p;
}

void mp_admin_profile_free(mp_admin_profile *MP_NULLABLE p)
{
    if (p != NULL && p->patience.slot != 0)
        mp_timer_stop(p->loop, &p->patience);
    if (p != NULL && p->state != IDLE) {
        p->stops_loop = false;
        p->cause = "the gateway has stopped";
        drop_stream(p);
        settle_profile(p);
    }
    free(p);
}
