/* transfer.c: one request made with libcurl: its options, its response, its end. Also what all transfers do with the
 * bytes of a response. */
#include "address_policy.h"
#include "lookup.h"
#include "transfer.h"
#include <sys/stat.h>
#include <unistd.h>

MP_REFUSED(refused_lookups, "lookups", MP_LIMIT_REACHED, "outgoing requests above 256 lookups of names at once")
MP_REFUSED(refused_address, "address", MP_FAULT, "outgoing connections to addresses without a grant")

/* -- what all transfers do ----------------------------------------------------------------------------------------- */

void mp_transfer_fail(mp_transfer *transfer, const char *text, const char *hint)
{
    if (transfer->failure != NULL)
        return;
    mp_err *failure = mp_new(sizeof *failure);
    mp_err_set(failure, "%s", text);
    mp_err_hint(failure, "%s", hint);
    transfer->failure = failure;
}

bool mp_transfer_hold(mp_transfer *transfer, size_t len)
{
    mp_client *client = transfer->client;
    if (transfer->how.account != NULL) {
        transfer->is_crowded = !mp_account_take(transfer->how.account, (int64_t)len, transfer->how.account_most);
        transfer->counted += transfer->is_crowded ? 0 : len;
        return !transfer->is_crowded;
    }
    if (client->held + len > client->limits.held) /* held may be above a limit that was lowered */
        return false;
    client->held += len;
    return true;
}

bool mp_transfer_put(mp_transfer *transfer, mp_str bytes)
{
    if (bytes.len > transfer->how.most - transfer->got) {
        char text[96];
        snprintf(text, sizeof text, "the answer's body is larger than %zu bytes", transfer->how.most);
        mp_transfer_fail(transfer, text, "raise the option 'max', at most to limits.http.body");
        return false;
    }
    if (!mp_transfer_hold(transfer, bytes.len)) {
        mp_transfer_fail(
            transfer,
            transfer->is_crowded ? "no memory is left for it" : "the responses in flight are larger than 128 MiB", "");
        return false;
    }
    mp_buf_put(&transfer->body, bytes);
    transfer->got += bytes.len;
    return true;
}

void mp_transfer_discard(mp_transfer *transfer)
{
    if (transfer->how.account != NULL) {
        mp_account_give(transfer->how.account, (int64_t)transfer->body.len);
        transfer->counted -= transfer->body.len;
    } else {
        transfer->client->held -= transfer->body.len;
    }
    transfer->body.len = 0;
}

/* -- response ------------------------------------------------------------------------------------------------------ */

static void call_ready(mp_transfer *transfer)
{
    transfer->how.ready(transfer, transfer->how.ctx);
}

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
    transfer->curl->easy_getinfo(transfer->handle->easy, CURLINFO_RESPONSE_CODE, &status);
    if (status < 200)
        return len; /* a 1xx response: the final one follows */
    transfer->has_head = true;
    transfer->status = (int)status;
    if (!transfer->how.is_stream)
        return len;
    if (is_encoded(mp_buf_str(&transfer->head))) {
        mp_transfer_fail(transfer, "the server sent a compressed stream, which the request did not accept",
                         "use http.get, which reads compressed responses");
        return 0;
    }
    call_ready(transfer);
    return len;
}

static mp_str without_line_end(const char *ptr, size_t len)
{
    while (len > 0 && (ptr[len - 1] == '\n' || ptr[len - 1] == '\r'))
        len--;
    return (mp_str){ptr, len};
}

/* Receives one line of the head, or of the trailers, which are ignored. */
static size_t on_header(char *ptr, MP_UNUSED size_t one, size_t len, void *ctx)
{
    mp_transfer *transfer = ((const mp_handle *)ctx)->owner;
    mp_str line = without_line_end(ptr, len);
    if (transfer->has_head)
        return len;
    if (mp_str_starts(line, MP_STR("HTTP/"))) {
        transfer->head.len = 0;
        return len;
    }
    if (line.len == 0)
        return end_head(transfer, len);
    if (transfer->head.len + line.len > MP_MAX_HEAD_BYTES) {
        mp_transfer_fail(transfer, "the answer's headers are larger than 64 KiB", "");
        return 0;
    }
    mp_buf_put(&transfer->head, line);
    mp_buf_putc(&transfer->head, '\n');
    return len;
}

static size_t on_body(char *ptr, MP_UNUSED size_t one, size_t len, void *ctx)
{
    mp_transfer *transfer = ((const mp_handle *)ctx)->owner;
    if (transfer->how.is_stream && transfer->body.len >= MP_WINDOW) {
        transfer->is_paused = true;
        return CURL_WRITEFUNC_PAUSE;
    }
    if (!mp_transfer_put(transfer, (mp_str){ptr, len}))
        return 0;
    if (transfer->how.is_stream)
        call_ready(transfer);
    return len;
}

/* -- address policy ------------------------------------------------------------------------------------------------ */

static void refuse_address(mp_transfer *transfer)
{
    if (!transfer->was_refused)
        mp_stat_add(&mp_stat_refused_address, 1);
    transfer->was_refused = true;
}

/* -- sockets ------------------------------------------------------------------------------------------------------- */

/* Ends the count of sockets that libcurl has closed without a call of on_close, as it does before they are connected;
 * of the others those that are counted stay in the list. */
static void review_opened(mp_transfer *transfer)
{
    mp_client *client = transfer->client;
    size_t count = transfer->opened_count;
    transfer->opened_count = 0;
    for (size_t i = 0; i < count; i++) {
        curl_socket_t fd = transfer->opened[i].fd;
        ino_t inode = transfer->opened[i].inode;
        const mp_socket *at = mp_socket_at(&client->lanes.sockets, fd);
        if (at == NULL || at->inode != inode)
            continue;
        if (mp_socket_inode(fd) == inode)
            transfer->opened[transfer->opened_count++] = transfer->opened[i];
        else
            mp_socket_uncount(&client->lanes.sockets, fd);
    }
}

/* Counts a socket, for which there was room. */
static void count_opened(mp_transfer *transfer, curl_socket_t fd)
{
    mp_client *client = transfer->client;
    ino_t inode = mp_socket_count(&client->lanes.sockets, fd, transfer->how.holder);
    if (transfer->opened_count == MP_OPENED)
        review_opened(transfer);
    if (transfer->opened_count < MP_OPENED) {
        transfer->opened[transfer->opened_count].fd = fd;
        transfer->opened[transfer->opened_count++].inode = inode;
    }
}

static curl_socket_t on_open(void *ctx, MP_UNUSED curlsocktype purpose, struct curl_sockaddr *address)
{
    mp_transfer *transfer = ((const mp_handle *)ctx)->owner;
    if (!mp_address_policy_allows(&transfer->how.policy, &address->addr)) {
        refuse_address(transfer);
        return CURL_SOCKET_BAD;
    }
    transfer->is_short = !mp_outgoing_take(1, transfer->how.holder);
    if (transfer->is_short)
        return CURL_SOCKET_BAD;
    curl_socket_t fd = socket(address->family, address->socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, address->protocol);
    transfer->has_opened = true;
    if (fd != CURL_SOCKET_BAD)
        mp_socket_forget(&transfer->client->lanes.sockets, fd);
    if (fd == CURL_SOCKET_BAD)
        mp_outgoing_give(1, transfer->how.holder);
    else
        count_opened(transfer, fd);
    return fd;
}

/* Closes a socket that was connected, also when the transfer that opened it was freed long ago. */
static int on_close(void *ctx, curl_socket_t fd)
{
    mp_client *client = ctx;
    mp_socket_forget(&client->lanes.sockets, fd);
    mp_socket_uncount(&client->lanes.sockets, fd);
    return close(fd);
}

/* -- connections --------------------------------------------------------------------------------------------------- */

/* Runs once connected, also on a connection that another script's request opened, and before the request is sent.
 * libcurl sends a request again if a kept connection closes without a response: the server may have received it, so
 * only a repeatable request is sent twice. */
static int on_connected(void *ctx, char *ip, MP_UNUSED char *own_ip, MP_UNUSED int port, MP_UNUSED int own_port)
{
    mp_transfer *transfer = ((const mp_handle *)ctx)->owner;
    if (!mp_address_policy_allows_text(&transfer->how.policy, ip)) {
        refuse_address(transfer);
        return CURL_PREREQFUNC_ABORT;
    }
    transfer->handle->is_spent = transfer->was_sent;
    transfer->was_repeated = transfer->was_sent && !transfer->how.is_repeatable;
    transfer->was_sent = true;
    return transfer->was_repeated ? CURL_PREREQFUNC_ABORT : CURL_PREREQFUNC_OK;
}

/* -- start --------------------------------------------------------------------------------------------------------- */

static bool is_missing(const char *const *headers, const char *header)
{
    size_t len = strcspn(header, ":");
    while (*headers != NULL &&
           (strncasecmp(*headers, header, len) != 0 || ((*headers)[len] != ':' && (*headers)[len] != ';')))
        headers++;
    return *headers == NULL;
}

/* Copies the headers, and adds those of every request, unless it has its own: one block of memory. "Expect:" means that
 * a large body is sent without a question first. */
static struct curl_slist *copy_headers(const mp_client *client, const char *const *headers)
{
    const char *const usual[] = {client->agent, "Expect:"};
    size_t own = 0, len = 0, count = 0;
    for (; headers[own] != NULL; own++)
        len += strlen(headers[own]) + 1;
    for (size_t i = 0; i < sizeof usual / sizeof *usual; i++)
        len += strlen(usual[i]) + 1;
    size_t most = own + sizeof usual / sizeof *usual;
    struct curl_slist *list = mp_new(most * sizeof *list + len);
    char *text = (char *)(list + most);
    for (size_t i = 0; i < most; i++) {
        const char *header = i < own ? headers[i] : usual[i - own];
        if (i >= own && !is_missing(headers, header))
            continue;
        size_t size = strlen(header) + 1;
        list[count].data = memcpy(text, header, size);
        if (count > 0)
            list[count - 1].next = &list[count];
        count++;
        text += size;
    }
    return list;
}

/* -- host ---------------------------------------------------------------------------------------------------------- */

/* Refuses a lookup by libcurl itself, which was given addresses of the name and has dropped them. */
static int refuse_lookup(MP_UNUSED void *resolver, MP_UNUSED void *reserved, MP_UNUSED void *ctx)
{
    return 1;
}

/* True if the host of a normalized URL has to be looked up. Names of this machine are known to libcurl, and addresses
 * are no names: they have brackets, or end with a number. */
static bool is_name(mp_str host)
{
    static const char local[] = "localhost";
    size_t len = sizeof local - 1, digits = 0;
    while (digits < host.len && host.ptr[host.len - digits - 1] >= '0' && host.ptr[host.len - digits - 1] <= '9')
        digits++;
    bool is_address =
        *host.ptr == '[' || (digits > 0 && (digits == host.len || host.ptr[host.len - digits - 1] == '.'));
    bool is_local = host.len >= len && memcmp(host.ptr + host.len - len, local, len) == 0 &&
                    (host.len == len || host.ptr[host.len - len - 1] == '.');
    return !is_address && !is_local;
}

/* The host in front of a port, or of a path, if it is a name; else an empty text. Sets the place to which its addresses
 * go. `port`: unless `from` has one. */
static mp_str read_name(mp_buf *place, const char *from, mp_str port)
{
    mp_str host = {from, strcspn(from, ":/?#")};
    if (!is_name(host))
        return (mp_str){0};
    if (from[host.len] == ':')
        port = (mp_str){from + host.len + 1, strspn(from + host.len + 1, "0123456789")};
    mp_buf_putc(place, '+'); /* the addresses expire, as those of a lookup do */
    mp_buf_put(place, host);
    mp_buf_putc(place, ':');
    mp_buf_put(place, port);
    mp_buf_putc(place, ':');
    return host;
}

/* Gives the request to libcurl, with the addresses in `place`. */
static int send_request(mp_transfer *transfer, mp_err *err)
{
    const mp_curl_api *curl = transfer->curl;
    CURL *easy = transfer->handle->easy;
    if (transfer->place.len > 0) {
        mp_buf_putc(&transfer->place, '\0');
        transfer->addresses = curl->slist_append(NULL, transfer->place.ptr);
        curl->easy_setopt(easy, CURLOPT_RESOLVE, transfer->addresses);
        curl->easy_setopt(easy, CURLOPT_RESOLVER_START_FUNCTION, refuse_lookup);
    }
    transfer->lane =
        mp_lanes_add(&transfer->client->lanes, curl, easy, transfer->destination, transfer->how.holder, err);
    return transfer->lane == NULL ? -1 : 0;
}

static void end_transfer(mp_transfer *transfer, CURLcode result);

static void on_impatience(mp_timer *timer)
{
    mp_transfer *transfer = mp_container(timer, mp_transfer, patience);
    mp_lookup_cancel(transfer->lookup);
    transfer->lookup = NULL;
    end_transfer(transfer, CURLE_OPERATION_TIMEDOUT);
}

static void on_addresses(void *ctx, const char *MP_NULLABLE addresses)
{
    mp_transfer *transfer = ctx;
    mp_client *client = transfer->client;
    uint64_t now = mp_loop_now(client->loop), until = transfer->patience.at;
    mp_err err = {0};
    transfer->lookup = NULL;
    mp_timer_stop(client->loop, &transfer->patience);
    if (addresses == NULL) {
        end_transfer(transfer, CURLE_COULDNT_RESOLVE_HOST);
        return;
    }
    if (transfer->how.connect_ms > 0)
        mp_handle_set_connect_ms(transfer->curl, transfer->handle, until > now ? until - now : 1);
    mp_buf_put(&transfer->place, mp_str_of(addresses));
    if (send_request(transfer, &err) != 0)
        end_transfer(transfer, CURLE_FAILED_INIT);
}

/* Sends the request now if libcurl needs no addresses or they are known, else after the lookup. */
static int find_host(mp_transfer *transfer, const mp_outgoing *outgoing, mp_err *err)
{
    mp_client *client = transfer->client;
    const mp_client_limits *limits = &client->limits;
    const char *from = strstr(outgoing->url, "://") + 3;
    mp_str port = strncmp(outgoing->url, "https", 5) == 0 ? MP_STR("443") : MP_STR("80");
    mp_str name = read_name(&transfer->place, from, port);
    if (name.len == 0 || mp_lookup_known(name, limits->idle_ms, limits->lookups, &transfer->place))
        return send_request(transfer, err);
    transfer->lookup =
        mp_lookup_start(client->loop, name, limits->lookups, transfer->how.holder, on_addresses, transfer);
    if (transfer->lookup == NULL) {
        mp_stat_add(&mp_stat_refused_lookups, 1);
        mp_err_set(err, "too many name lookups in flight");
        return mp_err_hint(err, "256 lookups run, or few files may be opened; check that the name server answers");
    }
    if (transfer->how.connect_ms > 0)
        mp_timer_start(client->loop, &transfer->patience, transfer->how.connect_ms, on_impatience);
    return 0;
}

static void put_part(mp_buf *key, const char *MP_NULLABLE part)
{
    mp_buf_putc(key, '\n');
    mp_buf_put(key, mp_str_of(part == NULL ? "" : part));
}

/* Transfers with the same text may use the same connections. */
static mp_destination *enter_destination(mp_client *client, const mp_outgoing *outgoing)
{
    mp_scoped_buf key = {0};
    size_t host = (size_t)(strstr(outgoing->url, "://") + 3 - outgoing->url);
    mp_buf_put(&key, (mp_str){outgoing->url, host + strcspn(outgoing->url + host, "/?#")});
    put_part(&key, outgoing->certificate);
    return mp_lanes_enter(&client->lanes, mp_buf_str(&key));
}

/* -- end ----------------------------------------------------------------------------------------------------------- */

static void explain_result(mp_transfer *transfer, CURLcode result)
{
    mp_err why = {0};
    long os_error = 0;
    transfer->curl->easy_getinfo(transfer->handle->easy, CURLINFO_OS_ERRNO, &os_error);
    transfer->is_unread = !transfer->has_head && mp_curl_explain_refusal(transfer->handle->error, &why);
    transfer->is_partial = result == CURLE_SEND_ERROR;
    if (!transfer->is_unread)
        mp_curl_explain(result, (int)os_error, transfer->handle->error, &why);
    mp_transfer_fail(transfer, why.text, why.hint);
}

static void leave(mp_transfer *transfer)
{
    mp_lane *lane = transfer->lane;
    if (lane != NULL)
        mp_lanes_remove(lane, transfer->handle->easy, transfer->destination);
    transfer->lane = NULL;
    mp_lanes_leave(&transfer->client->lanes, transfer->destination);
    mp_client_leave(transfer->client);
    review_opened(transfer);
}

/* Ends the transfer: libcurl has finished it, or will not have it. */
static void end_transfer(mp_transfer *transfer, CURLcode result)
{
    leave(transfer);
    transfer->is_over = true;
    transfer->handle->is_spent = transfer->handle->is_spent || result != CURLE_OK;
    if (result != CURLE_OK && transfer->was_refused)
        mp_transfer_fail(transfer, "the host resolves to an address that no grant allows",
                         "host names may resolve to public addresses only; \"NAME:PORT private\" allows private ones");
    else if (result != CURLE_OK && transfer->was_repeated)
        mp_transfer_fail(
            transfer, "the server closed a kept connection without a response",
            "the server may have received the request, so it is not sent again; the option 'retry_unsafe' allows that");
    else if (result != CURLE_OK && transfer->is_short)
        mp_transfer_fail(transfer, MP_OUTGOING_FULL, "LimitNOFILE= of systemd, ulimit -n");
    else if (result != CURLE_OK)
        explain_result(transfer, result);
    call_ready(transfer);
}

/* NULL: a handle of a lane's own. */
static mp_transfer *MP_NULLABLE find_transfer(const mp_curl_api *curl, CURL *easy)
{
    mp_handle *handle = NULL;
    curl->easy_getinfo(easy, CURLINFO_PRIVATE, &handle);
    return handle == NULL ? NULL : handle->owner;
}

void mp_transfer_on_end(const mp_curl_api *curl, CURL *easy, CURLcode result)
{
    mp_transfer *transfer = find_transfer(curl, easy);
    if (transfer != NULL)
        end_transfer(transfer, result);
}

/* A connection is closed by on_close alone once it is connected. One that is not may be closed without. */
bool mp_transfer_is_on_kept(const mp_curl_api *curl, CURL *easy)
{
    const mp_transfer *transfer = find_transfer(curl, easy);
    return transfer != NULL && transfer->was_sent && !transfer->has_opened;
}

static void end(mp_transfer *transfer)
{
    const mp_curl_api *curl = transfer->curl;
    mp_lookup_cancel(transfer->lookup);
    mp_timer_stop(transfer->client->loop, &transfer->patience);
    if (!transfer->is_over) {
        transfer->handle->is_spent = true;
        leave(transfer);
    }
    if (transfer->addresses != NULL) {
        curl->easy_setopt(transfer->handle->easy, CURLOPT_RESOLVE, NULL); /* the handle may still refer to the list */
        curl->easy_setopt(transfer->handle->easy, CURLOPT_RESOLVER_START_FUNCTION, NULL);
    }
    curl->easy_setopt(transfer->handle->easy, CURLOPT_HTTPHEADER, NULL);
    mp_client_give(transfer->client, curl, transfer->handle);
    free(transfer->headers);
    curl->slist_free_all(transfer->addresses);
    mp_buf_clear(&transfer->place);
}

/* -- the way --------------------------------------------------------------------------------------------------------
 */

static const mp_handle_hooks hooks = {on_header, on_body, on_open, on_connected, on_close};

static int start(mp_transfer *transfer, mp_err *err)
{
    mp_client *client = transfer->client;
    const mp_outgoing *outgoing = &transfer->how;
    const mp_curl_api *curl = client->curl;
    if (curl == NULL && (curl = mp_curl(err)) == NULL)
        return -1;
    client->curl = curl;
    mp_handle *handle = mp_client_take(client, curl);
    if (handle == NULL)
        return mp_err_set(err, "libcurl cannot create a handle");
    transfer->curl = curl;
    transfer->handle = handle;
    handle->owner = transfer;
    mp_handle_options options = {.method = outgoing->method,
                                 .url = outgoing->url,
                                 .body = outgoing->body,
                                 .is_stream = outgoing->is_stream,
                                 .ca = outgoing->ca != NULL ? outgoing->ca : client->limits.ca,
                                 .certificate = outgoing->certificate,
                                 .key = outgoing->key,
                                 .connect_ms = outgoing->connect_ms,
                                 .idle_ms = client->limits.idle_ms};
    int set = mp_handle_set(curl, handle, &options, &hooks, client);
    transfer->headers = copy_headers(client, outgoing->headers);
    curl->easy_setopt(handle->easy, CURLOPT_HTTPHEADER, transfer->headers);
    transfer->destination = enter_destination(client, outgoing);
    mp_client_enter(client);
    int failed = set != 0 ? mp_err_set(err, "libcurl refused the URL") : find_host(transfer, outgoing, err);
    if (failed != 0)
        end(transfer);
    return failed;
}

static void go_on(mp_transfer *transfer)
{
    transfer->curl->easy_pause(transfer->handle->easy, CURLPAUSE_CONT);
}

static void clear(mp_client *client)
{
    mp_lanes_clear(&client->lanes);
}

const mp_way mp_curl_way = {start, end, go_on, clear};
