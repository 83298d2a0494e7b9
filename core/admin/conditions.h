/* conditions.h: what is wrong with the gateway now, as the member `conditions` of /status: a list of
 *
 *     {"condition":"upstream_down","severity":"critical","alert":"MoonpoolUpstreamDown","what":"the upstream one …",
 *      "since":"2026-11-22T10:15:03Z","count":3,"next":"what a person does"}
 *
 * worst first; `since` and `count` where they are known. conditions.def has the kinds. On the admin thread. */
#ifndef MP_ADMIN_CONDITIONS_H
#define MP_ADMIN_CONDITIONS_H

#include "saturation.h"
#include "upstream/upstream.h"

/* Some conditions are counters that grow, read once a second: such a condition holds while its counter grows, and for
 * 10 min after. */
#define MP_CONDITION_COUNTS 9

typedef struct mp_conditions {
    struct {
        bool is_on;
        int64_t last, before; /* the counter's value a second ago, and before it began to grow */
        int64_t since;        /* seconds since 1970 */
        uint64_t grew_ms;     /* monotonic */
    } counts[MP_CONDITION_COUNTS];
    int64_t stuck_since, main_since, unready_since, unsaved_since; /* seconds since 1970; 0: it is not so */
} mp_conditions;

/* Looks whether the numbers have grown, and what else is wrong. Called once a second. */
void mp_conditions_sample(mp_conditions *conditions, const mp_readiness *readiness);
/* Appends the list. `stuck`: a sentence for each stuck worker; `scripts` and `certificates`: members of /status. */
void mp_conditions_put(mp_conditions *conditions, const mp_readiness *readiness, mp_upstreams *upstreams, mp_str stuck,
                       mp_str scripts, mp_str certificates, mp_buf *out);

#endif
