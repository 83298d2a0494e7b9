/* host.c: the table `require "moonpool.host"` of the library in Lua: the text of the scripts, the configuration, and
 * all functions that are written in C. Scripts cannot load it. */
#include "lib/fields.h"
#include "lib/bindings.h"
#include "os/os.h"
#include "lib/shortcut/frozen_answer.h"
#include <errno.h>
#include <lauxlib.h>
#include <lualib.h>
#include <limits.h>
#include <sys/random.h>
#include <unistd.h>

#define MAX_RANDOM_BYTES 65536

/* -- random ---------------------------------------------------------------------------------------------------- */

/* random.bytes(n): n bytes from the kernel.  [-0, +1, throws] */
static int l_random(lua_State *L)
{
    lua_Integer wanted = luaL_checkinteger(L, 1);
    luaL_argcheck(L, wanted >= 0 && wanted <= MAX_RANDOM_BYTES, 1, "from 0 to 65536 bytes");
    size_t size = (size_t)wanted;
    luaL_Buffer buffer;
    char *bytes = luaL_buffinitsize(L, &buffer, size);
    for (size_t done = 0; done < size;) {
        ssize_t got = getrandom(bytes + done, size - done, 0);
        if (got < 0 && errno != EINTR)
            return luaL_error(L, "the kernel gave no random bytes: %s", strerror(errno));
        done += got < 0 ? 0 : (size_t)got;
    }
    luaL_pushresultsize(&buffer, size);
    return 1;
}

/* random.id([owner]): a new id of a task: 36 hex digits, which nobody can guess, and from which this gateway knows the
 * process that runs the task; and its owner, a text, if given.  [-0, +1, throws] */
static int l_id(lua_State *L)
{
    const mp_rpc *rpc = mp_lib_of(L)->rpc;
    char id[MP_ID + 1];
    if (rpc == NULL)
        return luaL_error(L, "ids are not available while scripts load");
    mp_rpc_make_id(rpc, mp_opt_str(L, 1), id);
    lua_pushlstring(L, id, MP_ID);
    return 1;
}

/* bus.send_on(id[, text]): sends the bus message "task_message" to the process of the gateway that runs the task with
 * this id: true; false if that cannot be sent; nil if no other living process made the id. Without a text nothing is
 * sent.  [-0, +1, throws] */
static int l_send_on(lua_State *L)
{
    mp_rpc *rpc = mp_lib_of(L)->rpc;
    mp_str id = mp_check_str(L, 1), text = mp_opt_str(L, 2);
    if (rpc == NULL || !mp_rpc_is_elsewhere(rpc, id))
        lua_pushnil(L);
    else
        lua_pushboolean(L, text.len == 0 || mp_rpc_send_task_message(rpc, id, text));
    return 1;
}

/* task.is_orphan(id[, uid]): true if no living process made this id of a task, or its process has another uid than
 * this: the task does not run any more. False in a process that does not know all others.  [-0, +1, throws] */
static int l_is_orphan(lua_State *L)
{
    mp_rpc *rpc = mp_lib_of(L)->rpc;
    mp_str id = mp_check_str(L, 1), uid = mp_opt_str(L, 2);
    lua_pushboolean(L, rpc != NULL && mp_rpc_is_orphan(rpc, id, uid));
    return 1;
}

/* random.generator(): a function like math.random, with a state of its own, seeded by the kernel.  [-0, +1, throws] */
static int l_random_generator(lua_State *L)
{
    lua_Integer seed[2];
    if (getrandom(seed, sizeof seed, 0) != sizeof seed)
        return luaL_error(L, "the kernel gave no random bytes: %s", strerror(errno));
    lua_pushcfunction(L, luaopen_math); /* each call creates a table of functions with a new random state */
    lua_call(L, 0, 1);
    lua_getfield(L, -1, "randomseed");
    lua_pushinteger(L, seed[0]);
    lua_pushinteger(L, seed[1]);
    lua_call(L, 2, 0);
    lua_getfield(L, -1, "random");
    return 1;
}

/* -- the table ------------------------------------------------------------------------------------------------- */

/* Pushes a list of { path, text } of the script files.  [-0, +1, throws] */
static void push_scripts(lua_State *L, const mp_source *source)
{
    size_t count;
    const mp_source_file *files = mp_source_files(source, &count);
    lua_createtable(L, (int)count, 0);
    for (size_t i = 0; i < count; i++) {
        lua_createtable(L, 0, 2);
        mp_field_text(L, "path", files[i].path);
        lua_pushlstring(L, files[i].text, files[i].len);
        lua_setfield(L, -2, "text");
        lua_rawseti(L, -2, (lua_Integer)i + 1);
    }
}

/* Pushes the list of the paths of scripts that are left out because they have errors.  [-0, +1, throws] */
static void push_left_out(lua_State *L, const mp_source *source)
{
    lua_newtable(L);
    for (mp_str rest = mp_source_left_out(source); rest.len > 0;) {
        mp_str path = mp_str_cut(&rest, '\0');
        lua_pushlstring(L, path.ptr, path.len);
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    }
}

/* rock.read(path): the text of a rock's file, by its path below `rocks`; nil if there is none. Upvalue: the mp_source.
 * [-0, +1, throws] */
static int l_rock(lua_State *L)
{
    const mp_source_file *file = mp_source_rock(lua_touserdata(L, lua_upvalueindex(1)), luaL_checkstring(L, 1));
    if (file == NULL)
        return 0;
    lua_pushlstring(L, file->text, file->len);
    return 1;
}

/* rock.c_module(path): the whole path of a rock's C module, by its path without ".so"; nil if there is none. Upvalue:
 * the mp_source.
 * [-0, +1, throws] */
static int l_c_module(lua_State *L)
{
    const char *dir = mp_source_c_modules(lua_touserdata(L, lua_upvalueindex(1)));
    if (dir == NULL)
        return 0;
    lua_pushfstring(L, "%s/%s.so", dir, luaL_checkstring(L, 1));
    if (access(lua_tostring(L, -1), F_OK) != 0)
        lua_pushnil(L);
    return 1;
}

/* Adds what lua/moonpool/registry/rocks.lua needs to the table on top of the stack.  [-0, +0, throws] */
static void add_rocks(lua_State *L, mp_source *source)
{
    lua_pushlightuserdata(L, source);
    lua_pushcclosure(L, l_rock, 1);
    mp_set_member(L, -2, "rock.read");
    lua_pushlightuserdata(L, source);
    lua_pushcclosure(L, l_c_module, 1);
    mp_set_member(L, -2, "rock.c_module");
    lua_pushstring(L, mp_source_rocks(source)); /* NULL gives nil */
    mp_set_member(L, -2, "rock.folder");
    lua_pushstring(L, mp_source_c_modules(source));
    mp_set_member(L, -2, "rock.c_folder");
}

/* Pushes a list of the public URLs of the endpoints; nil if no public URL is configured.  [-0, +1, throws] */
static void push_resources(lua_State *L, const mp_lib_config *config)
{
    const char *const paths[] = {config->mcp, config->sse};
    if (config->public_url == NULL) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 2, 0);
    for (size_t i = 0; i < 2; i++) {
        if (paths[i] == NULL)
            continue;
        lua_pushfstring(L, "%s%s%s", config->public_url, config->prefix == NULL ? "" : config->prefix, paths[i]);
        lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    }
}

/* Appends a grant to the list on top of the stack.  [-0, +0, throws] */
static void add_grant(lua_State *L, const char *path, const mp_grant *grant)
{
    static const char *const names[] = {"net", "read", "write", "run", "env", "store"};
    lua_createtable(L, 0, 1 + MP_GRANT_KINDS);
    mp_field_text(L, "path", path);
    for (int kind = 0; kind < MP_GRANT_KINDS; kind++) {
        char **list = grant->lists[kind];
        lua_newtable(L);
        for (lua_Integer i = 0; list != NULL && list[i] != NULL; i++) {
            lua_pushstring(L, list[i]);
            lua_rawseti(L, -2, i + 1);
        }
        lua_setfield(L, -2, names[kind]);
    }
    mp_field_integer(L, "line", grant->line);
    mp_field_integer(L, "run_line", grant->lines[MP_GRANT_RUN]);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
}

/* Pushes the list of grants; the first applies to all scripts.  [-0, +1, throws] */
static void push_grants(lua_State *L, const mp_lib_config *config)
{
    lua_newtable(L);
    add_grant(L, "", config->allow);
    for (const mp_grant *grant = config->grants; grant != NULL && grant->path != NULL; grant++)
        add_grant(L, grant->path, grant);
}

/* Pushes the absolute path of the folder with symbolic links resolved; as given if that fails.  [-0, +1, throws] */
static void push_folder(lua_State *L, const char *folder)
{
    char resolved[PATH_MAX];
    lua_pushstring(L, realpath(folder, resolved) == NULL ? folder : resolved);
}

/* env.get(name): the environment variable; nil if it is not set.  [-0, +1, throws] */
static int l_getenv(lua_State *L)
{
    lua_pushstring(L, mp_environment_get(luaL_checkstring(L, 1)));
    return 1;
}

int mp_lib_edit_distance(lua_State *L)
{
    lua_pushinteger(L, mp_edit_distance(mp_check_str(L, 1), mp_check_str(L, 2)));
    return 1;
}

/* Further values of the configuration that Lua reads, with their names in moonpool.host. */
static const mp_lua_member facts[] = {MP_MEMBER("config.name", mp_lib_config, config_name),
                                      MP_MEMBER("config.audit", mp_lib_config, audit),
                                      MP_MEMBER("config.auth_disabled", mp_lib_config, is_auth_disabled),
                                      MP_MEMBER("config.is_exposed", mp_lib_config, is_exposed),
                                      MP_MEMBER("config.upstream_lock", mp_lib_config, upstream_lock),
                                      MP_MEMBER("config.upstream_lock_path", mp_lib_config, upstream_lock_path),
                                      MP_MEMBER("script.trust_full", mp_lib_config, trust_full),
                                      MP_MEMBER("script.has_specs", mp_lib_config, has_specs),
                                      MP_MEMBER("script.is_confined", mp_lib_config, is_confined),
                                      MP_MEMBER("script.is_replay", mp_lib_config, is_replay),
                                      MP_MEMBER("script.is_apart", mp_lib_config, is_apart),
                                      {0}};

/* config.server */
static const mp_lua_member server[] = {MP_MEMBER("name", mp_lib_config, server_name),
                                       MP_MEMBER("version", mp_lib_config, server_version),
                                       MP_MEMBER("instructions", mp_lib_config, instructions),
                                       {0}};

/* config.cluster */
static const mp_lua_member cluster[] = {
    MP_MEMBER("name", mp_lib_config, cluster.name),         MP_MEMBER("url", mp_lib_config, cluster.url),
    MP_MEMBER("password", mp_lib_config, cluster.password), MP_MEMBER_MS("timeout", mp_lib_config, cluster.timeout_ms),
    MP_MEMBER("listens", mp_lib_config, cluster.listens),   {0}};

/* Pushes the path of a key, which begins where the process was started: in Lua, paths begin at the configuration.
 * [-0, +1, throws] */
static void push_absolute(lua_State *L, const char *MP_NULLABLE path)
{
    char here[PATH_MAX];
    if (path == NULL || path[0] == '/' || getcwd(here, sizeof here) == NULL)
        lua_pushstring(L, path);
    else
        lua_pushfstring(L, "%s/%s", here, path);
}

const char *const mp_sign_in_providers[] = {"off",    "password", "oauth2", "google",   "github",    "oidc",    "entra",
                                            "gitlab", "okta",     "auth0",  "keycloak", "authentik", "cognito", NULL};

/* config.sign_in */
static const mp_lua_member sign_in[] = {MP_MEMBER("issuer", mp_lib_config, sign_in.issuer),
                                        MP_MEMBER("client", mp_lib_config, sign_in.client),
                                        MP_MEMBER("secret", mp_lib_config, sign_in.secret),
                                        MP_MEMBER("authorize_url", mp_lib_config, sign_in.authorize_url),
                                        MP_MEMBER("token_url", mp_lib_config, sign_in.token_url),
                                        MP_MEMBER("user_url", mp_lib_config, sign_in.user_url),
                                        MP_MEMBER("public_url", mp_lib_config, public_url),
                                        MP_MEMBER("prefix", mp_lib_config, prefix),
                                        MP_MEMBER_MS("access", mp_lib_config, sign_in.access_ms),
                                        MP_MEMBER_MS("refresh", mp_lib_config, sign_in.refresh_ms),
                                        MP_MEMBER_MS("idle", mp_lib_config, sign_in.idle_ms),
                                        MP_MEMBER_MS("unchecked", mp_lib_config, sign_in.unchecked_ms),
                                        {0}};

/* Sets the list as a field of the table on top of the stack; none is set if it is empty.  [-0, +0, throws] */
static void add_list(lua_State *L, const char *name, char *const *MP_NULLABLE list)
{
    mp_field_texts(L, name, list != NULL && list[0] != NULL ? list : NULL);
}

/* [-0, +0, throws] */
static void add_sign_in(lua_State *L, const mp_lib_config *config)
{
    const mp_sign_in_config *from = &config->sign_in;
    lua_newtable(L);
    mp_set_struct(L, sign_in, config);
    push_absolute(L, from->passwords);
    lua_setfield(L, -2, "passwords");
    lua_pushboolean(L, from->refuses_documents == 0);
    lua_setfield(L, -2, "documents");
    mp_field_text(L, "provider", mp_sign_in_providers[from->provider]);
    /* seconds for which a used refresh token gives the same successor */
    mp_field_integer(L, "grace", MP_LIMIT(sign_in_grace_ms, 60000) / 1000);
    /* seconds for which one answer of the provider is for all sign-ins of a person */
    mp_field_integer(L, "fresh", MP_LIMIT(sign_in_fresh_ms, 60000) / 1000);
    add_list(L, "ask", from->ask);
    add_list(L, "scopes", from->scopes);
    lua_newtable(L);
    add_list(L, "users", from->users);
    add_list(L, "emails", from->emails);
    add_list(L, "groups", from->groups);
    add_list(L, "roles", from->roles);
    add_list(L, "tenants", from->tenants);
    lua_setfield(L, -2, "allow");
    mp_set_member(L, -2, "config.sign_in");
}

/* limits.page, but no more than a call can make: a page takes three times its bytes until it is sent. */
static size_t page_bytes(const mp_lib_config *config)
{
    size_t output = config->vm.call_output / 2, memory = config->vm.call_memory / 8;
    size_t most = output < memory ? output : memory;
    return config->list_page < most ? config->list_page : most;
}

/* Adds what Lua reads of the configuration to the table on top of the stack.  [-0, +0, throws] */
static void add_config(lua_State *L, const mp_lib_config *config)
{
    mp_set_struct(L, facts, config);
    lua_pushinteger(L, MP_LIMIT(listed, 10000)); /* resources that the list function of one template may return */
    mp_set_member(L, -2, "limits.listed");
    lua_pushinteger(L, (lua_Integer)config->stream_queue);
    mp_set_member(L, -2, "limits.stream_queue");
    lua_pushinteger(L, (lua_Integer)page_bytes(config));
    mp_set_member(L, -2, "limits.page");
    push_grants(L, config);
    mp_set_member(L, -2, "config.grants");
    push_folder(L, config->folder);
    mp_set_member(L, -2, "config.folder");
    push_resources(L, config);
    mp_set_member(L, -2, "config.resources");
    lua_newtable(L);
    mp_set_struct(L, server, config);
    mp_set_member(L, -2, "config.server");
    if (config->sign_in.provider != MP_SIGN_IN_OFF)
        add_sign_in(L, config);
    if (config->cluster.name == NULL)
        return;
    lua_newtable(L);
    mp_set_struct(L, cluster, config);
    lua_newtable(L);
    char **sentinels = config->cluster.sentinels;
    for (lua_Integer i = 0; sentinels != NULL && sentinels[i] != NULL; i++) {
        lua_pushstring(L, sentinels[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "sentinels");
    static const char *const aways[] = {"local", "refuse", "allow"};
    lua_pushstring(L, aways[config->cluster.limits]);
    lua_setfield(L, -2, "limits");
    lua_pushstring(L, aways[config->cluster.quotas]);
    lua_setfield(L, -2, "quotas");
    lua_pushinteger(L,
                    MP_LIMIT(fanout_ms, 1000)); /* between two beats of a process; specs about other things: 0, none */
    lua_setfield(L, -2, "beat_ms");
    lua_pushinteger(L, MP_LIMIT(task_again_ms, 10000)); /* between two looks whether Redis has lost records of tasks */
    lua_setfield(L, -2, "task_again_ms");
    mp_set_member(L, -2, "config.cluster");
}

/* Adds what Lua reads of the scripts to the table on top of the stack.  [-0, +0, throws] */
static void add_source(lua_State *L, mp_source *source)
{
    push_scripts(L, source);
    mp_set_member(L, -2, "script.list");
    push_left_out(L, source);
    mp_set_member(L, -2, "script.left_out");
    lua_pushboolean(L, mp_source_is_first_load(source));
    mp_set_member(L, -2, "script.is_first_load");
    lua_pushstring(L, mp_source_dir(source));
    mp_set_member(L, -2, "script.root");
    add_rocks(L, source);
}

MP_LIBRARY(host)
{
    static const luaL_Reg functions[] = {{"random.bytes", l_random},
                                         {"random.generator", l_random_generator},
                                         {"random.id", l_id},
                                         {"bus.send_on", l_send_on},
                                         {"task.is_orphan", l_is_orphan},
                                         {"env.get", l_getenv},
                                         {"script.edit_distance", mp_lib_edit_distance},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
    mp_lib_load(L);
    mp_lib_bus(L, config->bus);
    mp_lib_protections(L);
    add_config(L, config);
}

/* The libraries of the whole program, gathered by the linker. */
extern const mp_library *const first_library[] __asm__("__start_mp_libraries") __attribute__((visibility("hidden")));
extern const mp_library *const end_of_libraries[] __asm__("__stop_mp_libraries") __attribute__((visibility("hidden")));

void mp_host_push(lua_State *L, mp_source *source, const mp_lib_config *config)
{
    lua_newtable(L);
    lua_newtable(L); /* script.libraries */
    for (const mp_library *const *library = first_library; library < end_of_libraries; library++) {
        lua_pushvalue(L, -2);
        (*library)->add(L, config);
        lua_pop(L, 1);
        if ((*library)->is_global) {
            lua_pushstring(L, (*library)->name);
            lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
        }
    }
    mp_set_member(L, -2, "script.libraries");
    add_source(L, source);
}
