/* headers.c: what HTTP's headers mean here: Host and Origin, Content-Type, Accept, mirrored values. */
#include "house.h"
#include <openssl/evp.h>
#include <stdlib.h>

/* "[::1]:7300" without its port. */
static mp_str without_port(mp_str host)
{
    if (host.len > 0 && host.ptr[0] == '[') {
        const char *end = memchr(host.ptr, ']', host.len);
        return end == NULL ? host : (mp_str){host.ptr, (size_t)(end - host.ptr) + 1};
    }
    mp_str rest = host;
    return mp_str_cut(&rest, ':');
}

static bool is_port(mp_str port)
{
    if (port.len < 2 || port.len > 6 || port.ptr[0] != ':')
        return false;
    for (size_t i = 1; i < port.len; i++)
        if (port.ptr[i] < '0' || port.ptr[i] > '9')
            return false;
    return true;
}

/* An entry with a port allows that port alone. */
static bool is_listed(const mp_rpc_config *config, mp_str host)
{
    mp_str name = without_port(host);
    mp_str port = mp_str_from(host, name.len);
    if (name.len == 0 || (port.len > 0 && !is_port(port)))
        return false;
    for (const char *const *entry = config->hosts; *entry != NULL; entry++)
        if (strcmp(*entry, "*") == 0 || mp_str_is_nocase(name, *entry) || mp_str_is_nocase(host, *entry))
            return true;
    return false;
}

bool mp_host_is_listed(const mp_rpc_config *config, const mp_stream *stream)
{
    return is_listed(config, mp_stream_request(stream)->host);
}

bool mp_host_is_served(const mp_rpc_config *config, const mp_stream *stream)
{
    if (!mp_host_is_listed(config, stream))
        return false;
    int count;
    mp_str origin = mp_stream_header(stream, "origin", &count);
    if (count == 0)
        return true;
    if (count > 1)
        return false;
    if (mp_origin_is_allowed(config, origin))
        return true;
    if (mp_str_starts(origin, MP_STR("http://")))
        return is_listed(config, mp_str_from(origin, 7));
    return mp_str_starts(origin, MP_STR("https://")) && is_listed(config, mp_str_from(origin, 8));
}

const char *mp_host_refusal(const mp_rpc_config *config, const mp_stream *stream)
{
    return mp_host_is_listed(config, stream)
               ? "pages of this Origin are not served: see \"cors\" and \"hosts\" in the configuration"
               : "this Host is not served here: see \"hosts\" in the configuration";
}

bool mp_type_is_json(const mp_stream *stream)
{
    int count;
    mp_str rest = mp_stream_header(stream, "content-type", &count);
    return count == 1 && mp_str_is_nocase(mp_str_trim(mp_str_cut(&rest, ';')), "application/json");
}

/* "q=0", "q=0.", "q=0.000": refused by its quality (RFC 9110 12.4.2). */
static bool is_refused(mp_str parameters)
{
    while (parameters.ptr != NULL) {
        mp_str parameter = mp_str_trim(mp_str_cut(&parameters, ';'));
        mp_str value = parameter;
        mp_str name = mp_str_trim(mp_str_cut(&value, '='));
        if (!mp_str_is_nocase(name, "q") || value.ptr == NULL)
            continue;
        value = mp_str_trim(value);
        size_t zeros = 0;
        while (zeros < value.len && (value.ptr[zeros] == '0' || value.ptr[zeros] == '.'))
            zeros++;
        return value.len > 0 && zeros == value.len;
    }
    return false;
}

/* How well `range` names `type`: 0 not at all, 1 by "*" "/" "*", 2 by "type" "/" "*", 3 exactly. */
static int match_range(mp_str range, const char *type)
{
    if (mp_str_is(range, "*/*"))
        return 1;
    if (mp_str_is_nocase(range, type))
        return 3;
    size_t major = (size_t)(strchr(type, '/') - type) + 1;
    bool is_wide = range.len == major + 1 && range.ptr[major] == '*' && strncasecmp(range.ptr, type, major) == 0;
    return is_wide ? 2 : 0;
}

static bool accepts_one(const mp_stream *stream, const char *type)
{
    int best = 0;
    bool taken = false;
    mp_str accept;
    for (size_t at = 0; (accept = mp_stream_next_header(stream, "accept", &at)).ptr != NULL;)
        while (accept.ptr != NULL) {
            mp_str parameters = mp_str_trim(mp_str_cut(&accept, ','));
            mp_str range = mp_str_trim(mp_str_cut(&parameters, ';'));
            int match = match_range(range, type);
            if (match > best) {
                best = match;
                taken = !is_refused(parameters);
            }
        }
    return taken;
}

/* Without the header everything is taken (RFC 9110 12.5.1); several are one list. */
bool mp_accepts(const mp_stream *stream, const char *const *types)
{
    if (mp_stream_header(stream, "accept", NULL).ptr == NULL)
        return true;
    for (; *types != NULL; types++)
        if (!accepts_one(stream, *types))
            return false;
    return true;
}

bool mp_prefers_events(const mp_stream *stream)
{
    mp_str accept = mp_stream_header(stream, "accept", NULL);
    mp_str range = mp_str_cut(&accept, ',');
    return mp_str_is_nocase(mp_str_trim(mp_str_cut(&range, ';')), "text/event-stream");
}

mp_str mp_query_value(mp_str query, const char *name, int *count)
{
    mp_str found = MP_STR_NONE;
    *count = 0;
    while (query.ptr != NULL) {
        mp_str value = mp_str_cut(&query, '&');
        mp_str key = mp_str_cut(&value, '=');
        if (mp_str_is(key, name)) {
            (*count)++;
            found = value;
        }
    }
    return found;
}

int mp_header_text(mp_str value, mp_buf *out, mp_str *text)
{
    static const mp_str opening = {"=?base64?", 9};
    *text = value;
    if (!mp_str_starts(value, opening) || value.len < opening.len + 2 ||
        memcmp(value.ptr + value.len - 2, "?=", 2) != 0)
        return 0;
    mp_str code = {value.ptr + opening.len, value.len - opening.len - 2};
    if (code.len % 4 != 0)
        return -1;
    size_t padding = 0;
    for (size_t i = 0; i < code.len; i++) {
        if (code.ptr[i] == '=')
            padding++;
        else if (padding > 0) /* EVP would skip white space and stop at '-' */
            return -1;
        else if (strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", code.ptr[i]) == NULL ||
                 code.ptr[i] == '\0')
            return -1;
    }
    if (padding > 2)
        return -1;
    out->len = 0;
    int length = EVP_DecodeBlock((unsigned char *)mp_buf_room(out, code.len + 4), (const unsigned char *)code.ptr,
                                 (int)code.len);
    if (length < 0)
        return -1;
    out->len = (size_t)length - padding;
    *text = mp_buf_str(out);
    return 0;
}
