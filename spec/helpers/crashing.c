/* crashing.c: preloaded: a comparison of strings in Lua whose left one is "crash:KIND" crashes the thread that
 * compares, in the way KIND. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

static int *volatile nowhere;
static void (*volatile no_function)(void);

/* Uses up the stack. */
static int overflow(volatile int depth)
{
    volatile char room[4096];
    room[depth % 4096] = (char)depth;
    return overflow(depth + 1) + room[0];
}

static void crash(const char *kind)
{
    while (strcmp(kind, "hang") == 0) /* until another program kills the thread */
        poll(NULL, 0, 1000);
    if (strcmp(kind, "null") == 0)
        *nowhere = 1;
    else if (strcmp(kind, "jump") == 0)
        no_function();
    else if (strcmp(kind, "overflow") == 0)
        overflow(0);
    else if (strcmp(kind, "trap") == 0)
        __builtin_trap();
    else if (strcmp(kind, "stack") == 0) { /* nothing can be read where the stack is said to be */
#if defined(__x86_64__)
        __asm__ volatile("mov $64, %rsp\n\tud2");
#elif defined(__aarch64__)
        __asm__ volatile("mov x0, #64\n\tmov sp, x0\n\tudf #0");
#endif
    }
    abort();
}

__attribute__((visibility("default"))) int strcoll(const char *left, const char *right)
{
    static int (*volatile next)(const char *, const char *);
    if (strncmp(left, "crash:", 6) == 0)
        crash(left + 6);
    if (next == NULL) {
        void *found = dlsym(RTLD_NEXT, "strcoll");
        int (*real)(const char *, const char *);
        memcpy(&real, &found, sizeof real);
        next = real;
    }
    return next(left, right);
}
