/* lib_auth.c: who asks: the `request` that auth scripts read, and principals as C knows them. What a script decides is a table of
 * Lua, which the calls of that request see as it is: it never leaves its VM. */
#include "script/lib.h"
#include "script/tokens.h"
#include <lauxlib.h>
#include <stdlib.h>
#include <time.h>

#define SEAT "moonpool.seat"
#define LONGEST_NAME 128

static const char REQUEST[] = "request", HEADERS[] = "headers";

/* -- principals ---------------------------------------------------------------------------------------------------- */

/* Holds a principal for Lua: its only user value is the table. In vm->principals for as long as C counts it. */
typedef struct {
    mp_link link; /* in vm->seats */
    mp_vm *vm;
    mp_principal *principal; /* NULL: it was forsaken */
    int64_t expires;         /* seconds since 1970; 0: never */
    bool is_taken;
} seat;

static void leave_seat(void *keeper)
{
    seat *s = keeper;
    lua_State *L = s->vm->L;
    if (!s->is_taken)
        return;
    s->is_taken = false;
    lua_rawgeti(L, LUA_REGISTRYINDEX, s->vm->principals);
    lua_pushnil(L);
    lua_rawsetp(L, -2, s->principal); /* takes a key away: allocates nothing */
    lua_pop(L, 1);
}

/* The principal of the seat at `index`, counted; from now on its calls find its table.  [-0, +0, throws] */
static mp_principal *take_seat(lua_State *L, int index)
{
    seat *s = luaL_checkudata(L, index, SEAT);
    index = lua_absindex(L, index);
    if (!s->is_taken) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->vm->principals);
        lua_pushvalue(L, index);
        lua_rawsetp(L, -2, s->principal);
        lua_pop(L, 1);
        s->is_taken = true;
    }
    return mp_principal_ref(s->principal);
}

/* seat(value, id, key, expires): what admits `value`, a principal; may be used again.  [-0, +1, throws] */
static int l_seat(lua_State *L)
{
    mp_str id, key;
    luaL_checktype(L, 1, LUA_TTABLE);
    id.ptr = luaL_checklstring(L, 2, &id.len);
    key.ptr = luaL_checklstring(L, 3, &key.len);
    lua_Number expires = luaL_optnumber(L, 4, 0);
    seat *s = lua_newuserdatauv(L, sizeof *s, 1);
    *s = (seat){.vm = mp_vm_of(L)};
    mp_link_init(&s->link);
    luaL_setmetatable(L, SEAT);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, 1);
    s->expires = expires >= 1 && expires < 1e15 ? (int64_t)expires : 0;
    mp_link_put(&s->vm->seats, &s->link);
    s->principal = mp_principal_new(id, key, s->expires);
    mp_principal_keep(s->principal, leave_seat, s);
    mp_principal_unref(s->principal);
    return 1;
}

/* What still counts it goes on without the seat. */
static void forsake(seat *s)
{
    if (s->principal != NULL)
        mp_principal_forsake(s->principal);
    s->principal = NULL;
    s->is_taken = false;
}

static int l_free_seat(lua_State *L)
{
    seat *s = lua_touserdata(L, 1);
    mp_link_drop(&s->link);
    forsake(s);
    return 0;
}

void mp_principals_forsake(mp_vm *vm)
{
    for (mp_link *link = vm->seats.next; link != &vm->seats; link = link->next)
        forsake(mp_container(link, seat, link));
}

void mp_principal_push(lua_State *L, const mp_principal *principal)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, mp_vm_of(L)->principals);
    if (lua_rawgetp(L, -1, principal) == LUA_TUSERDATA) {
        lua_getiuservalue(L, -1, 1);
        lua_remove(L, -2);
    }
    lua_remove(L, -2);
}

/* -- the request --------------------------------------------------------------------------------------------------- */

typedef struct {
    const char *kind;
    mp_task *task;
    uint64_t serial;
} handle;

enum { HEADERS_VALUE = 1, BEARER_VALUE, USER_VALUES = BEARER_VALUE };

/* [-0, +1, throws] */
static void push_handle(lua_State *L, mp_task *task, const char *kind)
{
    handle *h = lua_newuserdatauv(L, sizeof *h, USER_VALUES);
    *h = (handle){kind, task, task->serial};
    luaL_setmetatable(L, kind);
}

static const mp_stream *check_stream(lua_State *L, const char *kind)
{
    const handle *h = lua_touserdata(L, 1); /* metatables that nobody reaches call this: a look will do */
    luaL_argexpected(L, h != NULL && lua_rawlen(L, 1) == sizeof *h && h->kind == kind, 1, kind);
    if (h->serial != h->task->serial || h->task->entry == NULL)
        luaL_error(L, "this request is over");
    return mp_entry_stream(h->task->entry);
}

static void push_str(lua_State *L, mp_str s)
{
    lua_pushlstring(L, s.ptr == NULL ? "" : s.ptr, s.len);
}

/* Looked for once.  [-0, +1, throws] */
static void push_bearer(lua_State *L, const mp_stream *stream)
{
    mp_str token;
    if (lua_getiuservalue(L, 1, BEARER_VALUE) != LUA_TNIL)
        return;
    if (mp_find_bearer(stream, &token) != MP_A_TOKEN)
        return;
    mp_token_push(L, token);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, BEARER_VALUE);
}

/* One object for each request.  [-0, +1, throws] */
static void push_headers(lua_State *L)
{
    const handle *h = lua_touserdata(L, 1);
    if (lua_getiuservalue(L, 1, HEADERS_VALUE) != LUA_TNIL)
        return;
    push_handle(L, h->task, HEADERS);
    lua_pushvalue(L, -1);
    lua_setiuservalue(L, 1, HEADERS_VALUE);
}

/* The client's certificate; nil without TLS, and where it has shown none.  [-0, +1, throws] */
static void push_tls(lua_State *L, const mp_stream *stream)
{
    const mp_tls_peer *peer = mp_stream_tls(stream);
    if (peer == NULL || peer->subject == NULL) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, 6);
    lua_pushstring(L, peer->subject);
    lua_setfield(L, -2, "subject");
    lua_pushstring(L, peer->issuer);
    lua_setfield(L, -2, "issuer");
    lua_pushstring(L, peer->serial);
    lua_setfield(L, -2, "serial");
    lua_pushstring(L, peer->fingerprint);
    lua_setfield(L, -2, "fingerprint");
    lua_pushinteger(L, peer->expires);
    lua_setfield(L, -2, "expires");
    lua_newtable(L);
    for (lua_Integer i = 0; peer->sans != NULL && peer->sans[i] != NULL; i++) {
        lua_pushstring(L, peer->sans[i]);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -2, "sans");
}

enum { METHOD = 1, PATH, HEADER_FIELD, BEARER, PEER, TLS };
static const char *const field_names[] = {"method", "path", "headers", "bearer", "peer", "tls", NULL};

/* __index of a request. Upvalue: the fields' numbers.  [-2, +1, throws] */
static int l_request(lua_State *L)
{
    const mp_stream *stream = check_stream(L, REQUEST);
    lua_rawget(L, lua_upvalueindex(1));
    switch (lua_tointeger(L, -1)) {
    case METHOD:
        push_str(L, mp_stream_request(stream)->method);
        break;
    case PATH:
        push_str(L, mp_stream_request(stream)->path);
        break;
    case HEADER_FIELD:
        push_headers(L);
        break;
    case BEARER:
        push_bearer(L, stream);
        break;
    case PEER:
        push_str(L, mp_stream_peer(stream));
        break;
    case TLS:
        push_tls(L, stream);
        break;
    default:
        lua_pushnil(L);
    }
    return 1;
}

/* __index of its headers, in any case; several of a name are one list, as HTTP has it.  [-2, +1, throws] */
static int l_header(lua_State *L)
{
    const mp_stream *stream = check_stream(L, HEADERS);
    size_t len, at = 0;
    const char *given = luaL_checklstring(L, 2, &len);
    char name[LONGEST_NAME + 1];
    if (len > LONGEST_NAME)
        return 0;
    for (size_t i = 0; i <= len; i++)
        name[i] = (char)(given[i] >= 'A' && given[i] <= 'Z' ? given[i] - 'A' + 'a' : given[i]);
    if (strcmp(name, "host") == 0) { /* which libh2o keeps apart */
        push_str(L, mp_stream_request(stream)->host);
        return 1;
    }
    int count = 0;
    for (mp_str value; (value = mp_stream_next_header(stream, name, &at)).ptr != NULL; count++) {
        if (count > 0)
            lua_pushliteral(L, ", ");
        luaL_checkstack(L, 4, "too many headers of a name");
        push_str(L, mp_str_trim(value));
    }
    if (count == 0)
        lua_pushnil(L);
    else if (count > 1)
        lua_concat(L, 2 * count - 1);
    return 1;
}

/* -- the answer ---------------------------------------------------------------------------------------------------- */

#define KNOWN_MS 5000

/* (reference, principal **)  [-2, +0, throws] */
static int take_known(lua_State *L)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, *(const int *)lua_touserdata(L, 1));
    mp_principal **principal = lua_touserdata(L, 2);
    const seat *s = luaL_checkudata(L, -1, SEAT);
    if (s->expires == 0 || s->expires > (int64_t)time(NULL))
        *principal = take_seat(L, -1);
    return 0;
}

bool mp_entry_is_known(mp_vm *vm, mp_entry *entry)
{
    mp_str token;
    int seat_ref = LUA_NOREF;
    mp_principal *principal = NULL;
    if (mp_find_bearer(mp_entry_stream(entry), &token) == MP_A_TOKEN)
        seat_ref = mp_token_seat(vm, token, mp_loop_now(vm->loop));
    if (seat_ref == LUA_NOREF)
        return false;
    lua_State *L = vm->L;
    lua_pushcfunction(L, take_known);
    lua_pushlightuserdata(L, &seat_ref);
    lua_pushlightuserdata(L, &principal);
    if (lua_pcall(L, 2, 0, 0) != LUA_OK)
        lua_pop(L, 1); /* no memory: a task will say so */
    if (principal == NULL)
        return false;
    mp_entry_admit(entry, principal);
    mp_principal_unref(principal);
    return true;
}

/* authenticate gave a seat, and whether nothing but the bearer token decided; or nil, status, message, and perhaps seconds and the audit's reason. */
static int entry_done(lua_State *L, int status, lua_KContext context)
{
    (void)status;
    mp_task *task = (mp_task *)context;
    if (task->entry == NULL)
        return 0; /* called off */
    if (!lua_isnil(L, 2)) {
        mp_str token;
        if (lua_toboolean(L, 3) && mp_find_bearer(mp_entry_stream(task->entry), &token) == MP_A_TOKEN)
            mp_token_set_seat(L, token, 2, mp_loop_now(task->vm->loop) + KNOWN_MS);
        mp_principal *principal = take_seat(L, 2);
        mp_entry *entry = mp_task_settle_entry(task);
        if (entry != NULL)
            mp_entry_admit(entry, principal);
        mp_principal_unref(principal);
        return 0;
    }
    mp_str message, reason, token;
    message.ptr = luaL_checklstring(L, 4, &message.len);
    reason.ptr = luaL_optlstring(L, 6, "", &reason.len);
    lua_Integer code = luaL_checkinteger(L, 3), retry = luaL_optinteger(L, 5, 0);
    if (task->entry == NULL)
        return 0;
    mp_refusal refusal = {.status = (int)code,
                          .has_token = mp_find_bearer(mp_entry_stream(task->entry), &token) != MP_NO_TOKEN,
                          .retry = (int)retry,
                          .message = message,
                          .reason = reason};
    mp_entry_refuse(mp_task_settle_entry(task), &refusal);
    return 0;
}

int mp_run_entry(lua_State *L)
{
    mp_task *task = lua_touserdata(L, 1);
    if (task->entry == NULL)
        return 0;
    lua_rawgeti(L, LUA_REGISTRYINDEX, task->vm->authenticate);
    push_handle(L, task, REQUEST);
    lua_callk(L, 1, 5, (lua_KContext)task, entry_done);
    return entry_done(L, LUA_OK, (lua_KContext)task);
}

/* -- what is told of it -------------------------------------------------------------------------------------------- */

static mp_str keep_text(lua_State *L, int index, char **to)
{
    size_t len;
    const char *text = luaL_checklstring(L, index, &len);
    free(*to);
    *to = mp_dup((mp_str){text, len});
    return (mp_str){*to, len};
}

/* set_auth(realm, scopes, metadata): scripts decide who comes in.  [-0, +0, throws] */
static int l_set_auth(lua_State *L)
{
    mp_vm *vm = mp_vm_of(L);
    vm->auth.realm = keep_text(L, 1, &vm->auth_texts[0]);
    vm->auth.scopes = keep_text(L, 2, &vm->auth_texts[1]);
    vm->auth.resource_metadata = keep_text(L, 3, &vm->auth_texts[2]);
    vm->auth.is_asked = vm->has_auth;
    return 0;
}

static void set_index(lua_State *L, const char *kind, lua_CFunction index, int upvalues)
{
    luaL_newmetatable(L, kind);
    if (upvalues > 0)
        lua_insert(L, -2);
    lua_pushcclosure(L, index, upvalues);
    lua_setfield(L, -2, "__index");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}

void mp_lib_auth(lua_State *L)
{
    static const luaL_Reg functions[] = {{"seat", l_seat}, {"set_auth", l_set_auth}, {NULL, NULL}};
    luaL_setfuncs(L, functions, 0);
    mp_lib_tokens(L);
    lua_newtable(L);
    mp_vm_of(L)->principals = luaL_ref(L, LUA_REGISTRYINDEX);
    lua_newtable(L);
    for (int i = 0; field_names[i] != NULL; i++) {
        lua_pushinteger(L, i + 1);
        lua_setfield(L, -2, field_names[i]);
    }
    set_index(L, REQUEST, l_request, 1);
    set_index(L, HEADERS, l_header, 0);
    luaL_newmetatable(L, SEAT);
    lua_pushcfunction(L, l_free_seat);
    lua_setfield(L, -2, "__gc");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
}
