/* files.h: files within a root, part of the door net.h. Nothing here leaves the root: no "..", no link, no race of one does.
 * All of it blocks: for the pool.
 *
 *   root   an absolute path that the operator named, a folder or a single file
 *   rest   what follows it: "" (the root itself) or names with '/' between them, none of them "." or ".." */
#ifndef MP_NET_FILES_H
#define MP_NET_FILES_H

#include "base/base.h"
#include <sys/types.h>

/* open(2) of what `rest` is. -1: errno says why; EXDEV when the path leads out of the root. */
int mp_file_open(const char *root, const char *rest, int flags, mode_t mode);
/* The whole of a file that has at most `most` bytes; EFBIG when it has more. */
int mp_file_read(const char *root, const char *rest, size_t most, mp_buf *out);
/* Whoever reads it meanwhile sees the old file or the new one, whole. */
int mp_file_write(const char *root, const char *rest, mp_str text);
int mp_file_append(const char *root, const char *rest, mp_str text);
/* The names in a folder, each behind "f" (file), "d" (folder) or "o", with a NUL at its end; sorted. At most `most` bytes. */
int mp_file_list(const char *root, const char *rest, size_t most, mp_buf *out);
typedef struct {
    char kind; /* 'f', 'd' or 'o' */
    int64_t size;
    double modified; /* seconds since 1970 */
} mp_file_info;
/* Of what a link leads to, within the root. */
int mp_file_stat(const char *root, const char *rest, mp_file_info *info);
/* A file, a link or an empty folder. */
int mp_file_remove(const char *root, const char *rest);
/* With all that are missing above it, the root too; fine when it is there. */
int mp_file_mkdir(const char *root, const char *rest);

#endif
