/* lib_json_decode.c: JSON text to Lua values. Elements gather on the Lua stack, so that a table is made in its size. Nothing
 * here owns memory: an error may be thrown anywhere. Recursion is bounded by the scan's depth. */
#include "script/lib_json.h"
#include <lauxlib.h>

enum { BATCH = 16 };

typedef struct {
    lua_State *L;
    mp_json_cursor cursor;
    int array_mt;         /* where it is on the stack */
    const char *repeated; /* a key that its object has twice: one of the two */
} decoder;

static bool push_value(decoder *d, mp_json_token token);

/* Not inlined: the buffer on the C stack is not for every level of the recursion. */
static __attribute__((noinline)) void push_escaped(lua_State *L, mp_str inside)
{
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, inside.len);
    luaL_pushresultsize(&buffer, mp_json_copy_string(to, (mp_str){inside.ptr - 1, inside.len + 2}));
}

static void push_string(decoder *d, mp_json_token token)
{
    if (token.escaped)
        push_escaped(d->L, token.span);
    else
        lua_pushlstring(d->L, token.span.ptr, token.span.len);
}

/* Moves the `held` values on top into the array at `slot`, which is made when it is the first batch. */
static void store_elements(decoder *d, int slot, int stored, int held)
{
    if (stored == 0) {
        lua_createtable(d->L, held, 0);
        lua_pushvalue(d->L, d->array_mt);
        lua_setmetatable(d->L, -2);
        lua_replace(d->L, slot);
    }
    for (int i = held; i > 0; i--)
        lua_rawseti(d->L, slot, stored + i);
}

static bool push_array(decoder *d)
{
    int stored = 0, held = 0;
    luaL_checkstack(d->L, BATCH + LUA_MINSTACK, "array");
    lua_pushnil(d->L);
    int slot = lua_gettop(d->L);
    for (;;) {
        mp_json_token token = mp_json_next(&d->cursor);
        if (token.type == MP_JSON_T_CLOSE_ARRAY)
            break;
        if (held == BATCH) {
            store_elements(d, slot, stored, held);
            stored += held;
            held = 0;
        }
        if (!push_value(d, token))
            return false;
        held++;
    }
    store_elements(d, slot, stored, held);
    return true;
}

/* Moves the `held` names and values on top into the table at `slot`. False when a name is there already. */
static bool store_members(decoder *d, int slot, bool first, int held, const char *const *names)
{
    lua_State *L = d->L;
    if (first) {
        lua_createtable(L, 0, held);
        lua_replace(L, slot);
    }
    while (held-- > 0) {
        lua_pushvalue(L, -2);
        if (lua_rawget(L, slot) != LUA_TNIL) {
            d->repeated = names[held];
            return false;
        }
        lua_pop(L, 1);
        lua_rawset(L, slot);
    }
    return true;
}

static bool push_object(decoder *d)
{
    const char *names[BATCH];
    bool first = true;
    int held = 0;
    luaL_checkstack(d->L, 2 * BATCH + LUA_MINSTACK, "object");
    lua_pushnil(d->L);
    int slot = lua_gettop(d->L);
    for (;;) {
        mp_json_token token = mp_json_next(&d->cursor);
        if (token.type == MP_JSON_T_CLOSE_OBJECT)
            break;
        if (held == BATCH) {
            if (!store_members(d, slot, first, held, names))
                return false;
            first = false;
            held = 0;
        }
        names[held] = token.span.ptr - 1;
        push_string(d, token);
        if (!push_value(d, mp_json_next(&d->cursor)))
            return false;
        held++;
    }
    return store_members(d, slot, first, held, names);
}

static bool push_value(decoder *d, mp_json_token token)
{
    int64_t n;
    switch (token.type) {
    case MP_JSON_T_OPEN_OBJECT:
        return push_object(d);
    case MP_JSON_T_OPEN_ARRAY:
        return push_array(d);
    case MP_JSON_T_STRING:
        push_string(d, token);
        break;
    case MP_JSON_T_INTEGER:
        if (mp_json_int(token.span, &n)) {
            lua_pushinteger(d->L, n);
            break;
        }
        /* fall through */
    case MP_JSON_T_FLOAT:
        lua_pushnumber(d->L, mp_json_double(token.span));
        break;
    case MP_JSON_T_TRUE:
    case MP_JSON_T_FALSE:
        lua_pushboolean(d->L, token.type == MP_JSON_T_TRUE);
        break;
    default:
        mp_lua_push_null(d->L);
    }
    return true;
}

/* Gives where a key is repeated, else NULL with the value pushed. */
static const char *decode(lua_State *L, mp_str text)
{
    luaL_checkstack(L, LUA_MINSTACK, "JSON");
    mp_lua_push_array_mt(L);
    decoder d = {.L = L, .cursor = {text.ptr, text.ptr + text.len}, .array_mt = lua_gettop(L)};
    if (push_value(&d, mp_json_next(&d.cursor)))
        lua_replace(L, d.array_mt);
    else
        lua_settop(L, d.array_mt - 1);
    return d.repeated;
}

int mp_lua_decode(lua_State *L, mp_str text)
{
    return decode(L, text) == NULL ? 0 : MP_JSON_REPEATED;
}

int mp_lua_decode_checked(lua_State *L, mp_str text, mp_json_fault *fault)
{
    mp_json_result result = mp_json_scan(text, NULL, NULL, fault);
    if (result != MP_JSON_OK)
        return result;
    const char *repeated = decode(L, text);
    if (repeated == NULL)
        return 0;
    if (fault != NULL)
        *fault = (mp_json_fault){"repeated key", (size_t)(repeated - text.ptr)};
    return MP_JSON_REPEATED;
}
