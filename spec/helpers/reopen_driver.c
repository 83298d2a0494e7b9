/* reopen_driver.c: a log that is opened again while its writer is opening it, for a spec.
 *
 * The log's thread finds that out.log was renamed to out.log.2, and opens it. Before the thread uses that descriptor,
 * the file is renamed to out.log.1 and the main thread opens it again, as at SIGUSR1. Both lines belong to out.log. */
#include "telemetry/log.h"
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdarg.h>
#include <stdio.h>

#define FILE_NAME "out.log"

static pthread_t main_thread;
static sem_t has_opened, may_go_on;

extern int __real_open(const char *path, int flags, ...); /* NOLINT: the linker's names */
extern int __wrap_open(const char *path, int flags, ...); /* NOLINT */

int __wrap_open(const char *path, int flags, ...) /* NOLINT */
{
    va_list more;
    va_start(more, flags);
    int fd = __real_open(path, flags, va_arg(more, mode_t));
    va_end(more);
    if (!pthread_equal(pthread_self(), main_thread)) {
        sem_post(&has_opened);
        sem_wait(&may_go_on);
    }
    return fd;
}

int main(void)
{
    mp_err err = {"", ""};
    main_thread = pthread_self();
    if (sem_init(&has_opened, 0, 0) != 0 || sem_init(&may_go_on, 0, 0) != 0)
        return 2;
    mp_log_configure(MP_LOG_JSON);
    if (mp_log_open(FILE_NAME, &err) != 0 || rename(FILE_NAME, FILE_NAME ".2") != 0)
        return 1;
    mp_log_start(MP_INFO);
    mp_log(MP_INFO, "counted", mp_log_int("i", 1));
    sem_wait(&has_opened);
    if (rename(FILE_NAME, FILE_NAME ".1") != 0 || mp_log_open(FILE_NAME, &err) != 0)
        return 1;
    sem_post(&may_go_on);
    mp_log(MP_INFO, "counted", mp_log_int("i", 2));
    mp_log_stop();
    return 0;
}
