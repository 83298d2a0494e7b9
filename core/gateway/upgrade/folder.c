/* folder.c: the folder whose sockets the processes of one gateway use to reach each other. Each process locks it, and
 * the kernel drops the lock when the process ends, even if it is killed: an unlocked folder is a remainder of processes
 * that were killed. */
#define _GNU_SOURCE
#include "state.h"
#include "hop.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define PREFIX "moonpool-hop-"
#define TRIES 3 /* another gateway may take a folder for one that was left, before it is held */

/* -- what was left ------------------------------------------------------------------------------------------------- */

/* Removes the sockets in a folder. Takes ownership of `fd`. */
static void remove_sockets(int fd)
{
    DIR *folder = fdopendir(fd);
    for (const struct dirent *one; folder != NULL && (one = readdir(folder)) != NULL;)
        if (strlen(one->d_name) > 5 && strcmp(one->d_name + strlen(one->d_name) - 5, ".sock") == 0)
            unlinkat(fd, one->d_name, 0);
    if (folder != NULL)
        closedir(folder);
    else
        close(fd);
}

static int open_folder(int at, const char *path)
{
    return openat(at, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

/* Removes the folders of gateways of the same user whose processes have all ended. */
static void remove_left(const char *parent)
{
    struct stat info;
    DIR *all = opendir(parent);
    for (const struct dirent *one; all != NULL && (one = readdir(all)) != NULL;) {
        int fd = strncmp(one->d_name, PREFIX, strlen(PREFIX)) == 0 ? open_folder(dirfd(all), one->d_name) : -1;
        if (fd < 0)
            continue;
        if (fstat(fd, &info) != 0 || info.st_uid != geteuid() || flock(fd, LOCK_EX | LOCK_NB) != 0) {
            close(fd);
            continue;
        }
        int sockets = fcntl(fd, F_DUPFD_CLOEXEC, 0); /* the lock is held until both descriptors are closed */
        if (sockets >= 0)
            remove_sockets(sockets);
        unlinkat(dirfd(all), one->d_name, AT_REMOVEDIR);
        close(fd);
    }
    if (all != NULL)
        closedir(all);
}

/* -- the own folder ------------------------------------------------------------------------------------------------ */

int mp_upgrade_hold_folder(mp_upgrade *upgrade, const char *path)
{
    upgrade->folder_fd = open_folder(AT_FDCWD, path);
    return upgrade->folder_fd < 0 ? -1 : flock(upgrade->folder_fd, LOCK_SH | LOCK_NB);
}

static bool is_held(const mp_upgrade *upgrade, const char *path)
{
    struct stat held, there;
    return upgrade->folder_fd >= 0 && fstat(upgrade->folder_fd, &held) == 0 && lstat(path, &there) == 0 &&
           held.st_dev == there.st_dev && held.st_ino == there.st_ino && held.st_uid == geteuid();
}

static int make_private_folder(mp_upgrade *upgrade, const char *MP_NULLABLE runtime, const char *parent, char *path,
                               size_t size)
{
    if (runtime != NULL)
        snprintf(path, size, "%.*s/hop", (int)strcspn(runtime, ":"), runtime);
    else
        snprintf(path, size, "%s/" PREFIX "XXXXXX", parent);
    if (runtime != NULL ? mkdir(path, 0700) != 0 && errno != EEXIST : mkdtemp(path) == NULL)
        return -1;
    bool holds = mp_upgrade_hold_folder(upgrade, path) == 0;
    if (holds && is_held(upgrade, path))
        return fchmod(upgrade->folder_fd, 0700);
    int error = holds ? EEXIST : errno;
    if (upgrade->folder_fd >= 0)
        close(upgrade->folder_fd);
    upgrade->folder_fd = -1;
    if (runtime == NULL)
        rmdir(path);
    errno = error;
    return -1;
}

static int make_folder(mp_upgrade *upgrade, char *path, size_t size)
{
    const char *runtime = getenv("RUNTIME_DIRECTORY"), *temporary = getenv("TMPDIR");
    const char *parent = temporary != NULL && temporary[0] == '/' ? temporary : "/tmp";
    if (runtime != NULL && runtime[0] != '/')
        runtime = NULL;
    if (runtime == NULL)
        remove_left(parent);
    int made = -1;
    for (int i = 0; i < TRIES && made != 0; i++)
        made = make_private_folder(upgrade, runtime, parent, path, size);
    int sockets = made == 0 ? fcntl(upgrade->folder_fd, F_DUPFD_CLOEXEC, 0) : -1;
    if (sockets >= 0)
        remove_sockets(sockets); /* a runtime directory outlives a killed process, and so do its sockets */
    return made;
}

/* -- its sockets --------------------------------------------------------------------------------------------------- */

/* Opens the sockets in the folder: for requests, operations on the store, and questions to the admin listener. From now
 * on limits of concurrency are counted in the store. A socket that cannot be opened, as without descriptors, is tried
 * again at the next upgrade. */
static int open_sockets(mp_upgrade *upgrade, mp_err *err)
{
    mp_worker_shared *shared = upgrade->shared;
    mp_admin *MP_NULLABLE admin = MP_NEVER_NULL(upgrade->listeners)->admin;
    uint16_t number = mp_processes_number(shared->processes);
    char path[MP_PROCESS_PATH];
    if (!mp_processes_path(shared->processes, number, "store", path))
        return mp_err_set(err, "the path of the folder for upgrades is too long");
    if (upgrade->opened == 0 && mp_store_serve(shared->process_state.store, path, err) == 0)
        upgrade->opened = 1;
    if (upgrade->opened == 1 &&
        mp_semaphores_share(shared->process_state.semaphores, shared->process_state.store, number, err) == 0)
        upgrade->opened = 2;
    if (upgrade->opened == 2 && mp_hop_open(shared, err) == 0)
        upgrade->opened = 3;
    if (upgrade->opened == 3 && (admin == NULL || mp_admin_open_door(admin, err) == 0))
        upgrade->opened = MP_UPGRADE_OPENED;
    return upgrade->opened == MP_UPGRADE_OPENED ? 0 : -1;
}

/* True if the folder and the sockets of this process are where the other processes look for them. */
static bool is_whole(const mp_upgrade *upgrade, const char *folder)
{
    static const char *const kinds[] = {"store", "mcp", "admin"};
    const mp_processes *processes = upgrade->shared->processes;
    size_t count = MP_NEVER_NULL(upgrade->listeners)->admin == NULL ? 2 : 3;
    char path[MP_PROCESS_PATH];
    bool is = is_held(upgrade, folder);
    for (size_t i = 0; i < count && is && upgrade->opened == MP_UPGRADE_OPENED; i++)
        is = mp_processes_path(processes, mp_processes_number(processes), kinds[i], path) && access(path, F_OK) == 0;
    return is;
}

int mp_upgrade_open_folder(mp_upgrade *upgrade, mp_err *err)
{
    char path[256];
    const char *folder = mp_processes_folder(upgrade->shared->processes);
    if (folder != NULL && !is_whole(upgrade, folder)) {
        mp_err_set(
            err,
            "the folder %s, in which the processes of the gateway have their sockets, was removed, or a part of it",
            folder);
        return mp_err_hint(err,
                           "restart the gateway; what cleans temporary files must spare moonpool-hop-*, or set TMPDIR "
                           "to a folder that is not cleaned");
    }
    if (folder == NULL) {
        if (make_folder(upgrade, path, sizeof path) != 0)
            return mp_err_set(err, "cannot make the folder %s: %s", path, strerror(errno));
        mp_processes_set_folder(upgrade->shared->processes, path);
    }
    return open_sockets(upgrade, err);
}
