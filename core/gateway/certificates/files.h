/* files.h: the files of one certificate: whether they have changed, and what reading them last gave. */
#ifndef MP_GATEWAY_CERTIFICATES_FILES_H
#define MP_GATEWAY_CERTIFICATES_FILES_H

#include "net/net.h"
#include <time.h>

/* wait before reporting that certificate and key do not match: the second file may be about to be written */
#define MP_CERTIFICATE_GRACE_MS 1000

/* The members of struct stat that show a change. All zero if the file does not exist; if it cannot be looked at for
 * another reason, or is a link that leads nowhere, `size` alone is not: minus that errno. */
typedef struct {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec modified, changed;
} mp_file_signature;

typedef struct {
    char *MP_NULLABLE paths[3]; /* arrays indexed by mp_tls_file; NULL: there is no such file */
    mp_file_signature tried[3];
    uint64_t made_at, failed_at; /* failed_at: 0 if the latest files are served or their failure was logged */
    bool is_starved; /* the latest files could not be read for want of descriptors: they are read again at each look */
    int64_t expires; /* 0: no certificate of these files is served; protected by a lock of the owner, like all below */
    bool is_ok;
    int64_t refused_at; /* seconds since 1970 at which the latest files were refused; 0: they were not */
    char *MP_NULLABLE why;
} mp_certificate_files;

typedef struct {
    pthread_mutex_t *lock;
    const char *address; /* of the listener, for the log */
} mp_certificate_owner;

/* Why files are read: `is_asked`: an admin or a signal requests it, so a failure is logged at once; otherwise the files
 * are read once more first. */
typedef struct {
    bool is_needed, is_change, logs_failure;
    bool was_served; /* set by the caller: a certificate of these files is in use */
    bool is_quiet;   /* set by the caller: the log has enough of failures */
} mp_certificate_need;

/* Called between the pieces of long work: the thread makes progress. */
typedef struct {
    void (*call)(void *MP_NULLABLE ctx);
    void *MP_NULLABLE ctx;
} mp_certificate_beat;

void mp_certificate_files_clear(mp_certificate_files *files);
void mp_certificate_files_sign(const mp_certificate_files *files, mp_file_signature now[3]);
mp_certificate_need mp_certificate_files_need(const mp_certificate_files *files, const mp_file_signature now[3],
                                              bool is_asked);
/* After reading: keeps the result and logs it. `is_served` false: `findings` says why the files are refused. */
void mp_certificate_files_settle(mp_certificate_files *files, const mp_certificate_owner *owner,
                                 mp_certificate_need need, bool is_served, int64_t expires,
                                 const mp_tls_findings *findings);
/* Keeps that the files are refused. The caller has the lock, or no other thread knows the files. */
void mp_certificate_files_refuse(mp_certificate_files *files, const mp_tls_findings *findings);
/* Appends members of a JSON object, each after a comma: "expires" unless it is 0, "ok", and while files are refused
 * "at" and "why". */
void mp_certificate_files_put(const mp_certificate_files *files, mp_buf *out);

#endif
