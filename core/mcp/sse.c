/* sse.c: events of text/event-stream, as a server writes them. */
#include "mcp.h"

void mp_put_event(mp_buf *out, mp_str json)
{
    mp_buf_put(out, MP_STR("event: message\ndata: "));
    mp_buf_put(out, json);
    mp_buf_put(out, MP_STR("\n\n"));
}

void mp_put_event_id(mp_buf *out, uint64_t stream, uint64_t seq)
{
    mp_buf_printf(out, "id: %llu-%llu\n", (unsigned long long)stream, (unsigned long long)seq);
}

void mp_put_priming(mp_buf *out, uint64_t stream, uint64_t seq)
{
    mp_put_event_id(out, stream, seq);
    mp_buf_put(out, MP_STR("data: \n\n"));
}

void mp_put_retry(mp_buf *out, uint64_t ms)
{
    mp_buf_printf(out, "retry: %llu\n\n", (unsigned long long)ms);
}
