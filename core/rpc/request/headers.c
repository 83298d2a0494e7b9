/* headers.c: reads Content-Type, Accept, query strings, and headers that repeat values of the body. */
#include "request.h"
#include <openssl/evp.h>

bool mp_path_is(mp_str path, const char *MP_NULLABLE endpoint)
{
    if (endpoint == NULL)
        return false;
    return mp_str_is(path, endpoint) ||
           (path.len > 2 && path.ptr[path.len - 1] == '/' && mp_str_is((mp_str){path.ptr, path.len - 1}, endpoint));
}

bool mp_type_is_json(const mp_stream *stream)
{
    int count;
    mp_str rest = mp_stream_known_header(stream, MP_HEADER_CONTENT_TYPE, &count);
    if (count == 1 && mp_str_eq(rest, MP_STR("application/json")))
        return true;
    return count == 1 && mp_str_is_nocase(mp_str_trim(mp_str_cut(&rest, ';')), "application/json");
}

/* True if the parameters of a media range refuse it by their quality: "q=0", "q=0.000" (RFC 9110 12.4.2). */
static bool has_zero_quality(mp_str parameters)
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

/* How exactly `range` matches `type`: 0 not at all, 1 by "*" "/" "*", 2 by "type" "/" "*", 3 exactly. */
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

static bool accepts_type(const mp_stream *stream, const char *type)
{
    int best = 0;
    bool is_accepted = false;
    mp_str accept;
    for (size_t at = 0; (accept = mp_stream_next_header(stream, "accept", &at)).ptr != NULL;)
        while (accept.ptr != NULL) {
            mp_str parameters = mp_str_trim(mp_str_cut(&accept, ','));
            mp_str range = mp_str_trim(mp_str_cut(&parameters, ';'));
            int match = match_range(range, type);
            if (match > best) {
                best = match;
                is_accepted = !has_zero_quality(parameters);
            }
        }
    return is_accepted;
}

/* A request without Accept takes every type (RFC 9110 12.5.1). Several Accept headers are one list. The value that
 * the official SDKs send contains both types, so it is compared as a whole before anything is parsed. */
bool mp_accepts(const mp_stream *stream, const char *const *types)
{
    int count;
    mp_str accept = mp_stream_known_header(stream, MP_HEADER_ACCEPT, &count);
    if (count == 0 || (count == 1 && mp_str_eq(accept, MP_STR("application/json, text/event-stream"))))
        return true;
    for (; *types != NULL; types++)
        if (!accepts_type(stream, *types))
            return false;
    return true;
}

static bool is_events(mp_str range)
{
    return mp_str_is_nocase(mp_str_trim(mp_str_cut(&range, ';')), "text/event-stream");
}

bool mp_names_events(const mp_stream *stream)
{
    mp_str accept = mp_stream_known_header(stream, MP_HEADER_ACCEPT, NULL);
    while (accept.ptr != NULL)
        if (is_events(mp_str_cut(&accept, ',')))
            return true;
    return false;
}

bool mp_prefers_events(const mp_stream *stream)
{
    mp_str accept = mp_stream_known_header(stream, MP_HEADER_ACCEPT, NULL);
    return is_events(mp_str_cut(&accept, ','));
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
        else if (padding > 0) /* EVP_DecodeBlock skips white space and stops at '-' */
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
