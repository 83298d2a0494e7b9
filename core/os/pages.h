/* pages.h: memory in whole pages, which goes back to the system page by page.
 *
 * Two thirds of a quiet stream's memory are two blocks that libh2o makes: the pool of a request (4 KB) and the input of
 * a connection (8 KB). From malloc each of them would lie between small blocks that live longer, so that the memory of
 * clients that have left would be many small gaps, and returning it would take longer the more gaps there are. These
 * blocks lie in regions of 1 MiB that hold nothing else (net/server/h2o_blocks.c). */
#ifndef MP_OS_PAGES_H
#define MP_OS_PAGES_H

#include "telemetry/telemetry.h"

#define MP_PAGE 4096
#define MP_PAGES_MAX 4 /* pages of the largest block */

/* `count` pages, at most MP_PAGES_MAX, of any content; NULL if there is no memory. From any thread. */
void *MP_NULLABLE mp_pages_take(size_t count);
/* Frees a block of mp_pages_take, which stays resident for the next one that needs it. False if `block` is no such
 * block. From any thread. */
bool mp_pages_give(void *block);
/* Returns to the system about `most` pages that were used and are free. True if more are left. From any thread. */
bool mp_pages_return(size_t most);

#endif
