/* late_handover.c: linked into the binary for specs. Once the file that LATE_HANDOVER names is there, the thread that
 * next accepts a connection outside of libh2o, which is to hand it over to another worker, is held until a listening
 * socket is shut down: until a stuck worker is suspended. So does a kernel that has no processor for the thread. */
#define _GNU_SOURCE
#include <h2o.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MOST_MS 10000

static atomic_bool is_suspended, has_held;
static __thread bool is_in_libh2o;

h2o_socket_t *__real_h2o_evloop_socket_accept(h2o_socket_t *listener);
h2o_socket_t *__wrap_h2o_evloop_socket_accept(h2o_socket_t *listener);
int __real_shutdown(int fd, int how);
int __wrap_shutdown(int fd, int how);
int __real_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags);
int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags);

h2o_socket_t *__wrap_h2o_evloop_socket_accept(h2o_socket_t *listener)
{
    is_in_libh2o = true;
    h2o_socket_t *socket = __real_h2o_evloop_socket_accept(listener);
    is_in_libh2o = false;
    return socket;
}

int __wrap_shutdown(int fd, int how)
{
    int listens = 0;
    socklen_t len = sizeof listens;
    getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &len);
    int result = __real_shutdown(fd, how);
    if (listens != 0)
        atomic_store(&is_suspended, true);
    return result;
}

int __wrap_accept4(int fd, struct sockaddr *address, socklen_t *len, int flags)
{
    int accepted = __real_accept4(fd, address, len, flags);
    const char *armed = getenv("LATE_HANDOVER");
    if (accepted < 0 || armed == NULL || is_in_libh2o || access(armed, F_OK) != 0 || atomic_exchange(&has_held, true))
        return accepted;
    for (int ms = 0; ms < MOST_MS && !atomic_load(&is_suspended); ms++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return accepted;
}
