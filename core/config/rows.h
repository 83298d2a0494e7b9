/* rows.h: how a row of the table of keys names its place, its type and its bounds, and the rows that several sections
 * have. For keys.c alone. */
#ifndef MP_CONFIG_ROWS_H
#define MP_CONFIG_ROWS_H

#include "config.h"

/* The place that a key fills. Members of another type than the ones here do not compile: the loader writes eight bytes,
 * and for a choice an enum. */
#define SLOT(member)                                                                                                   \
    .slot = offsetof(mp_config, member) + _Generic(((mp_config *)0)->member,                                           \
                int64_t: 0,                                                                                            \
                uint64_t: 0,                                                                                           \
                unsigned: 0,                                                                                           \
                char *: 0,                                                                                             \
                const char *: 0,                                                                                       \
                char **: 0,                                                                                            \
                mp_grant *: 0,                                                                                         \
                mp_upstream_entry **: 0,                                                                               \
                mp_pair *: 0)
#define KIB ((int64_t)1 << 10)
#define MIB ((int64_t)1 << 20)
#define GIB ((int64_t)1 << 30)
#define SECOND ((int64_t)1000)
#define HOUR (3600 * SECOND)
#define DAY (24 * HOUR)
#define MILLION ((int64_t)1000000)

#define ADDRESS                                                                                                        \
    .least = 1, .most = 128, .check = mp_config_check_address, .form = "an address",                                   \
    .pattern = "^unix:/.+|^systemd:[^:]+$|^\\[[0-9A-Fa-f:.]+\\]:[0-9]{1,5}$|^[A-Za-z0-9._-]+:[0-9]{1,5}$"
#define PROXY                                                                                                          \
    .least = 2, .most = 64, .check = mp_proxies_check, .form = "an address or a network",                              \
    .pattern = "^unix$|^[0-9.]+(/[0-9]{1,2})?$|^[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*(/[0-9]{1,3})?$"
/* The keys of one `tls` section: of an item of `listen`, or of the admin listener. */
#define TLS_KEYS(at, member)                                                                                           \
    {at, MP_KEY_SECTION, .restarts = true,                                                                             \
     .doc = "Enables TLS 1.2 and 1.3 on this listener. The files are watched: new connections use changed files."},    \
        {at ".certificate",                                                                                            \
         MP_KEY_PATH,                                                                                                  \
         member(certificate),                                                                                          \
         .least = 1,                                                                                                   \
         .most = 4000,                                                                                                 \
         .restarts = true,                                                                                             \
         .doc = "A PEM file: the server's certificate, then its issuers. A relative path starts at the folder of "     \
                "this file."},                                                                                         \
        {at ".key",                                                                                                    \
         MP_KEY_PATH,                                                                                                  \
         member(key),                                                                                                  \
         .least = 1,                                                                                                   \
         .most = 4000,                                                                                                 \
         .restarts = true,                                                                                             \
         .doc = "A PEM file with the private key of the certificate, without a passphrase."},                          \
        {at ".client_ca",                                                                                              \
         MP_KEY_PATH,                                                                                                  \
         member(client_ca),                                                                                            \
         .least = 1,                                                                                                   \
         .most = 4000,                                                                                                 \
         .restarts = true,                                                                                             \
         .doc =                                                                                                        \
             "A PEM file of CA certificates. Clients must present a certificate that one of these CAs has signed."},   \
        {at ".client",                                                                                                 \
         MP_KEY_CHOICE,                                                                                                \
         member(client),                                                                                               \
         .choices = needs,                                                                                             \
         .restarts = true,                                                                                             \
         .doc = "With client_ca: required (the default) refuses clients without a certificate, optional serves them."}
#define OF_ITEM(member) .slot = offsetof(mp_config_tls, member)
#define OF_UPSTREAM(member)                                                                                            \
    .slot = offsetof(mp_upstream_entry, member) + _Generic(((mp_upstream_entry *)0)->member,                           \
                int64_t: 0,                                                                                            \
                uint64_t: 0,                                                                                           \
                unsigned: 0,                                                                                           \
                char *: 0,                                                                                             \
                char **: 0,                                                                                            \
                mp_pair *: 0)
/* The keys of a way to get tokens. */
#define TOKEN_KEYS(at, member, about)                                                                                  \
    {at, MP_KEY_SECTION, .doc = about},                                                                                \
        {at ".issuer",                                                                                                 \
         MP_KEY_TEXT,                                                                                                  \
         OF_UPSTREAM(member.issuer),                                                                                   \
         .least = 1,                                                                                                   \
         .most = 4096,                                                                                                 \
         .check = mp_config_check_issuer,                                                                              \
         .form = "a URL",                                                                                              \
         .pattern = "^https?://",                                                                                      \
         .doc = "The authorization server. Its metadata (RFC 8414, OpenID Connect) "                                   \
                "name its token endpoint, which must be https and public, or of the "                                  \
                "issuer's own origin."},                                                                               \
        {at ".token_url",                                                                                              \
         MP_KEY_TEXT,                                                                                                  \
         OF_UPSTREAM(member.token_url),                                                                                \
         .least = 1,                                                                                                   \
         .most = 4096,                                                                                                 \
         .check = mp_config_check_issuer,                                                                              \
         .form = "a URL",                                                                                              \
         .pattern = "^https?://",                                                                                      \
         .doc = "The token endpoint, instead of issuer."},                                                             \
        {at ".client",                                                                                                 \
         MP_KEY_TEXT,                                                                                                  \
         OF_UPSTREAM(member.client),                                                                                   \
         .least = 1,                                                                                                   \
         .most = 1024,                                                                                                 \
         .form = "a client id",                                                                                        \
         .doc = "The id of this gateway at the authorization server."},                                                \
        {at ".secret",                                                                                                 \
         MP_KEY_TEXT,                                                                                                  \
         OF_UPSTREAM(member.secret),                                                                                   \
         .least = 1,                                                                                                   \
         .most = 16 * KIB,                                                                                             \
         .form = "a secret",                                                                                           \
         .doc = "Its secret, as in \"${file:/run/secrets/jobs}\"."},                                                   \
        {at ".scope",                                                                                                  \
         MP_KEY_TEXT,                                                                                                  \
         OF_UPSTREAM(member.scope),                                                                                    \
         .least = 1,                                                                                                   \
         .most = 4096,                                                                                                 \
         .check = mp_config_check_scope,                                                                               \
         .form = "scopes",                                                                                             \
         .doc = "Scopes to ask for, with spaces between them."},                                                       \
        {at ".audience",                                                                                               \
         MP_KEY_TEXT,                                                                                                  \
         OF_UPSTREAM(member.audience),                                                                                 \
         .least = 1,                                                                                                   \
         .most = 4096,                                                                                                 \
         .form = "an audience",                                                                                        \
         .doc = "For whom the token is to be, usually the url of the upstream. A token that is a JWT for others is "   \
                "not used."},                                                                                          \
        {at ".resource",                                                                                               \
         MP_KEY_TEXT,                                                                                                  \
         OF_UPSTREAM(member.resource),                                                                                 \
         .least = 1,                                                                                                   \
         .most = 4096,                                                                                                 \
         .check = mp_config_check_resource,                                                                            \
         .form = "a URL",                                                                                              \
         .pattern = "^https?://",                                                                                      \
         .doc = "The resource for which the token is to be, for authorization servers that want a URL (RFC 8707): "    \
                "the url of the upstream. Without audience, a token that is a JWT for others is not used."},           \
        {at ".method",                                                                                                 \
         MP_KEY_CHOICE,                                                                                                \
         OF_UPSTREAM(member.method),                                                                                   \
         .preset = "auto",                                                                                             \
         .choices = client_auths,                                                                                      \
         .doc = "How client and secret are sent: basic (in a header), post (in the body), auto: as the metadata "      \
                "say, else basic."}
#define OF_ADMIN(member) SLOT(admin_tls.member)
#define ADMIN_TOKEN(role)                                                                                              \
    SLOT(admin_tokens[role]), .least = 22, .most = 4096, .check = mp_config_check_admin_token, .form = "tokens"
#define ENDPOINT                                                                                                       \
    .least = 1, .most = 256, .check = mp_config_check_endpoint, .form = "a path", .pattern = "^/", .word = "off"
#define HOST                                                                                                           \
    .check = mp_config_check_host, .form = "a host", .pattern = "^(\\*|(\\*\\.)?[A-Za-z0-9._-]+|\\[[0-9A-Fa-f:.]+\\])$"
#define TIME(lowest, highest) .type = MP_KEY_TIME, .least = (lowest), .most = (highest)
#define SIZE(lowest, highest) .type = MP_KEY_SIZE, .least = (lowest), .most = (highest)
#define COUNT(lowest, highest) .type = MP_KEY_COUNT, .least = (lowest), .most = (highest)

#endif
