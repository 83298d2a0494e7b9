/* client_address.c: the address of a request's client: that of the connection, or the one that a trusted proxy gives in
 * a header of the request. */
#include "http.h"
#include "forwarded.h"

MP_COUNTER(forwarded_taken, "forwarded", "outcome", "taken",
           "requests whose client's address is from X-Forwarded-For or Forwarded of a trusted proxy")
MP_COUNTER(forwarded_ignored, "forwarded", "outcome", "ignored",
           "requests with X-Forwarded-For or Forwarded of a peer that trusted_proxies of its address does not have")
MP_COUNTER(
    forwarded_unclear, "forwarded", "outcome", "unclear",
    "requests of trusted proxies without a clear address in X-Forwarded-For or Forwarded, or with two that differ")

bool mp_conn_is_trusted(mp_conn *conn, const mp_proxies *MP_NULLABLE proxies)
{
    mp_ip ip;
    if (proxies == NULL || conn->is_hidden)
        return false;
    mp_str peer = mp_conn_peer(conn);
    return mp_ip_read(peer, &ip) ? mp_proxies_have(proxies, &ip)
                                 : conn->listener->is_unix && mp_proxies_have_unix(proxies);
}

/* Counts a request with X-Forwarded-For or Forwarded whose peer is not trusted: a client, or a proxy that the
 * configuration does not name. The first one is logged. */
static void count_ignored(mp_conn *conn)
{
    static atomic_bool is_logged;
    mp_stat_add(&mp_stat_forwarded_ignored, 1);
    if (!atomic_load_explicit(&is_logged, memory_order_relaxed) && !atomic_exchange(&is_logged, true))
        mp_log(MP_WARN, "address of a client ignored", mp_log_str("address", mp_conn_peer(conn)),
               mp_log_str("why", MP_STR("X-Forwarded-For or Forwarded came from an address that is no trusted proxy; "
                                        "logged once")),
               mp_log_str("hint", MP_STR("if that is a proxy of yours, write its address into trusted_proxies in "
                                         "listen")));
}

/* Reads the list in all headers of this name, beginning with the last one. */
static mp_forwarded read_list(const mp_request_head *head, const mp_proxies *proxies, mp_str name, bool is_rfc7239)
{
    mp_forwarded list = {.proxies = proxies};
    for (size_t i = head->headers->size; i-- > 0 && !list.is_over;) {
        const h2o_header_t *header = &head->headers->entries[i];
        if (header->name->len == name.len && memcmp(header->name->base, name.ptr, name.len) == 0)
            mp_forwarded_take(&list, (mp_str){header->value.base, header->value.len}, is_rfc7239);
    }
    return list;
}

void mp_live_find_client(mp_live *live)
{
    const mp_request_head *head = live->stream->head;
    const mp_proxies *proxies = live->conn->listener->endpoint.proxies;
    if (proxies == NULL || !mp_conn_is_trusted(live->conn, proxies)) {
        count_ignored(live->conn);
        return;
    }
    bool has_common = head->known_counts[MP_HEADER_X_FORWARDED_FOR] > 0;
    bool has_rfc7239 = head->known_counts[MP_HEADER_FORWARDED] > 0;
    mp_forwarded common = {0}, rfc7239 = {0};
    if (has_common)
        common = read_list(head, proxies, MP_STR("x-forwarded-for"), false);
    if (has_rfc7239)
        rfc7239 = read_list(head, proxies, MP_STR("forwarded"), true);
    mp_forwarded found = !has_rfc7239 ? common : !has_common ? rfc7239 : mp_forwarded_agree(&common, &rfc7239);
    mp_stat_add(found.is_unclear ? &mp_stat_forwarded_unclear : &mp_stat_forwarded_taken, 1);
    if (!found.has_ip)
        return;
    char *text = h2o_mem_alloc_pool(&live->req->pool, MP_ADDRESS_TEXT);
    mp_ip_write(&found.ip, text);
    live->client = text;
}

mp_str mp_stream_address(const mp_stream *stream)
{
    const mp_live *live = stream->live;
    if (live == NULL)
        return MP_STR_NONE;
    const char *client = live->client;
    return client != NULL ? mp_str_of(client) : mp_conn_peer(live->conn);
}

/* The share number of an address, a hash of it; never 0. */
static unsigned share_of(mp_str address)
{
    char room[MP_COUNTED_TEXT];
    mp_str counted = mp_address_counted(address, room);
    return mp_holder_number(counted.ptr, counted.len);
}

unsigned mp_conn_share(mp_conn *conn)
{
    if (conn->share == 0)
        conn->share = share_of(mp_conn_peer(conn));
    return conn->share;
}

unsigned mp_stream_share(const mp_stream *stream)
{
    const mp_live *live = stream->live;
    if (live == NULL)
        return 0;
    const char *client = live->client;
    return client != NULL ? share_of(mp_str_of(client)) : mp_conn_share(live->conn);
}
