/* connection.c: facts about a connection for the other files of the server: the connection of a socket, the peer's
 * address, and the structs of its streams. */
#include "http.h"
#include "proxies.h"
#include <arpa/inet.h>
#include <sys/socket.h>

MP_REFUSED(refused_size, "size", MP_LIMIT_REACHED, "requests whose body is above limits.body, or headers above 64 KiB")
MP_REFUSED(refused_malformed, "malformed", MP_FAULT, "requests that break the rules of HTTP")
MP_REFUSED(refused_late, "request_time", MP_FAULT, "requests that did not arrive within limits.request_time")
MP_REFUSED(refused_client_hello, "client_hello", MP_FAULT, "connections that began with TLS at an address without it")

#define SPARE_STREAMS 128

static void on_close(void *data)
{
    mp_conn *conn = data;
    conn->server->end_conn(conn);
}

void mp_conn_own(mp_conn *conn)
{
    conn->socket->on_close.cb = on_close;
    conn->socket->on_close.data = conn;
}

mp_conn *MP_NULLABLE mp_conn_of(const h2o_socket_t *socket)
{
    return socket->on_close.cb == on_close ? socket->on_close.data : NULL;
}

/* The IP address of one end of a TCP connection: an IPv4 client of an IPv6 socket ([::]) has the same one as at any
 * other. False if it has none. */
static bool ip_of(const struct sockaddr_storage *end, mp_ip *ip)
{
    if (end->ss_family == AF_INET6)
        *ip = mp_ip_of(((const struct sockaddr_in6 *)end)->sin6_addr.s6_addr, 16);
    else if (end->ss_family == AF_INET)
        *ip = mp_ip_of((const unsigned char *)&((const struct sockaddr_in *)end)->sin_addr, 4);
    return end->ss_family == AF_INET6 || end->ss_family == AF_INET;
}

mp_str mp_conn_peer(mp_conn *conn)
{
    if (conn->peer[0] == '\0') {
        struct sockaddr_storage end; /* not from libh2o, which would keep it for as long as the connection */
        mp_ip ip;
        if (getpeername(h2o_socket_get_fd(conn->socket), (struct sockaddr *)&end, &(socklen_t){sizeof end}) != 0)
            strcpy(conn->peer, MP_PEER_GONE);
        else if (ip_of(&end, &ip))
            mp_ip_write(&ip, conn->peer);
        else
            strcpy(conn->peer, "unix");
    }
    return mp_str_of(conn->peer);
}

/* Reads an IPv4 address, or an IPv6 address in brackets. False if the text is neither. */
static bool read_host(mp_str text, mp_ip *ip)
{
    bool is_bracketed = text.len > 2 && text.ptr[0] == '[' && text.ptr[text.len - 1] == ']';
    if (is_bracketed)
        text = (mp_str){text.ptr + 1, text.len - 2};
    bool is_v6 = text.len > 0 && memchr(text.ptr, ':', text.len) != NULL;
    return is_v6 == is_bracketed && mp_ip_read(text, ip);
}

bool mp_conn_reached(const mp_conn *conn, mp_str address)
{
    struct sockaddr_storage bound;
    mp_ip own, asked;
    if (getsockname(h2o_socket_get_fd(conn->socket), (struct sockaddr *)&bound, &(socklen_t){sizeof bound}) != 0 ||
        !ip_of(&bound, &own))
        return false;
    return read_host(address, &asked) && memcmp(&own, &asked, sizeof own) == 0;
}

/* -- refusals ------------------------------------------------------------------------------------------------------ */

void mp_conn_count_refusal(mp_cause cause)
{
    if (cause == MP_CAUSE_SIZE)
        mp_stat_add(&mp_stat_refused_size, 1);
    else if (cause == MP_CAUSE_HTTP)
        mp_stat_add(&mp_stat_refused_malformed, 1);
    else if (cause == MP_CAUSE_TIME)
        mp_stat_add(&mp_stat_refused_late, 1);
    else if (cause == MP_CAUSE_SCHEME)
        mp_stat_add(&mp_stat_refused_client_hello, 1);
}

void mp_conn_refused(mp_conn *conn, mp_cause cause, mp_str why)
{
    mp_conn_count_refusal(cause);
    mp_refused(cause, why, mp_log_str("address", mp_conn_peer(conn)));
}

/* -- the structs of streams ---------------------------------------------------------------------------------------- */

mp_stream *mp_server_stream(mp_server *server)
{
    mp_stream *stream = server->spare;
    server->streams++;
    if (stream == NULL)
        return mp_new(sizeof *stream);
    server->spare = stream->gone_ctx;
    server->spare_count--;
    memset(stream, 0, sizeof *stream);
    return stream;
}

void mp_server_return_memory(mp_server *server)
{
    for (mp_stream *stream; (stream = server->spare) != NULL;) {
        server->spare = stream->gone_ctx;
        free(stream);
    }
    server->spare_count = 0;
}

void mp_server_release(mp_server *server)
{
    pthread_mutex_destroy(&server->listen_lock);
    pthread_mutex_destroy(&server->handover_lock);
    free(server);
}

void mp_server_recycle(mp_server *server, mp_stream *stream)
{
    server->streams--;
    if (server->is_freed || server->spare_count == SPARE_STREAMS) {
        free(stream);
    } else {
        stream->gone_ctx = server->spare;
        server->spare = stream;
        server->spare_count++;
    }
    if (server->is_freed && server->streams == 0)
        mp_server_release(server);
}
