/* audit.c: an audit line for each decision that is made before there is a call. The line of a call itself is written
 * by Lua, and has the same members. */
#include "request.h"

#define MAX_VALUE_BYTES 256 /* longest value in an audit line: a client or a script chose its length */

const mp_decision mp_host_refused = {
    .event = "refused", .status = 403, .why = {"this Host or Origin is not served here", 38}, .tells_host = true};

static void put_member(mp_buf *line, const char *name, mp_str value)
{
    if (value.len == 0)
        return;
    mp_str cut = value;
    if (value.len > MAX_VALUE_BYTES)
        for (cut.len = MAX_VALUE_BYTES;
             cut.len > MAX_VALUE_BYTES - 4 && ((unsigned char)cut.ptr[cut.len] & 0xc0) == 0x80;)
            cut.len--;
    mp_buf_printf(line, ",\"%s\":", name);
    mp_json_put_string(line, cut);
    if (cut.len < value.len) { /* limit of the bytes inside the quotes of the JSON string */
        line->len--;
        mp_buf_put(line, MP_STR("…\""));
    }
}

void mp_audit_request(mp_stream *stream, const mp_decision *made)
{
    if (!mp_audit_is_on())
        return;
    mp_scoped_buf line = {0};
    mp_buf_printf(&line, "\"event\":\"%s\",\"id\":\"%s\"", made->event, mp_mark_text_of(mp_stream_mark(stream)).text);
    put_member(&line, "principal", made->principal == NULL ? MP_STR_NONE : mp_principal_id(made->principal));
    put_member(&line, "address", mp_stream_address(stream));
    put_member(&line, "edge", mp_stream_edge(stream));
    if (made->session.len > 0) {
        mp_session_mark mark = mp_session_mark_of(made->session);
        put_member(&line, "session", mp_str_of(mark.text));
    }
    put_member(&line, "method", mp_stream_request(stream)->method);
    put_member(&line, "path", mp_stream_request(stream)->path);
    put_member(&line, "host", made->tells_host ? mp_stream_request(stream)->host : MP_STR_NONE);
    put_member(&line, "origin", made->tells_host ? mp_stream_header(stream, "origin", NULL) : MP_STR_NONE);
    if (made->status > 0)
        mp_buf_printf(&line, ",\"status\":%d", made->status);
    put_member(&line, "caller", made->caller);
    put_member(&line, "why", made->why);
    mp_audit_write(mp_buf_str(&line));
}
