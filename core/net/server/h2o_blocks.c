/* h2o_blocks.c: defines h2o_mem_alloc_recycle and h2o_mem_free_recycle in place of libh2o's weak ones
 * (cmake/patches/h2o), for the pools of requests and the inputs of connections. They keep a few blocks of each thread
 * for reuse, as libh2o's do; every other block is of whole pages (os/pages.h), where libh2o would call malloc. */
#include "loop/h2o_abi.h"
#include "os/os.h"

/* The head of a block that is kept for reuse. */
struct st_h2o_mem_recycle_chunk_t {
    struct st_h2o_mem_recycle_chunk_t *next;
};

void *h2o_mem_alloc_recycle(h2o_mem_recycle_t *allocator, size_t size)
{
    if (allocator->cnt > 0) {
        struct st_h2o_mem_recycle_chunk_t *chunk = allocator->_link;
        allocator->_link = chunk->next;
        __builtin_prefetch(chunk->next, 1); /* the block has left the processor's caches if it waited for long */
        allocator->cnt--;
        return chunk;
    }
#ifndef __SANITIZE_ADDRESS__ /* AddressSanitizer must see every block */
    size_t pages = (size + MP_PAGE - 1) / MP_PAGE;
    void *block = size >= MP_PAGE && pages <= MP_PAGES_MAX ? mp_pages_take(pages) : NULL;
    if (block != NULL)
        return block;
#endif
    return h2o_mem_alloc(size);
}

void h2o_mem_free_recycle(h2o_mem_recycle_t *allocator, void *block)
{
    if (allocator->cnt < allocator->max) {
        struct st_h2o_mem_recycle_chunk_t *chunk = block;
        chunk->next = allocator->_link;
        allocator->_link = chunk;
        allocator->cnt++;
    } else if (!mp_pages_give(block)) {
        free(block);
    }
}
