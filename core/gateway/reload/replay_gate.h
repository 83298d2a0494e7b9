/* replay_gate.h: `scripts.reload_check`: a reload waits until the recorded calls were replayed against the scripts on
 * disk, in a process of its own, and is refused where one fails that did not before. Belongs to the main thread;
 * nothing here blocks. */
#ifndef MP_GATEWAY_RELOAD_GATE_H
#define MP_GATEWAY_RELOAD_GATE_H

#include "config/config.h"
#include "data/data.h"

typedef struct mp_gate mp_gate;

typedef enum {
    MP_GATE_OPEN,  /* the reload goes on */
    MP_GATE_WAITS, /* calls are being replayed: ask again when mp_gate_is_running is false */
    MP_GATE_SHUT,  /* the reload is refused */
} mp_gate_state;

mp_gate *mp_gate_new(void);
/* Ends the replay that runs. `gate` may be NULL. */
void mp_gate_free(mp_gate *MP_NULLABLE gate);
/* Decides whether a reload to these scripts may go on. `file`: path of the configuration; NULL: there is none, so that
 * no call can be replayed. With MP_GATE_OPEN and MP_GATE_SHUT `report` gets the result of the replay, as lines for
 * people; the next reload asks again. */
mp_gate_state mp_gate_judge(mp_gate *gate, const mp_config *config, mp_source *source, const char *MP_NULLABLE file,
                            mp_buf *report);
/* A descriptor that is readable when mp_gate_run has work; -1: no replay runs. Shortens `wait_ms` to the end of its
 * time. */
int mp_gate_next(const mp_gate *gate, int *wait_ms, uint64_t now);
/* Reads the output of the replay. True while it runs. */
bool mp_gate_run(mp_gate *gate, uint64_t now);
/* True if a replay has ended, and its reload is to be tried again. */
bool mp_gate_is_due(const mp_gate *gate);
/* Ends the replay that runs, without a result. */
void mp_gate_stop(mp_gate *gate);

#endif
