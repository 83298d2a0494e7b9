/* join.h: joins what several processes of one gateway have answered to one answer. Pure functions. The first text is
 * the asking process's own, and decides about everything that is no sum. */
#ifndef MP_ADMIN_JOIN_H
#define MP_ADMIN_JOIN_H

#include "base/base.h"

/* GET /status: the gauges and counters of all, the rest of the first one, and a member `upgrade` with the JSON of it.
 * False if the first one is no object. */
bool mp_join_status(mp_buf *out, const mp_str *texts, size_t count, mp_str upgrade);
/* Joins the texts {"counters":{…}} of all processes. */
void mp_join_counters(mp_buf *out, const mp_str *texts, size_t count);
/* The gauge or counter of a status: `value` of the family, or with MP_STR_NONE the whole family. */
int64_t mp_join_sum_of(mp_str text, const char *family);

/* GET /metrics: counters and histograms of all, and gauges for which `sums` is true. One series with two lines in one
 * text counts twice. `only_counted`: without gauges. `is_open`: OpenMetrics. */
void mp_join_metrics(mp_buf *out, const mp_str *texts, size_t count, bool (*sums)(mp_str gauge), bool only_counted,
                     bool is_open);

/* GET /api/calls and its like: the entries of all. The names of calls and streams of other processes begin with their
 * `pids`. `unanswered`: members that say which processes have not answered, or empty. False if the first text is no
 * list. */
bool mp_join_lists(mp_buf *out, const mp_str *texts, const int *pids, size_t count, mp_str unanswered);
/* Appends an answer that is an object, with such members. */
void mp_join_unanswered(mp_buf *out, mp_str answer, mp_str unanswered);

#endif
