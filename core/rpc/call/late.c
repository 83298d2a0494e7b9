/* late.c: calls that waited too long in their worker before they began. */
#include "state.h"

bool mp_call_is_late(mp_call *call, uint64_t now_us)
{
    return now_us - call->began > call->rpc->pressure.late_us && now_us > call->began && !call->transport->is_pipe &&
           mp_method_may_be_shed(call->method);
}

unsigned mp_call_share(const mp_call *call)
{
    return call->share;
}

bool mp_call_is_overloaded(const mp_call *call)
{
    return call->rpc->pressure.is_overloaded;
}
