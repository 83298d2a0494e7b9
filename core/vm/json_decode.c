/* json_decode.c: JSON text to Lua values. The elements of an array or object gather on the Lua stack in batches, so
 * that the table is made in its final size. Open arrays and objects are in an array of frames, not on the C stack,
 * so that decoding can yield between two values. No memory here needs to be freed: an error may be thrown anywhere. */
#include "vm/lua_json.h"
#include "vm/task.h"
#include <lauxlib.h>

enum { BATCH = 16, LOOK = 32 }; /* values between two checks whether other tasks wait */

/* An array or object that is being read. */
typedef struct {
    int slot;   /* slot of the table on the Lua stack; nil until the first batch is stored */
    int stored; /* number of elements or members in the table */
    int held; /* number of elements or members on the stack above `slot`; each value of an object has its name below it */
    bool is_object;
    const char *names[BATCH]; /* positions in the text of the names of the held members */
} frame;

typedef struct {
    lua_State *L; /* the coroutine that decodes */
    mp_json_cursor cursor;
    int base; /* height of the stack before decoding; the slots `saved` and the metatable of arrays follow */
    int look; /* number of values until the next check whether other tasks wait; negative: never yields */
    const char *repeated; /* one position of a key that its object has twice */
    mp_lua_decoded done;  /* function that is called at the end, and its context: see mp_lua_decode_in_turns */
    void *done_ctx;
    int depth; /* number of frames in use */
    frame frames[MP_JSON_DEPTH + 1];
} decoder;

enum {
    SAVED = 1,
    ARRAY_MT,
    VALUE
}; /* Slots above `base`. SAVED: nil, or a userdata with the decoder, once it has yielded. */

typedef enum { COMPLETE, PAUSED, REPEATED } outcome;

/* Not inlined, so that not every caller has the buffer on its C stack. */
static __attribute__((noinline)) void push_escaped(lua_State *L, mp_str inside)
{
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, inside.len);
    luaL_pushresultsize(&buffer, mp_json_copy_string(to, (mp_str){inside.ptr - 1, inside.len + 2}));
}

static void push_string(decoder *d, mp_json_token token)
{
    if (token.escaped)
        push_escaped(d->L, token.span);
    else
        lua_pushlstring(d->L, token.span.ptr, token.span.len);
}

/* Makes the table at the frame's slot, with room for the held elements. */
static void make_table(decoder *d, const frame *f)
{
    lua_createtable(d->L, f->is_object ? 0 : f->held, f->is_object ? f->held : 0);
    if (!f->is_object) {
        lua_pushvalue(d->L, d->base + ARRAY_MT);
        lua_setmetatable(d->L, -2);
    }
    lua_replace(d->L, f->slot);
}

/* Moves the held elements into the table. False if a name is in the table already. */
static bool store(decoder *d, frame *f)
{
    lua_State *L = d->L;
    if (f->stored == 0)
        make_table(d, f);
    int held = f->held;
    f->stored += held;
    f->held = 0;
    if (!f->is_object) {
        for (int i = 0; i < held; i++)
            lua_rawseti(L, f->slot, f->stored - i);
        return true;
    }
    while (held-- > 0) {
        lua_pushvalue(L, -2);
        if (lua_rawget(L, f->slot) != LUA_TNIL) {
            d->repeated = f->names[held];
            return false;
        }
        lua_pop(L, 1);
        lua_rawset(L, f->slot);
    }
    return true;
}

static void open_frame(decoder *d, bool is_object)
{
    frame *f = &d->frames[++d->depth];
    luaL_checkstack(d->L, 2 * BATCH + LUA_MINSTACK, "JSON");
    lua_pushnil(d->L);
    f->slot = lua_gettop(d->L);
    f->stored = f->held = 0;
    f->is_object = is_object;
}

/* Pushes a value that is neither array nor object. */
static void push_scalar(decoder *d, mp_json_token token)
{
    int64_t n;
    switch (token.type) {
    case MP_JSON_T_STRING:
        push_string(d, token);
        break;
    case MP_JSON_T_INTEGER:
        if (mp_json_int(token.span, &n)) {
            lua_pushinteger(d->L, n);
            break;
        }
        /* fall through */
    case MP_JSON_T_FLOAT:
        lua_pushnumber(d->L, mp_json_double(token.span));
        break;
    case MP_JSON_T_TRUE:
    case MP_JSON_T_FALSE:
        lua_pushboolean(d->L, token.type == MP_JSON_T_TRUE);
        break;
    default:
        mp_lua_push_null(d->L);
    }
}

/* Decodes until the outermost value is complete, or other tasks have to run. frames[0] represents the container of
 * that value. */
static outcome run(decoder *d)
{
    while (d->frames[0].held == 0) {
        frame *f = &d->frames[d->depth];
        if (d->look-- == 0) {
            d->look = LOOK;
            if (mp_task_should_turn(d->L))
                return PAUSED;
        }
        if (f->held == BATCH && !store(d, f))
            return REPEATED;
        mp_json_token token = mp_json_next(&d->cursor);
        if (token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT) {
            if ((f->held > 0 || f->stored == 0) && !store(d, f))
                return REPEATED;
            d->frames[--d->depth].held++;
            continue;
        }
        if (f->is_object) {
            f->names[f->held] = token.span.ptr - 1;
            push_string(d, token);
            token = mp_json_next(&d->cursor);
        }
        if (token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT) {
            open_frame(d, token.type == MP_JSON_T_OPEN_OBJECT);
        } else {
            push_scalar(d, token);
            f->held++;
        }
    }
    return COMPLETE;
}

/* Leaves only the value on the stack, above its former height; if a key is repeated, nothing. */
static void clean_up(decoder *d, outcome result)
{
    if (result == COMPLETE)
        lua_replace(d->L, d->base + 1);
    lua_settop(d->L, d->base + (result == COMPLETE));
}

static void init(decoder *d, lua_State *L, mp_str text)
{
    luaL_checkstack(L, LUA_MINSTACK, "JSON");
    d->L = L;
    d->cursor = (mp_json_cursor){text.ptr, text.ptr + text.len};
    d->base = lua_gettop(L);
    d->look = -1;
    d->repeated = NULL;
    d->depth = 0;
    d->frames[0].held = d->frames[0].stored = 0;
    d->frames[0].is_object = false;
    lua_pushnil(L);
    mp_lua_push_array_mt(L);
}

/* Returns NULL and pushes the value; or returns the position of a repeated key. */
static const char *decode(lua_State *L, mp_str text)
{
    decoder d; /* not cleared: the frames take 18 KiB */
    init(&d, L, text);
    clean_up(&d, run(&d));
    return d.repeated;
}

int mp_lua_decode(lua_State *L, mp_str text)
{
    return decode(L, text) == NULL ? 0 : MP_JSON_REPEATED;
}

int mp_lua_decode_checked(lua_State *L, mp_str text, mp_json_fault *fault)
{
    mp_json_result result = mp_json_scan(text, NULL, NULL, fault);
    if (result != MP_JSON_OK)
        return result;
    const char *repeated = decode(L, text);
    if (repeated == NULL)
        return 0;
    if (fault != NULL)
        *fault = (mp_json_fault){"repeated key", (size_t)(repeated - text.ptr)};
    return MP_JSON_REPEATED;
}

/* -- in turns ---------------------------------------------------------------------------------------------------- */

static int go_on(lua_State *L, int status, lua_KContext context);

/* Ends, or yields. `d` is the decoder in its permanent memory. */
static int finish(decoder *d, outcome result)
{
    if (result == PAUSED) {
        mp_task_turn(d->L);
        return lua_yieldk(d->L, 0, (lua_KContext)d, go_on);
    }
    /* after the next line, the userdata that holds `d` may be collected */
    lua_State *L = d->L;
    mp_lua_decoded done = d->done;
    void *ctx = d->done_ctx;
    const char *repeated = result == COMPLETE ? NULL : d->repeated;
    clean_up(d, result);
    return done(L, ctx, repeated);
}

static int go_on(lua_State *L, int status, lua_KContext context)
{
    decoder *d = (decoder *)context;
    (void)status;
    d->L = L;
    return finish(d, run(d));
}

int mp_lua_decode_in_turns(lua_State *L, mp_str text, mp_lua_decoded done, void *ctx)
{
    decoder d;
    init(&d, L, text);
    d.look = LOOK;
    d.done = done;
    d.done_ctx = ctx;
    outcome result = run(&d);
    if (result != PAUSED)
        return finish(&d, result);
    decoder *kept = lua_newuserdatauv(L, sizeof d, 0);
    memcpy(kept, &d, sizeof d - sizeof d.frames + (size_t)(d.depth + 1) * sizeof(frame));
    lua_replace(L, d.base + SAVED);
    return finish(kept, PAUSED);
}
