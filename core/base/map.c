#include "map.h"
#include "buf.h"
#include <stdlib.h>
#include <sys/random.h>

void mp_map_init(mp_map *map)
{
    *map = (mp_map){.mask = 15};
    map->slots = mp_new((map->mask + 1) * sizeof *map->slots);
    if (getrandom(&map->seed, sizeof map->seed, 0) != (ssize_t)sizeof map->seed)
        map->seed = (uint64_t)(uintptr_t)map->slots;
}

void mp_map_clear(mp_map *map)
{
    free(map->slots);
    *map = (mp_map){0};
}

/* FNV-1a with a random start value, followed by a finalizer. */
uint64_t mp_hash_fnv(uint64_t seed, mp_str bytes)
{
    uint64_t hash = seed ^ 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes.len; i++)
        hash = (hash ^ (unsigned char)bytes.ptr[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_of(const mp_map *map, mp_str key)
{
    uint64_t hash = mp_hash_fnv(map->seed, key);
    hash ^= hash >> 32;
    hash *= 0xd6e8feb86659fd93u;
    return hash ^ (hash >> 32);
}

mp_node *MP_NULLABLE mp_map_find(const mp_map *map, mp_str key)
{
    uint64_t hash = hash_of(map, key);
    for (mp_node *node = map->slots[hash & map->mask]; node != NULL; node = node->next)
        if (node->hash == hash && mp_str_eq(node->key, key))
            return node;
    return NULL;
}

static void grow_map(mp_map *map)
{
    size_t mask = map->mask * 2 + 1;
    mp_node **slots = mp_new((mask + 1) * sizeof *slots);
    for (size_t i = 0; i <= map->mask; i++)
        for (mp_node *node = map->slots[i], *next; node != NULL; node = next) {
            next = node->next;
            node->next = slots[node->hash & mask];
            slots[node->hash & mask] = node;
        }
    free(map->slots);
    map->slots = slots;
    map->mask = mask;
}

void mp_map_put(mp_map *map, mp_node *node)
{
    if (map->count > map->mask)
        grow_map(map);
    node->hash = hash_of(map, node->key);
    node->next = map->slots[node->hash & map->mask];
    map->slots[node->hash & map->mask] = node;
    map->count++;
}

void *mp_map_need(mp_map *map, mp_str key, size_t size, bool *is_new)
{
    mp_node *node = mp_map_find(map, key);
    *is_new = node == NULL;
    if (node != NULL)
        return node;
    node = mp_new(size + key.len + 1);
    node->key = (mp_str){(char *)node + size, key.len};
    memcpy((char *)node + size, key.ptr, key.len);
    mp_map_put(map, node);
    return node;
}

void mp_map_drop(mp_map *map, mp_node *node)
{
    for (mp_node **at = &map->slots[node->hash & map->mask]; *at != NULL; at = &(*at)->next)
        if (*at == node) {
            *at = node->next;
            node->next = NULL;
            map->count--;
            return;
        }
}

void mp_map_each(mp_map *map, void (*visit)(mp_node *node, void *arg), void *MP_NULLABLE arg)
{
    for (size_t i = 0; map->count > 0 && i <= map->mask; i++)
        for (mp_node *node = map->slots[i], *next; node != NULL; node = next) {
            next = node->next;
            visit(node, arg);
        }
}
