/* lookup.c: counts name lookups in progress. libcurl runs each lookup on its own thread, which continues after its
 * request was aborted. This executable exports `getaddrinfo`, so libcurl calls this definition instead of libc's.
 * libcurl 8.23 asks for the IPv4 and the IPv6 addresses of a name at the same time, on two threads: one lookup here. */
#define _GNU_SOURCE 1
#include "telemetry/telemetry.h"
#include <dlfcn.h>
#include <netdb.h>
#include <pthread.h>

MP_GAUGE(lookups, "lookups", "", "", "name lookups in progress, including those of cancelled requests")

typedef int lookup(const char *, const char *, const struct addrinfo *, struct addrinfo **);

/* A call of getaddrinfo in progress, on the stack of its thread. */
typedef struct running {
    struct running *next;
    const char *name;
    bool is_ipv6; /* asks for IPv6 alone */
} running;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static running *all; /* under the lock */

/* How many calls of the same kind and name there are more than of the other kind. The caller has the lock. */
static int surplus(const running *of)
{
    int count = 0;
    for (const running *one = all; one != NULL; one = one->next)
        if (strcmp(one->name, of->name) == 0)
            count += one->is_ipv6 == of->is_ipv6 ? 1 : -1;
    return count;
}

static void begin(running *this)
{
    pthread_mutex_lock(&lock);
    if (surplus(this) >= 0) /* no call of the other kind is without its second */
        mp_stat_add(&mp_stat_lookups, 1);
    this->next = all;
    all = this;
    pthread_mutex_unlock(&lock);
}

static void end(void *ptr)
{
    running *this = ptr;
    pthread_mutex_lock(&lock);
    if (surplus(this) > 0)
        mp_stat_add(&mp_stat_lookups, -1);
    running **at = &all;
    while (*at != this)
        at = &(*at)->next;
    *at = this->next;
    pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) int getaddrinfo(const char *name, const char *service,
                                                       const struct addrinfo *hints, struct addrinfo **found)
{
    void *symbol = dlsym(RTLD_NEXT, "getaddrinfo");
    lookup *next;
    memcpy(&next, &symbol, sizeof next);
    running this = {.name = name != NULL ? name : "", .is_ipv6 = hints != NULL && hints->ai_family == AF_INET6};
    begin(&this);
    int code;
    pthread_cleanup_push(end, &this); /* libcurl 8.16 cancels the threads of lookups that no request waits for */
    code = next(name, service, hints, found);
    pthread_cleanup_pop(1);
    return code;
}
