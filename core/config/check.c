/* check.c: checks the syntax of addresses, endpoint paths, host names and other texts. */
#define _GNU_SOURCE 1
#include "read.h"
#include <arpa/inet.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/un.h>

static bool all_digits(mp_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < '0' || text.ptr[i] > '9')
            return false;
    return text.len > 0;
}

static int check_port(mp_str port, mp_err *err)
{
    int number = 0;
    for (size_t i = 0; i < port.len && port.len <= 5; i++)
        number = number * 10 + (port.ptr[i] - '0');
    if (all_digits(port) && port.len <= 5 && number <= 65535)
        return 0;
    return mp_err_set(err, "the port must be 0 to 65535");
}

static int check_ip(mp_str host, int family, mp_err *err)
{
    char text[64] = "", bytes[16];
    if (host.len < sizeof text)
        memcpy(text, host.ptr, host.len);
    if (inet_pton(family, text, bytes) == 1)
        return 0;
    return mp_err_set(err, "the host must be an %s address", family == AF_INET ? "IPv4" : "IPv6");
}

static bool is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' ||
           c == '_';
}

/* Accepts an IPv4 address or a name (any text with a letter). Whether the name exists is found out when it is bound. */
static int check_listen_host(mp_str host, mp_err *err)
{
    bool has_letter = false;
    if (host.len == 0 || mp_str_is(host, "*")) {
        mp_err_set(err, "the host is missing");
        return mp_err_hint(
            err, "0.0.0.0 listens on every IPv4 address of this machine, [::] on every IPv4 and IPv6 address");
    }
    for (size_t i = 0; i < host.len; i++) {
        if (!is_name_char(host.ptr[i]))
            return mp_err_set(err, "the host must be an address or a name of this machine");
        has_letter = has_letter || (host.ptr[i] | 0x20) >= 'a';
    }
    return has_letter ? 0 : check_ip(host, AF_INET, err);
}

/* FileDescriptorName= of a socket unit. */
static int check_socket_name(mp_str name, mp_err *err)
{
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] < ' ' || name.ptr[i] > '~' || name.ptr[i] == ':')
            return mp_err_set(err, "the name of a socket has printable ASCII characters, and no ':'");
    if (name.len > 0)
        return 0;
    mp_err_set(err, "the name of the socket is missing");
    return mp_err_hint(err, "write FileDescriptorName= of the socket unit, as in systemd:moonpool");
}

int mp_config_check_address(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    mp_str socket = mp_systemd_name(text);
    if (socket.ptr != NULL)
        return check_socket_name(socket, err);
    if (mp_str_starts(text, MP_STR("unix:"))) {
        mp_str path = mp_str_from(text, 5);
        if (path.len == 0 || path.ptr[0] != '/')
            return mp_err_set(err, "the path of a socket must begin with '/'");
        if (path.len >= sizeof((struct sockaddr_un *)NULL)->sun_path)
            return mp_err_set(err, "the path of a socket has at most 107 bytes");
        return 0;
    }
    if (mp_str_starts(text, MP_STR("["))) {
        const char *end = memmem(text.ptr, text.len, "]:", 2);
        if (end == NULL)
            return mp_err_set(err, "no port after ']'");
        size_t len = (size_t)(end - text.ptr);
        return check_ip((mp_str){text.ptr + 1, len - 1}, AF_INET6, err) != 0
                   ? -1
                   : check_port(mp_str_from(text, len + 2), err);
    }
    mp_str rest = text, host = mp_str_cut(&rest, ':');
    if (all_digits(text)) {
        mp_err_set(err, "the host is missing");
        return mp_err_hint(err, "write host and port, as in 127.0.0.1:7300");
    }
    if (rest.ptr == NULL) {
        mp_err_set(err, "the port is missing");
        return mp_err_hint(err, "write host:port, [IPv6]:port, unix:/path or systemd:NAME");
    }
    if (memchr(rest.ptr, ':', rest.len) != NULL) {
        mp_err_set(err, "more than one ':'");
        return mp_err_hint(err, "write an IPv6 address in brackets, as in [::1]:7300");
    }
    return check_listen_host(host, err) != 0 ? -1 : check_port(rest, err);
}

bool mp_config_is_any_port(mp_str address)
{
    return address.len > 2 && memcmp(address.ptr + address.len - 2, ":0", 2) == 0;
}

int mp_config_check_endpoint(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    if (text.len == 0 || text.ptr[0] != '/') {
        mp_err_set(err, "it must begin with '/'");
        return mp_err_hint(err, "write a path such as /mcp, or off");
    }
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~' || strchr("?#%\\\"<>^`{|}", text.ptr[i]) != NULL)
            return mp_err_set(err, "allowed are letters, digits and - . _ ~ ! $ & ' ( ) * + , ; = : @ /");
    mp_str rest = mp_str_from(text, 1);
    while (rest.ptr != NULL && text.len > 1) {
        mp_str segment = mp_str_cut(&rest, '/');
        if (segment.len == 0 || mp_str_is(segment, ".") || mp_str_is(segment, ".."))
            return mp_err_set(err, "it may not end in '/' or contain //, /./ or /../");
    }
    return 0;
}

/* The part of "*.example.com" behind "*.": a domain of two labels or more. "*.com" would allow every name that can be
 * registered. */
static int check_domain(mp_str domain, mp_err *err)
{
    mp_str rest = domain, label = MP_STR_NONE;
    int labels = 0;
    for (; (label = mp_str_cut(&rest, '.')).ptr != NULL; labels++)
        if (label.len == 0)
            return mp_err_set(err, "the domain has an empty part");
    if (labels >= 2 && (domain.ptr[domain.len - 1] | 0x20) >= 'a')
        return 0;
    mp_err_set(err, "*. stands before a domain of your own, of two parts or more");
    return mp_err_hint(err, "as in *.example.com");
}

int mp_config_check_host(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    if (mp_str_is(text, "*"))
        return 0;
    bool has_star = mp_str_starts(text, MP_STR("*."));
    if (has_star)
        text = mp_str_from(text, 2);
    if (!has_star && text.len > 2 && text.ptr[0] == '[' && text.ptr[text.len - 1] == ']')
        return check_ip((mp_str){text.ptr + 1, text.len - 2}, AF_INET6, err);
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        if (is_name_char(c))
            continue;
        if (c == '*')
            return mp_err_set(err, "'*' must stand alone, or before a domain as in *.example.com");
        if (memmem(text.ptr, text.len, "://", 3) != NULL)
            return mp_err_set(err, "write only the name, without 'https://' and without a path");
        mp_err_set(err, c == ':' ? "write only the name, without a port" : "a name has letters, digits, '-' and '.'");
        return c == ':' ? mp_err_hint(err, "write an IPv6 address in brackets, as in [::1]") : -1;
    }
    return has_star ? check_domain(text, err) : 0;
}

int mp_config_check_variable(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    for (size_t i = 0; i < text.len; i++) {
        char c = text.ptr[i];
        bool is_star = c == '*' && i > 0 && i == text.len - 1;
        if (!is_star && (!is_name_char(c) || c == '-' || c == '.' || (i == 0 && c >= '0' && c <= '9')))
            return mp_err_set(err, "a name consists of letters, digits and '_'; it may end in '*'");
    }
    return 0;
}

/* A key of the store; a '*' at its end makes it a prefix. */
int mp_config_check_store_keys(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    for (size_t i = 0; i < text.len; i++) {
        bool is_last = i > 0 && i == text.len - 1;
        if ((unsigned char)text.ptr[i] < ' ' || (text.ptr[i] == '*' && !is_last)) {
            mp_err_set(err, "a key may not contain control characters; '*' is allowed only at its end");
            return mp_err_hint(err, "as in keys:*");
        }
    }
    return 0;
}

/* A scheme, a host and an optional port; nothing after them. */
int mp_config_check_origin(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    mp_str rest = text;
    mp_str scheme = mp_str_cut(&rest, ':');
    if (!mp_str_starts(rest, MP_STR("//")) || scheme.len == 0) {
        mp_err_set(err, "the scheme is missing");
        return mp_err_hint(err, "as in https://mcp.example.com");
    }
    for (size_t i = 0; i < scheme.len; i++)
        if (!((scheme.ptr[i] >= 'a' && scheme.ptr[i] <= 'z') || (i > 0 && is_name_char(scheme.ptr[i]))))
            return mp_err_set(err, "write the scheme in lower case, as in https");
    rest = mp_str_from(rest, 2);
    for (size_t i = 0; i < rest.len; i++) {
        char c = rest.ptr[i];
        if (c == '/')
            return mp_err_set(err, i == rest.len - 1 ? "remove the '/' at its end"
                                                     : "write only scheme and host, without a path");
        if (!is_name_char(c) && strchr(":[]", c) == NULL)
            return mp_err_set(err, "a host consists of letters, digits, '-' and '.'");
        if (c >= 'A' && c <= 'Z')
            return mp_err_set(err, "write the host in lower case, as browsers send it");
    }
    return rest.len > 0 ? 0 : mp_err_set(err, "the host is missing");
}

int mp_config_check_origin_or_all(mp_str text, mp_err *err)
{
    return mp_str_is(text, "*") ? 0 : mp_config_check_origin(text, err);
}

/* -- the cluster --------------------------------------------------------------------------------------------------- */

int mp_config_check_cluster(mp_str text, mp_err *err)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_name_char(text.ptr[i]) || text.ptr[i] == '.' || (text.ptr[i] >= 'A' && text.ptr[i] <= 'Z'))
            return mp_err_set(err, "a name consists of lower-case letters, digits, '-' and '_'");
    return 0;
}

int mp_config_check_node(mp_str text, mp_err *err)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_name_char(text.ptr[i]))
            return mp_err_set(err, "a name consists of letters, digits, '-', '_' and '.'");
    return 0;
}

/* Checks the host of a server, and its port, which may be missing unless `needs_port`. */
static int check_server(mp_str text, bool needs_port, mp_err *err)
{
    bool is_bracketed = mp_str_starts(text, MP_STR("["));
    mp_str port = mp_str_from(text, is_bracketed), host = mp_str_cut(&port, is_bracketed ? ']' : ':');
    if (is_bracketed && (port.ptr == NULL || (port.len > 0 && port.ptr[0] != ':')))
        return mp_err_set(err, "an IPv6 address ends with ']'");
    if (is_bracketed)
        port = port.len == 0 ? MP_STR_NONE : mp_str_from(port, 1);
    for (size_t i = 0; i < host.len && !is_bracketed; i++)
        if (!is_name_char(host.ptr[i]))
            return mp_err_set(err, "a host consists of letters, digits, '-' and '.'");
    if (host.len == 0)
        return mp_err_set(err, "the host is missing");
    if (port.ptr == NULL && needs_port)
        return mp_err_set(err, "the port is missing");
    if (is_bracketed && check_ip(host, AF_INET6, err) != 0)
        return -1;
    return port.ptr == NULL ? 0 : check_port(port, err);
}

int mp_config_check_redis(mp_str text, mp_err *err)
{
    mp_str rest = text, scheme = mp_str_cut(&rest, ':');
    mp_err_set(err, "%s", "");
    if ((!mp_str_is(scheme, "redis") && !mp_str_is(scheme, "rediss")) || !mp_str_starts(rest, MP_STR("//"))) {
        mp_err_set(err, "it must begin with redis:// or rediss://");
        return mp_err_hint(err, "as in redis://moonpool@redis.internal:6379/0; rediss:// is TLS");
    }
    mp_str database = mp_str_from(rest, 2), host = mp_str_cut(&database, '/'), server = host;
    mp_str user = mp_str_cut(&server, '@');
    if (server.ptr != NULL && memchr(user.ptr, ':', user.len) != NULL) {
        mp_err_set(err, "a password does not belong in a URL");
        return mp_err_hint(err, "write it beside the url: password: \"${file:/run/secrets/redis}\"");
    }
    if (database.len > 5 || (database.len > 0 && !all_digits(database)))
        return mp_err_set(err, "behind the host is only the number of a database");
    return check_server(server.ptr != NULL ? server : host, false, err);
}

int mp_config_check_sentinel(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    return check_server(text, true, err);
}

int mp_config_check_node_listen(mp_str text, mp_err *err)
{
    if (!mp_str_starts(text, MP_STR("unix:")) && mp_systemd_name(text).ptr == NULL)
        return mp_config_check_address(text, err);
    mp_err_set(err, "other machines cannot connect to it");
    return mp_err_hint(err, "write an address and a port, as in 10.0.0.5:7310");
}

int mp_config_check_node_name(mp_str text, mp_err *err)
{
    for (size_t i = 0; i < text.len; i++)
        if (!is_name_char(text.ptr[i]))
            return mp_err_set(err, "a DNS name consists of letters, digits, '-' and '.'");
    return 0;
}

/* Checks the address for other nodes, and by what they are recognized. */
static int check_nodes(const mp_config *config, const char **path, mp_err *err)
{
    const char *listen = config->cluster_listen;
    mp_address at;
    *path = config->cluster_advertise != NULL ? "cluster.advertise" : "cluster.tls";
    if (listen == NULL && (config->cluster_advertise != NULL || config->cluster_tls.certificate != NULL)) {
        mp_err_set(err, "'%s' needs 'cluster.listen', the address for the other gateways", *path);
        return mp_err_hint(err, "as in listen: 10.0.0.5:7310");
    }
    *path = "cluster.listen";
    if (listen == NULL)
        return 0;
    if (config->cluster_tls.certificate == NULL && !mp_is_near(listen)) {
        mp_err_set(err, "other machines can reach '%s', and it has no 'tls'", listen);
        return mp_err_hint(err, "as in tls: {certificate: node.pem, key: node.key, ca: cluster-ca.pem}, where the "
                                "certificate has the DNS name moonpool-NAME, or that of cluster.tls.name");
    }
    if (config->cluster_advertise != NULL || mp_address_of(listen, &at) != 0 ||
        (!mp_str_starts(mp_str_of(at.text), MP_STR("0.0.0.0:")) && !mp_str_starts(mp_str_of(at.text), MP_STR("[::]:"))))
        return 0;
    mp_err_set(err, "'%s' stands for every address of this machine: the others cannot connect to it", listen);
    return mp_err_hint(err, "name the address that they use, as in advertise: 10.0.0.5:7310");
}

static int check_whole_cluster(const mp_config *config, const char **path, mp_err *err)
{
    const mp_cluster_config *cluster = &config->lib.cluster;
    *path = "cluster.name";
    bool has_sentinels = cluster->sentinels != NULL && *cluster->sentinels != NULL;
    bool has_address =
        config->cluster_listen != NULL || config->cluster_advertise != NULL || config->cluster_tls.certificate != NULL;
    if (!has_address && cluster->name == NULL && cluster->node_name == NULL && cluster->url == NULL &&
        cluster->password == NULL && !has_sentinels && cluster->timeout_ms == 250 && cluster->limits == MP_AWAY_LOCAL &&
        cluster->quotas == MP_AWAY_REFUSE) /* the presets */
        return 0;
    if (cluster->name == NULL) {
        mp_err_set(err, "'cluster' needs 'name'");
        return mp_err_hint(err, "as in name: prod; the gateways of this name share what is in the server");
    }
    if (cluster->url == NULL) {
        mp_err_set(err, "'cluster' needs 'redis'");
        return mp_err_hint(err, "as in redis: {url: \"rediss://redis.internal:6379/0\"}");
    }
    *path = "cluster.redis.url";
    if (cluster->password == NULL && strchr(cluster->url, '@') != NULL) {
        mp_err_set(err, "a user without 'password'");
        return mp_err_hint(err,
                           "write it beside the url: password: \"${file:/run/secrets/redis}\"; or remove the user");
    }
    *path = "cluster.name";
    char **secrets = config->seal_keys;
    if (secrets == NULL || *secrets == NULL) {
        mp_err_set(err, "'cluster' needs 'seal_keys', the same on all its gateways");
        return mp_err_hint(err,
                           "as in seal_keys: [\"${file:/run/secrets/seal}\"]: what one of them has sealed, such as "
                           "a cursor, comes back to any of them");
    }
    return check_nodes(config, path, err);
}

/* -- sign-in ------------------------------------------------------------------------------------------------------- */

/* True if the host of the URL is this machine: localhost, or an address of the loopback interface. */
static bool is_near_url(const char *url)
{
    mp_scoped_buf where = {0};
    mp_str rest = mp_origin_host(mp_str_of(url)), host = mp_host_name(mp_str_cut(&rest, '/'));
    for (size_t i = 0; i < host.len; i++)
        if (!mp_str_is(host, "localhost") && strchr("0123456789abcdefABCDEF.:[]", host.ptr[i]) == NULL)
            return false;
    mp_buf_printf(&where, "%.*s:1", MP_STR_ARG(host));
    mp_buf_putc(&where, '\0');
    return mp_is_near(where.ptr);
}

static bool has_any(char *const *MP_NULLABLE list)
{
    return list != NULL && *list != NULL;
}

static bool is_any_of(const char *name, const char *const *names)
{
    while (*names != NULL && strcmp(name, *names) != 0)
        names++;
    return *names != NULL;
}

/* A provider where anybody can have an account, or several organizations have their people. */
static bool is_public_provider(const mp_sign_in_config *it, const char *name)
{
    static const char *const all[] = {"google", "github", NULL};
    static const char *const tenants[] = {"https://login.microsoftonline.com/common/v2.0",
                                          "https://login.microsoftonline.com/organizations/v2.0",
                                          "https://login.microsoftonline.com/consumers/v2.0", NULL};
    const char *MP_NULLABLE issuer = it->issuer;
    if (issuer != NULL && strcmp(name, "gitlab") == 0)
        return strcmp(issuer, "https://gitlab.com") == 0;
    return is_any_of(name, all) || (issuer != NULL && strcmp(name, "entra") == 0 && is_any_of(issuer, tenants));
}

/* What the provider needs, but for the file of passwords. */
static int check_provider(const mp_sign_in_config *it, const char **path, mp_err *err)
{
    static const char *const known[] = {"google", "github", "oauth2", NULL};
    const char *name = mp_sign_in_providers[it->provider];
    if (it->client == NULL) {
        mp_err_set(err, "'provider: %s' needs 'client', the id of this gateway at the provider", name);
        return mp_err_hint(err, "the provider gives it when the gateway is registered there");
    }
    if (it->issuer == NULL && !is_any_of(name, known)) {
        mp_err_set(err, "'provider: %s' needs 'issuer'", name);
        return mp_err_hint(err, "as in issuer: https://id.example.com, exactly as the provider's metadata name it");
    }
    if (it->issuer != NULL && strncmp(it->issuer, "https://", 8) != 0 && !is_near_url(it->issuer))
        return mp_err_set(err, "the provider's 'issuer' must begin with https://");
    bool is_plain = strcmp(name, "oauth2") == 0;
    if (is_plain && (it->authorize_url == NULL || it->token_url == NULL || it->user_url == NULL))
        return mp_err_set(err, "'provider: oauth2' needs 'urls' with authorize, token and user");
    if (!is_plain && is_any_of(name, known) && it->secret == NULL)
        return mp_err_set(err, "'provider: %s' needs 'secret'", name);
    if (!is_public_provider(it, name))
        return 0;
    *path = "sign_in.allow";
    if (strcmp(name, "entra") == 0 && !has_any(it->tenants)) {
        mp_err_set(err, "an issuer for the people of all tenants needs 'allow: {tenants: [...]}'");
        return mp_err_hint(err, "or write the tenant into the issuer: https://login.microsoftonline.com/TENANT/v2.0");
    }
    if (has_any(it->users) || has_any(it->emails) || has_any(it->groups) || has_any(it->roles) || has_any(it->tenants))
        return 0;
    mp_err_set(err, "'provider: %s' needs 'allow': anybody can have an account there", name);
    return mp_err_hint(err, "as in allow: {emails: [\"*@example.com\"]}");
}

static int check_passwords(const char *file, mp_err *err)
{
    struct stat found;
    if (stat(file, &found) != 0 || (found.st_mode & 077) == 0)
        return 0;
    mp_err_set(err, "others can read the passwords: %s has mode %04o", file, (unsigned)found.st_mode & 07777);
    return mp_err_hint(err, "chmod 600 %s", file);
}

static int check_sign_in(const mp_config *config, const char **path, mp_err *err)
{
    const mp_sign_in_config *sign_in = &config->lib.sign_in;
    const char *url = config->public_url;
    *path = "sign_in.provider";
    if (sign_in->provider == MP_SIGN_IN_OFF)
        return 0;
    if (sign_in->provider != MP_SIGN_IN_PASSWORD) {
        if (check_provider(sign_in, path, err) != 0)
            return -1;
        *path = "sign_in.provider";
    } else if (sign_in->passwords == NULL) {
        mp_err_set(err, "'provider: password' needs 'passwords', a file of users");
        return mp_err_hint(err,
                           "as in passwords: users.txt; `moonpool key password ann --file users.txt` writes a line");
    }
    if (config->auth_mode == MP_AUTH_NONE)
        return mp_err_set(err, "'sign_in' and 'auth: none' exclude each other");
    if (config->lib.cluster.name != NULL)
        return mp_err_set(err, "'sign_in' does not work with 'cluster' yet");
    if (url == NULL) {
        mp_err_set(err, "'sign_in' needs 'public_url': all its addresses begin with it");
        return mp_err_hint(err, "as in public_url: https://mcp.example.com, or http://127.0.0.1:7300 on one machine");
    }
    bool is_near = is_near_url(url);
    if (strncmp(url, "https://", 8) != 0 && !is_near) {
        mp_err_set(err, "'sign_in' needs a 'public_url' that begins with https://");
        return mp_err_hint(err, "without TLS everybody on the way can read passwords and tokens");
    }
    size_t len = strlen(url);
    const char *port = strncmp(url, "https://", 8) == 0 ? ":443" : ":80";
    if (len > strlen(port) && strcmp(url + len - strlen(port), port) == 0) {
        mp_err_set(err, "'sign_in' needs a 'public_url' without the default port %s", port);
        return mp_err_hint(err, "as in public_url: %.*s", (int)(len - strlen(port)), url);
    }
    char **secrets = config->seal_keys;
    if (!is_near && (secrets == NULL || *secrets == NULL || config->store_file == NULL)) {
        mp_err_set(err, "'sign_in' needs 'seal_keys' and 'store.file': without them a restart ends every sign-in");
        return mp_err_hint(err, "as in seal_keys: [\"${file:/run/secrets/seal}\"] and store: {file: moonpool.db}");
    }
    if (secrets != NULL && *secrets != NULL && config->store_file == NULL) {
        mp_err_set(err, "'sign_in' with 'seal_keys' needs 'store.file': after a restart its tokens are valid, and the "
                        "endings of those that were revoked have to be");
        return mp_err_hint(err, "as in store: {file: moonpool.db}; without seal_keys a restart ends every sign-in");
    }
    for (; secrets != NULL && *secrets != NULL; secrets++)
        if (strlen(*secrets) < 32) {
            mp_err_set(err, "'sign_in' needs 'seal_keys' of at least 32 characters");
            return mp_err_hint(err, "`openssl rand -hex 32` makes one");
        }
    *path = "sign_in.passwords";
    return sign_in->provider == MP_SIGN_IN_PASSWORD ? check_passwords(sign_in->passwords, err) : 0;
}

/* -- the admin listener -------------------------------------------------------------------------------------------- */

int mp_config_check_admin_token(mp_str text, mp_err *err)
{
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~') {
            mp_err_set(err, "a token has visible ASCII characters only");
            return mp_err_hint(err, "`openssl rand -hex 32` makes one");
        }
    return 0;
}

int mp_config_check_admin_role(mp_str text, mp_err *err)
{
    if (mp_str_is(text, "metrics") || mp_str_is(text, "view") || mp_str_is(text, "operate"))
        return 0;
    mp_err_set(err, "'%.*s' is no role", (int)(text.len < 32 ? text.len : 32), text.ptr);
    return mp_err_hint(err, "the roles are metrics, view and operate");
}

int mp_config_check_mode(mp_str text, mp_err *err)
{
    bool is_good = text.len == 3 || (text.len == 4 && text.ptr[0] == '0');
    for (size_t i = 0; i < text.len; i++)
        is_good = is_good && text.ptr[i] >= '0' && text.ptr[i] <= '7';
    if (is_good)
        return 0;
    mp_err_set(err, "permissions are three octal digits");
    return mp_err_hint(err, "as in 0660: the user and the group");
}

/* -- combinations of keys ------------------------------------------------------------------------------------------ */

static bool is_same(const char *MP_NULLABLE a, const char *MP_NULLABLE b)
{
    return a != NULL && b != NULL && strcmp(a, b) == 0;
}

static bool has_pairs(const mp_pair *MP_NULLABLE pairs)
{
    return pairs != NULL && pairs->name != NULL;
}

int mp_config_check_admin_at(const mp_config *config, const char *far, mp_err *err)
{
    bool has_tokens = false;
    for (int i = 0; i < MP_ADMIN_TOKEN_ROLES; i++)
        has_tokens = has_tokens || has_pairs(config->admin_tokens[i]);
    if (has_tokens || config->admin_tls.client_ca != NULL)
        return 0;
    mp_err_set(err, "other machines can reach '%s', and there are no credentials for it", far);
    return mp_err_hint(err,
                       "as in 'admin: {listen: \"%s\", tokens: {operate: {me: \"${file:/run/secrets/admin}\"}}}', "
                       "or listen on 127.0.0.1 or unix:/path",
                       config->admin_listen);
}

static int check_admin(const mp_config *config, const char **path, mp_err *err)
{
    *path = "admin.certificates";
    if (has_pairs(config->admin_certificates) && config->admin_tls.client_ca == NULL) {
        mp_err_set(err, "'certificates' needs 'tls.client_ca'");
        return mp_err_hint(err, "without it clients are not asked for certificates");
    }
    *path = "admin.listen";
    if (config->admin_listen == NULL || mp_is_near(config->admin_listen))
        return 0;
    return mp_config_check_admin_at(config, config->admin_listen, err);
}

int mp_config_check_whole(const mp_config *config, const char **path, mp_err *err)
{
    const char *mcp = config->endpoint_mcp, *sse = config->endpoint_sse, *messages = config->endpoint_messages;
    *path = "endpoints.messages";
    if (sse != NULL && (is_same(messages, mcp) || is_same(messages, sse)))
        return mp_err_set(err, "'messages' and '%s' have the same path", is_same(messages, mcp) ? "mcp" : "sse");
    if (sse != NULL && messages == NULL) {
        mp_err_set(err, "'sse' needs 'messages', the path for clients' POST requests");
        return mp_err_hint(err, "set both to off, or neither");
    }
    *path = "endpoints.prefix";
    if (is_same(config->endpoint_prefix, "/"))
        return mp_err_set(err, "'prefix' cannot be '/': name a path, or remove the key");
    *path = "endpoints.sse";
    if (is_same(sse, mcp))
        return mp_err_set(err, "'mcp' and 'sse' have the same path");
    if (sse == NULL && mcp == NULL)
        return mp_err_set(err, "no endpoint is enabled: 'mcp' and 'sse' are both off");
    *path = "admin.listen";
    for (size_t i = 0; config->listen[i] != NULL; i++)
        if (is_same(config->listen[i], config->admin_listen) &&
            !mp_config_is_any_port(mp_str_of(config->admin_listen))) {
            mp_err_set(err, "'admin.listen' and 'listen' are the same address");
            return mp_err_hint(err, "the admin listener needs its own address");
        }
    if (mp_config_check_proxies(config, path, err) != 0 || check_whole_cluster(config, path, err) != 0 ||
        check_sign_in(config, path, err) != 0)
        return -1;
    return check_admin(config, path, err);
}

/* -- folders ------------------------------------------------------------------------------------------------------- */

static void put_missing_folder(mp_buf *report, const char *key, const char *MP_NULLABLE path)
{
    struct stat is;
    const char *slash = path == NULL ? NULL : strrchr(path, '/');
    if (slash == NULL || slash == path)
        return;
    char *folder = strndup(path, (size_t)(slash - path));
    if (stat(folder, &is) != 0 && (errno == ENOENT || errno == ENOTDIR))
        mp_buf_printf(
            report,
            "%s: the folder %s does not exist\n  hint: make it, writable for the user of the gateway: without "
            "it the gateway does not start\n",
            key, folder);
    free(folder);
}

void mp_config_put_missing_folders(const mp_config *config, mp_buf *report)
{
    put_missing_folder(report, "log.file", config->log_file);
    put_missing_folder(report, "log.audit", config->audit);
    put_missing_folder(report, "record.file", config->record_file);
    put_missing_folder(report, "store.file", config->store_file);
}
