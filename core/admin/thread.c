/* thread.c: the thread of the admin listener, with its loop and server. */
#include "conditions.h"
#include "admin.h"
#include "api.h"
#include "codes.h"
#include "event_feed.h"
#include "query_slots.h"
#include "profile.h"
#include "tap.h"
#include "metrics.h"
#include <unistd.h>

/* additional connections above limits.connections, so that an operator can connect to a full gateway */
#define RESERVE 16

/* connections of the admin listener; all further ones of limits.connections are for clients */
#define MAX_CONNECTIONS MP_LIMIT(admin_connections, 256)
#define SAMPLE_MS 1000 /* ms between two samples of the use of limits */
#define MAX_PARTS 4    /* kinds of mp_admin_part */

struct mp_admin {
    mp_admin_gateway gateway;
    mp_runtime_config *settings;
    mp_loop *loop;
    mp_server *server;
    mp_metrics *metrics;
    mp_readiness readiness;
    mp_conditions conditions;
    mp_timer sampling; /* of `readiness` and `conditions` */
    mp_admin_access *access;
    mp_admin_api *api;
    mp_admin_taps *taps;
    mp_admin_live *live;
    mp_admin_profile *profile;
    mp_admin_query_slots places;
    struct {
        const mp_admin_part *kind;
        void *it;
    } parts[MAX_PARTS];
    pthread_t thread;
    bool has_thread;
};

static void take_sample(mp_timer *timer)
{
    mp_admin *admin = mp_container(timer, mp_admin, sampling);
    mp_readiness_sample(&admin->readiness, admin->settings);
    mp_conditions_sample(&admin->conditions, &admin->readiness);
    mp_timer_start(admin->loop, timer, SAMPLE_MS, take_sample);
}

static int listen_on(mp_admin *admin, const int *fds, int count, mp_tls_slot *MP_NULLABLE tls, mp_err *err)
{
    const mp_endpoint endpoint = {.on_request = admin->gateway.serve,
                                  .ctx = admin,
                                  .reserve = RESERVE,
                                  .tls = tls,
                                  .most = MAX_CONNECTIONS,
                                  .is_shared = true};
    int failed = 0;
    for (int i = 0; i < count && failed == 0; i++)
        failed = mp_server_listen(admin->server, fds[i], &endpoint, err);
    return failed;
}

mp_admin *MP_NULLABLE mp_admin_new(const mp_admin_gateway *gateway, const int *fds, int count,
                                   mp_tls_slot *MP_NULLABLE tls, const mp_address *at, mp_err *err)
{
    mp_loop *loop = mp_loop_new(err);
    if (loop == NULL)
        return NULL;
    mp_admin *admin = mp_new(sizeof *admin);
    admin->gateway = *gateway;
    admin->settings = mp_runtime_config_ref(gateway->settings);
    admin->readiness.places = mp_processes_places(gateway->processes);
    admin->readiness.nodes = mp_processes_nodes(gateway->processes);
    admin->metrics = mp_metrics_new();
    admin->access = mp_admin_access_new(admin->settings->config, at, gateway->token);
    admin->api = mp_admin_api_new();
    admin->taps = mp_admin_taps_new(admin);
    admin->profile = mp_admin_profile_new(&admin->gateway, admin->access);
    admin->loop = loop;
    admin->live = mp_admin_live_new(loop);
    mp_server *server = mp_server_new(loop, &admin->settings->http, err);
    if (server != NULL) {
        admin->server = server;
        if (listen_on(admin, fds, count, tls, err) == 0)
            return admin;
    }
    mp_admin_free(admin);
    return NULL;
}

int mp_admin_sockets(mp_admin *admin, int *fds, int most)
{
    return mp_server_sockets(admin->server, 0, fds, most);
}

static void *MP_NULLABLE run_thread(void *ctx)
{
    mp_admin *admin = ctx;
    mp_crash_thread("admin", 0);
    mp_stat_thread();
    mp_admin_live_start(admin->live);
    take_sample(&admin->sampling);
    mp_loop_run(admin->loop);
    return NULL;
}

int mp_admin_start(mp_admin *admin, mp_err *err)
{
    int code = pthread_create(&admin->thread, NULL, run_thread, admin);
    if (code != 0)
        return mp_err_set(err, "cannot start a thread for the admin listener: %s", strerror(code));
    admin->has_thread = true;
    return 0;
}

static void stop_thread(mp_admin *admin)
{
    mp_admin_profile_await(admin->profile, admin->loop);
}

/* Ends the listener, once the workers have ended. On the admin thread. */
static void end_thread(void *ctx)
{
    mp_admin *admin = ctx;
    admin->gateway.door->leave(admin, stop_thread);
}

void mp_admin_free(mp_admin *MP_NULLABLE admin)
{
    if (admin == NULL)
        return;
    if (admin->has_thread) {
        mp_loop_call(admin->loop, end_thread, admin);
        pthread_join(admin->thread, NULL);
    }
    mp_admin_api_free(admin->api, admin->loop);
    mp_admin_taps_free(admin->taps);
    mp_admin_live_free(admin->live);
    mp_metrics_free(admin->metrics);
    mp_admin_profile_free(admin->profile);
    for (int i = 0; i < MAX_PARTS && admin->parts[i].kind != NULL; i++)
        admin->parts[i].kind->free(admin->parts[i].it);
    mp_server_free(admin->server);
    mp_loop_free(admin->loop);
    mp_admin_access_free(admin->access);
    mp_runtime_config_unref(admin->settings);
    free(admin);
}

/* -- messages from other threads ----------------------------------------------------------------------------------- */

typedef struct {
    mp_admin *admin;
    mp_runtime_config *settings; /* to use from now on */
    void (*used)(void *ctx);
    void *ctx;
} settings_message;

static void on_drained(void *ctx)
{
    (void)ctx; /* the admin thread ends after the workers */
}

static void deliver_settings(void *content, mp_loop *MP_NULLABLE loop)
{
    const settings_message *given = content;
    mp_admin *admin = given->admin;
    if (loop != NULL) {
        mp_runtime_config *before = admin->settings;
        admin->settings = mp_runtime_config_ref(given->settings);
        mp_server_configure(admin->server, &given->settings->http);
        mp_admin_access_configure(admin->access, given->settings->config);
        mp_admin_taps_configure(admin->taps);
        mp_admin_live_configure(admin->live);
        mp_admin_profile_configure(admin->profile);
        for (int i = 0; i < MAX_PARTS && admin->parts[i].kind != NULL; i++)
            admin->parts[i].kind->configure(admin->parts[i].it);
        mp_runtime_config_unref(before);
    }
    given->used(given->ctx);
}

static void stop_profile(void *ctx)
{
    mp_admin *admin = ctx;
    mp_admin_profile_stop(admin->profile);
}

static void drain_thread(void *ctx)
{
    mp_admin *admin = ctx;
    mp_server_drain(admin->server, on_drained, admin);
}

static void leave_listener(void *ctx)
{
    mp_admin *admin = ctx;
    mp_admin_access_leave(admin->access);
}

void mp_admin_hold(mp_admin *admin, bool is_held)
{
    mp_server_hold(admin->server, 0, is_held);
}

void mp_admin_leave(mp_admin *admin)
{
    mp_server_leave(admin->server, false);
    mp_loop_call(admin->loop, leave_listener, admin);
}

int mp_admin_token_fd(mp_admin *admin)
{
    return mp_admin_access_token_fd(admin->access);
}

void mp_admin_hand_logins(mp_admin *admin, void (*send)(void *ctx, mp_str text), void *ctx)
{
    mp_admin_codes_hand(mp_admin_codes_of(admin->access), send, ctx);
}

typedef struct {
    mp_admin *admin;
    size_t len;
    char logins[];
} logins_message;

static void deliver_logins(void *content, mp_loop *MP_NULLABLE loop)
{
    const logins_message *given = content;
    if (loop != NULL)
        mp_admin_access_take_codes(given->admin->access, (mp_str){given->logins, given->len});
}

void mp_admin_take_logins(mp_admin *admin, mp_str text)
{
    const logins_message message = {admin, text.len};
    mp_loop_send(admin->loop, deliver_logins, &message, sizeof message, text);
}

void mp_admin_stop_profile(mp_admin *admin)
{
    mp_loop_call(admin->loop, stop_profile, admin);
}

void mp_admin_drain(mp_admin *admin)
{
    mp_loop_call(admin->loop, drain_thread, admin);
}

void mp_admin_configure(mp_admin *admin, mp_runtime_config *settings, void (*used)(void *ctx), void *ctx)
{
    const settings_message message = {admin, settings, used, ctx};
    mp_loop_send(admin->loop, deliver_settings, &message, sizeof message, MP_STR_NONE);
}

mp_loop *mp_admin_loop(mp_admin *admin)
{
    return admin->loop;
}

const mp_runtime_config *mp_admin_settings(const mp_admin *admin)
{
    return admin->settings;
}

const mp_admin_gateway *mp_admin_gateway_of(const mp_admin *admin)
{
    return &admin->gateway;
}

mp_metrics *mp_admin_metrics(mp_admin *admin)
{
    return admin->metrics;
}

mp_admin_access *mp_admin_access_of(mp_admin *admin)
{
    return admin->access;
}

struct mp_admin_live *mp_admin_live_of(mp_admin *admin)
{
    return admin->live;
}

const mp_readiness *mp_admin_readiness(const mp_admin *admin)
{
    return &admin->readiness;
}

mp_conditions *mp_admin_conditions(mp_admin *admin)
{
    return &admin->conditions;
}

void *mp_admin_part_of(mp_admin *admin, const mp_admin_part *kind)
{
    int i = 0;
    while (admin->parts[i].kind != NULL && admin->parts[i].kind != kind)
        i++;
    if (admin->parts[i].kind == NULL) {
        admin->parts[i].kind = kind;
        admin->parts[i].it = kind->make(admin);
    }
    return admin->parts[i].it;
}

struct mp_admin_query_slots *mp_admin_query_slots_of(mp_admin *admin)
{
    return &admin->places;
}

struct mp_admin_taps *mp_admin_taps_of(mp_admin *admin)
{
    return admin->taps;
}

struct mp_admin_profile *mp_admin_profile_of(mp_admin *admin)
{
    return admin->profile;
}

struct mp_admin_api *mp_admin_api_of(mp_admin *admin)
{
    return admin->api;
}
