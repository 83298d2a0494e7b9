/* hurried_driver.c: the end of a log that is in a hurry while its thread lacks processor time, for a spec.
 *
 * The thread does not get on with its write before mp_log_stop has given up the wait that a reader gets which does not
 * read, and looks whether the file takes bytes. Exits with 1 if the line is not in out.log when mp_log_stop returns. */
#include "telemetry/log.h"
#include <poll.h>
#include <semaphore.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <time.h>

#define FILE_NAME "out.log"
#define LATE_S 20 /* a thread that is not let go on writes then */

static sem_t may_go_on;

extern ssize_t __real_writev(int fd, const struct iovec *parts, int count); /* NOLINT: the linker's names */
extern ssize_t __wrap_writev(int fd, const struct iovec *parts, int count); /* NOLINT */
extern int __real_poll(struct pollfd *fds, nfds_t count, int ms);           /* NOLINT */
extern int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);           /* NOLINT */

ssize_t __wrap_writev(int fd, const struct iovec *parts, int count) /* NOLINT */
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LATE_S;
    sem_timedwait(&may_go_on, &until);
    return __real_writev(fd, parts, count);
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int ms) /* NOLINT */
{
    int ready = __real_poll(fds, count, ms);
    sem_post(&may_go_on);
    return ready;
}

int main(void)
{
    mp_err err = {"", ""};
    struct stat is;
    if (sem_init(&may_go_on, 0, 0) != 0 || mp_log_open(FILE_NAME, &err) != 0)
        return 2;
    mp_log_start(MP_INFO);
    mp_log(MP_INFO, "last line");
    mp_log_hurry(1);
    mp_log_stop();
    return stat(FILE_NAME, &is) == 0 && is.st_size > 0 ? 0 : 1;
}
