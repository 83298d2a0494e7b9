/* decode.c: JSON text to Lua values. The elements of an array or object gather on the Lua stack in batches, so
 * that the table is made in its final size. Open arrays and objects are in an array of frames, not on the C stack,
 * so that decoding can yield between two values. source.h says what byte-preserving tables are. No memory here needs to
 * be freed: an error may be thrown anywhere. */
#include "vm/closing.h"
#include "vm/json/source.h"
#include <float.h>
#include <lauxlib.h>
#include <math.h>

enum { BATCH = 16, LOOK = 32 }; /* values between two checks whether other tasks wait */
enum { LONG = 256 << 10 };      /* bytes of a token that is found in one turn, and read in another */

/* An array or object that is being read. */
typedef struct {
    int slot;   /* slot of the table on the Lua stack; nil until the first batch is stored */
    int stored; /* number of elements or members in the table */
    int held; /* number of elements or members on the stack above `slot`; each value of an object has its name below it
               */
    bool is_object;
    uint32_t place;           /* byte-preserving tables: the number of the array or object in the source */
    const char *names[BATCH]; /* positions in the text of the names of the held members */
} frame;

typedef struct {
    lua_State *L; /* the coroutine that decodes */
    mp_json_cursor cursor;
    mp_str text;
    int base; /* height of the stack before decoding; the slots SAVED to OBJECT_MT follow */
    int look; /* number of values until the next check whether other tasks wait; negative: never yields */
    bool has_waiting, has_name; /* `waiting` is read next; the name of the next member is on the stack */
    mp_json_token waiting;
    const char *MP_NULLABLE repeated;   /* one position of a key that its object has twice */
    mp_json_source *MP_NULLABLE source; /* of byte-preserving tables; NULL: the tables are ordinary ones */
    mp_lua_table_kind kind;
    mp_lua_decoded done; /* function that is called at the end, and its context: see mp_lua_decode_in_turns */
    void *done_ctx;
    int depth; /* number of frames in use */
    frame frames[MP_JSON_DEPTH + 1];
} decoder;

enum {
    SAVED = 1,
    ARRAY_MT,
    OBJECT_MT,
    VALUE
}; /* Slots above `base`. SAVED: nil, or a userdata with the decoder, once it has yielded. OBJECT_MT: nil, or the
      metatable of byte-preserving objects. */

typedef enum { COMPLETE, PAUSED, REPEATED, INEXACT } outcome;

/* Pushes a string that has escapes. Not inlined, since the buffer would then take space on the C stack of every caller.
 */
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
    if (d->source != NULL)
        d->source->places[f->place].table = lua_topointer(d->L, -1);
    if (!f->is_object || d->source != NULL) {
        lua_pushvalue(d->L, d->base + (f->is_object ? OBJECT_MT : ARRAY_MT));
        lua_setmetatable(d->L, -2);
    }
    lua_replace(d->L, f->slot);
}

/* Moves the held elements into the table. False if a name is in the table already. */
static bool store_value(decoder *d, frame *f)
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

static void open_frame(decoder *d, mp_json_token bracket)
{
    frame *f = &d->frames[++d->depth];
    bool is_object = bracket.type == MP_JSON_T_OPEN_OBJECT;
    luaL_checkstack(d->L, 2 * BATCH + LUA_MINSTACK, "JSON");
    if (d->source != NULL)
        f->place = mp_json_source_add(d->L, d->source, d->base + OBJECT_MT, bracket.span.ptr);
    lua_pushnil(d->L);
    f->slot = lua_gettop(d->L);
    f->stored = f->held = 0;
    f->is_object = is_object;
}

/* The bracket of the innermost array or object was read: it ends before the cursor. */
static void close_frame(decoder *d, const frame *f)
{
    if (d->source != NULL) {
        mp_json_place *place = &d->source->places[f->place];
        place->to = (uint32_t)(d->cursor.at - d->source->text.ptr);
        place->next = d->source->count;
    }
    d->frames[--d->depth].held++;
}

/* True if the number loses digits as the double that was made of it. Most lexemes are short, and need no look at their
 * digits. */
static bool is_inexact(mp_str lexeme, double n)
{
    return (lexeme.len > DBL_DIG || !isnormal(n)) && !mp_json_is_exact(lexeme, n);
}

/* Pushes a value that is neither array nor object. False if it is a number that would lose digits, and the decoder is
 * to notice that. */
static bool push_scalar(decoder *d, mp_json_token token)
{
    int64_t n;
    double x;
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
        x = mp_json_double(token.span);
        lua_pushnumber(d->L, x);
        return (d->kind != MP_LUA_EXACT && d->kind != MP_LUA_STRICT) || !is_inexact(token.span, x);
    case MP_JSON_T_TRUE:
    case MP_JSON_T_FALSE:
        lua_pushboolean(d->L, token.type == MP_JSON_T_TRUE);
        break;
    default:
        mp_lua_push_null(d->L);
    }
    return true;
}

/* Finds the next token. False if it is a long one, which waits because other tasks have to run. */
static inline bool next_token(decoder *d, mp_json_token *token)
{
    if (d->has_waiting) {
        d->has_waiting = false;
        *token = d->waiting;
        return true;
    }
    *token = mp_json_next(&d->cursor);
    if (token->span.len <= LONG || d->look < 0 || !mp_task_should_turn(d->L))
        return true;
    d->waiting = *token;
    d->has_waiting = true;
    return false;
}

/* Decodes until the outermost value is complete, or other tasks have to run. frames[0] represents the container of
 * that value. */
static outcome run_decoder(decoder *d)
{
    while (d->frames[0].held == 0) {
        frame *f = &d->frames[d->depth];
        if (d->look-- == 0) {
            d->look = LOOK;
            if (mp_task_should_turn(d->L))
                return PAUSED;
        }
        if (f->held == BATCH && !store_value(d, f))
            return REPEATED;
        mp_json_token token;
        if (!next_token(d, &token))
            return PAUSED;
        if (token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT) {
            if ((f->held > 0 || f->stored == 0) && !store_value(d, f))
                return REPEATED;
            close_frame(d, f);
            continue;
        }
        if (f->is_object && !d->has_name) {
            f->names[f->held] = token.span.ptr - 1;
            push_string(d, token);
            d->has_name = true;
            if (!next_token(d, &token))
                return PAUSED;
        }
        d->has_name = false;
        if (token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT) {
            open_frame(d, token);
        } else {
            if (!push_scalar(d, token))
                return INEXACT;
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

/* Pushes the values of the slots, for a decoder that begins at the first byte of the text. */
static void begin_decoder(decoder *d)
{
    lua_State *L = d->L;
    d->look = d->look < 0 ? -1 : LOOK;
    d->has_waiting = d->has_name = false;
    d->depth = 0;
    d->frames[0].held = d->frames[0].stored = 0;
    d->frames[0].is_object = false;
    d->source = NULL;
    d->cursor = (mp_json_cursor){d->text.ptr, d->text.ptr + d->text.len};
    if (d->kind != MP_LUA_PRESERVING) {
        mp_lua_push_array_mt(L);
        lua_pushnil(L);
        return;
    }
    mp_json_source *source = mp_json_source_push(L, d->text);
    d->cursor = (mp_json_cursor){source->text.ptr, source->text.ptr + source->text.len};
    d->source = source;
    lua_insert(L, -2); /* on the stack: objects, arrays becomes ARRAY_MT, OBJECT_MT */
}

static void init_decoder(decoder *d, lua_State *L, mp_str text, mp_lua_table_kind kind)
{
    luaL_checkstack(L, LUA_MINSTACK, "JSON");
    d->L = L;
    d->text = text;
    d->kind = text.len < UINT32_MAX ? kind : MP_LUA_PLAIN;
    d->base = lua_gettop(L);
    d->look = -1;
    d->repeated = NULL;
    lua_pushnil(L);
    begin_decoder(d);
}

/* Decodes as run_decoder() does, and begins again with byte-preserving tables where a number would lose digits. */
static outcome run_preserving(decoder *d)
{
    outcome result = run_decoder(d);
    if (result == INEXACT && d->kind == MP_LUA_EXACT) {
        lua_settop(d->L, d->base + SAVED);
        d->kind = MP_LUA_PRESERVING;
        begin_decoder(d);
        result = run_decoder(d);
    }
    if (result == REPEATED && d->source != NULL)
        d->repeated = d->text.ptr + (d->repeated - d->source->text.ptr);
    return result;
}

/* Pushes the value, unless the result is an error. `*repeated` gets the position of a repeated key, or NULL. */
static int decode_text(lua_State *L, mp_str text, mp_lua_table_kind kind, const char *MP_NULLABLE *repeated)
{
    decoder d; /* not cleared: the frames take 18 KiB */
    init_decoder(&d, L, text, kind);
    outcome result = run_preserving(&d);
    clean_up(&d, result);
    *repeated = d.repeated;
    return result == COMPLETE ? 0 : result == REPEATED ? MP_JSON_REPEATED : MP_JSON_STOPPED;
}

int mp_lua_decode_with(lua_State *L, mp_str text, mp_lua_table_kind kind)
{
    const char *repeated;
    return decode_text(L, text, kind, &repeated);
}

int mp_lua_decode(lua_State *L, mp_str text)
{
    return mp_lua_decode_with(L, text, MP_LUA_PLAIN);
}

int mp_lua_decode_checked(lua_State *L, mp_str text, mp_lua_table_kind kind, mp_json_fault *MP_NULLABLE fault)
{
    mp_json_result result = mp_json_scan(text, NULL, NULL, fault);
    if (result != MP_JSON_OK)
        return result;
    const char *repeated;
    int status = decode_text(L, text, kind, &repeated);
    if (status == MP_JSON_REPEATED && fault != NULL)
        *fault = (mp_json_fault){"repeated key", (size_t)(repeated - text.ptr)};
    return status;
}

/* -- in turns ---------------------------------------------------------------------------------------------------- */

static int go_on(lua_State *L, int status, lua_KContext context);

/* Ends, or yields. `d` is the decoder in its permanent memory. */
static int finish_decoder(decoder *d, outcome result)
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

static int go_on(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    decoder *d = (decoder *)context;
    mp_closing_after_wait(L); /* called before the text is read: the text of a cancelled task may be freed already */
    d->L = L;
    return finish_decoder(d, run_preserving(d));
}

int mp_lua_decode_in_turns(lua_State *L, mp_str text, mp_lua_table_kind kind, mp_lua_decoded done, void *ctx)
{
    decoder d;
    init_decoder(&d, L, text, kind);
    d.look = LOOK;
    d.done = done;
    d.done_ctx = ctx;
    outcome result = run_preserving(&d);
    if (result != PAUSED)
        return finish_decoder(&d, result);
    decoder *kept = lua_newuserdatauv(L, sizeof d, 0);
    memcpy(kept, &d, sizeof d - sizeof d.frames + (size_t)(d.depth + 1) * sizeof(frame));
    lua_replace(L, d.base + SAVED);
    return finish_decoder(kept, PAUSED);
}
