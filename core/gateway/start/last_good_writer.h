/* last_good_writer.h: keeps the generation that serves in the state folder, on a thread of its own, and finds the one
 * that was kept.
 *
 *   state folder   $STATE_DIRECTORY, which systemd sets; else $XDG_STATE_HOME/moonpool, or ~/.local/state/moonpool
 *   last good      the last generation that served without errors (data/last_good.h): a file in the folder last-good
 *                  below it */
#ifndef MP_GATEWAY_START_LAST_GOOD_WRITER_H
#define MP_GATEWAY_START_LAST_GOOD_WRITER_H

#include "config/config.h"

typedef struct mp_last_good_writer mp_last_good_writer;

/* The last good generation of the configuration file. NULL if there is none, or, with a text in `err`, if it cannot be
 * used. */
mp_last_good *MP_NULLABLE mp_last_good_find(const char *file, mp_err *err);

/* NULL if there is no state folder. */
mp_last_good_writer *MP_NULLABLE mp_last_good_writer_new(const char *MP_NULLABLE file);
/* Waits up to a second for a write that is under way. NULL is allowed here and below. */
void mp_last_good_writer_free(mp_last_good_writer *MP_NULLABLE writer);
/* The generation serves now: saves it; but unless scripts.broken is last_good, removes the saved one. */
void mp_last_good_writer_keep(mp_last_good_writer *MP_NULLABLE writer, int64_t generation, mp_source *source,
                              const mp_config *config);
/* Appends a JSON object: which generation is kept, and why a newer one is not. Any thread. */
void mp_last_good_writer_describe(mp_last_good_writer *MP_NULLABLE writer, mp_buf *out);

#endif
