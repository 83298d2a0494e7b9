/* source.c: sources of byte-preserving tables, and how they are found from a table. */
#include "vm/json/source.h"
#include <lauxlib.h>

/* The address of this variable is the key of the source in the metatables of its tables. */
static const char source_key = 0;

/* User values of the source. */
enum { TEXT = 1, PLACES, HASH };

enum { FIRST_PLACES = 16, LINEAR_PLACES = 8 };

/* Pushes a metatable that names the source at `source`.  [-0, +1, throws memory] */
static const void *push_metatable(lua_State *L, int source)
{
    lua_createtable(L, 0, 1);
    lua_pushvalue(L, source);
    lua_rawsetp(L, -2, &source_key);
    return lua_topointer(L, -1);
}

mp_json_source *mp_json_source_push(lua_State *L, mp_str text)
{
    luaL_checkstack(L, LUA_MINSTACK, "JSON");
    mp_json_source *source = lua_newuserdatauv(L, sizeof *source, HASH);
    int index = lua_gettop(L);
    memset(source, 0, sizeof *source);
    source->text = (mp_str){lua_pushlstring(L, text.ptr, text.len), text.len};
    lua_setiuservalue(L, index, TEXT);
    source->object_mt = push_metatable(L, index);
    source->array_mt = push_metatable(L, index);
    lua_remove(L, index);
    return source;
}

uint32_t mp_json_source_add(lua_State *L, mp_json_source *source, int object_mt, const char *from)
{
    if (source->count == source->cap) {
        uint32_t cap = source->cap == 0 ? FIRST_PLACES : source->cap * 2;
        lua_rawgetp(L, object_mt, &source_key);
        mp_json_place *places = lua_newuserdatauv(L, cap * sizeof *places, 0);
        if (source->count > 0)
            memcpy(places, source->places, source->count * sizeof *places);
        lua_setiuservalue(L, -2, PLACES);
        lua_pop(L, 1);
        source->places = places;
        source->cap = cap;
    }
    source->places[source->count] = (mp_json_place){.from = (uint32_t)(from - source->text.ptr)};
    return source->count++;
}

mp_json_source *MP_NULLABLE mp_json_source_of(lua_State *L)
{
    if (lua_rawgetp(L, -1, &source_key) != LUA_TUSERDATA) {
        lua_pop(L, 1);
        return NULL;
    }
    lua_remove(L, -2);
    return lua_touserdata(L, -1);
}

static uint32_t slot_of(const mp_json_source *source, const void *table)
{
    uint64_t bits = (uint64_t)(uintptr_t)table >> 4;
    return (uint32_t)(bits * 0x9e3779b97f4a7c15u >> 32) & source->hash_mask;
}

/* Makes the hash table, twice as large as the number of places at least.  [-0, +0, throws memory] */
static void make_hash(lua_State *L, mp_json_source *source, int index)
{
    uint32_t size = 1;
    while (size < 2 * source->count)
        size *= 2;
    uint32_t *hash = lua_newuserdatauv(L, size * sizeof *hash, 0);
    memset(hash, 0, size * sizeof *hash);
    lua_setiuservalue(L, index, HASH);
    source->hash_mask = size - 1;
    for (uint32_t i = 0; i < source->count; i++) {
        uint32_t slot = slot_of(source, source->places[i].table);
        while (hash[slot] != 0)
            slot = (slot + 1) & source->hash_mask;
        hash[slot] = i + 1;
    }
    source->hash = hash;
}

const mp_json_place *MP_NULLABLE mp_json_source_find(lua_State *L, mp_json_source *source, int index, const void *table)
{
    for (uint32_t i = 0; i < source->count && i < LINEAR_PLACES; i++)
        if (source->places[i].table == table)
            return &source->places[i];
    if (source->count <= LINEAR_PLACES)
        return NULL;
    if (source->hash == NULL)
        make_hash(L, source, lua_absindex(L, index));
    for (uint32_t slot = slot_of(source, table); source->hash[slot] != 0; slot = (slot + 1) & source->hash_mask)
        if (source->places[source->hash[slot] - 1].table == table)
            return &source->places[source->hash[slot] - 1];
    return NULL;
}
