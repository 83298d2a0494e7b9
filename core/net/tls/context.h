/* context.h: the struct of a TLS context, for the files of this module. No other header of the module includes
 * OpenSSL. */
#ifndef MP_NET_TLS_CONTEXT_H
#define MP_NET_TLS_CONTEXT_H

#include "tls.h"
#include <openssl/ssl.h>
#include <stdatomic.h>

#define MP_TLS_BINDING 32 /* bytes: what a session ticket is good for, as a SHA-256 */

struct mp_tls {
    SSL_CTX *context;
    mp_tls_names *MP_NULLABLE names; /* NULL: the context has the certificate */
    int64_t expires;
    atomic_int refs;
};

/* Makes a context without a certificate. Requires TLS 1.2 or later, with forward secrecy and AEAD. */
SSL_CTX *mp_tls_context_new(void);
/* Takes over the references to `context` and `names`. */
mp_tls *mp_tls_new(SSL_CTX *context, mp_tls_names *MP_NULLABLE names, int64_t expires);
mp_tls *mp_tls_ref(mp_tls *tls);
/* Connections with `context`, of clients, show the certificate of `tls`. False: OpenSSL fails. */
bool mp_tls_show(const mp_tls *tls, SSL_CTX *context);
/* Of the certificates, the first is that of the key. Makes its own references. */
mp_tls_pair *mp_tls_pair_new(STACK_OF(X509) * certificates, EVP_PKEY *key);
/* The certificates, which the caller frees, and the key; false: they are damaged, or memory is short. */
bool mp_tls_pair_take(mp_tls_pair *pair, STACK_OF(X509) *MP_NULLABLE *certificates, EVP_PKEY *MP_NULLABLE *key);
/* Called while the ClientHello is read: gives the connection the pair for the name in it, and `binding` for its session
 * tickets. Returns 0, or the alert: SSL_AD_UNRECOGNIZED_NAME if no pair serves that name, or another one with OpenSSL's
 * error in its queue. */
int mp_tls_names_choose(const mp_tls_names *names, SSL *ssl, unsigned char binding[MP_TLS_BINDING]);
/* tls_conn.c: tickets of this context's sessions are resumed only where their binding is the same. */
void mp_tls_bind_tickets(SSL_CTX *context);
/* The end of validity, in seconds since 1970. */
static inline int64_t mp_tls_not_after(const X509 *certificate)
{
    struct tm parts = {0};
    ASN1_TIME_to_tm(X509_get0_notAfter(certificate), &parts);
    return (int64_t)timegm(&parts);
}
/* tls_conn.c: finds the connection of each SSL object of this context by its ClientHello. */
void mp_tls_notice_hellos(SSL_CTX *context);
/* tls_conn.c: OpenSSL's callback that selects the protocol by ALPN. */
int mp_tls_choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *len, const unsigned char *offered,
                           unsigned offered_len, void *ctx);

#endif
