/* lib_json_encode.c: Lua values to JSON text. Raw access only: no script code runs in here, save for finalizers, which do
 * not matter. Names wait on the Lua stack with their values while they are sorted. */
#include "script/lib_json.h"
#include <lauxlib.h>
#include <stdlib.h>

enum { MEMBERS_INLINE = 64, SORT_BY_HAND = 12, STEPS_SHOWN = 16, NAME_SHOWN = 40 };

/* A member of an object that is being written. */
typedef struct {
    mp_str name;
    uint64_t head; /* the first 8 bytes of the name, so that most comparisons are one */
    int slot;      /* of the value on the Lua stack; the name is below it */
} member;

/* From a table to the value at hand, for messages. */
typedef struct {
    mp_str name; /* ptr == NULL: an index */
    lua_Integer index;
    int slot; /* of the table */
} step;

typedef struct {
    lua_State *L;
    mp_buf *out;
    size_t start, most; /* where it begins in `out`, and what that may grow to */
    bool counts;        /* beyond: counts what there is, and keeps none */
    size_t counted;
    const void *array_mt, *object_mt;
    unsigned depth;
    size_t count, cap;
    member *members; /* of all objects being written, outermost first: `few`, or a userdata in slot `more` */
    int more;
    step path[MP_JSON_DEPTH];
    member few[MEMBERS_INLINE];
} encoder;

static void put_value(encoder *e, int index);

static bool is_name(mp_str s)
{
    if (s.len == 0 || s.len > NAME_SHOWN || (s.ptr[0] >= '0' && s.ptr[0] <= '9'))
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c != '_' && (c < '0' || c > '9') && ((c | 0x20) < 'a' || (c | 0x20) > 'z'))
            return false;
    }
    return true;
}

static void add_step(luaL_Buffer *text, const step *s)
{
    lua_State *L = text->L;
    if (s->name.ptr == NULL)
        lua_pushfstring(L, "[%I]", (LUAI_UACINT)s->index);
    else if (is_name(s->name))
        lua_pushfstring(L, ".%s", s->name.ptr);
    else {
        /* %.40s would stop at a NUL, so cut first. */
        lua_pushlstring(L, s->name.ptr, s->name.len < NAME_SHOWN ? s->name.len : NAME_SHOWN);
        lua_pushfstring(L, "[\"%s%s\"]", lua_tostring(L, -1), s->name.len > NAME_SHOWN ? "…" : "");
        lua_remove(L, -2);
    }
    luaL_addvalue(text);
}

/* Throws "cannot encode <what> at <path>". */
static _Noreturn __attribute__((noinline)) void fail(encoder *e, const char *what)
{
    lua_State *L = e->L;
    luaL_checkstack(L, LUA_MINSTACK, "JSON");
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    luaL_addstring(&text, "cannot encode ");
    luaL_addstring(&text, what);
    luaL_addstring(&text, e->depth == 0 ? " at the top" : " at ");
    for (unsigned i = 0; i < e->depth && i < STEPS_SHOWN; i++)
        add_step(&text, &e->path[i]);
    if (e->depth > STEPS_SHOWN)
        luaL_addstring(&text, "…");
    luaL_pushresult(&text);
    lua_error(L);
    abort();
}

/* The table at `index` is one too deep, most likely because it is inside itself: then says where it first is so. */
static _Noreturn void fail_deep(encoder *e, int index)
{
    for (unsigned inner = 1; inner <= e->depth; inner++) {
        int slot = inner < e->depth ? e->path[inner].slot : index;
        for (unsigned outer = 0; outer < inner; outer++)
            if (lua_rawequal(e->L, slot, e->path[outer].slot)) {
                e->depth = inner;
                fail(e, "a table inside itself");
            }
    }
    fail(e, "a table nested deeper than 128");
}

/* `out` has grown too long, by `more` yet to be put. */
static void overflow(encoder *e, size_t more)
{
    if (!e->counts)
        fail(e, "more than 32 MiB");
    e->counted += e->out->len - e->start + more;
    e->out->len = e->start;
}

static uint64_t head_of(mp_str name)
{
    unsigned char bytes[8] = {0};
    memcpy(bytes, name.ptr, name.len < 8 ? name.len : 8);
    uint64_t head;
    memcpy(&head, bytes, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    head = __builtin_bswap64(head);
#endif
    return head;
}

static int compare(const void *one, const void *two)
{
    const member *a = one, *b = two;
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    int order = memcmp(a->name.ptr, b->name.ptr, a->name.len < b->name.len ? a->name.len : b->name.len);
    return order != 0 ? order : (a->name.len > b->name.len) - (a->name.len < b->name.len);
}

static void sort(member *members, size_t count)
{
    if (count > SORT_BY_HAND) {
        qsort(members, count, sizeof *members, compare);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        member moved = members[i];
        size_t at = i;
        for (; at > 0 && compare(&members[at - 1], &moved) > 0; at--)
            members[at] = members[at - 1];
        members[at] = moved;
    }
}

/* Brings the members that the list `order` names to the front, in its order, and gives how many they are. */
static size_t put_ordered(encoder *e, member *members, size_t count, int order)
{
    lua_State *L = e->L;
    size_t done = 0;
    for (lua_Integer i = 1; done < count && lua_rawgeti(L, order, i) == LUA_TSTRING; i++) {
        mp_str name;
        name.ptr = lua_tolstring(L, -1, &name.len);
        lua_pop(L, 1); /* the list keeps it */
        for (size_t at = done; at < count; at++)
            if (mp_str_eq(members[at].name, name)) {
                member moved = members[at];
                members[at] = members[done];
                members[done++] = moved;
                break;
            }
    }
    return done;
}

static void add_member(encoder *e)
{
    lua_State *L = e->L;
    if (e->count == e->cap) {
        member *more = lua_newuserdatauv(L, e->cap * 2 * sizeof *more, 0);
        memcpy(more, e->members, e->count * sizeof *more);
        lua_replace(L, e->more);
        e->members = more;
        e->cap *= 2;
    }
    member *m = &e->members[e->count++];
    m->name.ptr = lua_tolstring(L, -2, &m->name.len);
    m->head = head_of(m->name);
    m->slot = lua_gettop(L);
}

/* The first name and value are on top of the stack, for lua_next to go on from. `order` is the slot of a list, or 0. */
static void put_object(encoder *e, int index, int order)
{
    lua_State *L = e->L;
    size_t first = e->count;
    do {
        if (lua_type(L, -2) != LUA_TSTRING)
            fail(e, "a table with keys that are not all names, or not all of 1..n,");
        if (!lua_checkstack(L, LUA_MINSTACK))
            fail(e, "a table with so many names");
        add_member(e);
        lua_pushvalue(L, -2);
    } while (lua_next(L, index));

    size_t count = e->count - first, ordered = 0;
    if (order != 0)
        ordered = put_ordered(e, e->members + first, count, order);
    if (count - ordered > 1)
        sort(e->members + first + ordered, count - ordered);
    step *at = &e->path[e->depth++];
    at->slot = index;
    for (size_t i = 0; i < count; i++) {
        const member *m = &e->members[first + i];
        at->name = m->name;
        mp_buf_putc(e->out, i == 0 ? '{' : ',');
        mp_json_put_string(e->out, m->name);
        mp_buf_putc(e->out, ':');
        put_value(e, m->slot);
    }
    mp_buf_putc(e->out, '}');
    e->depth--;
    e->count = first;
}

/* How many elements a table has whose keys are 1..n in some order; throws when they are not. */
static lua_Integer count_elements(encoder *e, int index)
{
    lua_State *L = e->L;
    lua_Integer count = 0, largest = 0;
    for (lua_pushnil(L); lua_next(L, index); lua_pop(L, 1)) {
        lua_Integer key = lua_isinteger(L, -2) ? lua_tointeger(L, -2) : 0;
        if (key < 1)
            fail(e, "a table with keys that are not all names, or not all of 1..n,");
        count++;
        largest = key > largest ? key : largest;
    }
    if (largest != count)
        fail(e, "a list with holes");
    return count;
}

/* Mostly lua_next gives 1..n in order. Where it does not, the keys are checked once and the rest is fetched. */
static void put_array(encoder *e, int index)
{
    lua_State *L = e->L;
    lua_Integer i = 1;
    step *at = &e->path[e->depth];
    *at = (step){.slot = index};
    do {
        if (!lua_isinteger(L, -2) || lua_tointeger(L, -2) != i)
            break;
        at->index = i;
        mp_buf_putc(e->out, i++ == 1 ? '[' : ',');
        e->depth++;
        put_value(e, lua_gettop(L));
        e->depth--;
        lua_pop(L, 1);
        if (!lua_next(L, index)) {
            mp_buf_putc(e->out, ']');
            return;
        }
    } while (true);

    lua_pop(L, 2);
    for (lua_Integer count = count_elements(e, index); i <= count; i++) {
        at->index = i;
        mp_buf_putc(e->out, i == 1 ? '[' : ',');
        lua_rawgeti(L, index, i);
        e->depth++;
        put_value(e, lua_gettop(L));
        e->depth--;
        lua_pop(L, 1);
    }
    mp_buf_putc(e->out, ']');
}

/* The metatable of the table at `*index`, if it has one. A read-only table has in its metatable what stands in its place: then
 * that is meant, and `*index` is its slot.  [-0, +0..3] */
static bool push_metatable(encoder *e, int *index)
{
    lua_State *L = e->L;
    if (!lua_getmetatable(L, *index))
        return false;
    const void *metatable = lua_topointer(L, -1);
    if (metatable == e->array_mt || metatable == e->object_mt)
        return true;
    lua_pushliteral(L, "__frozen");
    if (lua_rawget(L, -2) == LUA_TTABLE) {
        *index = lua_gettop(L);
        return lua_getmetatable(L, *index);
    }
    lua_pop(L, 1);
    return true;
}

static void put_table(encoder *e, int index)
{
    lua_State *L = e->L;
    int top = lua_gettop(L), order = 0;
    bool array = false, object = false;
    if (e->depth == MP_JSON_DEPTH)
        fail_deep(e, index);
    if (!lua_checkstack(L, LUA_MINSTACK))
        fail(e, "so large a table");
    if (push_metatable(e, &index)) {
        const void *metatable = lua_topointer(L, -1);
        array = metatable == e->array_mt;
        object = metatable == e->object_mt;
        if (!array && !object) {
            lua_pushliteral(L, "__order");
            if (lua_rawget(L, -2) == LUA_TTABLE)
                order = lua_gettop(L);
        }
    }
    lua_pushnil(L);
    if (!lua_next(L, index))
        mp_buf_put(e->out, array ? MP_STR("[]") : MP_STR("{}"));
    else if (array || (!object && order == 0 && lua_type(L, -2) != LUA_TSTRING))
        put_array(e, index);
    else
        put_object(e, index, order);
    lua_settop(L, top);
}

static void put_userdata(encoder *e, int index)
{
    const void *block = lua_touserdata(e->L, index);
    if (lua_islightuserdata(e->L, index)) {
        if (block != NULL && block != &mp_lua_empty_array)
            fail(e, "a light userdata");
        mp_buf_put(e->out, block == NULL ? MP_STR("null") : MP_STR("[]"));
        return;
    }
    if (luaL_testudata(e->L, index, MP_LUA_RAW) != NULL)
        mp_buf_put(e->out, (mp_str){block, lua_rawlen(e->L, index)});
    else if (luaL_testudata(e->L, index, MP_LUA_SECRET) != NULL)
        mp_buf_put(e->out, MP_STR("\"***\""));
    else
        fail(e, "a userdata");
}

static void put_value(encoder *e, int index)
{
    lua_State *L = e->L;
    mp_str text;
    if (e->counted > MP_LUA_ENCODE_MOST)
        return;
    switch (lua_type(L, index)) {
    case LUA_TSTRING:
        text.ptr = lua_tolstring(L, index, &text.len);
        if (text.len > e->most - e->start)
            overflow(e, text.len + 2);
        else
            mp_json_put_string(e->out, text);
        break;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index))
            mp_json_put_int(e->out, lua_tointeger(L, index));
        else if (mp_json_put_double(e->out, lua_tonumber(L, index)) != 0)
            fail(e, "a number that is not finite");
        break;
    case LUA_TBOOLEAN:
        mp_buf_put(e->out, lua_toboolean(L, index) ? MP_STR("true") : MP_STR("false"));
        break;
    case LUA_TNIL:
        mp_buf_put(e->out, MP_STR("null"));
        break;
    case LUA_TTABLE:
        put_table(e, index);
        break;
    case LUA_TLIGHTUSERDATA:
    case LUA_TUSERDATA:
        put_userdata(e, index);
        break;
    default:
        fail(e, lua_type(L, index) == LUA_TFUNCTION ? "a function" : "a coroutine");
    }
    if (e->out->len > e->most)
        overflow(e, 0);
}

static size_t encode(lua_State *L, int index, mp_buf *out, size_t most, bool counts)
{
    int top = lua_gettop(L);
    encoder e; /* 8 KiB: the arrays are not worth clearing */
    index = lua_absindex(L, index);
    luaL_checkstack(L, LUA_MINSTACK, "JSON");
    mp_lua_push_array_mt(L);
    mp_lua_push_object_mt(L);
    e.L = L;
    e.out = out;
    e.start = out->len;
    e.most = e.start + most;
    e.counts = counts;
    e.counted = 0;
    e.array_mt = lua_topointer(L, -2);
    e.object_mt = lua_topointer(L, -1);
    e.depth = 0;
    e.count = 0;
    e.cap = MEMBERS_INLINE;
    e.members = e.few;
    e.more = top + 1; /* over the metatables, which the registry keeps */
    put_value(&e, index);
    lua_settop(L, top);
    size_t size = out->len - e.start;
    if (e.counted == 0)
        return size;
    out->len = e.start;
    return e.counted + size;
}

void mp_lua_encode(lua_State *L, int index, mp_buf *out)
{
    encode(L, index, out, MP_LUA_ENCODE_MOST, false);
}

size_t mp_lua_encode_most(lua_State *L, int index, mp_buf *out, size_t most)
{
    return encode(L, index, out, most, true);
}
