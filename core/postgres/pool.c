/* pool.c: the connections to one database, and the tasks that wait for one. A connection is opened when a task finds
 * none that is free; after a failure, after a pause that grows. Whoever gives one back leaves it to this file, which
 * ends what is left of a statement or transaction before the next one has it. */
#include "connection.h"
#include <arpa/inet.h>
#include <unistd.h>

MP_GAUGE(postgres_connections, "postgres_connections", "", "",
         "connections of scripts to PostgreSQL servers that are open or being opened")
MP_GAUGE(postgres_waiting, "postgres_waiting", "", "",
         "statements of scripts that wait for a connection to a PostgreSQL server")
MP_GAUGE(postgres_apart, "postgres_apart", "", "",
         "connections to PostgreSQL servers that end a statement or transaction whose task has ended")
MP_REFUSED(refused_postgres_line, "postgres_waiting", MP_LIMIT_REACHED,
           "statements above 1,024 that wait for a connection of one PostgreSQL database")

#define MAX_WAITING MP_LIMIT(postgres_waiting, 1024)
#define APART_MS 2000 /* until a cancelled statement and its transaction have ended: else the connection is closed */
#define IDLE_MS MP_LIMIT(postgres_idle_ms, 60000) /* a server has a process for each connection */
#define AGE_MS (30 * 60 * UINT64_C(1000))         /* so that what a server keeps for a connection is freed some time */
#define MAX_TRIES 3                               /* connections that a statement may find broken */
#define FIRST_PAUSE_MS 50
#define LAST_PAUSE_MS 5000
#define NOWHERE "/dev/null/none" /* a file that cannot be: libpq reads none then */

static void serve(mp_postgres *pool);

/* -- connections --------------------------------------------------------------------------------------------------- */

static void free_connection(mp_postgres_connection *it)
{
    mp_postgres *pool = it->pool;
    mp_dial_cancel(it->dial);
    mp_errand_drop(it->errand);
    mp_timer_stop(pool->loop, &it->timer);
    mp_fdwatch_stop(pool->loop, &it->watch);
    if (it->conn != NULL)
        mp_libpq_finish(it->conn, &it->gate);
    else
        pool->opening--;
    if (it->counted > 0)
        mp_outgoing_give(it->counted, pool->server.holder);
    if (it->is_apart)
        mp_stat_add(&mp_stat_postgres_apart, -1);
    for (int i = 0; i < MP_PREPARED; i++)
        mp_postgres_forget(&it->statements[i], false);
    mp_link_drop(&it->link);
    pool->count--;
    mp_stat_add(&mp_stat_postgres_connections, -1);
    free(it);
}

static void wait_in_line(mp_postgres_lease *lease, mp_link *before)
{
    mp_link_put(before, &lease->link);
    lease->pool->queued++;
    mp_stat_add(&mp_stat_postgres_waiting, 1);
}

static void leave_line(mp_postgres_lease *lease)
{
    if (mp_link_is_alone(&lease->link))
        return;
    mp_link_drop(&lease->link);
    lease->pool->queued--;
    mp_stat_add(&mp_stat_postgres_waiting, -1);
}

void mp_postgres_lose(mp_postgres_connection *it, const char *why)
{
    mp_postgres *pool = it->pool;
    mp_postgres_lease *lease = it->lease;
    if (lease != NULL) {
        lease->of = NULL;
        if (lease->end == MP_POSTGRES_WAITS && !lease->is_sent && !lease->had_connection &&
            ++lease->tries < MAX_TRIES) {
            free(lease->why);
            lease->why = NULL;
            *lease->state = '\0';
            wait_in_line(lease, mp_link_first(&pool->waiting));
        } else if (lease->end == MP_POSTGRES_WAITS) {
            mp_postgres_end_statement(lease, lease->is_sent ? MP_POSTGRES_UNKNOWN : MP_POSTGRES_UNAVAILABLE, why);
        } else if (lease->why == NULL) {
            lease->why = mp_dup(mp_str_of(why));
        }
    }
    free_connection(it);
    if (pool->listener != NULL)
        pool->listener->lost(pool->listener->ctx);
    serve(pool);
}

static void log_state(mp_postgres *pool, bool is_down)
{
    char place[300];
    if (pool->is_down == is_down)
        return;
    pool->is_down = is_down;
    snprintf(place, sizeof place, "%s:%d", pool->server.host, pool->server.port);
    if (is_down)
        mp_log(MP_WARN, "postgres unavailable", mp_log_str("server", mp_str_of(place)),
               mp_log_str("why", mp_str_of(pool->why.text)));
    else
        mp_log(MP_INFO, "postgres available", mp_log_str("server", mp_str_of(place)));
}

/* Ends what waits, unless there is a connection that it can wait for. */
static void refuse_waiting(mp_postgres *pool)
{
    if (pool->count > 0)
        return;
    MP_EACH(mp_postgres_lease, lease, &pool->waiting, link) {
        leave_line(lease);
        mp_postgres_end_statement(lease, MP_POSTGRES_UNAVAILABLE, pool->why.text);
    }
}

static void fail_to_open(mp_postgres_connection *it, const mp_err *why)
{
    mp_postgres *pool = it->pool;
    uint64_t now = mp_loop_now(pool->loop), longest = pool->pause_ms == 0 ? FIRST_PAUSE_MS : pool->pause_ms * 2;
    pool->why = *why;
    if (pool->server.password.len > 0 && strstr(pool->why.text, pool->server.password.ptr) != NULL)
        mp_err_set(&pool->why, "the server refused the connection, in words that have the password");
    if (now >= pool->retry_at) /* those that fail together count once */
        pool->pause_ms = longest < LAST_PAUSE_MS ? longest : LAST_PAUSE_MS;
    pool->retry_at = now + pool->pause_ms - (now ^ (uintptr_t)it >> 4) % (pool->pause_ms / 2);
    free_connection(it);
    log_state(pool, true);
    refuse_waiting(pool);
}

static void on_opened(mp_errand *errand)
{
    mp_postgres_connection *it = errand->ctx;
    mp_postgres *pool = it->pool;
    it->errand = NULL;
    if (errand->conn == NULL) {
        fail_to_open(it, &errand->why);
        return;
    }
    it->conn = errand->conn;
    it->gate = errand->gate;
    errand->conn = NULL;
    errand->gate = (mp_gate){0};
    mp_pq.setNoticeReceiver(it->conn, mp_postgres_take_notice, it);
    pool->opening--;
    pool->pause_ms = 0;
    pool->retry_at = 0;
    log_state(pool, false);
    it->ends_at = mp_loop_now(pool->loop) + AGE_MS - ((uintptr_t)it >> 4) % (AGE_MS / 8);
    mp_postgres_settle(it);
}

/* Opens the connection, to the address if there is one. Everything that libpq would take from elsewhere is given: it
 * takes an empty value for none. Its variables are gone from the environment (mp_environment_hide). */
static void open_at(mp_postgres_connection *it, const char *MP_NULLABLE address)
{
    mp_postgres *pool = it->pool;
    const mp_postgres_server *server = &pool->server;
    mp_errand errand = {0};
    mp_err why;
    char port[8], options[128];
    const char *ca = mp_client_authorities(pool->client);
    snprintf(port, sizeof port, "%d", server->port);
    snprintf(options, sizeof options,
             "-c statement_timeout=%lld -c timezone=UTC -c datestyle=ISO -c intervalstyle=postgres -c bytea_output=hex",
             (long long)server->timeout_ms);
    const char *words[] = {"host",
                           server->host,
                           "port",
                           port,
                           "dbname",
                           server->database.ptr,
                           "user",
                           server->user.ptr,
                           "passfile",
                           NOWHERE,
                           "gssencmode",
                           "disable",
                           "client_encoding",
                           "UTF8",
                           "application_name",
                           "moonpool",
                           "sslmode",
                           server->is_tls ? "verify-full" : "disable",
                           "sslcert",
                           NOWHERE,
                           "sslkey",
                           NOWHERE,
                           "sslcrl",
                           NOWHERE,
                           "sslrootcert",
                           ca == NULL ? NOWHERE : ca,
                           address == NULL ? NULL : "hostaddr",
                           address};
    int count = 0;
    for (size_t i = 0; i + 1 < sizeof words / sizeof *words && words[i] != NULL; i += 2) {
        errand.words[count++] = mp_dup(mp_str_of(words[i]));
        errand.words[count++] = mp_dup(mp_str_of(words[i + 1]));
    }
    if (server->prepares) {
        errand.words[count++] = mp_dup(MP_STR("options"));
        errand.words[count++] = mp_dup(mp_str_of(options));
    }
    if (server->password.len > 0) {
        errand.words[count++] = mp_dup(MP_STR("password"));
        errand.words[count++] = mp_dup(server->password);
    }
    errand.root = mp_dup_text(server->root);
    it->errand = mp_errand_start(pool->loop, &errand, on_opened, it);
    if (it->errand != NULL)
        return;
    mp_err_set(&why, "too many threads wait for PostgreSQL servers");
    fail_to_open(it, &why);
}

/* `more`: descriptors that are not counted yet. */
static void count_and_open(mp_postgres_connection *it, int more, const char *MP_NULLABLE address)
{
    mp_err why;
    if (mp_outgoing_take(more, it->pool->server.holder)) {
        it->counted += more;
        open_at(it, address);
        return;
    }
    mp_err_set(&why, MP_OUTGOING_FULL);
    fail_to_open(it, &why);
}

/* An address of the server takes connections: libpq opens one of its own there. */
static void on_dialed(void *ctx, int fd, const mp_err *why)
{
    mp_postgres_connection *it = ctx;
    struct sockaddr_storage room = {0};
    socklen_t len = sizeof room;
    char address[INET6_ADDRSTRLEN] = "";
    it->dial = NULL;
    if (fd < 0) {
        fail_to_open(it, why);
        return;
    }
    it->counted = 1;
    getpeername(fd, (struct sockaddr *)(void *)&room, &len);
    close(fd);
    if (room.ss_family == AF_INET6)
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)(const void *)&room)->sin6_addr, address, sizeof address);
    else
        inet_ntop(AF_INET, &((const struct sockaddr_in *)(const void *)&room)->sin_addr, address, sizeof address);
    count_and_open(it, MP_GATE_DESCRIPTORS, address);
}

static void open_connection(mp_postgres *pool)
{
    const mp_postgres_server *server = &pool->server;
    mp_postgres_connection *it = mp_new(sizeof *it);
    it->pool = pool;
    mp_link_put(&pool->connections, &it->link);
    pool->count++;
    pool->opening++;
    mp_stat_add(&mp_stat_postgres_connections, 1);
    if (*server->host == '/')
        count_and_open(it, 1 + MP_GATE_DESCRIPTORS, NULL);
    else
        it->dial =
            mp_dial_start(pool->client, server->host, server->port, &server->policy, server->holder, on_dialed, it);
}

/* -- giving them out, and taking them back ------------------------------------------------------------------------- */

static mp_postgres_connection *MP_NULLABLE find_free(mp_postgres *pool)
{
    MP_EACH(mp_postgres_connection, it, &pool->connections, link)
        if (it->conn != NULL && it->lease == NULL && !it->is_apart)
            return it;
    return NULL;
}

static void serve(mp_postgres *pool)
{
    mp_postgres_connection *it;
    while (!mp_link_is_alone(&pool->waiting) && (it = find_free(pool)) != NULL) {
        mp_postgres_lease *lease = mp_container(mp_link_first(&pool->waiting), mp_postgres_lease, link);
        leave_line(lease);
        mp_timer_stop(pool->loop, &it->timer);
        lease->of = it;
        it->lease = lease;
        mp_postgres_begin(it);
    }
    if (mp_loop_now(pool->loop) < pool->retry_at)
        refuse_waiting(pool);
    while (pool->queued > pool->opening && pool->count < pool->server.size && mp_loop_now(pool->loop) >= pool->retry_at)
        open_connection(pool);
}

static void on_unused(mp_timer *timer)
{
    free_connection(mp_container(timer, mp_postgres_connection, timer));
}

static void on_apart_too_long(mp_timer *timer)
{
    mp_postgres_lose(mp_container(timer, mp_postgres_connection, timer), "");
}

static void on_cancelled(mp_errand *errand)
{
    mp_postgres_connection *it = errand->ctx;
    it->errand = NULL;
    if (it->step == NOTHING)
        mp_postgres_settle(it);
}

static void set_apart(mp_postgres_connection *it)
{
    if (it->is_apart)
        return;
    it->is_apart = true;
    mp_stat_add(&mp_stat_postgres_apart, 1);
    mp_timer_start(it->pool->loop, &it->timer, APART_MS, on_apart_too_long);
}

/* Asks the server to end the statement that runs. */
static void cancel_statement(mp_postgres_connection *it)
{
    mp_errand errand = {0};
    set_apart(it);
    it->is_paused = false;
    if (mp_errand_to_cancel(&errand, MP_NEVER_NULL(it->conn)))
        it->errand = mp_errand_start(it->pool->loop, &errand, on_cancelled, it);
    mp_postgres_go(it);
}

void mp_postgres_settle(mp_postgres_connection *it)
{
    mp_postgres *pool = it->pool;
    if (it->errand != NULL) /* the request to cancel is on its way, and may hit what comes next */
        return;
    PGTransactionStatusType status = mp_pq.transactionStatus(it->conn);
    if (it->is_spoiled || mp_loop_now(pool->loop) >= it->ends_at || status == PQTRANS_UNKNOWN) {
        mp_postgres_lose(it, "");
        return;
    }
    if (status != PQTRANS_IDLE) {
        set_apart(it);
        mp_postgres_roll_back(it);
        return;
    }
    if (it->is_apart)
        mp_stat_add(&mp_stat_postgres_apart, -1);
    it->is_apart = false;
    mp_timer_start(pool->loop, &it->timer, (uint64_t)IDLE_MS, on_unused);
    mp_link_drop(&it->link);
    mp_link_put(mp_link_first(&pool->connections), &it->link);
    if (it->watch.slot == 0)
        mp_postgres_go(it); /* watches it: a server may close it */
    serve(pool);
}

/* -- leases -------------------------------------------------------------------------------------------------------- */

mp_postgres_lease *mp_postgres_lease_new(mp_postgres *postgres, void (*done)(void *ctx), void *ctx)
{
    mp_postgres_lease *lease = mp_new(sizeof *lease);
    lease->pool = postgres;
    lease->done = done;
    lease->ctx = ctx;
    lease->end = MP_POSTGRES_DONE;
    return lease;
}

int mp_postgres_run(mp_postgres_lease *lease, const mp_postgres_statement *statement, mp_err *err)
{
    mp_postgres *pool = lease->pool;
    bool is_first = lease->of == NULL && !lease->had_connection;
    if (is_first && pool->queued >= (int64_t)MAX_WAITING) {
        mp_stat_add(&mp_stat_refused_postgres_line, 1);
        return mp_err_set(err, "too many statements wait for a connection (%lld)", (long long)MAX_WAITING);
    }
    lease->statement = *statement;
    lease->is_marked |= statement->is_marked;
    lease->is_sent = false;
    lease->tries = 0;
    lease->end = MP_POSTGRES_WAITS;
    lease->rows = 0;
    lease->has_columns = false;
    mp_postgres_drop_result(lease);
    *lease->state = '\0';
    if (lease->of == NULL && lease->had_connection) {
        mp_postgres_end_statement(lease, MP_POSTGRES_UNAVAILABLE, NULL);
        return 0;
    }
    free(lease->why);
    lease->why = NULL;
    if (is_first) {
        wait_in_line(lease, &pool->waiting);
        serve(pool);
    } else {
        mp_postgres_begin(MP_NEVER_NULL(lease->of)); /* it was not lost */
    }
    return 0;
}

void mp_postgres_go_on(mp_postgres_lease *lease)
{
    lease->end = MP_POSTGRES_WAITS;
    lease->rows = 0;
    lease->has_columns = false;
    lease->result.len = 0;
    if (lease->of == NULL) {
        mp_postgres_end_statement(lease, MP_POSTGRES_UNKNOWN, NULL);
        return;
    }
    lease->of->is_paused = false;
    mp_postgres_go(lease->of);
}

mp_postgres_end mp_postgres_lease_free(mp_postgres_lease *lease)
{
    mp_postgres_connection *it = lease->of;
    mp_postgres_end end = lease->end;
    if (end == MP_POSTGRES_WAITS)
        end = lease->is_sent ? MP_POSTGRES_UNKNOWN : MP_POSTGRES_UNAVAILABLE;
    if (it != NULL && lease->is_marked)
        it->ends_at = 0;
    leave_line(lease);
    mp_postgres_drop_result(lease);
    free(lease->why);
    free(lease);
    if (it == NULL)
        return end;
    it->lease = NULL;
    if (it->step != NOTHING)
        cancel_statement(it);
    else
        mp_postgres_settle(it);
    return end;
}

mp_postgres_end mp_postgres_end_of(const mp_postgres_lease *lease)
{
    return lease->end;
}

const char *mp_postgres_why(const mp_postgres_lease *lease)
{
    return lease->why != NULL ? lease->why : "";
}

const char *mp_postgres_state(const mp_postgres_lease *lease)
{
    return lease->state;
}

/* -- the whole ----------------------------------------------------------------------------------------------------- */

void mp_postgres_stop(void)
{
    mp_errands_stop();
}

int mp_postgres_version(void)
{
    return mp_libpq_version();
}

static mp_str copy(mp_str text)
{
    return (mp_str){mp_dup(text), text.len};
}

mp_postgres *mp_postgres_new(mp_loop *loop, mp_client *client, const mp_postgres_server *server)
{
    mp_postgres *pool = mp_new(sizeof *pool);
    pool->loop = loop;
    pool->client = client;
    pool->server = *server;
    pool->server.host = mp_dup(mp_str_of(server->host));
    pool->server.database = copy(server->database);
    pool->server.user = copy(server->user);
    pool->server.password = copy(server->password);
    pool->server.root = mp_dup_text(server->root);
    return pool;
}

void mp_postgres_free(mp_postgres *MP_NULLABLE postgres)
{
    if (postgres == NULL)
        return;
    MP_EACH(mp_postgres_connection, it, &postgres->connections, link)
        free_connection(it);
    mp_str_free(mp_str_of(postgres->server.host));
    mp_str_free(postgres->server.database);
    mp_str_free(postgres->server.user);
    mp_str_free(postgres->server.password);
    free((char *)(uintptr_t)postgres->server.root);
    free(postgres);
}
