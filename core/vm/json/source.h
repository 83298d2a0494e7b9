/* source.h: the text that byte-preserving tables were decoded from. A byte-preserving table is an ordinary table whose
 * metatable names its source, so that the encoder finds the bytes of every value that Lua did not change. Scripts do
 * not see that metatable (mp_lib_metatables).
 *
 * The source holds no values: the encoder compares the table with the text, value by value, and takes the bytes of
 * those that are equal. So no way of changing a table goes unnoticed, and what is written has the values of the table
 * in any case. */
#ifndef MP_VM_JSON_SOURCE_H
#define MP_VM_JSON_SOURCE_H

#include "json/json.h"
#include <lua.h>
#include <stdint.h>

/* An array or object of the text. */
typedef struct {
    const void *table; /* address of its table, which may be gone */
    uint32_t from, to; /* its bytes in the text */
    uint32_t next;     /* number of the first array or object behind it, in the order of their opening brackets */
} mp_json_place;

/* A userdata. Its user values are the text, the places, and the hash table. */
typedef struct {
    mp_str text;
    const void *object_mt, *array_mt; /* the metatables of its tables */
    mp_json_place *places;
    uint32_t count, cap;
    uint32_t *MP_NULLABLE hash; /* numbers of places, plus 1, by the address of the table; NULL: not made yet */
    uint32_t hash_mask;
} mp_json_source;

/* Pushes the metatables of the objects and arrays of a new source, which has a copy of `text` of less than 4 GiB.  [-0,
 * +2, throws memory] */
mp_json_source *mp_json_source_push(lua_State *L, mp_str text);
/* Adds the array or object at `from`; gives its number. `object_mt`: the index of the objects' metatable.  [-0, +0,
 * throws memory] */
uint32_t mp_json_source_add(lua_State *L, mp_json_source *source, int object_mt, const char *from);
/* Replaces the metatable on top by the source that it names. NULL, and leaves the metatable, if it names none.  [-0|1,
 * +0|1] */
mp_json_source *MP_NULLABLE mp_json_source_of(lua_State *L);
/* Finds the place of the table at this address; NULL if the source has none. The source is at `index`.  [-0, +0, throws
 * memory] */
const mp_json_place *MP_NULLABLE mp_json_source_find(lua_State *L, mp_json_source *source, int index,
                                                     const void *table);

/* Replaces getmetatable and debug.getmetatable: a byte-preserving array has json.array_mt, a byte-preserving object has
 * none.  [-0, +0, throws] */
void mp_lib_metatables(lua_State *L);

/* -- the module "moonpool.json" ------------------------------------------------------------------------------------ */

/* True if the running code may yield. */
bool mp_lua_can_encode_in_turns(lua_State *L);
/* Push json.array_mt and json.object_mt, which all scripts of a VM share: they are empty and take no fields. [-0, +1,
 * throws memory] */
void mp_lua_push_array_mt(lua_State *L);
void mp_lua_push_object_mt(lua_State *L);
/* metatable name of json.raw's userdata, whose memory block is the JSON text */
#define MP_LUA_RAW "moonpool.json.raw"
extern const char mp_lua_empty_array; /* json.empty_array is a light userdata: the address of this variable */
struct mp_vm;
/* Changes the module's table, on top of the stack, for a VM with tasks: its `encode` yields, and it gets `encoded`.
 * [-0, +0, throws] */
void mp_lib_json_of_vm(lua_State *L, struct mp_vm *vm);

#endif
