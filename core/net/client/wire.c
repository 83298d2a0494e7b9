/* wire.c: reads and writes of a connection that our loop watches. */
#include "net/net.h"
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <unistd.h>

void mp_net_wire_start_tls(mp_net_wire *wire, struct ssl_ctx_st *context, const char *host)
{
    char address[MP_ADDRESS_TEXT];
    SSL *ssl = SSL_new(context);
    if (ssl == NULL || SSL_set_fd(ssl, wire->fd) != 1)
        abort();
    if (mp_address_canonical(host, address)) {
        X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), address);
    } else {
        SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
        SSL_set1_host(ssl, host);
        SSL_set_tlsext_host_name(ssl, host);
    }
    SSL_set_connect_state(ssl);
    wire->ssl = ssl;
}

static int explain_tls(const SSL *ssl, const char *what, mp_err *err)
{
    long verified = SSL_get_verify_result(ssl);
    const char *reason = ERR_reason_error_string(ERR_peek_error());
    if (verified != X509_V_OK)
        mp_err_set(err, "the server's certificate is not trusted: %s", X509_verify_cert_error_string(verified));
    else
        mp_err_set(err, "%s: %s", what, reason != NULL ? reason : "the server closed the connection");
    ERR_clear_error();
    return -1;
}

/* What OpenSSL says after a call that did nothing: 0: later; -1: it is over. */
static int later(mp_net_wire *wire, const SSL *ssl, int result, const char *what, mp_err *err)
{
    int error = SSL_get_error(ssl, result);
    wire->wants_to_write = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return 0;
    if (error == SSL_ERROR_ZERO_RETURN)
        return mp_err_set(err, "the server closed the connection");
    return explain_tls(ssl, what, err);
}

int mp_net_wire_shake_hands(mp_net_wire *wire, mp_err *err)
{
    SSL *ssl = wire->ssl;
    if (ssl == NULL)
        return 1;
    ERR_clear_error();
    wire->wants_to_write = false;
    int result = SSL_do_handshake(ssl);
    return result == 1 ? 1 : later(wire, ssl, result, "the TLS handshake failed", err);
}

static ssize_t explain_errno(ssize_t result, mp_err *err)
{
    if (result < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
        return 0;
    return mp_err_set(err, "%s",
                      result == 0 || errno == ECONNRESET || errno == EPIPE ? "the server closed the connection"
                                                                           : strerror(errno));
}

ssize_t mp_net_wire_read(mp_net_wire *wire, char *room, size_t size, mp_err *err)
{
    SSL *ssl = wire->ssl;
    size_t count = 0;
    if (ssl == NULL) {
        ssize_t result = recv(wire->fd, room, size, 0);
        return result > 0 ? result : explain_errno(result, err);
    }
    ERR_clear_error();
    wire->wants_to_write = false;
    int result = SSL_read_ex(ssl, room, size, &count);
    return result == 1 ? (ssize_t)count : later(wire, ssl, result, "TLS failed", err);
}

ssize_t mp_net_wire_write(mp_net_wire *wire, const char *bytes, size_t size, mp_err *err)
{
    SSL *ssl = wire->ssl;
    size_t count = 0;
    if (ssl == NULL) {
        ssize_t result = send(wire->fd, bytes, size, MSG_NOSIGNAL);
        return result > 0 ? result : explain_errno(result, err);
    }
    ERR_clear_error();
    wire->wants_to_write = false;
    int result = SSL_write_ex(ssl, bytes, size, &count);
    return result == 1 ? (ssize_t)count : later(wire, ssl, result, "TLS failed", err);
}

bool mp_net_wire_has_bytes(const mp_net_wire *wire)
{
    return wire->ssl != NULL && SSL_has_pending(wire->ssl) == 1;
}

void mp_net_wire_close(mp_net_wire *wire)
{
    SSL_free(wire->ssl);
    if (wire->fd >= 0)
        close(wire->fd);
    *wire = (mp_net_wire){.fd = -1};
}
