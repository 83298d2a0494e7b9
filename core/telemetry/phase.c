/* phase.c: the phase of each thread. */
#include "phase.h"

__thread volatile unsigned char mp_phase_here;
