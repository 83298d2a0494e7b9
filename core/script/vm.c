/* vm.c: a lua_State from its birth to its end: its memory, the libraries it opens, the scripts it loads. */
#include "script/vm.h"
#include "script/embedded.h"
#include "script/hear.h"
#include "script/lib.h"
#include "script/lib_json.h"
#include "script/lib_keys.h"
#include "script/lib_regex.h"
#include "script/preempt.h"
#include "script/schedule.h"
#include "script/lib_string.h"
#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>

#define NO_MEMORY "not enough memory for the scripts\n  hint: raise limits.lua_memory in moonpool.yaml"
#define MOST_KEPT_OUT ((size_t)1 << 20)
#define MATCH_STEPS 512 /* some us: from one look to the next whether others want to run */
#define OVERDRAFT                                                                                                      \
    4 /* a task may be above its ceiling by this part of limits.call.memory, until its garbage is collected */

/* -- memory ---------------------------------------------------------------------------------------------------- */

/* Lua makes and frees small blocks of few sizes, in bursts that malloc's own caches do not hold: so some are kept here. */
#define CLASS_STEP 16
#define MOST_SPARE_BYTES                                                                                               \
    ((size_t)4 << 20) /* a cycle of the collector finds as much as lives: 1 MiB with no scripts at all */

static size_t class_of(size_t size)
{
    return (size + CLASS_STEP - 1) / CLASS_STEP;
}

static bool is_small(size_t size)
{
#ifdef __SANITIZE_ADDRESS__
    (void)size;
    return false; /* which wants to see every block */
#else
    return size <= CLASS_STEP * MP_VM_CLASSES;
#endif
}

static void *take_small(mp_vm *vm, size_t size)
{
    size_t class = class_of(size);
    mp_vm_spare *block = vm->spares[class - 1];
    if (block == NULL)
        return malloc(class * CLASS_STEP);
    vm->spares[class - 1] = block->next;
    vm->spare_bytes -= class * CLASS_STEP;
    return block;
}

static void give_small(mp_vm *vm, void *memory, size_t size)
{
    size_t class = class_of(size);
    if (vm->spare_bytes >= MOST_SPARE_BYTES) {
        free(memory);
        return;
    }
    mp_vm_spare *block = memory;
    block->next = vm->spares[class - 1];
    vm->spares[class - 1] = block;
    vm->spare_bytes += class * CLASS_STEP;
}

static void free_spares(mp_vm *vm)
{
    for (size_t i = 0; i < MP_VM_CLASSES; i++)
        for (mp_vm_spare *block = vm->spares[i], *next; block != NULL; block = next) {
            next = block->next;
            free(block);
        }
}

/* A block that becomes another size; NULL, and it stays, when there is no memory. */
static void *resize(mp_vm *vm, void *old, size_t old_size, size_t size)
{
    bool was_small = old != NULL && is_small(old_size), small = is_small(size);
    if (was_small && small && class_of(old_size) == class_of(size))
        return old;
    if (!was_small && !small)
        return realloc(old, size);
    void *block = small ? take_small(vm, size) : malloc(size);
    if (block == NULL || old == NULL)
        return block;
    memcpy(block, old, old_size < size ? old_size : size);
    if (was_small)
        give_small(vm, old, old_size);
    else
        free(old);
    return block;
}

/* Where memory is refused, Lua collects all garbage at once, while everybody waits. So a task may go a bit above its ceiling:
 * at its next instruction it is taken off, and the garbage is collected in slices. */
static bool may_overdraw(mp_vm *vm, size_t more)
{
    size_t most = vm->ceiling + vm->call_memory / OVERDRAFT;
    if (vm->running == NULL || vm->ceiling >= vm->memory || most > vm->memory || vm->bytes > most ||
        more > most - vm->bytes)
        return false;
    if (!vm->is_full) {
        vm->is_full = true;
        mp_preempt_arm_running();
    }
    return true;
}

/* Lua collects its garbage and asks again: only then is it out of memory. */
static void *refuse(mp_vm *vm, size_t size)
{
    if (vm->running != NULL && vm->ceiling < vm->memory && vm->denied == size) {
        vm->is_over_memory = true;
        mp_preempt_arm_running();
    }
    vm->denied = size;
    return NULL;
}

static void *allocate(void *ctx, void *old, size_t old_size, size_t size)
{
    mp_vm *vm = ctx;
    if (old == NULL)
        old_size = 0; /* then it says what kind of object is wanted */
    if (size == 0) {
        if (old != NULL && is_small(old_size))
            give_small(vm, old, old_size);
        else
            free(old);
        vm->bytes -= old_size;
        return NULL;
    }
    if (size > old_size && (vm->bytes > vm->ceiling || size - old_size > vm->ceiling - vm->bytes) &&
        !may_overdraw(vm, size - old_size))
        return refuse(vm, size);
    void *block = resize(vm, old, old_size, size);
    if (block == NULL)
        return size <= old_size ? old : NULL; /* Lua counts on shrinking to succeed */
    vm->bytes += size - old_size;
    return block;
}

void mp_vm_publish(mp_vm *vm)
{
    if (vm->bytes == vm->published)
        return;
    mp_stat_add(MP_STAT_LUA_BYTES, (int64_t)vm->bytes - (int64_t)vm->published);
    vm->published = vm->bytes;
}

uint64_t mp_now_us(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

void mp_vm_reset_out(mp_vm *vm)
{
    if (vm->out.cap > MOST_KEPT_OUT)
        mp_buf_clear(&vm->out);
    vm->out.len = 0;
}

/* -- errors ---------------------------------------------------------------------------------------------------- */

/* (error, thread) -> the error as text, its trace.  [-2, +2, throws] */
static int explain(lua_State *L)
{
    lua_State *from = lua_tothread(L, 2);
    luaL_tolstring(L, 1, NULL);
    luaL_traceback(L, from, NULL, from == L ? 1 : 0);
    return 2;
}

void mp_vm_log_error(mp_vm *vm, lua_State *from, const char *event, mp_str method)
{
    lua_State *L = vm->L;
    lua_checkstack(L, 4);
    lua_pushcfunction(L, explain); /* stack space, but no memory, for what follows */
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

static int panic(lua_State *L)
{
    const char *text = lua_tostring(L, -1);
    mp_log(MP_ERROR, "lua panic", mp_log_str("error", mp_str_of(text == NULL ? "no text" : text)));
    mp_log_stop();
    return 0; /* and Lua aborts */
}

/* A message handler: the error with its trace.  [-1, +1, throws] */
static int trace(lua_State *L)
{
    luaL_traceback(L, L, luaL_tolstring(L, 1, NULL), 1);
    return 1;
}

/* Two errors are a blank line apart. */
static void report_text(mp_buf *report, mp_str text)
{
    if (report->len > 0)
        mp_buf_putc(report, '\n');
    mp_buf_put(report, text);
    if (text.len == 0 || text.ptr[text.len - 1] != '\n')
        mp_buf_putc(report, '\n');
}

/* Runs `function` with `arg` under `trace`; a failure goes to `report`. 0 or -1.  Never throws. */
static int run_protected(lua_State *L, lua_CFunction function, void *arg, mp_buf *report)
{
    lua_pushcfunction(L, trace);
    lua_pushcfunction(L, function);
    lua_pushlightuserdata(L, arg);
    lua_State *before = mp_preempt_enter(L);
    int status = lua_pcall(L, 1, 0, -3);
    mp_preempt_leave(before);
    if (status != LUA_OK) {
        mp_str text = status == LUA_ERRMEM ? MP_STR(NO_MEMORY) : MP_STR("an error without text");
        if (status == LUA_ERRRUN && lua_type(L, -1) == LUA_TSTRING)
            text.ptr = lua_tolstring(L, -1, &text.len);
        report_text(report, text);
    }
    lua_settop(L, 0);
    return status == LUA_OK ? 0 : -1;
}

/* -- birth ----------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_vm *vm;
    const mp_vm_config *config;
    mp_buf *report;
    bool ok;
} birth;

/* A function of moonpool, the table on top, as a registry reference.  [-0, +0, throws] */
static int keep_function(lua_State *L, const char *name)
{
    if (lua_getfield(L, -1, name) != LUA_TFUNCTION)
        luaL_error(L, "moonpool has no function '%s'", name);
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

/* What load() found wrong: a list of texts, or one.  [-0, +0, throws] */
static void report_errors(lua_State *L, int errors, mp_buf *report)
{
    if (!lua_istable(L, errors)) {
        mp_str text;
        text.ptr = luaL_tolstring(L, errors, &text.len);
        report_text(report, text);
        return;
    }
    for (lua_Integer i = 1; lua_rawgeti(L, errors, i) != LUA_TNIL; i++) {
        mp_str text;
        text.ptr = luaL_tolstring(L, -1, &text.len);
        report_text(report, text);
        lua_pop(L, 2);
    }
    lua_pop(L, 1);
}

/* No function of `string` or `table` takes long, or more than a quarter of the memory: a text is made in two copies, of others.
 *  [-0, +0, throws] */
static void bound_strings(lua_State *L, const mp_vm_config *config)
{
    size_t memory = config->call_memory < config->memory ? config->call_memory : config->memory, most = memory / 4;
    static const mp_string_turns turns = {MATCH_STEPS, mp_task_should_turn, mp_task_turn};
    lua_getglobal(L, LUA_STRLIBNAME);
    lua_getglobal(L, LUA_TABLIBNAME);
    mp_lib_string(L, -2, -1, MP_STRING_STEPS, most < MP_STRING_BYTES ? most : MP_STRING_BYTES)->turns = &turns;
    lua_pop(L, 2);
}

static int be_born(lua_State *L)
{
    birth *b = lua_touserdata(L, 1);
    lua_settop(L, 0);
    lua_pushboolean(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "LUA_NOENV"); /* LUA_PATH and the like are none of ours */
    luaL_openlibs(L);
    mp_lib_coroutine(L);
    bound_strings(L, b->config);
    luaL_requiref(L, "moonpool.json", mp_lib_json, 0);
    luaL_requiref(L, "moonpool.keys", mp_lib_keys, 0);
    luaL_requiref(L, "moonpool.regex", mp_lib_regex, 0);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    mp_host_push(L, b->vm->source, b->config);
    lua_setfield(L, -2, "moonpool.host");
    lua_settop(L, 0);
    mp_set_searchers(L, b->config->trust_full);

    lua_getglobal(L, "require");
    lua_pushliteral(L, "moonpool");
    lua_call(L, 1, 1);
    luaL_checktype(L, 1, LUA_TTABLE);
    b->vm->dispatch = keep_function(L, "dispatch");
    b->vm->note = keep_function(L, "note");
    b->vm->describe = keep_function(L, "describe");
    b->vm->run_job = keep_function(L, "run_job");
    b->vm->summary = keep_function(L, "summary");
    b->vm->difference = keep_function(L, "difference");
    b->vm->hear = keep_function(L, "heard");
    b->vm->authenticate = keep_function(L, "authenticate");
    lua_getfield(L, 1, "load");
    lua_call(L, 0, 1);
    b->ok = lua_isboolean(L, 2) && lua_toboolean(L, 2);
    if (!b->ok)
        report_errors(L, 2, b->report);
    return 0;
}

static int collect_all(lua_State *L)
{
    lua_gc(L, LUA_GCRESTART);
    lua_gc(L, LUA_GCCOLLECT);
    return 0;
}

mp_vm *mp_vm_new(mp_source *source, const mp_vm_config *config, mp_buf *report)
{
    mp_vm *vm = mp_new(sizeof *vm);
    vm->source = mp_source_ref(source);
    vm->store = config->store;
    vm->hearers = config->hearers;
    vm->memory = vm->ceiling = config->memory;
    vm->call_memory = config->call_memory;
    vm->call_output = config->call_output;
    vm->call_us = config->call_cpu_ms * 1000;
    vm->has_auth = !config->asks_nobody;
    mp_link_init(&vm->ready);
    mp_link_init(&vm->heavy);
    mp_link_init(&vm->doomed);
    mp_link_init(&vm->idle);
    mp_link_init(&vm->seats);
    mp_link_init(&vm->heard);
    mp_link_init(&vm->hearer);
    vm->L = lua_newstate(allocate, vm);
    if (vm->L == NULL) {
        report_text(report, MP_STR(NO_MEMORY));
        mp_vm_free(vm);
        return NULL;
    }
    *mp_thread_word(vm->L) = (uintptr_t)vm;
    lua_gc(vm->L, LUA_GCSTOP); /* while it loads, hardly anything becomes garbage */
    lua_atpanic(vm->L, panic);
    birth b = {vm, config, report, false};
    if (run_protected(vm->L, be_born, &b, report) != 0 || !b.ok ||
        run_protected(vm->L, collect_all, NULL, report) != 0) {
        mp_vm_free(vm);
        return NULL;
    }
    mp_vm_collect_by_turns(vm);
    mp_vm_publish(vm);
    return vm;
}

/* -- life ------------------------------------------------------------------------------------------------------ */

void mp_vm_attach(mp_vm *vm, mp_loop *loop, mp_rpc *rpc, mp_client *client)
{
    vm->loop = loop;
    vm->rpc = rpc;
    vm->client = client;
    mp_hearers_join(vm->hearers, vm);
    mp_stat_add(MP_STAT_VMS, 1);
    mp_schedule_start(vm);
    mp_vm_hear_of(vm, MP_STR("attached"), MP_STR(""));
}

/* A function of moonpool asked for texts. */
typedef struct {
    int function; /* its registry reference */
    mp_str arguments[2];
    mp_buf *answers[2]; /* each gets a result appended */
    int argument_count, answer_count;
} question;

static int ask(lua_State *L)
{
    const question *q = lua_touserdata(L, 1);
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

void mp_vm_describe(mp_vm *vm, const char *form, mp_buf *out, mp_buf *doubts)
{
    question q = {vm->describe, {mp_str_of(form)}, {out, doubts}, 1, 2};
    run_protected(vm->L, ask, &q, out);
}

void mp_vm_summary(mp_vm *vm, mp_buf *out)
{
    question q = {vm->summary, {MP_STR_NONE}, {out}, 0, 1};
    run_protected(vm->L, ask, &q, out);
}

void mp_vm_difference(mp_vm *vm, mp_str before, mp_str files, mp_buf *plan, mp_buf *lists)
{
    question q = {vm->difference, {before, files}, {plan, lists}, 2, 2};
    run_protected(vm->L, ask, &q, plan);
}

void mp_vm_retire(mp_vm *vm)
{
    mp_schedule_stop(vm);
}

bool mp_vm_has_auth(const mp_vm *vm)
{
    return vm->auth.is_asked;
}

bool mp_vm_has_auth_scripts(const mp_vm *vm)
{
    return vm->auth.realm.ptr != NULL;
}

bool mp_vm_is_idle(const mp_vm *vm)
{
    return vm->tasks == 0;
}

void mp_vm_detach(mp_vm *vm)
{
    mp_schedule_stop(vm);
    mp_hearers_leave(vm->hearers, vm);
    mp_vm_unhear(vm);
    mp_principals_forsake(vm);
}

void mp_vm_free(mp_vm *vm)
{
    if (vm == NULL)
        return;
    mp_schedule_stop(vm);
    mp_schedule_free(vm);
    if (vm->loop != NULL)
        mp_stat_add(MP_STAT_VMS, -1);
    mp_hearers_leave(vm->hearers, vm);
    if (vm->L != NULL) {
        mp_tasks_unwind(vm);
        lua_close(vm->L);
    }
    mp_tasks_free(vm);
    mp_vm_unhear(vm);
    free_spares(vm);
    mp_vm_publish(vm);
    mp_buf_clear(&vm->out);
    mp_buf_clear(&vm->scratch);
    mp_source_unref(vm->source);
    for (size_t i = 0; i < sizeof vm->auth_texts / sizeof *vm->auth_texts; i++)
        free(vm->auth_texts[i]);
    free(vm);
}
