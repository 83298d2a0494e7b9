/* nodes.c: what is known of the processes of a cluster. */
#include "nodes.h"
#include "json/json.h"
#include "telemetry/telemetry.h"
#include <sys/random.h>
#include <unistd.h>

/* questions a second for numbers that no record has: clients choose these, and each question is work for Redis */
#define MOST_ASKED 20
#define NONE_MS 2000     /* ms for which it counts that there is no record */
#define QUESTION_MS 1000 /* ms after which a question that was not answered is asked again */
#define QUESTIONS 64     /* more than are asked within NONE_MS */
#define EVERY_MS ((uint64_t)MP_LIMIT(node_turn_ms, 2000))
#define UIDS 4

MP_GAUGE(cluster_serving, "cluster_nodes", "state", "serving", "processes of the cluster that take sessions")
MP_GAUGE(cluster_leaving, "cluster_nodes", "state", "leaving", "processes of the cluster that drain")
MP_GAUGE(cluster_stale, "cluster_nodes", "state", "stale", "processes of the cluster that have not renewed for 10 s")
MP_GAUGE(cluster_hashes, "cluster_hashes", "", "",
         "sets of scripts that nodes of the cluster serve: more than 1 differ")

typedef struct {
    mp_node_record record;
    uint64_t moved_ms;   /* when a read first had the record as it is */
    uint64_t reads_then; /* how many reads had succeeded by then */
    bool is_unreached;   /* the last request of any worker did not reach it */
} known_node;

typedef enum { QUESTION_WAITS, QUESTION_SENT, QUESTION_HAS_NONE } question_state;

typedef struct {
    uint16_t number; /* 0: the place is free */
    question_state state;
    uint64_t at_ms; /* when it was asked or answered */
} question;

struct mp_nodes {
    char node[MP_NODE_NAME + 1]; /* like the next two, set before other threads use it */
    bool takes_sessions;
    const atomic_bool *has_to_leave;
    _Atomic int64_t ahead_ms;
    atomic_bool is_refused, has_joined;
    atomic_uint uid;                  /* which of `uids` counts */
    char uids[UIDS][MP_NODE_UID + 1]; /* written before `uid` is */
    pthread_mutex_t lock;             /* guards what follows */
    char id[64];
    int count;
    known_node known[MP_NODES_MOST];
    uint64_t reads, failed_ms, sure_ms; /* failed_ms: since when reads fail; sure_ms: before that nobody is stale */
    uint64_t keep_ms;   /* Redis was emptied: until then records stay known that it does not have any more */
    uint64_t second_ms; /* when the second began in which the server was asked `asked` times */
    int asked;
    question questions[QUESTIONS];
    bool is_in_turn, is_hurried; /* is_hurried: the next turn is due when this one has ended */
    uint64_t turn_ms;            /* when the last turn began */
    int64_t renewals;
    char address[MP_NODE_ADDRESS];
    known_node own;                          /* as the last read had it; renewals 0: it had none */
    int64_t serving, leaving, stale, hashes; /* as the gauges have them */
    char why[256];                           /* this process takes no sessions */
};

static uint64_t now_ms(void)
{
    return mp_clock_ms(CLOCK_BOOTTIME);
}

/* Returns the lock, of which readers of a const table may ignore that it changes. */
static pthread_mutex_t *lock_of(const mp_nodes *nodes)
{
    return &((mp_nodes *)(uintptr_t)nodes)->lock;
}

/* Other characters than names of nodes have become '-'. */
static void take_host_name(char node[MP_NODE_NAME + 1])
{
    if (gethostname(node, MP_NODE_NAME) != 0 || node[0] == '\0')
        snprintf(node, MP_NODE_NAME, "node");
    node[MP_NODE_NAME] = '\0';
    for (char *at = node; *at != '\0'; at++)
        if (!(*at >= '0' && *at <= '9') && !(*at >= 'A' && *at <= 'Z') && !(*at >= 'a' && *at <= 'z') && *at != '.' &&
            *at != '_')
            *at = '-';
}

void mp_nodes_renew_uid(mp_nodes *nodes)
{
    unsigned char bits[MP_NODE_UID / 2];
    unsigned next = (atomic_load(&nodes->uid) + 1) % UIDS;
    if (getrandom(bits, sizeof bits, 0) != (ssize_t)sizeof bits)
        abort(); /* two processes with one uid would take each other's sessions for their own */
    *mp_hex_put(nodes->uids[next], bits, sizeof bits) = '\0';
    atomic_store(&nodes->uid, next);
}

mp_nodes *mp_nodes_new(const char *MP_NULLABLE name, bool takes_sessions, const atomic_bool *leaving)
{
    mp_nodes *nodes = mp_new(sizeof *nodes);
    pthread_mutex_init(&nodes->lock, NULL);
    nodes->takes_sessions = takes_sessions;
    nodes->has_to_leave = leaving;
    mp_nodes_renew_uid(nodes);
    if (name == NULL)
        take_host_name(nodes->node);
    else
        snprintf(nodes->node, sizeof nodes->node, "%s", name);
    return nodes;
}

void mp_nodes_free(mp_nodes *MP_NULLABLE nodes)
{
    if (nodes == NULL)
        return;
    pthread_mutex_destroy(&nodes->lock);
    free(nodes);
}

/* -- other processes ----------------------------------------------------------------------------------------------- */

static int find_node(const mp_nodes *nodes, uint16_t number)
{
    for (int i = 0; i < nodes->count; i++)
        if (nodes->known[i].record.number == number)
            return i;
    return -1;
}

/* For how many ms the record has not changed; 0: it is not stale. */
static uint64_t stale_ms(const mp_nodes *nodes, const known_node *one, uint64_t now)
{
    bool is_stale = nodes->failed_ms == 0 && now >= nodes->sure_ms && now - one->moved_ms >= MP_NODE_STALE_MS &&
                    nodes->reads - one->reads_then >= MP_NODE_STALE_READS;
    return is_stale ? now - one->moved_ms : 0;
}

static void set_gauge(const mp_stat *gauge, int64_t *was, int64_t is)
{
    mp_stat_add(gauge, is - *was);
    *was = is;
}

static void measure_nodes(mp_nodes *nodes, uint64_t now)
{
    int64_t serving = 0, leaving = 0, stale = 0, hashes = 0;
    for (int i = nodes->own.record.renewals > 0 ? -1 : 0; i < nodes->count; i++) {
        const known_node *one = i < 0 ? &nodes->own : &nodes->known[i];
        bool is_known = false;
        for (int j = nodes->own.record.renewals > 0 ? -1 : 0; j < i && !is_known; j++)
            is_known = strcmp((j < 0 ? &nodes->own : &nodes->known[j])->record.scripts, one->record.scripts) == 0;
        hashes += !is_known;
        bool is_stale = i >= 0 && stale_ms(nodes, one, now) > 0;
        stale += is_stale;
        leaving += !is_stale && one->record.is_leaving;
        serving += !is_stale && !one->record.is_leaving;
    }
    set_gauge(&mp_stat_cluster_serving, &nodes->serving, serving);
    set_gauge(&mp_stat_cluster_leaving, &nodes->leaving, leaving);
    set_gauge(&mp_stat_cluster_stale, &nodes->stale, stale);
    set_gauge(&mp_stat_cluster_hashes, &nodes->hashes, hashes);
}

void mp_nodes_take(mp_nodes *nodes, const mp_node_record *records, int count, const char *id)
{
    known_node *before = mp_new(sizeof nodes->known);
    uint64_t now = now_ms();
    pthread_mutex_lock(&nodes->lock);
    int had = nodes->count;
    memcpy(before, nodes->known, (size_t)had * sizeof *before);
    if (nodes->failed_ms != 0 || strcmp(nodes->id, id) != 0)
        nodes->sure_ms = now + MP_NODE_STALE_MS;
    if (nodes->reads > 0 && strcmp(nodes->id, id) != 0)
        nodes->keep_ms = nodes->sure_ms;
    nodes->failed_ms = 0;
    snprintf(nodes->id, sizeof nodes->id, "%s", id);
    nodes->reads++;
    nodes->count = 0;
    nodes->own.record.renewals = 0;
    for (int i = 0; i < count; i++) {
        bool is_own = strcmp(records[i].uid, mp_nodes_uid(nodes)) == 0;
        if (!is_own && nodes->count == MP_NODES_MOST)
            continue;
        known_node *one = is_own ? &nodes->own : &nodes->known[nodes->count++];
        *one = (known_node){records[i], now, nodes->reads, false};
        for (int j = 0; j < had; j++) {
            if (before[j].record.number != one->record.number || strcmp(before[j].record.uid, one->record.uid) != 0)
                continue;
            one->is_unreached = before[j].is_unreached;
            if (before[j].record.renewals == one->record.renewals)
                one->moved_ms = before[j].moved_ms, one->reads_then = before[j].reads_then;
        }
    }
    for (int j = 0; now < nodes->keep_ms && j < had && nodes->count < MP_NODES_MOST; j++)
        if (find_node(nodes, before[j].record.number) < 0)
            nodes->known[nodes->count++] = before[j]; /* a Redis that was emptied says nothing about those who live */
    measure_nodes(nodes, now);
    pthread_mutex_unlock(&nodes->lock);
    free(before);
}

void mp_nodes_fail(mp_nodes *nodes)
{
    MP_LOCKED(&nodes->lock);
    if (nodes->failed_ms == 0)
        nodes->failed_ms = now_ms();
}

mp_node_state mp_nodes_find(const mp_nodes *nodes, uint16_t number, mp_node_record *record)
{
    uint64_t now = now_ms();
    MP_LOCKED(lock_of(nodes));
    int i = find_node(nodes, number);
    if (i < 0)
        return MP_NODE_NONE;
    *record = nodes->known[i].record;
    return stale_ms(nodes, &nodes->known[i], now) > 0 ? MP_NODE_STALE : MP_NODE_FRESH;
}

void mp_nodes_note_reached(mp_nodes *nodes, uint16_t number, bool is_reached)
{
    MP_LOCKED(&nodes->lock);
    int i = find_node(nodes, number);
    if (i >= 0)
        nodes->known[i].is_unreached = !is_reached;
}

int mp_nodes_list(const mp_nodes *nodes, mp_node_record *records)
{
    uint64_t now = now_ms();
    int count = 0;
    MP_LOCKED(lock_of(nodes));
    for (int i = 0; i < nodes->count; i++)
        if (stale_ms(nodes, &nodes->known[i], now) == 0)
            records[count++] = nodes->known[i].record;
    return count;
}

uint64_t mp_nodes_stale_ms(const mp_nodes *nodes, uint16_t number)
{
    uint64_t now = now_ms();
    MP_LOCKED(lock_of(nodes));
    int i = find_node(nodes, number);
    return i < 0 ? 0 : stale_ms(nodes, &nodes->known[i], now);
}

void mp_nodes_set_ahead(mp_nodes *nodes, int64_t ms)
{
    atomic_store(&nodes->ahead_ms, ms);
}

int64_t mp_nodes_ahead_ms(const mp_nodes *nodes)
{
    return atomic_load(&nodes->ahead_ms);
}

bool mp_nodes_choose(const mp_nodes *nodes, mp_node_record *record)
{
    uint64_t now = now_ms();
    MP_LOCKED(lock_of(nodes));
    /* the first round is for those that the last request has reached */
    for (int i = 0, from = (int)(mp_monotonic_us() % MP_NODES_MOST); i < 2 * nodes->count; i++) {
        const known_node *one = &nodes->known[(from + i) % nodes->count];
        if (one->record.is_leaving || stale_ms(nodes, one, now) > 0 || (one->is_unreached && i < nodes->count))
            continue;
        *record = one->record;
        return true;
    }
    return false;
}

bool mp_nodes_are_sure(const mp_nodes *nodes)
{
    uint64_t now = now_ms();
    MP_LOCKED(lock_of(nodes));
    return nodes->reads > 0 && nodes->failed_ms == 0 && now >= nodes->sure_ms;
}

uint64_t mp_nodes_away_ms(const mp_nodes *nodes)
{
    uint64_t now = now_ms();
    MP_LOCKED(lock_of(nodes));
    return nodes->failed_ms == 0 ? 0 : now - nodes->failed_ms + 1;
}

/* -- questions for one record -------------------------------------------------------------------------------------- */

static int find_question(const mp_nodes *nodes, uint16_t number)
{
    for (int i = 0; i < QUESTIONS; i++)
        if (nodes->questions[i].number == number)
            return i;
    return -1;
}

bool mp_nodes_ask(mp_nodes *nodes, uint16_t number)
{
    uint64_t now = now_ms();
    MP_LOCKED(&nodes->lock);
    int i = find_question(nodes, number), oldest = 0;
    const question *one = i < 0 ? NULL : &nodes->questions[i];
    if (one != NULL && one->state != QUESTION_HAS_NONE && now - one->at_ms < QUESTION_MS)
        return true;
    if (now - nodes->second_ms >= 1000)
        nodes->second_ms = now, nodes->asked = 0;
    if (nodes->asked >= MOST_ASKED)
        return false;
    nodes->asked++;
    for (int k = 1; k < QUESTIONS && i < 0; k++)
        if (nodes->questions[k].at_ms < nodes->questions[oldest].at_ms)
            oldest = k;
    nodes->questions[i < 0 ? oldest : i] = (question){number, QUESTION_WAITS, now};
    return true;
}

bool mp_nodes_has_none(const mp_nodes *nodes, uint16_t number)
{
    uint64_t now = now_ms();
    MP_LOCKED(lock_of(nodes));
    int i = find_question(nodes, number);
    return i >= 0 && nodes->questions[i].state == QUESTION_HAS_NONE && now - nodes->questions[i].at_ms < NONE_MS;
}

uint16_t mp_nodes_next_question(mp_nodes *nodes)
{
    MP_LOCKED(&nodes->lock);
    for (int i = 0; i < QUESTIONS; i++) {
        question *one = &nodes->questions[i];
        if (one->number == 0 || one->state != QUESTION_WAITS)
            continue;
        one->state = QUESTION_SENT;
        return one->number;
    }
    return 0;
}

void mp_nodes_answer(mp_nodes *nodes, uint16_t number, const mp_node_record *MP_NULLABLE record)
{
    uint64_t now = now_ms();
    MP_LOCKED(&nodes->lock);
    int i = find_question(nodes, number);
    if (record != NULL && strcmp(record->uid, mp_nodes_uid(nodes)) != 0 && nodes->count < MP_NODES_MOST &&
        find_node(nodes, number) < 0)
        nodes->known[nodes->count++] = (known_node){*record, now, nodes->reads, false};
    if (i >= 0)
        nodes->questions[i] = record == NULL ? (question){number, QUESTION_HAS_NONE, now} : (question){0};
}

static void put_member(mp_buf *out, const char *name, const char *text)
{
    mp_buf_printf(out, ",\"%s\":", name);
    mp_json_put_string(out, mp_str_of(text));
}

static void put_node(const mp_nodes *nodes, const known_node *one, uint64_t now, mp_buf *out)
{
    bool is_own = one == &nodes->own, is_stale = !is_own && stale_ms(nodes, one, now) > 0;
    mp_buf_printf(out, "%s{\"number\":%u", out->ptr[out->len - 1] == '[' ? "" : ",", (unsigned)one->record.number);
    put_member(out, "node", one->record.node);
    put_member(out, "address", one->record.address);
    put_member(out, "version", one->record.version);
    put_member(out, "scripts", one->record.scripts);
    put_member(out, "config", one->record.config);
    put_member(out, "state", is_stale ? "stale" : one->record.is_leaving ? "leaving" : "serving");
    mp_buf_printf(out, ",\"sessions\":%lld,\"age_ms\":%llu%s%s}", (long long)one->record.sessions,
                  (unsigned long long)(now - one->moved_ms), is_own ? ",\"own\":true" : "",
                  one->is_unreached ? ",\"unreached\":true" : "");
}

void mp_nodes_put(const mp_nodes *nodes, uint16_t number, mp_buf *out)
{
    uint64_t now = now_ms();
    MP_LOCKED(lock_of(nodes));
    mp_buf_put(out, MP_STR("\"node\":"));
    mp_json_put_string(out, mp_str_of(nodes->node));
    mp_buf_printf(out, ",\"number\":%u,\"joined\":%s", (unsigned)number,
                  nodes->own.record.renewals > 0 && nodes->why[0] == '\0' ? "true" : "false");
    if (nodes->why[0] != '\0')
        put_member(out, "why", nodes->why);
    if (nodes->failed_ms != 0)
        mp_buf_printf(out, ",\"away_ms\":%llu", (unsigned long long)(now - nodes->failed_ms));
    mp_buf_put(out, MP_STR(",\"nodes\":["));
    if (nodes->own.record.renewals > 0)
        put_node(nodes, &nodes->own, now, out);
    for (int i = 0; i < nodes->count; i++)
        put_node(nodes, &nodes->known[i], now, out);
    mp_buf_putc(out, ']');
}

/* -- metrics ------------------------------------------------------------------------------------------------------- */

#define MOST_SHOWN 64 /* nodes in metrics */

void mp_nodes_put_metrics(const mp_nodes *nodes, mp_buf *out)
{
    MP_LOCKED(lock_of(nodes));
    if (nodes->reads == 0)
        return;
    mp_metrics_put_gauge(out, "moonpool_clock_offset_seconds",
                         "how far the clock of this machine is ahead of that of the cluster's server",
                         (double)mp_nodes_ahead_ms(nodes) / 1000);
    mp_metrics_put_head(out, "moonpool_hop_up", "", "gauge",
                        "0: the last request or question to a process of this node did not reach it");
    for (int i = 0, shown = 0; i < nodes->count && shown < MOST_SHOWN; i++) {
        const char *name = nodes->known[i].record.node;
        bool is_up = true, is_first = true;
        for (int j = 0; j < nodes->count; j++) {
            bool is_same = strcmp(nodes->known[j].record.node, name) == 0; /* a node may have several processes */
            is_first = is_first && (j >= i || !is_same);
            is_up = is_up && (!is_same || !nodes->known[j].is_unreached);
        }
        if (!is_first)
            continue;
        mp_buf_put(out, MP_STR("moonpool_hop_up{node=\""));
        mp_metrics_put_label(out, mp_str_of(name));
        mp_buf_printf(out, "\"} %d\n", is_up);
        shown++;
    }
}

/* -- this process -------------------------------------------------------------------------------------------------- */

const char *mp_nodes_uid(const mp_nodes *nodes)
{
    return nodes->uids[atomic_load(&nodes->uid)];
}

const char *mp_nodes_node(const mp_nodes *nodes)
{
    return nodes->node;
}

void mp_nodes_set_address(mp_nodes *nodes, const char *address)
{
    pthread_mutex_lock(&nodes->lock);
    snprintf(nodes->address, sizeof nodes->address, "%s", address);
    pthread_mutex_unlock(&nodes->lock);
    if (!nodes->takes_sessions && !mp_nodes_has_joined(nodes))
        mp_nodes_settle(nodes, MP_STR("the server of cluster has not answered yet"));
}

size_t mp_nodes_address(const mp_nodes *nodes, char address[MP_NODE_ADDRESS])
{
    MP_LOCKED(lock_of(nodes));
    memcpy(address, nodes->address, sizeof nodes->address);
    return strlen(address);
}

bool mp_nodes_is_leaving(const mp_nodes *nodes)
{
    return atomic_load(nodes->has_to_leave);
}

void mp_nodes_hurry(mp_nodes *nodes)
{
    MP_LOCKED(&nodes->lock);
    nodes->is_hurried = nodes->is_in_turn; /* two turns at once would overtake each other's renewals */
    if (!nodes->is_in_turn)
        nodes->turn_ms = 0;
}

bool mp_nodes_begin_turn(mp_nodes *nodes)
{
    uint64_t now = now_ms();
    MP_LOCKED(&nodes->lock);
    bool is_due = nodes->is_in_turn ? now - nodes->turn_ms >= MP_NODE_TURN_MS
                                    : nodes->turn_ms == 0 || now - nodes->turn_ms >= EVERY_MS;
    if (nodes->address[0] == '\0' || !is_due)
        return false;
    nodes->is_in_turn = true;
    nodes->turn_ms = now;
    return true;
}

void mp_nodes_end_turn(mp_nodes *nodes)
{
    MP_LOCKED(&nodes->lock);
    nodes->is_in_turn = false;
    if (nodes->is_hurried)
        nodes->turn_ms = 0;
    nodes->is_hurried = false;
}

int64_t mp_nodes_renew(mp_nodes *nodes)
{
    MP_LOCKED(&nodes->lock);
    return ++nodes->renewals;
}

bool mp_nodes_settle(mp_nodes *nodes, mp_str why)
{
    char text[sizeof nodes->why];
    snprintf(text, sizeof text, "%.*s", MP_STR_ARG(why));
    pthread_mutex_lock(&nodes->lock);
    bool is_new = strcmp(nodes->why, text) != 0 || (why.len == 0 && !mp_nodes_has_joined(nodes));
    memcpy(nodes->why, text, sizeof text);
    atomic_store(&nodes->is_refused, why.len > 0);
    if (why.len == 0)
        atomic_store(&nodes->has_joined, true);
    pthread_mutex_unlock(&nodes->lock);
    return is_new;
}

bool mp_nodes_is_refused(const mp_nodes *nodes)
{
    return atomic_load_explicit(&nodes->is_refused, memory_order_relaxed);
}

void mp_nodes_put_refusal(const mp_nodes *nodes, mp_buf *out)
{
    MP_LOCKED(lock_of(nodes));
    mp_buf_put(out, mp_str_of(nodes->why));
}

bool mp_nodes_has_joined(const mp_nodes *nodes)
{
    return atomic_load(&nodes->has_joined);
}

bool mp_nodes_is_heir(const mp_nodes *nodes)
{
    return nodes->takes_sessions;
}
