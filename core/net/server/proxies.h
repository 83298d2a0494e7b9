/* proxies.h: IP addresses, and whether one is in the set of proxies in front of a listener that may say which client a
 * request or a connection is from. How they say it is in forwarded.h. Any thread. */
#ifndef MP_NET_PROXIES_H
#define MP_NET_PROXIES_H

#include "net/net.h"

/* An IP address; IPv4 is mapped into IPv6. */
typedef struct {
    unsigned char bytes[16];
} mp_ip;

/* False if the text is no IP address. */
bool mp_ip_read(mp_str text, mp_ip *ip);
/* The address in the bytes of an IPv4 or IPv6 address: `count` is 4 or 16. */
mp_ip mp_ip_of(const unsigned char *bytes, size_t count);
/* Writes the canonical text: an address has no other spelling. */
void mp_ip_write(const mp_ip *ip, char room[MP_ADDRESS_TEXT]);

/* Reads a decimal number up to `most`: digits alone, without a needless 0 in front. */
bool mp_digits_read(mp_str text, unsigned most, unsigned *number);

/* True if the set has the address. */
bool mp_proxies_have(const mp_proxies *proxies, const mp_ip *ip);
/* True if the set has "unix": the peers of a Unix socket. */
bool mp_proxies_have_unix(const mp_proxies *proxies);

#endif
