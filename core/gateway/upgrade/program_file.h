/* program_file.h: the file of the running program at the path by which it was started, where an upgrade finds another
 * file. */
#ifndef MP_GATEWAY_PROGRAM_FILE_H
#define MP_GATEWAY_PROGRAM_FILE_H

#include "base/base.h"
#include <sys/types.h>

typedef struct {
    char *MP_NULLABLE path; /* absolute, with its symbolic links; NULL: it is not known */
    char *const *argv;      /* the arguments of this process */
} mp_program_file;

/* How this process was started. `argv` is borrowed. At the start, before the working folder changes or the file is
 * replaced. */
void mp_program_file_find(mp_program_file *file, char *const *argv);
void mp_program_file_clear(mp_program_file *file);
/* -1 and the reason if the file cannot be started, or another user could have written it. */
int mp_program_file_check(const mp_program_file *file, mp_err *err);
/* Starts the file with the arguments of this process. It inherits the descriptor `handover`, whose number
 * MOONPOOL_HANDOVER names, and writes to `said` as its stderr. Sets its process id and a descriptor that is readable
 * when it has ended. -1 and the reason. */
int mp_program_file_start(const mp_program_file *file, int handover, int said, pid_t *pid, int *pidfd, mp_err *err);

#endif
