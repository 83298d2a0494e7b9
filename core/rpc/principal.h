/* principal.h: whom the credentials of a request name. */
#ifndef MP_RPC_PRINCIPAL_H
#define MP_RPC_PRINCIPAL_H

#include "rpc.h"

#define MP_PRINCIPAL_KEY 32 /* bytes of a digest */

struct mp_principal {
    int refs; /* below 0: it lasts as long as the process */
    int64_t expires;
    unsigned char key[MP_PRINCIPAL_KEY];
    mp_str id;
    void (*rest)(void *keeper); /* NULL: nobody keeps it beyond its last reference */
    void *keeper;
    char bytes[];
};

/* In a time that does not depend on where they differ. */
bool mp_principal_key_is(const mp_principal *principal, const unsigned char key[MP_PRINCIPAL_KEY]);

#endif
