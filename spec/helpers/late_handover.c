/* late_handover.c: preloaded: once the file that LATE_HANDOVER names is there, the thread that next accepts a connection outside of libh2o, which is
 * to hand it over to another worker, is held until a listening socket is shut down: until a stuck worker is suspended. So does a kernel that has
 * no processor for the thread. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_MS 10000

static atomic_bool is_suspended, has_held;

static void *next(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

int shutdown(int fd, int how)
{
    int (*call)(int, int), listens = 0;
    socklen_t len = sizeof listens;
    void *found = next("shutdown");
    memcpy(&call, &found, sizeof call);
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len);
    int result = call(fd, how);
    if (listens != 0)
        atomic_store(&is_suspended, true);
    return result;
}

int accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
    int (*call)(int, struct sockaddr *, socklen_t *, int);
    void *found = next("accept4");
    memcpy(&call, &found, sizeof call);
    int accepted = call(fd, address, len, flags);
    Dl_info caller;
    const char *armed = getenv("LATE_HANDOVER");
    if (accepted < 0 || armed == NULL || dladdr(__builtin_return_address(0), &caller) == 0 ||
        strstr(caller.dli_fname, "libh2o") != NULL || access(armed, F_OK) != 0 || atomic_exchange(&has_held, true))
        return accepted;
    for (int ms = 0; ms < MOST_MS && !atomic_load(&is_suspended); ms++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return accepted;
}
