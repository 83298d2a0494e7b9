/* request_log.c: one line of the log, at debug, for each request that was served, and a line on the terminal with
 * `run --trace`. The lines are composed only if the log or the terminal shows them. No line has arguments, results,
 * headers or credentials. */
#include "state.h"

#define MAX_NAME_BYTES 256 /* bytes of a client's name, or of the tool, resource or prompt in a request */

/* True if requests are logged: log.level is debug, or `run --trace` prints them. */
static bool are_requests_logged(void)
{
    return mp_trace_is_on() || mp_log_wants(MP_DEBUG);
}

const char *mp_end_cause(const mp_stat *counter)
{
    if (counter == &mp_stat_tool_gone)
        return "disconnected";
    if (counter == &mp_stat_tool_time)
        return "timeout";
    /* the value is one of: cancelled, cpu, memory, lua_memory, output, shutdown, reload, operator, signed_out */
    return counter->value;
}

/* -- the thing that a message names -------------------------------------------------------------------- */

typedef struct {
    mp_str name, client, version; /* spans of JSON strings, or empty */
    mp_str arguments;             /* span of an object, or empty */
    bool in_client, in_ref;       /* the visited object is `clientInfo`; or it is `ref`, of completion/complete */
} names;

static bool enter_param_object(void *ctx, unsigned level, mp_str key)
{
    names *found = ctx;
    bool is_client = (level == 1 && mp_str_is(key, "clientInfo")) ||
                     (level == 2 && mp_str_is(key, "io.modelcontextprotocol/clientInfo"));
    if (is_client)
        found->in_client = true;
    if (level == 1)
        found->in_ref = mp_str_is(key, "ref");
    return is_client || (level == 1 && (found->in_ref || mp_str_is(key, "_meta")));
}

static int see_param(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    names *found = ctx;
    if (mp_str_is(key, "clientInfo") || mp_str_is(key, "io.modelcontextprotocol/clientInfo"))
        found->in_client = false;
    if (level == 1 && type == MP_JSON_OBJECT && mp_str_is(key, "arguments"))
        found->arguments = value;
    if (type != MP_JSON_STRING)
        return 0;
    bool is_name = mp_str_is(key, "name");
    if (level > 1 && found->in_client && is_name)
        found->client = value;
    else if (level > 1 && found->in_client && mp_str_is(key, "version"))
        found->version = value;
    else if ((level == 1 || (level == 2 && found->in_ref)) &&
             (is_name || mp_str_is(key, "uri") || mp_str_is(key, "taskId")))
        found->name = value;
    return 0;
}

static int see_client_member(void *ctx, MP_UNUSED unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    names *found = ctx;
    if (type == MP_JSON_STRING && mp_str_is(key, "name"))
        found->client = value;
    else if (type == MP_JSON_STRING && mp_str_is(key, "version"))
        found->version = value;
    return 0;
}

static void put_string(mp_buf *out, mp_str span)
{
    if (span.len > 6 * MAX_NAME_BYTES)
        mp_buf_put(out, MP_STR("(too long)"));
    else if (span.len > 0)
        mp_json_unescape(out, span);
}

static names find_names(mp_str params, const mp_session *MP_NULLABLE session)
{
    names found = {0};
    if (params.len > 0)
        mp_json_scan(params, &(mp_json_visitor){.enter = enter_param_object, .member = see_param, .ctx = &found}, NULL,
                     NULL);
    if (found.client.len == 0 && session != NULL && mp_session_era(session) != NULL)
        mp_json_scan(mp_session_client(session), &(mp_json_visitor){.member = see_client_member, .ctx = &found}, NULL,
                     NULL);
    return found;
}

static void put_client(mp_buf *out, const names *found)
{
    put_string(out, found->client);
    if (found->version.len > 0) {
        mp_buf_putc(out, ' ');
        put_string(out, found->version);
    }
}

void mp_call_names(mp_str params, const mp_session *MP_NULLABLE session, mp_buf *name, mp_buf *client)
{
    mp_scoped_buf whole = {0};
    names found = find_names(params, session);
    put_string(&whole, found.name);
    mp_buf_put(name, mp_shown_name(mp_buf_str(&whole)));
    put_client(client, &found);
}

/* -- a request that was served ---------------------------------------------------------------------------------- */

typedef struct {
    mp_str method, params;
    const mp_session *session;
    const mp_era *era;
    const mp_principal *principal;
    const char *transport, *outcome;
    mp_str address;
    int status, code; /* status of HTTP and error code of JSON-RPC; 0: none */
    uint64_t began;   /* start of the request by mp_monotonic_us; 0: not known */
    size_t in, out;
    uint64_t mark; /* 0: the request is no call */
} request_facts;

static void put_debug(const request_facts *f, mp_str name, mp_str client, const char *session, uint64_t us)
{
    mp_scoped_buf ms = {0};
    if (f->began != 0)
        mp_buf_printf(&ms, "%.2f", (double)us / 1000);
    mp_mark_text mark = mp_mark_text_of(f->mark);
    mp_log_field all[16], wanted[16];
    size_t count = 0, kept = 0;
    all[count++] = mp_log_str("method", f->method);
    all[count++] = mp_log_str("name", name);
    all[count++] = mp_log_str("outcome", mp_str_of(f->outcome));
    all[count++] = mp_log_int("code", f->code);
    all[count++] = mp_log_int("status", f->status);
    all[count++] = mp_log_str("ms", mp_buf_str(&ms));
    all[count++] = mp_log_str("client", client);
    all[count++] = mp_log_str("revision", mp_str_of(f->era == NULL ? "" : f->era->date));
    all[count++] = mp_log_str("transport", mp_str_of(f->transport));
    all[count++] = mp_log_str("principal", f->principal == NULL ? MP_STR_NONE : mp_principal_id(f->principal));
    all[count++] = mp_log_str("session", mp_str_of(session));
    all[count++] = mp_log_str("address", f->address);
    all[count++] = mp_log_str("call", f->mark == 0 ? MP_STR_NONE : mp_str_of(mark.text));
    all[count++] = mp_log_int("in", (int64_t)f->in);
    all[count++] = mp_log_int("out", (int64_t)f->out);
    for (size_t i = 0; i < count; i++)
        if (all[i].text.len > 0 || (all[i].text.ptr == NULL && (all[i].number != 0 || i >= count - 2)))
            wanted[kept++] = all[i];
    wanted[kept] = (mp_log_field){0};
    mp_log_write(MP_DEBUG, "request", wanted);
}

static void put_trace(const request_facts *f, mp_str name, mp_str client, uint64_t us)
{
    bool is_ok = strcmp(f->outcome, "ok") == 0;
    bool is_tool = strcmp(f->outcome, "failed") == 0 || strcmp(f->outcome, "cancelled") == 0;
    mp_buf line = {0}, rest = {0};
    mp_trace_put_time(&line);
    mp_trace_put(&line, MP_TRACE_PLAIN, f->method);
    if (name.len > 0) {
        mp_buf_putc(&line, ' ');
        mp_trace_put(&line, MP_TRACE_PLAIN, name);
    }
    mp_buf_put(&line, MP_STR(" → "));
    mp_trace_put(&line, is_ok ? MP_TRACE_GOOD : is_tool ? MP_TRACE_DOUBTFUL : MP_TRACE_BAD, mp_str_of(f->outcome));
    if (f->code != 0)
        mp_buf_printf(&line, " %d", f->code);
    if (f->began != 0)
        mp_buf_printf(&line, "  %.1f ms", (double)us / 1000);
    mp_buf_printf(&rest, "  %.*s%s%s, %s", MP_STR_ARG(client), client.len > 0 ? ", " : "",
                  f->era == NULL ? "no revision" : f->era->date, f->transport);
    mp_trace_put(&line, MP_TRACE_DIM, mp_buf_str(&rest));
    mp_trace_write(&line);
    mp_buf_clear(&rest);
}

static void write_request(const request_facts *f)
{
    uint64_t us = f->began == 0 ? 0 : mp_monotonic_us() - f->began;
    mp_scoped_buf name = {0}, client = {0};
    mp_session_mark mark = {""};
    mp_call_names(f->params, f->session, &name, &client);
    if (f->session != NULL && strcmp(f->transport, "stdio") != 0)
        mark = mp_session_mark_of(mp_session_id(f->session));
    if (mp_log_wants(MP_DEBUG))
        put_debug(f, mp_buf_str(&name), mp_buf_str(&client), mark.text, us);
    if (mp_trace_is_on())
        put_trace(f, mp_buf_str(&name), mp_buf_str(&client), us);
}

void mp_log_call(mp_call *call)
{
    if (call->is_detached || call->is_hidden || !are_requests_logged())
        return;
    write_request(
        &(request_facts){.method = call->method,
                         .params = call->params,
                         .session = call->session,
                         .era = mp_call_era(call),
                         .principal = call->principal,
                         .transport = call->session != NULL ? call->session->transport->name : call->transport->name,
                         .outcome = call->outcome == NULL ? "ok" : call->outcome,
                         .address = mp_call_address(call),
                         .status = mp_call_is_of_stream(call) ? call->sent_status : 0,
                         .code = call->code,
                         .began = call->began,
                         .in = call->bytes_in,
                         .out = call->bytes_out,
                         .mark = mp_call_mark(call)});
}

/* -- taps ---------------------------------------------------------------------------------------------------------- */

/* Passes an event to taps that take it, or may take it once the name is known. */
static void show_taps(const mp_call *call, mp_tap_event *event)
{
    mp_scoped_buf name = {0}, client = {0};
    const mp_era *era = mp_call_era(call);
    event->params_bytes = call->params.len;
    if (call->params.len <= MP_TAP_SCAN_BYTES) {
        names found = find_names(call->params, call->session);
        put_client(&client, &found);
        if (event->is_name_unknown)
            put_string(&name, found.name);
        event->arguments = found.arguments;
    }
    if (event->is_name_unknown)
        event->name = mp_buf_str(&name);
    event->is_name_unknown = false;
    event->client = mp_buf_str(&client);
    event->revision = mp_str_of(era == NULL ? "" : era->date);
    event->address = mp_call_address(call);
    event->in = call->bytes_in;
    if (call->ended) {
        event->code = call->code;
        event->status = mp_call_is_of_stream(call) ? call->sent_status : 0;
        event->out = call->bytes_out;
    }
    mp_tap_put(event);
}

void mp_call_tap(const mp_call *call)
{
    if (call->is_detached)
        return;
    const mp_transport *transport = call->session != NULL ? call->session->transport : call->transport;
    mp_tap_event event = {.event = call->ended ? "answer" : "call",
                          .serial = call->serial,
                          .worker = call->rpc->index,
                          .method = call->method,
                          .name = call->name,
                          .is_name_unknown = call->name.len == 0,
                          .principal = mp_principal_id(call->principal),
                          .transport = mp_str_of(transport->name)};
    if (call->session != NULL && !transport->is_pipe)
        event.session = mp_session_id(call->session);
    if (call->ended) {
        event.outcome = mp_str_of(call->outcome == NULL ? "ok" : call->outcome);
        event.began = call->began;
    }
    if (mp_tap_wants(&event))
        show_taps(call, &event);
}

void mp_log_message(mp_rpc *rpc, const mp_stream *stream, const mp_session *MP_NULLABLE session)
{
    const mp_envelope *envelope = &rpc->envelope;
    if (!are_requests_logged())
        return;
    bool is_note = envelope->kind == MP_KIND_NOTE;
    write_request(&(request_facts){.method = is_note ? envelope->method : MP_STR("(response)"),
                                   .params = is_note ? envelope->params : MP_STR_NONE,
                                   .session = session,
                                   .era = session == NULL ? mp_era_find(envelope->version) : mp_session_era(session),
                                   .principal = rpc->principal,
                                   .transport = session != NULL ? session->transport->name : "http",
                                   .outcome = "ok",
                                   .address = mp_stream_address(stream),
                                   .status = mp_stream_is_open(stream) ? 202 : 0,
                                   .in = envelope->size});
}

void mp_log_http(mp_rpc *rpc, const mp_stream *stream, const mp_session *MP_NULLABLE session, int status)
{
    if (!are_requests_logged())
        return;
    write_request(&(request_facts){.method = mp_stream_request(stream)->method,
                                   .session = session,
                                   .era = session == NULL ? NULL : mp_session_era(session),
                                   .principal = rpc->principal,
                                   .transport = session != NULL ? session->transport->name : "http",
                                   .outcome = status == 200 ? "stream opened" : "ok",
                                   .address = mp_stream_address(stream),
                                   .status = status});
}
