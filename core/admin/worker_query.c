/* worker_query.c: what pages and operators ask of a worker's Lua (lua/moonpool/methods/operator.lua): a message by a
 * hidden console (rpc/observe.h), whose answer comes back to the admin thread by an queue and becomes the answer of the
 * HTTP request. What changes something is asked of one worker first; then all workers are asked whether they follow, so
 * that a caller who has the answer knows that every worker obeys. */
#include "run.h"
#include "console_queue.h"
#include "query_slots.h"
#include "json/json.h"

MP_COUNTER(dropped_admin_questions, "dropped", "reason", "admin_questions",
           "answers of workers to the admin listener that were larger than limits.call.output")

#define ENVELOPE_BYTES 4096 /* bytes of an answer beside its result, which limits.call.output bounds */

typedef struct {
    mp_admin *admin;
    mp_link list;
    unsigned next_worker;
} queries;

typedef struct {
    mp_link link; /* in queries.list, while `stream` is not NULL */
    queries *all;
    mp_stream *MP_NULLABLE stream; /* counted reference; NULL once it is over */
    mp_console_queue *queue;       /* its last reference frees the question; not used once the question is over */
    mp_loop *loop;
    mp_timer limit;
    mp_admin_caller caller;
    mp_buf params, then; /* `params`: the question for one worker; `then`: the question for all workers once that one
                            has answered, empty for none */
    mp_buf why;          /* for the audit, with the event `done`, once that worker has answered */
    const char *MP_NULLABLE done;
    mp_buf result;                      /* the first worker's answer while all workers are asked; a JSON object */
    unsigned left, wrong;               /* workers that have not answered `then`, and those that have failed */
    unsigned worker, workers;           /* number of the worker that is asked; number of all workers */
    bool is_second;                     /* the worker that was asked first did not answer in time */
    mp_console *MP_NULLABLE consoles[]; /* by worker; NULL: not asked */
} query;

static void *make_queries(mp_admin *admin)
{
    queries *made = mp_new(sizeof *made);
    made->admin = admin;
    return made;
}

static void configure_queries(MP_UNUSED void *part) {}

static void free_queries(void *part);

static queries *queries_of(mp_admin *admin)
{
    static const mp_admin_part kind = {make_queries, configure_queries, free_queries};
    return mp_admin_part_of(admin, &kind);
}

/* -- messages to workers ------------------------------------------------------------------------------------------- */

/* Frees a question, once its queue has no reference any more. On any thread. */
static void free_query(void *ctx)
{
    query *of = ctx;
    mp_buf_clear(&of->params);
    mp_buf_clear(&of->then);
    mp_buf_clear(&of->why);
    mp_buf_clear(&of->result);
    free(of);
}

#define ASKED "question" /* ids of the messages, and so of their answers */
#define FOLLOWS "then"

/* Puts a question to a worker. An earlier question that it has not answered is withdrawn, so that the worker no longer
 * acts on it. */
static void ask_worker(query *of, unsigned worker, const char *id, const mp_buf *params)
{
    mp_scoped_buf out = {0};
    mp_console_settings settings = {.caller = mp_str_of(of->caller.name), .is_hidden = true};
    if (of->consoles[worker] != NULL)
        mp_console_close(of->consoles[worker], false);
    mp_console *console =
        mp_console_queue_open(of->queue, mp_admin_gateway_of(of->all->admin)->table, worker, &settings);
    of->consoles[worker] = console;
    mp_admin_put_question(&out, id, mp_buf_str(params));
    mp_console_send(console, mp_buf_str(&out));
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

/* Takes the question from the list. The stream may have ended already. `unanswered`: workers that have not answered in
 * time. */
static void close_query(query *of, unsigned unanswered)
{
    mp_stream *stream = of->stream;
    if (stream == NULL)
        return;
    of->stream = NULL;
    mp_admin_query_slots_give(mp_admin_query_slots_of(of->all->admin), unanswered);
    mp_timer_stop(of->loop, &of->limit);
    mp_stream_on_gone(stream, NULL, NULL);
    mp_stream_unref(stream);
    mp_link_drop(&of->link);
    for (unsigned i = 0; i < of->workers; i++)
        if (of->consoles[i] != NULL)
            mp_console_close(of->consoles[i], false);
    mp_console_queue_close(of->queue);
}

static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    close_query(ctx, 0);
}

static void answer_query(query *of, mp_stream *stream, mp_str result, unsigned unanswered)
{
    mp_scoped_buf out = {0};
    mp_buf_put(&out, result);
    mp_buf_putc(&out, '\n');
    mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
    close_query(of, unanswered);
}

/* Answers with the first worker's answer, and with the number of workers that have not applied the change. */
static void conclude_query(query *of, mp_stream *stream)
{
    of->result.len--; /* the '}' */
    mp_buf_printf(&of->result, ",\"workers_without_answer\":%u}", of->left + of->wrong);
    answer_query(of, stream, mp_buf_str(&of->result), of->left);
}

/* Asks another worker, once, and closes the question to the first one. */
static void ask_second(query *of)
{
    mp_console *console = of->consoles[of->worker];
    of->consoles[of->worker] = NULL;
    if (console != NULL)
        mp_console_close(console, false);
    of->is_second = true;
    of->worker = (of->worker + 1) % of->workers;
    mp_stat_add(&mp_stat_admin_unanswered, 1);
    ask_worker(of, of->worker, ASKED, &of->params);
}

static void on_limit(mp_timer *timer)
{
    query *of = mp_container(timer, query, limit);
    mp_stream *stream = of->stream;
    if (stream == NULL)
        return;
    if (of->result.len > 0) {
        conclude_query(of, stream);
    } else if (!of->is_second && of->workers > 1) {
        ask_second(of);
        mp_timer_start(of->loop, &of->limit, MP_QUESTION_MS, on_limit);
    } else {
        mp_admin_refuse(stream, 503, MP_STR("a worker does not answer: see stuck in /status, or try again"));
        close_query(of, 1);
    }
}

/* -- answers of workers -------------------------------------------------------------------------------------------- */

typedef struct {
    mp_str id, result, message, code; /* parts of the answer's JSON text; empty: the answer has no such member */
} outcome;

static bool enter_error(MP_UNUSED void *ctx, unsigned level, mp_str key)
{
    return level == 1 && mp_str_is(key, "error");
}

static int see_member(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    outcome *found = ctx;
    if (level == 1 && mp_str_is(key, "result") && type == MP_JSON_OBJECT)
        found->result = value;
    else if (level == 1 && mp_str_is(key, "id") && type == MP_JSON_STRING)
        found->id = value;
    else if (level == 2 && mp_str_is(key, "message") && type == MP_JSON_STRING)
        found->message = value;
    else if (level == 2 && mp_str_is(key, "code"))
        found->code = value;
    return 0;
}

static void refuse_question(query *of, mp_stream *stream, const outcome *found)
{
    mp_scoped_buf why = {0};
    int64_t code = 0;
    if (found->message.len > 0)
        mp_json_unescape(&why, found->message);
    mp_json_int(found->code, &code);
    mp_admin_refuse(stream, code == MP_CODE_INVALID_PARAMS ? 404 : 503, mp_buf_str(&why));
    close_query(of, 0);
}

/* One worker has made the change. Asks all workers, including that worker, whether they have applied the change: each
 * answers once it has. */
static void ask_all(query *of, mp_str result)
{
    mp_buf_put(&of->result, result);
    of->left = of->workers;
    for (unsigned i = 0; i < of->workers; i++)
        ask_worker(of, i, FOLLOWS, &of->then);
    mp_timer_start(of->loop, &of->limit, MP_QUESTION_MS, on_limit);
}

static void audit_done(query *of, mp_stream *stream)
{
    if (of->done != NULL)
        mp_audit_request(
            stream,
            &(mp_decision){.event = of->done, .caller = mp_str_of(of->caller.name), .why = mp_buf_str(&of->why)});
}

static void take_answer(void *ctx, MP_UNUSED uint64_t mark, mp_str json)
{
    query *of = ctx;
    mp_stream *stream = of->stream;
    if (stream == NULL)
        return;
    outcome found = {0};
    mp_json_scan(json, &(mp_json_visitor){.enter = enter_error, .member = see_member, .ctx = &found}, NULL, NULL);
    if (of->result.len > 0) {
        /* otherwise it is a second answer to the question before */
        bool follows = found.id.len > 0 && mp_json_string_is(found.id, MP_STR(FOLLOWS));
        of->left -= follows;
        of->wrong += follows && found.result.len == 0;
        if (of->left == 0)
            conclude_query(of, stream);
    } else if (found.result.len == 0) {
        refuse_question(of, stream, &found);
    } else {
        audit_done(of, stream);
        if (of->then.len > 0)
            ask_all(of, found.result);
        else
            answer_query(of, stream, found.result, 0);
    }
}

static void on_overflow(void *ctx)
{
    query *of = ctx;
    mp_stream *stream = of->stream;
    if (stream == NULL)
        return;
    mp_admin_refuse(stream, 503, MP_STR("the answer of a worker is larger than limits.call.output"));
    close_query(of, 0);
}

/* -- all questions ------------------------------------------------------------------------------------------------- */

static void free_queries(void *part)
{
    queries *all = part;
    while (!mp_link_is_alone(&all->list))
        close_query(mp_container(all->list.next, query, link), 0);
    free(all);
}

static void begin_query(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller,
                        const mp_admin_change *change)
{
    queries *all = queries_of(admin);
    const mp_config *config = mp_admin_settings(admin)->config;
    unsigned workers = mp_session_table_rpcs(mp_admin_gateway_of(admin)->table);
    if (workers == 0) {
        mp_admin_refuse(stream, 503, MP_STR("the gateway starts: try again"));
        return;
    }
    if (!mp_admin_query_slots_take(mp_admin_query_slots_of(admin), stream))
        return;
    query *made = mp_new(sizeof *made + workers * sizeof *made->consoles);
    made->all = all;
    made->loop = mp_stream_loop(stream);
    made->caller = *caller;
    if (*made->caller.name == '\0')
        snprintf(made->caller.name, sizeof made->caller.name, "unknown");
    made->queue = mp_console_queue_new(
        &(mp_console_queue_settings){made->loop, config->lib.vm.call_output + ENVELOPE_BYTES,
                                     &mp_stat_dropped_admin_questions, take_answer, on_overflow, free_query, made});
    made->workers = workers;
    made->worker = all->next_worker++ % workers;
    mp_buf_put(&made->params, change->params);
    mp_buf_put(&made->then, change->then);
    mp_buf_put(&made->why, change->why);
    made->done = change->done;
    made->stream = mp_stream_ref(stream);
    mp_link_put(&all->list, &made->link);
    mp_stream_on_gone(stream, on_gone, made);
    mp_timer_start(made->loop, &made->limit, MP_QUESTION_MS, on_limit);
    ask_worker(made, made->worker, ASKED, &made->params);
    mp_stream_detect_close(stream); /* may close the question */
}

void mp_admin_ask(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str params)
{
    begin_query(admin, stream, caller, &(mp_admin_change){.params = params});
}

/* The request has a line of its own: its client may leave before the worker answers. */
void mp_admin_ask_change(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller,
                         const mp_admin_change *change)
{
    mp_audit_request(stream,
                     &(mp_decision){.event = change->requested, .caller = mp_str_of(caller->name), .why = change->why});
    begin_query(admin, stream, caller, change);
}
