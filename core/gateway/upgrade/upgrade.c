/* upgrade.c: an upgrade in the older process, from the request to the commit or the failure; and the functions that the
 * main thread calls for all upgrades. */
#define _GNU_SOURCE
#include "state.h"
#include "json/json.h"
#include "gateway/notify.h"
#include "gateway/watchdog.h"
#include "lib/lib.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/wait.h>
#include <unistd.h>

#define END_MS 3000 /* ms that a newer process gets to end after SIGTERM, before it is killed */
#define LOOK_MS 100 /* ms between two checks of things that no event reports */
#define CHUNK 4096  /* bytes that are written to stderr at once: few enough not to block once poll reports POLLOUT */

mp_upgrade *mp_upgrade_new(mp_worker_shared *shared, const mp_gateway_options *options, void (*committed)(void *ctx),
                           void *ctx)
{
    mp_upgrade *upgrade = mp_new(sizeof *upgrade);
    *upgrade = (mp_upgrade){
        .shared = shared, .options = options, .committed = committed, .ctx = ctx, .log_fd = -1, .folder_fd = -1};
    upgrade->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    pthread_mutex_init(&upgrade->lock, NULL);
    mp_program_file_find(&upgrade->file, options->argv);
    mp_upgrade_find_parent(upgrade);
    return upgrade;
}

/* -- answers ------------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_stream *stream;
    int status;
    size_t len;
    char json[];
} answer_message;

static void deliver_request(void *content, mp_loop *MP_NULLABLE loop)
{
    const answer_message *given = content;
    if (loop != NULL)
        mp_stream_answer(given->stream, given->status, "application/json", (mp_str){given->json, given->len}, NULL, 0);
    mp_stream_unref(given->stream);
}

/* Answers all requests that wait. */
static void answer_all(mp_upgrade *upgrade, int status, mp_str json)
{
    mp_stream *asks[MP_UPGRADE_ASKS];
    const mp_listeners *listeners = upgrade->listeners;
    pthread_mutex_lock(&upgrade->lock);
    int count = upgrade->ask_count;
    memcpy(asks, upgrade->asks, (size_t)count * sizeof *asks);
    upgrade->ask_count = 0;
    pthread_mutex_unlock(&upgrade->lock);
    mp_admin *admin = listeners == NULL ? NULL : listeners->admin;
    for (int i = 0; i < count && admin != NULL; i++) {
        const answer_message message = {asks[i], status, json.len};
        mp_loop_send(mp_admin_loop(admin), deliver_request, &message, sizeof message, json);
    }
}

/* `status`: 409 if the upgrade was refused, else 500. */
static void answer_error(mp_upgrade *upgrade, int status, const mp_err *why)
{
    mp_scoped_buf json = {0};
    mp_buf_put(&json, MP_STR("{\"error\":"));
    mp_json_put_string(&json, mp_str_of(why->text));
    if (why->hint[0] != '\0') {
        mp_buf_put(&json, MP_STR(",\"hint\":"));
        mp_json_put_string(&json, mp_str_of(why->hint));
    }
    mp_buf_printf(&json, ",\"refused\":%s}\n", status == 409 ? "true" : "false");
    answer_all(upgrade, status, mp_buf_str(&json));
}

static void answer_done(mp_upgrade *upgrade)
{
    const mp_process_facts *to = &upgrade->newer.facts;
    mp_process_facts own = mp_upgrade_own_facts(upgrade);
    mp_scoped_buf json = {0};
    mp_buf_printf(&json, "{\"pid\":%d,\"version\":", to->pid);
    mp_json_put_string(&json, mp_str_of(to->version));
    mp_buf_printf(&json, ",\"from\":{\"pid\":%d,\"version\":", own.pid);
    mp_json_put_string(&json, mp_str_of(own.version));
    mp_buf_printf(&json, "},\"is_service\":%s}\n", mp_notify_can_store() ? "true" : "false");
    answer_all(upgrade, 200, mp_buf_str(&json));
}

void mp_upgrade_ask(mp_upgrade *upgrade, mp_stream *stream)
{
    pthread_mutex_lock(&upgrade->lock);
    bool has_room = upgrade->ask_count < MP_UPGRADE_ASKS;
    if (has_room)
        upgrade->asks[upgrade->ask_count++] = mp_stream_ref(stream);
    pthread_mutex_unlock(&upgrade->lock);
    if (has_room)
        mp_upgrade_wake(upgrade);
    else
        mp_stream_answer(stream, 503, "application/json",
                         MP_STR("{\"error\":\"too many requests wait for an upgrade\"}\n"), NULL, 0);
}

/* -- what the newer process writes --------------------------------------------------------------------------------- */

/* Copies the newer process's output to stderr, and keeps the end of it. */
static void read_said(mp_newer *newer)
{
    char bytes[CHUNK];
    ssize_t got;
    while (newer->said >= 0 && (got = read(newer->said, bytes, sizeof bytes)) != 0) {
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return;
        mp_str chunk = {bytes, (size_t)got};
        struct pollfd out = {.fd = STDERR_FILENO, .events = POLLOUT};
        if (poll(&out, 1, 0) == 1 && write(STDERR_FILENO, bytes, chunk.len) < 0)
            continue; /* no reader is left */
        mp_buf_put(&newer->tail, chunk);
        size_t over = newer->tail.len > MP_UPGRADE_TAIL ? newer->tail.len - MP_UPGRADE_TAIL : 0;
        memmove(newer->tail.ptr, newer->tail.ptr + over, newer->tail.len - over);
        newer->tail.len -= over;
    }
    if (newer->said >= 0)
        close(newer->said);
    newer->said = -1;
}

/* -- the end of an upgrade ----------------------------------------------------------------------------------------- */

static void forget_newer(mp_newer *newer)
{
    mp_process_link_free(newer->link);
    if (newer->pidfd >= 0)
        close(newer->pidfd);
    if (newer->said >= 0)
        close(newer->said);
    mp_buf_clear(&newer->tail);
    free(newer->taken);
    *newer = (mp_newer){.facts = newer->facts, .link = MP_UNSET, .pidfd = -1, .said = -1};
}

/* The upgrade has failed: this process serves as before, once the newer one has ended. */
static void fail_upgrade(mp_upgrade *upgrade, const char *format, mp_str what)
{
    mp_newer *newer = &upgrade->newer;
    if (upgrade->state == MP_UPGRADE_TRIES || upgrade->state == MP_UPGRADE_HANDS)
        mp_listeners_hold(MP_NEVER_NULL(upgrade->listeners), newer->taken, false);
    mp_processes_remove(upgrade->shared->processes, newer->facts.number);
    if (newer->why.text[0] == '\0')
        mp_err_set(&newer->why, format, MP_STR_ARG(what));
    upgrade->state = MP_UPGRADE_FAILS;
    upgrade->until = mp_monotonic_ms() + END_MS;
    mp_process_link_free(newer->link); /* the newer process drains */
    newer->link = MP_UNSET;
    for (int i = 0; i < upgrade->older_count; i++)
        mp_upgrade_drop_pair(&upgrade->older[i]);
    mp_lib_allow_schedules(true);
}

/* The newer process has ended. */
static void finish_failure(mp_upgrade *upgrade, int status)
{
    mp_newer *newer = &upgrade->newer;
    read_said(newer);
    mp_str said = mp_buf_str(&newer->tail);
    while (said.len > 0 && said.ptr[said.len - 1] == '\n')
        said.len--;
    mp_err why = newer->why;
    if (why.text[0] == '\0' && WIFSIGNALED(status))
        mp_err_set(&why, "the new process was ended by signal %d", WTERMSIG(status));
    else if (why.text[0] == '\0')
        mp_err_set(&why, "the new process ended with code %d", WEXITSTATUS(status));
    mp_log(MP_ERROR, "not upgraded", mp_log_str("why", mp_str_of(why.text)), mp_log_str("said", said),
           mp_log_str("hint", MP_STR("this process serves on as before")));
    size_t used = strlen(why.text);
    if (said.len > 0 && said.len < sizeof why.text - used - 4)
        snprintf(why.text + used, sizeof why.text - used, ":\n%.*s", MP_STR_ARG(said));
    else if (said.len > 0)
        snprintf(why.text + used, sizeof why.text - used, ":\n%.*s", (int)(sizeof why.text - used - 4),
                 said.ptr + said.len - (sizeof why.text - used - 4));
    answer_error(upgrade, 500, &why);
    mp_upgrade_forget(upgrade, &newer->facts);
    forget_newer(newer);
    upgrade->state = MP_UPGRADE_IDLE;
    upgrade->until = 0;
}

/* -- the beginning of an upgrade ----------------------------------------------------------------------------------- */

static void send_group(mp_upgrade *upgrade, int i, int *fds, int count)
{
    const mp_bound *one = &MP_NEVER_NULL(upgrade->listeners)->all[i];
    mp_str name = mp_systemd_name(mp_str_of(one->where));
    char number[32], flags[3] = "";
    mp_scoped_buf body = {0};
    snprintf(number, sizeof number, "%d", i + 1);
    if (mp_listeners_is_admin(MP_NEVER_NULL(upgrade->listeners), i))
        strcat(flags, "a");
    if (atomic_load(&one->is_stored))
        strcat(flags, "s");
    mp_say_put(&body, number);
    mp_say_put(&body, one->where);
    mp_say_put(&body, name.ptr == NULL ? one->name : name.ptr);
    mp_say_put(&body, flags);
    mp_process_link_send(upgrade->newer.link, MP_SAY_SOCKETS, mp_buf_str(&body), fds, count);
}

static void send_sockets(mp_upgrade *upgrade)
{
    const mp_listeners *listeners = MP_NEVER_NULL(upgrade->listeners);
    mp_listeners_share(listeners);
    for (int i = 0; i < listeners->count; i++) {
        int most = listeners->all[i].count, *fds = mp_new((size_t)(most + 1) * sizeof *fds);
        int count = mp_listeners_sockets(listeners, i, fds, most);
        for (int from = 0; from < count; from += MP_LINK_FDS)
            send_group(upgrade, i, fds + from, count - from < MP_LINK_FDS ? count - from : MP_LINK_FDS);
        free(fds);
    }
}

static void put_hex(mp_buf *body, const void *bytes, size_t size)
{
    mp_hex_put(mp_buf_room(body, 2 * size), bytes, size);
    body->len += 2 * size;
    mp_buf_putc(body, '\0');
}

static void send_facts(const mp_upgrade *upgrade)
{
    const mp_worker_shared *shared = upgrade->shared;
    mp_admin *MP_NULLABLE admin = MP_NEVER_NULL(upgrade->listeners)->admin;
    int token = admin == NULL ? -1 : mp_admin_token_fd(admin);
    mp_scoped_buf body = {0};
    put_hex(&body, mp_processes_key(shared->processes), MP_PROCESS_KEY);
    mp_say_put(&body, MP_NEVER_NULL(mp_processes_folder(shared->processes)));
    put_hex(&body, &shared->process_state.seal_key, sizeof shared->process_state.seal_key);
    for (int i = 0; i < upgrade->older_count; i++)
        mp_upgrade_put_facts(&body, &upgrade->older[i].facts);
    mp_process_link_send(upgrade->newer.link, MP_SAY_FACTS, mp_buf_str(&body), &token, token >= 0 ? 1 : 0);
    explicit_bzero(body.ptr, body.len);
}

static void send_all(mp_upgrade *upgrade)
{
    mp_scoped_buf body = {0};
    mp_process_facts own = mp_upgrade_own_facts(upgrade);
    mp_buf_printf(&body, "%d%c", MP_UPGRADE_FORMAT, 0);
    mp_upgrade_put_facts(&body, &own);
    mp_process_link_send(upgrade->newer.link, MP_SAY_HELLO, mp_buf_str(&body), MP_UNSET, 0);
    send_sockets(upgrade);
    send_facts(upgrade);
    mp_upgrade_send_tickets(upgrade);
    mp_upgrade_share_places(upgrade);
    mp_upgrade_send_lacks(upgrade);
    int log = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
    bool is_empty = upgrade->shared->settings->config->text[0] == '\0';
    mp_process_link_send(upgrade->newer.link, MP_SAY_BEGIN, is_empty ? MP_STR("empty") : MP_STR_NONE, &log,
                         log >= 0 ? 1 : 0);
}

/* Starts the program file as the newer process. -1 and the reason. */
static int start_newer(mp_upgrade *upgrade, mp_err *err)
{
    int ends[2], said[2];
    pid_t pid = 0;
    mp_newer *newer = &upgrade->newer;
    if (mp_upgrade_open_folder(upgrade, err) != 0)
        return -1;
    if (mp_process_link_pair(ends) != 0)
        return mp_err_set(err, "cannot make a link: %s", strerror(errno));
    if (pipe2(said, O_CLOEXEC) != 0) {
        mp_err_set(err, "cannot make a pipe: %s", strerror(errno));
        close(ends[0]);
        close(ends[1]);
        return -1;
    }
    fcntl(said[0], F_SETFL, O_NONBLOCK);
    int failed = mp_program_file_start(&upgrade->file, ends[1], said[1], &pid, &newer->pidfd, err);
    close(ends[1]);
    close(said[1]);
    if (failed != 0) {
        close(ends[0]);
        close(said[0]);
        return -1;
    }
    newer->facts = (mp_process_facts){.pid = pid};
    newer->said = said[0];
    newer->link = mp_process_link_new(ends[0]);
    newer->taken = mp_new((size_t)(MP_NEVER_NULL(upgrade->listeners)->count + 1) * sizeof *newer->taken);
    return 0;
}

static void begin_upgrade(mp_upgrade *upgrade, const char *by)
{
    mp_err why;
    int refused = mp_upgrade_refusal(upgrade, &why);
    if (refused == 0 && start_newer(upgrade, &why) == 0) {
        mp_log(MP_INFO, "upgrade begins", mp_log_int("pid", upgrade->newer.facts.pid), mp_log_str("by", mp_str_of(by)),
               mp_log_str("file", mp_str_of(MP_NEVER_NULL(upgrade->file.path))));
        upgrade->state = MP_UPGRADE_STARTS;
        upgrade->until = mp_monotonic_ms() + mp_upgrade_time(MP_UPGRADE_START_MS);
        send_all(upgrade);
        return;
    }
    mp_log(MP_WARN, refused != 0 ? "upgrade refused" : "not upgraded", mp_log_str("why", mp_str_of(why.text)),
           mp_log_str("hint", why.hint[0] != '\0' ? mp_str_of(why.hint) : MP_STR("this process serves on as before")));
    answer_error(upgrade, refused != 0 ? 409 : 500, &why);
}

/* -- trial and commit ---------------------------------------------------------------------------------------------- */

static void begin_trial(mp_upgrade *upgrade, mp_str groups)
{
    const mp_listeners *listeners = MP_NEVER_NULL(upgrade->listeners);
    mp_newer *newer = &upgrade->newer;
    bool *held = mp_new((size_t)(listeners->count + 1) * sizeof *held);
    while (groups.len > 0) {
        int64_t group = 0;
        mp_str text = mp_str_cut(&groups, '\0');
        if (mp_json_int(text, &group) && group >= 1 && group <= listeners->count)
            newer->taken[group - 1] = true;
    }
    for (int i = 0; i < listeners->count; i++)
        held[i] = newer->taken[i] && !mp_listeners_is_admin(listeners, i);
    mp_processes_add(upgrade->shared->processes, &newer->facts);
    mp_listeners_hold(listeners, held, true);
    free(held);
    mp_log(MP_INFO, "upgrade on trial", mp_log_int("pid", newer->facts.pid),
           mp_log_str("version", mp_str_of(newer->facts.version)));
    upgrade->state = MP_UPGRADE_TRIES;
    upgrade->until = mp_monotonic_ms() + mp_upgrade_time(MP_UPGRADE_TRIAL_MS);
}

/* Makes the links that join the newer process with each older one, while the upgrade can still fail. -1 with errno. */
static int make_links(mp_upgrade *upgrade)
{
    int failed = 0;
    for (int i = 0; i < upgrade->older_count && failed == 0; i++)
        failed = mp_process_link_pair(upgrade->older[i].ends);
    return failed;
}

static void pass_links(mp_upgrade *upgrade)
{
    for (int i = 0; i < upgrade->older_count; i++) {
        mp_older *one = &upgrade->older[i];
        mp_scoped_buf body = {0};
        mp_upgrade_put_facts(&body, &one->facts);
        mp_process_link_send(upgrade->newer.link, MP_SAY_OLDER, mp_buf_str(&body), &one->ends[0], 1);
        body.len = 0;
        mp_upgrade_put_facts(&body, &upgrade->newer.facts);
        mp_process_link_send(one->link, MP_SAY_NEWEST, mp_buf_str(&body), &one->ends[1], 1);
        one->ends[0] = one->ends[1] = -1; /* the links own the descriptors now */
    }
}

/* On a thread of the store. */
static void on_handed(void *ctx, const mp_err *MP_NULLABLE err)
{
    mp_upgrade *upgrade = ctx;
    if (err != NULL)
        upgrade->hand_error = *err;
    atomic_store(&upgrade->handed, err == NULL ? 1 : -1);
    mp_upgrade_wake(upgrade);
}

static void hand_over_store(mp_upgrade *upgrade)
{
    const mp_processes *processes = upgrade->shared->processes;
    char path[MP_PROCESS_PATH];
    if (make_links(upgrade) != 0) {
        fail_upgrade(upgrade, "cannot make links between the new process and the older ones: %.*s",
                     mp_str_of(strerror(errno)));
        return;
    }
    upgrade->state = MP_UPGRADE_HANDS;
    upgrade->until = 0;
    atomic_store(&upgrade->handed, 0);
    mp_lib_allow_schedules(false);
    /* the path is as long as that of this process's own socket */
    mp_processes_path(processes, upgrade->newer.facts.number, "store", path);
    mp_store_hand_over(upgrade->shared->process_state.store, path, on_handed, upgrade);
}

/* The newer process is the newest one from now on, and a service manager that takes messages knows it before that one
 * sends READY=1. */
static void begin_commit(mp_upgrade *upgrade)
{
    mp_listeners *listeners = MP_NEVER_NULL(upgrade->listeners);
    mp_upgrade_run_owners(upgrade);
    pass_links(upgrade);
    mp_listeners_leave(listeners, upgrade->newer.taken);
    mp_notify_leave(upgrade->newer.facts.pid);
    upgrade->state = MP_UPGRADE_COMMITS;
    upgrade->until = mp_monotonic_ms() + mp_upgrade_time(MP_UPGRADE_TELL_MS);
}

/* Tells the newer process that it is the newest one. If this process was asked to stop since the store was handed over,
 * the whole gateway was meant: passes that on. */
static void say_commit(const mp_upgrade *upgrade)
{
    const mp_newer *newer = &upgrade->newer;
    mp_process_link_send(newer->link, MP_SAY_COMMIT, MP_STR_NONE, MP_UNSET, 0);
    if (atomic_load(&upgrade->shared->leaving))
        kill(newer->facts.pid, SIGTERM);
}

static void finish_commit(mp_upgrade *upgrade)
{
    mp_newer *newer = &upgrade->newer;
    mp_upgrade_send_logins(upgrade);
    /* first: who hears of the commit by the newer process finds that this one knows it */
    mp_processes_set_newest(upgrade->shared->processes, newer->facts.number);
    say_commit(upgrade);
    upgrade->until = 0;
    upgrade->link = newer->link;
    newer->link = MP_UNSET;
    if (newer->is_gone)
        answer_error(upgrade, 500,
                     &(mp_err){"the new process has ended when it had taken over, and the gateway ends with it",
                               "start the gateway again"});
    else
        answer_done(upgrade);
    forget_newer(newer);
    mp_upgrade_become_older(upgrade);
    if (upgrade->is_signalled) /* SIGUSR2 during the trial is for the newest process */
        mp_process_link_send(MP_NEVER_NULL(upgrade->link), MP_SAY_ASK, MP_STR_NONE, MP_UNSET, 0);
    upgrade->is_signalled = false;
}

/* -- messages of the newer process --------------------------------------------------------------------------------- */

static void take_hello(mp_upgrade *upgrade, mp_str body)
{
    int64_t format = 0;
    mp_process_facts facts;
    mp_str number = mp_str_cut(&body, '\0');
    if (!mp_json_int(number, &format) || format != MP_UPGRADE_FORMAT || !mp_upgrade_read_facts(&body, &facts)) {
        fail_upgrade(upgrade, "the new process hands over by another format%.*s: stop the gateway, and start it again",
                     MP_STR(""));
        return;
    }
    facts.pid = upgrade->newer.facts.pid;
    upgrade->newer.facts = facts;
    /* a request for a session of the newer process may come before that process says that it serves */
    mp_processes_expect(upgrade->shared->processes, facts.number);
}

static void run_link(mp_upgrade *upgrade)
{
    mp_newer *newer = &upgrade->newer;
    mp_link_message message;
    int taken = 1;
    if (newer->link == NULL)
        return;
    mp_process_link_flush(newer->link);
    while (newer->link != NULL && (taken = mp_process_link_take(newer->link, &message)) > 0) {
        mp_link_message_close(&message);
        if (message.kind == MP_SAY_HELLO)
            take_hello(upgrade, message.body);
        else if (message.kind == MP_SAY_SERVING && upgrade->state == MP_UPGRADE_STARTS && newer->facts.number != 0)
            begin_trial(upgrade, message.body);
        else if (message.kind == MP_SAY_UNWELL && upgrade->state == MP_UPGRADE_TRIES)
            fail_upgrade(upgrade, "the new process is not well: %.*s", message.body);
        else if (message.kind == MP_SAY_OWNERS)
            mp_session_table_take_owners(upgrade->shared->table, message.body);
        else if (message.kind == MP_SAY_NEWS)
            mp_upgrade_take_news(upgrade, newer->link, message.body);
        else if (message.kind == MP_SAY_ENDED)
            mp_upgrade_take_ended(upgrade, message.body);
    }
    if (taken < 0 && (upgrade->state == MP_UPGRADE_STARTS || upgrade->state == MP_UPGRADE_TRIES))
        fail_upgrade(upgrade, "%.*s", MP_STR("")); /* the exit code of the newer process is the reason */
    newer->is_gone = newer->is_gone || (taken < 0 && newer->link != NULL);
}

/* True if the newer process has ended, and was reaped. */
static bool has_ended(const mp_newer *newer, int *status)
{
    *status = 0;
    return waitpid(newer->facts.pid, status, WNOHANG) == newer->facts.pid;
}

/* While the store goes over nothing can be given up; a newer process that has ended is an error of the hand-over. */
static void run_handing(mp_upgrade *upgrade)
{
    int handed = atomic_load(&upgrade->handed);
    if (handed > 0) {
        begin_commit(upgrade);
        if (mp_notify_is_idle())
            finish_commit(upgrade);
    } else if (handed < 0) {
        mp_err why = upgrade->hand_error;
        fail_upgrade(upgrade, "the store was not handed over: %.*s", mp_str_of(why.text));
    }
}

static void run_newer(mp_upgrade *upgrade)
{
    mp_newer *newer = &upgrade->newer;
    uint64_t now = mp_monotonic_ms();
    int status;
    read_said(newer);
    run_link(upgrade);
    bool is_late = upgrade->until != 0 && now >= upgrade->until;
    if (upgrade->state == MP_UPGRADE_COMMITS) {
        if (mp_notify_is_idle() || is_late || newer->is_gone)
            finish_commit(upgrade);
        return;
    }
    if (upgrade->state == MP_UPGRADE_HANDS) {
        run_handing(upgrade);
        return;
    }
    if (atomic_load(&upgrade->shared->leaving) && upgrade->state != MP_UPGRADE_FAILS)
        fail_upgrade(upgrade, "the gateway %.*s", MP_STR("is stopping"));
    if (has_ended(newer, &status)) {
        if (upgrade->state != MP_UPGRADE_FAILS)
            fail_upgrade(upgrade, "%.*s", MP_STR(""));
        finish_failure(upgrade, status);
    } else if (is_late && upgrade->state == MP_UPGRADE_STARTS) {
        fail_upgrade(upgrade, "the new process does not serve after %.*s s", MP_STR("60"));
        kill(newer->facts.pid, SIGKILL);
    } else if (is_late && upgrade->state == MP_UPGRADE_FAILS) {
        kill(newer->facts.pid, SIGKILL);
        upgrade->until = now + END_MS;
    } else if (is_late && upgrade->state == MP_UPGRADE_TRIES) {
        hand_over_store(upgrade);
    }
}

static void shorten_wait(int *wait_ms, uint64_t ms)
{
    if (*wait_ms < 0 || (uint64_t)*wait_ms > ms)
        *wait_ms = (int)ms;
}

static void add_link(struct pollfd *fds, int *count, const mp_process_link *MP_NULLABLE link)
{
    if (link != NULL)
        fds[(*count)++] = (struct pollfd){.fd = mp_process_link_fd(link), .events = mp_process_link_events(link)};
}

static bool has_newer(const mp_upgrade *upgrade)
{
    return upgrade->state >= MP_UPGRADE_STARTS && upgrade->state <= MP_UPGRADE_FAILS;
}

int mp_upgrade_next(mp_upgrade *upgrade, struct pollfd fds[MP_UPGRADE_FDS], int *wait_ms)
{
    const mp_newer *newer = &upgrade->newer;
    uint64_t now = mp_monotonic_ms();
    int count = 0;
    fds[count++] = (struct pollfd){.fd = upgrade->wake_fd, .events = POLLIN};
    add_link(fds, &count, upgrade->link);
    for (int i = 0; i < upgrade->older_count; i++)
        add_link(fds, &count, upgrade->older[i].link);
    if (has_newer(upgrade) && !newer->is_gone) { /* a closed descriptor would make poll return at once */
        add_link(fds, &count, newer->link);
        fds[count++] = (struct pollfd){.fd = newer->said, .events = POLLIN};
        fds[count++] = (struct pollfd){.fd = newer->pidfd, .events = POLLIN};
    }
    if (upgrade->until != 0)
        shorten_wait(wait_ms, upgrade->until > now ? upgrade->until - now : 0);
    if (upgrade->state >= MP_UPGRADE_TRIES)
        shorten_wait(wait_ms, LOOK_MS);
    return count;
}

static bool is_asked(mp_upgrade *upgrade)
{
    MP_LOCKED(&upgrade->lock);
    return upgrade->ask_count > 0;
}

/* Begins the upgrades that requests or signals ask for, or refuses them. A signal that arrives during an upgrade waits
 * until that is over. */
static void take_asks(mp_upgrade *upgrade)
{
    mp_err why;
    bool asked = is_asked(upgrade), may_begin = upgrade->state == MP_UPGRADE_IDLE;
    if (may_begin && (asked || upgrade->is_signalled)) {
        upgrade->is_signalled = false;
        begin_upgrade(upgrade, asked ? "admin" : "SIGUSR2");
    } else if (asked && !may_begin && !has_newer(upgrade)) {
        mp_upgrade_refusal(upgrade, &why);
        answer_error(upgrade, 409, &why);
    }
}

void mp_upgrade_run(mp_upgrade *upgrade)
{
    uint64_t count;
    while (read(upgrade->wake_fd, &count, sizeof count) < 0 && errno == EINTR)
        continue;
    mp_upgrade_run_links(upgrade);
    if (upgrade->state == MP_UPGRADE_JOINS)
        mp_upgrade_run_joining(upgrade);
    else if (upgrade->state == MP_UPGRADE_OLDER)
        mp_upgrade_run_older(upgrade);
    else if (upgrade->state != MP_UPGRADE_IDLE)
        run_newer(upgrade);
    mp_upgrade_run_owners(upgrade);
    mp_upgrade_run_news(upgrade);
    take_asks(upgrade);
}

void mp_upgrade_signal(mp_upgrade *upgrade)
{
    upgrade->is_signalled = true;
}

/* Ends an upgrade that is under way while this process ends. */
static void end_newer(mp_upgrade *upgrade)
{
    mp_newer *newer = &upgrade->newer;
    if (upgrade->state == MP_UPGRADE_COMMITS)
        say_commit(upgrade);
    else
        kill(newer->facts.pid, SIGKILL);
    forget_newer(newer);
}

void mp_upgrade_free(mp_upgrade *MP_NULLABLE upgrade)
{
    if (upgrade == NULL)
        return;
    for (int i = 0; i < upgrade->ask_count; i++)
        mp_stream_unref(upgrade->asks[i]);
    for (int i = 0; i < upgrade->older_count; i++) {
        mp_upgrade_drop_pair(&upgrade->older[i]);
        mp_process_link_free(upgrade->older[i].link);
    }
    const char *folder = mp_processes_folder(upgrade->shared->processes);
    if (folder != NULL)
        /* succeeds only in the last process of the gateway: otherwise the folder has sockets of others */
        rmdir(folder);
    if (has_newer(upgrade))
        end_newer(upgrade);
    mp_process_link_free(upgrade->link);
    mp_upgrade_forget_tickets(upgrade);
    mp_program_file_clear(&upgrade->file);
    mp_buf_clear(&upgrade->news);
    if (upgrade->wake_fd >= 0)
        close(upgrade->wake_fd);
    if (upgrade->folder_fd >= 0)
        close(upgrade->folder_fd);
    pthread_mutex_destroy(&upgrade->lock);
    free(upgrade);
}
