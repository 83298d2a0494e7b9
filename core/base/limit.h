/* limit.h: a limit that is a constant. MP_LIMIT(admin_runs, 16) is 16; in the builds for specs, which reach it with
 * less, SPEC_LIMIT_admin_runs=1 in the environment makes it 1. `name` is one word for all limits. */
#ifndef MP_BASE_LIMIT_H
#define MP_BASE_LIMIT_H

#include <stdint.h>
#include <stdlib.h>

static inline int64_t mp_spec_limit(const char *variable, int64_t value)
{
    const char *other = getenv(variable);
    return other == NULL ? value : strtoll(other, NULL, 10);
}

#ifdef MP_SPEC_BUILD
#define MP_LIMIT(name, value) mp_spec_limit("SPEC_LIMIT_" #name, value)
#else
#define MP_LIMIT(name, value) (value)
#endif

#endif
