/* troubles.h: a counter for each event of troubles.def, whatever log.level is. */
#ifndef MP_TELEMETRY_TROUBLES_H
#define MP_TELEMETRY_TROUBLES_H

/* Counts the event if it is one of the list. On any thread. */
void mp_trouble_count(const char *event);

#endif
