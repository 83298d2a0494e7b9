/* others.c: questions to all processes, and what those that end leave behind. */
#define _GNU_SOURCE /* for memmem */
#include "others.h"
#include "others_left.h"
#include "join.h"
#include "places.h"
#include "run.h"
#include "tap.h"
#include "gateway/metrics.h"
#include "json/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

MP_COUNTER(others_unanswered, "processes_unanswered", "", "",
           "questions that another process of this gateway did not answer in time")

MP_COUNTER(refused_others, "refused", "reason", "admin_processes",
           "requests of /status and /metrics that found 64 others waiting for the processes of this gateway")

#define MAX_WAITING 64 /* requests of /status and /metrics; each keeps an answer of each process */
#define LIMIT_MS 1000  /* for the answer of another process, beside admin.question_time where it asks its workers */
#define LEAVE_MS 1000  /* for what this process leaves behind */
#define TICK_MS 1000   /* between two looks whether this process is still the newest */
#define POLL_TICKS 5   /* between two questions what the others count: no more is lost with one that is killed */
#define MAX_HELD ((size_t)1 << 30) /* of all answers: those of 32 processes at their caps, for a moment */
#define MAX_REQUESTS 1024          /* admin.questions bounds them */
#define IDLE_MS 4000               /* a connection to another process is kept */
#define DOOR_RESERVE 256           /* connections of other processes, above limits.connections */

typedef struct others {
    mp_admin *admin;
    mp_client *client;
    mp_server *MP_NULLABLE door;
    mp_address at; /* of the door */
    mp_link rounds, streams;
    mp_timer tick;
    unsigned ticks, waiting; /* waiting: requests of /status and /metrics */
    mp_others_left left;
    /* this process ends */
    bool has_left; /* what it has counted is on its way to the newest process */
    mp_transfer *MP_NULLABLE leaving;
    mp_timer leave;
    mp_buf last;
    void (*on_left)(mp_admin *admin);
} others;

typedef struct round round;

typedef struct {
    round *of;
    mp_process_facts facts;
    mp_transfer *MP_NULLABLE transfer; /* NULL: it cannot be asked */
    mp_buf counted;                    /* by a process that does not answer */
} asked;

/* A question to several processes. */
struct round {
    mp_link link;
    others *all;
    mp_stream *MP_NULLABLE stream; /* counted reference; NULL: nobody waits for an answer */
    mp_admin_view view;
    bool is_open, is_relayed; /* is_open: OpenMetrics; is_relayed: the answer is that of another process alone */
    bool is_late;             /* the time of the other processes is over */
    mp_buf body;
    mp_timer limit, next;
    size_t count;
    asked list[]; /* the first is this process */
};

static void *make_others(mp_admin *admin);
static void configure_others(void *part);
static void free_others(void *part);

static others *others_of(mp_admin *admin)
{
    static const mp_admin_part kind = {make_others, configure_others, free_others};
    return mp_admin_part_of(admin, &kind);
}

mp_client *mp_others_client(mp_admin *admin)
{
    return others_of(admin)->client;
}

mp_link *mp_others_streams(mp_admin *admin)
{
    return &others_of(admin)->streams;
}

static mp_processes *processes_of(const others *all)
{
    return mp_admin_shared(all->admin)->processes;
}

/* -- what processes have counted ----------------------------------------------------------------------------------- */

void mp_others_put_status(mp_admin *admin, mp_buf *out)
{
    mp_buf_put(out, mp_buf_str(&others_of(admin)->left.status));
}

void mp_others_put_metrics(mp_admin *admin, mp_buf *out)
{
    mp_buf_put(out, mp_buf_str(&others_of(admin)->left.metrics));
}

/* -- questions ----------------------------------------------------------------------------------------------------- */

static bool asks_workers(mp_admin_view view)
{
    return view != MP_VIEW_STATUS && view != MP_VIEW_METRICS;
}

static void close_round(round *of)
{
    mp_loop *loop = mp_admin_loop(of->all->admin);
    mp_stream *stream = of->stream;
    mp_timer_stop(loop, &of->limit);
    mp_timer_stop(loop, &of->next);
    for (size_t i = 0; i < of->count; i++) {
        mp_transfer_free(of->list[i].transfer);
        mp_buf_clear(&of->list[i].counted);
    }
    mp_link_drop(&of->link);
    mp_buf_clear(&of->body);
    if (stream != NULL) {
        if (asks_workers(of->view))
            mp_admin_places_give(mp_admin_places_of(of->all->admin), 0);
        else
            of->all->waiting--;
        mp_stream_on_gone(stream, NULL, NULL);
        mp_stream_unref(stream);
    }
    free(of);
}

static void on_gone(void *ctx, mp_stream *stream)
{
    (void)stream;
    close_round(ctx);
}

/* The status of an answer; 0: there is none. */
static int status_of(const asked *one)
{
    mp_transfer *transfer = one->transfer;
    bool is_there = transfer != NULL && mp_transfer_is_over(transfer) && mp_transfer_failure(transfer) == NULL;
    return is_there ? mp_transfer_status(transfer) : 0;
}

static mp_str body_of(const asked *one)
{
    mp_transfer *transfer = one->transfer;
    return transfer == NULL ? MP_STR_NONE : mp_transfer_body(transfer);
}

static bool is_asking(const asked *one)
{
    mp_transfer *transfer = one->transfer;
    return transfer != NULL && !mp_transfer_is_over(transfer);
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

static const char *type_of(const round *of)
{
    if (of->view != MP_VIEW_METRICS)
        return "application/json";
    return of->is_open ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                       : "text/plain; version=0.0.4; charset=utf-8";
}

static void put_facts(mp_buf *out, const asked *one, mp_str status)
{
    const mp_process_facts *facts = &one->facts;
    mp_buf_printf(out, "%s{\"pid\":%d,\"version\":", out->len > 1 ? "," : "", facts->pid);
    mp_json_put_string(out, mp_str_of(facts->version));
    mp_buf_printf(out, ",\"since\":%lld", (long long)facts->since);
    if (status_of(one) == 200)
        mp_buf_printf(out, ",\"sessions\":%lld,\"calls\":%lld}", (long long)mp_join_sum_of(status, "sessions"),
                      (long long)mp_join_sum_of(status, "requests_in_flight"));
    else
        mp_buf_put(out, MP_STR(",\"answers\":false}"));
}

/* Keeps what another process has answered, and returns it; of one that does not answer what it had counted last. */
static mp_str known_of(round *of, asked *one)
{
    bool is_there = status_of(one) == 200, lives = mp_processes_has(processes_of(of->all), one->facts.number);
    mp_left_record *MP_NULLABLE known = lives ? mp_left_record_of(&of->all->left, one->facts.number, true) : NULL;
    if (!lives || (known != NULL && known->has_ended)) /* what it has counted is in what it has left */
        return MP_STR_NONE;
    if (known != NULL && !(is_there && of->is_open)) /* the texts that are kept have one format */
        mp_left_keep(known, of->view == MP_VIEW_STATUS, is_there ? body_of(one) : MP_STR_NONE, &one->counted);
    return is_there ? body_of(one) : mp_buf_str(&one->counted);
}

/* Joins the texts of all. False: this process has not answered. */
static bool join_numbers(round *of, mp_buf *out)
{
    mp_str texts[2 * (MP_OLDER_MOST + 3)];
    size_t count = 0;
    mp_buf upgrade = {0};
    bool is_status = of->view == MP_VIEW_STATUS, is_good = status_of(&of->list[0]) == 200;
    mp_buf_putc(&upgrade, '[');
    for (size_t i = 0; i < of->count && is_good; i++) {
        mp_str text = i == 0 ? body_of(&of->list[0]) : known_of(of, &of->list[i]);
        if (is_status && i > 0)
            put_facts(&upgrade, &of->list[i], text);
        if (is_status)
            count += mp_left_split(text, texts + count);
        else
            texts[count++] = text;
    }
    mp_str left = mp_buf_str(is_status ? &of->all->left.status : &of->all->left.metrics);
    if (left.len > 0)
        texts[count++] = left;
    mp_buf_putc(&upgrade, ']');
    if (is_good && is_status)
        is_good = mp_join_status(out, texts, count, mp_buf_str(&upgrade));
    else if (is_good)
        mp_join_metrics(out, texts, count, mp_metrics_adds_up, false, of->is_open);
    mp_buf_clear(&upgrade);
    return is_good;
}

static bool join_lists(round *of, mp_buf *out, unsigned unanswered)
{
    mp_str texts[MP_OLDER_MOST + 2];
    int pids[MP_OLDER_MOST + 2];
    size_t count = 0;
    for (size_t i = 0; i < of->count; i++)
        if (status_of(&of->list[i]) == 200) {
            texts[count] = body_of(&of->list[i]);
            pids[count++] = of->list[i].facts.pid;
        }
    return status_of(&of->list[0]) == 200 && mp_join_lists(out, texts, pids, count, unanswered);
}

static void refuse(mp_stream *stream, const char *why)
{
    mp_admin_refuse(stream, 503, mp_str_of(why));
}

/* The answer of the process that has what was asked for; else that of this one. */
static const asked *answer_of_one(const round *of)
{
    for (size_t i = 0; i < of->count; i++)
        if (status_of(&of->list[i]) >= 200 && status_of(&of->list[i]) < 300)
            return &of->list[i];
    return &of->list[0];
}

static void answer(round *of, mp_stream *stream, unsigned unanswered)
{
    mp_buf out = {0};
    const asked *one = of->view == MP_VIEW_ONE ? answer_of_one(of) : &of->list[0];
    int status = status_of(one);
    bool is_joined = false;
    if (of->is_relayed)
        ;
    else if (of->view == MP_VIEW_STATUS || of->view == MP_VIEW_METRICS)
        is_joined = join_numbers(of, &out);
    else if (of->view == MP_VIEW_LIST)
        is_joined = join_lists(of, &out, unanswered);
    else if (of->view == MP_VIEW_ALL && status == 200)
        mp_join_unanswered(&out, body_of(one), unanswered);
    if (status == 0)
        refuse(stream, of->is_relayed ? "the process does not answer: see upgrade in /status" : "try again");
    else if (of->view == MP_VIEW_ONE && status == 404 && unanswered > 0)
        refuse(stream, "not in the processes that answer, and others do not: see upgrade in /status");
    else
        mp_stream_answer(stream, status, type_of(of), is_joined || out.len > 0 ? mp_buf_str(&out) : body_of(one), NULL,
                         0);
    mp_buf_clear(&out);
}

static void conclude(round *of)
{
    unsigned unanswered = 0;
    mp_stream *stream = of->stream;
    for (size_t i = 1; i < of->count; i++)
        unanswered += status_of(&of->list[i]) == 0 || (of->view == MP_VIEW_ALL && status_of(&of->list[i]) >= 500);
    mp_stat_add(&mp_stat_others_unanswered, unanswered);
    mp_loop_measure(mp_admin_loop(of->all->admin), MP_MEASURE_ADMIN);
    mp_left_settle(&of->all->left, processes_of(of->all));
    if (stream != NULL) {
        mp_stream_ref(stream);
        mp_stream_on_gone(stream, NULL, NULL);
        answer(of, stream, unanswered);
        mp_stream_unref(stream);
    } else {
        for (size_t i = 0; i < of->count; i++)
            known_of(of, &of->list[i]);
    }
    close_round(of);
}

/* -- the course of a round ----------------------------------------------------------------------------------------- */

static void on_next(mp_timer *timer)
{
    round *of = mp_container(timer, round, next);
    bool waits = is_asking(&of->list[0]);
    for (size_t i = 1; i < of->count && !of->is_late; i++)
        waits = waits || is_asking(&of->list[i]);
    if (!waits)
        conclude(of);
}

/* May run inside libcurl. */
static void on_ready(mp_transfer *transfer, void *ctx)
{
    round *of = ((asked *)ctx)->of;
    (void)transfer;
    mp_timer_start(mp_admin_loop(of->all->admin), &of->next, 0, on_next);
}

static void on_limit(mp_timer *timer)
{
    round *of = mp_container(timer, round, limit);
    if (of->is_late || !is_asking(&of->list[0])) {
        conclude(of);
        return;
    }
    of->is_late = true; /* this process waits for its own workers, as it does alone */
    mp_timer_start(mp_admin_loop(of->all->admin), &of->limit, LIMIT_MS, on_limit);
}

static round *new_round(others *all, mp_stream *MP_NULLABLE stream, mp_admin_view view, size_t most)
{
    round *of = mp_new(sizeof *of + most * sizeof *of->list);
    of->all = all;
    of->view = view;
    mp_link_put(&all->rounds, &of->link);
    if (stream == NULL)
        return of;
    of->stream = mp_stream_ref(stream);
    mp_buf_put(&of->body, mp_stream_request(stream)->body);
    mp_stream_on_gone(stream, on_gone, of);
    return of;
}

/* Begins to ask a process; the first one that is added is this one. */
static void add_process(round *of, const mp_process_facts *facts, mp_str method, const mp_others_question *question)
{
    asked *one = &of->list[of->count++];
    char verb[16];
    snprintf(verb, sizeof verb, "%.*s", MP_STR_ARG(method));
    one->of = of;
    one->facts = *facts;
    mp_outgoing how = {.method = verb,
                       .body = of->body.len > 0 ? mp_buf_str(&of->body) : MP_STR_NONE,
                       .is_repeatable = mp_str_is(method, "GET"),
                       .connect_ms = LIMIT_MS,
                       .ready = on_ready,
                       .ctx = one};
    one->transfer = mp_others_ask(of->all->admin, facts->number, &how, question);
}

static void begin(round *of, uint64_t limit_ms)
{
    mp_loop *loop = mp_admin_loop(of->all->admin);
    mp_timer_start(loop, &of->limit, limit_ms, on_limit);
    mp_timer_start(loop, &of->next, 0, on_next); /* it may be that none can be asked */
    if (of->stream != NULL)
        mp_stream_detect_close(of->stream); /* may close the round */
}

/* The processes to ask, this one first. */
static size_t list_processes(others *all, mp_process_facts facts[MP_OLDER_MOST + 2])
{
    mp_processes *processes = processes_of(all);
    mp_process_facts living[MP_OLDER_MOST + 1];
    int count = mp_processes_list(processes, living);
    size_t used = 1;
    facts[0] = (mp_process_facts){.number = mp_processes_number(processes), .pid = getpid()};
    for (int i = 0; i < count; i++) {
        const mp_left_record *known = mp_left_record_of(&all->left, living[i].number, false);
        if (known == NULL || !known->has_ended)
            facts[used++] = living[i];
    }
    return used;
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

static bool accepts_open(const mp_stream *stream)
{
    mp_str accept = mp_stream_header(stream, "accept", NULL), wanted = MP_STR("application/openmetrics-text");
    return accept.len > 0 && memmem(accept.ptr, accept.len, wanted.ptr, wanted.len) != NULL;
}

static uint64_t limit_of(const others *all, mp_admin_view view)
{
    return LIMIT_MS + (asks_workers(view) ? mp_admin_settings(all->admin)->config->admin_question_ms : 0);
}

static void put_target(mp_buf *out, mp_str path, mp_str query)
{
    mp_buf_put(out, path);
    if (query.len > 0)
        mp_buf_printf(out, "?%.*s", MP_STR_ARG(query));
}

/* False: the request was refused. */
static bool take_place(others *all, mp_stream *stream, mp_admin_view view)
{
    if (asks_workers(view))
        return mp_admin_places_take(mp_admin_places_of(all->admin),
                                    mp_admin_settings(all->admin)->config->admin_questions, stream);
    if (all->waiting >= MAX_WAITING) {
        mp_stat_add(&mp_stat_refused_others, 1);
        refuse(stream, "64 requests wait for the processes of this gateway: ask again in a second");
        return false;
    }
    all->waiting++;
    return true;
}

static void ask(others *all, mp_stream *stream, mp_admin_view view, const mp_others_question *question,
                const mp_process_facts *facts, size_t count)
{
    if (!take_place(all, stream, view))
        return;
    const mp_request *request = mp_stream_request(stream);
    mp_str method = mp_str_is(request->method, "HEAD") ? MP_STR("GET") : request->method;
    round *of = new_round(all, stream, view, count);
    of->is_open = question->is_open;
    of->is_relayed = facts[0].number != mp_processes_number(processes_of(all));
    for (size_t i = 0; i < count; i++)
        add_process(of, &facts[i], method, question);
    begin(of, limit_of(all, view));
}

/* A request by a connection that was open before another process became the newest. */
static void pass_on(others *all, mp_stream *stream, const mp_admin_caller *caller, mp_admin_view view)
{
    const mp_request *request = mp_stream_request(stream);
    mp_buf target = {0};
    mp_process_facts newest = {.number = mp_processes_newest(processes_of(all))};
    if (view == MP_VIEW_EVENTS) {
        refuse(stream, "another process has taken over: try again, by another connection");
        return;
    }
    put_target(&target, request->path, request->query);
    const mp_others_question question = {mp_buf_str(&target), mp_str_of(caller->name),
                                         view == MP_VIEW_METRICS && accepts_open(stream), true};
    ask(all, stream, view, &question, &newest, 1);
    mp_buf_clear(&target);
}

/* The status of the only process that is left. True. */
static bool answer_alone(others *all, mp_stream *stream)
{
    mp_buf own = {0}, out = {0};
    mp_admin_shared(all->admin)->admin_door->put_status(all->admin, &own);
    const mp_str texts[] = {mp_buf_str(&own), mp_buf_str(&all->left.status)};
    mp_join_status(&out, texts, all->left.status.len > 0 ? 2 : 1, MP_STR("[]"));
    mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
    mp_buf_clear(&own);
    mp_buf_clear(&out);
    return true;
}

bool mp_others_answer(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_admin_view view,
                      mp_str rest)
{
    others *all = others_of(admin);
    const mp_request *request = mp_stream_request(stream);
    if (all->has_left && !asks_workers(view)) { /* numbers that are higher than those it has left would fall again */
        refuse(stream, "this process ends");
        return true;
    }
    if (view == MP_VIEW_OWN || caller->is_process || all->door == NULL)
        return false;
    mp_left_settle(&all->left, processes_of(all));
    if (!mp_processes_are_several(processes_of(all)) && (mp_left_is_empty(&all->left) || view != MP_VIEW_METRICS))
        return view == MP_VIEW_STATUS && !mp_left_is_empty(&all->left) && answer_alone(all, stream);
    if (!mp_processes_is_newest(processes_of(all))) {
        pass_on(all, stream, caller, view);
        return true;
    }
    mp_process_facts facts[MP_OLDER_MOST + 2];
    size_t count = list_processes(all, facts), first = 0;
    mp_str name = rest;
    mp_buf target = {0};
    int pid = view == MP_VIEW_ONE ? mp_others_pid(rest, &name) : 0;
    bool is_own = view == MP_VIEW_ONE && pid == 0 && memchr(rest.ptr, '-', rest.len) != NULL;
    while (pid != 0 && first < count && facts[first].pid != pid)
        first++;
    put_target(&target, (mp_str){request->path.ptr, request->path.len - rest.len}, MP_STR_NONE);
    put_target(&target, name, request->query);
    const mp_others_question question = {mp_buf_str(&target), mp_str_of(caller->name),
                                         view == MP_VIEW_METRICS && accepts_open(stream), false};
    if (first == count)
        mp_admin_refuse(stream, 404, MP_STR("no process of this gateway has this number: see upgrade in /status"));
    else if (!is_own && view == MP_VIEW_EVENTS)
        mp_others_open_events(admin, stream, caller, facts, count);
    else if (!is_own)
        ask(all, stream, view, &question, facts + first, pid == 0 ? count : 1);
    mp_buf_clear(&target);
    return !is_own;
}

/* -- without a request --------------------------------------------------------------------------------------------- */

/* Asks the others what they count, so that little of it is lost with one that is killed. */
static void poll_others(others *all)
{
    static const mp_admin_view views[] = {MP_VIEW_STATUS, MP_VIEW_METRICS};
    static const char *const targets[] = {"/status", "/metrics"};
    mp_process_facts facts[MP_OLDER_MOST + 2];
    size_t count = list_processes(all, facts);
    for (int n = 0; n < 2 && count > 1; n++) {
        round *of = new_round(all, NULL, views[n], count);
        for (size_t i = 1; i < count; i++)
            add_process(of, &facts[i], MP_STR("GET"), &(mp_others_question){.target = mp_str_of(targets[n])});
        begin(of, LIMIT_MS);
    }
}

static void on_tick(mp_timer *timer)
{
    others *all = mp_container(timer, others, tick);
    mp_left_settle(&all->left, processes_of(all));
    if (!mp_processes_is_newest(processes_of(all))) {
        mp_others_review_events(all->admin, true);
        mp_admin_taps_configure(mp_admin_taps_of(all->admin));
    } else if (all->ticks++ % POLL_TICKS == 0) {
        poll_others(all);
    }
    mp_timer_start(mp_admin_loop(all->admin), &all->tick, TICK_MS, on_tick);
}

/* -- the end of a process ------------------------------------------------------------------------------------------ */

void mp_others_take_end(mp_admin *admin, mp_stream *stream)
{
    others *all = others_of(admin);
    int64_t number;
    mp_str query = mp_stream_request(stream)->query, name = MP_STR("number="), body = mp_stream_request(stream)->body;
    if (!mp_str_starts(query, name) || !mp_json_int(mp_str_from(query, name.len), &number) || number <= 0 ||
        number > UINT16_MAX) {
        mp_admin_refuse(stream, 400, MP_STR("the query is number=N"));
        return;
    }
    if (!mp_processes_has(processes_of(all), (uint16_t)number) ||
        !mp_left_take_end(&all->left, (uint16_t)number, body)) {
        mp_admin_refuse(stream, 409, MP_STR("what was last known of this process counts already"));
        return;
    }
    mp_stream_answer(stream, 200, "application/json", MP_STR("{}\n"), NULL, 0);
}

static void on_left(mp_timer *timer)
{
    others *all = mp_container(timer, others, leave);
    mp_transfer_free(all->leaving);
    all->leaving = NULL;
    mp_buf_clear(&all->last);
    all->on_left(all->admin);
}

/* May run inside libcurl. */
static void on_taken(mp_transfer *transfer, void *ctx)
{
    others *all = ctx;
    (void)transfer;
    mp_timer_start(mp_admin_loop(all->admin), &all->leave, 0, on_left);
}

void mp_others_leave(mp_admin *admin, void (*left)(mp_admin *admin))
{
    others *all = others_of(admin);
    mp_processes *processes = processes_of(all);
    const mp_admin_door *door = mp_admin_shared(admin)->admin_door;
    char target[64];
    all->on_left = left;
    if (all->door != NULL && mp_processes_are_several(processes) && !mp_processes_is_newest(processes)) {
        all->has_left = true;
        door->put_status(admin, &all->last);
        mp_buf_put(&all->last, all->left.status.len > 0 ? mp_buf_str(&all->left.status) : MP_STR("{}\n"));
        door->put_metrics(admin, &all->last);
        snprintf(target, sizeof target, "/process/end?number=%u", mp_processes_number(processes));
        const mp_outgoing how = {
            .method = "POST", .body = mp_buf_str(&all->last), .connect_ms = LEAVE_MS, .ready = on_taken, .ctx = all};
        all->leaving = mp_others_ask(admin, mp_processes_newest(processes), &how,
                                     &(mp_others_question){.target = mp_str_of(target)});
    }
    mp_timer_start(mp_admin_loop(admin), &all->leave, all->leaving == NULL ? 0 : LEAVE_MS, on_left);
}

/* -- the door ------------------------------------------------------------------------------------------------------ */

static mp_http_limits limits_of(const others *all)
{
    mp_http_limits limits = mp_admin_settings(all->admin)->http;
    limits.body = limits.body > MP_OTHERS_ANSWER ? limits.body : MP_OTHERS_ANSWER; /* what a process leaves behind */
    limits.bodies = limits.bodies > MP_OTHERS_ANSWER ? limits.bodies : MP_OTHERS_ANSWER;
    return limits;
}

typedef struct {
    mp_message super;
    mp_admin *admin;
    mp_address at;
    int fd;
} opening;

/* On the admin thread. `loop` NULL: it has ended. */
static void deliver(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    opening *given = mp_container(message, opening, super);
    others *MP_NULLABLE all = loop == NULL ? NULL : others_of(given->admin);
    mp_err err = {0};
    mp_http_limits limits = all == NULL ? (mp_http_limits){0} : limits_of(all);
    mp_server *MP_NULLABLE door = all == NULL || loop == NULL ? NULL : mp_server_new(loop, &limits, &err);
    const mp_endpoint endpoint = {.on_request = mp_admin_shared(given->admin)->admin_door->serve,
                                  .ctx = given->admin,
                                  .reserve = DOOR_RESERVE,
                                  .is_shared = true};
    if (all == NULL || door == NULL || all->door != NULL || mp_server_listen(door, given->fd, &endpoint, &err) != 0) {
        mp_log(MP_WARN, "door not opened", mp_log_str("why", mp_str_of(err.text)));
        mp_unlink_address(&given->at);
        close(given->fd);
        mp_server_free(door);
    } else {
        all->door = door;
        all->at = given->at;
        mp_timer_start(loop, &all->tick, 0, on_tick);
    }
    free(given);
}

int mp_admin_open_door(mp_admin *admin, mp_err *err)
{
    mp_shared *shared = mp_admin_shared(admin);
    char path[MP_PROCESS_PATH], where[MP_PROCESS_PATH + 8];
    if (!mp_processes_path(shared->processes, mp_processes_number(shared->processes), "admin", path))
        return mp_err_set(err, "the path of the folder for upgrades is too long");
    opening *made = mp_new(sizeof *made);
    made->super = (mp_message){.deliver = deliver};
    made->admin = admin;
    snprintf(where, sizeof where, "unix:%s", path);
    if (mp_listen(where, 1, 0, &(mp_socket_file){0600, NULL}, &made->fd, &made->at, err) != 0) {
        free(made);
        return -1;
    }
    mp_loop_post(mp_admin_loop(admin), &made->super);
    return 0;
}

static void *make_others(mp_admin *admin)
{
    others *all = mp_new(sizeof *all);
    all->admin = admin;
    all->client = mp_client_new(
        mp_admin_loop(admin),
        &(mp_client_limits){
            .requests = MAX_REQUESTS, .lookups = 1, .held = MAX_HELD, .idle_ms = IDLE_MS, .is_inner = true});
    mp_link_init(&all->rounds);
    mp_link_init(&all->streams);
    return all;
}

static void configure_others(void *part)
{
    others *all = part;
    mp_server *MP_NULLABLE door = all->door;
    mp_http_limits limits = limits_of(all);
    if (door != NULL)
        mp_server_configure(door, &limits);
    mp_others_review_events(all->admin, false);
}

static void free_others(void *part)
{
    others *all = part;
    mp_loop *loop = mp_admin_loop(all->admin);
    while (!mp_link_is_alone(&all->rounds))
        close_round(mp_container(all->rounds.next, round, link));
    mp_others_review_events(all->admin, true);
    mp_transfer_free(all->leaving);
    mp_timer_stop(loop, &all->leave);
    mp_timer_stop(loop, &all->tick);
    mp_client_free(all->client);
    if (all->door != NULL)
        mp_unlink_address(&all->at);
    mp_server_free(all->door);
    mp_left_clear(&all->left);
    mp_buf_clear(&all->last);
    free(all);
}
