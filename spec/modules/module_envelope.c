/* module_envelope.c: the two readers of a message, and what both say: modules.envelope. */
#include "modules.h"
#include "mcp/mcp.h"

static void set_str(lua_State *L, const char *name, mp_str s)
{
    lua_pushlstring(L, s.ptr, s.len);
    lua_setfield(L, -2, name);
}

static void set_bool(lua_State *L, const char *name, bool b)
{
    lua_pushboolean(L, b);
    lua_setfield(L, -2, name);
}

static void set_size(lua_State *L, const char *name, size_t n)
{
    lua_pushinteger(L, (lua_Integer)n);
    lua_setfield(L, -2, name);
}

/* All fields of an envelope but those of its arguments, which the general reader does not set. */
static void push_fields(lua_State *L, const mp_envelope *envelope)
{
    lua_newtable(L);
    set_size(L, "kind", envelope->kind);
    lua_pushstring(L, envelope->problem);
    lua_setfield(L, -2, "problem");
    set_size(L, "offset", envelope->offset);
    set_size(L, "code", (size_t)-envelope->code);
    set_bool(L, "has_many", envelope->has_many);
    set_size(L, "weight", envelope->weight);
    set_str(L, "id", envelope->id);
    set_str(L, "method", envelope->method);
    set_str(L, "params", envelope->params);
    set_str(L, "name", envelope->name);
    set_bool(L, "has_name", envelope->has_name);
    set_str(L, "version", envelope->version);
    set_bool(L, "has_version", envelope->has_version);
    set_bool(L, "version_is_string", envelope->version_is_string);
    set_bool(L, "has_capabilities", envelope->has_capabilities);
    set_str(L, "progress_token", envelope->progress_token);
    set_str(L, "traceparent", envelope->traceparent);
    set_str(L, "tracestate", envelope->tracestate);
    set_str(L, "answer", envelope->answer);
    set_bool(L, "is_error", envelope->is_error);
    set_str(L, "cancels", envelope->cancels);
    set_size(L, "size", envelope->size);
}

static void push_flat(lua_State *L, const mp_envelope *envelope)
{
    static const char *const types[] = {
        [MP_JSON_T_NULL] = "null",          [MP_JSON_T_FALSE] = "false",     [MP_JSON_T_TRUE] = "true",
        [MP_JSON_T_INTEGER] = "integer",    [MP_JSON_T_FLOAT] = "float",     [MP_JSON_T_STRING] = "string",
        [MP_JSON_T_OPEN_OBJECT] = "object", [MP_JSON_T_OPEN_ARRAY] = "array"};
    lua_newtable(L);
    for (int i = 0; i < envelope->flat_count; i++) {
        const mp_flat *flat = &envelope->flat[i];
        lua_newtable(L);
        set_str(L, "name", flat->name);
        set_str(L, "value", flat->value);
        lua_pushstring(L, flat->type == MP_FLAT_ESCAPED ? "escaped" : types[flat->type]);
        lua_setfield(L, -2, "type");
        lua_rawseti(L, -2, i + 1);
    }
}

/* read(text[, values]) -> the general reader's fields, the quick reader's (nil: it gave up), its arguments */
static int l_read(lua_State *L)
{
    mp_str text;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    size_t values = (size_t)luaL_optinteger(L, 2, 1000000);
    mp_envelope general = {0}, quick = {0};
    mp_envelope_read_any(&general, text, values);
    push_fields(L, &general);
    if (mp_envelope_read_quickly(&quick, text, values)) {
        push_fields(L, &quick);
        push_flat(L, &quick);
    } else {
        lua_pushnil(L);
        lua_pushnil(L);
    }
    mp_buf_clear(&general.scratch);
    mp_buf_clear(&quick.scratch);
    return 3;
}

int module_envelope(lua_State *L)
{
    luaL_newlib(L, ((const luaL_Reg[]){{"read", l_read}, {NULL, NULL}}));
    return 1;
}
