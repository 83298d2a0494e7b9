/* wal_owner.c: identifies files, and notes in a -wal file which database it was made for. */
#define _GNU_SOURCE /* statx */
#include "data/wal_owner.h"
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#define ATTRIBUTE "user.moonpool.wal"

typedef struct {
    mp_file_id database, file;
} owner;

int mp_file_identify(int fd, const char *path, mp_file_id *id)
{
    struct statx found;
    if (statx(fd, path, AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &found) != 0)
        return -1;
    *id = (mp_file_id){.inode = found.stx_ino};
    if ((found.stx_mask & STATX_BTIME) != 0)
        id->born_ns = (int64_t)found.stx_btime.tv_sec * 1000000000 + found.stx_btime.tv_nsec;
    return 0;
}

/* `path` with an ending. To be freed. */
static char *beside(const char *path, const char *ending)
{
    mp_buf text = {0};
    mp_buf_printf(&text, "%s%s", path, ending);
    mp_buf_putc(&text, '\0');
    return text.ptr;
}

/* Identifies both files. A database that is not there has the identity 0. -1: `file` is not there. */
static int find_owner(const char *path, const char *file, owner *found)
{
    if (mp_file_identify(AT_FDCWD, path, &found->database) != 0)
        found->database = (mp_file_id){0};
    return mp_file_identify(AT_FDCWD, file, &found->file);
}

static void note_owner(const char *path, const char *ending)
{
    owner now;
    char *file = beside(path, ending);
    if (find_owner(path, file, &now) == 0)
        setxattr(file, ATTRIBUTE, &now, sizeof now, 0);
    free(file);
}

static bool is_stale(const char *path, const char *ending)
{
    owner now, noted;
    char *file = beside(path, ending);
    bool is_known =
        find_owner(path, file, &now) == 0 && getxattr(file, ATTRIBUTE, &noted, sizeof noted) == sizeof noted;
    free(file);
    return is_known && memcmp(&noted.file, &now.file, sizeof now.file) == 0 &&
           memcmp(&noted.database, &now.database, sizeof now.database) != 0;
}

void mp_wal_note_owner(const char *path)
{
    note_owner(path, "-wal");
    note_owner(path, "-shm");
}

bool mp_wal_is_stale(const char *path)
{
    return is_stale(path, "-wal") || is_stale(path, "-shm");
}

int mp_wal_set_aside(const char *path)
{
    char *wal = beside(path, "-wal"), *aside = beside(path, "-wal.old"), *shm = beside(path, "-shm");
    int code = is_stale(path, "-wal") ? rename(wal, aside) : 0;
    if (code == 0 && is_stale(path, "-shm"))
        code = unlink(shm);
    free(wal);
    free(aside);
    free(shm);
    return code;
}
