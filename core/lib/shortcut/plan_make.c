/* plan_make.c: the plans of a VM, made of the rows of lua/moonpool/registry/plan.lua. */
#include "lib/shortcut/plan.h"
#include "lib/fields.h"
#include "lib/principal.h"
#include <lauxlib.h>
#include <math.h>

mp_plans *mp_plans_new(void)
{
    mp_plans *plans = mp_new(sizeof *plans);
    plans->finish = plans->finish_audited = plans->refuse = plans->refuse_some = plans->handler = plans->frame_table =
        LUA_NOREF;
    mp_map_init(&plans->by_name);
    return plans;
}

void mp_plans_free(mp_plans *plans)
{
    mp_map_clear(&plans->by_name);
    mp_buf_clear(&plans->proof);
    free(plans);
}

const mp_plan *MP_NULLABLE mp_plan_find(const mp_plans *plans, mp_str name)
{
    mp_node *node = mp_map_find(&plans->by_name, name);
    return node == NULL ? NULL : mp_container(node, mp_plan, node);
}

/* -- rows -------------------------------------------------------------------------------------------------------- */

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

/* The length of the list in a field; 0 if there is none.  [-0, +0, throws] */
static size_t length_field(lua_State *L, int index, const char *name)
{
    size_t length = lua_getfield(L, index, name) == LUA_TTABLE ? (size_t)lua_rawlen(L, -1) : 0;
    lua_pop(L, 1);
    return length;
}

/* -- objects and fields ------------------------------------------------------------------------------------------ */

/* How many fields and choices the plan has, or its next free ones. */
typedef struct {
    size_t fields, choices;
    int slot; /* the next free user value */
} plan_size;

/* Adds the sizes of the object in a field of the table at `index`.  [-0, +0, throws] */
static void measure_plan(lua_State *L, int index, const char *name, plan_size *size)
{
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    if (lua_getfield(L, index, name) == LUA_TTABLE) {
        size_t count = length_field(L, -1, "fields");
        luaL_argcheck(L, count <= MP_PLAN_FIELDS, 1, "too many fields");
        size->fields += count;
        lua_getfield(L, -1, "fields");
        for (size_t i = 1; i <= count; i++) {
            lua_rawgeti(L, -1, (lua_Integer)i);
            size->choices += length_field(L, -1, "choices");
            measure_plan(L, lua_gettop(L), "inner", size);
            lua_pop(L, 1);
        }
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
}

/* Pops the text on top into the next user value of the plan at `at`, which holds it.  [-1, +0, throws] */
static mp_str hold_text(lua_State *L, int at, plan_size *next)
{
    mp_str text = mp_check_str(L, -1);
    lua_setiuservalue(L, at, next->slot++);
    return text;
}

static void fill_choices(lua_State *L, mp_plan *plan, int at, int row, mp_plan_field *field, plan_size *next)
{
    if (lua_getfield(L, row, "choices") == LUA_TTABLE) {
        field->choices = (uint16_t)next->choices;
        field->choice_count = (uint16_t)lua_rawlen(L, -1);
        for (lua_Integer i = 1; i <= field->choice_count; i++) {
            lua_rawgeti(L, row + 1, i);
            plan->choices[next->choices++] = hold_text(L, at, next);
        }
    }
    lua_settop(L, row);
}

static bool fill_object(lua_State *L, mp_plan *plan, int at, int row, const char *name, mp_plan_object *object,
                        plan_size *next);

/* Fills a field from the row on top.  [-0, +0, throws] */
static void fill_field(lua_State *L, mp_plan *plan, int at, mp_plan_field *field, plan_size *next)
{
    static const char *const kinds[] = {"number", "integer", "string", "boolean", "object",
                                        "tree",   "list",    "any",    NULL};
    int row = lua_gettop(L);
    lua_getfield(L, row, "name");
    field->name_slot = next->slot;
    field->name = hold_text(L, at, next);
    lua_getfield(L, row, "kind");
    field->kind = (mp_field_kind)luaL_checkoption(L, -1, NULL, kinds);
    field->least = number_field(L, row, "least", -HUGE_VAL, &field->has_bounds);
    field->most = number_field(L, row, "most", HUGE_VAL, &field->has_bounds);
    field->above = number_field(L, row, "above", -HUGE_VAL, &field->has_bounds);
    field->below = number_field(L, row, "below", HUGE_VAL, &field->has_bounds);
    if (lua_getfield(L, row, "default") != LUA_TNIL) {
        lua_setiuservalue(L, at, next->slot);
        field->default_slot = next->slot++;
    }
    if (lua_getfield(L, row, "inside") != LUA_TNIL) {
        lua_setiuservalue(L, at, next->slot);
        field->inside_slot = next->slot++;
    }
    lua_settop(L, row);
    fill_choices(L, plan, at, row, field, next);
    bool has_inner = field->kind == MP_FIELD_OBJECT || field->kind == MP_FIELD_TREE || field->kind == MP_FIELD_LIST;
    if (fill_object(L, plan, at, row, "inner", &field->inner, next) != has_inner)
        luaL_error(L, "an object or a list without fields");
}

/* Fills an object from a field of the table at `row`. False if it has none.  [-0, +0, throws] */
static bool fill_object(lua_State *L, mp_plan *plan, int at, int row, const char *name, mp_plan_object *object,
                        plan_size *next)
{
    luaL_checkstack(L, LUA_MINSTACK, NULL);
    int from = lua_gettop(L);
    if (lua_getfield(L, row, name) != LUA_TTABLE) {
        lua_settop(L, from);
        return false;
    }
    object->first = (uint16_t)next->fields;
    object->count = (uint8_t)length_field(L, from + 1, "fields");
    object->is_closed = has_field(L, from + 1, "is_closed");
    next->fields += object->count;
    lua_getfield(L, from + 1, "fields");
    for (int i = 0; i < object->count; i++) {
        lua_rawgeti(L, from + 2, i + 1);
        fill_field(L, plan, at, &plan->fields[object->first + i], next);
        if (has_field(L, from + 3, "is_required"))
            object->required |= 1u << i;
        lua_settop(L, from + 2);
    }
    object->default_count = (uint8_t)length_field(L, from + 1, "defaults");
    luaL_argcheck(L, object->default_count <= object->count, 1, "more defaults than fields");
    lua_getfield(L, from + 1, "defaults");
    for (int i = 0; i < object->default_count; i++) {
        lua_rawgeti(L, from + 3, i + 1);
        object->defaults[i] = (uint8_t)(luaL_checkinteger(L, -1) - 1);
        lua_pop(L, 1);
    }
    lua_settop(L, from);
    return true;
}

/* -- plans ------------------------------------------------------------------------------------------------------- */

static void drop_plan(mp_node *node, void *ctx)
{
    lua_State *L = ctx;
    const mp_plan *plan = mp_container(node, mp_plan, node);
    mp_map_drop(&mp_lib_of(L)->plans->by_name, node);
    luaL_unref(L, LUA_REGISTRYINDEX, plan->ref); /* frees a slot of the registry, so it allocates nothing */
}

static void set_user_value(lua_State *L, int row, const char *field, int plan, int slot)
{
    lua_getfield(L, row, field);
    lua_setiuservalue(L, plan, slot);
}

static const mp_lua_member plan_facts[] = {MP_MEMBER("is_positional", mp_plan, is_positional),
                                           MP_MEMBER("has_output", mp_plan, has_output),
                                           MP_MEMBER("has_policies", mp_plan, has_policies),
                                           MP_MEMBER("ends_in_lua", mp_plan, ends_in_lua),
                                           MP_MEMBER("scopes", mp_plan, scopes),
                                           {0}};

/* Makes the plan that the row on top describes, and adds it.  [-1, +0, throws] */
static void add_plan(lua_State *L, mp_plans *plans)
{
    int row = lua_gettop(L), at = row + 1;
    plan_size size = {0}, next = {.slot = MP_PLAN_FIRST};
    measure_plan(L, row, "input", &size);
    measure_plan(L, row, "fields", &size);
    measure_plan(L, row, "output", &size);
    size_t bytes = sizeof(mp_plan) + size.fields * sizeof(mp_plan_field) + size.choices * sizeof(mp_str);
    mp_plan *plan = lua_newuserdatauv(L, bytes, MP_PLAN_FIRST + (int)(3 * size.fields + size.choices));
    memset(plan, 0, bytes);
    plan->fields = (mp_plan_field *)(plan + 1);
    plan->choices = (mp_str *)(plan->fields + size.fields);
    bool is_given;
    mp_read_struct(L, row, plan_facts, plan);
    plan->call_place = (int)number_field(L, row, "call", 0, &is_given);
    plan->timeout_ms = (uint64_t)ceil(number_field(L, row, "seconds", 0, &is_given) * 1000);
    lua_getfield(L, row, "metrics");
    plan->metrics = lua_touserdata(L, -1);
    lua_pop(L, 1);
    plan->is_checked = !fill_object(L, plan, at, row, "input", &plan->input, &next);
    plan->knows_fields = plan->is_checked && fill_object(L, plan, at, row, "fields", &plan->input, &next);
    plan->knows_output = fill_object(L, plan, at, row, "output", &plan->output, &next);
    set_user_value(L, row, "handler", at, MP_PLAN_HANDLER);
    set_user_value(L, row, "tool", at, MP_PLAN_TOOL);
    set_user_value(L, row, "check", at, MP_PLAN_CHECK);
    set_user_value(L, row, "fill", at, MP_PLAN_FILL);
    set_user_value(L, row, "output_check", at, MP_PLAN_OUTPUT);
    lua_getfield(L, row, "name");
    plan->node.key = mp_check_str(L, -1);
    lua_setiuservalue(L, at, MP_PLAN_NAME);
    plan->ref = luaL_ref(L, LUA_REGISTRYINDEX);
    mp_map_put(&plans->by_name, &plan->node);
    lua_settop(L, row - 1);
}

void mp_plans_set(lua_State *L, mp_plans *plans, int rows)
{
    mp_map_each(&plans->by_name, drop_plan, L);
    if (mp_lib_of(L)->is_general)
        return;
    lua_Integer count = (lua_Integer)lua_rawlen(L, rows);
    for (lua_Integer i = 1; i <= count; i++) {
        lua_rawgeti(L, rows, i);
        add_plan(L, plans);
    }
}

/* Reads the texts in field `name` of the frame on top; those that are absent stay empty.  [-0, +0, throws] */
static void read_frame(lua_State *L, const char *name, mp_str *texts)
{
    int frame = lua_gettop(L);
    if (lua_getfield(L, frame, name) == LUA_TTABLE)
        for (int i = 0; i < 3; i++)
            if (lua_rawgeti(L, frame + 1, i + 1) == LUA_TSTRING)
                texts[i].ptr = lua_tolstring(L, -1, &texts[i].len);
    lua_settop(L, frame);
}

/* plan.set_ends(finish, finish_audited, refuse, refuse_some, handler, frames): finish(tool, revision, call, ok, …) ends
 * a call; finish_audited, or nil, also ends its audit line; refuse(tool, arguments, why) gives the reason why arguments
 * do not fit, for the client and for the audit, or nothing if they do, and refuse_some(tool, list, missing, unknown) so
 * for what mp_plan_push_faults() gives; `handler` is the message handler of handlers; `frames`
 * has for each revision the JSON around the values of results: { text = { before, after }, object =, other =, failed
 * = }.  [-0, +0, throws] */
static int l_set_plan_ends(lua_State *L)
{
    mp_plans *plans = mp_lib_of(L)->plans;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    luaL_checktype(L, 3, LUA_TFUNCTION);
    luaL_checktype(L, 4, LUA_TFUNCTION);
    luaL_checktype(L, 5, LUA_TFUNCTION);
    luaL_checktype(L, 6, LUA_TTABLE);
    lua_settop(L, 6);
    for (size_t i = 0; i < mp_era_count && i < MP_PLAIN_ERAS; i++) {
        mp_plan_frame *frame = &plans->frames[i];
        mp_str text[3] = {{0}};
        if (lua_getfield(L, 6, mp_eras[i].date) == LUA_TTABLE) {
            read_frame(L, "text", text);
            read_frame(L, "object", frame->object);
            read_frame(L, "other", frame->other);
            read_frame(L, "failed", frame->failed);
        }
        frame->before = text[0];
        frame->after = text[1];
        lua_settop(L, 6);
    }
    plans->frame_table = luaL_ref(L, LUA_REGISTRYINDEX);
    plans->handler = luaL_ref(L, LUA_REGISTRYINDEX);
    plans->refuse_some = luaL_ref(L, LUA_REGISTRYINDEX);
    plans->refuse = luaL_ref(L, LUA_REGISTRYINDEX);
    plans->finish_audited = luaL_ref(L, LUA_REGISTRYINDEX);
    plans->finish = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

/* call.params(call[, is_text]): the params of the call, decoded anew, or their JSON text; nil if it has none, or has
 * ended.  [-0, +1, throws] */
static int l_params(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    mp_str params = task->call == NULL ? MP_STR_NONE : mp_call_params(task->call);
    if (params.len > 0 && lua_toboolean(L, 2))
        lua_pushlstring(L, params.ptr, params.len);
    else if (params.len == 0 || mp_lua_decode_with(L, params, MP_LUA_EXACT) != 0)
        lua_pushnil(L);
    return 1;
}

/* plan.set_rights(call, generation, scopes, audience): sets the rights of the call's principal in the registry's
 * snapshot of this generation. `scopes`: a bit set of the scopes that the rows of served.publish() number; `audience`:
 * of subscriptions of the principal's sessions. [-0, +0, throws] */
static int l_set_rights(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    uint64_t generation = (uint64_t)luaL_checkinteger(L, 2), scopes = (uint64_t)luaL_checkinteger(L, 3);
    luaL_checktype(L, 4, LUA_TSTRING);
    lua_settop(L, 4);
    if (task->call != NULL)
        mp_principal_set_rights(L, mp_call_principal(task->call), generation, scopes);
    return 0;
}

/* call.mark(call): the mark of the call, 16 hexadecimal digits; nil once the call was answered or cancelled and had
 * none. Then the id of its trace, or nil.  [-0, +2, throws] */
static int l_mark(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    uint64_t mark = task->call != NULL ? mp_call_mark(task->call) : task->mark;
    if (mark == 0)
        lua_pushnil(L);
    else
        lua_pushstring(L, mp_mark_text_of(mark).text);
    char trace[MP_TRACE_ID_DIGITS + 1] = "";
    if (task->call != NULL && mp_call_trace(task->call) != NULL)
        mp_trace_put_id(mp_call_trace(task->call), trace);
    lua_pushstring(L, trace[0] == '\0' ? NULL : trace); /* NULL gives nil */
    return 2;
}

MP_LIBRARY(plan)
{
    static const luaL_Reg functions[] = {{"plan.set_ends", l_set_plan_ends},
                                         {"plan.set_rights", l_set_rights},
                                         {"call.params", l_params},
                                         {"call.mark", l_mark},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
