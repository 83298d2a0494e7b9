/* plan_arguments.c: checks the arguments of a plain tools/call by the plan of its tool, and pushes them as Lua values.
 * The verdict is that of the compiled schema of lua/moonpool/schema, or none; the values are those of
 * lua_json.h's decoder. */
#define _GNU_SOURCE /* memmem */
#include "lib/shortcut/plan.h"
#include <float.h>
#include <lauxlib.h>

/* -- checking ------------------------------------------------------------------------------------------------------ */

bool mp_field_allows_number(const mp_plan_field *field, double n)
{
    return n >= field->least && n <= field->most && n > field->above && n < field->below;
}

/* The number of characters in valid UTF-8. */
static size_t characters_of(mp_str text)
{
    size_t count = 0;
    for (size_t i = 0; i < text.len; i++)
        count += ((unsigned char)text.ptr[i] & 0xc0) != 0x80;
    return count;
}

static bool is_choice(const mp_plan *plan, const mp_plan_field *field, mp_str text)
{
    for (size_t i = 0; i < field->choice_count; i++)
        if (mp_str_eq(plan->choices[field->choices + i], text))
            return true;
    return false;
}

bool mp_field_allows_text(const mp_plan *plan, const mp_plan_field *field, mp_str text)
{
    if (field->has_bounds && !mp_field_allows_number(field, (double)characters_of(text)))
        return false;
    return field->choice_count == 0 || is_choice(plan, field, text);
}

static bool fits_text(const mp_plan *plan, const mp_plan_field *field, const mp_flat *value)
{
    if (value->type == MP_JSON_T_STRING)
        return mp_field_allows_text(plan, field, value->value);
    return value->type == MP_FLAT_ESCAPED && !field->has_bounds && field->choice_count == 0;
}

/* An integer of 19 characters or more may not fit in 64 bits, and one of 16 or more is not compared with bounds as a
 * double: the general path decides about these. */
static bool fits_integer(const mp_plan_field *field, const mp_flat *value)
{
    if (value->type != MP_JSON_T_INTEGER || value->value.len >= 19)
        return false;
    return !field->has_bounds || (value->value.len < 16 && mp_field_allows_number(field, mp_json_double(value->value)));
}

/* A float that loses digits as a double is for the general path, which keeps its bytes. */
static bool is_exact_float(mp_str lexeme)
{
    return lexeme.len <= DBL_DIG || mp_json_is_exact(lexeme, mp_json_double(lexeme));
}

static bool fits_float(const mp_plan_field *field, const mp_flat *value)
{
    return value->type == MP_JSON_T_FLOAT && is_exact_float(value->value) &&
           (!field->has_bounds || mp_field_allows_number(field, mp_json_double(value->value)));
}

static bool fits_members(const mp_plan *plan, const mp_plan_object *object, mp_plan_given *given,
                         mp_plan_members *members);

/* Reads the members of an object inside the arguments. False if a value is an array, an object or null. */
static bool read_members(mp_str object, mp_plan_given *given, mp_plan_members *members)
{
    mp_json_cursor cursor = {object.ptr + 1, object.ptr + object.len};
    mp_flat *to = &given->spans[given->span_count];
    members->values = to;
    members->count = 0;
    for (mp_json_token key; (key = mp_json_next(&cursor)).type != MP_JSON_T_CLOSE_OBJECT; members->count++) {
        mp_json_token value = mp_json_next(&cursor);
        bool is_scalar = value.type != MP_JSON_T_NULL && value.type < MP_JSON_T_OPEN_ARRAY;
        if (key.escaped || !is_scalar || members->count == MP_PLAN_FIELDS)
            return false;
        if (value.escaped)
            value.span = (mp_str){value.span.ptr - 1, value.span.len + 2};
        to[members->count] = (mp_flat){key.span, value.span, value.escaped ? MP_FLAT_ESCAPED : (uint8_t)value.type};
    }
    given->span_count += members->count;
    return true;
}

static bool fits_object(const mp_plan *plan, const mp_plan_field *field, const mp_flat *value, mp_plan_given *given,
                        uint8_t *inner)
{
    if (value->type != MP_JSON_T_OPEN_OBJECT || given->inner_count == MP_PLAN_INNER)
        return false;
    *inner = (uint8_t)given->inner_count++;
    mp_plan_members *members = &given->inner[*inner];
    return read_members(value->value, given, members) && fits_members(plan, &field->inner, given, members);
}

static bool fits_field(const mp_plan *plan, const mp_plan_field *field, const mp_flat *value, mp_plan_given *given,
                       uint8_t *inner)
{
    switch (field->kind) {
    case MP_FIELD_NUMBER:
        return fits_integer(field, value) || fits_float(field, value);
    case MP_FIELD_INTEGER:
        return fits_integer(field, value);
    case MP_FIELD_STRING:
        return fits_text(plan, field, value);
    case MP_FIELD_BOOLEAN:
        return value->type == MP_JSON_T_TRUE || value->type == MP_JSON_T_FALSE;
    case MP_FIELD_OBJECT:
        return fits_object(plan, field, value, given, inner);
    default:
        return false;
    }
}

/* Finds the field of each member and checks its value. No name is repeated. A member without a field fits no plan, also
 * where the object is open. */
static bool fits_members(const mp_plan *plan, const mp_plan_object *object, mp_plan_given *given,
                         mp_plan_members *members)
{
    const mp_plan_field *fields = plan->fields + object->first;
    uint32_t seen = 0;
    int next = 0; /* clients keep an order: the field after the last one is tried first */
    for (size_t i = 0; i < members->count; i++) {
        const mp_flat *value = &members->values[i];
        int left = object->count;
        while (left > 0 && !mp_str_eq(fields[next].name, value->name)) {
            next = next + 1 < object->count ? next + 1 : 0;
            left--;
        }
        if (left == 0 || !fits_field(plan, &fields[next], value, given, &members->inner[i]))
            return false;
        seen |= 1u << next;
        members->fields[i] = (uint8_t)next;
        next = next + 1 < object->count ? next + 1 : 0;
    }
    return (seen & object->required) == object->required;
}

bool mp_plan_fits(const mp_plan *plan, const mp_flat *values, size_t count, mp_plan_given *given)
{
    given->inner_count = given->span_count = 0;
    given->top.values = values;
    given->top.count = (uint8_t)count;
    return fits_members(plan, &plan->input, given, &given->top);
}

/* -- pushing ------------------------------------------------------------------------------------------------------- */

/* Pushes a string that has escapes; `span` has its quotes. Not inlined, since the buffer would then take space on the C
 * stack of every caller.  [-0, +1, throws memory] */
static __attribute__((noinline)) void push_escaped(lua_State *L, mp_str span)
{
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, span.len);
    luaL_pushresultsize(&buffer, mp_json_copy_string(to, span));
}

/* Pushes a value; false, pushing nothing or anything, if a number in it would lose digits.  [-0, +0|1, throws
 * memory] */
static bool push_value(lua_State *L, const mp_flat *value)
{
    int64_t n;
    int result;
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
        return is_exact_float(value->value);
    case MP_JSON_T_TRUE:
    case MP_JSON_T_FALSE:
        lua_pushboolean(L, value->type == MP_JSON_T_TRUE);
        break;
    default: /* null, an array or an object, in which no key is repeated */
        result = mp_lua_decode_with(L, value->value, MP_LUA_STRICT);
        if (result == MP_JSON_REPEATED)
            luaL_error(L, "an argument repeats a key");
        return result == 0;
    }
    return true;
}

static void push_object(lua_State *L, const mp_plan *plan, int at, const mp_plan_object *object,
                        const mp_plan_given *given, const mp_plan_members *members);

/* Pushes the value number `i` of `members`, an object or not.  [-0, +1, throws memory] */
static void push_member(lua_State *L, const mp_plan *plan, int at, const mp_plan_field *field,
                        const mp_plan_given *given, const mp_plan_members *members, size_t i)
{
    if (field->kind == MP_FIELD_OBJECT)
        push_object(L, plan, at, &field->inner, given, &given->inner[members->inner[i]]);
    else
        push_value(L, &members->values[i]);
}

/* Pushes a table as the decoder of lua_json.h makes it, from the last member to the first, and then adds default values
 * as things/arguments.lua does, so that `pairs` gives its members in the order of the general path.  [-0, +1, throws
 * memory] */
static void push_object(lua_State *L, const mp_plan *plan, int at, const mp_plan_object *object,
                        const mp_plan_given *given, const mp_plan_members *members)
{
    const mp_plan_field *fields = plan->fields + object->first;
    uint32_t seen = 0;
    lua_createtable(L, 0, members->count);
    for (size_t i = members->count; i > 0; i--) {
        const mp_plan_field *field = &fields[members->fields[i - 1]];
        lua_getiuservalue(L, at, field->name_slot);
        push_member(L, plan, at, field, given, members, i - 1);
        lua_rawset(L, -3);
        seen |= 1u << members->fields[i - 1];
    }
    for (int i = 0; i < object->default_count; i++) {
        const mp_plan_field *field = &fields[object->defaults[i]];
        if ((seen & 1u << object->defaults[i]) != 0 || field->default_slot == 0)
            continue;
        lua_getiuservalue(L, at, field->name_slot);
        lua_getiuservalue(L, at, field->default_slot);
        lua_rawset(L, -3);
    }
}

static int push_positional(lua_State *L, const mp_plan *plan, int at, const mp_plan_given *given)
{
    const mp_plan_members *members = &given->top;
    int8_t place[MP_PLAN_FIELDS];
    memset(place, -1, sizeof place);
    for (int i = 0; i < members->count; i++)
        place[members->fields[i]] = (int8_t)i;
    for (int i = 0; i < plan->input.count; i++) {
        const mp_plan_field *field = &plan->fields[plan->input.first + i];
        if (place[i] >= 0)
            push_member(L, plan, at, field, given, members, (size_t)place[i]);
        else if (field->default_slot != 0)
            lua_getiuservalue(L, at, field->default_slot);
        else
            lua_pushnil(L);
    }
    return plan->input.count;
}

int mp_plan_push(lua_State *L, const mp_plan *plan, int at, const mp_plan_given *given)
{
    if (plan->is_positional)
        return push_positional(L, plan, at, given);
    push_object(L, plan, at, &plan->input, given, &given->top);
    return 1;
}

bool mp_plan_push_all(lua_State *L, const mp_flat *values, size_t count)
{
    int top = lua_gettop(L);
    lua_createtable(L, 0, (int)count);
    for (size_t i = count; i > 0; i--) {
        lua_pushlstring(L, values[i - 1].name.ptr, values[i - 1].name.len);
        if (!push_value(L, &values[i - 1])) {
            lua_settop(L, top);
            return false;
        }
        lua_rawset(L, -3);
    }
    return true;
}

/* -- what is wrong ------------------------------------------------------------------------------------------------- */

/* True if the value fits, whatever the others are, or counts as absent: a null for what may be missing. */
static bool fits_alone(const mp_plan *plan, const mp_plan_field *field, const mp_flat *value, bool is_required)
{
    mp_plan_given given;
    uint8_t inner;
    given.inner_count = given.span_count = 0;
    return (value->type == MP_JSON_T_NULL && !is_required) || fits_field(plan, field, value, &given, &inner);
}

/* True if a null may be in an array or an object. */
static bool may_have_null(const mp_flat *value)
{
    bool is_table = value->type == MP_JSON_T_OPEN_OBJECT || value->type == MP_JSON_T_OPEN_ARRAY;
    return is_table && memmem(value->value.ptr, value->value.len, "null", 4) != NULL;
}

bool mp_plan_has_null(const mp_plain *it)
{
    for (size_t i = 0; i < it->value_count; i++)
        if (it->values[i].type == MP_JSON_T_NULL || may_have_null(&it->values[i]))
            return true;
    return false;
}

/* Appends a name, which is on top, to the list at `index`.  [-1, +0, throws memory] */
static void add_name(lua_State *L, int index)
{
    lua_rawseti(L, index, (lua_Integer)lua_rawlen(L, index) + 1);
}

/* The arguments that do not fit, as far as C sees, in the order of their names. */
typedef struct {
    int count;
    uint8_t places[MP_PLAN_FIELDS]; /* of their fields */
    const mp_flat *values[MP_PLAN_FIELDS];
} wrong_values;

static bool is_after(mp_str a, mp_str b)
{
    int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order > 0 || (order == 0 && a.len > b.len);
}

static void add_wrong(const mp_plan_field *fields, wrong_values *wrong, int place, const mp_flat *value)
{
    int i = wrong->count++;
    for (; i > 0 && is_after(fields[wrong->places[i - 1]].name, fields[place].name); i--) {
        wrong->places[i] = wrong->places[i - 1];
        wrong->values[i] = wrong->values[i - 1];
    }
    wrong->places[i] = (uint8_t)place;
    wrong->values[i] = value;
}

/* Finds the arguments that do not fit, and adds the names of unknown ones to a list at `unknown`, where is nil. Returns
 * the bit set of the fields that have a value.  [-0, +0, throws memory] */
static uint32_t find_wrong(lua_State *L, const mp_plan *plan, const mp_plain *it, int unknown, wrong_values *wrong)
{
    const mp_plan_object *object = &plan->input;
    const mp_plan_field *fields = plan->fields + object->first;
    uint32_t seen = 0;
    for (size_t i = 0; i < it->value_count; i++) {
        const mp_flat *value = &it->values[i];
        int place = 0;
        while (place < object->count && !mp_str_eq(fields[place].name, value->name))
            place++;
        if (place < object->count) {
            seen |= 1u << place;
            if (!fits_alone(plan, &fields[place], value, (object->required & 1u << place) != 0))
                add_wrong(fields, wrong, place, value);
        } else if (object->is_closed) {
            if (lua_isnil(L, unknown)) {
                lua_createtable(L, 1, 0);
                lua_replace(L, unknown);
            }
            lua_pushlstring(L, value->name.ptr, value->name.len);
            add_name(L, unknown);
        }
    }
    return seen;
}

/* Pushes the value of an argument, whose name is on top; false, pushing nothing or anything.  [-0, +0|1, throws
 * memory] */
static bool push_wrong(lua_State *L, const mp_flat *value, int args)
{
    if (args == 0)
        return !may_have_null(value) && push_value(L, value);
    lua_pushvalue(L, -1);
    lua_rawget(L, args);
    return true;
}

bool mp_plan_push_faults(lua_State *L, const mp_plan *plan, int at, const mp_plain *it, int args)
{
    const mp_plan_object *object = &plan->input;
    const mp_plan_field *fields = plan->fields + object->first;
    int list = lua_gettop(L) + 1, missing = list + 1, unknown = missing + 1;
    wrong_values wrong;
    wrong.count = 0;
    lua_settop(L, unknown);
    uint32_t absent = object->required & ~find_wrong(L, plan, it, unknown, &wrong);
    lua_createtable(L, 2 * wrong.count, 0);
    lua_replace(L, list);
    for (int i = 0; i < wrong.count; i++) {
        lua_getiuservalue(L, at, fields[wrong.places[i]].name_slot);
        if (!push_wrong(L, wrong.values[i], args)) {
            lua_settop(L, list - 1);
            return false;
        }
        lua_rawseti(L, list, 2 * i + 2);
        lua_rawseti(L, list, 2 * i + 1);
    }
    lua_createtable(L, absent == 0 ? 0 : 1, 0);
    lua_replace(L, missing);
    for (int place = 0; place < object->count; place++)
        if ((absent & 1u << place) != 0) {
            lua_getiuservalue(L, at, fields[place].name_slot);
            add_name(L, missing);
        }
    return true;
}
