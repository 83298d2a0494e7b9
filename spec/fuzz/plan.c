/* plan.c: the arguments of planned calls against the general path. The first byte chooses a tool, the rest is the JSON
 * of its arguments. Where the plan of the tool takes them, the tool's compiled schema takes them as well, and the
 * handler would get the same values in the same order: mp_plan_prove_arguments ends the process otherwise. Where C
 * finds what is wrong, alone or with Lua, the words are those for a check of all arguments. */
#define MP_SPEC_BUILD 1 /* as core has it in builds with sanitizers */
#include "config/runtime_config.h"
#include "lib/shortcut/plan.h"
#include <lauxlib.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MUST(condition) ((condition) ? (void)0 : abort())
#define COLLECT_EVERY 500 /* inputs */

/* The tools "a", "b" and so on. */
static const char *const scripts[] = {
    "--- T.\n---@param a number\n---@param b? number\nreturn function(a, b) return a end",
    "--- T.\n---@param n integer\n---@param s? string\n---@param f? boolean\nreturn function(n, s, f, call) return n "
    "end",
    "return tool { 'T.', input = { a = t.number, b = t.string { optional = true }, c = t.boolean { default = true }, d "
    "= t.string { default = 'd' } }, "
    "function(args) end }",
    "return tool { 'T.', open = true, input = { a = t.number { min = 1, max = 10 }, i = t.integer { above = 0, below = "
    "10, optional = true }, "
    "s = t.string { min = 2, max = 3, optional = true }, e = t.optional(t.one_of { 'red', 'green', '' }) }, "
    "function(args) end }",
    "return tool { 'T.', input = { at = t.object { x = t.number, y = t.number { default = 5 }, s = t.string { max = 3, "
    "optional = true } }, "
    "to = t.optional(t.object { x = t.integer }), name = t.string { default = 'here' } }, function(args) end }",
    "return tool { 'T.', input = t.schema { type = 'object', properties = { l = { type = 'array', items = { type = "
    "'object', additionalProperties = false, required = { 'i' }, properties = { i = { type = 'integer', minimum = 1 }, "
    "a = { type = 'array', items = { type = 'string', maxLength = 2 } }, o = { type = 'object', properties = { x = { "
    "type = 'number' } } } } } }, few = { type = 'array', maxItems = 2, items = { type = 'boolean' } }, s = { pattern "
    "= "
    "'^a' }, n = { type = 'number', default = 2 } } }, function(args) end }",
    "return tool { 'T.', input = { g = t.optional(t.list(t.list(t.integer))), o = t.optional(t.object { l = "
    "t.list(t.object { n = t.number, s = t.string { optional = true } }) }), b = t.optional(t.boolean) }, "
    "function(args) end }",
    "return tool { 'T.', input = { list = t.optional(t.list(t.integer)), s = t.string { pattern = '^a', optional = "
    "true }, "
    "at = t.optional(t.object { to = t.object { x = t.number } }), n = t.nullable(t.integer { optional = true }), a = "
    "t.number { default = 1 } }, "
    "function(args) end }",
};
#define TOOLS (sizeof scripts / sizeof *scripts)

static lua_State *L;
static mp_envelope envelope;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);
int __lsan_is_turned_off(void);

/* One Lua state serves all inputs, and LeakSanitizer does not look into the pages in which its memory is: what garbage
 * still holds would be a leak for it. */
int __lsan_is_turned_off(void)
{
    return 1;
}

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    MUST(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

/* Removes what LLVMFuzzerInitialize has made in the folder. */
static void remove_folder(const char *folder)
{
    char path[128];
    for (size_t i = 0; i < TOOLS; i++) {
        snprintf(path, sizeof path, "%s/tools/%c.lua", folder, (char)('a' + i));
        unlink(path);
    }
    snprintf(path, sizeof path, "%s/tools", folder);
    rmdir(path);
    rmdir(folder);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    static mp_process_state process_state; /* what follows stays until the process ends */
    static mp_runtime_config *settings;
    char folder[] = "/tmp/moonpool-fuzz-XXXXXX", path[128];
    mp_buf report = {0};
    mp_err err;
    MUST(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/tools", folder);
    MUST(mkdir(path, 0700) == 0);
    for (size_t i = 0; i < TOOLS; i++) {
        snprintf(path, sizeof path, "%s/tools/%c.lua", folder, (char)('a' + i));
        write_file(path, scripts[i]);
    }
    mp_config *config = mp_config_parse(MP_STR(""), "moonpool.yaml", &report);
    MUST(config != NULL);
    mp_process_state_open(&process_state, config);
    settings = mp_runtime_config_new(config, &process_state);
    mp_source *source = mp_source_read(folder, NULL, &err);
    MUST(source != NULL);
    remove_folder(folder);
    mp_vm *vm = mp_lib_new(source, &settings->lib, &report);
    if (vm == NULL) {
        fprintf(stderr, "%.*s\n", (int)report.len, report.ptr);
        abort();
    }
    L = mp_state_of(vm)->L;
    mp_buf_clear(&report);
    return 0;
}

static const mp_plan *find_plan(char name)
{
    const mp_map *plans = &mp_lib_of(L)->plans->by_name;
    MUST(plans->count == TOOLS);
    mp_node *node = mp_map_find(plans, (mp_str){&name, 1});
    MUST(node != NULL);
    return mp_container(node, mp_plan, node);
}

/* Pushes what a function that refuses says of the tool, whose other `count` arguments are on top.  [-count, +1, throws]
 */
static void push_words(lua_State *co, int refuse, int count)
{
    lua_rawgeti(co, LUA_REGISTRYINDEX, refuse);
    lua_getiuservalue(co, 2, MP_PLAN_TOOL);
    lua_rotate(co, -2 - count, 2);
    lua_call(co, 1 + count, 1);
}

/* True if there are the same words for what mp_plan_push_faults() finds and for all arguments, which it changes.
 * `args` as there.  [-0, +0, throws] */
static bool are_same_words(lua_State *co, const mp_plan *plan, const mp_plain *it, int args)
{
    int top = lua_gettop(co);
    bool are_same = true;
    if (mp_plan_push_faults(co, plan, 2, it, args)) {
        push_words(co, mp_lib_of(co)->plans->refuse_some, 3);
        bool is_decided = lua_toboolean(co, -1) || (lua_isnil(co, -1) && args != 0);
        if (is_decided && mp_plan_push_all(co, it->values, it->value_count)) {
            push_words(co, mp_lib_of(co)->plans->refuse, 1);
            are_same = lua_rawequal(co, -1, -2);
            if (!are_same)
                fprintf(stderr, "%s\n%s\n", luaL_tolstring(co, -2, NULL), luaL_tolstring(co, -2, NULL));
        }
    }
    lua_settop(co, top);
    return are_same;
}

/* (plan): compares what the plan makes of the arguments in `envelope` with the general path.  [-1, +0, throws] */
static int compare(lua_State *co)
{
    const mp_plan *plan = lua_touserdata(co, 1);
    const mp_plain it = {.values = envelope.flat, .value_count = envelope.flat_count};
    mp_plan_given given;
    lua_rawgeti(co, LUA_REGISTRYINDEX, plan->ref);
    if (!plan->is_checked) {
        if (mp_plan_fits(plan, envelope.flat, envelope.flat_count, &given))
            mp_plan_prove_arguments(co, plan, 2, envelope.params, mp_plan_push(co, plan, 2, &given));
        else
            MUST(are_same_words(co, plan, &it, 0));
        return 0;
    }
    if (!mp_plan_push_all(co, envelope.flat, envelope.flat_count))
        return 0;
    if (plan->knows_fields && !mp_plan_has_null(&it))
        MUST(are_same_words(co, plan, &it, mp_plan_sees_fault(plan, &it) ? 0 : 3));
    lua_getiuservalue(co, 2, MP_PLAN_CHECK);
    lua_pushvalue(co, 3);
    lua_call(co, 1, 1);
    bool is_good = lua_toboolean(co, -1);
    lua_settop(co, 3);
    if (is_good)
        mp_plan_prove_arguments(co, plan, 2, envelope.params, 1);
    return 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static unsigned count;
    if (size == 0)
        return 0;
    char name = (char)('a' + data[0] % TOOLS);
    mp_buf message = {0};
    mp_buf_printf(
        &message,
        "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"tools/call\",\"params\":{\"name\":\"%c\",\"arguments\":", name);
    mp_buf_put(&message, (mp_str){(const char *)data + 1, size - 1});
    mp_buf_put(&message, MP_STR("}}"));
    if (mp_envelope_read_quickly(&envelope, mp_buf_str(&message), 100000)) {
        lua_pushcfunction(L, compare);
        lua_pushlightuserdata(L, (void *)(uintptr_t)find_plan(name));
        if (lua_pcall(L, 1, 0, 0) != LUA_OK) {
            fprintf(stderr, "%s\n", lua_tostring(L, -1));
            abort();
        }
    }
    mp_buf_clear(&message);
    if (++count % COLLECT_EVERY == 0)
        lua_gc(L, LUA_GCCOLLECT);
    return 0;
}
