/* join_metrics.c: texts in Prometheus's format. Names, labels and values point into the texts. */
#include "join.h"

/* A metric or a sample of the joined text. It has the place at which it occurred first. */
typedef struct item {
    mp_node node; /* in a map by its key */
    struct item *MP_NULLABLE next;
} item;

typedef struct {
    item *MP_NULLABLE first, *MP_NULLABLE last;
} chain;

typedef struct {
    item super; /* its key: name and labels */
    mp_str value;
    int64_t whole;
    double real;
    bool is_whole, is_sum; /* is_sum: more than one value was added, in `whole` or `real` */
} sample;

typedef struct {
    item super;  /* its key: the name */
    mp_str head; /* the lines HELP and TYPE */
    bool is_counted, sums;
    chain samples;
} metric;

typedef struct {
    mp_map metrics, samples;
    chain order; /* of metrics */
    bool (*sums)(mp_str gauge);
} joined;

/* The name of a line "# HELP NAME …" or "# TYPE NAME …", and what follows it. */
static mp_str cut_name(mp_str line, mp_str *rest)
{
    *rest = mp_str_from(line, 7);
    return mp_str_cut(rest, ' ');
}

/* Finds the item of this key, or makes it and appends it to `order`. `size`: of the struct to make, whose first member
 * is the item. */
static item *item_of(mp_map *map, chain *order, mp_str key, size_t size, bool *is_new)
{
    item *of = mp_map_need(map, key, size, is_new);
    if (!*is_new)
        return of;
    item *MP_NULLABLE last = order->last;
    if (last == NULL)
        order->first = of;
    else
        last->next = of;
    order->last = of;
    return of;
}

/* Takes a line of comment; returns the metric that the samples after it belong to. */
static metric *MP_NULLABLE take_comment(joined *all, metric *MP_NULLABLE current, mp_str line)
{
    bool is_new, is_type = mp_str_starts(line, MP_STR("# TYPE "));
    mp_str rest;
    if (!is_type && !mp_str_starts(line, MP_STR("# HELP ")))
        return current;
    mp_str name = cut_name(line, &rest);
    metric *of = mp_container(item_of(&all->metrics, &all->order, name, sizeof *of, &is_new), metric, super);
    if (is_new)
        of->head = line;
    else if (is_type && of->head.ptr + of->head.len + 1 == line.ptr)
        of->head.len += line.len + 1; /* the lines follow each other */
    if (is_type) {
        of->is_counted = mp_str_is(rest, "counter") || mp_str_is(rest, "histogram");
        of->sums = of->is_counted || all->sums(name);
    }
    return of;
}

/* The length of a name with its labels, which may have spaces. */
static size_t key_length(mp_str line)
{
    bool is_quoted = false;
    for (size_t i = 0; i < line.len; i++) {
        if (is_quoted && line.ptr[i] == '\\')
            i++;
        else if (line.ptr[i] == '"')
            is_quoted = !is_quoted;
        else if (!is_quoted && line.ptr[i] == ' ')
            return i;
    }
    return line.len;
}

static bool read_whole(mp_str text, int64_t *number)
{
    char digits[24], *end;
    if (text.len == 0 || text.len >= sizeof digits)
        return false;
    memcpy(digits, text.ptr, text.len);
    digits[text.len] = '\0';
    *number = strtoll(digits, &end, 10);
    return *end == '\0';
}

static double read_real(mp_str text)
{
    char digits[64];
    size_t len = text.len < sizeof digits - 1 ? text.len : sizeof digits - 1;
    memcpy(digits, text.ptr, len);
    digits[len] = '\0';
    return strtod(digits, NULL);
}

static void take_sample(joined *all, metric *of, mp_str line)
{
    bool is_new;
    size_t length = key_length(line);
    mp_str key = {line.ptr, length}, value = mp_str_from(line, length + 1);
    sample *one = mp_container(item_of(&all->samples, &of->samples, key, sizeof *one, &is_new), sample, super);
    int64_t number = 0;
    bool is_whole = read_whole(value, &number);
    if (is_new) {
        one->value = value;
        one->is_whole = is_whole;
        one->whole = number;
        one->real = read_real(value);
    } else if (of->sums) {
        one->is_whole = one->is_whole && is_whole;
        one->whole += number;
        one->real += read_real(value);
        one->is_sum = true;
    }
}

static void take_text(joined *all, mp_str text)
{
    metric *MP_NULLABLE current = NULL;
    while (text.len > 0) {
        mp_str line = mp_str_cut(&text, '\n');
        if (line.len == 0)
            continue;
        if (line.ptr[0] == '#')
            current = take_comment(all, current, line);
        else if (current != NULL)
            take_sample(all, current, line);
    }
}

static void put_metric(mp_buf *out, const metric *of)
{
    mp_buf_put(out, of->head);
    mp_buf_putc(out, '\n');
    for (const item *at = of->samples.first; at != NULL; at = at->next) {
        const sample *one = mp_container(at, sample, super);
        mp_buf_put(out, at->node.key);
        if (!one->is_sum)
            mp_buf_printf(out, " %.*s", MP_STR_ARG(one->value));
        else if (one->is_whole)
            mp_buf_printf(out, " %lld", (long long)one->whole);
        else
            mp_buf_printf(out, " %.15g", one->real);
        mp_buf_putc(out, '\n');
    }
}

static void free_node(mp_node *node, void *map)
{
    mp_map_drop(map, node);
    free(node);
}

void mp_join_metrics(mp_buf *out, const mp_str *texts, size_t count, bool (*sums)(mp_str gauge), bool only_counted,
                     bool is_open)
{
    joined all = {.sums = sums};
    mp_map_init(&all.metrics);
    mp_map_init(&all.samples);
    for (size_t i = 0; i < count; i++)
        take_text(&all, texts[i]);
    for (const item *at = all.order.first; at != NULL; at = at->next) {
        const metric *of = mp_container(at, metric, super);
        if (of->is_counted || !only_counted)
            put_metric(out, of);
    }
    if (is_open)
        mp_buf_put(out, MP_STR("# EOF\n"));
    mp_map_each(&all.samples, free_node, &all.samples);
    mp_map_each(&all.metrics, free_node, &all.metrics);
    mp_map_clear(&all.samples);
    mp_map_clear(&all.metrics);
}
