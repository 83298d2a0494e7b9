/* store.c: the Lua functions of the key-value store of the process, and of Base64. */
#include "lib/bindings.h"
#include "data/data.h"
#include <lauxlib.h>
#include <math.h>

#define MAX_REUSED_SCRATCH_BYTES ((size_t)64 << 10) /* a buffer above this size is freed after use */
#define MAX_TTL_MS 1e12

MP_COUNTER(store_locks_lost, "store_locks_lost", "", "",
           "locks of scripts and jobs of a cluster that ended before their function: not renewed in time, or taken by "
           "others")

/* -- the store --------------------------------------------------------------------------------------------------- */

/* The store that has the key, or the keys that begin with it. */
static mp_store *store_of(lua_State *L, mp_str key)
{
    mp_store *store = lua_touserdata(L, lua_upvalueindex(1));
    return mp_str_starts(key, MP_STR(MP_STORE_NEAR_PREFIX)) ? mp_store_near(store) : store;
}

/* The time to live at `index`, seconds, in ms.  [-0, +0, throws] */
static uint64_t opt_ttl_ms(lua_State *L, int index)
{
    if (lua_isnoneornil(L, index))
        return MP_STORE_FOREVER;
    double seconds = luaL_checknumber(L, index);
    luaL_argcheck(L, seconds > 0, index, "the time to live must be above 0 seconds");
    return seconds * 1000 > MAX_TTL_MS ? (uint64_t)MAX_TTL_MS : (uint64_t)ceil(seconds * 1000);
}

/* An empty buffer for a value that is read from the store. Its content is valid until the next scratch_of(). */
static mp_buf *scratch_of(lua_State *L)
{
    mp_buf *scratch = &mp_state_of(mp_vm_of(L))->scratch;
    if (scratch->cap > MAX_REUSED_SCRATCH_BYTES)
        mp_buf_clear(scratch);
    scratch->len = 0;
    return scratch;
}

/* Pushes true; false if the key existed; or nil and WHY: "full", "unavailable" or "unknown".  [-0, +1|2, throws] */
static int push_result(lua_State *L, mp_store_result result)
{
    static const char *const whys[] = {
        [MP_STORE_FULL] = "full", [MP_STORE_AWAY] = "unavailable", [MP_STORE_UNKNOWN] = "unknown"};
    if (whys[result] != NULL) {
        lua_pushnil(L);
        lua_pushstring(L, whys[result]);
        return 2;
    }
    lua_pushboolean(L, result == MP_STORE_DONE);
    return 1;
}

/* Pushes the results of an operation.  [-0, +1|2, throws] */
typedef int (*push_answer)(lua_State *L, mp_store_result result, int64_t n, const mp_buf *text);

/* An operation on a store that is elsewhere, in the task that waits for it. */
typedef struct {
    mp_owning_op super;
    mp_store_later *MP_NULLABLE later;
    push_answer push;
} waiting;

static void drop_later(waiting *it)
{
    if (it->later != NULL)
        mp_store_later_drop(it->later);
    it->later = NULL;
}

static void on_cancel(mp_op *op)
{
    drop_later(mp_container(op, waiting, super.super));
}

static void on_release(mp_resource *resource)
{
    drop_later(mp_container(resource, waiting, super.resource));
}

static void on_done(void *ctx)
{
    mp_op_done(ctx);
}

static int push_later(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    waiting *it = lua_touserdata(L, (int)context);
    mp_store_answer answer = mp_store_later_take(MP_NEVER_NULL(it->later)); /* there is one until here */
    it->later = NULL;
    mp_buf *text = scratch_of(L); /* owns the answer: pushing it may throw */
    mp_buf_clear(text);
    *text = answer.text;
    return it->push(L, answer.result, answer.n, text);
}

/* False: the store is elsewhere, and the task may wait for it. Where nothing may wait, the thread does, for 50 ms at
 * most: while scripts load, in functions that C calls, and in `<close>` handlers of a call that was cancelled. */
static bool is_answered_now(lua_State *L, mp_store *store)
{
    return mp_store_is_own(store) || !mp_op_may_wait(L);
}

/* Does the operation and pushes its results.  [-0, +1|2, throws, parks] */
static int operate(lua_State *L, const mp_store_operation *operation, push_answer push)
{
    mp_store *store = store_of(L, operation->key);
    if (is_answered_now(L, store)) {
        mp_buf *text = scratch_of(L);
        int64_t n = 0;
        mp_store_result result = mp_store_do(store, operation, text, &n);
        return push(L, result, n, text);
    }
    waiting *it = mp_owning_op_new(L, sizeof *it, on_cancel, on_release);
    mp_op *op = &it->super.super;
    it->push = push;
    it->later = mp_store_begin(store, op->loop, operation, on_done, op);
    return mp_op_park_then(L, op, push_later, lua_gettop(L));
}

#define OPERATION(what, ...) (&(mp_store_operation){.kind = MP_STORE_##what, __VA_ARGS__})

static int push_done(lua_State *L, mp_store_result result, MP_UNUSED int64_t n, MP_UNUSED const mp_buf *text)
{
    return push_result(L, result);
}

static int push_number(lua_State *L, mp_store_result result, int64_t n, MP_UNUSED const mp_buf *text)
{
    if (result == MP_STORE_NO_NUMBER)
        return luaL_error(L, "the text of this key is not a whole number");
    if (result != MP_STORE_DONE)
        return push_result(L, result);
    lua_pushinteger(L, n);
    return 1;
}

static int push_text(lua_State *L, mp_store_result result, MP_UNUSED int64_t n, const mp_buf *text)
{
    if (result == MP_STORE_AWAY)
        return push_result(L, result);
    if (result == MP_STORE_DONE)
        lua_pushlstring(L, text->ptr == NULL ? "" : text->ptr, text->len);
    else
        lua_pushnil(L);
    return 1;
}

static int push_wait(lua_State *L, mp_store_result result, int64_t n, MP_UNUSED const mp_buf *text)
{
    int pushed = push_result(L, result);
    if (result != MP_STORE_THERE)
        return pushed;
    lua_pushnumber(L, (lua_Number)n / 1e6);
    return 2;
}

/* store.set(key, text[, seconds]): stores the text, for `seconds` if given. True; or nil and WHY.  [-0, +1|2, throws,
 * parks] */
static int l_set(lua_State *L)
{
    mp_str key = mp_check_str(L, 1), text = mp_check_str(L, 2);
    return operate(L, OPERATION(SET, .key = key, .text = text, .number = opt_ttl_ms(L, 3)), push_done);
}

/* store.add(key, text[, seconds]): stores the text if the key does not exist. True; false if the key exists; or nil,
 * WHY.  [-0, +1|2, throws, parks] */
static int l_add(lua_State *L)
{
    mp_str key = mp_check_str(L, 1), text = mp_check_str(L, 2);
    return operate(L, OPERATION(SET, .key = key, .text = text, .number = opt_ttl_ms(L, 3), .n = true), push_done);
}

/* store.cas(key, old, text[, seconds]): stores the text if the key has the text `old`, or none if `old` is false; for
 * `seconds`, else the time to live stays. With `text` false the key is deleted. True; false if the key has another
 * text, or none; or nil and WHY.  [-0, +1|2, throws, parks] */
static int l_cas(lua_State *L)
{
    mp_str key = mp_check_str(L, 1), old = lua_toboolean(L, 2) ? mp_check_str(L, 2) : MP_STR_NONE;
    mp_str text = lua_isboolean(L, 3) && !lua_toboolean(L, 3) ? MP_STR_NONE : mp_check_str(L, 3);
    uint64_t life_ms = lua_isnoneornil(L, 4) ? MP_STORE_SAME_LIFE : opt_ttl_ms(L, 4);
    mp_store_operation it = mp_store_cas_operation(key, old, text, life_ms);
    return operate(L, &it, push_done);
}

/* store.lock(key, seconds): takes the lock for `seconds`. Its fence, which the key's text is; false if it is taken; or
 * nil and WHY.  [-0, +1|2, throws, parks] */
static int l_lock(lua_State *L)
{
    return operate(L, OPERATION(LOCK, .key = mp_check_str(L, 1), .number = opt_ttl_ms(L, 2)), push_number);
}

/* store.lost(): a function has lost its lock, which is counted.  [-0, +0] */
static int l_lost(MP_UNUSED lua_State *L)
{
    mp_stat_add(&mp_stat_store_locks_lost, 1);
    return 0;
}

/* store.set_locked(key, text, lock, fence[, seconds]): like store.set, if the lock has this fence; else false.  [-0,
 * +1|2, throws, parks] */
static int l_set_locked(lua_State *L)
{
    mp_str key = mp_check_str(L, 1), text = mp_check_str(L, 2), lock = mp_check_str(L, 3);
    return operate(L,
                   OPERATION(SET_LOCKED, .key = key, .text = text, .old = lock, .n = luaL_checkinteger(L, 4),
                             .number = opt_ttl_ms(L, 5)),
                   push_done);
}

/* store.get(key): the key's text; nil; or nil, "unavailable".  [-0, +1|2, throws, parks] */
static int l_get(lua_State *L)
{
    return operate(L, OPERATION(GET, .key = mp_check_str(L, 1)), push_text);
}

/* store.delete(key): removes the key, if it exists. True; or nil and WHY.  [-0, +1|2, throws, parks] */
static int l_delete(lua_State *L)
{
    return operate(L, OPERATION(DELETE, .key = mp_check_str(L, 1)), push_done);
}

#define KEYS 3 /* stack index of the list that l_keys returns */

/* Appends the keys of mp_store_keys to the list, behind its first `count`.  [-0, +0, throws] */
static void put_keys(lua_State *L, lua_Integer count, const mp_buf *keys)
{
    uint32_t len;
    for (size_t at = 0; at < keys->len; at += sizeof len + len) {
        memcpy(&len, keys->ptr + at, sizeof len);
        lua_pushlstring(L, keys->ptr + at + sizeof len, len);
        lua_rawseti(L, KEYS, ++count);
    }
}

static int push_no_keys(lua_State *L)
{
    lua_newtable(L);
    lua_pushliteral(L, "unavailable");
    return 2;
}

static int push_all_keys(lua_State *L, mp_store_result result, int64_t count, const mp_buf *keys);

/* Adds the keys behind those of the list, until there are enough, or no more. Stack: 1 the prefix, 2 the most, 3 the
 * list.  [-0, +1|2, throws, parks] */
static int add_keys(lua_State *L)
{
    mp_str prefix = mp_check_str(L, 1);
    lua_Integer all, most = lua_tointeger(L, 2);
    while ((all = (lua_Integer)lua_rawlen(L, KEYS)) < most) {
        mp_store_operation it = {.kind = MP_STORE_KEYS, .key = prefix, .number = (uint64_t)(most - all), .n = all > 0};
        if (lua_rawgeti(L, KEYS, all) == LUA_TSTRING)
            it.old = mp_check_str(L, -1); /* the list keeps it */
        lua_settop(L, KEYS);
        if (!is_answered_now(L, store_of(L, prefix)))
            return operate(L, &it, push_all_keys);
        mp_buf *keys = scratch_of(L);
        int64_t count = 0;
        if (mp_store_do(store_of(L, prefix), &it, keys, &count) != MP_STORE_DONE)
            return push_no_keys(L);
        if (count == 0)
            break;
        put_keys(L, all, keys);
    }
    return 1;
}

static int push_all_keys(lua_State *L, mp_store_result result, int64_t count, const mp_buf *keys)
{
    if (result != MP_STORE_DONE)
        return push_no_keys(L);
    lua_settop(L, KEYS);
    if (count == 0)
        return 1;
    put_keys(L, (lua_Integer)lua_rawlen(L, KEYS), keys);
    return add_keys(L);
}

/* store.keys(prefix[, most]): a sorted list of at most `most` keys that begin with `prefix`; or an empty list and
 * "unavailable".  [-0, +1|2, throws, parks] */
static int l_keys(lua_State *L)
{
    lua_Integer most = luaL_optinteger(L, 2, LUA_MAXINTEGER);
    luaL_checkstring(L, 1);
    lua_settop(L, 1);
    lua_pushinteger(L, most);
    lua_newtable(L);
    return add_keys(L);
}

/* store.incr(key, n[, seconds]): adds n to the key's number. The sum; or nil and WHY. `seconds`
 * applies only if the key is created.  [-0, +1|2, throws, parks] */
static int l_incr(lua_State *L)
{
    mp_str key = mp_check_str(L, 1);
    return operate(L, OPERATION(INCR, .key = key, .n = luaL_checkinteger(L, 2), .number = opt_ttl_ms(L, 3)),
                   push_number);
}

#define MAX_INTERVAL_S (30.0 * 86400)
#define MAX_BURST_TOKENS 1000000

/* store.take(key, seconds, burst): takes a token from the key's bucket, which holds `burst` tokens and gains one every
 * `seconds`. True; false and the seconds until the next token; or nil and WHY.  [-0, +1|2, throws, parks] */
static int l_take(lua_State *L)
{
    mp_str key = mp_check_str(L, 1);
    lua_Number interval = luaL_checknumber(L, 2);
    lua_Integer burst = luaL_checkinteger(L, 3);
    luaL_argcheck(L, interval >= 1e-6 && interval <= MAX_INTERVAL_S, 2, "the interval is a microsecond to 30 days");
    luaL_argcheck(L, burst >= 1 && burst <= MAX_BURST_TOKENS, 3, "the burst is 1 to 1000000");
    return operate(L, OPERATION(TAKE, .key = key, .number = (uint64_t)ceil(interval * 1e6), .n = burst), push_wait);
}

/* -- waiting for the file ------------------------------------------------------------------------------------------ */

typedef struct saved_op saved_op;

/* What the store delivers. It outlives a wait that is cancelled. */
typedef struct {
    saved_op *MP_NULLABLE op; /* NULL once the wait was cancelled */
} saving;

struct saved_op {
    mp_op super;
    saving *MP_NULLABLE of; /* NULL once it was delivered */
};

static void on_saved(void *content, mp_loop *MP_NULLABLE loop)
{
    saving *it = *(saving **)content;
    saved_op *op = it->op;
    free(it);
    if (op == NULL)
        return;
    op->of = NULL;
    if (loop != NULL)
        mp_op_done(&op->super);
}

static void on_saved_cancel(mp_op *super)
{
    saved_op *op = mp_container(super, saved_op, super);
    if (op->of != NULL)
        op->of->op = NULL;
    op->of = NULL;
}

static int push_saved(lua_State *L, mp_store_result result, int64_t n, MP_UNUSED const mp_buf *text)
{
    if (result != MP_STORE_DONE && result != MP_STORE_THERE)
        lua_pushnil(L);
    else
        lua_pushboolean(L, result == MP_STORE_DONE);
    lua_pushinteger(L, n);
    return 2;
}

/* store.is_saved([number]): whether this change, or all so far, to keys that begin with "signin:" are on the disk:
 * true, also if the store has no file; false: not yet; nil: it cannot be written now, or takes long. Second the number
 * of the last change.  [-0, +2, throws, parks] */
static int l_is_saved(lua_State *L)
{
    return operate(L, OPERATION(SAVED, .number = (uint64_t)luaL_optinteger(L, 1, 0), .n = true), push_saved);
}

/* store.saved(): returns once all changes so far to keys that begin with "signin:" are on the disk; at once if the
 * store has no file, or it cannot be written: store.is_saved says which.  [-0, +0, throws, parks] */
static int l_saved(lua_State *L)
{
    mp_store *store = lua_touserdata(L, lua_upvalueindex(1));
    saved_op *op = mp_op_new(L, sizeof *op, on_saved_cancel);
    saving *it = op->of = mp_new(sizeof *it);
    it->op = op;
    mp_store_when_saved(store, op->super.loop, on_saved, it);
    return mp_op_park(L, &op->super);
}

/* -- Base64 (RFC 4648, section 4) ---------------------------------------------------------------------------------- */

static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/* base64.encode(bytes): the text, with padding.  [-0, +1, throws] */
static int l_base64(lua_State *L)
{
    mp_str bytes = mp_check_str(L, 1);
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, (bytes.len + 2) / 3 * 4), *at = to;
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t left = bytes.len - i;
        const unsigned char *from = (const unsigned char *)bytes.ptr + i;
        uint32_t bits =
            (uint32_t)from[0] << 16 | (left > 1 ? (uint32_t)from[1] << 8 : 0) | (left > 2 ? (uint32_t)from[2] : 0);
        *at++ = digits[bits >> 18];
        *at++ = digits[bits >> 12 & 63];
        *at++ = left > 1 ? digits[bits >> 6 & 63] : '=';
        *at++ = left > 2 ? digits[bits & 63] : '=';
    }
    luaL_pushresultsize(&buffer, (size_t)(at - to));
    return 1;
}

/* The value of a Base64 digit; 64 for any other character. */
static uint32_t value_of(char c)
{
    const char *digit = c == '\0' ? NULL : strchr(digits, c);
    return digit == NULL ? 64 : (uint32_t)(digit - digits);
}

/* base64.decode(text): the bytes; nil if the text is not canonical Base64.  [-0, +1, throws] */
static int l_unbase64(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    size_t len = text.len;
    while (len > 0 && text.len - len < 2 && text.ptr[len - 1] == '=')
        len--;
    luaL_Buffer buffer;
    char *to = luaL_buffinitsize(L, &buffer, len / 4 * 3 + 3), *at = to;
    uint32_t bits = 0;
    int count = 0;
    bool is_valid = text.len % 4 == 0;
    for (size_t i = 0; i < len && is_valid; i++) {
        uint32_t value = value_of(text.ptr[i]);
        is_valid = value < 64;
        bits = bits << 6 | value;
        for (count += 6; count >= 8; count -= 8)
            *at++ = (char)(bits >> (count - 8));
    }
    luaL_pushresultsize(&buffer, (size_t)(at - to));
    if (!is_valid || count >= 6 || (bits & ((1u << count) - 1)) != 0)
        lua_pushnil(L);
    return 1;
}

MP_SCRIPT_LIBRARY(store)
{
    static const luaL_Reg shared[] = {{"store.set", l_set},
                                      {"store.add", l_add},
                                      {"store.get", l_get},
                                      {"store.delete", l_delete},
                                      {"store.keys", l_keys},
                                      {"store.incr", l_incr},
                                      {"store.take", l_take},
                                      {"store.cas", l_cas},
                                      {"store.lock", l_lock},
                                      {"store.set_locked", l_set_locked},
                                      {"store.saved", l_saved},
                                      {"store.is_saved", l_is_saved},
                                      {NULL, NULL}};
    static const luaL_Reg pure[] = {
        {"store.lost", l_lost}, {"base64.encode", l_base64}, {"base64.decode", l_unbase64}, {NULL, NULL}};
    lua_pushlightuserdata(L, config->store);
    mp_set_members(L, shared, 1);
    mp_set_members(L, pure, 0);
}
