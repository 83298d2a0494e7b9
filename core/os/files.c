/* files.c: opens files with openat2, which resolves a path only within the root. On kernels without openat2, opens
 * each path component in turn and follows no symbolic links. */
#define _GNU_SOURCE 1
#include "files.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define CHUNK 65536
#define TRIES 100

/* Closes `fd` and preserves errno. Returns -1. */
static int fail_with(int fd)
{
    int why = errno;
    if (fd >= 0)
        close(fd);
    errno = why;
    return -1;
}

/* -- opening ------------------------------------------------------------------------------------------------------- */

/* Opens each path component in turn. */
static int open_by_names(int folder, const char *path, int flags, mode_t mode)
{
    int at = fcntl(folder, F_DUPFD_CLOEXEC, 3);
    mp_str rest = mp_str_of(path);
    while (at >= 0) {
        char name[NAME_MAX + 1] = "";
        mp_str head = mp_str_cut(&rest, '/');
        if (head.len > NAME_MAX) {
            errno = ENAMETOOLONG;
            return fail_with(at);
        }
        memcpy(name, head.ptr, head.len);
        bool is_last = rest.ptr == NULL;
        int next = openat(at, name, (is_last ? flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC, mode);
        if (next < 0 && (errno == ELOOP || (errno == ENOTDIR && !is_last)))
            errno = EXDEV;
        fail_with(at);
        if (is_last)
            return next;
        at = next;
    }
    return -1;
}

static int open_within(int folder, const char *path, int flags, mode_t mode, bool links)
{
    uint64_t resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS;
    struct open_how how = {.flags = (unsigned)flags | O_CLOEXEC,
                           .mode = (flags & O_CREAT) ? mode : 0,
                           .resolve = links ? resolve : resolve | RESOLVE_NO_SYMLINKS};
    for (int i = 0; i < TRIES; i++) {
        long fd = syscall(SYS_openat2, folder, path, &how, sizeof how);
        if (fd >= 0)
            return (int)fd;
        if (errno == ENOSYS || errno == EPERM)
            return open_by_names(folder, path, flags, mode);
        if (errno != EAGAIN && errno != EINTR) /* EAGAIN: a rename happened during the lookup */
            return -1;
    }
    errno = EXDEV;
    return -1;
}

/* Opens the folder that contains the absolute `path`; `*name` receives the last component of the path. */
static int open_above(const char *path, const char **name)
{
    char folder[PATH_MAX];
    const char *slash = strrchr(path, '/');
    size_t len = slash == path ? 1 : (size_t)(slash - path);
    *name = slash + 1;
    if (len >= sizeof folder) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(folder, path, len);
    folder[len] = '\0';
    return open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
}

/* True for file systems that expose kernel state rather than files: /proc, /sys and the like. */
static bool is_kernels(const struct statfs *system)
{
    switch ((unsigned long)system->f_type & 0xffffffff) {
    case PROC_SUPER_MAGIC:
    case SYSFS_MAGIC:
    case DEBUGFS_MAGIC:
    case TRACEFS_MAGIC:
    case SECURITYFS_MAGIC:
    case CGROUP_SUPER_MAGIC:
    case CGROUP2_SUPER_MAGIC:
    case BPF_FS_MAGIC:
    case DEVPTS_SUPER_MAGIC:
        return true;
    default:
        return false;
    }
}

/* True if a name in /proc is the id of a thread of this process, including the main thread. */
static bool is_thread(mp_str name)
{
    char path[64];
    for (size_t i = 0; i < name.len; i++)
        if (name.ptr[i] < '0' || name.ptr[i] > '9')
            return false;
    int len = snprintf(path, sizeof path, "/proc/self/task/%.*s", MP_STR_ARG(name));
    return name.len > 0 && len < (int)sizeof path && access(path, F_OK) == 0;
}

/* True if the descriptor is in the folder of /proc that describes this process: its environment, memory and
 * descriptors. Each thread has such a folder, though /proc lists only that of the main thread. */
static bool is_ours(int fd, const struct statfs *system)
{
    char link[64], path[PATH_MAX];
    if (system->f_type != PROC_SUPER_MAGIC)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path);
    if (len < 0)
        return true;
    for (mp_str rest = {path, (size_t)len}; rest.ptr != NULL;)
        if (is_thread(mp_str_cut(&rest, '/')))
            return true;
    return false;
}

static char *MP_NULLABLE closed_off; /* see mp_file_close_off; NULL: none */

void mp_file_close_off(const char *MP_NULLABLE folder)
{
    free(closed_off);
    closed_off = mp_dup_text(folder);
}

/* True if the descriptor is the folder that is closed off, or below it. */
static bool is_closed_off(int fd)
{
    char link[64], path[PATH_MAX];
    size_t length = closed_off == NULL ? 0 : strlen(closed_off);
    if (length == 0)
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t len = readlink(link, path, sizeof path - 1);
    if (len < 0)
        return false;
    path[len] = '\0';
    return strncmp(path, closed_off, length) == 0 && (path[length] == '/' || path[length] == '\0');
}

/* Returns `fd`, or closes it and returns -1 if a grant of `root` does not cover it: a kernel file system must be
 * granted by its own path, and the /proc folder of this process, and the folder that is closed off, can never be
 * granted. */
static int if_meant(int fd, const char *root)
{
    struct statfs system, of_root;
    if (fd < 0 || fstatfs(fd, &system) != 0)
        return fail_with(fd);
    if (is_closed_off(fd)) {
        errno = EACCES;
        return fail_with(fd);
    }
    if (!is_kernels(&system) ||
        (statfs(root, &of_root) == 0 && of_root.f_type == system.f_type && !is_ours(fd, &system)))
        return fd;
    errno = ENODEV;
    return fail_with(fd);
}

int mp_file_open(const char *root, const char *rest, int flags, mode_t mode)
{
    const char *name;
    int folder = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC), fd;
    if (folder >= 0) {
        fd = open_within(folder, rest[0] == '\0' ? "." : rest, flags, mode, true);
    } else { /* the root is a file, or does not exist yet */
        if (rest[0] != '\0' || (errno != ENOTDIR && errno != ENOENT))
            return -1;
        folder = open_above(root, &name);
        if (folder < 0)
            return -1;
        fd = open_within(folder, name, flags, mode, false);
    }
    fail_with(folder);
    return if_meant(fd, root);
}

/* Opens the folder that contains `rest`; `name` receives the last component. */
static int open_parent(const char *root, const char *rest, char name[NAME_MAX + 1])
{
    char above[PATH_MAX];
    const char *slash = strrchr(rest, '/'), *last = slash == NULL ? rest : slash + 1;
    int fd = -1;
    if (rest[0] == '\0')
        fd = open_above(root, &last);
    if (strlen(last) > NAME_MAX || strlen(rest) >= sizeof above) {
        errno = ENAMETOOLONG;
        return fail_with(fd);
    }
    memcpy(name, last, strlen(last) + 1);
    if (rest[0] == '\0')
        return fd;
    memcpy(above, rest, strlen(rest) + 1);
    above[slash == NULL ? 0 : slash - rest] = '\0';
    return mp_file_open(root, above, O_PATH | O_DIRECTORY, 0);
}

/* -- contents ------------------------------------------------------------------------------------------------------ */

static int want_file(int fd, struct stat *info)
{
    if (fstat(fd, info) != 0)
        return -1;
    if (S_ISREG(info->st_mode))
        return 0;
    errno = S_ISDIR(info->st_mode) ? EISDIR : EINVAL;
    return -1;
}

/* Makes room for `more` bytes, or for twice the capacity if that is more. False, with errno, if a limit does not allow
 * the bytes. */
static bool make_room(mp_buf *out, size_t more, const mp_file_room *room)
{
    if (out->cap - out->len >= more)
        return true;
    size_t twice = out->cap < room->most / 2 ? 2 * out->cap : room->most + 1, need = out->len + more;
    size_t cap = twice > need ? twice : need;
    errno = ENOBUFS;
    if (!room->may_hold(room->ctx, out->cap + cap)) /* the old and the new buffer exist while the bytes are moved */
        return false;
    out->ptr = mp_resize(out->ptr, cap);
    out->cap = cap;
    return true;
}

/* Reads to the end of the file. The number of bytes that fstat said may be wrong by then. */
static int read_all(int fd, size_t expected, const mp_file_room *room, mp_buf *out)
{
    if (expected > 0 && !make_room(out, expected + 1, room))
        return -1;
    for (ssize_t got = 1; got != 0;) {
        if (out->cap == out->len && !make_room(out, CHUNK, room))
            return -1;
        got = read(fd, out->ptr + out->len, out->cap - out->len);
        if (got < 0 && errno != EINTR)
            return -1;
        out->len += got > 0 ? (size_t)got : 0;
        errno = EFBIG;
        if (out->len > room->most)
            return -1;
    }
    return 0;
}

int mp_file_read(const char *root, const char *rest, const mp_file_room *room, mp_buf *out)
{
    struct stat info;
    int fd = mp_file_open(root, rest, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0);
    if (fd < 0)
        return -1;
    if (want_file(fd, &info) != 0)
        return fail_with(fd);
    size_t expected = info.st_size > 0 ? (size_t)info.st_size : 0;
    errno = EFBIG;
    if (expected > room->most || read_all(fd, expected, room, out) != 0)
        return fail_with(fd);
    close(fd);
    return 0;
}

/* Creates the temporary file that will be renamed over the old one. */
static int make_beside(int folder, char name[32])
{
    for (int i = 0; i < TRIES; i++) {
        uint64_t chance = 0;
        if (getrandom(&chance, sizeof chance, 0) < 0)
            return -1;
        snprintf(name, 32, ".moonpool-%016llx", (unsigned long long)chance);
        int fd = openat(folder, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd >= 0 || errno != EEXIST)
            return fd;
    }
    return -1;
}

int mp_file_write(const char *root, const char *rest, mp_str text)
{
    char name[NAME_MAX + 1], beside[32];
    struct stat info;
    int folder = open_parent(root, rest, name);
    if (folder < 0)
        return -1;
    bool is_there = fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
    if (is_there && !S_ISREG(info.st_mode) && !S_ISLNK(info.st_mode)) {
        errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
        return fail_with(folder);
    }
    int fd = make_beside(folder, beside);
    if (fd < 0)
        return fail_with(folder);
    int failed = mp_write_text(fd, text);
    if (failed == 0 && is_there && S_ISREG(info.st_mode))
        failed = fchmod(fd, info.st_mode & 0777);
    if (failed == 0)
        failed = fsync(fd);
    if (failed == 0)
        failed = renameat(folder, beside, folder, name);
    if (failed != 0) {
        int why = errno;
        unlinkat(folder, beside, 0);
        errno = why;
    }
    fail_with(fd);
    fail_with(folder);
    return failed;
}

int mp_file_append(const char *root, const char *rest, mp_str text)
{
    struct stat info;
    int fd = mp_file_open(root, rest, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_NOCTTY, 0666);
    if (fd < 0)
        return -1;
    int failed = want_file(fd, &info) == 0 ? mp_write_text(fd, text) : -1;
    fail_with(fd);
    return failed;
}

/* -- folders ------------------------------------------------------------------------------------------------------- */

static char kind_of(mode_t mode)
{
    return S_ISREG(mode) ? 'f' : S_ISDIR(mode) ? 'd' : 'o';
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a + 1, *(const char *const *)b + 1);
}

static void sort_names(mp_buf *names, size_t count)
{
    const char **list = mp_new((count + 1) * sizeof *list), *at = names->ptr;
    mp_buf sorted = {0};
    if (names->len > 0)
        mp_buf_room(&sorted, names->len);
    for (size_t i = 0; i < count; i++, at += strlen(at) + 1)
        list[i] = at;
    qsort(list, count, sizeof *list, by_name);
    for (size_t i = 0; i < count; i++)
        mp_buf_put(&sorted, (mp_str){list[i], strlen(list[i]) + 1});
    free(list);
    mp_buf_clear(names);
    *names = sorted;
}

/* Appends the entries of a folder, in its order. Returns their number, or -1 with errno. */
static ssize_t put_entries(DIR *folder, const mp_file_room *room, mp_buf *out)
{
    ssize_t count = 0;
    errno = 0;
    for (const struct dirent *entry; (entry = readdir(folder)) != NULL; errno = 0) {
        struct stat info;
        size_t len = strlen(entry->d_name) + 1;
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0)
            continue;
        char kind = entry->d_type == DT_REG ? 'f' : entry->d_type == DT_DIR ? 'd' : 'o';
        if (entry->d_type == DT_UNKNOWN && fstatat(dirfd(folder), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0)
            kind = kind_of(info.st_mode);
        errno = EFBIG;
        if (out->len + 1 + len > room->most || !make_room(out, 1 + len, room))
            return -1;
        mp_buf_putc(out, kind);
        mp_buf_put(out, (mp_str){entry->d_name, len});
        count++;
    }
    return errno == 0 ? count : -1;
}

int mp_file_list(const char *root, const char *rest, const mp_file_room *room, mp_buf *out)
{
    int fd = mp_file_open(root, rest, O_RDONLY | O_DIRECTORY, 0);
    DIR *folder = fd < 0 ? NULL : fdopendir(fd);
    if (folder == NULL)
        return fail_with(fd);
    ssize_t count = put_entries(folder, room, out);
    int why = errno;
    closedir(folder);
    errno = why;
    if (count < 0)
        return -1;
    errno = ENOBUFS;
    if (!room->may_hold(room->ctx, out->cap + out->len + (size_t)count * sizeof(char *)))
        return -1;
    sort_names(out, (size_t)count);
    return 0;
}

int mp_file_stat(const char *root, const char *rest, mp_file_info *info)
{
    struct stat found;
    int fd = mp_file_open(root, rest, O_PATH, 0);
    if (fd < 0)
        return -1;
    if (fstat(fd, &found) != 0)
        return fail_with(fd);
    close(fd);
    *info = (mp_file_info){kind_of(found.st_mode), found.st_size,
                           (double)found.st_mtim.tv_sec + (double)found.st_mtim.tv_nsec / 1e9};
    return 0;
}

int mp_file_remove(const char *root, const char *rest)
{
    char name[NAME_MAX + 1];
    int folder = open_parent(root, rest, name);
    if (folder < 0)
        return -1;
    struct stat info;
    if (fstatat(folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && (S_ISCHR(info.st_mode) || S_ISBLK(info.st_mode))) {
        errno = EINVAL;
        return fail_with(folder);
    }
    int failed = unlinkat(folder, name, 0);
    if (failed != 0 && errno == EISDIR && rest[0] != '\0')
        failed = unlinkat(folder, name, AT_REMOVEDIR);
    fail_with(folder);
    return failed;
}

static int make_one(const char *root, const char *rest)
{
    char name[NAME_MAX + 1];
    int folder = open_parent(root, rest, name);
    if (folder < 0)
        return -1;
    int failed = mkdirat(folder, name, 0777);
    fail_with(folder);
    return failed != 0 && errno != EEXIST ? -1 : 0;
}

int mp_file_mkdir(const char *root, const char *rest)
{
    char path[PATH_MAX];
    size_t len = strlen(rest);
    if (len >= sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    for (size_t i = 0; i <= len; i++) {
        if (i != 0 && i != len && rest[i] != '/')
            continue;
        memcpy(path, rest, i);
        path[i] = '\0';
        if (make_one(root, path) != 0)
            return -1;
    }
    int fd = mp_file_open(root, rest, O_PATH | O_DIRECTORY, 0);
    if (fd >= 0)
        close(fd);
    return fd < 0 ? -1 : 0;
}
