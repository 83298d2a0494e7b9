#include "series_state.h"

MP_COUNTER(
    left_out_most, "series_left_out", "cause", "most",
    "sets of labels that count as _other, each time one is looked up, because their metric has as many as it may")
MP_COUNTER(
    left_out_room, "series_left_out", "cause", "room",
    "sets of labels that count as _other, each time one is looked up, because /metrics would be too long with them")

#define PAGE_CELLS 512
#define MAX_PAGES (MP_SERIES_MAX / PAGE_CELLS) /* pages of one thread's copy */
/* limit of the cells of scripts' families, so that all other families have room */
#define MAX_REAL_CELLS (PAGE_CELLS * MAX_PAGES / 3)

/* /metrics is below 8 MiB: bytes that series may have in its text. A family of the gateway's own has SURE_LINE_BYTES
 * for each line that it can have, whatever others have; what is longer comes out of POT_BYTES, which these families
 * share. The families of scripts have SCRIPT_BYTES together, and OTHER_BYTES for their series of "_other". */
#define SURE_LINE_BYTES 32
#define POT_BYTES ((size_t)9 << 18)
#define SCRIPT_BYTES ((size_t)2 << 20)
#define OTHER_BYTES ((size_t)1 << 18)
#define NUMBER_BYTES 12 /* maximum bytes of a value's text */

static pthread_mutex_t lock =
    PTHREAD_MUTEX_INITIALIZER; /* guards the variables below, except `oldest`, and each family's `bytes` */
static mp_map map;
static _Atomic(mp_member *) oldest;
static mp_member *MP_NULLABLE newest;
static mp_series next_cell = 1;
static mp_series real_cells; /* cells of families of scripts */
/* bytes of the text of /metrics that are reserved for scripts' families; bytes of the pot in use */
static size_t script_bytes, pot_bytes;

/* A number of a series: a counter's value, or a histogram's count or sum. */
typedef _Atomic double mp_cell;

/* Pages of cells, allocated when they are needed; each thread's copy of the numbers has its own. */
static _Atomic(mp_cell *) pages[MAX_PAGES] MP_STAT_SLOT;

static atomic_bool is_off;

/* -- buckets ------------------------------------------------------------------------------------------------------- */

#define MS 1e3
#define S 1e6

const mp_bounds mp_bounds_none;
const mp_bounds mp_bounds_call = {{100, 500, 1 * MS, 2 * MS, 5 * MS, 10 * MS, 20 * MS, 50 * MS, 100 * MS, 200 * MS,
                                   500 * MS, 1 * S, 2 * S, 5 * S, 10 * S, 30 * S, 60 * S, 120 * S, 300 * S},
                                  {"0.0001", "0.0005", "0.001", "0.002", "0.005", "0.01", "0.02", "0.05", "0.1", "0.2",
                                   "0.5", "1.0", "2.0", "5.0", "10.0", "30.0", "60.0", "120.0", "300.0"},
                                  19};
const mp_bounds mp_bounds_session = {
    {1 * S, 10 * S, 60 * S, 300 * S, 900 * S, 1800 * S, 3600 * S, 14400 * S, 86400 * S},
    {"1.0", "10.0", "60.0", "300.0", "900.0", "1800.0", "3600.0", "14400.0", "86400.0"},
    9};

/* The number of cells of a family: one for a counter or gauge; for a histogram one for each bound, one for values above
 * all bounds, and the sum. */
static int cells_of(const mp_family *family)
{
    return family->kind == MP_STAT_HISTOGRAM ? family->bounds->count + 2 : 1;
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
    if (family->bytes == NULL && real_cells + (mp_series)count > MAX_REAL_CELLS)
        return 0;
    if (next_cell % PAGE_CELLS + (mp_series)count > PAGE_CELLS)
        next_cell += PAGE_CELLS - next_cell % PAGE_CELLS;
    if (next_cell + (mp_series)count > PAGE_CELLS * MAX_PAGES)
        return 0;
    real_cells += family->bytes == NULL ? (mp_series)count : 0;
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
    return family->kind == MP_STAT_HISTOGRAM ? (size_t)family->bounds->count + 3 : 1;
}

/* Bytes of the text of a series, about. */
static size_t text_bytes(const mp_family *family, const mp_str *values)
{
    size_t line = strlen(family->name) + sizeof "_bucket{} \n" + NUMBER_BYTES, bounds_bytes = 0;
    for (int i = 0; family->labels[i] != NULL; i++)
        line += strlen(family->labels[i]) + sizeof "=\"\"," + label_bytes(values[i]);
    for (int i = 0; i < family->bounds->count; i++)
        bounds_bytes += strlen(family->bounds->text[i]) + sizeof ",le=\"\"";
    return line * lines_of(family) + bounds_bytes;
}

/* The part of `bytes` that is taken from the common pot, for a family that had `had` bytes. */
static size_t bytes_of_pot(const mp_family *family, size_t had, size_t bytes)
{
    size_t sure = (size_t)family->most * lines_of(family) * SURE_LINE_BYTES;
    return (had + bytes > sure ? had + bytes - sure : 0) - (had > sure ? had - sure : 0);
}

/* True if the text of /metrics has room for a series. The caller has the lock. */
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

/* Makes a page of cells. Not inlined: each page is made only once. */
static __attribute__((noinline)) mp_cell *make_page(_Atomic(mp_cell *) *slot)
{
    mp_cell *page = NULL, *made = mp_new(PAGE_CELLS * sizeof *made);
    if (atomic_compare_exchange_strong(slot, &page, made))
        return made;
    free(made); /* of the shared copy: another thread has made the page */
    return page;
}

/* The cells of a series in the copy whose numbers are `offset` bytes behind the shared ones. */
static inline mp_cell *cells_in(intptr_t offset, mp_series series)
{
    _Atomic(mp_cell *) *slot = (_Atomic(mp_cell *) *)((intptr_t)&pages[series / PAGE_CELLS] + offset);
    mp_cell *page = atomic_load_explicit(slot, memory_order_acquire);
    return (page != NULL ? page : make_page(slot)) + series % PAGE_CELLS;
}

/* Adds to a cell. A thread's own copy has no other writer, so that no locked instruction is needed. */
static inline void add_to_cell(intptr_t offset, mp_cell *to, double n)
{
    double before = atomic_load_explicit(to, memory_order_relaxed);
    if (offset != 0) {
        atomic_store_explicit(to, before + n, memory_order_relaxed);
        return;
    }
    while (!atomic_compare_exchange_weak_explicit(to, &before, before + n, memory_order_relaxed, memory_order_relaxed))
        continue;
}

void mp_series_add(mp_series series, double n)
{
    intptr_t own = mp_stat_offset;
    if (series != 0)
        add_to_cell(own, cells_in(own, series), n);
}

void mp_series_gauge(mp_series series, double n, bool is_set)
{
    if (series == 0)
        return;
    if (is_set)
        atomic_store_explicit(cells_in(0, series), n, memory_order_relaxed);
    else
        add_to_cell(0, cells_in(0, series), n);
}

/* The first bound that is not below `n`: the bounds of times rise by a factor of 2 or more, so a look at the middle
 * first halves the way. */
static inline int bucket_of(const mp_bounds *bounds, double n)
{
    const double *most = bounds->most;
    int count = bounds->count, middle = count / 2;
    int bucket = n > most[middle] ? middle + 1 : n > most[middle / 2] ? middle / 2 + 1 : 0;
    while (bucket < count && n > most[bucket])
        bucket++;
    return bucket;
}

static inline void observe_value(mp_series series, int count, int bucket, double n)
{
    intptr_t own = mp_stat_offset;
    if (series == 0)
        return;
    mp_cell *cells = cells_in(own, series);
    add_to_cell(own, cells + bucket, 1);
    add_to_cell(own, cells + count + 1, n);
}

void mp_series_observe(mp_series series, const mp_bounds *bounds, double n)
{
    observe_value(series, bounds->count, bucket_of(bounds, n), n);
}

void mp_series_observe_both(mp_series one, mp_series other, const mp_bounds *bounds, double n)
{
    int bucket = bucket_of(bounds, n);
    observe_value(one, bounds->count, bucket, n);
    observe_value(other, bounds->count, bucket, n);
}

/* -- sums ---------------------------------------------------------------------------------------------------------- */

double mp_series_read(mp_series series)
{
    double sum = 0;
    _Atomic(mp_cell *) *slot;
    for (int at = 0; (slot = mp_stat_next_copy(&pages[series / PAGE_CELLS], &at)) != NULL;) {
        mp_cell *page = atomic_load_explicit(slot, memory_order_acquire);
        sum += page == NULL ? 0 : atomic_load_explicit(page + series % PAGE_CELLS, memory_order_relaxed);
    }
    return sum;
}

void mp_series_add_cells(mp_series series, const mp_bounds *bounds, double cells[MP_SERIES_CELLS])
{
    for (int i = 0; i < bounds->count + 2 && series != 0; i++)
        cells[i] += mp_series_read(series + (mp_series)i);
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

void mp_series_sum(const char *name, const char *MP_NULLABLE last, double cells[MP_SERIES_CELLS])
{
    memset(cells, 0, MP_SERIES_CELLS * sizeof *cells);
    mp_member *one = mp_series_oldest();
    for (; one != NULL; one = atomic_load_explicit(&one->next, memory_order_acquire))
        if (one->family->bytes != NULL && strcmp(one->family->name, name) == 0 &&
            (last == NULL || ends_with(one, mp_str_of(last))))
            mp_series_add_cells(one->cell, one->family->bounds, cells);
}

double mp_series_quantile(const mp_bounds *bounds, const double *cells, double share)
{
    int count = bounds->count;
    double all = 0, below = 0;
    for (int i = 0; i <= count; i++)
        all += cells[i];
    if (all <= 0)
        return -1;
    for (int i = 0; i < count; i++) {
        double from = i == 0 ? 0 : bounds->most[i - 1];
        if (cells[i] > 0 && below + cells[i] >= share * all)
            return from + (bounds->most[i] - from) * (share * all - below) / cells[i];
        below += cells[i];
    }
    return bounds->most[count - 1];
}
