/* wire_tls.h: TLS over a connection of the workbench. The functions block the thread, like all of moonpool.wire. */
#ifndef MP_LIB_WIRE_TLS_H
#define MP_LIB_WIRE_TLS_H

#include "telemetry/telemetry.h"
#include <sys/types.h>

typedef struct mp_wire_tls mp_wire_tls;

/* Performs the TLS handshake over `fd`, which the caller still owns. `ca`: a file of the certificates to trust, or NULL for the system's.
 * The server's certificate must be trusted and valid for `host`; otherwise returns NULL and sets `err`. */
mp_wire_tls *mp_wire_tls_open(int fd, const char *host, const char *ca, mp_err *err);
/* Sends close_notify if the connection is open, and frees `tls`. Does not close the descriptor. */
void mp_wire_tls_close(mp_wire_tls *tls);
/* True if decrypted bytes are waiting, so that mp_wire_tls_read() does not block. */
bool mp_wire_tls_has_more(mp_wire_tls *tls);
/* Like read(2) and write(2), but set `err` when they return -1. */
ssize_t mp_wire_tls_read(mp_wire_tls *tls, char *buffer, size_t len, mp_err *err);
ssize_t mp_wire_tls_write(mp_wire_tls *tls, const char *bytes, size_t len, mp_err *err);

#endif
