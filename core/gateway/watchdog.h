/* watchdog.h: a thread that receives signals and checks that the other threads make progress. It runs no Lua and waits
 * for no other thread, so the process obeys SIGTERM whatever the others do.
 *
 *   - SIGTERM, SIGINT: the workers drain; a second signal stops them. A process that has not ended a second after
 *   limits.drain, or a second after the second signal, is ended by _exit: with code 1, or with its own code if it only
 *   frees memory. A load of scripts in progress is stopped. The first signal after POST /api/drain hurries nothing.
 *   - SIGTERM in a node of a cluster: it leaves first. After limits.linger it takes no clients; it drains when it
 *   serves nothing any more, no other node takes clients, or cluster.leave is over. A second SIGTERM drains at once.
 *   - SIGHUP: wakes the main thread to reload. SIGUSR2: to upgrade.
 *   - A worker whose loop has not turned for 5 s takes no connections until it turns again
 *     (net/server/takeover.c).
 *   It is logged with the line of Lua that it runs, and /healthz answers 503. */
#ifndef MP_GATEWAY_WATCHDOG_H
#define MP_GATEWAY_WATCHDOG_H

#include "admin/admin.h"
#include "worker.h"

typedef struct mp_listeners mp_listeners;

/* Blocks these signals for this thread and the threads that it starts. Returns NULL and `err` if the thread cannot
 * be started. */
mp_watchdog *MP_NULLABLE mp_watchdog_start(mp_worker_shared *shared, const mp_config *config, mp_err *err);
/* Call it when all other threads have ended. */
void mp_watchdog_free(mp_watchdog *watchdog);

/* -- the main thread -- */

/* Starts to watch these threads, and drains them at once if a signal has already arrived. `admin` may be NULL. All
 * arguments are borrowed until mp_watchdog_release, which is called when all workers have ended; after that the
 * watchdog limits the time until the process ends. */
void mp_watchdog_watch(mp_watchdog *watchdog, mp_worker **workers, int count, mp_admin *MP_NULLABLE admin,
                       mp_listeners *listeners);
void mp_watchdog_release(mp_watchdog *watchdog);
/* Nothing is left to do but to free memory: if that takes longer than the process has, it ends with `code`. */
void mp_watchdog_spare(mp_watchdog *watchdog, int code);
void mp_watchdog_configure(mp_watchdog *watchdog, const mp_config *config);
/* Call mp_watchdog_wait_begins and mp_watchdog_wait_ends around the main thread's wait for events: a thread that
 * waits does not count as stuck. */
void mp_watchdog_wait_begins(mp_watchdog *watchdog);
void mp_watchdog_wait_ends(mp_watchdog *watchdog);
/* The main thread makes progress: call it between long pieces of work. */
void mp_watchdog_beat(mp_watchdog *watchdog);
/* mp_watchdog_fd is readable after a SIGHUP; mp_watchdog_take returns true if one arrived since its last call. */
int mp_watchdog_fd(const mp_watchdog *watchdog);
bool mp_watchdog_take_hangup(mp_watchdog *watchdog);
/* True if a SIGUSR2 arrived since the last call: an upgrade is to begin. After mp_watchdog_take_hangup. */
bool mp_watchdog_take_upgrade(mp_watchdog *watchdog);
/* Begins to drain, as the first SIGTERM does, without limits.linger; `why` is for the log. */
void mp_watchdog_end(mp_watchdog *watchdog, const char *why);
/* Stops at once, also a process that drains already: as the second SIGTERM does. */
void mp_watchdog_stop(mp_watchdog *watchdog, const char *why);
/* True once the drain has begun: after the time of limits.linger. */
bool mp_watchdog_drains(mp_watchdog *watchdog);
/* True if a SIGUSR1 arrived since the last call: the files of the log and of the audit are to be opened again. After
 * mp_watchdog_take_hangup. */
bool mp_watchdog_take_reopen(mp_watchdog *watchdog);

/* -- any thread -- */

/* Begins to drain, as the first SIGTERM does, with limits.linger; nothing if the process drains already. */
void mp_watchdog_drain(mp_watchdog *watchdog);
/* True if the loop of worker `i`, from 0, has not turned for 5 s. */
bool mp_watchdog_is_stuck(mp_watchdog *watchdog, int i);
/* Appends a sentence per stuck thread, for people; nothing if there is none. */
void mp_watchdog_put_stuck(mp_watchdog *watchdog, mp_buf *out);
/* Appends a JSON array of the stuck threads. */
void mp_watchdog_describe(mp_watchdog *watchdog, mp_buf *out);

#endif
