/* served_text.c: descriptions of the tools, resources and prompts of a VM, which functions of moonpool in Lua return as
 * texts. */
#include "lib/state.h"
#include <lauxlib.h>

/* A call of a Lua function that takes texts and returns texts. */
typedef struct {
    int function; /* registry reference of the function */
    mp_str arguments[2];
    mp_buf *answers[2]; /* one buffer for each answer, to which the answer is appended */
    int argument_count, answer_count;
} text_call;

static int run_text_call(lua_State *L)
{
    const text_call *q = lua_touserdata(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, q->function);
    for (int i = 0; i < q->argument_count; i++)
        lua_pushlstring(L, q->arguments[i].ptr == NULL ? "" : q->arguments[i].ptr, q->arguments[i].len);
    lua_call(L, q->argument_count, q->answer_count);
    for (int i = 0; i < q->answer_count; i++) {
        mp_str text;
        text.ptr = luaL_checklstring(L, i - q->answer_count, &text.len);
        mp_buf_put(q->answers[i], text);
    }
    return 0;
}

void mp_lib_describe(mp_vm *vm, const char *form, mp_buf *out, mp_buf *doubts)
{
    text_call q = {mp_lib_of_vm(vm)->describe, {mp_str_of(form)}, {out, doubts}, 1, 2};
    mp_vm_run_protected(mp_state_of(vm)->L, run_text_call, &q, out);
}

void mp_lib_summary(mp_vm *vm, mp_buf *out)
{
    text_call q = {mp_lib_of_vm(vm)->summary, {MP_STR_NONE}, {out}, 0, 1};
    mp_vm_run_protected(mp_state_of(vm)->L, run_text_call, &q, out);
}

void mp_lib_difference(mp_vm *vm, mp_str before, mp_str files, mp_buf *plan, mp_buf *lists)
{
    text_call q = {mp_lib_of_vm(vm)->difference, {before, files}, {plan, lists}, 2, 2};
    mp_vm_run_protected(mp_state_of(vm)->L, run_text_call, &q, plan);
}
