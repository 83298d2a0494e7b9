/* client.h: outgoing HTTP of one loop, part of the door net.h.
 *
 *   client     what a worker asks others with: its connections are kept and used again
 *   transfer   one request on its way, and its answer; redirects are told, not followed
 *   reach      the addresses that a transfer may connect to
 *
 * Everything belongs to the thread of the loop. No proxy, no cookies, no credentials but the headers that are given. */
#ifndef MP_NET_CLIENT_H
#define MP_NET_CLIENT_H

#include "base/base.h"

struct mp_loop;
typedef struct mp_client mp_client;
typedef struct mp_transfer mp_transfer;

typedef struct {
    int64_t requests; /* at once; the next one is refused */
    int64_t lookups;  /* of names, in the whole process */
    int64_t per_host; /* connections to one host; more requests wait for one */
    size_t held;      /* bytes of all answers that nobody has taken yet */
    uint64_t idle_ms; /* connections that nobody uses are kept for so long */
    const char *ca;   /* a file of certificates to trust instead of the system's; may be NULL */
} mp_client_limits;

/* Costs nothing until the first transfer. `limits` is copied, `ca` outlives the client. */
mp_client *mp_client_new(struct mp_loop *loop, const mp_client_limits *limits);
/* Other limits, for transfers that start from now on. On its thread. */
void mp_client_configure(mp_client *client, const mp_client_limits *limits);
/* When its transfers are freed; before its loop is. */
void mp_client_free(mp_client *client);

#define MP_ADDRESS_TEXT 46

typedef enum {
    MP_REACH_PUBLIC,   /* what everybody can reach */
    MP_REACH_LOOPBACK, /* this machine, and nothing else */
    MP_REACH_PRIVATE,  /* public, this machine, private networks; not link-local addresses */
    MP_REACH_ADDRESS   /* `address`, and nothing else */
} mp_reach_kind;

typedef struct {
    mp_reach_kind kind;
    char address[MP_ADDRESS_TEXT];
} mp_reach;

/* Whether `text` is an IPv4 address of four numbers or an IPv6 address; `room` gets it as it is usually written. */
bool mp_address_canonical(const char *text, char room[MP_ADDRESS_TEXT]);

/* A URL taken apart by who will connect to it; free it with `mp_url_clear`. */
typedef struct {
    char *text; /* whole, normal, without fragment */
    char *scheme, *host, *path;
    uint16_t port;
} mp_url; /* host: lower case, IPv4 as four numbers, IPv6 without brackets, no dot at the end */

/* `base` (may be NULL) is what a relative `text` is relative to. -1: not http or https, credentials in it, no such URL. */
int mp_url_parse(mp_url *url, const char *text, const char *base, mp_err *err);
void mp_url_clear(mp_url *url);

typedef struct {
    const char *method;
    const char *url;            /* as mp_url_parse gave it */
    const char *const *headers; /* "Name: value" or "Name;", NULL at the end */
    mp_str body;                /* ptr == NULL: none. Borrowed until the transfer is freed */
    size_t most;                /* bytes of the answer's body, decompressed */
    bool is_stream;             /* what comes is told as it comes, and stops coming when nobody takes it */
    mp_reach reach;
    /* Something is new: a stream's head or bytes, the end. May run under frames of libcurl: it marks and enqueues. */
    void (*ready)(mp_transfer *transfer, void *ctx);
    void *ctx;
} mp_outgoing;

/* NULL when it cannot begin. `ready` never runs before this returns. */
mp_transfer *mp_transfer_start(mp_client *client, const mp_outgoing *outgoing, mp_err *err);
/* At any time but in `ready`: a transfer under way is cut off. NULL is none. */
void mp_transfer_free(mp_transfer *transfer);

/* 0 until the head is there. */
int mp_transfer_status(const mp_transfer *transfer);
/* "name: value", a line each. */
mp_str mp_transfer_head(const mp_transfer *transfer);
/* What has come of the body and was not taken. */
mp_str mp_transfer_body(const mp_transfer *transfer);
/* Takes all of it away; more may come while this runs. */
void mp_transfer_take(mp_transfer *transfer);
bool mp_transfer_is_over(const mp_transfer *transfer);
/* Why the answer did not come whole; NULL when it did, or still may. */
const mp_err *mp_transfer_failure(const mp_transfer *transfer);
/* Whether that was because of where it led. */
bool mp_transfer_was_refused(const mp_transfer *transfer);

#endif
