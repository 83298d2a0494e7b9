/* plan.c: the plans of a VM, and a planned call from its start to its end. plan.h says what plans are. */
#include "lib/mcp/plan.h"
#include "lib/mcp/call.h"
#include <lauxlib.h>
#include <math.h>
#include <stdlib.h>

MP_COUNTER(calls_planned, "calls_planned", "", "", "tools/call requests that call plans served")

#define BUCKETS 64
#define MAX_ERAS 16

typedef struct {
    mp_str before, after; /* of a result that is one text; `before.ptr` NULL: calls of this revision have no plans */
} frame;

struct mp_plans {
    mp_plan *buckets[BUCKETS];
    size_t count;
    bool has_private; /* calls in sessions take the general path */
    bool are_off;     /* MOONPOOL_PLANS=off */
    bool are_proven;  /* MOONPOOL_PLANS=both: plan_proof.c */
    int finish;       /* registry references: the function of Lua that ends a call */
    int handler;      /* and the message handler that gives an error its trace */
    int frame_table;  /* and the table that holds the texts of `frames` */
    frame frames[MAX_ERAS];
};

mp_plans *mp_plans_new(void)
{
    mp_plans *plans = mp_new(sizeof *plans);
    plans->finish = plans->handler = plans->frame_table = LUA_NOREF;
#ifdef MP_SPEC_BUILD
    const char *mode = getenv("MOONPOOL_PLANS");
    plans->are_off = mode != NULL && strcmp(mode, "off") == 0;
    plans->are_proven = mode != NULL && strcmp(mode, "both") == 0;
#endif
    return plans;
}

void mp_plans_free(mp_plans *plans)
{
    free(plans);
}

/* -- finding ----------------------------------------------------------------------------------------------------- */

static uint32_t hash_of(mp_str text)
{
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < text.len; i++)
        hash = (hash ^ (unsigned char)text.ptr[i]) * 16777619u;
    return hash;
}

static const mp_plan *find_plan(const mp_plans *plans, mp_str name)
{
    uint32_t hash = hash_of(name);
    const mp_plan *plan = plans->buckets[hash % BUCKETS];
    while (plan != NULL && !(plan->hash == hash && mp_str_eq(plan->name, name)))
        plan = plan->next;
    return plan;
}

/* The frame for the revision of a tools/call; NULL if plans do not serve such a call. */
static const frame *frame_of(const mp_plans *plans, const mp_call *call)
{
    const mp_era *era = mp_call_era(call);
    if (plans->count == 0 || era == NULL)
        return NULL;
    if (era->has_sessions) {
        const mp_session *session = mp_call_session(call);
        if (plans->has_private || session == NULL || mp_session_era(session) == NULL)
            return NULL;
    }
    size_t place = (size_t)(era - mp_eras);
    return place < MAX_ERAS && plans->frames[place].before.ptr != NULL ? &plans->frames[place] : NULL;
}

/* -- a planned call ---------------------------------------------------------------------------------------------- */

/* The stack of a planned call's coroutine. CALL: nil if the handler takes no `call`. RESULTS: where the handler and its arguments are, then
 * what it returned or raised. */
enum { TASK = 1, PLAN, CALL, TRACER, RESULTS };

/* Ends the call by the library in Lua: finish(tool, revision, call, ok, …).  [-n, +0, throws, parks] */
static int finish_in_lua(lua_State *L, mp_lib_task *task, bool is_good)
{
    const mp_plans *plans = mp_lib_of_vm(task->super.vm)->plans;
    const mp_era *era = task->call == NULL ? task->era : mp_call_era(task->call);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    if (lua_isnil(L, CALL)) {
        mp_call_push(L, task, 0);
        lua_replace(L, CALL);
    }
    lua_getiuservalue(L, PLAN, MP_PLAN_TOOL);
    lua_replace(L, TRACER);
    lua_rawgeti(L, LUA_REGISTRYINDEX, plans->finish);
    lua_replace(L, PLAN);
    lua_pushstring(L, era == NULL ? NULL : era->date);
    lua_pushboolean(L, is_good);
    lua_rotate(L, RESULTS, 2); /* task, finish, call, tool, revision, ok, … */
    lua_pushvalue(L, CALL);
    lua_insert(L, RESULTS + 1);
    lua_remove(L, CALL); /* task, finish, tool, revision, call, ok, … */
    lua_callk(L, lua_gettop(L) - 2, 2, (lua_KContext)task, mp_call_done);
    return mp_call_done(L, LUA_OK, (lua_KContext)task);
}

#ifdef MP_SPEC_BUILD
static void prove_result(lua_State *L, const mp_plans *plans, const mp_plan *plan, const mp_era *era,
                         const frame *around)
{
    mp_buf result = {0};
    if (mp_plan_put_result(L, RESULTS, around->before, around->after, &result))
        mp_plan_prove_result(L, plan, PLAN, plans->finish, era->date, CALL, RESULTS, mp_buf_str(&result));
    mp_buf_clear(&result);
}
#endif

/* Answers with the handler's first value. False if that is for Lua to do.  [-0, +0] */
static bool answer(lua_State *L, mp_lib_task *task, const mp_plan *plan)
{
    mp_call *call = task->call;
    if (call == NULL || plan->has_output || lua_gettop(L) < RESULTS)
        return false;
    const mp_plans *plans = mp_lib_of_vm(task->super.vm)->plans;
    const mp_era *era = mp_call_era(call);
    const frame *around = &plans->frames[era - mp_eras];
#ifdef MP_SPEC_BUILD
    if (plans->are_proven)
        prove_result(L, plans, plan, era, around);
#endif
    mp_buf *out = mp_call_begin_answer(call);
    if (out == NULL)
        return false;
    size_t start = out->len;
    if (!mp_plan_put_result(L, RESULTS, around->before, around->after, out))
        return false;
    size_t size = out->len - start;
    if (size > task->super.vm->call_output) {
        char why[MP_REFUSAL];
        mp_task_fail(task, MP_CODE_INTERNAL, mp_refuse_output(task, "result", size, why), MP_STR_NONE);
    } else {
        mp_task_settle(task);
        mp_call_end_answer(call);
    }
    return true;
}

/* The handler has returned or raised an error.  [-n, +0, throws, parks] */
static int handler_ended(lua_State *L, int status, lua_KContext began)
{
    bool is_good = status == LUA_OK || status == LUA_YIELD;
    mp_catch_end(L, began, !is_good);
    mp_lib_task *task = lua_touserdata(L, TASK);
    const mp_plan *plan = lua_touserdata(L, PLAN);
    if (is_good && answer(L, task, plan))
        return 0;
    return finish_in_lua(L, task, is_good);
}

/* Runs the handler, whose function and `count` arguments are on top.  [-n, +0, throws, parks] */
static int run_handler(lua_State *L, mp_lib_task *task, const mp_plan *plan, int count)
{
    task->has_plan = true;
    mp_stat_add(&mp_stat_calls_planned, 1);
    if (plan->timeout_ms != 0)
        mp_call_within(task->call, plan->timeout_ms);
    lua_KContext began = mp_catch_begin(L);
    return handler_ended(L, lua_pcallk(L, count, LUA_MULTRET, TRACER, began, handler_ended), began);
}

/* Puts `call` among the `count` arguments on top, if the handler takes it. Gives the number of arguments.  [-0, +0|1, throws] */
static int add_call(lua_State *L, mp_lib_task *task, const mp_plan *plan, int count)
{
    if (plan->call_place == 0)
        return count;
    mp_call_push(L, task, 0);
    lua_pushvalue(L, -1);
    lua_replace(L, CALL);
    lua_insert(L, RESULTS + plan->call_place);
    return count + 1;
}

/* Pushes the plan, nil for `call`, the message handler and the handler.  [-0, +4, throws] */
static void push_head(lua_State *L, const mp_plans *plans, const mp_plan *plan)
{
    luaL_checkstack(L, MP_PLAN_ARGS + LUA_MINSTACK, NULL);
    lua_rawgeti(L, LUA_REGISTRYINDEX, plan->ref);
    lua_pushnil(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, plans->handler);
    lua_getiuservalue(L, PLAN, MP_PLAN_HANDLER);
}

/* The arguments have been checked by Lua, whose verdict is on top, above them.  [-n, +0, throws, parks] */
static int arguments_checked(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    mp_lib_task *task = (mp_lib_task *)context;
    bool is_good = lua_toboolean(L, -1);
    if (task->call == NULL)
        return 0; /* cancelled while the check ran */
    if (!is_good) {
        lua_settop(L, TASK);
        return mp_run_call_in_lua(L, task);
    }
    lua_pop(L, 1);
    const mp_plan *plan = lua_touserdata(L, PLAN);
    return run_handler(L, task, plan, add_call(L, task, plan, 1));
}

/* Has Lua check the arguments.  [-n, +n, throws, parks] */
static int run_checked(lua_State *L, mp_lib_task *task, const mp_flat *values, size_t count)
{
    mp_plan_push_all(L, values, count);
    lua_getiuservalue(L, PLAN, MP_PLAN_CHECK);
    lua_pushvalue(L, -2);
    lua_callk(L, 1, 1, (lua_KContext)task, arguments_checked);
    return arguments_checked(L, LUA_OK, (lua_KContext)task);
}

bool mp_plan_run(lua_State *L, mp_lib_task *task, int *count)
{
    const mp_plans *plans = mp_lib_of_vm(task->super.vm)->plans;
    const mp_call *call = task->call;
    uint8_t places[MP_PLAN_ARGS];
    size_t given;
    const mp_flat *values = mp_call_flat(call, &given);
    if (values == NULL || frame_of(plans, call) == NULL || mp_call_params(call).len > MP_PLAN_BYTES)
        return false;
    const mp_plan *plan = find_plan(plans, mp_call_tool(call));
    if (plan == NULL || (!plan->is_checked && !mp_plan_fits(plan, values, given, places)))
        return false;
    push_head(L, plans, plan);
    if (plan->is_checked) {
        *count = run_checked(L, task, values, given);
        return true;
    }
    int pushed = mp_plan_push(L, plan, PLAN, values, given, places);
#ifdef MP_SPEC_BUILD
    if (plans->are_proven)
        mp_plan_prove_arguments(L, plan, PLAN, mp_call_params(call), pushed);
#endif
    *count = run_handler(L, task, plan, add_call(L, task, plan, pushed));
    return true;
}

/* -- making plans ------------------------------------------------------------------------------------------------ */

static void drop_plans(lua_State *L, mp_plans *plans)
{
    for (size_t i = 0; i < BUCKETS; i++) {
        for (mp_plan *plan = plans->buckets[i]; plan != NULL; plan = plan->next)
            luaL_unref(L, LUA_REGISTRYINDEX, plan->ref); /* frees a slot of the registry, so it allocates nothing */
        plans->buckets[i] = NULL;
    }
    plans->count = 0;
}

static bool has_field(lua_State *L, int index, const char *name)
{
    bool is_true = lua_getfield(L, index, name) != LUA_TNIL && lua_toboolean(L, -1);
    lua_pop(L, 1);
    return is_true;
}

/* The number in a field, or `otherwise`. Sets `*is_given` if there is one.  [-0, +0, throws] */
static double number_field(lua_State *L, int index, const char *name, double otherwise, bool *is_given)
{
    if (lua_getfield(L, index, name) == LUA_TNUMBER) {
        otherwise = lua_tonumber(L, -1);
        *is_given = true;
    }
    lua_pop(L, 1);
    return otherwise;
}

/* Pops the text on top into a user value of the plan at `at`, which holds it.  [-1, +0, throws] */
static mp_str hold_text(lua_State *L, int at, int slot)
{
    mp_str text;
    text.ptr = luaL_checklstring(L, -1, &text.len);
    lua_setiuservalue(L, at, slot);
    return text;
}

/* The sizes of a plan: how many arguments it has, and how many texts all their enums have. */
typedef struct {
    int args, choices;
} sizes;

static sizes measure(lua_State *L, int args)
{
    sizes size = {0};
    if (!lua_istable(L, args))
        return size;
    size.args = (int)lua_rawlen(L, args);
    luaL_argcheck(L, size.args <= MP_PLAN_ARGS, 1, "too many arguments");
    for (int i = 1; i <= size.args; i++) {
        lua_rawgeti(L, args, i);
        lua_getfield(L, -1, "choices");
        if (lua_istable(L, -1))
            size.choices += (int)lua_rawlen(L, -1);
        lua_pop(L, 2);
    }
    return size;
}

/* Fills the argument number `i` from the row on top. `*slot` and `*choice` are the next free user value and place in plan->choices.  [-0, +0, throws] */
static void fill_argument(lua_State *L, mp_plan *plan, int at, int i, int *slot, int *choice)
{
    static const char *const kinds[] = {"number", "integer", "string", "boolean", NULL};
    mp_plan_arg *arg = &plan->args[i];
    int row = lua_gettop(L);
    lua_getfield(L, row, "name");
    arg->name = hold_text(L, at, MP_PLAN_FIRST + i);
    lua_getfield(L, row, "kind");
    arg->kind = (mp_arg_kind)luaL_checkoption(L, -1, NULL, kinds);
    arg->least = number_field(L, row, "least", -HUGE_VAL, &arg->has_bounds);
    arg->most = number_field(L, row, "most", HUGE_VAL, &arg->has_bounds);
    arg->above = number_field(L, row, "above", -HUGE_VAL, &arg->has_bounds);
    arg->below = number_field(L, row, "below", HUGE_VAL, &arg->has_bounds);
    if (has_field(L, row, "is_required"))
        plan->required |= 1u << i;
    if (lua_getfield(L, row, "default") != LUA_TNIL) {
        lua_setiuservalue(L, at, *slot);
        arg->default_slot = (*slot)++;
    }
    lua_settop(L, row);
    if (lua_getfield(L, row, "choices") == LUA_TTABLE) {
        arg->choices = (uint16_t)*choice;
        arg->choice_count = (uint16_t)lua_rawlen(L, -1);
        for (lua_Integer k = 1; k <= arg->choice_count; k++) {
            lua_rawgeti(L, row + 1, k);
            plan->choices[(*choice)++] = hold_text(L, at, (*slot)++);
        }
    }
    lua_settop(L, row);
}

static void fill_defaults(lua_State *L, mp_plan *plan, int row)
{
    if (lua_getfield(L, row, "defaults") == LUA_TTABLE) {
        plan->default_count = (int)lua_rawlen(L, -1);
        luaL_argcheck(L, plan->default_count <= plan->arg_count, 1, "more defaults than arguments");
        for (int i = 0; i < plan->default_count; i++) {
            lua_rawgeti(L, -1, i + 1);
            plan->defaults[i] = (uint8_t)(luaL_checkinteger(L, -1) - 1);
            lua_pop(L, 1);
        }
    }
    lua_pop(L, 1);
}

static void set_user_value(lua_State *L, int row, const char *field, int plan, int slot)
{
    lua_getfield(L, row, field);
    lua_setiuservalue(L, plan, slot);
}

/* Makes the plan that the row on top describes, and adds it.  [-1, +0, throws] */
static void add_plan(lua_State *L, mp_plans *plans)
{
    int row = lua_gettop(L);
    lua_getfield(L, row, "args");
    sizes size = measure(L, row + 1);
    size_t bytes = sizeof(mp_plan) + (size_t)size.choices * sizeof(mp_str);
    mp_plan *plan = lua_newuserdatauv(L, bytes, MP_PLAN_FIRST + 2 * size.args + size.choices);
    int at = row + 2, slot = MP_PLAN_FIRST + size.args, choice = 0;
    memset(plan, 0, bytes);
    plan->choices = (mp_str *)(plan + 1);
    plan->arg_count = size.args;
    plan->is_checked = !lua_istable(L, row + 1);
    plan->is_positional = has_field(L, row, "is_positional");
    plan->has_output = has_field(L, row, "has_output");
    bool is_given;
    plan->call_place = (int)number_field(L, row, "call", 0, &is_given);
    plan->timeout_ms = (uint64_t)ceil(number_field(L, row, "seconds", 0, &is_given) * 1000);
    set_user_value(L, row, "handler", at, MP_PLAN_HANDLER);
    set_user_value(L, row, "tool", at, MP_PLAN_TOOL);
    set_user_value(L, row, "check", at, MP_PLAN_CHECK);
    lua_getfield(L, row, "name");
    plan->name = hold_text(L, at, MP_PLAN_NAME);
    for (int i = 0; i < size.args; i++) {
        lua_rawgeti(L, row + 1, i + 1);
        fill_argument(L, plan, at, i, &slot, &choice);
        lua_pop(L, 1);
    }
    fill_defaults(L, plan, row);
    plan->hash = hash_of(plan->name);
    plan->ref = luaL_ref(L, LUA_REGISTRYINDEX);
    plan->next = plans->buckets[plan->hash % BUCKETS];
    plans->buckets[plan->hash % BUCKETS] = plan;
    plans->count++;
    lua_settop(L, row - 1);
}

/* plan.set(rows, has_private): replaces all plans. Calls that run keep theirs. If memory is short, tools are left without a plan.  [-0, +0, throws] */
static int l_set_plans(lua_State *L)
{
    mp_plans *plans = mp_lib_of(L)->plans;
    luaL_checktype(L, 1, LUA_TTABLE);
    plans->has_private = lua_toboolean(L, 2);
    lua_settop(L, 1);
    drop_plans(L, plans);
    for (lua_Integer i = 1; !plans->are_off && lua_rawgeti(L, 1, i) == LUA_TTABLE; i++)
        add_plan(L, plans);
    return 0;
}

/* plan.set_ends(finish, handler, frames): finish(tool, revision, call, ok, …) ends a call; `handler` is the message handler of handlers;
 * `frames`: by revision, the JSON before and behind the text of a result that is one text.  [-0, +0, throws] */
static int l_set_plan_ends(lua_State *L)
{
    mp_plans *plans = mp_lib_of(L)->plans;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    for (size_t i = 0; i < mp_era_count && i < MAX_ERAS; i++) {
        if (lua_getfield(L, 3, mp_eras[i].date) == LUA_TTABLE) {
            lua_rawgeti(L, 4, 1);
            plans->frames[i].before = mp_check_str(L, 5);
            lua_rawgeti(L, 4, 2);
            plans->frames[i].after = mp_check_str(L, 6);
        }
        lua_settop(L, 3);
    }
    plans->frame_table = luaL_ref(L, LUA_REGISTRYINDEX);
    plans->handler = luaL_ref(L, LUA_REGISTRYINDEX);
    plans->finish = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

/* call.params(call): the params of the call, decoded anew; nil if it has none, or has ended.  [-0, +1, throws] */
static int l_params(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    mp_str params = task->call == NULL ? MP_STR_NONE : mp_call_params(task->call);
    if (params.len == 0 || mp_lua_decode(L, params) != 0)
        lua_pushnil(L);
    return 1;
}

void mp_lib_plan(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"plan.set", l_set_plans}, {"plan.set_ends", l_set_plan_ends}, {"call.params", l_params}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
