/* base64url.h: Base64 for URLs, without padding (RFC 4648, section 5). One text for given bytes: what `encode` never
 * writes is refused. */
#ifndef MP_BASE_BASE64URL_H
#define MP_BASE_BASE64URL_H

#include "str.h"

/* So many characters for `len` bytes. */
#define MP_BASE64URL_ROOM(len) (((len)*4 + 2) / 3)

/* Writes the text of `from` to `to`, without a NUL; gives its length. */
size_t mp_base64url_encode(char *to, mp_str from);
/* Writes the bytes to `to`, which has room for three quarters of the text; gives how many, or -1. `to` may be the text. */
ptrdiff_t mp_base64url_decode(unsigned char *to, mp_str from);

#endif
