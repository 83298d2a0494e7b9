/* phase.h: which part of the work a thread does, for the profiler. Setting it is one store, so it is always set. A
 * thread reads only its own phase, in the profiler's signal handler. Lua code has the phase HANDLER; the profiler finds
 * its policies and checks by their frames. */
#ifndef MP_TELEMETRY_PHASE_H
#define MP_TELEMETRY_PHASE_H

typedef enum {
    MP_PHASE_READ, /* the event loop, HTTP and TLS; everything that is no other phase */
    MP_PHASE_DECODE,
    MP_PHASE_AUTH,
    MP_PHASE_POLICY,
    MP_PHASE_VALIDATE,
    MP_PHASE_HANDLER,
    MP_PHASE_ENCODE,
    MP_PHASE_WRITE,
    MP_PHASE_GC,
    MP_PHASES
} mp_phase;

extern __thread volatile unsigned char mp_phase_here;

static inline void mp_phase_set(mp_phase now)
{
    mp_phase_here = (unsigned char)now;
}

#endif
