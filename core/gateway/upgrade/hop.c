/* hop.c: opens the socket between processes. */
#include "hop.h"
#include <unistd.h>

int mp_hop_open(mp_worker_shared *shared, mp_err *err)
{
    char path[MP_PROCESS_PATH], where[MP_PROCESS_PATH + 8];
    const mp_socket_file file = {.mode = 0600};
    mp_address bound;
    int count = shared->worker_count, *fds = mp_new((size_t)count * sizeof *fds);
    if (!mp_processes_path(shared->processes, mp_processes_number(shared->processes), "mcp", path)) {
        free(fds);
        return mp_err_set(err, "the folder of the sockets between processes has too long a path");
    }
    snprintf(where, sizeof where, "unix:%s", path);
    int result = mp_listen(where, count, &file, fds, &bound, err);
    for (int i = 0; result == 0 && i < count; i++)
        mp_worker_listen_hop(shared->workers[i], fds[i]);
    free(fds);
    return result;
}

void mp_hop_close(mp_worker_shared *shared)
{
    char path[MP_PROCESS_PATH];
    if (mp_processes_path(shared->processes, mp_processes_number(shared->processes), "mcp", path))
        unlink(path);
}
