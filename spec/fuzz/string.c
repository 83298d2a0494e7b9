/* string.c: any pattern on any text, through find, match, gmatch, gsub and format, compared with Lua's own
 * functions: the same results and the same errors, unless the budget was used up, the text would be too long, or it
 * would show an address. */
#include "vm/strings/strings.h"
#include <lauxlib.h>
#include <lualib.h>
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())

static const char compare[] =
    "local ours, theirs = ...\n"
    "local function all(library, name, ...)\n"
    "  if name ~= 'gmatch' then return pcall(library[name], ...) end\n"
    "  local list = {}\n"
    "  local ok, why = pcall(function(...)\n"
    "    for a, b in library.gmatch(...) do list[#list + 1] = tostring(a) .. '\\1' .. tostring(b) end\n"
    "  end, ...)\n"
    "  return table.concat(list, '\\2'), not ok and why\n"
    "end\n"
    "local function same(name, ...)\n"
    "  local mine = table.pack(all(ours, name, ...))\n"
    "  for i = 1, mine.n do\n"
    "    if type(mine[i]) == 'string' then\n"
    "      for _, refusal in ipairs { 'took too long', 'more than the limit of', 'cannot see addresses' } do\n"
    "        if mine[i]:find(refusal, 1, true) then return end\n"
    "      end\n"
    "    end\n"
    "  end\n"
    "  local wanted = table.pack(all(theirs, name, ...))\n"
    "  assert(mine.n == wanted.n, name)\n"
    "  for i = 1, mine.n do\n"
    "    if mine[i] ~= wanted[i] and not (tostring(mine[i]):find '^bad argument') then\n"
    "      error(name .. ': ' .. tostring(mine[i]) .. ' is not ' .. tostring(wanted[i]))\n"
    "    end\n"
    "  end\n"
    "end\n"
    "local function wrap(...) return select('#', ...) > 1 and ... end\n"
    "return function(pattern, text, by, init)\n"
    "  same('find', text, pattern, init)\n"
    "  same('find', text, pattern, init, true)\n"
    "  same('match', text, pattern, init)\n"
    "  same('gmatch', text, pattern, init)\n"
    "  same('gsub', text, pattern, by)\n"
    "  same('gsub', text, pattern, wrap, init)\n"
    "  same('gsub', text, pattern, { [by] = init, [text] = by })\n"
    "  same('format', pattern, text, by, init)\n"
    "  same('rep', text, init, by)\n"
    "  same('concat', { pattern, text, by }, by, init)\n"
    "end\n";

static lua_State *open_both(void)
{
    lua_State *L = luaL_newstate();
    luaL_openlibs(L);
    MUST(luaL_loadbuffer(L, compare, sizeof compare - 1, "=compare") == LUA_OK);
    lua_newtable(L);
    lua_getglobal(L, "string");
    lua_getfield(L, -1, "format");
    lua_setfield(L, 2, "format");
    lua_pop(L, 1);
    mp_lib_string(L, 2, 2, 5000, 1 << 16);
    lua_getglobal(L, "string");
    lua_getglobal(L, "table");
    lua_getfield(L, -1, "concat");
    lua_setfield(L, -3, "concat");
    lua_pop(L, 1);
    lua_call(L, 2, 1);
    return L;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* The first bytes are the lengths of the pattern and of the replacement, and the start position. */
int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    static lua_State *L;
    if (L == NULL)
        L = open_both();
    if (size < 3 || size > 600)
        return 0;
    const char *rest = (const char *)data + 3;
    size_t left = size - 3, pattern = data[0] < left ? data[0] : left;
    size_t by = data[1] % 16u < left - pattern ? data[1] % 16u : left - pattern;
    lua_pushvalue(L, 1);
    lua_pushlstring(L, rest, pattern);
    lua_pushlstring(L, rest + pattern + by, left - pattern - by);
    lua_pushlstring(L, rest + pattern, by);
    lua_pushinteger(L, (signed char)data[2]);
    if (lua_pcall(L, 4, 0, 0) != LUA_OK) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        abort();
    }
    return 0;
}
