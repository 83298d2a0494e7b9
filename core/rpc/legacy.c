/* legacy.c: HTTP+SSE (2024-11-05): a GET whose stream is the session, and POSTs whose answers come on that stream. */
#include "house.h"
#include "json/json.h"

static const char *const events_type[] = {"text/event-stream", NULL};

static void refuse(mp_rpc *rpc, mp_stream *stream, int status, const char *message)
{
    mp_refuse(rpc, stream, status, -32600, rpc->envelope.id, message, MP_STR_NONE);
}

void mp_serve_sse(mp_rpc *rpc, mp_stream *stream)
{
    rpc->envelope.id = MP_STR_NONE;
    if (!mp_str_is(mp_stream_request(stream)->method, "GET")) {
        mp_refuse_with(rpc, stream, 405, (mp_header){"allow", MP_STR("GET")},
                       "this path has GET only: the event stream of 2024-11-05");
        return;
    }
    if (!mp_accepts(stream, events_type)) {
        refuse(rpc, stream, 406, "Accept must take text/event-stream");
        return;
    }
    if (rpc->draining) {
        mp_refuse_with(rpc, stream, 503, (mp_header){"retry-after", MP_STR("1")}, "the gateway is stopping");
        return;
    }
    mp_session *session = mp_session_new(rpc, true, rpc->principal, mp_stream_peer(stream));
    if (session == NULL) {
        mp_refuse_with(rpc, stream, 429, (mp_header){"retry-after", MP_STR("5")}, "too many sessions: try again later");
        return;
    }
    if (mp_stream_open_events(stream, NULL, 0) != 0 || mp_held_start(rpc, session, stream) != 0) {
        mp_session_close(session, MP_STAT_CLOSED_GONE);
    } else {
        /* E-2, E-3: the first event, relative, so that nothing of Host gets into it (B-55) */
        mp_buf event = {0};
        mp_buf_printf(&event, "event: endpoint\ndata: %s%s?session_id=%s\n\n", rpc->config->prefix,
                      rpc->config->messages, session->id);
        mp_stream_send(stream, mp_buf_str(&event));
        mp_buf_clear(&event);
    }
    mp_session_unref(session);
}

/* An error for a request that no call was made for, on the session's stream. */
void mp_session_send_error(mp_rpc *rpc, mp_session *session, int code, const char *message)
{
    mp_buf error = {0};
    mp_put_error(&error, rpc->envelope.id, code, mp_str_of(message), MP_STR_NONE);
    if (rpc->stdio.pipe != NULL)
        mp_stdio_answer(rpc, mp_buf_str(&error));
    else
        mp_session_send(rpc, session, mp_buf_str(&error));
    mp_buf_clear(&error);
}

void mp_serve_sse_request(mp_rpc *rpc, mp_session *session)
{
    if (rpc->draining) {
        mp_session_send_error(rpc, session, -32603, "the gateway is stopping");
    } else if (!mp_table_has_room(rpc->table)) {
        mp_stat_add(MP_STAT_REFUSED_CALLS, 1);
        mp_session_send_error(rpc, session, -32603, "too many calls in flight: try again later");
    } else if (mp_call_start(rpc, NULL, session, mp_session_era(session)) == NULL) {
        mp_session_send_error(rpc, session, -32600, "a request with this id is still being answered");
    }
}

void mp_serve_messages(mp_rpc *rpc, mp_stream *stream)
{
    const mp_request *request = mp_stream_request(stream);
    rpc->envelope.id = MP_STR_NONE;
    if (!mp_str_is(request->method, "POST")) {
        mp_refuse_with(rpc, stream, 405, (mp_header){"allow", MP_STR("POST")},
                       "this path has POST only: messages of 2024-11-05");
        return;
    }
    int count;
    mp_str id = mp_query_value(request->query, "session_id", &count);
    if (count != 1 || id.len == 0) {
        refuse(rpc, stream, 400, "session_id must be there once: POST to the address that the endpoint event gave");
        return;
    }
    mp_session *session = mp_session_find(rpc, stream, id);
    /* the socket is asked now: a client that has left is gone before any event says so (B-01) */
    if (session == NULL || !session->is_sse || !mp_session_has_reader(session)) {
        refuse(rpc, stream, 404, "no such session: open the event stream again");
    } else if (!mp_type_is_json(stream)) {
        refuse(rpc, stream, 415, "Content-Type must be application/json");
    } else {
        mp_envelope *envelope = &rpc->envelope;
        mp_envelope_read(envelope, request->body);
        if (envelope->kind == MP_KIND_BROKEN || envelope->kind == MP_KIND_INVALID) {
            mp_refuse_envelope(rpc, stream);
        } else if (envelope->kind == MP_KIND_ARRAY) {
            mp_serve_batch(rpc, stream, session);
        } else {
            if (envelope->kind == MP_KIND_REQUEST)
                mp_serve_sse_request(rpc, session);
            else
                mp_note(rpc, session);
            mp_accept_note(stream);
        }
    }
    if (session != NULL)
        mp_session_unref(session);
}
