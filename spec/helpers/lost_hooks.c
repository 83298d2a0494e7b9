/* lost_hooks.c: preloaded: each hook that is to run at the next instruction is set so that it does not run for two thousand million instructions, but
 * for every second. So does a signal handler that sets a hook while the code that it interrupts takes another one away. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <limits.h>
#include <lua.h>
#include <stdatomic.h>
#include <string.h>

void lua_sethook(lua_State *L, lua_Hook function, int mask, int count)
{
    static atomic_uint all;
    static void (*_Atomic next)(lua_State *, lua_Hook, int, int);
    void (*set)(lua_State *, lua_Hook, int, int) = next;
    if (set == NULL) {
        void *found = dlsym(RTLD_NEXT, "lua_sethook");
        memcpy(&set, &found, sizeof found);
        next = set;
    }
    if (mask == LUA_MASKCOUNT && count == 1 && atomic_fetch_add(&all, 1) % 2 == 0)
        count = INT_MAX;
    set(L, function, mask, count);
}
