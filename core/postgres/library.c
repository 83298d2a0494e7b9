#define _GNU_SOURCE /* pthread_cond_clockwait */
#include "library.h"
#include "postgres.h"
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>

MP_REFUSED(refused_errands, "postgres_errands", MP_LIMIT_REACHED,
           "connections to PostgreSQL servers that could not be opened, and statements that could not be cancelled, "
           "since 64 threads wait for servers, or 32 to cancel")

#define MAX_ERRANDS 64  /* of the process: each is a thread */
#define MAX_CANCELS 32  /* of those: a server that does not answer may keep such a thread for ever */
#define CONNECT_MS 5000 /* until a connection has logged in */
#define STOP_MS 1000    /* for which the end of the process waits until statements are cancelled */

mp_libpq mp_pq;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const char *MP_NULLABLE failure; /* why there is no library; NULL: there is one */

/* Errands that have not ended; `loop` of an errand is set and read under the lock. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    int count, cancels;
} errands = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static void load_library(void)
{
    void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == NULL) {
        failure = "libpq.so.5 is not installed (Debian: apt install libpq5)";
        return;
    }
#define FIND(name)                                                                                                     \
    {                                                                                                                  \
        void *found = dlsym(library, "PQ" #name);                                                                      \
        if (found == NULL)                                                                                             \
            failure = "libpq.so.5 is too old: that of PostgreSQL 14 or newer is needed";                               \
        memcpy(&mp_pq.name, &found, sizeof found);                                                                     \
    }
    MP_LIBPQ(FIND)
#undef FIND
}

bool mp_postgres_load(mp_err *err)
{
    pthread_once(&once, load_library);
    if (failure != NULL)
        mp_err_set(err, "%s", failure);
    return failure == NULL;
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

static void open_connection(mp_errand *errand)
{
    const char *names[MP_LIBPQ_WORDS / 2] = {0}, *values[MP_LIBPQ_WORDS / 2] = {0};
    uint64_t until = mp_monotonic_ms() + CONNECT_MS;
    for (int i = 0; errand->words[2 * i] != NULL; i++) {
        names[i] = errand->words[2 * i];
        values[i] = errand->words[2 * i + 1];
    }
    PGconn *conn = mp_pq.connectStartParams(names, values, 0);
    if (conn != NULL)
        mp_pq.setNoticeReceiver(conn, on_notice, NULL);
    PostgresPollingStatusType status =
        conn != NULL && mp_pq.status(conn) != CONNECTION_BAD ? PGRES_POLLING_WRITING : PGRES_POLLING_FAILED;
    while (status != PGRES_POLLING_OK && status != PGRES_POLLING_FAILED) {
        uint64_t now = mp_monotonic_ms();
        struct pollfd wait = {mp_pq.socket(conn), status == PGRES_POLLING_READING ? POLLIN : POLLOUT, 0};
        if (now >= until || poll(&wait, 1, (int)(until - now)) == 0) {
            mp_err_set(&errand->why, "the server takes connections and does not answer");
            mp_pq.finish(conn);
            return;
        }
        status = mp_pq.connectPoll(conn);
    }
    if (status == PGRES_POLLING_OK && mp_pq.setnonblocking(conn, 1) == 0) {
        errand->conn = conn;
        return;
    }
    mp_libpq_explain(&errand->why, conn == NULL ? "no memory" : mp_pq.errorMessage(conn));
    mp_pq.finish(conn);
}

static void free_errand(mp_errand *errand)
{
    if (errand->conn != NULL)
        mp_pq.finish(errand->conn);
    if (errand->cancel != NULL)
        mp_pq.freeCancel(errand->cancel);
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
    bool is_cancel = errand->cancel != NULL; /* once it is posted, its loop may free it */
    mp_crash_thread("postgres", 0);
    if (errand->cancel != NULL)
        mp_pq.cancel(MP_NEVER_NULL(errand->cancel), why, sizeof why);
    else if (mp_postgres_load(&errand->why))
        open_connection(errand);
    pthread_mutex_lock(&errands.lock);
    bool is_awaited = errand->loop != NULL;
    if (is_awaited)
        mp_loop_post(MP_NEVER_NULL(errand->loop), &errand->message);
    errands.count--;
    errands.cancels -= is_cancel;
    pthread_cond_broadcast(&errands.ended);
    pthread_mutex_unlock(&errands.lock);
    if (!is_awaited)
        free_errand(errand);
    return NULL;
}

mp_errand *MP_NULLABLE mp_errand_start(mp_loop *loop, const mp_errand *of, void (*done)(mp_errand *errand), void *ctx)
{
    pthread_t thread;
    sigset_t all, before;
    mp_errand *errand = mp_new(sizeof *errand);
    *errand = *of;
    errand->message.deliver = deliver;
    errand->loop = loop;
    errand->done = done;
    errand->ctx = ctx;
    MP_LOCKED(&errands.lock);
    sigfillset(&all); /* the timers that send signals belong to the workers */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    bool is_cancel = errand->cancel != NULL, has_room = errands.count < MAX_ERRANDS;
    if (is_cancel)
        has_room = has_room && errands.cancels < MAX_CANCELS;
    bool is_running = has_room && pthread_create(&thread, NULL, run_errand, errand) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (!is_running) {
        mp_stat_add(&mp_stat_refused_errands, 1);
        free_errand(errand);
        return NULL;
    }
    pthread_detach(thread);
    errands.count++;
    errands.cancels += is_cancel;
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

void mp_postgres_stop(void)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += STOP_MS / 1000;
    MP_LOCKED(&errands.lock);
    while (errands.count > 0 && pthread_cond_clockwait(&errands.ended, &errands.lock, CLOCK_MONOTONIC, &until) == 0)
        continue;
}
