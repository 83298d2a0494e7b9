/* telemetry.h: the public header of core/telemetry: counters, gauges and histograms, the log, the audit log. Nothing in
 * this module uses the network. */
#ifndef MP_TELEMETRY_TELEMETRY_H
#define MP_TELEMETRY_TELEMETRY_H

#include "account.h"
#include "audit.h"
#include "base/base.h"
#include "crash.h"
#include "declared.h"
#include "log.h"
#include "mark.h"
#include "phase.h"
#include "record_file.h"
#include "refusal.h"
#include "series.h"
#include "stats.h"

#endif
