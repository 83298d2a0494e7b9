/* owner.c: requests that another process has sent on to this one. They come by a Unix socket that only processes of
 * the same user can use, or, from other nodes, by TLS with a certificate that only nodes have; and each has a sealed
 * header that says whose it is. */
#include "edge.h"
#include <unistd.h>

MP_REFUSED(refused_hop_header, "hop_header", MP_FAULT,
           "requests to the socket between processes that no process of this gateway sent, or for another one")

/* The header tells the edge that this is no answer for its client. */
static void refuse_hop(mp_rpc *rpc, mp_stream *stream, int status, const char *why)
{
    mp_stat_add(&mp_stat_refused_hop_header, 1);
    mp_stream_add_header(stream, (mp_header){MP_HOP_HEADER, MP_STR("refused")});
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

/* A message about a task of this process, or of an older one of this node. */
static void obey_errand(mp_rpc *rpc, mp_stream *stream, uint16_t to)
{
    mp_str text = mp_stream_request(stream)->body;
    if (to == mp_processes_number(rpc->processes) ? rpc->hooks->on_message(rpc->ctx, false, text)
                                                  : mp_hops_send_message(rpc, to, NULL, text))
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

/* True if the sender of the request may be a process of this gateway, or of another node; else it is refused. */
static bool may_send(mp_rpc *rpc, mp_stream *stream)
{
    uint32_t user;
    const char *name = rpc->config->nodes_name;
    bool is_local = mp_stream_is_unix(stream);
    if (is_local ? mp_stream_unix_user(stream, &user) && user == geteuid()
                 : name == NULL || mp_tls_peer_is(mp_stream_tls(stream), name))
        return true;
    refuse_hop(rpc, stream, 403,
               is_local ? "only processes of the gateway's own user may connect here"
                        : "only nodes of this cluster may connect here: the certificate does not have their DNS name");
    return false;
}

/* True if this process serves the request, or sends it on to one of the same node. */
static bool is_for_here(const mp_rpc *rpc, const mp_hop *hop)
{
    const mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    if (hop->to != mp_processes_number(rpc->processes))
        return *hop->uid != '\0' && mp_processes_has(rpc->processes, hop->to);
    return *hop->uid == '\0' || (nodes != NULL && strcmp(hop->uid, mp_nodes_uid(nodes)) == 0);
}

/* True if the process that is asked whether it lives is this one, or an older one of this node, or is not named. */
static bool is_alive(const mp_rpc *rpc, const mp_stream *stream)
{
    int numbers, uids;
    char text[8] = "";
    mp_str query = mp_stream_request(stream)->query;
    mp_str number = mp_query_value(query, "number", &numbers), uid = mp_query_value(query, "uid", &uids);
    mp_hop asked = {0};
    if (numbers != 1 || uids != 1 || number.len >= sizeof text || uid.len != MP_NODE_UID)
        return numbers == 0 && uids == 0;
    memcpy(text, number.ptr, number.len);
    memcpy(asked.uid, uid.ptr, uid.len);
    asked.to = (uint16_t)strtoul(text, NULL, 10);
    return is_for_here(rpc, &asked);
}

/* True if the request was sent too long ago to run. Clocks of two machines differ, one way or the other. */
static bool is_old(const mp_rpc *rpc, const mp_hop *hop)
{
    bool is_between_nodes = *hop->uid != '\0';
    uint64_t now = mp_hop_now_ms(is_between_nodes ? mp_processes_nodes(rpc->processes) : NULL);
    if (hop->sent_ms > now)
        return !is_between_nodes || hop->sent_ms - now > MP_HOP_OLDEST_MS;
    return now - hop->sent_ms > MP_HOP_OLDEST_MS;
}

/* The header has to be sealed by who can connect to this socket. */
static bool read_hop(mp_rpc *rpc, const mp_stream *stream, mp_hop *hop)
{
    int count;
    mp_str value = mp_stream_header(stream, MP_HOP_HEADER, &count);
    bool is_local = mp_stream_is_unix(stream);
    const mp_seal_key *keys = is_local ? mp_hops_keys(rpc) : mp_processes_node_keys(rpc->processes);
    return count == 1 && keys != NULL && mp_hop_read(keys, value, hop) && (*hop->uid == '\0') == is_local;
}

void mp_rpc_serve_hop(void *ctx, mp_stream *stream)
{
    mp_rpc *rpc = ctx;
    mp_phase_set(MP_PHASE_AUTH);
    if (!may_send(rpc, stream))
        return;
    if (mp_str_is(mp_stream_request(stream)->path, MP_HOP_ALIVE)) {
        if (is_alive(rpc, stream))
            mp_stream_answer(stream, 204, NULL, MP_STR(""), NULL, 0);
        else
            refuse_hop(rpc, stream, 421, "another process of this node was asked for");
        return;
    }
    mp_hop *hop = mp_new(sizeof *hop);
    if (!read_hop(rpc, stream, hop))
        refuse_hop(rpc, stream, 403, "the request needs a header that another process of the gateway has sealed");
    else if (!is_for_here(rpc, hop))
        refuse_hop(rpc, stream, 421, "the request is for another process");
    else if (!is_of(hop, stream))
        refuse_hop(rpc, stream, 403, "the sealed header is that of another request");
    else if (hop->hops > MP_HOP_MOST)
        refuse_hop(rpc, stream, 421, "the request has come through too many processes");
    else if (is_old(rpc, hop))
        mp_refuse_for(rpc, stream, MP_CAUSE_HOP, 503, 1, "the request is too old: its client has its answer");
    else if (hop->endpoint == MP_HOP_TASK_MESSAGES)
        obey_errand(rpc, stream, hop->to);
    else if (hop->endpoint == MP_HOP_SWITCH)
        mp_hop_obey_switch(rpc, stream);
    else {
        serve_hop(rpc, stream, hop);
        return;
    }
    mp_hop_free(hop);
}
