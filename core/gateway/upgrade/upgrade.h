/* upgrade.h: replaces the running program by the file at its path, without a refused connection. The process in use,
 * here called the older one, starts the file, which becomes the newer one:
 *
 *   start     the older process starts the newer one and passes its listening sockets to it, and what the processes of
 *             one gateway have in common. It serves as before.
 *   trial     the newer process serves. The older one accepts no connections, and is ready to accept again: if the
 *             newer one ends, or does not feel well, nothing has changed but what that one was doing.
 *   commit    the newer process is the newest one: it owns what outlives a process. The older one serves its own
 *             sessions, calls and streams until they have ended, for MP_OLDER_KEEP_S at most.
 *
 * Links (link.h) join the newest process with each older one. A process whose link to the newest one ends drains: no
 * older process outlives the service. Functions are for the main thread, where they do not say otherwise. */
#ifndef MP_GATEWAY_UPGRADE_H
#define MP_GATEWAY_UPGRADE_H

#include "gateway/gateway.h"
#include "gateway/listeners/listeners.h"
#include "link.h"
#include <poll.h>

/* seconds that an older process serves its sessions after the commit */
#define MP_OLDER_KEEP_S 3600
#define MP_UPGRADE_FDS (MP_OLDER_MOST + 4) /* descriptors for poll */

typedef struct mp_upgrade mp_upgrade;

/* True in a process that an upgrade has begun, until mp_upgrade_join. */
bool mp_upgrade_is_joining(void);
/* `options` and `shared` are borrowed. `committed` is called when this process, which an upgrade has begun, is the
 * newest one. Before threads are started. */
mp_upgrade *mp_upgrade_new(mp_worker_shared *shared, const mp_gateway_options *options, void (*committed)(void *ctx),
                           void *ctx);
void mp_upgrade_free(mp_upgrade *MP_NULLABLE upgrade);
/* In a process that an upgrade has begun: waits for the sockets of the older one, and adds them to `passed`. Before
 * threads are started. -1 with the reason. */
int mp_upgrade_join(mp_upgrade *upgrade, mp_passed *passed, mp_err *err);
/* From now on, bus messages of Lua states go to the other processes, too. Before workers start. */
void mp_upgrade_carry_news(mp_upgrade *upgrade);
/* All workers serve. In a process that an upgrade has begun, the trial begins. */
void mp_upgrade_serve(mp_upgrade *upgrade, mp_listeners *listeners);

/* Fills descriptors for poll, and returns their number; shortens `*wait_ms` (-1: no limit). */
int mp_upgrade_next(mp_upgrade *upgrade, struct pollfd fds[MP_UPGRADE_FDS], int *wait_ms);
/* Does the work of upgrades that is due. Called in each turn of the main thread. */
void mp_upgrade_run(mp_upgrade *upgrade);
/* True while there are older processes, which end with this one and may have changes for the store that it owns: also
 * before they have heard that it ends, since its workers may end first. */
bool mp_upgrade_has_older(const mp_upgrade *upgrade);
/* The workers and the session table are freed: waits until the older processes have ended, or may wait no longer. */
void mp_upgrade_await_older(mp_upgrade *upgrade);
/* The process got SIGUSR2: begins an upgrade. */
void mp_upgrade_signal(mp_upgrade *upgrade);
/* Begins an upgrade. Answers `stream` when it is committed, has failed or is refused. The admin thread calls it. */
void mp_upgrade_ask(mp_upgrade *upgrade, mp_stream *stream);

#endif
