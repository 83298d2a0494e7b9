/* report.c: running calls and event streams as operators see them, and their end by an operator. The name of a call or
 * stream for operators is the number of its worker and its own: "1-4711"; of a call also its mark, as in the log and
 * the audit. */
#include "state.h"

MP_COUNTER(tool_operator, "tool_aborted", "reason", "operator", "calls cancelled through the admin listener")

#define MAX_CALLS 200              /* calls of one worker in a list: the oldest ones */
#define MAX_READ_BYTES (64 * 1024) /* params above this are not searched for the name of the tool */

static void put_member(mp_buf *out, const char *name, mp_str text)
{
    if (text.len == 0)
        return;
    mp_buf_printf(out, ",\"%s\":", name);
    mp_json_put_string(out, text);
}

static void put_call(mp_buf *out, mp_call *call, uint64_t now_us)
{
    const mp_era *era = mp_call_era(call);
    mp_scoped_buf name = {0}, client = {0};
    if (call->params.len <= MAX_READ_BYTES)
        mp_call_names(call->params, call->session, &name, &client);
    mp_buf_printf(out, "%s{\"call\":\"%u-%llu\"", out->len == 0 ? "" : ",", call->rpc->index,
                  (unsigned long long)call->serial);
    put_member(out, "id", mp_str_of(mp_mark_text_of(mp_call_mark(call)).text));
    put_member(out, "method", call->method);
    put_member(out, "name", mp_buf_str(&name));
    put_member(out, "client", mp_buf_str(&client));
    put_member(out, "revision", era == NULL ? MP_STR_NONE : mp_str_of(era->date));
    put_member(out, "principal", mp_principal_id(call->principal));
    put_member(out, "address", mp_call_address(call));
    if (call->session != NULL)
        put_member(out, "session", mp_str_of(mp_session_mark_of(mp_session_id(call->session)).text));
    mp_buf_printf(out, ",\"began_us\":%llu", (unsigned long long)call->began);
    mp_buf_printf(out, ",\"running_ms\":%llu}",
                  (unsigned long long)(now_us > call->began ? (now_us - call->began) / 1000 : 0));
}

static void put_calls(mp_rpc *rpc, mp_buf *out)
{
    int count = 0;
    uint64_t now = mp_monotonic_us();
    for (mp_link *link = mp_link_first(&rpc->calls); link != &rpc->calls && count < MAX_CALLS;
         link = link->next, count++)
        put_call(out, mp_container(link, mp_call, link), now);
}

/* -- event streams ------------------------------------------------------------------------------------------------- */

/* Which streams a page has: some are passed, then `left` are put. */
typedef struct {
    mp_buf *out;
    const mp_rpc *rpc;
    uint64_t now_us;
    unsigned passed, left;
    bool has_more;
} stream_page;

/* Appends the members that all kinds of streams have, if the stream is on this page. */
static bool put_stream(stream_page *page, const char *kind, uint64_t serial, uint64_t began_us, const mp_stream *stream)
{
    if (page->passed > 0) {
        page->passed--;
        return false;
    }
    if (page->left == 0) {
        page->has_more = true;
        return false;
    }
    page->left--;
    mp_buf_printf(page->out, "%s{\"stream\":\"%u-%llu\",\"kind\":\"%s\",\"age_ms\":%llu,\"queued_bytes\":%zu",
                  page->out->len == 0 ? "" : ",", page->rpc->index, (unsigned long long)serial, kind,
                  (unsigned long long)(page->now_us > began_us ? (page->now_us - began_us) / 1000 : 0),
                  mp_stream_queued(stream));
    return true;
}

static void put_session_mark(mp_buf *out, mp_session *MP_NULLABLE session)
{
    if (session != NULL)
        put_member(out, "session", mp_str_of(mp_session_mark_of(mp_session_id(session)).text));
}

static void put_reader(stream_page *page, const mp_reader *reader)
{
    mp_session *session = reader->session;
    const char *kind = reader->number > 0 ? "resumed call" : session->is_sse ? "HTTP+SSE" : "session";
    if (!put_stream(page, kind, reader->serial, reader->began_us, reader->stream))
        return;
    put_session_mark(page->out, session);
    put_member(page->out, "principal", session->user == NULL ? mp_principal_id(mp_nobody) : mp_str_of(session->user));
    mp_buf_putc(page->out, '}');
}

static void put_stream_of_call(stream_page *page, const mp_call *call)
{
    if (!put_stream(page, call->subscriber != NULL ? "subscription" : "call", call->serial, call->began, call->stream))
        return;
    put_session_mark(page->out, call->session);
    put_member(page->out, "principal", mp_principal_id(call->principal));
    put_member(page->out, "method", call->method);
    mp_buf_putc(page->out, '}');
}

/* Appends one page: streams of sessions, then those of calls, oldest first. */
static bool put_streams(mp_rpc *rpc, unsigned number, mp_buf *out)
{
    stream_page page = {out, rpc, mp_monotonic_us(), number * MP_STREAMS_PAGE, MP_STREAMS_PAGE, false};
    for (mp_link *link = mp_link_first(&rpc->readers); link != &rpc->readers && !page.has_more; link = link->next)
        put_reader(&page, mp_container(link, mp_reader, link));
    for (mp_link *link = mp_link_first(&rpc->calls); link != &rpc->calls && !page.has_more; link = link->next) {
        const mp_call *call = mp_container(link, mp_call, link);
        if (mp_stream_is_events(call->stream))
            put_stream_of_call(&page, call);
    }
    return page.has_more;
}

/* Ends a stream of a session, or the call that has it. */
static bool end_stream(mp_rpc *rpc, const mp_call_inquiry *inquiry)
{
    if (inquiry->worker != rpc->index)
        return false;
    MP_EACH(mp_reader, reader, &rpc->readers, link) {
        if (reader->serial == inquiry->serial) {
            mp_reader_end(reader);
            return true;
        }
    }
    MP_EACH(mp_call, call, &rpc->calls, link) {
        if (call->serial != inquiry->serial || !mp_stream_is_events(call->stream))
            continue;
        mp_call_cancel(call, "cancelled by an operator", &mp_stat_tool_operator, MP_CANCEL_ANSWER);
        return true;
    }
    return false;
}

/* -- questions ----------------------------------------------------------------------------------------------------- */

static bool is_asked_for(const mp_call_inquiry *inquiry, const mp_call *call)
{
    return inquiry->mark != 0 ? call->mark == inquiry->mark
                              : inquiry->worker == call->rpc->index && call->serial == inquiry->serial;
}

static bool end_call(mp_rpc *rpc, const mp_call_inquiry *inquiry)
{
    MP_EACH(mp_call, call, &rpc->calls, link) {
        if (!is_asked_for(inquiry, call))
            continue;
        mp_call_cancel(call, "cancelled by an operator", &mp_stat_tool_operator, MP_CANCEL_ANSWER);
        return true;
    }
    return false;
}

typedef struct {
    mp_rpc *rpc;
    mp_call_inquiry *inquiry;
} inquiry_message;

static void deliver_report(void *content, mp_loop *MP_NULLABLE loop)
{
    const inquiry_message *asked = content;
    mp_call_inquiry *inquiry = asked->inquiry;
    mp_scoped_buf json = {0};
    bool ended = false;
    if (loop != NULL)
        mp_loop_measure(loop, MP_MEASURE_ASKED);
    bool is_list = inquiry->serial == 0 && inquiry->mark == 0;
    if (loop != NULL && is_list && inquiry->is_of_ended)
        mp_ended_calls_put(asked->rpc, &json);
    else if (loop != NULL && is_list && !inquiry->is_of_streams)
        put_calls(asked->rpc, &json);
    else if (loop != NULL && is_list && put_streams(asked->rpc, inquiry->page, &json))
        atomic_store(&inquiry->has_more, true);
    else if (loop != NULL && !is_list)
        ended = inquiry->is_of_streams ? end_stream(asked->rpc, inquiry) : end_call(asked->rpc, inquiry);
    inquiry->answer(inquiry, mp_buf_str(&json), ended, loop == NULL);
}

void mp_session_table_inquire(mp_session_table *table, unsigned count, mp_call_inquiry *inquiry)
{
    for (unsigned i = 0; i < count; i++) {
        mp_rpc *rpc = mp_session_table_rpc(table, i);
        mp_loop_send(rpc->loop, deliver_report, &(inquiry_message){rpc, inquiry}, sizeof(inquiry_message), MP_STR_NONE);
    }
}
