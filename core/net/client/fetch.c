/* fetch.c: one HTTP request of a command line, which has no event loop. */
#include "client.h"
#include "net/curl/curl.h"

#define MAX_BODY (64 << 20)
#define CONNECT_S 10L
#define ANSWER_S 600L

typedef struct {
    const mp_curl_api *curl;
    CURL *easy;
    const mp_fetch_options *options;
    mp_buf *body;
} fetching;

static size_t on_body(char *bytes, size_t size, size_t count, void *ctx)
{
    fetching *of = ctx;
    mp_str part = {bytes, size * count};
    long status = 0;
    if (of->options->on_bytes != NULL)
        of->curl->easy_getinfo(of->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status == 200)
        return of->options->on_bytes(of->options->ctx, part) ? part.len : 0;
    if (part.len > MAX_BODY - of->body->len)
        return 0; /* ends the transfer */
    mp_buf_put(of->body, part);
    return part.len;
}

/* Sets the options of the request. False if libcurl refuses one. */
static bool set_request(fetching *of)
{
    const mp_curl_api *curl = of->curl;
    const mp_fetch_options *options = of->options;
    CURL *easy = of->easy;
    CURLcode wrong = curl->easy_setopt(easy, CURLOPT_URL, options->url);
    wrong |= curl->easy_setopt(easy, CURLOPT_CUSTOMREQUEST, options->method);
    if (strcmp(options->method, "GET") != 0)
        wrong |= curl->easy_setopt(easy, CURLOPT_POSTFIELDS,
                                   options->text == NULL ? "" : options->text); /* "": for Content-Length: 0 */
    wrong |= curl->easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
    wrong |= curl->easy_setopt(easy, CURLOPT_PROXY, "");
    wrong |= curl->easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
    wrong |= curl->easy_setopt(easy, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    wrong |= curl->easy_setopt(easy, CURLOPT_TIMEOUT, options->seconds == 0 ? ANSWER_S : (long)options->seconds);
    wrong |= curl->easy_setopt(easy, CURLOPT_WRITEFUNCTION, on_body);
    wrong |= curl->easy_setopt(easy, CURLOPT_WRITEDATA, of);
    wrong |= mp_curl_trust(curl, easy, options->ca);
    if (options->socket != NULL)
        wrong |= curl->easy_setopt(easy, CURLOPT_UNIX_SOCKET_PATH, options->socket);
    return wrong == CURLE_OK;
}

int mp_fetch(const mp_fetch_options *options, mp_buf *body, mp_err *err)
{
    const mp_curl_api *curl = mp_curl(err);
    CURL *easy = curl == NULL ? NULL : curl->easy_init();
    if (easy == NULL)
        return curl == NULL ? -1 : mp_err_set(err, "libcurl cannot create a handle");
    fetching of = {curl, easy, options, body};
    char text[CURL_ERROR_SIZE] = "";
    struct curl_slist *headers = NULL;
    long status = -1;
    for (const char *const *header = options->headers; *header != NULL; header++)
        headers = curl->slist_append(headers, *header);
    curl->easy_setopt(easy, CURLOPT_HTTPHEADER, headers);
    curl->easy_setopt(easy, CURLOPT_ERRORBUFFER, text);
    CURLcode result = set_request(&of) ? curl->easy_perform(easy) : CURLE_BAD_FUNCTION_ARGUMENT;
    long cause = 0;
    if (result != CURLE_OK)
        curl->easy_getinfo(easy, CURLINFO_OS_ERRNO, &cause);
    if (result == CURLE_COULDNT_CONNECT && cause != 0)
        mp_err_set(err, "%s", strerror((int)cause));
    else if (result != CURLE_OK)
        mp_err_set(err, "%s", *text == '\0' ? curl->easy_strerror(result) : text);
    else
        curl->easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
    curl->slist_free_all(headers);
    curl->easy_cleanup(easy);
    return (int)status;
}
