/* server.h: a small server on libh2o, for what the bench compares with: one loop per thread, each with a listener of
 * its own at the port. */
#ifndef BENCH_SERVER_H
#define BENCH_SERVER_H

#include <h2o.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static h2o_globalconf_t config;
static SSL_CTX *tls; /* NULL: connections are not encrypted */
static int port;

static void on_accept(h2o_socket_t *listener, const char *err)
{
    h2o_accept_ctx_t *accepting = listener->data;
    for (int i = 0; err == NULL && i < 16; i++) {
        h2o_socket_t *sock = h2o_evloop_socket_accept(listener);
        if (sock == NULL)
            break;
        h2o_accept(accepting, sock);
    }
}

static int listen_here(void)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &on, sizeof on);
    if (bind(fd, (struct sockaddr *)&address, sizeof address) != 0 || listen(fd, 1024) != 0) {
        perror("listen");
        exit(1);
    }
    return fd;
}

static void *run_loop(void *unused)
{
    static __thread h2o_context_t context;
    static __thread h2o_accept_ctx_t accepting;
    (void)unused;
    h2o_loop_t *loop = h2o_evloop_create();
    h2o_context_init(&context, loop, &config);
    accepting.ctx = &context;
    accepting.hosts = config.hosts;
    accepting.ssl_ctx = tls;
    h2o_socket_t *listener = h2o_evloop_socket_create(loop, listen_here(), H2O_SOCKET_FLAG_DONT_READ);
    listener->data = &accepting;
    h2o_socket_read_start(listener, on_accept);
    while (h2o_evloop_run(loop, 1000) == 0 || errno == EINTR)
        continue;
    return NULL;
}

/* Has the server speak TLS with the certificate and the key in this file of PEM. */
static inline void encrypt(const char *pem)
{
    tls = SSL_CTX_new(TLS_server_method());
    if (tls == NULL || SSL_CTX_use_certificate_chain_file(tls, pem) != 1 ||
        SSL_CTX_use_PrivateKey_file(tls, pem, SSL_FILETYPE_PEM) != 1) {
        fprintf(stderr, "cannot use the certificate in %s\n", pem);
        exit(1);
    }
}

/* Serves at 127.0.0.1 with `threads` loops, for ever. */
static void serve_for_ever(const char *at_port, const char *threads, int (*on_request)(h2o_handler_t *, h2o_req_t *))
{
    port = atoi(at_port);
    h2o_config_init(&config);
    h2o_hostconf_t *host = h2o_config_register_host(&config, h2o_iovec_init(H2O_STRLIT("default")), 65535);
    h2o_create_handler(h2o_config_register_path(host, "/", 0), sizeof(h2o_handler_t))->on_req = on_request;
    pthread_t thread;
    for (int i = 1; i < atoi(threads); i++)
        pthread_create(&thread, NULL, run_loop, NULL);
    run_loop(NULL);
}

#endif
