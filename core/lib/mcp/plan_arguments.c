/* plan_arguments.c: checks the arguments of a plain tools/call by the plan of its tool, and pushes them as Lua values. The verdict is that of the
 * compiled schema of lua/moonpool/schema, or none; the values are those of lua_json.h's decoder. */
#include "lib/mcp/plan.h"
#include <lauxlib.h>

/* -- checking -------------------------------------------------------------------------------------------------------- */

static bool is_within(const mp_plan_arg *arg, double n)
{
    return n >= arg->least && n <= arg->most && n > arg->above && n < arg->below;
}

/* The characters of valid UTF-8. */
static size_t characters_of(mp_str text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += ((unsigned char)text.ptr[i] & 0xc0) != 0x80;
    return count;
}

static bool is_choice(const mp_plan *plan, const mp_plan_arg *arg, mp_str text)
{
    for (size_t i = 0; i < arg->choice_count; i++)
        if (mp_str_eq(plan->choices[arg->choices + i], text))
            return true;
    return false;
}

static bool fits_text(const mp_plan *plan, const mp_plan_arg *arg, const mp_flat *value)
{
    if (!arg->has_bounds && arg->choice_count == 0)
        return true;
    if (value->type == MP_FLAT_ESCAPED)
        return false;
    return (!arg->has_bounds || is_within(arg, (double)characters_of(value->value))) &&
           (arg->choice_count == 0 || is_choice(plan, arg, value->value));
}

/* An integer of 19 characters or more may not fit in 64 bits, and one of 16 or more is not compared with bounds as a double: the general
 * path decides about these. */
static bool fits_integer(const mp_plan_arg *arg, const mp_flat *value)
{
    if (value->type != MP_JSON_T_INTEGER || value->value.len >= 19)
        return false;
    return !arg->has_bounds || (value->value.len < 16 && is_within(arg, mp_json_double(value->value)));
}

static bool fits_float(const mp_plan_arg *arg, const mp_flat *value)
{
    return value->type == MP_JSON_T_FLOAT && (!arg->has_bounds || is_within(arg, mp_json_double(value->value)));
}

static bool fits(const mp_plan *plan, const mp_plan_arg *arg, const mp_flat *value)
{
    switch (arg->kind) {
    case MP_ARG_NUMBER:
        return fits_integer(arg, value) || fits_float(arg, value);
    case MP_ARG_INTEGER:
        return fits_integer(arg, value);
    case MP_ARG_STRING:
        return (value->type == MP_JSON_T_STRING || value->type == MP_FLAT_ESCAPED) && fits_text(plan, arg, value);
    default:
        return value->type == MP_JSON_T_TRUE || value->type == MP_JSON_T_FALSE;
    }
}

bool mp_plan_fits(const mp_plan *plan, const mp_flat *values, size_t count, uint8_t *places)
{
    uint32_t seen = 0;
    int next = 0; /* clients keep an order: the argument after the last one is tried first */
    for (size_t i = 0; i < count; i++) {
        const mp_flat *value = &values[i];
        int left = plan->arg_count;
        while (left > 0 && !mp_str_eq(plan->args[next].name, value->name)) {
            next = next + 1 < plan->arg_count ? next + 1 : 0;
            left--;
        }
        if (left == 0 || (seen & 1u << next) != 0 || !fits(plan, &plan->args[next], value))
            return false;
        seen |= 1u << next;
        places[i] = (uint8_t)next;
        next = next + 1 < plan->arg_count ? next + 1 : 0;
    }
    return (seen & plan->required) == plan->required;
}

/* -- pushing --------------------------------------------------------------------------------------------------------- */

/* Not inlined: the buffer on the C stack is not for every caller. `span` has its quotes.  [-0, +1, throws memory] */
static __attribute__((noinline)) void push_escaped(lua_State *L, mp_str span)
{
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, span.len);
    luaL_pushresultsize(&buffer, mp_json_copy_string(to, span));
}

/* [-0, +1, throws memory] */
static void push_value(lua_State *L, const mp_flat *value)
{
    int64_t n;
    switch (value->type) {
    case MP_JSON_T_STRING:
        lua_pushlstring(L, value->value.ptr, value->value.len);
        break;
    case MP_FLAT_ESCAPED:
        push_escaped(L, value->value);
        break;
    case MP_JSON_T_INTEGER:
        if (mp_json_int(value->value, &n)) {
            lua_pushinteger(L, n);
            break;
        }
        /* fall through */
    case MP_JSON_T_FLOAT:
        lua_pushnumber(L, mp_json_double(value->value));
        break;
    case MP_JSON_T_TRUE:
    case MP_JSON_T_FALSE:
        lua_pushboolean(L, value->type == MP_JSON_T_TRUE);
        break;
    default: /* null, an array or an object, in which no key is repeated */
        if (mp_lua_decode(L, value->value) != 0)
            luaL_error(L, "an argument repeats a key");
    }
}

static int push_positional(lua_State *L, const mp_plan *plan, int at, const mp_flat *values, size_t count,
                           const uint8_t *places)
{
    const mp_flat *given[MP_PLAN_ARGS] = {NULL};
    for (size_t i = 0; i < count; i++)
        given[places[i]] = &values[i];
    for (int i = 0; i < plan->arg_count; i++) {
        if (given[i] != NULL)
            push_value(L, given[i]);
        else if (plan->args[i].default_slot != 0)
            lua_getiuservalue(L, at, plan->args[i].default_slot);
        else
            lua_pushnil(L);
    }
    return plan->arg_count;
}

/* Pushes the table as the decoder of lua_json.h makes it, from the last member to the first, so that `pairs` gives its members in that order. */
void mp_plan_push_all(lua_State *L, const mp_flat *values, size_t count)
{
    lua_createtable(L, 0, (int)count);
    for (size_t i = count; i > 0; i--) {
        lua_pushlstring(L, values[i - 1].name.ptr, values[i - 1].name.len);
        push_value(L, &values[i - 1]);
        lua_rawset(L, -3);
    }
}

static int push_table(lua_State *L, const mp_plan *plan, int at, const mp_flat *values, size_t count,
                      const uint8_t *places)
{
    uint32_t seen = 0;
    lua_createtable(L, 0, (int)count);
    for (size_t i = count; i > 0; i--) {
        lua_getiuservalue(L, at, MP_PLAN_FIRST + places[i - 1]);
        push_value(L, &values[i - 1]);
        lua_rawset(L, -3);
        seen |= 1u << places[i - 1];
    }
    for (int i = 0; i < plan->default_count; i++) {
        int arg = plan->defaults[i];
        if ((seen & 1u << arg) != 0)
            continue;
        lua_getiuservalue(L, at, MP_PLAN_FIRST + arg);
        lua_getiuservalue(L, at, plan->args[arg].default_slot);
        lua_rawset(L, -3);
    }
    return 1;
}

int mp_plan_push(lua_State *L, const mp_plan *plan, int at, const mp_flat *values, size_t count, const uint8_t *places)
{
    return plan->is_positional ? push_positional(L, plan, at, values, count, places)
                               : push_table(L, plan, at, values, count, places);
}
