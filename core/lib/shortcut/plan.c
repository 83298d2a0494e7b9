/* plan.c: a planned call from its start to its end. plan.h says what plans are. */
#include "lib/shortcut/plan.h"
#include "lib/fields.h"
#include "lib/shortcut/audit_line.h"
#include <lauxlib.h>

MP_COUNTER(calls_planned, "calls_planned", "", "", "tools/call requests that call plans served")

/* -- a planned call ---------------------------------------------------------------------------------------------- */

/* Slots of the stack of a planned call's coroutine. CALL: nil if the handler takes no `call`. RESULTS: the handler
 * and its arguments; later, the values that it returned or raised. */
enum { TASK = 1, PLAN, CALL, TRACER, RESULTS };

/* Ends the call by the library in Lua: finish(tool, revision, call, ok, …).  [-n, +0, throws, parks] */
static int finish_in_lua(lua_State *L, mp_lib_task *task, bool is_good)
{
    const mp_plans *plans = mp_lib_of_vm(task->super.vm)->plans;
    const mp_era *era = task->call == NULL ? task->era : mp_call_era(task->call);
    mp_phase_set(MP_PHASE_HANDLER);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    if (lua_isnil(L, CALL)) {
        mp_call_push(L, task, 0);
        lua_replace(L, CALL);
    }
    lua_getiuservalue(L, PLAN, MP_PLAN_TOOL);
    lua_replace(L, TRACER);
    lua_rawgeti(L, LUA_REGISTRYINDEX, mp_audit_is_begun(&task->audit) ? plans->finish_audited : plans->finish);
    lua_replace(L, PLAN);
    lua_pushstring(L, era == NULL ? NULL : era->date);
    lua_pushboolean(L, is_good);
    lua_rotate(L, RESULTS, 2); /* the stack is: task, finish, call, tool, revision, ok, … */
    lua_pushvalue(L, CALL);
    lua_insert(L, RESULTS + 1);
    lua_remove(L, CALL); /* the stack is: task, finish, tool, revision, call, ok, … */
    lua_callk(L, lua_gettop(L) - 2, 2, (lua_KContext)task, mp_call_done);
    return mp_call_done(L, LUA_OK, (lua_KContext)task);
}

/* Ends the answer that mp_call_begin_answer began, whose result begins at `start` of `out`. */
static void end_answer(mp_lib_task *task, const mp_buf *out, size_t start)
{
    size_t size = out->len - start;
    if (mp_audit_is_begun(&task->audit)) /* the outcome is the tool's, also where its result is too large */
        mp_audit_end(&task->audit, &(mp_audit_outcome){.outcome = "ok"});
    mp_task_end_answer(task, size);
}

static const mp_plan_frame *frame_for(const mp_lib_task *task, const mp_call *call)
{
    return &mp_lib_of_vm(task->super.vm)->plans->frames[mp_call_era(call) - mp_eras];
}

/* In builds for specs: compares a result with that of the general path, if MOONPOOL_PLANS=both.  [-0, +0, throws
 * memory] */
static void prove_plan(lua_State *L, const mp_lib_task *task, const mp_plan *plan, const mp_era *era, mp_str result)
{
#ifdef MP_SPEC_BUILD
    const mp_plans *plans = mp_lib_of_vm(task->super.vm)->plans;
    mp_plan_prove_result(L, plan, PLAN, plans->finish, era->date, CALL, RESULTS, result);
#else
    (void)L, (void)task, (void)plan, (void)era, (void)result;
#endif
}

/* Answers with a text, a number or a boolean at RESULTS. False, and nothing has happened, for another value.  [-0,
 * +0] */
static bool answer_scalar(lua_State *L, mp_lib_task *task, mp_call *call, const mp_plan *plan)
{
    mp_phase_set(MP_PHASE_ENCODE);
    const mp_plan_frame *frame = frame_for(task, call);
    if (mp_lib_of_vm(task->super.vm)->is_proven) {
        mp_scoped_buf result = {0};
        const mp_era *era = mp_call_era(call);
        if (era != NULL && mp_plan_put_scalar(L, RESULTS, frame, &result))
            prove_plan(L, task, plan, era, mp_buf_str(&result));
    }
    mp_buf *out = mp_call_begin_answer(call);
    if (out == NULL)
        return false;
    size_t start = out->len;
    if (!mp_plan_put_scalar(L, RESULTS, frame, out))
        return false;
    end_answer(task, out, start);
    return true;
}

/* -- structured results ------------------------------------------------------------------------------------------ */

/* Sends the encoded result `text` as the answer of the call. A result above MP_PLAIN_BYTES is not sent: Lua answers.
 * [-0, +0] */
static int send_structured(MP_UNUSED lua_State *L, void *ctx, mp_str text, size_t size)
{
    mp_lib_task *task = ctx;
    mp_call *call = task->call;
    if (call == NULL || size > MP_PLAIN_BYTES)
        return 0;
    mp_buf *out = mp_call_begin_answer(call);
    if (out == NULL)
        return 0;
    size_t start = out->len;
    mp_plan_put_structured(text, frame_for(task, call), out);
    const mp_lib *lib = mp_lib_of_vm(task->super.vm);
    if (lib->is_proven) {
        lib->plans->proof.len = 0;
        mp_buf_put(&lib->plans->proof, mp_str_from(mp_buf_str(out), start));
    }
    end_answer(task, out, start);
    return 0;
}

/* (value, task): encodes the value and answers with it.  [-2, +0, throws, parks] */
static int encode_structured(lua_State *L)
{
    return mp_lua_encode_in_turns(L, 1, MP_PLAIN_BYTES, send_structured, lua_touserdata(L, 2));
}

/* Continuation of answer_structured(). Where the value was not sent, finish_in_lua() makes the answer or the error.
 * [-n, +0, throws, parks] */
static int structured_ended(lua_State *L, int status, lua_KContext began)
{
    bool is_good = status == LUA_OK || status == LUA_YIELD;
    mp_catch_end(L, began, !is_good);
    if (!is_good)
        lua_pop(L, 1);
    mp_lib_task *task = lua_touserdata(L, TASK);
    const mp_lib *lib = mp_lib_of_vm(task->super.vm);
    if (!is_good || task->call != NULL)
        return finish_in_lua(L, task, true);
    if (lib->is_proven)
        prove_plan(L, task, lua_touserdata(L, PLAN), &mp_eras[lua_tointeger(L, TRACER)],
                   mp_buf_str(&lib->plans->proof));
    return 0;
}

/* [-n, +0, throws, parks] */
static int answer_structured(lua_State *L, mp_lib_task *task, const mp_call *call)
{
    mp_phase_set(MP_PHASE_ENCODE);
    lua_pushinteger(L, mp_call_era(call) - mp_eras); /* the message handler is not needed any more */
    lua_replace(L, TRACER);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    lua_pushcfunction(L, encode_structured);
    lua_pushvalue(L, RESULTS);
    lua_pushlightuserdata(L, task);
    lua_KContext began = mp_catch_begin(L);
    return structured_ended(L, lua_pcallk(L, 2, 0, 0, began, structured_ended), began);
}

/* The tool's output schema has been checked by Lua, whose verdict is on top.  [-n, +0, throws, parks] */
static int output_checked(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    mp_lib_task *task = (mp_lib_task *)context;
    bool is_good = lua_toboolean(L, -1);
    lua_pop(L, 1);
    const mp_call *call = task->call;
    if (!is_good || call == NULL)
        return finish_in_lua(L, task, true);
    return answer_structured(L, task, call);
}

static void end_handler_span(mp_lib_task *task)
{
    mp_span_end(task->call == NULL ? NULL : mp_call_trace(task->call), task->span);
    task->span = MP_ROOT_SPAN;
}

/* The handler has returned or raised an error.  [-n, +0, throws, parks] */
static int handler_ended(lua_State *L, int status, lua_KContext began)
{
    bool is_good = status == LUA_OK || status == LUA_YIELD;
    mp_catch_end(L, began, !is_good);
    mp_lib_task *task = lua_touserdata(L, TASK);
    const mp_plan *plan = lua_touserdata(L, PLAN);
    if (task->span != MP_ROOT_SPAN)
        end_handler_span(task);
    mp_call *call = task->call;
    if (!is_good || call == NULL || lua_gettop(L) < RESULTS || plan->ends_in_lua)
        return finish_in_lua(L, task, is_good);
    if (!lua_istable(L, RESULTS))
        return !plan->has_output && answer_scalar(L, task, call, plan) ? 0 : finish_in_lua(L, task, true);
    if (!mp_plan_is_structured(L, plan, PLAN, RESULTS))
        return finish_in_lua(L, task, true);
    if (!plan->has_output || plan->knows_output)
        return answer_structured(L, task, call);
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    lua_getiuservalue(L, PLAN, MP_PLAN_OUTPUT);
    lua_pushvalue(L, RESULTS);
    lua_callk(L, 1, 1, (lua_KContext)task, output_checked);
    return output_checked(L, LUA_OK, (lua_KContext)task);
}

/* -- the handler ------------------------------------------------------------------------------------------------- */

/* Runs the handler, whose function and `count` arguments are on top.  [-n, +0, throws, parks] */
static int run_handler(lua_State *L, mp_lib_task *task, const mp_plan *plan, int count)
{
    mp_call *call = task->call;
    if (call == NULL)
        return 0; /* cancelled while its arguments were made */
    mp_phase_set(MP_PHASE_HANDLER);
    task->has_plan = true;
    mp_stat_add(&mp_stat_calls_planned, 1);
    mp_call_measure(call, plan->metrics);
    mp_trace *trace = mp_call_trace(call);
    if (trace != NULL && !plan->has_policies)
        task->span = mp_span_begin(trace, MP_ROOT_SPAN, MP_SPAN_INTERNAL, MP_STR("handler"));
    if (plan->timeout_ms != 0)
        mp_call_within(call, plan->timeout_ms);
    lua_KContext began = mp_catch_begin(L);
    return handler_ended(L, lua_pcallk(L, count, LUA_MULTRET, TRACER, began, handler_ended), began);
}

/* Puts `call` among the `count` arguments on top, if the handler takes it. Gives the number of arguments.  [-0, +0|1,
 * throws] */
static int add_call(lua_State *L, mp_lib_task *task, const mp_plan *plan, int count)
{
    bool takes_call = plan->call_place != 0;
    if (!takes_call && !mp_lib_of(L)->has_upstreams)
        return count;
    mp_call_push(L, task, 0);
    if (!takes_call) {
        lua_replace(L, CALL);
        return count;
    }
    lua_pushvalue(L, -1);
    lua_replace(L, CALL);
    lua_insert(L, RESULTS + plan->call_place);
    return count + 1;
}

/* Pushes the plan first, which may be replaced as soon as code of Lua runs; nil for `call`; the message handler; the
 * handler.  [-0, +4, throws] */
static void push_head(lua_State *L, const mp_plans *plans, const mp_plan *plan)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, plan->ref);
    lua_pushnil(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, plans->handler);
    lua_getiuservalue(L, PLAN, MP_PLAN_HANDLER);
    luaL_checkstack(L, MP_PLAN_FIELDS + LUA_MINSTACK, NULL);
}

/* -- arguments that do not fit ------------------------------------------------------------------------------------ */

/* Slots of the stack of a coroutine that has refused arguments: the text for the client and that for the audit, which
 * has no values. */
enum { WORDS = TASK + 1, RECORD };

/* Answers with an error of JSON-RPC, in revisions in which wrong arguments are one.  [-n, +0, throws, parks] */
static int refuse_by_error(lua_State *L, mp_lib_task *task)
{
    mp_audit_end(&task->audit, &(mp_audit_outcome){.outcome = "error",
                                                   .has_code = true,
                                                   .code = MP_CODE_INVALID_PARAMS,
                                                   .why = mp_opt_str(L, RECORD)});
    lua_createtable(L, 0, 2);
    lua_replace(L, RECORD);
    lua_pushinteger(L, MP_CODE_INVALID_PARAMS);
    lua_setfield(L, RECORD, "code");
    lua_pushvalue(L, WORDS);
    lua_setfield(L, RECORD, "message");
    return mp_task_answer_error(L, task, RECORD);
}

/* Answers with a result that has isError.  [-0, +0, throws] */
static void refuse_by_result(lua_State *L, mp_lib_task *task, mp_call *call, const mp_plan_frame *frame)
{
    mp_buf *out = mp_call_begin_answer(call);
    if (out == NULL)
        return;
    size_t start = out->len;
    mp_buf_put(out, frame->failed[0]);
    mp_json_put_string(out, mp_check_str(L, WORDS));
    mp_buf_put(out, frame->failed[1]);
    size_t size = out->len - start;
    mp_call_fails(call);
    mp_audit_end(&task->audit, &(mp_audit_outcome){.outcome = "failed", .why = mp_opt_str(L, RECORD)});
    mp_task_end_answer(task, size);
}

/* Continues after refuse(), whose text for the client and that for the audit are on top; nil or false: the arguments
 * fit after all, or have to be checked as a whole.  [-n, +n, throws, parks] */
static int refusal_worded(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    mp_lib_task *task = (mp_lib_task *)context;
    mp_call *call = task->call;
    if (call == NULL)
        return 0; /* cancelled while the words were made */
    if (!lua_toboolean(L, -2)) {
        mp_audit_discard(&task->audit);
        lua_settop(L, TASK);
        return mp_run_call_in_lua(L, task, call);
    }
    lua_replace(L, RECORD);
    lua_replace(L, WORDS);
    lua_settop(L, RECORD);
    mp_phase_set(MP_PHASE_ENCODE);
    const mp_plan_frame *frame = frame_for(task, call);
    if (frame->failed[0].ptr == NULL)
        return refuse_by_error(L, task);
    refuse_by_result(L, task, call, frame);
    return 0;
}

/* Pushes a function that refuses, and its first argument, the tool.  [-0, +2, throws] */
static void push_refuse(lua_State *L, int refuse)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, refuse);
    lua_getiuservalue(L, PLAN, MP_PLAN_TOOL);
}

/* Has Lua say what is wrong: push_refuse() has pushed what is below the other `count` arguments of refuse().  [-n, +n,
 * throws, parks] */
static int refuse_arguments(lua_State *L, mp_lib_task *task, mp_call *call, int count)
{
    const mp_plan *plan = lua_touserdata(L, PLAN);
    mp_call_measure(call, plan->metrics);
    mp_phase_set(MP_PHASE_HANDLER);
    lua_callk(L, 1 + count, 2, (lua_KContext)task, refusal_worded);
    return refusal_worded(L, LUA_OK, (lua_KContext)task);
}

/* Continues after Lua has checked the arguments; the verdict and why are on top, above the arguments. [-n, +0, throws,
 * parks] */
static int arguments_checked(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    mp_lib_task *task = (mp_lib_task *)context;
    bool is_good = lua_toboolean(L, -2);
    mp_call *call = task->call;
    if (call == NULL)
        return 0; /* cancelled while the check ran */
    if (!is_good) {
        push_refuse(L, mp_lib_of_vm(task->super.vm)->plans->refuse);
        lua_pushvalue(L, -5);
        lua_pushvalue(L, -4);
        return refuse_arguments(L, task, call, 2);
    }
    lua_pop(L, 2);
    const mp_plan *plan = lua_touserdata(L, PLAN);
    return run_handler(L, task, plan, add_call(L, task, plan, 1));
}

/* Has Lua check the arguments, which are on top.  [-n, +n, throws, parks] */
static int run_checked(lua_State *L, mp_lib_task *task)
{
    lua_getiuservalue(L, PLAN, MP_PLAN_CHECK);
    lua_pushvalue(L, -2);
    lua_callk(L, 1, 2, (lua_KContext)task, arguments_checked);
    return arguments_checked(L, LUA_OK, (lua_KContext)task);
}

/* The arguments, one table on top, have their default values.  [-n, +n, throws, parks] */
static int arguments_filled(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    mp_lib_task *task = (mp_lib_task *)context;
    if (task->call == NULL)
        return 0; /* cancelled while these were added */
    const mp_plan *plan = lua_touserdata(L, PLAN);
    return run_handler(L, task, plan, add_call(L, task, plan, 1));
}

/* Runs the handler with the arguments, which fit, and are one table on top without default values.  [-n, +n, throws,
 * parks] */
static int fill_arguments(lua_State *L, mp_lib_task *task)
{
    if (lua_getiuservalue(L, PLAN, MP_PLAN_FILL) == LUA_TNIL) {
        lua_pop(L, 1);
    } else {
        lua_pushvalue(L, -2);
        lua_callk(L, 1, 0, (lua_KContext)task, arguments_filled);
    }
    return arguments_filled(L, LUA_OK, (lua_KContext)task);
}

/* Continues after refuse(), whose words are on top, above the arguments; nil: these fit; false: they have to be checked
 * as a whole.  [-n, +n, throws, parks] */
static int fields_checked(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    mp_lib_task *task = (mp_lib_task *)context;
    mp_call *call = task->call;
    if (call == NULL)
        return 0; /* cancelled while the check ran */
    if (lua_isnil(L, -2)) {
        lua_pop(L, 2);
        return fill_arguments(L, task);
    }
    const mp_plan *plan = lua_touserdata(L, PLAN);
    mp_call_measure(call, plan->metrics);
    return refusal_worded(L, LUA_OK, context);
}

/* Checks the arguments, which are one table on top, that C does not know by Lua; the others fit.  [-n, +n,
 * throws, parks] */
static int run_by_fields(lua_State *L, mp_lib_task *task, const mp_plan *plan, const mp_plain *it)
{
    int args = lua_gettop(L);
    push_refuse(L, it->lib->plans->refuse_some);
    mp_plan_push_faults(L, plan, PLAN, it, args);
    if (lua_rawlen(L, -3) == 0) {
        lua_settop(L, args);
        return fill_arguments(L, task);
    }
    lua_callk(L, 4, 2, (lua_KContext)task, fields_checked);
    return fields_checked(L, LUA_OK, (lua_KContext)task);
}

mp_general mp_plan_run(lua_State *L, mp_lib_task *task, const mp_plain *it, int *count)
{
    const mp_plans *plans = it->lib->plans;
    mp_plan_given given; /* 3 KiB, of which little is written */
    if (plans->by_name.count == 0 || plans->frames[it->place].before.ptr == NULL)
        return MP_GENERAL_NO_PLAN;
    const mp_plan *plan = mp_plan_find(plans, mp_call_tool(it->call));
    if (plan == NULL)
        return MP_GENERAL_NO_PLAN;
    if ((plan->scopes & ~it->rights->scopes) != 0)
        return MP_GENERAL_RIGHTS;
    bool by_fields = plan->knows_fields && !mp_plan_has_null(it);
    bool fits = plan->is_checked ? !by_fields || !mp_plan_sees_fault(plan, it)
                                 : mp_plan_fits(plan, it->values, it->value_count, &given);
    mp_shortcut_subscribe_as(it);
    if (it->lib->audit != MP_AUDIT_MODE_OFF)
        mp_audit_begin_plain(&task->audit, it->lib, it->call, plan->node.key);
    push_head(L, plans, plan);
    if (!fits) {
        push_refuse(L, plans->refuse_some);
        if (mp_plan_push_faults(L, plan, PLAN, it, 0)) {
            *count = refuse_arguments(L, task, it->call, 3);
            return MP_PLAIN;
        }
        lua_pop(L, 2);
    }
    if (plan->is_checked || !fits) {
        if (!mp_plan_push_all(L, it->values, it->value_count)) {
            mp_audit_discard(&task->audit);
            lua_settop(L, TASK);
            return MP_GENERAL_ARGUMENTS;
        }
        if (!fits) {
            push_refuse(L, plans->refuse);
            lua_rotate(L, -3, -1); /* the arguments to the top */
            *count = refuse_arguments(L, task, it->call, 1);
        } else if (by_fields)
            *count = run_by_fields(L, task, plan, it);
        else
            *count = run_checked(L, task);
        return MP_PLAIN;
    }
    int pushed = mp_plan_push(L, plan, PLAN, &given);
#ifdef MP_SPEC_BUILD
    if (it->lib->is_proven)
        mp_plan_prove_arguments(L, plan, PLAN, mp_call_params(it->call), pushed);
#endif
    *count = run_handler(L, task, plan, add_call(L, task, plan, pushed));
    return MP_PLAIN;
}
