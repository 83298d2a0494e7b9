/* failure.c: why an exchange has no answer, or a task no channel. */
#include "upstream/state.h"

/* indexed by mp_failure_reason */
static const struct {
    const char *name;
    bool is_outage;
} reasons[] = {
    [MP_FAILURE_NONE] = {"", false},
#define FAILURE(constant, name, outage) [MP_FAILURE_##constant] = {#name, outage},
#include "failure.def"
#undef FAILURE
};

mp_upstream_failure mp_upstream_failure_of(mp_failure_reason reason, bool may_have_run, const char *why)
{
    mp_upstream_failure failure = {.reason = reason, .may_have_run = may_have_run, .retry_after_ms = -1};
    snprintf(failure.why, sizeof failure.why, "%s", why);
    return failure;
}

void mp_upstream_failure_clear(mp_upstream_failure *failure)
{
    free(failure->head);
    free(failure->body);
    *failure = (mp_upstream_failure){0};
}

bool mp_upstream_failure_is_outage(const mp_upstream_failure *failure)
{
    return reasons[failure->reason].is_outage || failure->status >= 500;
}

const char *mp_failure_name(mp_failure_reason reason)
{
    return reasons[reason].name;
}

mp_failure_reason mp_failure_named(mp_str name)
{
    for (size_t i = 1; i < sizeof reasons / sizeof *reasons; i++)
        if (mp_str_is(name, reasons[i].name))
            return (mp_failure_reason)i;
    return MP_FAILURE_NONE;
}
