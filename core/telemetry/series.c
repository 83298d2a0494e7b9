#include "series.h"
#include <pthread.h>
#include <stdlib.h>

#define PAGE_CELLS 512
#define MAX_PAGES 256 /* pages of one thread's copy: 1 MiB if every family is full */
#define MAX_COPIES 256

/* Symbols of the linker: a pointer to each declared family. */
extern const mp_family *const first_row[] __asm__("__start_mp_family_rows") __attribute__((visibility("hidden")));
extern const mp_family *const end_of_rows[] __asm__("__stop_mp_family_rows") __attribute__((visibility("hidden")));

typedef struct member {
    mp_node node;                  /* the key: the family's name, then the values, each behind a NUL */
    _Atomic(struct member *) next; /* in the order in which they were made; set once, when the next one is complete */
    const mp_family *family;
    mp_series cell; /* the first of its cells */
} member;

/* A thread's copy: pages of cells, allocated when they are needed. */
typedef struct {
    _Atomic(_Atomic int64_t *) pages[MAX_PAGES];
} copy;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for `map`, `newest` and `next_cell` */
static mp_map map;
static _Atomic(member *) oldest;
static member *newest;
static mp_series next_cell = 1;

static copy shared; /* of the threads without a copy of their own */
static _Atomic(copy *) copies[MAX_COPIES];
static atomic_int next_copy;
static _Thread_local copy *own;
static atomic_bool is_off;

/* -- buckets ------------------------------------------------------------------------------------------------------- */

#define MAX_BOUNDS 19
#define MS 1000
#define S (1000 * MS)

/* In microseconds, and as Prometheus writes them in seconds. */
static const struct {
    uint64_t us[MAX_BOUNDS];
    const char *text[MAX_BOUNDS];
    int count;
} bounds[] = {
    [MP_BUCKETS_CALL] = {{100, 500, 1 * MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS, 200 * MS, 500 * MS,
                          1 * S, 2 * S, 5 * S, 10 * S, 30 * S, 60 * S, 120 * S, 300 * S},
                         {"0.0001", "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2", "0.5",
                          "1.0", "2.0", "5.0", "10.0", "30.0", "60.0", "120.0", "300.0"},
                         19},
    [MP_BUCKETS_SESSION] = {{1 * S, 10 * S, 60 * S, 300 * (uint64_t)S, 900 * (uint64_t)S, 1800 * (uint64_t)S,
                             3600 * (uint64_t)S, 14400 * (uint64_t)S, 86400 * (uint64_t)S},
                            {"1.0", "10.0", "60.0", "300.0", "900.0", "1800.0", "3600.0", "14400.0", "86400.0"},
                            9},
};

/* A counter has one cell; a histogram one for each bound, one for what is above all bounds, and the sum. */
static int cells_of(const mp_family *family)
{
    return family->buckets < 0 ? 1 : bounds[family->buckets].count + 2;
}

/* -- series -------------------------------------------------------------------------------------------------------- */

static void put_key(mp_buf *key, const mp_family *family, const mp_str *values)
{
    mp_buf_put(key, mp_str_of(family->name));
    for (int i = 0; family->labels[i] != NULL; i++) {
        mp_buf_putc(key, '\0');
        mp_buf_put(key, values[i]);
    }
}

/* The first of so many cells in one page; 0 if there are none left. */
static mp_series take_cells(int count)
{
    if (next_cell % PAGE_CELLS + (mp_series)count > PAGE_CELLS)
        next_cell += PAGE_CELLS - next_cell % PAGE_CELLS;
    if (next_cell + (mp_series)count > PAGE_CELLS * MAX_PAGES)
        return 0;
    next_cell += (mp_series)count;
    return next_cell - (mp_series)count;
}

/* The caller has the lock. */
static mp_series find_or_make(const mp_family *family, const mp_str *values, bool is_other)
{
    mp_buf key = {0};
    put_key(&key, family, values);
    member *found = (member *)mp_map_find(&map, mp_buf_str(&key));
    mp_series cell = 0;
    if (found == NULL && (is_other || atomic_load(family->count) < family->most) &&
        (cell = take_cells(cells_of(family))) != 0) {
        bool is_new;
        found = mp_map_need(&map, mp_buf_str(&key), sizeof *found, &is_new);
        found->family = family;
        found->cell = cell;
        atomic_store_explicit(newest == NULL ? &oldest : &newest->next, found, memory_order_release);
        newest = found;
        atomic_fetch_add(family->count, is_other ? 0 : 1);
    }
    mp_buf_clear(&key);
    return found == NULL ? 0 : found->cell;
}

mp_series mp_series_of(const mp_family *family, const mp_str *values)
{
    mp_str other[MP_SERIES_LABELS];
    for (int i = 0; i < MP_SERIES_LABELS; i++)
        other[i] = MP_STR("_other");
    pthread_mutex_lock(&lock);
    if (map.slots == NULL)
        mp_map_init(&map);
    mp_series cell = find_or_make(family, values, false);
    if (cell == 0)
        cell = find_or_make(family, other, true);
    pthread_mutex_unlock(&lock);
    return cell;
}

/* -- counting ------------------------------------------------------------------------------------------------------ */

void mp_series_enable(bool is_on)
{
    atomic_store(&is_off, !is_on);
}

bool mp_series_is_on(void)
{
    return !atomic_load_explicit(&is_off, memory_order_relaxed);
}

void mp_series_thread(void)
{
    int index = atomic_fetch_add(&next_copy, 1);
    if (index >= MAX_COPIES)
        return;
    own = mp_new(sizeof *own);
    atomic_store_explicit(&copies[index], own, memory_order_release);
}

/* Not inlined: each page is made once. */
static __attribute__((noinline)) _Atomic int64_t *make_page(_Atomic(_Atomic int64_t *) *slot)
{
    _Atomic int64_t *page = NULL, *made = mp_new(PAGE_CELLS * sizeof *made);
    if (atomic_compare_exchange_strong(slot, &page, made))
        return made;
    free(made); /* of the shared copy: another thread has made the page */
    return page;
}

static inline _Atomic int64_t *cells_in(copy *of, mp_series series)
{
    _Atomic(_Atomic int64_t *) *slot = &of->pages[series / PAGE_CELLS];
    _Atomic int64_t *page = atomic_load_explicit(slot, memory_order_acquire);
    return (page != NULL ? page : make_page(slot)) + series % PAGE_CELLS;
}

/* A thread's own copy has no other writer: adding to it needs no locked instruction. */
static inline void add(const copy *mine, _Atomic int64_t *cell, int64_t n)
{
    if (mine == NULL)
        atomic_fetch_add_explicit(cell, n, memory_order_relaxed);
    else
        atomic_store_explicit(cell, atomic_load_explicit(cell, memory_order_relaxed) + n, memory_order_relaxed);
}

void mp_series_add(mp_series series, int64_t n)
{
    copy *mine = own;
    if (series != 0)
        add(mine, cells_in(mine == NULL ? &shared : mine, series), n);
}

/* The first bound that is not below `us`: bounds rise by a factor of 2 or more, so a look at the middle first halves the way. */
static inline int bucket_of(mp_buckets buckets, uint64_t us)
{
    const uint64_t *bound = bounds[buckets].us;
    int count = bounds[buckets].count, middle = count / 2;
    int bucket = us > bound[middle] ? middle + 1 : us > bound[middle / 2] ? middle / 2 + 1 : 0;
    while (bucket < count && us > bound[bucket])
        bucket++;
    return bucket;
}

static inline void observe(copy *mine, mp_series series, int count, int bucket, uint64_t us)
{
    if (series == 0)
        return;
    _Atomic int64_t *cells = cells_in(mine == NULL ? &shared : mine, series);
    add(mine, cells + bucket, 1);
    add(mine, cells + count + 1, (int64_t)us);
}

void mp_series_observe(mp_series series, mp_buckets buckets, uint64_t us)
{
    observe(own, series, bounds[buckets].count, bucket_of(buckets, us), us);
}

void mp_series_observe_both(mp_series one, mp_series other, mp_buckets buckets, uint64_t us)
{
    copy *mine = own;
    int count = bounds[buckets].count, bucket = bucket_of(buckets, us);
    observe(mine, one, count, bucket, us);
    observe(mine, other, count, bucket, us);
}

/* -- text ---------------------------------------------------------------------------------------------------------- */

static int64_t read_in(copy *of, mp_series cell)
{
    _Atomic int64_t *page = atomic_load_explicit(&of->pages[cell / PAGE_CELLS], memory_order_acquire);
    return page == NULL ? 0 : atomic_load_explicit(page + cell % PAGE_CELLS, memory_order_relaxed);
}

static int64_t read_cell(mp_series cell)
{
    int64_t sum = read_in(&shared, cell);
    int count = atomic_load_explicit(&next_copy, memory_order_relaxed);
    for (int i = 0; i < count && i < MAX_COPIES; i++) {
        copy *one = atomic_load_explicit(&copies[i], memory_order_acquire);
        if (one != NULL)
            sum += read_in(one, cell);
    }
    return sum;
}

/* -- sums ---------------------------------------------------------------------------------------------------------- */

_Static_assert(MAX_BOUNDS + 2 == MP_SERIES_CELLS, "a histogram has a cell for each bound, and two more");

/* True if the last label of a series has this value. */
static bool ends_with(const member *one, mp_str value)
{
    mp_str key = one->node.key;
    return key.len > value.len && key.ptr[key.len - value.len - 1] == '\0' &&
           mp_str_eq(mp_str_from(key, key.len - value.len), value);
}

void mp_series_sum(const char *name, const char *last, int64_t cells[MP_SERIES_CELLS])
{
    memset(cells, 0, MP_SERIES_CELLS * sizeof *cells);
    member *one = atomic_load_explicit(&oldest, memory_order_acquire);
    for (; one != NULL; one = atomic_load_explicit(&one->next, memory_order_acquire)) {
        if (strcmp(one->family->name, name) != 0 || (last != NULL && !ends_with(one, mp_str_of(last))))
            continue;
        for (int i = 0; i < cells_of(one->family); i++)
            cells[i] += read_cell(one->cell + (mp_series)i);
    }
}

int mp_series_buckets(mp_buckets buckets)
{
    return bounds[buckets].count + 1;
}

double mp_series_quantile(mp_buckets buckets, const int64_t *cells, double share)
{
    int count = bounds[buckets].count;
    int64_t all = 0, below = 0;
    for (int i = 0; i <= count; i++)
        all += cells[i];
    if (all <= 0)
        return -1;
    for (int i = 0; i < count; i++) {
        double from = i == 0 ? 0 : (double)bounds[buckets].us[i - 1], to = (double)bounds[buckets].us[i];
        if (cells[i] > 0 && (double)(below + cells[i]) >= share * (double)all)
            return from + (to - from) * (share * (double)all - (double)below) / (double)cells[i];
        below += cells[i];
    }
    return (double)bounds[buckets].us[count - 1];
}

void mp_metrics_put_label(mp_buf *out, mp_str value)
{
    for (size_t i = 0; i < value.len; i++) {
        char c = value.ptr[i];
        if (c == '\\' || c == '"' || c == '\n')
            mp_buf_putc(out, '\\');
        mp_buf_putc(out, c == '\n' ? 'n' : c);
    }
}

/* Appends {label="value",…}; with `le`, the bound of a bucket, too. */
static void put_labels(mp_buf *out, const member *one, const char *le)
{
    const char *value = one->node.key.ptr + strlen(one->family->name) + 1;
    const char *end = one->node.key.ptr + one->node.key.len;
    char before = '{';
    for (int i = 0; one->family->labels[i] != NULL; i++) {
        const char *nul = memchr(value, '\0', (size_t)(end - value));
        size_t len = (size_t)((nul == NULL ? end : nul) - value);
        mp_buf_printf(out, "%c%s=\"", before, one->family->labels[i]);
        mp_metrics_put_label(out, (mp_str){value, len});
        mp_buf_putc(out, '"');
        value += len + (nul == NULL ? 0 : 1);
        before = ',';
    }
    if (le != NULL)
        mp_buf_printf(out, "%cle=\"%s\"", before, le);
    if (le != NULL || before == ',')
        mp_buf_putc(out, '}');
}

static void put_sample(mp_buf *out, const member *one, const char *suffix, const char *le, int64_t value)
{
    mp_buf_printf(out, "%s%s", one->family->name, suffix);
    put_labels(out, one, le);
    mp_buf_printf(out, " %lld\n", (long long)value);
}

static void put_histogram(mp_buf *out, const member *one)
{
    int buckets = one->family->buckets, count = bounds[buckets].count;
    int64_t sum = 0;
    for (int i = 0; i <= count; i++) {
        sum += read_cell(one->cell + (mp_series)i);
        put_sample(out, one, "_bucket", i < count ? bounds[buckets].text[i] : "+Inf", sum);
    }
    int64_t us = read_cell(one->cell + (mp_series)count + 1);
    mp_buf_printf(out, "%s_sum", one->family->name);
    put_labels(out, one, NULL);
    mp_buf_printf(out, " %lld.%06lld\n", (long long)(us / S), (long long)(us % S));
    put_sample(out, one, "_count", NULL, sum);
}

static void put_family(mp_buf *out, const mp_family *family, member *first, bool is_open)
{
    bool is_counter = family->buckets < 0;
    const char *suffix = is_counter ? "_total" : "", *named = is_open ? "" : suffix;
    mp_buf_printf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", family->name, named, family->text, family->name, named,
                  is_counter ? "counter" : "histogram");
    for (member *one = first; one != NULL; one = atomic_load_explicit(&one->next, memory_order_acquire)) {
        if (one->family != family)
            continue;
        if (is_counter)
            put_sample(out, one, suffix, NULL, read_cell(one->cell));
        else
            put_histogram(out, one);
    }
}

static int compare_families(const void *a, const void *b)
{
    return strcmp((*(const mp_family *const *)a)->name, (*(const mp_family *const *)b)->name);
}

void mp_series_put(mp_buf *out, bool is_open)
{
    size_t count = ((uintptr_t)end_of_rows - (uintptr_t)first_row) / sizeof *first_row;
    const mp_family **list = mp_new(count * sizeof *list);
    memcpy(list, first_row, count * sizeof *list);
    qsort(list, count, sizeof *list, compare_families);
    member *first = atomic_load_explicit(&oldest, memory_order_acquire);
    for (size_t i = 0; i < count; i++)
        put_family(out, list[i], first, is_open);
    free(list);
}
