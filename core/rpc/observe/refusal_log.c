/* refusal_log.c: one line of the log, at info, for each request that is refused. */
#include "refusal_log.h"
#include "tap.h"
#include "data/data.h"

mp_session_mark mp_session_mark_of(mp_str id)
{
    mp_session_mark mark = {""};
    unsigned char digest[MP_SHA256_BYTES];
    mp_sha256(id, digest);
    mp_hex_put(mark.text, digest, sizeof mark.text / 2);
    return mark;
}

static void tap_refusal(const mp_stream *stream, int status, mp_str why)
{
    const mp_request *request = mp_stream_request(stream);
    mp_tap_put(&(mp_tap_event){.event = "refused",
                               .outcome = MP_STR("refused"),
                               .method = request->method,
                               .name = request->path,
                               .address = mp_stream_address(stream),
                               .status = status,
                               .why = why});
}

void mp_log_refused(const mp_stream *stream, mp_cause cause, int status, mp_str why)
{
    if (mp_tap_is_on())
        tap_refusal(stream, status, why);
    if (!mp_refusal_begin(cause))
        return;
    const mp_request *request = mp_stream_request(stream);
    bool is_of_host = cause == MP_CAUSE_HOST || cause == MP_CAUSE_ORIGIN || cause == MP_CAUSE_ADMIN_HOST;
    mp_session_mark mark = {""};
    uint64_t own = mp_stream_known_mark(stream);
    mp_str id = mp_stream_known_header(stream, MP_HEADER_MCP_SESSION_ID, NULL);
    if (id.len == 0)
        id = mp_query_value(request->query, "session_id", &(int){0});
    if (id.len > 0)
        mark = mp_session_mark_of(id);
    mp_refusal_write(
        cause, why,
        (const mp_log_field[]){
            mp_log_int("status", status),
            mp_log_str("method", request->method),
            mp_log_str("path", request->path),
            mp_log_str("host", is_of_host ? request->host : MP_STR_NONE),
            mp_log_str("origin", is_of_host ? mp_stream_known_header(stream, MP_HEADER_ORIGIN, NULL) : MP_STR_NONE),
            mp_log_str("version", cause == MP_CAUSE_REVISION || cause == MP_CAUSE_HEADER
                                      ? mp_stream_known_header(stream, MP_HEADER_MCP_PROTOCOL_VERSION, NULL)
                                      : MP_STR_NONE),
            mp_log_str("session", mp_str_of(mark.text)),
            mp_log_str("address", mp_stream_address(stream)),
            mp_log_str("call", own == 0 ? MP_STR_NONE : mp_str_of(mp_mark_text_of(own).text)),
            {0}});
}

void mp_log_refused_message(mp_rpc *rpc, mp_cause cause, const char *why)
{
    mp_refused(cause, mp_str_of(why), mp_log_str("method", rpc->envelope.method),
               mp_log_str("transport", mp_str_of(rpc->stdio != NULL ? "stdio" : "http")));
}
