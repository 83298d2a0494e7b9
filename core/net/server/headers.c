/* headers.c: the headers of a request, and the values of its query. One pass, when the request begins, finds those that
 * most requests are asked for. */
#include "http.h"

static mp_str str_of(h2o_iovec_t bytes)
{
    return (mp_str){bytes.base, bytes.len};
}

#define IS(name, literal) (memcmp((name), (literal), sizeof(literal) - 1) == 0)

/* `name` is in lower case. MP_KNOWN_HEADERS: it is not among those. */
static mp_known_header known_header(const char *name, size_t len)
{
    switch (len) {
    case sizeof "accept" - 1: /* "accept" and "origin" */
        return IS(name, "accept") ? MP_HEADER_ACCEPT : IS(name, "origin") ? MP_HEADER_ORIGIN : MP_KNOWN_HEADERS;
    case sizeof "mcp-name" - 1:
        return IS(name, "mcp-name") ? MP_HEADER_MCP_NAME : MP_KNOWN_HEADERS;
    case sizeof "forwarded" - 1:
        return IS(name, "forwarded") ? MP_HEADER_FORWARDED : MP_KNOWN_HEADERS;
    case sizeof "mcp-method" - 1:
        return IS(name, "mcp-method") ? MP_HEADER_MCP_METHOD : MP_KNOWN_HEADERS;
    case sizeof "content-type" - 1:
        return IS(name, "content-type") ? MP_HEADER_CONTENT_TYPE : MP_KNOWN_HEADERS;
    case sizeof "authorization" - 1: /* and for "last-event-id" and "moonpool-hops", which have the same length */
        return IS(name, "authorization")   ? MP_HEADER_AUTHORIZATION
               : IS(name, "last-event-id") ? MP_HEADER_LAST_EVENT_ID
               : IS(name, "moonpool-hops") ? MP_HEADER_HOPS
                                           : MP_KNOWN_HEADERS;
    case sizeof "mcp-session-id" - 1:
        return IS(name, "mcp-session-id") ? MP_HEADER_MCP_SESSION_ID : MP_KNOWN_HEADERS;
    case sizeof "x-forwarded-for" - 1:
        return IS(name, "x-forwarded-for") ? MP_HEADER_X_FORWARDED_FOR : MP_KNOWN_HEADERS;
    case sizeof "mcp-protocol-version" - 1:
        return IS(name, "mcp-protocol-version") ? MP_HEADER_MCP_PROTOCOL_VERSION : MP_KNOWN_HEADERS;
    default:
        return MP_KNOWN_HEADERS;
    }
}

void mp_request_read_headers(mp_request_head *head, const h2o_req_t *req)
{
    const h2o_headers_t *headers = &req->headers;
    size_t bytes = req->input.path.len + head->view.host.len;
    for (const h2o_header_t *header = headers->entries, *end = header + headers->size; header < end; header++) {
        bytes += header->name->len + header->value.len;
        mp_known_header which = known_header(header->name->base, header->name->len);
        if (which != MP_KNOWN_HEADERS && head->known_counts[which]++ == 0)
            head->known_first[which] = (uint8_t)(header - headers->entries);
    }
    head->bytes = bytes;
}

mp_str mp_stream_known_header(const mp_stream *stream, mp_known_header which, int *MP_NULLABLE count)
{
    const mp_request_head *head = stream->head;
    int found = head->known_counts[which];
    if (count != NULL)
        *count = found;
    return found == 0 ? MP_STR_NONE : str_of(head->headers->entries[head->known_first[which]].value);
}

bool mp_stream_each_header(const mp_stream *stream, size_t *at, mp_str *name, mp_str *value)
{
    const h2o_headers_t *headers = stream->head->headers;
    if (*at >= headers->size)
        return false;
    const h2o_header_t *header = &headers->entries[(*at)++];
    *name = str_of(*header->name);
    *value = str_of(header->value);
    return true;
}

mp_str mp_stream_next_header(const mp_stream *stream, const char *name, size_t *at)
{
    const h2o_headers_t *headers = stream->head->headers;
    size_t len = strlen(name);
    while (*at < headers->size) {
        const h2o_header_t *header = &headers->entries[(*at)++];
        if (header->name->len == len && memcmp(header->name->base, name, len) == 0)
            return str_of(header->value);
    }
    return MP_STR_NONE;
}

mp_str mp_stream_header(const mp_stream *stream, const char *name, int *MP_NULLABLE count)
{
    size_t at = 0;
    mp_str found = mp_stream_next_header(stream, name, &at);
    if (count != NULL)
        for (*count = found.ptr != NULL; mp_stream_next_header(stream, name, &at).ptr != NULL;)
            (*count)++;
    return found;
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
