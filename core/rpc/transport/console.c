/* console.c: a client inside the process: an operator who runs a tool. Its messages come from another thread and are
 * served as those of stdio are, so a call takes the same way as a client's: authorization, policies, limits and the
 * audit. A console belongs to the thread of its rpc but for its settings, which do not change, and for what is
 * atomic. */
#include "transport.h"

struct mp_console {
    mp_link link; /* in rpc->consoles, once its first message is served */
    mp_rpc *rpc;
    /* a reference of the opener until it closes the console, one of the rpc, one of each posted message */
    atomic_int refs;
    atomic_bool is_closed;
    mp_console_settings settings;        /* the texts of the settings are in `bytes` */
    mp_principal *MP_NULLABLE principal; /* counted reference; NULL before the first message */
    mp_session *MP_NULLABLE session;     /* counted reference; NULL until a message of a stateful revision is served */
    char bytes[];
};

static void unref_console(mp_console *console)
{
    if (atomic_fetch_sub(&console->refs, 1) != 1)
        return;
    console->settings.hooks->freed(console->settings.ctx);
    free(console);
}

mp_str mp_call_operator(const mp_call *call)
{
    const mp_console *console = call->console;
    return console == NULL || call->is_hidden ? MP_STR_NONE : console->settings.caller;
}

bool mp_rpc_is_asked(const mp_rpc *rpc)
{
    return rpc->questions > 0;
}

bool mp_call_is_hidden(const mp_call *call)
{
    return call->is_hidden;
}

mp_str mp_call_described_principal(const mp_call *call)
{
    const mp_console *console = call->console;
    return console == NULL ? MP_STR_NONE : console->settings.principal;
}

/* -- what the client gets ------------------------------------------------------------------------------------------ */

static int send_json(const mp_console *MP_NULLABLE console, uint64_t mark, mp_str json)
{
    if (console == NULL || atomic_load(&console->is_closed)) {
        mp_stat_add(&mp_stat_dropped_gone, 1);
        return -1;
    }
    console->settings.hooks->send(console->settings.ctx, mark, json);
    return 0;
}

static int send_on_call(mp_call *call, mp_str json)
{
    return send_json(call->console, 0, json);
}

/* The steps of the call, as a notification before its answer. */
static void send_steps(const mp_call *call)
{
    const mp_trace *trace = mp_call_trace(call);
    mp_scoped_buf out = {0};
    if (trace == NULL || !mp_call_is_shown(call))
        return;
    mp_buf_put(&out, MP_STR("{\"jsonrpc\":\"2.0\",\"method\":\"moonpool/steps\",\"params\":{\"steps\":"));
    mp_trace_put_steps(trace, &out);
    mp_buf_put(&out, MP_STR("}}"));
    send_json(call->console, 0, mp_buf_str(&out));
}

static void answer_call(mp_call *call, MP_UNUSED int status, mp_str json)
{
    send_steps(call);
    send_json(call->console, mp_call_mark(call), json);
}

/* News of lists and resources are of no use to a client that runs one call. */
static void notify_session(mp_rpc *from, mp_session *session, mp_str json)
{
    (void)from, (void)session, (void)json;
}

static void respond_in_session(mp_rpc *rpc, MP_UNUSED mp_session *MP_NULLABLE session, mp_str json)
{
    send_json(rpc->console, 0, json);
}

static const mp_transport transport = {.name = "console",
                                       .is_pipe = true,
                                       .has_one_stream = true,
                                       .notifies_end = true,
                                       .send = send_on_call,
                                       .answer = answer_call,
                                       .notify = notify_session,
                                       .respond = respond_in_session};

/* -- a message of the client --------------------------------------------------------------------------------------- */

/* The console's session; NULL: the message was refused. */
static mp_session *MP_NULLABLE need_session(mp_rpc *rpc, mp_console *console)
{
    if (console->session == NULL)
        console->session = mp_session_new(rpc, &transport, rpc->principal, MP_STR(""));
    if (console->session == NULL && rpc->envelope.kind == MP_KIND_REQUEST)
        mp_refuse_message(rpc, &transport, NULL, MP_CAUSE_SESSIONS, MP_CODE_INTERNAL,
                          "too many sessions: try again later");
    return console->session;
}

static void serve_message(mp_rpc *rpc, mp_console *console, mp_str json)
{
    mp_envelope *envelope = &rpc->envelope;
    mp_envelope_read(envelope, json, MP_MAX_VALUES);
    bool is_request = envelope->kind == MP_KIND_REQUEST;
    if (is_request && envelope->has_version) {
        mp_serve_stateless_message(rpc, &transport);
    } else if (is_request || envelope->kind == MP_KIND_RESPONSE ||
               (envelope->kind == MP_KIND_NOTE && !envelope->has_version)) {
        mp_session *session = need_session(rpc, console);
        if (session == NULL)
            return;
        if (is_request)
            mp_serve_session_request(rpc, rpc->no_stream, session);
        else
            mp_serve_note(rpc, rpc->no_stream, session);
    } else {
        rpc->scratch.len = 0;
        mp_put_envelope_error(&rpc->scratch, envelope, "message");
        send_json(console, 0, mp_buf_str(&rpc->scratch));
    }
}

/* The rpc gets its reference with the first message. Returns the console's principal. */
static mp_principal *begin_console(mp_rpc *rpc, mp_console *console)
{
    mp_principal *principal = mp_lone;
    const mp_console_settings *settings = &console->settings;
    atomic_fetch_add(&console->refs, 1);
    mp_link_put(&rpc->consoles, &console->link);
    rpc->questions += settings->is_hidden;
    if (settings->principal.len > 0) {
        mp_buf binding = {0}; /* sessions of clients have other bindings */
        mp_buf_put(&binding, MP_STR("console:"));
        mp_buf_put(&binding, settings->principal);
        principal = mp_principal_new(settings->id, mp_buf_str(&binding), 0);
        mp_buf_clear(&binding);
    }
    return principal;
}

static void cancel_calls(mp_rpc *rpc, const mp_console *console, bool is_operator)
{
    MP_EACH(mp_call, call, &rpc->calls, link) {
        if (call->console == console)
            mp_call_cancel(call, is_operator ? "cancelled by an operator" : "the client left",
                           is_operator ? &mp_stat_tool_cancelled : &mp_stat_tool_gone, MP_CANCEL_QUIET);
    }
}

/* Gives back the rpc's reference to a console. */
static void end_console(mp_console *console)
{
    mp_link_drop(&console->link);
    console->rpc->questions -= console->settings.is_hidden;
    mp_session *session = console->session;
    mp_principal *principal = console->principal;
    if (session != NULL)
        mp_session_unref(session);
    console->session = NULL;
    if (principal != NULL)
        mp_principal_unref(principal);
    console->principal = NULL;
    unref_console(console);
}

/* The table of the sessions is freed already, and has closed them. */
void mp_consoles_free(mp_rpc *rpc)
{
    while (!mp_link_is_alone(&rpc->consoles))
        end_console(mp_container(rpc->consoles.next, mp_console, link));
}

/* -- messages from another thread ---------------------------------------------------------------------------------- */

typedef struct {
    mp_console *console; /* counted reference */
    bool closes, is_operator;
    size_t len;
    char json[];
} console_message;

static void deliver_message(void *content, mp_loop *MP_NULLABLE loop)
{
    const console_message *message = content;
    mp_console *console = message->console;
    mp_rpc *rpc = console->rpc;
    if (loop != NULL && console->settings.is_hidden)
        mp_loop_measure(loop, MP_MEASURE_ASKED);
    if (loop != NULL && message->closes && console->principal != NULL) {
        cancel_calls(rpc, console, message->is_operator);
        mp_session *session = console->session;
        if (session != NULL)
            mp_session_close(session, &mp_stat_closed_gone);
        end_console(console);
    } else if (loop != NULL && !message->closes && !atomic_load(&console->is_closed)) {
        mp_principal *principal = console->principal;
        if (principal == NULL)
            principal = begin_console(rpc, console);
        rpc->console = console;
        rpc->is_hidden = console->settings.is_hidden;
        rpc->principal = principal;
        console->principal = principal;
        serve_message(rpc, console, (mp_str){message->json, message->len});
        rpc->console = NULL;
        rpc->is_hidden = false;
        rpc->principal = mp_nobody;
    }
    unref_console(console);
}

static void post_message(mp_console *console, bool closes, bool is_operator, mp_str json)
{
    const console_message message = {console, closes, is_operator, json.len};
    atomic_fetch_add(&console->refs, 1);
    mp_loop_send(console->rpc->loop, deliver_message, &message, sizeof message, json);
}

static mp_str copy_behind(char **at, mp_str text)
{
    if (text.len > 0)
        memcpy(*at, text.ptr, text.len);
    mp_str copy = {*at, text.len};
    *at += text.len;
    return copy;
}

mp_console *mp_console_open(mp_session_table *table, unsigned worker, const mp_console_settings *settings)
{
    size_t bytes = settings->id.len + settings->principal.len + settings->caller.len;
    mp_console *console = mp_new(sizeof *console + bytes);
    char *at = console->bytes;
    console->rpc = mp_session_table_rpc(table, worker);
    console->settings = *settings;
    console->settings.id = copy_behind(&at, settings->id);
    console->settings.principal = copy_behind(&at, settings->principal);
    console->settings.caller = copy_behind(&at, settings->caller);
    atomic_init(&console->refs, 1);
    atomic_init(&console->is_closed, false);
    return console;
}

void mp_console_send(mp_console *console, mp_str json)
{
    post_message(console, false, false, json);
}

void mp_console_close(mp_console *console, bool is_operator)
{
    atomic_store(&console->is_closed, true);
    post_message(console, true, is_operator, MP_STR_NONE);
    unref_console(console);
}
