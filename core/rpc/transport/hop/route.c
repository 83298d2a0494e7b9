/* route.c: which process serves a request: the one that made the id of its session or task, or of the state that it
 * brings back; the newest one of this node for what begins something new. */
#define _GNU_SOURCE 1 /* for memmem */
#include "edge.h"

uint16_t mp_hop_other_of(const mp_rpc *rpc, mp_str id)
{
    mp_node_record record;
    if (!mp_id_is(id))
        return 0;
    uint16_t number = mp_id_number(rpc->processes, id);
    if (number == mp_processes_number(rpc->processes))
        return 0;
    return mp_processes_has(rpc->processes, number) || mp_hop_finds_node(rpc, number, &record) ? number : 0;
}

uint16_t mp_hop_unseen_of(const mp_rpc *rpc, mp_str id)
{
    uint16_t numbers[MP_SEAL_KEYS];
    int count = mp_id_numbers(rpc->processes, id, numbers);
    for (int i = 0; i < count; i++)
        if (numbers[i] != 0 && !mp_hop_has_no_node(rpc, numbers[i]))
            return numbers[i];
    return 0;
}

/* mp_hop_unseen_of() for a request. One that came from another process goes to no node. While the server is away an
 * older process sends to the newest one what may be of a process on trial. */
static uint16_t unseen_of(const mp_rpc *rpc, mp_str id)
{
    if (rpc->hop != NULL || mp_processes_node_keys(rpc->processes) == NULL || !mp_id_is(id) ||
        mp_id_number(rpc->processes, id) == mp_processes_number(rpc->processes))
        return 0;
    bool is_away = mp_nodes_away_ms(MP_NEVER_NULL(mp_processes_nodes(rpc->processes))) > 0;
    return is_away && !mp_processes_is_newest(rpc->processes) ? 0 : mp_hop_unseen_of(rpc, id);
}

/* The number of the newest process, if that is another one; else 0. */
static uint16_t newest_of(const mp_rpc *rpc)
{
    uint16_t newest = mp_processes_newest(rpc->processes);
    return mp_processes_has(rpc->processes, newest) ? newest : 0;
}

/* The number of the process that has a session; 0: this one, or none. The session's id says which process made it,
 * with two exceptions, if no other node has that process. An older process does not know a process that is on trial,
 * and asks the newest one, which does. And a revived session has an id of a process that has ended: the first process
 * has such sessions, while it lives. */
static uint16_t session_process(mp_rpc *rpc, mp_str id)
{
    if (!mp_id_is(id) || mp_session_is_known(rpc, id))
        return 0;
    bool is_newest = mp_processes_is_newest(rpc->processes);
    if (!is_newest && (rpc->hop != NULL || mp_id_number(rpc->processes, id) == mp_processes_number(rpc->processes)))
        return 0;
    uint16_t other = mp_hop_other_of(rpc, id);
    if (other == 0)
        other = unseen_of(rpc, id);
    if (other == 0)
        other = is_newest ? mp_processes_first(rpc->processes) : newest_of(rpc);
    return other;
}

static bool enter_params(MP_UNUSED void *ctx, unsigned level, mp_str key)
{
    return level == 1 && mp_str_is(key, "params");
}

static int take_state(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    mp_str *state = ctx;
    if (level == 2 && type == MP_JSON_STRING && mp_str_is(key, "requestState"))
        *state = (mp_str){value.ptr + 1, value.len - 2};
    return 0;
}

/* The id at the beginning of params.requestState: the id of the process that has the state (calls/client_request.lua);
 * empty if there is none. */
static mp_str id_of_state(mp_str body)
{
    static const char name[] = "\"requestState\"";
    mp_str state = MP_STR_NONE;
    const mp_json_visitor visitor = {enter_params, take_state, &state, NULL};
    if (body.len == 0 || memmem(body.ptr, body.len, name, sizeof name - 1) == NULL ||
        mp_json_scan(body, &visitor, NULL, NULL) != MP_JSON_OK || state.len <= MP_ID || state.ptr[MP_ID] != '.')
        return MP_STR_NONE;
    return (mp_str){state.ptr, MP_ID};
}

/* True if a living process made the id, or may have, and `number` is its number, or 0 if that is this one. */
static bool find_maker(const mp_rpc *rpc, mp_str id, uint16_t *number)
{
    *number = mp_hop_other_of(rpc, id);
    if (*number == 0)
        *number = unseen_of(rpc, id);
    return *number != 0 || (mp_id_is(id) && mp_id_number(rpc->processes, id) == mp_processes_number(rpc->processes));
}

static int take_method(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    bool *begins = ctx;
    if (level == 1 && type == MP_JSON_STRING && mp_str_is(key, "method"))
        *begins = mp_str_is(value, "\"initialize\"");
    return 0;
}

/* True if the message begins a session, which would end with this process. A subscription is served here: it ends with
 * its result when this process leaves, and one that was sent on would be cut off. */
static bool begins_session(mp_str body)
{
    bool begins = false;
    const mp_json_visitor visitor = {NULL, take_method, &begins, NULL};
    mp_json_scan(body, &visitor, NULL, NULL);
    return begins;
}

/* The number of a node that takes sessions, if this one leaves; else 0. */
static uint16_t successor_of(const mp_rpc *rpc)
{
    mp_node_record record;
    const mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    bool may_send = nodes != NULL && mp_nodes_is_leaving(nodes) && rpc->hop == NULL && !rpc->draining &&
                    mp_processes_node_keys(rpc->processes) != NULL && mp_nodes_choose(nodes, &record);
    return may_send ? record.number : 0;
}

static uint16_t find_for_mcp(mp_rpc *rpc, const mp_stream *stream, bool is_post, mp_str *session)
{
    int count, names;
    uint16_t number;
    mp_str id = mp_stream_known_header(stream, MP_HEADER_MCP_SESSION_ID, &count);
    if (count == 1) {
        *session = id;
        return session_process(rpc, id);
    }
    if (count > 1 || !is_post)
        return 0;
    mp_str name = mp_str_trim(mp_stream_known_header(stream, MP_HEADER_MCP_NAME, &names)); /* name of a task: its id */
    if ((names == 1 && find_maker(rpc, name, &number)) ||
        find_maker(rpc, id_of_state(mp_stream_request(stream)->body), &number))
        return number;
    number = newest_of(rpc);
    if (number == 0 && (number = successor_of(rpc)) != 0 && !begins_session(mp_stream_request(stream)->body))
        number = 0;
    return number;
}

uint16_t mp_hop_find_process(mp_rpc *rpc, const mp_stream *stream, mp_hop_endpoint endpoint, mp_str *session)
{
    const mp_request *request = mp_stream_request(stream);
    bool is_post = mp_str_is(request->method, "POST"), is_get = mp_str_is(request->method, "GET");
    int count;
    uint16_t number;
    *session = MP_STR_NONE;
    switch (endpoint) {
    case MP_HOP_MCP:
        return is_post || is_get || mp_str_is(request->method, "DELETE") ? find_for_mcp(rpc, stream, is_post, session)
                                                                         : 0;
    case MP_HOP_SSE:
        number = is_get ? newest_of(rpc) : 0;
        return is_get && number == 0 ? successor_of(rpc) : number;
    default:
        *session = mp_query_value(request->query, "session_id", &count);
        return is_post && count == 1 ? session_process(rpc, *session) : 0;
    }
}
