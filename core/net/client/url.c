/* url.c: parses URLs with libcurl, so that the host that is checked is the host that libcurl connects to. */
#include "transfer.h"

/* Copies a part to `*own`. False if the URL does not have it. */
static bool take_part(const mp_curl_api *curl, CURLU *handle, CURLUPart part, char **own)
{
    char *text = NULL;
    if (curl->url_get(handle, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK)
        return false;
    *own = mp_dup(mp_str_of(text));
    curl->free(text);
    return true;
}

/* True for labels with dots between them, and none at the end. */
static bool is_name(const char *host)
{
    char before = '.';
    for (const char *c = host; *c != '\0'; before = *c++)
        if (*c == '.' ? before == '.'
                      : !((*c >= 'a' && *c <= 'z') || (*c >= '0' && *c <= '9') || *c == '-' || *c == '_'))
            return false;
    return before != '.';
}

/* Normalizes a host: lower case, no final dot, IPv6 without brackets. */
static bool make_normal(char **own)
{
    char *host = *own, address[MP_ADDRESS_TEXT];
    size_t len = strlen(host);
    if (len > 2 && host[0] == '[' && host[len - 1] == ']') {
        host[len - 1] = '\0';
        if (!mp_address_canonical(host + 1, address))
            return false;
        *own = mp_dup(mp_str_of(address));
        free(host);
        return true;
    }
    for (char *c = host; *c != '\0'; c++)
        if (*c >= 'A' && *c <= 'Z')
            *c = (char)(*c | 0x20);
    if (len > 1 && host[len - 1] == '.')
        host[len - 1] = '\0';
    const char *dot = strrchr(host, '.'), *last = dot == NULL ? host : dot + 1;
    if (*last >= '0' && *last <= '9' && (strspn(last, "0123456789") == strlen(last) || last[1] == 'x'))
        return mp_address_canonical(host, address) && strcmp(host, address) == 0;
    return is_name(host);
}

static int set_host(const mp_curl_api *curl, CURLU *handle, const char *host)
{
    char bracketed[MP_ADDRESS_TEXT + 2];
    if (strchr(host, ':') == NULL)
        return curl->url_set(handle, CURLUPART_HOST, host, 0) == CURLUE_OK ? 0 : -1;
    mp_scoped_buf text = {0};
    mp_buf_printf(&text, "[%s]%c", host, '\0');
    bool fits = text.len <= sizeof bracketed;
    if (fits)
        memcpy(bracketed, text.ptr, text.len);
    return fits && curl->url_set(handle, CURLUPART_HOST, bracketed, 0) == CURLUE_OK ? 0 : -1;
}

static int has_control(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++)
        if (*c <= ' ' || *c == 0x7f)
            return 1;
    return 0;
}

static int read_parts(mp_url *url, const mp_curl_api *curl, CURLU *handle, mp_err *err)
{
    char *part = NULL;
    if (take_part(curl, handle, CURLUPART_USER, &part) || take_part(curl, handle, CURLUPART_PASSWORD, &part)) {
        free(part);
        mp_err_set(err, "the URL contains credentials");
        return mp_err_hint(err, "send them in a header: authorization");
    }
    if (!take_part(curl, handle, CURLUPART_SCHEME, &url->scheme) ||
        (strcmp(url->scheme, "http") != 0 && strcmp(url->scheme, "https") != 0))
        return mp_err_set(err, "the URL's scheme must be http or https");
    if (!take_part(curl, handle, CURLUPART_HOST, &url->host) || !make_normal(&url->host)) {
        mp_err_set(err, "the URL has no valid host");
        return mp_err_hint(err,
                           "a host has letters, digits, '-' and '.'; write international names in their xn-- form");
    }
    if (take_part(curl, handle, CURLUPART_PORT, &part))
        url->port = (uint16_t)strtoul(part, NULL, 10);
    free(part);
    if (url->port == 0)
        return mp_err_set(err, "the URL has an invalid port");
    curl->url_set(handle, CURLUPART_FRAGMENT, NULL, 0);
    if (set_host(curl, handle, url->host) != 0)
        return mp_err_set(err, "the URL has no valid host");
    char *text = NULL;
    if (!take_part(curl, handle, CURLUPART_PATH, &url->path) ||
        curl->url_get(handle, CURLUPART_URL, &text, CURLU_NO_DEFAULT_PORT) != CURLUE_OK)
        return mp_err_set(err, "not a URL");
    url->text = mp_dup(mp_str_of(text));
    curl->free(text);
    return 0;
}

int mp_url_parse(mp_url *url, const char *text, const char *MP_NULLABLE base, mp_err *err)
{
    *url = (mp_url){0};
    const mp_curl_api *curl = mp_curl(err);
    if (curl == NULL)
        return -1;
    if (has_control(text))
        return mp_err_set(err, "the URL contains spaces or control characters");
    CURLU *handle = curl->url();
    int result = -1;
    if (handle == NULL || (base != NULL && curl->url_set(handle, CURLUPART_URL, base, 0) != CURLUE_OK) ||
        curl->url_set(handle, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME | CURLU_URLENCODE) != CURLUE_OK) {
        mp_err_set(err, "not a URL");
        mp_err_hint(err, "write a URL such as https://example.com/path");
    } else {
        result = read_parts(url, curl, handle, err);
    }
    if (handle != NULL)
        curl->url_cleanup(handle);
    if (result != 0)
        mp_url_clear(url);
    return result;
}

void mp_url_clear(mp_url *url)
{
    free(url->text);
    free(url->scheme);
    free(url->host);
    free(url->path);
    *url = (mp_url){0};
}
