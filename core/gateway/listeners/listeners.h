/* listeners.h: the listening sockets of a gateway: binding their addresses, or taking passed sockets (passed.h),
 * handing them to the workers and the admin thread, and giving them to the service manager, which stores them for the
 * next process. */
#ifndef MP_GATEWAY_LISTENERS_LISTENERS_H
#define MP_GATEWAY_LISTENERS_LISTENERS_H

#include "admin/admin.h"
#include "gateway/worker.h"

typedef struct {
    mp_address address;
    int *fds; /* one per worker, or one for the admin listener; of passed sockets perhaps more; -1 once handed out */
    int count;
    int sockets; /* number of different sockets, which are first in `fds`; the others duplicate their descriptors */
    mp_tls_slot *MP_NULLABLE tls;
    size_t item;               /* index in `listen`; unused for the listeners of admins and nodes */
    bool is_of_nodes;          /* other nodes connect, and no clients */
    const char *where;         /* the address as the configuration has it */
    bool is_passed;            /* the socket was passed by a socket unit, which keeps its descriptor */
    bool is_handed;            /* the socket was passed by an earlier process of this gateway, at an upgrade */
    int group;                 /* number by which the earlier process knows the address; 0: it passed no socket */
    char name[MP_PASSED_NAME]; /* name under which the service manager may store the sockets; empty: it does not store
                                  them */
    /* the manager has the sockets: the next process listens on them, and the file of a Unix socket stays */
    atomic_bool is_stored;
} mp_bound;

typedef struct mp_listeners {
    mp_bound *all; /* the last element is the admin listener's, if there is one, the one before it that of nodes */
    int count;
    bool has_admin;
    mp_worker *const *workers; /* the workers that listen on the sockets */
    int worker_count;
    mp_admin *MP_NULLABLE admin;
    bool may_store; /* READY=1 was sent to a service manager */
} mp_listeners;

/* True if the address at this index is the admin listener's. */
bool mp_listeners_is_admin(const mp_listeners *listeners, int i);
/* The addresses that the configuration names, but no systemd:NAME. The caller frees the list. */
mp_address *mp_listeners_addresses(const mp_config *config, int *count);
/* Takes from `passed` what the configuration names, and closes the rest. Call mp_listeners_close even if this returns
 * -1. */
int mp_listeners_bind(mp_listeners *listeners, const mp_config *config, const mp_certificates *certificates,
                      mp_passed *passed, int workers, mp_err *err);
/* Call it before the workers' loops run. Sets `*admin` if there is an admin listener, without starting it. */
int mp_listeners_hand_out(mp_listeners *listeners, mp_worker **workers, int count, const mp_admin_gateway *gateway,
                          mp_admin *MP_NULLABLE *admin, mp_err *err);
/* Lets the service manager store the sockets of the addresses that `config` has, and close those that it stores of
 * others. Does nothing before mp_listeners_ready. Main thread, while the workers serve. */
void mp_listeners_store(mp_listeners *listeners, const mp_config *config);
/* Reports to the service manager that all listeners are open, then lets it store their sockets. */
void mp_listeners_ready(mp_listeners *listeners, const mp_config *config);
/* -- an upgrade (hand.c). Main thread, while the workers serve -- */

/* Duplicates at most `most` of the different sockets of an address. Returns their number. */
int mp_listeners_sockets(const mp_listeners *listeners, int i, int *fds, int most);
/* Another process has all sockets from now on, too: they are not shut down any more. */
void mp_listeners_share(const mp_listeners *listeners);
/* Accepts no connections at the addresses that `which` says, since another process does; or accepts again. */
void mp_listeners_hold(const mp_listeners *listeners, const bool *which, bool is_held);
/* Closes the sockets of this process. `taken`, by index: the newest process serves the address from now on. Of an
 * address that is not taken, which the newest process's configuration does not have, the connections that wait are
 * accepted first, and the service manager closes its copies. */
void mp_listeners_leave(mp_listeners *listeners, const bool *taken);

/* Removes the files of Unix sockets that no other process has; that of the admin listener, which serves to the end,
 * only `with_admin`. Call it before the servers stop listening. One thread at a time. */
void mp_listeners_unlink(mp_listeners *listeners, bool with_admin);
void mp_listeners_close(mp_listeners *listeners);
/* Appends the addresses for the ready line. */
void mp_listeners_put_ready(const mp_listeners *listeners, const mp_config *config, mp_buf *line);
/* Prints the link of the dashboard on stdout, if that is a terminal; with a code that opens it once, which no log
 * has. */
void mp_listeners_show_dashboard(const mp_listeners *listeners, const mp_config *config, mp_admin *admin);
void mp_listeners_log(const mp_listeners *listeners, mp_log_level level);

#endif
