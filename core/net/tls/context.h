/* context.h: the struct of a TLS context, for the files of this module. No other header of the module includes
 * OpenSSL. */
#ifndef MP_NET_TLS_CONTEXT_H
#define MP_NET_TLS_CONTEXT_H

#include "tls.h"
#include <openssl/ssl.h>
#include <stdatomic.h>

struct mp_tls {
    SSL_CTX *context;
    int64_t expires;
    atomic_int refs;
};

/* Makes a context without a certificate. Requires TLS 1.2 or later, with forward secrecy and AEAD. */
SSL_CTX *mp_tls_context_new(void);
mp_tls *mp_tls_ref(mp_tls *tls);
/* Appends the certificate and its issuers, and the key, which is secret, as PEM. */
void mp_tls_put_pem(const mp_tls *tls, mp_buf *certificates, mp_buf *key);
/* The end of validity, in seconds since 1970. */
int64_t mp_tls_not_after(const X509 *certificate);
/* tls_conn.c: finds the connection of each SSL object of this context by its ClientHello. */
void mp_tls_notice_hellos(SSL_CTX *context);
/* tls_conn.c: OpenSSL's callback that selects the protocol by ALPN. */
int mp_tls_choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *len, const unsigned char *offered,
                           unsigned offered_len, void *ctx);

#endif
