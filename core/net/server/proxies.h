/* proxies.h: the proxies in front of a listener that may say which client a request or a connection is from. They say
 * it in two ways:
 *
 *   headers   X-Forwarded-For, and Forwarded (RFC 7239), of each request: a list to which each proxy appends the
 *             address that it got the request from
 *   PROXY     a header before the first byte of a connection (PROXY protocol, versions 1 and 2)
 *
 * A list is read from its right end, where the nearest proxy wrote, up to the first address that is no trusted proxy's:
 * that is the client's. What is left of it was written by the client, and is never believed. Any thread. */
#ifndef MP_NET_PROXIES_H
#define MP_NET_PROXIES_H

#include "base/base.h"

#define MP_IP_TEXT 46 /* room for an IP address as text, with its NUL */

/* An IP address; IPv4 is mapped into IPv6. */
typedef struct {
    unsigned char bytes[16];
} mp_ip;

/* False if the text is no IP address. */
bool mp_ip_read(mp_str text, mp_ip *ip);
/* The address in the bytes of an IPv4 or IPv6 address: `count` is 4 or 16. */
mp_ip mp_ip_of(const unsigned char *bytes, size_t count);
/* Writes the canonical text: an address has no other spelling. */
void mp_ip_write(const mp_ip *ip, char room[MP_IP_TEXT]);

/* Reads a decimal number up to `most`: digits alone, without a needless 0 in front. */
bool mp_digits_read(mp_str text, unsigned most, unsigned *number);

/* -- which proxies are trusted ------------------------------------------------------------------------------------- */

typedef struct mp_proxies mp_proxies;

/* Checks one item of trusted_proxies: an address, a network as 10.0.0.0/8, or "unix". -1 with the error. */
int mp_proxies_check(mp_str item, mp_err *err);
/* The items, which have passed the check and end with NULL, become a set. Returns NULL for no items. */
mp_proxies *MP_NULLABLE mp_proxies_new(char *const *MP_NULLABLE items);
void mp_proxies_free(mp_proxies *MP_NULLABLE proxies);
bool mp_proxies_have(const mp_proxies *proxies, const mp_ip *ip);
/* True if the set has "unix": the peers of a Unix socket. */
bool mp_proxies_have_unix(const mp_proxies *proxies);

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
/* The client by both lists. Where both kinds of headers are there and differ, one of them is the client's own, and
 * nothing says which: the result is unclear, and has no address. */
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
    mp_ip ip;     /* the client's */
    const char *MP_NULLABLE why; /* BROKEN: what is wrong, a literal */
} mp_proxy_header;

/* `input` is what a connection has brought so far. PARTIAL: more bytes may complete the header. */
mp_proxy_result mp_proxy_header_read(mp_str input, mp_proxy_header *header);

#endif
