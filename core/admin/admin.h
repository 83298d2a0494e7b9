/* admin.h: the admin listener. Its own thread serves it and runs no Lua, so it answers even while workers are stuck. */
#ifndef MP_ADMIN_H
#define MP_ADMIN_H

#include "access.h"
#include "codes.h"
#include <stdatomic.h>

typedef struct mp_admin mp_admin;

/* The gateway around the listener: facts about it, and functions of it that the listener calls. */
typedef struct {
    void *self; /* the first argument of the functions, which outlives the listener */
    mp_runtime_config *settings;
    mp_processes *processes;
    mp_session_table *table;
    mp_upstreams *upstreams;
    const atomic_bool *draining, *leaving;
    uint64_t started_at; /* start of the gateway, in monotonic ms */
    uint16_t handed_by;  /* the number of the process before this one; 0: there was none */
    int token;           /* the memory file of that process's token, which is used instead of a new one; -1: none */
    int worker_count;
    void (*serve)(void *admin, mp_stream *stream); /* set to mp_admin_serve */
    const struct mp_admin_door *door;              /* mp_admin_own_door */
    /* append a sentence for each stuck thread, or a JSON array of them */
    void (*put_stuck)(void *self, mp_buf *out);
    void (*describe_stuck)(void *self, mp_buf *out);
    /* append JSON: the last reload, the last ones, the earlier generations that still finish calls, the certificates */
    void (*describe_reload)(void *self, mp_buf *out);
    void (*put_reloads)(void *self, mp_buf *out);
    void (*put_generations)(void *self, mp_buf *out);
    void (*describe_certificates)(void *self, bool with_files, mp_buf *out);
    /* appends reloads and certificates in Prometheus's text format */
    void (*put_metrics)(void *self, mp_buf *out);
    mp_source *(*source)(void *self); /* a reference to the files that serve */
    /* request a reload of everything, or an upgrade; they answer `stream` when it is done */
    void (*ask_reload)(void *self, mp_stream *stream);
    void (*ask_upgrade)(void *self, mp_stream *stream);
    void (*drain)(void *self);    /* set to mp_watchdog_drain */
    void (*say_lost)(void *self); /* asks the other processes to read from the store the changes that they missed */
    /* worker `i`, from 0; `profile` on its thread: mp_worker_profile */
    mp_loop *(*worker_loop)(void *self, int i);
    bool (*profile)(void *self, int i, mp_profile *profile);
} mp_admin_gateway;

/* Copies `gateway`. Takes ownership of the descriptors, all of sockets for the address `at`, if it succeeds. `tls`
 * NULL: no TLS. */
mp_admin *MP_NULLABLE mp_admin_new(const mp_admin_gateway *gateway, const int *fds, int count,
                                   mp_tls_slot *MP_NULLABLE tls, const mp_address *at, mp_err *err);
int mp_admin_start(mp_admin *admin, mp_err *err);
/* Stops the thread and frees the listener. `admin` may be NULL. */
void mp_admin_free(mp_admin *MP_NULLABLE admin);

/* -- any thread -- */

/* Ends a profile that runs, before the workers that it measures end. */
void mp_admin_stop_profile(mp_admin *admin);
/* Stops listening; requests in flight are answered. Call it when the workers have ended. */
void mp_admin_drain(mp_admin *admin);
/* `used` runs once the thread uses `settings`, or has ended; on the admin thread or on the caller's. The caller keeps a
 * reference to `settings` until then. */
void mp_admin_configure(mp_admin *admin, mp_runtime_config *settings, void (*used)(void *ctx), void *ctx);
mp_loop *mp_admin_loop(mp_admin *admin);
/* Opens the socket at which this process answers to the others of its gateway (others.h), once there is a folder for
 * it: at the first upgrade, and at the start of a process that an upgrade has begun. */
int mp_admin_open_door(mp_admin *admin, mp_err *err);
/* Like mp_server_sockets, for the admin listener. */
int mp_admin_sockets(mp_admin *admin, int *fds, int most);

/* At an upgrade: accepts no connections, since another process does, or accepts again. */
void mp_admin_hold(mp_admin *admin, bool is_held);
/* At an upgrade: another process has the listener from now on, its sockets and its token; requests in flight are
 * answered. */
void mp_admin_leave(mp_admin *admin);
/* A descriptor of the own token's memory file, for the process that takes the listener over; -1: there is none. The
 * caller closes it. */
int mp_admin_token_fd(mp_admin *admin);

/* Hands the dashboard's logins to the process that takes the listener over, as hashes: mp_admin_codes_hand. */
void mp_admin_hand_logins(mp_admin *admin, void (*send)(void *ctx, mp_str text), void *ctx);
/* Takes the text that mp_admin_hand_logins of the process before this one has made. */
void mp_admin_take_logins(mp_admin *admin, mp_str text);

/* -- functions for the admin thread ----- */

const mp_runtime_config *mp_admin_settings(const mp_admin *admin);
const mp_admin_gateway *mp_admin_gateway_of(const mp_admin *admin);
mp_admin_access *mp_admin_access_of(mp_admin *admin);
struct mp_admin_api *mp_admin_api_of(mp_admin *admin);
struct mp_admin_live *mp_admin_live_of(mp_admin *admin);
struct mp_admin_taps *mp_admin_taps_of(mp_admin *admin);
struct mp_admin_profile *mp_admin_profile_of(mp_admin *admin);
struct mp_admin_query_slots *mp_admin_query_slots_of(mp_admin *admin);
/* An object that the listener has once: made when it is first used, notified of each new configuration, and freed after
 * the thread has ended and before its loop and the workers are. */
typedef struct {
    void *(*make)(mp_admin *admin);
    void (*configure)(void *part);
    void (*free)(void *part);
} mp_admin_part;
void *mp_admin_part_of(mp_admin *admin, const mp_admin_part *kind);
struct mp_metrics *mp_admin_metrics(mp_admin *admin);
const struct mp_readiness *mp_admin_readiness(const mp_admin *admin);
struct mp_conditions *mp_admin_conditions(mp_admin *admin);
/* admin.c: answers one request; `ctx` is the mp_admin. */
void mp_admin_serve(void *ctx, mp_stream *stream);
/* The functions of the files that answer requests, for others.h, which those files include. */
typedef struct mp_admin_door {
    void (*serve)(void *ctx,
                  mp_stream *stream); /* answers a request of a process of this gateway; `ctx` is the mp_admin */
    /* append what GET /status and GET /metrics answer for this process alone */
    void (*put_status)(mp_admin *admin, mp_buf *out);
    void (*put_metrics)(mp_admin *admin, mp_buf *out);
    void (*leave)(mp_admin *admin, void (*left)(mp_admin *admin)); /* set to mp_others_leave */
} mp_admin_door;
extern const mp_admin_door mp_admin_own_door; /* admin.c */

#endif
