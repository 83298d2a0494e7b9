/* state.c: a lua_State from its creation to its end: the engine's own libraries, errors and reports. */
#include "vm/bus.h"
#include "vm/closing.h"
#include "vm/json/source.h"
#include "vm/preempt.h"
#include "vm/hidden_address.h"
#include "vm/strings/strings.h"
#include "vm/running_line.h"
#include <lauxlib.h>
#include <lualib.h>

MP_GAUGE(vms, "vms", "", "", "Lua states, serving or draining")

/* of limits.lua_memory is for tasks that hold little, so that they go on when others fill the rest */
#define RESERVED_PART 16
#define LITTLE_PART 512
#define NO_MEMORY "not enough memory for the scripts\n  hint: raise limits.lua_memory in moonpool.yaml"
/* Processor time for loading all scripts: the gateway reloads on its main thread, which does nothing else then. */
#define LOAD_MS ((uint64_t)MP_LIMIT(load_ms, 2000))
/* processor time after LOAD_MS in which lua/moonpool reports what took so long */
#define LIBRARY_US 1000000
/* steps of the matcher, some us, between two checks whether other tasks have to run */
#define MATCH_STEPS 512

/* -- errors ---------------------------------------------------------------------------------------------------- */

static int on_panic(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    mp_log(MP_ERROR, "lua panic", mp_log_str("error", mp_str_of(text == NULL ? "no text" : text)));
    mp_log_stop();
    return 0; /* after an error here, Lua would abort the process */
}

/* A message handler: the error with its trace.  [-1, +1, throws] */
static int add_traceback(lua_State *L)
{
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
    return 1;
}

/* A blank line separates two errors. */
void mp_report_text(mp_buf *report, mp_str text)
{
    if (report->len > 0)
        mp_buf_putc(report, '\n');
    mp_buf_put(report, text);
    if (text.len == 0 || text.ptr[text.len - 1] != '\n')
        mp_buf_putc(report, '\n');
}

int mp_vm_run_protected(lua_State *L, lua_CFunction function, void *MP_NULLABLE arg, mp_buf *report)
{
    mp_vm *vm = mp_vm_of(L);
    vm->loading.until = mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + vm->loading.us;
    vm->clock.guard_until =
        vm->loading.until + LIBRARY_US; /* scripts may run until load_until, the report until guard_until */
    lua_pushcfunction(L, add_traceback);
    lua_pushcfunction(L, function);
    lua_pushlightuserdata(L, arg);
    lua_State *before = mp_preempt_enter(L);
    int status = lua_pcall(L, 1, 0, -3);
    mp_preempt_leave(before);
    vm->clock.guard_until = 0;
    lua_sethook(L, NULL, 0, 0);
    if (status != LUA_OK) {
        mp_str text = status == LUA_ERRMEM ? MP_STR(NO_MEMORY) : MP_STR("an error without text");
        if (status == LUA_ERRRUN && lua_type(L, -1) == LUA_TSTRING)
            text.ptr = lua_tolstring(L, -1, &text.len);
        mp_report_text(report, text);
    }
    lua_settop(L, 0);
    return status == LUA_OK ? 0 : -1;
}

/* -- birth ----------------------------------------------------------------------------------------------------- */

/* Sets the limits of `string`, `table`, `math` and `utf8`. A text may have a quarter of the memory limit, since making
 * it may take two copies of it and of its parts. [-0, +0, throws] */
static void bound_strings(lua_State *L, const mp_vm_limits *limits)
{
    size_t memory = limits->call_memory < limits->memory ? limits->call_memory : limits->memory, most = memory / 4;
    static const mp_string_turns turns = {MATCH_STEPS, mp_task_should_turn, mp_task_turn};
    lua_getglobal(L, LUA_STRLIBNAME);
    lua_getglobal(L, LUA_TABLIBNAME);
    mp_lib_string(L, -2, -1, MP_STRING_STEPS, most < MP_STRING_BYTES ? most : MP_STRING_BYTES)->turns = &turns;
    lua_pop(L, 2);
    static const char *const operands[][2] = {{"math", "max"}, {"math", "min"}, {"string", "char"}, {"utf8", "char"}};
    for (size_t i = 0; i < sizeof operands / sizeof *operands; i++)
        mp_lib_string_operands(L, operands[i][0], operands[i][1]);
}

typedef struct {
    const mp_vm_limits *limits;
    const mp_vm_setup *setup;
    bool ok;
} birth;

static int open_state(lua_State *L)
{
    birth *b = lua_touserdata(L, 1);
    lua_settop(L, 0);
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV"); /* LUA_PATH and the other variables of Lua are ignored */
    luaL_openlibs(L);
    mp_closing_open(L);
    mp_ops_open(L);
    mp_lib_coroutine(L);
    mp_lib_shown(L);
    mp_lib_protect(L);
    bound_strings(L, b->limits);
    mp_lib_metatables(L);
    luaL_requiref(L, "moonpool.json", mp_lib_json, 0);
    mp_lib_json_of_vm(L, mp_vm_of(L));
    lua_settop(L, 0);
    b->ok = b->setup->open(L, b->setup->ctx);
    return 0;
}

static int collect_all(lua_State *L)
{
    lua_gc(L, LUA_GCRESTART);
    lua_gc(L, LUA_GCCOLLECT);
    return 0;
}

mp_vm *MP_NULLABLE mp_vm_new(mp_source *source, const mp_vm_limits *limits, const mp_vm_setup *setup, mp_buf *report)
{
    mp_vm *vm = mp_new(sizeof *vm);
    vm->source = mp_source_ref(source);
    vm->state.bus = setup->bus;
    vm->state.user = setup->user;
    vm->hook = mp_task_hook;
    vm->task_size = setup->task_size;
    vm->memory.limit = vm->memory.ceiling = limits->memory;
    vm->memory.shared = vm->memory.limit - vm->memory.limit / RESERVED_PART;
    vm->memory.little = vm->memory.limit / LITTLE_PART;
    vm->state.call_memory = limits->call_memory;
    vm->state.call_output = limits->call_output;
    vm->closing.most = (size_t)limits->cleanups;
    vm->loading.us = LOAD_MS * 1000;
    vm->call_us = limits->call_cpu_ms * 1000;
    vm->state.L = lua_newstate(mp_vm_allocate, vm);
    if (vm->state.L == NULL) {
        mp_report_text(report, MP_STR(NO_MEMORY));
        mp_vm_free(vm);
        return NULL;
    }
    *mp_thread_word(vm->state.L) = (uintptr_t)vm;
    if (mp_loading_is_stopped()) {
        mp_report_text(report, MP_STR("not loaded: the gateway was asked to stop"));
        mp_vm_free(vm);
        return NULL;
    }
    lua_gc(vm->state.L, LUA_GCSTOP); /* until the state is ready, but for once before the scripts load (loader.lua) */
    lua_atpanic(vm->state.L, on_panic);
    birth b = {limits, setup, false};
    vm->state.is_loading = true;
    if (mp_vm_run_protected(vm->state.L, open_state, &b, report) != 0 || !b.ok ||
        mp_vm_run_protected(vm->state.L, collect_all, NULL, report) != 0) {
        mp_vm_free(vm);
        return NULL;
    }
    vm->state.is_loading = false;
    mp_vm_collect_by_turns(vm);
    mp_vm_publish(vm);
    return vm;
}

/* -- life ------------------------------------------------------------------------------------------------------ */

void mp_vm_attach(mp_vm *vm, mp_loop *loop)
{
    vm->state.loop = loop;
    mp_bus_join(vm->state.bus, vm);
    mp_stat_add(&mp_stat_vms, 1);
    mp_vm_sample_memory(vm);
}

bool mp_vm_is_idle(const mp_vm *vm)
{
    return vm->schedule.tasks == 0;
}

bool mp_vm_is_cleaning(const mp_vm *vm)
{
    return vm->closing.tasks > 0;
}

void mp_vm_detach(mp_vm *vm)
{
    mp_bus_leave(vm->state.bus, vm);
    mp_vm_drop_messages(vm);
}

void mp_vm_free(mp_vm *MP_NULLABLE vm)
{
    if (vm == NULL)
        return;
    mp_bus_leave(vm->state.bus, vm);
    if (vm->state.L != NULL) {
        mp_vm_unwind(vm, UINT64_MAX);
        lua_close(vm->state.L);
    }
    mp_tasks_free(vm);
    mp_vm_drop_messages(vm);
    mp_vm_free_spares(vm);
    mp_vm_publish(vm);
    if (vm->state.loop != NULL)
        mp_stat_add(&mp_stat_vms, -1); /* last: the memory of a state that is not counted is free */
    mp_buf_clear(&vm->state.out);
    mp_buf_clear(&vm->state.scratch);
    mp_source_unref(vm->source);
    free(vm);
}
