/* error.c: JSON-RPC errors: the table of codes, read from error.def, and their bytes. */
#include "mcp.h"

const mp_error_code mp_error_codes[] = {
#define ERROR_CODE(constant, name, code, status) {#name, code, status},
#include "error.def"
#undef ERROR_CODE
};
const size_t mp_error_code_count = sizeof mp_error_codes / sizeof *mp_error_codes;

int mp_error_status(const mp_era *MP_NULLABLE era, int code)
{
    if (era == NULL || era->has_sessions)
        return 200;
    for (size_t i = 0; i < mp_error_code_count; i++)
        if (mp_error_codes[i].code == code)
            return mp_error_codes[i].status;
    return 200;
}

void mp_put_error(mp_buf *out, mp_str id, int code, mp_str message, mp_str data)
{
    mp_buf_put(out, MP_STR("{\"jsonrpc\":\"2.0\","));
    if (id.len > 0) {
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
