/* refuse.c: HTTP answers with an error, before there is a call. */
#include "request.h"

const char mp_answers_are_full[] = "too many answers wait for clients to read them: try again later";
const char mp_outside[] = "this gateway has not joined its cluster: try again later";
const char mp_meta_is_missing[] = "params._meta needs \"io.modelcontextprotocol/protocolVersion\" (a string) and "
                                  "\"io.modelcontextprotocol/clientCapabilities\" (an object)";
const char mp_version_is_unsupported[] =
    "Unsupported protocol version"; /* in the words of the official SDKs, which clients match */

void mp_put_versions(mp_buf *out, mp_str requested)
{
    mp_buf_put(out, MP_STR("{\"supported\":"));
    mp_era_put_stateless(out);
    if (requested.ptr != NULL) {
        mp_buf_put(out, MP_STR(",\"requested\":"));
        mp_json_put_string(out, requested);
    }
    mp_buf_putc(out, '}');
}

static void send_error(mp_rpc *rpc, mp_stream *stream, int status, const mp_header *MP_NULLABLE header, mp_str id,
                       int code, const char *message, mp_str data)
{
    rpc->scratch.len = 0;
    mp_put_error(&rpc->scratch, id, code, mp_str_of(message), data);
    mp_stream_answer(stream, status, "application/json", mp_buf_str(&rpc->scratch), header, header == NULL ? 0 : 1);
}

void mp_refuse(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, int code, mp_str id, const char *message,
               mp_str data)
{
    bool is_foreign = cause == MP_CAUSE_SESSION && rpc->names_foreign_session;
    mp_log_refused(stream, cause, status, mp_str_of(is_foreign ? "the session is of another principal" : message));
    send_error(rpc, stream, status, NULL, id, code, message, data);
}

void mp_refuse_with(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, mp_header header, const char *message)
{
    mp_log_refused(stream, cause, status, mp_str_of(message));
    send_error(rpc, stream, status, &header, MP_STR_NONE, MP_CODE_INVALID_REQUEST, message, MP_STR_NONE);
}

void mp_refuse_for(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, unsigned seconds, const char *message)
{
    char text[16];
    int len = snprintf(text, sizeof text, "%u", seconds);
    mp_refuse_with(rpc, stream, cause, status, (mp_header){"retry-after", {text, (size_t)len}}, message);
}

unsigned mp_stopping_s(const mp_rpc *rpc)
{
    uint64_t now = mp_monotonic_ms();
    return rpc->ends_at <= now ? 1 : (unsigned)((rpc->ends_at - now + 999) / 1000);
}

void mp_accept_note(mp_stream *stream)
{
    mp_stream_answer(stream, 202, NULL, MP_STR(""), NULL, 0);
}
