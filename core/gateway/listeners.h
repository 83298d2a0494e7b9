/* listeners.h: the listening sockets of a gateway, from binding their addresses to handing them to the workers and
 * the admin thread. */
#ifndef MP_GATEWAY_LISTENERS_H
#define MP_GATEWAY_LISTENERS_H

#include "gateway/admin/admin.h"

typedef struct {
    mp_address address;
    int *fds; /* one per worker, or one for the admin listener; -1 once handed out */
    int count;
    mp_tls_slot *tls;
    bool http2;
} mp_bound;

typedef struct {
    mp_bound *all; /* the last element is the admin listener's, if there is one */
    int count;
    bool has_admin;
} mp_listeners;

/* Call mp_listeners_close even if this returns -1. */
int mp_listeners_bind(mp_listeners *listeners, const mp_config *config, const mp_certificates *certificates,
                      int workers, mp_err *err);
/* Call it before the workers' loops run. Sets `*admin` if there is an admin listener, without starting it. */
int mp_listeners_hand_out(mp_listeners *listeners, mp_worker **workers, mp_shared *shared, mp_admin *MP_NULLABLE *admin,
                          mp_err *err);
/* Removes the files of Unix sockets; that of the admin listener, which serves to the end, only `with_admin`. Call it
 * before the servers stop listening. One thread at a time. */
void mp_listeners_unlink(mp_listeners *listeners, bool with_admin);
void mp_listeners_close(mp_listeners *listeners);
/* Appends the addresses for the ready line. */
void mp_listeners_put_ready(const mp_listeners *listeners, const mp_config *config, mp_buf *line);
/* Prints the link of the dashboard on stdout, if that is a terminal; with a code that opens it once, which no log has. */
void mp_listeners_show_dashboard(const mp_listeners *listeners, const mp_config *config, mp_admin *admin);
void mp_listeners_log(const mp_listeners *listeners, mp_log_level level);

#endif
