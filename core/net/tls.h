/* tls.h: TLS for connections that are accepted: what is read from files, who is told by them, and what a listener
 * uses now.
 *
 *   tls    a certificate with its key, and whose certificates clients may show: immutable, counted, any thread
 *   slot   what new connections of a listener get; changed while it listens, from any thread */
#ifndef MP_NET_TLS_H
#define MP_NET_TLS_H

#include "base/base.h"

typedef struct mp_tls mp_tls;
typedef struct mp_tls_slot mp_tls_slot;

typedef struct {
    const char *certificate, *key; /* PEM: the server's own first, then those that lead to its authority */
    const char *client_ca;         /* NULL: clients show none */
    bool client_may_lack;          /* one that shows none is served too */
} mp_tls_files;

typedef enum { MP_TLS_CERTIFICATE, MP_TLS_KEY, MP_TLS_CLIENT_CA } mp_tls_file;

#define MP_TLS_FINDINGS 8

/* What is wrong with the files, for people. */
typedef struct {
    struct {
        mp_tls_file file;
        bool is_warning;
        mp_err err;
    } all[MP_TLS_FINDINGS];
    size_t count;
} mp_tls_findings;

/* NULL when `findings` has more than warnings. */
mp_tls *mp_tls_load(const mp_tls_files *files, mp_tls_findings *findings);
void mp_tls_unref(mp_tls *tls);
/* Seconds since 1970. */
int64_t mp_tls_expires(const mp_tls *tls);

/* Takes `first` over. */
mp_tls_slot *mp_tls_slot_new(mp_tls *first);
/* Connections to come get `tls`, which is taken over; those there are keep what they have. */
void mp_tls_slot_set(mp_tls_slot *slot, mp_tls *tls);
/* Counted for the caller. */
mp_tls *mp_tls_slot_get(mp_tls_slot *slot);
void mp_tls_slot_free(mp_tls_slot *slot);

/* Who a client is by the certificate it has shown; all NULL when it has shown none. */
typedef struct {
    char *subject, *issuer; /* RFC 2253: "CN=robot,O=Example" */
    char *serial;           /* hexadecimal, upper case */
    char *fingerprint;      /* SHA-256 of the certificate, 64 hexadecimal digits, lower case */
    int64_t expires;        /* seconds since 1970 */
    char **sans;            /* "DNS:robot.example", "URI:spiffe://…", "EMAIL:…", "IP:…"; ends with NULL */
} mp_tls_peer;

#endif
