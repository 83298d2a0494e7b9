/* terminal.h: lines on stdout for a person who watches reloads. */
#ifndef MP_GATEWAY_TERMINAL_H
#define MP_GATEWAY_TERMINAL_H

#include "telemetry/telemetry.h"

/* Prints the time of day and `text`. Never blocks: what stdout does not accept at once is dropped. */
void mp_terminal_print(mp_str text);

#endif
