/* trace.c: the span of a call, with the names and attributes of OpenTelemetry's conventions for MCP. It has no
 * argument, result, header or whole session id. */
#include "state.h"

/* A JSON-RPC id without the quotes of a string. */
static mp_str plain_id(mp_str id)
{
    return id.len >= 2 && id.ptr[0] == '"' ? (mp_str){id.ptr + 1, id.len - 2} : id;
}

/* The name of the tool or prompt in the message that is being served; empty for other methods. */
static mp_str name_of(const mp_call *call)
{
    bool is_named = mp_str_is(call->method, "tools/call") || mp_str_is(call->method, "prompts/get");
    return is_named && call->rpc->envelope.has_name ? call->rpc->envelope.name : MP_STR_NONE;
}

static void set_network(mp_call *call, mp_trace *trace)
{
    const mp_transport *transport = call->session != NULL ? call->session->transport : call->transport;
    if (transport->is_pipe) {
        mp_span_text(trace, MP_ROOT_SPAN, "network.transport", MP_STR("pipe"));
        return;
    }
    mp_span_text(trace, MP_ROOT_SPAN, "network.transport", call->is_unix ? MP_STR("unix") : MP_STR("tcp"));
    mp_span_text(trace, MP_ROOT_SPAN, "network.protocol.name", MP_STR("http"));
    mp_span_text(trace, MP_ROOT_SPAN, "moonpool.edge", mp_stream_edge(call->stream));
    if (mp_traces_show_addresses())
        mp_span_text(trace, MP_ROOT_SPAN, "client.address", mp_call_address(call));
}

/* The revision and session of the call. Those of an `initialize` are known at its end. */
static void set_session(const mp_call *call, mp_trace *trace)
{
    const mp_era *era = mp_call_era(call);
    if (era != NULL)
        mp_span_text(trace, MP_ROOT_SPAN, "mcp.protocol.version", mp_str_of(era->date));
    if (call->session != NULL) {
        mp_session_mark mark = mp_session_mark_of(mp_session_id(call->session));
        mp_span_text(trace, MP_ROOT_SPAN, "mcp.session.id", mp_str_of(mark.text));
    }
}

static bool opens_session(const mp_call *call)
{
    return mp_str_is(call->method, "initialize");
}

static void describe_call(mp_call *call, mp_trace *trace)
{
    char text[MP_SPAN_NAME_BYTES + 1];
    mp_str name = name_of(call);
    int len =
        snprintf(text, sizeof text, "%.*s%s%.*s", MP_STR_ARG(call->method), name.len == 0 ? "" : " ", MP_STR_ARG(name));
    mp_span_name(trace, MP_ROOT_SPAN, (mp_str){text, len < (int)sizeof text ? (size_t)len : sizeof text - 1});
    mp_span_text(trace, MP_ROOT_SPAN, "mcp.method.name", call->method);
    if (!opens_session(call))
        set_session(call, trace);
    mp_span_text(trace, MP_ROOT_SPAN, "jsonrpc.request.id", plain_id(call->id));
    if (mp_str_is(call->method, "tools/call")) {
        mp_span_text(trace, MP_ROOT_SPAN, "gen_ai.operation.name", MP_STR("execute_tool"));
        mp_span_text(trace, MP_ROOT_SPAN, "gen_ai.tool.name", name);
    } else {
        mp_span_text(trace, MP_ROOT_SPAN, "gen_ai.prompt.name", name);
    }
    set_network(call, trace);
}

void mp_call_begin_trace(mp_call *call)
{
    const mp_envelope *envelope = &call->rpc->envelope;
    mp_trace_origin origin = {.parent = envelope->traceparent,
                              .state = envelope->tracestate,
                              .began_us = call->began,
                              .is_shown = mp_call_is_shown(call)};
    uint64_t authn_began_us = call->rpc->authn_began_us;
    if (authn_began_us != 0)
        origin.began_us = authn_began_us;
    origin.header_parent = mp_stream_header(call->stream, "traceparent", NULL);
    if (origin.header_parent.len > 0)
        origin.header_state = mp_stream_header(call->stream, "tracestate", NULL);
    mp_trace *trace = mp_trace_begin(&origin);
    call->trace = trace;
    if (trace == NULL)
        return;
    mp_trace_mark(trace, mp_call_mark(call));
    describe_call(call, trace);
    if (authn_began_us != 0)
        mp_span_end(trace, mp_span_begin_at(trace, MP_ROOT_SPAN, MP_SPAN_INTERNAL, MP_STR("auth"), authn_began_us));
}

void mp_call_trace_job(mp_call *call, mp_str name)
{
    char text[MP_SPAN_NAME_BYTES + 1];
    if (!mp_traces_are_on() || call->trace != NULL)
        return;
    mp_trace *trace = mp_trace_begin_alone();
    call->trace = trace;
    if (trace == NULL)
        return;
    mp_trace_mark(trace, mp_call_mark(call));
    int len = snprintf(text, sizeof text, "job %.*s", MP_STR_ARG(name));
    mp_span_name(trace, MP_ROOT_SPAN, (mp_str){text, len < (int)sizeof text ? (size_t)len : sizeof text - 1});
    mp_span_text(trace, MP_ROOT_SPAN, "moonpool.job", name);
}

void mp_call_end_trace(mp_call *call, mp_trace *trace)
{
    char room[16];
    const char *error = mp_call_error_type(call, room);
    call->trace = NULL;
    if (opens_session(call))
        set_session(call, trace);
    if (*error != '\0') {
        mp_span_text(trace, MP_ROOT_SPAN, "error.type", mp_str_of(error));
        mp_span_fail(trace, MP_ROOT_SPAN, MP_STR_NONE);
    }
    if (call->code != 0) {
        snprintf(room, sizeof room, "%d", call->code);
        mp_span_text(trace, MP_ROOT_SPAN, "rpc.response.status_code", mp_str_of(room));
    }
    mp_trace_end(trace, *error != '\0');
}

mp_trace *MP_NULLABLE mp_call_trace(const mp_call *call)
{
    return call->trace;
}
