/* audit.c: what is decided before there is a call: a line of the audit for each refusal. A call's own line is the script's to
 * write, and has the same members. */
#include "house.h"
#include "json/json.h"
#include <openssl/sha.h>
#include <sys/random.h>

#define LONGEST 256 /* bytes of what a client sent, or a script said */

const mp_decision mp_host_refused = {
    .event = "refused", .status = 403, .why = {"this Host or Origin is not served here", 38}, .tells_host = true};

static void put(mp_buf *line, const char *name, mp_str value)
{
    if (value.len == 0)
        return;
    mp_str cut = value;
    if (value.len > LONGEST)
        for (cut.len = LONGEST; cut.len > LONGEST - 4 && ((unsigned char)cut.ptr[cut.len] & 0xc0) == 0x80;)
            cut.len--;
    mp_buf_printf(line, ",\"%s\":", name);
    mp_json_put_string(line, cut);
    if (cut.len < value.len) { /* within its quotes */
        line->len--;
        mp_buf_put(line, MP_STR("…\""));
    }
}

static void put_hex(mp_buf *line, const unsigned char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        mp_buf_printf(line, "%02x", bytes[i]);
}

void mp_audit_request(const mp_stream *stream, const mp_decision *made)
{
    if (!mp_audit_is_on())
        return;
    unsigned char id[8], digest[SHA256_DIGEST_LENGTH];
    mp_buf line = {0};
    mp_buf_printf(&line, "\"event\":\"%s\"", made->event);
    if (getrandom(id, sizeof id, GRND_NONBLOCK) == (ssize_t)sizeof id) {
        mp_buf_put(&line, MP_STR(",\"id\":\""));
        put_hex(&line, id, sizeof id);
        mp_buf_putc(&line, '"');
    }
    put(&line, "principal", made->principal == NULL ? MP_STR_NONE : mp_principal_id(made->principal));
    put(&line, "address", mp_stream_peer(stream));
    if (made->session.len > 0) {
        SHA256((const unsigned char *)made->session.ptr, made->session.len, digest);
        mp_buf_put(&line, MP_STR(",\"session\":\""));
        put_hex(&line, digest, 4);
        mp_buf_putc(&line, '"');
    }
    put(&line, "method", mp_stream_request(stream)->method);
    put(&line, "path", mp_stream_request(stream)->path);
    put(&line, "host", made->tells_host ? mp_stream_request(stream)->host : MP_STR_NONE);
    put(&line, "origin", made->tells_host ? mp_stream_header(stream, "origin", NULL) : MP_STR_NONE);
    if (made->status > 0)
        mp_buf_printf(&line, ",\"status\":%d", made->status);
    put(&line, "why", made->why);
    mp_audit_write(mp_buf_str(&line));
    mp_buf_clear(&line);
}
