/* traces.h: spans of calls, as the configuration wants them (core/trace). */
#ifndef MP_GATEWAY_TRACES_H
#define MP_GATEWAY_TRACES_H

#include "watchdog.h"

/* Begins to record calls as `traces` says, or goes on so. On the main thread. -1 if the thread that sends spans cannot be started. */
int mp_traces_use(const mp_config *config, mp_err *err);
/* All workers have ended: waits until the collector has the spans that wait, at most 3 s, and within limits.drain. */
void mp_traces_finish(mp_shared *shared);

#endif
