/* jobs.c: calls that no client waits for: work that goes on when the call that began it has its answer. */
#include "house.h"
#include <stdlib.h>

static char *keep(char *at, mp_str *to, mp_str s)
{
    if (s.len > 0)
        memcpy(at, s.ptr, s.len);
    *to = (mp_str){at, s.len};
    return at + s.len;
}

static mp_call *spawn(mp_rpc *rpc, const mp_call *like, uint64_t ms)
{
    if (!mp_table_take_place(rpc->table, MP_PLACE_JOB))
        return NULL;
    mp_call *job = mp_new(sizeof *job + like->id.len + like->method.len);
    job->rpc = rpc;
    job->era = like->era;
    job->is_job = true;
    job->serial = ++rpc->last_serial;
    job->limit_ms = ms;
    job->session = like->session == NULL ? NULL : mp_session_ref(like->session);
    mp_link_init(&job->in_session);
    mp_link_init(&job->asks);
    job->principal = mp_principal_ref(like->principal);
    keep(keep(job->bytes, &job->id, like->id), &job->method, like->method);
    mp_link_put(&rpc->jobs, &job->link);
    rpc->job_count++;
    mp_call_park(job);
    return job;
}

mp_call *mp_call_spawn(const mp_call *like, uint64_t ms)
{
    return spawn(like->rpc, like, ms);
}

mp_call *mp_call_spawn_alone(mp_rpc *rpc, mp_principal *principal, uint64_t ms)
{
    const mp_call like = {
        .era = &mp_eras[mp_era_count - 1], .id = MP_STR("0"), .method = MP_STR("job"), .principal = principal};
    return spawn(rpc, &like, ms);
}

void mp_call_stop(mp_call *job, const char *why)
{
    mp_call_cancel(job, why, MP_STAT_TOOL_CANCELLED, MP_CANCEL_QUIET);
}

void mp_jobs_call_off(mp_rpc *rpc, const char *why)
{
    while (!mp_link_is_alone(&rpc->jobs))
        mp_call_cancel(mp_container(rpc->jobs.next, mp_call, link), why, MP_STAT_TOOL_SHUTDOWN, MP_CANCEL_QUIET);
}
