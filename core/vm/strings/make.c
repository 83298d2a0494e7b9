/* make.c: string.rep, string.format, string.pack and table.concat with a limit of the length of their result; functions
 * with a limit of the texts that they read as numbers. */
#include "vm/strings/strings.h"
#include "vm/hidden_address.h"
#include <lauxlib.h>
#include <math.h>

#define MAX_NUMBER_BYTES 512 /* bytes that one number becomes: "%99.99f" of 1e308 is 409 */
#define MAX_LARGE 4096       /* numbers above LARGE for "%f" in one call: each takes 8 us to be written, others 1 us */
#define LARGE 1e60
#define WIDEST 99              /* the largest width and precision that a format can have */
#define CONCAT_STEPS 4         /* steps for one element of a list */
#define QUOTED (4 << 20)       /* bytes of one text for "%q", which Lua writes byte by byte */
#define QUOTED_CONTROL 9       /* a control byte, which Lua writes by printf(), takes as long as ten others */
#define PACK_FORMAT 65536      /* most bytes of a format of string.pack and its relatives */
#define MAX_OPERANDS (1 << 20) /* bytes of texts that one call compares, or reads as numbers */
#define FORMAT_MARKS "-+ #0123456789."

/* Raises "the string would be N bytes", followed by `rest`. [-0, +0, throws] */
_Noreturn static void refuse_string(lua_State *L, size_t bytes, const char *rest)
{
    luaL_error(L, "the string would be %I bytes%s, more than the limit of %I", (lua_Integer)bytes, rest,
               (lua_Integer)mp_string_limits_of(L)->bytes);
    __builtin_unreachable();
}

void mp_string_out_grow(lua_State *L, mp_string_out *out, size_t len)
{
    size_t most = mp_string_limits_of(L)->bytes;
    if (len > most || out->len > most - len)
        refuse_string(L, len + out->len, " or more");
    size_t cap = out->cap;
    while (cap < out->len + len)
        cap *= 2;
    if (cap > most)
        cap = most;
    char *larger = lua_newuserdatauv(L, cap, 0);
    memcpy(larger, out->ptr, out->len);
    lua_replace(L, out->box);
    out->ptr = larger;
    out->cap = cap;
}

/* -- rep --------------------------------------------------------------------------------------------------------- */

/* string.rep(s, n [, sep])  [-0, +1, throws] */
static int l_rep(lua_State *L)
{
    size_t len, between;
    const char *text = luaL_checklstring(L, 1, &len);
    lua_Integer n = luaL_checkinteger(L, 2);
    const char *separator = luaL_optlstring(L, 3, "", &between);
    size_t period, total;
    if (n <= 0 || len + between == 0) {
        lua_pushliteral(L, "");
        return 1;
    }
    if (__builtin_add_overflow(len, between, &period) || __builtin_mul_overflow(period, (size_t)n, &total) ||
        total > PTRDIFF_MAX)
        return luaL_error(L, "resulting string too large");
    total -= between;
    if (total > mp_string_limits_of(L)->bytes)
        refuse_string(L, total, "");
    luaL_Buffer buffer;
    char *out = luaL_buffinitsize(L, &buffer, total);
    memcpy(out, text, len);
    if (n > 1)
        memcpy(out + len, separator, between);
    for (size_t done = n > 1 ? period : total, more; done < total; done += more) {
        more = done < total - done ? done : total - done;
        memcpy(out + done, out, more);
    }
    luaL_pushresultsize(&buffer, total);
    return 1;
}

/* -- format ------------------------------------------------------------------------------------------------------ */

/* True if the text of the value is short whatever a script does. Values of other types get their text from a
 * metatable, or it has an address in it. */
static bool is_short(lua_State *L, int arg)
{
    int type = lua_type(L, arg);
    return type == LUA_TNIL || type == LUA_TBOOLEAN || type == LUA_TNUMBER;
}

/* Upper bound of the length that "%q" gives to a text; raises an error for one that would take too long.  [-0, +0,
 * throws] */
static size_t quoted_size(lua_State *L, mp_str text)
{
    size_t size = text.len + 2, controls = 0;
    for (size_t i = 0; i < text.len; i++) {
        unsigned char byte = (unsigned char)text.ptr[i];
        bool is_control = byte < 32 || byte == 127;
        controls += is_control && byte != '\n';
        size += is_control ? 3 : byte == '"' || byte == '\\';
    }
    if (text.len + controls * QUOTED_CONTROL > QUOTED)
        return (size_t)luaL_error(L, "\"%%q\" takes a string of at most %d bytes, of which each control byte counts %d",
                                  QUOTED, QUOTED_CONTROL + 1);
    return size;
}

/* Counts a number above LARGE for "%f"; raises an error beyond MAX_LARGE.  [-0, +0, throws] */
static void count_large(lua_State *L, int *large)
{
    if (++*large > MAX_LARGE)
        luaL_error(L, "\"%%f\" takes at most %d numbers above 1e60 in one format", MAX_LARGE);
}

/* An upper bound of the length of the result. An argument of "%s" that is not a text is replaced by its text. [-0,
 * +0, throws] */
static size_t format_size(lua_State *L, mp_str format, int count)
{
    size_t size = format.len;
    const char *end = format.ptr + format.len;
    int arg = 1, large = 0;
    for (const char *p = format.ptr; (p = memchr(p, '%', (size_t)(end - p))) != NULL; p++) {
        if (*++p == '%')
            continue;
        const char *marks = p;
        p += strspn(p, FORMAT_MARKS);
        if (*p == 'p')
            return (size_t)luaL_error(L,
                                      "invalid conversion '%%p' to 'format': scripts cannot see addresses of memory");
        if (++arg > count || p >= end)
            break;
        if (*p != 's' && *p != 'q') {
            size +=
                MAX_NUMBER_BYTES + (lua_type(L, arg) == LUA_TSTRING ? lua_rawlen(L, arg) : 0); /* is read as a number */
            if (*p == 'f' && fabs(lua_tonumber(L, arg)) > LARGE)
                count_large(L, &large);
            continue;
        }
        if (*p == 's' && lua_type(L, arg) != LUA_TSTRING && !is_short(L, arg)) {
            mp_push_shown(L, arg, NULL);
            lua_replace(L, arg);
        }
        mp_str text = {NULL, WIDEST};
        if (lua_type(L, arg) == LUA_TSTRING)
            text.ptr = lua_tolstring(L, arg, &text.len);
        if (text.ptr != NULL && *p == 'q') {
            size += quoted_size(L, text);
        } else if (memchr(marks, '.', (size_t)(p - marks)) != NULL || (p > marks && text.len < WIDEST))
            size += WIDEST;
        else
            size += text.len;
    }
    return size;
}

/* string.format(format, …): calls Lua's own function once the size is checked. [-0, +1, throws] */
static int l_format(lua_State *L)
{
    mp_str format;
    format.ptr = luaL_checklstring(L, 1, &format.len);
    int count = lua_gettop(L);
    bool is_plain = memchr(format.ptr, 'p', format.len) == NULL; /* the format has no "%p" */
    size_t size = format.len + (size_t)count * MAX_NUMBER_BYTES;
    for (int arg = 2; arg <= count && is_plain; arg++) {
        if (lua_type(L, arg) == LUA_TSTRING)
            size += lua_rawlen(L, arg) * 4;
        else
            is_plain = is_short(L, arg);
    }
    size_t most = mp_string_limits_of(L)->bytes;
    if (!is_plain || size > most || size > QUOTED || count > MAX_LARGE) {
        luaL_checkstack(L, 4, NULL);
        size = format_size(L, format, count);
        if (size > most)
            refuse_string(L, size, " or so");
    }
    return lua_tocfunction(L, lua_upvalueindex(2))(L);
}

/* -- concat ------------------------------------------------------------------------------------------------------ */

/* A table, or a value that can be indexed like one. */
static void check_list(lua_State *L, int arg)
{
    if (lua_type(L, arg) == LUA_TTABLE)
        return;
    if (luaL_getmetafield(L, arg, "__index") == LUA_TNIL || luaL_getmetafield(L, arg, "__len") == LUA_TNIL)
        luaL_checktype(L, arg, LUA_TTABLE);
    lua_pop(L, 2);
}

/* table.concat(list [, sep [, i [, j]]])  [-0, +1, throws] */
static int l_concat(lua_State *L)
{
    enum { LIST = 1, SEPARATOR, FIRST, LAST, BOX };
    check_list(L, LIST);
    lua_settop(L, LAST);
    lua_Integer last = luaL_len(L, LIST);
    mp_str separator;
    separator.ptr = luaL_optlstring(L, SEPARATOR, "", &separator.len);
    lua_Integer first = luaL_optinteger(L, FIRST, 1);
    last = luaL_optinteger(L, LAST, last);
    lua_pushnil(L);
    mp_string_out out;
    mp_string_out_init(&out, BOX);
    mp_string_limits *limits = mp_string_limits_of(L);
    int64_t budget = mp_string_budget(L, limits), left = budget;
    for (lua_Integer i = first; i <= last; i++) {
        left -= CONCAT_STEPS;
        if (left < 0) {
            mp_string_charge(L, limits, budget);
            return luaL_error(L, "a list of %I elements is too long to be joined at once",
                              (lua_Integer)((lua_Unsigned)last - (lua_Unsigned)first + 1));
        }
        mp_str text;
        lua_geti(L, LIST, i);
        text.ptr = lua_tolstring(L, -1, &text.len);
        if (text.ptr == NULL)
            return luaL_error(L, "invalid value (%s) at index %I in table for 'concat'", luaL_typename(L, -1), i);
        mp_string_out_put(L, &out, text.ptr, text.len);
        lua_pop(L, 1);
        if (i == last)
            break;
        mp_string_out_put(L, &out, separator.ptr, separator.len);
    }
    mp_string_charge(L, limits, budget - left);
    lua_pushlstring(L, out.ptr, out.len);
    return 1;
}

/* -- pack -------------------------------------------------------------------------------------------------------- */

/* Checks the format at index 1, whose every byte may be an option. [-0, +0, throws] */
static mp_str check_pack_format(lua_State *L)
{
    mp_str format;
    format.ptr = luaL_checklstring(L, 1, &format.len);
    luaL_argcheck(L, format.len <= PACK_FORMAT, 1, "a format must have at most 65536 bytes");
    return format;
}

/* string.pack(format, …)  [-0, +1, throws] */
static int l_pack(lua_State *L)
{
    mp_str format = check_pack_format(L);
    size_t most = mp_string_limits_of(L)->bytes, size = 0;
    for (size_t i = 0; i + 1 < format.len; i++) {
        size_t digits = 0;
        if (format.ptr[i] != 'c')
            continue;
        for (; i + 1 < format.len && format.ptr[i + 1] >= '0' && format.ptr[i + 1] <= '9' && digits <= most; i++)
            digits = digits * 10 + (size_t)(format.ptr[i + 1] - '0');
        size += digits;
        if (size > most)
            refuse_string(L, size, " or more");
    }
    for (int arg = 2, count = lua_gettop(L); arg <= count; arg++) {
        size += lua_type(L, arg) == LUA_TSTRING ? lua_rawlen(L, arg) : 0;
        if (size > most)
            refuse_string(L, size, " or more");
    }
    return lua_tocfunction(L, lua_upvalueindex(2))(L);
}

/* string.packsize(format), string.unpack(format, s [, pos])  [-0, +n, throws] */
static int l_unpack(lua_State *L)
{
    check_pack_format(L);
    return lua_tocfunction(L, lua_upvalueindex(2))(L);
}

/* -- texts as numbers -------------------------------------------------------------------------------------------- */

/* A function that compares its arguments, of which there may be a million, or wants them to be numbers. [-0, +n,
 * throws] */
static int l_of_operands(lua_State *L)
{
    size_t bytes = 0;
    for (int arg = 1, count = lua_gettop(L); arg <= count; arg++)
        if (lua_type(L, arg) == LUA_TSTRING && (bytes += lua_rawlen(L, arg)) > MAX_OPERANDS)
            return luaL_error(L, "the texts among the arguments have more than %d bytes", MAX_OPERANDS);
    return lua_tocfunction(L, lua_upvalueindex(1))(L);
}

void mp_lib_string_operands(lua_State *L, const char *library, const char *name)
{
    lua_getglobal(L, library);
    lua_getfield(L, -1, name);
    lua_pushcclosure(L, l_of_operands, 1);
    lua_setfield(L, -2, name);
    lua_pop(L, 1);
}

/* -- opening ----------------------------------------------------------------------------------------------------- */

/* Replaces a function of the table at `strings` by `bounded`, which has the limits and the original function as
 * upvalues. */
static void replace_function(lua_State *L, int strings, int limits, const char *name, lua_CFunction bounded)
{
    lua_pushvalue(L, limits);
    if (lua_getfield(L, strings, name) == LUA_TNIL) {
        lua_pop(L, 2);
        return;
    }
    lua_pushcclosure(L, bounded, 2);
    lua_setfield(L, strings, name);
}

void mp_lib_string_make(lua_State *L, int strings, int tables, int limits)
{
    lua_pushvalue(L, limits);
    lua_pushcclosure(L, l_rep, 1);
    lua_setfield(L, strings, "rep");
    replace_function(L, strings, limits, "format", l_format);
    replace_function(L, strings, limits, "pack", l_pack);
    replace_function(L, strings, limits, "packsize", l_unpack);
    replace_function(L, strings, limits, "unpack", l_unpack);
    lua_pushvalue(L, limits);
    lua_pushcclosure(L, l_concat, 1);
    lua_setfield(L, tables, "concat");
}
