/* errands.c: requests of the gateway itself to another of its processes, or to another node (errands): messages
 * about tasks, what operators switch, and the question whether a process that lets requests wait is alive, since a
 * suspended process neither refuses nor ends them. */
#include "edge.h"

MP_COUNTER(hops_silent, "hops_silent", "", "",
           "processes of the gateway that did not answer when they were asked whether they live")

MP_REFUSED(refused_task_messages, "task_messages", MP_LIMIT_REACHED,
           "messages to tasks of other processes of the gateway that do not answer, or for which there was no room")
MP_ACCOUNT(task_message_bytes, "task_message_bytes", "", "",
           "bytes of messages to tasks on their way to another process of the gateway")

#define LOOK_MS 250
/* ms without bytes for a request, after which its process is asked whether it is alive. A request that its process has
 * not begun by then is no longer begun */
#define QUIET_MS MP_HOP_OLDEST_MS
/* ms within which a process says that it lives: one of this node, whose workers may be busy for less, and one of
 * another node, of which its record in Redis says that, too */
#define ALIVE_MS 5000
#define NODE_ALIVE_MS 1000
/* ms within which a message must be taken, else it is sent again: that it comes twice changes nothing */
#define MESSAGE_MS 10000
#define AGAIN_MS 1000 /* ms before a message that was not accepted is sent again */
#define KEPT_MS 60000 /* ms for which a message is sent again, while its process is alive */

typedef struct {
    mp_link link;                      /* in hops->errands */
    mp_transfer *MP_NULLABLE transfer; /* NULL: it is sent again later */
    char *MP_NULLABLE body;            /* owned; NULL: the question whether the process lives */
    size_t len;
    uint16_t to;
    mp_node_record *MP_NULLABLE receiver; /* owned: the process is of another node; NULL: of this one */
    mp_rpc *rpc;
    mp_hop_endpoint endpoint;
    mp_node_round *MP_NULLABLE round; /* borrowed: gets the answer at `place`; the message is not sent again then */
    int place;
    bool is_second;              /* the question is asked a second time: one that is lost proves nothing */
    uint64_t since_ms, began_ms; /* since_ms: when it was sent first; began_ms: when it was sent last, or failed */
} errand;

/* -- sending ------------------------------------------------------------------------------------------------------- */

static void on_news(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    const errand *it = ctx;
    it->rpc->hops->has_news = true;
}

/* Makes the line of the header, of a message. False if OpenSSL fails. */
static bool put_header(mp_rpc *rpc, const errand *it, mp_buf *line)
{
    const mp_node_record *node = it->receiver;
    mp_hop hop = {.to = it->to,
                  .endpoint = it->endpoint,
                  .hops = 1,
                  .sent_ms = mp_hop_now_ms(node != NULL ? mp_processes_nodes(rpc->processes) : NULL),
                  .body = it->len,
                  .method = MP_STR("POST"),
                  .principal = mp_principal_id(mp_nobody)};
    if (node != NULL)
        memcpy(hop.uid, node->uid, sizeof hop.uid);
    mp_buf_put(line, MP_STR(MP_HOP_HEADER ": "));
    bool is_done = it->body == NULL || mp_hop_write(mp_hop_keys_for(rpc, node != NULL), &hop, line);
    mp_buf_putc(line, '\0');
    return is_done;
}

/* Sends the errand. False if that cannot be. */
static bool send_errand(mp_rpc *rpc, errand *it)
{
    mp_hop_way way;
    mp_outgoing outgoing = {0};
    mp_err err = {0};
    mp_scoped_buf header = {0}, url = {0};
    bool is_message = it->body != NULL;
    const mp_node_record *node = it->receiver;
    it->began_ms = mp_monotonic_ms();
    if (put_header(rpc, it, &header) && mp_hop_find_way(rpc, it->to, it->receiver, &way, &outgoing)) {
        const char *const lines[] = {"Content-Type: application/json", header.ptr, NULL}, *const none[] = {NULL};
        mp_buf_printf(&url, "%s%s", way.base, is_message ? mp_hop_paths[it->endpoint] : MP_HOP_ALIVE);
        if (!is_message && node != NULL) /* another process may have the address by now */
            mp_buf_printf(&url, "?number=%u&uid=%s", (unsigned)it->to, node->uid);
        mp_buf_putc(&url, '\0');
        outgoing.method = is_message ? "POST" : "GET";
        outgoing.url = url.ptr;
        outgoing.headers = is_message ? lines : none;
        if (is_message)
            outgoing.body = (mp_str){it->body, it->len};
        outgoing.most = 4096;
        outgoing.is_stream = true;
        outgoing.connect_ms = it->receiver == NULL ? ALIVE_MS : NODE_ALIVE_MS;
        outgoing.ready = on_news;
        outgoing.ctx = it;
        it->transfer = mp_transfer_start(rpc->hops->client, &outgoing, &err);
        mp_tls_unref(way.tls);
    }
    return it->transfer != NULL;
}

static void settle_answer(errand *it, bool is_taken)
{
    mp_node_round *round = it->round;
    const mp_transfer *transfer = it->transfer;
    if (round == NULL)
        return;
    it->round = NULL;
    round->answers[it->place].is_taken = is_taken;
    mp_nodes_note_reached(MP_NEVER_NULL(mp_processes_nodes(it->rpc->processes)), it->to,
                          transfer != NULL && mp_transfer_status(transfer) != 0);
    if (--round->left == 0)
        round->done(round->ctx);
}

static void free_errand(errand *it)
{
    settle_answer(it, false);
    mp_link_drop(&it->link);
    mp_transfer_free(it->transfer);
    if (it->body != NULL)
        mp_account_give(&mp_account_task_message_bytes, (int64_t)it->len);
    free(it->body);
    free(it->receiver);
    free(it);
}

/* Begins an errand like `as`: takes ownership of its body, which is counted, and copies its receiver. False if it
 * cannot be sent. */
static bool begin_errand(mp_rpc *rpc, const errand *as)
{
    errand *it = mp_new(sizeof *it);
    const mp_node_record *receiver = as->receiver;
    *it = *as;
    it->rpc = rpc;
    it->since_ms = mp_monotonic_ms();
    if (receiver != NULL)
        it->receiver = memcpy(mp_new(sizeof *receiver), receiver, sizeof *receiver);
    if (!send_errand(rpc, it)) {
        free_errand(it);
        return false;
    }
    mp_link_put(&rpc->hops->errands, &it->link);
    mp_hops_watch(rpc);
    return true;
}

/* -- whether processes live ---------------------------------------------------------------------------------------- */

static mp_hop_peer *MP_NULLABLE find_peer(mp_hops *hops, uint16_t number)
{
    for (int i = 0; i <= MP_OLDER_MOST; i++)
        if (hops->peers[i].number == number)
            return &hops->peers[i];
    return NULL;
}

/* Asks whether the process lives; not while a question waits for its answer. */
static void ask_process(mp_rpc *rpc, uint16_t number)
{
    mp_hop_peer *peer = find_peer(rpc->hops, number);
    if (peer == NULL && (peer = find_peer(rpc->hops, 0)) != NULL)
        *peer = (mp_hop_peer){.number = number};
    if (peer != NULL && !peer->is_asked)
        peer->is_asked = begin_errand(rpc, &(errand){.to = number});
}

bool mp_hops_are_silent(mp_rpc *rpc, uint16_t number)
{
    bool is_silent;
    mp_processes_heard(rpc->processes, number, &is_silent);
    if (is_silent)
        ask_process(rpc, number);
    return is_silent;
}

bool mp_hops_ask_node(mp_rpc *rpc, const mp_node_record *node)
{
    mp_node_peer *peer = mp_node_peer_of(rpc->hops, node->number, node->uid);
    if (!peer->is_asked)
        peer->is_asked =
            begin_errand(rpc, &(errand){.to = node->number, .receiver = (mp_node_record *)(uintptr_t)node});
    return peer->is_asked;
}

static void take_answer_of_node(mp_rpc *rpc, const errand *it, const mp_node_record *node, bool is_alive)
{
    mp_node_peer *peer = mp_node_peer_of(rpc->hops, node->number, node->uid);
    const mp_transfer *transfer = it->transfer;
    bool was_silent = mp_node_peer_is_silent(peer);
    peer->is_asked = false;
    if (transfer != NULL && mp_transfer_status(transfer) == 421) {
        peer->is_over = true;
        peer->has_left = false;
    }
    *(is_alive ? &peer->heard_ms : &peer->silent_ms) = mp_monotonic_ms();
    mp_nodes_note_reached(MP_NEVER_NULL(mp_processes_nodes(rpc->processes)), node->number, is_alive);
    if (is_alive || was_silent || peer->is_over)
        return;
    mp_stat_add(&mp_stat_hops_silent, 1);
    mp_log(MP_WARN, "node does not answer", mp_log_str("node", mp_str_of(node->node)),
           mp_log_str("address", mp_str_of(node->address)));
}

static void take_answer(mp_rpc *rpc, const errand *it, bool is_alive)
{
    const mp_node_record *node = it->receiver;
    if (node != NULL) {
        take_answer_of_node(rpc, it, node, is_alive);
        return;
    }
    mp_hop_peer *peer = find_peer(rpc->hops, it->to);
    if (peer != NULL)
        peer->is_asked = false;
    if (mp_processes_note_heard(rpc->processes, it->to, it->began_ms, is_alive)) {
        mp_stat_add(&mp_stat_hops_silent, 1);
        mp_log(MP_WARN, "process does not answer", mp_log_int("number", it->to));
    }
}

/* Bytes of an answer say that a process lives, as an answer to the question would. */
static void note_bytes(mp_rpc *rpc, const mp_passage *passage, uint64_t now)
{
    const mp_node_record *node = passage->receiver;
    const mp_transfer *transfer = passage->transfer;
    if (transfer == NULL || mp_transfer_status(transfer) == 0 || now - passage->heard_ms >= QUIET_MS)
        return;
    if (node == NULL) {
        if (now - passage->heard_ms <= (uint64_t)2 * LOOK_MS)
            mp_processes_note_heard(rpc->processes, passage->to, now, true);
        return;
    }
    mp_node_peer *peer = mp_node_peer_of(rpc->hops, passage->to, node->uid);
    if (peer->heard_ms < passage->heard_ms)
        peer->heard_ms = passage->heard_ms;
}

/* As look_at, for a process of another node. */
static void look_at_forward(mp_rpc *rpc, mp_passage *passage, const mp_node_record *node, uint64_t now)
{
    const mp_node_peer *peer = mp_node_peer_of(rpc->hops, passage->to, node->uid);
    if (mp_node_peer_is_silent(peer) && now - passage->heard_ms >= MP_HOP_GIVEN_UP_MS)
        mp_passage_end(passage);
    else if (now > peer->heard_ms + QUIET_MS)
        mp_hops_ask_node(rpc, node);
}

/* No bytes have come for this request for a while: ends it if its process is not alive, or asks whether the process is.
 */
static void look_at(mp_rpc *rpc, mp_passage *passage, uint64_t now)
{
    const mp_node_record *node = passage->receiver;
    if (node != NULL && passage->transfer != NULL) {
        look_at_forward(rpc, passage, node, now);
        return;
    }
    bool is_silent;
    uint64_t heard_ms = mp_processes_heard(rpc->processes, passage->to, &is_silent);
    if (passage->transfer == NULL)
        return;
    if (is_silent)
        mp_passage_end(passage);
    else if (heard_ms == 0 || now > heard_ms + QUIET_MS)
        ask_process(rpc, passage->to);
}

/* -- the look ------------------------------------------------------------------------------------------------------ */

/* Asks a process of another node a second time. False if that was done, or cannot be. */
static bool ask_again(mp_rpc *rpc, errand *it)
{
    if (it->receiver == NULL || it->is_second)
        return false;
    it->is_second = true;
    mp_transfer_free(it->transfer);
    it->transfer = NULL;
    return send_errand(rpc, it);
}

/* The errand is over. A message that was not taken is sent again later, while its process lives. */
static void end_errand(mp_rpc *rpc, errand *it, bool is_good, uint64_t now)
{
    mp_node_record record;
    const mp_transfer *transfer = it->transfer;
    if (it->body == NULL) {
        bool is_answered = transfer != NULL && mp_transfer_status(transfer) != 0;
        if (!is_answered && ask_again(rpc, it))
            return;
        take_answer(rpc, it, is_good);
    } else if (it->endpoint == MP_HOP_SWITCH) {
        settle_answer(it, is_good);
    } else if (!is_good && (mp_processes_has(rpc->processes, it->to) || mp_hop_finds_node(rpc, it->to, &record))) {
        if (now - it->since_ms < KEPT_MS) {
            mp_transfer_free(it->transfer);
            it->transfer = NULL;
            it->began_ms = now;
            return;
        }
        mp_log(MP_ERROR, "message to a task not delivered", mp_log_int("number", it->to));
    }
    free_errand(it);
}

/* ms until the errand is over without an answer. */
static uint64_t time_of(const errand *it)
{
    if (it->endpoint == MP_HOP_SWITCH || (it->body == NULL && it->receiver != NULL))
        return NODE_ALIVE_MS;
    return it->body != NULL ? MESSAGE_MS : ALIVE_MS;
}

static void look_at_errand(mp_rpc *rpc, errand *it, uint64_t now)
{
    uint64_t age = now > it->began_ms ? now - it->began_ms : 0;
    const mp_transfer *transfer = it->transfer;
    if (transfer == NULL) {
        if (age >= AGAIN_MS && !send_errand(rpc, it))
            end_errand(rpc, it, false, now);
        return;
    }
    int status = mp_transfer_status(transfer);
    if (mp_transfer_is_over(transfer))
        end_errand(rpc, it, mp_transfer_failure(transfer) == NULL && status >= 200 && status < 300, now);
    else if (age >= time_of(it))
        end_errand(rpc, it, false, now);
}

static void look_at_errands(mp_rpc *rpc, uint64_t now)
{
    mp_hops *hops = rpc->hops;
    MP_EACH(errand, each, &hops->errands, link)
        look_at_errand(rpc, each, now);
}

/* Asks the processes of other nodes that do not answer, and whose records say that they live, once more. */
static bool look_at_node_peers(mp_rpc *rpc)
{
    mp_hops *hops = rpc->hops;
    mp_node_record record;
    bool has_some = false;
    const mp_node_peer *peers = hops->node_peers;
    for (int i = 0; peers != NULL && i < hops->node_peer_count; i++) {
        const mp_node_peer *peer = &peers[i];
        if (!mp_node_peer_is_silent(peer) || peer->is_over ||
            mp_nodes_find(MP_NEVER_NULL(mp_processes_nodes(rpc->processes)), peer->number, &record) != MP_NODE_FRESH ||
            strcmp(peer->uid, record.uid) != 0)
            continue;
        mp_hops_ask_node(rpc, &record);
        has_some = true;
    }
    return has_some;
}

/* Asks the processes that do not answer once more. True if there are some. */
static bool look_at_peers(mp_rpc *rpc)
{
    bool has_some = false;
    for (int i = 0; i <= MP_OLDER_MOST; i++) {
        mp_hop_peer *peer = &rpc->hops->peers[i];
        if (peer->number != 0 && !peer->is_asked && !mp_processes_has(rpc->processes, peer->number))
            *peer = (mp_hop_peer){0};
        has_some = (peer->number != 0 && mp_hops_are_silent(rpc, peer->number)) || has_some;
    }
    return has_some;
}

static void look(mp_timer *timer)
{
    mp_hops *hops = mp_container(timer, mp_hops, look);
    mp_rpc *rpc = hops->rpc;
    look_at_errands(rpc, mp_monotonic_ms());
    uint64_t now = mp_monotonic_ms(); /* read here, so that it is not before any time that is compared with it */
    MP_EACH(mp_passage, passage, &hops->all, link) {
        note_bytes(rpc, passage, now); /* of all, before one is judged */
    }
    MP_EACH(mp_passage, passage, &hops->all, link) {
        if (now - passage->heard_ms >= QUIET_MS)
            look_at(rpc, passage, now);
    }
    bool has_silent = look_at_peers(rpc);
    has_silent = look_at_node_peers(rpc) || has_silent;
    if (has_silent || hops->count > 0 || !mp_link_is_alone(&hops->errands))
        mp_timer_start(rpc->loop, &hops->look, LOOK_MS, look);
}

void mp_hops_turn_errands(mp_rpc *rpc)
{
    if (rpc->hops->has_news)
        look_at_errands(rpc, mp_monotonic_ms());
    rpc->hops->has_news = false;
}

void mp_hops_watch(mp_rpc *rpc)
{
    mp_hops *hops = rpc->hops;
    if (hops->look.slot == 0)
        mp_timer_start(rpc->loop, &hops->look, LOOK_MS, look);
}

void mp_hops_end_errands(mp_rpc *rpc)
{
    mp_hops *hops = rpc->hops;
    mp_timer_stop(rpc->loop, &hops->look);
    while (!mp_link_is_alone(&hops->errands))
        free_errand(mp_container(hops->errands.next, errand, link));
}

/* -- messages ------------------------------------------------------------------------------------------------------ */

static int64_t count_errands(const mp_hops *hops)
{
    int64_t count = 0;
    for (const mp_link *link = mp_link_first(&hops->errands); link != &hops->errands; link = link->next)
        count++;
    return count;
}

/* True if there are other processes of this node, or other nodes. */
static bool are_several(const mp_rpc *rpc)
{
    return mp_processes_are_several(rpc->processes) || mp_processes_nodes(rpc->processes) != NULL;
}

bool mp_rpc_is_elsewhere(const mp_rpc *rpc, mp_str id)
{
    return are_several(rpc) && mp_hop_other_of(rpc, id) != 0;
}

bool mp_rpc_is_orphan(mp_rpc *rpc, mp_str id, mp_str uid)
{
    const mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    if (!mp_id_is(id) || !mp_processes_is_newest(rpc->processes))
        return false;
    uint16_t number = mp_id_number(rpc->processes, id);
    if (number == mp_processes_number(rpc->processes))
        return nodes != NULL && uid.len > 0 && !mp_str_is(uid, mp_nodes_uid(nodes));
    return !mp_processes_has(rpc->processes, number) && mp_hop_is_gone(rpc, id, uid);
}

bool mp_hops_send_message(mp_rpc *rpc, uint16_t to, const mp_node_record *MP_NULLABLE receiver, mp_str text)
{
    bool is_taken = to != 0 && text.len > 0 && (receiver != NULL || !mp_hops_are_silent(rpc, to)) &&
                    count_errands(rpc->hops) < MP_ERRANDS_MOST &&
                    mp_account_take_posted(&mp_account_task_message_bytes, text.len);
    if (!is_taken)
        mp_stat_add(&mp_stat_refused_task_messages, 1);
    return is_taken && begin_errand(rpc, &(errand){.to = to,
                                                   .receiver = (mp_node_record *)(uintptr_t)receiver,
                                                   .body = mp_dup(text),
                                                   .len = text.len,
                                                   .endpoint = MP_HOP_TASK_MESSAGES});
}

bool mp_rpc_send_task_message(mp_rpc *rpc, mp_str id, mp_str text)
{
    mp_node_record record;
    uint16_t to = mp_hop_other_of(rpc, id);
    bool is_node = !mp_processes_has(rpc->processes, to) && mp_hop_finds_node(rpc, to, &record);
    return mp_hops_send_message(rpc, to, is_node ? &record : NULL, text);
}

mp_node_round *mp_rpc_tell_nodes(mp_rpc *rpc, mp_str text, void (*done)(void *ctx), void *ctx)
{
    const mp_nodes *nodes = mp_processes_nodes(rpc->processes);
    mp_node_record *records = mp_new(MP_NODES_MOST * sizeof *records);
    bool may_send = nodes != NULL && mp_processes_node_keys(rpc->processes) != NULL;
    int count = may_send ? mp_nodes_list(MP_NEVER_NULL(nodes), records) : 0;
    mp_node_round *round = mp_new(sizeof *round + (size_t)count * sizeof *round->answers);
    *round = (mp_node_round){.done = done, .ctx = ctx, .count = count, .left = count + 1};
    for (int i = 0; i < count; i++) {
        mp_node_record *to = &records[i];
        memcpy(round->answers[i].node, to->node, sizeof to->node);
        memcpy(round->answers[i].address, to->address, sizeof to->address);
        errand it = {.rpc = rpc,
                     .to = to->number,
                     .receiver = to,
                     .len = text.len,
                     .endpoint = MP_HOP_SWITCH,
                     .round = round,
                     .place = i};
        if (count_errands(rpc->hops) < MP_ERRANDS_MOST &&
            mp_account_take_posted(&mp_account_task_message_bytes, text.len)) {
            it.body = mp_dup(text);
            begin_errand(rpc, &it);
        } else {
            mp_stat_add(&mp_stat_refused_task_messages, 1);
            settle_answer(&it, false);
        }
    }
    free(records);
    if (--round->left == 0)
        done(ctx);
    return round;
}

void mp_rpc_free_round(mp_rpc *rpc, mp_node_round *round)
{
    MP_EACH(errand, it, &rpc->hops->errands, link) {
        if (it->round == round)
            it->round = NULL;
    }
    free(round);
}
