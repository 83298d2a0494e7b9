/* run.c: calls that operators run. A run sends messages to a worker by a console (rpc/observe.h); the console's
 * messages come back to the admin thread by a queue. The admin thread reads only the id of a message and how it ends.
 */
#include "run.h"
#include "call_body.h"
#include "console_queue.h"
#include "json/json.h"
#include <moonpool/version.h>

MP_GAUGE(admin_runs, "admin_runs", "", "", "calls that operators run through the admin listener")
MP_REFUSED(refused_runs, "admin_runs", MP_LIMIT_REACHED, "POST /api/call while 16 calls of operators run")
MP_COUNTER(dropped_runs, "dropped", "reason", "admin_runs",
           "messages of calls that operators run, whose readers were too slow")

#define MAX_RUNS MP_LIMIT(admin_runs, 16) /* calls at the same time: people run one after the other */
/* ms of one call, including the time in which the operator answers its questions */
#define RUN_MS MP_LIMIT(admin_run_ms, 15 * 60 * 1000)
#define TOO_LARGE "a message does not fit the stream: see limits.stream_queue"
#define NOTE_ROOM 256 /* bytes of a stream that messages leave free for the event that says why the run ends */
#define META_KEY "io.modelcontextprotocol/"

typedef struct {
    mp_link link; /* in mp_admin_runs, while `stream` is not NULL */
    struct mp_admin_runs *runs;
    mp_stream *MP_NULLABLE stream;   /* counted reference; NULL once it is over */
    mp_console_queue *queue;         /* freeing its last reference frees the run; not used once the run is over */
    mp_console *MP_NULLABLE console; /* NULL before the first message, and once it is over */
    mp_loop *loop;
    mp_timer limit;
    unsigned worker;
    mp_admin_caller caller;
    mp_call_body asked;
    char id[17];
    unsigned requests;  /* requests sent so far; the id of the last one is this number */
    uint64_t began_us;  /* when the call was sent */
    uint64_t overtaken; /* notifications that were dropped because the stream had no room */
} run;

typedef struct mp_admin_runs {
    mp_admin *admin;
    mp_link list;
    int64_t run_count;
    unsigned next_worker;
} mp_admin_runs;

/* -- the worker's side --------------------------------------------------------------------------------------------- */

/* Frees a run, once its queue has no reference any more. On any thread. */
static void free_run(void *ctx)
{
    run *of = ctx;
    mp_call_body_clear(&of->asked);
    free(of);
}

static void open_console(run *of, bool is_hidden)
{
    mp_console *before = of->console;
    if (before != NULL)
        mp_console_close(before, false);
    mp_console_settings settings = {.caller = mp_str_of(of->caller.name), .is_hidden = is_hidden};
    if (!is_hidden) {
        settings.id = mp_buf_str(&of->asked.principal_id);
        settings.principal = mp_buf_str(&of->asked.principal);
    }
    if (settings.caller.len == 0)
        settings.caller = MP_STR("unknown");
    of->console = mp_console_queue_open(of->queue, mp_admin_gateway_of(of->runs->admin)->table, of->worker, &settings);
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
    runs->run_count--;
    mp_stat_add(&mp_stat_admin_runs, -1);
    mp_timer_stop(of->loop, &of->limit);
    mp_stream_on_gone(stream, NULL, NULL);
    mp_stream_unref(stream);
    mp_link_drop(&of->link);
    mp_console *console = of->console;
    of->console = NULL;
    if (console != NULL)
        mp_console_close(console, is_operator);
    mp_console_queue_close(of->queue);
}

static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    close_run(ctx, false);
}

/* Ends the stream with an event that says why. */
static void end_run(run *of, const char *why, bool is_operator)
{
    mp_stream *stream = of->stream;
    if (stream == NULL)
        return;
    mp_stream_ref(stream);
    mp_scoped_buf out = {0};
    uint64_t dropped = mp_console_queue_dropped(of->queue) + of->overtaken;
    mp_buf_printf(&out, "data: {\"event\":\"call closed\",\"why\":\"%s\",\"dropped\":%llu}\n\n", why,
                  (unsigned long long)dropped);
    close_run(of, is_operator);
    mp_stream_send(stream, mp_buf_str(&out));
    mp_stream_end(stream);
    mp_stream_unref(stream);
}

static void on_limit(mp_timer *timer)
{
    end_run(mp_container(timer, run, limit), "the time of a run is over, 15 minutes", true);
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

static void send_to_worker(run *of, mp_str json)
{
    mp_console *console = of->console;
    if (console != NULL)
        mp_console_send(console, json);
}

/* Sends the request with these params, an object. */
static void send_request(run *of, mp_str params)
{
    mp_scoped_buf out = {0};
    mp_buf_printf(&out, "{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":", ++of->requests);
    mp_buf_put(&out, mp_buf_str(&of->asked.method));
    mp_buf_put(&out, MP_STR(",\"params\":{"));
    put_meta(&out, of->asked.era, true);
    mp_str rest = mp_str_trim(mp_str_from(params, 1)); /* behind the '{' */
    if (rest.ptr[0] != '}')
        mp_buf_putc(&out, ',');
    mp_buf_put(&out, rest);
    mp_buf_putc(&out, '}');
    of->began_us = mp_monotonic_us();
    send_to_worker(of, mp_buf_str(&out));
}

static void begin_call(run *of)
{
    open_console(of, false);
    if (!of->asked.era->has_sessions) {
        send_request(of, mp_buf_str(&of->asked.params));
        return;
    }
    mp_scoped_buf out = {0};
    mp_buf_printf(
        &out,
        "{\"jsonrpc\":\"2.0\",\"id\":\"open\",\"method\":\"initialize\",\"params\":{\"protocolVersion\":\"%s\","
        "\"capabilities\":{\"elicitation\":{\"form\":{},\"url\":{}},\"sampling\":{},\"roots\":{}},"
        "\"clientInfo\":{\"name\":\"moonpool dashboard\",\"version\":\"" MOONPOOL_VERSION "\"}}}",
        of->asked.era->date);
    send_to_worker(of, mp_buf_str(&out));
}

void mp_admin_put_question(mp_buf *out, const char *id, mp_str params)
{
    mp_buf_printf(out, "{\"jsonrpc\":\"2.0\",\"id\":\"%s\",\"method\":\"moonpool/inspect\",\"params\":{", id);
    mp_buf_put(out, params);
    mp_buf_putc(out, ',');
    put_meta(out, mp_era_newest(), false);
    mp_buf_put(out, MP_STR("}}"));
}

/* Asks the run's worker whether the principal of the run is an operator of the gateway. */
static void ask_about_principal(run *of)
{
    mp_scoped_buf params = {0}, out = {0};
    mp_buf_put(&params, MP_STR("\"what\":\"principal\",\"principal\":"));
    mp_buf_put(&params, mp_buf_str(&of->asked.principal));
    mp_admin_put_question(&out, "principal", mp_buf_str(&params));
    open_console(of, true);
    send_to_worker(of, mp_buf_str(&out));
}

/* -- messages of the worker ---------------------------------------------------------------------------------------- */

/* Passes a message on as an event. A notification for which the stream has no room is dropped. */
static void put_event(run *of, uint64_t mark, bool is_note, mp_str json)
{
    mp_stream *stream = of->stream;
    if (stream == NULL)
        return;
    mp_scoped_buf out = {0};
    mp_buf_put(&out, MP_STR("data: {\"event\":\"message\""));
    if (mark != 0)
        mp_buf_printf(&out, ",\"call\":\"%s\",\"ms\":%.2f", mp_mark_text_of(mark).text,
                      (double)(mp_monotonic_us() - of->began_us) / 1000);
    mp_buf_put(&out, MP_STR(",\"message\":"));
    mp_buf_put(&out, json);
    mp_buf_put(&out, MP_STR("}\n\n"));
    if (mp_stream_room(stream) >= out.len + NOTE_ROOM) {
        mp_stream_send(stream, mp_buf_str(&out)); /* a failed send closes the run */
    } else if (!is_note) {
        end_run(of, TOO_LARGE, false);
    } else {
        of->overtaken++;
        mp_stat_add(&mp_stat_dropped_runs, 1);
    }
}

/* Continues the run after the answer to one of the messages that precede its request; their `id` is a text. */
static void go_on(run *of, mp_str id, bool is_error, mp_str json)
{
    if (mp_json_string_is(id, MP_STR("level"))) { /* an error: there will be no log messages */
        send_request(of, mp_buf_str(&of->asked.params));
    } else if (is_error) {
        put_event(of, 0, false, json);
        end_run(of, "refused", false);
    } else if (mp_json_string_is(id, MP_STR("principal"))) {
        begin_call(of);
    } else if (mp_json_string_is(id, MP_STR("open"))) {
        send_to_worker(of, MP_STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/initialized\"}"));
        send_to_worker(of, MP_STR("{\"jsonrpc\":\"2.0\",\"id\":\"level\",\"method\":\"logging/"
                                  "setLevel\",\"params\":{\"level\":\"debug\"}}"));
    }
}

static void take_message(void *ctx, uint64_t mark, mp_str json)
{
    run *of = ctx;
    enum { ID, METHOD, RESULT, ERROR };
    mp_body_member list[] = {[ID] = {.name = "id"},
                             [METHOD] = {.name = "method"},
                             [RESULT] = {.name = "result"},
                             [ERROR] = {.name = "error"}};
    mp_body_members of_message = {list, sizeof list / sizeof *list, false};
    if (!mp_body_members_read(json, &of_message))
        return;
    bool is_error = list[ERROR].value.len > 0;
    if (list[METHOD].value.len > 0) {
        put_event(of, 0, list[ID].value.len == 0, json);
    } else if (mp_body_member_is_text(&list[ID])) {
        go_on(of, list[ID].value, is_error, json);
    } else {
        mp_body_member kind[] = {{.name = "resultType"}};
        mp_body_members of_result = {kind, 1, false};
        bool asks = !is_error && mp_body_members_read(list[RESULT].value, &of_result) && mp_body_member_is_text(kind) &&
                    mp_json_string_is(kind->value, MP_STR("input_required"));
        put_event(of, mark, false, json);
        if (!asks)
            end_run(of, "answered", false);
    }
}

/* The queue of messages overflowed: the answer is lost, so the run ends. */
static void on_overflow(void *ctx)
{
    end_run(ctx, TOO_LARGE, false);
}

/* -- all runs ------------------------------------------------------------------------------------------------------ */

static void configure_runs(void *part)
{
    mp_admin_runs *runs = part;
    MP_EACH(run, of, &runs->list, link) {
        if (!mp_admin_access_has(mp_admin_access_of(runs->admin), &of->caller))
            end_run(of, "the caller has no longer the role operate", true);
    }
}

static void *make_runs(mp_admin *admin)
{
    mp_admin_runs *runs = mp_new(sizeof *runs);
    runs->admin = admin;
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

/* Returns 0 while the gateway is starting. */
static unsigned count_workers(mp_admin *admin)
{
    return mp_session_table_rpcs(mp_admin_gateway_of(admin)->table);
}

/* A run for this request, in the list. Some worker serves. */
static run *new_run(mp_admin_runs *runs, mp_stream *stream, const mp_admin_caller *caller)
{
    const mp_runtime_config *settings = mp_admin_settings(runs->admin);
    run *made = mp_new(sizeof *made);
    made->runs = runs;
    made->loop = mp_stream_loop(stream);
    made->caller = *caller;
    made->worker = runs->next_worker++ % count_workers(runs->admin);
    made->queue = mp_console_queue_new(&(mp_console_queue_settings){
        made->loop, settings->http.stream_queue, &mp_stat_dropped_runs, take_message, on_overflow, free_run, made});
    made->stream = mp_stream_ref(stream);
    mp_link_put(&runs->list, &made->link);
    runs->run_count++;
    mp_stat_add(&mp_stat_admin_runs, 1);
    mp_stream_on_gone(stream, on_gone, made);
    mp_timer_start(made->loop, &made->limit, (uint64_t)RUN_MS, on_limit);
    return made;
}

static void audit_action(mp_stream *stream, const char *event, const mp_admin_caller *caller, mp_str why)
{
    mp_audit_request(stream, &(mp_decision){.event = event, .caller = mp_str_of(caller->name), .why = why});
}

void mp_api_call(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    mp_admin_runs *runs = runs_of(admin);
    if (count_workers(admin) == 0) {
        mp_admin_refuse(stream, 503, MP_STR("the gateway starts: try again"));
        return;
    }
    if (runs->run_count >= MAX_RUNS) {
        mp_stat_add(&mp_stat_refused_runs, 1);
        mp_admin_refuse(stream, 503, MP_STR("16 calls of operators run here: wait for one, or cancel it"));
        return;
    }
    run *made = new_run(runs, stream, caller);
    const char *wrong = mp_call_body_read(mp_stream_request(stream)->body, &made->asked);
    if (wrong != NULL) {
        mp_admin_refuse(stream, 400, mp_str_of(wrong));
        close_run(made, false);
        return;
    }
    mp_scoped_buf out = {0};
    mp_call_body_put_name(&out, &made->asked);
    audit_action(stream, "call run by operator", caller, mp_buf_str(&out));
    out.len = 0;
    snprintf(made->id, sizeof made->id, "%s", mp_mark_text_of(mp_mark_new()).text);
    mp_buf_printf(&out, "data: {\"event\":\"call opened\",\"run\":\"%s\",\"revision\":\"%s\"}\n\n", made->id,
                  made->asked.era->date);
    mp_console_queue *queue = mp_console_queue_ref(made->queue); /* a failed send closes the run */
    if (mp_stream_open_events(stream, NULL, 0) != 0 || mp_stream_send(stream, mp_buf_str(&out)) != 0) {
        close_run(made, false);
    } else if (made->asked.principal.len == 0) {
        begin_call(made);
    } else {
        ask_about_principal(made);
    }
    mp_console_queue_unref(queue);
}

static run *MP_NULLABLE find_run(const mp_admin_runs *runs, mp_str id)
{
    MP_EACH(run, of, &runs->list, link) {
        if (mp_str_is(id, of->id))
            return of;
    }
    return NULL;
}

/* Sends the client's response to the worker: `value` is the member `name`. */
static void send_response(run *of, mp_str id, const char *name, mp_str value)
{
    mp_scoped_buf out = {0};
    mp_buf_put(&out, MP_STR("{\"jsonrpc\":\"2.0\",\"id\":"));
    mp_buf_put(&out, id);
    mp_buf_printf(&out, ",\"%s\":", name);
    mp_buf_put(&out, value);
    mp_buf_putc(&out, '}');
    send_to_worker(of, mp_buf_str(&out));
}

/* Carries out the body of a request. Returns NULL, or the reason that it is invalid. */
static const char *MP_NULLABLE take_answer(run *of, mp_str body)
{
    enum { ID, RESULT, ERROR, PARAMS, CANCEL, MEMBERS };
    mp_body_member list[MEMBERS] = {
        {.name = "id"}, {.name = "result"}, {.name = "error"}, {.name = "params"}, {.name = "cancel"}};
    mp_body_members given = {list, MEMBERS, false};
    if (!mp_body_members_read(body, &given) || given.has_other)
        return "send {\"id\", \"result\" or \"error\"} to answer a question, {\"params\"} to send the request again, "
               "or "
               "{\"cancel\":true}";
    if (list[CANCEL].type == MP_JSON_TRUE) {
        end_run(of, "cancelled by an operator", true);
        return NULL;
    }
    if (of->requests == 0)
        return "the call has not begun yet";
    if (list[PARAMS].type == MP_JSON_OBJECT && !of->asked.era->has_sessions)
        send_request(of, list[PARAMS].value);
    else if (mp_body_member_is_text(&list[ID]) && list[RESULT].value.len > 0)
        send_response(of, list[ID].value, "result", list[RESULT].value);
    else if (mp_body_member_is_text(&list[ID]) && list[ERROR].type == MP_JSON_OBJECT)
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
    audit_action(stream, "call answered by operator", caller, rest);
    const char *wrong = take_answer(of, mp_stream_request(stream)->body);
    if (wrong != NULL)
        mp_admin_refuse(stream, 400, mp_str_of(wrong));
    else
        mp_stream_answer(stream, 200, "application/json", MP_STR("{\"sent\":true}\n"), NULL, 0);
}
