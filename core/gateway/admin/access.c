/* access.c: tokens, certificates and Unix users of the admin listener. */
#define _GNU_SOURCE
#include "access.h"
#include "codes.h"
#include "gateway/gateway.h"
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

MP_COUNTER(refused_admin, "refused", "reason", "admin",
           "requests to the admin listener without the role that they need")

#define TOKEN_BYTES 32
#define WRONG_MOST 10 /* wrong tokens of one address in WRONG_WINDOW_MS; then its tokens are not looked at */
#define WRONG_WINDOW_MS 60000
#define ADDRESSES 512 /* addresses whose wrong tokens are counted; two with one slot are counted together */

typedef struct {
    char *name;
    mp_admin_role role;
    mp_secret_hash hash;
} token;

struct mp_admin_access {
    token *tokens;
    size_t count;
    mp_pair *MP_NULLABLE certificates; /* patterns and roles; NULL: each certificate has the role operate */
    mp_secret_hash
        by_certificate; /* stands for the token of callers with a certificate: of `certificates` as it is now */
    bool is_near, is_unix;
    bool has_own; /* the last of `tokens` is the one that was made at the start */
    mp_secret_hash own;
    char *MP_NULLABLE path; /* of the token file; NULL: there is none */
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

/* -- the token of the process -------------------------------------------------------------------------------------- */

/* The file of the token of a gateway whose admin listener has this port. NULL: there is no folder for it. */
static char *MP_NULLABLE path_of_token(unsigned port)
{
    const char *runtime = getenv("RUNTIME_DIRECTORY"), *user = getenv("XDG_RUNTIME_DIR");
    char *path = NULL;
    if (runtime != NULL && *runtime == '/')
        return asprintf(&path, "%.*s/admin.token", (int)strcspn(runtime, ":"), runtime) < 0 ? NULL : path;
    if (user != NULL && *user == '/')
        return asprintf(&path, "%s/moonpool/%u.token", user, port) < 0 ? NULL : path;
    return NULL;
}

/* Makes the folder of `path`, if it is not there, for this user alone. */
static void make_folder(const char *path)
{
    char *folder = mp_dup((mp_str){path, (size_t)(strrchr(path, '/') - path)});
    mkdir(folder, 0700);
    free(folder);
}

/* Replaces the file; false with errno. */
static bool write_token(const char *path, const char *text)
{
    size_t len = strlen(text);
    make_folder(path);
    unlink(path); /* of a process that was killed */
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0)
        return false;
    bool is_written = write(fd, text, len) == (ssize_t)len;
    int error = errno;
    close(fd);
    if (!is_written)
        unlink(path);
    errno = error;
    return is_written;
}

static void make_own(mp_admin_access *access, uint16_t port)
{
    unsigned char random[TOKEN_BYTES];
    char text[2 * TOKEN_BYTES + 2];
    access->path = path_of_token(port);
    if (access->path == NULL) {
        mp_log(MP_DEBUG, "no admin token",
               mp_log_str("why", MP_STR("neither RUNTIME_DIRECTORY nor XDG_RUNTIME_DIR is set")));
        return;
    }
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random)
        abort(); /* a token that can be guessed is worse than no service */
    mp_hex_put(text, random, sizeof random);
    access->own = mp_secret_hash_of((mp_str){text, 2 * TOKEN_BYTES});
    memcpy(text + 2 * TOKEN_BYTES, "\n", 2);
    access->has_own = write_token(access->path, text);
    if (!access->has_own) {
        mp_log(MP_WARN, "no admin token", mp_log_str("file", mp_str_of(access->path)),
               mp_log_str("why", mp_str_of(strerror(errno))));
        free(access->path);
        access->path = NULL;
    }
    explicit_bzero(text, sizeof text);
}

static char *MP_NULLABLE read_token(unsigned port)
{
    char *path = path_of_token(port), text[2 * TOKEN_BYTES + 2] = "";
    int fd = path == NULL ? -1 : open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    free(path);
    return len <= 0 ? NULL : mp_dup(mp_str_trim((mp_str){text, strcspn(text, "\n")}));
}

char *MP_NULLABLE mp_admin_find_token(const mp_config *config, const char *address)
{
    const char *variable = getenv("MOONPOOL_ADMIN_TOKEN"), *colon = strrchr(address, ':');
    if (variable != NULL && *variable != '\0')
        return mp_dup(mp_str_of(variable));
    for (int i = MP_ADMIN_TOKEN_ROLES - 1; config != NULL && i >= 0; i--)
        if (config->admin_tokens[i] != NULL && config->admin_tokens[i]->name != NULL)
            return mp_dup(mp_str_of(config->admin_tokens[i]->value));
    bool is_port = colon != NULL && strncmp(address, "unix:", 5) != 0;
    return is_port ? read_token((unsigned)strtoul(colon + 1, NULL, 10)) : NULL;
}

/* -- configuration ------------------------------------------------------------------------------------------------- */

static void forget(mp_admin_access *access)
{
    for (size_t i = 0; i < access->count; i++)
        free(access->tokens[i].name);
    free(access->tokens);
    mp_pairs_free(access->certificates);
    access->tokens = NULL;
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

/* What changes when the roles of certificates do: no caller can have a token with this hash, since certificates have no token. */
static mp_secret_hash hash_of_roles(const mp_pair *MP_NULLABLE pairs)
{
    mp_buf text = {0};
    for (; pairs != NULL && pairs->name != NULL; pairs++)
        mp_buf_printf(&text, "%s%c%s%c", pairs->name, 0, pairs->value, 0);
    mp_secret_hash hash = mp_secret_hash_of(mp_buf_str(&text));
    mp_buf_clear(&text);
    return hash;
}

/* True if a token that has the role operate now has this hash, or it is of a certificate, whose roles are as they were; `ctx` is the
 * mp_admin_access. */
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
    forget(access);
    size_t total = 1;
    for (int i = 0; i < MP_ADMIN_TOKEN_ROLES; i++)
        total += mp_pairs_count(config->admin_tokens[i]);
    access->tokens = mp_new(total * sizeof *access->tokens);
    for (int i = 0; i < MP_ADMIN_TOKEN_ROLES; i++)
        for (const mp_pair *pair = config->admin_tokens[i]; pair != NULL && pair->name != NULL; pair++) {
            mp_secret_hash hash = mp_secret_hash_of(mp_str_of(pair->value));
            add_token(access, pair->name, (mp_admin_role)(MP_ROLE_METRICS + i), hash);
        }
    if (access->count == 0 && access->has_own)
        add_token(access, "of the token file", MP_ROLE_OPERATE, access->own);
    access->certificates = copy_pairs(config->admin_certificates);
    access->by_certificate = hash_of_roles(access->certificates);
    mp_admin_codes_limit(access->codes, config->admin_codes, config->admin_sign_ins);
    mp_admin_codes_review(access->codes, is_operator, access);
}

mp_admin_access *mp_admin_access_new(const mp_config *config, const mp_address *at)
{
    mp_admin_access *access = mp_new(sizeof *access);
    access->is_near = at->is_loopback;
    access->is_unix = at->is_unix;
    access->codes = mp_admin_codes_new();
    mp_admin_access_configure(access, config);
    if (access->count == 0 && at->is_loopback && !at->is_unix) {
        make_own(access, at->port);
        mp_admin_access_configure(access, config);
    }
    return access;
}

void mp_admin_access_free(mp_admin_access *access)
{
    if (access == NULL)
        return;
    if (access->has_own)
        unlink(access->path);
    forget(access);
    mp_admin_codes_free(access->codes);
    free(access->path);
    free(access);
}

bool mp_admin_is_near(const mp_admin_access *access)
{
    return access->is_near;
}

/* -- a request ----------------------------------------------------------------------------------------------------- */

/* The slot in which wrong tokens of this address are counted. */
static size_t slot_of(mp_str peer)
{
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
    size_t slot = slot_of(mp_stream_peer(stream));
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

bool mp_admin_own_code(mp_admin_access *access, char *text)
{
    mp_admin_caller maker = {.role = MP_ROLE_OPERATE, .name = "the terminal", .has_token = access->has_own};
    maker.token = access->own;
    mp_admin_code_make(access->codes, &maker, text);
    return access->has_own;
}

mp_admin_codes *mp_admin_codes_of(mp_admin_access *access)
{
    return access->codes;
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
