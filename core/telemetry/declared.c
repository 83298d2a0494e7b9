#include "declared.h"
#include <math.h>

typedef struct {
    mp_family family;
    mp_bounds bounds;
    _Atomic int count;   /* number of the family's series */
    uint64_t generation; /* the last generation of scripts that declared the family */
    bool is_shown;
} declared;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the variables below */
static declared *list[MP_DECLARED_MAX];                  /* never freed */
static size_t list_count;
static uint64_t generation; /* the generation of scripts that loads or has loaded last */

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

static bool has_form(const declared *one, const mp_family *wanted)
{
    if (strcmp(one->family.name, wanted->name) != 0 || one->family.kind != wanted->kind ||
        one->bounds.count != wanted->bounds->count)
        return false;
    for (int i = 0; i < wanted->bounds->count; i++)
        if (fabs(one->bounds.most[i] - wanted->bounds->most[i]) > 0)
            return false;
    int at = 0;
    while (wanted->labels[at] != NULL && one->family.labels[at] != NULL &&
           strcmp(one->family.labels[at], wanted->labels[at]) == 0)
        at++;
    return wanted->labels[at] == NULL && one->family.labels[at] == NULL;
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

static declared *make_declaration(const mp_family *wanted)
{
    declared *made = mp_new(sizeof *made);
    made->family = *wanted;
    made->family.name = mp_dup(mp_str_of(wanted->name));
    made->family.text = mp_dup(mp_str_of(wanted->text));
    made->family.count = &made->count;
    made->family.bounds = &made->bounds;
    for (int i = 0; wanted->labels[i] != NULL; i++)
        made->family.labels[i] = mp_dup(mp_str_of(wanted->labels[i]));
    made->bounds = *wanted->bounds;
    for (int i = 0; i < made->bounds.count; i++)
        made->bounds.text[i] = bound_text(made->bounds.most[i]);
    return made;
}

/* Finds or makes a declared family. The caller has the lock. */
static declared *MP_NULLABLE find_or_make(const mp_family *wanted)
{
    for (size_t i = 0; i < list_count; i++)
        if (has_form(list[i], wanted))
            return list[i];
    if (list_count == MP_DECLARED_MAX)
        return NULL;
    return list[list_count++] = make_declaration(wanted);
}

const mp_family *MP_NULLABLE mp_declare(const mp_family *wanted, mp_err *err)
{
    pthread_mutex_lock(&lock);
    declared *found = find_or_make(wanted);
    if (found != NULL)
        found->generation = generation;
    pthread_mutex_unlock(&lock);
    if (found == NULL) {
        mp_err_set(err, "the scripts of this process have declared %d different metrics", MP_DECLARED_MAX);
        mp_err_hint(err, "metrics of former versions of the scripts count, too: restart the gateway");
        return NULL;
    }
    if (wanted->labels[0] == NULL)
        mp_series_within(&found->family, MP_UNSET, 1); /* is shown before its first number */
    return &found->family;
}

void mp_declared_enter(const mp_family *family, mp_series series, double value, bool is_set)
{
    if (family->kind == MP_STAT_GAUGE)
        mp_series_gauge(series, value, is_set);
    else if (family->kind == MP_STAT_COUNTER)
        mp_series_add(series, value);
    else
        mp_series_observe(series, family->bounds, value);
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
