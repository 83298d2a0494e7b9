/* lib_wire_tls.h: TLS over a connection of the workbench. It blocks, as all of moonpool.wire does. */
#ifndef MP_SCRIPT_LIB_WIRE_TLS_H
#define MP_SCRIPT_LIB_WIRE_TLS_H

#include "base/base.h"
#include <sys/types.h>

typedef struct mp_wire_tls mp_wire_tls;

/* Shakes hands over `fd`, which stays the caller's. `ca`: a file of certificates to trust in the place of the system's, or NULL.
 * The certificate must be trusted, and for `host`: else NULL and why. */
mp_wire_tls *mp_wire_tls_open(int fd, const char *host, const char *ca, mp_err *err);
/* Says goodbye, if the other side still listens. */
void mp_wire_tls_close(mp_wire_tls *tls);
/* Bytes that were read from the connection already. */
bool mp_wire_tls_has_more(mp_wire_tls *tls);
/* As read(2) and write(2), but that -1 comes with `err`. */
ssize_t mp_wire_tls_read(mp_wire_tls *tls, char *room, size_t len, mp_err *err);
ssize_t mp_wire_tls_write(mp_wire_tls *tls, const char *bytes, size_t len, mp_err *err);

#endif
