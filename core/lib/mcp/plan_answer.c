/* plan_answer.c: the answer to a planned call whose handler returned a text, a number or a boolean: what lua/moonpool/things/tool_result.lua
 * and the encoder of lua_json.h would give, or nothing. */
#include "lib/mcp/plan.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_TEXT_BYTES (16 << 10) /* longer texts are encoded in turns, on the general path */

/* A float as tool_result.lua writes it: with 14 digits if that reads back as the same number, else with 17. */
static void put_float(mp_buf *out, double n)
{
    char text[40];
    if (fabs(n) < 1e14 && n == floor(n) && !(n == 0 && signbit(n))) {
        mp_json_put_int(out, (int64_t)n);
        return;
    }
    if (isnan(n)) {
        mp_buf_put(out, MP_STR("nan"));
        return;
    }
    int length = snprintf(text, sizeof text, "%.14g", n);
    if (isinf(n) == 0 && strtod(text, NULL) != n)
        length = snprintf(text, sizeof text, "%.17g", n);
    mp_buf_put(out, (mp_str){text, (size_t)length});
}

static bool put_text(lua_State *L, int index, mp_buf *out)
{
    mp_str text;
    text.ptr = lua_tolstring(L, index, &text.len);
    return text.len <= MAX_TEXT_BYTES && mp_json_put_utf8(out, text);
}

bool mp_plan_put_result(lua_State *L, int index, mp_str before, mp_str after, mp_buf *out)
{
    size_t start = out->len;
    int type = lua_type(L, index);
    mp_buf_put(out, before);
    switch (type) {
    case LUA_TSTRING:
        if (!put_text(L, index, out)) {
            out->len = start;
            return false;
        }
        break;
    case LUA_TNUMBER:
        mp_buf_putc(out, '"');
        if (lua_isinteger(L, index))
            mp_json_put_int(out, lua_tointeger(L, index));
        else
            put_float(out, lua_tonumber(L, index));
        mp_buf_putc(out, '"');
        break;
    case LUA_TBOOLEAN:
        mp_buf_put(out, lua_toboolean(L, index) ? MP_STR("\"true\"") : MP_STR("\"false\""));
        break;
    default:
        out->len = start;
        return false;
    }
    mp_buf_put(out, after);
    return true;
}
