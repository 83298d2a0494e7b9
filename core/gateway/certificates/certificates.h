/* certificates.h: the TLS certificates of all listeners, and their replacement while the gateway serves. Files with
 * errors change nothing and are logged. */
#ifndef MP_GATEWAY_CERTIFICATES_CERTIFICATES_H
#define MP_GATEWAY_CERTIFICATES_CERTIFICATES_H

#include "config/config.h"
#include "files.h"

typedef struct mp_certificates mp_certificates;

/* Copies what it needs of `config`. Reads all files, or none if `listens` is false, and calls
 * `beat` between them. Returns NULL on an error; `report` receives the errors and warnings as text for people. */
mp_certificates *MP_NULLABLE mp_certificates_new(const mp_config *config, bool listens, mp_certificate_beat beat,
                                                 mp_buf *report);
void mp_certificates_free(mp_certificates *MP_NULLABLE certificates);
/* The TLS slot of the listener at this index of `listen`; NULL: no TLS. */
mp_tls_slot *MP_NULLABLE mp_certificates_of(const mp_certificates *certificates, size_t index);
/* Of the listener for other nodes. */
mp_tls_slot *MP_NULLABLE mp_certificates_of_nodes(const mp_certificates *certificates);
mp_tls_slot *MP_NULLABLE mp_certificates_of_admin(const mp_certificates *certificates);

/* -- the main thread -- */

/* At an upgrade: appends the keys of session tickets, which are secret, so that clients resume their TLS sessions in
 * the next process. Called for the certificate of number `i`, from 0 on, until it returns false; a certificate that is
 * not served now appends nothing. The next process takes the texts of all; it uses keys only with the same, unchanged
 * files. */
bool mp_certificates_hand(const mp_certificates *certificates, size_t i, mp_buf *out);
void mp_certificates_take(const mp_certificates *certificates, mp_str handed);

/* Starts watching the files for changes. */
void mp_certificates_watch(mp_certificates *certificates);
/* Returns a descriptor that is readable when mp_certificates_run has work to do, or -1. Lowers `*wait_ms` to the
 * time until there will be work. */
int mp_certificates_next(const mp_certificates *certificates, int *wait_ms);
/* Checks for changed files and loads them. */
void mp_certificates_run(mp_certificates *certificates);

/* -- any thread -- */

/* Requests that all files are read at the next run, with errors logged at once. */
void mp_certificates_now(mp_certificates *certificates);
/* Appends a JSON array with one object per TLS listener. */
void mp_certificates_describe(mp_certificates *certificates, mp_buf *out);
/* Appends that array, where each object also has the names, the issuer and the files of the certificate. */
void mp_certificates_describe_all(mp_certificates *certificates, mp_buf *out);
/* Appends when the certificates expire, in Prometheus's text format. */
void mp_certificates_put_metrics(mp_certificates *certificates, mp_buf *out);

#endif
