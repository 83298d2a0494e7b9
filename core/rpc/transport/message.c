/* message.c: how transports serve the message in rpc->envelope. */
#include "transport.h"

MP_COUNTER(dropped_unmatched, "dropped", "reason", "unmatched", "responses that match no request")

/* The error has the message's id if that could be read (M-25). */
void mp_refuse_envelope(mp_rpc *rpc, mp_stream *stream)
{
    rpc->scratch.len = 0;
    mp_put_envelope_error(&rpc->scratch, &rpc->envelope, "body");
    bool is_large = rpc->envelope.has_many;
    int status = is_large ? 413 : 400;
    mp_log_refused(stream, is_large ? MP_CAUSE_SIZE : MP_CAUSE_MESSAGE, status,
                   mp_str_of(mp_envelope_problem(&rpc->envelope)));
    mp_stream_answer(stream, status, "application/json", mp_buf_str(&rpc->scratch), NULL, 0);
}

void mp_serve_note(mp_rpc *rpc, const mp_stream *stream, mp_session *session)
{
    const mp_envelope *envelope = &rpc->envelope;
    mp_log_message(rpc, stream, session);
    if (envelope->kind == MP_KIND_RESPONSE) {
        if (!mp_session_answer(session, envelope->id, envelope->is_error, envelope->answer))
            mp_stat_add(&mp_stat_dropped_unmatched, 1);
    } else if (!mp_str_is(envelope->method, "notifications/cancelled")) {
        rpc->hooks->on_note(rpc->ctx, mp_session_era(session), session, envelope->method, envelope->params, rpc->share);
    } else if (envelope->cancels.len > 0) {
        mp_call_cancel_by_id(session, envelope->cancels);
    }
}

static void send_error(mp_rpc *rpc, const mp_transport *transport, mp_session *MP_NULLABLE session, int code,
                       const char *message, mp_str data)
{
    mp_scoped_buf error = {0};
    mp_put_error(&error, rpc->envelope.id, code, mp_str_of(message), data);
    transport->respond(rpc, session, mp_buf_str(&error));
}

/* `version`: what the request asked for; the error says which revisions are served. */
static void refuse_revision(mp_rpc *rpc, const mp_transport *transport, mp_str version, int code, const char *message)
{
    mp_scoped_buf versions = {0};
    mp_put_versions(&versions, version);
    mp_log_refused_message(rpc, MP_CAUSE_REVISION, message);
    send_error(rpc, transport, NULL, code, message, mp_buf_str(&versions));
}

const char mp_too_many_calls[] = "too many calls in flight: try again later";

/* Takes a place for a call. False if no request is served now: the error was sent. */
static bool may_start(mp_rpc *rpc, const mp_transport *transport, mp_session *MP_NULLABLE session)
{
    if (rpc->draining) {
        mp_refuse_message(rpc, transport, session, MP_CAUSE_STOPPING, MP_CODE_INTERNAL, "the gateway is stopping");
    } else if (!transport->is_pipe && mp_request_is_shed(rpc)) {
        mp_pressure_refuse(rpc, rpc->pressure.ahead);
        mp_refuse_message(rpc, transport, session, MP_CAUSE_OVERLOAD, MP_CODE_INTERNAL, mp_overloaded);
    } else if (!mp_session_table_take_call(rpc)) {
        mp_refuse_message(rpc, transport, session, MP_CAUSE_CALLS, MP_CODE_INTERNAL, mp_too_many_calls);
    } else {
        return true;
    }
    return false;
}

void mp_refuse_message(mp_rpc *rpc, const mp_transport *transport, mp_session *MP_NULLABLE session, mp_cause cause,
                       int code, const char *message)
{
    mp_log_refused_message(rpc, cause, message);
    send_error(rpc, transport, session, code, message, MP_STR_NONE);
}

/* The first check that fails decides the error (M-20, M-22). */
void mp_serve_stateless_message(mp_rpc *rpc, const mp_transport *transport)
{
    const mp_envelope *envelope = &rpc->envelope;
    const mp_era *era = envelope->version_is_string ? mp_era_find(envelope->version) : NULL;
    if (!envelope->version_is_string || !envelope->has_capabilities)
        refuse_revision(rpc, transport, MP_STR_NONE, MP_CODE_INVALID_PARAMS, mp_meta_is_missing);
    else if (era == NULL || era->has_sessions)
        refuse_revision(rpc, transport, envelope->version, MP_CODE_UNSUPPORTED_VERSION, mp_version_is_unsupported);
    else if (may_start(rpc, transport, NULL))
        mp_call_start(rpc, transport, rpc->no_stream, NULL, era);
}

void mp_serve_session_request(mp_rpc *rpc, const mp_stream *post, mp_session *session)
{
    if (!may_start(rpc, session->transport, session))
        return;
    mp_call *call = mp_call_start(rpc, session->transport, rpc->no_stream, session, mp_session_era(session));
    if (call == NULL)
        mp_refuse_message(rpc, session->transport, session, MP_CAUSE_MESSAGE, MP_CODE_INVALID_REQUEST,
                          "a request with this id is still being answered");
    else
        mp_call_keep_token(call, post);
}
