/* proxies.h: the set of proxies in front of a listener that may say which client a request or a connection is from. How
 * they say it is in forwarded.h. Any thread. */
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

typedef struct mp_proxies mp_proxies;

/* Checks one item of trusted_proxies: an address, a network as 10.0.0.0/8, or "unix". -1 with the error. */
int mp_proxies_check(mp_str item, mp_err *err);
/* The items, which have passed the check and end with NULL, become a set. Returns NULL for no items. */
mp_proxies *MP_NULLABLE mp_proxies_new(char *const *MP_NULLABLE items);
void mp_proxies_free(mp_proxies *MP_NULLABLE proxies);
/* True if the set has the address. */
bool mp_proxies_have(const mp_proxies *proxies, const mp_ip *ip);
/* True if the set has "unix": the peers of a Unix socket. */
bool mp_proxies_have_unix(const mp_proxies *proxies);

#endif
