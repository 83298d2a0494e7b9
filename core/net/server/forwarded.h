/* forwarded.h: which client a request or a connection is from, as trusted proxies in front of a listener say. They
 * have two ways:
 *
 *   headers   X-Forwarded-For, and Forwarded (RFC 7239), of each request: a list to which each proxy appends the
 *             address that it got the request from
 *   PROXY     a header before the first byte of a connection (PROXY protocol, versions 1 and 2)
 *
 * A list is read from its right end, where the nearest proxy wrote, up to the first address that is no trusted proxy's:
 * that is the client's. What is left of it was written by the client, and is never believed. Any thread. */
#ifndef MP_NET_FORWARDED_H
#define MP_NET_FORWARDED_H

#include "net/server/proxies.h"

/* -- headers of requests ------------------------------------------------------------------------------------------- */

#define MP_FORWARDED_HOPS 32 /* addresses of trusted proxies in one list; no chain of proxies is that long */

/* Reading one list, from the right. */
typedef struct {
    const mp_proxies *proxies;
    mp_ip ip;     /* the address that was read last: the client's once `is_over`, before that a trusted proxy's */
    bool has_ip;  /* false: no address was read, so that the client is the peer of the connection */
    bool is_over; /* nothing more is to be read: `ip` is no trusted proxy's, or `is_unclear` */
    /* A trusted proxy wrote an element without an address ("unknown", a hidden name, garbage, nothing), or the list is
     * too long. */
    bool is_unclear;
    int hops; /* elements that were read */
} mp_forwarded;

/* Reads one line of the list, from the right: the value of a header. Begin with the last header of the request.
 * `is_rfc7239`: it is Forwarded; else X-Forwarded-For. Its time is linear in the length of the line. */
void mp_forwarded_take(mp_forwarded *list, mp_str line, bool is_rfc7239);
/* The client's address by both lists. If both kinds of headers exist and differ, one of them is the client's own and it
 * is unknown which: the result is unclear, and has no address. */
mp_forwarded mp_forwarded_agree(const mp_forwarded *one, const mp_forwarded *other);

/* -- the PROXY header ---------------------------------------------------------------------------------------------- */

/* Limit of a PROXY header of version 2. Its addresses have 216 bytes at most; the fields behind them (TLS, names of
 * hosts, ids of clouds) are skipped, and the largest that are in use have some hundred. */
#define MP_PROXY_HEADER_MAX 4096

typedef enum { MP_PROXY_WHOLE, MP_PROXY_PARTIAL, MP_PROXY_BROKEN } mp_proxy_result;

typedef struct {
    size_t bytes; /* length of the header */
    bool has_ip;  /* false: the proxy's own connection (LOCAL), or a client without an IP address (UNKNOWN, UNSPEC, Unix
                     sockets) */
    mp_ip ip;     /* the client's address */
    const char *MP_NULLABLE why; /* BROKEN: what is wrong, a literal */
} mp_proxy_header;

/* `input` is what a connection has brought so far. PARTIAL: more bytes may complete the header. */
mp_proxy_result mp_proxy_header_read(mp_str input, mp_proxy_header *header);

#endif
