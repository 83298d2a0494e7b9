/* api.c: /api of the admin listener. Facts that belong to a worker are asked of its thread: the answer is sent when all
 * workers have answered, or after MP_QUESTION_MS, since a worker may be stuck. */
#include "api.h"
#include "codes.h"
#include "query_slots.h"
#include <signal.h>
#include <unistd.h>

#define MAX_STREAM_PAGES 50
#define MAX_LOG_MS (24 * 3600 * 1000)

/* -- questions to all workers -------------------------------------------------------------------------------------- */

typedef struct {
    mp_link link;
    mp_timer limit;
    mp_admin *admin;
    mp_stream *MP_NULLABLE stream; /* counted reference of the admin thread; NULL once it has its answer */
    mp_loop *loop;
    mp_message all_answered;
    mp_call_inquiry super;
    atomic_int refs; /* a reference of the admin thread, and one of each worker that has not answered */
    atomic_uint left;
    pthread_mutex_t lock; /* guards the members below */
    mp_buf json;
    bool ended;
} inquiry;

struct mp_admin_api {
    mp_link inquiries;
    mp_timer log_ends;
    mp_admin *admin; /* has the configuration, whose level the log returns to */
};

static void give_back(inquiry *asked)
{
    if (atomic_fetch_sub(&asked->refs, 1) != 1)
        return;
    mp_buf_clear(&asked->json);
    pthread_mutex_destroy(&asked->lock);
    free(asked);
}

static void answer_json(mp_stream *stream, int status, const char *json)
{
    mp_stream_answer(stream, status, "application/json", mp_str_of(json), NULL, 0);
}

/* Closes an inquiry whose reader has its answer or has left. `unanswered`: number of workers that did not answer in
 * time. */
static void close_inquiry(inquiry *asked, unsigned unanswered)
{
    mp_stream *stream = asked->stream;
    if (stream == NULL)
        return;
    asked->stream = NULL;
    mp_timer_stop(asked->loop, &asked->limit);
    mp_link_drop(&asked->link);
    mp_admin_query_slots_give(mp_admin_query_slots_of(asked->admin), unanswered);
    mp_stream_on_gone(stream, NULL, NULL);
    mp_stream_unref(stream);
    give_back(asked);
}

static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    close_inquiry(ctx, 0);
}

/* Answers with what the workers have sent so far. */
static void answer_inquiry(inquiry *asked)
{
    mp_stream *stream = asked->stream;
    if (stream == NULL)
        return;
    unsigned left = atomic_load(&asked->left);
    mp_scoped_buf out = {0};
    pthread_mutex_lock(&asked->lock);
    bool ended = asked->ended;
    bool is_of_streams = asked->super.is_of_streams;
    mp_buf_put(&out, is_of_streams ? MP_STR("{\"streams\":[") : MP_STR("{\"calls\":["));
    mp_buf_put(&out, mp_buf_str(&asked->json));
    mp_buf_putc(&out, ']');
    if (atomic_load(&asked->super.has_more))
        mp_buf_printf(&out, ",\"next\":%u", asked->super.page + 1);
    mp_buf_printf(&out, ",\"workers_without_answer\":%u}\n", left);
    pthread_mutex_unlock(&asked->lock);
    if (asked->super.serial == 0 && asked->super.mark == 0)
        mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
    else if (ended)
        answer_json(stream, 200, is_of_streams ? "{\"ended\":true}\n" : "{\"cancelled\":true}\n");
    else if (left > 0)
        answer_json(stream, 503, "{\"error\":\"the worker does not answer: see stuck in /status\"}\n");
    else if (is_of_streams)
        answer_json(stream, 404, "{\"error\":\"no such stream is open: GET /api/streams lists them\"}\n");
    else
        answer_json(stream, 404, "{\"error\":\"no such call runs: GET /api/calls lists them\"}\n");
    close_inquiry(asked, left);
}

static void on_all_answered(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    inquiry *asked = mp_container(message, inquiry, all_answered);
    if (loop != NULL) {
        mp_loop_measure(loop, MP_MEASURE_ADMIN);
        answer_inquiry(asked);
    }
    give_back(asked);
}

static void on_limit(mp_timer *timer)
{
    answer_inquiry(mp_container(timer, inquiry, limit));
}

/* Takes the answer of a worker, on the worker's thread. `is_over`: the call of the inquiry ended, perhaps with the
 * admin thread. */
static void on_answer(mp_call_inquiry *super, mp_str json, bool ended, bool is_over)
{
    inquiry *asked = mp_container(super, inquiry, super);
    pthread_mutex_lock(&asked->lock);
    if (json.len > 0 && asked->json.len > 0)
        mp_buf_putc(&asked->json, ',');
    mp_buf_put(&asked->json, json);
    asked->ended = asked->ended || ended;
    pthread_mutex_unlock(&asked->lock);
    if (atomic_fetch_sub(&asked->left, 1) == 1 && !is_over)
        mp_loop_post(asked->loop, &asked->all_answered); /* the message has the reference of this worker */
    else
        give_back(asked);
}

static void begin_inquiry(mp_admin *admin, mp_stream *stream, mp_call_inquiry what)
{
    mp_admin_api *api = mp_admin_api_of(admin);
    mp_session_table *table = mp_admin_gateway_of(admin)->table;
    if (!mp_admin_query_slots_take(mp_admin_query_slots_of(admin), stream))
        return;
    unsigned count = mp_session_table_rpcs(table);
    inquiry *asked = mp_new(sizeof *asked);
    asked->admin = admin;
    asked->loop = mp_stream_loop(stream);
    asked->stream = mp_stream_ref(stream);
    asked->all_answered = (mp_message){.deliver = on_all_answered};
    asked->super = what;
    asked->super.answer = on_answer;
    atomic_init(&asked->refs, (int)count + 1);
    atomic_init(&asked->left, count);
    pthread_mutex_init(&asked->lock, NULL);
    mp_link_put(&api->inquiries, &asked->link);
    mp_timer_start(asked->loop, &asked->limit, MP_QUESTION_MS, on_limit);
    mp_stream_on_gone(stream, on_gone, asked);
    mp_session_table_inquire(table, count, &asked->super);
    mp_stream_detect_close(stream); /* may close the inquiry */
}

/* -- sessions and calls -------------------------------------------------------------------------------------------- */

void mp_api_calls(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    mp_str query = mp_stream_request(stream)->query;
    bool is_of_ended = mp_str_is(query, "state=ended");
    if (query.len > 0 && !is_of_ended && !mp_str_is(query, "state=running"))
        answer_json(stream, 400, "{\"error\":\"the query is state=running or state=ended\"}\n");
    else
        begin_inquiry(admin, stream, (mp_call_inquiry){.is_of_ended = is_of_ended});
}

static bool read_number(mp_str text, uint64_t most, uint64_t *number)
{
    int64_t n;
    if (text.len == 0 || text.ptr[0] == '-' || !mp_json_int(text, &n) || (uint64_t)n > most)
        return false;
    *number = (uint64_t)n;
    return true;
}

static void audit_action(mp_stream *stream, const char *event, const mp_admin_caller *caller, mp_str why)
{
    mp_audit_request(stream, &(mp_decision){.event = event, .caller = mp_str_of(caller->name), .why = why});
}

void mp_api_end_call(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    uint64_t worker = 0, serial = 0, mark = 0;
    mp_str whole = rest, first = mp_str_cut(&rest, '-');
    if (!mp_mark_read(whole, &mark) && (!read_number(first, MP_SESSION_PAGES * 64, &worker) ||
                                        !read_number(rest, INT64_MAX, &serial) || serial == 0)) {
        answer_json(stream, 404,
                    "{\"error\":\"a call is named as in 0-17, or by its id: GET /api/calls lists them\"}\n");
        return;
    }
    audit_action(stream, "call cancelled by operator", caller, whole);
    begin_inquiry(admin, stream, (mp_call_inquiry){.worker = (unsigned)worker, .serial = serial, .mark = mark});
}

void mp_api_streams(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    uint64_t page = 0;
    mp_str query = mp_stream_request(stream)->query, name = MP_STR("page=");
    if (query.len > 0 &&
        !(mp_str_starts(query, name) && read_number(mp_str_from(query, name.len), MAX_STREAM_PAGES - 1, &page)))
        answer_json(stream, 400, "{\"error\":\"the query is page=N, from 0 to 49\"}\n");
    else
        begin_inquiry(admin, stream, (mp_call_inquiry){.is_of_streams = true, .page = (unsigned)page});
}

void mp_api_end_stream(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    uint64_t worker = 0, serial = 0;
    mp_str whole = rest, first = mp_str_cut(&rest, '-');
    if (!read_number(first, MP_SESSION_PAGES * 64, &worker) || !read_number(rest, INT64_MAX, &serial) || serial == 0) {
        answer_json(stream, 404, "{\"error\":\"a stream is named as in 0-17: GET /api/streams lists them\"}\n");
        return;
    }
    audit_action(stream, "stream ended by operator", caller, whole);
    begin_inquiry(admin, stream,
                  (mp_call_inquiry){.worker = (unsigned)worker, .serial = serial, .is_of_streams = true});
}

void mp_api_sessions(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    uint64_t page = 0;
    mp_str query = mp_stream_request(stream)->query, name = MP_STR("page=");
    if (query.len > 0 &&
        !(mp_str_starts(query, name) && read_number(mp_str_from(query, name.len), MP_SESSION_PAGES - 1, &page))) {
        answer_json(stream, 400, "{\"error\":\"the query is page=N, from 0 to 15\"}\n");
        return;
    }
    mp_scoped_buf list = {0}, out = {0};
    mp_session_table_put_sessions(mp_admin_gateway_of(admin)->table, (unsigned)page,
                                  mp_loop_now(mp_stream_loop(stream)), &list);
    mp_buf_put(&out, MP_STR("{\"sessions\":["));
    mp_buf_put(&out, mp_buf_str(&list));
    if (page + 1 < MP_SESSION_PAGES)
        mp_buf_printf(&out, "],\"next\":%u}\n", (unsigned)page + 1);
    else
        mp_buf_put(&out, MP_STR("]}\n"));
    mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
}

void mp_api_end_session(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    switch (mp_session_table_end_session(mp_admin_gateway_of(admin)->table, rest)) {
    case 1:
        audit_action(stream, "session ended by operator", caller, rest);
        answer_json(stream, 200, "{\"ended\":true}\n");
        break;
    case 0:
        answer_json(stream, 404, "{\"error\":\"no such session: GET /api/sessions lists them\"}\n");
        break;
    default:
        answer_json(stream, 409, "{\"error\":\"several sessions have this mark, none was ended\"}\n");
    }
}

/* -- the level of the log ------------------------------------------------------------------------------------------ */

static const char *const levels[] = {"debug", "info", "warn", "error", NULL};

typedef struct {
    mp_log_level level;
    int64_t seconds;
    const char *MP_NULLABLE wrong; /* why the request makes no sense; NULL: it does */
} log_request;

static int see_log_member(void *ctx, MP_UNUSED unsigned depth, mp_str key, mp_json_type type, mp_str value)
{
    log_request *request = ctx;
    if (mp_str_is(key, "seconds")) {
        if (type != MP_JSON_NUMBER || !mp_json_int(value, &request->seconds) || request->seconds < 1 ||
            request->seconds > MAX_LOG_MS / 1000)
            request->wrong = "seconds is a number from 1 to 86400";
    } else if (mp_str_is(key, "level")) {
        int i = 0;
        while (levels[i] != NULL && !(type == MP_JSON_STRING && mp_json_string_is(value, mp_str_of(levels[i]))))
            i++;
        if (levels[i] == NULL)
            request->wrong = "level is debug, info, warn or error";
        else
            request->level = (mp_log_level)i;
    } else {
        request->wrong = "the members are level and seconds";
    }
    return 0;
}

/* The log goes back to the level of the configuration. */
static void on_log_ends(mp_timer *timer)
{
    mp_admin_api *api = mp_container(timer, mp_admin_api, log_ends);
    mp_log_level level = mp_admin_settings(api->admin)->config->log_level;
    mp_log(MP_INFO, "log level", mp_log_str("level", mp_str_of(levels[level])),
           mp_log_str("why", MP_STR("the duration of the last change is over")));
    mp_log_from(level);
}

void mp_api_log(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    log_request wanted = {.level = (mp_log_level)-1, .seconds = 300};
    mp_json_type type = MP_JSON_NULL;
    mp_scoped_buf out = {0};
    if (mp_json_scan(mp_stream_request(stream)->body, &(mp_json_visitor){.member = see_log_member, .ctx = &wanted},
                     &type, NULL) != MP_JSON_OK ||
        type != MP_JSON_OBJECT || (wanted.wrong == NULL && wanted.level == (mp_log_level)-1))
        wanted.wrong = "send an object, as in {\"level\":\"debug\",\"seconds\":300}";
    if (wanted.wrong != NULL) {
        mp_admin_refuse(stream, 400, mp_str_of(wanted.wrong));
        return;
    }
    mp_admin_api *api = mp_admin_api_of(admin);
    api->admin = admin;
    audit_action(stream, "log level changed", caller, mp_str_of(levels[wanted.level]));
    mp_log_from(wanted.level);
    mp_log(MP_INFO, "log level", mp_log_str("level", mp_str_of(levels[wanted.level])),
           mp_log_int("seconds", wanted.seconds));
    mp_timer_start(mp_stream_loop(stream), &api->log_ends, (uint64_t)wanted.seconds * 1000, on_log_ends);
    mp_buf_printf(&out, "{\"level\":\"%s\",\"seconds\":%lld}\n", levels[wanted.level], (long long)wanted.seconds);
    mp_stream_answer(stream, 200, "application/json", mp_buf_str(&out), NULL, 0);
}

/* -- links to the dashboard ---------------------------------------------------------------------------------------- */

void mp_api_code(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    char code[MP_CODE_SIZE], json[MP_CODE_SIZE + 40];
    mp_admin_code_make(mp_admin_codes_of(mp_admin_access_of(admin)), caller, code);
    audit_action(stream, "dashboard code made", caller, MP_STR_NONE);
    snprintf(json, sizeof json, "{\"code\":\"%s\",\"seconds\":%d}\n", code, MP_CODE_S);
    answer_json(stream, 200, json);
    explicit_bzero(code, sizeof code);
    explicit_bzero(json, sizeof json);
}

static int see_code(void *ctx, unsigned depth, mp_str key, mp_json_type type, mp_str value)
{
    mp_str *code = ctx;
    if (depth <= 1 && mp_str_is(key, "code") && type == MP_JSON_STRING && value.len >= 2)
        *code = (mp_str){value.ptr + 1, value.len - 2};
    return 0;
}

void mp_api_open_dashboard(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    mp_str code = MP_STR_NONE;
    mp_json_type type = MP_JSON_NULL;
    mp_admin_caller owner;
    char token[MP_CODE_SIZE], json[MP_CODE_SIZE + 40];
    if (mp_json_scan(mp_stream_request(stream)->body, &(mp_json_visitor){.member = see_code, .ctx = &code}, &type,
                     NULL) != MP_JSON_OK ||
        type != MP_JSON_OBJECT || code.len == 0) {
        answer_json(stream, 400, "{\"error\":\"send an object with the code of a link\"}\n");
    } else if (mp_admin_take_code(mp_admin_access_of(admin), stream, code, token, &owner)) {
        audit_action(stream, "dashboard opened", &owner, MP_STR_NONE);
        snprintf(json, sizeof json, "{\"token\":\"%s\",\"seconds\":%d}\n", token, MP_CODE_SESSION_S);
        answer_json(stream, 200, json);
        explicit_bzero(token, sizeof token);
        explicit_bzero(json, sizeof json);
    } else if (owner.wait_s > 0) {
        answer_json(stream, 429, "{\"error\":\"too many wrong tokens from this address\"}\n");
    } else {
        mp_admin_count_refused();
        audit_action(stream, "dashboard refused", &owner, MP_STR_NONE);
        answer_json(stream, 404,
                    "{\"error\":\"this link was used already, or is older than a minute: moonpool dashboard "
                    "prints another one\"}\n");
    }
}

/* -- the end ------------------------------------------------------------------------------------------------------- */

/* Opens the files of the log and the audit again, as SIGUSR1 does. */
void mp_api_reopen(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)admin, (void)rest;
    audit_action(stream, "log reopened by operator", caller, MP_STR_NONE);
    kill(getpid(), SIGUSR1);
    answer_json(stream, 202, "{\"reopening\":true}\n");
}

void mp_api_drain(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, MP_UNUSED mp_str rest)
{
    audit_action(stream, "drain requested", caller, MP_STR_NONE);
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    gateway->drain(gateway->self); /* before the answer: a client that has it may send SIGTERM, which is the second */
    answer_json(stream, 202, "{\"draining\":true}\n");
}

mp_admin_api *mp_admin_api_new(void)
{
    mp_admin_api *api = mp_new(sizeof *api);
    return api;
}

void mp_admin_api_free(mp_admin_api *MP_NULLABLE api, mp_loop *loop)
{
    if (api == NULL)
        return;
    while (!mp_link_is_alone(&api->inquiries))
        close_inquiry(mp_container(api->inquiries.next, inquiry, link), 0);
    mp_timer_stop(loop, &api->log_ends);
    free(api);
}
