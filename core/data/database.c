/* database.c: the thread of a database: its queue, its connection, and the limits of its SQL. Above 400 lines, since
 * all three are about one struct. */
#include "data/database.h"
#include "data/sql.h"
#include "data/sql_memory.h"
#include "data/sql_rules.h"
#include "data/wal_owner.h"
#include "os/os.h"
#include <errno.h>
#include <signal.h>

MP_GAUGE(databases, "databases", "", "", "open SQLite databases of scripts")
MP_GAUGE(statements, "statements", "", "", "SQL statements of scripts that wait or run")
MP_ACCOUNT(sqlite_bytes, "sqlite_bytes", "", "", "bytes of SQL parameters and results in progress")
MP_REFUSED(refused_sqlite_bytes, "sqlite_bytes", MP_LIMIT_REACHED,
           "SQL statements whose parameters and results are more than 256 MiB together, or parameters 128 MiB")
MP_REFUSED(refused_statements, "statements", MP_LIMIT_REACHED, "SQL statements above 1,024 that wait for one database")

#define MAX_WAITING MP_LIMIT(sqlite_queue, 1024) /* statements for one database: a second of small ones */
#define MAX_HELD                                                                                                       \
    MP_LIMIT(sqlite_held,                                                                                              \
             256 << 20) /* bytes of parameters and results in progress, in the process: 16 of the largest */
/* bytes that SQLite has for all databases: eight with limits.sqlite.memory */
#define MAX_HEAP MP_LIMIT(sqlite_heap, 512 << 20)
/* ms that a statement waits for another process to unlock the file */
#define BUSY_MS MP_LIMIT(sqlite_busy_ms, 5000)
/* longest pattern of LIKE and GLOB, in bytes: a call takes up to 1.5 ns for each byte of the pattern and each byte of
 * the text */
#define MAX_PATTERN_BYTES 128
/* columns of a table or result, and terms of ORDER BY and its like, which preparing compares each with each: 0.4 s for
 * the worst statement of MP_MAX_STATEMENT_BYTES */
#define MAX_COLUMNS 500
#define MAX_TRIGGER_DEPTH 100 /* depth of triggers that fire triggers */
#define KEPT 8 /* scripts share the last eighth of a room: each takes as much of it as it leaves to others */
#define PAGE 4096
#define DESCRIPTORS 3 /* of a database in a file: that file, its -wal and its -shm */
#define LOOK 1000     /* instructions of SQLite between two checks whether the statement was cancelled */
#define RETRY_MS 10

static mp_holdings held; /* the bytes of sqlite_bytes that each script's statements hold */

struct mp_database {
    char *MP_NULLABLE root, *rest, *MP_NULLABLE setup;
    bool is_read_only;
    mp_database_limits limits;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* guards the five members below */
    pthread_cond_t more;
    mp_link waiting;
    int64_t count;
    mp_holdings holdings;               /* the waiting statements of each script */
    sqlite3 *MP_NULLABLE interruptible; /* the open connection, to interrupt it from another thread */
    atomic_bool is_over;
    atomic_bool has_ended;             /* the thread has finished */
    mp_link leaving;                   /* link in mp_databases, once the database is closed */
    mp_statement *MP_NULLABLE running; /* used only by the database's thread */
    sqlite3 *db;                       /* the connection; valid while the database is open */
    int taken;                         /* by mp_outgoing_take */
    mp_sql_account account;
    mp_sql_cache cache;
    bool is_ours;                   /* true while SQL of the gateway is prepared, false for SQL of a script */
    const char *MP_NULLABLE denied; /* the reason for which the authorizer refused the statement */
};

/* -- authorizing SQL --------------------------------------------------------------------------------------------- */

static int authorize_action(void *ctx, int action, const char *one, const char *two, MP_UNUSED const char *schema,
                            MP_UNUSED const char *from)
{
    mp_database *database = ctx;
    const char *denied = database->is_ours ? NULL : mp_sql_refusal(action, one, two);
    if (denied == NULL)
        return SQLITE_OK;
    database->denied = denied;
    return SQLITE_DENY;
}

static bool is_wanted(const mp_database *database)
{
    return !atomic_load(&database->is_over) && (database->running == NULL || !atomic_load(&database->running->is_off));
}

static int on_progress(void *ctx)
{
    return !is_wanted(ctx);
}

static void nap_briefly(void)
{
    nanosleep(&(struct timespec){0, RETRY_MS * 1000000L}, NULL);
}

static int on_busy(void *ctx, int tries)
{
    mp_database *database = ctx;
    if (!is_wanted(database) || (uint64_t)tries * RETRY_MS >= (uint64_t)BUSY_MS)
        return 0;
    nap_briefly();
    return 1;
}

/* -- opening ----------------------------------------------------------------------------------------------------- */

/* The path of the file; symbolic links in the operator's part of the path are resolved. NULL if there is no such
 * folder. */
static char *MP_NULLABLE place_of(const mp_database *database)
{
    mp_buf path = {0};
    char *real = realpath(database->root, NULL);
    const char *slash = strrchr(database->root, '/');
    if (real == NULL && slash != NULL && database->rest[0] == '\0') { /* the file does not exist yet */
        char *folder = mp_dup((mp_str){database->root, slash == database->root ? 1 : (size_t)(slash - database->root)});
        real = realpath(folder, NULL);
        free(folder);
        if (real != NULL)
            mp_buf_printf(&path, "%s%s", real, slash);
    } else if (real != NULL) {
        mp_buf_printf(&path, "%s%s%s", real, database->rest[0] == '\0' ? "" : "/", database->rest);
    }
    free(real);
    if (path.ptr == NULL)
        return NULL;
    mp_buf_putc(&path, '\0');
    return path.ptr;
}

static int run_own(mp_database *database, const char *sql)
{
    database->is_ours = true;
    int rc = sqlite3_exec(database->db, sql, NULL, NULL, NULL);
    database->is_ours = false;
    return rc;
}

/* Temporary tables and sorting stay in memory, where the account bounds them: a temporary file has no bound. The
 * page cache gets three quarters of the account. So a full cache is an ordinary error, and memory is left for the
 * statement that gets the error. */
static int bound_memory(mp_database *database)
{
    char sql[160];
    long long pages = (long long)(database->limits.memory / 4 * 3 / PAGE);
    snprintf(sql, sizeof sql,
             "PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY; PRAGMA temp.max_page_count = %lld", pages);
    int rc = run_own(database, sql);
    if (rc != SQLITE_OK || database->root != NULL)
        return rc;
    snprintf(sql, sizeof sql, "PRAGMA main.max_page_count = %lld; PRAGMA main.secure_delete = 0", pages);
    return run_own(database, sql);
}

static int prepare_connection(mp_database *database)
{
    sqlite3 *db = database->db;
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_handler(db, on_busy, database);
    sqlite3_progress_handler(db, LOOK, on_progress, database);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, (int)MP_SQL_BYTES);
    sqlite3_limit(db, SQLITE_LIMIT_SQL_LENGTH, MP_MAX_STATEMENT_BYTES);
    sqlite3_limit(db, SQLITE_LIMIT_COLUMN, MAX_COLUMNS);
    sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MAX_PATTERN_BYTES);
    sqlite3_limit(db, SQLITE_LIMIT_VARIABLE_NUMBER, MP_MAX_SQL_PARAMS);
    sqlite3_limit(db, SQLITE_LIMIT_TRIGGER_DEPTH, MAX_TRIGGER_DEPTH);
    sqlite3_limit(db, SQLITE_LIMIT_WORKER_THREADS, 0); /* memory is counted per thread */
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 1);
    int rc = mp_sql_restrict(db);
    if (rc == SQLITE_OK)
        rc = bound_memory(database);
    if (rc == SQLITE_OK && database->root != NULL && !database->is_read_only)
        for (uint64_t waited = 0;
             (rc = run_own(database, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")) != SQLITE_OK &&
             (rc & 0xff) == SQLITE_BUSY && waited < (uint64_t)BUSY_MS && is_wanted(database);
             waited += RETRY_MS)
            nap_briefly();
    if (rc == SQLITE_OK)
        rc = run_own(database, "PRAGMA foreign_keys = ON");
    sqlite3_set_authorizer(db, authorize_action, database);
    if (rc == SQLITE_OK && database->setup != NULL)
        rc = mp_sql_exec(db, database->setup, &database->account);
    return rc;
}

static void publish_connection(mp_database *database, sqlite3 *MP_NULLABLE db)
{
    MP_LOCKED(&database->lock);
    database->interruptible = db;
}

static void give_descriptors(mp_database *database)
{
    mp_outgoing_give(database->taken, database->account.script);
    database->taken = 0;
}

static void close_connection(mp_database *database)
{
    if (database->db == NULL)
        return;
    mp_stat_add(&mp_stat_databases, -1);
    publish_connection(database, NULL);
    mp_sql_cache_clear(&database->cache);
    run_own(
        database,
        "SELECT 1"); /* an interrupt is in force until the next statement: it would end the checkpoint of the close */
    sqlite3_close_v2(database->db);
    database->db = MP_UNSET;
    give_descriptors(database);
}

/* Counts the descriptors of the database, which is about to be opened. False: the statement has the error. */
static bool take_descriptors(mp_database *database, mp_statement *statement)
{
    int count = database->root == NULL ? 0 : DESCRIPTORS;
    if (count > 0 && !mp_outgoing_take(count, database->account.script)) {
        mp_sql_fail(statement, "cannot open the database: " MP_OUTGOING_FULL);
        return false;
    }
    database->taken = count;
    return true;
}

/* The reason that the database could not be opened. `path` is the path of the file, or NULL. */
static void explain_open(mp_database *database, mp_statement *statement, const char *MP_NULLABLE path)
{
    int code = sqlite3_extended_errcode(database->db), error = sqlite3_system_errno(database->db);
    const char *why = mp_sql_words(database->db, &database->account);
    if (database->denied != NULL)
        mp_sql_fail(statement, "cannot open the database: %s", database->denied);
    else if (code == SQLITE_CANTOPEN_SYMLINK)
        mp_sql_fail(statement, "cannot open the database: its path contains a symbolic link");
    else if ((code & 0xff) == SQLITE_CANTOPEN && path != NULL && error != 0)
        mp_sql_fail(statement, "cannot open the database: %s: %s (%s)", why, strerror(error), path);
    else
        mp_sql_fail(statement, "cannot open the database: %s", why);
}

/* Moves a -wal file aside that belongs to another file, which was at this path before: SQLite would apply it to this
 * database. False: the statement has the error. */
static bool set_stale_aside(const mp_database *database, mp_statement *statement, const char *path)
{
    if (database->root == NULL || !mp_wal_is_stale(path))
        return true;
    if (database->is_read_only || mp_wal_set_aside(path) != 0) {
        mp_sql_fail(statement,
                    "cannot open the database: %s was replaced, and %s-wal belongs to the file before: remove it", path,
                    path);
        return false;
    }
    mp_log(MP_WARN, "database wal set aside", mp_log_str("file", mp_str_of(path)),
           mp_log_str("hint", MP_STR("it belongs to the file that was at this path before: renamed to -wal.old")));
    return true;
}

/* True if the file was moved or removed from its path. SQLite would continue to write to it, and the writes would be
 * lost at the end of the process. */
static bool has_moved(const mp_database *database)
{
    int moved = 0;
    return database->db != NULL && database->root != NULL &&
           sqlite3_file_control(database->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved) == SQLITE_OK && moved != 0;
}

/* Closes a database whose file was moved. The file is made complete, wherever it is; its -wal file stays, for other
 * connections to the same file. */
static void leave_moved(mp_database *database)
{
    mp_log(MP_WARN, "database file was replaced",
           mp_log_str("file", mp_str_of(sqlite3_db_filename(database->db, "main"))),
           mp_log_str("hint",
                      MP_STR("the file that is there now is opened; the one before has what was written until now")));
    if (!database->is_read_only)
        run_own(database, "PRAGMA wal_checkpoint(PASSIVE)");
    close_connection(database);
}

static bool open_connection(mp_database *database, mp_statement *statement)
{
    if (database->db != NULL)
        return true;
    char *path = database->root == NULL ? mp_dup(MP_STR(":memory:")) : place_of(database);
    if (path == NULL) {
        mp_sql_fail(statement, "cannot open the database: %s (%s/%s)", strerror(errno), database->root, database->rest);
        return false;
    }
    if (!set_stale_aside(database, statement, path) || !take_descriptors(database, statement)) {
        free(path);
        return false;
    }
    int flags = SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX |
                (database->is_read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    int rc = sqlite3_open_v2(path, &database->db, flags, NULL);
    if (database->db == NULL) {
        mp_sql_fail(statement,
                    "cannot open the database: all databases together hold the 512 MiB of memory that they may have");
        give_descriptors(database);
        free(path);
        return false;
    }
    mp_stat_add(&mp_stat_databases, 1);
    publish_connection(database, database->db);
    if (rc == SQLITE_OK)
        rc = prepare_connection(database);
    if (rc == SQLITE_OK && database->root != NULL && !database->is_read_only)
        mp_wal_note_owner(path);
    if (rc != SQLITE_OK) {
        explain_open(database, statement, database->root == NULL ? NULL : path);
        database->denied = NULL;
        close_connection(database);
    }
    free(path);
    return rc == SQLITE_OK;
}

/* -- the thread -------------------------------------------------------------------------------------------------- */

static void deliver_result(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_statement *statement = mp_container(message, mp_statement, message);
    statement->done(statement, loop);
}

static void run_statement(mp_database *database, mp_statement *statement)
{
    static const char *const own[] = {
        [MP_SQL_BEGIN] = "BEGIN IMMEDIATE", [MP_SQL_COMMIT] = "COMMIT", [MP_SQL_ROLLBACK] = "ROLLBACK"};
    if (statement->kind == MP_SQL_CLOSE)
        close_connection(database);
    if (statement->kind >= MP_SQL_ROLLBACK && database->db == NULL)
        return;
    if (!statement->in_transaction && statement->kind <= MP_SQL_BEGIN && has_moved(database))
        leave_moved(database);
    if (!open_connection(database, statement))
        return;
    if (statement->in_transaction && sqlite3_get_autocommit(database->db)) {
        mp_sql_fail(statement, "the transaction was rolled back");
    } else if (statement->kind >= MP_SQL_BEGIN) {
        const char *sql = statement->kind == MP_SQL_BEGIN && database->is_read_only ? "BEGIN" : own[statement->kind];
        if (run_own(database, sql) != SQLITE_OK)
            mp_sql_fail(statement, "%s", mp_sql_words(database->db, &database->account));
    } else if (mp_sql_run(database->db, &database->cache, statement, &database->account) != 0 &&
               database->denied != NULL) {
        mp_sql_fail(statement, "%s", database->denied);
    }
    database->denied = NULL;
}

/* Counts one more or one less that waits. True if its script may have one more. The caller has the lock. */
static bool count_waiting(mp_database *database, const mp_statement *statement, int more)
{
    int64_t most = MAX_WAITING, all = database->count;
    database->count += more;
    return mp_holdings_add(&database->holdings, statement->script, more, all, most - all, most / KEPT) && all < most;
}

static void *MP_NULLABLE serve_database(void *arg)
{
    mp_database *database = arg;
    mp_crash_thread("database", 0);
    mp_sql_account_use(&database->account);
    for (;;) {
        pthread_mutex_lock(&database->lock);
        while (mp_link_is_alone(&database->waiting) && !atomic_load(&database->is_over))
            pthread_cond_wait(&database->more, &database->lock);
        mp_link *link = mp_link_take(&database->waiting);
        if (link != NULL)
            count_waiting(database, mp_container(link, mp_statement, link), -1);
        pthread_mutex_unlock(&database->lock);
        if (link == NULL)
            break;
        mp_statement *statement = mp_container(link, mp_statement, link);
        database->running = statement;
        if (is_wanted(database))
            run_statement(database, statement);
        else
            mp_sql_fail(statement, "the statement was cancelled");
        database->running = NULL;
        mp_stat_add(&mp_stat_statements, -1);
        mp_loop_post(statement->loop, &statement->message);
    }
    close_connection(database);
    mp_sql_account_use(NULL);
    atomic_store(&database->has_ended, true);
    return NULL;
}

static bool start_thread(mp_database *database)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    database->has_thread = pthread_create(&database->thread, NULL, serve_database, database) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return database->has_thread;
}

mp_database *mp_database_new(const char *MP_NULLABLE root, const char *MP_NULLABLE rest, bool is_read_only,
                             const char *MP_NULLABLE setup, const mp_database_limits *limits, unsigned script)
{
    mp_database *database = mp_new(sizeof *database);
    database->root = mp_dup_text(root);
    database->rest = mp_dup(mp_str_of(rest == NULL ? "" : rest));
    database->setup = mp_dup_text(setup);
    database->is_read_only = is_read_only;
    database->limits = *limits;
    pthread_mutex_init(&database->lock, NULL);
    pthread_cond_init(&database->more, NULL);
    database->account =
        (mp_sql_account){.most = (int64_t)limits->memory, .most_heap = MAX_HEAP, .script = script, .prepares_from = -1};
    return database;
}

int mp_database_run(mp_database *database, mp_loop *loop, mp_statement *statement)
{
    if (!database->has_thread && !start_thread(database))
        return -1;
    statement->loop = loop;
    statement->message.deliver = deliver_result;
    pthread_mutex_lock(&database->lock);
    bool has_room = count_waiting(database, statement, 1) || statement->kind == MP_SQL_ROLLBACK;
    if (has_room) {
        mp_link_put(&database->waiting, &statement->link);
        pthread_cond_signal(&database->more);
    } else {
        count_waiting(database, statement, -1);
    }
    pthread_mutex_unlock(&database->lock);
    mp_stat_add(has_room ? &mp_stat_statements : &mp_stat_refused_statements, 1);
    return has_room ? 0 : -1;
}

/* Joins the thread and frees the database. Does not wait if the thread has ended. */
static void database_free(mp_database *database)
{
    mp_link_drop(&database->leaving);
    if (database->has_thread)
        pthread_join(database->thread, NULL);
    pthread_mutex_destroy(&database->lock);
    pthread_cond_destroy(&database->more);
    free(database->root);
    free(database->rest);
    free(database->setup);
    free(database);
}

/* Frees closed databases whose threads have ended; with `waits`, all closed databases. Returns the number of those
 * that remain. */
static int64_t free_ended(mp_databases *all, bool waits)
{
    int64_t count = 0;
    mp_link *next;
    for (mp_link *link = mp_link_first(&all->leaving); link != &all->leaving; link = next) {
        mp_database *database = mp_container(link, mp_database, leaving);
        next = link->next;
        if (waits || atomic_load(&database->has_ended))
            database_free(database);
        else
            count++;
    }
    return count;
}

void mp_database_leave(mp_databases *all, mp_database *database)
{
    pthread_mutex_lock(&database->lock);
    atomic_store(&database->is_over, true);
    if (database->interruptible != NULL)
        sqlite3_interrupt(database->interruptible);
    pthread_cond_signal(&database->more);
    pthread_mutex_unlock(&database->lock);
    mp_link_put(&all->leaving, &database->leaving);
    if (!database->has_thread)
        database_free(database);
    free_ended(all, false);
}

int64_t mp_databases_count(mp_databases *all)
{
    return free_ended(all, false);
}

void mp_databases_end(mp_databases *all)
{
    free_ended(all, true);
}

bool mp_statement_hold(mp_statement *statement, size_t bytes)
{
    /* what begins may take half of the room: statements that run find place for their results in the other half */
    int64_t most = statement->held == 0 ? MAX_HELD / 2 : MAX_HELD, more = (int64_t)bytes - (int64_t)statement->held;
    bool fits =
        more <= 0 || mp_holdings_take(&held, &mp_account_sqlite_bytes, statement->script, more, most, most / KEPT);
    if (more < 0)
        mp_holdings_give(&held, &mp_account_sqlite_bytes, statement->script, -more);
    if (fits)
        statement->held = bytes;
    mp_stat_add(&mp_stat_refused_sqlite_bytes, !fits);
    return fits;
}

void mp_statement_free(mp_statement *statement)
{
    free(statement->sql);
    mp_buf_clear(&statement->params);
    mp_buf_clear(&statement->result);
    mp_statement_hold(statement, 0);
    free(statement);
}

mp_str mp_database_name(const mp_database *database)
{
    if (database->root == NULL)
        return MP_STR(":memory:");
    const char *slash = strrchr(database->rest, '/');
    return mp_str_of(slash == NULL ? database->rest : slash + 1);
}
