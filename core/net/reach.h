/* reach.h: which addresses an outgoing connection may lead to. Decided on the address that is connected to, so that no
 * spelling of it and no name that resolves to it makes a difference. */
#ifndef MP_NET_REACH_H
#define MP_NET_REACH_H

#include "client.h"
#include <sys/socket.h>

bool mp_reach_allows(const mp_reach *reach, const struct sockaddr *address);
/* The same for an address as text; false for what is none. */
bool mp_reach_allows_text(const mp_reach *reach, const char *address);

#endif
