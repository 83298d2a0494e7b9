/* call_status.c: the HTTP status of a call that is refused because of its principal's scopes, rate or quota. */
#include "auth.h"

/* True if the HTTP status of the call is not sent yet, and no other call shares the HTTP response. */
static bool can_set_status(const mp_call *call)
{
    return !call->ended && call->batch == NULL && call->feed == NULL && !mp_stream_is_events(call->stream) &&
           mp_stream_is_open(call->stream);
}

bool mp_call_forbid(mp_call *call, mp_str needed, mp_str asked)
{
    mp_refused(MP_CAUSE_SCOPES, needed, mp_log_str("method", call->method),
               mp_log_str("principal", mp_principal_id(call->principal)));
    if (!can_set_status(call))
        return false;
    mp_scoped_buf challenge = {0};
    mp_put_challenge(call->rpc, call->stream, &challenge, "insufficient_scope", asked);
    mp_stream_add_header(call->stream, (mp_header){"www-authenticate", mp_buf_str(&challenge)});
    call->status = 403;
    return true;
}

/* The error that answers the call is sent with this status and Retry-After, if its status is still to be sent. */
static bool set_retry(mp_call *call, int status, int64_t seconds)
{
    if (!can_set_status(call))
        return false;
    mp_scoped_buf text = {0};
    mp_json_put_int(&text, seconds);
    mp_stream_add_header(call->stream, (mp_header){"retry-after", mp_buf_str(&text)});
    call->status = status;
    return true;
}

static void log_refused_call(const mp_call *call, mp_cause cause, mp_str why, int64_t seconds)
{
    mp_refused(cause, why, mp_log_str("method", call->method),
               mp_log_str("principal", mp_principal_id(call->principal)), mp_log_int("retry", seconds));
}

bool mp_call_put_off(mp_call *call, int64_t seconds)
{
    log_refused_call(call, MP_CAUSE_RATE, MP_STR("over a rate limit or a quota"), seconds);
    return set_retry(call, 429, seconds);
}

void mp_call_refuse_session(mp_call *call, bool is_outside)
{
    mp_str why = is_outside ? mp_str_of(mp_outside) : MP_STR("too many sessions: try again later");
    unsigned seconds = is_outside ? MP_OUTSIDE_S : mp_session_table_room_s(call->rpc->table, MP_CAPACITY_SESSIONS);
    log_refused_call(call, is_outside ? MP_CAUSE_CLUSTER : MP_CAUSE_SESSIONS, why, seconds);
    set_retry(call, is_outside ? 503 : 429, seconds);
    mp_call_fail(call, MP_CODE_INVALID_REQUEST, why, MP_STR_NONE);
}

void mp_call_refuse_late(mp_call *call)
{
    mp_rpc *rpc = call->rpc;
    mp_pressure_rise(rpc);
    unsigned seconds = mp_pressure_refuse(rpc, 0);
    log_refused_call(call, MP_CAUSE_OVERLOAD, mp_str_of(mp_overloaded), seconds);
    set_retry(call, 503, seconds);
    char data[32];
    int len = snprintf(data, sizeof data, "{\"retry_after\":%u}", seconds);
    mp_call_fail(call, MP_CODE_INTERNAL, mp_str_of(mp_overloaded), (mp_str){data, (size_t)len});
}

void mp_call_refuse_crowded(mp_call *call, const char *why, const mp_stat *counter)
{
    unsigned seconds = mp_session_table_room_s(call->rpc->table, MP_CAPACITY_MEMORY);
    log_refused_call(call, MP_CAUSE_LUA_MEMORY, mp_str_of(why), seconds);
    set_retry(call, 503, seconds);
    mp_call_abort(call, why, counter);
}
