/* handle.h: a handle of libcurl that remembers the options it has, so that a request sets only those that differ from
 * the request before: the requests to one upstream differ in their bodies and headers alone. */
#ifndef MP_NET_HANDLE_H
#define MP_NET_HANDLE_H

#include "curl.h"

/* What is set of a request; all but the body is copied. */
typedef struct {
    const char *method, *url;
    mp_str body; /* ptr == NULL: none */
    bool is_stream;
    const char *MP_NULLABLE ca, *MP_NULLABLE certificate, *MP_NULLABLE key;
    uint64_t connect_ms, idle_ms;
} mp_handle_options;

/* The callbacks, called with the handle; but on_close with `ctx`. */
typedef struct {
    curl_write_callback on_header, on_body;
    curl_opensocket_callback on_open;
    curl_prereq_callback on_connected;
    curl_closesocket_callback on_close;
} mp_handle_hooks;

typedef struct {
    CURL *easy;
    void *owner;   /* of which the callbacks are */
    bool is_spent; /* a request failed or was sent twice, which libcurl counts: the next one begins anew */
    char error[CURL_ERROR_SIZE];
    CURLU *parsed;         /* of the URL */
    mp_handle_options has; /* own copies of its texts, but for the body; method: MP_UNSET if it has no options yet */
} mp_handle;

mp_handle *MP_NULLABLE mp_handle_new(const mp_curl_api *curl);
void mp_handle_free(const mp_curl_api *curl, mp_handle *handle);

/* Sets all but headers and addresses. The body must outlive the request. -1 if the URL is refused. */
int mp_handle_set(const mp_curl_api *curl, mp_handle *handle, const mp_handle_options *options,
                  const mp_handle_hooks *hooks, void *ctx);
void mp_handle_set_connect_ms(const mp_curl_api *curl, mp_handle *handle, uint64_t ms);

#endif
