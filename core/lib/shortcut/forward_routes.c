/* forward_routes.c: the routes, keys and steps of a VM. The general way has checked everything about a call before it
 * makes a route, so Lua alone decides which calls may take the quick way. */
#include "lib/shortcut/forward.h"
#include "lib/fields.h"
#include <lauxlib.h>

/* routes of one Lua state: above this number all are dropped and made again when they are used */
#define MAX_ROUTES 16384
#define MAX_KEYS 4096

/* The channel of one client. */
typedef struct {
    mp_node node; /* its key: the client, as put_client() writes it */
    mp_buf key;
    bool can_have_task; /* the client can have MCP tasks of this gateway */
} client_key;

mp_forwards *mp_forwards_new(void)
{
    mp_forwards *forwards = mp_new(sizeof *forwards);
    mp_map_init(&forwards->routes);
    mp_map_init(&forwards->keys);
    forwards->take_over = forwards->names = LUA_NOREF;
    return forwards;
}

static void free_key(mp_node *node, void *ctx)
{
    mp_forwards *forwards = ctx;
    client_key *it = mp_container(node, client_key, node);
    mp_map_drop(&forwards->keys, node);
    mp_buf_clear(&it->key);
    free(it);
}

typedef struct {
    mp_forwards *forwards;
    lua_State *MP_NULLABLE L; /* NULL: the state ends with its registry */
} drop;

static void free_route(mp_node *node, void *ctx)
{
    const drop *it = ctx;
    mp_route *route = mp_container(node, mp_route, node);
    mp_map_drop(&it->forwards->routes, node);
    if (it->L != NULL)
        luaL_unref(it->L, LUA_REGISTRYINDEX, route->tool); /* frees a slot of the registry, so it allocates nothing */
    free(route);
}

void mp_forwards_clear(lua_State *MP_NULLABLE L, mp_forwards *forwards)
{
    mp_map_each(&forwards->routes, free_route, &(drop){forwards, L});
}

void mp_forwards_free(mp_forwards *forwards)
{
    mp_forwards_clear(NULL, forwards);
    mp_map_each(&forwards->keys, free_key, forwards);
    mp_map_clear(&forwards->routes);
    mp_map_clear(&forwards->keys);
    mp_buf_clear(&forwards->message);
    mp_buf_clear(&forwards->result);
    mp_buf_clear(&forwards->who);
    mp_buf_clear(&forwards->cancel);
    free(forwards);
}

const mp_route *MP_NULLABLE mp_route_find(const mp_forwards *forwards, mp_str tool)
{
    if (forwards->routes.count == 0 || forwards->are_suspended)
        return NULL;
    mp_node *node = mp_map_find(&forwards->routes, tool);
    return node == NULL ? NULL : mp_container(node, mp_route, node);
}

/* Writes all facts that determine the channel (lua/moonpool/upstream/channel_key.lua): the upstream, the session, the
 * principal, the address, and the kinds of questions that the client can answer. */
static mp_str put_client(mp_forwards *forwards, const mp_call *call, mp_str upstream)
{
    mp_buf *out = &forwards->who;
    mp_session *session = mp_call_session(call);
    mp_str id = session == NULL ? MP_STR_NONE : mp_session_id(session);
    mp_str parts[] = {upstream, id, mp_call_address(call), mp_principal_key(mp_call_principal(call)),
                      mp_forward_capabilities(mp_call_params(call))};
    out->len = 0;
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        mp_buf_put(out, (mp_str){(const char *)&parts[i].len, sizeof parts[i].len});
        mp_buf_put(out, parts[i]);
    }
    return mp_buf_str(out);
}

mp_str mp_forward_key(mp_forwards *forwards, const mp_call *call, const mp_route *route)
{
    mp_node *node = mp_map_find(&forwards->keys, put_client(forwards, call, route->upstream));
    if (node == NULL)
        return MP_STR_NONE;
    const client_key *it = mp_container(node, client_key, node);
    return route->may_be_task && it->can_have_task ? MP_STR_NONE : mp_buf_str(&it->key);
}

/* -- what Lua gives ------------------------------------------------------------------------------------------------ */

static const mp_lua_member step_flags[] = {MP_MEMBER("is_base", mp_forward_step, is_base),
                                           MP_MEMBER("has_objects", mp_forward_step, has_objects),
                                           MP_MEMBER("has_none", mp_forward_step, has_none),
                                           MP_MEMBER("is_text_alone", mp_forward_step, is_text_alone),
                                           {0}};

/* forward.set(take_over, names, steps): calls of federated tools may take the quick way from now on. take_over(tool,
 * exchange, channel, call, id, revision) goes on with an exchange; `names` has JSON texts: { client, server }; `steps`
 * has for each revision of clients { is_base, has_objects, has_none, is_text_alone }.  [-0, +0, throws] */
static int l_set(lua_State *L)
{
    mp_forwards *forwards = mp_lib_of(L)->forwards;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    lua_settop(L, 3);
    lua_getfield(L, 2, "client");
    forwards->client = mp_check_str(L, -1);
    lua_getfield(L, 2, "server");
    forwards->server = mp_check_str(L, -1);
    lua_settop(L, 3);
    for (size_t i = 0; i < mp_era_count && i < MP_PLAIN_ERAS; i++) {
        if (lua_getfield(L, 3, mp_eras[i].date) == LUA_TTABLE)
            mp_read_struct(L, 4, step_flags, &forwards->steps[i]);
        forwards->steps[i].is_known = lua_istable(L, 4);
        lua_settop(L, 3);
    }
    lua_settop(L, 2);
    forwards->names = luaL_ref(L, LUA_REGISTRYINDEX);
    forwards->take_over = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

/* forward.suspend(is_suspended): while it is true, all calls of federated tools take the general way.  [-0, +0] */
static int l_suspend(lua_State *L)
{
    mp_lib_of(L)->forwards->are_suspended = lua_toboolean(L, 1);
    return 0;
}

/* Appends a text to those behind a route. */
static mp_str keep_text(char **at, mp_str text)
{
    mp_str kept = {*at, text.len};
    memcpy(*at, text.ptr, text.len);
    (*at)[text.len] = '\0';
    *at += text.len + 1;
    return kept;
}

/* Adds the route of the tool at index 2, { name, metrics, … }, unless it is there.  [-0, +0, throws] */
static void add_route(lua_State *L, mp_forwards *forwards, mp_str upstream, mp_str json_name, mp_str header,
                      bool may_be_task)
{
    lua_getfield(L, 2, "name");
    mp_str name = mp_check_str(L, -1);
    lua_getfield(L, 2, "metrics");
    luaL_checktype(L, -1, LUA_TLIGHTUSERDATA);
    mp_thing_metrics *metrics = lua_touserdata(L, -1);
    if (mp_map_find(&forwards->routes, name) != NULL) {
        lua_pop(L, 2);
        return;
    }
    if (forwards->routes.count >= MAX_ROUTES)
        mp_forwards_clear(L, forwards);
    lua_pushvalue(L, 2);
    int tool = luaL_ref(L, LUA_REGISTRYINDEX);
    mp_route *route = mp_new(sizeof *route + name.len + upstream.len + json_name.len + header.len + 4);
    char *at = route->texts;
    route->tool = tool;
    route->metrics = metrics;
    route->may_be_task = may_be_task;
    route->node.key = keep_text(&at, name);
    route->upstream = keep_text(&at, upstream);
    route->json_name = keep_text(&at, json_name);
    route->header = keep_text(&at, header);
    mp_map_put(&forwards->routes, &route->node);
    lua_pop(L, 2);
}

/* forward.learn(call, tool, upstream, json_name, header, key, may_be_task, can_have_task): later calls of the tool by
 * the client of the call take the quick way, on the channel of the key. The tool { name, metrics, … } has the name
 * `json_name`, as JSON, at the upstream; `header` is the line Mcp-Name. `may_be_task`: the upstream can run the tool as
 * an MCP task; `can_have_task`: the client can have one.  [-0, +0, throws] */
static int l_learn(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    mp_forwards *forwards = mp_lib_of(L)->forwards;
    luaL_checktype(L, 2, LUA_TTABLE);
    mp_str upstream = mp_check_str(L, 3), json_name = mp_check_str(L, 4), header = mp_check_str(L, 5);
    mp_str key = mp_check_str(L, 6);
    size_t count;
    bool may_be_task = lua_toboolean(L, 7), can_have_task = lua_toboolean(L, 8);
    lua_settop(L, 6);
    if (task->call == NULL || forwards->are_suspended || mp_call_flat(task->call, &count) == NULL)
        return 0;
    add_route(L, forwards, upstream, json_name, header, may_be_task);
    if (forwards->keys.count >= MAX_KEYS)
        mp_map_each(&forwards->keys, free_key, forwards);
    bool is_new;
    client_key *it = mp_map_need(&forwards->keys, put_client(forwards, task->call, upstream), sizeof *it, &is_new);
    it->can_have_task = can_have_task;
    it->key.len = 0;
    mp_buf_put(&it->key, key);
    return 0;
}

MP_LIBRARY(forward)
{
    static const luaL_Reg functions[] = {
        {"forward.set", l_set}, {"forward.suspend", l_suspend}, {"forward.learn", l_learn}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
