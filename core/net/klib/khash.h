/* khash.h: the part of klib's hash map that h2o/http2_internal.h needs. libh2o makes and changes the maps; this file
 * only reads them, in klib's layout: two bits of flags for each bucket (1: deleted, 2: empty), quadratic probing. */
#ifndef MP_NET_KHASH_H
#define MP_NET_KHASH_H

#include <stdbool.h>
#include <stdint.h>

typedef uint32_t khiter_t;

#define khash_t(name) kh_##name##_t
#define kh_end(map) ((map)->n_buckets)
#define kh_size(map) ((map)->size)
#define kh_val(map, at) ((map)->vals[at])
#define kh_exist(map, at) (((map)->flags[(at) >> 4] >> (((at) & 15) << 1) & 3) == 0)
#define kh_get(name, map, key) kh_get_##name(map, key)

#define KHASH_MAP_INIT_INT64(name, value)                                                                              \
    typedef struct {                                                                                                   \
        uint32_t n_buckets, size, n_occupied, upper_bound;                                                             \
        uint32_t *flags;                                                                                               \
        uint64_t *keys;                                                                                                \
        value *vals;                                                                                                   \
    } kh_##name##_t;                                                                                                   \
    static inline khiter_t kh_get_##name(const kh_##name##_t *map, uint64_t key)                                       \
    {                                                                                                                  \
        uint32_t mask = map->n_buckets - 1, at = (uint32_t)(key >> 33 ^ key ^ key << 11) & mask, first = at;           \
        for (uint32_t step = 1; map->n_buckets > 0; step++) {                                                          \
            uint32_t flags = map->flags[at >> 4] >> ((at & 15) << 1) & 3;                                              \
            if ((flags & 2) != 0)                                                                                      \
                break;                                                                                                 \
            if (flags == 0 && map->keys[at] == key)                                                                    \
                return at;                                                                                             \
            at = (at + step) & mask;                                                                                   \
            if (at == first)                                                                                           \
                break;                                                                                                 \
        }                                                                                                              \
        return map->n_buckets;                                                                                         \
    }

#endif
