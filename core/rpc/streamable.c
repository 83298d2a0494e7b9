/* streamable.c: Streamable HTTP, the stateful revisions and the stateless one on one path. Which of them a message
 * belongs to is decided for each message alone (rows D-1 to D-9). */
#include "house.h"
#include "json/json.h"

static const char *const both_types[] = {"application/json", "text/event-stream", NULL};
static const char *const events_type[] = {"text/event-stream", NULL};

/* What a request's headers say of its era. */
typedef struct {
    mp_str version, session;
    int version_count, session_count;
    const mp_era *era; /* of `version`; NULL when absent or unknown */
} era_headers;

static era_headers read_headers(const mp_stream *stream)
{
    era_headers headers;
    headers.version = mp_stream_header(stream, "mcp-protocol-version", &headers.version_count);
    headers.session = mp_stream_header(stream, "mcp-session-id", &headers.session_count);
    headers.era = headers.version_count == 1 ? mp_era_find(headers.version) : NULL;
    return headers;
}

static void refuse(mp_rpc *rpc, mp_stream *stream, int status, const char *message)
{
    mp_refuse(rpc, stream, status, -32600, rpc->envelope.id, message, MP_STR_NONE);
}

static bool is_busy(mp_rpc *rpc, mp_stream *stream)
{
    if (rpc->draining) {
        mp_refuse_with(rpc, stream, 503, (mp_header){"retry-after", MP_STR("1")}, "the gateway is stopping");
        return true;
    }
    if (mp_table_has_room(rpc->table))
        return false;
    mp_stat_add(MP_STAT_REFUSED_CALLS, 1);
    mp_refuse_with(rpc, stream, 503, (mp_header){"retry-after", MP_STR("1")},
                   "too many calls in flight: try again later");
    return true;
}

/* -- 2026-07-28 ------------------------------------------------------------------------------------------------- */

static void refuse_versions(mp_rpc *rpc, mp_stream *stream, int code, const char *message, mp_str requested)
{
    mp_buf data = {0};
    mp_put_versions(&data, requested);
    mp_refuse(rpc, stream, 400, code, rpc->envelope.id, message, mp_buf_str(&data));
    mp_buf_clear(&data);
}

/* H-1, H-2: exactly one, and equal. */
static bool mirrors(const mp_stream *stream, const char *name, mp_str body)
{
    int count;
    mp_str value = mp_stream_header(stream, name, &count);
    return count == 1 && mp_str_eq(mp_str_trim(value), body);
}

/* H-4, H-5: Mcp-Name may be encoded. A method that mirrors nothing ignores the header (H-3). */
static bool mirrors_name(const mp_stream *stream, const mp_envelope *envelope)
{
    if (mp_era_mirrored_member(envelope->method) == NULL)
        return true;
    int count;
    mp_str value = mp_stream_header(stream, "mcp-name", &count), text;
    if (count == 0 && !envelope->has_name)
        return true; /* the method itself says what is missing */
    mp_buf decoded = {0};
    bool equal = count == 1 && envelope->has_name && mp_header_text(mp_str_trim(value), &decoded, &text) == 0 &&
                 mp_str_eq(text, envelope->name);
    mp_buf_clear(&decoded);
    return equal;
}

/* A header that is not what it mirrors; `told` is its `name` as people write it, `member` may be empty. */
static void refuse_header(mp_rpc *rpc, mp_stream *stream, const char *name, const char *told, const char *of,
                          const char *member)
{
    mp_buf text = {0};
    bool is_there = mp_stream_header(stream, name, NULL).ptr != NULL;
    mp_buf_printf(&text, "%s %s %s%s", told, is_there ? "must be there once and equal" : "is missing: it repeats", of,
                  member);
    mp_buf_putc(&text, '\0');
    mp_refuse(rpc, stream, 400, -32020, rpc->envelope.id, text.ptr, MP_STR_NONE);
    mp_buf_clear(&text);
}

/* The ladder M-20 to M-22: the first step that fails decides. Unknown methods are the language's to know (M-23). */
static void serve_modern(mp_rpc *rpc, mp_stream *stream)
{
    const mp_envelope *envelope = &rpc->envelope;
    if (envelope->kind == MP_KIND_NOTE) {
        mp_accept_note(stream); /* M-5, W-17: none is defined over HTTP */
        return;
    }
    const mp_era *era = envelope->version_is_string ? mp_era_find(envelope->version) : NULL;
    if (!envelope->version_is_string || !envelope->has_capabilities)
        refuse_versions(rpc, stream, -32602, mp_meta_is_missing, MP_STR_NONE);
    else if (!mirrors(stream, "mcp-protocol-version", envelope->version))
        refuse_header(rpc, stream, "mcp-protocol-version", "MCP-Protocol-Version",
                      "io.modelcontextprotocol/protocolVersion in params._meta", "");
    else if (!mirrors(stream, "mcp-method", envelope->method))
        refuse_header(rpc, stream, "mcp-method", "Mcp-Method", "the method", "");
    else if (!mirrors_name(stream, envelope))
        refuse_header(rpc, stream, "mcp-name", "Mcp-Name", "params.", mp_era_mirrored_member(envelope->method));
    else if (era == NULL || era->has_sessions)
        refuse_versions(rpc, stream, -32022, mp_version_has_sessions, envelope->version);
    else if (!is_busy(rpc, stream))
        mp_call_start(rpc, stream, NULL, era);
}

/* -- the stateful revisions -------------------------------------------------------------------------------------- */

/* The session that a request names, or NULL and the request is answered (S-12, S-13, S-21). */
static mp_session *find_session(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    if (headers->session_count != 1 || headers->session.len == 0) {
        refuse(rpc, stream, 400, "Mcp-Session-Id is missing: send \"initialize\" first");
        return NULL;
    }
    mp_session *session = mp_session_find(rpc, stream, headers->session);
    if (session != NULL && session->is_sse) { /* the other transport's: unknown here */
        mp_session_unref(session);
        session = NULL;
    }
    if (session == NULL) {
        refuse(rpc, stream, 404, "no such session: send \"initialize\" without Mcp-Session-Id");
        return NULL;
    }
    if (headers->version_count > 0 && (headers->era == NULL || headers->era != mp_session_era(session))) {
        refuse(rpc, stream, 400, "MCP-Protocol-Version is not what this session negotiated");
        mp_session_unref(session);
        return NULL;
    }
    return session;
}

static void serve_stateful(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    const mp_envelope *envelope = &rpc->envelope;
    if (envelope->kind == MP_KIND_REQUEST && headers->session_count == 0 && mp_str_is(envelope->method, "initialize")) {
        if (!is_busy(rpc, stream))
            mp_call_start(rpc, stream, NULL, NULL);
        return;
    }
    mp_session *session = find_session(rpc, stream, headers);
    if (session == NULL)
        return;
    if (envelope->kind == MP_KIND_REQUEST && mp_str_is(envelope->method, "initialize")) {
        refuse(rpc, stream, 400, "this session is initialized already"); /* L-9, S-16 */
    } else if (envelope->kind == MP_KIND_REQUEST) {
        if (!is_busy(rpc, stream) && mp_call_start(rpc, stream, session, mp_session_era(session)) == NULL)
            refuse(rpc, stream, 404, "no such session: send \"initialize\" without Mcp-Session-Id");
    } else {
        mp_note(rpc, session);
        mp_accept_note(stream);
    }
    mp_session_unref(session);
}

/* D-9: only a session of the revision that has batches takes one. */
static void serve_array(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    mp_session *session = headers->session_count == 1 ? mp_session_find(rpc, stream, headers->session) : NULL;
    if (session == NULL || session->is_sse)
        mp_refuse_envelope(rpc, stream);
    else if (headers->version_count > 0 && headers->era != mp_session_era(session))
        refuse(rpc, stream, 400, "MCP-Protocol-Version is not what this session negotiated");
    else if (!is_busy(rpc, stream))
        mp_serve_batch(rpc, stream, session);
    if (session != NULL)
        mp_session_unref(session);
}

static void serve_post(mp_rpc *rpc, mp_stream *stream)
{
    mp_envelope *envelope = &rpc->envelope;
    if (!mp_type_is_json(stream)) {
        refuse(rpc, stream, 415, "Content-Type must be application/json");
        return;
    }
    if (!mp_accepts(stream, both_types)) {
        refuse(rpc, stream, 406, "Accept must take application/json and text/event-stream");
        return;
    }
    mp_envelope_read(envelope, mp_stream_request(stream)->body);
    if (envelope->kind == MP_KIND_BROKEN || envelope->kind == MP_KIND_INVALID) {
        mp_refuse_envelope(rpc, stream);
        return;
    }
    era_headers headers = read_headers(stream);
    if (envelope->kind == MP_KIND_ARRAY) {
        serve_array(rpc, stream, &headers);
        return;
    }
    bool says_modern = headers.version_count > 0 && (headers.era == NULL || !headers.era->has_sessions);
    if (envelope->has_version) { /* D-5 */
        serve_modern(rpc, stream);
    } else if (!says_modern) { /* D-1, D-2, D-3 */
        serve_stateful(rpc, stream, &headers);
    } else {
        mp_session *session = headers.session_count == 1 ? mp_session_find(rpc, stream, headers.session) : NULL;
        if (session != NULL) { /* D-8 */
            refuse(rpc, stream, 400, "MCP-Protocol-Version is not what this session negotiated");
            mp_session_unref(session);
        } else if (envelope->kind == MP_KIND_RESPONSE) { /* M-4 */
            refuse(rpc, stream, 400, "a response answers nothing here");
        } else { /* D-4, D-14 */
            serve_modern(rpc, stream);
        }
    }
}

/* -- GET, DELETE -------------------------------------------------------------------------------------------------- */

static void serve_get(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    if (!mp_accepts(stream, events_type)) {
        refuse(rpc, stream, 406, "Accept must take text/event-stream");
        return;
    }
    mp_session *session = find_session(rpc, stream, headers);
    if (session == NULL)
        return;
    int resumes;
    mp_str last = mp_stream_header(stream, "last-event-id", &resumes);
    if (rpc->draining) {
        mp_refuse_with(rpc, stream, 503, (mp_header){"retry-after", MP_STR("1")}, "the gateway is stopping");
    } else if (resumes > 0) {
        if (resumes > 1 || !mp_held_resume(rpc, session, stream, mp_str_trim(last))) /* S-28 */
            refuse(rpc, stream, 400,
                   "no stream goes on after this Last-Event-ID: it is not this session's, or what "
                   "followed it is not kept any more");
    } else if (mp_session_has_reader(session)) {
        refuse(rpc, stream, 409, "this session has its event stream already");
    } else if (mp_stream_open_events(stream, NULL, 0) == 0 && mp_held_start(rpc, session, stream) != 0) {
        mp_stream_end(stream); /* another worker was quicker */
    }
    mp_session_unref(session);
}

static void serve_delete(mp_rpc *rpc, mp_stream *stream, const era_headers *headers)
{
    mp_session *session = find_session(rpc, stream, headers);
    if (session == NULL)
        return;
    if (mp_session_close(session, MP_STAT_CLOSED_DELETE))
        mp_stream_answer(stream, 204, NULL, MP_STR(""), NULL, 0);
    else /* another worker was quicker */
        refuse(rpc, stream, 404, "no such session: send \"initialize\" without Mcp-Session-Id");
    mp_session_unref(session);
}

void mp_serve_streamable(mp_rpc *rpc, mp_stream *stream)
{
    mp_str method = mp_stream_request(stream)->method;
    rpc->envelope.id = MP_STR_NONE;
    if (mp_str_is(method, "POST")) {
        serve_post(rpc, stream);
        return;
    }
    bool is_get = mp_str_is(method, "GET");
    era_headers headers = read_headers(stream);
    if (headers.era != NULL && !headers.era->has_sessions) /* D-6 */
        mp_refuse_with(rpc, stream, 405, (mp_header){"allow", MP_STR("POST")}, "this protocol version has POST only");
    else if (!is_get && !mp_str_is(method, "DELETE"))
        mp_refuse_with(rpc, stream, 405, (mp_header){"allow", MP_STR("GET, POST, DELETE")},
                       "this path has GET, POST and DELETE only");
    else if (headers.version_count > 0 && headers.era == NULL) /* D-7 */
        refuse(rpc, stream, 400, "unknown MCP-Protocol-Version");
    else if (is_get)
        serve_get(rpc, stream, &headers);
    else
        serve_delete(rpc, stream, &headers);
}
