/* framing.c: refuses requests whose head is ambiguous about where the request ends or which host it is for. libh2o
 * uses the first of two lengths, the last of two Hosts, chunked encoding before a length, and accepts bare line
 * feeds. A proxy in front may interpret such a request differently and so see other requests on the same connection
 * (request smuggling). chunked.c does the same check for chunked bodies. */
#include "http.h"

static bool next_line(mp_str *rest, mp_str *line)
{
    *line = mp_str_cut(rest, '\n');
    if (rest->ptr == NULL || line->len == 0 || line->ptr[line->len - 1] != '\r')
        return false;
    line->len--;
    return true;
}

/* The target is a path, an absolute URL, or "*" for OPTIONS (RFC 9112, 3.2). libh2o accepts "mcp" as "/mcp". */
static bool is_target(mp_str request_line)
{
    mp_str method = mp_str_cut(&request_line, ' '), target = mp_str_cut(&request_line, ' '), rest = target;
    if (mp_str_starts(target, MP_STR("/")))
        return true;
    mp_str scheme = mp_str_cut(&rest, ':');
    if ((mp_str_is(method, "OPTIONS") && mp_str_is(target, "*")))
        return true;
    return (mp_str_is_nocase(scheme, "http") || mp_str_is_nocase(scheme, "https")) && mp_str_starts(rest, MP_STR("//"));
}

/* True if the header line from `at` to `end`, where its CR is, has this name. */
static inline bool has_name(const char *at, const char *end, mp_str name)
{
    size_t len = (size_t)(end - at);
    return len >= name.len && (len == name.len || at[name.len] == ':') && strncasecmp(at, name.ptr, name.len) == 0;
}

const char *mp_framing_fault(mp_str input, int minor)
{
    static const char bad_line[] = "ambiguous request: a header line ends without CR LF or is folded\n";
    bool is_decoded = mp_chunked_was_decoded();
    mp_str line;
    /* one empty line may precede the request line */
    if (!next_line(&input, &line) || (line.len == 0 && !next_line(&input, &line)))
        return bad_line;
    if (!is_target(line))
        return "the request target must begin with '/' or be an absolute http or https URL\n";
    int lengths = 0, encodings = 0, hosts = 0;
    for (const char *at = input.ptr, *limit = at + input.len;;) {
        const char *feed = memchr(at, '\n', (size_t)(limit - at)), *end;
        if (feed == NULL || feed == at || *(end = feed - 1) != '\r')
            return bad_line;
        if (end == at)
            break;
        switch (*at) { /* most names need no comparison */
        case 'c':
        case 'C':
            lengths += has_name(at, end, MP_STR("content-length"));
            break;
        case 't':
        case 'T':
            encodings += has_name(at, end, MP_STR("transfer-encoding"));
            break;
        case 'h':
        case 'H':
            hosts += has_name(at, end, MP_STR("host"));
            break;
        case ' ': /* continues the line before */
        case '\t':
        case ':':
            return bad_line;
        }
        at = feed + 1;
    }
    if (lengths + encodings > 1 || hosts > 1)
        return "ambiguous request: more than one Content-Length, Transfer-Encoding or Host\n";
    if (encodings > 0 && minor < 1)
        return "ambiguous request: HTTP/1.0 has no Transfer-Encoding\n";
    if (encodings > 0 && !is_decoded)
        return "this build cannot read chunked bodies: send a Content-Length\n";
    return NULL;
}
