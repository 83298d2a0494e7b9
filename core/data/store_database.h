/* store_database.h: the SQLite file of a store. One process has it open; its -wal file is used only for the database
 * that it was written for.
 *
 *   let d = {.path = …}; open; for each transaction: begin, put and drop, commit; checkpoint every second; close
 *   if `there` says that the file was replaced: abandon, and open again */
#ifndef MP_DATA_STORE_DATABASE_H
#define MP_DATA_STORE_DATABASE_H

#include "data/store_mark.h"
#include <limits.h>
#include <sqlite3.h>

/* The tables of entries, which have the same columns: key, text, until. What is saved with sessions has one of its own:
 * a moonpool that keeps no sessions leaves it as it is. */
typedef enum { MP_STORE_ENTRIES, MP_STORE_SESSIONS, MP_STORE_TABLES } mp_store_table;

typedef struct {
    char *path;
    char wal[PATH_MAX + sizeof "-wal"]; /* the path of the -wal file; empty before the first open */
    int fd;                  /* the database, locked; -1: closed. SQLite's locks last only as long as it is open */
    sqlite3 *MP_NULLABLE db; /* NULL: closed */
    sqlite3_stmt *put[MP_STORE_TABLES], *drop[MP_STORE_TABLES];
    uint64_t device, inode; /* identities of the open files */
    mp_file_id wal_id;
    uint32_t mark_page, page_size;
    mp_store_mark mark; /* the mark that was written last */
    bool is_marked;     /* the -wal file has a generation */
    bool is_begun;      /* a generation of this process is in the database */
} mp_store_database;

typedef enum { MP_STORE_FILE_THERE, MP_STORE_FILE_GONE, MP_STORE_FILE_REPLACED } mp_store_file_place;

/* Opens the database; creates it where there is none, and with `is_new` only then. After -1 call
 * mp_store_database_close. */
int mp_store_database_open(mp_store_database *d, bool is_new, mp_err *err);
/* Whether the file of the open database is still at its path. GONE: no file is there. REPLACED: another file is there,
 * or this one with other bytes. */
mp_store_file_place mp_store_database_place(const mp_store_database *d);
/* Begins a transaction. -1: see sqlite3_errmsg. */
int mp_store_database_begin(mp_store_database *d);
/* Makes what is in the -wal file durable, as a checkpoint does first. */
void mp_store_database_sync(const mp_store_database *d);
/* Moves the contents of the -wal file into the database and empties that file. If that fails, the next call tries
 * again. */
void mp_store_database_checkpoint(mp_store_database *d);
/* Closes a database that is at its path, or one that is not open. */
void mp_store_database_close(mp_store_database *d);
/* Closes a database that is not at its path any more. It is made complete, wherever it is now, unless its bytes were
 * replaced; its -wal file is removed from the path. What else is at the path does not change. */
void mp_store_database_abandon(mp_store_database *d);
/* Frees the path of a closed database. */
void mp_store_database_free(mp_store_database *d);

int mp_store_database_run(const mp_store_database *d, const char *sql);
/* Fills `err` with the last error of SQLite and what to do about it. Returns -1. */
int mp_store_database_refuse(const mp_store_database *d, mp_err *err);
int mp_store_database_refuse_broken(const mp_store_database *d, mp_err *err, const char *why);
int mp_store_database_refuse_full(const mp_store_database *d, mp_err *err);

#endif
