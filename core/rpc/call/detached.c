/* detached.c: calls without a client: they continue after the call that started them was answered. No message is sent
 * for them. */
#include "state.h"

MP_COUNTER(tool_shutdown, "tool_aborted", "reason", "shutdown", "calls still running when the gateway stopped")

static char *copy_behind(char *at, mp_str *to, mp_str s)
{
    if (s.len > 0)
        memcpy(at, s.ptr, s.len);
    *to = (mp_str){at, s.len};
    return at + s.len;
}

static int send_nothing(MP_UNUSED mp_call *call, MP_UNUSED mp_str json)
{
    return -1;
}

static void drop_answer(MP_UNUSED mp_call *call, MP_UNUSED int status, MP_UNUSED mp_str json) {}

static const mp_transport detached = {.name = "detached", .send = send_nothing, .answer = drop_answer};

/* `owner`: whose place it takes; NULL: one of the gateway's own. */
static mp_call *spawn_call(mp_rpc *rpc, const mp_call *like, mp_owner *MP_NULLABLE owner, uint64_t ms)
{
    mp_call *call = mp_new(sizeof *call + like->id.len + like->method.len);
    call->rpc = rpc;
    call->transport = &detached;
    call->era = like->era;
    call->is_detached = true;
    call->owner = owner;
    call->serial = ++rpc->last_serial;
    call->limit_ms = ms;
    mp_session *session = like->session;
    call->session = session == NULL ? NULL : mp_session_ref(session);
    call->principal = mp_principal_ref(like->principal);
    mp_call_without_stream(call);
    copy_behind(copy_behind(call->bytes, &call->id, like->id), &call->method, like->method);
    mp_link_put(&rpc->detached, &call->link);
    rpc->detached_count++;
    mp_call_park(call);
    return call;
}

mp_call *MP_NULLABLE mp_call_spawn(const mp_call *like, uint64_t ms)
{
    mp_owner *of_like = like->owner;
    /* a call that began in another one without a client counts for the client of the first */
    mp_str address = !like->is_detached ? mp_call_address(like)
                     : of_like == NULL  ? MP_STR_NONE
                                        : mp_owner_name(of_like);
    mp_owner *owner = mp_quota_take_for(like->rpc->table, MP_QUOTA_DETACHED, like->principal, address);
    if (owner == NULL)
        return NULL;
    mp_call *call = spawn_call(like->rpc, like, owner, ms);
    mp_call_keep_token(call, like->stream);
    const char *authorization = like->authorization;
    mp_trace *of = like->trace;
    if (call->authorization == NULL && authorization != NULL)
        call->authorization = mp_dup(mp_str_of(authorization));
    if (of != NULL) {
        mp_trace *trace = mp_trace_begin_linked(of, MP_ROOT_SPAN);
        if (trace != NULL) {
            mp_span_name(trace, MP_ROOT_SPAN, MP_STR("task"));
            mp_span_text(trace, MP_ROOT_SPAN, "mcp.method.name", call->method);
        }
        call->trace = trace;
    }
    return call;
}

mp_call *MP_NULLABLE mp_call_spawn_alone(mp_rpc *rpc, mp_principal *principal, bool is_own, uint64_t ms)
{
    const mp_call like = {.era = mp_era_newest(), .id = MP_STR("0"), .method = MP_STR("job"), .principal = principal};
    mp_owner *owner = is_own ? NULL : mp_quota_take_for(rpc->table, MP_QUOTA_DETACHED, principal, MP_STR_NONE);
    bool has_place = is_own ? mp_own_job_take() : owner != NULL;
    return has_place ? spawn_call(rpc, &like, owner, ms) : NULL;
}

void mp_call_stop(mp_call *call, const char *why)
{
    mp_call_cancel(call, why, &mp_stat_tool_cancelled, MP_CANCEL_QUIET);
}

void mp_detached_cancel(mp_rpc *rpc, const char *why)
{
    while (!mp_link_is_alone(&rpc->detached))
        mp_call_cancel(mp_container(rpc->detached.next, mp_call, link), why, &mp_stat_tool_shutdown, MP_CANCEL_QUIET);
}
