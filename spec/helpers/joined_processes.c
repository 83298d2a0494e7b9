/* joined_processes.c: linked into the binary for specs. With SPEC_PROCESSES=FOLDER in the environment the process joins
 * all those that have a socket in that folder, without an upgrade: FOLDER/key has the key of all, FOLDER/newest, or
 * FOLDER/NUMBER.newest for one process, the number of the newest one. What a process knows of the others it writes to
 * FOLDER/NUMBER.knows, as "NEWEST: NUMBER NUMBER …". */
#include "rpc/processes.h"
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LOOK_NS 5000000L

mp_processes *__real_mp_processes_new(void);
mp_processes *__wrap_mp_processes_new(void);
void __real_mp_processes_free(mp_processes *processes);
void __wrap_mp_processes_free(mp_processes *processes);

static const char *folder;
static pthread_t watcher;
static atomic_bool is_over;

static int find_all(int own, mp_process_facts others[MP_OLDER_MOST + 1])
{
    int count = 0, number, end;
    DIR *entries = opendir(folder);
    for (struct dirent *one; entries != NULL && (one = readdir(entries)) != NULL && count <= MP_OLDER_MOST;) {
        end = 0;
        if (sscanf(one->d_name, "%d.mcp.sock%n", &number, &end) == 1 && end > 0 && number != own)
            others[count++] = (mp_process_facts){.number = (uint16_t)number, .pid = 1, .version = "spec"};
    }
    if (entries != NULL)
        closedir(entries);
    return count;
}

static FILE *open_in(const char *name, const char *mode)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return fopen(path, mode);
}

static void learn(mp_processes *processes, char *told, size_t room)
{
    mp_process_facts found[MP_OLDER_MOST + 1], known[MP_OLDER_MOST + 1];
    int count = find_all(mp_processes_number(processes), found), had = mp_processes_list(processes, known), newest = 0;
    for (int i = 0; i < had; i++) {
        bool lives = false;
        for (int k = 0; k < count; k++)
            lives = lives || found[k].number == known[i].number;
        if (!lives)
            mp_processes_remove(processes, known[i].number);
    }
    size_t len = 0;
    for (int k = 0; k < count; k++)
        mp_processes_add(processes, &found[k]);
    char own[32];
    snprintf(own, sizeof own, "%d.newest", mp_processes_number(processes));
    FILE *file = open_in(own, "r");
    if (file == NULL)
        file = open_in("newest", "r");
    if (file != NULL && fscanf(file, "%d", &newest) == 1)
        mp_processes_set_newest(processes, (uint16_t)newest);
    if (file != NULL)
        fclose(file);
    len = (size_t)snprintf(told, room, "%d:", mp_processes_newest(processes));
    for (int k = 0; k < count && len + 8 < room; k++)
        len += (size_t)snprintf(told + len, room - len, " %d", found[k].number);
}

static void *watch(void *ctx)
{
    mp_processes *processes = ctx;
    char told[512] = "", now[512], name[32];
    while (!atomic_load(&is_over)) {
        learn(processes, now, sizeof now);
        if (strcmp(told, now) != 0) {
            snprintf(name, sizeof name, "%d.knows", mp_processes_number(processes));
            FILE *file = open_in(name, "w");
            if (file != NULL)
                fputs(now, file), fclose(file);
            memcpy(told, now, sizeof told);
        }
        nanosleep(&(struct timespec){0, LOOK_NS}, NULL);
    }
    return NULL;
}

mp_processes *__wrap_mp_processes_new(void)
{
    mp_processes *processes = __real_mp_processes_new();
    unsigned char key[MP_PROCESS_KEY];
    mp_process_facts others[MP_OLDER_MOST + 1];
    folder = getenv("SPEC_PROCESSES");
    if (folder == NULL)
        return processes;
    FILE *file = open_in("key", "r");
    if (file == NULL || fread(key, 1, sizeof key, file) != sizeof key)
        abort();
    fclose(file);
    mp_processes_join(processes, key, folder, others, find_all(0, others));
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* the gateway takes its signals by a descriptor */
    if (pthread_create(&watcher, NULL, watch, processes) != 0)
        abort();
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return processes;
}

void __wrap_mp_processes_free(mp_processes *processes)
{
    if (folder != NULL) {
        atomic_store(&is_over, true);
        pthread_join(watcher, NULL);
    }
    __real_mp_processes_free(processes);
}
