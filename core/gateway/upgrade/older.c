/* older.c: a process after the commit of its upgrade: it serves its own sessions until these have ended. */
#include "state.h"
#include "gateway/notify.h"
#include "gateway/watchdog.h"
#include <sys/wait.h>

/* ms without a session, call or connection before the process ends: requests that have arrived are counted by then */
#define QUIET_MS 500

void mp_upgrade_become_older(mp_upgrade *upgrade)
{
    const mp_process_facts *newest = &upgrade->newer.facts;
    upgrade->state = MP_UPGRADE_OLDER;
    upgrade->child = newest->pid;
    upgrade->keep_until = mp_monotonic_ms() + mp_upgrade_time((uint64_t)MP_OLDER_KEEP_S * 1000);
    mp_log(MP_INFO, "upgraded", mp_log_int("to", newest->pid), mp_log_str("to_version", mp_str_of(newest->version)),
           mp_log_int("sessions", mp_stat_sum("sessions")));
}

/* Takes the facts of the process that is the newest one from now on. */
static void take_newest(mp_upgrade *upgrade, mp_link_message *message)
{
    mp_processes *processes = upgrade->shared->processes;
    mp_process_facts facts;
    char path[MP_PROCESS_PATH];
    if (message->count == 0 || !mp_upgrade_read_facts(&message->body, &facts))
        return;
    mp_process_link *before = upgrade->link;
    upgrade->link = mp_process_link_new(message->fds[--message->count]);
    mp_process_link_free(before);
    upgrade->newer.facts = facts;
    mp_processes_add(processes, &facts);
    mp_processes_set_newest(processes, facts.number);
    if (mp_processes_path(processes, facts.number, "store", path))
        mp_store_turn(upgrade->shared->process_state.store, path);
}

static void take_drain(mp_upgrade *upgrade)
{
    static const char why[] = "the newest process of the gateway ends";
    if (upgrade->drains++ == 0)
        mp_watchdog_end(upgrade->shared->watchdog, why);
    else
        mp_watchdog_stop(upgrade->shared->watchdog, why);
}

static void run_link(mp_upgrade *upgrade)
{
    mp_link_message message;
    mp_process_link *link = upgrade->link;
    int taken = -1;
    while ((link = upgrade->link) != NULL && (taken = mp_process_link_take(link, &message)) > 0) {
        if (message.kind == MP_SAY_DRAIN)
            take_drain(upgrade);
        else if (message.kind == MP_SAY_NEWEST)
            take_newest(upgrade, &message);
        else if (message.kind == MP_SAY_NEWS)
            mp_upgrade_take_news(upgrade, link, message.body);
        else if (message.kind == MP_SAY_ENDED)
            mp_upgrade_take_ended(upgrade, message.body);
        mp_link_message_close(&message);
    }
    if (link == NULL)
        return;
    if (taken < 0) {
        bool has_ended = mp_process_link_is_closed(link); /* false: a message was cut, as without descriptors */
        mp_process_link_free(link);
        upgrade->link = NULL;
        if (has_ended)
            mp_upgrade_unlink(upgrade, upgrade->newer.facts.number);
        mp_watchdog_end(upgrade->shared->watchdog, has_ended ? "the newest process of the gateway has ended"
                                                             : "the newest process of the gateway does not answer");
        return;
    }
    if (upgrade->is_signalled)
        mp_process_link_send(link, MP_SAY_ASK, MP_STR_NONE, MP_UNSET, 0);
    upgrade->is_signalled = false;
    mp_process_link_flush(link);
}

/* True if this process serves nothing, and the service manager knows the newest process: for a manager that does not,
 * the end of this one is that of the service. */
static bool has_nothing(void)
{
    return mp_serves_nothing() && mp_notify_is_idle();
}

static bool is_over(mp_upgrade *upgrade, uint64_t now)
{
    if (!has_nothing())
        upgrade->quiet_since = 0;
    else if (upgrade->quiet_since == 0)
        upgrade->quiet_since = now;
    return upgrade->quiet_since != 0 && now - upgrade->quiet_since >= QUIET_MS;
}

void mp_upgrade_run_older(mp_upgrade *upgrade)
{
    uint64_t now = mp_monotonic_ms();
    run_link(upgrade);
    if (upgrade->child > 0 && waitpid(upgrade->child, NULL, WNOHANG) != 0)
        upgrade->child = 0;
    if (atomic_load(&upgrade->shared->draining))
        return;
    if (now >= upgrade->keep_until) {
        mp_log(MP_WARN, "sessions of an older process ended", mp_log_int("sessions", mp_stat_sum("sessions")),
               mp_log_int("after_s", MP_OLDER_KEEP_S));
        mp_session_table_forget_kept(upgrade->shared->table);
        mp_watchdog_end(upgrade->shared->watchdog, "the time of an older process is over");
    } else if (is_over(upgrade, now)) {
        mp_watchdog_end(upgrade->shared->watchdog, "no session of this older process is left");
    }
}
