/* notify.h: reports to the service manager by systemd's $NOTIFY_SOCKET protocol, without systemd's library. Without
 * such a socket every function does nothing. No function blocks: a datagram that does not fit is dropped. Main
 * thread only. */
#ifndef MP_GATEWAY_NOTIFY_H
#define MP_GATEWAY_NOTIFY_H

/* Reports that all listeners are open. The other functions do nothing before this call. */
void mp_notify_ready(void);
/* Reports that scripts and configuration are about to be read again. The next `mp_notify_turn` reports the end of
 * it. */
void mp_notify_reloading(void);
void mp_notify_stopping(void);
/* Call it once per turn of the main loop. Sends what is due, such as a watchdog ping. Returns how many milliseconds
 * the turn may wait: at most `wait_ms` (-1: without limit). */
int mp_notify_turn(int wait_ms);

#endif
