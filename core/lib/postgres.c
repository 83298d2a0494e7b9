/* postgres.c: PostgreSQL for tasks: runs statements on connections that the tasks of the worker take turns with, and
 * makes Lua values of their results. lua/moonpool/lib/postgres.lua checks grants and parameters. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include "lib/seat.h"
#include "lib/postgres_values.h"
#include "lib/spans.h"
#include "lib/sql_text.h"
#include "lib/work/listening.h"
#include "postgres/postgres.h"
#include <lauxlib.h>
#include <math.h>

MP_REFUSED(refused_pools, "postgres_databases", MP_LIMIT_REACHED,
           "PostgreSQL databases above 16 that scripts of one worker have connections to")
MP_GAUGE(postgres_messages, "postgres_messages", "", "",
         "messages of channels of PostgreSQL servers that no job has taken yet")
MP_COUNTER(dropped_notifications, "dropped", "reason", "postgres_messages",
           "messages of channels of PostgreSQL servers above 1,024 or 16 MiB that waited for a job")

#define MAX_POOLS MP_LIMIT(postgres_databases, 16) /* of one worker's scripts: each has up to 32 connections */
#define MAX_QUERIES 1000                           /* that are sent together */
#define MAX_PARAMS 1000                            /* of one query, as of SQLite */
#define MAX_BYTES ((size_t)16 << 20)               /* of the SQL that is sent together, and of its parameters */
#define MAX_STORED_BYTES ((size_t)16 << 10)        /* of SQL that connection and server keep prepared */
#define TURN_BYTES                                                                                                     \
    ((ptrdiff_t)64 << 10) /* of results that become tables in one turn of the loop: about a millisecond */
#define POOL "moonpool.postgres"
#define LEASE "moonpool.lease"
#define CHANNEL "moonpool.postgres.channel"

/* A database of scripts. Its connections are opened by statements. */
typedef struct {
    mp_seat taken;                     /* in mp_lib.postgres while there is a `postgres` */
    mp_postgres *MP_NULLABLE postgres; /* NULL: no statement has run, or the VM is detached */
    mp_lib *lib;
    mp_postgres_server server; /* owns its texts */
    char *shown;               /* "db.internal:5432/shop" */
} pool;

/* Results that become tables, in several turns of the loop if they are large. */
typedef struct {
    bool is_begun, is_open;     /* open: the list of the present query's rows is above `all` on the stack */
    const char *MP_NULLABLE at; /* the next item; NULL: none is left */
    int all, top;               /* index of the table of all results, and of the last value, between turns */
    lua_Integer count, row;     /* values in that table; rows of the present query */
    int columns, cell;
} pushed;

/* A task's place at a connection, for one statement or for a transaction. */
typedef struct {
    mp_resource resource;
    mp_timer timer;
    pool *of;
    mp_postgres_lease *MP_NULLABLE lease; /* NULL: no statement has run, or it is over */
    mp_op *MP_NULLABLE op;                /* that waits for the statement */
    bool is_over, keeps;                  /* keeps: the connection stays after the statement, whose transaction it is */
    bool is_late;
    mp_postgres_end late; /* how the statement stood when its time was over */
    mp_open_span span;
    pushed lists;
} place;

typedef struct {
    mp_op super;
    place *of;
} waiting;

/* -- leases -------------------------------------------------------------------------------------------------------- */

static mp_postgres_end give_back(place *it)
{
    mp_postgres_lease *lease = it->lease;
    mp_open_span_close(&it->span);
    if (lease == NULL)
        return MP_POSTGRES_DONE;
    mp_timer_stop(MP_NEVER_NULL(mp_state_of(it->of->lib->vm)->loop), &it->timer); /* there was one for the lease */
    it->lease = NULL;
    it->is_over = true;
    mp_resource_drop(&it->resource);
    return mp_postgres_lease_free(lease);
}

static void end_wait(place *it)
{
    mp_op *op = it->op;
    it->op = NULL;
    if (op != NULL)
        mp_op_done(op);
}

static void on_cancel(mp_op *op)
{
    place *it = mp_container(op, waiting, super)->of;
    it->op = NULL;
    give_back(it);
}

/* Another task may wait for a statement of the transaction that ends with this one. */
static void on_release(mp_resource *resource)
{
    place *it = mp_container(resource, place, resource);
    give_back(it);
    end_wait(it);
}

static int l_collect_lease(lua_State *L)
{
    give_back(lua_touserdata(L, 1));
    return 0;
}

static void on_done(void *ctx)
{
    place *it = ctx;
    mp_timer_stop(MP_NEVER_NULL(mp_state_of(it->of->lib->vm)->loop), &it->timer); /* it runs this */
    end_wait(it);
}

static void on_late(mp_timer *timer)
{
    place *it = mp_container(timer, place, timer);
    it->is_late = true;
    it->late = give_back(it);
    end_wait(it);
}

/* -- databases ----------------------------------------------------------------------------------------------------- */

static void close_pool(pool *it)
{
    if (it->postgres == NULL)
        return;
    mp_link_drop(&it->taken.link);
    mp_postgres_free(it->postgres);
    it->postgres = NULL;
}

void mp_lib_close_postgres(mp_lib *lib)
{
    MP_EACH(pool, it, &lib->postgres, taken.link) /* no job listens any more: all are pools */
        close_pool(it);
}

static int l_collect_pool(lua_State *L)
{
    pool *it = lua_touserdata(L, 1);
    close_pool(it);
    mp_str_free(mp_str_of(it->server.host));
    mp_str_free(it->server.database);
    mp_str_free(it->server.user);
    mp_str_free(it->server.password);
    free((char *)(uintptr_t)it->server.root);
    free(it->shown);
    it->server = (mp_postgres_server){0};
    it->shown = MP_UNSET;
    return 0;
}

static mp_str copy_field(lua_State *L, const char *name)
{
    mp_str text = mp_text_field(L, 1, name);
    return (mp_str){mp_dup(text), text.len};
}

/* postgres.pool { host, port, tls, prepare, database, user, password, reach, root, script, size, timeout, place, lists
 * }: a database, to which nothing is connected yet. `lists`: the metatable of lists. `root`: of a Unix socket, the path
 * that was granted.  [-0, +1, throws] */
static int l_pool(lua_State *L)
{
    luaL_checktype(L, 1, LUA_TTABLE);
    lua_settop(L, 1);
    pool *it = lua_newuserdatauv(L, sizeof *it, 1);
    *it = (pool){.lib = mp_lib_of(L)};
    luaL_setmetatable(L, POOL);
    mp_postgres_server *server = &it->server;
    mp_str script = mp_text_field(L, 1, "script");
    server->policy = mp_reach_field(L, 1);
    server->port = (uint16_t)mp_number_field(L, 1, "port");
    server->size = (int64_t)mp_number_field(L, 1, "size");
    server->timeout_ms = (int64_t)ceil(mp_number_field(L, 1, "timeout") * 1000);
    lua_getfield(L, 1, "tls");
    server->is_tls = lua_toboolean(L, -1);
    lua_getfield(L, 1, "prepare");
    server->prepares = lua_toboolean(L, -1);
    server->holder = mp_holder_number(script.ptr, script.len);
    server->host = copy_field(L, "host").ptr;
    server->database = copy_field(L, "database");
    server->user = copy_field(L, "user");
    server->password = copy_field(L, "password");
    it->shown = mp_dup(mp_text_field(L, 1, "place"));
    if (*server->host == '/')
        server->root = copy_field(L, "root").ptr;
    lua_getfield(L, 1, "lists");
    lua_setiuservalue(L, 2, 1);
    lua_settop(L, 2);
    return 1;
}

/* The open database, or a new one; NULL: there are too many.  [-0, +0, throws] */
static mp_postgres *MP_NULLABLE need_postgres(lua_State *L, pool *it)
{
    mp_lib *lib = it->lib;
    mp_loop *loop = mp_state_of(mp_vm_of(L))->loop;
    if (it->postgres != NULL)
        return it->postgres;
    if (loop == NULL || lib->client == NULL)
        luaL_error(L, MP_NOT_SERVING);
    if (mp_seat_take(&lib->postgres, &it->taken, it->server.holder, MAX_POOLS, &mp_stat_refused_pools))
        it->postgres = mp_postgres_new(loop, MP_NEVER_NULL(lib->client), &it->server);
    return it->postgres;
}

/* postgres.lease(pool): a place at one of its connections, which has none yet.  [-0, +1, throws] */
static int l_lease(lua_State *L)
{
    pool *of = luaL_checkudata(L, 1, POOL);
    lua_settop(L, 1);
    place *it = lua_newuserdatauv(L, sizeof *it, 1);
    *it = (place){.of = of};
    luaL_setmetatable(L, LEASE);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, 2, 1);
    return 1;
}

/* postgres.release(lease): gives the connection back. What runs is cancelled, an open transaction is rolled back, and
 * nobody waits for either.  [-0, +0, throws] */
static int l_release(lua_State *L)
{
    place *it = luaL_checkudata(L, 1, LEASE);
    give_back(it);
    end_wait(it);
    it->is_over = true;
    return 0;
}

/* -- results ------------------------------------------------------------------------------------------------------- */

/* Begins to push { rows, count, rows, count, … } of the queries, in which a row is a table by column name. The
 * metatable of lists is on top of the stack.  [-0, +1, throws] */
static void begin_lists(lua_State *L, place *it)
{
    it->lists = (pushed){.at = mp_postgres_items(MP_NEVER_NULL(it->lease)), .all = lua_gettop(L) + 1, .is_begun = true};
    lua_newtable(L);
}

/* Goes on with them for one turn of the loop. False: there is more.  [-0, +?, throws] */
static bool push_lists(lua_State *L, place *it)
{
    mp_postgres_item item;
    pushed *to = &it->lists;
    int lists = to->all - 1, rows = to->all + 1;
    const char *begin = to->at;
    while (to->at != NULL) {
        if (!to->is_open) {
            lua_newtable(L);
            lua_pushvalue(L, lists);
            lua_setmetatable(L, -2);
            to->is_open = true;
        }
        to->at = mp_postgres_next(MP_NEVER_NULL(it->lease), to->at, &item);
        switch (item.kind) {
        case MP_POSTGRES_COLUMN: /* its name and its type stay on the stack */
            luaL_checkstack(L, 12, "too many columns");
            lua_pushlstring(L, item.text.ptr, item.text.len);
            lua_pushinteger(L, item.number);
            to->columns++;
            break;
        case MP_POSTGRES_ROW:
            lua_settop(L, rows + 2 * to->columns);
            lua_createtable(L, 0, to->columns);
            lua_pushvalue(L, -1);
            lua_rawseti(L, rows, ++to->row);
            to->cell = 0;
            break;
        case MP_POSTGRES_CELL:
            lua_pushvalue(L, rows + 1 + 2 * to->cell);
            mp_postgres_push_value(L, lua_tointeger(L, rows + 2 + 2 * to->cell), item.text, lists);
            lua_rawset(L, -3);
            to->cell++;
            break;
        case MP_POSTGRES_NULL:
            to->cell++;
            break;
        case MP_POSTGRES_COUNT:
            lua_settop(L, rows);
            lua_rawseti(L, to->all, ++to->count);
            lua_pushinteger(L, item.number);
            lua_rawseti(L, to->all, ++to->count);
            to->columns = 0;
            to->row = 0;
            to->is_open = false;
            break;
        }
        if (to->at != NULL && to->at - begin > TURN_BYTES && mp_op_may_wait(L))
            return false;
    }
    if (to->is_open) {
        lua_settop(L, rows);
        lua_rawseti(L, to->all, ++to->count);
    }
    lua_settop(L, to->all);
    return true;
}

/* Pushes nil, why, the reason ("error", "unavailable" or "unknown"), and the SQLSTATE.  [-0, +4, throws] */
static int push_failure(lua_State *L, place *it, mp_postgres_end end, const char *why, const char *state)
{
    const char *reason = end == MP_POSTGRES_FAILED        ? "error"
                         : end == MP_POSTGRES_UNAVAILABLE ? "unavailable"
                                                          : "unknown";
    mp_open_span_fail(&it->span, *state != '\0' ? state : reason, MP_STR_NONE);
    lua_pushnil(L);
    if (end == MP_POSTGRES_FAILED)
        lua_pushstring(L, why);
    else
        lua_pushfstring(L, "%s: %s: %s", reason, it->of->shown, why);
    lua_pushstring(L, reason);
    lua_pushstring(L, *state != '\0' ? state : NULL);
    if (end != MP_POSTGRES_FAILED || !it->keeps)
        give_back(it);
    mp_open_span_close(&it->span);
    return 4;
}

static waiting *new_op(lua_State *L, place *it)
{
    double seconds = luaL_checknumber(L, 3);
    luaL_argcheck(L, seconds > 0 && seconds <= 86400, 3, "from above 0 to a day");
    waiting *op = mp_op_new(L, sizeof *op, on_cancel);
    op->of = it;
    return op;
}

static void on_turn(mp_timer *timer)
{
    end_wait(mp_container(timer, place, timer));
}

static int push_results(lua_State *L, int status, lua_KContext context);

/* Goes on with the results in the next turn of the loop, when others have had theirs.  [-0, +?, parks] */
static int push_later(lua_State *L, place *it)
{
    it->lists.top = lua_gettop(L);
    luaL_checkstack(L, 4, "too many columns");
    waiting *op = new_op(L, it);
    it->op = &op->super;
    mp_timer_start(op->super.loop, &it->timer, 0, on_turn);
    return mp_op_park_then(L, &op->super, push_results, 0);
}

/* Pushes the results of postgres.run(). Stack: 1 the lease, 2 the queries, 3 the seconds.  [-0, +3|4, throws, parks] */
static int push_results(lua_State *L, MP_UNUSED int status, MP_UNUSED lua_KContext context)
{
    place *it = lua_touserdata(L, 1);
    mp_postgres_lease *lease = it->lease;
    char why[64];
    snprintf(why, sizeof why, "no answer within %g s", lua_tonumber(L, 3));
    if (lease == NULL)
        return push_failure(L, it, it->is_late ? it->late : MP_POSTGRES_UNKNOWN, why, "");
    mp_postgres_end end = mp_postgres_end_of(lease);
    if (end != MP_POSTGRES_DONE && end != MP_POSTGRES_MORE)
        return push_failure(L, it, end, mp_postgres_why(lease), mp_postgres_state(lease));
    if (it->lists.is_begun) {
        lua_settop(L, it->lists.top);
    } else {
        lua_pushboolean(L, true);
        lua_getiuservalue(L, 1, 1);
        lua_getiuservalue(L, -1, 1);
        begin_lists(L, it);
    }
    if (!push_lists(L, it))
        return push_later(L, it);
    it->lists.is_begun = false;
    lua_pushboolean(L, end == MP_POSTGRES_MORE);
    lua_remove(L, it->lists.all - 1);
    lua_remove(L, it->lists.all - 2);
    if (end == MP_POSTGRES_DONE)
        mp_open_span_close(&it->span);
    if (end == MP_POSTGRES_DONE && !it->keeps)
        give_back(it);
    return 3;
}

/* -- statements ---------------------------------------------------------------------------------------------------- */

/* Begins the span of a statement: its text has no values.  [-0, +0, throws] */
static mp_open_span begin_span(lua_State *L, const pool *of, mp_str sql, int count)
{
    char room[MP_SQL_OPERATION], name[MP_SPAN_NAME_BYTES];
    mp_lib_task *task = mp_lib_task_running(L);
    if (mp_task_trace(task) == NULL)
        return (mp_open_span){NULL, 0, MP_NO_SPAN};
    mp_str operation = count > 1 ? MP_STR("PIPELINE") : mp_sql_operation(sql, room);
    snprintf(name, sizeof name, "%.*s %s", MP_STR_ARG(operation), of->shown);
    mp_open_span span = mp_task_span_open(task, MP_SPAN_CLIENT, mp_str_of(name));
    mp_trace *trace = mp_open_span_trace(&span);
    mp_span_text(trace, span.span, "db.system.name", MP_STR("postgresql"));
    mp_span_text(trace, span.span, "db.namespace", of->server.database);
    mp_span_text(trace, span.span, "db.operation.name", operation);
    mp_span_text(trace, span.span, "server.address", mp_str_of(of->server.host));
    mp_span_int(trace, span.span, "server.port", of->server.port);
    if (count > 1) {
        mp_span_int(trace, span.span, "db.operation.batch.size", count);
    } else {
        mp_scoped_buf text = {0};
        mp_sql_put_plain(&text, sql, MP_SPAN_VALUE_BYTES);
        mp_span_text(trace, span.span, "db.query.text", mp_buf_str(&text));
    }
    return span;
}

/* The query on top of the stack: { sql =, n =, leaves =, … }, in which a value is a text, json.null, or { text, OID },
 * which is binary if the OID is that of bytea. Pushes what has to stay while it runs. Returns NULL, or the error text.
 * [-0, +1, throws] */
static const char *MP_NULLABLE read_query(lua_State *L, mp_postgres_query *query, size_t *bytes)
{
    int at = lua_gettop(L);
    lua_Number count = mp_number_field(L, at, "n");
    mp_str sql = mp_text_field(L, at, "sql"); /* the table has it */
    if (count > MAX_PARAMS)
        return "there are more than 1000 parameters";
    size_t n = (size_t)count, size = sizeof(const char *) + 2 * sizeof(int) + sizeof(unsigned);
    const char **values = lua_newuserdatauv(L, n * size + 1, 0);
    int *lens = (int *)(void *)(values + n), *formats = lens + n;
    unsigned *types = (unsigned *)(void *)(formats + n);
    for (size_t i = 0; i < n; i++) {
        size_t len = 0;
        types[i] = 0;
        if (lua_rawgeti(L, at, (lua_Integer)i + 1) == LUA_TTABLE) {
            lua_rawgeti(L, -1, 2);
            types[i] = (unsigned)lua_tointeger(L, -1);
            lua_rawgeti(L, -2, 1);
        }
        values[i] = lua_type(L, -1) == LUA_TSTRING ? lua_tolstring(L, -1, &len) : NULL;
        formats[i] = types[i] == 17;
        lens[i] = (int)len;
        *bytes += len;
        lua_settop(L, at + 1);
    }
    *query = (mp_postgres_query){sql.ptr, (int)n, values, lens, formats, types};
    return *bytes > MAX_BYTES ? "the parameters are larger than 16 MiB" : NULL;
}

static const char *MP_NULLABLE start(lua_State *L, place *it, mp_postgres_statement *statement, mp_err *err)
{
    size_t bytes = 0, sql_bytes = 0;
    lua_Integer count = (lua_Integer)lua_rawlen(L, 2);
    if (count == 0 || count > MAX_QUERIES)
        return "from 1 to 1000 statements are sent together";
    mp_postgres_query *queries = lua_newuserdatauv(L, (size_t)count * sizeof *queries, 0);
    luaL_checkstack(L, (int)count + 8, "too many statements");
    for (lua_Integer i = 0; i < count; i++) {
        lua_rawgeti(L, 2, i + 1);
        lua_getfield(L, -1, "leaves");
        statement->is_marked |= lua_toboolean(L, -1);
        lua_pop(L, 1);
        const char *why = read_query(L, &queries[i], &bytes);
        lua_remove(L, -2); /* its list keeps it */
        if (why != NULL)
            return why;
        if ((sql_bytes += strlen(queries[i].sql)) > MAX_BYTES)
            return "the statements together are larger than 16 MiB";
    }
    statement->queries = queries;
    statement->count = (int)count;
    statement->is_stored = strlen(queries->sql) <= MAX_STORED_BYTES;
    if (it->lease == NULL) {
        mp_postgres *postgres = need_postgres(L, it->of);
        if (postgres == NULL)
            return "connections to 16 PostgreSQL databases are open, or to as many as this script may have of the last "
                   "ones";
        it->lease = mp_postgres_lease_new(postgres, on_done, it);
        mp_resource_put(L, &it->resource, on_release);
    }
    it->span = begin_span(L, it->of, mp_str_of(queries->sql), (int)count);
    return mp_postgres_run(MP_NEVER_NULL(it->lease), statement, err) == 0 ? NULL : err->text;
}

/* Waits until the statement ends; not if it has.  [-0, +?, parks] */
static int wait_for_end(lua_State *L, place *it, mp_op *op)
{
    double seconds = lua_tonumber(L, 3);
    if (mp_postgres_end_of(MP_NEVER_NULL(it->lease)) == MP_POSTGRES_WAITS)
        mp_timer_start(op->loop, &it->timer, (uint64_t)ceil(seconds * 1000), on_late);
    else
        end_wait(it);
    return mp_op_park_then(L, op, push_results, 0);
}

/* postgres.run(lease, queries, seconds, keeps, fetch): sends the queries together and waits. true, { rows, count, … },
 * and true if there are more rows; or nil, why, "error", "unavailable" or "unknown", and the SQLSTATE or nil. `keeps`:
 * the lease has the connection until release(), else until the statement has ended. `fetch`: rows that are wanted at
 * once; 0: all.  [-0, +3|4, throws, parks] */
static int l_run(lua_State *L)
{
    place *it = luaL_checkudata(L, 1, LEASE);
    mp_err err;
    luaL_checktype(L, 2, LUA_TTABLE);
    mp_postgres_statement statement = {.fetch = (size_t)luaL_optinteger(L, 5, 0)};
    bool keeps = lua_toboolean(L, 4);
    lua_settop(L, 3);
    if (it->is_over || it->op != NULL || (it->lease != NULL && mp_postgres_end_of(it->lease) == MP_POSTGRES_MORE)) {
        lua_pushnil(L);
        lua_pushstring(L, it->is_over ? "this transaction has ended" : "this transaction runs another statement");
        lua_pushliteral(L, "unavailable");
        return 3;
    }
    waiting *op = new_op(L, it);
    it->keeps = keeps;
    it->is_late = false;
    it->lists.is_begun = false;
    const char *why = start(L, it, &statement, &err);
    if (why != NULL)
        return push_failure(L, it, MP_POSTGRES_UNAVAILABLE, why, "");
    it->op = &op->super;
    return wait_for_end(L, it, &op->super);
}

/* postgres.more(lease, nil, seconds): waits for more rows of the statement, as run() does.  [-0, +3|4, throws, parks]
 */
static int l_more(lua_State *L)
{
    place *it = luaL_checkudata(L, 1, LEASE);
    lua_settop(L, 3);
    luaL_argcheck(L, it->lease != NULL && it->op == NULL && mp_postgres_end_of(it->lease) == MP_POSTGRES_MORE, 1,
                  "it has no more rows");
    waiting *op = new_op(L, it);
    it->lists.is_begun = false;
    mp_postgres_go_on(MP_NEVER_NULL(it->lease));
    it->op = &op->super;
    return wait_for_end(L, it, &op->super);
}

/* -- channels ------------------------------------------------------------------------------------------------------ */

/* A channel that a job listens to, on a connection of its own. Its user values are the database, and the name. */
typedef struct {
    mp_listening super;
    mp_seat taken;
    const pool *of;
    mp_str channel;                                     /* a user value */
    mp_postgres_subscription *MP_NULLABLE subscription; /* NULL: the job does not listen */
} channel;

static channel *channel_of(const mp_listening *source)
{
    return mp_container(source, channel, super);
}

static bool open_channel(mp_listening *source, mp_loop *loop)
{
    channel *it = channel_of(source);
    mp_lib *lib = it->of->lib;
    const mp_postgres_server *server = &it->of->server;
    mp_client *client = lib->client;
    if (client == NULL || !mp_seat_take(&lib->postgres, &it->taken, server->holder, MAX_POOLS, &mp_stat_refused_pools))
        return false;
    const mp_postgres_reader reader = {mp_listening_put, mp_listening_put_gap, source};
    it->subscription = mp_postgres_subscribe(loop, client, server, it->channel, &reader);
    return true;
}

static void close_channel(mp_listening *source)
{
    channel *it = channel_of(source);
    mp_postgres_subscription_free(it->subscription);
    it->subscription = NULL;
    mp_link_drop(&it->taken.link);
}

static void on_dropped(mp_listening *source, bool is_first)
{
    const channel *it = channel_of(source);
    mp_stat_add(&mp_stat_dropped_notifications, 1);
    if (is_first)
        mp_log(MP_WARN, "postgres messages dropped", mp_log_str("server", mp_str_of(it->of->shown)),
               mp_log_str("channel", it->channel), mp_log_int("waiting", source->count));
}

static const mp_listening_kind channels = {open_channel, close_channel, on_dropped, &mp_stat_postgres_messages};

/* postgres.channel(pool, channel): what a listening job takes its messages from.  [-0, +1, throws] */
static int l_channel(lua_State *L)
{
    const pool *of = luaL_checkudata(L, 1, POOL);
    mp_str name = mp_check_str(L, 2);
    channel *it = mp_listening_new(L, sizeof *it, &channels, CHANNEL);
    it->of = of;
    it->channel = name;
    return 1;
}

MP_SCRIPT_LIBRARY(postgres)
{
    static const luaL_Reg functions[] = {{"postgres.pool", l_pool},
                                         {"postgres.lease", l_lease},
                                         {"postgres.run", l_run},
                                         {"postgres.more", l_more},
                                         {"postgres.release", l_release},
                                         {"postgres.channel", l_channel},
                                         {NULL, NULL}};
    (void)config;
    mp_set_members(L, functions, 0);
    mp_push_metatable(L, POOL, l_collect_pool);
    mp_push_metatable(L, LEASE, l_collect_lease);
    mp_push_metatable(L, CHANNEL, NULL);
    mp_field_bool(L, MP_LISTENING, true);
    lua_pop(L, 3);
}
