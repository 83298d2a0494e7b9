/* plan_answer.c: the result of a planned call: what lua/moonpool/things/tool_result.lua and the encoder of lua_json.h
 * would give, or nothing. */
#include "lib/shortcut/plan.h"
#include <math.h>

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

bool mp_plan_put_scalar(lua_State *L, int index, const mp_plan_frame *frame, mp_buf *out)
{
    size_t start = out->len;
    mp_buf_put(out, frame->before);
    switch (lua_type(L, index)) {
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
    mp_buf_put(out, frame->after);
    return true;
}

/* -- tables ------------------------------------------------------------------------------------------------------ */

#define MAX_ITEMS 64 /* of a list that C looks through for content blocks */

/* True for a table without a metatable, or with that of json.array or json.object: no content block, no bytes(…).  [-0,
 * +0] */
static bool is_plain(lua_State *L, int index)
{
    if (!lua_getmetatable(L, index))
        return true;
    const void *metatable = lua_topointer(L, -1);
    const mp_state *state = mp_state_of(mp_vm_of(L));
    lua_pop(L, 1);
    return metatable == state->array_mt || metatable == state->object_mt;
}

/* True if no item of the list is a content block.  [-0, +0] */
static bool has_plain_items(lua_State *L, int index)
{
    lua_Unsigned count = lua_rawlen(L, index);
    bool are_plain = count <= MAX_ITEMS;
    for (lua_Unsigned i = 1; are_plain && i <= count; i++) {
        are_plain = lua_rawgeti(L, index, (lua_Integer)i) != LUA_TTABLE || is_plain(L, lua_gettop(L));
        lua_pop(L, 1);
    }
    return are_plain;
}

static bool fits_object(lua_State *L, const mp_plan *plan, int at, const mp_plan_object *object, int index);

/* True if the value on top fits the field.  [-0, +0] */
static bool fits_field(lua_State *L, const mp_plan *plan, int at, const mp_plan_field *field)
{
    mp_str text;
    switch (field->kind) {
    case MP_FIELD_NUMBER:
    case MP_FIELD_INTEGER:
        if (lua_type(L, -1) != LUA_TNUMBER || (field->kind == MP_FIELD_INTEGER && !lua_isinteger(L, -1)))
            return false;
        double n = lua_tonumber(L, -1);
        return !field->has_bounds || (fabs(n) <= 0x1p53 && mp_field_allows_number(field, n));
    case MP_FIELD_STRING:
        if (lua_type(L, -1) != LUA_TSTRING)
            return false;
        text.ptr = lua_tolstring(L, -1, &text.len);
        return !field->has_bounds &&
               mp_field_allows_text(plan, field,
                                    text); /* the characters of text that is not UTF-8 are counted in Lua */
    case MP_FIELD_BOOLEAN:
        return lua_isboolean(L, -1);
    default:
        return fits_object(L, plan, at, &field->inner, lua_gettop(L));
    }
}

/* True if the value at `index` is a table that fits the object, without a metatable and without items.  [-0, +0] */
static bool fits_object(lua_State *L, const mp_plan *plan, int at, const mp_plan_object *object, int index)
{
    if (!lua_istable(L, index) || !lua_checkstack(L, LUA_MINSTACK))
        return false;
    if (lua_getmetatable(L, index)) {
        lua_pop(L, 1);
        return false;
    }
    int members = 0;
    bool are_good = lua_rawgeti(L, index, 1) == LUA_TNIL;
    lua_pop(L, 1);
    for (int i = 0; are_good && i < object->count; i++) {
        const mp_plan_field *field = &plan->fields[object->first + i];
        lua_getiuservalue(L, at, field->name_slot);
        if (lua_rawget(L, index) == LUA_TNIL) {
            are_good = (object->required & 1u << i) == 0;
        } else {
            members++;
            are_good = fits_field(L, plan, at, field);
        }
        lua_pop(L, 1);
    }
    if (!are_good || !object->is_closed)
        return are_good;
    for (lua_pushnil(L); lua_next(L, index) != 0; lua_pop(L, 1))
        if (members-- == 0) {
            lua_pop(L, 2);
            return false;
        }
    return true;
}

/* True if the member `content` is a table, as in results of SDKs, of which lua/moonpool warns.  [-0, +0] */
static bool has_content(lua_State *L, int index)
{
    lua_pushliteral(L, "content");
    bool is_table = lua_rawget(L, index) == LUA_TTABLE;
    lua_pop(L, 1);
    return is_table;
}

bool mp_plan_is_structured(lua_State *L, const mp_plan *plan, int at, int index)
{
    if (plan->knows_output)
        return fits_object(L, plan, at, &plan->output, index);
    return is_plain(L, index) && (plan->has_output || (has_plain_items(L, index) && !has_content(L, index)));
}

void mp_plan_put_structured(mp_str text, const mp_plan_frame *frame, mp_buf *out)
{
    const mp_str *around = text.len > 0 && text.ptr[0] == '{' ? frame->object : frame->other;
    mp_buf_put(out, around[0]);
    mp_json_put_string(out, text);
    if (around[1].len > 0) {
        mp_buf_put(out, around[1]);
        mp_buf_put(out, text);
    }
    mp_buf_put(out, around[2]);
}
