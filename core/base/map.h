/* map.h: a hash table of things that bring their own node. Owns neither keys nor things. */
#ifndef MP_BASE_MAP_H
#define MP_BASE_MAP_H

#include "str.h"
#include <stdint.h>

typedef struct mp_node {
    struct mp_node *next;
    mp_str key; /* borrowed: lives as long as the node is in a map */
    uint64_t hash;
} mp_node;

typedef struct {
    mp_node **slots;
    size_t mask, count;
    uint64_t seed; /* from the kernel, so that clients cannot choose collisions */
} mp_map;

void mp_map_init(mp_map *map);
void mp_map_clear(mp_map *map);
mp_node *mp_map_find(const mp_map *map, mp_str key);
/* `node->key` is set by the caller; it must not be in the map yet. */
void mp_map_put(mp_map *map, mp_node *node);
/* The thing of `key`; or a new one, zeroed, of `size` bytes, which begins with its node and has the key behind. */
void *mp_map_need(mp_map *map, mp_str key, size_t size, bool *is_new);
void mp_map_drop(mp_map *map, mp_node *node);

/* Calls `visit` once per node; it may drop the node it was given. */
void mp_map_each(mp_map *map, void (*visit)(mp_node *node, void *arg), void *arg);

#endif
