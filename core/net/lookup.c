/* lookup.c: counts the names that are being looked up. libcurl does each on a thread of its own, which goes on when its request
 * is given up; it is loaded into this process, so the getaddrinfo that it calls is this one. */
#define _GNU_SOURCE 1
#include "base/base.h"
#include <dlfcn.h>
#include <netdb.h>

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints, struct addrinfo **found)
{
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    lookup *next;
    memcpy(&next, &symbol, sizeof next);
    mp_stat_add(MP_STAT_LOOKUPS, 1);
    int code = next(name, service, hints, found);
    mp_stat_add(MP_STAT_LOOKUPS, -1);
    return code;
}
