/* wal_owner.h: which database a -wal file was made for. SQLite goes by the name alone: it replays what another file,
 * which was at this path before, has left. So the -wal file of a script's database has an extended attribute that
 * identifies both files. Where the file system has none, or another program made the -wal file, nothing is known and
 * SQLite decides. */
#ifndef MP_DATA_WAL_OWNER_H
#define MP_DATA_WAL_OWNER_H

#include "base/base.h"

/* An inode, and when it was made: the number of a removed file is used again. 0 where the file system does not know
 * when. */
typedef struct {
    uint64_t inode;
    int64_t born_ns;
} mp_file_id;

/* Identifies the file at `path` below the folder `fd`, or the open file `fd` if the path is empty. -1: see errno. */
int mp_file_identify(int fd, const char *path, mp_file_id *id);

/* Notes the database at `path` in the -wal and -shm files beside it. */
void mp_wal_note_owner(const char *path);
/* True if a -wal or -shm file beside `path` was made for another file than the one at `path`, or no file is at `path`.
 * Files that were copied together with their database are not stale. */
bool mp_wal_is_stale(const char *path);
/* Renames a stale -wal file to -wal.old, and removes a stale -shm file: it is an index of the other, and shared memory
 * of connections to the file before. -1: see errno. */
int mp_wal_set_aside(const char *path);

#endif
