/* database.c: the thread of a database: its queue, its connection, what it lets SQL do. */
#include "script/database.h"
#include "script/sql.h"
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <strings.h>
#include <time.h>

#define MOST_SQL (1 << 20)
#define MOST_PATTERN 1000 /* of LIKE and GLOB */
#define LOOK 1000         /* instructions of SQLite between looks whether anybody still waits */
#define RETRY_MS 10

struct mp_database {
    char *root, *rest, *setup;
    bool is_read_only;
    mp_database_limits limits;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* guards these three */
    pthread_cond_t more;
    mp_link waiting;
    int64_t count;
    atomic_bool is_over;
    mp_statement *running; /* these are the thread's */
    sqlite3 *db;
    mp_sql_cache cache;
    bool is_ours; /* what is prepared is not the script's */
    const char *denied;
};

/* -- what SQL may do --------------------------------------------------------------------------------------------- */

static const char *const pragmas[] = {"application_id",
                                      "data_version",
                                      "foreign_key_check",
                                      "foreign_key_list",
                                      "foreign_keys",
                                      "freelist_count",
                                      "index_info",
                                      "index_list",
                                      "index_xinfo",
                                      "integrity_check",
                                      "optimize",
                                      "page_count",
                                      "page_size",
                                      "quick_check",
                                      "table_info",
                                      "table_list",
                                      "table_xinfo",
                                      "user_version",
                                      "wal_checkpoint",
                                      "incremental_vacuum",
                                      "auto_vacuum",
                                      "recursive_triggers",
                                      NULL};

static int deny(mp_database *database, const char *what)
{
    database->denied = what;
    return SQLITE_DENY;
}

static int authorize(void *ctx, int action, const char *one, const char *two, const char *schema, const char *from)
{
    (void)schema;
    (void)from;
    mp_database *database = ctx;
    if (database->is_ours)
        return SQLITE_OK;
    switch (action) {
    case SQLITE_ATTACH: /* VACUUM, too */
        return deny(database, "ATTACH and VACUUM are not for scripts");
    case SQLITE_TRANSACTION:
    case SQLITE_SAVEPOINT:
        return deny(database, "transactions are begun and ended by db:transaction(f)");
    case SQLITE_FUNCTION:
        return two != NULL && strcasecmp(two, "load_extension") == 0
                   ? deny(database, "load_extension is not for scripts")
                   : SQLITE_OK;
    case SQLITE_PRAGMA:
        for (int i = 0; pragmas[i] != NULL; i++)
            if (one != NULL && strcasecmp(one, pragmas[i]) == 0)
                return SQLITE_OK;
        return deny(database, "this pragma is not for scripts");
    default:
        return SQLITE_OK;
    }
}

static bool is_wanted(const mp_database *database)
{
    return !atomic_load(&database->is_over) && (database->running == NULL || !atomic_load(&database->running->is_off));
}

static int on_progress(void *ctx)
{
    return !is_wanted(ctx);
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, RETRY_MS * 1000000L}, NULL);
}

static int on_busy(void *ctx, int tries)
{
    mp_database *database = ctx;
    if (!is_wanted(database) || (uint64_t)tries * RETRY_MS >= database->limits.busy_ms)
        return 0;
    nap();
    return 1;
}

/* -- opening ----------------------------------------------------------------------------------------------------- */

/* Where the file is, with what the operator's own path is a link to; NULL when there is no such folder. */
static char *place_of(const mp_database *database)
{
    mp_buf path = {0};
    char *real = realpath(database->root, NULL);
    const char *slash = strrchr(database->root, '/');
    if (real == NULL && slash != NULL && database->rest[0] == '\0') { /* a file that is not there yet */
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

static int prepare_connection(mp_database *database)
{
    sqlite3 *db = database->db;
    sqlite3_extended_result_codes(db, 1);
    sqlite3_busy_handler(db, on_busy, database);
    sqlite3_progress_handler(db, LOOK, on_progress, database);
    sqlite3_db_config(db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    sqlite3_limit(db, SQLITE_LIMIT_LENGTH, database->limits.bytes > INT_MAX ? INT_MAX : (int)database->limits.bytes);
    sqlite3_limit(db, SQLITE_LIMIT_SQL_LENGTH, MOST_SQL);
    sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, MOST_PATTERN);
    sqlite3_limit(db, SQLITE_LIMIT_ATTACHED, 1);
    int rc = SQLITE_OK;
    if (database->root != NULL && !database->is_read_only)
        for (uint64_t waited = 0;
             (rc = run_own(database, "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")) != SQLITE_OK &&
             (rc & 0xff) == SQLITE_BUSY && waited < database->limits.busy_ms && is_wanted(database);
             waited += RETRY_MS)
            nap();
    if (rc == SQLITE_OK)
        rc = run_own(database, "PRAGMA foreign_keys = ON");
    sqlite3_set_authorizer(db, authorize, database);
    if (rc == SQLITE_OK && database->setup != NULL)
        rc = sqlite3_exec(db, database->setup, NULL, NULL, NULL);
    return rc;
}

static void close_connection(mp_database *database)
{
    if (database->db == NULL)
        return;
    mp_stat_add(MP_STAT_DATABASES, -1);
    mp_sql_cache_clear(&database->cache);
    sqlite3_close_v2(database->db);
    database->db = NULL;
}

static bool open_connection(mp_database *database, mp_statement *statement)
{
    if (database->db != NULL)
        return true;
    char *path = database->root == NULL ? mp_dup(MP_STR(":memory:")) : place_of(database);
    if (path == NULL) {
        mp_sql_fail(statement, "cannot open it: %s", strerror(errno));
        return false;
    }
    int flags = SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_NOMUTEX |
                (database->is_read_only ? SQLITE_OPEN_READONLY : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
    int rc = sqlite3_open_v2(path, &database->db, flags, NULL);
    free(path);
    mp_stat_add(MP_STAT_DATABASES, 1);
    if (rc == SQLITE_OK)
        rc = prepare_connection(database);
    if (rc == SQLITE_OK)
        return true;
    const char *why = database->denied != NULL ? database->denied : sqlite3_errmsg(database->db);
    mp_sql_fail(statement, "cannot open it: %s",
                sqlite3_extended_errcode(database->db) == SQLITE_CANTOPEN_SYMLINK ? "a symbolic link is on the way"
                                                                                  : why);
    database->denied = NULL;
    close_connection(database);
    return false;
}

/* -- the thread -------------------------------------------------------------------------------------------------- */

static void deliver(mp_message *message, mp_loop *loop)
{
    mp_statement *statement = mp_container(message, mp_statement, message);
    statement->done(statement, loop);
}

static void run(mp_database *database, mp_statement *statement)
{
    static const char *const own[] = {
        [MP_SQL_BEGIN] = "BEGIN IMMEDIATE", [MP_SQL_COMMIT] = "COMMIT", [MP_SQL_ROLLBACK] = "ROLLBACK"};
    if (statement->kind == MP_SQL_CLOSE)
        close_connection(database);
    if (statement->kind >= MP_SQL_ROLLBACK && database->db == NULL)
        return;
    if (!open_connection(database, statement))
        return;
    if (statement->in_transaction && sqlite3_get_autocommit(database->db)) {
        mp_sql_fail(statement, "the transaction was rolled back");
    } else if (statement->kind >= MP_SQL_BEGIN) {
        const char *sql = statement->kind == MP_SQL_BEGIN && database->is_read_only ? "BEGIN" : own[statement->kind];
        if (run_own(database, sql) != SQLITE_OK)
            mp_sql_fail(statement, "%s", sqlite3_errmsg(database->db));
    } else if (mp_sql_run(database->db, &database->cache, statement, &database->limits) != 0 &&
               database->denied != NULL) {
        mp_sql_fail(statement, "%s", database->denied);
    }
    database->denied = NULL;
}

static void *serve(void *arg)
{
    mp_database *database = arg;
    for (;;) {
        pthread_mutex_lock(&database->lock);
        while (mp_link_is_alone(&database->waiting) && !atomic_load(&database->is_over))
            pthread_cond_wait(&database->more, &database->lock);
        mp_link *link = mp_link_take(&database->waiting);
        if (link != NULL)
            database->count--;
        pthread_mutex_unlock(&database->lock);
        if (link == NULL)
            break;
        mp_statement *statement = mp_container(link, mp_statement, link);
        database->running = statement;
        if (is_wanted(database))
            run(database, statement);
        else
            mp_sql_fail(statement, "called off");
        database->running = NULL;
        mp_stat_add(MP_STAT_STATEMENTS, -1);
        mp_loop_post(statement->loop, &statement->message);
    }
    close_connection(database);
    return NULL;
}

static bool start(mp_database *database)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    database->has_thread = pthread_create(&database->thread, NULL, serve, database) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return database->has_thread;
}

static char *dup_or_null(const char *text)
{
    return text == NULL ? NULL : mp_dup(mp_str_of(text));
}

mp_database *mp_database_new(const char *root, const char *rest, bool is_read_only, const char *setup,
                             const mp_database_limits *limits)
{
    mp_database *database = mp_new(sizeof *database);
    database->root = dup_or_null(root);
    database->rest = dup_or_null(rest == NULL ? "" : rest);
    database->setup = dup_or_null(setup);
    database->is_read_only = is_read_only;
    database->limits = *limits;
    pthread_mutex_init(&database->lock, NULL);
    pthread_cond_init(&database->more, NULL);
    mp_link_init(&database->waiting);
    return database;
}

int mp_database_run(mp_database *database, mp_loop *loop, mp_statement *statement)
{
    if (!database->has_thread && !start(database))
        return -1;
    statement->loop = loop;
    statement->message.deliver = deliver;
    pthread_mutex_lock(&database->lock);
    bool has_room = database->count < database->limits.queue || statement->kind == MP_SQL_ROLLBACK;
    if (has_room) {
        mp_link_put(&database->waiting, &statement->link);
        database->count++;
        pthread_cond_signal(&database->more);
    }
    pthread_mutex_unlock(&database->lock);
    mp_stat_add(has_room ? MP_STAT_STATEMENTS : MP_STAT_REFUSED_STATEMENTS, 1);
    return has_room ? 0 : -1;
}

void mp_database_free(mp_database *database)
{
    pthread_mutex_lock(&database->lock);
    atomic_store(&database->is_over, true);
    pthread_cond_signal(&database->more);
    pthread_mutex_unlock(&database->lock);
    if (database->has_thread)
        pthread_join(database->thread, NULL);
    pthread_mutex_destroy(&database->lock);
    pthread_cond_destroy(&database->more);
    free(database->root);
    free(database->rest);
    free(database->setup);
    free(database);
}

void mp_statement_free(mp_statement *statement)
{
    free(statement->sql);
    mp_buf_clear(&statement->params);
    mp_buf_clear(&statement->result);
    free(statement);
}
