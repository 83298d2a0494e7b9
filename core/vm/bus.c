/* bus.c: host.bus.broadcast sends a message to every VM of the process, through the mailbox of the VM's loop. */
#include "vm/bus.h"
#include "vm/preempt.h"
#include <lauxlib.h>

MP_COUNTER(dropped_bus, "dropped", "reason", "bus", "messages between workers over the queue of a Lua state")
MP_GAUGE(bus_bytes, "bus_bytes", "", "", "bytes of messages between workers that wait for their Lua states")

/* processor time of one message: functions `visible` of scripts may run in it, 50 ms each */
#define MESSAGE_US 1000000
#define MAX_MESSAGES_PER_TURN 256 /* messages that one turn delivers */

/* The topic of the message that a Lua state gets in place of those that did not fit. */
#define MISSED MP_STR("missed")

struct mp_bus {
    pthread_mutex_t lock;
    mp_link vms; /* list of the attached VMs, linked by mp_vm.bus_link */
    uint64_t joined;
    bool (*MP_NULLABLE relay)(void *ctx, mp_str topic, mp_str text); /* NULL: there are no other processes */
    void *relay_ctx;
};

typedef struct {
    mp_message super;
    mp_link link; /* link in vm->inbox.messages */
    mp_bus *bus;
    mp_vm *vm; /* the receiver; it may have been freed, so is_on_bus() compares `number` first */
    uint64_t number;
    size_t topic_len, len; /* length of the topic; length of topic and text together */
    char bytes[];
} message;

mp_bus *mp_bus_new(void)
{
    mp_bus *bus = mp_new(sizeof *bus);
    pthread_mutex_init(&bus->lock, NULL);
    return bus;
}

void mp_bus_free(mp_bus *bus)
{
    pthread_mutex_destroy(&bus->lock);
    free(bus);
}

void mp_bus_relay_by(mp_bus *bus, bool (*relay)(void *ctx, mp_str topic, mp_str text), void *ctx)
{
    bus->relay = relay;
    bus->relay_ctx = ctx;
}

bool mp_bus_relay(const mp_bus *bus, mp_str topic, mp_str text)
{
    return bus->relay == NULL || bus->relay(bus->relay_ctx, topic, text);
}

void mp_bus_join(mp_bus *bus, mp_vm *vm)
{
    MP_LOCKED(&bus->lock);
    mp_link_put(&bus->vms, &vm->inbox.link);
    vm->inbox.number = ++bus->joined;
}

void mp_bus_leave(mp_bus *bus, mp_vm *vm)
{
    MP_LOCKED(&bus->lock);
    mp_link_drop(&vm->inbox.link);
}

/* True if the receiver is still attached. A VM joins and leaves on the calling thread, so the answer stays true
 * until this callback returns. */
static bool is_on_bus(const message *it)
{
    bool found = false;
    MP_LOCKED(&it->bus->lock);
    for (mp_link *link = mp_link_first(&it->bus->vms); link != &it->bus->vms && !found; link = link->next)
        found = mp_container(link, mp_vm, inbox.link)->inbox.number == it->number;
    return found;
}

static size_t size_of(mp_str topic, mp_str text)
{
    return sizeof(message) + topic.len + text.len;
}

/* `vm` is NULL if the receiver may have been freed, and its account with it. */
static void free_message(mp_vm *MP_NULLABLE vm, message *it)
{
    size_t size = sizeof *it + it->len;
    if (vm != NULL)
        mp_account_give(&vm->inbox.bytes, (int64_t)size);
    mp_stat_add(&mp_stat_bus_bytes, -(int64_t)size);
    free(it);
}

/* Called on the thread of the receiver; or with `loop` NULL once the loop has ended. */
static void on_delivered(mp_message *super, mp_loop *MP_NULLABLE loop)
{
    message *it = mp_container(super, message, super);
    if (loop == NULL || !is_on_bus(it))
        free_message(NULL, it);
    else
        mp_link_put(&it->vm->inbox.messages, &it->link);
}

/* Makes a message, whose size is in vm->inbox.bytes already. */
static message *message_new(mp_vm *vm, mp_str topic, mp_str text)
{
    message *it = mp_new(size_of(topic, text));
    mp_stat_add(&mp_stat_bus_bytes, (int64_t)size_of(topic, text));
    it->super.deliver = on_delivered;
    it->bus = vm->state.bus;
    it->vm = vm;
    it->number = vm->inbox.number;
    it->topic_len = topic.len;
    it->len = topic.len + text.len;
    memcpy(it->bytes, topic.ptr, topic.len);
    if (text.len > 0)
        memcpy(it->bytes + topic.len, text.ptr, text.len);
    return it;
}

void mp_vm_bus_deliver(mp_vm *vm, mp_str topic, mp_str text)
{
    mp_account_add(&vm->inbox.bytes, (int64_t)size_of(topic, text));
    mp_link_put(&vm->inbox.messages, &message_new(vm, topic, text)->link);
}

/* False if the message does not fit. The VM then gets one that says so, behind all that fitted, and no second one until
 * that is delivered. Call it with the bus's lock. */
static bool post_publication(mp_vm *vm, mp_loop *loop, mp_str topic, mp_str text)
{
    bool fits = mp_account_take_posted(&vm->inbox.bytes, size_of(topic, text));
    if (!fits) {
        mp_stat_add(&mp_stat_dropped_bus, 1);
        if (atomic_exchange(&vm->inbox.has_missed, true))
            return false;
        topic = MISSED;
        text = MP_STR_NONE;
        mp_account_add(&vm->inbox.bytes, (int64_t)size_of(topic, text));
    }
    mp_loop_post(loop, &message_new(vm, topic, text)->super);
    return fits;
}

bool mp_bus_broadcast(mp_bus *bus, mp_str topic, mp_str text)
{
    bool fits = true;
    MP_LOCKED(&bus->lock);
    MP_EACH(mp_vm, vm, &bus->vms, inbox.link) {
        mp_loop *loop = vm->state.loop;
        if (loop != NULL)
            fits = post_publication(vm, loop, topic, text) && fits;
    }
    return fits;
}

/* Delivers one message, a light userdata.  [-1, +0, throws] */
static int run_message(lua_State *L)
{
    const message *it = lua_touserdata(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, it->vm->state.deliver);
    lua_pushlstring(L, it->bytes, it->topic_len);
    lua_pushlstring(L, it->bytes + it->topic_len, it->len - it->topic_len);
    lua_call(L, 2, 0);
    return 0;
}

static message *MP_NULLABLE take_message(mp_vm *vm)
{
    mp_link *link = mp_link_take(&vm->inbox.messages);
    if (link == NULL)
        return NULL;
    message *it = mp_container(link, message, link);
    if (mp_str_eq((mp_str){it->bytes, it->topic_len}, MISSED))
        atomic_store(&vm->inbox.has_missed, false);
    return it;
}

void mp_vm_bus_turn(mp_vm *vm)
{
    message *it;
    for (int i = 0; i < MAX_MESSAGES_PER_TURN && (it = take_message(vm)) != NULL; i++) {
        mp_vm_reset_out(vm);
        lua_pushcfunction(vm->state.L, run_message);
        lua_pushlightuserdata(vm->state.L, it);
        vm->clock.guard_until = mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + MESSAGE_US;
        mp_phase_set(MP_PHASE_HANDLER);
        lua_State *outer = mp_preempt_enter(vm->state.L);
        int status = lua_pcall(vm->state.L, 1, 0, 0);
        mp_preempt_leave(outer);
        mp_phase_set(MP_PHASE_READ);
        vm->clock.guard_until = 0;
        lua_sethook(vm->state.L, NULL, 0, 0);
        if (status != LUA_OK) {
            mp_stat_add(&mp_stat_tool_faults, 1);
            mp_vm_log_error(vm, vm->state.L, "bus message failed", (mp_str){it->bytes, it->topic_len});
        }
        free_message(vm, it);
    }
}

void mp_vm_drop_messages(mp_vm *vm)
{
    for (message *it; (it = take_message(vm)) != NULL;)
        free_message(vm, it);
}

/* bus.broadcast(topic, text): sends a message to every VM, including this one, which delivers it in its next turn.
 * False if the queue of a VM is full; that VM then gets a message "missed".  [-0, +1, throws] */
static int l_broadcast(lua_State *L)
{
    mp_str topic, text;
    topic.ptr = luaL_checklstring(L, 1, &topic.len);
    text.ptr = luaL_checklstring(L, 2, &text.len);
    lua_pushboolean(L, mp_bus_broadcast(lua_touserdata(L, lua_upvalueindex(1)), topic, text));
    return 1;
}

/* bus.relay(topic, text[, unless]): sends a message to one VM of each other process of the gateway. False if it has no
 * room. Sends nothing if the table `unless` has a field `is_over`, as topic.publish.  [-0, +1, throws] */
static int l_relay(lua_State *L)
{
    const mp_bus *bus = lua_touserdata(L, lua_upvalueindex(1));
    mp_str topic, text;
    topic.ptr = luaL_checklstring(L, 1, &topic.len);
    text.ptr = luaL_checklstring(L, 2, &text.len);
    bool is_over = lua_type(L, 3) == LUA_TTABLE && lua_getfield(L, 3, "is_over") != LUA_TNIL;
    lua_pushboolean(L, is_over || mp_bus_relay(bus, topic, text));
    return 1;
}

void mp_lib_bus(lua_State *L, mp_bus *bus)
{
    static const luaL_Reg functions[] = {{"bus.broadcast", l_broadcast}, {"bus.relay", l_relay}, {NULL, NULL}};
    lua_pushlightuserdata(L, bus);
    mp_set_members(L, functions, 1);
}
