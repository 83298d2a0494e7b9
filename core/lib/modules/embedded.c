/* embedded.c: how `require` finds the modules in the binary. */
#include "lib/modules/embedded.h"
#include <lauxlib.h>
#include <lualib.h>
#include <zlib.h>

enum { PLAIN, GZIP, PACKED }; /* forms of the bytes */

#define GZIP_HEAD (16 + MAX_WBITS)              /* for inflateInit2: the bytes begin with gzip's header */
#define DICTIONARY "moonpool.registry.registry" /* moonpool_dictionary of core/lib/embed.cmake */

static const mp_embedded_file *MP_NULLABLE find_file(const char *name)
{
    const mp_embedded_file *found = NULL;
    for (size_t i = 0; i < mp_embedded_count && found == NULL; i++)
        if (strcmp(mp_embedded[i].name, name) == 0)
            found = &mp_embedded[i];
    return found;
}

/* Compressed bytes end with the size of their contents, least byte first. */
static size_t size_of(const mp_embedded_file *file)
{
    const unsigned char *end = (const unsigned char *)file->ptr + file->len;
    return end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 | (size_t)end[-1] << 24;
}

mp_str mp_embedded_text(const mp_embedded_file *file, mp_buf *room)
{
    if (file->form == PLAIN)
        return (mp_str){file->ptr, file->len};
    size_t size = size_of(file);
    char *to = mp_buf_room(room, size);
    z_stream stream = {.next_in = (Bytef *)(uintptr_t)file->ptr,
                       .avail_in = (uInt)file->len,
                       .next_out = (Bytef *)to,
                       .avail_out = (uInt)size};
    bool is_packed = file->form == PACKED;
    const mp_embedded_file *dictionary = MP_NEVER_NULL(find_file(DICTIONARY));
    if (inflateInit2(&stream, is_packed ? -MAX_WBITS : GZIP_HEAD) != Z_OK ||
        (is_packed && inflateSetDictionary(&stream, (const Bytef *)dictionary->ptr, (uInt)dictionary->len) != Z_OK) ||
        inflate(&stream, Z_FINISH) != Z_STREAM_END)
        abort(); /* out of memory: the bytes are those of the build */
    inflateEnd(&stream);
    room->len += size;
    return (mp_str){to, size};
}

/* Pushes a loader and the path; or a text that says that the binary has no such module. [-1, +1|2, throws] */
static int find_module(lua_State *L)
{
    const char *name = luaL_checkstring(L, 1);
    const mp_embedded_file *file = find_file(name);
    if (file == NULL) {
        lua_pushfstring(L, "no module '%s' in moonpool", name);
        return 1;
    }
    mp_buf room = {0};
    lua_pushfstring(L, "@%s", file->path);
    mp_str code = mp_embedded_text(file, &room);
    int status = luaL_loadbufferx(L, code.ptr, code.len, lua_tostring(L, -1), NULL);
    mp_buf_clear(&room);
    if (status != LUA_OK)
        return lua_error(L);
    lua_pushstring(L, file->path);
    return 2;
}

void mp_set_searchers(lua_State *L, bool has_files)
{
    lua_getglobal(L, LUA_LOADLIBNAME);
    lua_getfield(L, -1, "searchers");
    lua_createtable(L, 5, 0);
    lua_rawgeti(L, -2, 1); /* the table package.preload */
    lua_rawseti(L, -2, 1);
    lua_pushcfunction(L, find_module);
    lua_rawseti(L, -2, 2);
    for (int i = 2; has_files && i <= 4; i++) {
        lua_rawgeti(L, -2, i);
        lua_rawseti(L, -2, i + 1);
    }
    lua_setfield(L, -3, "searchers");
    lua_pop(L, 2);
}
