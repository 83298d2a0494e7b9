/* wire_tls.c: TLS client of the workbench. A certificate that is not trusted or has another name is always refused. */
#include "lib/wire_tls.h"
#include <arpa/inet.h>
#include <errno.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

struct mp_wire_tls {
    SSL_CTX *context;
    SSL *ssl;
};

static bool is_address(const char *host)
{
    unsigned char bytes[16];
    return inet_pton(strchr(host, ':') == NULL ? AF_INET : AF_INET6, host, bytes) == 1;
}

/* Sets `err` to the cause of the last OpenSSL call's failure. `result` is what that call returned. */
static void set_tls_error(SSL *ssl, int result, mp_err *err)
{
    int wrong = SSL_get_error(ssl, result), number = errno;
    long trust = SSL_get_verify_result(ssl);
    unsigned long code = ERR_get_error();
    const char *reason = ERR_reason_error_string(code);
    if (trust != X509_V_OK) {
        mp_err_set(err, "the server's certificate is not trusted: %s", X509_verify_cert_error_string(trust));
        mp_err_hint(err, "use --ca FILE to name certificates to trust");
    } else if (wrong == SSL_ERROR_SYSCALL && number != 0) {
        mp_err_set(err, "%s", strerror(number));
    } else if (reason != NULL) {
        mp_err_set(err, "TLS: %s", reason);
    } else {
        mp_err_set(err, "the server closed the connection without ending TLS");
    }
}

static int prepare_tls(mp_wire_tls *tls, int fd, const char *host, const char *ca, mp_err *err)
{
    tls->context = SSL_CTX_new(TLS_client_method());
    if (tls->context == NULL)
        return mp_err_set(err, "not enough memory for TLS");
    SSL_CTX_set_min_proto_version(tls->context, TLS1_2_VERSION);
    SSL_CTX_set_verify(tls->context, SSL_VERIFY_PEER, NULL);
    if (ca == NULL ? SSL_CTX_set_default_verify_paths(tls->context) != 1
                   : SSL_CTX_load_verify_locations(tls->context, ca, NULL) != 1) {
        ERR_clear_error();
        return mp_err_set(err, "cannot read certificates from %s", ca == NULL ? "the system" : ca);
    }
    tls->ssl = SSL_new(tls->context);
    if (tls->ssl == NULL || SSL_set_fd(tls->ssl, fd) != 1)
        return mp_err_set(err, "not enough memory for TLS");
    bool is_named = is_address(host)
                        ? X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(tls->ssl), host) == 1
                        : SSL_set1_host(tls->ssl, host) == 1 && SSL_set_tlsext_host_name(tls->ssl, host) == 1;
    return is_named ? 0 : mp_err_set(err, "'%s' is not a host name or IP address that TLS can check", host);
}

mp_wire_tls *mp_wire_tls_open(int fd, const char *host, const char *ca, mp_err *err)
{
    mp_wire_tls *tls = mp_new(sizeof *tls);
    if (prepare_tls(tls, fd, host, ca, err) == 0) {
        int result = SSL_connect(tls->ssl);
        if (result == 1)
            return tls;
        set_tls_error(tls->ssl, result, err);
    }
    SSL_free(tls->ssl);
    SSL_CTX_free(tls->context);
    free(tls);
    return NULL;
}

void mp_wire_tls_close(mp_wire_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_shutdown(tls->ssl);
    SSL_free(tls->ssl);
    SSL_CTX_free(tls->context);
    ERR_clear_error();
    free(tls);
}

bool mp_wire_tls_has_more(mp_wire_tls *tls)
{
    return SSL_pending(tls->ssl) > 0;
}

ssize_t mp_wire_tls_read(mp_wire_tls *tls, char *buffer, size_t len, mp_err *err)
{
    int got = SSL_read(tls->ssl, buffer, len > INT_MAX ? INT_MAX : (int)len);
    if (got > 0)
        return got;
    if (SSL_get_error(tls->ssl, got) == SSL_ERROR_ZERO_RETURN)
        return 0;
    set_tls_error(tls->ssl, got, err);
    return -1;
}

ssize_t mp_wire_tls_write(mp_wire_tls *tls, const char *bytes, size_t len, mp_err *err)
{
    int got = SSL_write(tls->ssl, bytes, len > INT_MAX ? INT_MAX : (int)len);
    if (got > 0)
        return got;
    set_tls_error(tls->ssl, got, err);
    return -1;
}
