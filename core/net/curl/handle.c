/* handle.c: the options of a handle. */
#include "handle.h"

#define SET(option, value) curl->easy_setopt(easy, (option), (value))

mp_handle *MP_NULLABLE mp_handle_new(const mp_curl_api *curl)
{
    CURL *easy = curl->easy_init();
    CURLU *parsed = curl->url();
    if (easy == NULL || parsed == NULL) {
        curl->easy_cleanup(easy);
        curl->url_cleanup(parsed);
        return NULL;
    }
    mp_handle *handle = mp_new(sizeof *handle);
    handle->easy = easy;
    handle->parsed = parsed;
    return handle;
}

static void forget_options(mp_handle *handle)
{
    const mp_handle_options *has = &handle->has;
    const char *texts[] = {has->method, has->url, has->ca, has->certificate, has->key};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        free((char *)(uintptr_t)texts[i]);
    handle->has = (mp_handle_options){.method = MP_UNSET, .url = MP_UNSET};
}

void mp_handle_free(const mp_curl_api *curl, mp_handle *handle)
{
    curl->easy_cleanup(handle->easy);
    curl->url_cleanup(handle->parsed);
    forget_options(handle);
    free(handle);
}

static bool is_same(const char *MP_NULLABLE a, const char *MP_NULLABLE b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

/* True if two requests differ in URL, body and headers at most. */
static bool is_alike(const mp_handle_options *a, const mp_handle_options *b)
{
    return is_same(a->method, b->method) && (a->body.ptr == NULL) == (b->body.ptr == NULL) &&
           a->is_stream == b->is_stream && a->connect_ms == b->connect_ms && a->idle_ms == b->idle_ms &&
           is_same(a->ca, b->ca) && is_same(a->certificate, b->certificate) && is_same(a->key, b->key);
}

static void set_callbacks(const mp_curl_api *curl, mp_handle *handle, const mp_handle_hooks *hooks, void *ctx)
{
    CURL *easy = handle->easy;
    SET(CURLOPT_PRIVATE, handle);
    SET(CURLOPT_HEADERFUNCTION, hooks->on_header);
    SET(CURLOPT_HEADERDATA, handle);
    SET(CURLOPT_WRITEFUNCTION, hooks->on_body);
    SET(CURLOPT_WRITEDATA, handle);
    SET(CURLOPT_OPENSOCKETFUNCTION, hooks->on_open);
    SET(CURLOPT_OPENSOCKETDATA, handle);
    SET(CURLOPT_CLOSESOCKETFUNCTION, hooks->on_close);
    SET(CURLOPT_CLOSESOCKETDATA, ctx);
    SET(CURLOPT_PREREQFUNCTION, hooks->on_connected);
    SET(CURLOPT_PREREQDATA, handle);
    SET(CURLOPT_ERRORBUFFER, handle->error);
}

static void set_method(const mp_curl_api *curl, CURL *easy, const mp_handle_options *options)
{
    if (strcmp(options->method, "HEAD") == 0)
        SET(CURLOPT_NOBODY, 1L);
    else
        SET(CURLOPT_CUSTOMREQUEST, options->method);
    if (options->is_stream)
        SET(CURLOPT_HTTP_CONTENT_DECODING, 0L);
    else
        SET(CURLOPT_ACCEPT_ENCODING, "gzip, deflate");
}

static void set_connection(const mp_curl_api *curl, CURL *easy, const mp_handle_options *options)
{
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_DNS_CACHE_TIMEOUT, MP_NAMES_S);
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_MAXAGE_CONN, (long)(options->idle_ms / 1000));
    mp_curl_trust(curl, easy, options->ca);
    if (options->certificate != NULL)
        SET(CURLOPT_SSLCERT, options->certificate);
    if (options->key != NULL)
        SET(CURLOPT_SSLKEY, options->key);
    if (options->connect_ms > 0)
        SET(CURLOPT_CONNECTTIMEOUT_MS, (long)options->connect_ms);
}

/* Sets all options but URL and body, and forgets those of the request before. */
static void set_anew(const mp_curl_api *curl, mp_handle *handle, const mp_handle_options *options,
                     const mp_handle_hooks *hooks, void *ctx)
{
    curl->easy_reset(handle->easy);
    forget_options(handle);
    handle->is_spent = false;
    set_callbacks(curl, handle, hooks, ctx);
    set_method(curl, handle->easy, options);
    set_connection(curl, handle->easy, options);
    handle->has = *options;
    handle->has.method = mp_dup(mp_str_of(options->method));
    handle->has.url = MP_UNSET;
    handle->has.ca = mp_dup_text(options->ca);
    handle->has.certificate = mp_dup_text(options->certificate);
    handle->has.key = mp_dup_text(options->key);
}

/* The URL is parsed here, once, and not for each request. */
static int set_url(const mp_curl_api *curl, mp_handle *handle, const char *url)
{
    CURL *easy = handle->easy;
    if (is_same(handle->has.url, url))
        return 0;
    free((char *)(uintptr_t)handle->has.url);
    handle->has.url = MP_UNSET;
    if (curl->url_set(handle->parsed, CURLUPART_URL, url, 0) != CURLUE_OK || SET(CURLOPT_URL, url) != CURLE_OK)
        return -1;
    SET(CURLOPT_CURLU, handle->parsed);
    handle->has.url = mp_dup(mp_str_of(url));
    return 0;
}

int mp_handle_set(const mp_curl_api *curl, mp_handle *handle, const mp_handle_options *options,
                  const mp_handle_hooks *hooks, void *ctx)
{
    CURL *easy = handle->easy;
    *handle->error = '\0';
    if (handle->is_spent || !is_alike(&handle->has, options))
        set_anew(curl, handle, options, hooks, ctx);
    if (options->body.ptr != NULL && strcmp(options->method, "HEAD") != 0) {
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)options->body.len);
        SET(CURLOPT_POSTFIELDS, options->body.ptr);
    }
    return set_url(curl, handle, options->url);
}

void mp_handle_set_connect_ms(const mp_curl_api *curl, mp_handle *handle, uint64_t ms)
{
    curl->easy_setopt(handle->easy, CURLOPT_CONNECTTIMEOUT_MS, (long)ms);
    handle->has.connect_ms = ms;
}
