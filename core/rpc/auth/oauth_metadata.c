/* oauth_metadata.c: how a client finds out where to get credentials: the protected-resource metadata of RFC 9728,
 * and the challenge of a 401. */
#include "auth.h"
#include "rpc/request/hop.h"
#include <strings.h>

static const mp_str well_known = {"/.well-known/oauth-protected-resource", 37};

/* -- addresses as clients see them --------------------------------------------------------------------------------- */

static bool is_plain_host(mp_str host)
{
    for (size_t i = 0; i < host.len; i++)
        if (memchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789.-_:[]", host.ptr[i], 68) == NULL)
            return false;
    return host.len > 0;
}

/* True if `text` has `word` in it, in any case. */
static bool has_word(mp_str text, mp_str word)
{
    for (size_t i = 0; i + word.len <= text.len; i++)
        if (strncasecmp(text.ptr + i, word.ptr, word.len) == 0)
            return true;
    return false;
}

/* Logs, once, that addresses for clients begin with http:// although a proxy says that the client came by https. */
static void warn_of_scheme(const mp_stream *stream)
{
    static atomic_bool is_logged;
    if (atomic_load_explicit(&is_logged, memory_order_relaxed))
        return;
    mp_str forwarded = mp_stream_known_header(stream, MP_HEADER_FORWARDED, NULL);
    mp_str scheme = mp_stream_header(stream, "x-forwarded-proto", NULL);
    bool is_https = has_word(scheme, MP_STR("https")) || has_word(forwarded, MP_STR("proto=https")) ||
                    has_word(forwarded, MP_STR("proto=\"https\"")) ||
                    mp_str_is_nocase(mp_stream_header(stream, "x-forwarded-ssl", NULL), "on");
    if (is_https && !atomic_exchange(&is_logged, true))
        mp_log(MP_WARN, "scheme of clients unknown", mp_log_str("address", mp_stream_address(stream)),
               mp_log_str("why", MP_STR("a proxy says that a client came by https, and without public_url the "
                                        "addresses in metadata and challenges begin with http://; logged once")),
               mp_log_str("hint", MP_STR("write the address that clients use, as in public_url: "
                                         "https://mcp.example.com")));
}

bool mp_put_base(const mp_rpc *rpc, const mp_stream *stream, mp_buf *out)
{
    mp_str host = mp_stream_request(stream)->host;
    mp_str base = rpc->config->public_url != NULL ? mp_str_of(rpc->config->public_url) : MP_STR_NONE;
    if (mp_stream_base(stream).len > 0)
        base = mp_stream_base(stream);
    if (base.len > 0) {
        mp_buf_put(out, base);
        return true;
    }
    if (!is_plain_host(host))
        return false;
    bool is_plain = mp_stream_tls(stream) == NULL;
    if (is_plain)
        warn_of_scheme(stream);
    mp_buf_put(out, is_plain ? MP_STR("http://") : MP_STR("https://"));
    for (size_t i = 0; i < host.len; i++) {
        char c = host.ptr[i];
        mp_buf_putc(out, c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c);
    }
    return true;
}

/* The endpoint that a path belongs to: the two paths of HTTP+SSE are one endpoint. */
static const char *MP_NULLABLE endpoint_of(const mp_rpc_config *config, mp_str path)
{
    bool is_sse = config->sse != NULL &&
                  (mp_path_is(path, config->sse) || mp_path_is(path, config->messages) ||
                   mp_str_is(path, mp_hop_paths[MP_HOP_SSE]) || mp_str_is(path, mp_hop_paths[MP_HOP_MESSAGES]));
    return is_sse || config->mcp == NULL ? config->sse : config->mcp;
}

void mp_put_challenge(mp_rpc *rpc, const mp_stream *stream, mp_buf *out, const char *MP_NULLABLE error, mp_str scopes)
{
    const mp_auth_facts *facts = rpc->auth;
    const char *mark = " ";
    mp_scoped_buf base = {0};
    mp_buf_put(out, MP_STR("Bearer"));
    if (facts->realm.len > 0 || facts->resource_metadata.len == 0) {
        mp_str realm = facts->realm.len > 0 ? facts->realm : MP_STR("moonpool");
        mp_buf_printf(out, "%srealm=\"%.*s\"", mark, MP_STR_ARG(realm));
        mark = ", ";
    }
    if (error != NULL) {
        mp_buf_printf(out, "%serror=\"%s\"", mark, error);
        mark = ", ";
    }
    if (facts->resource_metadata.len > 0 && mp_put_base(rpc, stream, &base)) {
        mp_buf_printf(out, "%sresource_metadata=\"%.*s%.*s%s%s\"", mark, MP_STR_ARG(mp_buf_str(&base)),
                      MP_STR_ARG(well_known), rpc->config->prefix,
                      endpoint_of(rpc->config, mp_stream_request(stream)->path));
        mark = ", ";
    }
    if (scopes.len > 0)
        mp_buf_printf(out, "%sscope=\"%.*s\"", mark, MP_STR_ARG(scopes));
}

/* -- the document -------------------------------------------------------------------------------------------------- */

/* The endpoint whose RFC 9728 metadata has this path; NULL if none has. The path may have `prefix` before the
 * endpoint, as clients see it. */
static const char *MP_NULLABLE described_by(const mp_rpc_config *config, mp_str path)
{
    if (!mp_str_starts(path, well_known))
        return NULL;
    mp_str rest = mp_str_from(path, well_known.len);
    if (rest.len == 0)
        return endpoint_of(config, rest);
    mp_str prefix = mp_str_of(config->prefix);
    mp_str bare = prefix.len > 0 && mp_str_starts(rest, prefix) ? mp_str_from(rest, prefix.len) : rest;
    const char *const endpoints[] = {config->mcp, config->sse};
    for (int i = 0; i < 2; i++)
        if (mp_path_is(rest, endpoints[i]) || mp_path_is(bare, endpoints[i]))
            return endpoints[i];
    return NULL;
}

static bool is_get(const mp_request *request)
{
    return mp_str_is(request->method, "GET") || mp_str_is(request->method, "HEAD");
}

/* Answers with the RFC 9728 metadata of an endpoint. */
static void send_document(mp_rpc *rpc, mp_stream *stream, const char *endpoint, mp_str members)
{
    mp_scoped_buf url = {0}, json = {0};
    if (mp_put_base(rpc, stream, &url)) {
        mp_buf_printf(&url, "%s%s", rpc->config->prefix, strcmp(endpoint, "/") == 0 ? "" : endpoint);
        mp_buf_put(&json, MP_STR("{\"resource\":"));
        mp_json_put_string(&json, mp_buf_str(&url));
        mp_buf_printf(&json, ",%.*s,\"bearer_methods_supported\":[\"header\"]}", MP_STR_ARG(members));
        mp_stream_answer(stream, 200, "application/json", mp_buf_str(&json), NULL, 0);
    } else {
        mp_refuse(rpc, stream, MP_CAUSE_HOST, 400, MP_CODE_INVALID_REQUEST, MP_STR_NONE,
                  "Host is not a valid host name", MP_STR_NONE);
    }
}

bool mp_serve_metadata(mp_rpc *rpc, mp_stream *stream)
{
    const mp_request *request = mp_stream_request(stream);
    const mp_auth_facts *facts = rpc->auth;
    const char *endpoint = facts->is_asked ? described_by(rpc->config, request->path) : NULL;
    bool is_preflight = mp_str_is(request->method, "OPTIONS");
    if (endpoint == NULL || !(is_get(request) || is_preflight) || !mp_host_is_listed(rpc->config, stream))
        return false;
    mp_stream_add_header(stream, (mp_header){"access-control-allow-origin", MP_STR("*")});
    if (is_preflight) {
        mp_header headers[] = {{"access-control-allow-methods", MP_STR("GET")},
                               {"access-control-allow-headers", MP_STR("*")}};
        mp_stream_answer(stream, 204, NULL, MP_STR(""), headers, 2);
    } else {
        send_document(rpc, stream, endpoint, facts->resource_metadata);
    }
    return true;
}
