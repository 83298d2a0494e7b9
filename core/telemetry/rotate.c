/* rotate.c: see rotate.h. Nothing is renamed before the new file is open, the path always has a file, and no file is removed before its compressed copy
 * is whole. */
#define _GNU_SOURCE /* for SCHED_IDLE */
#include "rotate.h"
#include "crash.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zlib.h>

#define MAX_NAME_BYTES 4096
#define PIECE_BYTES 65536
#define LOCK_MS 100 /* the thread that compresses renames one file meanwhile; it has the lowest priority */

static atomic_bool is_allowed = true; /* see mp_rotate_allow */

/* `creates`: O_CREAT or 0. */
static int open_lines(const char *path, int creates)
{
    struct stat is;
    int flags = creates | O_APPEND | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
    int fd = stat(path, &is) == 0 && !S_ISREG(is.st_mode) ? -1 : open(path, flags | O_RDWR, 0600);
    if (fd < 0)
        fd = open(path, flags | O_WRONLY, 0600);
    if (fd >= 0)
        fcntl(fd, F_SETFL, O_APPEND); /* clears O_NONBLOCK: the writer's thread may block */
    return fd;
}

int mp_open_lines(const char *path)
{
    return open_lines(path, O_CREAT);
}

int mp_rotation_open(const mp_rotation *rotation)
{
    const char *MP_NULLABLE path = rotation->path;
    if (path == NULL)
        return errno = ENOENT, -1;
    return open_lines(path, atomic_load(&is_allowed) ? O_CREAT : 0);
}

int mp_lines_refused(const char *key, const char *path, int error, mp_err *err)
{
    mp_err_set(err, "%s: %s cannot be opened: %s", key, path,
               error == ENXIO ? "no process reads this FIFO" : strerror(error));
    return mp_err_hint(err, "%s",
                       error == ENXIO ? "start the process that reads the FIFO first, or name a regular file"
                                      : "the folder must exist, and this user needs permission to write in it");
}

void mp_rotation_set_path(mp_rotation *rotation, const char *path)
{
    free(rotation->path);
    rotation->path = strdup(path);
}

void mp_rotation_configure(mp_rotation *rotation, const mp_rotation_limits *limits)
{
    atomic_store(&rotation->size, limits->size);
    atomic_store(&rotation->keep, limits->keep);
    atomic_store(&rotation->compresses, limits->compresses);
}

int64_t mp_rotation_limit(const mp_rotation *rotation, int fd, int64_t *length)
{
    struct stat is;
    int64_t size = atomic_load_explicit(&rotation->size, memory_order_relaxed);
    *length = 0;
    if (rotation->path == NULL || size == 0 || !atomic_load(&is_allowed) || fstat(fd, &is) != 0 || !S_ISREG(is.st_mode))
        return 0;
    *length = is.st_size;
    return size;
}

bool mp_rotation_is_moved(const mp_rotation *rotation, int fd)
{
    struct stat own, named;
    const char *MP_NULLABLE path = rotation->path;
    if (path == NULL || fstat(fd, &own) != 0 || !S_ISREG(own.st_mode))
        return false;
    return stat(path, &named) != 0 || named.st_dev != own.st_dev || named.st_ino != own.st_ino;
}

bool mp_rotation_hold(const mp_rotation *rotation, int fd)
{
    if (rotation->path == NULL)
        return false;
    /* It fails where the file is about to be compressed: that one has no longer the path. */
    (void)!flock(fd, LOCK_SH | LOCK_NB);
    return !atomic_load(&is_allowed);
}

void mp_rotation_release(int fd)
{
    (void)!flock(fd, LOCK_UN);
}

/* -- names --------------------------------------------------------------------------------------------------------- */

typedef struct {
    char text[MAX_NAME_BYTES + 32];
} file_name;

static file_name plain_name(const char *path, int number)
{
    file_name name;
    snprintf(name.text, sizeof name.text, "%.*s.%d", MAX_NAME_BYTES, path, number);
    return name;
}

static file_name packed_name(const char *path, int number)
{
    file_name name;
    snprintf(name.text, sizeof name.text, "%.*s.%d.gz", MAX_NAME_BYTES, path, number);
    return name;
}

static file_name part_name(const char *path, const char *ending)
{
    file_name name;
    snprintf(name.text, sizeof name.text, "%.*s.%s", MAX_NAME_BYTES, path, ending);
    return name;
}

/* Gives the number `to` to the file with the number `from`, compressed or not. False if there is one and it cannot be renamed. */
static bool renumber(const char *path, int from, int to)
{
    file_name (*const names[])(const char *path, int number) = {plain_name, packed_name};
    bool has_failed = false;
    for (size_t i = 0; i < 2; i++) {
        file_name before = names[i](path, from), after = names[i](path, to);
        has_failed = (rename(before.text, after.text) != 0 && errno != ENOENT) || has_failed;
    }
    return !has_failed;
}

/* Makes the number 1 free. The files with the number `keep` or above are removed: `keep` may have been higher before. */
static bool free_number_one(const char *path, int keep)
{
    for (int number = keep;; number++) {
        bool was_plain = unlink(plain_name(path, number).text) == 0,
             was_packed = unlink(packed_name(path, number).text) == 0;
        if (!was_plain && !was_packed && number > keep)
            break;
    }
    for (int number = keep - 1; number >= 1; number--)
        if (!renumber(path, number, number + 1))
            return false;
    return true;
}

/* Makes an empty file with the mode of `fd` that will have the path. -1 with errno. */
static int make_new(const char *name, int fd)
{
    struct stat is;
    unlink(name); /* of a process that ended in the middle */
    if (fstat(fd, &is) != 0)
        return -1;
    int made = open(name, O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (made >= 0 && fchmod(made, is.st_mode & 07777) != 0) {
        close(made);
        unlink(name);
        return -1;
    }
    return made;
}

/* Renames the file `path` to `one` and `new` to `path`. */
static bool exchange(const char *new, const char *path, const char *one)
{
    bool is_linked = link(path, one) == 0;
    if (!is_linked && rename(path, one) != 0) /* a filesystem without links: the path has no file for a moment */
        return false;
    if (rename(new, path) == 0)
        return true;
    int error = errno;
    (void)!(is_linked ? unlink(one) : rename(one, path)); /* where this fails, lines go on to the renamed file */
    errno = error;
    return false;
}

static void unlock_names(int lock)
{
    if (lock >= 0)
        close(lock);
}

static void wait_a_ms(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

/* Keeps other processes from renaming files of the folder until `unlock_names`. False: this process may not rename any, or another one does so just
 * now. `*lock` is -1 where the folder may not be read: it has no lock then. */
static bool lock_names(const char *path, int *lock)
{
    file_name folder;
    const char *slash = strrchr(path, '/');
    snprintf(folder.text, sizeof folder.text, "%.*s", slash == NULL ? 1 : (int)(slash - path) + 1,
             slash == NULL ? "." : path);
    *lock = open(folder.text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_locked = *lock < 0 || flock(*lock, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    for (int ms = 0; !is_locked && ms < LOCK_MS; ms++) {
        wait_a_ms();
        is_locked = flock(*lock, LOCK_EX | LOCK_NB) == 0;
    }
    if (is_locked && atomic_load(&is_allowed))
        return true;
    unlock_names(*lock);
    return false;
}

static int turn_locked(const char *path, int keep, int fd)
{
    file_name new = part_name(path, "new"), one = plain_name(path, 1);
    int made = make_new(new.text, fd);
    if (made < 0)
        return -1;
    if (free_number_one(path, keep) && exchange(new.text, path, one.text))
        return made;
    int error = errno;
    unlink(new.text);
    close(made);
    errno = error;
    return -1;
}

static int turn(const mp_rotation *rotation, int fd)
{
    const char *MP_NULLABLE path = rotation->path;
    if (path == NULL)
        return errno = ENOENT, -1;
    int lock;
    if (!lock_names(path, &lock))
        return errno = EBUSY, -1;
    int made = -1, error = EBUSY;
    if (!mp_rotation_is_moved(rotation, fd)) {
        made = turn_locked(path, atomic_load(&rotation->keep), fd);
        error = errno;
    }
    unlock_names(lock);
    errno = error;
    return made;
}

/* -- compression --------------------------------------------------------------------------------------------------- */

/* The number of a file that is to be compressed, 0: none. */
static int number_to_pack(const mp_rotation *rotation, const char *path)
{
    bool compresses = atomic_load(&rotation->compresses) && atomic_load(&is_allowed);
    for (int number = 2; compresses && number <= atomic_load(&rotation->keep); number++)
        if (access(plain_name(path, number).text, F_OK) == 0)
            return number;
    return 0;
}

/* Writes a compressed copy of `from` to `to`. */
static bool pack(int from, int to)
{
    gzFile out = gzdopen(fcntl(to, F_DUPFD_CLOEXEC, 0), "wb6");
    char *piece = out == NULL ? NULL : malloc(PIECE_BYTES);
    bool is_good = piece != NULL;
    ssize_t got = 0;
    while (is_good && atomic_load(&is_allowed) && (got = read(from, piece, PIECE_BYTES)) > 0)
        is_good = gzwrite(out, piece, (unsigned)got) == (int)got;
    free(piece);
    if (out != NULL)
        is_good = gzclose(out) == Z_OK && is_good;
    return is_good && got == 0 && atomic_load(&is_allowed) && fsync(to) == 0;
}

static bool replace_locked(const mp_rotation *rotation, const char *path, int from, const char *copy)
{
    struct stat own, named;
    if (fstat(from, &own) != 0)
        return false;
    for (int number = 2; number <= atomic_load(&rotation->keep); number++) {
        file_name plain = plain_name(path, number), packed = packed_name(path, number);
        if (stat(plain.text, &named) != 0 || named.st_dev != own.st_dev || named.st_ino != own.st_ino)
            continue;
        return rename(copy, packed.text) == 0 && unlink(plain.text) == 0;
    }
    return false; /* removed meanwhile */
}

/* Puts the compressed copy in the place of the file `from`, whatever its number is now. */
static bool replace(const mp_rotation *rotation, const char *path, int from, const char *copy)
{
    int lock;
    if (!lock_names(path, &lock))
        return false;
    bool is_replaced = replace_locked(rotation, path, from, copy);
    unlock_names(lock);
    return is_replaced;
}

/* True if no process appends to the file, which has a number: one that is about to do so finds that its file has no longer the path. */
static bool is_left(int fd)
{
    if (flock(fd, LOCK_EX | LOCK_NB) != 0)
        return errno != EWOULDBLOCK; /* some filesystems lock nothing that was opened for reading */
    flock(fd, LOCK_UN);
    return true;
}

/* Compresses one file. Called and returns with the lock held, which it gives back meanwhile. False if it was not compressed. */
static bool pack_number(mp_rotation *rotation, const char *path, int number)
{
    file_name name = plain_name(path, number), copy = part_name(path, "gz.part");
    unlink(copy.text);
    int from = open(name.text, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    int to = from < 0 ? -1 : open(copy.text, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    struct stat is;
    bool is_packed =
        to >= 0 && fstat(from, &is) == 0 && S_ISREG(is.st_mode) && fchmod(to, is.st_mode & 07777) == 0 && is_left(from);
    if (is_packed) {
        pthread_mutex_unlock(&rotation->lock);
        is_packed = pack(from, to);
        pthread_mutex_lock(&rotation->lock);
        is_packed = is_packed && replace(rotation, path, from, copy.text);
    }
    if (!is_packed && atomic_load(&is_allowed)) /* else another process has its own copy of this name */
        unlink(copy.text);
    if (to >= 0)
        close(to);
    if (from >= 0)
        close(from);
    return is_packed;
}

static void *MP_NULLABLE pack_all(void *ctx)
{
    mp_rotation *rotation = ctx;
    const char *MP_NULLABLE path = rotation->path;
    int number;
    mp_crash_thread("packing", 0);
    pthread_setschedparam(pthread_self(), SCHED_IDLE, &(struct sched_param){0});
    pthread_mutex_lock(&rotation->lock);
    while (path != NULL && (number = number_to_pack(rotation, path)) != 0 && pack_number(rotation, path, number))
        continue;
    rotation->is_compressing = false;
    pthread_mutex_unlock(&rotation->lock);
    return NULL;
}

/* Starts the thread that compresses, unless it runs or has nothing to do. */
static void compress_soon(mp_rotation *rotation)
{
    pthread_t thread;
    const char *MP_NULLABLE path = rotation->path;
    if (path == NULL || rotation->is_compressing || number_to_pack(rotation, path) == 0)
        return;
    rotation->is_compressing = pthread_create(&thread, NULL, pack_all, rotation) == 0;
    if (rotation->is_compressing)
        pthread_detach(thread);
}

/* Waits by looking once a millisecond. ThreadSanitizer does not know pthread_mutex_clocklock. */
static bool lock_within(pthread_mutex_t *lock, int ms)
{
    while (pthread_mutex_trylock(lock) != 0) {
        if (ms-- == 0)
            return false;
        wait_a_ms();
    }
    return true;
}

void mp_rotate_allow(bool allow)
{
    atomic_store(&is_allowed, allow);
}

int mp_rotation_turn(mp_rotation *rotation, int fd)
{
    if (!lock_within(&rotation->lock, LOCK_MS)) {
        errno = EBUSY;
        return -1;
    }
    int made = turn(rotation, fd);
    int error = errno;
    if (made >= 0)
        compress_soon(rotation);
    pthread_mutex_unlock(&rotation->lock);
    errno = error;
    return made;
}
