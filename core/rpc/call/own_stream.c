/* own_stream.c: the HTTP request that a call answers. A call always has a stream: without a request, or after the
 * client has left, it is rpc->no_stream, for which all functions of streams report that it is gone. */
#include "state.h"

bool mp_call_is_of_stream(const mp_call *call)
{
    return call->stream != call->rpc->no_stream;
}

void mp_call_without_stream(mp_call *call)
{
    call->stream = call->rpc->no_stream;
}

void mp_call_leave_stream(mp_call *call)
{
    mp_stream *stream = call->stream;
    if (!mp_call_is_of_stream(call))
        return;
    mp_call_without_stream(call);
    mp_stream_on_gone(stream, NULL, NULL);
    mp_stream_unref(stream);
}

void mp_call_share_stream(mp_call *call, mp_stream *stream)
{
    call->stream = stream;
    if (mp_call_is_of_stream(call))
        mp_stream_ref(stream);
}

void mp_call_take_stream(mp_call *call, mp_stream *stream, void (*left)(void *call, mp_stream *stream))
{
    mp_call_share_stream(call, stream);
    call->is_unix = mp_stream_is_unix(stream);
    if (mp_call_is_of_stream(call))
        mp_stream_on_gone(stream, left, call);
}

void mp_call_ignore_client(mp_call *call)
{
    mp_stream_on_gone(call->stream, NULL, NULL);
}

void mp_call_watch_client(mp_call *call)
{
    mp_stream_detect_close(call->stream);
}

bool mp_call_has_client(const mp_call *call)
{
    return !mp_call_is_of_stream(call) || mp_stream_has_client(call->stream);
}

void mp_call_on_delivery(mp_call *call, void (*settled)(void *ctx, mp_delivery_end end), void *ctx)
{
    if (!mp_call_is_of_stream(call) || call->batch != NULL)
        settled(ctx, MP_DELIVERY_UNKNOWN);
    else
        mp_stream_on_delivery(call->stream, settled, ctx);
}

int mp_call_send_event(mp_call *call, mp_str json)
{
    if (!mp_stream_is_open(call->stream)) {
        mp_stat_add(&mp_stat_dropped_gone, 1);
        return -1;
    }
    int result = -1;
    mp_scoped_buf event = {0};
    mp_put_event(&event, json);
    /* if the client is gone, the send ends the call and frees its reference */
    mp_stream *stream = mp_stream_ref(call->stream);
    if (mp_stream_is_events(stream) || mp_stream_open_events(stream, NULL, 0) == 0)
        result = mp_stream_send(stream, mp_buf_str(&event));
    mp_stream_unref(stream);
    return result;
}
