/* report.c: reports of a Lua state: its size, its errors, and the buffer in which their texts are made. */
#include "vm/schedule.h"
#include <lauxlib.h>

MP_GAUGE(lua_bytes, "lua_bytes", "", "", "bytes allocated by Lua states")

#define MAX_KEPT_OUT_BYTES ((size_t)1 << 20)

void mp_vm_publish(mp_vm *vm)
{
    if (vm->memory.bytes == vm->memory.published)
        return;
    mp_stat_add(&mp_stat_lua_bytes, (int64_t)vm->memory.bytes - (int64_t)vm->memory.published);
    vm->memory.published = vm->memory.bytes;
}

void mp_vm_reset_out(mp_vm *vm)
{
    if (vm->state.out.cap > MAX_KEPT_OUT_BYTES)
        mp_buf_clear(&vm->state.out);
    vm->state.out.len = 0;
}

/* (error, thread) -> the error as text, and its trace. [-2, +2, throws] */
static int explain_error(lua_State *L)
{
    lua_State *from = lua_tothread(L, 2);
    luaL_tolstring(L, 1, NULL);
    luaL_traceback(L, from, NULL, from == L ? 1 : 0);
    return 2;
}

void mp_vm_log_error(mp_vm *vm, lua_State *MP_NULLABLE from, const char *event, mp_str method)
{
    lua_State *L = vm->state.L;
    lua_checkstack(L, 4);
    lua_pushcfunction(L, explain_error); /* needs stack space, but allocates no memory */
    if (from == L)
        lua_insert(L, -2);
    else
        lua_xmove(from, L, 1);
    lua_checkstack(from, 1);
    lua_pushthread(from);
    if (from != L)
        lua_xmove(from, L, 1);
    mp_str error = MP_STR("(the error cannot be shown)"), trace = MP_STR("");
    int results = lua_pcall(L, 2, 2, 0) == LUA_OK ? 2 : 1;
    if (results == 2) {
        error.ptr = lua_tolstring(L, -2, &error.len);
        trace.ptr = lua_tolstring(L, -1, &trace.len);
    }
    mp_log(MP_ERROR, event, mp_log_str("method", method), mp_log_str("error", error), mp_log_str("trace", trace));
    lua_pop(L, results);
}
