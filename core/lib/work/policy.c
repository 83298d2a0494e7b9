/* policy.c: runs a call through the policies around its thing, for lua/moonpool/things/policy.lua, which says what
 * policies are. What a call of most policies needs is here; the library in Lua has the rest.
 *
 *   way    what the runs of all calls of a thing have in common: its policies, and the function inside them
 *   turn   the call as a policy sees it, and how far it has come: a userdata that scripts can neither read nor change
 *          but by its fields. `next` of a policy is a function whose upvalue is the turn, so both may be kept */
#include "lib/fields.h"
#include "lib/spans.h"
#include "lib/work/call.h"
#include "rpc/observe.h"
#include "telemetry/telemetry.h"
#include <lauxlib.h>

#define TURN "moonpool.policy_turn"

typedef enum { PASSED, REFUSED, ANSWERED, FAULT, DECISIONS } decision;
static const char *const decision_words[] = {"passed", "refused", "answered", "fault", NULL};

typedef struct {
    mp_series decisions[DECISIONS]; /* 0: not known yet */
    bool gets_row;                  /* its function has the row as its last argument */
    bool is_narrow;                 /* it concerns some things only: perhaps some of the URIs of a template */
} policy_row;

typedef enum { NO_PHASE, PREPARE, RUN } phase;
static const char *const phase_words[] = {NULL, "prepare", "run"};

/* User values: those below, then for each policy its function and its row. */
typedef struct {
    phase phase;
    bool is_later; /* the arguments are those that the client sent, which are decoded when a policy reads them */
    int count;     /* policies */
    policy_row rows[];
} way;
enum { WAY_INNER = 1, WAY_CHECKED, WAY_KIND, WAY_NAME, WAY_UPSTREAM, WAY_ROWS };

typedef struct {
    way *way; /* the turn holds its userdata */
    phase phase;
    int at;        /* index of the policy that decided last; -1: none yet */
    int undecided; /* index of the policy that has neither decided nor called next() yet; -1: none */
    enum { GAVE_UNKNOWN, GAVE_NOTHING, GAVE_VALUES } gave; /* what next() gave to the policy that called it last */
    bool has_reached;                                      /* all policies have let the call through */
    bool is_read;                                          /* a policy had the arguments */
    bool is_later;
} turn;
enum { TURN_WAY = 1, TURN_CALL, TURN_ARGS, TURN_URI, TURN_VALUES = TURN_URI };

static const char helpers_key; /* its address names the functions of the library in Lua in the registry */

/* Pushes a function of the library in Lua, by its name in policy.begin.  [-0, +1, throws] */
static void push_helper(lua_State *L, const char *name)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &helpers_key);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

/* Pushes the row of a policy, or with `place` 0 its function. The turn is at index `at`.  [-0, +1] */
static void push_of_row(lua_State *L, int at, int row, int place)
{
    lua_getiuservalue(L, at, TURN_WAY);
    lua_getiuservalue(L, -1, WAY_ROWS + 2 * row + place);
    lua_remove(L, -2);
}

/* The turn at index 1 of a metamethod, which code with the whole of Lua's library can call with anything. Upvalue 1:
 * the metatable of turns.  [-0, +0, throws] */
static turn *check_turn(lua_State *L)
{
    return mp_check_udata(L, 1, TURN, lua_topointer(L, lua_upvalueindex(1)));
}

/* -- decisions, for /metrics --------------------------------------------------------------------------------------- */

/* Counts the decision of the policy that is undecided. The series exists from the first such decision on. The turn is
 * at index `at`.  [-0, +0, throws] */
static void count_decision(lua_State *L, int at, const turn *run, decision what)
{
    if (run->undecided < 0 || !mp_series_is_on())
        return;
    mp_series *series = &run->way->rows[run->undecided].decisions[what];
    if (*series == 0) {
        push_helper(L, "series");
        push_of_row(L, at, run->undecided, 1);
        lua_pushstring(L, decision_words[what]);
        lua_call(L, 2, 1);
        *series = (mp_series)lua_tointeger(L, -1);
        lua_pop(L, 1);
    }
    mp_series_add(*series, 1);
}

/* A policy that has called next() has let the call through.  [-0, +0, throws] */
static void count_passed(lua_State *L, int at, turn *run)
{
    count_decision(L, at, run, PASSED);
    run->undecided = -1;
}

/* __close of a turn: counts the decision when an error leaves the policies; an error that ends the task is none.  [-0,
 * +0, throws] */
static int turn_close(lua_State *L)
{
    const turn *run = check_turn(L);
    if (lua_isnoneornil(L, 2) || run->undecided < 0)
        return 0;
    push_helper(L, "decision");
    lua_pushvalue(L, 2);
    lua_call(L, 1, 1);
    if (!lua_isnil(L, -1))
        count_decision(L, 1, run, (decision)luaL_checkoption(L, -1, NULL, decision_words));
    return 0;
}

/* -- a run --------------------------------------------------------------------------------------------------------- */

/* Pushes a turn for the way at index `at`, and the arguments, the call and the URI at the indexes from 1 on.
 * `metatable`: index of its metatable.  [-0, +1, throws] */
static turn *push_turn(lua_State *L, int at, int metatable)
{
    way *it = lua_touserdata(L, at);
    turn *run = lua_newuserdatauv(L, sizeof *run, TURN_VALUES);
    int index = lua_gettop(L);
    *run = (turn){.way = it, .phase = it->phase, .at = -1, .undecided = -1, .is_later = it->is_later};
    lua_pushvalue(L, at);
    lua_setiuservalue(L, index, TURN_WAY);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, index, TURN_ARGS);
    lua_pushvalue(L, 2);
    lua_setiuservalue(L, index, TURN_CALL);
    if (!lua_isnil(L, 3)) {
        lua_pushvalue(L, 3);
        lua_setiuservalue(L, index, TURN_URI);
    }
    lua_pushvalue(L, metatable);
    lua_setmetatable(L, index);
    return run;
}

/* True if the policy does not concern the URI of the call. The turn is at index `at`.  [-0, +0, throws] */
static bool passes_over(lua_State *L, int at, const turn *run, int row)
{
    bool passes = false;
    if (!run->way->rows[row].is_narrow)
        return false;
    if (lua_getiuservalue(L, at, TURN_URI) != LUA_TNIL) {
        push_helper(L, "concerns");
        push_of_row(L, at, row, 1);
        lua_pushvalue(L, -3);
        lua_call(L, 2, 1);
        passes = !lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return passes;
}

/* Begins a span that ends with the running function, and pushes it: trace.begin(name, detail). False, pushing nothing,
 * where the call is not recorded.  [-0, +0|1, throws] */
static bool begin_span(lua_State *L, int at, int row)
{
    if (mp_task_trace(mp_lib_task_running(L)) == NULL)
        return false;
    push_helper(L, "span");
    if (row >= 0)
        push_of_row(L, at, row, 1);
    lua_call(L, row >= 0, 1);
    lua_toclose(L, -1);
    return true;
}

/* What a continuation of a run is told: the policy that was called, from 1, 0 for the function inside all; and whether
 * a span is below the results. */
#define WENT_TO(row, has_span) (((lua_KContext)(row) + 1) << 1 | (has_span))
#define WENT_INSIDE(has_span) ((lua_KContext)(has_span))

/* Calls the policy `row`, or behind the last one the function inside. Its results are on top. The turn is at index
 * `at`, `next` the function that makes another `next`.  [-0, +n, throws, parks] */
static int step(lua_State *L, int at, int row, lua_CFunction next, lua_KFunction done)
{
    turn *run = lua_touserdata(L, at);
    const way *it = run->way;
    while (row < it->count && passes_over(L, at, run, row))
        row++;
    count_passed(L, at, run);
    lua_KContext went;
    int arguments = 2;
    if (row == it->count) {
        run->has_reached = true;
        went = WENT_INSIDE(begin_span(L, at, -1));
        lua_getiuservalue(L, at, TURN_WAY);
        /* arguments that a policy had in its hands are checked again; those that `prepare` made are not */
        lua_getiuservalue(L, -1, run->is_read && run->phase != RUN ? WAY_CHECKED : WAY_INNER);
        lua_remove(L, -2);
        lua_getiuservalue(L, at, TURN_ARGS);
        lua_getiuservalue(L, at, TURN_CALL);
    } else {
        run->at = run->undecided = row;
        run->gave = GAVE_UNKNOWN;
        went = WENT_TO(row, begin_span(L, at, row));
        push_of_row(L, at, row, 0);
        lua_pushvalue(L, at);
        lua_pushvalue(L, at);
        lua_pushinteger(L, row);
        lua_pushcclosure(L, next, 2);
        if (it->rows[row].gets_row) {
            push_of_row(L, at, row, 1);
            arguments = 3;
        }
    }
    lua_callk(L, arguments, LUA_MULTRET, went, done);
    return done(L, LUA_OK, went);
}

/* The number of values that a step has given, which are above index `at` and perhaps a span. A policy that returns
 * nothing, where next() returned a value, probably lacks a `return`: this is logged.  [-0, +0, throws] */
static int results_of(lua_State *L, int at, lua_KContext went)
{
    const turn *run = lua_touserdata(L, at);
    int count = lua_gettop(L) - at - (int)(went & 1), row = (int)(went >> 1) - 1;
    if (count == 0 && row >= 0 && run->gave != GAVE_NOTHING) {
        push_helper(L, "is_silent");
        push_of_row(L, at, row, 1);
        lua_call(L, 1, 0);
    }
    return count;
}

static int next_done(lua_State *L, MP_UNUSED int status, lua_KContext went)
{
    turn *run = lua_touserdata(L, 1);
    int count = results_of(L, 1, went);
    run->at = (int)lua_tointeger(L, lua_upvalueindex(2));
    run->gave = count > 0 ? GAVE_VALUES : GAVE_NOTHING;
    return count;
}

/* next(): what is behind a policy. Upvalues: the turn, the index of the policy.  [-n, +n, throws, parks] */
static int l_next(lua_State *L)
{
    lua_settop(L, 0);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    lua_pushvalue(L, lua_upvalueindex(1));
    return step(L, 1, (int)lua_tointeger(L, lua_upvalueindex(2)) + 1, l_next, next_done);
}

enum { AROUND_TURN = 4 }; /* slot of the turn in a call of what policy.around has made */

static int around_done(lua_State *L, MP_UNUSED int status, lua_KContext went)
{
    const turn *run = lua_touserdata(L, AROUND_TURN);
    int count = results_of(L, AROUND_TURN, went);
    if (run->undecided >= 0)
        count_decision(L, AROUND_TURN, run,
                       count >= 2 && lua_isnil(L, -count) && !lua_isnil(L, 1 - count) ? REFUSED : ANSWERED);
    return count;
}

/* (args, call, uri): runs a call through policies. Upvalues: the way, the metatable of turns, whether there is an
 * audit.
 * [-n, +n, throws, parks] */
static int l_run(lua_State *L)
{
    lua_settop(L, 3);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    turn *run = push_turn(L, lua_upvalueindex(1), lua_upvalueindex(2));
    mp_call_handle *handle = mp_check_udata(L, 2, MP_CALL, mp_lib_of(L)->call_metatable);
    if (handle->is_resumed)
        run->phase = RUN;
    if (lua_toboolean(L, lua_upvalueindex(3))) {
        lua_pushvalue(L, AROUND_TURN);
        lua_setiuservalue(L, 2, MP_CALL_TURN);
    }
    lua_toclose(L, AROUND_TURN);
    return step(L, AROUND_TURN, 0, l_next, around_done);
}

/* -- the fields of a turn ------------------------------------------------------------------------------------------ */

enum { KIND = 1, NAME, UPSTREAM, URI, PHASE, ARGS };
static const char *const field_names[] = {"kind", "name", "upstream", "uri", "phase", "args", NULL};

/* The arguments were decoded.  [-1, +1] */
static int args_decoded(lua_State *L, MP_UNUSED int status, MP_UNUSED lua_KContext context)
{
    turn *run = lua_touserdata(L, 1);
    run->is_later = false;
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, TURN_ARGS);
    return 1;
}

/* Pushes a field of the turn's own.  [-0, +1, throws] */
static void push_own(lua_State *L, const turn *run, lua_Integer field)
{
    switch (field) {
    case KIND:
    case NAME:
    case UPSTREAM:
        lua_getiuservalue(L, 1, TURN_WAY);
        lua_getiuservalue(L, -1, WAY_KIND + (int)field - KIND);
        break;
    case URI:
        lua_getiuservalue(L, 1, TURN_URI);
        break;
    case PHASE:
        lua_pushstring(L, phase_words[run->phase]);
        break;
    default:
        lua_pushnil(L);
    }
}

static int field_read(MP_UNUSED lua_State *L, MP_UNUSED int status, MP_UNUSED lua_KContext context)
{
    return 1;
}

/* __index of a turn: all fields of the call, and those of its own. Upvalues: the metatable, a table from a field's name
 * to its number, the function of Lua that reads a field of the call, and the one that decodes arguments.  [-2, +1,
 * throws, parks] */
static int l_index(lua_State *L)
{
    turn *run = check_turn(L);
    lua_settop(L, 2);
    lua_pushvalue(L, 2);
    lua_Integer field = lua_rawget(L, lua_upvalueindex(2)) == LUA_TNUMBER ? lua_tointeger(L, -1) : 0;
    if (field == ARGS) {
        run->is_read = true;
        if (run->is_later) {
            lua_pushvalue(L, lua_upvalueindex(4));
            lua_getiuservalue(L, 1, TURN_CALL);
            lua_callk(L, 1, 1, 0, args_decoded);
            return args_decoded(L, LUA_OK, 0);
        }
        if (lua_getiuservalue(L, 1, TURN_ARGS) != LUA_TNIL)
            return 1;
    } else {
        push_own(L, run, field);
        if (!lua_isnil(L, -1))
            return 1;
    }
    lua_pushvalue(L, lua_upvalueindex(3));
    lua_getiuservalue(L, 1, TURN_CALL);
    lua_pushvalue(L, 2);
    lua_callk(L, 2, 1, 0, field_read);
    return 1;
}

/* __pairs of a turn: it has no members that could be listed.  [-1, +3] */
static int no_more(lua_State *L)
{
    lua_pushnil(L);
    return 1;
}
static int l_pairs(lua_State *L)
{
    lua_pushcfunction(L, no_more);
    return 1;
}

/* -- for the library in Lua ---------------------------------------------------------------------------------------- */

/* policy.set_args(turn, args): replaces the arguments.  [-0, +0, throws] */
static int l_set_args(lua_State *L)
{
    turn *run = luaL_checkudata(L, 1, TURN);
    lua_settop(L, 2);
    lua_setiuservalue(L, 1, TURN_ARGS);
    run->is_later = false;
    run->is_read = true;
    return 0;
}

/* policy.args(turn): the arguments, for the function inside.  [-0, +1, throws] */
static int l_args(lua_State *L)
{
    luaL_checkudata(L, 1, TURN);
    lua_getiuservalue(L, 1, TURN_ARGS);
    return 1;
}

/* policy.trail(call): for the audit, the name of the policy that decided last, nil if none has, and whether all let the
 * call through; nothing of a call without policies.  [-0, +0|2, throws] */
static int l_trail(lua_State *L)
{
    mp_check_udata(L, 1, MP_CALL, mp_lib_of(L)->call_metatable);
    if (lua_getiuservalue(L, 1, MP_CALL_TURN) != LUA_TUSERDATA)
        return 0;
    const turn *run = lua_touserdata(L, -1);
    int at = lua_gettop(L);
    lua_pushnil(L);
    if (run->at >= 0) {
        push_of_row(L, at, run->at, 1);
        lua_getfield(L, -1, "name");
    }
    lua_pushboolean(L, run->has_reached);
    return 2;
}

/* policy.resume(call): the handler of a call runs a second time, as the body of a task: its policies run in the phase
 * "run".  [-0, +0, throws] */
static int l_resume(lua_State *L)
{
    mp_call_handle *handle = mp_check_udata(L, 1, MP_CALL, mp_lib_of(L)->call_metatable);
    handle->is_resumed = true;
    return 0;
}

/* Pushes the way that the table at index 1 describes.  [-0, +1, throws] */
static void push_way(lua_State *L)
{
    static const struct {
        const char *name;
        int slot;
    } values[] = {{"inner", WAY_INNER},
                  {"checked", WAY_CHECKED},
                  {"kind", WAY_KIND},
                  {"name", WAY_NAME},
                  {"upstream", WAY_UPSTREAM}};
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_getfield(L, 1, "rows");
    int rows = lua_gettop(L), count = (int)lua_rawlen(L, rows);
    way *it = lua_newuserdatauv(L, sizeof *it + (size_t)count * sizeof it->rows[0], WAY_ROWS + 2 * count);
    int at = lua_gettop(L);
    memset(it, 0, sizeof *it + (size_t)count * sizeof it->rows[0]);
    it->count = count;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        lua_getfield(L, 1, values[i].name);
        lua_setiuservalue(L, at, values[i].slot);
    }
    lua_getfield(L, 1, "is_later");
    it->is_later = lua_toboolean(L, -1);
    if (lua_getfield(L, 1, "phase") == LUA_TSTRING)
        it->phase = strcmp(lua_tostring(L, -1), "run") == 0 ? RUN : PREPARE;
    lua_settop(L, at);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, rows, i + 1);
        lua_getfield(L, -1, "is_narrow");
        it->rows[i].is_narrow = lua_toboolean(L, -1);
        lua_getfield(L, -2, "gets_row");
        it->rows[i].gets_row = lua_toboolean(L, -1);
        lua_getfield(L, -3, "handler");
        lua_setiuservalue(L, at, WAY_ROWS + 2 * i);
        lua_settop(L, at + 1);
        lua_setiuservalue(L, at, WAY_ROWS + 2 * i + 1);
    }
}

/* policy.around(way): the function that runs calls of a thing through its policies. `way`: { kind, name, upstream,
 * phase, rows = the policies, inner = f(args, call), checked = the same, but for arguments that a policy had, is_later
 * }.  [-0, +1, throws] */
static int l_around(lua_State *L)
{
    lua_settop(L, 1);
    push_way(L);
    luaL_getmetatable(L, TURN);
    lua_pushboolean(L, mp_lib_of(L)->audit != MP_AUDIT_MODE_OFF);
    lua_pushcclosure(L, l_run, 3);
    return 1;
}

/* policy.turn(way, args, call, uri): a turn of no run, for specs.  [-0, +1, throws] */
static int l_turn(lua_State *L)
{
    lua_settop(L, 4);
    push_way(L);
    lua_replace(L, 1);
    lua_settop(L, 4);
    lua_rotate(L, 1, -1);
    luaL_getmetatable(L, TURN);
    push_turn(L, 4, 5);
    return 1;
}

/* policy.begin(helpers): the functions of the library in Lua that runs need: field(call, name), decoded(call),
 * set(turn, name, value), series(row, decision), decision(err), concerns(row, uri), is_silent(row), span(row).  [-0,
 * +0, throws] */
static int l_begin(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    lua_pushvalue(L, 1);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &helpers_key);
    luaL_getmetatable(L, TURN);
    lua_pushvalue(L, 2);
    lua_newtable(L);
    for (int i = 0; field_names[i] != NULL; i++) {
        lua_pushinteger(L, i + 1);
        lua_setfield(L, -2, field_names[i]);
    }
    lua_getfield(L, 1, "field");
    lua_getfield(L, 1, "decoded");
    lua_pushcclosure(L, l_index, 4);
    lua_setfield(L, 2, "__index");
    lua_getfield(L, 1, "set");
    lua_setfield(L, 2, "__newindex");
    return 0;
}

MP_LIBRARY(policy)
{
    static const luaL_Reg functions[] = {{"policy.begin", l_begin},       {"policy.around", l_around},
                                         {"policy.turn", l_turn},         {"policy.args", l_args},
                                         {"policy.set_args", l_set_args}, {"policy.trail", l_trail},
                                         {"policy.resume", l_resume},     {NULL, NULL}};
    (void)config;
    mp_push_metatable(L, TURN, NULL);
    mp_field_text(L, "__name", "moonpool.turn");
    lua_pushvalue(L, -1);
    lua_pushcclosure(L, turn_close, 1);
    lua_setfield(L, -2, "__close");
    mp_field_function(L, "__pairs", l_pairs);
    lua_pop(L, 1);
    mp_set_members(L, functions, 0);
}
