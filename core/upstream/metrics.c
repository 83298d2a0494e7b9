/* metrics.c: the numbers of each upstream for /metrics, by its name in the configuration; never by a tool or a
 * session. */
#include "upstream/state.h"

#define MAX_UPSTREAM_SERIES 256 /* upstreams with series of their own in /metrics; the others are counted together */

MP_LABELLED_COUNTER(calls, "moonpool_upstream_calls", MAX_UPSTREAM_SERIES, "requests sent to an upstream", "upstream")
MP_LABELLED_COUNTER(errors, "moonpool_upstream_errors", 2 * MAX_UPSTREAM_SERIES,
                    "requests to an upstream that ended without an answer", "upstream", "outcome")
MP_LABELLED_COUNTER(retries, "moonpool_upstream_retries", MAX_UPSTREAM_SERIES,
                    "requests that were sent to an upstream once more", "upstream")
MP_HISTOGRAM(seconds, "moonpool_upstream_seconds", mp_bounds_call, MAX_UPSTREAM_SERIES,
             "time from a request to its answer by an upstream", "upstream")

mp_upstream_series mp_upstream_series_of(mp_str name)
{
    const mp_str not_run[] = {name, MP_STR("not_run")}, unknown[] = {name, MP_STR("unknown")};
    return (mp_upstream_series){
        .calls = mp_series_of(&mp_family_calls, &name),
        .not_run = mp_series_of(&mp_family_errors, not_run),
        .unknown = mp_series_of(&mp_family_errors, unknown),
        .retries = mp_series_of(&mp_family_retries, &name),
        .seconds = mp_series_of(&mp_family_seconds, &name),
    };
}
