/* client.h: outgoing HTTP requests of one loop; part of the public header net.h.
 *
 *   client          the HTTP client of one worker; it keeps connections open and reuses them
 *   transfer        one request and its response; redirects are reported to the caller, not followed
 *   address policy  the addresses that a transfer may connect to
 *
 * Everything belongs to the thread of the loop. No proxies, no cookies; credentials only in the caller's headers. */
#ifndef MP_NET_CLIENT_H
#define MP_NET_CLIENT_H

#include "net/tls/tls.h"

struct mp_loop;
struct ssl_ctx_st;
typedef struct mp_client mp_client;
typedef struct mp_transfer mp_transfer;

typedef struct {
    int64_t requests;           /* limit of concurrent requests; a request above it is refused */
    int64_t lookups;            /* limit of concurrent name lookups in the process */
    int64_t per_host;           /* connections to one host; further requests wait for a free connection. 0: no limit */
    size_t held;                /* limit of buffered bytes of all responses */
    uint64_t idle_ms;           /* how long an unused connection is kept */
    const char *MP_NULLABLE ca; /* path of a file with CA certificates to trust instead of the system's */
    bool is_inner; /* its requests go to other processes of this gateway, without libcurl, and http_requests has none */
} mp_client_limits;

/* `limits` is copied; `limits->ca` must outlive the client. The first transfer loads libcurl, unless it is inner. */
mp_client *mp_client_new(struct mp_loop *loop, const mp_client_limits *limits);
void mp_client_configure(mp_client *client, const mp_client_limits *limits); /* of transfers that start later */
/* Sends the requests of started transfers now, not in the next turn. `ready` may run. Not inside a call of libcurl. */
void mp_client_begin(mp_client *client);
void mp_client_free(mp_client *client); /* after all its transfers, and before its loop */

#define MP_ADDRESS_TEXT 46
typedef enum {
    MP_ADDRESS_POLICY_PUBLIC,   /* addresses of the public Internet */
    MP_ADDRESS_POLICY_LOOPBACK, /* loopback addresses only */
    MP_ADDRESS_POLICY_PRIVATE,  /* public, loopback and private addresses; not link-local ones */
    MP_ADDRESS_POLICY_ADDRESS   /* only the address in `address` */
} mp_address_policy_kind;

typedef struct {
    mp_address_policy_kind kind;
    char address[MP_ADDRESS_TEXT];
} mp_address_policy;

/* True if `text` is an IPv4 address in dotted decimal or an IPv6 address; `room` receives its canonical form. */
bool mp_address_canonical(const char *text, char room[MP_ADDRESS_TEXT]);

/* A parsed URL. libcurl, which will connect to it, parses it. Free it with `mp_url_clear`. */
typedef struct {
    char *text; /* the whole URL, normalized, without fragment */
    char *scheme, *host, *path;
    uint16_t port;
} mp_url; /* host: lower case, without a final dot; IPv4 in dotted decimal, IPv6 without brackets */

/* A relative `text` is resolved against `base`. -1: the URL is invalid, has credentials, or is not http or https. */
int mp_url_parse(mp_url *url, const char *text, const char *MP_NULLABLE base, mp_err *err);
void mp_url_clear(mp_url *url);

typedef struct {
    const char *method, *url;        /* url: normalized by mp_url_parse */
    const char *const *headers;      /* "Name: value", or "Name;" for an empty value; ends with NULL */
    mp_str body;                     /* ptr == NULL: no body. Borrowed until the transfer is freed */
    size_t most;                     /* limit of the response's body, in bytes after decompression */
    bool is_stream;                  /* the body is read piece by piece, with flow control; else collected as a whole */
    mp_account *MP_NULLABLE account; /* of its bytes, up to account_most, in place of mp_client_limits.held */
    int64_t account_most;
    bool is_repeatable; /* the request may be sent a second time on a new connection */
    mp_address_policy policy;
    unsigned holder; /* number of the script or upstream that the connection is for, as of mp_outgoing_take */
    /* of an inner client: path of a Unix socket, or HOST:PORT, to connect to in place of the URL's host; NULL: none */
    const char *MP_NULLABLE unix_path, *MP_NULLABLE connect_to;
    uint64_t connect_ms; /* time limit of connecting; 0: the client's own */
    /* paths of files; ca: instead of the client's; certificate and key: of this side. Each may be NULL */
    const char *MP_NULLABLE ca, *MP_NULLABLE certificate, *MP_NULLABLE key;
    mp_tls *MP_NULLABLE tls; /* of an inner client, instead of both: those of a listener. Borrowed during the start */
    /* Called when a stream's head or bytes are there, and at the end; perhaps by libcurl: only marks and enqueues. */
    void (*ready)(mp_transfer *transfer, void *ctx);
    void *ctx;
} mp_outgoing;

/* Returns NULL if the request cannot be started. `ready` never runs before this function returns. */
mp_transfer *MP_NULLABLE mp_transfer_start(mp_client *client, const mp_outgoing *outgoing, mp_err *err);
/* May be called at any time except inside `ready`: aborts a running transfer. `transfer` may be NULL. */
void mp_transfer_free(mp_transfer *MP_NULLABLE transfer);

int mp_transfer_status(const mp_transfer *transfer);  /* the HTTP status; 0 until the response's head has arrived */
mp_str mp_transfer_head(const mp_transfer *transfer); /* the response's headers, as lines "name: value" */
mp_str mp_transfer_body(const mp_transfer *transfer); /* the bytes that have arrived and were not taken */
void mp_transfer_take(mp_transfer *transfer);         /* discards them; more may arrive during this call */
bool mp_transfer_is_over(const mp_transfer *transfer);
const mp_err *MP_NULLABLE mp_transfer_failure(const mp_transfer *transfer); /* why it is incomplete; NULL: it is not */
typedef enum {
    MP_TRANSFER_OTHER,
    MP_TRANSFER_CROWDED,    /* the account has no room for it */
    MP_TRANSFER_REFUSED,    /* the address policy does not allow the address */
    MP_TRANSFER_UNSENT,     /* the server has read nothing of the request */
    MP_TRANSFER_PARTIAL,    /* the server has not received the whole request */
    MP_TRANSFER_UNANSWERED, /* the server may have received the request */
} mp_transfer_trouble;      /* the kind of a failure */
mp_transfer_trouble mp_transfer_trouble_of(const mp_transfer *transfer);

typedef struct mp_dial mp_dial; /* a TCP connection that is being opened */
/* Runs once, later. `fd`: -1 with the reason, or nonblocking, and counted for `holder` until mp_outgoing_give. */
typedef void mp_dial_done(void *ctx, int fd, const mp_err *why);
/* Connects to an address of `host` that the policy allows. Cancel it before the client is freed. */
mp_dial *mp_dial_start(mp_client *client, const char *host, uint16_t port, const mp_address_policy *policy,
                       unsigned holder, mp_dial_done *done, void *ctx);
void mp_dial_cancel(mp_dial *MP_NULLABLE dial); /* `done` will not run; NULL does nothing */
/* OpenSSL's context for a connection whose server is checked as that of an https URL; the client owns it. */
struct ssl_ctx_st *MP_NULLABLE mp_client_tls(mp_client *client, mp_err *err);
typedef struct {
    int fd;                         /* -1: closed */
    struct ssl_st *MP_NULLABLE ssl; /* NULL: no TLS */
    bool wants_to_write;            /* TLS has to write before it goes on */
} mp_net_wire;                      /* the bytes of a connection that was opened, with TLS or without */
/* Prepares TLS with the server `host`, with a context of mp_client_tls. */
void mp_net_wire_start_tls(mp_net_wire *wire, struct ssl_ctx_st *context, const char *host);
int mp_net_wire_shake_hands(mp_net_wire *wire, mp_err *err); /* 1: done; 0: again when the socket is ready; -1 */
/* The bytes that were read or written; 0: none now; -1 with the reason: no more can be. */
ssize_t mp_net_wire_read(mp_net_wire *wire, char *room, size_t size, mp_err *err);
ssize_t mp_net_wire_write(mp_net_wire *wire, const char *bytes, size_t size, mp_err *err);
bool mp_net_wire_has_bytes(const mp_net_wire *wire); /* received ones that the socket has no event for */
void mp_net_wire_close(mp_net_wire *wire);
const char *MP_NULLABLE mp_client_authorities(const mp_client *client); /* the file of those that it trusts */

/* -- without a loop ------------------------------------------------------------------------------------------------ */

/* One request of a command line, which has no event loop: it blocks the thread. A gateway never calls it (fetch.c). */
#define MP_FETCH_HEADERS 4
typedef struct {
    const char *method, *MP_NULLABLE url;
    const char *MP_NULLABLE socket; /* path of the Unix socket to connect to; NULL: connect to the URL's host */
    const char *MP_NULLABLE ca;     /* path of certificates to trust instead of the system's; NULL: those */
    const char *MP_NULLABLE text;   /* the request's body; NULL: none */
    int seconds;                    /* limit of seconds for the whole answer; 0: 600 */
    const char *headers[MP_FETCH_HEADERS + 1]; /* "Name: value"; end with NULL */
    /* takes the body of an answer with status 200 as it arrives, instead of `body`; false ends the request */
    bool (*MP_NULLABLE on_bytes)(void *ctx, mp_str bytes);
    void *ctx;
} mp_fetch_options;

/* Sends the request, and appends the answer's body, of at most 64 MiB. Returns the status; -1 if there is no answer. */
int mp_fetch(const mp_fetch_options *options, mp_buf *body, mp_err *err);

#endif
