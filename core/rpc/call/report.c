/* report.c: running calls as operators see them, and their end by an operator. A call's name for operators is the number of its worker and
 * its own: "1-4711"; or its mark, as in the log and the audit. */
#include "call.h"
#include <stdlib.h>

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
    mp_buf name = {0}, client = {0};
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
    mp_buf_clear(&name);
    mp_buf_clear(&client);
}

static void put_calls(mp_rpc *rpc, mp_buf *out)
{
    int count = 0;
    uint64_t now = mp_monotonic_us();
    for (mp_link *link = rpc->calls.next; link != &rpc->calls && count < MAX_CALLS; link = link->next, count++)
        put_call(out, mp_container(link, mp_call, link), now);
}

static bool is_asked_for(const mp_call_inquiry *inquiry, const mp_call *call)
{
    return inquiry->mark != 0 ? call->mark == inquiry->mark
                              : inquiry->worker == call->rpc->index && call->serial == inquiry->serial;
}

static bool end_call(mp_rpc *rpc, const mp_call_inquiry *inquiry)
{
    for (mp_link *link = rpc->calls.next; link != &rpc->calls; link = link->next) {
        mp_call *call = mp_container(link, mp_call, link);
        if (!is_asked_for(inquiry, call))
            continue;
        mp_call_cancel(call, "cancelled by an operator", &mp_stat_tool_operator, MP_CANCEL_ANSWER);
        return true;
    }
    return false;
}

typedef struct {
    mp_message super;
    mp_rpc *rpc;
    mp_call_inquiry *inquiry;
} question;

static void deliver(mp_message *message, mp_loop *loop)
{
    question *asked = mp_container(message, question, super);
    mp_call_inquiry *inquiry = asked->inquiry;
    mp_buf json = {0};
    bool ended = false;
    if (loop != NULL)
        mp_loop_measure(loop, MP_MEASURE_ASKED);
    if (loop != NULL && inquiry->serial == 0 && inquiry->mark == 0)
        put_calls(asked->rpc, &json);
    else if (loop != NULL)
        ended = end_call(asked->rpc, inquiry);
    free(asked);
    inquiry->answer(inquiry, mp_buf_str(&json), ended, loop == NULL);
    mp_buf_clear(&json);
}

void mp_table_inquire(mp_table *table, unsigned count, mp_call_inquiry *inquiry)
{
    for (unsigned i = 0; i < count; i++) {
        mp_rpc *rpc = mp_table_rpc(table, i);
        question *asked = mp_new(sizeof *asked);
        *asked = (question){{.deliver = deliver}, rpc, inquiry};
        mp_loop_post(rpc->loop, &asked->super);
    }
}
