/* nodes.c: requests for processes of other nodes: whether they may be sent, by what is known of the process. What
 * is not known is found out first: a number that no read of the records has shown, by a question to the server; whether
 * a process lives whose record is stale, by a question to it. The request waits for that, and is then served as if it
 * had just come.
 *
 * All that decides is the number, so that unknown, foreign and ended ids of one number take the same way. */
#include "edge.h"

MP_LABELLED_COUNTER(forwards, "moonpool_forwards", 64 * MP_FORWARDS, "requests that were sent on to other nodes",
                    "node", "outcome")

MP_HISTOGRAM(forward_duration, "moonpool_forward_duration_seconds", mp_bounds_call, 64,
             "time until the answer of another node begins", "node")

/* ms since the records cannot be read, in which a process may have joined that no read has shown: its clients may try
 * again. Later a number that no record has is that of no process. */
#define AWAY_MS 10000
#define KNOWN_MS 2000 /* ms for which it counts that a process lives or not */
#define GONE_MS 10000 /* ms for which it counts for its record that it does not: another worker may have asked it */
#define READ_MS 1000  /* ms that a request waits for the answer of the server */
/* ms that a request waits until a process was asked whether it lives, which takes twice NODE_ALIVE_MS */
#define ASKED_MS 2500
#define PEEK_MS 10 /* ms between two looks at the requests that wait */

typedef struct {
    mp_link link; /* in hops->waiting */
    mp_rpc *rpc;
    mp_stream *stream;       /* counted reference */
    mp_principal *principal; /* counted reference */
    uint64_t until_ms;
    uint16_t number;
    bool is_for_record; /* it waits for the server; else for the process to answer */
} waiting_request;

static const char unknown[] = "it is not known whether another node has this session: try again";

/* -- what is known ------------------------------------------------------------------------------------------------- */

/* The peer of a number; NULL: there is none. */
static mp_node_peer *MP_NULLABLE find_peer(const mp_hops *hops, uint16_t number)
{
    mp_node_peer *peers = hops->node_peers;
    for (int i = 0; peers != NULL && i < hops->node_peer_count; i++)
        if (peers[i].number == number)
            return &peers[i];
    return NULL;
}

/* A place for another peer: a free one, or that of the peer that was not looked for for longest. */
static mp_node_peer *find_place(mp_hops *hops)
{
    mp_node_peer *peers = hops->node_peers, *oldest = peers;
    if (peers == NULL)
        peers = hops->node_peers = mp_new(MP_NODES_MOST * sizeof *peers);
    if (hops->node_peer_count < MP_NODES_MOST)
        return &peers[hops->node_peer_count++];
    for (int i = 1; i < MP_NODES_MOST; i++)
        if (oldest->is_asked || (!peers[i].is_asked && peers[i].used_ms < oldest->used_ms))
            oldest = &peers[i];
    return oldest;
}

mp_node_peer *mp_node_peer_of(mp_hops *hops, uint16_t number, const char *uid)
{
    mp_node_peer *peer = find_peer(hops, number);
    if (peer == NULL || strcmp(peer->uid, uid) != 0) {
        peer = peer == NULL ? find_place(hops) : peer;
        *peer = (mp_node_peer){.number = number};
        snprintf(peer->uid, sizeof peer->uid, "%s", uid);
    }
    peer->used_ms = mp_monotonic_ms();
    return peer;
}

bool mp_node_peer_is_silent(const mp_node_peer *peer)
{
    return peer->silent_ms > peer->heard_ms;
}

bool mp_hop_finds_node(const mp_rpc *rpc, uint16_t number, mp_node_record *record)
{
    const mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    if (rpc->hop != NULL || nodes == NULL || mp_processes_node_keys(rpc->processes) == NULL ||
        mp_nodes_find(nodes, number, record) == MP_NODE_NONE)
        return false;
    const mp_node_peer *peer = find_peer(rpc->hops, number);
    return peer == NULL || !peer->is_over || strcmp(peer->uid, record->uid) != 0;
}

bool mp_hop_has_no_node(const mp_rpc *rpc, uint16_t number)
{
    mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    if (nodes == NULL || mp_processes_node_keys(rpc->processes) == NULL)
        return true;
    mp_node_record record;
    if (mp_nodes_find(nodes, number, &record) != MP_NODE_NONE)
        return !mp_hop_finds_node(rpc, number, &record);
    uint64_t away = mp_nodes_away_ms(nodes);
    if (away > 0)
        return away >= AWAY_MS;
    if (mp_nodes_has_none(nodes, number))
        return true;
    mp_nodes_ask(nodes, number);
    return false;
}

bool mp_hop_is_gone(mp_rpc *rpc, mp_str id, mp_str uid)
{
    mp_node_record record;
    uint16_t number = mp_id_number(rpc->processes, id);
    mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    if (nodes == NULL || mp_processes_node_keys(rpc->processes) == NULL)
        return true;
    if (!mp_nodes_are_sure(nodes))
        return false;
    mp_node_state state = mp_nodes_find(nodes, number, &record);
    if (state == MP_NODE_NONE)
        return mp_hop_unseen_of(rpc, id) == 0;
    const mp_node_peer *peer = mp_node_peer_of(rpc->hops, number, record.uid);
    if ((peer->is_over && !peer->has_left) || (uid.len > 0 && !mp_str_is(uid, record.uid)))
        return true;
    bool is_silent = mp_node_peer_is_silent(peer) && mp_monotonic_ms() < peer->silent_ms + KNOWN_MS;
    if (state == MP_NODE_STALE && !is_silent)
        mp_hops_ask_node(rpc, &record);
    return state == MP_NODE_STALE && is_silent;
}

/* The last answer, or, for `gone_ms`, that there was none. */
static mp_node_life life_of(const mp_node_peer *peer, uint64_t gone_ms)
{
    bool is_silent = mp_node_peer_is_silent(peer);
    uint64_t last = is_silent ? peer->silent_ms : peer->heard_ms;
    if (peer->is_over)
        return MP_NODE_IS_GONE;
    if (peer->is_asked || last == 0 || mp_monotonic_ms() >= last + (is_silent ? gone_ms : KNOWN_MS))
        return MP_NODE_MAY_LIVE;
    return is_silent ? MP_NODE_IS_GONE : MP_NODE_LIVES;
}

mp_node_life mp_rpc_ask_node(mp_rpc *rpc, uint16_t number)
{
    mp_node_record record;
    const mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    if (mp_processes_has(rpc->processes, number))
        return MP_NODE_LIVES;
    if (nodes == NULL || mp_nodes_find(nodes, number, &record) == MP_NODE_NONE)
        return MP_NODE_MAY_LIVE;
    mp_node_life life = life_of(mp_node_peer_of(rpc->hops, number, record.uid), GONE_MS);
    if (life != MP_NODE_MAY_LIVE)
        return life;
    return mp_hops_ask_node(rpc, &record) ? MP_NODE_MAY_LIVE : MP_NODE_IS_GONE; /* its address is none */
}

/* -- requests that wait -------------------------------------------------------------------------------------------- */

void mp_hop_refuse_later(mp_rpc *rpc, mp_stream *stream, unsigned seconds, const char *why)
{
    mp_stat_add(&mp_stat_refused_hops, 1);
    mp_refuse_for(rpc, stream, MP_CAUSE_HOP, 503, seconds, why);
}

unsigned mp_hop_retry_s(void)
{
    return 1 + (unsigned)(mp_monotonic_us() % 3);
}

/* Frees it, but for its references, which the caller gets. */
static void end_waiting(waiting_request *it)
{
    mp_link_drop(&it->link);
    mp_stream_on_gone(it->stream, NULL, NULL);
    it->rpc->hops->count--;
    mp_stat_add(&mp_stat_hops, -1);
    free(it);
}

static void on_client_left(void *ctx, mp_stream *stream)
{
    waiting_request *it = ctx;
    mp_principal *principal = it->principal;
    end_waiting(it);
    mp_principal_unref(principal);
    mp_stream_unref(stream);
}

/* `why`: NULL, and the request is served; or the reason why it is refused. */
static void settle_request(waiting_request *it, const char *MP_NULLABLE why)
{
    mp_rpc *rpc = it->rpc;
    mp_stream *stream = it->stream;
    mp_principal *principal = it->principal;
    end_waiting(it);
    if (why == NULL)
        rpc->hops->serve(rpc, stream, principal);
    else
        mp_hop_refuse_later(rpc, stream, mp_hop_retry_s(), why);
    mp_principal_unref(principal);
    mp_stream_unref(stream);
}

/* True if what the request waits for is known. */
static bool is_found_out(const waiting_request *it, const mp_nodes *nodes)
{
    mp_node_record record;
    const mp_node_peer *peer = find_peer(it->rpc->hops, it->number);
    if (!it->is_for_record)
        return peer == NULL || !peer->is_asked;
    return mp_nodes_has_none(nodes, it->number) || mp_nodes_find(nodes, it->number, &record) != MP_NODE_NONE;
}

static void peek(mp_timer *timer)
{
    mp_hops *hops = mp_container(timer, mp_hops, peek);
    const mp_nodes *nodes = MP_NEVER_NULL(mp_processes_nodes(hops->rpc->processes));
    uint64_t now = mp_monotonic_ms();
    mp_link all = {0};
    mp_link_move(&hops->waiting, &all);
    MP_EACH_TAKEN(waiting_request, it, &all, link) {
        mp_link_put(&hops->waiting, &it->link);
        if (is_found_out(it, nodes))
            settle_request(it, NULL);
        else if (now >= it->until_ms || (it->is_for_record && mp_nodes_away_ms(nodes) > 0))
            settle_request(it, unknown);
    }
    if (!mp_link_is_alone(&hops->waiting))
        mp_timer_start(hops->rpc->loop, &hops->peek, PEEK_MS, peek);
}

static void wait_for(mp_rpc *rpc, mp_stream *stream, uint16_t number, bool is_for_record, uint64_t ms)
{
    mp_hops *hops = rpc->hops;
    waiting_request *it = mp_new(sizeof *it);
    *it = (waiting_request){.rpc = rpc,
                            .stream = mp_stream_ref(stream),
                            .principal = mp_principal_ref(rpc->principal),
                            .until_ms = mp_monotonic_ms() + ms,
                            .number = number,
                            .is_for_record = is_for_record};
    mp_link_put(&hops->waiting, &it->link);
    hops->count++;
    mp_stat_add(&mp_stat_hops, 1);
    if (hops->peek.slot == 0)
        mp_timer_start(rpc->loop, &hops->peek, PEEK_MS, peek);
    mp_stream_on_gone(stream, on_client_left, it);
    mp_stream_detect_close(stream);
}

void mp_hops_end_waiting(mp_rpc *rpc, bool with_answer)
{
    mp_hops *hops = rpc->hops;
    mp_link all = {0};
    mp_timer_stop(rpc->loop, &hops->peek);
    mp_link_move(&hops->waiting, &all);
    MP_EACH_TAKEN(waiting_request, it, &all, link) {
        mp_link_put(&hops->waiting, &it->link);
        if (with_answer)
            settle_request(it, "the gateway is stopping");
        else
            on_client_left(it, it->stream);
    }
}

/* -- the choice ---------------------------------------------------------------------------------------------------- */

/* No record has the number. */
static mp_node_way choose_without(mp_rpc *rpc, mp_stream *stream, mp_nodes *nodes, uint16_t number)
{
    if (mp_hop_has_no_node(rpc, number))
        return MP_NODE_HERE;
    if (mp_nodes_away_ms(nodes) == 0 && mp_nodes_ask(nodes, number))
        wait_for(rpc, stream, number, true, READ_MS);
    else
        mp_hop_refuse_later(rpc, stream, mp_hop_retry_s(), unknown);
    return MP_NODE_WAITS;
}

/* The record is stale. */
static mp_node_way choose_stale(mp_rpc *rpc, mp_stream *stream, const mp_node_record *record, const mp_node_peer *peer)
{
    mp_node_life life = life_of(peer, KNOWN_MS);
    if (life != MP_NODE_MAY_LIVE)
        return life == MP_NODE_LIVES ? MP_NODE_SEND : MP_NODE_HERE;
    if (mp_hops_ask_node(rpc, record))
        wait_for(rpc, stream, record->number, false, ASKED_MS);
    else
        mp_hop_refuse_later(rpc, stream, mp_hop_retry_s(), unknown);
    return MP_NODE_WAITS;
}

mp_node_way mp_hop_choose_node(mp_rpc *rpc, mp_stream *stream, uint16_t number, mp_node_record *record)
{
    mp_nodes *nodes = MP_NEVER_NULL(mp_processes_nodes(rpc->processes));
    if (rpc->hops->count >= MP_HOPS_MOST) {
        mp_hop_refuse_later(rpc, stream, 1, "too many requests for other processes: try again later");
        return MP_NODE_WAITS;
    }
    mp_node_state state = mp_nodes_find(nodes, number, record);
    if (state == MP_NODE_NONE)
        return choose_without(rpc, stream, nodes, number);
    const mp_node_peer *peer = mp_node_peer_of(rpc->hops, number, record->uid);
    if (peer->is_over)
        return MP_NODE_HERE;
    if (state == MP_NODE_STALE)
        return choose_stale(rpc, stream, record, peer);
    if (!mp_node_peer_is_silent(peer))
        return MP_NODE_SEND;
    mp_hops_ask_node(rpc, record);
    mp_hop_refuse_later(rpc, stream, mp_hop_retry_s(), "the node of this session does not answer: try again");
    return MP_NODE_WAITS;
}

/* -- what is reported ---------------------------------------------------------------------------------------------- */

void mp_hop_report_unreached(const mp_passage *passage)
{
    const mp_node_record *node = passage->receiver;
    const mp_transfer *transfer = passage->transfer;
    const mp_err *why = transfer == NULL ? NULL : mp_transfer_failure(transfer);
    if (node == NULL || why == NULL)
        return;
    mp_node_peer *peer = mp_node_peer_of(passage->rpc->hops, passage->to, node->uid);
    if (!peer->is_unreached)
        mp_log(MP_WARN, "node not reached", mp_log_str("node", mp_str_of(node->node)),
               mp_log_str("address", mp_str_of(node->address)), mp_log_str("why", mp_str_of(why->text)));
    peer->is_unreached = true;
    mp_nodes_note_reached(MP_NEVER_NULL(mp_processes_nodes(passage->rpc->processes)), passage->to, false);
}

void mp_hop_count_forward(const mp_passage *passage)
{
    static const char *const names[MP_FORWARDS] = {"left", "answered", "unreached", "lost", "over"};
    const mp_node_record *node = passage->receiver;
    if (node == NULL)
        return;
    mp_node_peer *peer = mp_node_peer_of(passage->rpc->hops, passage->to, node->uid);
    mp_series *series = &peer->forwards[passage->end];
    const mp_str labels[] = {mp_str_of(node->node), mp_str_of(names[passage->end])};
    if (*series == 0)
        *series = mp_series_of(&mp_family_forwards, labels);
    mp_series_add(*series, 1);
    if (passage->end != MP_FORWARD_ANSWERED)
        return;
    peer->is_unreached = false;
    mp_nodes_note_reached(MP_NEVER_NULL(mp_processes_nodes(passage->rpc->processes)), passage->to, true);
    if (peer->duration == 0)
        peer->duration = mp_series_of(&mp_family_forward_duration, labels);
    mp_series_observe(peer->duration, &mp_bounds_call, (double)(passage->answered_us - passage->began_us));
}
