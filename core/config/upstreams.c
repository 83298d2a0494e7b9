/* upstreams.c: reads the map `upstreams`, whose names the operator chooses, and maps of names to texts. */
#define _GNU_SOURCE 1
#include "read.h"

#define UPSTREAMS_CAP 256 /* maximum entries of `upstreams` */
#define PAIRS_CAP 256     /* maximum entries of a map of names to texts */
#define MAX_NAME_BYTES 256
/* defaults of `calls` and `waiting` of a program, most of which serve one request after the other */
#define PROGRAM_CALLS 64

typedef mp_config_reader reader;

static int shown_len(mp_str text)
{
    return (int)(text.len > MP_CONFIG_SHOWN ? MP_CONFIG_SHOWN : text.len);
}

static void report_duplicate(reader *r, const mp_yaml_node *node)
{
    mp_err err;
    mp_err_set(&err, "duplicate key '%.*s'", shown_len(node->key), node->key.ptr);
    mp_yaml_error(&r->yaml, node->key_at, &err);
}

/* -- names and texts ----------------------------------------------------------------------------------------------- */

/* Checks a name of the map. Reports the error. */
static bool check_name(reader *r, const mp_config_key *key, const mp_yaml_node *node)
{
    mp_err err, why = {"", ""};
    if (node->key.len == 0 || node->key.len > MAX_NAME_BYTES) {
        mp_err_set(&err, "a name in '%s' has 1 to %d bytes", mp_config_key_name(key), MAX_NAME_BYTES);
    } else if (key->check_name != NULL && key->check_name(node->key, &why) != 0) {
        mp_err_set(&err, "'%.*s' is not allowed in '%s': %s", shown_len(node->key), node->key.ptr,
                   mp_config_key_name(key), why.text);
        mp_err_hint(&err, "%s", why.hint);
    } else {
        return true;
    }
    mp_yaml_error(&r->yaml, node->key_at, &err);
    return false;
}

/* Reads the value of one pair. NULL: an error was reported. */
static char *MP_NULLABLE read_text(reader *r, const mp_config_key *key, const mp_yaml_node *node)
{
    mp_config_value value;
    mp_scoped_buf room = {0};
    mp_err err;
    char *text = NULL;
    if (node->kind != MP_YAML_SCALAR) {
        mp_err_set(&err, "'%.*s' in '%s' must be a single value", shown_len(node->key), node->key.ptr,
                   mp_config_key_name(key));
        mp_yaml_error(&r->yaml, node->at, &err);
    } else if (mp_config_read_value(r, node, &room, &value)) {
        mp_config_key named = *key; /* errors name the pair, not the map */
        named.path = node->key.ptr;
        if (mp_config_check_text(&named, &value, &err) == 0)
            text = mp_dup(value.text);
        else
            mp_yaml_error(&r->yaml, node->at, &err);
    }
    return text;
}

void mp_config_read_pairs(reader *r, const mp_config_key *key, const mp_yaml_node *map, mp_pair **pairs)
{
    size_t count = 0;
    mp_err err;
    mp_pairs_free(*pairs);
    *pairs = mp_new((PAIRS_CAP + 1) * sizeof **pairs);
    for (const mp_yaml_node *node = map->first; node != NULL; node = node->next) {
        bool is_twice = false;
        if (count == PAIRS_CAP) {
            mp_err_set(&err, "'%s' has more than %d entries", mp_config_key_name(key), PAIRS_CAP);
            mp_yaml_error(&r->yaml, node->key_at, &err);
            break;
        }
        for (size_t i = 0; i < count; i++)
            is_twice = is_twice || mp_str_is(node->key, (*pairs)[i].name);
        if (is_twice)
            report_duplicate(r, node);
        char *text = check_name(r, key, node) && !is_twice ? read_text(r, key, node) : NULL;
        if (text != NULL)
            (*pairs)[count++] = (mp_pair){mp_dup(node->key), text};
    }
}

/* -- one upstream -------------------------------------------------------------------------------------------------- */

static const mp_yaml_node *seen(const reader *r, const char *name)
{
    char path[64];
    snprintf(path, sizeof path, "upstreams.NAME.%s", name);
    return r->seen[mp_config_key_at(path) - mp_config_keys];
}

static void report_at(reader *r, const mp_yaml_node *node, const char *hint, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

static void report_at(reader *r, const mp_yaml_node *node, const char *hint, const char *format, ...)
{
    mp_err err;
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    mp_err_set(&err, "%s", text);
    mp_err_hint(&err, "%s", hint);
    mp_yaml_error(&r->yaml, node->key_at, &err);
}

typedef struct {
    const char *key, *hint;
} misplaced;

/* Reports the keys of the entry that need the other kind of upstream. */
static void check_kind(reader *r, const mp_upstream_entry *upstream)
{
    static const misplaced of_url[] = {
        {"auth", "credentials of a program belong in process.env"},
        {"headers", "a program has no headers; its credentials belong in process.env"},
        {"pass", "a program has no headers, so nothing of the caller's is sent on"},
        {"private", "it is about addresses, and a program has none"},
        {"tls", "nothing between the gateway and its program is encrypted"},
    };
    bool is_url = upstream->core.kind == MP_UPSTREAM_URL;
    for (size_t i = 0; i < sizeof of_url / sizeof *of_url && !is_url; i++)
        if (seen(r, of_url[i].key) != NULL)
            report_at(r, seen(r, of_url[i].key), of_url[i].hint, "'%s' needs 'url': '%s' is a program", of_url[i].key,
                      upstream->core.name);
    static const misplaced of_command[] = {
        {"process.env", "headers and auth are for servers with a url"},
        {"process.cwd", "the gateway starts no program for a server with a url"},
        {"process.most", "limits.upstreams.channels bounds sessions, and `calls` the requests at once"},
        {"process.memory", "the gateway starts no program for a server with a url"},
    };
    for (size_t i = 0; i < sizeof of_command / sizeof *of_command && is_url; i++)
        if (seen(r, of_command[i].key) != NULL)
            report_at(r, seen(r, of_command[i].key), of_command[i].hint, "'%s' needs 'command': '%s' is no program",
                      strchr(of_command[i].key, '.') + 1, upstream->core.name);
    if (!is_url && upstream->core.revision == MP_REVISION_SSE && seen(r, "revision") != NULL)
        report_at(r, seen(r, "revision"), "write auto, or remove the key",
                  "'sse' is a transport over HTTP: '%s' is a program", upstream->core.name);
}

static void check_tls(reader *r, const mp_upstream_entry *upstream)
{
    const mp_yaml_node *tls = seen(r, "tls");
    if (tls == NULL)
        return;
    if ((upstream->core.tls_certificate == NULL) != (upstream->core.tls_key == NULL))
        report_at(r, tls, "one file may contain both", "'%s' needs '%s'",
                  upstream->core.tls_key == NULL ? "certificate" : "key",
                  upstream->core.tls_key == NULL ? "key" : "certificate");
    if (upstream->core.url != NULL && !mp_str_starts(mp_str_of(upstream->core.url), MP_STR("https:")))
        report_at(r, tls, "write https://, or remove 'tls'", "'tls' needs a url that begins with https://");
}

/* True if an argument contains a secret: by its form, by its variable, or by the option before it. */
static bool shows_secret(const mp_yaml_node *MP_NULLABLE before, const mp_yaml_node *item, const char *value)
{
    bool is_of_option = before != NULL && mp_str_starts(before->text, MP_STR("-")) && value[0] != '-' &&
                        memchr(before->text.ptr, '=', before->text.len) == NULL && mp_config_names_secret(before->text);
    return is_of_option || memmem(item->text.ptr, item->text.len, "${file:", 7) != NULL ||
           mp_config_is_secret(item->text) || mp_config_is_secret(mp_str_of(value));
}

/* Warns of secrets among the arguments of the program. The warning does not quote them. */
static void warn_of_secrets(reader *r, const mp_upstream_entry *upstream, const mp_yaml_node *command)
{
    const mp_yaml_node *item = command->kind == MP_YAML_LIST ? command->first : NULL, *before = NULL;
    for (char **value = upstream->core.argv; item != NULL && *value != NULL;
         before = item, item = item->next, value++) {
        if (!shows_secret(before, item, *value))
            continue;
        mp_put_visible(&r->config->warnings, mp_str_of(r->yaml.name));
        mp_buf_printf(&r->config->warnings,
                      ":%zu:%zu: 'command' of '%s' seems to contain a secret\n  hint: every user of this machine can "
                      "read the arguments of a program; pass the secret in process.env\n",
                      item->at.line, item->at.column, upstream->core.name);
    }
}

static void check_command(reader *r, const mp_upstream_entry *upstream)
{
    const mp_yaml_node *command = seen(r, "command");
    if (command == NULL || upstream->core.argv == NULL)
        return;
    const char *program = upstream->core.argv[0];
    if (*program == '\0')
        report_at(r, command, "as in [npx, -y, some-server]", "'command' begins with an empty text");
    else if (command->kind == MP_YAML_SCALAR && strchr(program, ' ') != NULL)
        report_at(r, command, "no shell reads it: write each argument by itself, as in [npx, -y, some-server]",
                  "'command' must be a list");
    else
        warn_of_secrets(r, upstream, command);
}

/* Two names of the upstream must not get one name. */
static void check_rename(reader *r, const mp_upstream_entry *upstream)
{
    for (const mp_pair *one = upstream->rename; one != NULL && one->name != NULL; one++)
        for (const mp_pair *other = upstream->rename; other < one; other++)
            if (strcmp(one->value, other->value) == 0)
                report_at(r, seen(r, "rename"), "give each of them a different new name",
                          "'%s' and '%s' are renamed to '%s'", other->name, one->name, one->value);
}

/* A wrapped URI begins with the name, which is a part of its scheme then (RFC 3986, 3.1). */
static void check_uris(reader *r, const mp_upstream_entry *upstream)
{
    const char *name = upstream->core.name;
    if (upstream->uris == MP_UPSTREAM_URIS_WRAP && (*name < 'a' || *name > 'z' || strchr(name, '_') != NULL))
        report_at(r, seen(r, "uris"),
                  "a scheme begins with a letter and has no '_': call the upstream my-files, for one",
                  "URIs cannot be wrapped with the name '%s'", name);
}

/* Headers are compared without case, and their names are sent in lower case. */
static void lower(char *name)
{
    for (; *name != '\0'; name++)
        if (*name >= 'A' && *name <= 'Z')
            *name = (char)(*name - 'A' + 'a');
}

static void lower_headers(reader *r, mp_upstream_entry *upstream)
{
    for (mp_pair *one = upstream->headers; one != NULL && one->name != NULL; one++) {
        lower(one->name);
        for (const mp_pair *other = upstream->headers; other < one; other++)
            if (strcmp(one->name, other->name) == 0)
                report_at(r, seen(r, "headers"), "names of headers have no case", "the header '%s' is set twice",
                          one->name);
    }
    for (char **name = upstream->pass; name != NULL && *name != NULL; name++) {
        lower(*name);
        for (const mp_pair *set = upstream->headers; set != NULL && set->name != NULL; set++)
            if (strcmp(*name, set->name) == 0)
                report_at(r, seen(r, "pass"), "remove it from one of them", "'%s' is also in 'headers'", *name);
    }
}

/* The pairs as texts: name, `mark`, value. */
static char **join_pairs(const mp_pair *MP_NULLABLE pairs, const char *mark)
{
    size_t count = 0;
    while (pairs != NULL && pairs[count].name != NULL)
        count++;
    char **lines = count == 0 ? NULL : mp_new((count + 1) * sizeof *lines);
    for (size_t i = 0; i < count; i++) {
        mp_scoped_buf line = {0};
        mp_buf_printf(&line, "%s%s", pairs[i].name, mark);
        mp_buf_put(&line, mp_str_of(pairs[i].value));
        lines[i] = mp_dup(mp_buf_str(&line));
    }
    return lines;
}

/* -- tokens -------------------------------------------------------------------------------------------------------- */

static void check_token(reader *r, const mp_upstream_token *token, const char *name)
{
    char path[64];
    const char *const needed[] = {token->client == NULL ? "client" : NULL, token->secret == NULL ? "secret" : NULL};
    const mp_yaml_node *node = seen(r, name);
    for (size_t i = 0; i < sizeof needed / sizeof *needed; i++)
        if (needed[i] != NULL)
            report_at(r, node, "the client id and secret of this gateway at the authorization server",
                      "'%s' needs '%s'", strchr(name, '.') + 1, needed[i]);
    snprintf(path, sizeof path, "%s.token_url", name);
    if (token->issuer == NULL && token->token_url == NULL)
        report_at(r, node, "as in issuer: https://id.example.com", "'%s' needs 'issuer' or 'token_url'",
                  strchr(name, '.') + 1);
    else if (token->issuer != NULL && token->token_url != NULL)
        report_at(r, seen(r, path), "the issuer's metadata names its token endpoint",
                  "'%s' has both 'issuer' and "
                  "'token_url'",
                  strchr(name, '.') + 1);
}

/* Checks `auth.exchange`: a person's token needs an audience, and two persons must not share a session of the upstream.
 */
static void check_exchange(reader *r, const mp_upstream_entry *upstream)
{
    if (upstream->exchange.audience == NULL && upstream->exchange.resource == NULL)
        report_at(r, seen(r, "auth.exchange"),
                  "usually the url of the upstream, as in audience: https://crm.example.com",
                  "'exchange' needs 'audience' or 'resource'");
    if (upstream->per == MP_UPSTREAM_PER_GATEWAY)
        report_at(r, seen(r, "per"), "remove 'per', or use auth.client_credentials, which is one token for all",
                  "'per: gateway' lets callers share a session, and 'auth.exchange' sends a token of each caller");
}

/* Appends what makes a difference for the tokens; ends with a NUL, as all texts. */
static void put_token(mp_buf *out, const mp_upstream_token *token, const char *kind)
{
    const char *const texts[] = {kind,          token->issuer, token->token_url, token->client,
                                 token->secret, token->scope,  token->audience,  token->resource};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        mp_buf_printf(out, "%s\n", texts[i] == NULL ? "" : texts[i]);
    mp_buf_printf(out, "%d", (int)token->method);
}

/* Appends base64 with the alphabet and the padding of RFC 4648, section 4. */
static void put_base64(mp_buf *out, mp_str bytes)
{
    mp_buf_room(out, MP_BASE64URL_ROOM(bytes.len) + 3);
    size_t len = mp_base64url_encode(out->ptr + out->len, bytes);
    for (char *c = out->ptr + out->len; c < out->ptr + out->len + len; c++)
        *c = *c == '-' ? '+' : *c == '_' ? '/' : *c;
    out->len += len;
    for (; len % 4 != 0; len++)
        mp_buf_putc(out, '=');
}

/* Sets the header that the keys bearer, basic and header stand for. */
static void set_authorization(mp_upstream_entry *upstream)
{
    mp_scoped_buf value = {0};
    if (upstream->bearer != NULL) {
        mp_buf_printf(&value, "Bearer %s", upstream->bearer);
    } else if (upstream->basic != NULL) {
        mp_buf_put(&value, MP_STR("Basic "));
        put_base64(&value, mp_str_of(upstream->basic));
    } else if (upstream->header != NULL) {
        mp_buf_put(&value, mp_str_of(upstream->header));
    }
    free(upstream->core.authorization);
    upstream->core.authorization = value.len > 0 ? mp_dup(mp_buf_str(&value)) : NULL;
}

static void finish_auth(reader *r, mp_upstream_entry *upstream)
{
    static const char *const ways[] = {"auth.bearer", "auth.basic", "auth.header", "auth.client_credentials",
                                       "auth.exchange"};
    const mp_yaml_node *first = NULL, *second = NULL;
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        if (first == NULL)
            first = seen(r, ways[i]);
        else if (seen(r, ways[i]) != NULL)
            second = seen(r, ways[i]);
    if (first != NULL && second != NULL)
        report_at(r, second, "one credential is sent: remove the others", "'auth' has '%.*s' and '%.*s'",
                  MP_STR_ARG(first->key), MP_STR_ARG(second->key));
    set_authorization(upstream);
    bool is_exchange = seen(r, "auth.exchange") != NULL;
    const mp_upstream_token *token = is_exchange ? &upstream->exchange : &upstream->client_credentials;
    if (seen(r, "auth.client_credentials") == NULL && !is_exchange)
        return;
    check_token(r, token, is_exchange ? "auth.exchange" : "auth.client_credentials");
    if (is_exchange)
        check_exchange(r, upstream);
    mp_scoped_buf text = {0};
    put_token(&text, token, is_exchange ? "exchange" : "client_credentials");
    upstream->core.credential = mp_dup(mp_buf_str(&text));
}

/* Checks the keys of one entry together, and sets values that follow from other keys. */
static void finish_upstream(reader *r, mp_upstream_entry *upstream, const mp_yaml_node *node)
{
    bool has_url = seen(r, "url") != NULL, has_command = seen(r, "command") != NULL;
    if (has_url && has_command)
        report_at(r, node, "write two entries for two servers", "'%s' has both 'url' and 'command'",
                  upstream->core.name);
    else if (!has_url && !has_command)
        report_at(r, node, "as in 'url: https://mcp.example.com/mcp', or 'command: [npx, -y, some-server]'",
                  "'%s' needs 'url' or 'command'", upstream->core.name);
    upstream->core.kind = has_command ? MP_UPSTREAM_COMMAND : MP_UPSTREAM_URL;
    if (has_url != has_command)
        check_kind(r, upstream);
    if (has_command && seen(r, "calls") == NULL)
        upstream->core.calls = PROGRAM_CALLS;
    if (has_command && seen(r, "waiting") == NULL)
        upstream->core.waiting = PROGRAM_CALLS;
    if (!has_command)
        upstream->core.most = 0; /* process.most limits programs; sessions over HTTP have limits.upstreams.channels */
    check_tls(r, upstream);
    finish_auth(r, upstream);
    check_command(r, upstream);
    check_rename(r, upstream);
    check_uris(r, upstream);
    lower_headers(r, upstream);
    if (upstream->core.timeout_ms > upstream->core.timeout_total_ms && seen(r, "timeout_total") == NULL)
        upstream->core.timeout_total_ms = upstream->core.timeout_ms;
    else if (upstream->core.timeout_ms > upstream->core.timeout_total_ms && seen(r, "timeout") == NULL)
        upstream->core.timeout_ms = upstream->core.timeout_total_ms;
    else if (upstream->core.timeout_ms > upstream->core.timeout_total_ms)
        report_at(r, seen(r, "timeout"), "timeout_total is for the whole request",
                  "'timeout' is above 'timeout_total'");
    if (upstream->prefix == NULL) {
        mp_scoped_buf prefix = {0};
        mp_buf_printf(&prefix, "%s_", upstream->core.name);
        upstream->prefix = mp_dup(mp_buf_str(&prefix));
    }
    upstream->core.is_private = upstream->is_private == MP_UPSTREAM_PRIVATE_TRUE;
    upstream->core.headers = join_pairs(upstream->headers, ": ");
    upstream->core.env = join_pairs(upstream->env, "=");
    if (has_command && upstream->core.cwd == NULL)
        upstream->core.cwd = mp_dup(mp_str_of(r->folder));
}

static void read_entry(reader *r, const mp_config_key *map, const mp_yaml_node *node, mp_upstream_entry *upstream)
{
    const mp_config_key *section = mp_config_key_at("upstreams.NAME");
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_key_list(&mp_config_keys[i]) == map && &mp_config_keys[i] != section) {
            r->seen[i] = NULL;
            mp_config_set_preset(upstream, &mp_config_keys[i], r->folder);
        }
    upstream->line = (int)node->key_at.line;
    size_t errors = r->yaml.errors;
    r->item = upstream;
    mp_config_read_section(r, section, node);
    if (r->yaml.errors == errors)
        finish_upstream(r, upstream, node);
    r->item = NULL;
}

/* -- all upstreams ------------------------------------------------------------------------------------------------- */

/* True if the key of the node is no name in `list` and can be the name of an upstream. Reports the error. */
static bool check_upstream(reader *r, mp_upstream_entry *const *list, const mp_yaml_node *node)
{
    mp_err err, why = {"", ""};
    for (mp_upstream_entry *const *one = list; *one != NULL; one++)
        if (mp_str_is(node->key, (*one)->core.name)) {
            report_duplicate(r, node);
            return false;
        }
    if (mp_config_check_upstream(node->key, &why) == 0)
        return true;
    mp_err_set(&err, "'%.*s' cannot be the name of an upstream: %s", shown_len(node->key), node->key.ptr, why.text);
    mp_err_hint(&err, "%s", why.hint);
    mp_yaml_error(&r->yaml, node->key_at, &err);
    return false;
}

void mp_config_read_upstreams(reader *r, const mp_config_key *key, const mp_yaml_node *node)
{
    mp_err err;
    if (node->kind == MP_YAML_SCALAR && node->is_plain && mp_yaml_type_of(node->text) == MP_YAML_NULL)
        return; /* all entries are commented out: treated as absent */
    if (node->kind != MP_YAML_MAP) {
        mp_err_set(&err, "'%s' must be names and their keys", key->path);
        mp_err_hint(&err, "as in '%s: {github: \"https://mcp.example.com/mcp\"}'", key->path);
        mp_yaml_error(&r->yaml, node->at, &err);
        return;
    }
    size_t count = 0;
    mp_upstream_entry **list = mp_new((UPSTREAMS_CAP + 1) * sizeof *list);
    r->config->upstreams = list;
    for (const mp_yaml_node *entry = node->first; entry != NULL; entry = entry->next) {
        if (count == UPSTREAMS_CAP) {
            mp_err_set(&err, "more than %d upstreams", UPSTREAMS_CAP);
            mp_yaml_error(&r->yaml, entry->key_at, &err);
            break;
        }
        if (!check_upstream(r, list, entry))
            continue;
        mp_upstream_entry *upstream = list[count++] = mp_upstream_entry_new(entry->key);
        read_entry(r, key, entry, upstream);
    }
}
