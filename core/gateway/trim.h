/* trim.h: returns freed memory to the system. glibc keeps freed memory in the arenas of the threads, so a gateway
 * that once served many clients would hold it indefinitely. */
#ifndef MP_GATEWAY_TRIM_H
#define MP_GATEWAY_TRIM_H

#include "net/net.h"
#include "rpc/rpc.h"
#include "vm/vm.h"
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

/* Returns the memory of many clients of one worker that have left: a part at once while they leave, the remainder when
 * no client has left for a moment. The garbage of many clients that arrive, and of large calls, is returned
 * likewise. On the worker's thread. */
typedef struct {
    mp_timer timer;
    mp_loop *loop;
    mp_server *server;
    mp_rpc *rpc;
    mp_vm *vm;               /* the VM of the last turn */
    size_t most, least, now; /* connections: the most and the least since the last trim, and those of the last turn */
    size_t then;             /* connections when the timer was started */
    uint64_t begun_then;     /* tasks that had begun when the timer was started */
    bool full_return_due;    /* connections have closed since all free memory was last returned */
    size_t held;             /* bytes that the VM held at most since the last trim, while it returns memory */
    bool is_returning; /* all memory is being returned: first the VM's, then free pages, then free memory of arenas */
} mp_departures;

/* Call it in each turn, behind the VM's. True if it has more to do in the next turn. `loop`, `server` and `rpc` are
 * those of the worker. */
bool mp_departures_turn(mp_departures *departures, mp_vm *vm);

#endif
