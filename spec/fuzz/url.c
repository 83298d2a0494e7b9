/* url.c: any text as a URL, alone and relative to another one. What is made of it is a URL that means the same when it
 * is read again, has no credentials, and a host that is written in one way only. */
#include "net/net.h"
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void check_host(const char *host)
{
    char address[MP_ADDRESS_TEXT];
    size_t len = strlen(host);
    MUST(len > 0 && host[0] != '[' && host[len - 1] != '.');
    for (const char *c = host; *c != '\0'; c++)
        MUST(strchr("abcdefghijklmnopqrstuvwxyz0123456789-._:", *c) != NULL);
    if (strchr(host, ':') != NULL)
        MUST(mp_address_canonical(host, address) && strcmp(host, address) == 0);
}

/* The text begins with the scheme, "://" and the host: what a reader of it takes for the host is the one that is
 * checked. */
static void check_text(const mp_url *url)
{
    MUST(strcmp(url->scheme, "http") == 0 || strcmp(url->scheme, "https") == 0);
    mp_str rest = mp_str_of(url->text), scheme = mp_str_cut(&rest, ':');
    MUST(mp_str_is(scheme, url->scheme) && mp_str_starts(rest, MP_STR("//")));
    rest = mp_str_from(rest, 2);
    size_t len = 0;
    while (len < rest.len && strchr("/?#", rest.ptr[len]) == NULL)
        len++;
    mp_str authority = {rest.ptr, len};
    MUST(memchr(authority.ptr, '@', authority.len) == NULL && memchr(rest.ptr, '#', rest.len) == NULL);
    if (mp_str_starts(authority, MP_STR("[")))
        authority = mp_str_from(authority, 1);
    MUST(mp_str_starts(authority, mp_str_of(url->host)));
    mp_str after = mp_str_from(authority, strlen(url->host));
    MUST(after.len == 0 || after.ptr[0] == ':' || after.ptr[0] == ']');
}

static void check(const char *text, const char *base)
{
    mp_err err;
    mp_url url, again;
    if (mp_url_parse(&url, text, base, &err) != 0) {
        MUST(url.text == NULL && err.text[0] != '\0');
        return;
    }
    check_host(url.host);
    check_text(&url);
    MUST(url.port != 0 && url.path[0] == '/');
    MUST(mp_url_parse(&again, url.text, NULL, &err) == 0);
    MUST(strcmp(url.text, again.text) == 0 && strcmp(url.host, again.host) == 0 && strcmp(url.path, again.path) == 0 &&
         strcmp(url.scheme, again.scheme) == 0 && url.port == again.port);
    mp_url_clear(&again);
    mp_url_clear(&url);
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    char *text = mp_dup((mp_str){(const char *)data, size});
    check(text, NULL);
    check(text, "https://example.com:8443/a/b?c=d");
    free(text);
    return 0;
}
