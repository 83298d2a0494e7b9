/* encode.c: Lua values to JSON text. Raw access only: no script code runs in here except finalizers, which do
 * not change the value. The names of an object are on the Lua stack with their values while they are sorted. Open
 * tables are in an array of frames, not on the C stack, so that encoding can yield between two values. */
#include "vm/json/encode.h"
#include "vm/schedule.h"
#include <lauxlib.h>

/* Throws: the current value cannot be encoded. */
static _Noreturn void fail_encoder(encoder *e, const char *what)
{
    mp_encode_fail_at(e, e->depth, what);
}

/* Throws: the innermost open table cannot be encoded. */
static _Noreturn void fail_table(encoder *e, const char *what)
{
    mp_encode_fail_at(e, e->depth - 1, what);
}

void mp_encode_overflow(encoder *e, size_t more)
{
    if (!e->counts)
        fail_encoder(e, "more than 32 MiB");
    e->counted += e->kept + e->out->len - e->start + more;
    e->out->len = e->start;
    e->kept = 0;
    e->most = e->start + e->limit;
}

static void close_table(encoder *e, char bracket)
{
    mp_buf_putc(e->out, bracket);
    lua_settop(e->L, e->frames[--e->depth].top);
}

static void put_members(encoder *e, frame *f)
{
    while (f->at < f->members) {
        const member *m = &e->members[f->first + f->at];
        if (f->at++ > 0 || f->keep.kept > 0)
            mp_buf_putc(e->out, ',');
        else if (!f->is_preserving)
            mp_buf_putc(e->out, '{');
        mp_json_put_string(e->out, m->name);
        mp_buf_putc(e->out, ':');
        if (mp_encode_value(e, m->slot) || mp_encode_should_look(e))
            return;
    }
    e->count = f->first;
    if (f->is_preserving)
        mp_encode_end_preserving(e, f);
    else
        close_table(e, '}');
}

/* Usually lua_next gives the keys 1..n in order. If not, the keys are counted first, and the elements fetched by
 * index. */
static void put_elements(encoder *e, frame *f)
{
    lua_State *L = e->L;
    for (;;) {
        if (f->has_value) {
            f->has_value = false;
            lua_pop(L, 1);
            if (!lua_next(L, f->slot)) {
                close_table(e, ']');
                return;
            }
        }
        if (!lua_isinteger(L, -2) || lua_tointeger(L, -2) != f->index + 1)
            break;
        mp_buf_putc(e->out, f->index++ == 0 ? '[' : ',');
        f->has_value = true;
        if (mp_encode_value(e, lua_gettop(L)) || mp_encode_should_look(e))
            return;
    }
    lua_pop(L, 2);
    lua_pushnil(L);
    f->phase = COUNT;
    f->count = f->largest = 0;
}

/* Counts the keys of a table, which must be 1..count in any order. The last key is on top of the stack. */
static void count_keys(encoder *e, frame *f)
{
    lua_State *L = e->L;
    while (lua_next(L, f->slot)) {
        lua_Integer key = lua_isinteger(L, -2) ? lua_tointeger(L, -2) : 0;
        if (key < 1)
            fail_table(e, "a table whose keys are neither all strings nor exactly 1..n,");
        lua_pop(L, 1);
        f->count++;
        f->largest = key > f->largest ? key : f->largest;
        if (mp_encode_should_look(e))
            return;
    }
    if (f->largest != f->count)
        fail_table(e, "a list with holes");
    f->phase = FETCH;
}

static void fetch_elements(encoder *e, frame *f)
{
    lua_State *L = e->L;
    for (;;) {
        if (f->has_value)
            lua_pop(L, 1);
        f->has_value = false;
        if (f->index == f->count) {
            close_table(e, ']');
            return;
        }
        mp_buf_putc(e->out, f->index++ == 0 ? '[' : ',');
        lua_rawgeti(L, f->slot, f->index);
        f->has_value = true;
        if (mp_encode_value(e, lua_gettop(L)) || mp_encode_should_look(e))
            return;
    }
}

/* The JSON kind of a table, by its metatable. */
typedef struct {
    bool is_array, is_object;
    mp_json_source *MP_NULLABLE source;
} kind;

/* Reads the metatable on top; the one of a byte-preserving table is replaced by the ordinary one. False if no JSON
 * value has it.  [-1, +1] */
static bool read_metatable(encoder *e, kind *found)
{
    const void *metatable = lua_topointer(e->L, -1);
    found->is_array = metatable == e->array_mt;
    found->is_object = metatable == e->object_mt;
    if (found->is_array || found->is_object)
        return true;
    found->source = mp_json_source_of(e->L);
    found->is_array = found->source != NULL && metatable == found->source->array_mt;
    return found->source != NULL;
}

/* Pushes the metatable of the table at `*index`, if it has one, or, in its place, the source of a byte-preserving
 * table. The metatable of a read-only table names the table to encode instead; `*index` is then the slot of that table.
 * [-0, +0..3] */
static bool push_metatable(encoder *e, int *index, kind *found)
{
    lua_State *L = e->L;
    if (!lua_getmetatable(L, *index))
        return false;
    if (read_metatable(e, found))
        return true;
    lua_pushliteral(L, "__frozen");
    if (lua_rawget(L, -2) == LUA_TTABLE) {
        *index = lua_gettop(L);
        if (!lua_getmetatable(L, *index))
            return false;
        read_metatable(e, found);
        return true;
    }
    lua_pop(L, 1);
    return true;
}

/* A large table that was emptied takes milliseconds to read, and may be in the value many times. So the bytes
 * written must be in proportion to the time. Only each eighth table is checked, because reading the clock costs as
 * much as a small table. An encoder that yields needs no check: its time counts as its call's. */
static void check_time(encoder *e)
{
    if (e->look >= 0) {
        if (mp_task_is_interrupted(e->L))
            e->look = 0;
        return;
    }
    if (++e->tables % FREE_TABLES != 0)
        return;
    uint64_t now_us = mp_clock_us(CLOCK_MONOTONIC);
    if (e->tables == FREE_TABLES) {
        e->look_at_us = now_us + SLACK_US;
        e->began_us = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
    }
    if (now_us < e->look_at_us)
        return;
    uint64_t bytes = e->counted + e->out->len - e->start, most_us = SLACK_US + bytes * BYTE_NS / 1000;
    uint64_t spent_us = mp_clock_us(CLOCK_THREAD_CPUTIME_ID) - e->began_us;
    if (spent_us >= most_us)
        fail_encoder(e, "tables that take too long to read (were large tables emptied?)");
    e->look_at_us = now_us + most_us - spent_us;
}

void mp_encode_check_table(encoder *e, int index)
{
    check_time(e);
    if (e->depth == MP_JSON_DEPTH)
        mp_encode_fail_deep(e, index);
    if (!lua_checkstack(e->L, LUA_MINSTACK))
        fail_encoder(e, "a table this large");
}

/* Opens a frame for the table at `index`. False if the table is empty, and is written already. */
static bool open_table(encoder *e, int index)
{
    lua_State *L = e->L;
    int top = lua_gettop(L), order = 0;
    kind found = {0};
    mp_encode_check_table(e, index);
    if (push_metatable(e, &index, &found)) {
        if (found.source != NULL) {
            if (mp_encode_open_preserving(e, index, top, found.source, found.is_array))
                return true;
        } else if (!found.is_array && !found.is_object) {
            lua_pushliteral(L, "__order");
            if (lua_rawget(L, -2) == LUA_TTABLE)
                order = lua_gettop(L);
        }
    }
    lua_pushnil(L);
    if (!lua_next(L, index)) {
        mp_buf_put(e->out, found.is_array ? MP_STR("[]") : MP_STR("{}"));
        lua_settop(L, top);
        return false;
    }
    bool is_array = found.is_array || (!found.is_object && order == 0 && lua_type(L, -2) != LUA_TSTRING);
    frame *f = &e->frames[e->depth++];
    f->slot = index;
    f->top = top;
    f->order = order;
    f->phase = is_array ? ELEMENTS : GATHER;
    f->has_value = false;
    f->index = 0;
    f->first = e->count;
    f->at = 0;
    f->is_preserving = false;
    f->keep.kept = 0;
    f->keep.names = 0;
    return true;
}

static void put_userdata(encoder *e, int index)
{
    const void *block = lua_touserdata(e->L, index);
    if (lua_islightuserdata(e->L, index)) {
        if (block != NULL && block != &mp_lua_empty_array)
            fail_encoder(e, "a light userdata");
        mp_buf_put(e->out, block == NULL ? MP_STR("null") : MP_STR("[]"));
        return;
    }
    if (luaL_testudata(e->L, index, MP_LUA_RAW) != NULL)
        mp_buf_put(e->out, (mp_str){block, lua_rawlen(e->L, index)});
    else if (luaL_testudata(e->L, index, MP_LUA_SECRET) != NULL)
        mp_buf_put(e->out, MP_STR("\"***\""));
    else
        fail_encoder(e, "a userdata");
}

bool mp_encode_value(encoder *e, int index)
{
    lua_State *L = e->L;
    mp_str text;
    switch (lua_type(L, index)) {
    case LUA_TSTRING:
        text.ptr = lua_tolstring(L, index, &text.len);
        if (text.len > e->most - e->start)
            mp_encode_overflow(e, text.len + 2);
        else if (e->look >= 0 && text.len > PIECE) {
            mp_buf_putc(e->out, '"');
            e->rest = text;
            return true;
        } else
            mp_json_put_string(e->out, text);
        break;
    case LUA_TNUMBER:
        if (lua_isinteger(L, index))
            mp_json_put_int(e->out, lua_tointeger(L, index));
        else if (mp_json_put_double(e->out, lua_tonumber(L, index)) != 0)
            fail_encoder(e, "a number that is not finite");
        break;
    case LUA_TBOOLEAN:
        mp_buf_put(e->out, lua_toboolean(L, index) ? MP_STR("true") : MP_STR("false"));
        break;
    case LUA_TNIL:
        mp_buf_put(e->out, MP_STR("null"));
        break;
    case LUA_TTABLE:
        if (open_table(e, index))
            return true;
        break;
    case LUA_TLIGHTUSERDATA:
    case LUA_TUSERDATA:
        put_userdata(e, index);
        break;
    default:
        fail_encoder(e, lua_type(L, index) == LUA_TFUNCTION ? "a function" : "a coroutine");
    }
    if (e->out->len > e->most)
        mp_encode_overflow(e, 0);
    return false;
}

/* The next piece of a long string. It ends between two characters if the string is UTF-8. */
static void put_piece(encoder *e)
{
    size_t len = e->rest.len < PIECE ? e->rest.len : PIECE;
    for (size_t back = 0; len < e->rest.len && back < 3 && ((unsigned char)e->rest.ptr[len] & 0xc0) == 0x80; back++)
        len--;
    mp_json_put_text(e->out, (mp_str){e->rest.ptr, len});
    e->rest = mp_str_from(e->rest, len);
    if (e->rest.len == 0)
        mp_buf_putc(e->out, '"');
    e->look = 0;
}

/* Writes until the outermost value is complete (then true), or other tasks have to run. */
static bool run_encoder(encoder *e)
{
    static void (*const steps[])(encoder *, frame *) = {
        [ELEMENTS] = put_elements,
        [COUNT] = count_keys,
        [FETCH] = fetch_elements,
        [GATHER] = mp_encode_gather,
        [SORT] = mp_encode_sort,
        [RANK] = mp_encode_rank,
        [MEMBERS] = put_members,
        [KEPT_MEMBERS] = mp_encode_kept_members,
        [COUNT_MEMBERS] = mp_encode_count_members,
        [LIST_NAMES] = mp_encode_list_names,
        [KEPT_ELEMENTS] = mp_encode_kept_elements,
        [ADDED_ELEMENTS] = mp_encode_added_elements,
        [COUNT_ELEMENTS] = mp_encode_count_elements,
    };
    while ((e->depth > 0 || e->rest.len > 0) && e->counted <= MP_MAX_ENCODED_BYTES) {
        if (e->rest.len > 0) {
            put_piece(e);
        } else {
            frame *f = &e->frames[e->depth - 1];
            steps[f->phase](e, f);
        }
        if (e->out->len > e->most)
            mp_encode_overflow(e, 0);
        if (e->look < 0)
            continue;
        if (e->look == 0) {
            e->look = LOOK;
            if (mp_task_should_turn(e->L))
                return false;
        }
    }
    return true;
}

static void init_encoder(encoder *e, lua_State *L, mp_buf *out, size_t most, bool counts)
{
    luaL_checkstack(L, LUA_MINSTACK, "JSON");
    e->L = L;
    e->base = lua_gettop(L);
    lua_settop(L, e->base + MORE);
    e->out = out;
    e->start = out->len;
    e->limit = most;
    e->most = e->start + most;
    e->kept = e->kept_cap = 0;
    e->rest = MP_STR_NONE;
    e->counts = counts;
    e->counted = 0;
    e->tables = 0;
    e->look = -1;
    e->depth = 0;
    e->count = 0;
    e->cap = MEMBERS_INLINE;
    e->members = e->few;
}

void mp_lua_encode(lua_State *L, int index, mp_buf *out)
{
    encoder e; /* not cleared: the arrays take 16 KiB */
    index = lua_absindex(L, index);
    mp_lua_push_array_mt(L);
    mp_lua_push_object_mt(L);
    e.array_mt = lua_topointer(L, -2); /* the registry holds a reference to the userdata */
    e.object_mt = lua_topointer(L, -1);
    lua_pop(L, 2);
    init_encoder(&e, L, out, MP_MAX_ENCODED_BYTES, false);
    mp_encode_value(&e, index);
    run_encoder(&e);
    lua_settop(L, e.base);
}

/* -- in turns ---------------------------------------------------------------------------------------------------- */

/* Moves the text in `out`, which other tasks use meanwhile, to the userdata in slot KEPT. */
static void keep_encoder(encoder *e)
{
    lua_State *L = e->L;
    size_t size = e->out->len - e->start;
    if (e->counted > 0) { /* the text is over the limit and not needed */
        e->counted += size;
        e->out->len = e->start;
        return;
    }
    if (e->kept + size > e->kept_cap) {
        size_t cap = e->kept_cap * 2 > e->kept + size ? e->kept_cap * 2 : e->kept + size;
        char *more = lua_newuserdatauv(L, cap, 0);
        if (e->kept > 0)
            memcpy(more, lua_touserdata(L, e->base + KEPT), e->kept);
        lua_replace(L, e->base + KEPT);
        e->kept_cap = cap;
    }
    if (size > 0)
        memcpy((char *)lua_touserdata(L, e->base + KEPT) + e->kept, e->out->ptr + e->start, size);
    e->kept += size;
    e->out->len = e->start;
}

static int go_on(lua_State *L, int status, lua_KContext context);

static int turn_encoder(encoder *e)
{
    keep_encoder(e);
    mp_task_turn(e->L);
    return lua_yieldk(e->L, 0, (lua_KContext)e, go_on);
}

/* The text is in `out`; or, after a yield, in KEPT, which stays on the stack until `done` has read the text. */
static int end_encoder(encoder *e)
{
    lua_State *L = e->L;
    mp_buf *out = e->out;
    size_t start = e->start, size = e->counted + e->kept + out->len - start;
    mp_str text = MP_STR_NONE;
    if (e->counted > 0) {
        out->len = start;
    } else if (e->kept > 0) {
        keep_encoder(e);
        text = (mp_str){lua_touserdata(L, e->base + KEPT), size};
    } else {
        text = (mp_str){out->ptr + start, size};
    }
    lua_settop(L, e->base + KEPT);
    int count = e->done(L, e->done_ctx, text, size); /* `e` may be freed after this call */
    out->len = start;
    return count;
}

static int go_on(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    encoder *e = (encoder *)context;
    e->L = L;
    e->start = e->out->len;
    e->most = e->start + e->limit - e->kept;
    return run_encoder(e) ? end_encoder(e) : turn_encoder(e);
}

bool mp_lua_can_encode_in_turns(lua_State *L)
{
    return mp_vm_of(L)->state.may_wait && lua_isyieldable(L);
}

int mp_lua_encode_in_turns(lua_State *L, int index, size_t most, mp_lua_encoded done, void *MP_NULLABLE ctx)
{
    encoder e;
    index = lua_absindex(L, index);
    mp_vm *vm = mp_vm_of(L);
    e.array_mt = vm->state.array_mt;
    e.object_mt = vm->state.object_mt;
    init_encoder(&e, L, &vm->state.out, most == 0 ? MP_MAX_ENCODED_BYTES : most, most != 0);
    e.look = LOOK;
    e.done = done;
    e.done_ctx = ctx;
    mp_encode_value(&e, index);
    if (run_encoder(&e))
        return end_encoder(&e);
    encoder *saved = lua_newuserdatauv(L, sizeof e, 0);
    memcpy(saved, &e, offsetof(encoder, frames) + e.depth * sizeof(frame));
    if (e.members == e.few)
        saved->members = saved->few;
    lua_replace(L, e.base + SAVED);
    return turn_encoder(saved);
}
