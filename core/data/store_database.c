/* store_database.c: opens, checks, marks and closes the SQLite file of a store. */
#include "data/store_database.h"
#include "telemetry/telemetry.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#define OURS 0x6d6f6f6e      /* the application_id of an SQLite file */
#define ID_AT 68             /* offset of the application_id in the file */
#define VERSION 1            /* the user_version of an SQLite file */
#define BUSY_MS 500          /* ms that a process which is about to end may keep the lock */
#define RETRY_MS 10          /* ms between two tries to lock */
#define LOCKED_AT 0x40000000 /* the bytes that SQLite locks in the file of a database */
#define LOCKED_BYTES 512

/* -- errors -------------------------------------------------------------------------------------------------------- */

static int refuse_database(const mp_store_database *d, mp_err *err, const char *why, const char *hint)
{
    mp_err_set(err, "store.file: %s: %s", d->path, why);
    return mp_err_hint(err, "%s", hint);
}

int mp_store_database_refuse_broken(const mp_store_database *d, mp_err *err, const char *why)
{
    return refuse_database(d, err, why,
                           "move the file and its -wal away to begin with an empty store, or restore a backup");
}

int mp_store_database_refuse_full(const mp_store_database *d, mp_err *err)
{
    return refuse_database(d, err, "the file holds more than store.entries and store.bytes allow", "raise them");
}

static int refuse_busy(const mp_store_database *d, mp_err *err)
{
    return refuse_database(d, err, "another process uses the file",
                           "each gateway needs its own store.file; stop the other gateway, or change store.file");
}

int mp_store_database_refuse(const mp_store_database *d, mp_err *err)
{
    int code = sqlite3_errcode(d->db) & 0xff;
    if (code == SQLITE_BUSY || code == SQLITE_LOCKED)
        return refuse_busy(d, err);
    if (code == SQLITE_NOTADB || code == SQLITE_CORRUPT)
        return mp_store_database_refuse_broken(d, err, sqlite3_errmsg(d->db));
    if (code == SQLITE_FULL || code == SQLITE_IOERR)
        return refuse_database(d, err, sqlite3_errmsg(d->db), "check whether the disk is full");
    return refuse_database(
        d, err, sqlite3_errmsg(d->db),
        "this user needs permission to write the file and its folder, where SQLite creates a -wal file");
}

int mp_store_database_run(const mp_store_database *d, const char *sql)
{
    return sqlite3_exec(d->db, sql, NULL, NULL, NULL) == SQLITE_OK ? 0 : -1;
}

/* The first value of the first row. -1 if there is no row. */
static int64_t ask_number(const mp_store_database *d, const char *sql)
{
    sqlite3_stmt *statement = NULL;
    int64_t value = -1;
    if (sqlite3_prepare_v2(d->db, sql, -1, &statement, NULL) == SQLITE_OK && sqlite3_step(statement) == SQLITE_ROW)
        value = sqlite3_column_int64(statement, 0);
    sqlite3_finalize(statement);
    return value;
}

/* -- the files, before SQLite opens them --------------------------------------------------------------------------- */

/* Locks what SQLite locks, so that no other process has the database open. SQLite of this process may lock it, too: the
 * locks are those of the process. */
static int lock_file(const mp_store_database *d, mp_err *err)
{
    struct flock whole = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCKED_AT, .l_len = LOCKED_BYTES};
    for (int waited = 0; fcntl(d->fd, F_SETLK, &whole) != 0; waited += RETRY_MS) {
        if (errno != EAGAIN && errno != EACCES)
            return refuse_database(d, err, strerror(errno), "the file system must support locks (fcntl)");
        if (waited >= BUSY_MS)
            return refuse_busy(d, err);
        nanosleep(&(struct timespec){0, RETRY_MS * 1000000L}, NULL);
    }
    return 0;
}

/* Sets `real` to the path without symbolic links, and d->wal to that of its -wal file. */
static int find_paths(mp_store_database *d, char real[PATH_MAX], mp_err *err)
{
    if (realpath(d->path, real) == NULL)
        return refuse_database(d, err, strerror(errno), "the file must stay at its path while the gateway runs");
    snprintf(d->wal, sizeof d->wal, "%s-wal", real);
    return 0;
}

/* Says who may write the file, or its folder if there is no file, and who this process is. */
static int refuse_access(const mp_store_database *d, mp_err *err, int error)
{
    char folder[PATH_MAX], why[256];
    struct stat found;
    snprintf(folder, sizeof folder, "%s", d->path);
    char *slash = strrchr(folder, '/');
    snprintf(slash == NULL ? folder : slash, 3, "%s", slash == NULL ? "." : "/.");
    bool is_file = stat(d->path, &found) == 0;
    if (!is_file && stat(folder, &found) != 0)
        snprintf(why, sizeof why, "%s: uid %u may not look into its folder", strerror(error), (unsigned)geteuid());
    else
        snprintf(why, sizeof why, "%s: %s has uid %u, gid %u and mode %04o, and this process uid %u and gid %u",
                 strerror(error), is_file ? "the file" : "its folder", (unsigned)found.st_uid, (unsigned)found.st_gid,
                 (unsigned)found.st_mode & 07777, (unsigned)geteuid(), (unsigned)getegid());
    return refuse_database(d, err, why, "this user needs permission to write the file and its folder");
}

/* Opens the file, or creates it with mode 0600. SQLite gives the -wal file the same mode. A link to no file is
 * followed. */
static int make_file(mp_store_database *d, bool is_new, char real[PATH_MAX], mp_err *err)
{
    struct stat found;
    bool is_link = lstat(d->path, &found) == 0 && S_ISLNK(found.st_mode);
    d->fd = open(d->path, O_RDWR | O_CREAT | O_CLOEXEC | (is_new && !is_link ? O_EXCL : 0), 0600);
    if (d->fd < 0 && (errno == EACCES || errno == EPERM))
        return refuse_access(d, err, errno);
    if (d->fd < 0)
        return refuse_database(d, err, strerror(errno),
                               errno == ENOENT  ? "create its folder first"
                               : errno == EROFS ? "name a file on a file system that can be written"
                                                : "this user needs permission to write the file");
    if (is_new && (fstat(d->fd, &found) != 0 || found.st_size > 0))
        return refuse_database(d, err, "another file is at this path", "move it away, or restart to serve it");
    return find_paths(d, real, err);
}

/* True if the file is empty or a store. The -wal file of another program's database stays where it is. */
static bool may_be_ours(const mp_store_database *d)
{
    uint32_t id = 0;
    struct stat file;
    return fstat(d->fd, &file) == 0 &&
           (file.st_size == 0 || (pread(d->fd, &id, sizeof id, ID_AT) == sizeof id && be32toh(id) == OURS));
}

/* Moves a -wal file away that was not written for the database as it is. */
static int set_wal_aside(const mp_store_database *d, mp_err *err)
{
    mp_scoped_buf aside = {0};
    mp_store_files files = {d->fd, open(d->wal, O_RDONLY | O_CLOEXEC)};
    bool does_fit = !may_be_ours(d) || mp_store_wal_fits(&files);
    if (files.wal >= 0)
        close(files.wal);
    if (does_fit)
        return 0;
    mp_buf_printf(&aside, "%s.old", d->wal);
    mp_buf_putc(&aside, '\0');
    bool is_moved = rename(d->wal, aside.ptr) == 0;
    if (is_moved)
        mp_log(MP_WARN, "store wal set aside", mp_log_str("file", mp_str_of(d->path)),
               mp_log_str("moved", mp_str_of(aside.ptr)),
               mp_log_str("hint", MP_STR("it belongs to another file, or to another state of this one, as after a "
                                         "restore: the file is served without it")));
    else
        refuse_database(d, err, "the -wal file beside it belongs to another file", "move the -wal file away");
    return is_moved ? 0 : -1;
}

/* -- opening ------------------------------------------------------------------------------------------------------- */

static const char layout[] = "CREATE TABLE entries (key BLOB PRIMARY KEY, text BLOB NOT NULL, until INTEGER);"
                             "PRAGMA application_id = 1836019566; PRAGMA user_version = 1";

/* Tables that files of earlier versions lack. */
static const char later_layout[] =
    "CREATE TABLE IF NOT EXISTS sessions (key BLOB PRIMARY KEY, text BLOB NOT NULL, until INTEGER);"
    "CREATE TABLE IF NOT EXISTS " MP_STORE_MARK_TABLE " (id INTEGER PRIMARY KEY, bytes BLOB);"
    "INSERT OR IGNORE INTO " MP_STORE_MARK_TABLE " VALUES (1, randomblob(48))";

/* Locks the file for this process, and creates the tables in an empty file. A database of another program is refused
 * and not changed. */
static int claim_file(mp_store_database *d, mp_err *err)
{
    if (mp_store_database_run(d, "PRAGMA locking_mode = EXCLUSIVE; PRAGMA trusted_schema = OFF; BEGIN IMMEDIATE") != 0)
        return mp_store_database_refuse(d, err);
    int64_t id = ask_number(d, "PRAGMA application_id"), tables = ask_number(d, "SELECT count(*) FROM sqlite_master");
    if (tables < 0)
        return mp_store_database_refuse(d, err);
    if (tables > 0 && id != OURS)
        return refuse_database(d, err, "the file is a database of another program", "give the store a file of its own");
    if (tables > 0 && ask_number(d, "PRAGMA user_version") != VERSION)
        return refuse_database(d, err, "the file was made by a newer moonpool",
                               "use the newer moonpool, or another file");
    if ((tables == 0 && mp_store_database_run(d, layout) != 0) || mp_store_database_run(d, later_layout) != 0 ||
        mp_store_database_run(d, "COMMIT; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                                 "PRAGMA wal_autocheckpoint = 0") != 0)
        return mp_store_database_refuse(d, err);
    return 0;
}

static int prepare_statements(mp_store_database *d, mp_err *err)
{
    static const char *const put[] = {"INSERT OR REPLACE INTO entries (key, text, until) VALUES (?, ?, ?)",
                                      "INSERT OR REPLACE INTO sessions (key, text, until) VALUES (?, ?, ?)"};
    static const char *const drop[] = {"DELETE FROM entries WHERE key = ?", "DELETE FROM sessions WHERE key = ?"};
    for (int i = 0; i < MP_STORE_TABLES; i++)
        if (sqlite3_prepare_v3(d->db, put[i], -1, SQLITE_PREPARE_PERSISTENT, &d->put[i], NULL) != SQLITE_OK ||
            sqlite3_prepare_v3(d->db, drop[i], -1, SQLITE_PREPARE_PERSISTENT, &d->drop[i], NULL) != SQLITE_OK)
            return mp_store_database_refuse(d, err);
    return 0;
}

/* Reads the mark, and the identities of both files. */
static int read_mark(mp_store_database *d, mp_err *err)
{
    sqlite3_stmt *row = NULL;
    struct stat file, log;
    bool is_read = sqlite3_prepare_v2(d->db, "SELECT bytes FROM " MP_STORE_MARK_TABLE, -1, &row, NULL) == SQLITE_OK &&
                   sqlite3_step(row) == SQLITE_ROW;
    if (is_read && sqlite3_column_bytes(row, 0) == sizeof d->mark)
        memcpy(&d->mark, sqlite3_column_blob(row, 0), sizeof d->mark);
    sqlite3_finalize(row);
    int64_t page = ask_number(d, "SELECT rootpage FROM sqlite_master WHERE name = '" MP_STORE_MARK_TABLE "'");
    int64_t size = ask_number(d, "PRAGMA page_size");
    if (!is_read || page < 0 || size < 0)
        return mp_store_database_refuse(d, err);
    if (fstat(d->fd, &file) != 0 || stat(d->wal, &log) != 0 || mp_file_identify(AT_FDCWD, d->wal, &d->wal_id) != 0)
        return refuse_database(d, err, strerror(errno), "the file must stay at its path while the gateway runs");
    d->device = file.st_dev;
    d->inode = file.st_ino;
    d->mark_page = (uint32_t)page;
    d->page_size = (uint32_t)size;
    d->is_marked = log.st_size > 0;
    return 0;
}

int mp_store_database_open(mp_store_database *d, bool is_new, mp_err *err)
{
    char real[PATH_MAX];
    d->mark = (mp_store_mark){0};
    d->is_begun = d->is_marked = false;
    d->inode = 0;
    if (make_file(d, is_new, real, err) != 0 || lock_file(d, err) != 0 || set_wal_aside(d, err) != 0)
        return -1;
    if (sqlite3_open_v2(real, &d->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL) != SQLITE_OK)
        return mp_store_database_refuse(d, err);
    sqlite3_busy_timeout(d->db, BUSY_MS);
    if (claim_file(d, err) != 0 || prepare_statements(d, err) != 0 || read_mark(d, err) != 0)
        return -1;
    mp_store_database_checkpoint(d);
    return 0;
}

/* -- generations ------------------------------------------------------------------------------------------------- */

static int write_mark(mp_store_database *d, const mp_store_mark *mark)
{
    sqlite3_stmt *update = NULL;
    int code = sqlite3_prepare_v2(d->db, "UPDATE " MP_STORE_MARK_TABLE " SET bytes = ?", -1, &update, NULL);
    if (code == SQLITE_OK) {
        sqlite3_bind_blob(update, 1, mark, sizeof *mark, SQLITE_STATIC);
        sqlite3_step(update);
    }
    if (sqlite3_finalize(update) != SQLITE_OK || code != SQLITE_OK)
        return -1;
    d->mark = *mark;
    d->is_marked = true;
    return 0;
}

static int begin_generation(mp_store_database *d)
{
    struct stat file;
    mp_store_mark mark = {.before = d->mark.generation, .wal = d->wal_id, .inode = d->inode};
    if (fstat(d->fd, &file) != 0 || getrandom(&mark.generation, sizeof mark.generation, 0) != sizeof mark.generation)
        return -1;
    mark.changed_ns = mp_store_changed_ns(&file);
    return write_mark(d, &mark);
}

/* The first generation of a process goes into the database at once: a copy that was made before has another one. */
int mp_store_database_begin(mp_store_database *d)
{
    if (!d->is_begun) {
        if (!d->is_marked && begin_generation(d) != 0)
            return -1;
        mp_store_database_checkpoint(d);
        d->is_begun = !d->is_marked;
    }
    if (!d->is_marked && begin_generation(d) != 0)
        return -1;
    return mp_store_database_run(d, "BEGIN");
}

/* True if the database has the bytes that this process wrote. */
static bool is_intact(const mp_store_database *d)
{
    uint64_t held = mp_store_generation(d->fd, d->mark_page, d->page_size);
    return held == d->mark.generation || held == d->mark.before;
}

void mp_store_database_sync(const mp_store_database *d)
{
    int fd = open(d->wal, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return;
    fdatasync(fd);
    close(fd);
}

/* Without a mark that a checkpoint began, a process that is killed during it would leave a database with another mtime
 * than the -wal file has noted. The bytes are looked at as late as possible: a program that writes over them does not
 * ask for a lock. */
void mp_store_database_checkpoint(mp_store_database *d)
{
    mp_store_mark mark = d->mark;
    mark.is_ending = 1;
    if (!d->is_marked || write_mark(d, &mark) != 0)
        return;
    mp_store_database_sync(d);
    if (is_intact(d) && ask_number(d, "PRAGMA wal_checkpoint(TRUNCATE)") == 0)
        d->is_marked = false;
}

mp_store_file_place mp_store_database_place(const mp_store_database *d)
{
    struct stat found;
    if (stat(d->path, &found) != 0)
        return MP_STORE_FILE_GONE;
    bool is_open = d->db != NULL && found.st_dev == d->device && found.st_ino == d->inode;
    return is_open && is_intact(d) ? MP_STORE_FILE_THERE : MP_STORE_FILE_REPLACED;
}

/* -- closing ------------------------------------------------------------------------------------------------------- */

static void close_all(mp_store_database *d)
{
    for (int i = 0; i < MP_STORE_TABLES; i++) {
        sqlite3_finalize(d->put[i]);
        sqlite3_finalize(d->drop[i]);
        d->put[i] = d->drop[i] = MP_UNSET;
    }
    sqlite3_close(d->db);
    if (d->fd >= 0)
        close(d->fd);
    d->db = NULL;
    d->fd = -1;
}

/* SQLite would run a checkpoint at the close, of another program's -wal file, too. */
void mp_store_database_close(mp_store_database *d)
{
    bool was_opened = d->db != NULL && d->inode != 0;
    if (was_opened)
        mp_store_database_checkpoint(d);
    if (d->db != NULL && (!was_opened || d->is_marked))
        sqlite3_db_config(d->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    close_all(d);
}

static bool is_own_wal(const mp_store_database *d)
{
    mp_file_id found;
    int fd = open(d->wal, O_RDONLY | O_CLOEXEC);
    bool is_own = fd >= 0 && mp_file_identify(fd, "", &found) == 0 && memcmp(&found, &d->wal_id, sizeof found) == 0 &&
                  mp_store_wal_has(fd, d->mark.generation);
    if (fd >= 0)
        close(fd);
    return is_own;
}

/* SQLite does not remove the -wal file of a database that was moved, and would write a checkpoint over bytes that were
 * replaced. */
void mp_store_database_abandon(mp_store_database *d)
{
    if (d->db == NULL)
        return;
    mp_store_database_checkpoint(d);
    sqlite3_db_config(d->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    close_all(d);
    if (is_own_wal(d))
        unlink(d->wal);
}

void mp_store_database_free(mp_store_database *d)
{
    free(d->path);
}
