/* cors.c: which other origins' web pages may read answers. */
#include "request.h"

bool mp_origin_is_allowed(const mp_rpc_config *config, mp_str origin)
{
    for (const char *const *entry = config->origins; entry != NULL && *entry != NULL; entry++)
        if (strcmp(*entry, "*") == 0 || mp_str_is(origin, *entry))
            return true;
    return false;
}

/* Adds the CORS headers. True if there is exactly one Origin header and its origin is allowed. */
static bool allow_origin(mp_rpc *rpc, mp_stream *stream)
{
    if (rpc->config->origins == NULL)
        return false;
    int count;
    mp_str origin = mp_stream_known_header(stream, MP_HEADER_ORIGIN, &count);
    mp_stream_add_header(stream, (mp_header){"vary", MP_STR("Origin")});
    if (count != 1 || !mp_origin_is_allowed(rpc->config, origin))
        return false;
    mp_stream_add_header(stream, (mp_header){"access-control-allow-origin", origin});
    mp_stream_add_header(
        stream, (mp_header){"access-control-expose-headers", MP_STR("Mcp-Session-Id, WWW-Authenticate, Retry-After")});
    return true;
}

static bool is_header_list(mp_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if (memchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_, ", text.ptr[i], 66) == NULL)
            return false;
    return text.len > 0 && text.len <= 1024;
}

/* Answers a preflight: the request without credentials by which a browser asks whether a page may send the real one. */
static bool answer_preflight(mp_stream *stream)
{
    int count;
    mp_stream_header(stream, "access-control-request-method", &count);
    if (count != 1 || !mp_str_is(mp_stream_request(stream)->method, "OPTIONS"))
        return false;
    mp_str requested = mp_stream_header(stream, "access-control-request-headers", NULL);
    mp_header headers[] = {{"access-control-allow-methods", MP_STR("GET, POST, DELETE")},
                           {"access-control-max-age", MP_STR("600")},
                           {"access-control-allow-headers", requested}};
    mp_stream_answer(stream, 204, NULL, MP_STR(""), headers, is_header_list(requested) ? 3 : 2);
    return true;
}

bool mp_serve_preflight(mp_rpc *rpc, mp_stream *stream)
{
    return allow_origin(rpc, stream) && answer_preflight(stream);
}
