/* proxy_header.c: reads the header of the PROXY protocol, versions 1 and 2, as HAProxy's doc/proxy-protocol.txt has
 * it. */
#include "forwarded.h"

#define MAX_LINE 107 /* bytes of a header of version 1, with its CR LF */

static mp_proxy_result fail_header(mp_proxy_header *header, const char *why)
{
    header->why = why;
    return MP_PROXY_BROKEN;
}

/* -- version 1: a line of text ------------------------------------------------------------------------------------- */

static bool is_port(mp_str text)
{
    unsigned unused;
    return mp_digits_read(text, 65535, &unused);
}

static mp_proxy_result read_line(mp_str line, mp_proxy_header *header)
{
    mp_str rest = mp_str_from(line, sizeof "PROXY " - 1), family = mp_str_cut(&rest, ' ');
    if (mp_str_is(family, "UNKNOWN"))
        return MP_PROXY_WHOLE;
    bool is_v6 = mp_str_is(family, "TCP6");
    if (!is_v6 && !mp_str_is(family, "TCP4"))
        return fail_header(header, "the PROXY header has another protocol than TCP4, TCP6 and UNKNOWN");
    mp_str from = mp_str_cut(&rest, ' '), to = mp_str_cut(&rest, ' '), from_port = mp_str_cut(&rest, ' ');
    mp_ip unused;
    bool has_colons = memchr(from.ptr == NULL ? "" : from.ptr, ':', from.len) != NULL;
    if (!mp_ip_read(from, &header->ip) || !mp_ip_read(to, &unused) || has_colons != is_v6)
        return fail_header(header, "the PROXY header has no addresses");
    if (!is_port(from_port) || !is_port(rest))
        return fail_header(header, "the PROXY header has no ports");
    header->has_ip = true;
    return MP_PROXY_WHOLE;
}

static mp_proxy_result read_v1(mp_str input, mp_proxy_header *header)
{
    size_t len = input.len < MAX_LINE ? input.len : MAX_LINE;
    const char *end = memchr(input.ptr, '\n', len);
    if (end == NULL)
        return len == MAX_LINE ? fail_header(header, "the PROXY header does not end") : MP_PROXY_PARTIAL;
    header->bytes = (size_t)(end - input.ptr) + 1;
    if (end[-1] != '\r')
        return fail_header(header, "the line of the PROXY header ends without CR LF");
    return read_line((mp_str){input.ptr, header->bytes - 2}, header);
}

/* -- version 2: binary --------------------------------------------------------------------------------------------- */

enum { HEAD = 16, LOCAL = 0x20, PROXY = 0x21 };

/* A family, with its transport, and the bytes of its two addresses and ports. */
typedef struct {
    unsigned char code;
    size_t bytes, address_bytes;
} family;

static const family families[] = {{0x00, 0, 0}, {0x11, 12, 4}, {0x21, 36, 16}, {0x31, 216, 0}};

static mp_proxy_result read_v2(mp_str input, mp_proxy_header *header)
{
    const unsigned char *head = (const unsigned char *)input.ptr;
    if (input.len < HEAD)
        return MP_PROXY_PARTIAL;
    size_t len = (size_t)head[14] << 8 | head[15];
    if (head[12] != LOCAL && head[12] != PROXY)
        return fail_header(header, "the PROXY header has another version than 2, or an unknown command");
    if (HEAD + len > MP_PROXY_HEADER_MAX)
        return fail_header(header, "the PROXY header is too large");
    header->bytes = HEAD + len;
    if (head[12] == LOCAL)
        return input.len < header->bytes ? MP_PROXY_PARTIAL : MP_PROXY_WHOLE;
    const family *found = NULL;
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (families[i].code == head[13])
            found = &families[i];
    if (found == NULL)
        return fail_header(header, "the PROXY header has an address family or a transport that no TCP connection has");
    if (len < found->bytes)
        return fail_header(header, "the PROXY header is shorter than its addresses");
    if (input.len < header->bytes)
        return MP_PROXY_PARTIAL;
    if (found->address_bytes > 0) {
        header->ip = mp_ip_of(head + HEAD, found->address_bytes);
        header->has_ip = true;
    }
    return MP_PROXY_WHOLE;
}

mp_proxy_result mp_proxy_header_read(mp_str input, mp_proxy_header *header)
{
    static const char v1[] = "PROXY ", v2[] = "\r\n\r\n\0\r\nQUIT\n";
    size_t first = input.len < sizeof v1 - 1 ? input.len : sizeof v1 - 1;
    size_t second = input.len < sizeof v2 - 1 ? input.len : sizeof v2 - 1;
    *header = (mp_proxy_header){0};
    if (input.len == 0)
        return MP_PROXY_PARTIAL;
    if (memcmp(input.ptr, v1, first) == 0)
        return first < sizeof v1 - 1 ? MP_PROXY_PARTIAL : read_v1(input, header);
    if (memcmp(input.ptr, v2, second) == 0)
        return read_v2(input, header);
    return fail_header(header, "the connection does not begin with a PROXY header");
}
