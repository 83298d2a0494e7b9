/* map.h: a hash table of intrusive nodes. It owns neither the keys nor the structs that embed the nodes. */
#ifndef MP_BASE_MAP_H
#define MP_BASE_MAP_H

#include "str.h"
#include <stdint.h>

typedef struct mp_node {
    struct mp_node *MP_NULLABLE next;
    mp_str key; /* borrowed: must stay valid while the node is in a map */
    uint64_t hash;
} mp_node;

typedef struct {
    mp_node **slots; /* unset before mp_map_init and after mp_map_clear */
    size_t mask, count;
    uint64_t seed; /* random, so that clients cannot construct hash collisions */
} mp_map;

void mp_map_init(mp_map *map);
/* False before mp_map_init and after mp_map_clear: a map that is not made must not be searched. */
static inline bool mp_map_is_made(const mp_map *map)
{
    return map->mask != 0;
}
void mp_map_clear(mp_map *map);
mp_node *MP_NULLABLE mp_map_find(const mp_map *map, mp_str key);
/* The caller has set `node->key`, and no node with this key is in the map. */
void mp_map_put(mp_map *map, mp_node *node);
/* Returns the struct with this key. If there is none, allocates `size` zeroed bytes, whose first member is the node,
 * with the key copied after them, and sets `*is_new`. */
void *mp_map_need(mp_map *map, mp_str key, size_t size, bool *is_new);
void mp_map_drop(mp_map *map, mp_node *node);

uint64_t mp_hash_fnv(uint64_t seed, mp_str bytes); /* FNV-1a; 0 where nobody gains by equal hashes */
/* Calls `visit` once for each node. `visit` may remove the node that it was given. */
void mp_map_each(mp_map *map, void (*visit)(mp_node *node, void *arg), void *MP_NULLABLE arg);

#endif
