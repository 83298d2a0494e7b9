/* framing.c: refuses requests whose head is ambiguous about where the request ends or which host it is for. libh2o
 * uses the first of two lengths, the last of two Hosts, chunked encoding before a length, and accepts bare line
 * feeds. A proxy in front may interpret such a request differently and so see other requests on the same connection
 * (request smuggling). chunked.c does the same check for chunked bodies.
 *
 * It defines `h2o_http1_refused` in place of libh2o's weak one (cmake/patches/h2o), which has no handler for what it
 * refuses. */
#include "http.h"
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* Replaces libh2o's function of this name. */
int h2o_http1_refused(h2o_socket_t *socket, h2o_req_t *MP_NULLABLE req, int status, const char *why);

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

/* How many header lines of each kind have been read so far. */
typedef struct {
    int lengths, encodings, hosts;
} head_counts;

typedef enum { NEXT_LINE, LAST_LINE, BAD_LINE } line_kind;

/* True if the header line from `at` to `end`, where its CR is, has this name. */
static inline bool has_name(const char *at, const char *end, mp_str name)
{
    size_t len = (size_t)(end - at);
    return len >= name.len && (len == name.len || at[name.len] == ':') && strncasecmp(at, name.ptr, name.len) == 0;
}

/* Counts the header line from `at` to its LF at `feed`. Only names are compared that begin with the first letter of a
 * counted name. */
static inline line_kind count_line(head_counts *counts, const char *at, const char *feed)
{
    const char *end = feed - 1;
    if (feed == at || *end != '\r')
        return BAD_LINE;
    switch (*at) {
    case '\r':
        return end == at ? LAST_LINE : NEXT_LINE;
    case 'c':
    case 'C':
        counts->lengths += has_name(at, end, MP_STR("content-length"));
        return NEXT_LINE;
    case 't':
    case 'T':
        counts->encodings += has_name(at, end, MP_STR("transfer-encoding"));
        return NEXT_LINE;
    case 'h':
    case 'H':
        counts->hosts += has_name(at, end, MP_STR("host"));
        return NEXT_LINE;
    case ' ': /* continues the line before */
    case '\t':
    case ':':
        return BAD_LINE;
    default:
        return NEXT_LINE;
    }
}

/* Counts the header lines of `text` up to the empty one. False if there is none, or if a line before it is bad. */
static bool count_lines(head_counts *counts, mp_str text)
{
    const char *line = text.ptr, *at = line, *end = line + text.len;
    line_kind kind;
#ifdef __SSE2__
    const __m128i feeds = _mm_set1_epi8('\n');
    for (; end - at >= 16; at += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)at);
        unsigned found = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(bytes, feeds));
        for (; found != 0; found &= found - 1) {
            const char *feed = at + __builtin_ctz(found);
            if ((kind = count_line(counts, line, feed)) != NEXT_LINE)
                return kind == LAST_LINE;
            line = feed + 1;
        }
    }
#endif
    for (; at < end; at++) {
        if (*at != '\n')
            continue;
        if ((kind = count_line(counts, line, at)) != NEXT_LINE)
            return kind == LAST_LINE;
        line = at + 1;
    }
    return false;
}

const char *MP_NULLABLE mp_framing_fault(mp_str input, int minor)
{
    static const char bad_line[] = "ambiguous request: a header line ends without CR LF or is folded\n";
    bool is_decoded = mp_chunked_was_decoded();
    mp_str line;
    /* one empty line may precede the request line */
    if (!next_line(&input, &line) || (line.len == 0 && !next_line(&input, &line)))
        return bad_line;
    if (!is_target(line))
        return "the request target must begin with '/' or be an absolute http or https URL\n";
    head_counts counts = {0};
    if (!count_lines(&counts, input))
        return bad_line;
    if (counts.lengths + counts.encodings > 1 || counts.hosts > 1)
        return "ambiguous request: more than one Content-Length, Transfer-Encoding or Host\n";
    if (counts.encodings > 0 && minor < 1)
        return "ambiguous request: HTTP/1.0 has no Transfer-Encoding\n";
    if (counts.encodings > 0 && !is_decoded)
        return "this build cannot read chunked bodies: send a Content-Length\n";
    return NULL;
}

/* -- what libh2o refuses ------------------------------------------------------------------------------------------- */

/* True if the connection begins with a ClientHello, and has no TLS: https:// was written for http://. */
static bool is_client_hello(const mp_conn *conn)
{
    const h2o_buffer_t *input = conn->socket->input;
    return conn->opened_at != 0 && conn->tls == NULL && input->size >= 2 && input->bytes[0] == 0x16 &&
           input->bytes[1] == 3;
}

/* HTTP/1: a request whose head was read is answered as on_request answers those that it refuses. What libh2o answers or
 * closes by itself is counted. */
int h2o_http1_refused(h2o_socket_t *socket, h2o_req_t *MP_NULLABLE req, int status, const char *why)
{
    mp_conn *conn = mp_conn_of(socket);
    if (conn == NULL || conn->is_refused)
        return 0;
    mp_cause cause = status == 413 || status == 431 ? MP_CAUSE_SIZE : status == 408 ? MP_CAUSE_TIME : MP_CAUSE_HTTP;
    if (req == NULL && is_client_hello(conn)) {
        cause = MP_CAUSE_SCHEME;
        why = "TLS was sent to a listener that speaks plain HTTP: http:// is its scheme";
    }
    if (req == NULL) {
        mp_conn_refused(conn, cause, mp_str_of(why));
        return 0;
    }
    mp_early_refusal refusal = {cause, status,
                                status == 413 ? MP_STR("the request body is too large\n") : mp_str_of(why)};
    conn->refusal = &refusal;
    h2o_process_request(req);
    conn->refusal = NULL;
    return 1;
}
