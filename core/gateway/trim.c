/* trim.c: decides when much memory is free and the gateway is quiet. malloc_trim locks one arena after the other,
 * and a worker that allocates waits for its arena, so it runs only while memory use is stable. */
#include "trim.h"
#include "lib/lib.h"
#include <fcntl.h>
#include <malloc.h>
#include <stdio.h>
#include <unistd.h>

#define CONNECTION_BYTES 6000 /* approximate size of an idle connection with an event stream */
#define WORTH_BYTES ((int64_t)1 << 20)
#define WORTH_PART 16                  /* and 1/16 of the resident size: many arenas take longer to trim */
#define QUIET_BYTES ((int64_t)1 << 20) /* maximum change of the estimate between two checks */

/* Resident bytes of the process; 0 if they cannot be read. */
static int64_t resident(void)
{
    char text[64];
    long long size, pages;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t len = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    if (len <= 0)
        return 0;
    text[len] = '\0';
    return sscanf(text, "%lld %lld", &size, &pages) == 2 ? pages * sysconf(_SC_PAGESIZE) : 0;
}

static int64_t estimate(void)
{
    return mp_stat_read(&mp_stat_connections) * CONNECTION_BYTES + mp_stat_read(&mp_stat_lua_bytes) +
           mp_stat_read(&mp_stat_queue_bytes) + mp_stat_read(&mp_stat_replay_bytes) +
           mp_stat_read(&mp_stat_store_bytes) + mp_stat_read(&mp_stat_fs_bytes);
}

/* Trims if the process is larger than after the last trim by more than its used memory is: the difference is free memory in glibc's
 * arenas. */
void mp_trim_look(mp_trim *trim, uint64_t now_ms)
{
    if (now_ms - trim->looked_at < MP_TRIM_EVERY_MS)
        return;
    int64_t used = estimate(), change = used - trim->last, size = resident();
    trim->looked_at = now_ms;
    trim->last = used;
    if (trim->resident != 0) {
        int64_t free = size - trim->resident - (used - trim->used), part = size / WORTH_PART;
        if (free < (part > WORTH_BYTES ? part : WORTH_BYTES) || change > QUIET_BYTES || change < -QUIET_BYTES)
            return;
        malloc_trim(0);
    }
    trim->resident = resident();
    trim->used = used;
}
