/* telemetry.h: the public header of core/telemetry: counters and gauges, the log, the audit log. Nothing in this
 * module uses the network. */
#ifndef MP_TELEMETRY_TELEMETRY_H
#define MP_TELEMETRY_TELEMETRY_H

#include "audit.h"
#include "base/base.h"
#include "log.h"
#include "refusal.h"
#include "stats.h"

#endif
