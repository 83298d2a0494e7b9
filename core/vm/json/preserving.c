/* preserving.c: writes byte-preserving tables (source.h). The table and the text of its source are read side by side.
 * Bytes are copied in long runs: a run ends only before a value that was changed, and where members were removed or
 * added. */
#include "vm/json/encode.h"
#include <lauxlib.h>

/* Writes the bytes up to the offset `to`, on one line: line ends are only between tokens, as a JSON string has none. */
static void copy_to(encoder *e, keeping *k, uint32_t to)
{
    size_t len = to - k->from;
    const char *from = k->source->text.ptr + k->from;
    k->from = to;
    if (len > e->most - e->start) {
        mp_encode_overflow(e, len);
        return;
    }
    char *copy = mp_buf_room(e->out, len), *end = copy + len;
    memcpy(copy, from, len);
    e->out->len += len;
    for (char *at = copy; (at = memchr(at, '\n', (size_t)(end - at))) != NULL;)
        *at = ' ';
    for (char *at = copy; (at = memchr(at, '\r', (size_t)(end - at))) != NULL;)
        *at = ' ';
}

/* The member behind `end` is left out. */
static void open_gap(encoder *e, keeping *k)
{
    if (k->has_gap)
        return;
    copy_to(e, k, k->end);
    k->has_gap = true;
}

/* A member is kept, which begins at the offset `start`. */
static void close_gap(encoder *e, keeping *k, uint32_t start)
{
    if (k->has_gap) {
        if (k->kept > 0)
            mp_buf_putc(e->out, ',');
        k->from = start;
        k->has_gap = false;
    }
    k->kept++;
}

/* -- values -------------------------------------------------------------------------------------------------------- */

static uint32_t offset_of(const keeping *k, const char *at)
{
    return (uint32_t)(at - k->source->text.ptr);
}

static bool is_container(mp_json_token token)
{
    return token.type == MP_JSON_T_OPEN_OBJECT || token.type == MP_JSON_T_OPEN_ARRAY;
}

static uint32_t start_of(const keeping *k, mp_json_token token)
{
    return offset_of(k, token.span.ptr) - (token.type == MP_JSON_T_STRING);
}

static bool is_same_number(lua_State *L, mp_json_token token)
{
    int64_t n;
    if (lua_type(L, -1) != LUA_TNUMBER)
        return false;
    if (token.type == MP_JSON_T_INTEGER && mp_json_int(token.span, &n))
        return lua_isinteger(L, -1) && lua_tointeger(L, -1) == n;
    double read = mp_json_double(token.span), now = lua_tonumber(L, -1);
    return !lua_isinteger(L, -1) && memcmp(&read, &now, sizeof now) == 0;
}

/* True if the value on top equals the decoded token, which is neither an array nor an object. */
static bool is_same_scalar(lua_State *L, mp_json_token token)
{
    mp_str text;
    switch (token.type) {
    case MP_JSON_T_STRING:
        if (lua_type(L, -1) != LUA_TSTRING)
            return false;
        text.ptr = lua_tolstring(L, -1, &text.len);
        if (!token.escaped)
            return mp_str_eq(text, token.span);
        return mp_json_string_is((mp_str){token.span.ptr - 1, token.span.len + 2}, text);
    case MP_JSON_T_TRUE:
    case MP_JSON_T_FALSE:
        return lua_isboolean(L, -1) && lua_toboolean(L, -1) == (token.type == MP_JSON_T_TRUE);
    case MP_JSON_T_NULL:
        return lua_islightuserdata(L, -1) && lua_touserdata(L, -1) == NULL;
    default:
        return is_same_number(L, token);
    }
}

/* -- tables -------------------------------------------------------------------------------------------------------- */

/* True if the table is empty or its first key is a string: it is an object as long as no other key follows.  [-0,
 * +0] */
static bool has_names(lua_State *L, int index)
{
    lua_pushnil(L);
    if (!lua_next(L, index))
        return true;
    bool is_name = lua_type(L, -2) == LUA_TSTRING;
    lua_pop(L, 2);
    return is_name;
}

static frame *open_frame(encoder *e, int index, int top, mp_json_source *source, const mp_json_place *place)
{
    frame *f = &e->frames[e->depth++];
    f->slot = index;
    f->top = top;
    f->order = 0;
    f->phase = source->text.ptr[place->from] == '{' ? KEPT_MEMBERS : KEPT_ELEMENTS;
    f->is_preserving = true;
    f->has_value = false;
    f->index = f->count = f->largest = 0;
    f->first = e->count;
    f->at = 0;
    f->keep = (keeping){.source = source,
                        .from = place->from,
                        .end = place->from + 1,
                        .at = place->from + 1,
                        .next = (uint32_t)(place - source->places) + 1,
                        .first = (uint32_t)(place - source->places) + 1,
                        .start = place->from,
                        .to = place->to,
                        .close = place->to - 1,
                        .bottom = lua_gettop(e->L)};
    return f;
}

bool mp_encode_open_preserving(encoder *e, int index, int top, mp_json_source *source, bool is_array)
{
    const mp_json_place *place = mp_json_source_find(e->L, source, -1, lua_topointer(e->L, index));
    if (place == NULL || (source->text.ptr[place->from] == '[') != is_array || (!is_array && !has_names(e->L, index)))
        return false;
    open_frame(e, index, top, source, place);
    return true;
}

/* True if the value on top is the table that the decoder made of this place, and still of its kind.  [-0, +0] */
static bool is_at_its_place(lua_State *L, const mp_json_source *source, const mp_json_place *place)
{
    if (!lua_istable(L, -1) || lua_topointer(L, -1) != place->table || !lua_getmetatable(L, -1))
        return false;
    bool is_object = source->text.ptr[place->from] == '{';
    bool is_known = lua_topointer(L, -1) == (is_object ? source->object_mt : source->array_mt);
    lua_pop(L, 1);
    return is_known && (!is_object || has_names(L, lua_gettop(L)));
}

void mp_encode_end_preserving(encoder *e, frame *f)
{
    keeping *k = &f->keep;
    if (k->has_gap)
        k->from = k->close;
    if (k->is_inner)
        e->frames[e->depth - 2].keep.from = k->from;
    else
        copy_to(e, k, k->to);
    lua_settop(e->L, f->top);
    e->depth--;
}

/* Writes a value that was changed, instead of the bytes from the offset `start` on. True if it is not complete.  [-0,
 * +0, throws] */
static bool replace_value(encoder *e, frame *f, uint32_t start)
{
    copy_to(e, &f->keep, start);
    f->has_value = true;
    return mp_encode_value(e, lua_gettop(e->L));
}

/* The value above `bottom` has been written or kept: pops it. */
static void end_value(encoder *e, frame *f)
{
    keeping *k = &f->keep;
    lua_settop(e->L, k->bottom);
    if (f->has_value && !k->has_inner)
        k->from = k->at;
    if (k->kept > 0 && !k->has_gap)
        k->end = k->at;
    f->has_value = k->has_inner = false;
}

/* Compares the value on top with the token; `start` is where its member begins. True if another value must be written
 * first.  [-0, +0, throws] */
static bool put_kept(encoder *e, frame *f, mp_json_token token, const char *end, uint32_t start)
{
    keeping *k = &f->keep;
    lua_State *L = e->L;
    const mp_json_place *place = is_container(token) ? &k->source->places[k->next] : NULL;
    uint32_t from = start_of(k, token);
    k->at = place == NULL ? offset_of(k, end) : place->to;
    k->next = place == NULL ? k->next : place->next;
    if (lua_isnil(L, -1)) {
        open_gap(e, k);
        return false;
    }
    close_gap(e, k, start);
    if (place == NULL)
        return !is_same_scalar(L, token) && replace_value(e, f, from);
    if (!is_at_its_place(L, k->source, place))
        return replace_value(e, f, from);
    int index = lua_gettop(L);
    mp_encode_check_table(e, index);
    f->has_value = k->has_inner = true;
    frame *inner = open_frame(e, index, index, k->source, place);
    inner->keep.is_inner = true;
    inner->keep.from = k->from;
    return true;
}

/* -- objects ------------------------------------------------------------------------------------------------------- */

/* Pushes a string that has escapes. Not inlined, since the buffer would then take space on the C stack of every caller.
 * [-0, +1, throws memory] */
static __attribute__((noinline)) void push_escaped(lua_State *L, mp_str inside)
{
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, inside.len);
    luaL_pushresultsize(&buffer, mp_json_copy_string(to, (mp_str){inside.ptr - 1, inside.len + 2}));
}

static void push_name(lua_State *L, mp_json_token name)
{
    if (name.escaped)
        push_escaped(L, name.span);
    else
        lua_pushlstring(L, name.span.ptr, name.span.len);
}

void mp_encode_kept_members(encoder *e, frame *f)
{
    lua_State *L = e->L;
    keeping *k = &f->keep;
    for (;;) {
        end_value(e, f);
        mp_json_cursor cursor = {k->source->text.ptr + k->at, k->source->text.ptr + k->to};
        mp_json_token name = mp_json_next(&cursor);
        if (name.type == MP_JSON_T_CLOSE_OBJECT)
            break;
        push_name(L, name);
        mp_json_token value = mp_json_next(&cursor);
        lua_pushvalue(L, -1);
        lua_rawget(L, f->slot);
        if (put_kept(e, f, value, cursor.at, start_of(k, name)) || mp_encode_should_look(e))
            return;
    }
    lua_pushnil(L);
    f->phase = COUNT_MEMBERS;
}

/* Counts the members of the table: more than are kept have been added. The last name is on top. */
void mp_encode_count_members(encoder *e, frame *f)
{
    lua_State *L = e->L;
    keeping *k = &f->keep;
    while (lua_next(L, f->slot)) {
        if (lua_type(L, -2) != LUA_TSTRING)
            mp_encode_fail_at(e, e->depth - 1, "a table whose keys are neither all strings nor exactly 1..n,");
        lua_pop(L, 1);
        f->count++;
        if (mp_encode_should_look(e))
            return;
    }
    if (f->count == k->kept) {
        mp_encode_end_preserving(e, f);
        return;
    }
    open_gap(e, k);
    lua_createtable(L, 0, 0);
    k->names = lua_gettop(L);
    k->at = k->start + 1;
    k->next = k->first;
    f->phase = LIST_NAMES;
}

/* Lists the names that the source has, so that the others can be gathered. */
void mp_encode_list_names(encoder *e, frame *f)
{
    lua_State *L = e->L;
    keeping *k = &f->keep;
    do {
        mp_json_cursor cursor = {k->source->text.ptr + k->at, k->source->text.ptr + k->to};
        mp_json_token name = mp_json_next(&cursor);
        if (name.type == MP_JSON_T_CLOSE_OBJECT) {
            lua_pushnil(L);
            if (lua_next(L, f->slot)) {
                f->phase = GATHER;
            } else { /* other tasks have emptied the table meanwhile */
                mp_encode_end_preserving(e, f);
            }
            return;
        }
        push_name(L, name);
        lua_pushboolean(L, 1);
        lua_rawset(L, k->names);
        mp_json_token value = mp_json_next(&cursor);
        const mp_json_place *place = is_container(value) ? &k->source->places[k->next] : NULL;
        k->at = place == NULL ? offset_of(k, cursor.at) : place->to;
        k->next = place == NULL ? k->next : place->next;
    } while (!mp_encode_should_look(e));
}

/* -- arrays -------------------------------------------------------------------------------------------------------- */

void mp_encode_kept_elements(encoder *e, frame *f)
{
    lua_State *L = e->L;
    keeping *k = &f->keep;
    for (;;) {
        end_value(e, f);
        mp_json_cursor cursor = {k->source->text.ptr + k->at, k->source->text.ptr + k->to};
        mp_json_token value = mp_json_next(&cursor);
        if (value.type == MP_JSON_T_CLOSE_ARRAY) {
            f->phase = ADDED_ELEMENTS;
            return;
        }
        if (lua_rawgeti(L, f->slot, f->index + 1) == LUA_TNIL) {
            lua_pop(L, 1);
            open_gap(e, k);
            break;
        }
        f->index++;
        if (put_kept(e, f, value, cursor.at, start_of(k, value)) || mp_encode_should_look(e))
            return;
    }
    lua_pushnil(L);
    f->phase = COUNT_ELEMENTS;
}

/* Writes the elements behind the last one of the source. */
void mp_encode_added_elements(encoder *e, frame *f)
{
    lua_State *L = e->L;
    keeping *k = &f->keep;
    for (;;) {
        lua_settop(L, k->bottom);
        if (lua_rawgeti(L, f->slot, f->index + 1) == LUA_TNIL) {
            f->phase = COUNT_ELEMENTS; /* on top is nil: next() begins with the first key */
            return;
        }
        open_gap(e, k);
        if (f->index++ > 0)
            mp_buf_putc(e->out, ',');
        if (mp_encode_value(e, lua_gettop(L)) || mp_encode_should_look(e))
            return;
    }
}

/* Counts the keys of the table, which must be those of the elements that are written. The last key is on top. */
void mp_encode_count_elements(encoder *e, frame *f)
{
    lua_State *L = e->L;
    while (lua_next(L, f->slot)) {
        if (!lua_isinteger(L, -2) || lua_tointeger(L, -2) < 1)
            mp_encode_fail_at(e, e->depth - 1, "a table whose keys are neither all strings nor exactly 1..n,");
        lua_pop(L, 1);
        f->count++;
        if (mp_encode_should_look(e))
            return;
    }
    if (f->count != f->index)
        mp_encode_fail_at(e, e->depth - 1, "a list with holes");
    mp_encode_end_preserving(e, f);
}
