/* principal.c: the identity that authentication gave a request. Sessions are bound to it. */
#include "state.h"
#include "data/data.h"
#include <openssl/crypto.h>

/* No binding digest equals these keys. */
static mp_principal anonymous = {.refs = -1, .key = {0}, .id = {"anonymous", 9}};
static mp_principal local = {.refs = -1, .key = {1}, .id = {"local", 5}};
mp_principal *const mp_nobody = &anonymous, *const mp_lone = &local;

mp_principal *mp_principal_new(mp_str id, mp_str binding, int64_t expires)
{
    mp_principal *principal = mp_new(sizeof *principal + id.len);
    principal->refs = 1;
    principal->expires = expires;
    memcpy(principal->bytes, id.ptr, id.len);
    principal->id = (mp_str){principal->bytes, id.len};
    mp_sha256(binding, principal->key);
    return principal;
}

void mp_principal_set_sign_in(mp_principal *principal, uint64_t sign_in)
{
    principal->sign_in = sign_in;
}

mp_principal *mp_principal_ref(mp_principal *principal)
{
    if (principal->refs >= 0)
        principal->refs++;
    return principal;
}

void mp_principal_unref(mp_principal *principal)
{
    if (principal->refs < 0 || --principal->refs > 0)
        return;
    void *keeper = principal->keeper;
    if (keeper == NULL)
        free(principal);
    else
        principal->on_unused(keeper);
}

void mp_principal_keep(mp_principal *principal, void (*on_unused)(void *keeper), void *keeper)
{
    principal->on_unused = on_unused;
    principal->keeper = keeper;
}

void *MP_NULLABLE mp_principal_keeper(const mp_principal *principal)
{
    return principal->keeper;
}

void mp_principal_forsake(mp_principal *principal)
{
    principal->keeper = NULL;
    if (principal->refs == 0)
        free(principal);
}

unsigned mp_principal_share(const mp_principal *principal, const mp_stream *stream)
{
    if (principal == mp_nobody)
        return mp_stream_share(stream);
    return (unsigned)principal->key[0] << 8 | principal->key[1];
}

mp_str mp_principal_id(const mp_principal *principal)
{
    return principal->id;
}

mp_str mp_principal_key(const mp_principal *principal)
{
    return (mp_str){(const char *)principal->key, sizeof principal->key};
}

bool mp_principal_key_is(const mp_principal *principal, const unsigned char key[MP_PRINCIPAL_KEY])
{
    return CRYPTO_memcmp(principal->key, key, MP_PRINCIPAL_KEY) == 0;
}
