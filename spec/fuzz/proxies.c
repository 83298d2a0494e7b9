/* proxies.c: X-Forwarded-For, Forwarded, PROXY headers and items of trusted_proxies of any bytes. What a client writes
 * before the part that a proxy appended changes nothing, and a header that comes in pieces is read as one that comes
 * whole. */
#include "net/server/forwarded.h"
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static mp_forwarded read_line(const mp_proxies *proxies, mp_str line, bool is_rfc7239)
{
    mp_forwarded list = {.proxies = proxies};
    mp_forwarded_take(&list, line, is_rfc7239);
    MUST(list.hops <= MP_FORWARDED_HOPS + 1 && (!list.is_unclear || list.is_over));
    return list;
}

/* A trusted proxy has appended the client's address: the client is found, whatever it wrote. */
static void check_appended(const mp_proxies *proxies, mp_str text, bool is_rfc7239)
{
    static const char *const ends[][2] = {
        {", 192.0.2.7", ", for=192.0.2.7"},
        {",192.0.2.7, 10.1.2.3", ",for=192.0.2.7;by=\"_a,\\\"b\", FOR=\"10.1.2.3:80\""},
        {", [::ffff:c000:207]:80", ", proto=http;For=\"[::ffff:192.0.2.7]:80\""},
    };
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        mp_buf line = {0};
        char found[MP_ADDRESS_TEXT] = "";
        mp_buf_put(&line, text);
        mp_buf_put(&line, mp_str_of(ends[i][is_rfc7239]));
        mp_forwarded list = read_line(proxies, mp_buf_str(&line), is_rfc7239);
        MUST(list.has_ip && list.is_over && !list.is_unclear);
        mp_ip_write(&list.ip, found);
        MUST(strcmp(found, "192.0.2.7") == 0);
        mp_buf_clear(&line);
    }
}

static void check_header(mp_str text)
{
    mp_proxy_header whole, part;
    mp_proxy_result result = mp_proxy_header_read(text, &whole);
    MUST(result != MP_PROXY_WHOLE ||
         (whole.bytes > 0 && whole.bytes <= text.len && whole.bytes <= MP_PROXY_HEADER_MAX));
    MUST((result == MP_PROXY_BROKEN) == (whole.why != NULL));
    MUST(result != MP_PROXY_PARTIAL || text.len < MP_PROXY_HEADER_MAX);
    for (size_t len = 0; len < text.len && len <= MP_PROXY_HEADER_MAX; len++) {
        mp_proxy_result now = mp_proxy_header_read((mp_str){text.ptr, len}, &part);
        if (now == MP_PROXY_PARTIAL)
            continue;
        MUST(now == result && part.bytes == whole.bytes && part.has_ip == whole.has_ip);
        MUST(memcmp(&part.ip, &whole.ip, sizeof part.ip) == 0 || now == MP_PROXY_BROKEN);
        return;
    }
}

static void check_item(mp_str text)
{
    mp_err err;
    char copy[64] = "";
    if (text.len >= sizeof copy || memchr(text.ptr, '\0', text.len) != NULL || mp_proxies_check(text, &err) != 0)
        return;
    memcpy(copy, text.ptr, text.len);
    mp_proxies *proxies = mp_proxies_new((char *[]){copy, NULL});
    MUST(proxies != NULL);
    mp_ip ip;
    mp_str rest = text, address = mp_str_cut(&rest, '/');
    MUST(mp_proxies_have_unix(proxies) || (mp_ip_read(address, &ip) && mp_proxies_have(proxies, &ip)));
    mp_proxies_free(proxies);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char *items[] = {(char[]){"10.0.0.0/8"}, (char[]){"2001:db8::/32"}, NULL};
    mp_proxies *proxies = mp_proxies_new(items);
    char *copy = malloc(size == 0 ? 1 : size); /* of its size, so that a sanitizer sees a read behind it */
    MUST(copy != NULL && proxies != NULL);
    memcpy(copy, data, size);
    mp_str text = {copy, size};
    read_line(proxies, text, false);
    read_line(proxies, text, true);
    check_appended(proxies, text, false);
    check_appended(proxies, text, true);
    check_header(text);
    check_item(text);
    mp_proxies_free(proxies);
    free(copy);
    return 0;
}
