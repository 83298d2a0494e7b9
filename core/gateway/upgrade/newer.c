/* newer.c: the process that an upgrade has begun, until it is the newest one. */
#define _GNU_SOURCE
#include "state.h"
#include "gateway/watchdog.h"
#include "lib/lib.h"
#include <moonpool/version.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#define VARIABLE "MOONPOOL_HANDOVER"
#define JOIN_MS 20000 /* ms to wait for the sockets of the process before this one */

bool mp_upgrade_is_joining(void)
{
    return getenv(VARIABLE) != NULL;
}

/* -- the start ----------------------------------------------------------------------------------------------------- */

/* The end of a link that the variable names; -1: it is none. */
static int find_link(void)
{
    const char *text = getenv(VARIABLE);
    char *rest;
    int type = 0;
    long fd = text == NULL ? -1 : strtol(text, &rest, 10);
    unsetenv(VARIABLE);
    if (fd <= STDERR_FILENO || fd > INT32_MAX ||
        getsockopt((int)fd, SOL_SOCKET, SO_TYPE, &type, &(socklen_t){sizeof type}) != 0 || type != SOCK_SEQPACKET ||
        fcntl((int)fd, F_SETFD, FD_CLOEXEC) != 0)
        return -1;
    return (int)fd;
}

static int64_t cut_number(mp_str *body)
{
    int64_t number = -1;
    mp_str text = mp_str_cut(body, '\0');
    return text.len > 0 && mp_json_int(text, &number) ? number : -1;
}

static int take_hello(mp_upgrade *upgrade, mp_link_message *message, mp_err *err)
{
    int64_t format = cut_number(&message->body);
    if (format != MP_UPGRADE_FORMAT || !mp_upgrade_read_facts(&message->body, &upgrade->before))
        return mp_err_set(err, "the process before this one hands over by another format: stop it, and start it again");
    return 0;
}

static void take_sockets(mp_passed *passed, mp_link_message *message)
{
    int64_t group = cut_number(&message->body);
    mp_str where = mp_str_cut(&message->body, '\0'), name = mp_str_cut(&message->body, '\0');
    mp_str flags = mp_str_cut(&message->body, '\0');
    for (int i = 0; i < message->count; i++) {
        mp_passed_socket *one = mp_passed_add(passed, name, message->fds[i]);
        one->group = (int)group;
        one->is_of_admin = memchr(flags.ptr, 'a', flags.len) != NULL;
        one->is_stored = memchr(flags.ptr, 's', flags.len) != NULL;
        snprintf(one->where, sizeof one->where, "%.*s", MP_STR_ARG(where));
    }
    message->count = 0;
}

static bool read_hex(mp_str text, unsigned char *bytes, size_t size)
{
    unsigned value;
    for (size_t i = 0; i < size && text.len == 2 * size; i++) {
        if (sscanf(text.ptr + 2 * i, "%2x", &value) != 1)
            return false;
        bytes[i] = (unsigned char)value;
    }
    return text.len == 2 * size;
}

static int take_facts(mp_upgrade *upgrade, mp_link_message *message, mp_err *err)
{
    mp_worker_shared *shared = upgrade->shared;
    unsigned char key[MP_PROCESS_KEY];
    mp_process_facts others[MP_OLDER_MOST + 1] = {upgrade->before};
    int count = 1;
    mp_str own = mp_str_cut(&message->body, '\0'), folder = mp_str_cut(&message->body, '\0');
    mp_str seal = mp_str_cut(&message->body, '\0');
    mp_seal_key *seal_key = mp_new(sizeof *seal_key);
    bool is_whole = read_hex(own, key, sizeof key) && read_hex(seal, (unsigned char *)seal_key, sizeof *seal_key);
    while (is_whole && message->body.len > 0 && count <= MP_OLDER_MOST)
        is_whole = mp_upgrade_read_facts(&message->body, &others[count++]);
    shared->process_state.handed_seal_key = seal_key;
    int held = 0;
    if (is_whole) {
        char *path = mp_dup(folder);
        mp_processes_join(shared->processes, key, path, others, count);
        held = mp_upgrade_hold_folder(upgrade, path) == 0 ? 0 : errno;
        shared->handed_by = upgrade->before.number;
        free(path);
    }
    if (message->count > 0)
        shared->admin_token = message->fds[--message->count];
    explicit_bzero(key, sizeof key);
    if (held != 0)
        return mp_err_set(err, "cannot open the folder of the process before this one: %s", strerror(held));
    return is_whole ? 0 : mp_err_set(err, "the process before this one has sent facts that cannot be read");
}

static void say_hello(const mp_upgrade *upgrade, mp_process_link *link)
{
    mp_scoped_buf body = {0};
    mp_process_facts own = mp_upgrade_own_facts(upgrade);
    mp_buf_printf(&body, "%d%c", MP_UPGRADE_FORMAT, 0);
    mp_upgrade_put_facts(&body, &own);
    mp_process_link_send(link, MP_SAY_HELLO, mp_buf_str(&body), MP_UNSET, 0);
}

/* Handles one message of the process before this one. Returns 1 if more messages follow. */
static int take_message(mp_upgrade *upgrade, mp_passed *passed, mp_link_message *message, mp_err *err)
{
    switch (message->kind) {
    case MP_SAY_HELLO:
        return take_hello(upgrade, message, err) != 0 ? -1 : 1;
    case MP_SAY_SOCKETS:
        take_sockets(passed, message);
        return 1;
    case MP_SAY_FACTS:
        return take_facts(upgrade, message, err) != 0 ? -1 : 1;
    case MP_SAY_TICKETS:
        mp_upgrade_take_tickets(upgrade, message->body);
        return 1;
    case MP_SAY_PLACES:
        if (message->count > 0 &&
            !mp_places_join(mp_processes_places(upgrade->shared->processes), message->fds[--message->count]))
            mp_log(
                MP_WARN, "limits not shared", mp_log_int("pid", upgrade->before.pid),
                mp_log_str("hint", MP_STR("until the older process ends, it and this one have limits of their own")));
        return 1;
    case MP_SAY_LACKS:
        upgrade->shared->may_be_kept = mp_str_is(mp_str_cut(&message->body, '\0'), "kept");
        mp_buf_put(&upgrade->shared->may_lack, message->body);
        return 1;
    case MP_SAY_BEGIN:
        upgrade->shared->may_be_empty = mp_str_is(message->body, "empty");
        if (message->count > 0)
            upgrade->log_fd = message->fds[--message->count];
        return 0;
    default:
        return 1; /* of a later version of this format */
    }
}

int mp_upgrade_join(mp_upgrade *upgrade, mp_passed *passed, mp_err *err)
{
    int fd = find_link(), more = 1;
    if (fd < 0)
        return mp_err_set(err, VARIABLE " is set, and names no link to an earlier process of this gateway");
    mp_process_link *link = mp_process_link_new(fd);
    upgrade->link = link;
    upgrade->state = MP_UPGRADE_JOINS;
    upgrade->opened = MP_UPGRADE_OPENED; /* all steps are done at the start of the process */
    atomic_store(&upgrade->shared->is_on_trial, true);
    uint64_t until = mp_monotonic_ms() + JOIN_MS;
    while (more == 1) {
        mp_link_message message;
        if (mp_process_link_await(MP_NEVER_NULL(upgrade->link), &message, until) <= 0)
            return mp_err_set(err, "the process before this one does not hand its sockets over");
        more = take_message(upgrade, passed, &message, err);
        mp_link_message_close(&message);
    }
    if (more == 0)
        say_hello(upgrade, link); /* with the number that take_facts has chosen */
    return more;
}

/* -- the trial ----------------------------------------------------------------------------------------------------- */

void mp_upgrade_serve(mp_upgrade *upgrade, mp_listeners *listeners)
{
    mp_scoped_buf groups = {0};
    upgrade->listeners = listeners;
    mp_upgrade_forget_tickets(upgrade);
    mp_process_link *link = upgrade->link;
    if (link == NULL)
        return;
    for (int i = 0; i < listeners->count; i++)
        if (listeners->all[i].group != 0)
            mp_buf_printf(&groups, "%d%c", listeners->all[i].group, 0);
    mp_process_link_send(link, MP_SAY_SERVING, mp_buf_str(&groups), MP_UNSET, 0);
    if (upgrade->log_fd < 0)
        return;
    dup2(upgrade->log_fd, STDERR_FILENO);
    mp_log_find_reader();
    close(upgrade->log_fd);
    upgrade->log_fd = -1;
}

static void become_newest(mp_upgrade *upgrade)
{
    upgrade->state = MP_UPGRADE_IDLE;
    atomic_store(&upgrade->shared->is_on_trial, false);
    mp_log(MP_INFO, "upgraded", mp_log_int("pid", (int)getpid()), mp_log_str("version", MP_STR(MOONPOOL_VERSION)),
           mp_log_int("from", upgrade->before.pid), mp_log_str("from_version", mp_str_of(upgrade->before.version)));
    upgrade->committed(upgrade->ctx);
}

static void commit_upgrade(mp_upgrade *upgrade)
{
    mp_upgrade_add_older(upgrade, &upgrade->before, MP_NEVER_NULL(upgrade->link));
    upgrade->link = NULL;
    become_newest(upgrade);
}

/* Becomes the newest process without the last message of the process before this one, which has handed over its
 * store, and then has ended or does not answer. Older processes to which this one has no link were linked to that
 * process, and end with it. */
static void take_over(mp_upgrade *upgrade)
{
    mp_processes *processes = upgrade->shared->processes;
    mp_process_facts others[MP_OLDER_MOST + 1];
    int count = mp_processes_list(processes, others);
    mp_log(MP_WARN, "taken over", mp_log_int("from", upgrade->before.pid),
           mp_log_str("why", MP_STR("that process had handed its store over, and has ended, or does not answer")));
    for (int i = 0; i < count; i++) {
        bool has_link = false;
        for (int k = 0; k < upgrade->older_count; k++)
            has_link = has_link || upgrade->older[k].facts.number == others[i].number;
        if (has_link)
            continue;
        mp_processes_remove(processes, others[i].number);
        mp_upgrade_forget(upgrade, &others[i]);
    }
    become_newest(upgrade);
}

static void take_logins(const mp_upgrade *upgrade, mp_str text)
{
    const mp_listeners *listeners = upgrade->listeners;
    mp_admin *admin = listeners == NULL ? NULL : listeners->admin;
    if (admin != NULL)
        mp_admin_take_logins(admin, text);
}

static void take_older(mp_upgrade *upgrade, mp_link_message *message)
{
    mp_process_facts facts;
    if (message->count == 0 || !mp_upgrade_read_facts(&message->body, &facts))
        return;
    mp_upgrade_add_older(upgrade, &facts, mp_process_link_new(message->fds[--message->count]));
}

/* The link to the process before this one has ended. If the store was handed over, this process continues as the newest
 * one; otherwise the other process does. */
static void run_unlinked(mp_upgrade *upgrade)
{
    mp_store *store = upgrade->shared->process_state.store;
    /* asked before mp_store_is_own: a store that has arrived in between is then own */
    bool arrives = mp_store_arrives(store);
    if (atomic_load(&upgrade->shared->draining))
        return;
    if (mp_store_is_own(store))
        take_over(upgrade);
    else if (!arrives)
        mp_watchdog_end(upgrade->shared->watchdog, "the upgrade has ended before the store was handed over");
}

void mp_upgrade_run_joining(mp_upgrade *upgrade)
{
    mp_scoped_buf stuck = {0};
    mp_link_message message;
    int taken = -1;
    mp_process_link *link;
    while ((link = upgrade->link) != NULL && (taken = mp_process_link_take(link, &message)) > 0) {
        if (message.kind == MP_SAY_OLDER)
            take_older(upgrade, &message);
        else if (message.kind == MP_SAY_OWNERS)
            mp_session_table_take_owners(upgrade->shared->table, message.body);
        else if (message.kind == MP_SAY_COMMIT)
            commit_upgrade(upgrade);
        else if (message.kind == MP_SAY_LOGINS)
            take_logins(upgrade, message.body);
        else if (message.kind == MP_SAY_NEWS)
            mp_upgrade_take_news(upgrade, link, message.body);
        else if (message.kind == MP_SAY_ENDED)
            mp_upgrade_take_ended(upgrade, message.body);
        mp_link_message_close(&message);
    }
    if (upgrade->state != MP_UPGRADE_JOINS)
        return;
    if (link == NULL || taken < 0) {
        mp_process_link_free(link);
        upgrade->link = NULL;
        run_unlinked(upgrade);
        return;
    }
    mp_watchdog_put_stuck(upgrade->shared->watchdog, &stuck);
    if (atomic_load(&upgrade->shared->leaving))
        mp_buf_put(&stuck, MP_STR("it is stopping, as by SIGTERM"));
    if (stuck.len > 0 && !upgrade->is_unwell) {
        /* in the trial the link ends for that; once the store has gone over this process is needed as it is */
        upgrade->is_unwell = true;
        mp_process_link_send(link, MP_SAY_UNWELL, mp_buf_str(&stuck), MP_UNSET, 0);
    } else {
        mp_process_link_flush(link);
    }
}
