/* others.c: requests to the admin listener that all processes of the gateway answer, and the counts of processes that
 * have ended. */
#define _GNU_SOURCE /* for memmem */
#include "others_state.h"
#include "pages.h"
#include "join.h"
#include "event_feed.h"
#include "query_slots.h"
#include "run.h"
#include "tap.h"
#include "metrics.h"
#include "json/json.h"
#include <unistd.h>

MP_COUNTER(others_unanswered, "processes_unanswered", "", "",
           "questions that another process of this gateway did not answer in time")

MP_REFUSED(refused_others, "admin_processes", MP_LIMIT_REACHED,
           "requests of /status and /metrics that found 64 others waiting for the processes of this gateway")

#define MAX_WAITING 64 /* requests of /status and /metrics; each keeps an answer of each process */
#define LIMIT_MS 1000  /* for the answer of another process, beside MP_QUESTION_MS where it asks its workers */
#define TICK_MS 1000   /* between two looks whether this process is still the newest */
#define MOST_ASKED 5   /* times that the process before this one is asked for its history */
/* ticks between two readings of the counts of other processes, which are lost if such a process is killed */
#define POLL_TICKS 5
/* bytes of all answers: of 32 processes with the largest answers, for a moment */
#define MAX_HELD ((size_t)1 << 30)
#define MAX_REQUESTS 1024 /* requests to other processes; of those that wait for workers at most 16 */
#define IDLE_MS 4000      /* a connection to another process is kept */

typedef struct round round;

typedef struct {
    round *of;
    mp_process_facts facts;
    mp_transfer *MP_NULLABLE transfer; /* NULL: it cannot be asked */
    mp_buf counted; /* the answer with counts that a process gave last, for when it does not answer */
} asked;

/* A question to several processes. */
struct round {
    mp_link link;
    mp_others *all;
    mp_stream *MP_NULLABLE stream; /* counted reference; NULL: nobody waits for an answer */
    mp_admin_view view;
    bool is_open, is_relayed; /* is_open: OpenMetrics; is_relayed: the answer is that of another process alone */
    bool is_late;             /* the time of the other processes is over */
    /* takes the answer of a process, where no client waits for the round */
    void (*MP_NULLABLE take)(round *of, asked *one);
    mp_buf body;
    mp_timer limit, next;
    size_t count;
    asked list[]; /* the first is this process */
};

static void *make_others(mp_admin *admin);
static void configure_others(void *part);
static void free_others(void *part);

mp_others *mp_others_of(mp_admin *admin)
{
    static const mp_admin_part kind = {make_others, configure_others, free_others};
    return mp_admin_part_of(admin, &kind);
}

mp_client *mp_others_client(mp_admin *admin)
{
    return mp_others_of(admin)->client;
}

mp_link *mp_others_streams(mp_admin *admin)
{
    return &mp_others_of(admin)->streams;
}

/* -- what processes have counted ----------------------------------------------------------------------------------- */

void mp_others_put_status(mp_admin *admin, mp_buf *out)
{
    mp_buf_put(out, mp_buf_str(&mp_others_of(admin)->left.status));
}

void mp_others_put_metrics(mp_admin *admin, mp_buf *out)
{
    mp_buf_put(out, mp_buf_str(&mp_others_of(admin)->left.metrics));
}

/* -- questions ----------------------------------------------------------------------------------------------------- */

static bool asks_workers(mp_admin_view view)
{
    return view != MP_VIEW_STATUS && view != MP_VIEW_METRICS && view != MP_VIEW_JOBS;
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
            mp_admin_query_slots_give(mp_admin_query_slots_of(of->all->admin), 0);
        else
            of->all->waiting--;
        mp_stream_on_gone(stream, NULL, NULL);
        mp_stream_unref(stream);
    }
    free(of);
}

static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
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

/* Keeps the counts in another process's answer and returns them. For a process that does not answer, returns the counts
 * of its last answer. */
static mp_str known_of(round *of, asked *one)
{
    bool is_there = status_of(one) == 200, lives = mp_processes_has(mp_others_processes(of->all), one->facts.number);
    mp_left_record *MP_NULLABLE known = lives ? mp_left_record_of(&of->all->left, one->facts.number, true) : NULL;
    /* the counts of a process that has ended are in `left` already */
    if (!lives || (known != NULL && known->has_ended))
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
    mp_scoped_buf upgrade = {0};
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
    return is_good;
}

static bool join_lists(round *of, mp_buf *out, mp_str unanswered)
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

/* Takes the other processes' answers about jobs, and answers with the facts of all. False if this process has not
 * answered. */
static bool join_jobs(const round *of, mp_buf *out)
{
    mp_lib_forget_jobs_elsewhere();
    for (size_t i = 1; i < of->count; i++)
        if (status_of(&of->list[i]) == 200)
            mp_lib_take_jobs(body_of(&of->list[i]));
    mp_api_put_jobs(out, true);
    return status_of(&of->list[0]) == 200;
}

static void refuse_request(mp_stream *stream, const char *why)
{
    mp_admin_refuse(stream, 503, mp_str_of(why));
}

static bool is_done(const asked *one)
{
    return status_of(one) >= 200 && status_of(one) < 300;
}

/* Returns the answer of the process that has the thing of the request; if no process has it, the answer of this one. */
static const asked *answer_of_one(const round *of)
{
    for (size_t i = 0; i < of->count; i++)
        if (is_done(&of->list[i]))
            return &of->list[i];
    return &of->list[0];
}

static void answer_round(round *of, mp_stream *stream, mp_str unanswered)
{
    mp_scoped_buf out = {0};
    const asked *one = of->view == MP_VIEW_ONE ? answer_of_one(of) : &of->list[0];
    int status = status_of(one);
    bool is_joined = false;
    if (of->is_relayed)
        ;
    else if (of->view == MP_VIEW_STATUS || of->view == MP_VIEW_METRICS)
        is_joined = join_numbers(of, &out);
    else if (of->view == MP_VIEW_LIST)
        is_joined = join_lists(of, &out, unanswered);
    else if (of->view == MP_VIEW_JOBS)
        is_joined = join_jobs(of, &out);
    else if (of->view == MP_VIEW_ALL && is_done(one))
        mp_join_unanswered(&out, body_of(one), unanswered);
    if (status == 0)
        refuse_request(stream, of->is_relayed
                                   ? "the process does not answer: see upgrade in /status"
                                   : "this process does not reach its own socket: try again, and restart it if "
                                     "the folder of the socket was removed");
    else if (of->view == MP_VIEW_ONE && status == 404 && unanswered.len > 0)
        refuse_request(stream, "not found in the processes that answer; others do not answer: see upgrade in /status");
    else
        mp_stream_answer(stream, status, type_of(of), is_joined || out.len > 0 ? mp_buf_str(&out) : body_of(one), NULL,
                         0);
}

/* Counts the other processes that have not answered, or could not do what they were asked to. Appends members of a JSON
 * object that give their number and their pids; nothing if there are none. */
static unsigned list_unanswered(const round *of, mp_buf *members)
{
    unsigned count = 0;
    mp_scoped_buf pids = {0};
    bool is_action = of->view == MP_VIEW_ALL || of->view == MP_VIEW_ONE;
    for (size_t i = 1; i < of->count; i++)
        if (status_of(&of->list[i]) == 0 || (is_action && status_of(&of->list[i]) >= 500))
            mp_buf_printf(&pids, "%s%d", count++ > 0 ? "," : "", of->list[i].facts.pid);
    if (count > 0)
        mp_buf_printf(members, "\"processes_without_answer\":%u,\"pids_without_answer\":[%.*s]", count,
                      MP_STR_ARG(mp_buf_str(&pids)));
    return count;
}

static void conclude_round(round *of)
{
    mp_scoped_buf members = {0};
    unsigned unanswered = list_unanswered(of, &members);
    const mp_admin_gateway *gateway = mp_admin_gateway_of(of->all->admin);
    mp_stream *stream = of->stream;
    mp_stat_add(&mp_stat_others_unanswered, unanswered);
    /* an unanswering process compares its switches with the store when it runs again */
    if (of->view == MP_VIEW_ALL && unanswered > 0)
        gateway->say_lost(gateway->self);
    mp_loop_measure(mp_admin_loop(of->all->admin), MP_MEASURE_ADMIN);
    mp_left_settle(&of->all->left, mp_others_processes(of->all));
    if (stream != NULL) {
        mp_stream_ref(stream);
        mp_stream_on_gone(stream, NULL, NULL);
        answer_round(of, stream, mp_buf_str(&members));
        mp_stream_unref(stream);
    } else {
        for (size_t i = 0; i < of->count; i++)
            MP_NEVER_NULL(of->take)(of, &of->list[i]);
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
        conclude_round(of);
}

/* Called when bytes of an answer have arrived. */
static void on_ready(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    round *of = ((asked *)ctx)->of;
    mp_timer_start(mp_admin_loop(of->all->admin), &of->next, 0, on_next);
}

static void on_limit(mp_timer *timer)
{
    round *of = mp_container(timer, round, limit);
    if (of->is_late || !is_asking(&of->list[0])) {
        conclude_round(of);
        return;
    }
    of->is_late = true; /* this process waits for its own workers for as long as without other processes */
    mp_timer_start(mp_admin_loop(of->all->admin), &of->limit, LIMIT_MS, on_limit);
}

static round *new_round(mp_others *all, mp_stream *MP_NULLABLE stream, mp_admin_view view, size_t most)
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

static void begin_round(round *of, uint64_t limit_ms)
{
    mp_loop *loop = mp_admin_loop(of->all->admin);
    mp_timer_start(loop, &of->limit, limit_ms, on_limit);
    mp_timer_start(loop, &of->next, 0, on_next); /* concludes the round if no process could be asked */
    if (of->stream != NULL)
        mp_stream_detect_close(of->stream); /* may close the round */
}

/* The processes to ask, this one first. */
static size_t list_processes(mp_others *all, mp_process_facts facts[MP_OLDER_MOST + 2])
{
    mp_processes *processes = mp_others_processes(all);
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

static uint64_t limit_of(mp_admin_view view)
{
    return LIMIT_MS + (asks_workers(view) ? MP_QUESTION_MS : 0);
}

static void put_target(mp_buf *out, mp_str path, mp_str query)
{
    mp_buf_put(out, path);
    if (query.len > 0)
        mp_buf_printf(out, "?%.*s", MP_STR_ARG(query));
}

/* False: the request was refused. */
static bool take_place(mp_others *all, mp_stream *stream, mp_admin_view view)
{
    if (asks_workers(view))
        return mp_admin_query_slots_take(mp_admin_query_slots_of(all->admin), stream);
    if (all->waiting >= MAX_WAITING) {
        mp_stat_add(&mp_stat_refused_others, 1);
        refuse_request(stream, "64 requests wait for the processes of this gateway: ask again in a second");
        return false;
    }
    all->waiting++;
    return true;
}

static void ask_processes(mp_others *all, mp_stream *stream, mp_admin_view view, const mp_others_question *question,
                          const mp_process_facts *facts, size_t count)
{
    if (!take_place(all, stream, view))
        return;
    const mp_request *request = mp_stream_request(stream);
    mp_str method = mp_str_is(request->method, "HEAD") ? MP_STR("GET") : request->method;
    round *of = new_round(all, stream, view, count);
    of->is_open = question->is_open;
    of->is_relayed = facts[0].number != mp_processes_number(mp_others_processes(all));
    for (size_t i = 0; i < count; i++)
        add_process(of, &facts[i], method, question);
    begin_round(of, limit_of(view));
}

/* A request by a connection that was open before another process became the newest. */
static void pass_on(mp_others *all, mp_stream *stream, const mp_admin_caller *caller, mp_admin_view view)
{
    const mp_request *request = mp_stream_request(stream);
    mp_scoped_buf target = {0};
    mp_process_facts newest = {.number = mp_processes_newest(mp_others_processes(all))};
    if (view == MP_VIEW_FOLLOWED &&
        mp_str_is(request->method, "GET")) { /* without an end: it would keep this process */
        refuse_request(stream, "another process has taken over: try again, by another connection");
        return;
    }
    if (view == MP_VIEW_EVENTS || view == MP_VIEW_FOLLOWED) {
        mp_others_open_events(all->admin, stream, caller, &newest, 1);
        return;
    }
    put_target(&target, request->path, request->query);
    const mp_others_question question = {mp_buf_str(&target), mp_str_of(caller->name),
                                         view == MP_VIEW_METRICS && accepts_open(stream), true};
    ask_processes(all, stream, view, &question, &newest, 1);
}

/* The status of the only process that is left. True. */
static bool answer_alone(mp_others *all, mp_stream *stream)
{
    mp_scoped_buf own = {0}, out = {0};
    mp_admin_gateway_of(all->admin)->door->put_status(all->admin, &own);
    const mp_str texts[] = {mp_buf_str(&own), mp_buf_str(&all->left.status)};
    mp_join_status(&out, texts, all->left.status.len > 0 ? 2 : 1, MP_STR("[]"));
    mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
    return true;
}

bool mp_others_answer(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_admin_view view,
                      mp_str rest)
{
    mp_others *all = mp_others_of(admin);
    const mp_request *request = mp_stream_request(stream);
    /* The newest process has added the counts of this one: if this one counted on and answered, sums would fall when
     * it ends. */
    if (all->has_left && !asks_workers(view)) {
        refuse_request(stream, "this process is about to end: ask the newest process of the gateway");
        return true;
    }
    if (view == MP_VIEW_OWN || caller->is_process || all->door == NULL)
        return false;
    mp_left_settle(&all->left, mp_others_processes(all));
    if (!mp_processes_are_several(mp_others_processes(all)) &&
        (mp_left_is_empty(&all->left) || view != MP_VIEW_METRICS))
        return view == MP_VIEW_STATUS && !mp_left_is_empty(&all->left) && answer_alone(all, stream);
    if (!mp_processes_is_newest(mp_others_processes(all))) {
        pass_on(all, stream, caller, view);
        return true;
    }
    if (view == MP_VIEW_NEWEST || view == MP_VIEW_FOLLOWED)
        return false;
    mp_process_facts facts[MP_OLDER_MOST + 2];
    size_t count = list_processes(all, facts), first = 0;
    mp_str name = rest;
    mp_scoped_buf target = {0};
    int pid = view == MP_VIEW_ONE ? mp_others_pid(rest, &name) : 0;
    bool is_own = view == MP_VIEW_ONE && pid == 0 && memchr(rest.ptr, '-', rest.len) != NULL;
    while (pid != 0 && first < count && facts[first].pid != pid)
        first++;
    if (view == MP_VIEW_JOBS)
        put_target(&target, MP_STR("/process/jobs"), MP_STR_NONE);
    else
        put_target(&target, (mp_str){request->path.ptr, request->path.len - rest.len}, MP_STR_NONE);
    put_target(&target, name, request->query);
    const mp_others_question question = {mp_buf_str(&target), mp_str_of(caller->name),
                                         view == MP_VIEW_METRICS && accepts_open(stream), false};
    if (first == count)
        mp_admin_refuse(stream, 404, MP_STR("no process of this gateway has this number: see upgrade in /status"));
    else if (!is_own && view == MP_VIEW_EVENTS)
        mp_others_open_events(admin, stream, caller, facts, count);
    else if (!is_own)
        ask_processes(all, stream, view, &question, facts + first, pid == 0 ? count : 1);
    return !is_own;
}

bool mp_others_open_process(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, int64_t pid)
{
    mp_process_facts facts[MP_OLDER_MOST + 2];
    size_t count = list_processes(mp_others_of(admin), facts), i = 1;
    while (i < count && facts[i].pid != pid)
        i++;
    if (i < count)
        mp_others_open_events(admin, stream, caller, &facts[i], 1);
    return i < count;
}

/* -- without a request --------------------------------------------------------------------------------------------- */

/* Takes the counts of another process, so that little is lost if that process is killed. */
static void take_counted(round *of, asked *one)
{
    known_of(of, one);
}

/* Takes the numbers of another process for the charts. */
static void take_numbers(round *of, asked *one)
{
    if (status_of(one) == 200)
        mp_admin_live_take_numbers(mp_admin_live_of(of->all->admin), one->facts.number, body_of(one));
}

static void take_rows(round *of, asked *one)
{
    if (status_of(one) != 200)
        return;
    mp_admin_live_take_rows(mp_admin_live_of(of->all->admin), body_of(one));
    of->all->rows_asked = MOST_ASKED;
}

static void take_jobs(MP_UNUSED round *of, asked *one)
{
    if (status_of(one) == 200)
        mp_lib_take_jobs(body_of(one));
}

/* Asks the other processes, or one of them, for facts for this process itself: no client waits. */
static void poll_others(mp_others *all, uint16_t only, mp_admin_view view, const char *target,
                        void (*take)(round *of, asked *one))
{
    mp_process_facts facts[MP_OLDER_MOST + 2];
    size_t count = list_processes(all, facts);
    if (count < 2)
        return;
    round *of = new_round(all, NULL, view, count);
    of->take = take;
    for (size_t i = 1; i < count; i++)
        if (only == 0 || facts[i].number == only)
            add_process(of, &facts[i], MP_STR("GET"), &(mp_others_question){.target = mp_str_of(target)});
    begin_round(of, LIMIT_MS);
}

/* At the start of a process that an upgrade has begun, while the process before it still lives. */
static void ask_past(mp_others *all)
{
    uint16_t before = mp_admin_gateway_of(all->admin)->handed_by;
    if (before == 0 || all->rows_asked >= MOST_ASKED)
        return;
    all->rows_asked++;
    poll_others(all, before, MP_VIEW_NEWEST, "/api/history?span=hour", take_rows);
    poll_others(all, before, MP_VIEW_NEWEST, "/api/history?span=day", take_rows);
    poll_others(all, before, MP_VIEW_JOBS, "/process/jobs", take_jobs);
}

void mp_others_on_tick(mp_timer *timer)
{
    mp_others *all = mp_container(timer, mp_others, tick);
    mp_admin_live *live = mp_admin_live_of(all->admin);
    mp_left_settle(&all->left, mp_others_processes(all));
    mp_admin_live_settle(live, mp_others_processes(all));
    ask_past(all);
    if (!mp_processes_is_newest(mp_others_processes(all))) {
        mp_others_review_events(all->admin, false);
        mp_admin_taps_configure(mp_admin_taps_of(all->admin));
        mp_admin_live_configure(live);
    } else {
        poll_others(all, 0, MP_VIEW_NEWEST, "/process/numbers", take_numbers);
        if (all->ticks++ % POLL_TICKS == 0) {
            poll_others(all, 0, MP_VIEW_STATUS, "/status", take_counted);
            poll_others(all, 0, MP_VIEW_METRICS, "/metrics", take_counted);
        }
    }
    mp_timer_start(mp_admin_loop(all->admin), &all->tick, TICK_MS, mp_others_on_tick);
}

/* -- the part of the listener -------------------------------------------------------------------------------------- */

static void *make_others(mp_admin *admin)
{
    mp_others *all = mp_new(sizeof *all);
    all->admin = admin;
    all->door_fd = -1;
    all->client = mp_client_new(
        mp_admin_loop(admin),
        &(mp_client_limits){
            .requests = MAX_REQUESTS, .lookups = 1, .held = MAX_HELD, .idle_ms = IDLE_MS, .is_inner = true});
    return all;
}

static void configure_others(void *part)
{
    mp_others *all = part;
    mp_server *MP_NULLABLE door = all->door;
    mp_http_limits limits = mp_others_door_limits(all);
    if (door != NULL)
        mp_server_configure(door, &limits);
    mp_others_review_events(all->admin, false);
}

static void free_others(void *part)
{
    mp_others *all = part;
    mp_loop *loop = mp_admin_loop(all->admin);
    while (!mp_link_is_alone(&all->rounds))
        close_round(mp_container(all->rounds.next, round, link));
    mp_others_review_events(all->admin, true);
    mp_transfer_free(all->leaving);
    mp_timer_stop(loop, &all->leave);
    mp_timer_stop(loop, &all->tick);
    mp_client_free(all->client);
    if (all->door != NULL || all->door_fd >= 0)
        mp_unlink_address(&all->at);
    if (all->door_fd >= 0)
        close(all->door_fd);
    mp_server_free(all->door);
    mp_left_clear(&all->left);
    mp_buf_clear(&all->last);
    free(all);
}
