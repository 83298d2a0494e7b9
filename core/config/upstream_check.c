/* upstream_check.c: checks the texts of upstreams: names, URLs, tokens, headers; and recognizes secrets. */
#define _GNU_SOURCE 1
#include "config.h"
#include <arpa/inet.h>
#include <ctype.h>

#define MAX_UPSTREAM_BYTES 32

static bool is_one_of(mp_str text, const char *const *names)
{
    for (; *names != NULL; names++)
        if (mp_str_is_nocase(text, *names))
            return true;
    return false;
}

static bool is_letter_or_digit(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool has_prefix(mp_str text, const char *prefix)
{
    size_t len = strlen(prefix);
    return text.len >= len && strncasecmp(text.ptr, prefix, len) == 0;
}

/* -- names --------------------------------------------------------------------------------------------------------- */

int mp_config_check_upstream(mp_str text, mp_err *err)
{
    bool is_good = text.len > 0 && text.len <= MAX_UPSTREAM_BYTES;
    for (size_t i = 0; i < text.len && is_good; i++) {
        char c = text.ptr[i];
        is_good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    }
    if (is_good)
        return 0;
    mp_err_set(err, "a name has 1 to %d lower-case letters, digits, '_' and '-'", MAX_UPSTREAM_BYTES);
    return mp_err_hint(err, "as in github or my-files");
}

static int check_name_bytes(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    for (size_t i = 0; i < text.len; i++)
        if (!is_letter_or_digit(text.ptr[i]) && strchr("_.-", text.ptr[i]) == NULL)
            return mp_err_set(err, "allowed are letters, digits, '_', '-' and '.'");
    return 0;
}

int mp_config_check_served_name(mp_str text, mp_err *err)
{
    return check_name_bytes(text, err);
}

int mp_config_check_prefix(mp_str text, mp_err *err)
{
    return check_name_bytes(text, err);
}

int mp_config_check_env(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] != '_' && (!is_letter_or_digit(text.ptr[i]) || (i == 0 && isdigit((unsigned char)text.ptr[i]))))
            return mp_err_set(err, "the name of a variable has letters, digits and '_'");
    if (!has_prefix(text, "MOONPOOL_"))
        return 0;
    return mp_err_set(err, "variables that begin with MOONPOOL_ are the gateway's own");
}

/* -- the URL ------------------------------------------------------------------------------------------------------- */

static int check_url_port(mp_str port, mp_err *err)
{
    long number = 0;
    bool is_good = port.len > 0 && port.len <= 5;
    for (size_t i = 0; i < port.len && is_good; i++) {
        is_good = isdigit((unsigned char)port.ptr[i]);
        number = number * 10 + (port.ptr[i] - '0');
    }
    return is_good && number >= 1 && number <= 65535 ? 0 : mp_err_set(err, "the port must be 1 to 65535");
}

/* True for a host that libraries read as an IPv4 address, though it is not written as four decimal numbers: 2130706433,
 * 0x7f.1, 0177.0.0.1. */
static bool is_disguised(mp_str host)
{
    char text[64] = "", bytes[16];
    mp_str rest = host, last = MP_STR_NONE;
    if (rest.len > 0 && rest.ptr[rest.len - 1] == '.')
        rest.len--;
    mp_str bare = rest;
    while (rest.len > 0)
        last = mp_str_cut(&rest, '.');
    bool is_number = last.len > 0;
    size_t start = last.len > 1 && last.ptr[0] == '0' && (last.ptr[1] | 0x20) == 'x' ? 2 : 0;
    for (size_t i = start; i < last.len && is_number; i++)
        is_number = start == 2 ? isxdigit((unsigned char)last.ptr[i]) : isdigit((unsigned char)last.ptr[i]);
    if (!is_number)
        return false;
    if (bare.len >= sizeof text || bare.len != host.len)
        return true;
    memcpy(text, bare.ptr, bare.len);
    return inet_pton(AF_INET, text, bytes) != 1;
}

/* A host and an optional port. */
static int check_authority(mp_str text, mp_err *err)
{
    mp_str port = text, host;
    if (memchr(text.ptr, '@', text.len) != NULL) {
        mp_err_set(err, "a user or password does not belong in a URL");
        return mp_err_hint(err, "write auth: {basic: \"${USER}:${PASSWORD}\"}, or {bearer: \"${TOKEN}\"}");
    }
    if (mp_str_starts(text, MP_STR("["))) {
        char address[64] = "", bytes[16];
        port = mp_str_from(text, 1);
        host = mp_str_cut(&port, ']');
        if (port.ptr == NULL || host.len >= sizeof address)
            return mp_err_set(err, "not an IPv6 address in the brackets");
        memcpy(address, host.ptr, host.len);
        if (inet_pton(AF_INET6, address, bytes) != 1)
            return mp_err_set(err, "not an IPv6 address in the brackets");
        if (port.len == 0)
            return 0;
        return port.ptr[0] == ':' ? check_url_port(mp_str_from(port, 1), err)
                                  : mp_err_set(err, "unexpected text after ']'");
    }
    host = mp_str_cut(&port, ':');
    if (host.len == 0)
        return mp_err_set(err, "the host is missing");
    for (size_t i = 0; i < host.len; i++)
        if (!is_letter_or_digit(host.ptr[i]) && strchr("-._", host.ptr[i]) == NULL)
            return mp_err_set(err, "a host consists of letters, digits, '-' and '.'");
    if (is_disguised(host)) {
        mp_err_set(err, "the host is an address that is not written as such");
        return mp_err_hint(err, "write it as four numbers with dots, as in 10.0.0.5, without leading zeros");
    }
    return port.ptr == NULL ? 0 : check_url_port(port, err);
}

int mp_config_check_url(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    size_t scheme = mp_str_starts(text, MP_STR("https://")) ? 8 : mp_str_starts(text, MP_STR("http://")) ? 7 : 0;
    if (scheme == 0) {
        mp_err_set(err, "it must begin with https:// or http://");
        return mp_err_hint(err,
                           "as in https://mcp.example.com/mcp; for a program write command: [npx, -y, some-server]");
    }
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~' || strchr("\"<>\\^`{|}", text.ptr[i]) != NULL)
            return mp_err_set(err, "spaces and other characters must be encoded, as in %%20");
    if (memchr(text.ptr, '#', text.len) != NULL)
        return mp_err_set(err, "a fragment ('#' and what follows) is never sent: remove it");
    mp_str rest = mp_str_from(text, scheme);
    size_t len = 0;
    while (len < rest.len && rest.ptr[len] != '/' && rest.ptr[len] != '?')
        len++;
    rest.len = len;
    return check_authority(rest, err);
}

int mp_config_check_question(mp_str text, mp_err *err)
{
    static const char *const words[] = {"elicitation", "sampling", "roots", "none"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (mp_str_is(text, words[i]))
            return 0;
    return mp_err_set(err, "allowed: elicitation, sampling, roots; or none");
}

/* The end of the host's name in a URL that was checked; IPv6 addresses with their brackets. */
static mp_str host_of(mp_str url)
{
    mp_str rest = url;
    rest = mp_str_from(rest, mp_str_starts(url, MP_STR("https://")) ? 8 : 7);
    size_t len = 0;
    bool is_bracketed = mp_str_starts(rest, MP_STR("["));
    while (len < rest.len &&
           (is_bracketed ? len == 0 || rest.ptr[len - 1] != ']' : strchr(":/?", rest.ptr[len]) == NULL))
        len++;
    rest.len = len;
    return rest;
}

/* True if the host of a URL that was checked is an address or localhost. */
static bool is_address(mp_str url)
{
    char text[64] = "", bytes[16];
    mp_str host = host_of(url);
    if (mp_str_starts(host, MP_STR("[")) || mp_str_is_nocase(host, "localhost"))
        return true;
    if (host.len >= sizeof text)
        return false;
    memcpy(text, host.ptr, host.len);
    return inet_pton(AF_INET, text, bytes) == 1;
}

int mp_config_check_issuer(mp_str text, mp_err *err)
{
    if (mp_config_check_url(text, err) != 0) {
        mp_err_hint(err, "as in https://id.example.com");
        return -1;
    }
    if (mp_str_starts(text, MP_STR("http://")) && !is_address(text)) {
        mp_err_set(err, "it must begin with https://, as secrets are sent to it");
        return mp_err_hint(err, "http:// is for localhost and addresses");
    }
    return 0;
}

int mp_config_check_resource(mp_str text, mp_err *err)
{
    if (mp_config_check_url(text, err) == 0)
        return 0;
    mp_err_hint(err, "as in https://crm.example.com/mcp");
    return -1;
}

int mp_config_check_scope(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] < ' ' || text.ptr[i] > '~' || text.ptr[i] == '"' || text.ptr[i] == '\\')
            return mp_err_set(err, "scopes are words of ASCII with spaces between them");
    return 0;
}

/* -- headers ------------------------------------------------------------------------------------------------------- */

int mp_config_check_bearer(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    if (has_prefix(text, "bearer ")) {
        mp_err_set(err, "the word Bearer is added by the gateway");
        return mp_err_hint(err, "write only the token");
    }
    for (size_t i = 0; i < text.len; i++)
        if (text.ptr[i] <= ' ' || text.ptr[i] > '~')
            return mp_err_set(err, "a token has no spaces, line breaks or other characters than ASCII");
    return 0;
}

int mp_config_check_basic(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    if (has_prefix(text, "basic ")) {
        mp_err_set(err, "the gateway adds the word Basic, and encodes the rest");
        return mp_err_hint(err, "write user:password, or the whole header as auth: {header: \"Basic ...\"}");
    }
    if (memchr(text.ptr, ':', text.len) == NULL) {
        mp_err_set(err, "a ':' separates the user from the password");
        return mp_err_hint(
            err, "as in auth: {basic: \"${USER}:${PASSWORD}\"}; a token belongs in auth: {bearer: \"${TOKEN}\"}");
    }
    return mp_config_check_header_value(text, err);
}

int mp_config_check_header_value(mp_str text, mp_err *err)
{
    mp_err_set(err, "%s", "");
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ' || text.ptr[i] == 0x7f)
            return mp_err_set(err, "a header has no line breaks or other control characters");
    return 0;
}

/* Names that neither `headers` nor `pass` may have: of credentials, of the connection, of the protocol. */
static int check_header_name(mp_str text, mp_err *err)
{
    static const char *const credentials[] = {"cookie", "cookie2", "set-cookie", NULL};
    static const char *const protocol[] = {"host",
                                           "content-length",
                                           "content-type",
                                           "content-encoding",
                                           "transfer-encoding",
                                           "connection",
                                           "keep-alive",
                                           "te",
                                           "trailer",
                                           "upgrade",
                                           "expect",
                                           "accept",
                                           "http2-settings",
                                           "accept-encoding",
                                           "last-event-id",
                                           "origin",
                                           "traceparent",
                                           "tracestate",
                                           "moonpool-hops",
                                           NULL};
    mp_err_set(err, "%s", "");
    for (size_t i = 0; i < text.len; i++)
        if (!is_letter_or_digit(text.ptr[i]) && strchr("!#$%&'*+-.^_`|~", text.ptr[i]) == NULL)
            return mp_err_set(err, "the name of a header has letters, digits and '-'");
    if (mp_str_is_nocase(text, "authorization")) {
        mp_err_set(err, "the gateway sends this header itself");
        return mp_err_hint(err, "write auth: {bearer: \"${TOKEN}\"}, or {basic: \"${USER}:${PASSWORD}\"}, or "
                                "{header: \"the whole value\"}");
    }
    if (is_one_of(text, credentials) || has_prefix(text, "proxy-"))
        return mp_err_set(err, "headers of this kind are never sent to an upstream");
    if (is_one_of(text, protocol) || has_prefix(text, "mcp-") || has_prefix(text, "sec-"))
        return mp_err_set(err, "the protocol uses this header");
    return 0;
}

int mp_config_check_header(mp_str text, mp_err *err)
{
    return check_header_name(text, err);
}

int mp_config_check_pass(mp_str text, mp_err *err)
{
    static const char *const personal[] = {"forwarded",
                                           "via",
                                           "x-real-ip",
                                           "referer",
                                           "x-api-key",
                                           "x-auth-token",
                                           "x-csrf-token",
                                           "x-xsrf-token",
                                           "api-key",
                                           "x-access-token",
                                           "x-amz-security-token",
                                           NULL};
    if (mp_str_is_nocase(text, "authorization"))
        return mp_err_set(err, "a client's credentials are never sent on");
    if (check_header_name(text, err) != 0)
        return -1;
    if (is_one_of(text, personal) || has_prefix(text, "x-forwarded"))
        return mp_err_set(err, "a client's credentials and addresses are never sent on");
    return 0;
}

/* -- secrets ------------------------------------------------------------------------------------------------------- */

static bool has_word(mp_str text, const char *word)
{
    for (size_t i = 0; i < text.len; i++)
        if (has_prefix(mp_str_from(text, i), word))
            return true;
    return false;
}

/* The names of variables and options whose values are secrets. */
bool mp_config_names_secret(mp_str name)
{
    static const char *const words[] = {"token",   "secret",     "passw",       "apikey",      "api_key",
                                        "api-key", "credential", "private_key", "private-key", NULL};
    for (size_t i = 0; words[i] != NULL; i++)
        if (has_word(name, words[i]))
            return true;
    return false;
}

bool mp_config_is_secret(mp_str text)
{
    static const char *const forms[] = {"ghp_",  "gho_",  "ghs_",     "github_pat_", "glpat-", "sk-", "sk_live_",
                                        "xoxb-", "xoxp-", "AKIA",     "AIza",        "eyJ",    "hf_", "npm_",
                                        "pypi-", "ntn_",  "lin_api_", "-----BEGIN",  NULL};
    mp_str value = text, name = mp_str_cut(&value, '=');
    if (value.ptr == NULL)
        value = text;
    else if (value.len > 0 && mp_config_names_secret(name))
        return true;
    const char *open = memmem(text.ptr, text.len, "${", 2);
    if (open != NULL && mp_config_names_secret(mp_str_from(text, (size_t)(open - text.ptr))))
        return true;
    for (size_t i = 0; forms[i] != NULL; i++)
        if (value.len >= strlen(forms[i]) + 16 && mp_str_starts(value, mp_str_of(forms[i])))
            return true;
    return false;
}
