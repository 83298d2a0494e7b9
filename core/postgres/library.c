/* library.c: libpq, the gate before it, and the threads that it blocks. More than 400 lines: none of the three is of
 * use without the others. */
#define _GNU_SOURCE /* pthread_cond_clockwait, dup3 */
#include "library.h"
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

MP_REFUSED(refused_errands, "postgres_errands", MP_LIMIT_REACHED,
           "connections to PostgreSQL servers that could not be opened, and statements that could not be cancelled, "
           "since 64 threads wait for servers, or 32 to cancel")

#define MAX_ERRANDS 64  /* of the process: each is a thread */
#define MAX_CANCELS 32  /* of those: a server that does not answer may keep such a thread for ever */
#define CONNECT_MS 5000 /* until a connection has logged in */
#define CANCEL_MS 900   /* for a request to cancel, by libpq 17: less than STOP_MS */
#define STOP_MS 1000    /* for which the end of the process waits until statements are cancelled */
#define LOOK_MS 100     /* until a thread that waits sees that the process ends */
/* That a server says until a connection has logged in, certificates too. */
#define MAX_LOGIN_BYTES ((size_t)256 << 10)

mp_libpq mp_pq;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *MP_NULLABLE failure; /* why there is no library; NULL: there is one */

/* Errands that have not ended; `loop` of an errand is set and read under the lock. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int count, cancels;
    atomic_bool is_stopping; /* no connection is to be opened any more */
} errands = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void load_library(void)
{
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        failure = "libpq.so.5 is not installed (Debian: apt install libpq5)";
        return;
    }
#define NAME(name, ...) "PQ" #name "\0"
    static const char names[] = MP_LIBPQ(NAME) MP_LIBPQ_17(NAME);
#undef NAME
    size_t at = 0; /* in mp_pq, whose members are in the order of the names */
    for (const char *name = names; *name != '\0'; name += strlen(name) + 1) {
        void *found = dlsym(library, name);
        if (found == NULL && at < offsetof(mp_libpq, cancelCreate))
            failure = "libpq.so.5 is too old: that of PostgreSQL 14 or newer is needed";
        memcpy((char *)&mp_pq + at, &found, sizeof found);
        at += sizeof found;
    }
}

static bool need_library(mp_err *err)
{
    pthread_once(&once, load_library);
    if (failure != NULL)
        mp_err_set(err, "%s", failure);
    return failure == NULL;
}

int mp_libpq_version(void)
{
    mp_err why;
    return need_library(&why) ? mp_pq.libVersion() : 0;
}

void mp_libpq_explain(mp_err *why, const char *message)
{
    mp_str text = mp_str_of(message);
    while (text.len > 0 && text.ptr[text.len - 1] <= ' ' && text.ptr[text.len - 1] >= 0)
        text.len--;
    for (size_t i = text.len; i-- > 0;)
        if (text.ptr[i] == '\n') {
            text = mp_str_from(text, i + 1);
            break;
        }
    const char *at = text.len == 0 ? NULL : strstr(text.ptr, " failed: ");
    if (at != NULL)
        text = mp_str_from(text, (size_t)(at - text.ptr) + 9);
    if (mp_str_starts(text, MP_STR("fe_sendauth: no password")))
        text = MP_STR("the server wants a password: postgres.open takes 'password'");
    mp_err_set(why, "%.*s", MP_STR_ARG(text));
}

/* A receiver instead of libpq's own, which writes to the standard error. */
static void on_notice(MP_UNUSED void *ctx, MP_UNUSED const PGresult *result) {}

/* -- the gate ---------------------------------------------------------------------------------------------------- */

bool mp_gate_open(mp_gate *gate, int libpq)
{
    int pair[2], size = 2 * MP_GATE_BYTES;
    int server = fcntl(libpq, F_DUPFD_CLOEXEC, 0);
    if (server < 0)
        return false;
    bool is_open = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0;
    if (is_open) {
        is_open = dup3(pair[1], libpq, O_CLOEXEC) >= 0;
        close(pair[1]);
        if (!is_open)
            close(pair[0]);
    }
    if (!is_open) {
        close(server);
        return false;
    }
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &size, sizeof size); /* so that what is let in has room */
    *gate = (mp_gate){.is_open = true, .server = server, .own = pair[0], .libpq = libpq};
    return true;
}

int mp_gate_unread(const mp_gate *gate)
{
    int bytes = 0;
    ioctl(gate->libpq, FIONREAD, &bytes);
    return bytes;
}

size_t mp_gate_let_in(mp_gate *gate)
{
    char bytes[MP_GATE_BYTES];
    if (gate->is_over || mp_gate_unread(gate) > 0)
        return 0;
    ssize_t n = recv(gate->server, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (n > 0 && send(gate->own, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT) == n)
        return (size_t)n;
    gate->is_over = true;
    shutdown(gate->own, SHUT_WR);
    return 0;
}

bool mp_gate_send(const mp_gate *gate)
{
    char bytes[MP_GATE_BYTES];
    ssize_t n;
    while ((n = recv(gate->own, bytes, sizeof bytes, MSG_PEEK | MSG_DONTWAIT)) > 0) {
        ssize_t sent = send(gate->server, bytes, (size_t)n, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (sent < 0)
            return errno == EAGAIN || errno == EINTR;
        recv(gate->own, bytes, (size_t)sent, MSG_DONTWAIT); /* those that the server has taken */
    }
    return false;
}

void mp_gate_close(mp_gate *gate)
{
    if (!gate->is_open)
        return;
    mp_gate_send(gate);
    close(gate->own);
    close(gate->server);
    *gate = (mp_gate){0};
}

/* -- connections ------------------------------------------------------------------------------------------------- */

size_t mp_libpq_size(const PGresult *result)
{
    size_t bytes = 0;
    for (const char *field = "SVCMDHPpqWstcdnFLR"; *field != '\0'; field++) {
        const char *text = mp_pq.resultErrorField(result, *field);
        bytes += text == NULL ? 0 : strlen(text) + 2;
    }
    return bytes;
}

void mp_libpq_finish(PGconn *MP_NULLABLE conn, mp_gate *gate)
{
    mp_pq.finish(conn);
    mp_gate_close(gate);
}

/* False: the time is over, or the process ends. A request to cancel (`is_cancel`) goes on when the process ends. */
static bool wait_for(int fd, int events, bool is_cancel, uint64_t until)
{
    struct pollfd wait = {fd, (short)events, 0};
    int ready = 0;
    uint64_t now;
    while (ready == 0 && (now = mp_monotonic_ms()) < until && (is_cancel || !atomic_load(&errands.is_stopping)))
        ready = poll(&wait, 1, until - now < LOOK_MS ? (int)(until - now) : LOOK_MS);
    return ready > 0;
}

/* Moves the bytes of a connection that logs in, and waits until libpq can go on. The gate is opened when libpq wants to
 * read for the first time: before, nothing was read. NULL; or why the connection is given up. */
static const char *MP_NULLABLE serve_login(PGconn *conn, mp_gate *gate, bool is_reading, size_t *bytes, uint64_t until)
{
    if (is_reading && !gate->is_open && !mp_gate_open(gate, mp_pq.socket(conn)))
        return strerror(errno);
    bool is_left = gate->is_open && mp_gate_send(gate);
    bool is_ready = gate->is_open && (is_reading ? mp_gate_unread(gate) > 0 : !is_left);
    int fd = gate->is_open ? gate->server : mp_pq.socket(conn);
    int events = (is_reading ? POLLIN : 0) | (is_left || !is_reading ? POLLOUT : 0);
    if (!is_ready && !wait_for(fd, events, false, until))
        return "the server takes connections and does not answer";
    if (is_reading)
        *bytes += mp_gate_let_in(gate);
    return *bytes > MAX_LOGIN_BYTES ? "the server says too much while a connection logs in" : NULL;
}

/* Replaces the folder of a Unix socket by its real path. NULL; or why the socket must not be connected to. */
static const char *MP_NULLABLE find_folder(mp_errand *errand, const char *granted)
{
    char **folder = &errand->words[1], name[32], path[PATH_MAX]; /* "host" and its value come first, then "port" */
    const char *why = "there is no such socket";
    snprintf(name, sizeof name, "/.s.PGSQL.%s", errand->words[3]);
    snprintf(path, sizeof path, "%s%s", *folder, name);
    char *root = realpath(granted, NULL), *real = realpath(path, NULL);
    if (root != NULL && real != NULL) {
        const char *at = strrchr(real, '/');
        size_t len = strcmp(root, "/") == 0 ? 0 : strlen(root);
        bool is_inside = strncmp(real, root, len) == 0 && (real[len] == '/' || real[len] == '\0');
        why = is_inside && strcmp(at, name) == 0 ? NULL : "a link leads out of what the script may write";
        free(*folder);
        *folder = at == real ? mp_dup(MP_STR("/")) : mp_dup((mp_str){real, (size_t)(at - real)});
    }
    free(real);
    free(root);
    return why;
}

static void open_connection(mp_errand *errand)
{
    const char *names[MP_LIBPQ_WORDS / 2] = {0}, *values[MP_LIBPQ_WORDS / 2] = {0};
    const char *why = errand->root == NULL ? NULL : find_folder(errand, MP_NEVER_NULL(errand->root));
    uint64_t until = mp_monotonic_ms() + CONNECT_MS;
    size_t bytes = 0;
    if (why != NULL) {
        mp_err_set(&errand->why, "%s", why);
        return;
    }
    int count = 0;
    for (; errand->words[2 * count] != NULL; count++) {
        names[count] = errand->words[2 * count];
        values[count] = errand->words[2 * count + 1];
    }
    if (mp_pq.libVersion() >= 160000) { /* else a server could ask for Kerberos, whose library asks other servers */
        names[count] = "require_auth";
        values[count] = "!gss,!sspi";
    }
    PGconn *conn = mp_pq.connectStartParams(names, values, 0);
    if (conn != NULL)
        mp_pq.setNoticeReceiver(conn, on_notice, NULL);
    PostgresPollingStatusType status =
        conn != NULL && mp_pq.status(conn) != CONNECTION_BAD ? PGRES_POLLING_WRITING : PGRES_POLLING_FAILED;
    while (why == NULL && status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED) {
        why = serve_login(conn, &errand->gate, status == PGRES_POLLING_READING, &bytes, until);
        if (why == NULL)
            status = mp_pq.connectPoll(conn);
    }
    if (why == NULL && status == PGRES_POLLING_OK && mp_pq.setnonblocking(conn, 1) == 0) {
        errand->conn = conn;
        return;
    }
    if (why != NULL)
        mp_err_set(&errand->why, "%s", why);
    else
        mp_libpq_explain(&errand->why, conn == NULL ? "no memory" : mp_pq.errorMessage(conn));
    mp_libpq_finish(conn, &errand->gate);
}

bool mp_errand_to_cancel(mp_errand *errand, PGconn *conn)
{
    if (mp_pq.libVersion() >= 170000)
        errand->request = mp_pq.cancelCreate(conn);
    else
        errand->cancel = mp_pq.getCancel(conn);
    return errand->request != NULL || errand->cancel != NULL;
}

/* Sends a request to cancel by libpq 17: over TLS if the connection has it. */
static void cancel(PGcancelConn *request)
{
    uint64_t until = mp_monotonic_ms() + CANCEL_MS;
    bool is_going = mp_pq.cancelStart(request) == 1;
    PostgresPollingStatusType status = PGRES_POLLING_WRITING;
    while (is_going && status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED) {
        is_going =
            wait_for(mp_pq.cancelSocket(request), status == PGRES_POLLING_READING ? POLLIN : POLLOUT, true, until);
        status = is_going ? mp_pq.cancelPoll(request) : status;
    }
    mp_pq.cancelFinish(request);
}

static bool is_cancel(const mp_errand *errand)
{
    return errand->cancel != NULL || errand->request != NULL;
}

static void free_errand(mp_errand *errand)
{
    if (errand->conn != NULL)
        mp_libpq_finish(errand->conn, &errand->gate);
    if (errand->cancel != NULL)
        mp_pq.freeCancel(errand->cancel);
    if (errand->request != NULL)
        mp_pq.cancelFinish(errand->request);
    free(errand->root);
    for (int i = 0; errand->words[i] != NULL; i++) {
        explicit_bzero(errand->words[i], strlen(errand->words[i]));
        free(errand->words[i]);
    }
    free(errand);
}

static void deliver(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_errand *errand = mp_container(message, mp_errand, message);
    errand->is_stranded = loop == NULL && errand->loop != NULL; /* its owner will drop it */
    if (errand->is_stranded)
        return;
    if (errand->loop != NULL)
        errand->done(errand);
    free_errand(errand);
}

static void *MP_NULLABLE run_errand(void *ctx)
{
    char why[256];
    mp_errand *errand = ctx;
    bool cancels = is_cancel(errand); /* once it is posted, its loop may free it */
    mp_crash_thread("postgres", 0);
    PGcancelConn *request = errand->request;
    errand->request = NULL;
    if (request != NULL)
        cancel(request);
    else if (errand->cancel != NULL)
        mp_pq.cancel(MP_NEVER_NULL(errand->cancel), why, sizeof why);
    else if (need_library(&errand->why))
        open_connection(errand);
    pthread_mutex_lock(&errands.lock);
    if (errand->loop != NULL) {
        mp_loop_post(MP_NEVER_NULL(errand->loop), &errand->message);
    } else { /* freed before it is counted as ended, since that may use OpenSSL */
        pthread_mutex_unlock(&errands.lock);
        free_errand(errand);
        pthread_mutex_lock(&errands.lock);
    }
    errands.count--;
    errands.cancels -= cancels;
    pthread_cond_broadcast(&errands.ended);
    pthread_mutex_unlock(&errands.lock);
    return NULL;
}

mp_errand *MP_NULLABLE mp_errand_start(mp_loop *loop, const mp_errand *of, void (*done)(mp_errand *errand), void *ctx)
{
    pthread_t thread;
    mp_errand *errand = mp_new(sizeof *errand);
    *errand = *of;
    errand->message.deliver = deliver;
    errand->loop = loop;
    errand->done = done;
    errand->ctx = ctx;
    MP_LOCKED(&errands.lock);
    bool cancels = is_cancel(errand), has_room = errands.count < MAX_ERRANDS;
    if (cancels)
        has_room = has_room && errands.cancels < MAX_CANCELS;
    bool is_running = has_room && mp_thread_start(&thread, run_errand, errand) == 0;
    if (!is_running) {
        mp_stat_add(&mp_stat_refused_errands, 1);
        free_errand(errand);
        return NULL;
    }
    pthread_detach(thread);
    errands.count++;
    errands.cancels += cancels;
    return errand;
}

void mp_errand_drop(mp_errand *MP_NULLABLE errand)
{
    if (errand == NULL)
        return;
    MP_LOCKED(&errands.lock);
    errand->loop = NULL;
    if (errand->is_stranded)
        free_errand(errand);
}

/* Only requests to cancel by libpq before 17 may run on behind this, and they have no TLS: so no thread uses OpenSSL
 * when OpenSSL's cleanup runs. */
void mp_errands_stop(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += STOP_MS / 1000;
    atomic_store(&errands.is_stopping, true);
    MP_LOCKED(&errands.lock);
    while (errands.count > 0 && pthread_cond_clockwait(&errands.ended, &errands.lock, CLOCK_MONOTONIC, &until) == 0)
        continue;
}
