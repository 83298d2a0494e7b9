/* slabs.h: small blocks in memory of their own, which goes back to the system page by page (slabs.c). Part of
 * the public header os.h. */
#ifndef MP_OS_SLABS_H
#define MP_OS_SLABS_H

#include "base/base.h"

#define MP_SLAB_MAX 2048 /* bytes of the largest block */
#define MP_SLAB_CLASSES 44

/* The blocks of one owner, such as a Lua state, which one thread at a time uses. Zeroed memory has no blocks. */
typedef struct {
    mp_link roomy[MP_SLAB_CLASSES]; /* slabs that have free pieces, by the size of their pieces */
} mp_slabs;

/* A block of 1 to MP_SLAB_MAX bytes, of any content; NULL if there is no memory. */
void *MP_NULLABLE mp_slabs_take(mp_slabs *slabs, size_t size);
/* Frees a block of mp_slabs_take of this size. */
void mp_slabs_give(mp_slabs *slabs, void *block, size_t size);
/* Returns free memory that was kept for the next blocks. If all blocks of an owner are freed, nothing is left after
 * this. */
void mp_slabs_return(mp_slabs *slabs);

/* A zeroed block that may live longer than the connection for which it is made, apart from the blocks of connections.
 * From any thread. */
void *mp_slab_new(size_t size);
/* Frees a block of mp_slab_new of this size; NULL is allowed. From any thread. */
void mp_slab_free(void *MP_NULLABLE block, size_t size);

#endif
