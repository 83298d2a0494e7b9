/* hear.c: host.tell: a message to every VM of the process, through the mailbox of its loop. */
#include "script/hear.h"
#include "script/lib.h"
#include <lauxlib.h>
#include <pthread.h>
#include <stdlib.h>

#define TURN_HEARD 256 /* and then the loop looks at its sockets again */
#define MOST_HEARD 65536
#define MOST_HEARD_BYTES ((size_t)64 << 20)

struct mp_hearers {
    pthread_mutex_t lock;
    mp_link vms; /* by mp_vm.hearer */
    uint64_t joined;
};

typedef struct {
    mp_message super;
    mp_link link; /* in vm->heard */
    mp_hearers *hearers;
    mp_vm *vm; /* which may have left meanwhile: `number` says whether this is still it */
    uint64_t number;
    size_t topic_len, len; /* of both */
    char bytes[];
} message;

mp_hearers *mp_hearers_new(void)
{
    mp_hearers *hearers = mp_new(sizeof *hearers);
    pthread_mutex_init(&hearers->lock, NULL);
    mp_link_init(&hearers->vms);
    return hearers;
}

void mp_hearers_free(mp_hearers *hearers)
{
    pthread_mutex_destroy(&hearers->lock);
    free(hearers);
}

void mp_hearers_join(mp_hearers *hearers, mp_vm *vm)
{
    pthread_mutex_lock(&hearers->lock);
    mp_link_put(&hearers->vms, &vm->hearer);
    vm->hearer_number = ++hearers->joined;
    pthread_mutex_unlock(&hearers->lock);
}

void mp_hearers_leave(mp_hearers *hearers, mp_vm *vm)
{
    pthread_mutex_lock(&hearers->lock);
    mp_link_drop(&vm->hearer);
    pthread_mutex_unlock(&hearers->lock);
}

/* A VM joins and leaves on the thread that asks here, so what is there stays. */
static bool is_there(const message *news)
{
    bool found = false;
    pthread_mutex_lock(&news->hearers->lock);
    for (mp_link *link = news->hearers->vms.next; link != &news->hearers->vms && !found; link = link->next)
        found = mp_container(link, mp_vm, hearer)->hearer_number == news->number;
    pthread_mutex_unlock(&news->hearers->lock);
    return found;
}

static void hear(mp_vm *vm, message *news)
{
    if (vm->heard_count >= MOST_HEARD || news->len > MOST_HEARD_BYTES - vm->heard_bytes) {
        mp_stat_add(MP_STAT_DROPPED_TOLD, 1);
        free(news);
    } else {
        mp_link_put(&vm->heard, &news->link);
        vm->heard_count++;
        vm->heard_bytes += news->len;
    }
}

/* On the thread of the VM, or nobody hears it any more. */
static void arrive(mp_message *super, mp_loop *loop)
{
    message *news = mp_container(super, message, super);
    if (loop == NULL || !is_there(news))
        free(news);
    else
        hear(news->vm, news);
}

static message *message_new(mp_vm *vm, mp_str topic, mp_str text)
{
    message *news = mp_new(sizeof *news + topic.len + text.len);
    news->super.deliver = arrive;
    news->hearers = vm->hearers;
    news->vm = vm;
    news->number = vm->hearer_number;
    news->topic_len = topic.len;
    news->len = topic.len + text.len;
    memcpy(news->bytes, topic.ptr, topic.len);
    if (text.len > 0)
        memcpy(news->bytes + topic.len, text.ptr, text.len);
    return news;
}

void mp_vm_hear_of(mp_vm *vm, mp_str topic, mp_str text)
{
    hear(vm, message_new(vm, topic, text));
}

static void tell(mp_hearers *hearers, mp_str topic, mp_str text)
{
    pthread_mutex_lock(&hearers->lock);
    for (mp_link *link = hearers->vms.next; link != &hearers->vms; link = link->next) {
        message *news = message_new(mp_container(link, mp_vm, hearer), topic, text);
        mp_loop_post(news->vm->loop, &news->super);
    }
    pthread_mutex_unlock(&hearers->lock);
}

/* (message)  [-1, +0, throws] */
static int run_heard(lua_State *L)
{
    const message *news = lua_touserdata(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, news->vm->hear);
    lua_pushlstring(L, news->bytes, news->topic_len);
    lua_pushlstring(L, news->bytes + news->topic_len, news->len - news->topic_len);
    lua_call(L, 2, 0);
    return 0;
}

static message *take(mp_vm *vm)
{
    mp_link *link = mp_link_take(&vm->heard);
    if (link == NULL)
        return NULL;
    message *news = mp_container(link, message, link);
    vm->heard_count--;
    vm->heard_bytes -= news->len;
    return news;
}

bool mp_vm_hear(mp_vm *vm)
{
    message *news;
    bool did = false;
    for (int i = 0; i < TURN_HEARD && (news = take(vm)) != NULL; i++) {
        mp_vm_reset_out(vm);
        lua_pushcfunction(vm->L, run_heard);
        lua_pushlightuserdata(vm->L, news);
        if (lua_pcall(vm->L, 1, 0, 0) != LUA_OK) {
            mp_stat_add(MP_STAT_TOOL_FAULTS, 1);
            mp_vm_log_error(vm, vm->L, "hearing failed", (mp_str){news->bytes, news->topic_len});
        }
        free(news);
        did = true;
    }
    return did;
}

void mp_vm_unhear(mp_vm *vm)
{
    for (message *news; (news = take(vm)) != NULL;)
        free(news);
}

/* tell(topic, text): every VM, this one too, hears it in its next turn.  [-0, +0, throws] */
static int l_tell(lua_State *L)
{
    mp_str topic, text;
    topic.ptr = luaL_checklstring(L, 1, &topic.len);
    text.ptr = luaL_checklstring(L, 2, &text.len);
    tell(lua_touserdata(L, lua_upvalueindex(1)), topic, text);
    return 0;
}

void mp_lib_hear(lua_State *L, mp_hearers *hearers)
{
    static const luaL_Reg functions[] = {{"tell", l_tell}, {NULL, NULL}};
    lua_pushlightuserdata(L, hearers);
    luaL_setfuncs(L, functions, 1);
}
