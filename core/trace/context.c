/* context.c: traceparent and tracestate (W3C Trace Context, level 2). */
#include "trace.h"

static int hex_digit(char c)
{
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Reads `count` bytes of lower-case hexadecimal digits. False for other characters. */
static bool read_hex(uint8_t *to, const char *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        int high = hex_digit(from[2 * i]), low = hex_digit(from[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        to[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static bool is_zero(const uint8_t *bytes, size_t count)
{
    uint8_t all = 0;
    for (size_t i = 0; i < count; i++)
        all |= bytes[i];
    return all == 0;
}

enum { TRACE_AT = 3, SPAN_AT = 36, FLAGS_AT = 53 };

bool mp_trace_context_read(mp_trace_context *context, mp_str text)
{
    uint8_t version, flags;
    if (text.len < MP_TRACEPARENT_BYTES || text.ptr[2] != '-' || text.ptr[SPAN_AT - 1] != '-' ||
        text.ptr[FLAGS_AT - 1] != '-')
        return false;
    if (!read_hex(&version, text.ptr, 1) || version == 0xff || !read_hex(context->trace, text.ptr + TRACE_AT, 16) ||
        !read_hex(context->span, text.ptr + SPAN_AT, 8) || !read_hex(&flags, text.ptr + FLAGS_AT, 1))
        return false;
    if (text.len > MP_TRACEPARENT_BYTES && (version == 0 || text.ptr[MP_TRACEPARENT_BYTES] != '-'))
        return false;
    context->is_sampled = (flags & 1) != 0;
    return !is_zero(context->trace, 16) && !is_zero(context->span, 8);
}

void mp_trace_context_write(const mp_trace_context *context, char room[MP_TRACEPARENT_BYTES + 1])
{
    char *at = room;
    *at++ = '0';
    *at++ = '0';
    *at++ = '-';
    at = mp_hex_put(at, context->trace, 16);
    *at++ = '-';
    at = mp_hex_put(at, context->span, 8);
    *at++ = '-';
    *at++ = '0';
    *at++ = context->is_sampled ? '1' : '0';
    *at = '\0';
}

bool mp_trace_state_is_valid(mp_str text)
{
    size_t members = 1;
    if (text.len == 0 || text.len > MP_TRACESTATE_BYTES)
        return false;
    for (size_t i = 0; i < text.len; i++) {
        if (text.ptr[i] < ' ' || text.ptr[i] > '~')
            return false;
        members += text.ptr[i] == ',';
    }
    return members <= MP_TRACESTATE_MEMBERS;
}
