/* lost_hooks.c: linked into the binary for specs. With LOST_HOOKS in the environment, every second hook that is to run
 * at the next instruction is set so that it does not run for two thousand million instructions. So does a signal
 * handler that sets a hook while the code that it interrupts takes another one away. */
#include <limits.h>
#include <lua.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>

void __real_lua_sethook(lua_State *L, lua_Hook function, int mask, int count);
void __wrap_lua_sethook(lua_State *L, lua_Hook function, int mask, int count);

static bool loses_hooks;

__attribute__((constructor)) static void begin(void)
{
    loses_hooks = getenv("LOST_HOOKS") != NULL;
}

void __wrap_lua_sethook(lua_State *L, lua_Hook function, int mask, int count)
{
    static atomic_uint all;
    if (loses_hooks && mask == LUA_MASKCOUNT && count == 1 && atomic_fetch_add(&all, 1) % 2 == 0)
        count = INT_MAX;
    __real_lua_sethook(L, function, mask, count);
}
