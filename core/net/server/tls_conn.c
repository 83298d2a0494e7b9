/* tls_conn.c: the TLS side of one connection: its handshake, its client's identity, and its close_notify. */
#include "http.h"
#include "json/json.h"
#include "net/tls/context.h"
#include <h2o/http1.h>
#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <arpa/inet.h>

MP_REFUSED(refused_tls, "tls", MP_FAULT, "TLS handshakes that failed or took too long")

#define CLOSE_NOTIFY_MS 40
#define ALERT_CAP 64 /* maximum size of a record that holds an alert, in bytes */
/* OpenSSL's buffer for a record, which it frees with the record (SSL_MODE_RELEASE_BUFFERS). */
#define RECORD_BYTES (17 << 10)

struct mp_tls_conn {
    mp_conn *conn;
    mp_tls *MP_NULLABLE tls; /* until the handshake is over: it may hold thousands of certificates */
    SSL *MP_NULLABLE ssl;    /* owned by libh2o; NULL before the ClientHello */
    mp_timer timer;          /* limit of the handshake; afterwards the delay before a close_notify is acted on */
    unsigned char alert[ALERT_CAP];
    /* bytes of the handshake's last output: libh2o would drop an alert in it, and the client would not learn the
     * reason */
    size_t alert_len;
    unsigned char binding[MP_TLS_BINDING]; /* of session tickets, where certificates have names */
    bool is_unnamed;                       /* no certificate serves the name that the client asked for */
    mp_tls_peer *MP_NULLABLE peer;         /* NULL: it was not asked for yet */
    void (*MP_NULLABLE left)(
        mp_stream *stream); /* the client has closed the connection while its request is answered */
};

/* -- handshake ----------------------------------------------------------------------------------------------------- */

static long notice_write(BIO *bio, int operation, const char *bytes, size_t len, MP_UNUSED int i, MP_UNUSED long l,
                         int result, MP_UNUSED size_t *done)
{
    mp_tls_conn *tls = (mp_tls_conn *)(void *)BIO_get_callback_arg(bio);
    if (operation == (BIO_CB_WRITE | BIO_CB_RETURN)) {
        tls->alert_len = len <= ALERT_CAP && len > 0 && (bytes[0] == 21 || bytes[0] == 23) ? len : 0;
        memcpy(tls->alert, bytes, tls->alert_len);
    }
    return result;
}

/* Called while libh2o reads the ClientHello of a connection: finds the connection that the SSL object belongs to. */
static int on_hello(SSL *ssl, int *alert, MP_UNUSED void *ctx)
{
    BIO *bio = SSL_get_rbio(ssl);
    const h2o_socket_t *socket = BIO_get_data(bio);
    mp_tls_conn *tls = ((mp_conn *)socket->on_close.data)->tls;
    if (tls == NULL)
        return SSL_CLIENT_HELLO_ERROR;
    tls->ssl = ssl;
    BIO_set_callback_arg(bio, (char *)(void *)tls);
    BIO_set_callback_ex(bio, notice_write);
    const mp_tls *of_listener = tls->tls;
    const mp_tls_names *names = of_listener == NULL ? NULL : of_listener->names;
    int why = names == NULL ? 0 : mp_tls_names_choose(names, ssl, tls->binding);
    if (why == 0)
        return SSL_CLIENT_HELLO_SUCCESS;
    tls->is_unnamed = why == SSL_AD_UNRECOGNIZED_NAME;
    *alert = why;
    return SSL_CLIENT_HELLO_ERROR;
}

void mp_tls_notice_hellos(SSL_CTX *context)
{
    SSL_CTX_set_client_hello_cb(context, on_hello, NULL);
}

static const mp_tls_conn *conn_of(SSL *ssl)
{
    const h2o_socket_t *socket = BIO_get_data(SSL_get_rbio(ssl));
    return MP_NEVER_NULL(((mp_conn *)socket->on_close.data)->tls); /* its handshake, or a session of it, is under way */
}

static int bind_ticket(SSL *ssl, MP_UNUSED void *ctx)
{
    return SSL_SESSION_set1_ticket_appdata(SSL_get_session(ssl), conn_of(ssl)->binding, MP_TLS_BINDING);
}

/* A ticket of another name or certificate is ignored: the client shakes hands in full, and gets a new one. */
static SSL_TICKET_RETURN judge_ticket(SSL *ssl, SSL_SESSION *session, MP_UNUSED const unsigned char *key,
                                      MP_UNUSED size_t key_len, SSL_TICKET_STATUS status, MP_UNUSED void *ctx)
{
    void *binding = NULL;
    size_t len = 0;
    if (status != SSL_TICKET_SUCCESS && status != SSL_TICKET_SUCCESS_RENEW)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    if (SSL_SESSION_get0_ticket_appdata(session, &binding, &len) != 1 || len != MP_TLS_BINDING ||
        memcmp(binding, conn_of(ssl)->binding, len) != 0)
        return SSL_TICKET_RETURN_IGNORE_RENEW;
    return status == SSL_TICKET_SUCCESS ? SSL_TICKET_RETURN_USE : SSL_TICKET_RETURN_USE_RENEW;
}

void mp_tls_bind_tickets(SSL_CTX *context)
{
    SSL_CTX_set_session_ticket_cb(context, bind_ticket, judge_ticket, NULL);
}

/* libh2o's HTTP/2 is served only behind the guard of net/http2/guard.c, and only where the configuration enables it. A
 * client that supports nothing that is offered gets an alert. */
int mp_tls_choose_protocol(SSL *ssl, const unsigned char **chosen, unsigned char *len, const unsigned char *offered,
                           unsigned offered_len, MP_UNUSED void *ctx)
{
    static const unsigned char own[] = "\x02h2\x08http/1.1";
    enum { HTTP1 = 3 }; /* the offset of http/1.1 */
    const h2o_socket_t *socket = BIO_get_data(SSL_get_rbio(ssl));
    size_t from = ((mp_conn *)socket->on_close.data)->listener->endpoint.http2 ? 0 : HTTP1;
    unsigned char *found;
    if (SSL_select_next_proto(&found, len, own + from, (unsigned)(sizeof own - 1 - from), offered, offered_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *chosen = found;
    return SSL_TLSEXT_ERR_OK;
}

bool mp_tls_is_ended(const mp_tls_conn *tls)
{
    const SSL *ssl = tls->ssl;
    return ssl != NULL && (SSL_get_shutdown(ssl) & SSL_RECEIVED_SHUTDOWN) != 0;
}

size_t mp_tls_partial(const mp_conn *conn)
{
    const mp_tls_conn *tls = conn->tls;
    const SSL *ssl = tls == NULL ? NULL : tls->ssl;
    return ssl != NULL && SSL_has_pending(ssl) ? RECORD_BYTES : 0;
}

static bool has_http2(const SSL *ssl)
{
    const unsigned char *name;
    unsigned len;
    SSL_get0_alpn_selected(ssl, &name, &len);
    return len == 2 && memcmp(name, "h2", 2) == 0;
}

/* Failures of TLS itself are logged; missing or refused client certificates also go to the audit log. */
static void audit_certificate(const mp_tls_conn *tls, unsigned long code)
{
    const SSL *ssl = tls->ssl;
    if (!mp_audit_is_on() || ssl == NULL || ERR_GET_LIB(code) != ERR_LIB_SSL)
        return;
    long verdict = SSL_get_verify_result(ssl);
    bool is_missing = ERR_GET_REASON(code) == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE;
    if (!is_missing && verdict == X509_V_OK)
        return;
    mp_scoped_buf line = {0};
    mp_buf_put(&line, MP_STR("\"event\":\"refused\",\"address\":"));
    mp_json_put_string(&line, mp_conn_peer(tls->conn));
    mp_buf_put(&line, MP_STR(",\"why\":"));
    mp_json_put_string(&line, is_missing ? MP_STR("no client certificate")
                                         : mp_str_of(X509_verify_cert_error_string(verdict)));
    mp_audit_write(mp_buf_str(&line));
}

static void fail_handshake(mp_tls_conn *tls, const char *error)
{
    static const char plain[] =
        "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\ncontent-length: 36\r\n\r\n"
        "this port speaks TLS: use https://\r\n";
    unsigned long code = ERR_peek_error();
    bool is_http = ERR_GET_LIB(code) == ERR_LIB_SSL && ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST;
    const char *reason = ERR_reason_error_string(code);
    int fd = h2o_socket_get_fd(tls->conn->socket);
    ssize_t sent = is_http              ? send(fd, plain, sizeof plain - 1, MSG_DONTWAIT | MSG_NOSIGNAL)
                   : tls->alert_len > 0 ? send(fd, tls->alert, tls->alert_len, MSG_DONTWAIT | MSG_NOSIGNAL)
                                        : 0;
    (void)sent; /* best effort: the client may not read it */
    ERR_clear_error();
    audit_certificate(tls, code);
    mp_stat_add(&mp_stat_refused_tls, 1);
    mp_refused(is_http ? MP_CAUSE_SCHEME : MP_CAUSE_TLS,
               mp_str_of(is_http           ? "plain HTTP was sent to a listener that speaks TLS: https:// is its scheme"
                         : tls->is_unnamed ? "no certificate has the name that the client asked for"
                         : reason != NULL  ? reason
                                           : error),
               mp_log_str("address", mp_conn_peer(tls->conn)));
    h2o_socket_close(tls->conn->socket);
}

static void on_handshake(h2o_socket_t *socket, const char *MP_NULLABLE error)
{
    mp_conn *conn = socket->on_close.data;
    mp_tls_conn *tls = conn->tls;
    if (tls == NULL)
        return;
    const SSL *ssl = tls->ssl;
    mp_timer_stop(conn->server->loop, &tls->timer);
    if (error != NULL || ssl == NULL) {
        fail_handshake(tls, error != NULL ? error : "there was no ClientHello");
        return;
    }
    BIO_set_callback_ex(SSL_get_rbio(ssl), NULL);
    mp_tls_unref(tls->tls);
    tls->tls = NULL;
    SSL_certs_clear(tls->ssl); /* no later step needs them: a connection that stays open keeps no certificate and key */
    if (has_http2(ssl)) {
        conn->server->accept_http2(conn);
        return;
    }
    h2o_accept_ctx_t *accept = &conn->server->accept;
    conn->reads_requests = true;
    h2o_http1_accept(accept, socket, *h2o_get_timestamp(accept->ctx, NULL, NULL));
}

static void on_late(mp_timer *timer)
{
    mp_tls_conn *tls = mp_container(timer, mp_tls_conn, timer);
    mp_stat_add(&mp_stat_refused_tls, 1);
    mp_refused(MP_CAUSE_TLS, MP_STR("the handshake took longer than 10 s"),
               mp_log_str("address", mp_conn_peer(tls->conn)));
    shutdown(h2o_socket_get_fd(tls->conn->socket), SHUT_RDWR);
    h2o_socket_close(tls->conn->socket);
}

void mp_tls_accept(mp_conn *conn, mp_tls_slot *slot)
{
    mp_server *server = conn->server;
    mp_tls_conn *tls = mp_new(sizeof *tls);
    conn->tls = tls;
    tls->conn = conn;
    mp_tls *now = mp_tls_slot_get(slot);
    mp_timer_start(server->loop, &tls->timer, MP_HANDSHAKE_MS, on_late);
    SSL_CTX *context = now->context;
    tls->tls = now;
    h2o_socket_ssl_handshake(conn->socket, context, NULL, on_handshake);
}

/* -- client identity ----------------------------------------------------------------------------------------------- */

static char *text_of(BIO *bio)
{
    char *bytes;
    long len = BIO_get_mem_data(bio, &bytes);
    char *text = mp_dup((mp_str){bytes, len < 0 ? 0 : (size_t)len});
    BIO_free(bio);
    return text;
}

/* RFC 2253, but letters beyond ASCII are not escaped. */
static char *name_text(const X509_NAME *name)
{
    BIO *bio = BIO_new(BIO_s_mem());
    X509_NAME_print_ex(bio, name, 0, XN_FLAG_RFC2253 & ~(unsigned long)ASN1_STRFLGS_ESC_MSB);
    return text_of(bio);
}

static char *serial_text(const X509 *certificate)
{
    BIO *bio = BIO_new(BIO_s_mem());
    i2a_ASN1_INTEGER(bio, X509_get0_serialNumber(certificate));
    return text_of(bio);
}

static char *fingerprint_text(const X509 *certificate)
{
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned len = 0;
    X509_digest(certificate, EVP_sha256(), digest, &len);
    BIO *bio = BIO_new(BIO_s_mem());
    for (unsigned i = 0; i < len; i++)
        BIO_printf(bio, "%02x", digest[i]);
    return text_of(bio);
}

/* NULL if the name contains a byte that is not allowed in such a name, above all NUL. */
static char *MP_NULLABLE san_text(const char *kind, const ASN1_STRING *string)
{
    mp_str name = {(const char *)ASN1_STRING_get0_data(string), (size_t)ASN1_STRING_length(string)};
    for (size_t i = 0; i < name.len; i++)
        if ((unsigned char)name.ptr[i] <= ' ' || name.ptr[i] == 0x7f)
            return NULL;
    mp_buf text = {0};
    mp_buf_printf(&text, "%s:%.*s", kind, MP_STR_ARG(name));
    mp_buf_putc(&text, '\0');
    return text.ptr;
}

static char *MP_NULLABLE address_text(const ASN1_STRING *string)
{
    char text[INET6_ADDRSTRLEN + 3] = "IP:";
    int len = ASN1_STRING_length(string);
    if (len != 4 && len != 16)
        return NULL;
    inet_ntop(len == 4 ? AF_INET : AF_INET6, ASN1_STRING_get0_data(string), text + 3, sizeof text - 3);
    return mp_dup(mp_str_of(text));
}

static char *MP_NULLABLE general_text(const GENERAL_NAME *name)
{
    int type;
    const ASN1_STRING *value = GENERAL_NAME_get0_value(name, &type);
    switch (type) {
    case GEN_DNS:
        return san_text("DNS", value);
    case GEN_URI:
        return san_text("URI", value);
    case GEN_EMAIL:
        return san_text("EMAIL", value);
    case GEN_IPADD:
        return address_text(value);
    default:
        return NULL;
    }
}

static char **sans_of(X509 *certificate)
{
    GENERAL_NAMES *names = X509_get_ext_d2i(certificate, NID_subject_alt_name, NULL, NULL);
    int count = names == NULL ? 0 : sk_GENERAL_NAME_num(names);
    char **list = mp_new(((size_t)count + 1) * sizeof *list);
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        char *text = general_text(sk_GENERAL_NAME_value(names, i));
        if (text != NULL)
            list[used++] = text;
    }
    GENERAL_NAMES_free(names);
    return list;
}

/* Reads the facts about a client's certificate; empty texts if `certificate` is NULL. */
static mp_tls_peer *read_peer(X509 *MP_NULLABLE certificate)
{
    mp_tls_peer *peer = mp_new(sizeof *peer);
    if (certificate != NULL)
        *peer = (mp_tls_peer){
            .subject = name_text(X509_get_subject_name(certificate)),
            .issuer = name_text(X509_get_issuer_name(certificate)),
            .serial = serial_text(certificate),
            .fingerprint = fingerprint_text(certificate),
            .expires = mp_tls_not_after(certificate),
            .sans = sans_of(certificate),
        };
    return peer;
}

void mp_tls_peer_free(mp_tls_peer *MP_NULLABLE peer)
{
    if (peer == NULL)
        return;
    for (char **san = peer->sans; san != NULL && *san != NULL; san++)
        free(*san);
    free(peer->sans);
    free(peer->subject);
    free(peer->issuer);
    free(peer->serial);
    free(peer->fingerprint);
    free(peer);
}

mp_tls_peer *mp_tls_own(const mp_tls *tls)
{
    return read_peer(SSL_CTX_get0_certificate(tls->context));
}

mp_tls_peer *mp_tls_pair_own(mp_tls_pair *MP_NULLABLE pair)
{
    STACK_OF(X509) *certificates = NULL;
    EVP_PKEY *key = NULL;
    bool is_there = pair != NULL && mp_tls_pair_take(pair, &certificates, &key);
    mp_tls_peer *own = read_peer(is_there ? sk_X509_value(certificates, 0) : NULL);
    sk_X509_pop_free(certificates, X509_free);
    EVP_PKEY_free(key);
    return own;
}

const mp_tls_peer *MP_NULLABLE mp_stream_tls(const mp_stream *stream)
{
    const mp_live *live = stream->live;
    mp_tls_conn *tls = live == NULL ? NULL : live->conn->tls;
    const SSL *ssl = tls == NULL ? NULL : tls->ssl;
    if (ssl == NULL)
        return NULL;
    if (tls->peer == NULL)
        tls->peer = read_peer(SSL_get0_peer_certificate(ssl));
    return tls->peer;
}

void mp_tls_conn_free(mp_tls_conn *MP_NULLABLE tls)
{
    if (tls == NULL)
        return;
    mp_timer_stop(tls->conn->server->loop, &tls->timer);
    mp_tls_unref(tls->tls);
    mp_tls_peer_free(tls->peer);
    free(tls);
}

/* -- close_notify -------------------------------------------------------------------------------------------------- */

/* True if the last record in the kernel's queue is an alert: a client that continues has no reason to send an alert.
 * TLS 1.3 encrypts the record's type but not its size: an alert has the same size as two bytes of data. */
static bool has_alert_last(const mp_tls_conn *tls, const SSL *ssl)
{
    unsigned char bytes[4096];
    ssize_t got = recv(h2o_socket_get_fd(tls->conn->socket), bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT);
    size_t size = got < 0 ? 0 : (size_t)got;
    for (size_t at = 0; at + 5 <= size;) {
        size_t len = (size_t)bytes[at + 3] << 8 | bytes[at + 4];
        if (at + 5 + len == size)
            return bytes[at] == 21 || (bytes[at] == 23 && len == 2 + 1 + 16 && SSL_version(ssl) >= TLS1_3_VERSION);
        at += 5 + len;
    }
    return false;
}

static bool has_close_notify(const mp_tls_conn *tls)
{
    const SSL *ssl = tls->ssl;
    return mp_tls_is_ended(tls) || (ssl != NULL && has_alert_last(tls, ssl));
}

static void on_close_notify(mp_timer *timer)
{
    mp_tls_conn *tls = mp_container(timer, mp_tls_conn, timer);
    void (*MP_NULLABLE left)(mp_stream *stream) = tls->left;
    if (left != NULL && !mp_link_is_alone(&tls->conn->streams) && has_close_notify(tls))
        left(mp_container(tls->conn->streams.next, mp_stream, link));
}

void mp_tls_watch_for_close_notify(mp_tls_conn *tls, void (*left)(mp_stream *stream))
{
    tls->left = left;
    if (has_close_notify(tls))
        mp_timer_start(tls->conn->server->loop, &tls->timer, CLOSE_NOTIFY_MS, on_close_notify);
}

void mp_tls_stop_listening(mp_tls_conn *tls)
{
    mp_timer_stop(tls->conn->server->loop, &tls->timer);
}
