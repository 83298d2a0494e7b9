/* slow_disk.c: linked into the binary for specs. While the file that SLOW_DISK names is there, the thread that writes
 * store.file stands still, as with a disk that hangs: for ten seconds at most. */
#include "data/store_database.h"
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST_MS 10000

int __real_mp_store_database_begin(mp_store_database *database);
int __wrap_mp_store_database_begin(mp_store_database *database);

int __wrap_mp_store_database_begin(mp_store_database *database)
{
    const char *armed = getenv("SLOW_DISK");
    for (int ms = 0; armed != NULL && ms < MOST_MS && access(armed, F_OK) == 0; ms++)
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    return __real_mp_store_database_begin(database);
}
