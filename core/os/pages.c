/* pages.c: regions of 1 MiB, each cut into blocks of the same number of pages. The bookkeeping of a region is outside
 * of it, so that a page that no block uses need not be resident. */
#include "pages.h"
#include "base/base.h"
#include <sys/mman.h>

MP_GAUGE(page_bytes, "page_bytes", "", "",
         "bytes of the pools of requests, inputs of connections and slabs, in use or free, that may be resident")

#define REGION_BYTES ((size_t)1 << 20)
#define REGION_PAGES (REGION_BYTES / MP_PAGE)
#define WORD_BITS 64
#define WORDS (REGION_PAGES / WORD_BITS)
#define LOCKED_PAGES 128 /* pages that are returned before other threads may take the lock */

typedef struct {
    mp_link link; /* in `roomy` of its size, while a block is free */
    char *base;
    size_t pages;          /* pages of each block */
    size_t blocks;         /* blocks in the region */
    size_t free, dirty;    /* blocks that are free; of these, blocks that may be resident */
    uint64_t used[WORDS];  /* one bit for each block */
    uint64_t stale[WORDS]; /* one bit for each block that is free and may be resident */
} region;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all that follows */
static region **regions;                                 /* sorted by address */
static size_t region_count, region_capacity;
static mp_link roomy[MP_PAGES_MAX] = {
    {&roomy[0], &roomy[0]}, {&roomy[1], &roomy[1]}, {&roomy[2], &roomy[2]}, {&roomy[3], &roomy[3]}};

/* The position of the first region whose base is not below `base`. */
static size_t position_of(const char *base)
{
    size_t low = 0, high = region_count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (regions[middle]->base < base)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static char *MP_NULLABLE map_region(void)
{
    char *found = mmap(NULL, 2 * REGION_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        return NULL;
    size_t before = (REGION_BYTES - (uintptr_t)found % REGION_BYTES) % REGION_BYTES;
    if (before > 0)
        munmap(found, before);
    munmap(found + before + REGION_BYTES, REGION_BYTES - before);
    madvise(found + before, REGION_BYTES, MADV_NOHUGEPAGE); /* a huge page would make all blocks around one resident */
    return found + before;
}

static region *MP_NULLABLE add_region(size_t pages)
{
    char *base = map_region();
    if (base == NULL)
        return NULL;
    region *added = mp_new(sizeof *added);
    *added = (region){.base = base, .pages = pages, .blocks = REGION_PAGES / pages, .free = REGION_PAGES / pages};
    mp_link_put(&roomy[pages - 1], &added->link);
    if (region_count == region_capacity) {
        region_capacity = region_capacity == 0 ? 16 : 2 * region_capacity;
        regions = mp_resize(regions, region_capacity * sizeof(region *));
    }
    size_t at = position_of(base);
    memmove(regions + at + 1, regions + at, (region_count - at) * sizeof(region *));
    regions[at] = added;
    region_count++;
    return added;
}

static void drop_region(region *dropped)
{
    size_t at = position_of(dropped->base);
    region_count--;
    memmove(regions + at, regions + at + 1, (region_count - at) * sizeof(region *));
    mp_link_drop(&dropped->link);
    munmap(dropped->base, REGION_BYTES);
    mp_stat_add(&mp_stat_page_bytes, -(int64_t)(dropped->dirty * dropped->pages * MP_PAGE));
    free(dropped);
}

static bool has_bit(const uint64_t *bits, size_t at)
{
    return (bits[at / WORD_BITS] >> at % WORD_BITS & 1) != 0;
}

static void flip_bit(uint64_t *bits, size_t at)
{
    bits[at / WORD_BITS] ^= (uint64_t)1 << at % WORD_BITS;
}

/* Chooses a free block of a region, a resident one if possible. */
static size_t choose(const region *from)
{
    for (size_t i = 0; from->dirty > 0 && i < WORDS; i++)
        if (from->stale[i] != 0)
            return i * WORD_BITS + (size_t)__builtin_ctzll(from->stale[i]);
    for (size_t i = 0; i < WORDS; i++)
        if (~from->used[i] != 0)
            return i * WORD_BITS + (size_t)__builtin_ctzll(~from->used[i]);
    abort();
}

void *MP_NULLABLE mp_pages_take(size_t count)
{
    MP_LOCKED(&lock);
    region *from =
        mp_link_is_alone(&roomy[count - 1]) ? add_region(count) : mp_container(roomy[count - 1].next, region, link);
    if (from == NULL)
        return NULL;
    size_t at = choose(from);
    flip_bit(from->used, at);
    if (has_bit(from->stale, at)) {
        flip_bit(from->stale, at);
        from->dirty--;
    } else {
        mp_stat_add(&mp_stat_page_bytes, (int64_t)(count * MP_PAGE));
    }
    if (--from->free == 0)
        mp_link_drop(&from->link);
    return from->base + at * count * MP_PAGE;
}

/* True if a region of this one's size has a free block, too. */
static bool has_other_room(const region *of)
{
    const mp_link *list = &roomy[of->pages - 1];
    return list->next != &of->link || of->link.next != list;
}

bool mp_pages_give(void *block)
{
    char *base = (char *)block - (uintptr_t)block % REGION_BYTES;
    MP_LOCKED(&lock);
    size_t position = position_of(base);
    region *from = position < region_count && regions[position]->base == base ? regions[position] : NULL;
    if (from != NULL) {
        size_t at = (size_t)((char *)block - base) / (from->pages * MP_PAGE);
        flip_bit(from->used, at);
        flip_bit(from->stale, at);
        from->dirty++;
        if (from->free++ == 0)
            mp_link_put(mp_link_first(&roomy[from->pages - 1]),
                        &from->link); /* in front: regions that are nearly full fill up first */
    }
    return from != NULL;
}

/* Returns the region's free blocks, from `*at` on; `*left` says how many pages may go. */
static void return_blocks(region *from, size_t *at, size_t *left)
{
    while (*at < from->blocks && from->dirty > 0 && *left > 0) {
        size_t end = *at;
        while (end < from->blocks && has_bit(from->stale, end) && (end - *at) * from->pages < *left)
            flip_bit(from->stale, end++);
        if (end > *at) {
            size_t pages = (end - *at) * from->pages;
            madvise(from->base + *at * from->pages * MP_PAGE, pages * MP_PAGE, MADV_DONTNEED);
            from->dirty -= end - *at;
            *left -= pages < *left ? pages : *left;
            mp_stat_add(&mp_stat_page_bytes, -(int64_t)(pages * MP_PAGE));
        }
        *at = end == *at ? end + 1 : end;
    }
}

/* Returns some pages under the lock, and regions of which none is used or resident: a region that is used once in a
 * turn must not be made anew in each turn. False if there are none. */
static bool return_some(size_t *left)
{
    size_t part = *left < LOCKED_PAGES ? *left : LOCKED_PAGES, rest = part;
    pthread_mutex_lock(&lock);
    for (size_t size = 0; size < MP_PAGES_MAX; size++)
        MP_EACH(region, from, &roomy[size], link) {
            size_t at = 0;
            if (rest == 0)
                break;
            return_blocks(from, &at, &rest);
            if (from->free == from->blocks && from->dirty == 0 && has_other_room(from))
                drop_region(from);
        }
    pthread_mutex_unlock(&lock);
    *left -= part - rest;
    return rest == 0;
}

bool mp_pages_return(size_t most)
{
    while (most > 0)
        if (!return_some(&most))
            return false;
    return true;
}
