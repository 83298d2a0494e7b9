/* generation.c: creates, attaches, ends and frees the VM of a generation: an engine, the libraries and the scripts. */
#include "lib/bindings.h"
#include "lib/modules/embedded.h"
#include "lib/modules/event_reader.h"
#include "lib/modules/jwk.h"
#include "lib/trust.h"
#include "lib/shortcut/audit_line.h"
#include "lib/work/cron.h"
#include "lib/shortcut/frozen_answer.h"
#include "lib/shortcut/forward.h"
#include "lib/shortcut/plan.h"
#include "lib/modules/revisions.h"
#include "lib/modules/regex.h"
#include <lauxlib.h>

MP_COUNTER(tool_reload, "tool_aborted", "reason", "reload",
           "calls on scripts from before a reload that ran longer than scripts.drain")

typedef struct {
    mp_lib *lib;
    mp_source *source;
    const mp_lib_config *config;
    mp_buf *report, *MP_NULLABLE broken; /* see mp_lib_try; broken may be NULL */
} loading;

/* Gives a registry reference to a function of the table `moonpool` on top of the stack.  [-0, +0, throws] */
static int ref_function(lua_State *L, const char *name)
{
    if (lua_getfield(L, -1, name) != LUA_TFUNCTION)
        luaL_error(L, "moonpool has no function '%s'", name);
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

/* Appends the errors of moonpool.load() at `errors` to the report: a list of texts, or one text.  [-0, +0, throws] */
static void report_errors(lua_State *L, int errors, mp_buf *report)
{
    if (!lua_istable(L, errors)) {
        mp_str text;
        text.ptr = luaL_tolstring(L, errors, &text.len);
        mp_report_text(report, text);
        return;
    }
    for (lua_Integer i = 1; lua_rawgeti(L, errors, i) != LUA_TNIL; i++) {
        mp_str text;
        text.ptr = luaL_tolstring(L, -1, &text.len);
        mp_report_text(report, text);
        lua_pop(L, 2);
    }
    lua_pop(L, 1);
}

/* Appends the list of paths at `paths`, each with a NUL.  [-0, +0, throws] */
static void put_broken(lua_State *L, int paths, mp_buf *MP_NULLABLE broken)
{
    if (broken == NULL || !lua_istable(L, paths))
        return;
    for (lua_Integer i = 1; lua_rawgeti(L, paths, i) != LUA_TNIL; i++) {
        mp_str path;
        path.ptr = luaL_checklstring(L, -1, &path.len);
        mp_buf_put(broken, (mp_str){path.ptr, path.len + 1});
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* Adds the libraries to a new Lua state, and loads the scripts.  [-0, +n, throws] */
static bool load_scripts(lua_State *L, void *ctx)
{
    const loading *it = ctx;
    mp_vm *vm = mp_vm_of(L);
    mp_lib *lib = it->lib;
    lib->vm = vm;
    luaL_requiref(L, "moonpool.keys", mp_lib_jwk, 0);
    luaL_requiref(L, "moonpool.events", mp_lib_event_reader_of_vm, 0);
    luaL_requiref(L, "moonpool.regex", mp_lib_regex, 0);
    luaL_requiref(L, "moonpool.revisions", mp_lib_revisions, 0);
    luaL_requiref(L, "moonpool.error_codes", mp_lib_error_codes, 0);
    luaL_getsubtable(L, LUA_REGISTRYINDEX, LUA_LOADED_TABLE);
    mp_host_push(L, it->source, it->config);
    lua_setfield(L, -2, "moonpool.host");
    lua_settop(L, 0);
    mp_set_searchers(L, it->config->trust_full);

    lua_getglobal(L, "require");
    lua_pushliteral(L, "moonpool");
    lua_call(L, 1, 1);
    luaL_checktype(L, 1, LUA_TTABLE);
    lib->dispatch = ref_function(L, "dispatch");
    lib->record = ref_function(L, "record");
    lib->note = ref_function(L, "note");
    lib->describe = ref_function(L, "describe");
    lib->run_job = ref_function(L, "run_job");
    lib->summary = ref_function(L, "summary");
    lib->difference = ref_function(L, "difference");
    mp_state_of(vm)->deliver = ref_function(L, "deliver");
    lib->authenticate = ref_function(L, "authenticate");
    lib->answer_page = ref_function(L, "answer_page");
    lib->pack = ref_function(L, "pack");
    lib->unpack = ref_function(L, "unpack");
    mp_apply_trust(L, it->config->trust_full, mp_source_dir(it->source));
    lua_getfield(L, 1, "load");
    lua_call(L, 0, 2);
    if (lua_isboolean(L, 2) && lua_toboolean(L, 2))
        return true;
    report_errors(L, 2, it->report);
    put_broken(L, 3, it->broken);
    return false;
}

static void read_mode(mp_lib *lib)
{
#ifdef MP_SPEC_BUILD
    const char *mode = getenv("MOONPOOL_PLANS");
    lib->is_general = mode != NULL && strcmp(mode, "off") == 0;
    lib->is_proven = mode != NULL && strcmp(mode, "both") == 0;
#else
    (void)lib;
#endif
}

static void lib_free(mp_lib *lib)
{
    mp_lib_count_unread(lib, 0);
    mp_cron_free(lib);
    mp_frozen_answers_free(lib->frozen);
    mp_forwards_free(lib->forwards);
    mp_plans_free(lib->plans);
    for (size_t i = 0; i < sizeof lib->auth_texts / sizeof *lib->auth_texts; i++)
        free(lib->auth_texts[i]);
    free(lib);
}

mp_vm *MP_NULLABLE mp_lib_new(mp_source *source, const mp_lib_config *config, mp_buf *report)
{
    return mp_lib_try(source, config, report, NULL);
}

mp_vm *MP_NULLABLE mp_lib_try(mp_source *source, const mp_lib_config *config, mp_buf *report,
                              mp_buf *MP_NULLABLE broken)
{
    mp_lib *lib = mp_new(sizeof *lib);
    lib->store = config->store;
    lib->upstream_answer = config->upstream_limits.answer;
    read_mode(lib);
    lib->frozen = mp_frozen_answers_new();
    lib->plans = mp_plans_new();
    lib->forwards = mp_forwards_new();
    lib->audit = mp_audit_mode_of(config->audit);
    lib->has_auth = !config->is_auth_disabled;
    loading it = {lib, source, config, report, broken};
    mp_vm_setup setup = {
        .open = load_scripts, .ctx = &it, .user = lib, .task_size = sizeof(mp_lib_task), .bus = config->bus};
    mp_vm *vm = mp_vm_new(source, &config->vm, &setup, report);
    if (vm == NULL)
        lib_free(lib);
    return vm;
}

void mp_lib_attach(mp_vm *vm, mp_loop *loop, mp_rpc *rpc, mp_client *client, mp_upstream_host *upstreams)
{
    mp_lib *lib = mp_lib_of_vm(vm);
    lib->rpc = rpc;
    lib->client = client;
    lib->upstreams = upstreams;
    mp_vm_attach(vm, loop);
    mp_cron_start(lib, loop);
    mp_lib_watch_nodes(lib, loop);
    mp_upstream_observe(upstreams, mp_lib_on_observed, vm);
    mp_vm_bus_deliver(vm, MP_STR("attached"), MP_STR(""));
}

bool mp_lib_turn(void *ctx)
{
    mp_vm *vm = ctx;
    mp_loop *loop = mp_state_of(vm)->loop;
    mp_store_sweep(mp_lib_of_vm(vm)->store);
    if (loop != NULL)
        mp_store_send_outgoing(mp_lib_of_vm(vm)->store, loop);
    return mp_vm_turn(vm);
}

void mp_lib_drain(mp_vm *vm)
{
    mp_cron_stop(mp_lib_of_vm(vm));
}

void mp_lib_retire(mp_vm *vm)
{
    mp_cron_stop(mp_lib_of_vm(vm));
    mp_lib_ignore_nodes(mp_lib_of_vm(vm));
    mp_vm_bus_deliver(vm, MP_STR("retired"), MP_STR(""));
}

bool mp_lib_has_auth(const mp_vm *vm)
{
    return mp_lib_of_vm(vm)->auth.is_asked;
}

bool mp_lib_has_auth_scripts(const mp_vm *vm)
{
    return mp_lib_of_vm(vm)->auth.realm.ptr != NULL;
}

bool mp_lib_has_issuer(const mp_vm *vm)
{
    const mp_auth_facts *facts = &mp_lib_of_vm(vm)->auth;
    return facts->is_asked && facts->resource_metadata.len > 0;
}

void mp_lib_end(mp_vm *vm)
{
    for (mp_task *super = mp_state_of(vm)->all, *next; super != NULL; super = next) {
        next = super->next;
        mp_lib_task *task = mp_container(super, mp_lib_task, super);
        if (task->call != NULL) {
            mp_call_abort(task->call, "the scripts of this call were replaced by a reload: call again",
                          &mp_stat_tool_reload);
        } else if (!super->cancelled && task->group == NULL) {
            mp_task_cancel(super);
        }
    }
}

void mp_lib_detach(mp_vm *vm)
{
    mp_lib *lib = mp_lib_of_vm(vm);
    mp_upstream_host *upstreams = lib->upstreams;
    if (upstreams != NULL)
        mp_upstream_observe_no_more(upstreams, vm);
    mp_cron_stop(lib);
    mp_lib_ignore_nodes(lib);
    mp_lib_close_redis(lib);
    mp_lib_close_postgres(lib);
    mp_vm_detach(vm);
    mp_principals_detach(lib);
}

void mp_lib_unwind(mp_vm *vm, uint64_t until)
{
    mp_cron_stop(mp_lib_of_vm(vm));
    mp_lib_ignore_nodes(mp_lib_of_vm(vm));
    /* No task may answer its call any more. Calls are cleared in all tasks before the first `<close>` handler runs,
     * since the handler may use the call of another task. */
    for (mp_task *super = mp_state_of(vm)->all; super != NULL; super = super->next) {
        mp_lib_task *task = mp_container(super, mp_lib_task, super);
        task->call = NULL;
        task->entry = NULL;
    }
    mp_vm_unwind(vm, until);
}

void mp_lib_free(mp_vm *MP_NULLABLE vm)
{
    if (vm == NULL)
        return;
    mp_lib *lib = mp_lib_of_vm(vm);
    mp_lib_unwind(vm, UINT64_MAX);
    mp_vm_free(vm);
    lib_free(lib);
}
