/* store_file.c: the store's file, an SQLite database that only this process has open. It is read once when the gateway starts. Then a thread
 * of its own writes the changes, many in one transaction. A function that changes the store does not wait for the file. */
#include "data/store_entry.h"
#include "data/database.h"
#include "data/sql_memory.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

MP_COUNTER(store_failures, "store_failures", "", "", "failed writes of the store to its file")

#define OURS 0x6d6f6f6e /* the application_id of an SQLite file */
#define VERSION 1       /* the user_version of an SQLite file */
#define BUSY_MS 500     /* ms that the last write may wait for a lock while the process ends */
#define GATHER_MS 10    /* ms between transactions: a killed process loses at most these changes */
#define SYNC_MS 1000    /* ms between checkpoints: a power cut loses at most these changes */
#define RETRY_MS 1000
#define SAY_AGAIN_MS 60000
#define PIECE ((size_t)256 << 10) /* copied under the store's lock */
#define BATCH ((size_t)4 << 20)   /* limit of the bytes in one transaction */

/* Prefixes of the keys that are saved: keys of scripts, of quotas, and of other data of the gateway that survives a
 * restart. */
static const char *const kept[] = {"s:", "q:", "kept:", NULL};

struct mp_store_file {
    mp_store *store;
    char *path;
    sqlite3 *db;            /* NULL if the file was closed after an error, and has to be opened again */
    uint64_t device, inode; /* identity of the open file */
    sqlite3_stmt *put, *drop;
    pthread_t thread;
    bool has_thread;
    mp_buf batch;
    int64_t count;      /* number of changes in the batch */
    bool is_synced;     /* nothing was written since the last checkpoint */
    uint64_t synced_at; /* times in ms of the monotonic clock */
    uint64_t
        said_at; /* when a failure was last reported, in ms of the monotonic clock; 0: the last transaction succeeded */
};

/* -- opening ----------------------------------------------------------------------------------------------------- */

static int refuse(const mp_store_file *file, mp_err *err, const char *why, const char *hint)
{
    mp_err_set(err, "store.file: %s: %s", file->path, why);
    return mp_err_hint(err, "%s", hint);
}

static int refuse_broken(const mp_store_file *file, mp_err *err, const char *why)
{
    return refuse(file, err, why, "move the file and its -wal away to begin with an empty store, or restore a backup");
}

/* The last error of SQLite as a text for the operator. */
static int refuse_sql(const mp_store_file *file, mp_err *err)
{
    int code = sqlite3_errcode(file->db) & 0xff;
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return refuse(file, err, "another process uses the file",
                      "each gateway needs its own store.file; stop the other gateway, or change store.file");
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return refuse_broken(file, err, sqlite3_errmsg(file->db));
    if (code == SQLITE_FULL || code == SQLITE_IOERR)
        return refuse(file, err, sqlite3_errmsg(file->db), "check whether the disk is full");
    return refuse(file, err, sqlite3_errmsg(file->db),
                  "this user needs permission to write the file and its folder, where SQLite creates a -wal file");
}

/* Creates the file with mode 0600. SQLite gives the -wal and -shm files the same mode. */
static int make(const mp_store_file *file, mp_err *err)
{
    int fd = open(file->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return refuse(file, err, strerror(errno),
                      errno == ENOENT ? "create its folder first" : "this user needs permission to write the file");
    close(fd);
    return 0;
}

static int run(const mp_store_file *file, const char *sql)
{
    return sqlite3_exec(file->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : -1;
}

/* The first value of the first row. -1 if there is no row. */
static int64_t ask(const mp_store_file *file, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    int64_t value = -1;
    if (sqlite3_prepare_v2(file->db, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return value;
}

/* Checks the whole file: SQLite would notice a broken page only when it uses the page. */
static int look_over(const mp_store_file *file, mp_err *err)
{
    sqlite3_stmt *check = NULL;
    int failed = 0;
    if (sqlite3_prepare_v2(file->db, "PRAGMA quick_check(1)", -1, &check, NULL) != SQLITE_OK ||
        sqlite3_step(check) != SQLITE_ROW)
        failed = refuse_sql(file, err);
    else if (strcmp((const char *)sqlite3_column_text(check, 0), "ok") != 0)
        failed = refuse_broken(file, err, "the database is broken");
    sqlite3_finalize(check);
    return failed;
}

static const char layout[] = "CREATE TABLE entries (key BLOB PRIMARY KEY, text BLOB NOT NULL, until INTEGER);"
                             "PRAGMA application_id = 1836019566; PRAGMA user_version = 1";

/* Locks the file for this process, and creates the table in an empty file. A database of another program is refused
 * and not changed. */
static int claim(mp_store_file *file, mp_err *err)
{
    if (run(file, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA trusted_schema = OFF; BEGIN IMMEDIATE") != 0)
        return refuse_sql(file, err);
    int64_t id = ask(file, "PRAGMA application_id"), tables = ask(file, "SELECT count(*) FROM sqlite_master");
    if (tables < 0)
        return refuse_sql(file, err);
    if (tables > 0 && id != OURS)
        return refuse(file, err, "the file is a database of another program", "give the store a file of its own");
    if (tables > 0 && ask(file, "PRAGMA user_version") != VERSION)
        return refuse(file, err, "the file was made by a newer moonpool", "use the newer moonpool, or another file");
    if ((tables == 0 && run(file, layout) != 0) ||
        run(file, "COMMIT; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL") != 0)
        return refuse_sql(file, err);
    return 0;
}

static int load_one(const mp_store_file *file, sqlite3_stmt *row, uint64_t now)
{
    uint64_t life = MP_STORE_FOREVER;
    if (sqlite3_column_type(row, 2) != SQLITE_NULL) {
        uint64_t until = (uint64_t)sqlite3_column_int64(row, 2);
        life = until > now ? until - now : 1;
    }
    mp_str key = {sqlite3_column_blob(row, 0), (size_t)sqlite3_column_bytes(row, 0)};
    mp_str text = {sqlite3_column_blob(row, 1), (size_t)sqlite3_column_bytes(row, 1)};
    return mp_store_load(file->store, key, text, life) == MP_STORE_DONE ? 0 : -1;
}

static int load(const mp_store_file *file, mp_err *err)
{
    sqlite3_stmt *rows = NULL;
    uint64_t now = mp_clock_ms(CLOCK_REALTIME);
    char old[80];
    snprintf(old, sizeof old, "DELETE FROM entries WHERE until <= %lld", (long long)now);
    if (run(file, old) != 0 ||
        sqlite3_prepare_v2(file->db, "SELECT key, text, until FROM entries", -1, &rows, NULL) != SQLITE_OK)
        return refuse_sql(file, err);
    int code, full = 0;
    while (full == 0 && (code = sqlite3_step(rows)) == SQLITE_ROW)
        full = load_one(file, rows, now);
    if (full != 0)
        refuse(file, err, "the file holds more than store.entries and store.bytes allow", "raise them");
    else if (code != SQLITE_DONE)
        full = refuse_sql(file, err);
    sqlite3_finalize(rows);
    return full;
}

static int prepare(mp_store_file *file, mp_err *err)
{
    static const char put[] = "INSERT OR REPLACE INTO entries (key, text, until) VALUES (?, ?, ?)";
    static const char drop[] = "DELETE FROM entries WHERE key = ?";
    if (sqlite3_prepare_v3(file->db, put, -1, SQLITE_PREPARE_PERSISTENT, &file->put, NULL) != SQLITE_OK ||
        sqlite3_prepare_v3(file->db, drop, -1, SQLITE_PREPARE_PERSISTENT, &file->drop, NULL) != SQLITE_OK)
        return refuse_sql(file, err);
    return 0;
}

static int open_database(mp_store_file *file, mp_err *err)
{
    struct stat made;
    if (make(file, err) != 0)
        return -1;
    if (sqlite3_open_v2(file->path, &file->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return refuse_sql(file, err);
    sqlite3_busy_timeout(file->db, BUSY_MS);
    if (claim(file, err) != 0 || prepare(file, err) != 0)
        return -1;
    if (stat(file->path, &made) != 0)
        return refuse(file, err, strerror(errno), "the file must stay at its path while the gateway runs");
    file->device = made.st_dev;
    file->inode = made.st_ino;
    return 0;
}

static void close_database(mp_store_file *file)
{
    sqlite3_finalize(file->put);
    sqlite3_finalize(file->drop);
    sqlite3_close(file->db);
    file->put = file->drop = NULL;
    file->db = NULL;
}

/* -- writing ----------------------------------------------------------------------------------------------------- */

static int write_change(const mp_store_file *file, const mp_store_change *change, const char *bytes, int64_t ahead)
{
    sqlite3_stmt *statement = change->is_gone ? file->drop : file->put;
    sqlite3_bind_blob64(statement, 1, bytes, change->key_len, SQLITE_STATIC);
    if (!change->is_gone) {
        sqlite3_bind_blob64(statement, 2, bytes + change->key_len, change->len, SQLITE_STATIC);
        if (change->until == MP_STORE_FOREVER)
            sqlite3_bind_null(statement, 3);
        else
            sqlite3_bind_int64(statement, 3, (int64_t)change->until + ahead);
    }
    int code = sqlite3_step(statement);
    sqlite3_reset(statement);
    return code == SQLITE_DONE ? 0 : -1;
}

static int write_all(const mp_store_file *file)
{
    int64_t ahead = (int64_t)mp_clock_ms(CLOCK_REALTIME) - (int64_t)mp_clock_ms(CLOCK_MONOTONIC);
    mp_store_change change;
    for (const char *at = file->batch.ptr, *end = at + file->batch.len; at < end; at += change.key_len + change.len) {
        memcpy(&change, at, sizeof change);
        at += sizeof change;
        if (write_change(file, &change, at, ahead) != 0)
            return -1;
    }
    return 0;
}

static void note_failure(mp_store_file *file, const char *why)
{
    uint64_t now = mp_clock_ms(CLOCK_MONOTONIC);
    mp_stat_add(&mp_stat_store_failures, 1);
    if (file->said_at != 0 && now - file->said_at < SAY_AGAIN_MS)
        return;
    mp_log(
        MP_ERROR, "store not saved", mp_log_str("file", mp_str_of(file->path)), mp_log_str("why", mp_str_of(why)),
        mp_log_str("hint", MP_STR("the gateway serves from memory and tries again; a restart loses unsaved changes")));
    file->said_at = now;
}

/* True if the open file is still at its path. SQLite writes to a removed file without an error. */
static bool is_there(const mp_store_file *file)
{
    struct stat found;
    return file->db != NULL && stat(file->path, &found) == 0 && found.st_dev == file->device &&
           found.st_ino == file->inode;
}

/* Creates the file again after it was removed. If another file is at its path now, that file is not changed. */
static bool make_anew(mp_store_file *file)
{
    struct stat found;
    mp_err err;
    if (file->db != NULL)
        note_failure(file, "the file was removed or replaced while it was open");
    close_database(file); /* also removes the -wal file that the removed file left */
    if (stat(file->path, &found) == 0 && found.st_size > 0) {
        note_failure(file, "another file has this path now: move it away, or restart to read it");
        return false;
    }
    if (open_database(file, &err) != 0) {
        note_failure(file, err.text);
        close_database(file);
        return false;
    }
    mp_log(MP_WARN, "store file created again", mp_log_str("file", mp_str_of(file->path)));
    mp_store_change_all(file->store);
    return true;
}

static bool write_batch(mp_store_file *file)
{
    if (!is_there(file) && !make_anew(file))
        return false;
    if (run(file, "BEGIN") == 0 && write_all(file) == 0 && run(file, "COMMIT") == 0)
        return true;
    note_failure(file, sqlite3_errmsg(file->db));
    if (!sqlite3_get_autocommit(file->db))
        run(file, "ROLLBACK");
    return false;
}

/* Returns false if writing failed and the store is being closed. */
static bool save(mp_store_file *file)
{
    int64_t taken;
    do
        file->count += taken = mp_store_take_changes(file->store, &file->batch, PIECE);
    while (taken > 0 && file->batch.len < BATCH);
    while (!write_batch(file))
        if (mp_store_nap(file->store, RETRY_MS))
            return false;
    if (file->said_at != 0)
        mp_log(MP_INFO, "store saved again", mp_log_str("file", mp_str_of(file->path)));
    file->said_at = 0;
    file->is_synced = false;
    mp_stat_add(&mp_stat_store_unsaved, -file->count);
    file->count = 0;
    file->batch.len = 0;
    if (file->batch.cap > BATCH)
        mp_buf_clear(&file->batch);
    return true;
}

static uint64_t until_sync(const mp_store_file *file)
{
    uint64_t due = file->synced_at + SYNC_MS, now = mp_clock_ms(CLOCK_MONOTONIC);
    return file->is_synced ? MP_STORE_FOREVER : due > now ? due - now : 0;
}

/* When the store is closed: if the file was removed since the last write, all entries are written once more. */
static bool was_made_anew(mp_store_file *file)
{
    return !is_there(file) && make_anew(file);
}

static void *keep(void *arg)
{
    mp_store_file *file = arg;
    mp_store_news news;
    while ((news = mp_store_await(file->store, until_sync(file))) != MP_STORE_CLOSING || was_made_anew(file)) {
        if (news == MP_STORE_CHANGED) {
            if (!save(file)) {
                mp_log(MP_ERROR, "store not saved at shutdown",
                       mp_log_int("lost", mp_stat_read(&mp_stat_store_unsaved)));
                break;
            }
            mp_store_nap(file->store, GATHER_MS);
        }
        if (until_sync(file) == 0) {
            run(file, "PRAGMA wal_checkpoint(PASSIVE)");
            file->is_synced = true;
            file->synced_at = mp_clock_ms(CLOCK_MONOTONIC);
        }
    }
    return NULL;
}

/* -- the writer thread, opening and closing ---------------------------------------------------------------------- */

/* The thread blocks all signals: the main thread handles them. */
static int start(mp_store_file *file, mp_err *err)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(&file->thread, NULL, keep, file);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    file->has_thread = code == 0;
    return code == 0 ? 0 : mp_err_set(err, "cannot start a thread for store.file: %s", strerror(code));
}

static int open_file(mp_store_file *file, mp_err *err)
{
    if (open_database(file, err) != 0 || look_over(file, err) != 0 || load(file, err) != 0)
        return -1;
    return start(file, err);
}

int mp_store_keep(mp_store *store, const char *path, mp_err *err)
{
    if (path == NULL)
        return 0;
    mp_sql_memory_start();
    mp_store_file *file = mp_new(sizeof *file);
    file->store = store;
    file->path = mp_dup(mp_str_of(path));
    file->is_synced = true;
    mp_store_track(store, file, kept);
    return open_file(file, err);
}

void mp_store_file_close(mp_store_file *file)
{
    mp_store_close(file->store);
    if (file->has_thread)
        pthread_join(file->thread, NULL);
    close_database(file);
    mp_buf_clear(&file->batch);
    free(file->path);
    free(file);
}
