/* module_processes.c: processes of core/rpc and ids:
 *   new([key of 16 bytes[, secret]]) → processes, of a node if there is a secret of its cluster, whose methods have the
 * names of the functions of processes.h; a process is { number =, version = } */
#include "modules.h"
#include "rpc/request/hop.h"
#include <stdatomic.h>
#include <stdio.h>

#define PROCESSES "spec.processes"

static mp_processes *check(lua_State *L)
{
    mp_processes **at = luaL_checkudata(L, 1, PROCESSES);
    return *at;
}

static uint16_t check_number(lua_State *L, int index)
{
    return (uint16_t)luaL_checkinteger(L, index);
}

static mp_process_facts check_process(lua_State *L, int index)
{
    mp_process_facts process = {.pid = 1};
    index = lua_absindex(L, index);
    lua_getfield(L, index, "number");
    process.number = check_number(L, -1);
    lua_getfield(L, index, "version");
    snprintf(process.version, sizeof process.version, "%s", luaL_optstring(L, -1, ""));
    lua_pop(L, 2);
    return process;
}

static int l_new(lua_State *L)
{
    mp_processes **at = lua_newuserdatauv(L, sizeof(mp_processes *), 0);
    *at = mp_processes_new();
    if (lua_isstring(L, 1))
        mp_processes_join(*at, (const unsigned char *)luaL_checkstring(L, 1), "/nowhere", NULL, 0);
    if (lua_isstring(L, 2)) {
        mp_str secret;
        mp_seal_key keys[2] = {0};
        static const atomic_bool never;
        secret.ptr = luaL_checklstring(L, 2, &secret.len);
        mp_seal_key_make(&keys[0], secret);
        mp_processes_set_nodes(*at, mp_nodes_new("spec", true, &never), NULL);
        mp_processes_use_seal_keys(*at, keys);
    }
    luaL_setmetatable(L, PROCESSES);
    return 1;
}

static int l_free(lua_State *L)
{
    mp_processes_free(check(L));
    return 0;
}

static int l_join(lua_State *L)
{
    mp_process_facts others[MP_OLDER_MOST + 1];
    mp_processes *from = *(mp_processes **)luaL_checkudata(L, 2, PROCESSES);
    int count = 0;
    for (; count <= MP_OLDER_MOST && lua_rawgeti(L, 4, count + 1) == LUA_TTABLE; count++)
        others[count] = check_process(L, -1), lua_pop(L, 1);
    mp_processes_join(check(L), mp_processes_key(from), luaL_checkstring(L, 3), others, count);
    return 0;
}

static int l_number(lua_State *L)
{
    lua_pushinteger(L, mp_processes_number(check(L)));
    return 1;
}

static int l_add(lua_State *L)
{
    mp_process_facts process = check_process(L, 2);
    mp_processes_add(check(L), &process);
    return 0;
}

static int l_expect(lua_State *L)
{
    mp_processes_expect(check(L), check_number(L, 2));
    return 0;
}

static int l_remove(lua_State *L)
{
    mp_processes_remove(check(L), check_number(L, 2));
    return 0;
}

static int l_list(lua_State *L)
{
    mp_process_facts others[MP_OLDER_MOST + 1];
    int count = mp_processes_list(check(L), others);
    lua_newtable(L);
    for (int i = 0; i < count; i++) {
        lua_pushstring(L, others[i].version);
        lua_rawseti(L, -2, others[i].number);
    }
    lua_pushinteger(L, count);
    return 2;
}

static int l_has(lua_State *L)
{
    lua_pushboolean(L, mp_processes_has(check(L), check_number(L, 2)));
    lua_pushboolean(L, mp_processes_are_several(check(L)));
    return 2;
}

static int l_newest(lua_State *L)
{
    if (!lua_isnoneornil(L, 2))
        mp_processes_set_newest(check(L), check_number(L, 2));
    lua_pushinteger(L, mp_processes_newest(check(L)));
    lua_pushboolean(L, mp_processes_is_newest(check(L)));
    return 2;
}

static int l_path(lua_State *L)
{
    char path[MP_PROCESS_PATH];
    if (!lua_isnoneornil(L, 4))
        mp_processes_set_folder(check(L), luaL_checkstring(L, 4));
    bool fits = mp_processes_path(check(L), check_number(L, 2), luaL_checkstring(L, 3), path);
    lua_pushstring(L, fits ? path : NULL);
    return 1;
}

static int l_id(lua_State *L)
{
    char id[MP_ID + 1];
    mp_id_make(check(L), MP_STR_NONE, id);
    lua_pushstring(L, id);
    return 1;
}

static int l_number_of(lua_State *L)
{
    mp_str id;
    id.ptr = luaL_checklstring(L, 2, &id.len);
    if (!mp_id_is(id))
        return 0;
    lua_pushinteger(L, mp_id_number(check(L), id));
    return 1;
}

static mp_str text_field(lua_State *L, const char *name)
{
    mp_str text;
    lua_getfield(L, 2, name);
    text.ptr = luaL_optlstring(L, -1, "", &text.len);
    lua_pop(L, 1); /* the table has the text */
    return text;
}

static lua_Integer number_field(lua_State *L, const char *name, lua_Integer usual)
{
    lua_getfield(L, 2, name);
    lua_Integer number = luaL_optinteger(L, -1, usual);
    lua_pop(L, 1);
    return number;
}

/* The header by which a process sends a request on: seal { to =, uid = (of a process of another node), endpoint = 0 to
 * 2, hops =, age = ms, body = bytes, method =, session =, address =, principal = }. */
static int l_seal(lua_State *L)
{
    mp_seal_key keys[2];
    mp_buf out = {0};
    mp_str uid = text_field(L, "uid");
    mp_hop hop = {.to = (uint16_t)number_field(L, "to", 0),
                  .endpoint = (mp_hop_endpoint)number_field(L, "endpoint", 0),
                  .hops = (unsigned)number_field(L, "hops", 1),
                  .sent_ms =
                      mp_clock_ms(uid.len > 0 ? CLOCK_REALTIME : CLOCK_BOOTTIME) - (uint64_t)number_field(L, "age", 0),
                  .body = (uint64_t)number_field(L, "body", 0),
                  .method = text_field(L, "method"),
                  .session = text_field(L, "session"),
                  .address = text_field(L, "address"),
                  .principal = text_field(L, "principal")};
    mp_hop_keys(check(L), keys);
    memcpy(hop.uid, uid.ptr, uid.len < sizeof hop.uid ? uid.len : sizeof hop.uid - 1);
    if (!mp_hop_write(uid.len > 0 ? mp_processes_node_keys(check(L)) : keys, &hop, &out))
        return luaL_error(L, "not sealed");
    lua_pushlstring(L, out.ptr, out.len);
    mp_buf_clear(&out);
    return 1;
}

static void set_text(lua_State *L, const char *name, mp_str text)
{
    lua_pushlstring(L, text.ptr, text.len);
    lua_setfield(L, -2, name);
}

/* processes:read(text): what was sealed for another node; nil if it is no such header. */
static int l_read(lua_State *L)
{
    mp_str text;
    mp_hop *hop = mp_new(sizeof *hop);
    text.ptr = luaL_checklstring(L, 2, &text.len);
    bool is_good = mp_hop_read(mp_processes_node_keys(check(L)), text, hop);
    if (is_good) {
        lua_newtable(L);
        set_text(L, "session", hop->session);
        set_text(L, "address", hop->address);
        set_text(L, "principal", hop->principal);
        set_text(L, "authorization", hop->authorization);
    }
    mp_hop_free(hop);
    return is_good ? 1 : 0;
}

int module_processes(lua_State *L)
{
    static const luaL_Reg methods[] = {{"join", l_join},
                                       {"number", l_number},
                                       {"add", l_add},
                                       {"expect", l_expect},
                                       {"remove", l_remove},
                                       {"list", l_list},
                                       {"has", l_has},
                                       {"newest", l_newest},
                                       {"path", l_path},
                                       {"id", l_id},
                                       {"number_of", l_number_of},
                                       {"seal", l_seal},
                                       {"read", l_read},
                                       {NULL, NULL}};
    luaL_newmetatable(L, PROCESSES);
    luaL_newlib(L, methods);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, l_free);
    lua_setfield(L, -2, "__gc");
    lua_pop(L, 1);
    lua_newtable(L);
    lua_pushcfunction(L, l_new);
    lua_setfield(L, -2, "new");
    return 1;
}
