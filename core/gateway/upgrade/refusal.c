/* refusal.c: where and when an upgrade is refused, before anything is begun. */
#include "state.h"
#include <unistd.h>

/* Programs that end when the process that they have started ends, or start it again. */
static const char *const minders[] = {"tini",  "docker-init",  "dumb-init",  "catatonit",
                                      "runsv", "s6-supervise", "supervisord"};

/* Programs that are the first process of a system, and go on when a process that they have started ends. */
static const char *const inits[] = {"systemd", "init", "openrc-init", "runit"};

/* The name of a process; "": unknown. */
static void read_name(int pid, char *name, size_t size)
{
    char path[64];
    name[0] = '\0';
    snprintf(path, sizeof path, "/proc/%d/comm", pid);
    FILE *file = fopen(path, "re");
    if (file == NULL)
        return;
    if (fgets(name, (int)size, file) == NULL)
        name[0] = '\0';
    name[strcspn(name, "\n")] = '\0';
    fclose(file);
}

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(name, names[i]) == 0)
            return true;
    return false;
}

void mp_upgrade_find_parent(mp_upgrade *upgrade)
{
    upgrade->parent = (int)getppid();
    read_name(upgrade->parent, upgrade->parent_name, sizeof upgrade->parent_name);
}

/* Refuses an upgrade of a process whose parent at its start has ended: the process that adopted it would not follow the
 * upgrade. For a process that an upgrade has started, the parent does not matter. */
static int refuse_parent(const mp_upgrade *upgrade, mp_err *why)
{
    const char *parent = upgrade->parent_name;
    if (is_among(parent, minders, sizeof minders / sizeof *minders)) {
        mp_err_set(why, "%s has started this process, and follows only the process that it has started", parent);
        return mp_err_hint(why, "let %s restart the gateway, or replace the container", parent);
    }
    if (upgrade->parent != 1 || parent[0] == '\0' || is_among(parent, inits, sizeof inits / sizeof *inits))
        return 0;
    mp_err_set(why, "this process is a child of %s, process 1 of a container, which may end when it ends", parent);
    return mp_err_hint(why, "replace the container by one of the new image, or restart it");
}

static int refuse_place(const mp_upgrade *upgrade, mp_err *why)
{
    if (getpid() == 1) {
        mp_err_set(why, "this is process 1 of a container, which ends with it");
        return mp_err_hint(why, "replace the container by one of the new image, or restart it");
    }
    if (upgrade->before.number == 0 && refuse_parent(upgrade, why) != 0)
        return -1;
    const char *own = getenv("SYSTEMD_EXEC_PID");
    if (own == NULL || strtol(own, NULL, 10) != (long)getpid() || getenv("NOTIFY_SOCKET") != NULL)
        return 0;
    mp_err_set(why, "systemd has started this process, and would not follow another one");
    return mp_err_hint(why, "write Type=notify into the unit, or restart it: systemctl restart");
}

static int refuse_state(const mp_upgrade *upgrade, mp_err *why)
{
    const mp_older *oldest = &upgrade->older[0];
    switch (upgrade->state) {
    case MP_UPGRADE_IDLE:
        break;
    case MP_UPGRADE_OLDER:
        return mp_err_set(why, "process %d is the newest one, and this process serves its own sessions only",
                          upgrade->newer.facts.pid);
    default:
        mp_err_set(why, "an upgrade is under way");
        return mp_err_hint(why, "ask again when that upgrade is over, which takes some seconds");
    }
    if (upgrade->older_count < MP_OLDER_MOST)
        return 0;
    mp_err_set(why, "%d older processes still serve their sessions; the oldest is process %d, version %s",
               MP_OLDER_MOST, oldest->facts.pid, oldest->facts.version);
    return mp_err_hint(why,
                       "it ends with its last session, or within an hour after its upgrade; SIGTERM ends it at once");
}

void mp_upgrade_send_lacks(const mp_upgrade *upgrade)
{
    const mp_worker_shared *shared = upgrade->shared;
    mp_scoped_buf body = {0};
    mp_say_put(&body, shared->serves_kept ? "kept" : "");
    mp_buf_put(&body, mp_source_left_out(shared->serving));
    if (body.len < MP_LINK_BYTES) /* without them, the newer process judges its sockets alone */
        mp_process_link_send(upgrade->newer.link, MP_SAY_LACKS, mp_buf_str(&body), MP_UNSET, 0);
}

int mp_upgrade_refusal(const mp_upgrade *upgrade, mp_err *why)
{
    *why = (mp_err){"", ""};
    if (upgrade->options->on_stdio || upgrade->options->is_apart) {
        mp_err_set(why, "a gateway on stdio serves one client");
        return mp_err_hint(why, "the client starts another one");
    }
    if (upgrade->listeners == NULL || atomic_load(&upgrade->shared->leaving))
        return mp_err_set(why, "the gateway is %s", upgrade->listeners == NULL ? "starting" : "stopping");
    return refuse_state(upgrade, why) != 0 || refuse_place(upgrade, why) != 0 ||
                   mp_program_file_check(&upgrade->file, why) != 0
               ? -1
               : 0;
}
