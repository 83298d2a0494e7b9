/* hop_errands.c: requests of the gateway's own to another of its processes: orders about tasks, and the question whether a process lives that lets
 * requests wait: one that stands still neither refuses nor ends them. */
#include "hop_edge.h"
#include <stdio.h>
#include <stdlib.h>

MP_COUNTER(hops_silent, "hops_silent", "", "",
           "processes of the gateway that did not answer when they were asked whether they live")

#define LOOK_MS 250
#define QUIET_MS                                                                                                       \
    MP_HOP_OLDEST_MS /* for which nothing came: the process is asked. What it has not begun by then it does not begin any more */
#define ALIVE_MS 5000     /* within which it must answer: longer than its workers may be busy */
#define ORDER_MS 10000    /* within which an order must be taken */
#define MOST_ERRANDS 1024 /* of one worker: beyond it orders are refused */

typedef struct {
    mp_link link; /* in hops->errands */
    mp_transfer *transfer;
    char *MP_NULLABLE body; /* owned; NULL: the question whether the process lives */
    uint16_t to;
    uint64_t began_ms;
} errand;

/* -- sending ------------------------------------------------------------------------------------------------------- */

/* It is looked at from time to time. */
static void on_news(mp_transfer *transfer, void *ctx)
{
    (void)transfer;
    (void)ctx;
}

/* Takes ownership of `body`. `sealed`: the value of the header, or empty. False if the request cannot be sent. */
static bool begin(mp_rpc *rpc, uint16_t to, const char *path, mp_str sealed, char *MP_NULLABLE body, size_t len)
{
    char socket[MP_PROCESS_PATH], url[64];
    mp_hops *hops = rpc->hops;
    mp_err err = {0};
    mp_buf header = {0};
    mp_transfer *transfer = NULL;
    mp_buf_printf(&header, MP_HOP_HEADER ": %.*s", MP_STR_ARG(sealed));
    mp_buf_putc(&header, '\0');
    const char *const lines[] = {"Accept:", "Content-Type: application/json", header.ptr, NULL};
    snprintf(url, sizeof url, "http://localhost%s", path);
    if (mp_processes_path(rpc->processes, to, "mcp", socket)) {
        const mp_outgoing outgoing = {.method = body == NULL ? "GET" : "POST",
                                      .url = url,
                                      .headers = lines,
                                      .body = body == NULL ? MP_STR_NONE : (mp_str){body, len},
                                      .most = 4096,
                                      .is_stream = true,
                                      .unix_path = socket,
                                      .connect_ms = ALIVE_MS,
                                      .ready = on_news};
        transfer = mp_transfer_start(hops->client, &outgoing, &err);
    }
    mp_buf_clear(&header);
    if (transfer == NULL) {
        free(body);
        return false;
    }
    errand *it = mp_new(sizeof *it);
    *it = (errand){.transfer = transfer, .body = body, .to = to, .began_ms = mp_monotonic_ms()};
    mp_link_init(&it->link);
    mp_link_put(&hops->errands, &it->link);
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

static mp_hop_peer *MP_NULLABLE need_peer(mp_hops *hops, uint16_t number)
{
    mp_hop_peer *peer = find_peer(hops, number);
    if (peer == NULL && (peer = find_peer(hops, 0)) != NULL)
        *peer = (mp_hop_peer){.number = number};
    return peer;
}

bool mp_hops_are_silent(const mp_hops *hops, uint16_t number)
{
    for (int i = 0; i <= MP_OLDER_MOST; i++)
        if (hops->peers[i].number == number)
            return hops->peers[i].is_silent;
    return false;
}

static void ask(mp_rpc *rpc, mp_hop_peer *peer)
{
    if (!peer->is_asked)
        peer->is_asked = begin(rpc, peer->number, MP_HOP_ALIVE, MP_STR_NONE, NULL, 0);
    peer->is_silent = peer->is_silent || !peer->is_asked;
}

static void take_answer(mp_hops *hops, uint16_t number, bool is_alive)
{
    mp_hop_peer *peer = find_peer(hops, number);
    if (peer == NULL)
        return;
    if (!is_alive && !peer->is_silent) {
        mp_stat_add(&mp_stat_hops_silent, 1);
        mp_log(MP_WARN, "process does not answer", mp_log_int("number", number));
    }
    peer->is_asked = false;
    peer->is_silent = !is_alive;
    if (is_alive)
        peer->alive_ms = mp_monotonic_ms();
}

/* Nothing has come for this request for a while: ends it if its process does not live, else asks whether it does. */
static void look_at(mp_rpc *rpc, mp_passage *passage, uint64_t now)
{
    mp_hop_peer *peer = need_peer(rpc->hops, passage->to);
    if (passage->transfer == NULL || peer == NULL || (peer->alive_ms != 0 && now - peer->alive_ms < QUIET_MS))
        return;
    if (peer->is_silent)
        mp_passage_end(passage);
    else
        ask(rpc, peer);
}

/* -- the look ------------------------------------------------------------------------------------------------------ */

static void end_errand(mp_hops *hops, errand *it, bool is_good)
{
    if (it->body == NULL)
        take_answer(hops, it->to, is_good);
    else if (!is_good)
        mp_log(MP_ERROR, "order to a task not delivered", mp_log_int("number", it->to),
               mp_log_int("status", mp_transfer_status(it->transfer)));
    mp_link_drop(&it->link);
    mp_transfer_free(it->transfer);
    free(it->body);
    free(it);
}

static void look_at_errands(mp_hops *hops, uint64_t now)
{
    for (mp_link *link = hops->errands.next, *next; link != &hops->errands; link = next) {
        next = link->next;
        errand *it = mp_container(link, errand, link);
        int status = mp_transfer_status(it->transfer);
        if (mp_transfer_is_over(it->transfer))
            end_errand(hops, it, mp_transfer_failure(it->transfer) == NULL && status >= 200 && status < 300);
        else if (now - it->began_ms >= (it->body == NULL ? ALIVE_MS : ORDER_MS))
            end_errand(hops, it, false);
    }
}

/* Asks again those that do not answer. True if there are some. */
static bool look_at_peers(mp_rpc *rpc)
{
    bool has_some = false;
    for (int i = 0; i <= MP_OLDER_MOST; i++) {
        mp_hop_peer *peer = &rpc->hops->peers[i];
        if (peer->number != 0 && !peer->is_asked && !mp_processes_has(rpc->processes, peer->number))
            *peer = (mp_hop_peer){0};
        if (peer->is_silent)
            ask(rpc, peer);
        has_some = has_some || peer->is_silent;
    }
    return has_some;
}

static void look(mp_timer *timer)
{
    mp_hops *hops = mp_container(timer, mp_hops, look);
    mp_rpc *rpc = hops->rpc;
    look_at_errands(hops, mp_monotonic_ms());
    uint64_t now = mp_monotonic_ms(); /* not before any time that is compared with it */
    for (mp_link *link = hops->all.next, *next; link != &hops->all; link = next) {
        next = link->next;
        mp_passage *passage = mp_container(link, mp_passage, link);
        if (now - passage->heard_ms >= QUIET_MS)
            look_at(rpc, passage, now);
    }
    bool has_silent = look_at_peers(rpc);
    if (has_silent || hops->count > 0 || !mp_link_is_alone(&hops->errands))
        mp_timer_start(rpc->loop, &hops->look, LOOK_MS, look);
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
    for (mp_link *link; (link = mp_link_take(&hops->errands)) != NULL;) {
        errand *it = mp_container(link, errand, link);
        mp_transfer_free(it->transfer);
        free(it->body);
        free(it);
    }
}

/* -- orders -------------------------------------------------------------------------------------------------------- */

static size_t count_errands(const mp_hops *hops)
{
    size_t count = 0;
    for (const mp_link *link = hops->errands.next; link != &hops->errands; link = link->next)
        count++;
    return count;
}

bool mp_rpc_is_elsewhere(const mp_rpc *rpc, mp_str id)
{
    return mp_processes_are_several(rpc->processes) && mp_hop_other_of(rpc, id) != 0;
}

bool mp_rpc_order(mp_rpc *rpc, mp_str id, mp_str text)
{
    mp_buf sealed = {0};
    const mp_hop hop = {.to = mp_hop_other_of(rpc, id),
                        .endpoint = MP_HOP_ORDERS,
                        .hops = 1,
                        .sent_ms = mp_hop_now_ms(),
                        .body = text.len,
                        .method = MP_STR("POST"),
                        .principal = mp_principal_id(mp_nobody)};
    bool is_sent = hop.to != 0 && text.len > 0 && !mp_hops_are_silent(rpc->hops, hop.to) &&
                   count_errands(rpc->hops) < MOST_ERRANDS && mp_hop_write(mp_hops_keys(rpc), &hop, &sealed) &&
                   begin(rpc, hop.to, mp_hop_paths[MP_HOP_ORDERS], mp_buf_str(&sealed), mp_dup(text), text.len);
    mp_buf_clear(&sealed);
    return is_sent;
}
