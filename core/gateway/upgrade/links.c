/* links.c: the links between the newest process and the older ones, and what both ends of every link write alike. */
#include "state.h"
#include "gateway/certificates/certificates.h"
#include "gateway/watchdog.h"
#include <moonpool/version.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

void mp_link_message_close(const mp_link_message *message)
{
    for (int i = 0; i < message->count; i++)
        close(message->fds[i]);
}

uint64_t mp_upgrade_time(uint64_t ms)
{
    return ms;
}

/* -- facts of a process -------------------------------------------------------------------------------------------- */

mp_process_facts mp_upgrade_own_facts(const mp_upgrade *upgrade)
{
    mp_process_facts own = {.number = mp_processes_number(upgrade->shared->processes), .pid = (int)getpid()};
    snprintf(own.version, sizeof own.version, "%s", MOONPOOL_VERSION);
    own.since = (int64_t)time(NULL) - (int64_t)((mp_monotonic_ms() - upgrade->shared->started_at) / 1000);
    own.order = upgrade->before.number != 0 ? upgrade->before.order + 1 : 1;
    return own;
}

void mp_upgrade_put_facts(mp_buf *body, const mp_process_facts *facts)
{
    char text[64];
    snprintf(text, sizeof text, "%u", (unsigned)facts->number);
    mp_say_put(body, text);
    snprintf(text, sizeof text, "%d", facts->pid);
    mp_say_put(body, text);
    mp_say_put(body, facts->version);
    snprintf(text, sizeof text, "%lld", (long long)facts->since);
    mp_say_put(body, text);
    snprintf(text, sizeof text, "%lld", (long long)facts->order);
    mp_say_put(body, text);
}

static int64_t cut_number(mp_str *body)
{
    int64_t number = -1;
    mp_str text = mp_str_cut(body, '\0');
    return text.len > 0 && mp_json_int(text, &number) ? number : -1;
}

bool mp_upgrade_read_facts(mp_str *body, mp_process_facts *facts)
{
    int64_t number = cut_number(body), pid = cut_number(body);
    mp_str version = mp_str_cut(body, '\0');
    facts->since = cut_number(body);
    facts->order = cut_number(body);
    if (number <= 0 || number > UINT16_MAX || pid <= 0 || pid > INT32_MAX || facts->since < 0 || facts->order <= 0)
        return false;
    facts->number = (uint16_t)number;
    facts->pid = (int)pid;
    size_t most = sizeof facts->version - 1;
    snprintf(facts->version, sizeof facts->version, "%.*s", (int)(version.len < most ? version.len : most),
             version.ptr);
    return true;
}

/* -- keys of session tickets --------------------------------------------------------------------------------------- */

void mp_upgrade_send_tickets(const mp_upgrade *upgrade)
{
    mp_scoped_buf body = {0};
    for (size_t i = 0; mp_certificates_hand(upgrade->shared->certificates, i, &body); i++) {
        if (body.len == 0)
            continue;
        mp_process_link_send(upgrade->newer.link, MP_SAY_TICKETS, mp_buf_str(&body), MP_UNSET, 0);
        explicit_bzero(body.ptr, body.len);
        body.len = 0;
    }
}

void mp_upgrade_take_tickets(mp_upgrade *upgrade, mp_str body)
{
    mp_buf *handed = &upgrade->shared->handed_tickets, all = {0};
    /* one allocation for all bytes: a buffer that grows would leave copies of secrets in freed memory */
    mp_buf_room(&all, handed->len + body.len);
    mp_buf_put(&all, mp_buf_str(handed));
    mp_buf_put(&all, body);
    mp_upgrade_forget_tickets(upgrade);
    *handed = all;
}

void mp_upgrade_forget_tickets(mp_upgrade *upgrade)
{
    mp_buf *handed = &upgrade->shared->handed_tickets;
    if (handed->len > 0)
        explicit_bzero(handed->ptr, handed->len);
    mp_buf_clear(handed);
}

/* -- links to older processes -------------------------------------------------------------------------------------- */

void mp_upgrade_add_older(mp_upgrade *upgrade, const mp_process_facts *facts, mp_process_link *link)
{
    if (upgrade->older_count == MP_OLDER_MOST) {
        mp_process_link_free(link);
        return;
    }
    upgrade->older[upgrade->older_count++] = (mp_older){.facts = *facts, .link = link, .ends = {-1, -1}};
    mp_processes_add(upgrade->shared->processes, facts);
}

void mp_upgrade_unlink(const mp_upgrade *upgrade, uint16_t number)
{
    static const char *const kinds[] = {"mcp", "store", "admin"};
    char path[MP_PROCESS_PATH];
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (mp_processes_path(upgrade->shared->processes, number, kinds[i], path))
            unlink(path);
}

void mp_upgrade_forget(mp_upgrade *upgrade, const mp_process_facts *facts)
{
    mp_upgrade_unlink(upgrade, facts->number);
    mp_places_remove(mp_processes_places(upgrade->shared->processes), facts->pid);
    if (upgrade->listeners != NULL && facts->number != 0) /* 0: it has ended before it said hello */
        mp_session_table_forget_owners(upgrade->shared->table, facts->number);
}

/* Tells all to which this process has a link that an older one has ended, so that they do not take it for one that
 * lives and does not answer. */
static void tell_ended(const mp_upgrade *upgrade, uint16_t number)
{
    mp_process_link *MP_NULLABLE to[MP_OLDER_MOST + 2] = {upgrade->link, upgrade->newer.link};
    char text[16];
    mp_str body = {text, (size_t)snprintf(text, sizeof text, "%u", (unsigned)number)};
    for (int i = 0; i < upgrade->older_count; i++)
        to[i + 2] = upgrade->older[i].link;
    for (int i = 0; i < upgrade->older_count + 2; i++)
        if (to[i] != NULL)
            mp_process_link_send(to[i], MP_SAY_ENDED, body, MP_UNSET, 0);
}

void mp_upgrade_take_ended(mp_upgrade *upgrade, mp_str body)
{
    int64_t number = cut_number(&body);
    if (number > 0 && number <= UINT16_MAX)
        mp_processes_remove(upgrade->shared->processes, (uint16_t)number);
}

void mp_upgrade_drop_pair(mp_older *one)
{
    for (int i = 0; i < 2; i++) {
        if (one->ends[i] >= 0)
            close(one->ends[i]);
        one->ends[i] = -1;
    }
}

static void remove_older(mp_upgrade *upgrade, int i)
{
    mp_older *one = &upgrade->older[i];
    /* while this process commits, the facts go to the newest process later */
    if (upgrade->state != MP_UPGRADE_OLDER && upgrade->state != MP_UPGRADE_COMMITS) {
        mp_log(MP_INFO, "older process ended", mp_log_int("pid", one->facts.pid));
        mp_processes_remove(upgrade->shared->processes, one->facts.number);
        mp_upgrade_forget(upgrade, &one->facts);
        tell_ended(upgrade, one->facts.number);
    }
    mp_upgrade_drop_pair(one);
    mp_process_link_free(one->link);
    upgrade->older_count--;
    for (int k = i; k < upgrade->older_count; k++)
        upgrade->older[k] = upgrade->older[k + 1];
}

/* False if the older process has ended. */
static bool read_older(mp_upgrade *upgrade, const mp_older *one)
{
    mp_link_message message;
    int taken;
    mp_process_link_flush(one->link);
    while ((taken = mp_process_link_take(one->link, &message)) > 0) {
        if (message.kind == MP_SAY_ASK)
            upgrade->is_signalled = true;
        else if (message.kind == MP_SAY_OWNERS && upgrade->listeners != NULL)
            mp_session_table_take_owners(upgrade->shared->table, message.body);
        else if (message.kind == MP_SAY_NEWS)
            mp_upgrade_take_news(upgrade, one->link, message.body);
        else if (message.kind == MP_SAY_ENDED)
            mp_upgrade_take_ended(upgrade, message.body);
        mp_link_message_close(&message);
    }
    return taken == 0;
}

/* The service ends: older processes end with it. They stop at once when this process has no time left for its calls, as
 * after a second signal. */
static void drain_older(mp_upgrade *upgrade)
{
    uint64_t end_at = atomic_load(&upgrade->shared->end_at); /* 0: it is not set yet */
    bool stops = end_at != 0 && mp_monotonic_ms() + MP_ENDING_MS >= end_at;
    if (!mp_watchdog_drains(upgrade->shared->watchdog) || upgrade->drains >= (stops ? 2 : 1))
        return;
    upgrade->drains++;
    for (int i = 0; i < upgrade->older_count; i++)
        mp_process_link_send(upgrade->older[i].link, MP_SAY_DRAIN, MP_STR_NONE, MP_UNSET, 0);
}

void mp_upgrade_run_links(mp_upgrade *upgrade)
{
    if (upgrade->state != MP_UPGRADE_OLDER && upgrade->state != MP_UPGRADE_JOINS)
        drain_older(upgrade);
    for (int i = 0; i < upgrade->older_count;)
        if (read_older(upgrade, &upgrade->older[i]))
            i++;
        else
            remove_older(upgrade, i);
}

#define NAP_MS 5 /* between two looks at the links */

bool mp_upgrade_has_older(const mp_upgrade *upgrade)
{
    return upgrade->state != MP_UPGRADE_OLDER && upgrade->state != MP_UPGRADE_JOINS && upgrade->older_count > 0;
}

void mp_upgrade_await_older(mp_upgrade *upgrade)
{
    mp_worker_shared *shared = upgrade->shared;
    upgrade->listeners = NULL; /* what older processes still say of their sessions is of no use */
    shared->worker_count = 0;
    while (mp_upgrade_has_older(upgrade) && mp_monotonic_ms() + MP_CUT_MS < atomic_load(&shared->end_at)) {
        mp_upgrade_run_links(upgrade);
        nanosleep(&(struct timespec){0, NAP_MS * 1000000L}, NULL);
    }
}

/* -- what is counted together -------------------------------------------------------------------------------------- */

#define SAY_MOST 64 /* messages that are sent at once */

void mp_upgrade_share_places(mp_upgrade *upgrade)
{
    mp_places *places = mp_processes_places(upgrade->shared->processes);
    int fd = mp_places_fd(places), copy = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (copy < 0 || !mp_places_add(places, upgrade->newer.facts.pid))
        mp_log(MP_WARN, "limits not shared", mp_log_int("pid", upgrade->newer.facts.pid),
               mp_log_str("hint", MP_STR("until this process ends, it and the new one have limits of their own")));
    if (copy >= 0)
        mp_process_link_send(upgrade->newer.link, MP_SAY_PLACES, MP_STR_NONE, &copy, 1);
}

/* The link over which another process has to know which sessions principals have; NULL: there is none. */
static mp_process_link *MP_NULLABLE find_listener(const mp_upgrade *upgrade, mp_owners_said *said)
{
    bool is_tried = upgrade->state >= MP_UPGRADE_TRIES && upgrade->state <= MP_UPGRADE_COMMITS;
    bool is_elsewhere = upgrade->state == MP_UPGRADE_OLDER || upgrade->state == MP_UPGRADE_JOINS;
    *said = is_tried ? MP_OWNERS_ALL : MP_OWNERS_OWN;
    return is_tried ? upgrade->newer.link : is_elsewhere ? upgrade->link : NULL;
}

void mp_upgrade_run_owners(mp_upgrade *upgrade)
{
    mp_owners_said said;
    mp_process_link *to = find_listener(upgrade, &said);
    mp_session_table *table = upgrade->shared->table;
    mp_scoped_buf body = {0};
    if (upgrade->listeners == NULL)
        return;
    if (to == NULL)
        said = MP_OWNERS_NONE;
    if (said != upgrade->said || to != upgrade->said_to)
        mp_session_table_say_owners(table, said);
    if (upgrade->said == MP_OWNERS_ALL && upgrade->state == MP_UPGRADE_OLDER)
        mp_session_table_forget_owners(table, 0);
    upgrade->said = said;
    upgrade->said_to = to;
    for (int i = 0; to != NULL && i < SAY_MOST && mp_process_link_flush(to); i++) {
        body.len = 0;
        mp_session_table_put_owners(table, &body, MP_LINK_BYTES - 1);
        if (body.len == 0)
            break;
        mp_process_link_send(to, MP_SAY_OWNERS, mp_buf_str(&body), MP_UNSET, 0);
    }
}

/* -- logins of the dashboard --------------------------------------------------------------------------------------- */

static void send_logins(void *ctx, mp_str text)
{
    const mp_upgrade *upgrade = ctx;
    mp_process_link_send(upgrade->newer.link, MP_SAY_LOGINS, text, MP_UNSET, 0);
}

void mp_upgrade_send_logins(mp_upgrade *upgrade)
{
    mp_admin *MP_NULLABLE admin = MP_NEVER_NULL(upgrade->listeners)->admin;
    if (admin != NULL)
        mp_admin_hand_logins(admin, send_logins, upgrade);
}
