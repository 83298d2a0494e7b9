/* call.c: the userdata `call` of handlers, and the library's functions on it. The userdata holds its task and the
 * task's serial number: a task is reused, so a `call` that a script kept must not act on the task's next work. */
#include "vm/engine.h"
#include "lib/fields.h"
#include "lib/shortcut/audit_line.h"
#include "lib/work/call.h"
#include <lauxlib.h>
#include <math.h>

MP_COUNTER(dropped_listed, "dropped", "reason", "listed", "lists of a template's resources that had more than 10,000")
MP_REFUSED(refused_rate, "rate", MP_FAULT, "calls over a limit or quota of a policy")

typedef mp_call_handle handle;

static const char
    handles_key; /* its address names the table of handles in the registry: by their task, as weak values */

/* Makes the table of handles, before scripts load: `__mode` has no meaning afterwards (lib/trust.c).  [-0, +0, throws]
 */
static void make_handles(lua_State *L)
{
    lua_newtable(L);
    lua_newtable(L);
    lua_pushliteral(L, "v");
    lua_setfield(L, -2, "__mode");
    lua_setmetatable(L, -2);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &handles_key);
}

/* Registers the handle by its task, so that call.current() returns the same userdata: Lua's weak tables are keyed by
 * it.  [-0, +0, throws] */
static void keep_handle(lua_State *L, mp_lib_task *task)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &handles_key);
    lua_pushvalue(L, -2);
    lua_rawsetp(L, -2, task);
    lua_pop(L, 1);
}

void mp_call_push(lua_State *L, mp_lib_task *task, int params)
{
    handle *h = lua_newuserdatauv(L, sizeof *h, MP_CALL_VALUES);
    *h = (handle){.task = task, .serial = task->super.serial};
    if (params == 0)
        lua_pushboolean(L, 0);
    else
        lua_pushvalue(L, params);
    lua_setiuservalue(L, -2, MP_CALL_PARAMS);
    /* a cancelled call has none, and the anonymous principal has no table */
    if (task->call != NULL && mp_call_principal(task->call) != mp_nobody) {
        mp_principal_push(L, mp_call_principal(task->call));
        lua_setiuservalue(L, -2, MP_CALL_PRINCIPAL);
    }
    luaL_setmetatable(L, MP_CALL);
    if (mp_lib_of(L)->has_upstreams)
        keep_handle(L, task);
}

void mp_call_push_like(lua_State *L)
{
    const handle *like = luaL_checkudata(L, 1, MP_CALL);
    mp_call_push_params(L);
    lua_pop(L, 1);
    handle *h = lua_newuserdatauv(L, sizeof *h, MP_CALL_VALUES);
    *h = (handle){
        .task = like->task}; /* no task has the serial number 0, so the call counts as ended until mp_call_bind() */
    for (int slot = 1; slot < MP_CALL_TURN; slot++) {
        lua_getiuservalue(L, 1, slot);
        lua_setiuservalue(L, -2, slot);
    }
    luaL_setmetatable(L, MP_CALL);
}

void mp_call_push_new(lua_State *L)
{
    handle *h = lua_newuserdatauv(L, sizeof *h, MP_CALL_VALUES);
    *h = (handle){0};
    luaL_setmetatable(L, MP_CALL);
}

void mp_call_bind(lua_State *L, int index, mp_lib_task *task)
{
    handle *h = lua_touserdata(L, index);
    h->task = task;
    h->serial = task->super.serial;
}

mp_lib_task *mp_check_call(lua_State *L)
{
    const handle *h = mp_check_udata(L, 1, MP_CALL, mp_lib_of(L)->call_metatable);
    if (h->serial != h->task->super.serial || (h->task->call == NULL && !h->task->super.cancelled))
        luaL_error(L, "this call has ended");
    return h->task;
}

static void push_str(lua_State *L, mp_str s)
{
    lua_pushlstring(L, s.ptr == NULL ? "" : s.ptr, s.len);
}

static int l_tostring(lua_State *L)
{
    lua_pushliteral(L, MP_CALL);
    return 1;
}

/* -- sending --------------------------------------------------------------------------------------------------- */

/* True if progress notifications of this revision have the field `message`. */
static bool has_progress_message(const mp_era *MP_NULLABLE era)
{
    return era != NULL && era->says_message;
}

static void put_number(lua_State *L, int index, mp_buf *out)
{
    if (lua_isinteger(L, index))
        mp_json_put_int(out, lua_tointeger(L, index));
    else
        mp_json_put_double(out, lua_tonumber(L, index));
}

static void check_finite(lua_State *L, int index)
{
    luaL_argcheck(L, isfinite(luaL_checknumber(L, index)), index, "a finite number is needed");
}

static _Noreturn void refuse_size(lua_State *L, size_t size, size_t max_bytes)
{
    luaL_error(L, "this message is %I bytes of JSON, more than limits.call.output (%I)", (LUAI_UACINT)size,
               (LUAI_UACINT)max_bytes);
    abort();
}

void mp_check_size(lua_State *L, mp_state *state, size_t start)
{
    size_t size = state->out.len - start;
    if (size <= state->call_output)
        return;
    state->out.len = start;
    refuse_size(L, size, state->call_output);
}

/* call:progress(progress[, total[, message]]): sends a progress notification. Does nothing if the client sent no
 * progress token, the call's stream is closed, or `progress` is not above the last one (F-1).
 *  [-0, +0, throws] */
static int l_progress(lua_State *L)
{
    mp_lib_task *task = mp_check_call(L);
    check_finite(L, 2);
    bool has_total = !lua_isnoneornil(L, 3);
    if (has_total)
        check_finite(L, 3);
    mp_str message = MP_STR_NONE;
    if (!lua_isnoneornil(L, 4))
        message.ptr = luaL_checklstring(L, 4, &message.len);
    if (task->call == NULL)
        return 0;
    mp_str token = mp_call_progress_token(task->call);
    double progress = lua_tonumber(L, 2);
    if (token.len == 0 || (task->has_progress && progress <= task->progress))
        return 0;
    task->has_progress = true;
    task->progress = progress;

    mp_state *state = mp_state_of(task->super.vm);
    mp_buf *out = &state->out;
    size_t start = out->len;
    mp_buf_put(out,
               MP_STR("{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\"params\":{\"progressToken\":"));
    mp_buf_put(out, token);
    mp_buf_put(out, MP_STR(",\"progress\":"));
    put_number(L, 2, out);
    if (has_total) {
        mp_buf_put(out, MP_STR(",\"total\":"));
        put_number(L, 3, out);
    }
    if (message.ptr != NULL && has_progress_message(mp_call_era(task->call))) {
        mp_buf_put(out, MP_STR(",\"message\":"));
        mp_json_put_string(out, message);
    }
    mp_buf_put(out, MP_STR("}}"));
    mp_check_size(L, state, start);
    mp_call_send(task->call, mp_str_from(mp_buf_str(out), start)); /* cancels the task if the client has disconnected */
    out->len = start;
    return 0;
}

/* (value, mp_buf): appends the value's JSON to the buffer.  [-2, +0, throws] */
static int encode_value(lua_State *L)
{
    mp_lua_encode(L, 1, lua_touserdata(L, 2));
    return 0;
}

void mp_encode_out(lua_State *L, mp_state *state, int index)
{
    size_t start = state->out.len;
    lua_pushcfunction(L, encode_value);
    lua_pushvalue(L, index);
    lua_pushlightuserdata(L, &state->out);
    if (lua_pcall(L, 2, 0, 0) == LUA_OK)
        return;
    state->out.len = start;
    lua_error(L);
}

/* Sends the encoded message. The call may have ended while the message was encoded. */
static int send_encoded(lua_State *L, MP_UNUSED void *ctx, mp_str text, size_t size)
{
    mp_lib_task *task = mp_check_call(L);
    if (size > mp_state_of(task->super.vm)->call_output)
        refuse_size(L, size, mp_state_of(task->super.vm)->call_output);
    lua_pushboolean(L, task->call != NULL && mp_call_send(task->call, text) == 0);
    return 1;
}

/* call:send(message): sends a JSON-RPC message on the call's stream. False if the client can no longer receive it. [-0,
 * +1, throws, yields] */
static int l_send(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    lua_settop(L, 2);
    if (task->call != NULL)
        return mp_lua_encode_in_turns(L, 2, mp_state_of(task->super.vm)->call_output, send_encoded, NULL);
    lua_pushboolean(L, 0);
    return 1;
}

/* -- for the Lua library---------------------------------------------------------------------------------------- */

/* call.over_output(call, what, size): nil if `size` bytes of JSON are within limits.call.output. Otherwise counts and
 * logs the excess, and returns an error text that names `what`.  [-0, +0|1, throws] */
static int l_over_output(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    const char *what = luaL_checkstring(L, 2);
    size_t size = (size_t)luaL_checkinteger(L, 3);
    if (size <= mp_state_of(task->super.vm)->call_output)
        return 0;
    char why[MP_REFUSAL];
    lua_pushstring(L, mp_refuse_output(task, what, size, why).ptr);
    return 1;
}

/* call.current(): the handle of the call for which the running task works; nil if no task runs, or it works for no
 * call.  [-0, +1] */
static int l_current(lua_State *L)
{
    mp_task *running = mp_state_of(mp_vm_of(L))->running;
    if (running == NULL) {
        lua_pushnil(L);
        return 1;
    }
    mp_lib_task *task = mp_container(running->payer, mp_lib_task, super);
    if (task->call == NULL) {
        lua_pushnil(L);
        return 1;
    }
    lua_rawgetp(L, LUA_REGISTRYINDEX, &handles_key);
    if (lua_rawgetp(L, -1, task) == LUA_TUSERDATA &&
        ((const handle *)lua_touserdata(L, -1))->serial == task->super.serial)
        return 1;
    mp_call_push(L, task, 0);
    return 1;
}

static mp_str opt_json(lua_State *L, int index)
{
    mp_str text = MP_STR_NONE;
    if (!lua_isnoneornil(L, index))
        text.ptr = luaL_checklstring(L, index, &text.len);
    return text;
}

/* session.open(call, revision, client, capabilities): opens the session of an `initialize` call. True; or nil if it was
 * refused: the call is answered with an error then.
 *  [-0, +1, throws] */
static int l_open_session(lua_State *L)
{
    mp_lib_task *task = mp_check_call(L);
    const mp_era *era = mp_era_find(mp_str_of(luaL_checkstring(L, 2)));
    luaL_argcheck(L, era != NULL && era->has_sessions, 2, "no revision with sessions has this date");
    mp_str client = opt_json(L, 3), capabilities = opt_json(L, 4);
    if (task->call != NULL && mp_call_open_session(task->call, era, client, capabilities) == 0) {
        lua_pushboolean(L, 1);
        return 1;
    }
    if (task->call != NULL) /* the session was refused, and the call answered with an error */
        mp_task_settle(task);
    lua_pushnil(L);
    return 1;
}

/* A wait for the record of a session. It outlasts its op if the task is cancelled. */
typedef struct {
    mp_op *MP_NULLABLE op;
} settling;

typedef struct {
    mp_op super;
    settling *MP_NULLABLE it; /* NULL: the wait is over */
} settling_op;

static void stop_settling(mp_op *super)
{
    settling *it = mp_container(super, settling_op, super)->it;
    if (it != NULL)
        it->op = NULL;
}

static void settled(void *content, mp_loop *MP_NULLABLE loop)
{
    settling *it = *(settling **)content;
    mp_op *op = it->op;
    free(it);
    if (op != NULL)
        mp_container(op, settling_op, super)->it = NULL; /* without a loop the task is cancelled later */
    if (op != NULL && loop != NULL)
        mp_op_done(op);
}

/* session.settle(call): waits until the store's file has the new session of the call, if sessions are kept.
 *  [-0, +0, throws, parks] */
static int l_settle(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    mp_loop *loop = mp_state_of(mp_vm_of(L))->loop;
    mp_session *session = task->call == NULL ? NULL : mp_call_session(task->call);
    if (session == NULL || loop == NULL || !mp_session_is_kept(session))
        return 0;
    settling_op *op = mp_op_new(L, sizeof *op, stop_settling);
    settling *it = mp_new(sizeof *it);
    it->op = &op->super;
    op->it = it;
    mp_session_settle(session, loop, settled, it);
    return mp_op_park(L, &op->super);
}

static mp_session *MP_NULLABLE session_of(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    return task->call == NULL ? NULL : mp_call_session(task->call);
}

/* A text of the table at index 2, which keeps it; without `ptr` for another value.  [-0, +0] */
static mp_str fact(lua_State *L, const char *name)
{
    mp_str text = MP_STR_NONE;
    if (lua_getfield(L, 2, name) == LUA_TSTRING)
        text.ptr = lua_tolstring(L, -1, &text.len);
    lua_pop(L, 1);
    return text;
}

/* call.audit_begin(call, facts): begins the audit line of the call. `facts`: the texts of mp_audit_facts, by their
 * names.  [-0, +0, throws] */
static int l_audit_begin(lua_State *L)
{
    mp_lib_task *task = mp_check_call(L);
    luaL_checktype(L, 2, LUA_TTABLE);
    const mp_audit_facts facts = {.principal = fact(L, "principal"),
                                  .issuer = fact(L, "issuer"),
                                  .client = fact(L, "client"),
                                  .version = fact(L, "version"),
                                  .name = fact(L, "name"),
                                  .upstream = fact(L, "upstream"),
                                  .upstream_name = fact(L, "upstream_name"),
                                  .arguments = fact(L, "arguments"),
                                  .trace = fact(L, "trace"),
                                  .definition = fact(L, "definition"),
                                  .approved = fact(L, "approved")};
    if (task->call != NULL && mp_audit_is_on())
        mp_audit_begin(&task->audit, task->call, &facts);
    return 0;
}

/* call.audit_end(call, outcome, code, why, policy, channel, retries): writes the audit line that was begun for the
 * call. All but the outcome may be nil. Does nothing if the line was written.  [-0, +0, throws] */
static int l_audit_end(lua_State *L)
{
    const handle *h = mp_check_udata(L, 1, MP_CALL, mp_lib_of(L)->call_metatable);
    mp_audit_outcome outcome = {.outcome = luaL_checkstring(L, 2), .has_code = lua_isinteger(L, 3)};
    outcome.code = lua_tointeger(L, 3);
    outcome.why = mp_opt_str(L, 4);
    outcome.policy = mp_opt_str(L, 5);
    outcome.channel = mp_opt_str(L, 6);
    outcome.retries = luaL_optinteger(L, 7, 0);
    if (h->serial == h->task->super.serial)
        mp_audit_end(&h->task->audit, &outcome);
    return 0;
}

/* call.operator(call): the caller of the admin listener that runs the call, as the audit names it, and whether the call
 * is a question of a page of the gateway's own; nil for a call of a client.  [-0, +2, throws] */
static int l_operator(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    if (task->call == NULL)
        return 0;
    mp_str name = mp_call_operator(task->call);
    bool is_hidden = mp_call_is_hidden(task->call);
    if (name.len == 0 && !is_hidden)
        return 0;
    push_str(L, name);
    lua_pushboolean(L, is_hidden);
    return 2;
}

/* session.set_log_level(call, n): sets the lowest level of the log messages that the session's client receives.  [-0,
 * +0, throws] */
static int l_set_log_level(lua_State *L)
{
    mp_session *session = session_of(L);
    lua_Integer level = luaL_checkinteger(L, 2);
    luaL_argcheck(L, level >= 0 && level <= 7, 2, "levels go from 0 (debug) to 7 (emergency)");
    if (session != NULL)
        mp_session_set_log_level(session, (int)level);
    if (session != NULL)
        mp_session_keep(session);
    return 0;
}

/* session.log_level(call): the session's log level, 0 to 7; nil without a session, or if the client has set no level.
 * [-0, +1, throws] */
static int l_log_level(lua_State *L)
{
    const mp_session *session = session_of(L);
    int level = session == NULL ? -1 : mp_session_log_level(session);
    if (level < 0)
        lua_pushnil(L);
    else
        lua_pushinteger(L, level);
    return 1;
}

/* session.id(call): the id of the call's session, or nil.  [-0, +1, throws] */
static int l_session(lua_State *L)
{
    const mp_session *session = session_of(L);
    if (session == NULL)
        lua_pushnil(L);
    else
        push_str(L, mp_session_id(session));
    return 1;
}

/* call.name_task(call, id): sets call.task, the id of the MCP task.  [-0, +0, throws] */
static int l_name_task(lua_State *L)
{
    mp_check_call(L);
    luaL_checkstring(L, 2);
    lua_settop(L, 2);
    lua_setiuservalue(L, 1, MP_CALL_TASK);
    return 0;
}

/* call.measure(call, metrics): the call runs the tool, gets the prompt or reads the resource that has these metrics.
 * [-0, +0, throws] */
static int l_measure(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    luaL_checktype(L, 2, LUA_TLIGHTUSERDATA);
    if (task->call != NULL)
        mp_call_measure(task->call, lua_touserdata(L, 2));
    return 0;
}

/* call.clear_deadline(call): removes the call's time limit.  [-0, +0, throws] */
static int l_clear_deadline(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    if (task->call != NULL)
        mp_call_unhurried(task->call);
    return 0;
}

/* call.forwards(call): the call's result is one that an upstream gave, and may be as large as
 * limits.upstreams.answer.  [-0, +0, throws] */
static int l_forwards(lua_State *L)
{
    mp_check_call(L)->is_forwarded = true;
    return 0;
}

/* call.count_fault(): counts an error of a script, which the library has logged.  [-0, +0] */
static int l_count_fault(MP_UNUSED lua_State *L)
{
    mp_stat_add(&mp_stat_tool_faults, 1);
    return 0;
}

/* call.retry_after(call, seconds): answers the call's error as HTTP 429 with Retry-After. False if the response has
 * already begun.  [-0, +1, throws] */
static int l_retry_after(lua_State *L)
{
    mp_lib_task *task = mp_check_call(L);
    lua_Integer seconds = luaL_checkinteger(L, 2);
    lua_pushboolean(L, task->call != NULL && mp_call_put_off(task->call, seconds));
    return 1;
}

/* call.count_limited(): counts a call that a policy refused by its rate limit.  [-0, +0] */
static int l_count_limited(MP_UNUSED lua_State *L)
{
    mp_stat_add(&mp_stat_refused_rate, 1);
    return 0;
}

/* call.count_listed(): counts a list function of a resource template that returned more resources than
 * host.limits.listed.  [-0, +0] */
static int l_count_listed(MP_UNUSED lua_State *L)
{
    mp_stat_add(&mp_stat_dropped_listed, 1);
    return 0;
}

/* call.forbid(call, needed, asked): adds a challenge to the error that will answer the call: it names the scopes
 * `asked`; the log names `needed`. False if the response has already begun.  [-0, +1, throws] */
static int l_forbid(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    mp_str needed, asked;
    needed.ptr = luaL_checklstring(L, 2, &needed.len);
    asked.ptr = luaL_checklstring(L, 3, &asked.len);
    lua_pushboolean(L, task->call != NULL && mp_call_forbid(task->call, needed, asked));
    return 1;
}

/* call.set_principal(call, principal): replaces call.principal, for the specs of scripts. Nil restores the
 * authenticated principal.  [-0, +0, throws] */
static int l_set_principal(lua_State *L)
{
    mp_check_call(L);
    lua_settop(L, 2);
    lua_setiuservalue(L, 1, MP_CALL_PRINCIPAL);
    return 0;
}

MP_LIBRARY(call)
{
    static const luaL_Reg functions[] = {{"session.open", l_open_session},
                                         {"session.settle", l_settle},
                                         {"session.set_log_level", l_set_log_level},
                                         {"session.log_level", l_log_level},
                                         {"session.id", l_session},
                                         {"call.name_task", l_name_task},
                                         {"call.measure", l_measure},
                                         {"call.operator", l_operator},
                                         {"call.audit_begin", l_audit_begin},
                                         {"call.audit_end", l_audit_end},
                                         {"call.clear_deadline", l_clear_deadline},
                                         {"call.forwards", l_forwards},
                                         {"call.count_fault", l_count_fault},
                                         {"call.forbid", l_forbid},
                                         {"call.retry_after", l_retry_after},
                                         {"call.count_limited", l_count_limited},
                                         {"call.count_listed", l_count_listed},
                                         {"call.over_output", l_over_output},
                                         {"call.set_principal", l_set_principal},
                                         {"call.current", l_current},
                                         {NULL, NULL}};
    make_handles(L);
    static const luaL_Reg methods[] = {{"progress", l_progress}, {"send", l_send}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
    lua_newtable(L);
    lua_pushvalue(L, -1);
    mp_set_member(L, -3, "hooks");
    luaL_newlib(L, methods);
    luaL_newmetatable(L, MP_CALL); /* the stack below the metatable: host, hooks, methods */
    mp_lib_of(L)->call_metatable = lua_topointer(L, -1);
    int metatable = lua_gettop(L);
    mp_call_set_index(L, metatable - 2, metatable - 1);
    mp_field_function(L, "__tostring", l_tostring);
    mp_field_bool(L, "__metatable", false);
    lua_pop(L, 1);
    mp_set_member(L, -3, "call.methods");
    lua_pop(L, 1);
}
