/* sqlite.c: SQLite databases of tasks: opens a database, runs a statement on it, waits for the result.
 * lua/moonpool/lib/sqlite.lua checks which files a script may open, and orders transactions. */
#include "data/data.h"
#include "lib/fields.h"
#include "lib/bindings.h"
#include "lib/spans.h"
#include "lib/sql_text.h"
#include <lauxlib.h>

MP_REFUSED(refused_databases, "databases", MP_LIMIT_REACHED,
           "databases above 32 that one worker has open, or above what their script leaves to others")

#define MAX_DATABASES MP_LIMIT(sqlite_databases, 32) /* of one worker: each has a thread */
#define KEPT 4 /* scripts share the last quarter of them: each takes as many of these as it leaves to others */
#define DATABASE "moonpool.database"
#define HANDLE "moonpool.statement"
#define SHARED "moonpool.databases"
#define TIDY_GC_CYCLES 2 /* the first cycle of the collector runs finalizers, the second frees their objects */

typedef struct waiting waiting;

/* A statement in flight, in the task that waits for it. */
typedef struct {
    mp_resource resource;                /* frees the statement when the task ends, without waiting for the collector */
    mp_statement *MP_NULLABLE statement; /* NULL once it is cancelled or freed */
    waiting *MP_NULLABLE op;
    bool is_done;
    mp_open_span span; /* span of the statement */
} handle;

/* A statement as the database's thread has it. The Lua handle may be collected while the statement runs. */
typedef struct {
    mp_statement statement;
    handle *MP_NULLABLE of;
    atomic_bool is_left; /* set by the first of the two owners (database, handle) that no longer needs it; the second
                            frees it */
} work;

struct waiting {
    mp_op super;
    handle *of;
};

static work *work_of(mp_statement *statement)
{
    return mp_container(statement, work, statement);
}

static void release_statement(mp_statement *statement)
{
    if (atomic_exchange(&work_of(statement)->is_left, true))
        mp_statement_free(statement);
}

static void on_done(mp_statement *statement, mp_loop *MP_NULLABLE loop)
{
    handle *it = loop == NULL
                     ? NULL
                     : work_of(statement)->of; /* after the loop has ended, the handle may belong to another thread */
    if (it == NULL) {
        release_statement(statement);
        return;
    }
    it->is_done = true;
    waiting *op = it->op;
    it->op = NULL;
    if (op != NULL)
        mp_op_done(&op->super);
}

/* Cancels the handle's statement if it runs, and frees it once the database no longer uses it. */
static void cancel_statement(handle *it)
{
    mp_open_span_close(&it->span);
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
    release_statement(statement);
}

static void on_cancel(mp_op *op)
{
    handle *it = mp_container(op, waiting, super)->of;
    it->op = NULL;
    cancel_statement(it);
}

static void on_release(mp_resource *resource)
{
    cancel_statement(mp_container(resource, handle, resource));
}

static int l_collect(lua_State *L)
{
    handle *it = lua_touserdata(L, 1);
    mp_resource_drop(&it->resource);
    cancel_statement(it);
    return 0;
}

/* -- databases --------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_database *MP_NULLABLE database; /* NULL once it is closed */
    unsigned script;                   /* the number of the script that has opened it */
} opened;

static mp_database *check_database(lua_State *L, int index)
{
    mp_database *database = ((opened *)luaL_checkudata(L, index, DATABASE))->database;
    luaL_argcheck(L, database != NULL, index, "the database is closed");
    return database;
}

/* The data that all databases of a VM share. The registry holds it. */
typedef struct {
    mp_database_limits limits;
    mp_databases leaving; /* databases that are being closed */
    int64_t count;        /* databases that have a handle */
    mp_holdings holdings; /* those of each script */
} shared;

static const char shared_key;

static shared *shared_of(lua_State *L)
{
    lua_rawgetp(L, LUA_REGISTRYINDEX, &shared_key);
    shared *it = lua_touserdata(L, -1);
    lua_pop(L, 1); /* the registry holds a reference to the databases */
    return it;
}

/* sqlite.script(path): the number of the script with this path, by which it has its share of databases.  [-0, +1] */
static int l_script(lua_State *L)
{
    size_t len;
    const char *path = luaL_checklstring(L, 1, &len);
    lua_pushinteger(L, mp_holder_number(path, len));
    return 1;
}

/* sqlite.open(root, rest, read_only, setup, state, script): sets state.handle, unless it is set: a database in the file
 * `rest` below the folder `root`; in memory if `root` is nil. `script`: number of the script that opens it.
 *  [-0, +0, throws] */
static int l_open(lua_State *L)
{
    luaL_checktype(L, 5, LUA_TTABLE);
    lua_pushliteral(L, "handle");
    if (lua_rawget(L, 5) != LUA_TNIL)
        return 0;
    shared *all = shared_of(L);
    const char *root = luaL_optstring(L, 1, NULL), *rest = luaL_optstring(L, 2, NULL),
               *setup = luaL_optstring(L, 4, NULL);
    opened *it = lua_newuserdatauv(L, sizeof *it, 0);
    *it = (opened){NULL, (unsigned)luaL_checkinteger(L, 6)};
    luaL_setmetatable(L, DATABASE);
    it->database = mp_database_new(root, rest, lua_toboolean(L, 3), setup, &all->limits, it->script);
    all->count++;
    mp_holdings_change(&all->holdings, it->script, 1);
    lua_pushliteral(L, "handle");
    lua_insert(L, -2);
    lua_rawset(L, 5);
    return 0;
}

/* __gc, and sqlite_leave(database): cancels its statements and closes it, without waiting. Does nothing if it is closed
 * already.
 *  [-0, +0] */
static int l_close(lua_State *L)
{
    opened *it = luaL_checkudata(L, 1, DATABASE);
    shared *all = shared_of(L);
    if (it->database != NULL) {
        mp_database_leave(&all->leaving, it->database);
        all->count--;
        mp_holdings_change(&all->holdings, it->script, -1);
    }
    it->database = NULL;
    return 0;
}

/* sqlite.count(script): how many databases have a handle (open ones, and ones that the collector has not freed yet);
 * how many are being closed; true if the collector has not finished the cycles that sqlite_tidy() requested; true if
 * the script leaves too little to others to have one more; how many it has.  [-0, +5, throws] */
static int l_count(lua_State *L)
{
    shared *all = shared_of(L);
    int64_t most = MAX_DATABASES;
    unsigned script = (unsigned)luaL_checkinteger(L, 1);
    lua_pushinteger(L, all->count);
    lua_pushinteger(L, mp_databases_count(&all->leaving));
    lua_pushboolean(L, mp_state_of(mp_vm_of(L))->full_cycles > 0);
    lua_pushboolean(L, !mp_holdings_add(&all->holdings, script, 0, all->count, most - all->count, most / KEPT));
    lua_pushinteger(L, mp_holdings_change(&all->holdings, script, 0));
    return 5;
}

/* sqlite.tidy(): requests two cycles of the collector, which run in turns while the caller waits. False if the caller
 * may not wait.  [-0, +1] */
static int l_tidy(lua_State *L)
{
    mp_state *state = mp_state_of(mp_vm_of(L));
    bool may_wait = state->may_wait && lua_isyieldable(L);
    if (may_wait && state->full_cycles < TIDY_GC_CYCLES)
        state->full_cycles = TIDY_GC_CYCLES;
    lua_pushboolean(L, may_wait);
    return 1;
}

static int l_end(lua_State *L)
{
    shared *all = lua_touserdata(L, 1);
    mp_databases_end(&all->leaving);
    return 0;
}

/* -- values ------------------------------------------------------------------------------------------------------ */

/* Appends a text or blob. Returns false, and appends nothing, if the parameters would be larger than `most` bytes. */
static bool put_bytes(mp_buf *to, char tag, mp_str bytes, size_t most)
{
    if (bytes.len > most || to->len > most - bytes.len)
        return false;
    mp_sql_put_bytes(to, tag, bytes);
    return true;
}

/* Pops the value on top and appends it to the parameters. False if they would be larger than `most` bytes.  [-1, +0,
 * throws] */
static bool put_value(lua_State *L, mp_buf *to, size_t most)
{
    bool fits = true;
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
        fits = put_bytes(to, 't', bytes, most);
    } else if (kind == LUA_TTABLE && lua_rawgeti(L, -1, 1) == LUA_TSTRING) { /* the table holds a blob */
        bytes.ptr = lua_tolstring(L, -1, &bytes.len);
        fits = put_bytes(to, 'b', bytes, most);
        lua_pop(L, 1);
    } else if (kind == LUA_TLIGHTUSERDATA) {
        mp_sql_put_null(to);
    } else {
        luaL_error(L, "an SQL value is a number, string, boolean, json.null or blob, not a %s", lua_typename(L, kind));
    }
    lua_pop(L, 1);
    return fits;
}

/* Appends the parameters at `index`: nil, a list, or a table by name, read without metamethods. Returns NULL, or the
 * error text.
 *  [-0, +0, throws] */
static const char *MP_NULLABLE put_params(lua_State *L, int index, mp_statement *statement, size_t most)
{
    static const char too_large[] = "the parameters are larger than 16 MiB";
    static const char too_many[] = "there are more than 1000 parameters";
    if (lua_isnil(L, index))
        return NULL;
    lua_Integer count = (lua_Integer)lua_rawlen(L, index);
    statement->has_names = count == 0;
    if (count > MP_MAX_SQL_PARAMS)
        return too_many;
    for (lua_Integer i = 1; i <= count; i++) {
        mp_sql_put_bytes(&statement->params, 't', MP_STR(""));
        lua_rawgeti(L, index, i);
        if (!put_value(L, &statement->params, most))
            return too_large;
        statement->param_count++;
    }
    if (!statement->has_names)
        return NULL;
    for (lua_pushnil(L); lua_next(L, index) != 0; statement->param_count++) {
        if (lua_type(L, -2) != LUA_TSTRING)
            luaL_error(L, "parameters must be a list, or a table by name");
        if (statement->param_count == MP_MAX_SQL_PARAMS)
            return too_many;
        mp_str name;
        name.ptr = lua_tolstring(L, -2, &name.len);
        if (!put_bytes(&statement->params, 't', name, most) || !put_value(L, &statement->params, most))
            return too_large;
    }
    return NULL;
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

/* Pushes the rows of a query's result, each a table by column name.  [-0, +1, throws] */
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

/* Pushes the results of sqlite_run(). `context`: stack index of the handle.  [-0, +1|2|3, throws] */
static int push_results(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    handle *it = lua_touserdata(L, (int)context);
    const mp_statement *statement = it->statement;
    int count = 2;
    if (statement == NULL)
        return mp_push_failure(L, "the statement was cancelled");
    if (statement->failed)
        mp_open_span_fail(&it->span, "_OTHER", MP_STR_NONE);
    mp_open_span_close(&it->span);
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
    mp_resource_drop(&it->resource);
    cancel_statement(it);
    return count;
}

static const char *const kinds[] = {"query", "exec", "begin", "commit", "rollback", "close", NULL};

/* Begins the span of a statement: its text has no values. */
static mp_open_span begin_span(lua_State *L, const mp_database *database, mp_sql_kind kind, mp_str sql)
{
    char room[MP_SQL_OPERATION], name[MP_SPAN_NAME_BYTES];
    static const mp_str others[] = {
        [MP_SQL_BEGIN] = {"BEGIN", 5}, [MP_SQL_COMMIT] = {"COMMIT", 6}, [MP_SQL_ROLLBACK] = {"ROLLBACK", 8}};
    mp_lib_task *task = mp_lib_task_running(L);
    if (mp_task_trace(task) == NULL || kind == MP_SQL_CLOSE)
        return (mp_open_span){NULL, 0, MP_NO_SPAN};
    bool has_text = kind == MP_SQL_QUERY || kind == MP_SQL_EXEC;
    mp_str operation = has_text ? mp_sql_operation(sql, room) : others[kind], file = mp_database_name(database);
    snprintf(name, sizeof name, "%.*s %.*s", MP_STR_ARG(operation), MP_STR_ARG(file));
    mp_open_span span = mp_task_span_open(task, MP_SPAN_CLIENT, mp_str_of(name));
    mp_trace *trace = mp_open_span_trace(&span);
    mp_span_text(trace, span.span, "db.system.name", MP_STR("sqlite"));
    mp_span_text(trace, span.span, "db.namespace", file);
    mp_span_text(trace, span.span, "db.operation.name", operation);
    mp_scoped_buf text = {0};
    mp_sql_put_plain(&text, sql, MP_SPAN_VALUE_BYTES);
    mp_span_text(trace, span.span, "db.query.text", mp_buf_str(&text));
    return span;
}

/* The database of the state at 1, if the statement may be queued: no transaction has the database, or that of the token
 * at 5. It has it from `begin` on. Nothing else runs between this and the queue.  [-0, +0, throws] */
static mp_database *MP_NULLABLE database_in_turn(lua_State *L, int kind)
{
    lua_pushliteral(L, "owner");
    bool is_free = lua_rawget(L, 1) == LUA_TNIL, begins = kind == MP_SQL_BEGIN;
    bool may_run = is_free ? begins || lua_isnil(L, 5) : lua_rawequal(L, -1, 5);
    lua_pushliteral(L, "handle");
    if (!may_run || lua_rawget(L, 1) == LUA_TNIL)
        return NULL;
    mp_database *database = check_database(L, -1);
    if (begins) {
        lua_pushliteral(L, "owner");
        lua_pushvalue(L, 5);
        lua_rawset(L, 1);
    }
    return database;
}

/* sqlite.run(state, kind, sql, params, token, script): runs a statement and waits for it. The rows of a query; else the
 * number of changed rows and the id of the last inserted row; or nil, why. False, and nothing was run, if another
 * transaction has the database, or it is closed. `token`: of the transaction that the statement belongs to, or begins.
 * `script`: number of the script that runs it.  [-0, +1|2, throws, parks] */
static int l_run(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    int kind = luaL_checkoption(L, 2, NULL, kinds);
    size_t len;
    const char *sql = luaL_optlstring(L, 3, "", &len);
    luaL_argcheck(L, strlen(sql) == len, 3, "SQL must not contain NUL bytes");
    luaL_argcheck(L, len <= MP_MAX_SQL_BYTES, 3, "SQL is at most 1 MiB");
    unsigned script = (unsigned)luaL_checkinteger(L, 6);
    lua_settop(L, 5);
    mp_database *database = database_in_turn(L, kind);
    if (database == NULL) {
        lua_pushboolean(L, false);
        return 1;
    }
    lua_settop(L, 5);
    handle *it = lua_newuserdatauv(L, sizeof *it, 0);
    *it = (handle){0};
    luaL_setmetatable(L, HANDLE);
    waiting *op = mp_op_new(L, sizeof *op, on_cancel);
    work *made = mp_new(sizeof *made);
    made->of = it;
    it->statement = &made->statement;
    /* the pointer is on the stack already: the statement is freed by the collector if put_params() raises an error */
    it->is_done = true;
    made->statement.kind = (mp_sql_kind)kind;
    made->statement.script = script;
    made->statement.sql = mp_dup(mp_str_of(sql));
    made->statement.in_transaction = kind != MP_SQL_BEGIN && !lua_isnil(L, 5);
    made->statement.done = on_done;
    const char *why = put_params(L, 4, &made->statement, MP_SQL_BYTES);
    lua_settop(L, 7);
    if (why == NULL && !mp_statement_hold(&made->statement, made->statement.params.cap + len))
        why = "too many bytes of SQL results and parameters are in memory, of this script or all (128 MiB): run fewer "
              "statements at once";
    if (why == NULL) {
        it->is_done = false;
        mp_resource_put(L, &it->resource, on_release);
        if (mp_database_run(database, op->super.loop, &made->statement) != 0)
            why = "too many statements wait for this database, of this script or all (1,024)";
    }
    if (why != NULL) {
        it->is_done = true;
        mp_resource_drop(&it->resource);
        cancel_statement(it);
        return mp_push_failure(L, why);
    }
    op->of = it;
    it->op = op;
    it->span = begin_span(L, database, (mp_sql_kind)kind, (mp_str){sql, len});
    return mp_op_park_then(L, &op->super, push_results, 6);
}

/* sqlite.undo(database): queues a rollback of the open transaction, and does not wait for it.  [-0, +0, throws] */
static int l_undo(lua_State *L)
{
    mp_database *database = check_database(L, 1);
    work *made = mp_new(sizeof *made);
    made->is_left = true;
    made->statement.kind = MP_SQL_ROLLBACK;
    made->statement.done = on_done;
    mp_loop *loop = mp_state_of(mp_vm_of(L))->loop;
    if (loop == NULL || mp_database_run(database, loop, &made->statement) != 0)
        mp_statement_free(&made->statement);
    return 0;
}

/* sqlite.count_refused(): counts a database that was refused because all places are taken.  [-0, +0] */
static int l_refused(MP_UNUSED lua_State *L)
{
    mp_stat_add(&mp_stat_refused_databases, 1);
    return 0;
}

/* task.current(): a light userdata that identifies the running task; nil outside of tasks.  [-0, +1] */
static int l_task(lua_State *L)
{
    mp_task *task = mp_state_of(mp_vm_of(L))->running;
    if (task == NULL)
        return 0;
    lua_pushlightuserdata(L, task);
    return 1;
}

static void set_collector(lua_State *L, const char *name, lua_CFunction collect)
{
    mp_push_metatable(L, name, collect);
    lua_pop(L, 1);
}

MP_SCRIPT_LIBRARY(sqlite)
{
    static const luaL_Reg functions[] = {{"sqlite.open", l_open},   {"sqlite.script", l_script},
                                         {"sqlite.leave", l_close}, {"sqlite.count", l_count},
                                         {"sqlite.tidy", l_tidy},   {"sqlite.run", l_run},
                                         {"sqlite.undo", l_undo},   {"sqlite.count_refused", l_refused},
                                         {"task.current", l_task},  {NULL, NULL}};
    mp_sql_memory_start();
    mp_set_members(L, functions, 0);
    /* Created before any database, so that its finalizer runs after those of the databases when the VM ends. */
    shared *all = lua_newuserdatauv(L, sizeof *all, 0);
    *all = (shared){.limits = config->sqlite};
    set_collector(L, SHARED, l_end);
    luaL_setmetatable(L, SHARED);
    lua_rawsetp(L, LUA_REGISTRYINDEX, &shared_key);
    lua_pushinteger(L, MAX_DATABASES);
    mp_set_member(L, -2, "limits.sqlite_databases");
    set_collector(L, DATABASE, l_close);
    set_collector(L, HANDLE, l_collect);
}
