/* exec.c: runs programs for tasks: starts a child process, waits for it, returns its output. lua/moonpool/lib/exec.lua
 * checks which programs a script may run. */
#include "lib/fields.h"
#include "lib/bindings.h"
#include "lib/spans.h"
#include <lauxlib.h>
#include <limits.h>
#include <math.h>

MP_REFUSED(refused_processes, "processes", MP_LIMIT_REACHED, "programs over 16 of one worker")

#define GRACE_MS MP_LIMIT(exec_grace_ms, 2000) /* ms between SIGTERM and SIGKILL */
#define MAX_WORDS 4096
#define MAX_TIME_S 86400.0

typedef struct {
    mp_owning_op super;
    mp_child *MP_NULLABLE child; /* ended when the op is released; NULL once it is released */
    mp_open_span span;
} waiting;

static void release_child(waiting *op)
{
    mp_child *child = op->child;
    op->child = NULL;
    mp_open_span_close(&op->span);
    if (child != NULL)
        mp_child_leave(child);
}

static void on_cancel(mp_op *super)
{
    release_child(mp_container(super, waiting, super.super));
}

static void on_ended(MP_UNUSED mp_child *child, void *ctx)
{
    mp_op_done(&((waiting *)ctx)->super.super);
}

static void on_release(mp_resource *resource)
{
    release_child(mp_container(resource, waiting, super.resource));
}

/* -- results ----------------------------------------------------------------------------------------------------- */

/* (child): pushes { status, signal, stdout, stderr }.  [-1, +1, throws] */
static int push_result(lua_State *L)
{
    const mp_child *child = lua_touserdata(L, 1);
    mp_str out = mp_child_output(child), err = mp_child_errors(child);
    int status, number;
    mp_child_how(child, &status, &number);
    lua_createtable(L, 0, 4);
    if (number == 0)
        lua_pushinteger(L, status);
    else
        lua_pushnil(L);
    lua_setfield(L, -2, "status");
    if (number != 0) {
        mp_field_integer(L, "signal", number);
    }
    lua_pushlstring(L, out.ptr == NULL ? "" : out.ptr, out.len);
    lua_setfield(L, -2, "stdout");
    lua_pushlstring(L, err.ptr == NULL ? "" : err.ptr, err.len);
    lua_setfield(L, -2, "stderr");
    return 1;
}

/* Begins the span of a program: its name, none of its arguments. */
static mp_open_span begin_span(lua_State *L, const char *path)
{
    char name[MP_SPAN_NAME_BYTES];
    const char *slash = strrchr(path, '/');
    mp_lib_task *task = mp_lib_task_running(L);
    if (mp_task_trace(task) == NULL)
        return (mp_open_span){NULL, 0, MP_NO_SPAN};
    slash = slash == NULL ? path : slash + 1;
    snprintf(name, sizeof name, "exec %s", slash);
    mp_open_span span = mp_task_span_open(task, MP_SPAN_INTERNAL, mp_str_of(name));
    mp_span_text(mp_open_span_trace(&span), span.span, "process.executable.name", mp_str_of(slash));
    return span;
}

/* Ends the span of a program with the way in which the program ended. */
static void end_span(waiting *op, mp_child_end how, int status, int number)
{
    mp_trace *trace = mp_open_span_trace(&op->span);
    if (trace == NULL)
        return;
    if (how == MP_CHILD_EXITED && number == 0)
        mp_span_int(trace, op->span.span, "process.exit.code", status);
    if (how != MP_CHILD_EXITED || number != 0 || status != 0)
        mp_open_span_fail(&op->span,
                          how == MP_CHILD_LATE     ? "timeout"
                          : how == MP_CHILD_LOUD   ? "output"
                          : number != 0            ? "signal"
                          : how == MP_CHILD_EXITED ? "exit"
                                                   : "_OTHER",
                          MP_STR_NONE);
    mp_open_span_close(&op->span);
}

static int push_outcome(lua_State *L, int state, lua_KContext context)
{
    waiting *op = (waiting *)context;
    int status, number;
    const mp_child *child = op->child;
    if (child == NULL) {
        lua_pushnil(L);
        lua_pushliteral(L, "the program was ended");
        return 2;
    }
    mp_child_end how = mp_child_how(child, &status, &number);
    end_span(op, how, status, number);
    if (how != MP_CHILD_EXITED) {
        release_child(op);
        lua_pushnil(L);
        lua_pushstring(L, how == MP_CHILD_LATE ? "late" : how == MP_CHILD_LOUD ? "loud" : strerror(status));
        return 2;
    }
    lua_pushcfunction(L, push_result);
    lua_pushlightuserdata(L, op->child);
    state = lua_pcall(L, 1, 1, 0);
    release_child(op);
    return state == LUA_OK ? 1 : lua_error(L);
}

/* exec { path, argv, env, root, rest, stdin, seconds, most }: runs a program.
 * Returns { status, signal, stdout, stderr }; or nil and "late" (over `seconds`), "loud" (more than `most` bytes of
 * output) or an error text. Upvalues: the most programs that run, GRACE_MS.  [-0, +1|2, throws, parks] */
static int l_exec(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    double seconds = mp_number_field(L, 1, "seconds");
    if (!(seconds > 0 && seconds <= MAX_TIME_S))
        return luaL_error(L, "'seconds' must be above 0 and at most a day");
    mp_command command = {.path = mp_text_field(L, 1, "path").ptr,
                          .argv = mp_push_texts(L, 1, "argv", MAX_WORDS),
                          .env = mp_push_texts(L, 1, "env", MAX_WORDS),
                          .root = mp_text_field(L, 1, "root").ptr,
                          .rest = mp_text_field(L, 1, "rest").ptr,
                          .input = mp_text_field(L, 1, "stdin"),
                          .most = (size_t)mp_number_field(L, 1, "most"),
                          .time_ms = (uint64_t)ceil(seconds * 1000),
                          .grace_ms = (uint64_t)lua_tointeger(L, lua_upvalueindex(2)),
                          .ended = on_ended};
    waiting *op = mp_owning_op_new(L, sizeof *op, on_cancel, on_release);
    command.ctx = op;
    mp_str script = mp_text_field(L, 1, "script");
    command.holder = mp_holder_number(script.ptr, script.len);
    op->span = begin_span(L, command.path);
    mp_err err = {"", ""};
    lua_Integer most = lua_tointeger(L, lua_upvalueindex(1));
    if (mp_child_count(op->super.super.loop) >= most) {
        mp_stat_add(&mp_stat_refused_processes, 1);
        mp_err_set(&err, "%lld programs are running, and one worker runs no more at once", (long long)most);
    } else {
        op->child = mp_child_start(op->super.super.loop, &command, &err);
    }
    if (op->child == NULL)
        mp_open_span_fail(&op->span, "_OTHER", MP_STR_NONE);
    if (op->child != NULL)
        return mp_op_park_then(L, &op->super.super, push_outcome, (lua_KContext)op);
    mp_open_span_close(&op->span);
    lua_pushnil(L);
    lua_pushstring(L, err.text);
    return 2;
}

/* -- programs ---------------------------------------------------------------------------------------------------- */

/* program(name): the absolute path of the program `name` in PATH; an absolute path is returned if there is a program;
 * else nil. Blocks the thread, so it is called while scripts load only.
 *  [-0, +1, throws] */
static int l_program(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    char found[PATH_MAX];
    if (name[0] == '/') {
        lua_pushstring(L, mp_is_program(name) ? name : NULL);
        return 1;
    }
    if (mp_find_program(getenv("PATH"), name, found, sizeof found) != 0)
        return 0;
    lua_pushstring(L, found);
    return 1;
}

MP_SCRIPT_LIBRARY(exec)
{
    lua_pushinteger(L, MP_LIMIT(exec_processes, 16)); /* programs that one worker runs at once: each has a process */
    lua_pushinteger(L, GRACE_MS);
    lua_pushcclosure(L, l_exec, 2);
    mp_set_member(L, -2, "program.run");
    lua_pushcfunction(L, l_program);
    mp_set_member(L, -2, "program.find");
    lua_createtable(L, 0, 2);
    mp_field_number(L, "time", (double)config->exec_time_ms / 1000);
    mp_field_integer(L, "output", /* bytes, of stdout and of stderr */
                     MP_LIMIT(exec_output, 4 << 20));
    mp_set_member(L, -2, "limits.exec");
}
