#include "declared.h"
#include <math.h>
#include <pthread.h>

typedef struct {
    mp_family family;
    mp_real_bounds bounds;
    _Atomic int count;   /* of its series */
    uint64_t generation; /* the last one that declared it */
    bool is_shown;
} declared;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for the variables below */
static declared *list[MP_DECLARED_MAX];                  /* never freed */
static size_t list_count;
static uint64_t generation; /* the one that loads, or has loaded */

void mp_declared_begin(void)
{
    MP_LOCKED(&lock);
    generation++;
}

void mp_declared_serve(void)
{
    MP_LOCKED(&lock);
    for (size_t i = 0; i < list_count; i++)
        list[i]->is_shown = list[i]->generation == generation;
}

static int buckets_of(mp_declared_kind kind)
{
    return kind == MP_DECLARED_COUNTER ? MP_FAMILY_COUNTER
           : kind == MP_DECLARED_GAUGE ? MP_FAMILY_GAUGE
                                       : MP_FAMILY_HISTOGRAM;
}

static bool has_form(const declared *one, const mp_declaration *wanted)
{
    if (!mp_str_eq(wanted->name, mp_str_of(one->family.name)) || one->family.buckets != buckets_of(wanted->kind) ||
        one->bounds.count != wanted->bound_count)
        return false;
    for (int i = 0; i < wanted->bound_count; i++)
        if (fabs(one->bounds.most[i] - wanted->bounds[i]) > 0)
            return false;
    for (int i = 0; i < wanted->label_count; i++)
        if (one->family.labels[i] == NULL || strcmp(one->family.labels[i], wanted->labels[i]) != 0)
            return false;
    return one->family.labels[wanted->label_count] == NULL;
}

/* A bound as Prometheus writes it: with a point or an exponent. */
static const char *bound_text(double bound)
{
    char text[40];
    snprintf(text, sizeof text, "%.15g", bound);
    if (strpbrk(text, ".e") == NULL)
        strcat(text, ".0");
    return mp_dup(mp_str_of(text));
}

static declared *make(const mp_declaration *wanted)
{
    declared *made = mp_new(sizeof *made);
    made->family = (mp_family){.name = mp_dup(wanted->name),
                               .text = mp_dup(wanted->text),
                               .buckets = buckets_of(wanted->kind),
                               .count = &made->count,
                               .own = &made->bounds};
    for (int i = 0; i < wanted->label_count; i++)
        made->family.labels[i] = mp_dup(mp_str_of(wanted->labels[i]));
    made->bounds.count = wanted->bound_count;
    for (int i = 0; i < wanted->bound_count; i++) {
        made->bounds.most[i] = wanted->bounds[i];
        made->bounds.text[i] = bound_text(wanted->bounds[i]);
    }
    return made;
}

/* The caller has the lock. */
static declared *MP_NULLABLE find_or_make(const mp_declaration *wanted)
{
    for (size_t i = 0; i < list_count; i++)
        if (has_form(list[i], wanted))
            return list[i];
    if (list_count == MP_DECLARED_MAX)
        return NULL;
    return list[list_count++] = make(wanted);
}

const mp_family *MP_NULLABLE mp_declare(const mp_declaration *declaration, mp_err *err)
{
    pthread_mutex_lock(&lock);
    declared *found = find_or_make(declaration);
    if (found != NULL)
        found->generation = generation;
    pthread_mutex_unlock(&lock);
    if (found == NULL) {
        mp_err_set(err, "the scripts of this process have declared %d different metrics", MP_DECLARED_MAX);
        mp_err_hint(err, "metrics of former versions of the scripts count, too: restart the gateway");
        return NULL;
    }
    if (declaration->label_count == 0)
        mp_series_within(&found->family, MP_UNSET, 1); /* is shown before its first number */
    return &found->family;
}

void mp_declared_enter(const mp_family *family, mp_series series, double value, bool is_set)
{
    const mp_real_bounds *MP_NULLABLE bounds = family->own;
    if (family->buckets == MP_FAMILY_GAUGE)
        mp_series_gauge(series, value, is_set);
    else if (family->buckets == MP_FAMILY_COUNTER)
        mp_series_add_real(series, value);
    else if (bounds != NULL)
        mp_series_observe_real(bounds, series, value);
}

size_t mp_declared_list(const mp_family **to)
{
    size_t count = 0;
    MP_LOCKED(&lock);
    for (size_t i = 0; i < list_count; i++)
        if (list[i]->is_shown)
            to[count++] = &list[i]->family;
    return count;
}
