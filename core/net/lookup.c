/* lookup.c: counts name lookups in progress. libcurl runs each lookup on its own thread, which continues after its
 * request was aborted. This executable exports `getaddrinfo`, so libcurl calls this definition instead of libc's. */
#define _GNU_SOURCE 1
#include "telemetry/telemetry.h"
#include <dlfcn.h>
#include <netdb.h>

MP_GAUGE(lookups, "lookups", "", "", "name lookups in progress, including those of cancelled requests")

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints, struct addrinfo **found)
{
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    lookup *next;
    memcpy(&next, &symbol, sizeof next);
    mp_stat_add(&mp_stat_lookups, 1);
    int code = next(name, service, hints, found);
    mp_stat_add(&mp_stat_lookups, -1);
    return code;
}
