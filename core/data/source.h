/* source.h: the text of every script file, read once when a generation is loaded. It never changes, and all workers
 * share it. */
#ifndef MP_DATA_SOURCE_H
#define MP_DATA_SOURCE_H

#include "telemetry/telemetry.h"

typedef struct mp_source mp_source;

/* One script file. Its strings belong to the source. */
typedef struct {
    char *path; /* relative to the source's folder, '/' between names */
    char *text; /* followed by a NUL that `len` does not count */
    size_t len; /* bytes */
} mp_source_file;

/* Reads the *.lua files of `dir` and the folders below it. Skips names that begin with '.', end in '~', or do not end
 * in ".lua". A missing `dir` is an error; an empty one is not. At most 10,000 files, 1 MiB each, 64 MiB in all. NULL on
 * an error. `rocks` is a LuaRocks tree, or NULL: the files below its share/lua/5.4 are read in the same way, with
 * limits of their own. */
mp_source *MP_NULLABLE mp_source_read(const char *dir, const char *MP_NULLABLE rocks, mp_err *err);
/* A source without files, to which mp_source_add adds them, in any order; mp_source_sort ends that. */
mp_source *mp_source_new(const char *dir, const char *MP_NULLABLE rocks);
/* Adds a file of the scripts or of the rocks, within the limits of mp_source_read. Both texts are copied. */
int mp_source_add(mp_source *source, bool is_rock, mp_str path, mp_str text, mp_err *err);
void mp_source_sort(mp_source *source);
/* A copy without the scripts at `paths`, each of which is followed by a NUL. */
mp_source *mp_source_without(const mp_source *source, mp_str paths);
/* The `paths` of mp_source_without; empty for other sources. */
mp_str mp_source_left_out(const mp_source *source);
/* The folder of a LuaRocks tree that mp_source_read() reads. The caller frees it. */
char *mp_source_rocks_below(const char *rocks);
mp_source *mp_source_ref(mp_source *source);         /* called on any thread */
void mp_source_unref(mp_source *MP_NULLABLE source); /* called on any thread */
/* True if both have the same files with the same text, and leave out the same. Otherwise appends the path of each file
 * that differs to `paths`, one per line. */
bool mp_source_is_same(const mp_source *one, const mp_source *other, mp_buf *paths);
/* True if a file of `now` is empty that was not empty, or did not exist, in `before`: its writer may just have
 * truncated it. */
bool mp_source_is_emptied(const mp_source *before, const mp_source *now);
/* True for the first Lua state that loads the source. That state logs warnings; the later states would log the same
 * ones. */
bool mp_source_is_first_load(mp_source *source);
/* The files, sorted by path. */
const mp_source_file *mp_source_files(const mp_source *source, size_t *count);
/* The Lua files of the rocks, sorted by path. */
const mp_source_file *mp_source_rock_files(const mp_source *source, size_t *count);
/* The folder, as mp_source_read() was given it. */
const char *mp_source_dir(const mp_source *source);
/* The folders of the rocks' Lua files and of their C modules; NULL without rocks. */
const char *MP_NULLABLE mp_source_rocks(const mp_source *source);
const char *MP_NULLABLE mp_source_c_modules(const mp_source *source);
/* The Lua file of a rock at `path`, relative to mp_source_rocks(); NULL if there is none. */
const mp_source_file *MP_NULLABLE mp_source_rock(const mp_source *source, const char *path);
/* True if `path`, in the form that names a chunk of Lua, is a file of the scripts or of the rocks. */
bool mp_source_has(const mp_source *source, const char *path);

#endif
