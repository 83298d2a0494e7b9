/* lua_claims.c: a program with the Lua that the gateway links, for spec/modules/lua_claims_spec.lua. `lua_claims NAME`
 * tries one claim of a comment (docs/dev/libraries.md) and prints what it has seen. */
#include <lauxlib.h>
#include <lualib.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* An allocator that counts, and may refuse. */
static struct {
    size_t bytes, taken;      /* held; allocations and enlargements since the start */
    size_t kind;              /* what stood in place of the old size of the last new block */
    size_t refused;           /* blocks of this size and more are refused once, if it is not 0 */
    size_t refused_at, again; /* the bytes held when one was refused, and when it was asked for again */
    bool refuses_shrinking;
} heap;

static void *allocate(void *ctx, void *old, size_t old_size, size_t size)
{
    (void)ctx;
    if (old == NULL) {
        heap.kind = old_size;
        old_size = 0;
    }
    if (size == 0) {
        free(old);
        heap.bytes -= old_size;
        return NULL;
    }
    if (size < old_size && heap.refuses_shrinking)
        return NULL;
    if (size > old_size) {
        heap.taken++;
        bool is_large = heap.refused != 0 && size >= heap.refused;
        if (is_large && heap.refused_at == 0) {
            heap.refused_at = heap.bytes;
            return NULL;
        }
        if (is_large && heap.again == 0)
            heap.again = heap.bytes;
    }
    void *block = realloc(old, size);
    if (block == NULL)
        abort();
    heap.bytes += size - old_size;
    return block;
}

static lua_State *new_state(void)
{
    lua_State *L = lua_newstate(allocate, NULL);
    if (L == NULL)
        abort();
    luaL_openlibs(L);
    lua_gc(L, LUA_GCSTOP);
    return L;
}

static void run(lua_State *L, const char *text)
{
    if (luaL_dostring(L, text) != LUA_OK) {
        fprintf(stderr, "%s\n", lua_tostring(L, -1));
        exit(1);
    }
}

static int64_t now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

/* A megabyte is refused once, while there is garbage with a finalizer: KiB of garbage that were freed before it was
 * asked for again, 1 if a finalizer ran. */
static void refused(lua_State *L)
{
    run(L, "for i = 1, 1000 do local junk = ('x'):rep(1000 + i) end\n"
           "setmetatable({}, { __gc = function() finalized = true end })");
    heap.refused = 1 << 20;
    lua_newuserdatauv(L, 1 << 20, 0);
    lua_getglobal(L, "finalized");
    printf("%zu %d\n", (heap.refused_at - heap.again) / 1024, lua_toboolean(L, -1));
}

/* The kinds that the allocator is told for a table, a function and a userdata. */
static void kinds(lua_State *L)
{
    lua_newtable(L);
    size_t table = heap.kind;
    lua_newuserdatauv(L, 0, 0);
    printf("%d %d\n", table == LUA_TTABLE, heap.kind == LUA_TUSERDATA);
}

/* Compiles a function while no block may shrink. */
static void shrinking(lua_State *L)
{
    heap.refuses_shrinking = true;
    int status = luaL_loadstring(L, "local a, b, c = 1, 2, 3 return function() return a + b + c end");
    heap.refuses_shrinking = false;
    printf("%s\n", status == LUA_OK ? "ok" : lua_tostring(L, -1));
}

/* Allocations of what is said to allocate nothing. */
static void nothing(lua_State *L)
{
    luaL_newmetatable(L, "kind");
    lua_newuserdatauv(L, 0, 0);
    lua_newtable(L);
    lua_pushboolean(L, 1);
    lua_rawsetp(L, -2, L);
    lua_newtable(L);
    int ref = luaL_ref(L, LUA_REGISTRYINDEX);
    size_t before = heap.taken;
    luaL_unref(L, LUA_REGISTRYINDEX, ref);
    size_t unref = heap.taken - before;
    lua_pushnil(L);
    lua_rawsetp(L, -2, L);
    size_t removed = heap.taken - before - unref;
    lua_pop(L, 1);
    luaL_setmetatable(L, "kind");
    printf("%zu %zu %zu\n", unref, removed, heap.taken - before - unref - removed);
}

/* KiB that one object with a finalizer holds after the first and the second cycle, and the times that it was finalized
 * by then. */
static void cycles(lua_State *L)
{
    run(L, "count = 0 do local big = { ('x'):rep(1 << 20) } setmetatable(big, { __gc = function() count = count + 1 "
           "end }) end");
    size_t before = heap.bytes;
    for (int i = 0; i < 2; i++) {
        lua_gc(L, LUA_GCCOLLECT);
        lua_getglobal(L, "count");
        printf("%d %lld ", before - heap.bytes > 1 << 19, (long long)lua_tointeger(L, -1));
        lua_pop(L, 1);
    }
    printf("\n");
}

static int tell(lua_State *L)
{
    printf("%s ", lua_tostring(L, lua_upvalueindex(1)));
    return 0;
}

/* The order of finalizers at the end of a state. */
static void last(lua_State *L)
{
    static const char *const names[] = {"first", "second", "third"};
    for (int i = 0; i < 3; i++) {
        lua_newuserdatauv(L, 0, 0);
        lua_newtable(L);
        lua_pushstring(L, names[i]);
        lua_pushcclosure(L, tell, 1);
        lua_setfield(L, -2, "__gc");
        lua_setmetatable(L, -2);
    }
    lua_close(L);
    printf("\n");
    exit(0);
}

/* The largest part of the dead bytes that one small step frees, in percent: with a young live object, and without. */
static void sweep(lua_State *L)
{
    static const char young;
    for (int is_young = 1; is_young >= 0; is_young--) {
        lua_gc(L, LUA_GCCOLLECT);
        lua_gc(L, LUA_GCINC, 0, 8, 12);
        run(L, "do local junk = {} for i = 1, 20000 do junk[i] = { i } end end");
        size_t most = 0, before = heap.bytes;
        if (is_young) {
            lua_newuserdatauv(L, 0, 0);
            lua_rawsetp(L, LUA_REGISTRYINDEX, &young);
        }
        for (int ended = 0; !ended;) {
            size_t held = heap.bytes;
            ended = lua_gc(L, LUA_GCSTEP, 0);
            most = held > heap.bytes && held - heap.bytes > most ? held - heap.bytes : most;
        }
        printf("%zu ", 100 * most / (before - heap.bytes));
    }
    printf("\n");
}

/* us of the longest small step while a table with weak keys has chains of entries: of 500, and of 4000. */
static void weak(lua_State *L)
{
    for (int count = 500; count <= 4000; count *= 8) {
        lua_pushinteger(L, count);
        lua_setglobal(L, "count");
        run(L, "all = setmetatable({}, { __mode = 'k' }) first = {} local key = first\n"
               "for i = 1, count do local next = {} all[key] = next key = next end");
        lua_gc(L, LUA_GCINC, 0, 8, 12);
        int64_t most = 0;
        for (int cycle = 0; cycle < 2; cycle++)
            for (int ended = 0; !ended;) {
                int64_t began = now_us();
                ended = lua_gc(L, LUA_GCSTEP, 0);
                most = now_us() - began > most ? now_us() - began : most;
            }
        printf("%lld ", (long long)most);
    }
    printf("\n");
}

static int hooks; /* runs of the hook since the resume */

static void hook(lua_State *L, lua_Debug *where)
{
    (void)L, (void)where;
    hooks++;
}

static void yielding_hook(lua_State *L, lua_Debug *where)
{
    (void)where;
    lua_sethook(L, NULL, 0, 0);
    lua_yield(L, 0);
}

static int fewest = 100;

static int called(lua_State *L)
{
    (void)L;
    fewest = hooks < fewest ? hooks : fewest;
    return 0;
}

/* A count hook yields at the first instruction, the second, …; the next one is set for the first instruction after the
 * resume. The fewest hooks that run between the resume and a call of a function of C. */
static void resumed(lua_State *L)
{
    lua_register(L, "called", called);
    for (int at = 1; at < 10; at++) {
        int count;
        lua_State *co = lua_newthread(L);
        if (luaL_loadstring(co, "local a, f = 1, called a = a + 1 f() a = a + 1") != LUA_OK)
            abort();
        hooks = 100;
        lua_sethook(co, yielding_hook, LUA_MASKCOUNT, at);
        if (lua_resume(co, L, 0, &count) != LUA_YIELD)
            break;
        hooks = 0;
        lua_sethook(co, hook, LUA_MASKCOUNT, 1);
        lua_resume(co, L, 0, &count);
    }
    printf("%d\n", fewest);
}

/* us that lua_sethook takes a thousand times, with 10 and with 10,000 frames. */
static int deep(lua_State *L)
{
    int64_t began = now_us();
    for (int i = 0; i < 1000; i++)
        lua_sethook(L, hook, LUA_MASKCOUNT, 1 << 30);
    printf("%lld ", (long long)(now_us() - began));
    lua_sethook(L, NULL, 0, 0);
    return 0;
}

static void frames(lua_State *L)
{
    lua_register(L, "deep", deep);
    run(L, "local function down(n) if n == 0 then deep() else down(n - 1) end return n end down(10) down(10000)");
    printf("\n");
}

/* An error outside of every protected call. */
static void unprotected(lua_State *L)
{
    lua_pushliteral(L, "nobody catches this");
    lua_error(L);
}

static const struct {
    const char *name;
    void (*run)(lua_State *L);
} claims[] = {{"refused", refused},
              {"kinds", kinds},
              {"shrinking", shrinking},
              {"nothing", nothing},
              {"cycles", cycles},
              {"last", last},
              {"sweep", sweep},
              {"weak", weak},
              {"resumed", resumed},
              {"frames", frames},
              {"unprotected", unprotected}};

int main(int argc, char **argv)
{
    lua_State *L = new_state();
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++)
        if (argc == 2 && strcmp(argv[1], claims[i].name) == 0) {
            claims[i].run(L);
            lua_close(L);
            return 0;
        }
    if (argc == 3 && strcmp(argv[1], "run") == 0)
        run(L, argv[2]);
    else
        return 64;
    lua_close(L);
    return 0;
}
