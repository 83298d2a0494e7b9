/* http_sse.c: HTTP+SSE (2024-11-05): a GET whose stream is the session, and POSTs whose answers are sent on that
 * stream. */
#include "transport.h"

static const char *const events_type[] = {"text/event-stream", NULL};

static void refuse_request(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, const char *message)
{
    mp_refuse(rpc, stream, cause, status, MP_CODE_INVALID_REQUEST, rpc->envelope.id, message, MP_STR_NONE);
}

void mp_serve_sse(mp_rpc *rpc, mp_stream *stream)
{
    rpc->envelope.id = MP_STR_NONE;
    if (!mp_str_is(mp_stream_request(stream)->method, "GET")) {
        mp_scoped_buf text = {0};
        mp_buf_put(&text, MP_STR("this path serves GET only: the event stream of 2024-11-05"));
        if (rpc->config->mcp != NULL)
            mp_buf_printf(&text, "; later revisions are at %s%s", rpc->config->prefix, MP_NEVER_NULL(rpc->config->mcp));
        mp_buf_putc(&text, '\0');
        mp_refuse_with(rpc, stream, MP_CAUSE_METHOD, 405, (mp_header){"allow", MP_STR("GET")}, text.ptr);
        return;
    }
    if (!mp_accepts(stream, events_type)) {
        refuse_request(rpc, stream, MP_CAUSE_MEDIA_TYPE, 406, "Accept must include text/event-stream");
        return;
    }
    if (rpc->draining) {
        mp_refuse_for(rpc, stream, MP_CAUSE_STOPPING, 503, mp_stopping_s(rpc), "the gateway is stopping");
        return;
    }
    if (rpc->pressure.is_overloaded && mp_method_is_shed(rpc, MP_STR("initialize"))) {
        mp_refuse_for(rpc, stream, MP_CAUSE_OVERLOAD, 503, mp_pressure_refuse(rpc, rpc->pressure.ahead), mp_overloaded);
        return;
    }
    if (!mp_stream_has_client(stream)) {
        mp_stream_detect_close(stream); /* ends the request */
        return;
    }
    if (mp_rpc_is_outside(rpc)) {
        mp_refuse_for(rpc, stream, MP_CAUSE_CLUSTER, 503, MP_OUTSIDE_S, mp_outside);
        return;
    }
    mp_session *session = mp_session_new(rpc, &mp_sse_transport, rpc->principal, mp_stream_address(stream));
    if (session == NULL) {
        mp_refuse_for(rpc, stream, MP_CAUSE_SESSIONS, 429, mp_session_table_room_s(rpc->table, MP_CAPACITY_SESSIONS),
                      "too many sessions: try again later");
        return;
    }
    mp_log_http(rpc, stream, session, 200);
    if (mp_stream_open_events(stream, NULL, 0) != 0 || mp_reader_start(rpc, session, stream) != 0) {
        mp_session_close(session, &mp_stat_closed_gone);
    } else {
        /* the first event names the endpoint (E-2, E-3): a relative URL, so that Host does not get into it (B-55) */
        mp_scoped_buf event = {0};
        mp_buf_printf(&event, "event: endpoint\ndata: %s%s?session_id=%s\n\n", rpc->config->prefix,
                      rpc->config->messages, session->id);
        mp_stream_send(stream, mp_buf_str(&event));
    }
    mp_session_unref(session);
}

void mp_serve_messages(mp_rpc *rpc, mp_stream *stream)
{
    const mp_request *request = mp_stream_request(stream);
    rpc->envelope.id = MP_STR_NONE;
    if (!mp_str_is(request->method, "POST")) {
        mp_refuse_with(rpc, stream, MP_CAUSE_METHOD, 405, (mp_header){"allow", MP_STR("POST")},
                       "this path serves POST only: messages of 2024-11-05");
        return;
    }
    int count;
    mp_str id = mp_query_value(request->query, "session_id", &count);
    if (count != 1 || id.len == 0) {
        refuse_request(rpc, stream, MP_CAUSE_SESSION, 400,
                       "session_id must appear once in the query: POST to the URL from the endpoint event");
        return;
    }
    mp_session *session = mp_session_find(rpc, stream, id);
    /* checks the socket now: a client that has disconnected is noticed before any event (B-01) */
    if (session == NULL || !session->is_sse || !mp_session_has_reader(session)) {
        refuse_request(rpc, stream, MP_CAUSE_SESSION, 404, "no such session: open the event stream again");
    } else if (!mp_type_is_json(stream)) {
        refuse_request(rpc, stream, MP_CAUSE_MEDIA_TYPE, 415, "Content-Type must be application/json");
    } else {
        mp_envelope *envelope = &rpc->envelope;
        mp_envelope_read(envelope, request->body, MP_MAX_VALUES);
        if (envelope->kind == MP_KIND_BROKEN || envelope->kind == MP_KIND_INVALID) {
            mp_refuse_envelope(rpc, stream);
        } else if (envelope->kind == MP_KIND_ARRAY) {
            mp_serve_batch(rpc, stream, session);
        } else {
            if (envelope->kind == MP_KIND_REQUEST)
                mp_serve_session_request(rpc, stream, session);
            else
                mp_serve_note(rpc, stream, session);
            mp_accept_note(stream);
        }
    }
    if (session != NULL)
        mp_session_unref(session);
}
