/* dial.c: opens TCP connections that do not speak HTTP: finds the addresses of the host as transfers do, checks each
 * one that is connected to, and tries them in turn. Also OpenSSL's context for such connections. */
#include "address_policy.h"
#include "lookup.h"
#include "net/tls/context.h"
#include "transfer.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <openssl/ssl.h>
#include <sys/epoll.h>
#include <unistd.h>

#define ATTEMPT_MS 2000 /* for one address: a host that does not answer leaves time for the next address */

struct mp_dial {
    mp_client *client;
    char *host;
    uint16_t port;
    mp_address_policy policy;
    unsigned holder;
    mp_dial_done *done;
    void *ctx;
    mp_lookup *MP_NULLABLE lookup; /* NULL: no lookup is in progress */
    mp_buf addresses;              /* as of lookup.h, with commas between */
    size_t at;                     /* bytes of `addresses` that were tried */
    int fd;                        /* -1: none is being connected */
    mp_fdwatch watch;
    mp_timer timer; /* of the next step, or of the attempt */
    mp_err err;     /* of the last attempt */
};

/* Sockets to other processes of the gateway are not counted: they have a limit of their own. */
static bool take_place(const mp_dial *dial)
{
    return dial->client->limits.is_inner || mp_outgoing_take(1, dial->holder);
}

static void give_place(const mp_dial *dial)
{
    if (!dial->client->limits.is_inner)
        mp_outgoing_give(1, dial->holder);
}

static void close_attempt(mp_dial *dial)
{
    mp_fdwatch_stop(dial->client->loop, &dial->watch);
    mp_timer_stop(dial->client->loop, &dial->timer);
    if (dial->fd < 0)
        return;
    close(dial->fd);
    dial->fd = -1;
    give_place(dial);
}

static void free_dial(mp_dial *dial)
{
    mp_lookup_cancel(dial->lookup);
    close_attempt(dial);
    mp_buf_clear(&dial->addresses);
    free(dial->host);
    free(dial);
}

void mp_dial_cancel(mp_dial *MP_NULLABLE dial)
{
    if (dial != NULL)
        free_dial(dial);
}

static void end_dial(mp_dial *dial, int fd)
{
    mp_dial_done *done = dial->done;
    void *ctx = dial->ctx;
    mp_err err = dial->err;
    if (fd >= 0) { /* the descriptor, and its place in the count, go to the caller */
        mp_fdwatch_stop(dial->client->loop, &dial->watch);
        dial->fd = -1;
    }
    free_dial(dial);
    done(ctx, fd, &err);
}

static void set_options(int fd)
{
    int on = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    mp_socket_detect_dead_peer(fd);
}

/* The next address of the host; 0: there is none. */
static socklen_t next_address(mp_dial *dial, struct sockaddr_storage *room)
{
    while (dial->at < dial->addresses.len) {
        char text[MP_ADDRESS_TEXT + 2];
        mp_str rest = mp_str_from(mp_buf_str(&dial->addresses), dial->at), one = mp_str_cut(&rest, ',');
        struct sockaddr_in *v4 = (void *)room;
        struct sockaddr_in6 *v6 = (void *)room;
        dial->at += one.len + 1;
        if (one.len > 2 && one.ptr[0] == '[')
            one = (mp_str){one.ptr + 1, one.len - 2};
        if (one.len >= sizeof text)
            continue;
        memcpy(text, one.ptr, one.len);
        text[one.len] = '\0';
        memset(room, 0, sizeof *room);
        if (inet_pton(AF_INET, text, &v4->sin_addr) == 1) {
            v4->sin_family = AF_INET;
            v4->sin_port = htons(dial->port);
            return sizeof *v4;
        }
        if (inet_pton(AF_INET6, text, &v6->sin6_addr) == 1) {
            v6->sin6_family = AF_INET6;
            v6->sin6_port = htons(dial->port);
            return sizeof *v6;
        }
    }
    return 0;
}

static void explain(mp_dial *dial, int error)
{
    if (error == ECONNREFUSED)
        mp_err_set(&dial->err, "connection refused: nothing listens at this port");
    else
        mp_err_set(&dial->err, "cannot connect: %s", strerror(error));
}

static void try_next(mp_dial *dial);

static void on_attempt_over(mp_timer *timer)
{
    mp_dial *dial = mp_container(timer, mp_dial, timer);
    mp_err_set(&dial->err, "the connection timed out");
    try_next(dial);
}

static void on_connected(mp_fdwatch *watch, MP_UNUSED uint32_t events)
{
    mp_dial *dial = mp_container(watch, mp_dial, watch);
    int error = 0;
    socklen_t len = sizeof error;
    getsockopt(dial->fd, SOL_SOCKET, SO_ERROR, &error, &len);
    if (error == 0) {
        end_dial(dial, dial->fd);
        return;
    }
    explain(dial, error);
    try_next(dial);
}

/* False, with the reason: the address cannot be connected to, or may not. */
static bool try_address(mp_dial *dial, const struct sockaddr *address, socklen_t len)
{
    if (!mp_address_policy_allows(&dial->policy, address)) {
        mp_stat_add(&mp_stat_refused_address, 1);
        mp_err_set(&dial->err, "the host resolves to an address that no grant allows: host names may resolve to public "
                               "addresses only; \"NAME:PORT private\" allows private ones");
        return false;
    }
    if (!take_place(dial)) {
        mp_err_set(&dial->err, MP_OUTGOING_FULL);
        return false;
    }
    dial->fd = socket(address->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (dial->fd < 0) {
        explain(dial, errno);
        give_place(dial);
        return false;
    }
    set_options(dial->fd);
    if ((connect(dial->fd, address, len) == 0 || errno == EINPROGRESS) &&
        mp_fdwatch_start(dial->client->loop, &dial->watch, dial->fd, EPOLLOUT, on_connected) == 0) {
        mp_timer_start(dial->client->loop, &dial->timer, ATTEMPT_MS, on_attempt_over);
        return true;
    }
    explain(dial, errno);
    close_attempt(dial);
    return false;
}

static void try_next(mp_dial *dial)
{
    struct sockaddr_storage room;
    socklen_t len;
    close_attempt(dial);
    while ((len = next_address(dial, &room)) > 0)
        if (try_address(dial, (const struct sockaddr *)(const void *)&room, len))
            return;
    end_dial(dial, -1);
}

static void on_start(mp_timer *timer)
{
    try_next(mp_container(timer, mp_dial, timer));
}

static void on_addresses(void *ctx, const char *MP_NULLABLE addresses)
{
    mp_dial *dial = ctx;
    dial->lookup = NULL;
    mp_err_set(&dial->err, "host not found (DNS)");
    mp_buf_put(&dial->addresses, mp_str_of(addresses));
    try_next(dial);
}

/* Adds the addresses of a host for which no name server is asked. False: it is asked. */
static bool add_known(mp_dial *dial)
{
    char address[MP_ADDRESS_TEXT];
    const mp_client_limits *limits = &dial->client->limits;
    mp_str host = mp_str_of(dial->host);
    bool is_address = mp_address_canonical(dial->host, address);
    bool is_local =
        mp_str_is(host, "localhost") || (host.len > 10 && mp_str_is(mp_str_from(host, host.len - 10), ".localhost"));
    if (!is_address && !is_local)
        return mp_lookup_known(host, limits->idle_ms, limits->lookups, &dial->addresses);
    mp_buf_put(&dial->addresses, is_local ? MP_STR("127.0.0.1,[::1]") : host);
    return true;
}

mp_dial *mp_dial_start(mp_client *client, const char *host, uint16_t port, const mp_address_policy *policy,
                       unsigned holder, mp_dial_done *done, void *ctx)
{
    mp_dial *dial = mp_new(sizeof *dial);
    *dial = (mp_dial){.client = client,
                      .host = mp_dup(mp_str_of(host)),
                      .port = port,
                      .policy = *policy,
                      .holder = holder,
                      .done = done,
                      .ctx = ctx,
                      .fd = -1};
    if (!add_known(dial)) {
        dial->lookup =
            mp_lookup_start(client->loop, mp_str_of(host), client->limits.lookups, holder, on_addresses, dial);
        if (dial->lookup != NULL)
            return dial;
        mp_stat_add(&mp_stat_refused_lookups, 1);
        mp_err_set(&dial->err, "too many name lookups in flight");
    }
    mp_timer_start(client->loop, &dial->timer, 0, on_start); /* `done` never runs inside of this function */
    return dial;
}

/* -- TLS ----------------------------------------------------------------------------------------------------------- */

/* True if the context of the client is the one that would be made. */
static bool is_current(const mp_client *client, const char *MP_NULLABLE ca, const mp_tls *MP_NULLABLE own,
                       struct stat *now)
{
    const struct stat *then = &client->tls.ca;
    memset(now, 0, sizeof *now);
    if (ca != NULL)
        stat(ca, now);
    return client->tls.context != NULL && client->tls.own == own && now->st_ino == then->st_ino &&
           now->st_dev == then->st_dev && now->st_size == then->st_size &&
           now->st_mtim.tv_sec == then->st_mtim.tv_sec && now->st_mtim.tv_nsec == then->st_mtim.tv_nsec;
}

const char *MP_NULLABLE mp_client_authorities(const mp_client *client)
{
    return client->limits.ca != NULL ? client->limits.ca : mp_find_authorities_file();
}

static SSL_CTX *new_context(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());
    if (context == NULL)
        abort();
    SSL_CTX_set_min_proto_version(context, TLS1_2_VERSION);
    SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_mode(context,
                     SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
    X509_STORE_set_flags(SSL_CTX_get_cert_store(context), X509_V_FLAG_PARTIAL_CHAIN); /* as libcurl does */
    return context;
}

struct ssl_ctx_st *MP_NULLABLE mp_client_context(mp_client *client, const char *MP_NULLABLE ca, mp_tls *MP_NULLABLE own,
                                                 mp_err *err)
{
    struct stat now;
    if (is_current(client, ca, own, &now))
        return client->tls.context;
    mp_authorities system = ca == NULL ? mp_find_authorities() : (mp_authorities){.file = ca};
    SSL_CTX *context = new_context();
    bool is_trusting = SSL_CTX_load_verify_locations(context, system.file, system.folder) == 1;
    if (!is_trusting || (own != NULL && !mp_tls_show(own, context))) {
        SSL_CTX_free(context);
        mp_err_set(err, is_trusting ? "the certificate cannot be used" : "the CA certificates cannot be read");
        mp_err_hint(err, own != NULL ? "" : "http.ca in moonpool.yaml names their file");
        return NULL;
    }
    SSL_CTX_free(client->tls.context); /* connections keep what they use of it */
    mp_tls_unref(client->tls.own);
    client->tls.context = context;
    client->tls.own = own == NULL ? NULL : mp_tls_ref(own);
    client->tls.ca = now;
    return context;
}

struct ssl_ctx_st *MP_NULLABLE mp_client_tls(mp_client *client, mp_err *err)
{
    return mp_client_context(client, client->limits.ca, NULL, err);
}
