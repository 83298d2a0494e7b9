/* module_account.c: mp_account of core/telemetry, from several threads at once:
 *   rush(threads, rounds, share, most) → the most that threads held together, what is left, how often there was no room
 *   */
#include "modules.h"
#include "telemetry/account.h"
#include <pthread.h>
#include <sched.h>

typedef struct {
    mp_account account;
    _Atomic int64_t held, most_held,
        refused; /* `held` is at most what the account has: it is raised later and lowered earlier */
    int64_t rounds, share, most;
} rush;

static void raise_to(_Atomic int64_t *most, int64_t value)
{
    int64_t before = atomic_load(most);
    while (before < value && !atomic_compare_exchange_weak(most, &before, value))
        continue;
}

static void *run(void *ctx)
{
    rush *it = ctx;
    for (int64_t i = 0; i < it->rounds; i++) {
        if (!mp_account_take(&it->account, it->share, it->most)) {
            atomic_fetch_add(&it->refused, 1);
            continue;
        }
        raise_to(&it->most_held, atomic_fetch_add(&it->held, it->share) + it->share);
        if (i % 16 == 0)
            sched_yield();
        atomic_fetch_sub(&it->held, it->share);
        mp_account_give(&it->account, it->share);
    }
    return NULL;
}

static int l_rush(lua_State *L)
{
    pthread_t threads[16];
    rush it = {.rounds = luaL_checkinteger(L, 2), .share = luaL_checkinteger(L, 3), .most = luaL_checkinteger(L, 4)};
    lua_Integer count = luaL_checkinteger(L, 1);
    luaL_argcheck(L, count >= 1 && count <= 16, 1, "1 to 16 threads");
    for (lua_Integer i = 0; i < count; i++)
        if (pthread_create(&threads[i], NULL, run, &it) != 0)
            return luaL_error(L, "no thread");
    for (lua_Integer i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    lua_pushinteger(L, atomic_load(&it.most_held));
    lua_pushinteger(L, mp_account_used(&it.account));
    lua_pushinteger(L, atomic_load(&it.refused));
    return 3;
}

int module_account(lua_State *L)
{
    static const luaL_Reg functions[] = {{"rush", l_rush}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
