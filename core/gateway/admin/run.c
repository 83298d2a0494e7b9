/* run.c: what operators run, and what they ask about tools, resources and prompts. Both are messages to a worker by a console (rpc.h), whose
 * messages come back to the admin thread through a queue. The admin thread reads no more of a message than its id and how it ends. */
#include "run.h"
#include "json/json.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

MP_GAUGE(admin_runs, "admin_runs", "", "", "calls that operators run through the admin listener")
MP_COUNTER(refused_runs, "refused", "reason", "admin_runs", "POST /api/call over admin.runs")
MP_COUNTER(dropped_runs, "dropped", "reason", "admin_runs",
           "messages of calls that operators run, whose readers were too slow")

#define QUESTION_MS 2000 /* a worker that does not answer in this time is stuck */
#define MAX_QUESTIONS 16
#define META_KEY "io.modelcontextprotocol/"

typedef struct news {
    struct news *next;
    uint64_t mark;
    size_t len;
    char json[];
} news;

/* A run, or a question of a page. */
typedef struct {
    mp_link link; /* in mp_admin_runs, while `stream` is not NULL */
    struct mp_admin_runs *runs;
    mp_stream *stream; /* counted reference; NULL once it is over */
    mp_console *console;
    mp_loop *home;
    mp_message arrived;
    mp_timer limit;
    atomic_int refs; /* one of the list, one of each console, one of `arrived` while it is posted */
    bool is_question;
    unsigned worker;
    mp_admin_caller caller;
    const mp_era *era;
    char id[17];
    mp_buf method, params, principal; /* of a run; `principal` is JSON, or empty for `local` */
    mp_buf principal_id;
    unsigned requests;    /* sent so far; the number of the last one is its id */
    uint64_t began_us;    /* when it was sent */
    uint64_t overtaken;   /* notifications that were dropped because the stream had no room */
    pthread_mutex_t lock; /* guards the rest */
    news *first, **last;
    size_t bytes;
    uint64_t dropped;
    size_t most_bytes;
    bool is_posted, is_over;
} run;

typedef struct mp_admin_runs {
    mp_admin *admin;
    mp_link list;
    int64_t run_count, question_count;
    unsigned next_worker;
} mp_admin_runs;

void mp_admin_refuse(mp_stream *stream, int status, mp_str why)
{
    mp_buf out = {0};
    mp_buf_put(&out, MP_STR("{\"error\":"));
    mp_json_put_string(&out, why);
    mp_buf_put(&out, MP_STR("}\n"));
    mp_stream_answer(stream, status, "application/json", mp_buf_str(&out), NULL, 0);
    mp_buf_clear(&out);
}

/* -- from the worker to the admin thread --------------------------------------------------------------------------- */

static void unref_run(run *of)
{
    if (atomic_fetch_sub(&of->refs, 1) != 1)
        return;
    for (news *one; (one = of->first) != NULL;) {
        of->first = one->next;
        free(one);
    }
    mp_buf_clear(&of->method);
    mp_buf_clear(&of->params);
    mp_buf_clear(&of->principal);
    mp_buf_clear(&of->principal_id);
    pthread_mutex_destroy(&of->lock);
    free(of);
}

/* Queues the message; one that is no answer is dropped when the queue is full. */
static void on_sent(void *ctx, uint64_t mark, mp_str json)
{
    run *of = ctx;
    news *one = mp_new(sizeof *one + json.len);
    *one = (news){.mark = mark, .len = json.len};
    memcpy(one->json, json.ptr, json.len);
    pthread_mutex_lock(&of->lock);
    bool is_dropped = of->is_over || (mark == 0 && of->bytes + json.len > of->most_bytes);
    if (is_dropped) {
        of->dropped += !of->is_over;
        free(one);
    } else {
        *of->last = one;
        of->last = &one->next;
        of->bytes += json.len;
    }
    if (!is_dropped && !of->is_posted) { /* under the lock: the admin thread's loop may be gone once `is_over` is set */
        of->is_posted = true;
        atomic_fetch_add(&of->refs, 1);
        mp_loop_post(of->home, &of->arrived);
    }
    pthread_mutex_unlock(&of->lock);
    mp_stat_add(&mp_stat_dropped_runs, is_dropped);
}

static void on_console_freed(void *ctx)
{
    unref_run(ctx);
}

static const mp_console_hooks console_hooks = {on_sent, on_console_freed};

static void open_console(run *of, bool is_hidden)
{
    if (of->console != NULL)
        mp_console_close(of->console, false);
    mp_console_settings settings = {
        .caller = mp_str_of(of->caller.name), .is_hidden = is_hidden, .hooks = &console_hooks, .ctx = of};
    if (!is_hidden) {
        settings.id = mp_buf_str(&of->principal_id);
        settings.principal = mp_buf_str(&of->principal);
    }
    if (settings.caller.len == 0)
        settings.caller = MP_STR("unknown");
    atomic_fetch_add(&of->refs, 1);
    of->console = mp_console_open(mp_admin_shared(of->runs->admin)->table, of->worker, &settings);
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

/* Takes the run from the list. The stream may have ended already. */
static void close_run(run *of, bool is_operator)
{
    mp_stream *stream = of->stream;
    if (stream == NULL)
        return;
    of->stream = NULL;
    mp_admin_runs *runs = of->runs;
    pthread_mutex_lock(&of->lock);
    of->is_over = true;
    pthread_mutex_unlock(&of->lock);
    if (of->is_question)
        runs->question_count--;
    else
        runs->run_count--;
    mp_stat_add(&mp_stat_admin_runs, of->is_question ? 0 : -1);
    mp_timer_stop(of->home, &of->limit);
    mp_stream_on_gone(stream, NULL, NULL);
    mp_stream_unref(stream);
    mp_link_drop(&of->link);
    if (of->console != NULL)
        mp_console_close(of->console, is_operator);
    of->console = NULL;
    unref_run(of);
}

static void on_gone(void *ctx, mp_stream *stream)
{
    (void)stream;
    close_run(ctx, false);
}

/* Ends the stream with an event that says why. */
static void end_run(run *of, const char *why, bool is_operator)
{
    mp_stream *stream = of->stream == NULL ? NULL : mp_stream_ref(of->stream);
    if (stream == NULL)
        return;
    mp_buf out = {0};
    pthread_mutex_lock(&of->lock);
    uint64_t dropped = of->dropped + of->overtaken;
    pthread_mutex_unlock(&of->lock);
    mp_buf_printf(&out, "data: {\"event\":\"call closed\",\"why\":\"%s\",\"dropped\":%llu}\n\n", why,
                  (unsigned long long)dropped);
    close_run(of, is_operator);
    mp_stream_send(stream, mp_buf_str(&out));
    mp_stream_end(stream);
    mp_stream_unref(stream);
    mp_buf_clear(&out);
}

static void on_limit(mp_timer *timer)
{
    run *of = mp_container(timer, run, limit);
    if (!of->is_question) {
        end_run(of, "the time of the run is over: see admin.run_time", true);
        return;
    }
    mp_admin_refuse(of->stream, 503, MP_STR("a worker does not answer: see stuck in /status, or try again"));
    close_run(of, false);
}

/* -- members of JSON ----------------------------------------------------------------------------------------------- */

typedef struct {
    const char *name;
    mp_str value; /* a span; empty: the object has no such member */
    mp_json_type type;
} member;

typedef struct {
    member *list;
    size_t count;
    const char *inside; /* an object whose members are in `list`, too; NULL: none */
    bool has_other;     /* the object has a member that is not in `list` */
} members;

static bool enter_member(void *ctx, unsigned level, mp_str key)
{
    const members *of = ctx;
    return level == 1 && of->inside != NULL && mp_str_is(key, of->inside);
}

static int see_member(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    members *of = ctx;
    for (size_t i = 0; i < of->count; i++)
        if (mp_str_is(key, of->list[i].name)) {
            of->list[i].value = value;
            of->list[i].type = type;
            return 0;
        }
    of->has_other = of->has_other || level == 1;
    return 0;
}

/* Finds the members of an object. False if the text is no object. */
static bool read_members(mp_str text, members *of)
{
    mp_json_type type = MP_JSON_NULL;
    mp_json_visitor visitor = {.enter = enter_member, .member = see_member, .ctx = of};
    return mp_json_scan(text, &visitor, &type, NULL) == MP_JSON_OK && type == MP_JSON_OBJECT;
}

static bool is_text(const member *one)
{
    return one->value.len > 0 && one->type == MP_JSON_STRING;
}

/* -- messages to the worker ---------------------------------------------------------------------------------------- */

static void put_meta(mp_buf *out, const mp_era *era, bool has_progress)
{
    mp_buf_put(out, MP_STR("\"_meta\":{"));
    if (has_progress)
        mp_buf_put(out, MP_STR("\"progressToken\":1"));
    if (era->has_sessions) {
        mp_buf_putc(out, '}');
        return;
    }
    mp_buf_printf(out, "%s\"" META_KEY "protocolVersion\":\"%s\",\"" META_KEY "clientCapabilities\":",
                  has_progress ? "," : "", era->date);
    mp_buf_put(out, has_progress ? MP_STR("{\"elicitation\":{\"form\":{},\"url\":{}},\"sampling\":{},\"roots\":{}}")
                                 : MP_STR("{}"));
    if (has_progress)
        mp_buf_put(out,
                   MP_STR(",\"" META_KEY "clientInfo\":{\"name\":\"moonpool dashboard\",\"version\":\"" MOONPOOL_VERSION
                          "\"},\"" META_KEY "logLevel\":\"debug\""));
    mp_buf_putc(out, '}');
}

static void send_text(run *of, const char *json)
{
    mp_console_send(of->console, mp_str_of(json));
}

/* Sends the request with these params, an object. */
static void send_request(run *of, mp_str params)
{
    mp_buf out = {0};
    mp_buf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":", ++of->requests);
    mp_buf_put(&out, mp_buf_str(&of->method));
    mp_buf_put(&out, MP_STR(",\"params\":{"));
    put_meta(&out, of->era, true);
    mp_str rest = mp_str_trim(mp_str_from(params, 1)); /* behind the '{' */
    if (rest.ptr[0] != '}')
        mp_buf_putc(&out, ',');
    mp_buf_put(&out, rest);
    mp_buf_putc(&out, '}');
    of->began_us = mp_monotonic_us();
    mp_console_send(of->console, mp_buf_str(&out));
    mp_buf_clear(&out);
}

static void begin_call(run *of)
{
    open_console(of, false);
    if (!of->era->has_sessions) {
        send_request(of, mp_buf_str(&of->params));
        return;
    }
    mp_buf out = {0};
    mp_buf_printf(
        &out,
        "{\"jsonrpc\":\"2.0\",\"id\":\"open\",\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"%s\","
        "\"capabilities\":{\"elicitation\":{\"form\":{},\"url\":{}},\"sampling\":{},\"roots\":{}},"
        "\"clientInfo\":{\"name\":\"moonpool dashboard\",\"version\":\"" MOONPOOL_VERSION "\"}}}",
        of->era->date);
    mp_console_send(of->console, mp_buf_str(&out));
    mp_buf_clear(&out);
}

/* Sends a question to lua/moonpool/methods/operator.lua: `params` are its members, as JSON. */
static void ask_lua(run *of, const char *id, mp_str params)
{
    mp_buf out = {0};
    mp_buf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"method\":\"moonpool/inspect\",\"params\":{", id);
    mp_buf_put(&out, params);
    mp_buf_putc(&out, ',');
    put_meta(&out, mp_era_newest(), false);
    mp_buf_put(&out, MP_STR("}}"));
    open_console(of, true);
    mp_console_send(of->console, mp_buf_str(&out));
    mp_buf_clear(&out);
}

/* -- messages of the worker ---------------------------------------------------------------------------------------- */

/* The answer to a question becomes the answer of its HTTP request. */
static void answer_question(run *of, const member *result, const member *message, const member *code)
{
    if (result->value.len > 0) {
        mp_buf out = {0};
        mp_buf_put(&out, result->value);
        mp_buf_putc(&out, '\n');
        mp_stream_answer(of->stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
        mp_buf_clear(&out);
    } else {
        mp_buf why = {0};
        int64_t number = 0;
        if (is_text(message))
            mp_json_unescape(&why, message->value);
        mp_json_int(code->value, &number);
        mp_admin_refuse(of->stream, number == MP_CODE_INVALID_PARAMS ? 404 : 503, mp_buf_str(&why));
        mp_buf_clear(&why);
    }
    close_run(of, false);
}

/* Passes a message on as an event. A notification for which the stream has no room is dropped. */
static void put_event(run *of, uint64_t mark, bool is_note, mp_str json)
{
    mp_buf out = {0};
    mp_buf_put(&out, MP_STR("data: {\"event\":\"message\""));
    if (mark != 0)
        mp_buf_printf(&out, ",\"call\":\"%s\",\"ms\":%.2f", mp_mark_text_of(mark).text,
                      (double)(mp_monotonic_us() - of->began_us) / 1000);
    mp_buf_put(&out, MP_STR(",\"message\":"));
    mp_buf_put(&out, json);
    mp_buf_put(&out, MP_STR("}\n\n"));
    if (mp_stream_room(of->stream) >= out.len) {
        mp_stream_send(of->stream, mp_buf_str(&out)); /* a failed send closes the run */
    } else if (!is_note) {
        end_run(of, "a message does not fit the stream: see limits.stream_queue", false);
    } else {
        of->overtaken++;
        mp_stat_add(&mp_stat_dropped_runs, 1);
    }
    mp_buf_clear(&out);
}

/* Goes on after the answer to one of the messages that come before the request; its `id` is a text. */
static void go_on(run *of, mp_str id, bool is_error, mp_str json)
{
    if (mp_json_string_is(id, MP_STR("level"))) { /* an error: there will be no log messages */
        send_request(of, mp_buf_str(&of->params));
    } else if (is_error) {
        put_event(of, 0, false, json);
        end_run(of, "refused", false);
    } else if (mp_json_string_is(id, MP_STR("principal"))) {
        begin_call(of);
    } else if (mp_json_string_is(id, MP_STR("open"))) {
        send_text(of, "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}");
        send_text(
            of,
            "{\"jsonrpc\":\"2.0\",\"id\":\"level\",\"method\":\"logging/setLevel\",\"params\":{\"level\":\"debug\"}}");
    }
}

static void take_message(run *of, uint64_t mark, mp_str json)
{
    enum { ID, METHOD, RESULT, ERROR, MESSAGE, CODE };
    member list[] = {[ID] = {.name = "id"},       [METHOD] = {.name = "method"},   [RESULT] = {.name = "result"},
                     [ERROR] = {.name = "error"}, [MESSAGE] = {.name = "message"}, [CODE] = {.name = "code"}};
    members of_message = {list, sizeof list / sizeof *list, "error", false};
    if (!read_members(json, &of_message))
        return;
    bool is_error = list[ERROR].value.len > 0;
    if (of->is_question) {
        answer_question(of, &list[RESULT], &list[MESSAGE], &list[CODE]);
    } else if (list[METHOD].value.len > 0) {
        put_event(of, 0, list[ID].value.len == 0, json);
    } else if (is_text(&list[ID])) {
        go_on(of, list[ID].value, is_error, json);
    } else {
        member kind[] = {{.name = "resultType"}};
        members of_result = {kind, 1, NULL, false};
        bool asks = !is_error && read_members(list[RESULT].value, &of_result) && is_text(kind) &&
                    mp_json_string_is(kind->value, MP_STR("input_required"));
        put_event(of, mark, false, json);
        if (!asks)
            end_run(of, "answered", false);
    }
}

static void on_arrived(mp_message *message, mp_loop *loop)
{
    run *of = mp_container(message, run, arrived);
    news *list = NULL;
    if (loop != NULL) { /* else the thread that posts it has the lock */
        mp_loop_measure(loop, MP_MEASURE_ADMIN);
        pthread_mutex_lock(&of->lock);
        list = of->first;
        of->first = NULL;
        of->last = &of->first;
        of->bytes = 0;
        of->is_posted = false;
        pthread_mutex_unlock(&of->lock);
    }
    for (news *one; (one = list) != NULL;) {
        list = one->next;
        if (of->stream != NULL)
            take_message(of, one->mark, (mp_str){one->json, one->len});
        free(one);
    }
    unref_run(of);
}

/* -- all runs ------------------------------------------------------------------------------------------------------ */

static void configure_runs(void *part)
{
    mp_admin_runs *runs = part;
    for (mp_link *link = runs->list.next, *next; link != &runs->list; link = next) {
        run *of = mp_container(link, run, link);
        next = link->next;
        if (!of->is_question && !mp_admin_access_has(mp_admin_access_of(runs->admin), &of->caller))
            end_run(of, "the caller has no longer the role operate", true);
    }
}

static void *make_runs(mp_admin *admin)
{
    mp_admin_runs *runs = mp_new(sizeof *runs);
    runs->admin = admin;
    mp_link_init(&runs->list);
    return runs;
}

static void free_runs(void *part)
{
    mp_admin_runs *runs = part;
    while (!mp_link_is_alone(&runs->list))
        close_run(mp_container(runs->list.next, run, link), false);
    free(runs);
}

static mp_admin_runs *runs_of(mp_admin *admin)
{
    static const mp_admin_part kind = {make_runs, configure_runs, free_runs};
    return mp_admin_part_of(admin, &kind);
}

/* -- requests ------------------------------------------------------------------------------------------------------ */

/* 0 while the gateway starts. */
static unsigned count_workers(mp_admin *admin)
{
    return mp_table_rpcs(mp_admin_shared(admin)->table);
}

/* A run or a question for this request, in the list. Some worker serves. */
static run *new_run(mp_admin_runs *runs, mp_stream *stream, const mp_admin_caller *caller, bool is_question)
{
    const mp_runtime_config *settings = mp_admin_settings(runs->admin);
    run *made = mp_new(sizeof *made);
    made->runs = runs;
    made->home = mp_stream_loop(stream);
    made->caller = *caller;
    made->is_question = is_question;
    made->arrived = (mp_message){.deliver = on_arrived};
    made->last = &made->first;
    made->most_bytes = settings->http.stream_queue;
    made->worker = runs->next_worker++ % count_workers(runs->admin);
    atomic_init(&made->refs, 1);
    pthread_mutex_init(&made->lock, NULL);
    made->stream = mp_stream_ref(stream);
    mp_link_put(&runs->list, &made->link);
    if (is_question)
        runs->question_count++;
    else
        runs->run_count++;
    mp_stat_add(&mp_stat_admin_runs, is_question ? 0 : 1);
    mp_stream_on_gone(stream, on_gone, made);
    mp_timer_start(made->home, &made->limit, is_question ? QUESTION_MS : settings->config->admin_run_ms, on_limit);
    return made;
}

void mp_admin_ask(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str params)
{
    mp_admin_runs *runs = runs_of(admin);
    if (count_workers(admin) == 0) {
        mp_admin_refuse(stream, 503, MP_STR("the gateway starts: try again"));
        return;
    }
    if (runs->question_count >= MAX_QUESTIONS) {
        mp_admin_refuse(stream, 503, MP_STR("too many requests wait for the workers"));
        return;
    }
    ask_lua(new_run(runs, stream, caller, true), "question", params);
}

/* What the body of POST /api/call says. NULL, or why it makes no sense. */
static const char *read_call(mp_str body, run *to)
{
    static const char *const known[] = {"tools/call", "resources/read", "prompts/get", "completion/complete", NULL};
    enum { METHOD, PARAMS, REVISION, PRINCIPAL, MEMBERS };
    member list[MEMBERS] = {{.name = "method"}, {.name = "params"}, {.name = "revision"}, {.name = "principal"}};
    members of = {list, MEMBERS, NULL, false};
    if (!read_members(body, &of) || of.has_other || !is_text(&list[METHOD]) || list[PARAMS].type != MP_JSON_OBJECT)
        return "send an object with method and params, and if needed revision and principal, as in "
               "{\"method\":\"tools/call\",\"params\":{\"name\":\"hello\",\"arguments\":{}}}";
    int i = 0;
    while (known[i] != NULL && !mp_json_string_is(list[METHOD].value, mp_str_of(known[i])))
        i++;
    if (known[i] == NULL)
        return "method is tools/call, resources/read, prompts/get or completion/complete";
    to->era = list[REVISION].value.len == 0 ? mp_era_newest() : NULL;
    for (size_t k = 0; to->era == NULL && k < mp_era_count; k++)
        if (is_text(&list[REVISION]) && mp_json_string_is(list[REVISION].value, mp_str_of(mp_eras[k].date)))
            to->era = &mp_eras[k];
    if (to->era == NULL)
        return "revision is the date of a revision that the gateway serves";
    mp_buf_put(&to->method, list[METHOD].value);
    mp_buf_put(&to->params, list[PARAMS].value);
    member id[] = {{.name = "id"}};
    members of_principal = {id, 1, NULL, false};
    if (list[PRINCIPAL].type == MP_JSON_OBJECT) {
        if (!read_members(list[PRINCIPAL].value, &of_principal) || !is_text(id))
            return "a principal is \"local\", or an object with id, and if needed scopes and claims";
        mp_json_unescape(&to->principal_id, id->value);
        mp_buf_put(&to->principal, list[PRINCIPAL].value);
    } else if (is_text(&list[PRINCIPAL])) {
        if (mp_json_string_is(list[PRINCIPAL].value, MP_STR("local")))
            return NULL;
        mp_json_unescape(&to->principal_id, list[PRINCIPAL].value);
        mp_buf_put(&to->principal, MP_STR("{\"id\":"));
        mp_buf_put(&to->principal, list[PRINCIPAL].value);
        mp_buf_putc(&to->principal, '}');
    } else if (list[PRINCIPAL].value.len > 0) {
        return "a principal is \"local\", or an object with id, and if needed scopes and claims";
    }
    return NULL;
}

/* The tool, prompt or URI that params name; appended to the method for the audit. */
static void put_named(mp_buf *out, const run *of)
{
    member list[] = {{.name = "name"}, {.name = "uri"}};
    members named = {list, 2, NULL, false};
    mp_json_unescape(out, mp_buf_str(&of->method));
    if (!read_members(mp_buf_str(&of->params), &named))
        return;
    const member *one = is_text(&list[0]) ? &list[0] : &list[1];
    if (!is_text(one))
        return;
    mp_buf_putc(out, ' ');
    mp_json_unescape(out, one->value);
}

static void audit(mp_stream *stream, const char *event, const mp_admin_caller *caller, mp_str why)
{
    mp_audit_request(stream, &(mp_decision){.event = event, .caller = mp_str_of(caller->name), .why = why});
}

void mp_api_call(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)rest;
    mp_admin_runs *runs = runs_of(admin);
    if (count_workers(admin) == 0) {
        mp_admin_refuse(stream, 503, MP_STR("the gateway starts: try again"));
        return;
    }
    if (runs->run_count >= mp_admin_settings(admin)->config->admin_runs) {
        mp_stat_add(&mp_stat_refused_runs, 1);
        mp_admin_refuse(stream, 503, MP_STR("too many calls run here: see admin.runs"));
        return;
    }
    run *made = new_run(runs, stream, caller, false);
    const char *wrong = read_call(mp_stream_request(stream)->body, made);
    if (wrong != NULL) {
        mp_admin_refuse(stream, 400, mp_str_of(wrong));
        close_run(made, false);
        return;
    }
    mp_buf out = {0};
    put_named(&out, made);
    audit(stream, "call run by operator", caller, mp_buf_str(&out));
    out.len = 0;
    snprintf(made->id, sizeof made->id, "%s", mp_mark_text_of(mp_mark_new()).text);
    mp_buf_printf(&out, "data: {\"event\":\"call opened\",\"run\":\"%s\",\"revision\":\"%s\"}\n\n", made->id,
                  made->era->date);
    atomic_fetch_add(&made->refs, 1); /* a failed send closes the run */
    if (mp_stream_open_events(stream, NULL, 0) != 0 || mp_stream_send(stream, mp_buf_str(&out)) != 0) {
        close_run(made, false);
    } else if (made->principal.len == 0) {
        begin_call(made);
    } else {
        out.len = 0;
        mp_buf_put(&out, MP_STR("\"what\":\"principal\",\"principal\":"));
        mp_buf_put(&out, mp_buf_str(&made->principal));
        ask_lua(made, "principal", mp_buf_str(&out));
    }
    unref_run(made);
    mp_buf_clear(&out);
}

static run *find_run(const mp_admin_runs *runs, mp_str id)
{
    for (mp_link *link = runs->list.next; link != &runs->list; link = link->next) {
        run *of = mp_container(link, run, link);
        if (!of->is_question && mp_str_is(id, of->id))
            return of;
    }
    return NULL;
}

/* Sends the client's response to the worker: `value` is the member `name`. */
static void send_response(run *of, mp_str id, const char *name, mp_str value)
{
    mp_buf out = {0};
    mp_buf_put(&out, MP_STR("{\"jsonrpc\":\"2.0\",\"id\":"));
    mp_buf_put(&out, id);
    mp_buf_printf(&out, ",\"%s\":", name);
    mp_buf_put(&out, value);
    mp_buf_putc(&out, '}');
    mp_console_send(of->console, mp_buf_str(&out));
    mp_buf_clear(&out);
}

/* Does what the body says. NULL, or why it makes no sense. */
static const char *take_answer(run *of, mp_str body)
{
    enum { ID, RESULT, ERROR, PARAMS, CANCEL, MEMBERS };
    member list[MEMBERS] = {
        {.name = "id"}, {.name = "result"}, {.name = "error"}, {.name = "params"}, {.name = "cancel"}};
    members given = {list, MEMBERS, NULL, false};
    if (!read_members(body, &given) || given.has_other)
        return "send {\"id\", \"result\" or \"error\"} to answer a question, {\"params\"} to send the request again, "
               "or "
               "{\"cancel\":true}";
    if (list[CANCEL].type == MP_JSON_TRUE) {
        end_run(of, "cancelled by an operator", true);
        return NULL;
    }
    if (of->requests == 0)
        return "the call has not begun yet";
    if (list[PARAMS].type == MP_JSON_OBJECT && !of->era->has_sessions)
        send_request(of, list[PARAMS].value);
    else if (is_text(&list[ID]) && list[RESULT].value.len > 0)
        send_response(of, list[ID].value, "result", list[RESULT].value);
    else if (is_text(&list[ID]) && list[ERROR].type == MP_JSON_OBJECT)
        send_response(of, list[ID].value, "error", list[ERROR].value);
    else
        return "id is that of the question; result is any value, error an object; params is for revisions without "
               "sessions";
    return NULL;
}

void mp_api_answer(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    run *of = find_run(runs_of(admin), rest);
    if (of == NULL) {
        mp_admin_refuse(stream, 404, MP_STR("no such run: it has ended, or its stream names another one"));
        return;
    }
    audit(stream, "call answered by operator", caller, rest);
    const char *wrong = take_answer(of, mp_stream_request(stream)->body);
    if (wrong != NULL)
        mp_admin_refuse(stream, 400, mp_str_of(wrong));
    else
        mp_stream_answer(stream, 200, "application/json", MP_STR("{\"sent\":true}\n"), NULL, 0);
}
