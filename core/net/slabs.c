/* slabs.c: small blocks that may live longer than the connection for which they were made, such as those of a session. Between the blocks
 * of connections in malloc's memory each of them would keep the gaps around it apart. So they lie in slabs: blocks of
 * pages.c that are cut into pieces of one size. */
#include "pages.h"
#include "base/base.h"
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define STEP 16
#define CLASSES 32 /* sizes of pieces: 16, 32, … 512 */
#define SLAB_BYTES (MP_PAGES_MAX * MP_PAGE)

typedef struct piece {
    struct piece *next;
} piece;

/* At the begin of each slab, whose address is a multiple of SLAB_BYTES. */
typedef struct {
    mp_link link; /* in `roomy`, while a piece is free */
    piece *free;
    size_t used, fresh; /* pieces in use, and pieces that were never used */
} slab;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards the slabs */
static mp_link roomy[CLASSES];                           /* zeroed before the first slab of this size */

static size_t class_of(size_t size)
{
    return (size - 1) / STEP;
}

static bool is_small(size_t size)
{
#ifdef __SANITIZE_ADDRESS__ /* which must see every block */
    (void)size;
    return false;
#else
    return size > 0 && size <= STEP * CLASSES;
#endif
}

static slab *add_slab(size_t class)
{
    slab *added = mp_pages_take(MP_PAGES_MAX);
    if (added == NULL)
        abort(); /* as mp_new */
    *added = (slab){.fresh = (SLAB_BYTES - sizeof *added) / ((class + 1) * STEP)};
    mp_link_init(&added->link);
    mp_link_put(&roomy[class], &added->link);
    return added;
}

void *mp_slab_new(size_t size)
{
    if (!is_small(size))
        return mp_new(size);
    size_t class = class_of(size);
    pthread_mutex_lock(&lock);
    if (roomy[class].next == NULL)
        mp_link_init(&roomy[class]);
    slab *from = mp_link_is_alone(&roomy[class]) ? add_slab(class) : mp_container(roomy[class].next, slab, link);
    void *found = from->free;
    if (found != NULL)
        from->free = from->free->next;
    else
        found = (char *)from + SLAB_BYTES - from->fresh-- * (class + 1) * STEP;
    from->used++;
    if (from->free == NULL && from->fresh == 0)
        mp_link_drop(&from->link);
    pthread_mutex_unlock(&lock);
    return memset(found, 0, size);
}

void mp_slab_free(void *block, size_t size)
{
    if (block == NULL || !is_small(size)) {
        free(block);
        return;
    }
    slab *from = (slab *)(void *)((char *)block - (uintptr_t)block % SLAB_BYTES);
    pthread_mutex_lock(&lock);
    if (from->free == NULL && from->fresh == 0)
        mp_link_put(roomy[class_of(size)].next, &from->link); /* in front: slabs that are nearly full fill up first */
    piece *freed = block;
    freed->next = from->free;
    from->free = freed;
    if (--from->used == 0) {
        mp_link_drop(&from->link);
        mp_pages_give(from);
    }
    pthread_mutex_unlock(&lock);
}
