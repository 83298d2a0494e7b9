/* http.c: how the messages of calls and sessions reach a client over Streamable HTTP and HTTP+SSE. */
#include "transport.h"

/* -- Streamable HTTP: each call has its own stream ----------------------------------------------------------------- */

static int send_on_call(mp_call *call, mp_str json)
{
    mp_feed *feed = mp_call_need_feed(call);
    return feed != NULL ? mp_call_put(call, feed, json, false) : mp_call_send_event(call, json);
}

/* An answer that is the first message of its call is sent as JSON. A client of a session that names event streams
 * first in Accept gets an event stream. */
static void prefer_events(mp_call *call)
{
    mp_stream *stream = call->stream;
    if (call->session == NULL || call->opens_session || mp_stream_is_events(stream) || !mp_prefers_events(stream))
        return;
    if (mp_call_need_feed(call) == NULL)
        mp_stream_open_events(stream, NULL, 0);
}

static void answer_call(mp_call *call, int status, mp_str json)
{
    mp_stream *stream = call->stream;
    if (call->status == 0)
        prefer_events(call);
    mp_feed *feed = call->feed;
    if (feed != NULL) {
        mp_call_put(call, feed, json, true);
    } else if (!mp_stream_is_open(stream)) {
        mp_stat_add(&mp_stat_dropped_gone, 1);
    } else if (mp_stream_is_events(stream)) {
        mp_scoped_buf event = {0};
        mp_put_event(&event, json);
        if (mp_stream_send_answer(stream, mp_buf_str(&event)) == 0)
            mp_stream_end(stream);
    } else {
        const mp_session *opened = call->opens_session ? call->session : NULL;
        mp_header header = {"mcp-session-id", opened == NULL ? MP_STR_NONE : opened->node.key};
        mp_stream_answer(stream, status, "application/json", json, &header, opened == NULL ? 0 : 1);
    }
}

/* HTTP requires a response even where MCP allows no message (Y-1): sends an event stream without events. */
static void drop_call(mp_call *call)
{
    if (!mp_stream_is_open(call->stream))
        return;
    mp_stream_on_gone(call->stream, NULL, NULL);
    if (mp_stream_is_events(call->stream) || mp_stream_open_events(call->stream, NULL, 0) == 0)
        mp_stream_end(call->stream);
}

const mp_transport mp_streamable_transport = {.name = "http",
                                              .send = send_on_call,
                                              .answer = answer_call,
                                              .drop = drop_call,
                                              .notify = mp_reader_notify,
                                              .respond = mp_reader_respond};

/* -- HTTP+SSE: all messages of a session are events of its one stream ---------------------------------------------- */

static int send_on_session(mp_call *call, mp_str json)
{
    mp_reader_notify(call->rpc, call->session, json);
    return 0;
}

static void answer_on_session(mp_call *call, MP_UNUSED int status, mp_str json)
{
    mp_reader_respond(call->rpc, call->session, json);
}

const mp_transport mp_sse_transport = {.name = "sse",
                                       .has_one_stream = true,
                                       .send = send_on_session,
                                       .answer = answer_on_session,
                                       .notify = mp_reader_notify,
                                       .respond = mp_reader_respond};
