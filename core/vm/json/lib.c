/* lib.c: the table that `require "moonpool.json"` returns. */
#include "vm/closing.h"
#include "vm/json/source.h"
#include "vm/schedule.h"
#include <lauxlib.h>

const char mp_lua_empty_array = 0;

enum { KEY_SHOWN = 64, PART = 256 << 10 }; /* bytes that are scanned in one step: about a millisecond */

static int encode_into(lua_State *L)
{
    mp_buf *out = lua_touserdata(L, 2);
    mp_lua_encode(L, 1, out);
    lua_pushlstring(L, out->ptr, out->len);
    return 1;
}

static int push_text(lua_State *L, MP_UNUSED void *ctx, mp_str text, MP_UNUSED size_t size)
{
    lua_pushlstring(L, text.ptr, text.len);
    return 1;
}

/* encode(value) -> text  [throws what cannot be encoded, and where] */
static int l_encode(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    mp_buf out = {0};
    lua_pushcfunction(L, encode_into);
    lua_insert(L, 1);
    lua_pushlightuserdata(L, &out);
    int status = lua_pcall(L, 2, 1, 0);
    mp_buf_clear(&out);
    if (status == LUA_OK)
        return 1;
    if (status == LUA_ERRRUN) {
        luaL_where(L, 1);
        lua_insert(L, -2);
        lua_concat(L, 2);
    }
    return lua_error(L);
}

/* Pushes nil and the error text: `why` is the fault at byte `at` of the text at index 1; a repeated key is named. [-0,
 * +2, throws] */
static int push_fault(lua_State *L, mp_json_fault fault, bool is_repeated)
{
    mp_str text;
    text.ptr = lua_tolstring(L, 1, &text.len);
    lua_pushnil(L);
    lua_pushstring(L, fault.what);
    if (is_repeated) {
        mp_json_cursor cursor = {text.ptr + fault.offset, text.ptr + text.len};
        mp_str key = mp_json_next(&cursor).span;
        lua_pushliteral(L, " \"");
        lua_pushlstring(L, key.ptr, key.len < KEY_SHOWN ? key.len : KEY_SHOWN);
        lua_pushliteral(L, "\"");
        lua_concat(L, 4);
    }
    lua_pushfstring(L, " at byte %I", (LUAI_UACINT)fault.offset + 1);
    lua_concat(L, 2);
    return 2;
}

static int decoded(lua_State *L, void *ctx, const char *MP_NULLABLE repeated)
{
    const char *text = ctx;
    if (repeated == NULL)
        return 1;
    return push_fault(L, (mp_json_fault){"repeated key", (size_t)(repeated - text)}, true);
}

static int check_after_turn(lua_State *L, int status, lua_KContext kind);
static int decode_after_turn(lua_State *L, int status, lua_KContext kind);

static int end_check(lua_State *L, mp_lua_table_kind kind, mp_json_result result, mp_json_fault fault)
{
    lua_settop(L, 1); /* keeps the text on the stack, because `decode` borrows it */
    if (result != MP_JSON_OK)
        return push_fault(L, fault, false);
    mp_str text = mp_check_str(L, 1);
    return mp_lua_decode_in_turns(L, text, kind, decoded, (void *)(uintptr_t)text.ptr);
}

/* Goes on with the check at index 2, and yields when other tasks have to run, also before the values are made. */
static int check_in_turns(lua_State *L, MP_UNUSED int status, lua_KContext kind)
{
    mp_json_check *check = lua_touserdata(L, 2);
    mp_json_fault fault = {0};
    mp_json_result result;
    do
        result = mp_json_check_part(check, PART, &fault);
    while (result == MP_JSON_STOPPED && !mp_task_should_turn(L));
    if (result != MP_JSON_STOPPED && (result != MP_JSON_OK || !mp_task_should_turn(L)))
        return end_check(L, (mp_lua_table_kind)kind, result, fault);
    mp_task_turn(L);
    return lua_yieldk(L, 0, kind, result == MP_JSON_OK ? decode_after_turn : check_after_turn);
}

static int check_after_turn(lua_State *L, int status, lua_KContext kind)
{
    mp_closing_after_wait(L);
    return check_in_turns(L, status, kind);
}

static int decode_after_turn(lua_State *L, MP_UNUSED int status, lua_KContext kind)
{
    mp_closing_after_wait(L);
    return end_check(L, (mp_lua_table_kind)kind, MP_JSON_OK, (mp_json_fault){0});
}

static int decode_text(lua_State *L, mp_lua_table_kind kind)
{
    mp_str text;
    mp_json_fault fault;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    lua_settop(L, 1);
    if (text.len <= PART)
        return end_check(L, kind, mp_json_scan(text, NULL, NULL, &fault), fault);
    mp_json_check_begin(lua_newuserdatauv(L, mp_json_check_size(), 0), text);
    return check_in_turns(L, LUA_OK, (lua_KContext)kind);
}

/* decode(text) -> value | nil, why  [throws, yields] */
static int l_decode(lua_State *L)
{
    return decode_text(L, MP_LUA_PLAIN);
}

/* preserving(text) -> value | nil, why: decode, with byte-preserving tables (lua_json.h)  [throws, yields] */
static int l_preserving(lua_State *L)
{
    return decode_text(L, MP_LUA_PRESERVING);
}

static int mark_table(lua_State *L, void (*push_metatable)(lua_State *L))
{
    if (lua_isnoneornil(L, 1)) {
        lua_settop(L, 0);
        lua_newtable(L);
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    if (luaL_getmetafield(L, 1, "__metatable") !=
        LUA_TNIL) /* like setmetatable: a protected metatable, such as one of the gateway, is not changed */
        return luaL_error(L, "cannot change a protected metatable");
    push_metatable(L);
    lua_setmetatable(L, 1);
    return 1;
}

/* array([table]) -> the table, which encodes as an array even when it is empty */
static int l_array(lua_State *L)
{
    return mark_table(L, mp_lua_push_array_mt);
}

/* object([table]) -> the table, which encodes as an object even when it is empty */
static int l_object(lua_State *L)
{
    return mark_table(L, mp_lua_push_object_mt);
}

/* Pushes a value that encodes as this text, which is JSON, on one line.  [-0, +1, throws memory] */
static void push_raw(lua_State *L, mp_str text)
{
    char *block = lua_newuserdatauv(L, text.len, 0);
    memcpy(block, text.ptr, text.len);
    /* line ends occur only between tokens: a JSON string has none */
    for (const char *ends = "\r\n"; *ends != '\0'; ends++)
        for (char *at = block; (at = memchr(at, *ends, text.len - (size_t)(at - block))) != NULL;)
            *at++ = ' ';
    luaL_setmetatable(L, MP_LUA_RAW);
}

/* raw(text) -> a value that encodes as this JSON text, on one line [throws if the text is not JSON] */
static int l_raw(lua_State *L)
{
    mp_str text;
    mp_json_fault fault;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    if (mp_json_scan(text, NULL, NULL, &fault) != MP_JSON_OK)
        return luaL_error(L, "json.raw wants JSON: %s at byte %I", fault.what, (LUAI_UACINT)fault.offset + 1);
    push_raw(L, text);
    return 1;
}

/* Upvalue: an mp_buf.  [-0, +1, throws memory] */
static int push_out(lua_State *L)
{
    const mp_buf *out = lua_touserdata(L, lua_upvalueindex(1));
    lua_pushlstring(L, out->ptr, out->len);
    return 1;
}

/* Upvalue: an mp_buf with JSON.  [-0, +1, throws memory] */
static int push_raw_out(lua_State *L)
{
    push_raw(L, mp_buf_str(lua_touserdata(L, lua_upvalueindex(1))));
    return 1;
}

/* Reads the edit at the top: { "set", name, value, meta = true }. The strings are held by the table.  [-1, +0,
 * throws] */
static mp_json_edit read_edit(lua_State *L)
{
    static const char *const kinds[] = {"drop", "set", "rename", NULL};
    int at = lua_gettop(L);
    luaL_checktype(L, at, LUA_TTABLE);
    mp_json_edit edit = {0};
    lua_rawgeti(L, at, 1);
    edit.kind = (mp_json_edit_kind)luaL_checkoption(L, -1, NULL, kinds);
    lua_rawgeti(L, at, 2);
    edit.name = mp_check_str(L, -1);
    if (lua_rawgeti(L, at, 3) != LUA_TNIL || edit.kind != MP_JSON_DROP)
        edit.value = mp_check_str(L, -1);
    lua_getfield(L, at, "meta");
    edit.in_meta = lua_toboolean(L, -1);
    lua_settop(L, at - 1);
    return edit;
}

/* splice(text, edits, is_raw) -> text | nil, why; `is_raw`: what json.raw makes of the text  [throws] */
static int l_splice(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    luaL_checktype(L, 2, LUA_TTABLE);
    bool is_raw = lua_toboolean(L, 3);
    lua_settop(L, 2);
    mp_json_edit edits[MP_JSON_EDITS];
    lua_Unsigned count = lua_rawlen(L, 2);
    luaL_argcheck(L, count <= MP_JSON_EDITS, 2, "too many edits");
    for (lua_Unsigned i = 0; i < count; i++) {
        lua_rawgeti(L, 2, (lua_Integer)i + 1);
        edits[i] = read_edit(L);
    }
    mp_buf out = {0};
    mp_json_fault fault;
    mp_json_result result = mp_json_splice(&out, text, edits, (size_t)count, &fault);
    if (result != MP_JSON_OK) {
        mp_buf_clear(&out);
        lua_pushnil(L);
        lua_pushfstring(L, "%s at byte %I", fault.what, (LUAI_UACINT)fault.offset + 1);
        return 2;
    }
    lua_pushlightuserdata(L, &out);
    lua_pushcclosure(L, is_raw ? push_raw_out : push_out, 1);
    int status = lua_pcall(L, 0, 1, 0);
    mp_buf_clear(&out);
    return status == LUA_OK ? 1 : lua_error(L);
}

static int push_text_and_raw(lua_State *L, void *ctx, mp_str text, size_t size)
{
    push_text(L, ctx, text, size);
    memcpy(lua_newuserdatauv(L, text.len, 0), text.ptr, text.len);
    luaL_setmetatable(L, MP_LUA_RAW);
    return 2;
}

/* `encode` of a VM with tasks [throws, yields] */
static int l_encode_in_turns(lua_State *L)
{
    if (!mp_lua_can_encode_in_turns(L))
        return l_encode(L);
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    return mp_lua_encode_in_turns(L, 1, 0, push_text, NULL);
}

/* encoded(value) -> text, raw: the JSON text, and json.raw of it without a scan. For lua/moonpool, in a call.
 * [throws as encode, yields] */
static int l_encoded(lua_State *L)
{
    luaL_checkany(L, 1);
    lua_settop(L, 1);
    return mp_lua_encode_in_turns(L, 1, 0, push_text_and_raw, NULL);
}

static int l_raw_tostring(lua_State *L)
{
    const char *block = luaL_checkudata(L, 1, MP_LUA_RAW);
    lua_pushlstring(L, block, lua_rawlen(L, 1));
    return 1;
}

void mp_lib_json_of_vm(lua_State *L, mp_vm *vm)
{
    mp_lua_push_array_mt(L);
    vm->state.array_mt = lua_topointer(L, -1);
    mp_lua_push_object_mt(L);
    vm->state.object_mt = lua_topointer(L, -1);
    lua_pop(L, 2);
    lua_pushcfunction(L, l_encode_in_turns);
    lua_setfield(L, -2, "encode");
    lua_pushcfunction(L, l_encoded);
    lua_setfield(L, -2, "encoded");
}

int mp_lib_json(lua_State *L)
{
    static const luaL_Reg functions[] = {{"encode", l_encode},         {"decode", l_decode}, {"array", l_array},
                                         {"object", l_object},         {"raw", l_raw},       {"splice", l_splice},
                                         {"preserving", l_preserving}, {NULL, NULL}};
    if (luaL_newmetatable(L, MP_LUA_RAW)) {
        lua_pushcfunction(L, l_raw_tostring);
        lua_setfield(L, -2, "__tostring");
        lua_pushboolean(L, 0);
        lua_setfield(L, -2, "__metatable");
    }
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    mp_lua_push_null(L);
    lua_setfield(L, -2, "null");
    lua_pushlightuserdata(L, (void *)(uintptr_t)&mp_lua_empty_array);
    lua_setfield(L, -2, "empty_array");
    mp_lua_push_array_mt(L);
    lua_setfield(L, -2, "array_mt");
    mp_lua_push_object_mt(L);
    lua_setfield(L, -2, "object_mt");
    return 1;
}
