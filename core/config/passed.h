/* passed.h: listening sockets that another process has bound and passed to this one: the service manager, at the start
 * ($LISTEN_FDS), or the process of this gateway that an upgrade replaces (upgrade.h). Each has a name, and belongs to
 * the table until a listener takes it. Two kinds of names:
 *
 *   NAME               FileDescriptorName= of a socket unit: `listen: systemd:NAME` takes it
 *   moonpool/ADDRESS   what an earlier process of this gateway has stored with the manager: ADDRESS in `listen` takes
 *                      it
 *
 * At an upgrade a socket may have no name: it is taken by its address, or by what the configuration of the earlier
 * process wrote for it.
 *
 * Main thread; mp_passed_far also where no thread changes the table. */
#ifndef MP_CONFIG_PASSED_H
#define MP_CONFIG_PASSED_H

#include "net/net.h"

/* Limit of the sockets that a process may be passed: well above the 64 that the package's unit lets the manager store,
 * plus those of a socket unit. A higher $LISTEN_FDS is a mistake. */
#define MP_PASSED_MOST 256
#define MP_PASSED_NAME 256 /* bytes of a name, with its NUL: the manager takes at most 255 */

typedef struct {
    char name[MP_PASSED_NAME];
    int fd;             /* -1: a listener has taken it, or it was closed */
    mp_address address; /* address at which the socket is bound */
    char fault[64];     /* why it cannot be served; empty: it can */
    bool is_forgotten;  /* the manager was asked to close what it has stored under this name */
    int group;          /* at an upgrade: the sockets of one address have the same number, from 1; else 0 */
    char where[MP_PASSED_NAME + 16]; /* at an upgrade: the address as the configuration of the earlier process has it */
    bool is_of_admin, is_stored; /* at an upgrade: whether the socket is the admin listener's, and whether the service
                                    manager has stored it */
} mp_passed_socket;

typedef struct {
    mp_passed_socket *all;
    int count;
    char refusal[160]; /* why the sockets that the environment names are not this process's; empty: they are, or there
                          are none */
} mp_passed;

/* Takes the sockets that the environment names, and removes its variables, so that no child sees them. Before any
 * thread is started. */
void mp_passed_read(mp_passed *passed);
/* Adds a socket, which belongs to the table from now on. The result is valid until the next call. */
mp_passed_socket *mp_passed_add(mp_passed *passed, mp_str name, int fd);
/* Closes the sockets that no listener has taken. */
void mp_passed_free(mp_passed *passed);

/* The first socket with this name that was not taken; NULL: none. */
mp_passed_socket *MP_NULLABLE mp_passed_find(const mp_passed *passed, mp_str name);
/* Writes an error: no passed socket has this name; and lists the names of the passed sockets. Returns -1. */
int mp_passed_refuse(const mp_passed *passed, mp_str name, mp_err *err);
/* The address of a socket of `where` that other machines can reach; NULL: it has none, or is no systemd:NAME. `passed`
 * may be NULL. */
const char *MP_NULLABLE mp_passed_far(const mp_passed *MP_NULLABLE passed, const char *where);

/* -- sockets that are stored with the manager -- */

/* Writes the name under which the sockets of an address are stored: the address with %XX for what a name may not have,
 * and for a Unix socket which file it has, since another file at its path has other clients. An empty text if that is
 * too long. */
void mp_stored_name(char name[MP_PASSED_NAME], const mp_address *at);
/* True if the socket was stored for this address; the file of a Unix socket is not compared. */
bool mp_stored_is_of(const mp_passed_socket *one, const mp_address *at);
/* True if the socket was stored by a process of this gateway. */
bool mp_stored_is(const mp_passed_socket *one);
/* Why a stored socket does not serve its address any more; NULL: it does. */
const char *MP_NULLABLE mp_stored_fault(const mp_passed_socket *one);

#endif
