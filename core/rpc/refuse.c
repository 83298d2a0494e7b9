/* refuse.c: answers that no script gives: HTTP refusals and errors of framing. */
#include "house.h"
#include "json/json.h"

void mp_put_error(mp_buf *out, mp_str id, int code, mp_str message, mp_str data)
{
    mp_buf_put(out, MP_STR("{\"jsonrpc\":\"2.0\","));
    if (id.len > 0) { /* an id that could not be read is left out, never null (G-4) */
        mp_buf_put(out, MP_STR("\"id\":"));
        mp_buf_put(out, id);
        mp_buf_putc(out, ',');
    }
    mp_buf_put(out, MP_STR("\"error\":{\"code\":"));
    mp_json_put_int(out, code);
    mp_buf_put(out, MP_STR(",\"message\":"));
    mp_json_put_string(out, message);
    if (data.len > 0) {
        mp_buf_put(out, MP_STR(",\"data\":"));
        mp_buf_put(out, data);
    }
    mp_buf_put(out, MP_STR("}}"));
}

void mp_put_envelope_error(mp_buf *out, const mp_envelope *envelope, const char *what)
{
    mp_buf text = {0};
    bool is_broken = envelope->kind == MP_KIND_BROKEN;
    if (is_broken)
        mp_buf_printf(&text, "the %s is not JSON: %s at byte %zu", what, envelope->problem, envelope->offset);
    else if (envelope->kind == MP_KIND_ARRAY)
        mp_buf_printf(&text, "a %s is one message, not an array of them", what);
    else
        mp_buf_put(&text, mp_str_of(envelope->problem));
    mp_str id = envelope->kind == MP_KIND_INVALID ? envelope->id : MP_STR_NONE;
    mp_put_error(out, id, is_broken ? -32700 : -32600, mp_buf_str(&text), MP_STR_NONE);
    mp_buf_clear(&text);
}

#define MODERN_VERSIONS "[\"2026-07-28\"]"

const char mp_meta_is_missing[] = "params._meta needs \"io.modelcontextprotocol/protocolVersion\" (a string) and "
                                  "\"io.modelcontextprotocol/clientCapabilities\" (an object)";
const char mp_version_has_sessions[] = "this protocol version is not served without a session";

/* -32022 and friends name what would have been served. */
void mp_put_versions(mp_buf *out, mp_str requested)
{
    mp_buf_put(out, MP_STR("{\"supported\":" MODERN_VERSIONS));
    if (requested.ptr != NULL) {
        mp_buf_put(out, MP_STR(",\"requested\":"));
        mp_json_put_string(out, requested);
    }
    mp_buf_putc(out, '}');
}

static void send_error(mp_rpc *rpc, mp_stream *stream, int status, const mp_header *header, mp_str id, int code,
                       const char *message, mp_str data)
{
    rpc->scratch.len = 0;
    mp_put_error(&rpc->scratch, id, code, mp_str_of(message), data);
    mp_stream_answer(stream, status, "application/json", mp_buf_str(&rpc->scratch), header, header == NULL ? 0 : 1);
}

void mp_refuse(mp_rpc *rpc, mp_stream *stream, int status, int code, mp_str id, const char *message, mp_str data)
{
    send_error(rpc, stream, status, NULL, id, code, message, data);
}

void mp_refuse_with(mp_rpc *rpc, mp_stream *stream, int status, mp_header header, const char *message)
{
    send_error(rpc, stream, status, &header, MP_STR_NONE, -32600, message, MP_STR_NONE);
}

void mp_accept_note(mp_stream *stream)
{
    mp_stream_answer(stream, 202, NULL, MP_STR(""), NULL, 0);
}

/* -- a status for the error of a call ------------------------------------------------------------------------------ */

static bool can_say_status(const mp_call *call)
{
    return !call->ended && call->stream != NULL && call->batch == NULL && call->feed == NULL &&
           !mp_stream_is_events(call->stream) && mp_stream_is_open(call->stream);
}

bool mp_call_forbid(mp_call *call, mp_str scopes)
{
    if (!can_say_status(call))
        return false;
    mp_buf challenge = {0};
    mp_put_challenge(call->rpc, call->stream, &challenge, "insufficient_scope", scopes);
    mp_stream_add_header(call->stream, (mp_header){"www-authenticate", mp_buf_str(&challenge)});
    mp_buf_clear(&challenge);
    call->status = 403;
    return true;
}

bool mp_call_put_off(mp_call *call, int64_t seconds)
{
    if (!can_say_status(call))
        return false;
    mp_buf text = {0};
    mp_json_put_int(&text, seconds);
    mp_stream_add_header(call->stream, (mp_header){"retry-after", mp_buf_str(&text)});
    mp_buf_clear(&text);
    call->status = 429;
    return true;
}
