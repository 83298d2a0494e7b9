/* authorities.h: where a system keeps the certificates that it trusts. */
#ifndef MP_NET_AUTHORITIES_H
#define MP_NET_AUTHORITIES_H

#include "base/base.h"

/* Certificate authorities. At most one of the two members is set; if none is, no server is trusted. */
typedef struct {
    const char *MP_NULLABLE folder; /* looked up by a certificate's hash when it is needed */
    const char *MP_NULLABLE file;   /* read as a whole, on systems without such a folder, as Fedora */
} mp_authorities;

mp_authorities mp_find_authorities(void);

#endif
