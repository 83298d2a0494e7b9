/* folder.h: a folder of certificates, each with its key: NAME.pem with NAME.key, or NAME/fullchain.pem with
 * NAME/privkey.pem. It is read in rounds, and a round in steps, so that the thread is never busy for long. */
#ifndef MP_GATEWAY_CERTIFICATES_FOLDER_H
#define MP_GATEWAY_CERTIFICATES_FOLDER_H

#include "files.h"
#include "config/config.h"

typedef struct mp_certificate_folder mp_certificate_folder;

/* Reads all pairs. `report` receives errors and warnings at the keys of `tls`; returns NULL with an error. A pair that
 * cannot be served is a warning, unless no pair remains, or it is that of `tls.default`. */
mp_certificate_folder *MP_NULLABLE mp_certificate_folder_new(const mp_config *config, const mp_config_tls *tls,
                                                             const mp_certificate_owner *owner,
                                                             mp_certificate_beat beat, mp_buf *report);
void mp_certificate_folder_free(mp_certificate_folder *MP_NULLABLE folder);
/* A new reference to the names of the pairs that are served. */
mp_tls_names *mp_certificate_folder_names(const mp_certificate_folder *folder);

/* Adds watches of inotify for the folder, and for its subfolders up to a number: more are looked at by time alone. */
void mp_certificate_folder_watch(const mp_certificate_folder *folder, int fd, uint32_t events);
/* Begins a round: finds out which pairs there are; none may be
 * in progress. `is_asked` as in files.h. */
void mp_certificate_folder_begin(mp_certificate_folder *folder, bool is_asked);
bool mp_certificate_folder_is_busy(const mp_certificate_folder *folder); /* there are steps to do */
/* Does a step of a round. True: the round is over, and other pairs are served than before it. */
bool mp_certificate_folder_step(mp_certificate_folder *folder);
/* When a pair first failed that is to be read once more, as `failed_at` of files.h; 0: none did. */
uint64_t mp_certificate_folder_failed_at(const mp_certificate_folder *folder);

/* -- any thread, with the owner's lock -- */

#define MP_CERTIFICATE_SHOWN 100
typedef struct {
    const char *name;
    const mp_certificate_files *files;
    mp_tls_pair *MP_NULLABLE served; /* NULL: it never was */
} mp_certificate_shown;
/* The pairs that expire first. `with_refused`: after those that are refused, which leave half of the room. */
size_t mp_certificate_folder_show(const mp_certificate_folder *folder, bool with_refused,
                                  mp_certificate_shown room[MP_CERTIFICATE_SHOWN]);
/* The number of pairs that are served, and of those whose latest files are refused. */
void mp_certificate_folder_count(const mp_certificate_folder *folder, size_t *served, size_t *refused);

#endif
