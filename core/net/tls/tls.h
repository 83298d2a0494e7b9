/* tls.h: TLS for accepted connections: certificates from files, which one a listener uses, the identity of clients.
 *
 *   tls    a certificate with its key, or many by name, and the authority for client certificates: immutable, counted,
 *          any thread
 *   pair   one certificate of many, with its key: immutable, counted, any thread
 *   names  which pair serves which host: immutable, counted, any thread
 *   slot   the tls that new connections of a listener use; can be replaced while listening, from any thread */
#ifndef MP_NET_TLS_H
#define MP_NET_TLS_H

#include "telemetry/telemetry.h"

typedef struct mp_tls mp_tls;
typedef struct mp_tls_slot mp_tls_slot;
typedef struct mp_tls_pair mp_tls_pair;
typedef struct mp_tls_names mp_tls_names;

typedef struct {
    const char *certificate, *key;     /* PEM files; the server's certificate first, then its issuers */
    const char *MP_NULLABLE client_ca; /* NULL: client certificates are not requested */
    bool client_optional;              /* clients without a certificate are accepted, too */
    const char *MP_NULLABLE node_name; /* DNS name of nodes, which show theirs to servers, too; NULL: it is no node's */
} mp_tls_files;

typedef enum { MP_TLS_CERTIFICATE, MP_TLS_KEY, MP_TLS_CLIENT_CA } mp_tls_file;
#define MP_TLS_FINDINGS 8

/* Problems found in the files, for people to read. */
typedef struct {
    struct {
        mp_tls_file file;
        bool is_warning;
        mp_err err;
    } all[MP_TLS_FINDINGS];
    size_t count;
} mp_tls_findings;

mp_tls *MP_NULLABLE mp_tls_load(const mp_tls_files *files, mp_tls_findings *findings); /* NULL: there is an error */
void mp_tls_unref(mp_tls *MP_NULLABLE tls);
int64_t mp_tls_expires(const mp_tls *tls); /* the end of validity, in seconds since 1970; 0: certificates by name */

/* -- certificates by name: the name that a client asks for (SNI) selects the pair -- */

/* Reads `certificate` and `key` alone. It keeps their bytes; OpenSSL's objects, which are larger, exist only for the
 * pairs that were used last. */
mp_tls_pair *MP_NULLABLE mp_tls_pair_load(const mp_tls_files *files, mp_tls_findings *findings);
void mp_tls_pair_unref(mp_tls_pair *MP_NULLABLE pair);
int64_t mp_tls_pair_expires(const mp_tls_pair *pair);
/* The DNS names of the certificate, in lower case, which may begin with "*."; ends with NULL. */
char *const *mp_tls_pair_names(const mp_tls_pair *pair);
/* Makes its own references to the pairs. Of several with one name the first serves it. `other` serves clients that ask
 * for none of the names, or for no name; NULL: these are refused. */
mp_tls_names *mp_tls_names_new(mp_tls_pair *const *pairs, size_t count, mp_tls_pair *MP_NULLABLE other);
/* The pair with this name, or else with a wildcard for it; NULL: there is none. Letters of both cases are equal. */
mp_tls_pair *MP_NULLABLE mp_tls_names_find(const mp_tls_names *names, mp_str name);
mp_tls_names *mp_tls_names_ref(mp_tls_names *names);
void mp_tls_names_unref(mp_tls_names *MP_NULLABLE names);
/* Of `files` only those of client certificates are read. Takes over the reference `names`. A session that began with
 * one name, or another certificate, is not resumed. */
mp_tls *MP_NULLABLE mp_tls_by_name(const mp_tls_files *files, mp_tls_names *names, mp_tls_findings *findings);
/* `tls` with other names: the keys of its session tickets stay. */
mp_tls *mp_tls_with_names(const mp_tls *tls, mp_tls_names *names);

#define MP_TLS_TICKET_KEYS 80 /* bytes: the name of the keys, and the two keys */
/* The keys of session tickets; false: there are none. Connections with `tls` resume what was begun with another one
 * that has the same keys, so both must have the same certificate, and accept the same clients. */
bool mp_tls_get_ticket_keys(const mp_tls *tls, unsigned char keys[MP_TLS_TICKET_KEYS]);
void mp_tls_set_ticket_keys(mp_tls *tls, const unsigned char keys[MP_TLS_TICKET_KEYS]); /* before the first use */

mp_tls_slot *mp_tls_slot_new(mp_tls *first); /* takes over the reference `first` */
/* New connections use `tls` from now on, whose reference is taken over; existing connections keep the old one. */
void mp_tls_slot_set(mp_tls_slot *slot, mp_tls *tls);
mp_tls *mp_tls_slot_get(mp_tls_slot *slot); /* a new reference */
void mp_tls_slot_free(mp_tls_slot *MP_NULLABLE slot);

/* The identity in a client's certificate; all members are NULL if the client has shown none. */
typedef struct {
    char *MP_NULLABLE subject, *MP_NULLABLE issuer; /* RFC 2253: "CN=robot,O=Example" */
    char *serial;                                   /* hexadecimal, upper case */
    char *fingerprint;                              /* SHA-256 of the certificate: 64 hexadecimal digits, lower case */
    int64_t expires;                                /* seconds since 1970 */
    char **MP_NULLABLE sans; /* "DNS:robot.example", "URI:spiffe://…", "EMAIL:…", "IP:…"; ends with NULL */
} mp_tls_peer;

/* Facts of the server's own certificate; the caller frees them. */
mp_tls_peer *mp_tls_own(const mp_tls *tls);
mp_tls_peer *mp_tls_pair_own(mp_tls_pair *MP_NULLABLE pair);
bool mp_tls_peer_is(const mp_tls_peer *MP_NULLABLE peer, const char *name); /* its certificate has this very DNS name */
void mp_tls_peer_free(mp_tls_peer *MP_NULLABLE peer);

#endif
