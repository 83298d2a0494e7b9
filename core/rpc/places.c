/* places.c: counts in a memory file, a row for each process. A process changes its own row alone. */
#define _GNU_SOURCE
#include "places.h"
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define FORMAT 0x4d504c01 /* the letters "MPL", and the number of the format */
/* rows for the older processes, the newest, and one that an upgrade has started */
#define ROWS (MP_OLDER_MOST + 2)
/* without these seals, one process could shrink the memory that others use */
#define SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)
#define TRIES 8 /* attempts at a last place that other processes try to take too */

/* Part of what processes of different versions share, as the rest of this memory. */
typedef struct {
    _Atomic int32_t pid; /* process that has the row; 0: none */
    int32_t unused;
    _Atomic int64_t counts[15];
} row;

typedef struct {
    uint32_t format;
    _Atomic int32_t used; /* number of rows that were ever in use */
    char unused[120];
    row rows[ROWS];
} shared;

struct mp_places {
    int fd; /* -1: no other process can map it */
    shared *all;
    row *own;
};

static shared *MP_NULLABLE map_file(int fd)
{
    void *at =
        mmap(NULL, sizeof(shared), PROT_READ | PROT_WRITE, fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static int make_file(void)
{
    int fd = memfd_create("moonpool-places", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && (ftruncate(fd, sizeof(shared)) != 0 || fcntl(fd, F_ADD_SEALS, SEALS) != 0)) {
        close(fd);
        return -1;
    }
    return fd;
}

static row *MP_NULLABLE find_place(const mp_places *places, int pid)
{
    int count = atomic_load(&places->all->used);
    for (int i = 0; i < count && i < ROWS; i++)
        if (atomic_load(&places->all->rows[i].pid) == pid)
            return &places->all->rows[i];
    return NULL;
}

mp_places *mp_places_new(void)
{
    mp_places *places = mp_new(sizeof *places);
    places->fd = make_file();
    shared *all = map_file(places->fd);
    if (all == NULL)
        abort(); /* no memory for two pages: the process cannot go on */
    places->all = all;
    all->format = FORMAT;
    mp_places_add(places, (int)getpid());
    places->own = &all->rows[0];
    return places;
}

static void leave_places(const mp_places *places)
{
    munmap(places->all, sizeof *places->all);
    if (places->fd >= 0)
        close(places->fd);
}

void mp_places_free(mp_places *places)
{
    leave_places(places);
    free(places);
}

int mp_places_fd(const mp_places *places)
{
    return places->fd;
}

/* Only the newest process adds rows, and removes them. */
bool mp_places_add(mp_places *places, int pid)
{
    int count = atomic_load(&places->all->used), i = 0;
    while (i < count && atomic_load(&places->all->rows[i].pid) != 0)
        i++;
    if (i >= ROWS)
        return false;
    for (int k = 0; k < 15; k++)
        atomic_store(&places->all->rows[i].counts[k], 0);
    atomic_store(&places->all->rows[i].pid, pid);
    if (i == count)
        atomic_store(&places->all->used, count + 1);
    return true;
}

void mp_places_remove(mp_places *places, int pid)
{
    row *of = find_place(places, pid);
    if (of != NULL && of != places->own)
        atomic_store(&of->pid, 0);
}

bool mp_places_join(mp_places *places, int fd)
{
    struct stat state;
    bool is_whole = fstat(fd, &state) == 0 && state.st_size >= (off_t)sizeof(shared) &&
                    (fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK) != 0;
    shared *all = is_whole ? map_file(fd) : NULL;
    mp_places joined = {.fd = fd, .all = all == NULL ? places->all : all};
    row *own = all == NULL || all->format != FORMAT ? NULL : find_place(&joined, (int)getpid());
    if (own != NULL) {
        leave_places(places);
        *places = (mp_places){fd, joined.all, own};
        return true;
    }
    if (all != NULL)
        munmap(all, sizeof *all);
    close(fd);
    return false;
}

/* -- counting ------------------------------------------------------------------------------------------------------ */

int64_t mp_places_used(const mp_places *places, mp_place kind)
{
    int64_t sum = 0;
    int count = atomic_load(&places->all->used);
    for (int i = 0; i < count && i < ROWS; i++)
        if (atomic_load(&places->all->rows[i].pid) != 0)
            sum += atomic_load(&places->all->rows[i].counts[kind]);
    return sum;
}

/* Takes a place in the only row: no other process changes the count between comparison and change. */
static bool take_alone(_Atomic int64_t *count, int64_t most)
{
    int64_t used = atomic_load_explicit(count, memory_order_relaxed);
    do
        if (used >= most)
            return false;
    while (!atomic_compare_exchange_weak(count, &used, used + 1));
    return true;
}

/* While several processes share the counts, a place is taken first, and then the sum is compared with the limit. If
 * two processes take the last place at the same moment, each sees the other's place, so the limit is not exceeded. */
bool mp_places_take(mp_places *places, mp_place kind, int64_t most)
{
    _Atomic int64_t *count = &places->own->counts[kind];
    if (atomic_load_explicit(&places->all->used, memory_order_relaxed) == 1)
        return take_alone(count, most);
    for (int i = 0; i < TRIES && mp_places_used(places, kind) < most; i++) {
        atomic_fetch_add(count, 1);
        if (mp_places_used(places, kind) <= most)
            return true;
        atomic_fetch_sub(count, 1);
    }
    return false;
}

void mp_places_give(mp_places *places, mp_place kind)
{
    atomic_fetch_sub(&places->own->counts[kind], 1);
}
