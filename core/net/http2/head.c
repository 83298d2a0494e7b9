/* head.c: checks each block of headers before and after libh2o decodes it. It defines h2o_hpack_parse_headers and
 * h2o_cache_digests_load_header in place of libh2o's weak ones (cmake/patches/h2o).
 *
 * Before: a block of one-byte references to one large table entry becomes thousands of headers, so their number is
 * limited. After: libh2o accepts requests that RFC 9113 calls malformed; they end with RST_STREAM. */
#include "http2.h"

#define MAX_FIELDS 128 /* headers of one request, with pseudo-headers: browsers send each cookie as a header */

/* The function of libh2o whose place h2o_hpack_parse_headers takes. */
int libh2o_hpack_parse_headers(h2o_req_t *req, h2o_hpack_header_table_t *table, const uint8_t *bytes, size_t len,
                               int *MP_NULLABLE exists, size_t *content_length, h2o_cache_digests_t **digests,
                               const char **why);

/* Reads an integer of HPACK (RFC 7541, 5.1). False if the block ends within it, or if it is larger than 2^28. */
static bool read_integer(const uint8_t **at, const uint8_t *end, unsigned bits, size_t *value)
{
    if (*at >= end)
        return false;
    size_t most = (1U << bits) - 1;
    *value = *(*at)++ & most;
    if (*value < most)
        return true;
    for (unsigned shift = 0; shift < 28 && *at < end; shift += 7) {
        uint8_t byte = *(*at)++;
        *value += (size_t)(byte & 127) << shift;
        if ((byte & 128) == 0)
            return true;
    }
    return false;
}

static bool skip_string(const uint8_t **at, const uint8_t *end)
{
    size_t len;
    if (!read_integer(at, end, 7, &len) || len > (size_t)(end - *at))
        return false;
    *at += len;
    return true;
}

/* Skips one field or one change of the table's size. False if the block is broken. */
static bool skip_field(const uint8_t **at, const uint8_t *end)
{
    uint8_t first = **at;
    size_t index;
    if (first >= 128)
        return read_integer(at, end, 7, &index);
    if (first >= 32 && first < 64)
        return read_integer(at, end, 5, &index);
    return read_integer(at, end, first >= 64 ? 6 : 4, &index) && (index > 0 || skip_string(at, end)) &&
           skip_string(at, end);
}

/* True if the block has more fields and table sizes than MAX_FIELDS. A broken block is left to libh2o. */
static bool has_many_fields(const uint8_t *at, size_t len)
{
    const uint8_t *end = at + len;
    for (int count = 0; at < end && skip_field(&at, end);)
        if (++count > MAX_FIELDS)
            return true;
    return false;
}

static bool has_only_visible(h2o_iovec_t text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.base[i] <= ' ' || text.base[i] == 0x7f)
            return false;
    return true;
}

/* The target is a path, or "*" for OPTIONS (RFC 9113, 8.3.1). */
static bool has_good_target(const h2o_req_t *req)
{
    h2o_iovec_t path = req->input.path;
    if (path.len == 0 || !has_only_visible(path) || !has_only_visible(req->input.authority))
        return false;
    return path.base[0] == '/' || (path.len == 1 && path.base[0] == '*' &&
                                   h2o_memis(req->input.method.base, req->input.method.len, "OPTIONS", 7));
}

static bool has_good_names(const h2o_req_t *req)
{
    for (size_t i = 0; i < req->headers.size; i++)
        if (req->headers.entries[i].name->len == 0)
            return false;
    return true;
}

static bool is_wellformed(const mp_http2 *h2, const h2o_req_t *req, size_t content_length)
{
    if (req->input.method.len == 0 || !has_only_visible(req->input.method) || !has_good_names(req))
        return false;
    if (h2->is_last_frame && content_length != SIZE_MAX && content_length > 0)
        return false;                                            /* a body was announced, and none follows */
    return req->input.path.base == NULL || has_good_target(req); /* libh2o refuses a request without :path */
}

/* Replaces libh2o's function of this name, and calls it. An error ends the connection; an empty `exists` ends the
 * request alone. `exists` NULL: these are trailers. */
int h2o_hpack_parse_headers(h2o_req_t *req, h2o_hpack_header_table_t *table, const uint8_t *bytes, size_t len,
                            int *MP_NULLABLE exists, size_t *content_length, h2o_cache_digests_t **digests,
                            const char **why)
{
    mp_http2 *h2 = mp_http2_of(mp_http2_conn_of(req));
    if (h2 == NULL)
        return H2O_HTTP2_ERROR_INTERNAL;
    if (has_many_fields(bytes, len)) {
        *why = "too many headers";
        mp_http2_count_refusal(h2, &mp_stat_http2_refused_headers, *why);
        return H2O_HTTP2_ERROR_ENHANCE_YOUR_CALM;
    }
    size_t before = req->headers.size;
    int result = libh2o_hpack_parse_headers(req, table, bytes, len, exists, content_length, digests, why);
    if (exists == NULL) {
        req->headers.size = before; /* removes trailers from the headers: checks before the body must stay valid */
        return result == H2O_HTTP2_ERROR_INVALID_HEADER_CHAR ? H2O_HTTP2_ERROR_PROTOCOL : result;
    }
    mp_http2_weigh_head(h2, req);
    if (result == H2O_HTTP2_ERROR_INVALID_HEADER_CHAR || (result == 0 && !is_wellformed(h2, req, *content_length))) {
        *exists = 0;
        *why = NULL;
        return 0;
    }
    return result;
}

/* Replaces libh2o's function of this name: the header cache-digest is about server push, which is not used, and 100
 * bytes of it can take milliseconds and megabytes to decode. */
void h2o_cache_digests_load_header(MP_UNUSED h2o_cache_digests_t **digests, MP_UNUSED const char *value,
                                   MP_UNUSED size_t len)
{
}
