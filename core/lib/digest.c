/* digest.c: hash functions, HMAC and scrypt by OpenSSL. */
#include "lib/bindings.h"
#include "os/os.h"
#include <lauxlib.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

static const EVP_MD *check_kind(lua_State *L, int index)
{
    const EVP_MD *kind = EVP_get_digestbyname(luaL_checkstring(L, index));
    luaL_argcheck(L, kind != NULL, index, "the name is not a hash function of OpenSSL");
    return kind;
}

/* digest.sum(kind, bytes): the hash, as bytes. `kind`: OpenSSL's name of the hash function.  [-0, +1, throws] */
static int l_digest(lua_State *L)
{
    const EVP_MD *kind = check_kind(L, 1);
    size_t len;
    const char *bytes = luaL_checklstring(L, 2, &len);
    unsigned char hash[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (EVP_Digest(bytes, len, hash, &size, kind, NULL) != 1)
        return luaL_error(L, "this hash function is disabled in OpenSSL");
    lua_pushlstring(L, (const char *)hash, size);
    return 1;
}

/* digest.hmac(kind, key, bytes): the message authentication code, as bytes (RFC 2104).  [-0, +1, throws] */
static int l_hmac(lua_State *L)
{
    const EVP_MD *kind = check_kind(L, 1);
    size_t key_len, len;
    const char *key = luaL_checklstring(L, 2, &key_len), *bytes = luaL_checklstring(L, 3, &len);
    unsigned char code[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    if (HMAC(kind, key, (int)key_len, (const unsigned char *)bytes, len, code, &size) == NULL)
        return luaL_error(L, "this hash function is disabled in OpenSSL");
    lua_pushlstring(L, (const char *)code, size);
    return 1;
}

/* -- scrypt (RFC 7914) --------------------------------------------------------------------------------------------- */

#define MAX_PASSWORD_BYTES 1024
#define MAX_SALT_BYTES 64
#define HASH_BYTES 32
#define MAX_MEMORY ((uint64_t)128 << 20) /* of one hash: 128 * n * r bytes, 32 MiB for the lines that we make */

/* Hashes that threads of the pool compute, also those that nobody waits for any more: they take two of its four. */
#define MAX_HASHES 2
MP_ACCOUNT(hashes, "password_hashes", "", "", "hashes of passwords that are computed at this moment")

typedef struct hash_op hash_op;

/* One hash. It owns its memory: the task may be cancelled while a thread of the pool works. */
typedef struct {
    mp_job super;
    hash_op *MP_NULLABLE op; /* NULL once the wait was cancelled */
    char password[MAX_PASSWORD_BYTES];
    unsigned char salt[MAX_SALT_BYTES], hash[HASH_BYTES];
    size_t password_len, salt_len;
    uint64_t n, r, p;
    bool is_made, is_over;
} hashing;

struct hash_op {
    mp_owning_op super;
    hashing *MP_NULLABLE of;
};

static void free_hashing(hash_op *op)
{
    hashing *it = op->of;
    op->of = NULL;
    if (it == NULL)
        return;
    explicit_bzero(it->password, sizeof it->password);
    free(it);
}

static bool make_hash(hashing *it)
{
    return EVP_PBE_scrypt(it->password, it->password_len, it->salt, it->salt_len, it->n, it->r, it->p, MAX_MEMORY,
                          it->hash, HASH_BYTES) == 1;
}

static void on_work(mp_job *super)
{
    hashing *it = mp_container(super, hashing, super);
    it->is_made = make_hash(it);
}

static void on_done(mp_job *super, mp_loop *MP_NULLABLE loop)
{
    hashing *it = mp_container(super, hashing, super);
    it->is_over = true;
    mp_account_give(&mp_account_hashes, 1);
    if (it->op == NULL)
        free_hashing(&(hash_op){.of = it});
    else if (loop != NULL)
        mp_op_done(&it->op->super.super);
}

static void on_cancel(mp_op *super)
{
    hash_op *op = mp_container(super, hash_op, super.super);
    hashing *it = MP_NEVER_NULL(op->of); /* cleared here or with the result: no wait is cancelled after that */
    it->op = NULL;
    bool never_ran = !it->is_over && mp_pool_take_back(&it->super);
    mp_account_give(&mp_account_hashes, never_ran);
    if (it->is_over || never_ran)
        free_hashing(op);
    op->of = NULL;
}

static void on_release(mp_resource *resource)
{
    free_hashing(mp_container(resource, hash_op, super.resource));
}

static int push_hash(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    hash_op *op = (hash_op *)context;
    unsigned char hash[HASH_BYTES];
    bool is_made = MP_NEVER_NULL(op->of)->is_made;
    memcpy(hash, MP_NEVER_NULL(op->of)->hash, sizeof hash);
    free_hashing(op);
    if (is_made)
        lua_pushlstring(L, (const char *)hash, sizeof hash);
    else
        lua_pushnil(L);
    return 1;
}

/* Reads the arguments (password, salt, n, r, p).  [-0, +0, throws] */
static void read_arguments(lua_State *L, hashing *it)
{
    mp_str password = mp_check_str(L, 1), salt = mp_check_str(L, 2);
    luaL_argcheck(L, password.len <= sizeof it->password, 1, "the password is longer than 1,024 bytes");
    luaL_argcheck(L, salt.len <= sizeof it->salt, 2, "the salt is longer than 64 bytes");
    it->n = (uint64_t)luaL_checkinteger(L, 3);
    it->r = (uint64_t)luaL_checkinteger(L, 4);
    it->p = (uint64_t)luaL_checkinteger(L, 5);
    memcpy(it->password, password.ptr, password.len);
    memcpy(it->salt, salt.ptr, salt.len);
    it->password_len = password.len;
    it->salt_len = salt.len;
}

/* digest.scrypt(password, salt, n, r, p): the hash, 32 bytes; nil if OpenSSL takes no such numbers, or the pool has no
 * place; false if two hashes are computed already. A thread of the pool works meanwhile.  [-0, +1, throws, parks] */
static int l_scrypt(lua_State *L)
{
    hashing given = {0};
    read_arguments(L, &given);
    hash_op *op = mp_owning_op_new(L, sizeof *op, on_cancel, on_release);
    hashing *it = op->of = mp_new(sizeof *it);
    *it = given;
    explicit_bzero(&given, sizeof given);
    it->super = (mp_job){.work = on_work, .done = on_done};
    it->op = op;
    bool has_place = mp_account_take(&mp_account_hashes, 1, MAX_HASHES);
    if (has_place && mp_pool_run(op->super.super.loop, &it->super) == 0)
        return mp_op_park_then(L, &op->super.super, push_hash, (lua_KContext)op);
    mp_account_give(&mp_account_hashes, has_place);
    free_hashing(op);
    if (has_place)
        lua_pushnil(L);
    else
        lua_pushboolean(L, false);
    return 1;
}

int mp_lib_scrypt_at_once(lua_State *L)
{
    hashing it = {0};
    read_arguments(L, &it);
    bool is_made = make_hash(&it);
    explicit_bzero(it.password, sizeof it.password);
    if (is_made)
        lua_pushlstring(L, (const char *)it.hash, sizeof it.hash);
    else
        lua_pushnil(L);
    return 1;
}

void mp_lib_digest(lua_State *L)
{
    static const luaL_Reg functions[] = {{"digest.sum", l_digest}, {"digest.hmac", l_hmac}, {NULL, NULL}};
    mp_set_members(L, functions, 0);
}

MP_LIBRARY(digest)
{
    static const luaL_Reg waits[] = {{"digest.scrypt", l_scrypt}, {NULL, NULL}};
    mp_lib_digest(L);
    mp_set_members(L, waits, 0);
}
