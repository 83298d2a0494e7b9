/* plan_arguments.c: the params of a plain tools/call, its arguments against the plan of its tool, and the arguments as Lua values: what
 * lua_json.h's decoder and the compiled schema of lua/moonpool/schema would give, or nothing. */
#include "lib/mcp/plan.h"
#include <lauxlib.h>

/* -- reading params -------------------------------------------------------------------------------------------------- */

#define MAX_NAME_BYTES 64 /* of an escaped name in _meta */
#define MAX_KEYS 16       /* of one object inside _meta */
#define MAX_DEPTH 8       /* of arrays and objects inside _meta */

static bool is_open(mp_json_token token)
{
    return token.type == MP_JSON_T_OPEN_OBJECT || token.type == MP_JSON_T_OPEN_ARRAY;
}

static bool skip_inside(mp_json_cursor *cursor, mp_json_token open, int depth);

/* Skips a value whose first token was read. False if an object in it may have a key twice, which the general path refuses. */
static bool skip_value(mp_json_cursor *cursor, mp_json_token first, int depth)
{
    return !is_open(first) || (depth < MAX_DEPTH && skip_inside(cursor, first, depth + 1));
}

static bool skip_members(mp_json_cursor *cursor, int depth)
{
    mp_str keys[MAX_KEYS];
    for (int count = 0;; count++) {
        mp_json_token key = mp_json_next(cursor);
        if (key.type == MP_JSON_T_CLOSE_OBJECT)
            return true;
        if (key.escaped || count == MAX_KEYS)
            return false;
        for (int i = 0; i < count; i++)
            if (mp_str_eq(keys[i], key.span))
                return false;
        keys[count] = key.span;
        if (!skip_value(cursor, mp_json_next(cursor), depth))
            return false;
    }
}

static bool skip_inside(mp_json_cursor *cursor, mp_json_token open, int depth)
{
    if (open.type == MP_JSON_T_OPEN_OBJECT)
        return skip_members(cursor, depth);
    for (;;) {
        mp_json_token token = mp_json_next(cursor);
        if (token.type == MP_JSON_T_CLOSE_ARRAY)
            return true;
        if (!skip_value(cursor, token, depth))
            return false;
    }
}

/* Members of _meta with the protocol's own prefix that change nothing for tools/call. logLevel is not among them: the general path checks it.
 * Some encoders of JSON escape the slash of these names. */
static bool is_known_meta(mp_json_token name)
{
    static const char prefix[] = "io.modelcontextprotocol/";
    char plain[MAX_NAME_BYTES];
    mp_str key = name.span;
    if (name.escaped) {
        if (key.len > sizeof plain)
            return false;
        key = (mp_str){plain, mp_json_copy_string(plain, (mp_str){key.ptr - 1, key.len + 2})};
    }
    if (key.len < sizeof prefix - 1 || memcmp(key.ptr, prefix, sizeof prefix - 1) != 0)
        return true;
    mp_str rest = mp_str_from(key, sizeof prefix - 1);
    return mp_str_is(rest, "protocolVersion") || mp_str_is(rest, "clientInfo") || mp_str_is(rest, "clientCapabilities");
}

/* The scan of the envelope has compared the keys of _meta itself. */
static bool read_meta(mp_json_cursor *cursor)
{
    for (;;) {
        mp_json_token key = mp_json_next(cursor);
        if (key.type == MP_JSON_T_CLOSE_OBJECT)
            return true;
        if (!is_known_meta(key) || !skip_value(cursor, mp_json_next(cursor), 0))
            return false;
    }
}

/* Skips a value whose first token was read, repeated keys or not. */
static void skip_any(mp_json_cursor *cursor, mp_json_token first)
{
    for (int depth = is_open(first); depth > 0;) {
        mp_json_token token = mp_json_next(cursor);
        if (is_open(token))
            depth++;
        else if (token.type == MP_JSON_T_CLOSE_OBJECT || token.type == MP_JSON_T_CLOSE_ARRAY)
            depth--;
    }
}

static void read_arguments(mp_json_cursor *cursor, mp_plan_request *request)
{
    request->is_flat = true;
    for (;;) {
        mp_json_token key = mp_json_next(cursor);
        if (key.type == MP_JSON_T_CLOSE_OBJECT)
            return;
        mp_json_token value = mp_json_next(cursor);
        if (key.escaped || is_open(value) || value.type == MP_JSON_T_NULL || request->count == MP_PLAN_ARGS)
            request->is_flat = false;
        if (request->is_flat)
            request->values[request->count++] = (mp_plan_value){key.span, value.span, value.type, value.escaped};
        else
            skip_any(cursor, value);
    }
}

bool mp_plan_read(mp_str params, mp_plan_request *request)
{
    mp_json_cursor cursor = {params.ptr, params.ptr + params.len};
    request->name = request->arguments = MP_STR_NONE;
    request->is_flat = true;
    request->count = 0;
    mp_json_next(&cursor); /* the opening brace */
    for (;;) {
        mp_json_token key = mp_json_next(&cursor);
        if (key.type == MP_JSON_T_CLOSE_OBJECT)
            return request->name.len > 0;
        mp_json_token value = mp_json_next(&cursor);
        const char *from = cursor.at - 1;
        if (mp_str_is(key.span, "name") && value.type == MP_JSON_T_STRING && !value.escaped) {
            request->name = value.span;
        } else if (mp_str_is(key.span, "arguments") && value.type == MP_JSON_T_OPEN_OBJECT) {
            read_arguments(&cursor, request);
            request->arguments = (mp_str){from, (size_t)(cursor.at - from)};
        } else if (!mp_str_is(key.span, "_meta") || value.type != MP_JSON_T_OPEN_OBJECT || !read_meta(&cursor)) {
            return false;
        }
    }
}

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

static bool fits_text(const mp_plan *plan, const mp_plan_arg *arg, const mp_plan_value *value)
{
    if (!arg->has_bounds && arg->choice_count == 0)
        return true;
    if (value->is_escaped)
        return false;
    return (!arg->has_bounds || is_within(arg, (double)characters_of(value->value))) &&
           (arg->choice_count == 0 || is_choice(plan, arg, value->value));
}

/* An integer of 19 characters or more may not fit in 64 bits, and one of 16 or more is not compared with bounds as a double: the general
 * path decides about these. */
static bool fits_integer(const mp_plan_arg *arg, const mp_plan_value *value)
{
    if (value->type != MP_JSON_T_INTEGER || value->value.len >= 19)
        return false;
    return !arg->has_bounds || (value->value.len < 16 && is_within(arg, mp_json_double(value->value)));
}

static bool fits_float(const mp_plan_arg *arg, const mp_plan_value *value)
{
    return value->type == MP_JSON_T_FLOAT && (!arg->has_bounds || is_within(arg, mp_json_double(value->value)));
}

static bool fits(const mp_plan *plan, const mp_plan_arg *arg, const mp_plan_value *value)
{
    switch (arg->kind) {
    case MP_ARG_NUMBER:
        return fits_integer(arg, value) || fits_float(arg, value);
    case MP_ARG_INTEGER:
        return fits_integer(arg, value);
    case MP_ARG_STRING:
        return value->type == MP_JSON_T_STRING && fits_text(plan, arg, value);
    default:
        return value->type == MP_JSON_T_TRUE || value->type == MP_JSON_T_FALSE;
    }
}

bool mp_plan_fits(const mp_plan *plan, const mp_plan_request *request, uint8_t *places)
{
    uint32_t seen = 0;
    int next = 0; /* clients keep an order: the argument after the last one is tried first */
    if (!request->is_flat)
        return false;
    for (size_t i = 0; i < request->count; i++) {
        const mp_plan_value *value = &request->values[i];
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

/* Not inlined: the buffer on the C stack is not for every caller.  [-0, +1, throws memory] */
static __attribute__((noinline)) void push_escaped(lua_State *L, mp_str inside)
{
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, inside.len);
    luaL_pushresultsize(&buffer, mp_json_copy_string(to, (mp_str){inside.ptr - 1, inside.len + 2}));
}

static void push_value(lua_State *L, const mp_plan_value *value)
{
    int64_t n;
    switch (value->type) {
    case MP_JSON_T_STRING:
        if (value->is_escaped)
            push_escaped(L, value->value);
        else
            lua_pushlstring(L, value->value.ptr, value->value.len);
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
    default:
        lua_pushboolean(L, value->type == MP_JSON_T_TRUE);
    }
}

static int push_positional(lua_State *L, const mp_plan *plan, int at, const mp_plan_request *request,
                           const uint8_t *places)
{
    const mp_plan_value *given[MP_PLAN_ARGS] = {NULL};
    for (size_t i = 0; i < request->count; i++)
        given[places[i]] = &request->values[i];
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

/* Makes the table as the decoder of lua_json.h does, from the last member to the first, so that `pairs` gives its members in the same
 * order. */
static int push_table(lua_State *L, const mp_plan *plan, int at, const mp_plan_request *request, const uint8_t *places)
{
    uint32_t seen = 0;
    lua_createtable(L, 0, (int)request->count);
    for (size_t i = request->count; i > 0; i--) {
        lua_getiuservalue(L, at, MP_PLAN_FIRST + places[i - 1]);
        push_value(L, &request->values[i - 1]);
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

int mp_plan_push(lua_State *L, const mp_plan *plan, int at, const mp_plan_request *request, const uint8_t *places)
{
    return plan->is_positional ? push_positional(L, plan, at, request, places)
                               : push_table(L, plan, at, request, places);
}
