/* sockets.c: which sockets of libcurl are counted as outgoing, and which our loop watches.
 *
 * Between two requests on a connection nobody waits for its socket. The registration stays in the epoll set meanwhile,
 * since nearly all requests use a connection that is kept; it ends when something comes that nobody waits for, such as
 * the end of the connection, and before the descriptor is closed. */
#include "sockets.h"
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/stat.h>

#define DEAD_PEER_MS 30000   /* until bytes that the peer's system does not acknowledge end the connection */
#define KEEPALIVE_SECONDS 10 /* of silence before the first probe, and between probes */
#define KEEPALIVE_PROBES 3

struct mp_socket_watch {
    mp_fdwatch super;
    mp_sockets *sockets;
    void *MP_NULLABLE owner; /* NULL: nobody waits for it */
    int what;                /* the events that are registered, as libcurl names them */
};

mp_socket *MP_NULLABLE mp_socket_at(const mp_sockets *sockets, curl_socket_t fd)
{
    mp_socket *list = sockets->list;
    return list != NULL && (size_t)fd < sockets->count ? &list[fd] : NULL;
}

/* The place of a descriptor, which is made if need be. */
static mp_socket *need_place(mp_sockets *sockets, curl_socket_t fd)
{
    mp_socket *list = sockets->list;
    if (list == NULL || (size_t)fd >= sockets->count) {
        size_t count = 2 * (size_t)fd + 64;
        list = mp_resize(list, count * sizeof *list);
        memset(list + sockets->count, 0, (count - sockets->count) * sizeof *list);
        sockets->list = list;
        sockets->count = count;
    }
    return &list[fd];
}

void mp_sockets_clear(mp_sockets *sockets)
{
    free(sockets->list);
    sockets->list = NULL;
    sockets->count = 0;
}

/* -- counts -------------------------------------------------------------------------------------------------------- */

ino_t mp_socket_inode(curl_socket_t fd)
{
    struct stat info;
    int failed;
    MP_UNSEEN_READS(failed = fstat(fd, &info));
    return failed == 0 ? info.st_ino : 0;
}

void mp_socket_uncount(mp_sockets *sockets, curl_socket_t fd)
{
    mp_socket *at = mp_socket_at(sockets, fd);
    if (at == NULL || at->inode == 0)
        return;
    at->inode = 0;
    mp_outgoing_give(1, at->holder);
}

ino_t mp_socket_count(mp_sockets *sockets, curl_socket_t fd, unsigned holder)
{
    ino_t inode = mp_socket_inode(fd);
    mp_socket_uncount(sockets, fd); /* uncounts an earlier socket with this descriptor, whose close was not noticed */
    mp_socket *at = need_place(sockets, fd);
    at->inode = inode;
    at->holder = holder;
    return inode;
}

/* -- watches ------------------------------------------------------------------------------------------------------- */

void mp_socket_forget(mp_sockets *sockets, curl_socket_t fd)
{
    mp_socket *at = mp_socket_at(sockets, fd);
    mp_socket_watch *watch = at == NULL ? NULL : at->watch;
    if (at == NULL || watch == NULL)
        return;
    MP_UNSEEN_READS(mp_fdwatch_stop(sockets->loop, &watch->super));
    at->watch = NULL;
    free(watch);
}

/* May free the watch. */
static void on_ready(mp_fdwatch *super, uint32_t events)
{
    mp_socket_watch *watch = mp_container(super, mp_socket_watch, super);
    mp_sockets *sockets = watch->sockets;
    void *owner = watch->owner;
    int flags = 0;
    if (owner == NULL) {
        mp_socket_forget(sockets, super->fd);
        return;
    }
    if ((events & (EPOLLIN | EPOLLHUP | EPOLLRDHUP)) != 0)
        flags |= CURL_CSELECT_IN;
    if ((events & EPOLLOUT) != 0)
        flags |= CURL_CSELECT_OUT;
    if ((events & EPOLLERR) != 0)
        flags |= CURL_CSELECT_ERR;
    sockets->ready(owner, super->fd, flags);
}

int mp_socket_watch_for(mp_sockets *sockets, void *owner, curl_socket_t fd, int what)
{
    mp_socket *at = need_place(sockets, fd);
    mp_socket_watch *watch = at->watch;
    if (watch == NULL) {
        watch = mp_new(sizeof *watch);
        watch->sockets = sockets;
        at->watch = watch;
    }
    watch->owner = owner;
    if (watch->super.slot != 0 && watch->what == what)
        return 0;
    watch->what = what;
    uint32_t events =
        ((what & CURL_POLL_IN) != 0 ? (uint32_t)EPOLLIN : 0) | ((what & CURL_POLL_OUT) != 0 ? (uint32_t)EPOLLOUT : 0);
    return mp_fdwatch_start(sockets->loop, &watch->super, fd, events, on_ready);
}

void mp_socket_rest(mp_sockets *sockets, curl_socket_t fd, bool is_kept)
{
    mp_socket *at = mp_socket_at(sockets, fd);
    mp_socket_watch *watch = at == NULL ? NULL : at->watch;
    if (watch != NULL && is_kept)
        watch->owner = NULL;
    else
        mp_socket_forget(sockets, fd);
}

void mp_socket_detect_dead_peer(curl_socket_t fd)
{
    int on = 1, idle = KEEPALIVE_SECONDS, probes = KEEPALIVE_PROBES;
    unsigned dead_ms = DEAD_PEER_MS;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof probes);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &dead_ms, sizeof dead_ms);
}
