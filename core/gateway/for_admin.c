#include "for_admin.h"
#include "gateway/certificates/certificates.h"
#include "gateway/reload/reload.h"
#include "gateway/upgrade/upgrade.h"
#include "watchdog.h"

static void put_stuck(void *self, mp_buf *out)
{
    const mp_worker_shared *shared = self;
    mp_watchdog_put_stuck(shared->watchdog, out);
}

static void drain_gateway(void *self)
{
    mp_worker_shared *shared = self;
    mp_watchdog_drain(shared->watchdog);
}

static void say_lost(void *self)
{
    const mp_worker_shared *shared = self;
    mp_bus_relay(shared->process_state.bus, MP_STR("lost elsewhere"), MP_STR_NONE);
}

static void describe_stuck(void *self, mp_buf *out)
{
    const mp_worker_shared *shared = self;
    mp_watchdog_describe(shared->watchdog, out);
}

static void describe_reload(void *self, mp_buf *out)
{
    const mp_worker_shared *shared = self;
    mp_reload_describe(shared->reload, out);
}

static void put_reloads(void *self, mp_buf *out)
{
    const mp_worker_shared *shared = self;
    mp_reload_past_put(shared->past, out);
}

static void put_generations(void *self, mp_buf *out)
{
    const mp_worker_shared *shared = self;
    mp_reload_past_put_generations(shared->past, out);
}

static void describe_certificates(void *self, bool with_files, mp_buf *out)
{
    const mp_worker_shared *shared = self;
    if (with_files)
        mp_certificates_describe_all(shared->certificates, out);
    else
        mp_certificates_describe(shared->certificates, out);
}

static void put_metrics(void *self, mp_buf *out)
{
    const mp_worker_shared *shared = self;
    mp_reload_put_metrics(shared->reload, out);
    mp_certificates_put_metrics(shared->certificates, out);
    const mp_nodes *nodes = mp_processes_nodes(shared->processes);
    if (nodes != NULL)
        mp_nodes_put_metrics(nodes, out);
}

static mp_source *source(void *self)
{
    const mp_worker_shared *shared = self;
    return mp_reload_past_source(shared->past);
}

static void ask_reload(void *self, mp_stream *stream)
{
    const mp_worker_shared *shared = self;
    mp_certificates_now(shared->certificates);
    mp_reload_ask(shared->reload, stream);
}

static void ask_upgrade(void *self, mp_stream *stream)
{
    const mp_worker_shared *shared = self;
    mp_upgrade_ask(shared->upgrade, stream);
}

static mp_loop *worker_loop(void *self, int i)
{
    const mp_worker_shared *shared = self;
    return mp_worker_loop(shared->workers[i]);
}

static bool profile_worker(void *self, int i, mp_profile *profile)
{
    const mp_worker_shared *shared = self;
    return mp_worker_profile(shared->workers[i], profile);
}

mp_admin_gateway mp_gateway_for_admin(mp_worker_shared *shared)
{
    return (mp_admin_gateway){.self = shared,
                              .settings = shared->settings,
                              .processes = shared->processes,
                              .table = shared->table,
                              .upstreams = shared->process_state.upstreams,
                              .draining = &shared->draining,
                              .leaving = &shared->leaving,
                              .started_at = shared->started_at,
                              .handed_by = shared->handed_by,
                              .token = shared->admin_token,
                              .worker_count = shared->worker_count,
                              .serve = mp_admin_serve,
                              .door = &mp_admin_own_door,
                              .drain = drain_gateway,
                              .say_lost = say_lost,
                              .put_stuck = put_stuck,
                              .describe_stuck = describe_stuck,
                              .describe_reload = describe_reload,
                              .put_reloads = put_reloads,
                              .put_generations = put_generations,
                              .describe_certificates = describe_certificates,
                              .put_metrics = put_metrics,
                              .source = source,
                              .ask_reload = ask_reload,
                              .ask_upgrade = ask_upgrade,
                              .worker_loop = worker_loop,
                              .profile = profile_worker};
}
