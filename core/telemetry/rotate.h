/* rotate.h: a file that lines are appended to, and that is renamed when it is full: NAME to NAME.1, NAME.1 to NAME.2 and so on, to NAME.KEEP, which
 * is removed. Files from NAME.2 on are compressed, by a thread that yields to all others. NAME.1 stays as it is: another process may
 * still append to it.
 *
 * Several processes may append to one file, each with whole lines. Only one of them renames and compresses: see mp_rotate_allow. A writer of another
 * one holds a shared lock (flock) on the file while it appends, after which it looks whether the file has its path still; the thread
 * that compresses takes the exclusive one once the file has a number, so nobody appends to what it reads. Who renames has the exclusive lock
 * of the folder.
 *
 * A mp_rotation belongs to one writer (writer.h). Its functions wait for the disk, and for no other thread. */
#ifndef MP_TELEMETRY_ROTATE_H
#define MP_TELEMETRY_ROTATE_H

#include "base/base.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

typedef struct {
    int64_t size; /* bytes after which a file is renamed; 0: never */
    int keep;     /* number of renamed files */
    bool compresses;
} mp_rotation_limits;

typedef struct mp_rotation {
    char *MP_NULLABLE path; /* owned; NULL: no file. Set before threads start */
    _Atomic int64_t size;
    atomic_int keep;
    atomic_bool compresses;
    pthread_mutex_t lock; /* guards the names of the files, and: */
    bool is_compressing;  /* the thread that compresses runs */
} mp_rotation;

#define MP_ROTATION {.lock = PTHREAD_MUTEX_INITIALIZER}

/* Opens `path` for appending, with mode 0600, without blocking: on a FIFO that no process reads, it fails instead of waiting. -1 with errno. A regular
 * file is opened for reading, too, if it may be read: the writer looks at its last byte. */
int mp_open_lines(const char *path);
/* Sets the error for a file that mp_open_lines could not open; `key` of the configuration names it. Returns -1. */
int mp_lines_refused(const char *key, const char *path, int error, mp_err *err);
/* The file has this path from now on. */
void mp_rotation_set_path(mp_rotation *rotation, const char *path);
/* Any thread. */
void mp_rotation_configure(mp_rotation *rotation, const mp_rotation_limits *limits);

/* Whether this process renames and compresses files, true at first. Any thread. Tell it the one that did so before it is told another: what the former
 * has begun keeps the latter waiting. */
void mp_rotate_allow(bool allow);

/* -- the writer's thread ------------------------------------------------------------------------------------------- */

/* Nobody compresses the file `fd` until it is closed or mp_rotation_release. True if this process renames no files: others may have done that, so look at
 * mp_rotation_is_moved afterwards. */
bool mp_rotation_hold(const mp_rotation *rotation, int fd);
void mp_rotation_release(int fd);
/* The file that has the path now, to append to. A process that renames no files makes none. -1 with errno. */
int mp_rotation_open(const mp_rotation *rotation);
/* The size that makes the file `fd` full; 0: it is never full, or this process renames no files. `*length`: its size now. */
int64_t mp_rotation_limit(const mp_rotation *rotation, int fd, int64_t *length);
/* Renames the files, starts the thread that compresses, and returns a descriptor of the new file; -1 with errno: nothing has changed. EBUSY: the
 * thread that compresses uses the names just now. */
int mp_rotation_turn(mp_rotation *rotation, int fd);
/* True if another process has renamed or removed the file `fd`. */
bool mp_rotation_is_moved(const mp_rotation *rotation, int fd);

#endif
