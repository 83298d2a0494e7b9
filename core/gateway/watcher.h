/* watcher.h: notices that the scripts or the configuration may have changed. It says when to look, not what changed: whoever asked reads
 * everything and compares, so a false alarm costs little and no way of saving is missed. */
#ifndef MP_GATEWAY_WATCHER_H
#define MP_GATEWAY_WATCHER_H

#include "base/base.h"

typedef struct mp_watcher mp_watcher;

/* Of `dir` and all below it, and of `file`, which may be NULL; both copied. */
mp_watcher *mp_watcher_new(const char *dir, const char *file);
void mp_watcher_free(mp_watcher *watcher);
/* Watches every folder that is there now, and the links on the way. To be called before the scripts are read, so that
 * what changes meanwhile is noticed too. -1 and `err` where the system cannot tell: the watcher is then without a
 * descriptor, and somebody has to look now and then. */
int mp_watcher_renew(mp_watcher *watcher, mp_err *err);
/* Readable when something may have changed; another one after each renewal; -1 without. */
int mp_watcher_fd(const mp_watcher *watcher);
/* Takes what it was told: whether that concerns what is watched. */
bool mp_watcher_take(mp_watcher *watcher);

#endif
