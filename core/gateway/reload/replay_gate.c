#define _GNU_SOURCE
#include "replay_gate.h"
#include "telemetry/telemetry.h"
#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

MP_COUNTER(gate_passed, "gates", "result", "passed", "reloads that went on after a replay of the recorded calls")
MP_COUNTER(gate_refused, "gates", "result", "refused", "reloads that were refused because recorded calls fail")

#define RECORDS_FD 3                   /* number of the descriptor in the child */
#define PAGE_BYTES ((size_t)256 << 10) /* bytes of records that are written at once */
#define REPORT_CAP ((size_t)32 << 10)  /* bytes of the report of a replay */
/* ms for a replay; calls that were not replayed by then refuse nothing */
#define WITHIN_MS MP_LIMIT(gate_ms, 30000)
#define FAILS 3                           /* exit code of `moonpool replay --gate` if a call fails now */
#define NOTHING_FAILS(code) ((code) == 0) /* exit code of a replay without failing calls; results may differ */

struct mp_gate {
    mp_source *MP_NULLABLE source; /* the scripts that are, or were, tried; NULL: none */
    pid_t pid;                     /* 0: nothing runs */
    int fd;                        /* the child's stdout and stderr; -1: closed */
    uint64_t ends_at;
    bool is_late, is_due;
    int code;     /* exit code of the child; -1: it was ended, or could not be started */
    mp_buf found; /* the output of the replay so far */
};

mp_gate *mp_gate_new(void)
{
    mp_gate *gate = mp_new(sizeof *gate);
    gate->fd = -1;
    return gate;
}

/* Waits for the child, which has been killed or has closed its output. */
static void reap_replay(mp_gate *gate)
{
    int status = 0;
    pid_t ended = -1;
    if (gate->pid == 0)
        return;
    do
        ended = waitpid(gate->pid, &status, 0);
    while (ended < 0 && errno == EINTR);
    gate->code = ended == gate->pid && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    gate->pid = 0;
}

static void close_output(mp_gate *gate)
{
    if (gate->fd >= 0)
        close(gate->fd);
    gate->fd = -1;
}

void mp_gate_stop(mp_gate *gate)
{
    if (gate->pid != 0)
        kill(gate->pid, SIGKILL);
    reap_replay(gate);
    close_output(gate);
    mp_source_unref(gate->source);
    gate->source = NULL;
    gate->found.len = 0;
    gate->is_late = gate->is_due = false;
}

void mp_gate_free(mp_gate *MP_NULLABLE gate)
{
    if (gate == NULL)
        return;
    mp_gate_stop(gate);
    mp_buf_clear(&gate->found);
    free(gate);
}

/* -- the child ----------------------------------------------------------------------------------------------------- */

/* A file in memory with the recorded calls; -1 if there are none, or no memory. */
static int records_file(void)
{
    int fd = memfd_create("records", MFD_CLOEXEC);
    bool is_written = fd >= 0;
    mp_record_page page = {.has_more = true};
    mp_scoped_buf lines = {0};
    while (is_written && page.has_more) {
        lines.len = 0;
        page = mp_record_read(page.next, SIZE_MAX, PAGE_BYTES, &lines);
        is_written = mp_write_text(fd, mp_buf_str(&lines)) == 0;
    }
    if (is_written && lseek(fd, 0, SEEK_SET) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

static int spawn_replay(mp_gate *gate, int records, int output, const char *file)
{
    const char *argv[] = {"moonpool", "replay", "--gate", "-c", file, "/proc/self/fd/3", NULL};
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_adddup2(&actions, output, STDERR_FILENO);
    posix_spawn_file_actions_adddup2(&actions, records, RECORDS_FD);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setsigdefault(&attributes, &all);
    char **env = mp_environment_all();
    int wrong = posix_spawn(&gate->pid, "/proc/self/exe", &actions, &attributes, (char *const *)argv, env);
    free(env);
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&actions);
    if (wrong != 0)
        gate->pid = 0;
    return wrong;
}

/* Starts the replay. False if it cannot be started: `report` says why. */
static bool start_replay(mp_gate *gate, uint64_t ms, const char *file, mp_buf *report)
{
    int ends[2] = {-1, -1}, records = records_file();
    int wrong = records < 0 || pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0 ? errno : 0;
    if (wrong == 0) {
        fcntl(ends[1], F_SETFL, 0); /* the child's end waits */
        wrong = spawn_replay(gate, records, ends[1], file);
    }
    if (records >= 0)
        close(records);
    if (ends[1] >= 0)
        close(ends[1]);
    if (wrong != 0) {
        if (ends[0] >= 0)
            close(ends[0]);
        mp_buf_printf(report, "the recorded calls cannot be replayed: %s\n", strerror(wrong));
        return false;
    }
    gate->fd = ends[0];
    gate->ends_at = mp_monotonic_ms() + ms;
    return true;
}

int mp_gate_next(const mp_gate *gate, int *wait_ms, uint64_t now)
{
    if (gate->pid == 0)
        return -1;
    int left = gate->ends_at > now ? (int)(gate->ends_at - now) : 0;
    if (*wait_ms < 0 || *wait_ms > left)
        *wait_ms = left;
    return gate->fd;
}

bool mp_gate_run(mp_gate *gate, uint64_t now)
{
    char bytes[4096];
    ssize_t got = -1;
    if (gate->pid == 0)
        return false;
    for (int turn = 0; turn < 16 && (got = read(gate->fd, bytes, sizeof bytes)) > 0; turn++)
        if (gate->found.len + (size_t)got <= REPORT_CAP)
            mp_buf_put(&gate->found, (mp_str){bytes, (size_t)got});
    bool has_ended = got == 0;
    if (!has_ended && now < gate->ends_at)
        return true;
    if (!has_ended) {
        gate->is_late = true;
        kill(gate->pid, SIGKILL);
    }
    reap_replay(gate);
    close_output(gate);
    gate->is_due = true;
    return false;
}

bool mp_gate_is_due(const mp_gate *gate)
{
    return gate->is_due;
}

/* -- the verdict --------------------------------------------------------------------------------------------------- */

/* True if a line of the report says that a call fails now. The lines with answers of calls begin with spaces. */
static bool has_failure(mp_str report)
{
    while (report.len > 0)
        if (mp_str_starts(mp_str_cut(&report, '\n'), MP_STR("FAILS ")))
            return true;
    return false;
}

static mp_gate_state conclude_replay(mp_gate *gate, const mp_config *config, mp_buf *report)
{
    mp_str found = mp_buf_str(&gate->found);
    bool fails = gate->code == FAILS || has_failure(found), passes = !gate->is_late && NOTHING_FAILS(gate->code);
    /* how long recorded calls take is decided by the clients that made them: they must not be able to prevent an
     * operator's reload by that */
    bool may_refuse = config->reload_check >= MP_RELOAD_CHECK_REFUSE && (fails || !gate->is_late);
    if (gate->is_late)
        mp_buf_put(report, MP_STR("the replay of the recorded calls did not end within 30 s\n"));
    if (fails)
        mp_buf_put(report, MP_STR("recorded calls fail with the new scripts (scripts.reload_check):\n"));
    else if (!passes && !gate->is_late)
        mp_buf_put(report, MP_STR("the recorded calls could not be replayed:\n"));
    for (mp_str rest = found; rest.len > 0;) { /* an empty line would end the report */
        mp_str line = mp_str_cut(&rest, '\n');
        if (line.len > 0)
            mp_buf_printf(report, "%.*s\n", MP_STR_ARG(line));
    }
    mp_gate_state state = passes || !may_refuse ? MP_GATE_OPEN : MP_GATE_SHUT;
    if (!passes && state == MP_GATE_OPEN)
        mp_log(MP_WARN, "recorded calls fail", mp_log_str("report", mp_buf_str(report)));
    mp_stat_add(state == MP_GATE_OPEN ? &mp_stat_gate_passed : &mp_stat_gate_refused, 1);
    mp_gate_stop(gate);
    return state;
}

mp_gate_state mp_gate_judge(mp_gate *gate, const mp_config *config, mp_source *source, const char *MP_NULLABLE file,
                            mp_buf *report)
{
    if (config->reload_check == MP_RELOAD_CHECK_OFF || file == NULL || mp_record_count() == 0) {
        mp_gate_stop(gate);
        return MP_GATE_OPEN;
    }
    mp_scoped_buf changed = {0};
    bool is_same = gate->source != NULL && mp_source_is_same(gate->source, source, &changed);
    if (gate->is_due && is_same)
        return conclude_replay(gate, config, report);
    mp_gate_stop(gate);
    gate->source = mp_source_ref(source);
    if (start_replay(gate, (uint64_t)WITHIN_MS, file, report))
        return MP_GATE_WAITS;
    gate->code = -1;
    gate->is_due = true;
    mp_buf_put(&gate->found, mp_buf_str(report));
    report->len = 0;
    return conclude_replay(gate, config, report);
}
