/* access.h: who sends a request to the admin listener, and what that caller may do.
 *
 * Roles include those before them: metrics reads metrics, view reads all that has no secrets, operate changes things. A
 * caller has its role by a token (admin.tokens), by its certificate (admin.tls with client_ca, admin.certificates), or
 * because it could open the Unix socket. Without configured tokens a listener on a loopback address makes a token of
 * its own for the lifetime of the process (own_token.h). Belongs to the admin thread once that runs. */
#ifndef MP_ADMIN_ACCESS_H
#define MP_ADMIN_ACCESS_H

#include "config/config.h"

typedef enum { MP_ROLE_NONE, MP_ROLE_METRICS, MP_ROLE_VIEW, MP_ROLE_OPERATE } mp_admin_role;

typedef struct mp_admin_access mp_admin_access;

typedef struct {
    mp_admin_role role;
    char name[96]; /* for the audit: "token grafana", "certificate CN=robot", "uid 1000"; "" if nothing is known */
    mp_secret_hash token; /* of the token that gave the role, or of the roles of certificates, if has_token */
    bool has_token, has_wrong_token;
    bool is_process; /* the caller is another process of this gateway, which asks for the facts of this process alone */
    bool has_bearer; /* a valid token was in Authorization, which no web page of another origin can know */
    uint64_t wait_s; /* above 0: this address has sent too many wrong tokens, and its token was not looked at */
} mp_admin_caller;

/* `at` is the bound address. `handed_token`: the memory file of the own token, that the process before this one handed
 * over at an upgrade; it stays the caller's. -1: a token is made. */
mp_admin_access *mp_admin_access_new(const mp_config *config, const mp_address *at, int handed_token);
/* Another process serves the admin listener from now on and has the token: this one does not remove the token's file.
 */
void mp_admin_access_leave(mp_admin_access *access);
/* Duplicates the memory file of the token that this process made (own_token.h); -1: there is none. Any thread. */
int mp_admin_access_token_fd(mp_admin_access *access);
/* Makes the code of a link that opens the dashboard, for the terminal that the gateway runs in; see codes.h. `text` has
 * MP_CODE_SIZE bytes. Any thread may call it. */
void mp_admin_own_code(mp_admin_access *access, char *text);
/* The codes and sessions of the dashboard. */
struct mp_admin_codes *mp_admin_codes_of(mp_admin_access *access);
/* At an upgrade: takes codes and sessions of the process before this one, as mp_admin_codes_take. On the admin
 * thread. */
void mp_admin_access_take_codes(mp_admin_access *access, mp_str text);
/* Changes a code for a token, as mp_admin_code_change. A wrong code counts as a wrong token of its address: if
 * caller->wait_s is above 0 it was not looked at. */
bool mp_admin_take_code(mp_admin_access *access, const mp_stream *stream, mp_str code, char *token,
                        mp_admin_caller *caller);
/* Uses the tokens and certificates of another configuration. */
void mp_admin_access_configure(mp_admin_access *access, const mp_config *config);
void mp_admin_access_free(mp_admin_access *MP_NULLABLE access);

/* Counts wrong tokens, so call it once for each request. */
mp_admin_caller mp_admin_caller_of(mp_admin_access *access, const mp_stream *stream);
/* True if a caller with the role operate still has it: its token is still in the configuration, with this role, or
 * admin.certificates is as it was. */
bool mp_admin_access_has(const mp_admin_access *access, const mp_admin_caller *caller);
/* True if only this machine can reach the listener. */
bool mp_admin_is_near(const mp_admin_access *access);
/* Counts a request that was refused for want of a role. */
void mp_admin_count_refused(void);
/* "metrics", "view", "operate"; "none" */
const char *mp_admin_role_name(mp_admin_role role);

/* The token with which a command asks the gateway whose admin listener is at `address`: that of the variable
 * MOONPOOL_ADMIN_TOKEN, of the configuration (the highest role), or the gateway's own. The caller frees it. NULL: none.
 * `config` may be NULL. */
char *MP_NULLABLE mp_admin_find_token(const mp_config *MP_NULLABLE config, const char *address);

#endif
