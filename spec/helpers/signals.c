/* ThreadSanitizer's build alone: lets the signals through that ThreadSanitizer keeps back. It delivers those of a
 * thread when the thread calls one of the functions that it watches, and Lua code that only computes calls none. Lua
 * and our own C are compiled with -fsanitize-coverage=trace-pc, and call this function from each part of theirs. */
#include <string.h>

#define PARTS_BETWEEN 1024 /* a watched call costs as much as some hundred parts */

static size_t (*volatile const watched)(const char *) = strlen; /* volatile: the compiler must not replace the call */

void __sanitizer_cov_trace_pc(void);

__attribute__((no_sanitize_coverage)) void __sanitizer_cov_trace_pc(void)
{
    static __thread unsigned parts;
    if (++parts % PARTS_BETWEEN == 0) {
        (void)watched("");
    }
}
