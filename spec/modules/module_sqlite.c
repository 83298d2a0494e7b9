/* module_sqlite.c: modules.sqlite, connections of the linked SQLite as it is, to try what comments say about it.
 *   db = open(path)
 *   db:run(sql)     the first column of the rows; or nil, why
 *   db:interrupt()
 *   db:moved()      what SQLite says about its file
 *   db:close()
 *   late_config()   the code of sqlite3_config after SQLite was used */
#include "modules.h"
#include "data/data.h"
#include <sqlite3.h>

#define TYPE "spec.sqlite"

static sqlite3 *db_of(lua_State *L)
{
    return *(sqlite3 **)luaL_checkudata(L, 1, TYPE);
}

static int l_open(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    sqlite3 **db = lua_newuserdatauv(L, sizeof *db, 0);
    mp_sql_memory_start();
    if (sqlite3_open(path, db) != SQLITE_OK)
        return luaL_error(L, "cannot open %s: %s", path, sqlite3_errmsg(*db));
    luaL_setmetatable(L, TYPE);
    return 1;
}

static int l_run(lua_State *L)
{
    sqlite3 *db = db_of(L);
    const char *sql = luaL_checkstring(L, 2);
    lua_newtable(L);
    for (lua_Integer n = 1; *sql != '\0';) {
        sqlite3_stmt *statement = NULL;
        int rc = sqlite3_prepare_v2(db, sql, -1, &statement, &sql);
        while (rc == SQLITE_OK && statement != NULL && sqlite3_step(statement) == SQLITE_ROW) {
            lua_pushstring(L, (const char *)sqlite3_column_text(statement, 0));
            lua_rawseti(L, -2, n++);
        }
        if (sqlite3_finalize(statement) != SQLITE_OK || rc != SQLITE_OK) {
            lua_pushnil(L);
            lua_pushstring(L, sqlite3_errmsg(db));
            return 2;
        }
    }
    return 1;
}

static int l_interrupt(lua_State *L)
{
    sqlite3_interrupt(db_of(L));
    return 0;
}

static int l_moved(lua_State *L)
{
    int moved = 0;
    sqlite3_file_control(db_of(L), "main", SQLITE_FCNTL_HAS_MOVED, &moved);
    lua_pushboolean(L, moved);
    return 1;
}

static int l_close(lua_State *L)
{
    sqlite3 **db = luaL_checkudata(L, 1, TYPE);
    sqlite3_close(*db);
    *db = NULL;
    return 0;
}

static int l_late_config(lua_State *L)
{
    mp_sql_memory_start();
    sqlite3_initialize();
    lua_pushinteger(L, sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 1));
    return 1;
}

int module_sqlite(lua_State *L)
{
    static const luaL_Reg methods[] = {{"run", l_run},     {"interrupt", l_interrupt}, {"moved", l_moved},
                                       {"close", l_close}, {"__gc", l_close},          {NULL, NULL}};
    static const luaL_Reg functions[] = {{"open", l_open}, {"late_config", l_late_config}, {NULL, NULL}};
    luaL_newmetatable(L, TYPE);
    luaL_setfuncs(L, methods, 0);
    lua_pushvalue(L, -1);
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    luaL_newlib(L, functions);
    return 1;
}
