/* principal.c: principal references: see principal.h. */
#include "lib/principal.h"
#include "lib/fields.h"
#include <lauxlib.h>

#define PRINCIPAL "moonpool.principal"

/* The content of a principal reference. While C code refers to the principal, lib->principals holds the userdata. */
typedef struct {
    mp_link link; /* link in lib->principal_refs */
    mp_lib *lib;
    mp_principal *MP_NULLABLE principal; /* NULL once the VM is detached */
    int64_t expires;                     /* seconds since 1970; 0: never */
    bool is_held;                        /* lib->principals holds the principal reference */
    mp_str issuer;                       /* the bytes of a user value; empty: the auth script named none */
    mp_rights rights;
} principal_ref;

/* The user values of a principal reference. */
enum { TABLE = 1, ISSUER, PACKED, USER_VALUES = PACKED };

static bool is_constant(const mp_principal *principal)
{
    return principal == mp_nobody || principal == mp_lone;
}

/* -- references ---------------------------------------------------------------------------------------------------- */

/* No C code refers to the principal any more: drops the reference by which the Lua value was kept alive.  [-0, +0] */
static void on_principal_unused(void *keeper)
{
    principal_ref *s = keeper;
    lua_State *L = mp_state_of(s->lib->vm)->L;
    if (!s->is_held)
        return;
    s->is_held = false;
    lua_rawgeti(L, LUA_REGISTRYINDEX, s->lib->principals);
    lua_pushnil(L);
    lua_rawsetp(L, -2, s->principal); /* removes a key, so it allocates nothing */
    lua_pop(L, 1);
}

mp_principal *mp_principal_ref_at(lua_State *L, int index)
{
    principal_ref *s = luaL_checkudata(L, index, PRINCIPAL);
    index = lua_absindex(L, index);
    mp_principal *principal = s->principal;
    if (principal == NULL)
        luaL_error(L, "the gateway has ended");
    if (!s->is_held) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, s->lib->principals);
        lua_pushvalue(L, index);
        lua_rawsetp(L, -2, principal);
        lua_pop(L, 1);
        s->is_held = true;
    }
    return mp_principal_ref(principal);
}

mp_principal *MP_NULLABLE mp_principal_ref_valid(lua_State *L, int index)
{
    const principal_ref *s = luaL_checkudata(L, index, PRINCIPAL);
    return s->expires == 0 || s->expires > (int64_t)time(NULL) ? mp_principal_ref_at(L, index) : NULL;
}

/* -- sign-ins that have ended ------------------------------------------------------------------------------------ */

/* The number of a sign-in by its id at `index`, which is random; 0: there is none.  [-0, +0, throws] */
static uint64_t sign_in_at(lua_State *L, int index)
{
    mp_str id = mp_opt_str(L, index);
    uint64_t hash = mp_hash_fnv(0, id);
    return id.ptr == NULL ? 0 : hash == 0 ? 1 : hash;
}

/* auth.end_sign_in(id, seconds): no access token of the sign-in is admitted from now on, in this process, and its
 * streams and calls end. `seconds`: how long tokens of it may be left.  [-0, +0, throws] */
static int l_end_sign_in(lua_State *L)
{
    luaL_checkstring(L, 1);
    lua_Integer seconds = luaL_checkinteger(L, 2);
    luaL_argcheck(L, seconds > 0 && seconds < INT32_MAX, 2, "seconds of a token's life");
    mp_sign_in_end(mp_lib_of(L)->rpc, sign_in_at(L, 1), (uint32_t)seconds);
    return 0;
}

/* auth.has_ended(id): whether the sign-in has ended; nil: the store has to be asked.  [-0, +1, throws] */
static int l_has_ended(lua_State *L)
{
    luaL_checkstring(L, 1);
    mp_sign_in_state state = mp_sign_in_state_of(mp_lib_of(L)->rpc, sign_in_at(L, 1));
    if (state == MP_SIGN_IN_UNKNOWN)
        lua_pushnil(L);
    else
        lua_pushboolean(L, state == MP_SIGN_IN_ENDED);
    return 1;
}

/* auth.doubt_endings(is_again): begins to read the endings anew, since messages about some may have been lost. From now
 * on auth.has_ended answers nil, until all endings that the store has were given to auth.end_sign_in, and then the
 * number that this returns to auth.know_endings. 0: nothing is to be read: all are known, and `is_again` is false.
 *  [-0, +1] */
static int l_doubt_endings(lua_State *L)
{
    lua_pushinteger(L, (lua_Integer)mp_sign_ins_doubt(lua_toboolean(L, 1)));
    return 1;
}

/* auth.know_endings(number).  [-0, +0, throws] */
static int l_know_endings(lua_State *L)
{
    mp_sign_ins_know((uint64_t)luaL_checkinteger(L, 1));
    return 0;
}

/* -- making references ------------------------------------------------------------------------------------------- */

/* host.auth.principal_ref(value, id, key, expires, issuer, sign_in): a principal reference for the table `value`. It
 * may authenticate many requests. `expires`: seconds since 1970, or nil; `issuer`: a text, or nil; `sign_in`: the id of
 * the sign-in that it is from, or nil.  [-0, +1, throws] */
static int l_principal_ref(lua_State *L)
{
    mp_str id, key;
    luaL_checktype(L, 1, LUA_TTABLE);
    id.ptr = luaL_checklstring(L, 2, &id.len);
    key.ptr = luaL_checklstring(L, 3, &key.len);
    lua_Number expires = luaL_optnumber(L, 4, 0);
    mp_str issuer = mp_opt_str(L, 5);
    uint64_t sign_in = sign_in_at(L, 6);
    lua_settop(L, 5);
    principal_ref *s = lua_newuserdatauv(L, sizeof *s, USER_VALUES);
    *s = (principal_ref){.lib = mp_lib_of(L), .issuer = issuer, .rights = {.audience_ref = LUA_NOREF}};
    luaL_setmetatable(L, PRINCIPAL);
    lua_pushvalue(L, 1);
    lua_setiuservalue(L, -2, TABLE);
    lua_pushvalue(L, 5);
    lua_setiuservalue(L, -2, ISSUER);
    s->expires = expires >= 1 && expires < 1e15 ? (int64_t)expires : 0;
    mp_link_put(&s->lib->principal_refs, &s->link);
    mp_principal *principal = mp_principal_new(id, key, s->expires);
    mp_principal_set_sign_in(principal, sign_in);
    mp_principal_keep(principal, on_principal_unused, s);
    mp_principal_unref(principal);
    s->principal = principal;
    return 1;
}

/* Separates the principal from its VM. C code that refers to the principal can still use it. */
static void detach_principal(principal_ref *s)
{
    if (s->principal != NULL)
        mp_principal_forsake(s->principal);
    s->principal = NULL;
    s->is_held = false;
}

static int l_free_principal_ref(lua_State *L)
{
    principal_ref *s = lua_touserdata(L, 1);
    luaL_unref(L, LUA_REGISTRYINDEX,
               s->rights.audience_ref); /* frees a slot of the registry, so it allocates nothing */
    mp_link_drop(&s->link);
    detach_principal(s);
    return 0;
}

void mp_principals_detach(mp_lib *lib)
{
    MP_EACH(principal_ref, ref, &lib->principal_refs, link)
        detach_principal(ref);
}

void mp_principal_push(lua_State *L, const mp_principal *principal)
{
    lua_rawgeti(L, LUA_REGISTRYINDEX, mp_lib_of(L)->principals);
    if (lua_rawgetp(L, -1, principal) == LUA_TUSERDATA) {
        lua_getiuservalue(L, -1, TABLE);
        lua_remove(L, -2);
    }
    lua_remove(L, -2);
}

/* -- for other processes ------------------------------------------------------------------------------------------- */

typedef struct {
    const mp_principal *principal;
    mp_buf *out;
} packing;

/* Makes the packed text of the principal, once, and keeps it in the user value PACKED.  [-0, +0, throws] */
static int pack_principal(lua_State *L)
{
    const packing *it = lua_touserdata(L, 1);
    lua_rawgeti(L, LUA_REGISTRYINDEX, mp_lib_of(L)->principals);
    if (lua_rawgetp(L, -1, it->principal) != LUA_TUSERDATA)
        return 0;
    if (lua_getiuservalue(L, -1, PACKED) != LUA_TSTRING) {
        lua_pop(L, 1);
        lua_rawgeti(L, LUA_REGISTRYINDEX, mp_lib_of(L)->pack);
        lua_getiuservalue(L, -2, TABLE);
        lua_call(L, 1, 1);
        lua_pushvalue(L, -1);
        lua_setiuservalue(L, -3, PACKED);
    }
    mp_str text;
    text.ptr = luaL_checklstring(L, -1, &text.len);
    mp_buf_put(it->out, text);
    return 0;
}

void mp_principal_put_packed(mp_vm *vm, const mp_principal *principal, mp_buf *out)
{
    packing it = {principal, out};
    lua_State *L = mp_state_of(vm)->L;
    if (is_constant(principal)) {
        mp_buf_put(out, mp_principal_id(principal));
        return;
    }
    lua_pushcfunction(L, pack_principal);
    lua_pushlightuserdata(L, &it);
    if (lua_pcall(L, 1, 0, 0) != LUA_OK)
        lua_pop(L, 1); /* no memory: the caller refuses the request */
}

/* -- facts for C --------------------------------------------------------------------------------------------------- */

bool mp_principal_is_of(const mp_lib *lib, const mp_principal *principal)
{
    const principal_ref *s = mp_principal_keeper(principal);
    return is_constant(principal) || (s != NULL && s->lib == lib);
}

mp_str mp_principal_issuer(const mp_principal *principal)
{
    const principal_ref *s = mp_principal_keeper(principal);
    return s == NULL ? MP_STR_NONE : s->issuer;
}

/* The place in which the rights of the principal are cached; NULL for a principal of another VM. */
static mp_rights *MP_NULLABLE place_of_rights(mp_lib *lib, const mp_principal *principal)
{
    if (is_constant(principal))
        return &lib->rights[principal == mp_lone];
    principal_ref *s = mp_principal_keeper(principal);
    return s != NULL && s->lib == lib ? &s->rights : NULL;
}

const mp_rights *MP_NULLABLE mp_principal_rights(mp_lib *lib, const mp_principal *principal)
{
    const mp_rights *rights = place_of_rights(lib, principal);
    return rights != NULL && rights->generation == lib->snapshot_served ? rights : NULL;
}

void mp_principal_set_rights(lua_State *L, const mp_principal *principal, uint64_t generation, uint64_t scopes)
{
    mp_rights *rights = place_of_rights(mp_lib_of(L), principal);
    if (rights == NULL || rights->generation >= generation) {
        lua_pop(L, 1);
        return;
    }
    int audience_ref = luaL_ref(L, LUA_REGISTRYINDEX); /* may throw: nothing has changed yet */
    luaL_unref(L, LUA_REGISTRYINDEX, rights->audience_ref);
    *rights = (mp_rights){generation, scopes, .audience_ref = audience_ref};
    lua_rawgeti(L, LUA_REGISTRYINDEX, audience_ref);
    rights->audience = mp_check_str(L, -1);
    lua_pop(L, 1);
}

void mp_lib_principals(lua_State *L)
{
    static const luaL_Reg functions[] = {
        {"auth.principal_ref", l_principal_ref}, {"auth.end_sign_in", l_end_sign_in},   {"auth.has_ended", l_has_ended},
        {"auth.doubt_endings", l_doubt_endings}, {"auth.know_endings", l_know_endings}, {NULL, NULL}};
    mp_lib *lib = mp_lib_of(L);
    mp_set_members(L, functions, 0);
    lua_newtable(L);
    lib->principals = luaL_ref(L, LUA_REGISTRYINDEX);
    lib->rights[0].audience_ref = lib->rights[1].audience_ref = LUA_NOREF;
    mp_push_metatable(L, PRINCIPAL, l_free_principal_ref);
    lua_pop(L, 1);
}
