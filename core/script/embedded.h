/* embedded.h: the files of lua/moonpool as the build put them into the binary: compiled by the luac of the same Lua;
 * and lua/types as it is. */
#ifndef MP_SCRIPT_EMBEDDED_H
#define MP_SCRIPT_EMBEDDED_H

#include <lua.h>
#include <stdbool.h>
#include <stddef.h>

typedef struct {
    const char *name; /* "moonpool.era.2025-03-26"; an init.lua has the name of its folder */
    const char *path; /* "lua/moonpool/era/2025-03-26.lua" */
    const char *ptr;
    size_t len;
} mp_embedded_file;

extern const mp_embedded_file mp_embedded[];
extern const size_t mp_embedded_count;

/* `require` looks into the binary, and with `has_files` into the file system after it.  [-0, +0, throws] */
void mp_set_searchers(lua_State *L, bool has_files);

#endif
