/* sockets.h: listening sockets from an address as users write it, and whether a peer has left; part of the public
 * header os.h. */
#ifndef MP_OS_SOCKETS_H
#define MP_OS_SOCKETS_H

#include "base/base.h"

#define MP_BACKLOG 4096 /* connections that the kernel queues for a listener until they are accepted */

typedef struct {
    /* the bound address with its actual port: "127.0.0.1:7300", "[::1]:7300", "unix:/run/moonpool.sock" */
    char text[128];
    bool is_loopback, is_unix; /* a Unix socket is both */
    uint16_t port;
    uint64_t device, inode; /* identity of a Unix socket's file; inode 0: there is no file, or it was removed */
} mp_address;

/* Makes `count` listening sockets for `where` (one per worker, with SO_REUSEPORT). On failure no descriptor stays
 * open, and `err` names the address and a remedy. Accepted sockets inherit keepalive and TCP_USER_TIMEOUT, so that a
 * client whose machine or network has vanished is detected within 30 s. The file of a Unix socket whose process is dead
 * is replaced; one that answers is not. A Unix socket is bound once and its descriptor duplicated; `file` says who may
 * open it, and is NULL where the umask does. */
typedef struct {
    uint32_t mode;                 /* permissions */
    const char *MP_NULLABLE group; /* NULL: the group of the process */
} mp_socket_file;
int mp_listen(const char *where, int count, const mp_socket_file *MP_NULLABLE file, int *fds, mp_address *bound,
              mp_err *err);
/* The NAME of systemd:NAME, which stands for the sockets that a socket unit makes and passes to this process; ptr NULL:
 * `where` is an address. */
mp_str mp_systemd_name(mp_str where);
/* True if only programs on this machine can connect to the address. False if that cannot be determined. Always true for
 * systemd:NAME, whose real address is known only when mp_adopt takes the socket; mp_adopt then checks it. */
bool mp_is_near(const char *where);
/* Describes `where` as mp_listen does, without binding it: only the file of a Unix socket is left out. -1 if it is no
 * address, or has a name that is not found. */
int mp_address_of(const char *where, mp_address *at);
/* Describes where another process has bound a socket, and makes the socket close on exec and nonblocking, so that a
 * server can listen on it. The descriptor stays the caller's. A name in the abstract namespace is "unix:@name". -1 and
 * the reason in `err` if it is no TCP or Unix stream socket that listens. */
int mp_adopt(int fd, mp_address *bound, mp_err *err);
/* Sets the options of a TCP socket that mp_listen sets (the receive buffer, the detection of dead peers) on an adopted
 * one. */
void mp_listener_tune(int fd, const mp_address *bound);
/* Gives the file of the Unix socket `where` its permissions and its group. -1 with the error. */
int mp_restrict_file(const char *where, const mp_socket_file *file, mp_err *err);
/* Removes the file of a Unix socket, once, unless the path meanwhile has a different file, made by a successor
 * process. Call it before closing the socket's descriptors: until they are closed, no successor replaces the file. */
void mp_unlink_address(mp_address *bound);

/* True if the peer of a connected socket has closed or reset its side. Any thread, while no other thread closes
 * `fd`. */
bool mp_peer_left(int fd);

/* Descriptors that clients and scripts make the gateway open. `holder`: of a script or upstream (mp_holder_number). */
void mp_outgoing_limit(int64_t most);
bool mp_outgoing_take(int count, unsigned holder); /* false, which is counted: there are too many */
void mp_outgoing_give(int count, unsigned holder);
bool mp_outgoing_is_tight(void); /* half or more is taken: what is kept for later use is given back */
#define MP_OUTGOING_FULL "too many programs, databases and connections to servers: raise the limit of open files"

#endif
