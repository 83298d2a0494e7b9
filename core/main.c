/* main.c: the entry point of the process. */
#include "cli/cli.h"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

/* Opens descriptors 0 to 2 if they are closed, so that no file that is opened later gets one of these numbers. Reading
 * such a stdin and writing to such a stdout still fails (EBADF), because /dev/null is opened in the opposite mode. */
static void open_standard_descriptors(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDOUT_FILENO ? O_RDONLY : O_WRONLY) != fd)
            _exit(1);
}

/* Blocks SIGHUP and SIGUSR2, which reload and upgrade a gateway: a signal that arrives before the gateway can do that
 * stays pending (gateway/watchdog.c). */
static void hold_hangup(int argc, char **argv)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGUSR2);
    if (argc > 1 && (strcmp(argv[1], "run") == 0 || strcmp(argv[1], "stdio") == 0))
        sigprocmask(SIG_BLOCK, &set, NULL);
}

int main(int argc, char **argv)
{
    if (argc > 2 && strcmp(argv[0], MP_KEEPER) == 0)
        mp_keep(argv + 1);
    mp_environment_hide();
    hold_hangup(argc, argv);
    open_standard_descriptors();
    return mp_cli(argc, argv);
}
