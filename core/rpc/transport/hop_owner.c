/* hop_owner.c: requests that another process of the gateway has sent on to this one. They come by a Unix socket that
 * only processes of the same user can use, and each has a sealed header that says whose it is. */
#include "transport.h"
#include <unistd.h>

MP_REFUSED(refused_hop_header, "hop_header", MP_FAULT,
           "requests to the socket between processes that no process of this gateway sent, or for another one")

static void refuse_hop(mp_rpc *rpc, mp_stream *stream, int status, const char *why)
{
    mp_stat_add(&mp_stat_refused_hop_header, 1);
    mp_refuse(rpc, stream, MP_CAUSE_HOP, status, MP_CODE_INVALID_REQUEST, MP_STR_NONE, why, MP_STR_NONE);
}

/* True if the header was sealed for this very request. */
static bool is_of(const mp_hop *hop, const mp_stream *stream)
{
    const mp_request *request = mp_stream_request(stream);
    int count;
    mp_str session = hop->endpoint == MP_HOP_MESSAGES
                         ? mp_query_value(request->query, "session_id", &count)
                         : mp_stream_known_header(stream, MP_HEADER_MCP_SESSION_ID, &count);
    return mp_str_is(request->path, mp_hop_paths[hop->endpoint]) && mp_str_eq(request->method, hop->method) &&
           request->body.len == hop->body && mp_str_eq(session, hop->session) && count <= 1;
}

/* A message about a task of this process. */
static void obey_errand(mp_rpc *rpc, mp_stream *stream)
{
    if (rpc->hooks->on_task_message(rpc->ctx, mp_stream_request(stream)->body))
        mp_stream_answer(stream, 202, NULL, MP_STR(""), NULL, 0);
    else
        mp_refuse_for(rpc, stream, MP_CAUSE_HOP, 503, 1, "a worker does not take messages now");
}

/* Takes ownership of `hop`. */
static void serve_hop(mp_rpc *rpc, mp_stream *stream, mp_hop *hop)
{
    mp_stream_set_origin(stream, hop->address, hop->base, hop->mark);
    if (!mp_str_eq(hop->principal, mp_principal_id(mp_nobody))) {
        mp_authn_begin_hop(rpc, stream, hop);
        return;
    }
    rpc->hop = hop;
    mp_serve_as(rpc, stream, mp_nobody);
    rpc->hop = NULL;
    mp_hop_free(hop);
}

void mp_rpc_serve_hop(void *ctx, mp_stream *stream)
{
    mp_rpc *rpc = ctx;
    uint32_t user;
    int count;
    mp_phase_set(MP_PHASE_AUTH);
    mp_str value = mp_stream_header(stream, MP_HOP_HEADER, &count);
    if (!mp_stream_unix_user(stream, &user) || user != geteuid()) {
        refuse_hop(rpc, stream, 403, "only processes of the gateway's own user may connect here");
        return;
    }
    if (mp_str_is(mp_stream_request(stream)->path, MP_HOP_ALIVE)) {
        mp_stream_answer(stream, 204, NULL, MP_STR(""), NULL, 0);
        return;
    }
    mp_hop *hop = mp_new(sizeof *hop);
    uint64_t now = mp_hop_now_ms();
    if (count != 1 || !mp_hop_read(mp_hops_keys(rpc), value, hop))
        refuse_hop(rpc, stream, 403, "the request needs a header that another process of the gateway has sealed");
    else if (hop->to != mp_processes_number(rpc->processes))
        refuse_hop(rpc, stream, 421, "the request is for another process");
    else if (!is_of(hop, stream))
        refuse_hop(rpc, stream, 403, "the sealed header is that of another request");
    else if (hop->hops > MP_HOP_MOST)
        refuse_hop(rpc, stream, 421, "the request has come through too many processes");
    else if (hop->sent_ms > now || now - hop->sent_ms > MP_HOP_OLDEST_MS)
        mp_refuse_for(rpc, stream, MP_CAUSE_HOP, 503, 1, "the request is too old: its client has its answer");
    else if (hop->endpoint == MP_HOP_TASK_MESSAGES)
        obey_errand(rpc, stream);
    else {
        serve_hop(rpc, stream, hop);
        return;
    }
    mp_hop_free(hop);
}
