/* token.c: any bytes as a token, as Base64 for URLs, as keys. Decoding and encoding must give the same bytes, and no
 * invented signature may be valid. */
#include "base/encoding.h"
#include "data/jwk.h"
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())

/* Bytes have exactly one encoding. */
static void check_part(mp_str part, mp_str text)
{
    char *again = mp_new(MP_BASE64URL_ROOM(part.len) + 1);
    size_t len = mp_base64url_encode(again, part);
    MUST(mp_str_eq((mp_str){again, len}, text));
    free(again);
}

static void check_token(mp_str text)
{
    unsigned char *room = mp_new(text.len + 1);
    mp_token token;
    if (mp_token_split(&token, text, room) == NULL) {
        const char *first = memchr(text.ptr, '.', text.len);
        MUST(first != NULL && token.input.len < text.len && token.input.ptr[token.input.len] == '.');
        check_part(token.header, (mp_str){text.ptr, (size_t)(first - text.ptr)});
        check_part(token.payload, mp_str_from(token.input, (size_t)(first - text.ptr) + 1));
        check_part(token.signature, mp_str_from(text, token.input.len + 1));
    }
    free(room);
}

static void check_signature(mp_str text)
{
    static const char *const names[] = {"ES256", "EdDSA", "RS256"};
    static mp_jwk keys[3];
    for (size_t i = 0; i < 3; i++) {
        if (keys[i].pkey == NULL)
            MUST(mp_jwk_generate(&keys[i], mp_str_of(names[i])) == NULL);
        MUST(!mp_jwk_verify(&keys[i], mp_str_of(names[i]), MP_STR("nobody signed this"), text));
    }
}

static void check_keys(mp_str text)
{
    mp_jwk key;
    mp_str half = {text.ptr, text.len / 2}, rest = mp_str_from(text, text.len / 2);
    const char *why = mp_jwk_from_pem(&key, text, false);
    MUST((why == NULL) == (key.pkey != NULL));
    mp_jwk_clear(&key);
    mp_jwk_from_pem(&key, text, true);
    mp_jwk_clear(&key);
    mp_jwk_from_rsa(&key, half, rest);
    mp_jwk_clear(&key);
    mp_jwk_from_ec(&key, MP_STR("P-256"), half, rest);
    mp_jwk_clear(&key);
    mp_jwk_from_ed25519(&key, text);
    mp_jwk_clear(&key);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    mp_str text = {(const char *)data, size};
    check_token(text);
    check_signature(text);
    check_keys(text);
    return 0;
}
