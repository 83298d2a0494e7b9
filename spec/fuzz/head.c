/* head.c: any bytes as the head of a request. The check for ambiguous heads agrees with a plain reading of the lines;
 * and where it finds nothing, libh2o's parser has found the same names: one length, one host. */
#include "net/server/http.h"
#include <picohttpparser.h>
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())
#define MOST_HEADERS 100

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* Cuts a line off that ends with CR LF; false: the bytes up to the next LF are no such line. */
static bool cut_line(mp_str *rest, mp_str *line)
{
    const char *feed = rest->len == 0 ? NULL : memchr(rest->ptr, '\n', rest->len);
    if (feed == NULL || feed == rest->ptr || feed[-1] != '\r')
        return false;
    *line = (mp_str){rest->ptr, (size_t)(feed - rest->ptr) - 1};
    *rest = mp_str_from(*rest, line->len + 2);
    return true;
}

static bool is_named(mp_str line, const char *name)
{
    size_t len = strlen(name);
    return line.len >= len && strncasecmp(line.ptr, name, len) == 0 && (line.len == len || line.ptr[len] == ':');
}

/* True if the lines after the request line say one length and one host at most, and end. */
static bool is_plain(mp_str rest, int minor)
{
    mp_str line;
    int lengths = 0, encodings = 0, hosts = 0;
    while (cut_line(&rest, &line)) {
        if (line.len == 0)
            return lengths + encodings <= 1 && hosts <= 1 && (encodings == 0 || minor >= 1);
        if (strchr(" \t:", line.ptr[0]) != NULL && line.ptr[0] != '\0')
            return false;
        lengths += is_named(line, "content-length");
        encodings += is_named(line, "transfer-encoding");
        hosts += is_named(line, "host");
    }
    return false;
}

static bool skip_request_line(mp_str *rest)
{
    mp_str line;
    return cut_line(rest, &line) && (line.len > 0 || cut_line(rest, &line));
}

/* What libh2o serves by this head has no second meaning: its parser sees no more lines of these names than one. */
static void check_parsed(mp_str text)
{
    const char *method, *target;
    size_t method_len, target_len, count = MOST_HEADERS;
    struct phr_header headers[MOST_HEADERS];
    int minor = 0, lengths = 0, hosts = 0;
    int used =
        phr_parse_request(text.ptr, text.len, &method, &method_len, &target, &target_len, &minor, headers, &count, 0);
    if (used <= 0 || mp_framing_fault((mp_str){text.ptr, (size_t)used}, minor) != NULL)
        return;
    MUST(target_len > 0 && (target[0] == '/' || target[0] == '*' || memchr(target, ':', target_len) != NULL));
    for (size_t i = 0; i < count; i++) {
        MUST(headers[i].name != NULL); /* NULL: it continues the line before */
        mp_str name = {headers[i].name, headers[i].name_len};
        lengths += mp_str_is_nocase(name, "content-length") || mp_str_is_nocase(name, "transfer-encoding");
        hosts += mp_str_is_nocase(name, "host");
    }
    MUST(lengths <= 1 && hosts <= 1);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char *copy = mp_new(size + 1), chunks[] = "0\r\n\r\n";
    size_t room = sizeof chunks - 1;
    struct phr_chunked_decoder decoder = {.consume_trailer = 1}; /* as libh2o has it, for requests */
    int minor = size > 0 ? data[0] & 1 : 0;
    memcpy(copy, data, size);
    mp_str text = {copy, size}, rest = text;
    phr_decode_chunked(&decoder, chunks, &room); /* this build reads chunks */
    const char *fault = mp_framing_fault(text, minor);
    if (fault == NULL)
        MUST(skip_request_line(&rest) && is_plain(rest, minor));
    else if (strstr(fault, "target") == NULL)
        MUST(!skip_request_line(&rest) || !is_plain(rest, minor));
    check_parsed(text);
    free(copy);
    return 0;
}
