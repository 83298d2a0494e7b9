/* sockets.h: the descriptors of libcurl's sockets. */
#ifndef MP_NET_SOCKETS_H
#define MP_NET_SOCKETS_H

#include "curl.h"
#include "os/os.h"
#include <sys/types.h>

typedef struct mp_socket_watch mp_socket_watch;

/* A socket, by its descriptor. */
typedef struct {
    ino_t inode; /* of a socket that is counted by mp_outgoing_take; 0: it is not */
    unsigned holder;
    mp_socket_watch *MP_NULLABLE watch; /* NULL: nothing is registered */
} mp_socket;

/* Those of one client. Only the first two are set at the start. */
typedef struct {
    mp_loop *loop;
    void (*ready)(void *owner, curl_socket_t fd, int events); /* events: as libcurl names them */
    mp_socket *MP_NULLABLE list;                              /* by descriptor; NULL: count is 0 */
    size_t count;
} mp_sockets;

/* The place of a descriptor; NULL: there was none so far. */
mp_socket *MP_NULLABLE mp_socket_at(const mp_sockets *sockets, curl_socket_t fd);
ino_t mp_socket_inode(curl_socket_t fd);
/* Lets the kernel end a TCP connection when its peer, or the network, has vanished: after 30 s. */
void mp_socket_detect_dead_peer(curl_socket_t fd);
/* Counts a new socket as outgoing, for which mp_outgoing_take has found room. Returns its inode. */
ino_t mp_socket_count(mp_sockets *sockets, curl_socket_t fd, unsigned holder);
/* Ends that count, if it is counted. */
void mp_socket_uncount(mp_sockets *sockets, curl_socket_t fd);
/* Ends the registration of a descriptor, if it has one: before the descriptor is closed, and when a new socket gets the
 * number of one whose close was not noticed. */
void mp_socket_forget(mp_sockets *sockets, curl_socket_t fd);
/* Lets `ready` run for `owner` when the descriptor is ready for `what`. -1 if that is impossible. */
int mp_socket_watch_for(mp_sockets *sockets, void *owner, curl_socket_t fd, int what);
/* Nobody waits for the descriptor now. `is_kept`: the descriptor is of a connection that is closed by mp_socket_forget
 * and no other way, so that its registration may stay for the next request. */
void mp_socket_rest(mp_sockets *sockets, curl_socket_t fd, bool is_kept);
void mp_sockets_clear(mp_sockets *sockets);

#endif
