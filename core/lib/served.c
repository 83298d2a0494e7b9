/* served.c: publishes a snapshot of the registry (lua/moonpool/registry/registry.lua).
 * A task can be preempted at any instruction of Lua, and in no function of C. So the lists in Lua, the kept answers and
 * the call plans change together here, and a snapshot never replaces a later one. */
#include "lib/bindings.h"
#include "lib/shortcut/frozen_answer.h"
#include "lib/shortcut/forward.h"
#include "lib/shortcut/plan.h"
#include <lauxlib.h>

/* served.begin(): the generation of a new snapshot. Called before anything is read from which the snapshot is made.
 * [-0, +1] */
static int l_begin(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)++mp_lib_of(L)->snapshot_begun);
    return 1;
}

/* served.is_settled(): true if the last snapshot that was begun is published: until the next begin(), the lists do not
 * change.  [-0, +1] */
static int l_is_settled(lua_State *L)
{
    const mp_lib *lib = mp_lib_of(L);
    lua_pushboolean(L, lib->snapshot_begun == lib->snapshot_served);
    return 1;
}

/* served.publish(holder, snapshot, generation, rows, has_private): sets holder.now, forgets the kept answers, and
 * replaces the call plans, which `rows` describe. Nothing happens if a snapshot of a later generation is published. If
 * memory is short, tools are left without a plan.
 *  [-0, +0, throws] */
static int l_publish(lua_State *L)
{
    mp_lib *lib = mp_lib_of(L);
    luaL_checktype(L, 1, LUA_TTABLE);
    luaL_checktype(L, 2, LUA_TTABLE);
    uint64_t generation = (uint64_t)luaL_checkinteger(L, 3);
    luaL_checktype(L, 4, LUA_TTABLE);
    if (generation <= lib->snapshot_served)
        return 0;
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    lua_pushliteral(L, "now");
    lua_pushvalue(L, 2);
    lua_rawset(L, 1); /* the key exists: nothing is allocated from here to the plans, so nothing fails */
    lib->snapshot_served = generation;
    lib->has_private = lua_toboolean(L, 5);
    mp_frozen_thaw(lib->frozen);
    lua_settop(L, 4);
    mp_forwards_clear(L, lib->forwards);
    mp_plans_set(L, lib->plans, 4);
    return 0;
}

MP_LIBRARY(served)
{
    static const luaL_Reg functions[] = {
        {"served.begin", l_begin}, {"served.is_settled", l_is_settled}, {"served.publish", l_publish}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
