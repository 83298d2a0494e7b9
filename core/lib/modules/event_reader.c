/* event_reader.c: the Lua module "moonpool.events". The buffers of a reader are outside Lua's memory; the VM counts
 * their bytes too, so that limits.call.memory holds for them. */
#include "lib/modules/event_reader.h"
#include "lib/fields.h"
#include "mcp/mcp.h"
#include "vm/engine.h"
#include <lauxlib.h>

#define READER "moonpool.events"

typedef struct {
    mp_event_reader super;
    mp_vm *MP_NULLABLE vm; /* NULL: a Lua state without a VM */
    size_t counted;        /* bytes of the buffers that the VM has counted */
} reader;

static size_t held_by(const mp_event_reader *r)
{
    return r->line.cap + r->data.cap + r->kind.cap + r->id.cap + r->next_id.cap;
}

/* Counts the bytes of the buffers. False if they are over the limit of the task: then the buffers are freed. */
static bool count_bytes(reader *r)
{
    size_t held = held_by(&r->super);
    mp_vm *vm = r->vm;
    if (vm != NULL && !mp_vm_count(vm, r->counted, held)) {
        mp_event_reader_clear(&r->super);
        mp_vm_count(vm, r->counted, 0);
        r->counted = 0;
        r->super.failed = MP_EVENT_TOO_LARGE;
        return false;
    }
    r->counted = held;
    return true;
}

/* Appends an event to the list at index 3.  [-0, +0, throws memory] */
static void add_event(lua_State *L, const reader *r, mp_event event, lua_Integer number)
{
    lua_createtable(L, 0, 3);
    lua_pushlstring(L, event.kind.ptr, event.kind.len);
    lua_setfield(L, -2, "event");
    lua_pushlstring(L, event.data.ptr, event.data.len);
    lua_setfield(L, -2, "data");
    if (r->super.id.len > 0) {
        lua_pushlstring(L, r->super.id.ptr, r->super.id.len);
        lua_setfield(L, -2, "id");
    }
    lua_rawseti(L, 3, number);
}

/* reader:feed(bytes)  [-0, +1|2, throws] */
static int l_feed(lua_State *L)
{
    reader *r = luaL_checkudata(L, 1, READER);
    mp_str bytes = mp_check_str(L, 2);
    mp_event event;
    mp_event_result result;
    lua_Integer count = 0;
    lua_settop(L, 2);
    lua_newtable(L);
    while ((result = mp_event_read(&r->super, &bytes, &event)) == MP_EVENT_COMPLETE)
        add_event(L, r, event, ++count);
    if (!count_bytes(r))
        return luaL_error(L, "not enough memory");
    if (result == MP_EVENT_NONE)
        return 1;
    lua_pushnil(L);
    lua_pushfstring(
        L, result == MP_EVENT_LONG_LINE ? "a line is longer than %I bytes" : "an event is larger than %I bytes",
        (LUAI_UACINT)r->super.most);
    return 2;
}

static int l_last_id(lua_State *L)
{
    const reader *r = luaL_checkudata(L, 1, READER);
    if (r->super.id.len == 0)
        return 0;
    lua_pushlstring(L, r->super.id.ptr, r->super.id.len);
    return 1;
}

static int l_retry(lua_State *L)
{
    const reader *r = luaL_checkudata(L, 1, READER);
    if (!r->super.has_retry)
        return 0;
    lua_pushinteger(L, r->super.retry_ms);
    return 1;
}

static int l_collect(lua_State *L)
{
    reader *r = luaL_checkudata(L, 1, READER);
    mp_event_reader_clear(&r->super);
    count_bytes(r);
    return 0;
}

/* new(most); upvalue: the VM, or nil  [-0, +1, throws] */
static int l_new(lua_State *L)
{
    lua_Integer most = luaL_checkinteger(L, 1);
    luaL_argcheck(L, most > 0, 1, "must be a number of bytes");
    reader *r = lua_newuserdatauv(L, sizeof *r, 0);
    *r = (reader){.super = {.most = (size_t)most}, .vm = lua_touserdata(L, lua_upvalueindex(1))};
    luaL_setmetatable(L, READER);
    return 1;
}

static int push_module(lua_State *L, mp_vm *MP_NULLABLE vm)
{
    static const luaL_Reg methods[] = {{"feed", l_feed}, {"last_id", l_last_id}, {"retry", l_retry}, {NULL, NULL}};
    mp_push_metatable(L, READER, l_collect);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_createtable(L, 0, 1);
    lua_pushlightuserdata(L, vm);
    lua_pushcclosure(L, l_new, 1);
    lua_setfield(L, -2, "new");
    return 1;
}

int mp_lib_event_reader(lua_State *L)
{
    return push_module(L, NULL);
}

int mp_lib_event_reader_of_vm(lua_State *L)
{
    return push_module(L, mp_vm_of(L));
}
