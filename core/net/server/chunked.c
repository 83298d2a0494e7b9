/* chunked.c: decodes chunked bodies strictly (RFC 9112, 7.1). A proxy in front that requires CR LF
 * reads a line that ends with a bare LF differently, so a client could hide a second request in the body of its first
 * (request smuggling).
 *
 * So this file defines `phr_decode_chunked` in place of libh2o's weak one (cmake/patches/h2o). */
#include "http.h"

#define MAX_DIGITS 15        /* digits in a chunk size, leading zeros included: the value fits 64 bits */
#define INCOMPLETE (-2)      /* tells libh2o that more bytes have to come */
#define BROKEN (-1)          /* tells libh2o to refuse the request */
#define MAX_SIDE_BYTES 16384 /* bytes of extensions and trailers of one body */

typedef enum { SIZE, EXTENSION, SIZE_LF, DATA, DATA_CR, DATA_LF, LINE, NAME, VALUE, VALUE_LF, LAST_LF } chunk_state;

/* libh2o clears the 16 bytes of its own struct at this address and never reads them. */
typedef struct {
    size_t left;          /* bytes of the current chunk that are still to come */
    char consume_trailer; /* set by libh2o; 0: the body is an answer to the gateway's own client (inner_answer.c) */
    uint8_t digits;       /* digits of the size line read so far */
    uint8_t state;        /* a chunk_state */
    uint32_t side_bytes;  /* bytes of extensions and trailers read so far */
} decoder;
_Static_assert(sizeof(decoder) == 16, "the decoder's place in libh2o's request");

static __thread bool was_decoded;

bool mp_chunked_was_decoded(void)
{
    bool was = was_decoded;
    was_decoded = false;
    return was;
}

static int hex_value(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c |= 0x20;
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static bool is_text(char c)
{
    return c == '\t' || ((unsigned char)c >= ' ' && c != 127);
}

/* True for the characters of a header name (RFC 9110, 5.6.2). */
static bool is_token(char c)
{
    return (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') ||
           (c != '\0' && strchr("!#$%&'*+-.^_`|~", c) != NULL);
}

static bool step_size(decoder *d, char c)
{
    int digit = hex_value(c);
    if (digit >= 0) {
        d->left = d->left << 4 | (size_t)digit;
        return ++d->digits <= MAX_DIGITS;
    }
    d->state = c == ';' ? EXTENSION : SIZE_LF;
    return d->digits > 0 && (c == ';' || c == '\r');
}

static bool step_text(decoder *d, char c, chunk_state after)
{
    if (c == '\r')
        d->state = (uint8_t)after;
    return c == '\r' || (is_text(c) && ++d->side_bytes <= MAX_SIDE_BYTES);
}

/* Reads one byte of the trailers: `name ":" text`; an empty line ends the body. */
static bool step_trailer(decoder *d, char c)
{
    if (d->state == LINE && c == '\r')
        d->state = LAST_LF;
    else if (d->state == NAME && c == ':')
        d->state = VALUE;
    else if (is_token(c) && ++d->side_bytes <= MAX_SIDE_BYTES)
        d->state = NAME;
    else
        return false;
    return true;
}

static bool step_line_feed(decoder *d, char c)
{
    if (d->state == SIZE_LF)
        d->state = d->left > 0 ? DATA : LINE;
    else
        d->state = d->state == DATA_LF ? SIZE : LINE;
    d->digits = 0;
    return c == '\n';
}

/* Reads one byte outside of a chunk's data. False if the byte is not allowed there. */
static bool step_decoder(decoder *d, char c)
{
    switch ((chunk_state)d->state) {
    case SIZE:
        return step_size(d, c);
    case EXTENSION:
        return step_text(d, c, SIZE_LF);
    case DATA_CR:
        d->state = DATA_LF;
        return c == '\r';
    case VALUE:
        return step_text(d, c, VALUE_LF);
    case SIZE_LF:
    case DATA_LF:
    case VALUE_LF:
        return step_line_feed(d, c);
    default:
        return step_trailer(d, c);
    }
}

/* Replaces libh2o's function of this name: removes the framing from `bytes` in place and sets `size` to the number
 * of bytes of body left. Returns the number of bytes that follow the body once it is complete, else INCOMPLETE or
 * BROKEN. */
ssize_t phr_decode_chunked(decoder *d, char *bytes, size_t *size)
{
    size_t from = 0, to = 0, end = *size;
    ssize_t result = INCOMPLETE;
    while (from < end && result == INCOMPLETE) {
        if (d->state == DATA) {
            size_t part = d->left < end - from ? d->left : end - from;
            memmove(bytes + to, bytes + from, part);
            from += part;
            to += part;
            d->left -= part;
            if (d->left == 0)
                d->state = DATA_CR;
        } else if (d->state == LAST_LF) {
            result = bytes[from++] == '\n' ? (ssize_t)(end - from) : BROKEN;
            was_decoded = result != BROKEN && d->consume_trailer;
        } else if (!step_decoder(d, bytes[from++])) {
            result = BROKEN;
        }
    }
    if (result >= 0)
        memmove(bytes + to, bytes + from, end - from);
    *size = to;
    return result;
}
