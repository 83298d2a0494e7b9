/* last_good.h: the file that keeps the last generation which served without errors, as its files were written: the text
 * of the configuration with its ${…} unexpanded, the approved definitions of upstreams, the scripts, and the Lua files
 * of rocks. There is one file for each configuration, in a folder that only the user of this process can change. All
 * functions block. */
#ifndef MP_DATA_LAST_GOOD_H
#define MP_DATA_LAST_GOOD_H

#include "data/source.h"
#include <time.h>

/* The files of one generation. `lock` is NULL without approved definitions. All texts are borrowed. */
typedef struct {
    const char *name; /* absolute path of the configuration file, by which the generation is found again */
    mp_str config;
    const char *lock;
    const mp_source *source;
} mp_generation_parts;

typedef struct mp_last_good mp_last_good;

/* Opens the folder, and with `makes` creates it if it is missing. -1 if it cannot be used, or if another user could
 * change its files. */
int mp_last_good_open_folder(const char *path, bool makes, mp_err *err);
/* Replaces the saved generation of this configuration, unless it is identical. A reader sees the old one or the new one
 * in full. -1: the old one stays. */
int mp_last_good_write(int folder, const mp_generation_parts *parts, mp_err *err);
/* Reads the saved generation of this configuration. NULL if none is saved, or with a text in `err` if it cannot be
 * used. */
mp_last_good *MP_NULLABLE mp_last_good_read(int folder, const char *name, mp_err *err);
/* Removes the saved generation of this configuration. */
void mp_last_good_forget(int folder, const char *name);
mp_str mp_last_good_config(const mp_last_good *kept);
const char *MP_NULLABLE mp_last_good_lock(const mp_last_good *kept); /* NULL: none */
/* When it was last written, or found to be unchanged at a start. */
time_t mp_last_good_time(const mp_last_good *kept);
/* True if it has a script in the folder `prefix`, as "auth/", that is no spec. */
bool mp_last_good_has(const mp_last_good *kept, const char *prefix);
/* Its scripts, as if they had been read from `dir` and `rocks` (which may be NULL). NULL on an error. */
mp_source *MP_NULLABLE mp_last_good_source(const mp_last_good *kept, const char *dir, const char *MP_NULLABLE rocks,
                                           mp_err *err);
void mp_last_good_free(mp_last_good *MP_NULLABLE kept);

#endif
