/* forward_routes.c: the routes, keys and steps of a VM. The general way has checked everything about a call before it
 * makes a route, so Lua alone decides which calls may take the quick way. */
#include "lib/shortcut/forward.h"
#include "lib/fields.h"
#include <lauxlib.h>

/* routes of one Lua state: above this number all are dropped and made again when they are used */
#define MAX_ROUTES 16384
#define MAX_CLIENTS 4096

mp_forwards *mp_forwards_new(void)
{
    mp_forwards *forwards = mp_new(sizeof *forwards);
    mp_map_init(&forwards->routes);
    mp_map_init(&forwards->clients);
    forwards->take_over = forwards->run_policies = forwards->names = LUA_NOREF;
    return forwards;
}

static void free_client(mp_node *node, void *ctx)
{
    mp_forwards *forwards = ctx;
    mp_forward_client *it = mp_container(node, mp_forward_client, node);
    mp_map_drop(&forwards->clients, node);
    mp_buf_clear(&it->key);
    mp_buf_clear(&it->able[0]);
    mp_buf_clear(&it->able[1]);
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
    mp_map_each(&forwards->clients, free_client, forwards);
    mp_map_clear(&forwards->routes);
    mp_map_clear(&forwards->clients);
    mp_buf_clear(&forwards->message);
    mp_buf_clear(&forwards->result);
    mp_buf_clear(&forwards->who);
    mp_buf_clear(&forwards->cancel);
    mp_buf_clear(&forwards->passed);
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

const mp_forward_client *MP_NULLABLE mp_forward_client_of(mp_forwards *forwards, const mp_call *call,
                                                          const mp_route *route)
{
    mp_node *node = mp_map_find(&forwards->clients, put_client(forwards, call, route->upstream));
    const mp_forward_client *it = node == NULL ? NULL : mp_container(node, mp_forward_client, node);
    return it != NULL && route->may_be_task && it->can_have_task ? NULL : it;
}

/* -- what Lua gives ------------------------------------------------------------------------------------------------ */

static const mp_lua_member step_flags[] = {MP_MEMBER("is_base", mp_forward_step, is_base),
                                           MP_MEMBER("has_objects", mp_forward_step, has_objects),
                                           MP_MEMBER("has_none", mp_forward_step, has_none),
                                           MP_MEMBER("is_text_alone", mp_forward_step, is_text_alone),
                                           {0}};

/* forward.set(take_over, run_policies, names, steps): calls of federated tools may take the quick way from now on.
 * take_over(tool, exchange, channel, call, id, revision) goes on with an exchange; run_policies(tool, call, revision)
 * serves a call of a tool that has policies; `names` has JSON texts: { client, server }; `steps` has for each revision
 * of clients { is_base, has_objects, has_none, is_text_alone }.  [-0, +0, throws] */
static int l_set(lua_State *L)
{
    mp_forwards *forwards = mp_lib_of(L)->forwards;
    luaL_checktype(L, 1, LUA_TFUNCTION);
    luaL_checktype(L, 2, LUA_TFUNCTION);
    luaL_checktype(L, 3, LUA_TTABLE);
    luaL_checktype(L, 4, LUA_TTABLE);
    lua_settop(L, 4);
    forwards->client = mp_text_field(L, 3, "client");
    forwards->server = mp_text_field(L, 3, "server");
    for (size_t i = 0; i < mp_era_count && i < MP_PLAIN_ERAS; i++) {
        if (lua_getfield(L, 4, mp_eras[i].date) == LUA_TTABLE)
            mp_read_struct(L, 5, step_flags, &forwards->steps[i]);
        forwards->steps[i].is_known = lua_istable(L, 5);
        lua_settop(L, 4);
    }
    lua_settop(L, 3);
    forwards->names = luaL_ref(L, LUA_REGISTRYINDEX);
    forwards->run_policies = luaL_ref(L, LUA_REGISTRYINDEX);
    forwards->take_over = luaL_ref(L, LUA_REGISTRYINDEX);
    return 0;
}

/* forward.suspend(is_suspended): while it is true, all calls of federated tools take the general way.  [-0, +0] */
static int l_suspend(lua_State *L)
{
    mp_lib_of(L)->forwards->are_suspended = lua_toboolean(L, 1);
    return 0;
}

/* The facts of a route that Lua gives; the texts are Lua's. */
typedef struct {
    mp_str name, upstream, original, json_name, header, definition, approved;
    int64_t generation, scopes;
    bool may_be_task, has_policies;
} given_route;

static const mp_lua_member route_members[] = {MP_MEMBER("name", given_route, name),
                                              MP_MEMBER("upstream", given_route, upstream),
                                              MP_MEMBER("original", given_route, original),
                                              MP_MEMBER("json_name", given_route, json_name),
                                              MP_MEMBER("header", given_route, header),
                                              MP_MEMBER("definition", given_route, definition),
                                              MP_MEMBER("approved", given_route, approved),
                                              MP_MEMBER("generation", given_route, generation),
                                              MP_MEMBER("scopes", given_route, scopes),
                                              MP_MEMBER("may_be_task", given_route, may_be_task),
                                              MP_MEMBER("has_policies", given_route, has_policies),
                                              {0}};

/* Where the texts of a route are written, or, without `at`, how many bytes they take. */
typedef struct {
    char *MP_NULLABLE at;
    size_t bytes;
} texts;

static mp_str keep_text(texts *to, mp_str text)
{
    if (text.ptr == NULL)
        return MP_STR_NONE;
    to->bytes += text.len + 1;
    if (to->at == NULL)
        return text;
    mp_str kept = {to->at, text.len};
    memcpy(to->at, text.ptr, text.len);
    to->at[text.len] = '\0';
    to->at += text.len + 1;
    return kept;
}

/* Sets the texts of a route; `pass` are the names of its headers, as mp_push_texts() gives them. */
static void keep_texts(mp_route *route, texts *to, const given_route *given, const char *const *pass)
{
    route->node.key = keep_text(to, given->name);
    route->upstream = keep_text(to, given->upstream);
    route->original = keep_text(to, given->original);
    route->json_name = keep_text(to, given->json_name);
    route->header = keep_text(to, given->header);
    route->definition = keep_text(to, given->definition);
    route->approved = keep_text(to, given->approved);
    size_t count = 0;
    for (; pass[count] != NULL; count++) {
        route->pass[count][0] = keep_text(to, mp_str_of(pass[count]));
        route->pass[count][1] = keep_text(to, mp_str_of(pass[count]));
        for (char *c = to->at == NULL ? NULL : to->at - 1 - route->pass[count][1].len; c != NULL && *c != '\0'; c++)
            *c = (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
    }
    route->pass_count = count;
}

/* Adds the route at index 3 of the tool at index 2, unless it is there.  [-0, +0, throws] */
static mp_str add_route(lua_State *L, mp_forwards *forwards)
{
    given_route given = {0};
    mp_read_struct(L, 3, route_members, &given);
    const char *const *pass = mp_push_texts(L, 3, "pass", MP_FORWARD_PASS);
    lua_getfield(L, 2, "metrics");
    luaL_checktype(L, -1, LUA_TLIGHTUSERDATA);
    mp_thing_metrics *metrics = lua_touserdata(L, -1);
    if ((uint64_t)given.generation != mp_lib_of(L)->snapshot_served ||
        mp_map_find(&forwards->routes, given.name) != NULL)
        return given.upstream;
    if (forwards->routes.count >= MAX_ROUTES)
        mp_forwards_clear(L, forwards);
    lua_pushvalue(L, 2);
    int tool = luaL_ref(L, LUA_REGISTRYINDEX);
    mp_route measured;
    texts to = {0};
    keep_texts(&measured, &to, &given, pass);
    mp_route *route = mp_new(sizeof *route + to.bytes);
    to.at = route->texts;
    keep_texts(route, &to, &given, pass);
    route->tool = tool;
    route->metrics = metrics;
    route->scopes = (uint64_t)given.scopes;
    route->may_be_task = given.may_be_task;
    route->has_policies = given.has_policies;
    mp_map_put(&forwards->routes, &route->node);
    return given.upstream;
}

/* The facts of a client that Lua gives. */
typedef struct {
    mp_str key, able, able_to_wait;
    bool can_have_task, takes_questions, can_ask;
} given_client;

static const mp_lua_member client_members[] = {MP_MEMBER("key", given_client, key),
                                               MP_MEMBER("able", given_client, able),
                                               MP_MEMBER("able_to_wait", given_client, able_to_wait),
                                               MP_MEMBER("can_have_task", given_client, can_have_task),
                                               MP_MEMBER("takes_questions", given_client, takes_questions),
                                               MP_MEMBER("can_ask", given_client, can_ask),
                                               {0}};

static void replace_text(mp_buf *kept, mp_str text)
{
    kept->len = 0;
    mp_buf_put(kept, text);
}

/* forward.learn(call, tool, route, client): later calls of the tool by the client of the call take the quick way.
 *   tool    { name, metrics, … }
 *   route   { generation, name, upstream, original, json_name, header, definition, approved, scopes, may_be_task,
 *             has_policies, pass }: of the snapshot of this generation; see mp_route
 *   client  { key, able, able_to_wait, can_have_task, takes_questions, can_ask }: see mp_forward_client
 * [-0, +0, throws] */
static int l_learn(lua_State *L)
{
    const mp_lib_task *task = mp_check_call(L);
    mp_forwards *forwards = mp_lib_of(L)->forwards;
    luaL_checktype(L, 2, LUA_TTABLE);
    luaL_checktype(L, 3, LUA_TTABLE);
    luaL_checktype(L, 4, LUA_TTABLE);
    size_t count;
    given_client given = {0};
    lua_settop(L, 4);
    mp_read_struct(L, 4, client_members, &given);
    if (task->call == NULL || forwards->are_suspended || mp_call_flat(task->call, &count) == NULL)
        return 0;
    mp_str upstream = add_route(L, forwards);
    if (forwards->clients.count >= MAX_CLIENTS)
        mp_map_each(&forwards->clients, free_client, forwards);
    bool is_new;
    mp_forward_client *it =
        mp_map_need(&forwards->clients, put_client(forwards, task->call, upstream), sizeof *it, &is_new);
    it->can_have_task = given.can_have_task;
    it->takes_questions = given.takes_questions;
    it->can_ask = given.can_ask;
    replace_text(&it->key, given.key);
    replace_text(&it->able[0], given.able);
    replace_text(&it->able[1], given.able_to_wait);
    return 0;
}

MP_LIBRARY(forward)
{
    static const luaL_Reg functions[] = {{"forward.set", l_set},
                                         {"forward.suspend", l_suspend},
                                         {"forward.learn", l_learn},
                                         {"forward.call", mp_forward_call},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
}
