/* series_text.c: the text of all series, in the formats of Prometheus and of OpenMetrics. */
#include "declared.h"
#include "series_state.h"
#include <math.h>

/* The cost of writing one series, as a multiple of the cost of skipping one. */
#define SAMPLE_STEPS 10
#define HISTOGRAM_STEPS (SAMPLE_STEPS * MP_SERIES_CELLS)

/* Symbols of the linker: a pointer to each declared family. */
extern const mp_family *const first_row[] __asm__("__start_mp_family_rows") __attribute__((visibility("hidden")));
extern const mp_family *const end_of_rows[] __asm__("__stop_mp_family_rows") __attribute__((visibility("hidden")));

void mp_metrics_put_head(mp_buf *out, const char *name, const char *suffix, const char *type, const char *text)
{
    mp_buf_printf(out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, text, name, suffix, type);
}

void mp_metrics_put_gauge(mp_buf *out, const char *name, const char *text, double value)
{
    mp_metrics_put_head(out, name, "", "gauge", text);
    mp_buf_printf(out, "%s %.17g\n", name, value);
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
static void put_labels(mp_buf *out, const mp_member *one, const char *MP_NULLABLE le)
{
    const char *value = one->node.key.ptr + sizeof one->family + 1;
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

/* Ends a sample. A number has 15 digits if they are enough, so that 0.1 is not 0.10000000000000001. */
static void put_value(mp_buf *out, double value, mp_shown shown)
{
    char text[40];
    if (shown == MP_SHOWN_IN_SECONDS) {
        mp_buf_printf(out, " %.6f\n", value / 1e6);
        return;
    }
    snprintf(text, sizeof text, "%.15g", value);
    if (fabs(value) >= 1e15 || fabs(value - trunc(value)) > 0)
        if (fabs(strtod(text, NULL) - value) > 0)
            snprintf(text, sizeof text, "%.17g", value);
    mp_buf_printf(out, " %s\n", isinf(value) ? value > 0 ? "+Inf" : "-Inf" : text);
}

static void put_sample(mp_buf *out, const mp_member *one, const char *suffix, const char *MP_NULLABLE le, double value,
                       mp_shown shown)
{
    mp_buf_printf(out, "%s%s", one->family->name, suffix);
    put_labels(out, one, le);
    put_value(out, value, shown);
}

static void put_histogram(mp_buf *out, const mp_member *one)
{
    const mp_bounds *bounds = one->family->bounds;
    double cells[MP_SERIES_CELLS] = {0}, sum = 0;
    mp_series_add_cells(one->cell, bounds, cells);
    for (int i = 0; i <= bounds->count; i++)
        put_sample(out, one, "_bucket", i < bounds->count ? bounds->text[i] : "+Inf", sum += cells[i],
                   MP_SHOWN_AS_COUNTED);
    put_sample(out, one, "_sum", NULL, cells[bounds->count + 1], one->family->shown);
    put_sample(out, one, "_count", NULL, sum, MP_SHOWN_AS_COUNTED);
}

static void put_head(mp_buf *out, const char *name, mp_stat_kind kind, const char *text, bool is_open)
{
    static const char *const types[] = {"counter", "gauge", "histogram"};
    mp_metrics_put_head(out, name, kind == MP_STAT_COUNTER && !is_open ? "_total" : "", types[kind], text);
}

static void put_member(mp_buf *out, const mp_member *one)
{
    if (one->family->kind == MP_STAT_HISTOGRAM)
        put_histogram(out, one);
    else
        put_sample(out, one, one->family->kind == MP_STAT_COUNTER ? "_total" : "", NULL, mp_series_read(one->cell),
                   one->family->shown);
}

/* Appends the counters and gauges without series. */
static void put_stats(mp_buf *out, bool is_open)
{
    size_t count;
    const mp_stat *const *list = mp_stat_list(&count);
    for (size_t i = 0; i < count; i++) {
        const mp_stat *stat = list[i];
        if (stat->shown == MP_SHOWN_BY_LABELS)
            continue;
        bool is_time = stat->shown == MP_SHOWN_IN_SECONDS;
        mp_scoped_buf name = {0};
        mp_buf_printf(&name, "moonpool_%.*s%s%c", (int)(strlen(stat->family) - (is_time ? strlen("us") : 0)),
                      stat->family, is_time ? "seconds" : "", '\0');
        if (i == 0 || strcmp(list[i - 1]->family, stat->family) != 0)
            put_head(out, name.ptr, stat->kind, stat->text, is_open);
        mp_buf_printf(out, "%s%s", name.ptr, stat->kind == MP_STAT_COUNTER ? "_total" : "");
        if (*stat->label != '\0')
            mp_buf_printf(out, "{%s=\"%s\"}", stat->label, stat->value);
        put_value(out, (double)mp_stat_read(stat), stat->shown);
    }
}

static int compare_families(const void *a, const void *b)
{
    return strcmp((*(const mp_family *const *)a)->name, (*(const mp_family *const *)b)->name);
}

/* -- in slices ----------------------------------------------------------------------------------------------------- */

struct mp_series_text {
    bool is_open;
    /* the next series to look at, in the list of all series; NULL: the text of the family is complete */
    mp_member *MP_NULLABLE next;
    size_t at, count; /* index of the family that is being written; number of families */
    const mp_family *families[];
};

mp_series_text *mp_series_text_new(bool is_open)
{
    size_t count = ((uintptr_t)end_of_rows - (uintptr_t)first_row) / sizeof *first_row;
    mp_series_text *text = mp_new(sizeof *text + (count + MP_DECLARED_MAX) * sizeof *text->families);
    memcpy(text->families, first_row, count * sizeof *text->families);
    text->is_open = is_open;
    text->count = count + mp_declared_list(text->families + count);
    qsort(text->families, text->count, sizeof *text->families, compare_families);
    return text;
}

void mp_series_text_free(mp_series_text *MP_NULLABLE text)
{
    free(text);
}

/* Begins the next family; false: there is none. Of families with one name only the first is written. */
static bool begin_family(mp_series_text *text, mp_buf *out)
{
    while (text->at < text->count && text->at > 0 &&
           strcmp(text->families[text->at]->name, text->families[text->at - 1]->name) == 0)
        text->at++;
    if (text->at == text->count)
        return false;
    const mp_family *family = text->families[text->at];
    put_head(out, family->name, family->kind, family->text, text->is_open);
    text->next = mp_series_oldest();
    return true;
}

bool mp_series_text_put(mp_series_text *text, mp_buf *out, unsigned steps)
{
    for (unsigned left = steps; left > 0;) {
        if (text->next == NULL && !begin_family(text, out)) {
            put_stats(out, text->is_open);
            return false;
        }
        const mp_family *family = text->families[text->at];
        const mp_member *MP_NULLABLE one = text->next;
        for (; one != NULL && left > 0; one = text->next) {
            bool is_its_own = one->family == family;
            unsigned cost = !is_its_own ? 1 : family->kind == MP_STAT_HISTOGRAM ? HISTOGRAM_STEPS : SAMPLE_STEPS;
            if (is_its_own)
                put_member(out, one);
            text->next = atomic_load_explicit(&one->next, memory_order_acquire);
            left -= cost < left ? cost : left;
        }
        left -= left > 0;
        text->at += text->next == NULL;
    }
    return true;
}
