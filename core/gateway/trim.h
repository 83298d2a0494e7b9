/* trim.h: returns freed memory to the system. glibc keeps freed memory in the arenas of the threads, so a gateway
 * that once served many clients would hold it indefinitely. */
#ifndef MP_GATEWAY_TRIM_H
#define MP_GATEWAY_TRIM_H

#include <stdint.h>

typedef struct {
    /* resident bytes of the process after the last trim, and the estimate of the bytes in use then */
    int64_t resident, used;
    int64_t last;       /* the estimate at the last check */
    uint64_t looked_at; /* milliseconds of CLOCK_MONOTONIC */
} mp_trim;

#define MP_TRIM_EVERY_MS 1000

/* Call it at least every MP_TRIM_EVERY_MS, on a thread that serves no clients. */
void mp_trim_look(mp_trim *trim, uint64_t now_ms);

#endif
