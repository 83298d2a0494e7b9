/* weak.c: makes `__mode` an ordinary field for scripts.
 *
 * The collector handles weak tables in its atomic step, which nothing interrupts; for weak keys the step is quadratic
 * in the number of entries, and it comes again in every cycle. To refuse `__mode` in setmetatable is not enough, since
 * a script can write the field into a metatable later, and copies of metatables would break `getmetatable(x) == Class`.
 *
 * So the name is changed. Lua keeps one short string "__mode" per state, which is fixed, and the collector compares
 * keys with that object by identity. mp_hide_weak_mode writes other bytes into it. Code that uses the string "__mode"
 * from then on gets a new object, which is an ordinary key to the collector. The new bytes are random, so that no
 * script can spell the old object. */
#include "lib/weak.h"
#include "telemetry/telemetry.h"
#include <lauxlib.h>
#include <sys/random.h>

#define NAME "__mode"

void mp_hide_weak_mode(lua_State *L)
{
    char bytes[sizeof NAME - 1];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        luaL_error(L, "no random bytes");
    const char *old = lua_pushlstring(L, NAME, sizeof bytes);
    memcpy((char *)(uintptr_t)old, bytes, sizeof bytes); /* the block is on the heap and writable */
    const char *new = lua_pushlstring(L, NAME, sizeof bytes);
    if (new == old || strcmp(new, NAME) != 0)
        luaL_error(L, "this Lua does not keep one object per short string: weak tables cannot be hidden from scripts");
    lua_pop(L, 2);
}
