/* http_headers.c: the headers of a request to an upstream over HTTP, and the settings of the connection. Values of
 * headers are from the configuration, the channel and the client's call; one with a control character is left out. */
#define _GNU_SOURCE
#include "upstream/state.h"
#include "upstream/transport.h"

/* From this revision on, requests name their revision in a header. */
#define FIRST_NAMED "2025-06-18"
/* Header with the gateways that a request has passed. For a call that came from a gateway, the exchange brings the
 * header itself. */
#define HOPS "moonpool-hops"

static bool is_header_value(const char *text)
{
    for (const char *at = text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            return false;
    return true;
}

/* libcurl leaves a header "Name:" out, and sends it with an empty value if it is written "Name;". */
static void mark_empty(char *header)
{
    size_t len = strlen(header);
    while (len > 0 && header[len - 1] == ' ')
        len--;
    if (len < 2 || header[len - 1] != ':')
        return;
    header[len - 1] = ';';
    header[len] = '\0';
}

static void add_header(mp_http_headers *to, const char *name, const char *MP_NULLABLE value)
{
    if (value == NULL || *value == '\0' || !is_header_value(value))
        return;
    mp_buf *text = &to->text[to->texts++];
    mp_buf_put(text, mp_str_of(name));
    mp_buf_put(text, MP_STR(": "));
    mp_buf_put(text, mp_str_of(value));
    mp_buf_putc(text, '\0');
    to->list[to->count++] = text->ptr;
}

/* True if the request carries the id of the channel's session: not `initialize`, which opens the session, nor in a
 * revision without sessions. NULL: a request of no exchange, which carries it. */
static bool has_session(const mp_own_exchange *MP_NULLABLE exchange)
{
    return exchange == NULL || (!exchange->is_opening && (exchange->revision.len == 0 ||
                                                          strcmp(exchange->revision.ptr, MP_FIRST_STATELESS) < 0));
}

const char *MP_NULLABLE mp_http_session(const mp_channel *channel, bool is_opener)
{
    if (channel->server_info != NULL)
        return channel->session;
    return is_opener ? channel->given : NULL;
}

/* Adds the credential of a request of the channel, if it has one. */
static void add_authorization(mp_http_headers *to, const mp_channel *channel)
{
    const char *own = channel->part->it.authorization;
    mp_scoped_buf value = {0};
    if (own == NULL) {
        MP_LOCKED(&channel->upstream->lock);
        if (channel->token == NULL)
            return;
        mp_buf_printf(&value, "Bearer %s", channel->token);
        mp_buf_putc(&value, '\0');
    }
    add_header(to, "Authorization", own != NULL ? own : value.ptr);
}

void mp_http_put_headers(mp_http_headers *to, const mp_upstream_host *host, const mp_channel *channel,
                         const mp_own_exchange *MP_NULLABLE exchange)
{
    const mp_upstream_config *config = &channel->part->it;
    char *const *own = exchange == NULL ? NULL : exchange->headers;
    to->list =
        mp_new((MP_FIXED_HEADERS + 4 + mp_count_texts(config->headers) + mp_count_texts(own)) * sizeof *to->list);
    to->list[to->count++] = "Content-Type: application/json";
    to->list[to->count++] = "Accept: application/json, text/event-stream";
    for (char *const *header = config->headers; header != NULL && *header != NULL; header++)
        if (is_header_value(*header))
            to->list[to->count++] = *header;
    add_authorization(to, channel);
    if (has_session(exchange))
        add_header(to, "Mcp-Session-Id",
                   exchange != NULL && exchange->session.len > 0
                       ? exchange->session.ptr
                       : mp_http_session(channel, exchange == NULL || host == channel->worker));
    const char *revision = exchange != NULL && exchange->revision.len > 0 ? exchange->revision.ptr : channel->revision;
    bool is_named = exchange != NULL && exchange->revision.len > 0;
    if (revision != NULL && (is_named || strcmp(revision, FIRST_NAMED) >= 0))
        add_header(to, "MCP-Protocol-Version", revision);
    bool has_hops = false;
    for (char *const *header = own; header != NULL && *header != NULL; header++) {
        if (!is_header_value(*header))
            continue;
        has_hops = has_hops || strncasecmp(*header, HOPS ":", sizeof HOPS) == 0;
        mark_empty(*header);
        to->list[to->count++] = *header;
    }
    if (!has_hops)
        add_header(to, HOPS, host->table->hops);
}

void mp_http_clear_headers(mp_http_headers *headers)
{
    for (size_t i = 0; i < headers->texts; i++)
        mp_buf_clear(&headers->text[i]);
    free(headers->list);
}

mp_outgoing mp_http_outgoing(const mp_upstream_part *part, const char *const *headers)
{
    return (mp_outgoing){.method = "GET",
                         .url = part->url,
                         .headers = headers,
                         .most = SIZE_MAX,
                         .is_stream = true,
                         .holder = mp_holder_number(part->it.name, strlen(part->it.name)),
                         .policy = part->policy,
                         .connect_ms = (uint64_t)MP_LIMIT(upstream_connect_ms, 5000),
                         .ca = part->it.tls_ca,
                         .certificate = part->it.tls_certificate,
                         .key = part->it.tls_key};
}

/* -- headers of an answer ------------------------------------------------------------------------------------------ */

mp_str mp_http_header(const mp_transfer *transfer, const char *name)
{
    mp_str rest = mp_transfer_head(transfer);
    while (rest.len > 0) {
        mp_str line = mp_str_cut(&rest, '\n');
        mp_str key = mp_str_cut(&line, ':');
        if (mp_str_is_nocase(key, name))
            return mp_str_trim(line);
    }
    return MP_STR_NONE;
}

bool mp_http_has_type(const mp_transfer *transfer, const char *type)
{
    mp_str value = mp_http_header(transfer, "content-type");
    mp_str word = mp_str_cut(&value, ';');
    return mp_str_is_nocase(mp_str_trim(word), type);
}

mp_str mp_http_shown_location(const mp_transfer *transfer)
{
    int status = mp_transfer_status(transfer);
    mp_str location = mp_http_header(transfer, "location");
    size_t len = 0;
    for (; len < location.len && location.ptr[len] != '?' && location.ptr[len] != '#'; len++)
        if (location.ptr[len] == '@' || location.ptr[len] < 0x21 || location.ptr[len] > 0x7e)
            return MP_STR_NONE;
    location.len = len;
    return status >= 300 && status < 400 ? location : MP_STR_NONE;
}

static bool is_same_origin(const mp_url *a, const mp_url *b)
{
    return strcmp(a->scheme, b->scheme) == 0 && strcmp(a->host, b->host) == 0 && a->port == b->port;
}

char *MP_NULLABLE mp_http_redirect(const char *MP_NULLABLE url, const mp_transfer *transfer)
{
    int status = mp_transfer_status(transfer);
    mp_str location = mp_http_header(transfer, "location");
    if ((status != 307 && status != 308) || location.len == 0 || url == NULL)
        return NULL;
    char *text = mp_dup(location), *found = NULL;
    mp_url from, to;
    mp_err err;
    if (mp_url_parse(&to, text, url, &err) == 0) {
        if (mp_url_parse(&from, url, NULL, &err) == 0) {
            found = is_same_origin(&from, &to) ? mp_dup(mp_str_of(to.text)) : NULL;
            mp_url_clear(&from);
        }
        mp_url_clear(&to);
    }
    free(text);
    return found;
}
