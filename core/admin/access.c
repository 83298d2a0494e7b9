/* access.c: tokens, certificates and Unix users of the admin listener. */
#define _GNU_SOURCE
#include "access.h"
#include "codes.h"
#include "own_token.h"
#include <fnmatch.h>

MP_REFUSED(refused_admin, "admin", MP_FAULT, "requests to the admin listener without the role that they need")

/* wrong tokens of one address in WRONG_WINDOW_MS; further tokens of the address are refused unread */
#define WRONG_MOST 10
#define WRONG_WINDOW_MS 60000
/* slots that count wrong tokens by address; addresses with the same slot are counted together */
#define ADDRESSES 512

typedef struct {
    char *name;
    mp_admin_role role;
    mp_secret_hash hash;
} token;

struct mp_admin_access {
    token *tokens;
    size_t count;
    mp_pair *MP_NULLABLE certificates; /* patterns and roles; NULL: each certificate has the role operate */
    mp_secret_hash by_certificate; /* token that callers with a certificate seem to have; it changes with the roles in
                                      `certificates` */
    bool is_near, is_unix;
    uint16_t port;
    _Atomic(mp_own_token *MP_NULLABLE) own; /* NULL: none was needed yet, or none can be made */
    int handed_token;                       /* see mp_admin_access_new */
    mp_secret_hash own_hash;                /* the hash of `own` */
    mp_admin_codes *codes;
    struct {
        uint64_t since_ms;
        unsigned count;
    } wrong[ADDRESSES];
};

void mp_admin_count_refused(void)
{
    mp_stat_add(&mp_stat_refused_admin, 1);
}

static const char *const roles[] = {"none", "metrics", "view", "operate"};

const char *mp_admin_role_name(mp_admin_role role)
{
    return roles[role];
}

static mp_admin_role role_of(const char *name)
{
    for (int i = MP_ROLE_METRICS; i <= MP_ROLE_OPERATE; i++)
        if (strcmp(roles[i], name) == 0)
            return (mp_admin_role)i;
    return MP_ROLE_NONE;
}

/* -- the token of a command ---------------------------------------------------------------------------------------- */

char *MP_NULLABLE mp_admin_find_token(const mp_config *MP_NULLABLE config, const char *address)
{
    const char *variable = getenv("MOONPOOL_ADMIN_TOKEN");
    if (variable != NULL && *variable != '\0')
        return mp_dup(mp_str_of(variable));
    for (int i = MP_ADMIN_TOKEN_ROLES - 1; config != NULL && i >= 0; i--)
        if (config->admin_tokens[i] != NULL && config->admin_tokens[i]->name != NULL)
            return mp_dup(mp_str_of(config->admin_tokens[i]->value));
    return mp_own_token_find(address);
}

/* -- configuration ------------------------------------------------------------------------------------------------- */

static void forget_tokens(mp_admin_access *access)
{
    for (size_t i = 0; i < access->count; i++)
        free(access->tokens[i].name);
    free(access->tokens);
    mp_pairs_free(access->certificates);
    access->tokens = MP_UNSET;
    access->certificates = NULL;
    access->count = 0;
}

static void add_token(mp_admin_access *access, const char *name, mp_admin_role role, mp_secret_hash hash)
{
    token *added = &access->tokens[access->count++];
    added->name = mp_dup(mp_str_of(name));
    added->role = role;
    added->hash = hash;
}

static mp_pair *MP_NULLABLE copy_pairs(const mp_pair *MP_NULLABLE pairs)
{
    size_t count = mp_pairs_count(pairs);
    if (pairs == NULL || count == 0)
        return NULL;
    mp_pair *copy = mp_new((count + 1) * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = (mp_pair){mp_dup(mp_str_of(pairs[i].name)), mp_dup(mp_str_of(pairs[i].value))};
    return copy;
}

/* Computes the hash that callers with a certificate have in place of a token's. It changes when the roles of
 * certificates change. No caller can present a token with this hash. */
static mp_secret_hash hash_of_roles(const mp_pair *MP_NULLABLE pairs)
{
    mp_scoped_buf text = {0};
    for (; pairs != NULL && pairs->name != NULL; pairs++)
        mp_buf_printf(&text, "%s%c%s%c", pairs->name, 0, pairs->value, 0);
    return mp_secret_hash_of(mp_buf_str(&text));
}

/* True if a token that has the role operate now has this hash, or it is of a certificate, whose roles are as they were;
 * `ctx` is the mp_admin_access. */
static bool is_operator(const void *ctx, const mp_secret_hash *hash)
{
    const mp_admin_access *access = ctx;
    bool is = mp_secret_hash_is(hash, &access->by_certificate);
    for (size_t i = 0; i < access->count; i++)
        is = is || (access->tokens[i].role >= MP_ROLE_OPERATE && mp_secret_hash_is(hash, &access->tokens[i].hash));
    return is;
}

void mp_admin_access_configure(mp_admin_access *access, const mp_config *config)
{
    forget_tokens(access);
    size_t total = 1;
    for (int i = 0; i < MP_ADMIN_TOKEN_ROLES; i++)
        total += mp_pairs_count(config->admin_tokens[i]);
    access->tokens = mp_new(total * sizeof *access->tokens);
    for (int i = 0; i < MP_ADMIN_TOKEN_ROLES; i++)
        for (const mp_pair *pair = config->admin_tokens[i]; pair != NULL && pair->name != NULL; pair++) {
            mp_secret_hash hash = mp_secret_hash_of(mp_str_of(pair->value));
            add_token(access, pair->name, (mp_admin_role)(MP_ROLE_METRICS + i), hash);
        }
    if (access->count == 0 && access->is_near && !access->is_unix && access->own == NULL)
        access->own = mp_own_token_new(access->port, access->handed_token, &access->own_hash);
    if (access->count == 0 && access->own != NULL)
        add_token(access, "of the gateway", MP_ROLE_OPERATE, access->own_hash);
    access->certificates = copy_pairs(config->admin_certificates);
    access->by_certificate = hash_of_roles(access->certificates);
    mp_admin_codes_review(access->codes, is_operator, access);
}

mp_admin_access *mp_admin_access_new(const mp_config *config, const mp_address *at, int handed_token)
{
    mp_admin_access *access = mp_new(sizeof *access);
    access->handed_token = handed_token;
    access->is_near = at->is_loopback;
    access->is_unix = at->is_unix;
    access->port = at->port;
    access->codes = mp_admin_codes_new();
    mp_admin_access_configure(access, config);
    return access;
}

void mp_admin_access_free(mp_admin_access *MP_NULLABLE access)
{
    if (access == NULL)
        return;
    mp_own_token_free(access->own);
    forget_tokens(access);
    mp_admin_codes_free(access->codes);
    free(access);
}

void mp_admin_access_leave(mp_admin_access *access)
{
    mp_own_token_leave(access->own);
}

int mp_admin_access_token_fd(mp_admin_access *access)
{
    return mp_own_token_fd(access->own);
}

bool mp_admin_is_near(const mp_admin_access *access)
{
    return access->is_near;
}

/* -- a request ----------------------------------------------------------------------------------------------------- */

/* The slot in which wrong tokens of this address are counted. */
static size_t slot_of(mp_str address)
{
    char room[MP_COUNTED_TEXT];
    mp_str peer = mp_address_counted(address, room);
    size_t sum = 5381;
    for (size_t i = 0; i < peer.len; i++)
        sum = sum * 33 + (unsigned char)peer.ptr[i];
    return sum % ADDRESSES;
}

/* Compares with every token, so that the time does not depend on which one it is. */
static const token *MP_NULLABLE find_token(const mp_admin_access *access, mp_str text)
{
    mp_secret_hash hash = mp_secret_hash_of(text);
    const token *found = NULL;
    for (size_t i = 0; i < access->count; i++)
        if (mp_secret_hash_is(&hash, &access->tokens[i].hash))
            found = &access->tokens[i];
    return found;
}

/* The slot in which wrong tokens of this address are counted; sets caller->wait_s if there were too many. */
static size_t count_in(mp_admin_access *access, const mp_stream *stream, mp_admin_caller *caller)
{
    uint64_t now = mp_monotonic_ms();
    size_t slot = slot_of(mp_stream_address(stream));
    if (now - access->wrong[slot].since_ms >= WRONG_WINDOW_MS) {
        access->wrong[slot].since_ms = now;
        access->wrong[slot].count = 0;
    }
    if (access->wrong[slot].count >= WRONG_MOST)
        caller->wait_s = (WRONG_WINDOW_MS - (now - access->wrong[slot].since_ms)) / 1000 + 1;
    return slot;
}

static void take_token(mp_admin_access *access, const mp_stream *stream, mp_str text, mp_admin_caller *caller)
{
    size_t slot = count_in(access, stream, caller);
    if (caller->wait_s > 0)
        return;
    const token *found = find_token(access, text);
    mp_secret_hash hash = mp_secret_hash_of(text);
    mp_admin_caller session = {.role = MP_ROLE_NONE};
    if (found == NULL && mp_admin_code_session(access->codes, &hash, &session)) {
        if (session.role > caller->role)
            *caller = session;
        caller->has_bearer = true;
        return;
    }
    if (found == NULL) {
        access->wrong[slot].count++;
        caller->has_wrong_token = true;
        return;
    }
    caller->has_bearer = true;
    if (found->role > caller->role) {
        caller->role = found->role;
        caller->token = found->hash;
        caller->has_token = true;
        snprintf(caller->name, sizeof caller->name, "token %s", found->name);
    }
}

bool mp_admin_take_code(mp_admin_access *access, const mp_stream *stream, mp_str code, char *text,
                        mp_admin_caller *caller)
{
    *caller = (mp_admin_caller){.role = MP_ROLE_NONE};
    size_t slot = count_in(access, stream, caller);
    if (caller->wait_s > 0)
        return false;
    bool is_good = mp_admin_code_change(access->codes, code, text, caller);
    if (!is_good)
        access->wrong[slot].count++;
    return is_good;
}

void mp_admin_own_code(mp_admin_access *access, char *text)
{
    mp_admin_caller maker = {.role = MP_ROLE_OPERATE, .name = "the terminal", .has_token = access->own != NULL};
    maker.token = access->own_hash;
    mp_admin_code_make(access->codes, &maker, text);
}

mp_admin_codes *mp_admin_codes_of(mp_admin_access *access)
{
    return access->codes;
}

void mp_admin_access_take_codes(mp_admin_access *access, mp_str text)
{
    mp_admin_codes_take(access->codes, text);
    mp_admin_codes_review(access->codes, is_operator, access);
}

bool mp_admin_access_has(const mp_admin_access *access, const mp_admin_caller *caller)
{
    mp_admin_caller session;
    return !caller->has_token || is_operator(access, &caller->token) ||
           (mp_admin_code_session(access->codes, &caller->token, &session) && session.role >= MP_ROLE_OPERATE);
}

/* The role of a certificate that the TLS settings have accepted. */
static void take_certificate(const mp_admin_access *access, const char *subject, mp_admin_caller *caller)
{
    mp_admin_role role = access->certificates == NULL ? MP_ROLE_OPERATE : MP_ROLE_NONE;
    for (const mp_pair *pair = access->certificates; pair != NULL && pair->name != NULL && role == MP_ROLE_NONE; pair++)
        if (fnmatch(pair->name, subject, 0) == 0)
            role = role_of(pair->value);
    caller->role = role;
    caller->token = access->by_certificate;
    caller->has_token = true;
    snprintf(caller->name, sizeof caller->name, "certificate %.80s", subject);
}

mp_admin_caller mp_admin_caller_of(mp_admin_access *access, const mp_stream *stream)
{
    mp_admin_caller caller = {.role = MP_ROLE_NONE};
    const mp_tls_peer *peer = mp_stream_tls(stream);
    uint32_t uid;
    if (access->is_unix) {
        caller.role = MP_ROLE_OPERATE;
        snprintf(caller.name, sizeof caller.name, "a Unix user");
        if (mp_stream_unix_user(stream, &uid))
            snprintf(caller.name, sizeof caller.name, "uid %u", uid);
    } else if (peer != NULL && peer->subject != NULL) {
        take_certificate(access, peer->subject, &caller);
    }
    int count;
    mp_str given = mp_stream_known_header(stream, MP_HEADER_AUTHORIZATION, &count);
    mp_str scheme = MP_STR("Bearer ");
    if (count == 1 && given.len > scheme.len && mp_str_is_nocase((mp_str){given.ptr, scheme.len}, "Bearer "))
        take_token(access, stream, mp_str_trim(mp_str_from(given, scheme.len)), &caller);
    else
        caller.has_wrong_token = count > 0 && !access->is_unix;
    return caller;
}
