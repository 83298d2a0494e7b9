/* base64url.h: base64url without padding (RFC 4648, section 5). Decoding is strict: text that mp_base64url_encode
 * would not write is refused. */
#ifndef MP_BASE_BASE64URL_H
#define MP_BASE_BASE64URL_H

#include "str.h"

/* Length of the encoded text of `len` bytes, in characters. */
#define MP_BASE64URL_ROOM(len) (((len) * 4 + 2) / 3)

/* Writes the encoded text of `from` to `to`, without a NUL. Returns its length. */
size_t mp_base64url_encode(char *to, mp_str from);
/* Decodes `from` into `to`, which needs three quarters of its length; `to` may be the same memory. Returns the
 * number of bytes, or -1 if `from` is not valid base64url. */
ptrdiff_t mp_base64url_decode(unsigned char *to, mp_str from);

#endif
