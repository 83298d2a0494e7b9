#define _GNU_SOURCE /* for strverscmp */
#include "stats.h"
#include "base/base.h"
#include "series.h"

#define MAX_COPIES 256

/* Symbols of the linker: all slots, and a pointer to each declaration. */
extern _Atomic int64_t first_slot[] __asm__("__start_mp_stat_slots") __attribute__((visibility("hidden")));
extern _Atomic int64_t end_of_slots[] __asm__("__stop_mp_stat_slots") __attribute__((visibility("hidden")));
extern const mp_stat *const first_row[] __asm__("__start_mp_stat_rows") __attribute__((visibility("hidden")));
extern const mp_stat *const end_of_rows[] __asm__("__stop_mp_stat_rows") __attribute__((visibility("hidden")));

static _Atomic(char *) copies[MAX_COPIES];
static atomic_int next_copy;
_Thread_local intptr_t mp_stat_offset;

void mp_stat_thread(void)
{
    mp_series_thread();
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

int64_t mp_stat_read(const mp_stat *stat)
{
    int64_t sum = atomic_load_explicit(stat->shared, memory_order_relaxed);
    size_t at = (uintptr_t)stat->shared - (uintptr_t)first_slot;
    if (at >= (uintptr_t)end_of_slots - (uintptr_t)first_slot)
        return sum; /* an account */
    int count = atomic_load_explicit(&next_copy, memory_order_relaxed);
    for (int i = 0; i < count && i < MAX_COPIES; i++) {
        char *copy = atomic_load_explicit(&copies[i], memory_order_acquire);
        if (copy != NULL)
            sum += atomic_load_explicit((_Atomic int64_t *)(copy + at), memory_order_relaxed);
    }
    return sum;
}

static size_t count_rows(void)
{
    return ((uintptr_t)end_of_rows - (uintptr_t)first_row) / sizeof *first_row;
}

int64_t mp_stat_sum(const char *family)
{
    int64_t sum = 0;
    size_t count = count_rows();
    for (size_t i = 0; i < count; i++)
        if (strcmp(first_row[i]->family, family) == 0)
            sum += mp_stat_read(first_row[i]);
    return sum;
}

static int compare_stats(const void *a, const void *b)
{
    const mp_stat *one = *(const mp_stat *const *)a, *other = *(const mp_stat *const *)b;
    int order = strcmp(one->family, other->family);
    return order != 0 ? order : strverscmp(one->value, other->value);
}

const mp_stat **mp_stat_list(size_t *count)
{
    *count = count_rows();
    const mp_stat **list = mp_new(*count * sizeof *list);
    memcpy(list, first_row, *count * sizeof *list);
    qsort(list, *count, sizeof *list, compare_stats);
    return list;
}
