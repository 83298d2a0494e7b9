/* upstream_entry.h: one entry of `upstreams` in the configuration: what core/upstream obeys, and what only Lua uses.
 *
 *   pair    a name and a value; an array of pairs ends with a pair without a name
 *   list    an array of texts that ends with NULL */
#ifndef MP_LIB_UPSTREAM_ENTRY_H
#define MP_LIB_UPSTREAM_ENTRY_H

#include "upstream/upstream.h"

typedef struct {
    char *name, *value;
} mp_pair;

typedef enum {
    MP_UPSTREAM_PER_AUTO, /* chosen by the transport and revision of the upstream */
    MP_UPSTREAM_PER_PRINCIPAL,
    MP_UPSTREAM_PER_SESSION,
    MP_UPSTREAM_PER_CALL,
    MP_UPSTREAM_PER_GATEWAY
} mp_upstream_per;
/* how clients see URIs of an upstream */
typedef enum { MP_UPSTREAM_URIS_AS_IS, MP_UPSTREAM_URIS_WRAP } mp_upstream_uris;
typedef enum { MP_UPSTREAM_INSTRUCTIONS_FALSE, MP_UPSTREAM_INSTRUCTIONS_TRUE } mp_upstream_instructions;
typedef enum { MP_UPSTREAM_NAMES_SAFE, MP_UPSTREAM_NAMES_AS_IS } mp_upstream_names;
typedef enum { MP_UPSTREAM_RETRY_READ_ONLY, MP_UPSTREAM_RETRY_HINTED, MP_UPSTREAM_RETRY_NEVER } mp_upstream_retry;
typedef enum { MP_CLIENT_AUTH_AUTO, MP_CLIENT_AUTH_BASIC, MP_CLIENT_AUTH_POST } mp_upstream_client_auth;
typedef enum { MP_UPSTREAM_PRIVATE_FALSE, MP_UPSTREAM_PRIVATE_TRUE } mp_upstream_private;

/* How tokens are got from an authorization server: upstreams.NAME.auth.client_credentials and .exchange. Texts may be
 * NULL. */
typedef struct {
    char *MP_NULLABLE issuer, *MP_NULLABLE token_url; /* exactly one of the two is set; with `issuer`, its metadata
                                                         names the token endpoint */
    char *MP_NULLABLE client, *MP_NULLABLE secret;    /* credentials of this gateway at the authorization server */
    char *MP_NULLABLE scope, *MP_NULLABLE audience, *MP_NULLABLE resource;
    mp_upstream_client_auth method;
} mp_upstream_token;

/* The entry owns all memory, also that of `core`. Immutable once the loader has finished it. */
typedef struct {
    mp_upstream_config core;
    int line; /* of the entry in the configuration file, for messages */
    /* Members that repeat parts of `core` in the form of the file. The values may be secrets. */
    mp_upstream_private is_private;
    mp_pair *headers, *env;
    /* `auth`; at most one is used, and core.authorization has the header of it */
    char *MP_NULLABLE bearer, *MP_NULLABLE basic, *MP_NULLABLE header;
    mp_upstream_token client_credentials,
        exchange; /* an entry whose `client` is NULL is unused; at most one of the two is used */

    /* Members that only lua/moonpool/upstream uses. */
    char *prefix;                                /* prefix of the names that clients see; may be empty, never NULL */
    char **MP_NULLABLE only, **MP_NULLABLE hide; /* patterns of the upstream's own names; NULL: none */
    mp_pair *MP_NULLABLE rename;                 /* the upstream's own name -> the name after the prefix; NULL: none */
    mp_pair *MP_NULLABLE describe;               /* the upstream's own name -> its description; NULL: none */
    char **MP_NULLABLE pass; /* names of client headers that are sent on, in lower case; NULL: none */
    char **asks;             /* what the upstream may ask clients: elicitation, sampling, roots */
    mp_upstream_per per;
    mp_upstream_retry retry;
    mp_upstream_names names;
    mp_upstream_instructions instructions;
    mp_upstream_uris uris;
} mp_upstream_entry;

mp_upstream_entry *mp_upstream_entry_new(mp_str name);
void mp_upstream_entry_free(mp_upstream_entry *entry);
size_t mp_pairs_count(const mp_pair *MP_NULLABLE pairs);
void mp_pairs_free(mp_pair *MP_NULLABLE pairs);

#endif
