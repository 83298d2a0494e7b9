#include "series_state.h"
#include <pthread.h>

MP_COUNTER(
    left_out_most, "series_left_out", "cause", "most",
    "sets of labels that count as _other, each time one is looked up, because their metric has as many as it may")
MP_COUNTER(
    left_out_room, "series_left_out", "cause", "room",
    "sets of labels that count as _other, each time one is looked up, because /metrics would be too long with them")

#define PAGE_CELLS 512
#define MAX_PAGES (MP_SERIES_MAX / PAGE_CELLS) /* pages of one thread's copy */
#define MAX_COPIES 256
#define MAX_REAL_CELLS (PAGE_CELLS * MAX_PAGES / 3) /* of families of scripts, so that all others have room */

/* /metrics is below 8 MiB: bytes that series may have in its text. A family of the gateway's own has SURE_LINE_BYTES
 * for each line that it can have, whatever others have; what is longer comes out of POT_BYTES, which these families
 * share. The families of scripts have SCRIPT_BYTES together, and OTHER_BYTES for their series of "_other". */
#define SURE_LINE_BYTES 32
#define POT_BYTES ((size_t)9 << 18)
#define SCRIPT_BYTES ((size_t)2 << 20)
#define OTHER_BYTES ((size_t)1 << 18)
#define NUMBER_BYTES 12 /* of a value, usually fewer */

/* A thread's copy: pages of cells, allocated when they are needed. */
typedef struct {
    _Atomic(_Atomic int64_t *) pages[MAX_PAGES];
} copy;

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* for what is below, but `oldest`; and each family's `bytes` */
static mp_map map;
static _Atomic(mp_member *) oldest;
static mp_member *MP_NULLABLE newest;
static mp_series next_cell = 1;
static mp_series real_cells;           /* cells of families of scripts */
static size_t script_bytes, pot_bytes; /* in use */

static copy shared; /* of the threads without a copy of their own */
static _Atomic(copy *) copies[MAX_COPIES];
static atomic_int next_copy;
static _Thread_local copy *own;
static atomic_bool is_off;

/* -- buckets ------------------------------------------------------------------------------------------------------- */

#define MS 1000
#define S (1000 * MS)

/* In microseconds, and as Prometheus writes them in seconds. */
static const struct {
    uint64_t us[MP_BOUNDS_MAX];
    const char *text[MP_BOUNDS_MAX];
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

bool mp_family_is_histogram(const mp_family *family)
{
    return family->buckets != MP_FAMILY_COUNTER && family->buckets != MP_FAMILY_GAUGE;
}

int mp_family_bounds(const mp_family *family)
{
    return family->own != NULL ? family->own->count : bounds[family->buckets].count;
}

const char *const *mp_family_texts(const mp_family *family)
{
    return family->own != NULL ? family->own->text : bounds[family->buckets].text;
}

/* The number of cells of a family: one for a counter or gauge; for a histogram one for each bound, one for values above
 * all bounds, and the sum. */
static int cells_of(const mp_family *family)
{
    return mp_family_is_histogram(family) ? mp_family_bounds(family) + 2 : 1;
}

/* -- series -------------------------------------------------------------------------------------------------------- */

static void put_key(mp_buf *key, const mp_family *family, const mp_str *values)
{
    mp_buf_put(key, (mp_str){(const char *)&family, sizeof family});
    for (int i = 0; family->labels[i] != NULL; i++) {
        mp_buf_putc(key, '\0');
        mp_buf_put(key, values[i]);
    }
}

/* The first cell of a new series, all of whose cells are in one page; 0 if there are none left. */
static mp_series take_cells(const mp_family *family)
{
    int count = cells_of(family);
    if (family->own != NULL && real_cells + (mp_series)count > MAX_REAL_CELLS)
        return 0;
    if (next_cell % PAGE_CELLS + (mp_series)count > PAGE_CELLS)
        next_cell += PAGE_CELLS - next_cell % PAGE_CELLS;
    if (next_cell + (mp_series)count > PAGE_CELLS * MAX_PAGES)
        return 0;
    real_cells += family->own != NULL ? (mp_series)count : 0;
    next_cell += (mp_series)count;
    return next_cell - (mp_series)count;
}

static size_t label_bytes(mp_str value)
{
    size_t bytes = value.len;
    for (size_t i = 0; i < value.len; i++)
        bytes += value.ptr[i] == '"' || value.ptr[i] == '\\' || value.ptr[i] == '\n';
    return bytes;
}

static size_t lines_of(const mp_family *family)
{
    return mp_family_is_histogram(family) ? (size_t)mp_family_bounds(family) + 3 : 1;
}

/* Bytes of the text of a series, about. */
static size_t text_bytes(const mp_family *family, const mp_str *values)
{
    size_t line = strlen(family->name) + sizeof "_bucket{} \n" + NUMBER_BYTES, bounds_bytes = 0;
    for (int i = 0; family->labels[i] != NULL; i++)
        line += strlen(family->labels[i]) + sizeof "=\"\"," + label_bytes(values[i]);
    for (int i = 0; mp_family_is_histogram(family) && i < mp_family_bounds(family); i++)
        bounds_bytes += strlen(mp_family_texts(family)[i]) + sizeof ",le=\"\"";
    return line * lines_of(family) + bounds_bytes;
}

/* The part of `bytes` that is taken from the common pot, for a family that had `had` bytes. */
static size_t bytes_of_pot(const mp_family *family, size_t had, size_t bytes)
{
    size_t sure = (size_t)family->most * lines_of(family) * SURE_LINE_BYTES;
    return (had + bytes > sure ? had + bytes - sure : 0) - (had > sure ? had - sure : 0);
}

/* True if the text of /metrics has room for a series. The caller has the lock, as for the next one. */
static bool has_text_room(const mp_family *family, size_t bytes, bool is_other)
{
    const size_t *MP_NULLABLE had = family->bytes;
    if (had == NULL)
        return script_bytes + bytes <= SCRIPT_BYTES + (is_other ? OTHER_BYTES : 0);
    /* 0: all of it is in the family's own part, also where the pot is full */
    size_t over = bytes_of_pot(family, *had, bytes);
    return is_other || over == 0 || pot_bytes + over <= POT_BYTES;
}

static void take_text_room(const mp_family *family, size_t bytes)
{
    size_t *MP_NULLABLE had = family->bytes;
    if (had == NULL) {
        script_bytes += bytes;
        return;
    }
    pot_bytes += bytes_of_pot(family, *had, bytes);
    *had += bytes;
}

/* True if all values are "_other" already. */
static bool is_of_others(const mp_family *family, const mp_str *values)
{
    for (int i = 0; family->labels[i] != NULL; i++)
        if (!mp_str_is(values[i], "_other"))
            return false;
    return true;
}

static void count_left_out(const mp_family *family, const mp_str *values, int most)
{
    if (!is_of_others(family, values))
        mp_stat_add(atomic_load(family->count) >= most ? &mp_stat_left_out_most : &mp_stat_left_out_room, 1);
}

/* The caller has the lock. */
static mp_series find_or_make(const mp_family *family, const mp_str *values, int most, bool is_other)
{
    mp_scoped_buf key = {0};
    put_key(&key, family, values);
    mp_member *found = (mp_member *)mp_map_find(&map, mp_buf_str(&key));
    mp_series cell = 0;
    size_t bytes = found == NULL ? text_bytes(family, values) : 0;
    if (found == NULL && (is_other || atomic_load(family->count) < most) && has_text_room(family, bytes, is_other) &&
        (cell = take_cells(family)) != 0) {
        take_text_room(family, bytes);
        bool is_new;
        found = mp_map_need(&map, mp_buf_str(&key), sizeof *found, &is_new);
        found->family = family;
        found->cell = cell;
        atomic_store_explicit(newest == NULL ? &oldest : &newest->next, found, memory_order_release);
        newest = found;
        atomic_fetch_add(family->count, is_other ? 0 : 1);
    }
    return found == NULL ? 0 : found->cell;
}

static mp_series series_of(const mp_family *family, const mp_str *values, int most, bool is_alone)
{
    mp_str other[MP_SERIES_LABELS];
    for (int i = 0; i < MP_SERIES_LABELS; i++)
        other[i] = MP_STR("_other");
    MP_LOCKED(&lock);
    if (!mp_map_is_made(&map))
        mp_map_init(&map);
    mp_series cell = find_or_make(family, values, most, false);
    if (cell == 0)
        count_left_out(family, values, most);
    if (cell == 0 && !is_alone)
        cell = find_or_make(family, other, most, true);
    return cell;
}

mp_series mp_series_of(const mp_family *family, const mp_str *values)
{
    return series_of(family, values, family->most, false);
}

mp_series mp_series_alone(const mp_family *family, const mp_str *values)
{
    return series_of(family, values, family->most, true);
}

mp_series mp_series_within(const mp_family *family, const mp_str *values, int most)
{
    return series_of(family, values, most, false);
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

/* Makes a page of cells. Not inlined: each page is made only once. */
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

/* Adds to a cell. A thread's own copy has no other writer, so that no locked instruction is needed. */
static inline void add(const copy *MP_NULLABLE mine, _Atomic int64_t *cell, int64_t n)
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

static double real_of(int64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static int64_t bits_of(double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Adds to a cell whose bits are a double. Zero bits are 0.0. */
static void add_real(const copy *MP_NULLABLE mine, _Atomic int64_t *cell, double n)
{
    int64_t before = atomic_load_explicit(cell, memory_order_relaxed);
    if (mine != NULL) {
        atomic_store_explicit(cell, bits_of(real_of(before) + n), memory_order_relaxed);
        return;
    }
    while (!atomic_compare_exchange_weak_explicit(cell, &before, bits_of(real_of(before) + n), memory_order_relaxed,
                                                  memory_order_relaxed))
        continue;
}

void mp_series_add_real(mp_series series, double n)
{
    copy *mine = own;
    if (series != 0)
        add_real(mine, cells_in(mine == NULL ? &shared : mine, series), n);
}

void mp_series_gauge(mp_series series, double n, bool is_set)
{
    if (series == 0)
        return;
    if (is_set)
        atomic_store_explicit(cells_in(&shared, series), bits_of(n), memory_order_relaxed);
    else
        add_real(NULL, cells_in(&shared, series), n);
}

void mp_series_observe_real(const mp_real_bounds *of, mp_series series, double n)
{
    copy *mine = own;
    int bucket = 0;
    if (series == 0)
        return;
    while (bucket < of->count && n > of->most[bucket])
        bucket++;
    _Atomic int64_t *cells = cells_in(mine == NULL ? &shared : mine, series);
    add(mine, cells + bucket, 1);
    add_real(mine, cells + of->count + 1, n);
}

/* The first bound that is not below `us`: bounds rise by a factor of 2 or more, so a look at the middle first halves
 * the way. */
static inline int bucket_of(mp_buckets buckets, uint64_t us)
{
    const uint64_t *bound = bounds[buckets].us;
    int count = bounds[buckets].count, middle = count / 2;
    int bucket = us > bound[middle] ? middle + 1 : us > bound[middle / 2] ? middle / 2 + 1 : 0;
    while (bucket < count && us > bound[bucket])
        bucket++;
    return bucket;
}

static inline void observe(copy *MP_NULLABLE mine, mp_series series, int count, int bucket, uint64_t us)
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

/* -- sums ---------------------------------------------------------------------------------------------------------- */

static int64_t read_in(copy *of, mp_series cell)
{
    _Atomic int64_t *page = atomic_load_explicit(&of->pages[cell / PAGE_CELLS], memory_order_acquire);
    return page == NULL ? 0 : atomic_load_explicit(page + cell % PAGE_CELLS, memory_order_relaxed);
}

static void sum_copy(mp_sums *sum, copy *one, mp_series cell, bool is_real)
{
    int64_t value = read_in(one, cell);
    if (is_real)
        sum->real += real_of(value);
    else
        sum->whole += value;
}

mp_sums mp_series_read(mp_series cell, bool is_real)
{
    mp_sums sum = {0};
    sum_copy(&sum, &shared, cell, is_real);
    int count = atomic_load_explicit(&next_copy, memory_order_relaxed);
    for (int i = 0; i < count && i < MAX_COPIES; i++) {
        copy *one = atomic_load_explicit(&copies[i], memory_order_acquire);
        if (one != NULL)
            sum_copy(&sum, one, cell, is_real);
    }
    return sum;
}

_Static_assert(MP_BOUNDS_MAX + 2 == MP_SERIES_CELLS, "a histogram has a cell for each bound, and two more");

/* True if the last label of a series has this value. */
static bool ends_with(const mp_member *one, mp_str value)
{
    mp_str key = one->node.key;
    return key.len > value.len && key.ptr[key.len - value.len - 1] == '\0' &&
           mp_str_eq(mp_str_from(key, key.len - value.len), value);
}

mp_member *MP_NULLABLE mp_series_oldest(void)
{
    return atomic_load_explicit(&oldest, memory_order_acquire);
}

void mp_series_sum(const char *name, const char *MP_NULLABLE last, int64_t cells[MP_SERIES_CELLS])
{
    memset(cells, 0, MP_SERIES_CELLS * sizeof *cells);
    mp_member *one = mp_series_oldest();
    for (; one != NULL; one = atomic_load_explicit(&one->next, memory_order_acquire)) {
        if (one->family->own != NULL || strcmp(one->family->name, name) != 0 ||
            (last != NULL && !ends_with(one, mp_str_of(last))))
            continue;
        for (int i = 0; i < cells_of(one->family); i++)
            cells[i] += mp_series_read(one->cell + (mp_series)i, false).whole;
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

int64_t mp_series_count(mp_series series)
{
    return series == 0 ? 0 : mp_series_read(series, false).whole;
}

void mp_series_read_histogram(mp_series series, mp_buckets buckets, int64_t cells[MP_SERIES_CELLS])
{
    memset(cells, 0, MP_SERIES_CELLS * sizeof *cells);
    for (int i = 0; i < bounds[buckets].count + 2 && series != 0; i++)
        cells[i] = mp_series_read(series + (mp_series)i, false).whole;
}
