/* inotify.h: reports that the scripts or the configuration may have changed. It reports when to look, not what
 * changed: the caller reads everything again and compares. So false alarms are cheap, and no way of saving a file is
 * missed. */
#ifndef MP_GATEWAY_RELOAD_INOTIFY_H
#define MP_GATEWAY_RELOAD_INOTIFY_H

#include "telemetry/telemetry.h"

typedef struct mp_inotify mp_inotify;

/* Watches `dir` with everything below it, the sources of the LuaRocks tree `rocks`, the configuration `file`, and
 * `lock`, the approved definitions of upstreams. All are copied. */
mp_inotify *mp_inotify_new(const char *dir, const char *MP_NULLABLE rocks, const char *MP_NULLABLE file,
                           const char *MP_NULLABLE lock);
void mp_inotify_free(mp_inotify *MP_NULLABLE watcher);
/* Adds watches for every folder that exists now, and for symbolic links on the way. Call it before reading the
 * scripts, so that changes made meanwhile are noticed. On -1 with `err` the watcher has no descriptor, and the
 * caller has to poll the files. */
int mp_inotify_renew(mp_inotify *watcher, mp_err *err);
/* A descriptor that is readable when something may have changed; a different one after each renewal; -1: none. */
int mp_inotify_fd(const mp_inotify *watcher);
/* Reads the pending events; `now` is in ms of the monotonic clock. */
void mp_inotify_take(mp_inotify *watcher, uint64_t now);
/* When to read the changed files, on the same clock; 0: nothing has changed. It is 100 ms after the last change, since
 * editors and checkouts make several, and at most a second after the first; while a script or the configuration is
 * being written (modified and not closed), up to two seconds more. `watcher` may be NULL. */
uint64_t mp_inotify_due(const mp_inotify *MP_NULLABLE watcher);
/* The caller begins to read all changes so far. `watcher` may be NULL. */
void mp_inotify_begin(mp_inotify *MP_NULLABLE watcher);
/* True if files changed since mp_inotify_begin, so that the read may have seen an incomplete file and must be repeated.
 * Also true for `is_emptied`, a file that was read empty: the kernel reports a truncation only when it is complete,
 * which may take long while the file is written back to the disk; and for a configuration or lock file that has become
 * empty. False once files have been changing for three seconds. `watcher` may be NULL. */
bool mp_inotify_is_torn(mp_inotify *MP_NULLABLE watcher, bool is_emptied, uint64_t now);

#endif
