#include "exemplar.h"
#include <pthread.h>

#define PAGE_CELLS 512

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* for the pages and what they contain */
static mp_exemplar
    *pages[MP_SERIES_MAX / PAGE_CELLS]; /* by the number of the bucket's cell, made when needed, never freed */

void mp_exemplar_keep(mp_series series, mp_buckets buckets, uint64_t us, const char trace[MP_EXEMPLAR_TRACE_BYTES])
{
    if (series == 0 || trace[0] == '\0' || pthread_mutex_trylock(&lock) != 0)
        return;
    mp_series cell = series + (mp_series)mp_series_bucket(buckets, us);
    mp_exemplar **page = &pages[cell / PAGE_CELLS];
    if (*page == NULL)
        *page = mp_new(PAGE_CELLS * sizeof **page);
    mp_exemplar *kept = &(*page)[cell % PAGE_CELLS];
    memcpy(kept->trace, trace, sizeof kept->trace);
    kept->us = us;
    kept->at_ms = mp_clock_ms(CLOCK_REALTIME);
    pthread_mutex_unlock(&lock);
}

bool mp_exemplar_read(mp_series cell, mp_exemplar *to)
{
    pthread_mutex_lock(&lock);
    const mp_exemplar *page = pages[cell / PAGE_CELLS];
    bool has_one = page != NULL && page[cell % PAGE_CELLS].trace[0] != '\0';
    if (has_one)
        *to = page[cell % PAGE_CELLS];
    pthread_mutex_unlock(&lock);
    return has_one;
}
