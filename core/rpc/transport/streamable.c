/* streamable.c: Streamable HTTP, stateful and stateless revisions on one path. The revision is decided for each
 * message separately (D-1 to D-9). */
#include "transport.h"

MP_COUNTER(closed_delete, "sessions_closed", "reason", "delete", "the client sent DELETE")
MP_REFUSED(refused_answers, "answers", MP_LIMIT_REACHED, "calls while limits.answers was exceeded")

static const char *const both_types[] = {"application/json", "text/event-stream", NULL};
static const char *const events_type[] = {"text/event-stream", NULL};

/* The headers of a request that show its revision. */
typedef struct {
    mp_str version, session;
    int version_count, session_count;
    const mp_era *MP_NULLABLE era; /* revision of `version`; NULL if the header is absent or its version unknown */
} era_headers;

static era_headers read_headers(const mp_stream *stream)
{
    era_headers headers;
    headers.version = mp_stream_known_header(stream, MP_HEADER_MCP_PROTOCOL_VERSION, &headers.version_count);
    headers.session = mp_stream_known_header(stream, MP_HEADER_MCP_SESSION_ID, &headers.session_count);
    headers.era = headers.version_count == 1 ? mp_era_find(headers.version) : NULL;
    return headers;
}

static void refuse_request(mp_rpc *rpc, mp_stream *stream, mp_cause cause, int status, const char *message)
{
    mp_refuse(rpc, stream, cause, status, MP_CODE_INVALID_REQUEST, rpc->envelope.id, message, MP_STR_NONE);
}

/* Takes a place for a call. True if the gateway takes no more calls now: the request was refused. */
static bool refuse_if_busy(mp_rpc *rpc, mp_stream *stream)
{
    if (rpc->draining) {
        mp_refuse_for(rpc, stream, MP_CAUSE_STOPPING, 503, mp_stopping_s(rpc), "the gateway is stopping");
        return true;
    }
    if (mp_request_is_shed(rpc)) {
        mp_refuse_for(rpc, stream, MP_CAUSE_OVERLOAD, 503, mp_pressure_refuse(rpc, rpc->pressure.ahead), mp_overloaded);
        return true;
    }
    if (mp_stream_is_crowded(stream)) {
        mp_stat_add(&mp_stat_refused_answers, 1);
        mp_refuse_for(rpc, stream, MP_CAUSE_ANSWERS, 503, mp_stream_room_s(stream), mp_answers_are_full);
        return true;
    }
    if (mp_session_table_take_call(rpc))
        return false;
    mp_refuse_for(rpc, stream, MP_CAUSE_CALLS, 503, mp_session_table_room_s(rpc->table, MP_CAPACITY_CALLS),
                  mp_too_many_calls);
    return true;
}

/* -- the stateless revision ---------------------------------------------------------------------------------------- */

static void refuse_versions(mp_rpc *rpc, mp_stream *stream, int code, const char *message, mp_str requested)
{
    mp_scoped_buf data = {0};
    mp_put_versions(&data, requested);
    mp_refuse(rpc, stream, MP_CAUSE_REVISION, 400, code, rpc->envelope.id, message, mp_buf_str(&data));
}

/* True if a request with this version must repeat members of its body in headers. A version that is not served
 * counts, too: the headers are compared before the version is refused (M-20). */
static bool must_mirror(const mp_era *MP_NULLABLE era)
{
    return era == NULL || era->has_sessions || era->mirrors_headers;
}

/* True if the request has the header exactly once, and its value equals `body` (H-1, H-2). */
static bool mirrors_body(const mp_stream *stream, mp_known_header header, mp_str body)
{
    int count;
    mp_str value = mp_stream_known_header(stream, header, &count);
    return count == 1 && mp_str_eq(mp_str_trim(value), body);
}

/* True if Mcp-Name, which may be encoded, equals the member of the body that it repeats (H-4, H-5). */
static bool mirrors_name(const mp_stream *stream, const mp_envelope *envelope)
{
    int count;
    mp_str value = mp_stream_known_header(stream, MP_HEADER_MCP_NAME, &count), text;
    if (count == 0 && !envelope->has_name)
        return true; /* the error of the method itself names the missing member */
    mp_scoped_buf decoded = {0};
    return count == 1 && envelope->has_name && mp_header_text(mp_str_trim(value), &decoded, &text) == 0 &&
           mp_str_eq(text, envelope->name);
}

/* Refuses a header that differs from the body: `of` and `member` are the compared value. `shown` is the header's
 * usual spelling. */
static void refuse_header(mp_rpc *rpc, mp_stream *stream, mp_known_header header, const char *shown, const char *of,
                          const char *member)
{
    mp_scoped_buf text = {0};
    bool is_there = mp_stream_known_header(stream, header, NULL).ptr != NULL;
    mp_buf_printf(&text, "%s %s %s%s", shown, is_there ? "must be sent once and equal" : "is missing: it repeats", of,
                  member);
    mp_buf_putc(&text, '\0');
    mp_refuse(rpc, stream, MP_CAUSE_HEADER, 400, MP_CODE_HEADER_MISMATCH, rpc->envelope.id, text.ptr, MP_STR_NONE);
}

/* A message of a stateless revision. The first check that fails decides the error (M-20 to M-22). The library in Lua
 * refuses unknown methods (M-23). */
static void serve_stateless(mp_rpc *rpc, mp_stream *stream)
{
    const mp_envelope *envelope = &rpc->envelope;
    if (envelope->kind == MP_KIND_NOTE) {
        mp_log_message(rpc, stream, NULL);
        mp_accept_note(stream); /* no notification to the server is defined over HTTP (M-5, W-17) */
        return;
    }
    const mp_era *era = envelope->version_is_string ? mp_era_find(envelope->version) : NULL;
    const char *named = mp_era_mirrored_member(envelope->method); /* NULL: the method ignores Mcp-Name (H-3) */
    if (!envelope->version_is_string || !envelope->has_capabilities)
        refuse_versions(rpc, stream, MP_CODE_INVALID_PARAMS, mp_meta_is_missing, MP_STR_NONE);
    else if (must_mirror(era) && !mirrors_body(stream, MP_HEADER_MCP_PROTOCOL_VERSION, envelope->version))
        refuse_header(rpc, stream, MP_HEADER_MCP_PROTOCOL_VERSION, "MCP-Protocol-Version",
                      "io.modelcontextprotocol/protocolVersion in params._meta", "");
    else if (must_mirror(era) && !mirrors_body(stream, MP_HEADER_MCP_METHOD, envelope->method))
        refuse_header(rpc, stream, MP_HEADER_MCP_METHOD, "Mcp-Method", "the method", "");
    else if (must_mirror(era) && named != NULL && !mirrors_name(stream, envelope))
        refuse_header(rpc, stream, MP_HEADER_MCP_NAME, "Mcp-Name", "params.", named);
    else if (era == NULL || era->has_sessions)
        refuse_versions(rpc, stream, MP_CODE_UNSUPPORTED_VERSION, mp_version_is_unsupported, envelope->version);
    else if (!refuse_if_busy(rpc, stream))
        mp_call_start(rpc, &mp_streamable_transport, stream, NULL, era);
}

/* -- the stateful revisions -------------------------------------------------------------------------------------- */

/* The session that a request names, with a counted reference; NULL if the request was refused (S-12, S-13, S-21). */
static mp_session *MP_NULLABLE find_session(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    if (headers->session_count != 1 || headers->session.len == 0) {
        mp_scoped_buf text = {0};
        mp_buf_put(&text, MP_STR("Mcp-Session-Id is missing: send \"initialize\" first"));
        if (mp_str_is(mp_stream_request(stream)->method, "GET") && rpc->config->sse != NULL)
            mp_buf_printf(&text, "; the event stream of 2024-11-05 is at %s%s", rpc->config->prefix,
                          MP_NEVER_NULL(rpc->config->sse));
        mp_buf_putc(&text, '\0');
        refuse_request(rpc, stream, MP_CAUSE_SESSION, 400, text.ptr);
        return NULL;
    }
    mp_session *session = mp_session_find(rpc, stream, headers->session);
    bool is_over = rpc->has_left && rpc->draining && rpc->envelope.kind == MP_KIND_REQUEST;
    if (session != NULL &&
        (session->is_sse || is_over)) { /* a session of the other transport is unknown on this path */
        mp_session_unref(session);
        session = NULL;
    }
    if (session == NULL) {
        refuse_request(rpc, stream, MP_CAUSE_SESSION, 404,
                       "no such session: send \"initialize\" without Mcp-Session-Id");
        return NULL;
    }
    if (headers->version_count > 0 && (headers->era == NULL || headers->era != mp_session_era(session))) {
        refuse_request(rpc, stream, MP_CAUSE_REVISION, 400, "MCP-Protocol-Version is not what this session negotiated");
        mp_session_unref(session);
        return NULL;
    }
    return session;
}

static void serve_stateful(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    const mp_envelope *envelope = &rpc->envelope;
    if (envelope->kind == MP_KIND_REQUEST && headers->session_count == 0 && mp_str_is(envelope->method, "initialize")) {
        if (!refuse_if_busy(rpc, stream))
            mp_call_start(rpc, &mp_streamable_transport, stream, NULL, NULL);
        return;
    }
    mp_session *session = find_session(rpc, stream, headers);
    if (session == NULL)
        return;
    if (envelope->kind == MP_KIND_REQUEST && mp_str_is(envelope->method, "initialize")) {
        refuse_request(rpc, stream, MP_CAUSE_SESSION, 400, "this session is already initialized");
    } else if (envelope->kind == MP_KIND_REQUEST) {
        if (!refuse_if_busy(rpc, stream) &&
            mp_call_start(rpc, &mp_streamable_transport, stream, session, mp_session_era(session)) == NULL)
            refuse_request(rpc, stream, MP_CAUSE_SESSION, 404,
                           "no such session: send \"initialize\" without Mcp-Session-Id");
    } else {
        mp_serve_note(rpc, stream, session);
        mp_accept_note(stream);
    }
    mp_session_unref(session);
}

/* An array of messages: only sessions of the revision with batches accept one (D-9). */
static void serve_array(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    mp_session *session = headers->session_count == 1 ? mp_session_find(rpc, stream, headers->session) : NULL;
    if (session == NULL || session->is_sse)
        mp_refuse_envelope(rpc, stream);
    else if (headers->version_count > 0 && headers->era != mp_session_era(session))
        refuse_request(rpc, stream, MP_CAUSE_REVISION, 400, "MCP-Protocol-Version is not what this session negotiated");
    else if (!refuse_if_busy(rpc, stream)) {
        /* the batch was admitted by a place, which is given back: each of its calls takes its own */
        mp_session_table_give_call(rpc->table, rpc->share, rpc->envelope.size);
        mp_serve_batch(rpc, stream, session);
    }
    if (session != NULL)
        mp_session_unref(session);
}

static void serve_post(mp_rpc *rpc, mp_stream *stream)
{
    mp_envelope *envelope = &rpc->envelope;
    if (!mp_type_is_json(stream)) {
        refuse_request(rpc, stream, MP_CAUSE_MEDIA_TYPE, 415, "Content-Type must be application/json");
        return;
    }
    if (!mp_accepts(stream, both_types)) {
        refuse_request(rpc, stream, MP_CAUSE_MEDIA_TYPE, 406,
                       "Accept must include application/json and text/event-stream");
        return;
    }
    mp_phase_set(MP_PHASE_DECODE);
    mp_envelope_read(envelope, mp_stream_request(stream)->body, MP_MAX_VALUES);
    if (envelope->kind == MP_KIND_BROKEN || envelope->kind == MP_KIND_INVALID) {
        mp_refuse_envelope(rpc, stream);
        return;
    }
    era_headers headers = read_headers(stream);
    if (envelope->kind == MP_KIND_ARRAY) {
        serve_array(rpc, stream, &headers);
        return;
    }
    bool is_stateless = headers.version_count > 0 && (headers.era == NULL || !headers.era->has_sessions);
    if (envelope->has_version) { /* `_meta` names a version (D-5) */
        serve_stateless(rpc, stream);
    } else if (!is_stateless) { /* the header has no version, or one of a stateful revision (D-1, D-2, D-3) */
        serve_stateful(rpc, stream, &headers);
    } else {
        mp_session *session = headers.session_count == 1 ? mp_session_find(rpc, stream, headers.session) : NULL;
        if (session != NULL) { /* a stateful session with the version of a stateless revision (D-8) */
            refuse_request(rpc, stream, MP_CAUSE_REVISION, 400,
                           "MCP-Protocol-Version is not what this session negotiated");
            mp_session_unref(session);
        } else if (envelope->kind == MP_KIND_RESPONSE) { /* stateless clients get no requests (M-4) */
            refuse_request(rpc, stream, MP_CAUSE_MESSAGE, 400,
                           "this protocol version has no requests from server to client, so it accepts no responses");
        } else { /* only the header names a stateless version: the error says what `_meta` lacks (D-4, D-14) */
            serve_stateless(rpc, stream);
        }
    }
}

/* -- GET, DELETE -------------------------------------------------------------------------------------------------- */

static void serve_get(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    if (!mp_accepts(stream, events_type)) {
        refuse_request(rpc, stream, MP_CAUSE_MEDIA_TYPE, 406, "Accept must include text/event-stream");
        return;
    }
    mp_session *session = find_session(rpc, stream, headers);
    if (session == NULL)
        return;
    int resumes;
    mp_str last = mp_stream_known_header(stream, MP_HEADER_LAST_EVENT_ID, &resumes);
    if (rpc->draining) {
        mp_refuse_for(rpc, stream, MP_CAUSE_STOPPING, 503, mp_stopping_s(rpc), "the gateway is stopping");
    } else if (resumes > 0) {
        if (resumes > 1 || !mp_reader_resume(rpc, session, stream, mp_str_trim(last)))
            refuse_request(rpc, stream, MP_CAUSE_STREAM, 400,
                           "no stream can be resumed after this Last-Event-ID: it belongs to another "
                           "session, or later events are no longer stored");
    } else if (mp_session_has_reader(session)) {
        refuse_request(rpc, stream, MP_CAUSE_STREAM, 409, "this session already has an event stream");
    } else {
        mp_log_http(rpc, stream, session, 200);
        if (mp_stream_open_events(stream, NULL, 0) == 0 && mp_reader_start(rpc, session, stream) != 0)
            mp_stream_end(stream); /* another worker initialized the session first */
    }
    mp_session_unref(session);
}

/* Answers a DELETE of a session that a process which starts after this one does not revive any more. */
static void answer_delete(void *content, mp_loop *MP_NULLABLE loop)
{
    mp_stream *stream = *(mp_stream **)content;
    if (loop != NULL)
        mp_stream_answer(stream, 204, NULL, MP_STR(""), NULL, 0);
    mp_stream_unref(stream);
}

static void serve_delete(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    mp_session *session = find_session(rpc, stream, headers);
    if (session == NULL)
        return;
    if (mp_session_close(session, &mp_stat_closed_delete)) {
        mp_log_http(rpc, stream, session, 204);
        mp_stream_ref(stream);
        if (mp_session_is_kept(session))
            mp_session_settle(session, rpc->loop, answer_delete, stream);
        else
            answer_delete(&stream, rpc->loop);
    } else /* another worker initialized the session first */
        refuse_request(rpc, stream, MP_CAUSE_SESSION, 404,
                       "no such session: send \"initialize\" without Mcp-Session-Id");
    mp_session_unref(session);
}

void mp_serve_streamable(mp_rpc *rpc, mp_stream *stream)
{
    mp_str method = mp_stream_request(stream)->method;
    rpc->envelope.id = MP_STR_NONE;
    if (mp_str_eq(method, MP_STR("POST"))) {
        serve_post(rpc, stream);
        return;
    }
    bool is_get = mp_str_is(method, "GET");
    era_headers headers = read_headers(stream);
    if (headers.era != NULL && !headers.era->has_sessions) /* stateless revisions have no GET (D-6) */
        mp_refuse_with(rpc, stream, MP_CAUSE_METHOD, 405, (mp_header){"allow", MP_STR("POST")},
                       "this protocol version uses POST only");
    else if (!is_get && !mp_str_is(method, "DELETE"))
        mp_refuse_with(rpc, stream, MP_CAUSE_METHOD, 405, (mp_header){"allow", MP_STR("GET, POST, DELETE")},
                       "this path serves GET, POST and DELETE only");
    else if (headers.version_count > 0 && headers.era == NULL) /* the revision of a stream must be known (D-7) */
        refuse_request(rpc, stream, MP_CAUSE_REVISION, 400, "unknown MCP-Protocol-Version");
    else if (is_get)
        serve_get(rpc, stream, &headers);
    else
        serve_delete(rpc, stream, &headers);
}
