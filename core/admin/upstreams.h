/* upstreams.h: the member `upstreams` of /status. */
#ifndef MP_ADMIN_UPSTREAMS_H
#define MP_ADMIN_UPSTREAMS_H

#include "upstream/upstream.h"

/* Appends a JSON object with a member for each upstream of the configuration: its state, channels, counters, times and
 * last failure. Nothing in it belongs to a tool, a session or a client. Any thread. */
void mp_admin_put_upstreams(mp_buf *out, mp_upstreams *table);
/* The number of definitions of the upstream that clients do not get. */
int64_t mp_admin_withheld(const mp_upstream_report *report);
/* Appends the gauges of upstreams to the text of /metrics. Other numbers of upstreams are series of core/upstream. */
void mp_admin_put_upstream_metrics(mp_buf *out, mp_upstreams *table);

#endif
