/* switches.c: what an operator has switched on another node, while that does not reach Redis. The request waits for
 * what Lua decides (lua/moonpool/cluster/shared_switches.lua). */
#include "edge.h"

#define MOST_SWITCHES 64 /* operators give few orders, and each is decided in a second */

typedef struct {
    mp_link link; /* in hops->switches */
    uint64_t id;
    mp_stream *stream; /* counted reference */
} pending_switch;

/* Returns the stream, with the reference. */
static mp_stream *forget_switch(pending_switch *it)
{
    mp_stream *stream = it->stream;
    mp_stream_on_gone(stream, NULL, NULL);
    mp_link_drop(&it->link);
    free(it);
    return stream;
}

static void on_asker_left(void *ctx, MP_UNUSED mp_stream *stream)
{
    mp_stream_unref(forget_switch(ctx));
}

static void answer_switch(pending_switch *it, int status)
{
    mp_stream *stream = forget_switch(it);
    mp_stream_answer(stream, status, NULL, MP_STR(""), NULL, 0);
    mp_stream_unref(stream);
}

void mp_hop_obey_switch(mp_rpc *rpc, mp_stream *stream)
{
    mp_hops *hops = rpc->hops;
    mp_scoped_buf text = {0};
    int count = 0;
    MP_EACH(pending_switch, each, &hops->switches, link)
        count += each->id > 0;
    if (count >= MOST_SWITCHES) {
        mp_refuse_for(rpc, stream, MP_CAUSE_HOP, 503, 1, "too many orders of operators wait");
        return;
    }
    pending_switch *it = mp_new(sizeof *it);
    *it = (pending_switch){.id = ++hops->last_switch, .stream = mp_stream_ref(stream)};
    mp_link_put(&hops->switches, &it->link);
    mp_stream_on_gone(stream, on_asker_left, it);
    mp_stream_detect_close(stream);
    mp_buf_printf(&text, "%llu\n", (unsigned long long)it->id);
    mp_buf_put(&text, mp_stream_request(stream)->body);
    rpc->hooks->on_message(rpc->ctx, true, mp_buf_str(&text));
}

void mp_rpc_answer_switch(mp_rpc *rpc, uint64_t id, bool is_taken)
{
    MP_EACH(pending_switch, it, &rpc->hops->switches, link) {
        if (it->id == id) {
            answer_switch(it, is_taken ? 204 : 409);
            return;
        }
    }
}

void mp_hops_end_switches(mp_rpc *rpc, bool with_answer)
{
    MP_EACH(pending_switch, it, &rpc->hops->switches, link) {
        if (with_answer)
            answer_switch(it, 503);
        else
            mp_stream_unref(forget_switch(it));
    }
}
