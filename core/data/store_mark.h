/* store_mark.h: tells whether the -wal file beside a store's file was written for it. SQLite does not: it replays every
 * intact -wal file, also one that another database, or a later state of the same one, left at this path.
 *
 *   generation   the transactions between two checkpoints; a -wal file has those of one generation
 *   mark         the first transaction of each generation: the row of a table of its own, which names the generation
 *                and both files */
#ifndef MP_DATA_STORE_MARK_H
#define MP_DATA_STORE_MARK_H

#include "data/wal_owner.h"
#include <sys/stat.h>

#define MP_STORE_MARK_TABLE "mark"

typedef struct {
    uint64_t generation, before; /* random; `before` is the generation that the database had when this one began */
    mp_file_id wal;
    uint64_t inode;     /* inode of the database's file */
    int64_t changed_ns; /* the mtime of the database when the generation began */
    uint64_t is_ending; /* 1: a checkpoint began, which writes the generation to the database */
} mp_store_mark;

/* The files of a store, open for reading. */
typedef struct {
    int database; /* locked by its owner: no other process writes either file meanwhile */
    int wal;      /* -1: there is none */
} mp_store_files;

/* True if the -wal file was written for the database as it is, or has no transaction. */
bool mp_store_wal_fits(const mp_store_files *files);
/* The generation in the row of the database itself, without the -wal file. `page` is the page of the table. 0: there is
 * no such row. */
uint64_t mp_store_generation(int database, uint32_t page, uint32_t page_size);
/* True if the -wal file is empty, or its first transaction is the mark of this generation. */
bool mp_store_wal_has(int wal, uint64_t generation);
/* The mtime of a file in nanoseconds. */
int64_t mp_store_changed_ns(const struct stat *file);

#endif
