/* failure.c: why an exchange has no answer, or a task no channel. */
#include "upstream/state.h"
#include <stdio.h>
#include <stdlib.h>

void mp_upstream_failure_set(mp_upstream_failure *failure, const char *reason, bool may_have_run, const char *why)
{
    *failure = (mp_upstream_failure){.reason = reason, .may_have_run = may_have_run, .retry_after_ms = -1};
    snprintf(failure->why, sizeof failure->why, "%s", why);
}

void mp_upstream_failure_clear(mp_upstream_failure *failure)
{
    free(failure->head);
    free(failure->body);
    *failure = (mp_upstream_failure){0};
}

bool mp_upstream_failure_is_outage(const mp_upstream_failure *failure)
{
    static const char *const outages[] = {"refused", "closed", "timeout", "unreadable"};
    for (size_t i = 0; i < sizeof outages / sizeof *outages; i++)
        if (strcmp(failure->reason, outages[i]) == 0)
            return true;
    return failure->status >= 500;
}
