/* address_policy.h: which addresses an outgoing connection may use (protection from SSRF). The check uses the
 * address that is actually connected to, so neither its spelling nor a DNS name can bypass it. */
#ifndef MP_NET_ADDRESS_POLICY_H
#define MP_NET_ADDRESS_POLICY_H

#include "net/net.h"
#include <sys/socket.h>

bool mp_address_policy_allows(const mp_address_policy *policy, const struct sockaddr *address);
/* Checks an address written as text; false if it is not an address. */
bool mp_address_policy_allows_text(const mp_address_policy *policy, const char *address);

#endif
