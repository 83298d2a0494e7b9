/* others_state.h: the structs that the files others*.c share. */
#ifndef MP_ADMIN_OTHERS_STATE_H
#define MP_ADMIN_OTHERS_STATE_H

#include "others.h"
#include "others_left.h"

typedef struct mp_others mp_others;

struct mp_others {
    mp_admin *admin;
    mp_client *client;
    mp_server *MP_NULLABLE door;
    mp_address at; /* address of the socket for other processes */
    int door_fd;   /* its descriptor until a server listens on it; -1: no socket was opened, or it is served already */
    mp_link rounds, streams;
    mp_timer tick;
    unsigned ticks, waiting; /* waiting: requests of /status and /metrics */
    unsigned rows_asked;     /* how often the process before this one was asked for its history */
    mp_others_left left;
    /* this process ends */
    bool has_left; /* its counts are on their way to the newest process */
    mp_transfer *MP_NULLABLE leaving;
    mp_timer leave;
    mp_buf last;
    void (*on_left)(mp_admin *admin);
};

static inline mp_processes *mp_others_processes(const mp_others *all)
{
    return mp_admin_gateway_of(all->admin)->processes;
}

/* implemented in others.c */
mp_others *mp_others_of(mp_admin *admin);
void mp_others_on_tick(mp_timer *timer);

/* implemented in others_door.c */
mp_http_limits mp_others_door_limits(const mp_others *all);

#endif
