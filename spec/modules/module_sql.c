/* module_sql.c: the linked SQLite without restrictions, and the restricted one that scripts use. */
#include "modules.h"
#include "data/data.h"
#include "data/sql_memory.h"
#include "data/sql_rules.h"
#include <sqlite3.h>

static const char *const kinds[] = {"function", "module", "pragma", NULL};

/* judge(kind, name): "unknown", "allowed" or "denied".  [-0, +1, throws] */
static int l_judge(lua_State *L)
{
    static const char *const words[] = {
        [MP_SQL_UNKNOWN] = "unknown", [MP_SQL_ALLOWED] = "allowed", [MP_SQL_DENIED] = "denied"};
    int kind = luaL_checkoption(L, 1, NULL, kinds);
    lua_pushstring(L, words[mp_sql_judge((mp_sql_thing)kind, luaL_checkstring(L, 2))]);
    return 1;
}

/* Runs `sql` and appends the first column of each row to a table; or returns nil, why. [-0, +1|2, throws] */
static int query(lua_State *L, sqlite3 *db, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    int rc = sqlite3_prepare_v2(db, sql, -1, &statement, NULL);
    lua_newtable(L);
    for (lua_Integer i = 1; rc == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW; i++) {
        lua_pushstring(L, (const char *)sqlite3_column_text(statement, 0));
        lua_rawseti(L, -2, i);
    }
    if (sqlite3_finalize(statement) == SQLITE_OK && rc == SQLITE_OK)
        return 1;
    lua_pushnil(L);
    lua_pushstring(L, sqlite3_errmsg(db));
    return 2;
}

/* query(sql, restricted[, path]): the first column of the rows, by a connection in memory (or to the file) without an
 * authorizer; or nil, why.
 *  [-0, +1|2, throws] */
static int l_query(lua_State *L)
{
    const char *sql = luaL_checkstring(L, 1);
    sqlite3 *db = NULL;
    mp_sql_memory_start();
    if (sqlite3_open(luaL_optstring(L, 3, ":memory:"), &db) != SQLITE_OK ||
        (lua_toboolean(L, 2) && mp_sql_restrict(db) != SQLITE_OK))
        return luaL_error(L, "cannot open: %s", sqlite3_errmsg(db));
    int count = query(L, db, sql);
    sqlite3_close(db);
    return count;
}

int module_sql(lua_State *L)
{
    static const luaL_Reg functions[] = {{"judge", l_judge}, {"query", l_query}, {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
