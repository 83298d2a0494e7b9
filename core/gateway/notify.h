/* notify.h: reports to the service manager by systemd's $NOTIFY_SOCKET protocol, without systemd's library. Without
 * such a socket every function does nothing. No function blocks but mp_notify_settle. Messages reach the manager in the
 * order of the calls: while its socket has no room they wait, and mp_notify_turn sends them. A message on the state of
 * this process replaces one that waits. Main thread only. */
#ifndef MP_GATEWAY_NOTIFY_H
#define MP_GATEWAY_NOTIFY_H

#include <stdbool.h>

/* Sockets that the manager may store: FileDescriptorStoreMax= of the package's unit. */
#define MP_NOTIFY_SOCKETS 64

/* True if there is a manager that may store sockets. */
bool mp_notify_can_store(void);
/* Reports that all listeners are open. Before this call mp_notify_reloading, mp_notify_stopping and mp_notify_turn
 * report nothing. */
void mp_notify_ready(void);
/* Reports that scripts and configuration are about to be read again. The next `mp_notify_turn` reports the end of
 * it. */
void mp_notify_reloading(void);
void mp_notify_stopping(void);
/* Asks the manager for more time, since the process leaves its cluster first. Called often: it sends a message each
 * MP_NOTIFY_EXTEND_MS. */
void mp_notify_leaving(void);
#define MP_NOTIFY_EXTEND_MS 5000
/* Lets the manager keep sockets under a name, for the next process of this gateway. Takes ownership of the descriptors,
 * of which there are at most MP_NOTIFY_SOCKETS. */
void mp_notify_store(const char *name, const int *fds, int count);
/* Lets the manager close the sockets that it keeps under a name. */
void mp_notify_remove(const char *name);
/* Reports that another process serves now, and is the main process of the service. This process reports nothing
 * more. */
void mp_notify_leave(int pid);
/* True if no message waits to be sent. */
bool mp_notify_is_idle(void);
/* Waits until the manager has handled all messages, for a second at most. */
void mp_notify_settle(void);
/* Call it once per turn of the main loop. Sends what is due, such as a watchdog ping. Returns how many milliseconds
 * the turn may wait: at most `wait_ms` (-1: without limit). */
int mp_notify_turn(int wait_ms);
/* Drops the messages to the service manager that were not sent yet, and closes the sockets that would have gone with
 * them. */
void mp_notify_end(void);

#endif
