/* job_log.h: what operators see of the scheduled jobs of the process: when each began last, how it ended, when it
 * begins next. Any thread. */
#ifndef MP_LIB_WORK_JOB_LOG_H
#define MP_LIB_WORK_JOB_LOG_H

#include "lib/work/cron.h"

/* The jobs of this list are those that are scheduled; others are forgotten. */
void mp_job_log_list(const mp_cron *MP_NULLABLE first);
void mp_job_log_began(const char *name);
/* `outcome` is a literal; `next_s`: seconds since 1970, 0: an interval after the last start. */
void mp_job_log_ended(const char *name, const char *outcome, int64_t next_s);

#endif
