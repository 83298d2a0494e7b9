/* other_times.c: linked into the binary for specs. With SPEC_TIME_60000=500 in the environment, what has 60 s at an
 * upgrade has half a second; so do its other times, by their milliseconds: 2000 for the trial, 10000 for the service
 * manager, 3600000 for older processes. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

uint64_t __wrap_mp_upgrade_time(uint64_t ms);

uint64_t __wrap_mp_upgrade_time(uint64_t ms)
{
    char name[64];
    snprintf(name, sizeof name, "SPEC_TIME_%llu", (unsigned long long)ms);
    const char *other = getenv(name);
    return other == NULL ? ms : strtoull(other, NULL, 10);
}
