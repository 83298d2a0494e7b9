/* inner_answer.c: reads the answer of another process: its head, by libh2o's parser, and its body. */
#include "transfer.h"
#include <picohttpparser.h>

#define MOST_HEADERS 100
#define MOST_LENGTH_DIGITS 15 /* of Content-Length: the number fits */

static bool read_length(mp_transfer *it, mp_str value)
{
    size_t length = 0;
    for (size_t i = 0; i < value.len; i++) {
        if (value.ptr[i] < '0' || value.ptr[i] > '9')
            return false;
        length = length * 10 + (size_t)(value.ptr[i] - '0');
    }
    it->left = length;
    return value.len > 0 && value.len <= MOST_LENGTH_DIGITS;
}

/* Reads how the body ends. False: that is not clear. */
static bool read_framing(mp_transfer *it, const struct phr_header *headers, size_t count)
{
    int lengths = 0, codings = 0;
    for (size_t i = 0; i < count; i++) {
        mp_str name = {headers[i].name, headers[i].name_len};
        mp_str value = mp_str_trim((mp_str){headers[i].value, headers[i].value_len});
        if (mp_str_is_nocase(name, "content-length") && (++lengths > 1 || !read_length(it, value)))
            return false;
        if (mp_str_is_nocase(name, "transfer-encoding") && (++codings > 1 || !mp_str_is_nocase(value, "chunked")))
            return false;
        if (mp_str_is_nocase(name, "connection") && !mp_str_is_nocase(value, "keep-alive"))
            it->is_last = true;
    }
    if (it->status == 204 || it->status == 304 || it->is_head) {
        it->left = 0;
        return true;
    }
    it->is_chunked = codings > 0;
    return lengths + codings == 1;
}

/* True if a line of the head ends with a line feed alone, which the parser takes. */
static bool has_bare_feed(const char *head, size_t size)
{
    const char *end = head + size, *feed = head;
    for (; (feed = memchr(feed, '\n', (size_t)(end - feed))) != NULL; feed++)
        if (feed == head || feed[-1] != '\r')
            return true;
    return false;
}

/* Writes the headers in place of the head, as lines: with a blank for the carriage return that each loses, these are
 * never longer. False: one of them has several lines. */
static bool write_lines(mp_buf *head, const struct phr_header *headers, size_t count)
{
    char *to = head->ptr;
    for (size_t i = 0; i < count; i++) {
        if (headers[i].name == NULL)
            return false;
        memmove(to, headers[i].name, headers[i].name_len);
        to += headers[i].name_len;
        *to++ = ':';
        *to++ = ' ';
        memmove(to, headers[i].value, headers[i].value_len);
        to += headers[i].value_len;
        *to++ = '\n';
    }
    head->len = (size_t)(to - head->ptr);
    return true;
}

/* Reads the head, of which `head` has all bytes that have come; after it comes the body. -2: it is not whole; -1: it is
 * none; else the bytes that follow it. */
static ssize_t read_head(mp_transfer *it)
{
    struct phr_header headers[MOST_HEADERS];
    size_t count = MOST_HEADERS, len;
    const char *text;
    int minor;
    for (;;) {
        int size = phr_parse_response(it->head.ptr, it->head.len, &minor, &it->status, &text, &len, headers, &count,
                                      it->parsed);
        if (size == -2 && it->head.len <= MP_MAX_HEAD_BYTES) {
            it->parsed = it->head.len;
            it->status = 0;
            return -2;
        }
        if (size <= 0 || size > (int)MP_MAX_HEAD_BYTES || it->status < 100 ||
            has_bare_feed(it->head.ptr, (size_t)size)) {
            it->status = 0;
            return -1;
        }
        size_t rest = it->head.len - (size_t)size;
        if (it->status < 200) { /* the final one follows */
            memmove(it->head.ptr, it->head.ptr + size, rest);
            it->head.len = rest;
            it->parsed = 0;
            count = MOST_HEADERS;
            continue;
        }
        it->has_head = true;
        it->is_last = minor == 0;
        bool is_clear = read_framing(it, headers, count) && write_lines(&it->head, headers, count);
        return is_clear ? (ssize_t)rest : -1;
    }
}

/* Takes bytes of the body. Returns 1 if it is complete, 0 if more follows, -1 if it is broken. */
static int take_body(mp_transfer *it, char *bytes, size_t len)
{
    size_t size = len;
    ssize_t after = 0;
    bool is_whole;
    if (it->is_chunked) {
        after = phr_decode_chunked((struct phr_chunked_decoder *)(void *)it->decoder, bytes, &size);
        is_whole = after >= 0;
        if (after == -1)
            return -1;
    } else {
        is_whole = len >= it->left;
        size = is_whole ? it->left : len;
        after = (ssize_t)(len - size);
        it->left -= size;
    }
    it->is_last = it->is_last || (is_whole && after > 0); /* bytes that no request has asked for */
    if (!mp_transfer_put(it, (mp_str){bytes, size}))
        return -1;
    return is_whole ? 1 : 0;
}

_Static_assert(sizeof(struct phr_chunked_decoder) <= sizeof(((mp_transfer *)0)->decoder), "the place of the decoder");

int mp_inner_take(mp_transfer *it, char *bytes, size_t len)
{
    ssize_t rest = (ssize_t)len;
    if (!it->has_head) {
        mp_buf_put(&it->head, (mp_str){bytes, len});
        rest = read_head(it);
        if (rest == -2)
            return 0;
    }
    return rest < 0 ? -1 : take_body(it, bytes + len - (size_t)rest, (size_t)rest);
}
