/* certificates.h: the certificates of all listeners, and new ones in place of those that serve, while they serve. A pair of
 * files that is wrong changes nothing and is told. */
#ifndef MP_GATEWAY_CERTIFICATES_H
#define MP_GATEWAY_CERTIFICATES_H

#include "config.h"
#include "net/net.h"

typedef struct mp_certificates mp_certificates;

/* Keeps nothing of `config`. Reads all files, none when nobody `listens`. NULL when one is wrong; `report` has that, and warnings, as a person reads them. */
mp_certificates *mp_certificates_new(const mp_config *config, bool listens, mp_buf *report);
void mp_certificates_free(mp_certificates *certificates);
/* What the listener of this address uses: NULL, no TLS. */
mp_tls_slot *mp_certificates_of(const mp_certificates *certificates, size_t index);
mp_tls_slot *mp_certificates_of_admin(const mp_certificates *certificates);

/* -- the main thread -- */

/* From now on what is saved is noticed. */
void mp_certificates_watch(mp_certificates *certificates);
/* Readable when there is something to do, -1 for none; `*wait_ms` shrinks to when there will be. */
int mp_certificates_next(const mp_certificates *certificates, int *wait_ms);
/* Looks what there is to do, and does it. */
void mp_certificates_run(mp_certificates *certificates);

/* -- any thread -- */

/* Reads the files at the next run, and tells at once what is wrong. */
void mp_certificates_now(mp_certificates *certificates);
/* Appends a JSON array: an object for each listener with TLS. */
void mp_certificates_describe(mp_certificates *certificates, mp_buf *out);

#endif
