/* lib_sqlite.c: databases as the library sees them: open one, run a statement on it, wait for what it gives. What scripts may
 * open and how they take turns is lua/moonpool/lib/sqlite.lua. */
#include "script/database.h"
#include "script/lib.h"
#include "script/lib_json.h"
#include <lauxlib.h>
#include <stdlib.h>

#define DATABASE "moonpool.database"
#define HANDLE "moonpool.statement"
#define MOST_PARAMS 1000

typedef struct waiting waiting;

/* A statement under way, of whoever waits for it. */
typedef struct {
    mp_statement *statement; /* NULL once it is somebody else's, or gone */
    waiting *op;
    bool is_done;
} handle;

/* What the database has: the handle may be collected while it works. */
typedef struct {
    mp_statement statement;
    handle *of;
    atomic_bool is_left; /* by the database or by its handle: who leaves second frees it */
} work;

struct waiting {
    mp_op super;
    handle *of;
};

static work *work_of(mp_statement *statement)
{
    return mp_container(statement, work, statement);
}

static void leave(mp_statement *statement)
{
    if (atomic_exchange(&work_of(statement)->is_left, true))
        mp_statement_free(statement);
}

static void on_done(mp_statement *statement, mp_loop *loop)
{
    handle *it = loop == NULL ? NULL : work_of(statement)->of; /* without a loop the handle may be another thread's */
    if (it == NULL) {
        leave(statement);
        return;
    }
    it->is_done = true;
    waiting *op = it->op;
    it->op = NULL;
    if (op != NULL)
        mp_op_done(&op->super);
}

/* Nobody wants it any more. */
static void let_go(handle *it)
{
    mp_statement *statement = it->statement;
    it->statement = NULL;
    if (statement == NULL)
        return;
    if (it->is_done) {
        mp_statement_free(statement);
        return;
    }
    work_of(statement)->of = NULL;
    atomic_store(&statement->is_off, true);
    leave(statement);
}

static void on_cancel(mp_op *op)
{
    handle *it = mp_container(op, waiting, super)->of;
    it->op = NULL;
    let_go(it);
}

static int l_collect(lua_State *L)
{
    let_go(lua_touserdata(L, 1));
    return 0;
}

/* -- databases --------------------------------------------------------------------------------------------------- */

static mp_database *check_database(lua_State *L, int index)
{
    mp_database **database = luaL_checkudata(L, index, DATABASE);
    luaL_argcheck(L, *database != NULL, index, "it is closed");
    return *database;
}

/* sqlite_open(root, rest, read_only, setup): a database; `root` nil: in memory. Upvalue: the limits.  [-0, +1, throws] */
static int l_open(lua_State *L)
{
    const mp_database_limits *limits = lua_touserdata(L, lua_upvalueindex(1));
    mp_database **database = lua_newuserdatauv(L, sizeof *database, 0);
    *database = NULL;
    luaL_setmetatable(L, DATABASE);
    *database = mp_database_new(luaL_optstring(L, 1, NULL), luaL_optstring(L, 2, NULL), lua_toboolean(L, 3),
                                luaL_optstring(L, 4, NULL), limits);
    return 1;
}

static int l_close(lua_State *L)
{
    mp_database **database = lua_touserdata(L, 1);
    if (*database != NULL)
        mp_database_free(*database);
    *database = NULL;
    return 0;
}

/* -- values ------------------------------------------------------------------------------------------------------ */

/* The value on top, popped.  [-1, +0, throws] */
static void put_value(lua_State *L, mp_buf *to)
{
    mp_str bytes;
    int kind = lua_type(L, -1);
    if (kind == LUA_TNUMBER && lua_isinteger(L, -1)) {
        mp_sql_put_int(to, lua_tointeger(L, -1));
    } else if (kind == LUA_TNUMBER) {
        mp_sql_put_real(to, lua_tonumber(L, -1));
    } else if (kind == LUA_TBOOLEAN) {
        mp_sql_put_int(to, lua_toboolean(L, -1));
    } else if (kind == LUA_TSTRING) {
        bytes.ptr = lua_tolstring(L, -1, &bytes.len);
        mp_sql_put_bytes(to, 't', bytes);
    } else if (kind == LUA_TTABLE && lua_rawgeti(L, -1, 1) == LUA_TSTRING) { /* a blob */
        bytes.ptr = lua_tolstring(L, -1, &bytes.len);
        mp_sql_put_bytes(to, 'b', bytes);
        lua_pop(L, 1);
    } else if (kind == LUA_TLIGHTUSERDATA) {
        mp_sql_put_null(to);
    } else {
        luaL_error(L, "a value of SQL is a number, a text, a boolean, json.null or a blob, not a %s",
                   lua_typename(L, kind));
    }
    lua_pop(L, 1);
}

/* Parameters at `index`: nil, a list, or a table by name.  [-0, +0, throws] */
static void put_params(lua_State *L, int index, mp_statement *statement)
{
    if (lua_isnil(L, index))
        return;
    lua_Integer count = (lua_Integer)lua_rawlen(L, index);
    statement->has_names = count == 0;
    for (lua_Integer i = 1; i <= count && i <= MOST_PARAMS; i++) {
        mp_sql_put_bytes(&statement->params, 't', MP_STR(""));
        lua_rawgeti(L, index, i);
        put_value(L, &statement->params);
        statement->param_count++;
    }
    if (!statement->has_names)
        return;
    for (lua_pushnil(L); lua_next(L, index) != 0 && statement->param_count < MOST_PARAMS; statement->param_count++) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "parameters are a list, or a table by name");
        mp_str name;
        name.ptr = lua_tolstring(L, -2, &name.len);
        mp_sql_put_bytes(&statement->params, 't', name);
        put_value(L, &statement->params);
    }
}

static const char *push_bytes(lua_State *L, const char *at)
{
    uint32_t len;
    memcpy(&len, at, sizeof len);
    lua_pushlstring(L, at + sizeof len, len);
    return at + sizeof len + len;
}

static const char *push_value(lua_State *L, const char *at)
{
    int64_t integer;
    double real;
    switch (*at++) {
    case 'i':
        memcpy(&integer, at, sizeof integer);
        lua_pushinteger(L, integer);
        return at + sizeof integer;
    case 'r':
        memcpy(&real, at, sizeof real);
        lua_pushnumber(L, real);
        return at + sizeof real;
    case 'n':
        mp_lua_push_null(L);
        return at;
    default:
        return push_bytes(L, at);
    }
}

/* [-0, +1, throws] */
static void push_rows(lua_State *L, const mp_statement *statement)
{
    const char *at = statement->result.ptr;
    int columns = (int)statement->columns;
    luaL_checkstack(L, columns + 6, "too many columns");
    lua_createtable(L, (int)statement->rows, 0);
    int rows = lua_gettop(L);
    for (int i = 0; i < columns; i++)
        at = push_bytes(L, at + 1);
    for (int64_t row = 1; columns > 0 && row <= statement->rows; row++) {
        lua_createtable(L, 0, columns);
        for (int i = 1; i <= columns; i++) {
            lua_pushvalue(L, rows + i);
            at = push_value(L, at);
            lua_rawset(L, -3);
        }
        lua_rawseti(L, rows, row);
    }
    lua_settop(L, rows);
}

/* -- statements -------------------------------------------------------------------------------------------------- */

/* The handle is at `context`.  [-0, +1|2|3, throws] */
static int ended(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    handle *it = lua_touserdata(L, (int)context);
    const mp_statement *statement = it->statement;
    int count = 2;
    if (statement->failed) {
        lua_pushnil(L);
        lua_pushlstring(L, statement->result.ptr, statement->result.len);
    } else if (statement->kind == MP_SQL_QUERY) {
        push_rows(L, statement);
        count = 1;
    } else {
        lua_pushinteger(L, statement->changes);
        lua_pushinteger(L, statement->last_id);
    }
    let_go(it);
    return count;
}

static const char *const kinds[] = {"query", "exec", "begin", "commit", "rollback", "close", NULL};

/* sqlite_run(database, kind, sql, params, in_transaction): rows of a query, else changes and the last row's id; or nil, why.
 *  [-0, +1|2, throws, parks] */
static int l_run(lua_State *L)
{
    mp_database *database = check_database(L, 1);
    int kind = luaL_checkoption(L, 2, NULL, kinds);
    size_t len;
    const char *sql = luaL_optlstring(L, 3, "", &len);
    luaL_argcheck(L, strlen(sql) == len, 3, "SQL without NUL is needed");
    lua_settop(L, 5);
    handle *it = lua_newuserdatauv(L, sizeof *it, 0);
    *it = (handle){NULL, NULL, false};
    luaL_setmetatable(L, HANDLE);
    waiting *op = mp_op_new(L, sizeof *op, on_cancel);
    work *made = mp_new(sizeof *made);
    made->of = it;
    it->statement = &made->statement;
    it->is_done = true; /* the collector's, should a value be none of SQL */
    made->statement.kind = (mp_sql_kind)kind;
    made->statement.sql = mp_dup(mp_str_of(sql));
    made->statement.in_transaction = lua_toboolean(L, 5);
    made->statement.done = on_done;
    put_params(L, 4, &made->statement);
    it->is_done = false;
    if (mp_database_run(database, mp_op_loop(&op->super), &made->statement) != 0) {
        it->is_done = true;
        let_go(it);
        lua_pushnil(L);
        lua_pushliteral(L, "too many statements wait for this database (limits.sqlite.queue)");
        return 2;
    }
    op->of = it;
    it->op = op;
    return mp_op_park_then(L, &op->super, ended, 6);
}

/* sqlite_undo(database): rolls back what is open, once its turn comes; waits for nothing.  [-0, +0, throws] */
static int l_undo(lua_State *L)
{
    mp_database *database = check_database(L, 1);
    work *made = mp_new(sizeof *made);
    made->is_left = true;
    made->statement.kind = MP_SQL_ROLLBACK;
    made->statement.done = on_done;
    if (mp_database_run(database, mp_vm_of(L)->loop, &made->statement) != 0)
        mp_statement_free(&made->statement);
    return 0;
}

/* sqlite_refused(): one more would have been too many; it is counted.  [-0, +0] */
static int l_refused(lua_State *L)
{
    (void)L;
    mp_stat_add(MP_STAT_REFUSED_DATABASES, 1);
    return 0;
}

/* task(): whatever is the same for the running task and for no other that runs.  [-0, +1] */
static int l_task(lua_State *L)
{
    lua_pushlightuserdata(L, mp_vm_of(L)->running);
    return 1;
}

static void set_collector(lua_State *L, const char *name, lua_CFunction collect)
{
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, collect);
    lua_setfield(L, -2, "__gc");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

void mp_lib_sqlite(lua_State *L, const mp_vm_config *config)
{
    static const luaL_Reg functions[] = {
        {"sqlite_run", l_run}, {"sqlite_undo", l_undo}, {"sqlite_refused", l_refused}, {"task", l_task}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    mp_database_limits *limits = lua_newuserdatauv(L, sizeof *limits, 0);
    *limits =
        (mp_database_limits){config->sqlite_rows, config->sqlite_bytes, config->sqlite_busy_ms, config->sqlite_queue};
    lua_pushcclosure(L, l_open, 1);
    lua_setfield(L, -2, "sqlite_open");
    lua_pushinteger(L, config->sqlite_databases);
    lua_setfield(L, -2, "sqlite_most");
    set_collector(L, DATABASE, l_close);
    set_collector(L, HANDLE, l_collect);
}
