/* traces.h: spans of calls, as the configuration wants them (core/trace). */
#ifndef MP_GATEWAY_TRACES_H
#define MP_GATEWAY_TRACES_H

#include "config/config.h"

/* Records calls from now on as `traces` of the configuration demands. On the main thread. -1 if the thread that sends
 * spans cannot be started. */
int mp_traces_use(const mp_config *config, mp_err *err);

#endif
