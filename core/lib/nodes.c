/* nodes.c: the records of the processes of a cluster (nodes/nodes.h), for lua/moonpool/lib/cluster_nodes.lua, which
 * reads and writes them: when a turn is due, and what it hands over. */
#include "lib/bindings.h"
#include "lib/fields.h"
#include <lauxlib.h>
#include <signal.h>
#include <unistd.h>

/* ms between two looks whether a turn is due, or the server to be asked for a number, for which requests wait */
#define LOOK_MS 50
#define FINGERPRINT 8 /* bytes of the hash of a key that nodes show each other */

static mp_nodes *MP_NULLABLE nodes_of(const mp_lib *lib)
{
    const mp_rpc *rpc = lib->rpc;
    return rpc == NULL ? NULL : mp_processes_nodes(mp_rpc_processes(rpc));
}

static mp_nodes *check_nodes(lua_State *L)
{
    mp_nodes *nodes = nodes_of(mp_lib_of(L));
    if (nodes == NULL)
        luaL_error(L, "there is no cluster");
    return MP_NEVER_NULL(nodes);
}

/* -- turns --------------------------------------------------------------------------------------------------------- */

static void on_look(mp_timer *timer)
{
    mp_lib *lib = mp_container(timer, mp_lib, nodes);
    mp_nodes *nodes = nodes_of(lib);
    mp_loop *loop = mp_state_of(lib->vm)->loop;
    if (nodes == NULL || loop == NULL)
        return;
    char number[8];
    mp_timer_start(loop, timer, LOOK_MS, on_look);
    for (uint16_t next; (next = mp_nodes_next_question(nodes)) != 0;) {
        int len = snprintf(number, sizeof number, "%u", (unsigned)next);
        mp_vm_bus_deliver(lib->vm, MP_STR("cluster number"), (mp_str){number, (size_t)len});
    }
    if (mp_nodes_begin_turn(nodes))
        mp_vm_bus_deliver(lib->vm, MP_STR("cluster turn"), MP_STR(""));
}

void mp_lib_watch_nodes(mp_lib *lib, mp_loop *loop)
{
    if (nodes_of(lib) != NULL)
        mp_timer_start(loop, &lib->nodes, 0, on_look);
}

void mp_lib_ignore_nodes(mp_lib *lib)
{
    mp_loop *loop = mp_state_of(lib->vm)->loop;
    if (loop != NULL)
        mp_timer_stop(loop, &lib->nodes);
}

/* nodes.own(): what this process says of itself, and what it is to do: { uid, node, address, number, renewals: of the
 * next renewal, sessions, leaving, joined, heir: an upgrade has begun it, via: the number of the newest process of the
 * node if that is another one, siblings: a set of the numbers of its other processes }; nil if it takes no part.  [-0,
 * +1, throws] */
static int l_own(lua_State *L)
{
    char address[MP_NODE_ADDRESS];
    mp_process_facts others[MP_OLDER_MOST + 1];
    mp_nodes *nodes = nodes_of(mp_lib_of(L));
    const mp_rpc *rpc = mp_lib_of(L)->rpc;
    if (nodes == NULL || rpc == NULL || mp_nodes_address(nodes, address) == 0)
        return 0;
    const mp_processes *processes = mp_rpc_processes(rpc);
    lua_createtable(L, 0, 11);
    mp_field_text(L, "uid", mp_nodes_uid(nodes));
    mp_field_text(L, "node", mp_nodes_node(nodes));
    mp_field_text(L, "address", address);
    mp_field_integer(L, "number", mp_processes_number(processes));
    mp_field_integer(L, "renewals", mp_nodes_renew(nodes));
    mp_field_integer(L, "sessions", mp_stat_sum("sessions"));
    mp_field_bool(L, "leaving", mp_nodes_is_leaving(nodes));
    mp_field_bool(L, "joined", mp_nodes_has_joined(nodes));
    mp_field_bool(L, "heir", mp_nodes_is_heir(nodes));
    if (!mp_processes_is_newest(processes))
        mp_field_integer(L, "via", mp_processes_newest(processes));
    lua_newtable(L);
    for (int i = mp_processes_list(processes, others); i > 0; i--) {
        lua_pushboolean(L, true);
        lua_rawseti(L, -2, others[i - 1].number);
    }
    lua_setfield(L, -2, "siblings");
    return 1;
}

/* nodes.uid(): the uid of this process, whether it has joined, and whether it leaves; nil if other nodes cannot know
 * it.
 * [-0, +0|3] */
static int l_uid(lua_State *L)
{
    char address[MP_NODE_ADDRESS];
    const mp_nodes *nodes = nodes_of(mp_lib_of(L));
    if (nodes == NULL || mp_nodes_address(nodes, address) == 0)
        return 0;
    lua_pushstring(L, mp_nodes_uid(nodes));
    lua_pushboolean(L, mp_nodes_has_joined(nodes));
    lua_pushboolean(L, mp_nodes_is_leaving(nodes));
    return 3;
}

static void read_text(lua_State *L, const char *name, char *to, size_t size)
{
    mp_str text = mp_text_field(L, lua_gettop(L), name);
    snprintf(to, size, "%.*s", MP_STR_ARG(text));
}

/* Reads the record at the top of the stack.  [-0, +0, throws] */
static void read_record(lua_State *L, mp_node_record *one)
{
    *one = (mp_node_record){.number = (uint16_t)mp_number_field(L, lua_gettop(L), "number"),
                            .renewals = (int64_t)mp_number_field(L, lua_gettop(L), "renewals"),
                            .sessions = (int64_t)mp_number_field(L, lua_gettop(L), "sessions")};
    read_text(L, "uid", one->uid, sizeof one->uid);
    read_text(L, "node", one->node, sizeof one->node);
    read_text(L, "address", one->address, sizeof one->address);
    read_text(L, "version", one->version, sizeof one->version);
    read_text(L, "scripts", one->scripts, sizeof one->scripts);
    read_text(L, "config", one->config, sizeof one->config);
    lua_getfield(L, -1, "state");
    one->is_leaving = mp_str_is(mp_opt_str(L, -1), "leaving");
    lua_pop(L, 1);
}

/* nodes.take(records, id, ahead): a read that succeeded, of all processes; `ahead`: how many seconds this machine's
 * clock is ahead of the server's; without records: a read that failed. Which records are "stale", or "over" since they
 * have been that for so long that they are removed, if their processes are gone, by their numbers.  [-0, +1, throws] */
static int l_take(lua_State *L)
{
    mp_nodes *nodes = check_nodes(L);
    if (lua_isnoneornil(L, 1)) {
        mp_nodes_fail(nodes);
        return 0;
    }
    luaL_checktype(L, 1, LUA_TTABLE);
    const char *id = luaL_checkstring(L, 2);
    mp_nodes_set_ahead(nodes, (int64_t)(luaL_checknumber(L, 3) * 1000));
    int count = (int)lua_rawlen(L, 1);
    mp_node_record *records = lua_newuserdatauv(L, ((size_t)count + 1) * sizeof *records, 0);
    for (int i = 0; i < count; i++) {
        lua_rawgeti(L, 1, i + 1);
        read_record(L, &records[i]);
        lua_pop(L, 1);
    }
    mp_nodes_take(nodes, records, count, id);
    lua_newtable(L);
    for (int i = 0; i < count; i++) {
        uint64_t stale_ms = mp_nodes_stale_ms(nodes, records[i].number);
        if (stale_ms == 0)
            continue;
        lua_pushstring(L, stale_ms >= MP_NODE_OVER_MS ? "over" : "stale");
        lua_rawseti(L, -2, records[i].number);
    }
    return 1;
}

/* nodes.answer(number[, record]): the record of the number for which "cluster number" has asked; nil: there is none.
 * [-0, +0, throws] */
static int l_answer(lua_State *L)
{
    mp_node_record record;
    bool has_record = lua_istable(L, 2);
    mp_nodes *nodes = check_nodes(L);
    uint16_t number = (uint16_t)luaL_checkinteger(L, 1);
    lua_settop(L, 2);
    if (has_record)
        read_record(L, &record);
    mp_nodes_answer(nodes, number, has_record ? &record : NULL);
    return 0;
}

/* nodes.lives(number): whether the process with this number, whose record is stale, has answered this worker
 * lately; nil: that is not known yet, and it is asked.  [-0, +1, throws] */
static int l_lives(lua_State *L)
{
    mp_rpc *rpc = mp_lib_of(L)->rpc;
    check_nodes(L);
    mp_node_life life = rpc == NULL ? MP_NODE_MAY_LIVE : mp_rpc_ask_node(rpc, (uint16_t)luaL_checkinteger(L, 1));
    if (life == MP_NODE_MAY_LIVE)
        return 0;
    lua_pushboolean(L, life == MP_NODE_LIVES);
    return 1;
}

/* nodes.settle([why]): the turn has ended. With "" this process has joined and takes sessions, with a reason it takes
 * none. True if that is new.  [-0, +1, throws] */
static int l_settle(lua_State *L)
{
    mp_nodes *nodes = check_nodes(L);
    bool is_new = !lua_isnoneornil(L, 1) && mp_nodes_settle(nodes, mp_opt_str(L, 1));
    mp_nodes_end_turn(nodes);
    lua_pushboolean(L, is_new);
    return 1;
}

/* nodes.leave(): this process leaves the cluster and ends, as `moonpool drain` says.  [-0, +0] */
static int l_leave(MP_UNUSED lua_State *L)
{
    kill(getpid(), SIGTERM); /* the watchdog tells by the sender that it is no signal from outside */
    return 0;
}

/* nodes.renumber(): ends the sessions of this process and takes another number and uid, since another process has the
 * number. False if that cannot be: other processes of the gateway know this one by its number.  [-0, +1, throws] */
static int l_renumber(lua_State *L)
{
    mp_rpc *rpc = mp_lib_of(L)->rpc;
    check_nodes(L);
    lua_pushboolean(L, rpc != NULL && mp_rpc_renumber(rpc));
    return 1;
}

/* -- messages ------------------------------------------------------------------------------------------------------ */

typedef struct {
    mp_owning_op super;
    mp_rpc *rpc;
    mp_node_round *MP_NULLABLE round;
} waiting;

static void drop_round(waiting *it)
{
    mp_node_round *round = it->round;
    it->round = NULL;
    if (round != NULL)
        mp_rpc_free_round(it->rpc, round);
}

static void on_cancel(mp_op *super)
{
    drop_round(mp_container(super, waiting, super.super));
}

static void on_release(mp_resource *resource)
{
    drop_round(mp_container(resource, waiting, super.resource));
}

static void on_done(void *ctx)
{
    mp_op_done(&((waiting *)ctx)->super.super);
}

/* Pushes the answers.  [-0, +1, throws] */
static int push_answers(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    waiting *it = lua_touserdata(L, (int)context);
    const mp_node_round *round = it->round;
    lua_newtable(L);
    for (int i = 0; round != NULL && i < round->count; i++) {
        lua_createtable(L, 0, 3);
        mp_field_text(L, "node", round->answers[i].node);
        mp_field_text(L, "address", round->answers[i].address);
        mp_field_bool(L, "is_taken", round->answers[i].is_taken);
        lua_rawseti(L, -2, i + 1);
    }
    drop_round(it);
    return 1;
}

/* nodes.tell(text): sends the bus message "node_message" to one VM of each other node that renews its record, and waits
 * for what they decide, a second at most: { node, address, is_taken } of each process; empty if none is known.
 *  [-0, +1, throws, parks] */
static int l_tell(lua_State *L)
{
    mp_str text = mp_check_str(L, 1);
    mp_rpc *rpc = mp_lib_of(L)->rpc;
    lua_settop(L, 1);
    if (rpc == NULL)
        return luaL_error(L, MP_NOT_SERVING);
    waiting *it = mp_owning_op_new(L, sizeof *it, on_cancel, on_release);
    it->rpc = rpc;
    it->round = mp_rpc_tell_nodes(rpc, text, on_done, it);
    return mp_op_park_then(L, &it->super.super, push_answers, 2);
}

/* nodes.decide(id, is_taken): answers the node that has sent the bus message "node_message" with this id: what an
 * operator has switched there holds here, or not.  [-0, +0, throws] */
static int l_decide(lua_State *L)
{
    mp_rpc *rpc = mp_lib_of(L)->rpc;
    uint64_t id = (uint64_t)luaL_checkinteger(L, 1);
    if (rpc != NULL)
        mp_rpc_answer_switch(rpc, id, lua_toboolean(L, 2));
    return 0;
}

/* A hash that only who has the key can make, by which nodes compare what none of them shows: the key itself, or `of`.
 */
static void push_fingerprint(lua_State *L, const mp_seal_key *key, mp_str of)
{
    char hex[2 * FINGERPRINT + 1];
    unsigned char hash[MP_SHA256_BYTES];
    mp_seal_key_hash(key, of, hash);
    lua_pushlstring(L, hex, (size_t)(mp_hex_put(hex, hash, FINGERPRINT) - hex));
}

MP_LIBRARY(nodes)
{
    static const luaL_Reg functions[] = {{"nodes.own", l_own},
                                         {"nodes.uid", l_uid},
                                         {"nodes.take", l_take},
                                         {"nodes.answer", l_answer},
                                         {"nodes.lives", l_lives},
                                         {"nodes.settle", l_settle},
                                         {"nodes.leave", l_leave},
                                         {"nodes.renumber", l_renumber},
                                         {"nodes.tell", l_tell},
                                         {"nodes.decide", l_decide},
                                         {NULL, NULL}};
    mp_set_members(L, functions, 0);
    if (config->cluster.name == NULL)
        return;
    lua_newtable(L);
    for (lua_Integer i = 0; config->seal_keys[i].is_set; i++) {
        static const char purpose[] = "moonpool cluster 1 seal key";
        push_fingerprint(L, &config->seal_keys[i], (mp_str){purpose, sizeof purpose});
        lua_rawseti(L, -2, i + 1);
    }
    mp_set_member(L, -2, "nodes.keys");
    const char *text = config->config_text;
    if (text == NULL || !config->seal_keys[0].is_set)
        return;
    push_fingerprint(L, &config->seal_keys[0], mp_str_of(text));
    mp_set_member(L, -2, "nodes.config");
}
