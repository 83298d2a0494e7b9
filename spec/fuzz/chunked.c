/* chunked.c: any bytes as a chunked body. Cut anywhere they give the same body and the same end, and both are those of
 * a plain reading of RFC 9112, 7.1. The first byte chooses how they are cut. */
#include "net/server/http.h"
#include <picohttpparser.h>
#include <ctype.h>
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())
#define BROKEN (-1)
#define INCOMPLETE (-2)
#define MOST_DIGITS 15

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* -- a plain reading ----------------------------------------------------------------------------------------------- */

static bool is_text(char c)
{
    return c == '\t' || ((unsigned char)c >= ' ' && c != 127);
}

/* Cuts off a line that ends with CR LF and is otherwise text. Returns BROKEN, INCOMPLETE, or 0. */
static int cut_line(mp_str *rest, mp_str *line)
{
    size_t len = 0;
    while (len < rest->len && is_text(rest->ptr[len]))
        len++;
    *line = (mp_str){rest->ptr, len};
    if (len == rest->len || (rest->ptr[len] == '\r' && len + 1 == rest->len))
        return INCOMPLETE;
    if (rest->ptr[len] != '\r' || rest->ptr[len + 1] != '\n')
        return BROKEN;
    *rest = mp_str_from(*rest, len + 2);
    return 0;
}

/* The digits at the begin of a size line, and their value; what follows them begins an extension. */
static bool read_size(mp_str line, bool is_whole, size_t *value)
{
    size_t digits = 0;
    for (*value = 0;
         digits < line.len && strchr("0123456789abcdefABCDEF", line.ptr[digits]) != NULL && line.ptr[digits] != 0;
         digits++) {
        char text[2] = {line.ptr[digits], '\0'};
        *value = *value << 4 | strtoul(text, NULL, 16);
        if (digits == MOST_DIGITS)
            return false;
    }
    if (digits == line.len)
        return digits > 0 || !is_whole;
    return digits > 0 && line.ptr[digits] == ';';
}

static bool is_trailer(mp_str line, bool is_whole)
{
    size_t name = 0;
    while (name < line.len &&
           (isalnum((unsigned char)line.ptr[name]) || strchr("!#$%&'*+-.^_`|~", line.ptr[name]) != NULL) &&
           line.ptr[name] != '\0')
        name++;
    return name == line.len ? !is_whole || name == 0 : name > 0 && line.ptr[name] == ':';
}

static bool is_size_line(mp_str line, bool is_whole)
{
    size_t value;
    return read_size(line, is_whole, &value);
}

/* Cuts off a line that fits. Where its end is missing, what is there must be able to become one; a CR counts as its
 * end. Returns BROKEN, INCOMPLETE, or 0. */
static int take_line(mp_str *rest, mp_str *line, bool (*fits)(mp_str line, bool is_whole))
{
    size_t len = rest->len;
    int result = cut_line(rest, line);
    return result != BROKEN && fits(*line, line->len < len) ? result : BROKEN;
}

static ssize_t read_trailers(mp_str rest)
{
    mp_str line;
    for (;;) {
        int result = take_line(&rest, &line, is_trailer);
        if (result != 0)
            return result;
        if (line.len == 0)
            return (ssize_t)rest.len;
    }
}

/* Appends the body. Returns the bytes behind it, BROKEN or INCOMPLETE. */
static ssize_t read_plainly(mp_str rest, mp_buf *body)
{
    mp_str line;
    size_t len;
    for (;;) {
        int result = take_line(&rest, &line, is_size_line);
        if (result != 0)
            return result;
        read_size(line, true, &len);
        if (len == 0)
            return read_trailers(rest);
        size_t part = len < rest.len ? len : rest.len;
        mp_buf_put(body, (mp_str){rest.ptr, part});
        rest = mp_str_from(rest, part);
        if ((rest.len > 0 && rest.ptr[0] != '\r') || (rest.len > 1 && rest.ptr[1] != '\n'))
            return BROKEN;
        if (rest.len < 2)
            return INCOMPLETE;
        rest = mp_str_from(rest, 2);
    }
}

/* -- the decoder --------------------------------------------------------------------------------------------------- */

/* Decodes the bytes, `step` at once. */
static ssize_t decode(mp_str text, size_t step, mp_buf *body)
{
    struct phr_chunked_decoder decoder = {0};
    ssize_t result = INCOMPLETE;
    for (size_t at = 0; at < text.len && result == INCOMPLETE; at += step) {
        size_t part = step < text.len - at ? step : text.len - at, size = part;
        char *piece = mp_new(part); /* of its size, so that a sanitizer sees a read behind it */
        memcpy(piece, text.ptr + at, part);
        result = phr_decode_chunked(&decoder, piece, &size);
        MUST(size <= part);
        mp_buf_put(body, (mp_str){piece, size});
        if (result >= 0) {
            MUST((size_t)result <= part &&
                 memcmp(piece + size, text.ptr + at + part - (size_t)result, (size_t)result) == 0);
            result += (ssize_t)(text.len - at - part);
        }
        free(piece);
    }
    return result;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    if (size == 0 ||
        size > 8192) /* longer ones meet the limit of extensions and trailers, which a plain reading lacks */
        return 0;
    mp_str text = {(const char *)data + 1, size - 1};
    mp_scoped_buf whole = {0}, cut = {0}, plain = {0};
    ssize_t result = decode(text, text.len + 1, &whole), in_parts = decode(text, data[0] % 7 + 1, &cut);
    ssize_t expected = read_plainly(text, &plain);
    MUST(result == in_parts && result == expected);
    MUST(mp_str_eq(mp_buf_str(&whole), mp_buf_str(&cut)));
    MUST(mp_str_eq(mp_buf_str(&whole), mp_buf_str(&plain)));
    return 0;
}
