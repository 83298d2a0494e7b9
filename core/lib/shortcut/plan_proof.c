/* plan_proof.c: MOONPOOL_PLANS=both, in builds for specs. A planned call also goes through the functions of the general
 * path: the decoder and the tool's check before its handler runs, the making of its result and the encoder after. A
 * difference ends the process. */
#include "lib/shortcut/plan.h"

#ifdef MP_SPEC_BUILD
#include <lauxlib.h>

static _Noreturn void fail_proof(const mp_plan *plan, const char *what, mp_str planned, mp_str general)
{
    fprintf(stderr, "call plan of '%.*s': %s\n  plan:    %.*s\n  general: %.*s\n", (int)plan->node.key.len,
            plan->node.key.ptr, what, (int)planned.len, planned.ptr, (int)general.len, general.ptr);
    abort();
}

static bool is_same_table(lua_State *L, int a, int b);

static bool is_same(lua_State *L, int a, int b)
{
    if (lua_istable(L, a) && lua_istable(L, b))
        return is_same_table(L, a, b);
    return lua_rawequal(L, a, b) && lua_isinteger(L, a) == lua_isinteger(L, b);
}

/* True if the tables at `a` and `b` have the same members, in the same order of lua_next. [-0, +0] */
static bool is_same_table(lua_State *L, int a, int b)
{
    int top = lua_gettop(L);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    lua_pushnil(L); /* top + 1: the last key of `a` */
    lua_pushnil(L); /* top + 2: the last key of `b` */
    for (bool is_equal = true; is_equal;) {
        lua_pushvalue(L, top + 1);
        bool has_a = lua_next(L, a) != 0; /* top + 3: key, top + 4: value */
        lua_pushvalue(L, top + 2);
        bool has_b = lua_next(L, b) != 0; /* top + 5, top + 6 */
        if (!has_a || !has_b) {
            lua_settop(L, top);
            return has_a == has_b;
        }
        is_equal = is_same(L, top + 3, top + 5) && is_same(L, top + 4, top + 6);
        lua_pushvalue(L, top + 3);
        lua_replace(L, top + 1);
        lua_pushvalue(L, top + 5);
        lua_replace(L, top + 2);
        lua_settop(L, top + 2);
    }
    lua_settop(L, top);
    return false;
}

/* Pushes the arguments as the general path gives them to the handler. False if they do not fit.  [-0, +1, throws] */
static bool push_general(lua_State *L, int at, mp_str params)
{
    if (mp_lua_decode(L, params) != 0)
        return false;
    if (lua_getfield(L, -1, "arguments") == LUA_TNIL) {
        lua_pop(L, 1);
        lua_newtable(L);
    }
    lua_remove(L, -2);
    int args = lua_gettop(L);
    lua_getiuservalue(L, at, MP_PLAN_TOOL);
    lua_getfield(L, args + 1, "check");
    lua_pushvalue(L, args);
    lua_call(L, 1, 1);
    bool fits = lua_toboolean(L, -1);
    if (fits && lua_getfield(L, args + 1, "defaults") == LUA_TTABLE) {
        luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
        lua_getfield(L, -1, "moonpool.things.arguments");
        lua_getfield(L, -1, "fill");
        lua_getfield(L, args + 1, "defaults");
        lua_pushvalue(L, args);
        lua_call(L, 2, 0);
    }
    lua_settop(L, args);
    return fits;
}

void mp_plan_prove_arguments(lua_State *L, const mp_plan *plan, int at, mp_str params, int count)
{
    int first = lua_gettop(L) - count + 1, given = 0;
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    if (!push_general(L, at, params))
        fail_proof(plan, "it takes arguments that the general path refuses", params, MP_STR("refused"));
    int general = lua_gettop(L);
    if (!plan->is_positional) {
        if (!is_same_table(L, first, general))
            fail_proof(plan, "the general path reads other arguments", params, MP_STR_NONE);
        lua_settop(L, general - 1);
        return;
    }
    for (int i = 0; i < plan->input.count; i++) {
        const mp_plan_field *field = &plan->fields[plan->input.first + i];
        lua_pushlstring(L, field->name.ptr, field->name.len);
        lua_rawget(L, general);
        if (!is_same(L, first + i, lua_gettop(L)))
            fail_proof(plan, "the general path reads another value of this argument", field->name, params);
        given += !lua_isnil(L, -1);
        lua_pop(L, 1);
    }
    for (lua_pushnil(L); lua_next(L, general) != 0; lua_pop(L, 1))
        given--;
    if (given != 0)
        fail_proof(plan, "the general path reads more or fewer arguments", params, MP_STR_NONE);
    lua_settop(L, general - 1);
}

/* (mp_buf, finish, tool, revision, call, true, values…): appends the JSON of the result.  [-n, +0, throws] */
static int encode_general(lua_State *L)
{
    lua_call(L, lua_gettop(L) - 2, 1);
    mp_lua_encode(L, 2, lua_touserdata(L, 1));
    return 0;
}

void mp_plan_prove_result(lua_State *L, const mp_plan *plan, int at, int finish, const char *revision, int call,
                          int results, mp_str result)
{
    int top = lua_gettop(L);
    mp_buf general = {0};
    luaL_checkstack(L, top + LUA_MINSTACK, NULL);
    lua_pushcfunction(L, encode_general);
    lua_pushlightuserdata(L, &general);
    lua_rawgeti(L, LUA_REGISTRYINDEX, finish);
    lua_getiuservalue(L, at, MP_PLAN_TOOL);
    lua_pushstring(L, revision);
    lua_pushvalue(L, call);
    lua_pushboolean(L, 1);
    for (int i = results; i <= top; i++)
        lua_pushvalue(L, i);
    if (lua_pcall(L, 6 + top - results + 1, 0, 0) != LUA_OK)
        fail_proof(plan, "the general path fails", result, mp_str_of(luaL_tolstring(L, -1, NULL)));
    if (!mp_str_eq(result, mp_buf_str(&general)))
        fail_proof(plan, "the general path gives another result", result, mp_buf_str(&general));
    mp_buf_clear(&general);
    lua_settop(L, top);
}
#endif
