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

static mp_flat flat_of(mp_str name, mp_json_token token)
{
    if (token.escaped)
        return (mp_flat){name, {token.span.ptr - 1, token.span.len + 2}, MP_FLAT_ESCAPED};
    return (mp_flat){name, token.span, (uint8_t)token.type};
}

static bool fits_scalar(const mp_plan *plan, const mp_plan_field *field, const mp_flat *value)
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
    default:
        return false;
    }
}

/* -- trees and lists ----------------------------------------------------------------------------------------------- */

enum {
    STEPS = 50000, /* of one argument: half of those that the check of its schema has */
    LEVELS = 16    /* more than the quick reader takes */
};

/* A value that is read. */
typedef struct {
    const mp_plan *plan;
    mp_json_cursor cursor;
    int left;  /* steps: items, and the fields of objects */
    int depth; /* of the value that is read now */
    /* Of a value that does not fit: the way to what does not, from the outermost key on. */
    int levels;
    struct {
        const mp_plan_field *field;
        int index;           /* of an item, from 0; of a member -1 */
        mp_json_token token; /* the first of the value */
    } way[LEVELS];
} tree;

/* The field of this name, counted from the object's first: `next` or one behind it, since clients keep an order;
 * object->count if there is none. */
static int find_field(const mp_plan *plan, const mp_plan_object *object, int next, mp_str name)
{
    const mp_plan_field *fields = plan->fields + object->first;
    for (int left = object->count; left > 0; left--) {
        if (next >= object->count)
            next = 0;
        if (mp_str_eq(fields[next].name, name))
            return next;
        next++;
    }
    return object->count;
}

static bool fits_list(tree *it, const mp_plan_field *field);
static bool fits_tree(tree *it, const mp_plan_object *object);

/* True if the value whose first token has been read fits. Otherwise it has been read up to anywhere. */
static bool fits_value(tree *it, const mp_plan_field *field, mp_json_token token)
{
    bool fits = false;
    it->levels = it->depth;
    if (token.type < MP_JSON_T_OPEN_ARRAY) {
        mp_flat value = flat_of(MP_STR_NONE, token);
        return fits_scalar(it->plan, field, &value);
    }
    if (++it->depth == LEVELS)
        return false;
    if (token.type == MP_JSON_T_OPEN_ARRAY && field->kind == MP_FIELD_LIST)
        fits = fits_list(it, field);
    else if (token.type == MP_JSON_T_OPEN_OBJECT && (field->kind == MP_FIELD_TREE || field->kind == MP_FIELD_OBJECT))
        fits = fits_tree(it, &field->inner);
    it->depth--;
    return fits;
}

/* The number of items is looked at first: where it has bounds, the way ends at the list. */
static bool fits_list(tree *it, const mp_plan_field *field)
{
    int count = 0, depth = it->depth - 1;
    const mp_plan_field *of_items = &it->plan->fields[field->inner.first];
    for (mp_json_token item; (item = mp_json_next(&it->cursor)).type != MP_JSON_T_CLOSE_ARRAY; count++)
        if (--it->left < 0 || !fits_value(it, of_items, item)) {
            it->way[depth].field = of_items;
            it->way[depth].index = count;
            it->way[depth].token = item;
            if (it->left < 0 || field->has_bounds)
                it->levels = depth;
            return false;
        }
    it->levels = depth;
    return !field->has_bounds || mp_field_allows_number(field, count);
}

/* Members are looked at in the order of the fields, and before the set of names: of those that do not fit, the way
 * leads to the first. */
static bool fits_tree(tree *it, const mp_plan_object *object)
{
    const mp_plan_field *fields = it->plan->fields + object->first;
    uint32_t seen = 0;
    bool has_all = true;
    int place = -1, wrong = object->count, depth = it->depth - 1, levels = depth;
    it->left -= object->count;
    for (mp_json_token key; (key = mp_json_next(&it->cursor)).type != MP_JSON_T_CLOSE_OBJECT;) {
        place = find_field(it->plan, object, place + 1, key.span);
        mp_json_token value = mp_json_next(&it->cursor);
        mp_json_cursor from = it->cursor;
        if (place == object->count) {
            has_all = false;
        } else if (place < wrong && !fits_value(it, &fields[place], value)) {
            it->way[depth].field = &fields[place];
            it->way[depth].index = -1;
            it->way[depth].token = value;
            wrong = place;
            levels = it->levels;
        } else if (wrong == object->count) {
            seen |= 1u << place;
            continue;
        }
        it->cursor = from;
        mp_json_skip(&it->cursor, value);
    }
    it->levels = it->left < 0 ? depth : levels;
    return it->left >= 0 && wrong == object->count && has_all && (seen & object->required) == object->required;
}

/* True if an argument that is an array or an object fits. */
static bool fits_whole(tree *it, const mp_plan *plan, const mp_plan_field *field, const mp_flat *value)
{
    it->plan = plan;
    it->cursor = (mp_json_cursor){value->value.ptr + 1, value->value.ptr + value->value.len};
    it->left = STEPS;
    it->depth = it->levels = 0;
    return fits_value(it, field, (mp_json_token){.type = value->type});
}

/* The innermost value that does not fit.  `levels` is not 0. */
static mp_flat flat_at(const tree *it)
{
    mp_json_token token = it->way[it->levels - 1].token;
    mp_flat value = flat_of(MP_STR_NONE, token);
    mp_json_cursor cursor = {token.span.ptr + token.span.len, it->cursor.end};
    if (token.type >= MP_JSON_T_OPEN_ARRAY)
        value.value = mp_json_skip(&cursor, token);
    return value;
}

static bool is_whole(const mp_flat *value)
{
    return value->type == MP_JSON_T_OPEN_ARRAY || value->type == MP_JSON_T_OPEN_OBJECT;
}

/* -- members ------------------------------------------------------------------------------------------------------- */

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
        to[members->count] = flat_of(key.span, value);
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
    if (field->kind == MP_FIELD_OBJECT)
        return fits_object(plan, field, value, given, inner);
    if (field->kind == MP_FIELD_TREE || field->kind == MP_FIELD_LIST) {
        tree it;
        return is_whole(value) && fits_whole(&it, plan, field, value);
    }
    return fits_scalar(plan, field, value);
}

/* Finds the field of each member and checks its value. No name is repeated. A member without a field fits no plan, also
 * where the object is open. */
static bool fits_members(const mp_plan *plan, const mp_plan_object *object, mp_plan_given *given,
                         mp_plan_members *members)
{
    uint32_t seen = 0;
    int place = -1;
    for (size_t i = 0; i < members->count; i++) {
        const mp_flat *value = &members->values[i];
        place = find_field(plan, object, place + 1, value->name);
        if (place == object->count ||
            !fits_field(plan, &plan->fields[object->first + place], value, given, &members->inner[i]))
            return false;
        seen |= 1u << place;
        members->fields[i] = (uint8_t)place;
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

/* True if the value fits, whatever the others are, or counts as absent: a null for what may be missing. If it does not,
 * and is an array or an object, `it` has the way to what does not. */
static bool fits_alone(const mp_plan *plan, const mp_plan_field *field, const mp_flat *value, bool is_required,
                       tree *it)
{
    if (value->type == MP_JSON_T_NULL && !is_required)
        return true;
    return is_whole(value) ? fits_whole(it, plan, field, value) : fits_scalar(plan, field, value);
}

bool mp_plan_sees_fault(const mp_plan *plan, const mp_plain *it)
{
    const mp_plan_object *object = &plan->input;
    uint32_t seen = 0;
    tree way;
    for (size_t i = 0; i < it->value_count; i++) {
        int place = find_field(plan, object, 0, it->values[i].name);
        if (place == object->count) {
            if (object->is_closed)
                return true;
            continue;
        }
        const mp_plan_field *field = &plan->fields[object->first + place];
        seen |= 1u << place;
        if (field->kind != MP_FIELD_ANY && !fits_alone(plan, field, &it->values[i], true, &way))
            return true;
    }
    return (object->required & ~seen) != 0;
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
    tree way;                          /* where `way_of` does not fit: the keys that lead to the wrong value in it */
    const mp_flat *MP_NULLABLE way_of; /* the array or object that was checked last; NULL: `way` is of none */
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

/* Finds the arguments that do not fit, or only those that C does not know, and adds the names of unknown ones to the
 * list at the index `unknown`, which it makes there in place of nil. Returns the bit set of the fields that have a
 * value.  [-0, +0, throws memory] */
static uint32_t find_wrong(lua_State *L, const mp_plan *plan, const mp_plain *it, bool only_any, int unknown,
                           wrong_values *wrong)
{
    const mp_plan_object *object = &plan->input;
    const mp_plan_field *fields = plan->fields + object->first;
    uint32_t seen = 0;
    for (size_t i = 0; i < it->value_count; i++) {
        const mp_flat *value = &it->values[i];
        int place = find_field(plan, object, 0, value->name);
        if (place < object->count) {
            seen |= 1u << place;
            bool is_any = fields[place].kind == MP_FIELD_ANY;
            if (is_any || (!only_any && !fits_alone(plan, &fields[place], value, (object->required & 1u << place) != 0,
                                                    &wrong->way))) {
                add_wrong(fields, wrong, place, value);
                if (!is_any && is_whole(value))
                    wrong->way_of = value;
            }
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

/* Pushes the way to a value inside an argument: a list of what its field has of `inside`, and of the keys.  [-0, +1,
 * throws memory] */
static void push_way(lua_State *L, int at, const tree *it)
{
    lua_createtable(L, it->levels + 1, 0);
    lua_getiuservalue(L, at, it->way[it->levels - 1].field->inside_slot);
    lua_rawseti(L, -2, 1);
    for (int i = 0; i < it->levels; i++) {
        if (it->way[i].index >= 0)
            lua_pushinteger(L, it->way[i].index);
        else
            lua_getiuservalue(L, at, it->way[i].field->name_slot);
        lua_rawseti(L, -2, i + 2);
    }
}

/* Pushes the value that does not fit, of the argument whose name is on top; and the way to it, or nil if it is the
 * argument itself. False, pushing nothing or anything, if the value has to be looked at with all others. `args`: the
 * index of a table of the arguments, or 0.  [-0, +0|2, throws memory] */
static bool push_wrong(lua_State *L, const mp_plan *plan, int at, const mp_plan_field *field, const mp_flat *value,
                       int args, wrong_values *wrong)
{
    if (args == 0 && may_have_null(value))
        return false;
    if (field->kind != MP_FIELD_ANY && is_whole(value)) {
        if (wrong->way_of != value)
            fits_whole(&wrong->way, plan, field, value);
        wrong->way_of = NULL;
        if (wrong->way.levels > 0) {
            mp_flat inner = flat_at(&wrong->way);
            if (!push_value(L, &inner))
                return false;
            push_way(L, at, &wrong->way);
            return true;
        }
    }
    if (args != 0) {
        lua_pushvalue(L, -1);
        lua_rawget(L, args);
    } else if (!push_value(L, value)) {
        return false;
    }
    lua_pushnil(L);
    return true;
}

bool mp_plan_push_faults(lua_State *L, const mp_plan *plan, int at, const mp_plain *it, int args)
{
    const mp_plan_object *object = &plan->input;
    const mp_plan_field *fields = plan->fields + object->first;
    int list = lua_gettop(L) + 1, missing = list + 1, unknown = missing + 1;
    wrong_values wrong;
    wrong.count = 0;
    wrong.way_of = NULL;
    lua_settop(L, unknown);
    uint32_t absent = object->required & ~find_wrong(L, plan, it, args != 0, unknown, &wrong);
    lua_createtable(L, 3 * wrong.count, 0);
    lua_replace(L, list);
    for (int i = 0; i < wrong.count; i++) {
        lua_getiuservalue(L, at, fields[wrong.places[i]].name_slot);
        if (!push_wrong(L, plan, at, &fields[wrong.places[i]], wrong.values[i], args, &wrong)) {
            lua_settop(L, list - 1);
            return false;
        }
        for (int j = 3; j > 0; j--)
            lua_rawseti(L, list, 3 * i + j);
    }
    if (absent == 0)
        lua_pushboolean(L, false);
    else
        lua_createtable(L, 1, 0);
    lua_replace(L, missing);
    for (int place = 0; place < object->count; place++)
        if ((absent & 1u << place) != 0) {
            lua_getiuservalue(L, at, fields[place].name_slot);
            add_name(L, missing);
        }
    return true;
}
