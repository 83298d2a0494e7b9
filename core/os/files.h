/* files.h: files below a root folder; part of the public header os.h. No path leaves the root: not by "..", by a
 * symbolic link, or by a race that exchanges one. All functions block: call them on the thread pool.
 *
 *   root   an absolute path that the operator configured: a folder or a single file
 *   rest   the path below the root: "" (the root itself), or names separated by '/', none of them "." or ".." */
#ifndef MP_OS_FILES_H
#define MP_OS_FILES_H

#include "telemetry/telemetry.h"
#include <sys/types.h>

/* No root covers this folder, which is an absolute path without symbolic links; NULL: none. Copied. Before other
 * threads open files. */
void mp_file_close_off(const char *MP_NULLABLE folder);
/* Opens the file like open(2). Returns -1 with errno; EXDEV if the path leads out of the root. */
int mp_file_open(const char *root, const char *rest, int flags, mode_t mode);
/* The limits for reading a file or a list: `most` bytes, else EFBIG. Before memory is allocated, `may_hold` is asked
 * whether the reader may hold `bytes` in all; false: ENOBUFS. */
typedef struct {
    size_t most;
    bool (*may_hold)(void *ctx, size_t bytes);
    void *ctx;
} mp_file_room;
/* Reads the whole file into `out`, an empty buffer. */
int mp_file_read(const char *root, const char *rest, const mp_file_room *room, mp_buf *out);
/* Replaces the file atomically: a concurrent reader sees either the old or the new contents. */
int mp_file_write(const char *root, const char *rest, mp_str text);
int mp_file_append(const char *root, const char *rest, mp_str text);
/* Lists a folder into `out`, an empty buffer. Each entry is "f" (file), "d" (folder) or "o" (other), the name, and a
 * NUL; sorted by name. */
int mp_file_list(const char *root, const char *rest, const mp_file_room *room, mp_buf *out);
typedef struct {
    char kind; /* 'f', 'd' or 'o', as in mp_file_list */
    int64_t size;
    double modified; /* seconds since 1970 */
} mp_file_info;
/* Follows symbolic links within the root. */
int mp_file_stat(const char *root, const char *rest, mp_file_info *info);
/* Removes a file, a symbolic link or an empty folder. */
int mp_file_remove(const char *root, const char *rest);
/* Creates the folder and all missing parents, including the root. Succeeds if it exists. */
int mp_file_mkdir(const char *root, const char *rest);

#endif
