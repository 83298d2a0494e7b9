/* tls_context.h: what the files of this room see of TLS: OpenSSL stays behind it. */
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

/* Without a certificate yet. Clients' TLS is 1.2 at least, with forward secrecy and AEAD. */
SSL_CTX *mp_tls_context_new(void);
/* Seconds since 1970. */
int64_t mp_tls_not_after(const X509 *certificate);
/* tls_conn.c: connections of this context are known by their first message. */
void mp_tls_notice_hellos(SSL_CTX *context);

#endif
