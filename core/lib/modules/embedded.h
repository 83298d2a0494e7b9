/* embedded.h: the files that the build puts into the binary: those of lua/moonpool, compiled by the same Lua version or
 * as text without comments (embed.lua), and the types for editors as text. */
#ifndef MP_LIB_EMBEDDED_H
#define MP_LIB_EMBEDDED_H

#include "base/base.h"
#include <lua.h>

typedef struct {
    const char *name; /* "moonpool.protocol.era.2025-03-26"; an init.lua has the name of its folder */
    const char *path; /* "lua/moonpool/protocol/era/2025-03-26.lua" */
    const char *ptr;
    size_t len;
    size_t form; /* of the bytes: 0 as they are, 1 as by gzip, 2 as by cmake/pack.c */
} mp_embedded_file;

extern const mp_embedded_file mp_embedded[];
extern const size_t mp_embedded_count;

/* The contents of a file: its bytes in the binary, or, if it is compressed, a copy in `room`, which the caller clears.
 */
mp_str mp_embedded_text(const mp_embedded_file *file, mp_buf *room);

/* Sets the searchers of `require`: the binary, and then, with `has_files`, the file system.  [-0, +0, throws] */
void mp_set_searchers(lua_State *L, bool has_files);

#endif
