/* series_text.c: the text of all series, in the formats of Prometheus and of OpenMetrics. */
#include "declared.h"
#include "series_state.h"
#include <math.h>

#define US_PER_S INT64_C(1000000)

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

static void put_name(mp_buf *out, const mp_member *one, const char *suffix, const char *MP_NULLABLE le)
{
    mp_buf_printf(out, "%s%s", one->family->name, suffix);
    put_labels(out, one, le);
    mp_buf_putc(out, ' ');
}

static void put_sample(mp_buf *out, const mp_member *one, const char *suffix, const char *MP_NULLABLE le, int64_t value)
{
    put_name(out, one, suffix, le);
    mp_buf_printf(out, "%lld\n", (long long)value);
}

/* Writes a number with 15 digits if they are enough, so that 0.1 is not 0.10000000000000001. */
static void put_real_sample(mp_buf *out, const mp_member *one, const char *suffix, double value)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", value);
    if (fabs(strtod(text, NULL) - value) > 0)
        snprintf(text, sizeof text, "%.17g", value);
    put_name(out, one, suffix, NULL);
    mp_buf_printf(out, "%s\n", isinf(value) ? value > 0 ? "+Inf" : "-Inf" : text);
}

static void put_histogram(mp_buf *out, const mp_member *one)
{
    const mp_real_bounds *real = one->family->own;
    int count = mp_family_bounds(one->family);
    const char *const *texts = mp_family_texts(one->family);
    int64_t sum = 0;
    for (int i = 0; i <= count; i++) {
        sum += mp_series_read(one->cell + (mp_series)i, false).whole;
        put_sample(out, one, "_bucket", i < count ? texts[i] : "+Inf", sum);
    }
    mp_sums all = mp_series_read(one->cell + (mp_series)count + 1, real != NULL);
    if (real != NULL) {
        put_real_sample(out, one, "_sum", all.real);
    } else {
        put_name(out, one, "_sum", NULL);
        mp_buf_printf(out, "%lld.%06lld\n", (long long)(all.whole / US_PER_S), (long long)(all.whole % US_PER_S));
    }
    put_sample(out, one, "_count", NULL, sum);
}

static void put_head(mp_buf *out, const mp_family *family, bool is_open)
{
    bool is_counter = family->buckets == MP_FAMILY_COUNTER;
    const char *type = is_counter ? "counter" : family->buckets == MP_FAMILY_GAUGE ? "gauge" : "histogram";
    mp_metrics_put_head(out, family->name, is_counter && !is_open ? "_total" : "", type, family->text);
}

static void put_member(mp_buf *out, const mp_member *one)
{
    const mp_family *family = one->family;
    const char *suffix = family->buckets == MP_FAMILY_COUNTER ? "_total" : "";
    if (mp_family_is_histogram(family))
        put_histogram(out, one);
    else if (family->own != NULL)
        put_real_sample(out, one, suffix, mp_series_read(one->cell, true).real);
    else
        put_sample(out, one, suffix, NULL, mp_series_read(one->cell, false).whole);
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
    size_t at, count; /* families */
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
    put_head(out, text->families[text->at], text->is_open);
    text->next = mp_series_oldest();
    return true;
}

bool mp_series_text_put(mp_series_text *text, mp_buf *out, unsigned steps)
{
    for (unsigned left = steps; left > 0;) {
        if (text->next == NULL && !begin_family(text, out))
            return false;
        const mp_family *family = text->families[text->at];
        const mp_member *MP_NULLABLE one = text->next;
        for (; one != NULL && left > 0; one = text->next) {
            bool is_its_own = one->family == family;
            unsigned cost = !is_its_own ? 1 : mp_family_is_histogram(family) ? HISTOGRAM_STEPS : SAMPLE_STEPS;
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
