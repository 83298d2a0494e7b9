/* store_file.c: the store's file, an SQLite database that only this process has open. It is read once when the gateway
 * starts. Then a thread of its own writes the changes, many in one transaction. A function that changes the store does
 * not wait for the file.
 *
 * A process that takes a store over adopts its file: once the other process has closed it, this one compares its rows
 * with the entries, piece by piece and between the transactions, and what differs becomes a change. So the file is
 * whole, whatever the other process had saved of its last changes. */
#include "data/store_entry.h"
#include "data/database.h"
#include "data/store_database.h"
#include "os/os.h"

MP_COUNTER(store_failures, "store_failures", "", "", "failed writes of the store to its file")

#define GATHER_MS 10 /* ms between transactions: a killed process loses at most these changes */
#define SYNC_MS 1000 /* ms between checkpoints: a power cut loses at most these changes */
/* of changes, after which a checkpoint runs earlier: it bounds the -wal file */
#define SYNC_BYTES ((size_t)4 << 20)
#define RETRY_MS 1000
#define SAY_AGAIN_MS 60000
#define PIECE ((size_t)256 << 10) /* copied under the store's lock */
#define BATCH ((size_t)4 << 20)   /* limit of the bytes in one transaction */
#define ADOPT_RETRY_MS 100
#define ADOPT_QUIET_MS 5000 /* ms that the process before this one may need to close the file */
#define COMPARED "200"      /* rows that are compared at once */

struct mp_store_file {
    mp_store *store;
    mp_store_database database; /* closed after an error, until it can be opened again */
    pthread_t thread;
    bool has_thread;
    mp_buf batch;
    int64_t count;         /* number of changes in the batch */
    size_t unsynced_bytes; /* of changes that were written since the last checkpoint */
    bool is_synced;        /* nothing was written since the last checkpoint */
    bool syncs;            /* the batch has changes of sign-in: on the disk before their waits end */
    bool is_swept;         /* expired entries were removed from the file */
    bool adopts;           /* the file was another process's, and its rows are not all compared with the entries yet */
    bool is_compared;      /* while `adopts`: all rows were compared; entries without a row remain */
    mp_buf after;          /* key of the next row that may be looked at, or of the last entry that was */
    uint64_t synced_at;    /* times in ms of the monotonic clock */
    uint64_t said_at;      /* when a failure was last reported; 0: the last transaction succeeded */
    char said[256];        /* reason of the last failure */
};

/* -- opening ----------------------------------------------------------------------------------------------------- */

static int run_sql(const mp_store_file *file, const char *sql)
{
    return mp_store_database_run(&file->database, sql);
}

/* Checks the whole file: SQLite would notice a broken page only when it uses the page. */
static int look_over(const mp_store_file *file, mp_err *err)
{
    sqlite3_stmt *check = NULL;
    int failed = 0;
    if (sqlite3_prepare_v2(file->database.db, "PRAGMA quick_check(1)", -1, &check, NULL) != SQLITE_OK ||
        sqlite3_step(check) != SQLITE_ROW)
        failed = mp_store_database_refuse(&file->database, err);
    else if (strcmp((const char *)sqlite3_column_text(check, 0), "ok") != 0)
        failed = mp_store_database_refuse_broken(&file->database, err, "the database is broken");
    sqlite3_finalize(check);
    return failed;
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

static int load_entries(const mp_store_file *file, mp_err *err)
{
    sqlite3_stmt *rows = NULL;
    uint64_t now = mp_clock_ms(CLOCK_REALTIME);
    static const char unexpired[] = "SELECT key, text, until FROM entries WHERE until IS NULL OR until > ?1 UNION ALL "
                                    "SELECT key, text, until FROM sessions WHERE until IS NULL OR until > ?1";
    if (sqlite3_prepare_v2(file->database.db, unexpired, -1, &rows, NULL) != SQLITE_OK)
        return mp_store_database_refuse(&file->database, err);
    sqlite3_bind_int64(rows, 1, (sqlite3_int64)now);
    int code, full = 0;
    while (full == 0 && (code = sqlite3_step(rows)) == SQLITE_ROW)
        full = load_one(file, rows, now);
    if (full != 0)
        mp_store_database_refuse_full(&file->database, err);
    else if (code != SQLITE_DONE)
        full = mp_store_database_refuse(&file->database, err);
    sqlite3_finalize(rows);
    return full;
}

/* -- writing ----------------------------------------------------------------------------------------------------- */

static int write_change(mp_store_file *file, const mp_store_change *change, const char *bytes, int64_t ahead)
{
    const mp_store_prefix *row = mp_room_prefix((mp_str){bytes, change->key_len});
    bool is_kept = row->saved == MP_SAVED_WITH_SESSIONS;
    file->syncs = file->syncs || row->room == MP_ROOM_SIGN_IN;
    mp_store_table table = is_kept ? MP_STORE_SESSIONS : MP_STORE_ENTRIES;
    sqlite3_stmt *statement = change->is_gone ? file->database.drop[table] : file->database.put[table];
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

static int write_all(mp_store_file *file)
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

/* Logs a failure, unless the last one had the same reason and was logged a short time ago. */
static void note_failure(mp_store_file *file, const char *why, const char *hint)
{
    uint64_t now = mp_clock_ms(CLOCK_MONOTONIC);
    mp_stat_add(&mp_stat_store_failures, 1);
    if (file->said_at != 0 && now - file->said_at < SAY_AGAIN_MS &&
        strncmp(file->said, why, sizeof file->said - 1) == 0)
        return;
    mp_log(MP_ERROR, "store not saved", mp_log_str("file", mp_str_of(file->database.path)),
           mp_log_str("why", mp_str_of(why)), mp_log_str("hint", mp_str_of(hint)));
    file->said_at = now;
    snprintf(file->said, sizeof file->said, "%s", why);
}

static const char serves_on[] = "the gateway serves from memory and tries again; a restart loses unsaved changes";

/* Creates the file again after it was removed. */
static bool make_anew(mp_store_file *file)
{
    mp_err err;
    if (file->database.db != NULL)
        note_failure(file, "the file was removed or moved away while it was open", "the gateway creates it again");
    mp_store_database_abandon(&file->database);
    if (mp_store_database_open(&file->database, true, &err) != 0) {
        note_failure(file, err.text, serves_on);
        mp_store_database_close(&file->database);
        return false;
    }
    mp_log(MP_WARN, "store file created again", mp_log_str("file", mp_str_of(file->database.path)));
    mp_store_change_all(file->store);
    return true;
}

/* True if the open file is at its path, or was created again. A file that was put there is not changed. */
static bool is_ready(mp_store_file *file)
{
    mp_store_file_place place = mp_store_database_place(&file->database);
    if (place != MP_STORE_FILE_REPLACED)
        return place == MP_STORE_FILE_THERE || make_anew(file);
    mp_store_database_abandon(&file->database);
    note_failure(
        file, "another file is at this path",
        "restart to serve that file, as after a restore: changes from now on are lost then; or move that file away, "
        "and the gateway saves all that it holds to a new one");
    return false;
}

/* Removes the entries that had expired when the file was read. */
static int sweep_expired(mp_store_file *file)
{
    char old[160];
    long long now = (long long)mp_clock_ms(CLOCK_REALTIME);
    snprintf(old, sizeof old, "DELETE FROM entries WHERE until <= %lld; DELETE FROM sessions WHERE until <= %lld", now,
             now);
    if (!file->is_swept && run_sql(file, old) != 0)
        return -1;
    file->is_swept = true;
    return 0;
}

static bool write_batch(mp_store_file *file)
{
    if (!is_ready(file))
        return false;
    if (mp_store_database_begin(&file->database) == 0 && sweep_expired(file) == 0 && write_all(file) == 0 &&
        run_sql(file, "COMMIT") == 0) {
        if (file->syncs)
            mp_store_database_sync(&file->database);
        file->syncs = false;
        return true;
    }
    note_failure(file, sqlite3_errmsg(file->database.db), serves_on);
    if (!sqlite3_get_autocommit(file->database.db))
        run_sql(file, "ROLLBACK");
    return false;
}

/* Writes the batch, again each RETRY_MS while that fails; meanwhile nobody waits for it. Once the store is being
 * closed, one more try is the last: false if that fails. */
static bool write_at_last(mp_store_file *file)
{
    for (bool is_last = false; !write_batch(file); is_last = mp_store_nap(file->store, RETRY_MS)) {
        mp_store_set_saving(file->store, false);
        if (is_last)
            return false;
    }
    mp_store_tell_written(file->store);
    return true;
}

/* Returns false if writing failed and the store is being closed. */
static bool save_changes(mp_store_file *file)
{
    int64_t taken;
    do
        file->count += taken = mp_store_take_changes(file->store, &file->batch, PIECE);
    while (taken > 0 && file->batch.len < BATCH);
    mp_store_take_waiters(file->store);
    if (!write_at_last(file))
        return false;
    mp_store_set_saving(file->store, true);
    if (file->said_at != 0)
        mp_log(MP_INFO, "store saved again", mp_log_str("file", mp_str_of(file->database.path)));
    file->said_at = 0;
    file->is_synced = false;
    file->unsynced_bytes += file->batch.len;
    mp_stat_add(&mp_stat_store_unsaved, -file->count);
    file->count = 0;
    file->batch.len = 0;
    if (file->batch.cap > BATCH)
        mp_buf_clear(&file->batch);
    return true;
}

/* -- adopting ------------------------------------------------------------------------------------------------------ */

/* False if the store is closed before the file can be opened. */
static bool open_later(mp_store_file *file)
{
    mp_err err;
    uint64_t began = mp_clock_ms(CLOCK_MONOTONIC);
    while (mp_store_database_open(&file->database, false, &err) != 0) {
        mp_store_database_close(&file->database);
        if (mp_clock_ms(CLOCK_MONOTONIC) - began > ADOPT_QUIET_MS)
            note_failure(file, err.text, serves_on);
        if (mp_store_nap(file->store, ADOPT_RETRY_MS))
            return false;
    }
    file->is_synced = false;
    return true;
}

static uint64_t until_of(sqlite3_stmt *row, int64_t ahead)
{
    if (sqlite3_column_type(row, 2) == SQLITE_NULL)
        return MP_STORE_FOREVER;
    int64_t until = sqlite3_column_int64(row, 2) - ahead;
    return until < 0 ? 0 : (uint64_t)until;
}

/* Compares the next rows of the file with the entries of the store, and records those that differ. Returns the number
 * of rows; -1 if they cannot be read. */
static int compare_some(mp_store_file *file)
{
    sqlite3_stmt *rows = NULL;
    int64_t ahead = (int64_t)mp_clock_ms(CLOCK_REALTIME) - (int64_t)mp_clock_ms(CLOCK_MONOTONIC);
    static const char next[] = "SELECT key, text, until FROM entries WHERE key >= ?1 UNION ALL "
                               "SELECT key, text, until FROM sessions WHERE key >= ?1 ORDER BY key LIMIT " COMPARED;
    int code = sqlite3_prepare_v2(file->database.db, next, -1, &rows, NULL), count = 0;
    if (code == SQLITE_OK) {
        sqlite3_bind_blob64(rows, 1, file->after.ptr == NULL ? "" : file->after.ptr, file->after.len, SQLITE_TRANSIENT);
        for (; (code = sqlite3_step(rows)) == SQLITE_ROW; count++) {
            mp_str key = {sqlite3_column_blob(rows, 0), (size_t)sqlite3_column_bytes(rows, 0)};
            mp_str text = {sqlite3_column_blob(rows, 1), (size_t)sqlite3_column_bytes(rows, 1)};
            mp_store_compare(file->store, key, text, until_of(rows, ahead));
            file->after.len = 0;
            mp_buf_put(&file->after, key);
            mp_buf_putc(&file->after, '\0'); /* the next key that is possible */
        }
    }
    sqlite3_finalize(rows);
    return code == SQLITE_DONE ? count : -1;
}

static void adopt_some(mp_store_file *file)
{
    int count = file->is_compared ? 0 : compare_some(file);
    if (count < 0) {
        note_failure(file, sqlite3_errmsg(file->database.db), serves_on);
        file->adopts = !mp_store_nap(file->store, RETRY_MS);
    } else if (file->is_compared) {
        file->adopts = mp_store_change_new(file->store, &file->after);
    } else if (count == 0) {
        file->is_compared = true;
        mp_buf_clear(&file->after);
    }
}

/* -- the writer thread, opening and closing ---------------------------------------------------------------------- */

static uint64_t until_sync(const mp_store_file *file)
{
    uint64_t due = file->synced_at + SYNC_MS, now = mp_clock_ms(CLOCK_MONOTONIC);
    if (file->is_synced)
        return MP_STORE_FOREVER;
    return due > now && file->unsynced_bytes < SYNC_BYTES ? due - now : 0;
}

/* When the store is closed: if the file was removed since the last write, all entries are written once more. */
static bool was_made_anew(mp_store_file *file)
{
    return mp_store_database_place(&file->database) != MP_STORE_FILE_THERE && is_ready(file);
}

static void say_lost(const mp_store_file *file)
{
    if (mp_store_is_own(file->store)) /* otherwise the owner of the store has the changes */
        mp_log(MP_ERROR, "store not saved at shutdown", mp_log_int("lost", mp_stat_read(&mp_stat_store_unsaved)));
}

/* True while the thread has work, or waits for some. */
static bool goes_on(mp_store_file *file, mp_store_news *news)
{
    *news = mp_store_await(file->store, file->adopts ? 0 : until_sync(file));
    return mp_store_is_own(file->store) && (*news != MP_STORE_CLOSING || file->adopts || was_made_anew(file));
}

static void save_until_closed(mp_store_file *file)
{
    mp_store_news news;
    while (goes_on(file, &news)) {
        if (news == MP_STORE_CHANGED) {
            if (!save_changes(file)) {
                say_lost(file);
                break;
            }
            mp_store_nap(file->store, GATHER_MS);
        }
        if (file->adopts)
            adopt_some(file);
        if (until_sync(file) == 0) {
            mp_store_database_checkpoint(&file->database);
            file->is_synced = true;
            file->unsynced_bytes = 0;
            file->synced_at = mp_clock_ms(CLOCK_MONOTONIC);
        }
    }
}

static void *MP_NULLABLE keep_saving(void *arg)
{
    mp_store_file *file = arg;
    mp_crash_thread("store", 0);
    if (file->adopts && !open_later(file))
        say_lost(file);
    else
        save_until_closed(file);
    mp_store_set_saving(file->store, false);
    return NULL;
}

static int start_thread(mp_store_file *file, mp_err *err)
{
    int code = mp_thread_start(&file->thread, keep_saving, file);
    file->has_thread = code == 0;
    return code == 0 ? 0 : mp_err_set(err, "cannot start a thread for store.file: %s", strerror(code));
}

static int open_file(mp_store_file *file, mp_err *err)
{
    if (mp_store_database_open(&file->database, false, err) != 0 || look_over(file, err) != 0 ||
        load_entries(file, err) != 0)
        return -1;
    mp_store_set_saving(file->store, true); /* before the thread runs: a client that comes earlier has to wait, too */
    return start_thread(file, err);
}

static mp_store_file *make_file(mp_store *store, const char *path)
{
    mp_sql_memory_start();
    mp_store_file *file = mp_new(sizeof *file);
    file->store = store;
    file->database = (mp_store_database){.path = mp_dup(mp_str_of(path)), .fd = -1};
    file->is_synced = true;
    mp_store_track(store, file);
    return file;
}

int mp_store_keep(mp_store *store, const char *MP_NULLABLE path, mp_err *err)
{
    return path == NULL ? 0 : open_file(make_file(store, path), err);
}

void mp_store_keep_later(mp_store *store, const char *MP_NULLABLE path)
{
    if (path != NULL)
        make_file(store, path)->adopts = true;
}

void mp_store_file_adopt(mp_store_file *file)
{
    mp_err err;
    mp_store_set_saving(file->store, true); /* a client that comes before the file is open has to wait, too */
    if (start_thread(file, &err) == 0)
        return;
    mp_store_set_saving(file->store, false);
    mp_log(MP_ERROR, "store not saved", mp_log_str("file", mp_str_of(file->database.path)),
           mp_log_str("why", mp_str_of(err.text)), mp_log_str("hint", mp_str_of(serves_on)));
}

void mp_store_file_close(mp_store_file *file)
{
    mp_store_close(file->store);
    if (file->has_thread)
        pthread_join(file->thread, NULL);
    mp_store_database_close(&file->database);
    mp_store_database_free(&file->database);
    mp_stat_add(&mp_stat_store_unsaved, -file->count);
    mp_buf_clear(&file->batch);
    mp_buf_clear(&file->after);
    free(file);
}
