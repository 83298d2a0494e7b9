/* process_memory.c: the memory of a process's descendants, read from /proc. The number of reads is bounded. */
#define _GNU_SOURCE 1
#include "process.h"
#include <dirent.h>
#include <fcntl.h>
#include <unistd.h>

#define MAX_PROCESSES 256 /* processes below one keeper (reaper.h) that are read */
#define MAX_THREADS 2048  /* threads of these processes that are read */

typedef struct {
    pid_t pids[MAX_PROCESSES];
    int count, threads;
    bool is_partial;
} tree;

/* Reads a small file of /proc as text. Returns false if it is not there. */
static bool read_text(char *text, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static bool read_text(char *text, size_t size, const char *format, ...)
{
    char path[64];
    va_list args;
    va_start(args, format);
    vsnprintf(path, sizeof path, format, args);
    va_end(args);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t len = read(fd, text, size - 1);
    close(fd);
    text[len > 0 ? len : 0] = '\0';
    return len > 0;
}

/* Adds the children of one thread: /proc lists the process ids, each followed by a space. */
static void add_children(tree *found, pid_t pid, const char *thread)
{
    char text[4096], *end;
    if (!read_text(text, sizeof text, "/proc/%d/task/%.20s/children", (int)pid, thread))
        return;
    for (char *at = text;; at = end) {
        long child = strtol(at, &end, 10);
        if (end == at || *end != ' ') /* the last one may be cut */
            break;
        if (found->count == MAX_PROCESSES) {
            found->is_partial = true;
            break;
        }
        found->pids[found->count++] = (pid_t)child;
    }
}

/* A child belongs to the thread that made it. */
static void add_children_of_threads(tree *found, pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", (int)pid);
    DIR *threads = opendir(path);
    if (threads == NULL)
        return;
    for (struct dirent *one; (one = readdir(threads)) != NULL;) {
        if (one->d_name[0] == '.')
            continue;
        if (found->threads++ >= MAX_THREADS) {
            found->is_partial = true;
            break;
        }
        add_children(found, pid, one->d_name);
    }
    closedir(threads);
}

void mp_measure_descendants(pid_t root, mp_process_usage *usage)
{
    tree found = {.count = 0};
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    *usage = (mp_process_usage){0};
    add_children_of_threads(&found, root);
    usage->pid = found.count > 0 ? found.pids[0] : 0;
    for (int i = 0; i < found.count; i++) {
        char text[128], *resident;
        add_children_of_threads(&found, found.pids[i]);
        if (!read_text(text, sizeof text, "/proc/%d/statm", (int)found.pids[i]))
            continue;
        strtoull(text, &resident, 10); /* the whole address space */
        usage->memory += page * strtoull(resident, NULL, 10);
        usage->count++;
    }
    usage->is_partial = found.is_partial;
}
