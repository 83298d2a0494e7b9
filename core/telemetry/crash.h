/* crash.h: one line of the log about a crash: SIGSEGV, SIGBUS, SIGILL, SIGFPE or SIGABRT. Then the process ends by that
 * signal, with a core file where the system keeps them. The line is written by the thread that crashes, from the
 * signal's handler: nothing there is locked or allocated.
 *
 *   crashed signal=11 why=SIGSEGV code=1 address=0x18 thread="worker 2" version=1.0.0 build=9f3c… pc=0x4d3f1
 *   method=tools/call call=4f21… name=add at=tools/add.lua:3 frames="0x4a0c2 libc.so.6+0x9a1c"
 *
 * A place in code is an offset in the binary, or NAME+OFFSET in a library. The places in `frames` are calls, innermost
 * first. */
#ifndef MP_TELEMETRY_CRASH_H
#define MP_TELEMETRY_CRASH_H

#include "base/base.h"

/* The line is written from now on, and the calling thread is called "main". A signal that has a handler already keeps
 * it: the sanitizers report in their own way. Before threads start. */
void mp_crash_start(void);
/* The first call of a thread: names it "NAME NUMBER", or NAME for number 0, in the line and for tools such as top, and
 * gives it a stack for the handler, since its own may have overflowed. `name`: a literal. */
void mp_crash_thread(const char *name, int number);

/* Sets the function that reports the work of the calling thread by mp_crash_put and mp_crash_put_place. It runs in the
 * handler, and need not be careful with memory: if it crashes, the fields before stay in the line. Call it before
 * threads start. */
void mp_crash_set_work(void (*put)(void));
/* Adds a field. `text` is cut at 128 bytes; bytes other than plain ASCII become '?'. */
void mp_crash_put(const char *key, mp_str text);
/* Adds a field FILE:LINE. */
void mp_crash_put_place(const char *key, mp_str file, int line);

#endif
