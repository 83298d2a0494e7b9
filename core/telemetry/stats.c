#define _GNU_SOURCE /* for strverscmp */
#include "stats.h"

#define MAX_COPIES 256

/* Symbols of the linker: all slots, and a pointer to each declaration. */
extern _Atomic int64_t first_slot[] __asm__("__start_mp_stat_slots") __attribute__((visibility("hidden")));
extern _Atomic int64_t end_of_slots[] __asm__("__stop_mp_stat_slots") __attribute__((visibility("hidden")));
extern const mp_stat *const first_row[] __asm__("__start_mp_stat_rows") __attribute__((visibility("hidden")));
extern const mp_stat *const end_of_rows[] __asm__("__stop_mp_stat_rows") __attribute__((visibility("hidden")));

/* The first is the section itself, which threads without a copy of their own share. */
static _Atomic(char *) copies[MAX_COPIES] = {(char *)first_slot};
static atomic_int next_copy = 1;
_Thread_local intptr_t mp_stat_offset;

void mp_stat_thread(void)
{
    int index = atomic_fetch_add(&next_copy, 1);
    if (index >= MAX_COPIES)
        return;
    size_t bytes = ((uintptr_t)end_of_slots - (uintptr_t)first_slot + 63) &
                   ~(size_t)63; /* whole cache lines, so that threads do not share one */
    char *copy = aligned_alloc(64, bytes);
    if (copy == NULL)
        return;
    memset(copy, 0, bytes);
    atomic_store_explicit(&copies[index], copy, memory_order_release);
    mp_stat_offset = (intptr_t)copy - (intptr_t)first_slot;
}

void *MP_NULLABLE mp_stat_next_copy(const void *slot, int *at)
{
    int count = atomic_load_explicit(&next_copy, memory_order_relaxed);
    while (*at < count && *at < MAX_COPIES) {
        char *copy = atomic_load_explicit(&copies[(*at)++], memory_order_acquire);
        if (copy != NULL)
            return copy + ((uintptr_t)slot - (uintptr_t)first_slot);
    }
    return NULL;
}

int64_t mp_stat_read(const mp_stat *stat)
{
    int64_t sum = 0;
    _Atomic int64_t *copy;
    if ((uintptr_t)stat->shared - (uintptr_t)first_slot >= (uintptr_t)end_of_slots - (uintptr_t)first_slot)
        return atomic_load_explicit(stat->shared, memory_order_relaxed); /* accounts have no copies */
    for (int at = 0; (copy = mp_stat_next_copy(stat->shared, &at)) != NULL;)
        sum += atomic_load_explicit(copy, memory_order_relaxed);
    return sum;
}

static int compare_stats(const void *a, const void *b)
{
    const mp_stat *one = *(const mp_stat *const *)a, *other = *(const mp_stat *const *)b;
    int order = strcmp(one->family, other->family);
    return order != 0 ? order : strverscmp(one->value, other->value);
}

static const mp_stat **sorted; /* allocated before any thread reads it */
static size_t row_count;

static void sort_rows(void)
{
    row_count = ((uintptr_t)end_of_rows - (uintptr_t)first_row) / sizeof *first_row;
    sorted = mp_new(row_count * sizeof *sorted);
    memcpy(sorted, first_row, row_count * sizeof *sorted);
    qsort(sorted, row_count, sizeof *sorted, compare_stats);
}

const mp_stat *const *mp_stat_list(size_t *count)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, sort_rows);
    *count = row_count;
    return sorted;
}

const mp_stat *const *mp_stat_family(const char *family, size_t *count)
{
    size_t all, from = 0, to;
    const mp_stat *const *list = mp_stat_list(&all);
    for (size_t end = all; from < end;) {
        size_t middle = from + (end - from) / 2;
        if (strcmp(list[middle]->family, family) < 0)
            from = middle + 1;
        else
            end = middle;
    }
    for (to = from; to < all && strcmp(list[to]->family, family) == 0;)
        to++;
    *count = to - from;
    return list + from;
}

int64_t mp_stat_sum(const char *family)
{
    size_t count;
    int64_t sum = 0;
    const mp_stat *const *list = mp_stat_family(family, &count);
    for (size_t i = 0; i < count; i++)
        sum += mp_stat_read(list[i]);
    return sum;
}
