/* opening.c: the session that `initialize` opens over Streamable HTTP. None is made for a client that has
 * left, and one whose client leaves before it has the answer ends at once. Where nobody can know whether it has, the
 * client has 30 s to come back. */
#include "transport.h"

/* Ends the session if its client did not get the answer to `initialize`: no client knows the session's id then. */
static void on_delivery(void *ctx, mp_delivery_end end)
{
    mp_session *session = ctx;
    if (end == MP_DELIVERY_LOST && !mp_session_is_named(session))
        mp_session_close(session, &mp_stat_closed_gone);
    else if (end == MP_DELIVERY_UNKNOWN)
        mp_session_doubt(session);
    mp_session_unref(session);
}

/* NULL: the call has ended. */
static mp_session *MP_NULLABLE open_session(mp_call *call)
{
    if (!mp_stream_has_client(call->stream)) {
        mp_call_cancel(call, "the client left", &mp_stat_tool_gone, MP_CANCEL_QUIET);
        return NULL;
    }
    bool is_outside = mp_rpc_is_outside(call->rpc);
    mp_session *session =
        is_outside ? NULL : mp_session_new(call->rpc, call->transport, call->principal, mp_call_address(call));
    if (session == NULL) {
        mp_call_refuse_session(call, is_outside);
        return NULL;
    }
    call->session = session;
    call->opens_session = true;
    mp_call_join(call, session);
    mp_stream_on_delivery(call->stream, on_delivery, mp_session_ref(session));
    return session;
}

int mp_call_open_session(mp_call *call, const mp_era *era, mp_str client, mp_str capabilities)
{
    mp_session *session = call->session;
    if (call->ended || (session == NULL && (session = open_session(call)) == NULL))
        return -1;
    if (!mp_session_set_client(session, era, client, capabilities)) {
        mp_call_fail(call, MP_CODE_INVALID_REQUEST, MP_STR("this session is already initialized"), MP_STR_NONE);
        return -1;
    }
    call->era = era;
    return 0;
}
