/* transfer.c: one request by libcurl: its options, its answer as it comes, its end. */
#include "reach.h"
#include "transfer.h"
#include <stdio.h>
#include <stdlib.h>

#define MOST_HEAD ((size_t)64 << 10)
#define WINDOW ((size_t)64 << 10) /* bytes of a stream that nobody took: then no more are read */

struct mp_transfer {
    mp_client *client;
    CURL *easy;
    struct curl_slist *headers;
    mp_outgoing how; /* its `url` and `headers` are not ours to look at later */
    int status;
    mp_buf head, body;
    size_t got; /* bytes of the body up to now */
    bool has_head, is_paused, is_over, has_failed, was_refused;
    mp_err failure;
    char detail[CURL_ERROR_SIZE];
};

/* The first thing that goes wrong is the reason. */
static void fail(mp_transfer *transfer, const char *text, const char *hint)
{
    if (transfer->has_failed)
        return;
    transfer->has_failed = true;
    mp_err_set(&transfer->failure, "%s", text);
    mp_err_hint(&transfer->failure, "%s", hint);
}

static void tell(mp_transfer *transfer)
{
    transfer->how.ready(transfer, transfer->how.ctx);
}

/* -- what comes -------------------------------------------------------------------------------------------------- */

static bool is_encoded(mp_str head)
{
    mp_str rest = head, line;
    while ((line = mp_str_cut(&rest, '\n')).len > 0) {
        mp_str name = mp_str_cut(&line, ':');
        if (mp_str_is_nocase(name, "content-encoding") && !mp_str_is_nocase(mp_str_trim(line), "identity"))
            return true;
    }
    return false;
}

static size_t end_head(mp_transfer *transfer, size_t len)
{
    long status = 0;
    transfer->client->curl->easy_getinfo(transfer->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200)
        return len; /* an announcement: the answer's own head follows */
    transfer->has_head = true;
    transfer->status = (int)status;
    if (!transfer->how.is_stream)
        return len;
    if (is_encoded(mp_buf_str(&transfer->head))) {
        fail(transfer, "the server sent a compressed stream, though it was not asked for one",
             "http.get reads compressed answers");
        return 0;
    }
    tell(transfer);
    return len;
}

static mp_str without_line_end(const char *ptr, size_t len)
{
    while (len > 0 && (ptr[len - 1] == '\n' || ptr[len - 1] == '\r'))
        len--;
    return (mp_str){ptr, len};
}

/* One line of the head, or of the trailers, which nobody asked for. */
static size_t on_header(char *ptr, size_t one, size_t len, void *ctx)
{
    (void)one;
    mp_transfer *transfer = ctx;
    mp_str line = without_line_end(ptr, len);
    if (transfer->has_head)
        return len;
    if (mp_str_starts(line, MP_STR("HTTP/"))) {
        transfer->head.len = 0;
        return len;
    }
    if (line.len == 0)
        return end_head(transfer, len);
    if (transfer->head.len + line.len > MOST_HEAD) {
        fail(transfer, "the answer's headers are larger than 64 KiB", "");
        return 0;
    }
    mp_buf_put(&transfer->head, line);
    mp_buf_putc(&transfer->head, '\n');
    return len;
}

static size_t on_body(char *ptr, size_t one, size_t len, void *ctx)
{
    (void)one;
    mp_transfer *transfer = ctx;
    mp_client *client = transfer->client;
    if (transfer->how.is_stream && transfer->body.len >= WINDOW) {
        transfer->is_paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    if (len > transfer->how.most - transfer->got) {
        char text[96];
        snprintf(text, sizeof text, "the answer's body is larger than %zu bytes", transfer->how.most);
        fail(transfer, text, "'max' in the options says how large it may be, up to limits.http.body");
        return 0;
    }
    if (len > client->limits.held - client->held) {
        fail(transfer, "the answers on their way are larger than limits.http.held", "");
        return 0;
    }
    mp_buf_put(&transfer->body, (mp_str){ptr, len});
    transfer->got += len;
    client->held += len;
    if (transfer->how.is_stream)
        tell(transfer);
    return len;
}

static void let_go(mp_transfer *transfer)
{
    transfer->client->held -= transfer->body.len;
    transfer->body.len = 0;
}

/* -- where it may connect ---------------------------------------------------------------------------------------- */

static void refuse(mp_transfer *transfer)
{
    if (!transfer->was_refused)
        mp_stat_add(MP_STAT_REFUSED_ADDRESS, 1);
    transfer->was_refused = true;
}

static curl_socket_t on_open(void *ctx, curlsocktype purpose, struct curl_sockaddr *address)
{
    (void)purpose;
    mp_transfer *transfer = ctx;
    if (!mp_reach_allows(&transfer->how.reach, &address->addr)) {
        refuse(transfer);
        return CURL_SOCKET_BAD;
    }
    return socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
}

/* Once connected, on a connection that another script opened as well. */
static int on_connected(void *ctx, char *ip, char *own_ip, int port, int own_port)
{
    (void)own_ip;
    (void)port;
    (void)own_port;
    mp_transfer *transfer = ctx;
    if (mp_reach_allows_text(&transfer->how.reach, ip))
        return CURL_PREREQFUNC_OK;
    refuse(transfer);
    return CURL_PREREQFUNC_ABORT;
}

/* -- born -------------------------------------------------------------------------------------------------------- */

#define SET(option, value) curl->easy_setopt(easy, (option), (value))

static void set_request(mp_transfer *transfer, const mp_curl_api *curl, CURL *easy)
{
    const mp_outgoing *how = &transfer->how;
    SET(CURLOPT_URL, how->url);
    if (strcmp(how->method, "HEAD") == 0) {
        SET(CURLOPT_NOBODY, 1L);
    } else if (how->body.ptr != NULL) {
        SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)how->body.len);
        SET(CURLOPT_POSTFIELDS, how->body.ptr);
    }
    if (strcmp(how->method, "HEAD") != 0)
        SET(CURLOPT_CUSTOMREQUEST, how->method);
    transfer->headers = curl->slist_append(NULL, "Expect:");
    for (const char *const *header = how->headers; *header != NULL; header++)
        transfer->headers = curl->slist_append(transfer->headers, *header);
    SET(CURLOPT_HTTPHEADER, transfer->headers);
    SET(CURLOPT_USERAGENT, "moonpool/" MOONPOOL_VERSION);
    if (how->is_stream)
        SET(CURLOPT_HTTP_CONTENT_DECODING, 0L);
    else
        SET(CURLOPT_ACCEPT_ENCODING, "gzip, deflate");
}

static void set_callbacks(mp_transfer *transfer, const mp_curl_api *curl, CURL *easy)
{
    SET(CURLOPT_PRIVATE, transfer);
    SET(CURLOPT_HEADERFUNCTION, on_header);
    SET(CURLOPT_HEADERDATA, transfer);
    SET(CURLOPT_WRITEFUNCTION, on_body);
    SET(CURLOPT_WRITEDATA, transfer);
    SET(CURLOPT_OPENSOCKETFUNCTION, on_open);
    SET(CURLOPT_OPENSOCKETDATA, transfer);
    SET(CURLOPT_PREREQFUNCTION, on_connected);
    SET(CURLOPT_PREREQDATA, transfer);
    SET(CURLOPT_ERRORBUFFER, transfer->detail);
}

static void set_manners(const mp_client *client, const mp_curl_api *curl, CURL *easy)
{
    SET(CURLOPT_NOSIGNAL, 1L);
    SET(CURLOPT_QUICK_EXIT, 1L); /* a lookup that is given up is not waited for */
    SET(CURLOPT_PROTOCOLS_STR, "http,https");
    SET(CURLOPT_PROXY, "");
    SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    SET(CURLOPT_TCP_KEEPALIVE, 1L);
    SET(CURLOPT_MAXAGE_CONN, (long)(client->limits.idle_ms / 1000));
    /* The system's certificates are looked up one by one: their bundle would take many milliseconds to read. */
    SET(CURLOPT_CAINFO, client->limits.ca);
    if (client->limits.ca != NULL)
        SET(CURLOPT_CAPATH, NULL);
}

#undef SET

mp_transfer *mp_transfer_start(mp_client *client, const mp_outgoing *outgoing, mp_err *err)
{
    if (client->curl == NULL && (client->curl = mp_curl(err)) == NULL)
        return NULL;
    if (client->active >= client->limits.requests) {
        mp_stat_add(MP_STAT_REFUSED_HTTP, 1);
        mp_err_set(err, "too many requests are on their way");
        mp_err_hint(err, "limits.http.requests says how many");
        return NULL;
    }
    if (outgoing->reach.kind != MP_REACH_ADDRESS && mp_stat_read(MP_STAT_LOOKUPS) >= client->limits.lookups) {
        mp_stat_add(MP_STAT_REFUSED_LOOKUPS, 1);
        mp_err_set(err, "too many names are being looked up");
        mp_err_hint(err, "limits.http.lookups says how many; does the name server answer?");
        return NULL;
    }
    mp_transfer *transfer = mp_new(sizeof *transfer);
    transfer->client = client;
    transfer->how = *outgoing;
    transfer->easy = client->curl->easy_init();
    if (transfer->easy == NULL) {
        free(transfer);
        mp_err_set(err, "libcurl gives no handle");
        return NULL;
    }
    set_request(transfer, client->curl, transfer->easy);
    set_callbacks(transfer, client->curl, transfer->easy);
    set_manners(client, client->curl, transfer->easy);
    transfer->how.url = NULL;
    transfer->how.headers = NULL;
    if (mp_client_add(client, transfer->easy, err) != 0) {
        transfer->is_over = true;
        mp_transfer_free(transfer);
        return NULL;
    }
    return transfer;
}

/* -- ended ------------------------------------------------------------------------------------------------------- */

static void explain(mp_transfer *transfer, CURLcode result)
{
    switch (result) {
    case CURLE_COULDNT_RESOLVE_HOST:
        fail(transfer, "the host is not known", "");
        break;
    case CURLE_COULDNT_CONNECT:
        fail(transfer, "nothing answers there", "");
        break;
    case CURLE_OPERATION_TIMEDOUT:
        fail(transfer, "the connection was not made in time", "");
        break;
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CONNECT_ERROR:
        fail(transfer, *transfer->detail != '\0' ? transfer->detail : "no TLS with this server", "");
        break;
    case CURLE_SSL_CACERT_BADFILE:
        fail(transfer, "the certificates to trust cannot be read", "http.ca in moonpool.yaml names their file");
        break;
    case CURLE_GOT_NOTHING:
        fail(transfer, "the server closed the connection without an answer", "");
        break;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
        fail(transfer, "the connection broke before the answer was whole", "");
        break;
    case CURLE_BAD_CONTENT_ENCODING:
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
        fail(transfer, "what the server sent is no HTTP answer that can be read", "");
        break;
    default:
        fail(transfer, "the request failed", "");
    }
}

void mp_transfer_end(mp_transfer *transfer, CURLcode result)
{
    mp_client_remove(transfer->client, transfer->easy);
    transfer->is_over = true;
    if (result != CURLE_OK && transfer->was_refused)
        fail(transfer, "that host is at an address which no grant allows",
             "a name may lead to public addresses; \"NAME:PORT private\" grants private ones too");
    else if (result != CURLE_OK)
        explain(transfer, result);
    tell(transfer);
}

void mp_transfer_free(mp_transfer *transfer)
{
    if (transfer == NULL)
        return;
    if (!transfer->is_over)
        mp_client_remove(transfer->client, transfer->easy);
    transfer->client->curl->easy_cleanup(transfer->easy);
    transfer->client->curl->slist_free_all(transfer->headers);
    let_go(transfer);
    mp_buf_clear(&transfer->head);
    mp_buf_clear(&transfer->body);
    free(transfer);
}

/* -- asked ------------------------------------------------------------------------------------------------------- */

int mp_transfer_status(const mp_transfer *transfer)
{
    return transfer->status;
}

mp_str mp_transfer_head(const mp_transfer *transfer)
{
    return mp_buf_str(&transfer->head);
}

mp_str mp_transfer_body(const mp_transfer *transfer)
{
    return mp_buf_str(&transfer->body);
}

void mp_transfer_take(mp_transfer *transfer)
{
    let_go(transfer);
    if (!transfer->is_paused || transfer->is_over)
        return;
    transfer->is_paused = false;
    transfer->client->curl->easy_pause(transfer->easy, CURLPAUSE_CONT);
}

bool mp_transfer_is_over(const mp_transfer *transfer)
{
    return transfer->is_over;
}

const mp_err *mp_transfer_failure(const mp_transfer *transfer)
{
    return transfer->has_failed ? &transfer->failure : NULL;
}

bool mp_transfer_was_refused(const mp_transfer *transfer)
{
    return transfer->was_refused;
}
