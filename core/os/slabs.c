/* slabs.c: small blocks that lie apart from malloc's memory, where each block that lives long keeps the gaps around it
 * apart: those of sessions, which may live longer than the connection for which they were made, and those of Lua
 * states. They lie in slabs: blocks of pages.c that are cut into pieces of one size. A slab without a piece in use goes
 * back to pages.c. */
#include "slabs.h"
#include "pages.h"

#define STEP 16 /* bytes between the sizes of pieces up to FINE_BYTES: 16, 32, … 256 */
#define FINE_BYTES 256
#define FINE_CLASSES (FINE_BYTES / STEP)
#define WIDE_STEP 64 /* bytes between the sizes above FINE_BYTES: 320, 384, … MP_SLAB_MAX */
#define SLAB_BYTES (MP_PAGES_MAX * MP_PAGE)

_Static_assert(FINE_CLASSES + (MP_SLAB_MAX - FINE_BYTES) / WIDE_STEP == MP_SLAB_CLASSES, "a class for each size");

typedef struct piece {
    struct piece *MP_NULLABLE next;
} piece;

/* At the begin of each slab, whose address is a multiple of SLAB_BYTES. */
typedef struct {
    mp_link link; /* in `roomy`, while a piece is free */
    piece *MP_NULLABLE free;
    size_t used, fresh; /* pieces in use, and pieces that were never used */
} slab;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards `shared` */
static mp_slabs shared;                                  /* the slabs of mp_slab_new */

static inline size_t class_of(size_t size)
{
    return size <= FINE_BYTES ? (size - 1) / STEP : FINE_CLASSES + (size - FINE_BYTES - 1) / WIDE_STEP;
}

static inline size_t size_of(size_t class)
{
    return class < FINE_CLASSES ? (class + 1) * STEP : FINE_BYTES + (class + 1 - FINE_CLASSES) * WIDE_STEP;
}

static bool is_small(MP_UNUSED size_t size)
{
#ifdef __SANITIZE_ADDRESS__ /* AddressSanitizer must see every block */
    return false;
#else
    return size > 0 && size <= MP_SLAB_MAX;
#endif
}

static slab *MP_NULLABLE add_slab(mp_link *roomy, size_t class)
{
    slab *added = mp_pages_take(MP_PAGES_MAX);
    if (added == NULL)
        return NULL;
    *added = (slab){.fresh = (SLAB_BYTES - sizeof *added) / size_of(class)};
    mp_link_put(roomy, &added->link);
    return added;
}

void *MP_NULLABLE mp_slabs_take(mp_slabs *slabs, size_t size)
{
    size_t class = class_of(size);
    mp_link *roomy = &slabs->roomy[class];
    slab *from = mp_link_is_alone(roomy) ? add_slab(roomy, class) : mp_container(roomy->next, slab, link);
    if (from == NULL)
        return NULL;
    void *found = from->free;
    if (found != NULL)
        from->free = from->free->next;
    else
        found = (char *)from + SLAB_BYTES - from->fresh-- * size_of(class);
    from->used++;
    if (from->free == NULL && from->fresh == 0)
        mp_link_drop(&from->link);
    return found;
}

void mp_slabs_give(mp_slabs *slabs, void *block, size_t size)
{
    mp_link *roomy = &slabs->roomy[class_of(size)];
    slab *from = (slab *)(void *)((char *)block - (uintptr_t)block % SLAB_BYTES);
    if (from->free == NULL && from->fresh == 0)
        mp_link_put(mp_link_first(roomy), &from->link); /* in front: slabs that are nearly full fill up first */
    piece *freed = block;
    freed->next = from->free;
    from->free = freed;
    if (--from->used > 0 || (roomy->next == &from->link && roomy->prev == &from->link))
        return; /* the only slab with room is kept for the next block */
    mp_link_drop(&from->link);
    mp_pages_give(from);
}

void mp_slabs_return(mp_slabs *slabs)
{
    for (size_t class = 0; class < MP_SLAB_CLASSES; class ++) {
        mp_link *roomy = &slabs->roomy[class], *link = mp_link_first(roomy);
        while (link != roomy) {
            slab *from = mp_container(link, slab, link);
            link = link->next;
            if (from->used == 0) {
                mp_link_drop(&from->link);
                mp_pages_give(from);
            }
        }
    }
}

void *mp_slab_new(size_t size)
{
    if (!is_small(size))
        return mp_new(size);
    pthread_mutex_lock(&lock);
    void *found = mp_slabs_take(&shared, size);
    pthread_mutex_unlock(&lock);
    if (found == NULL)
        abort(); /* without memory the process ends, as in mp_new */
    return memset(found, 0, size);
}

void mp_slab_free(void *MP_NULLABLE block, size_t size)
{
    if (block == NULL || !is_small(size)) {
        free(block);
        return;
    }
    MP_LOCKED(&lock);
    mp_slabs_give(&shared, block, size);
}
