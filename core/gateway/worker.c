/* worker.c: one worker: its thread, loop, server or pipe, protocol server and VM, from start to end. */
#include "worker.h"
#include "trim.h"
#include <errno.h>
#include <unistd.h>

MP_GAUGE(vms_draining, "vms_draining", "", "", "Lua states of earlier scripts, which finish their calls")

#define HOP_ADDRESS (-1) /* mp_endpoint.address of the listener for other processes */
/* connections of other processes, which limits.connections does not count: each of them may have as many hops as its
 * workers send on at once (MP_HOPS_MOST), and an answer that is not accepted lets requests wait. See the counter
 * refused_hop_connections */
#define HOP_RESERVE 65536
/* earlier versions of the scripts that are kept for running calls */
#define MAX_GENERATIONS MP_LIMIT(generations, 16)
#define CLEANUP_GRACE_MS 100 /* additional time after MP_CLEANUP_MS for handlers that do not wait */

typedef enum { LOADING, LOADED, FAILED, RELEASED, SERVING, UNUSED } state;

/* A draining generation. */
typedef struct {
    mp_link link;
    mp_vm *vm;
    mp_timer deadline;
    int64_t number;
    bool is_over; /* the remaining calls of this generation were cancelled */
} generation;

struct mp_worker {
    mp_worker_shared *shared;
    int number; /* number of the worker, from 0 */
    mp_loop *loop;
    mp_server *server;
    mp_client *client;
    mp_upstream_host *upstreams;
    mp_rpc *rpc;
    mp_vm *vm;                   /* set before the worker serves: by mp_worker_new, or else by the worker's thread */
    mp_runtime_config *settings; /* a reference that belongs to the worker */
    _Atomic(struct delivery *MP_NULLABLE) next; /* the generation to switch to; NULL: none */
    mp_message take; /* on its way to the worker's loop while `next` is set: the worker then switches to it */
    _Atomic int64_t generation_number; /* number of the generation of `vm` */
    mp_link draining;                  /* draining generations, oldest first: they finish the calls that they have */
    int64_t old_count;
    mp_pipe *MP_NULLABLE pipe; /* NULL: the worker serves listeners */
    pthread_t thread;
    bool has_thread;
    bool is_lost;    /* the client on the pipe has disconnected */
    bool is_drained; /* no connection is left; calls without a connection may still run */
    bool is_ending;  /* no call is left: the connections to upstreams are being closed */
    mp_timer deadline;
    pthread_mutex_t lock; /* protects the two members below */
    pthread_cond_t changed;
    state state;
    mp_buf report;
    atomic_bool has_ended;
    mp_where where;
    mp_departures departures;
    mp_server **servers; /* servers of all workers; set in the first worker */
};

mp_worker *MP_NULLABLE mp_worker_new(mp_worker_shared *shared, mp_vm *MP_NULLABLE vm, int number, mp_err *err)
{
    mp_loop *loop = mp_loop_new(err);
    if (loop == NULL) {
        mp_lib_free(vm);
        return NULL;
    }
    mp_worker *worker = mp_new(sizeof *worker);
    worker->shared = shared;
    worker->number = number;
    worker->settings = mp_runtime_config_ref(shared->settings);
    atomic_init(&worker->generation_number, 1);
    if (vm != NULL)
        worker->vm = vm;
    worker->loop = loop;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, NULL);
    mp_server *server = mp_server_new(loop, &worker->settings->http, err);
    if (server == NULL) {
        mp_worker_free(worker);
        return NULL;
    }
    worker->server = server;
    mp_loop_name(loop, (unsigned)number);
    mp_outgoing_limit(worker->settings->outgoing);
    worker->client = mp_client_new(loop, &worker->settings->client);
    worker->upstreams = mp_upstream_host_new(shared->process_state.upstreams, loop, &worker->settings->client);
    return worker;
}

/* The listeners need a handler before the rpc exists, which is made on the worker's thread. */
static void serve_stream(void *ctx, mp_stream *stream)
{
    mp_worker *worker = ctx;
    mp_rpc_serve(worker->rpc, stream);
    mp_phase_set(MP_PHASE_READ);
}

static void serve_hop(void *ctx, mp_stream *stream)
{
    mp_worker *worker = ctx;
    mp_rpc_serve_hop(worker->rpc, stream);
    mp_phase_set(MP_PHASE_READ);
}

/* The endpoint has a pointer into the settings, which use_settings replaces before they are freed. */
int mp_worker_listen(mp_worker *worker, int fd, const mp_endpoint *endpoint, mp_err *err)
{
    mp_endpoint own = *endpoint;
    own.on_request = own.is_inner ? serve_hop : serve_stream;
    own.ctx = worker;
    if (own.is_inner) {
        own.reserve = HOP_RESERVE;
        own.headers = MP_HOP_HEADERS;
    } else {
        own.proxies = worker->settings->proxies[endpoint->proxies_index];
    }
    return mp_server_listen(worker->server, fd, &own, err);
}

typedef struct {
    mp_worker *worker;
    int fd;
} hop_listener_message;

static void listen_hop(void *content, mp_loop *MP_NULLABLE loop)
{
    const hop_listener_message *given = content;
    const mp_endpoint endpoint = {
        .is_inner = true, .address = HOP_ADDRESS, .is_shared = true, .proxies_index = SIZE_MAX};
    mp_err err = {0};
    if (loop == NULL || mp_worker_listen(given->worker, given->fd, &endpoint, &err) != 0)
        close(given->fd);
}

void mp_worker_listen_hop(mp_worker *worker, int fd)
{
    mp_loop_send(worker->loop, listen_hop, &(hop_listener_message){worker, fd}, sizeof(hop_listener_message),
                 MP_STR_NONE);
}

int mp_worker_sockets(mp_worker *worker, int address, int *fds, int most)
{
    return mp_server_sockets(worker->server, address, fds, most);
}

void mp_worker_share(mp_worker *worker, int address)
{
    mp_server_share(worker->server, address);
}

void mp_worker_hold(mp_worker *worker, int address, bool is_held)
{
    mp_server_hold(worker->server, address, is_held);
}

void mp_worker_leave(mp_worker *worker)
{
    mp_server_leave(worker->server, false);
}

static void leave_cluster(void *ctx)
{
    mp_worker *worker = ctx;
    if (!mp_rpc_is_draining(worker->rpc))
        mp_rpc_leave(worker->rpc);
}

void mp_worker_leave_cluster(mp_worker *worker)
{
    mp_server_leave(worker->server, true);
    mp_loop_call(worker->loop, leave_cluster, worker);
}

void mp_workers_balance(mp_worker *const *workers, int count)
{
    mp_server **servers = workers[0]->servers = mp_new((size_t)count * sizeof(mp_server *));
    for (int i = 0; i < count; i++)
        servers[i] = workers[i]->server;
    for (int i = 0; i < count; i++)
        mp_server_balance(workers[i]->server, servers, (size_t)count);
}

int mp_worker_serve_pipe(mp_worker *worker, int in, int out, mp_err *err)
{
    const mp_config *config = worker->settings->config;
    worker->pipe = mp_pipe_new(worker->loop, in, out, config->http.body, config->http.stream_queue, err);
    return worker->pipe == NULL ? -1 : 0;
}

/* Freeing a large Lua state takes time, so the main thread does it. */
static void free_generation(mp_worker *worker, generation *before)
{
    mp_timer_stop(worker->loop, &before->deadline);
    mp_link_drop(&before->link);
    worker->old_count--;
    mp_stat_add(&mp_stat_vms_draining, -1);
    mp_reload_past_end(worker->shared->past, before->number, mp_rpc_index(worker->rpc));
    mp_lib_detach(before->vm);
    worker->shared->free_vm(worker->shared->reload, before->vm);
    free(before);
}

static bool turn_draining(mp_worker *worker)
{
    bool more = false;
    MP_EACH(generation, before, &worker->draining, link) {
        more = mp_lib_turn(before->vm) || more;
        if (mp_vm_is_idle(before->vm)) {
            mp_loop_measure(worker->loop, MP_MEASURE_RELOAD);
            free_generation(worker, before);
        }
    }
    return more;
}

/* True if <close> handlers of cancelled calls run or wait, in any generation. */
static bool is_cleaning(const mp_worker *worker)
{
    bool found = mp_vm_is_cleaning(worker->vm);
    for (const mp_link *link = mp_link_first(&worker->draining); link != &worker->draining && !found; link = link->next)
        found = mp_vm_is_cleaning(mp_container(link, const generation, link)->vm);
    return found;
}

/* True if a drain is over: the loop may stop. */
static bool is_over(const mp_worker *worker)
{
    if (!worker->is_drained || mp_rpc_calls(worker->rpc) != 0 || is_cleaning(worker))
        return false;
    return worker->pipe == NULL || worker->is_lost || mp_pipe_queued(worker->pipe) == 0;
}

static bool has_work(void *ctx)
{
    const mp_worker *worker = ctx;
    bool found = mp_vm_has_work(worker->vm) || mp_rpc_has_work(worker->rpc) ||
                 mp_upstream_has_work(worker->upstreams) || (is_over(worker) && !worker->is_ending);
    for (const mp_link *link = mp_link_first(&worker->draining); link != &worker->draining && !found; link = link->next)
        found = mp_vm_has_work(mp_container(link, const generation, link)->vm);
    return found;
}

static bool turn_worker(void *ctx)
{
    mp_worker *worker = ctx;
    if (worker->departures.is_returning)
        mp_loop_measure(worker->loop, MP_MEASURE_MEMORY);
    if (mp_rpc_is_asked(worker->rpc))
        mp_loop_measure(worker->loop, MP_MEASURE_ASKED);
    bool more = mp_upstream_turn(worker->upstreams);
    more = mp_lib_turn(worker->vm) || more;
    mp_vm_load load = mp_vm_load_of(worker->vm);
    mp_rpc_press(worker->rpc, &(mp_load){load.waiting, load.preempted, load.begun, load.interrupted});
    more = turn_draining(worker) || more;
    mp_upstream_send(worker->upstreams);
    more = mp_rpc_sweep(worker->rpc) || more;
    more = mp_departures_turn(&worker->departures, worker->vm) || more;
    if (worker->pipe != NULL)
        mp_pipe_flush(worker->pipe);
    if (is_over(worker)) {
        more = more || !worker->is_ending;
        worker->is_ending = true;
        if (mp_upstream_host_end(worker->upstreams))
            mp_loop_stop(worker->loop);
    }
    return more;
}

static void report_state(mp_worker *worker, state now)
{
    MP_LOCKED(&worker->lock);
    worker->state = now;
    pthread_cond_broadcast(&worker->changed);
}

static void on_pipe_end(void *ctx, int error);

/* Waits for the main thread. True if this worker shall serve. */
static bool await_release(mp_worker *worker)
{
    MP_LOCKED(&worker->lock);
    while (worker->state == LOADED)
        pthread_cond_wait(&worker->changed, &worker->lock);
    return worker->state == RELEASED;
}

static bool load_vm(mp_worker *worker)
{
    if (worker->vm != NULL)
        return true;
    mp_vm *vm = mp_lib_new(worker->shared->source, &worker->settings->lib, &worker->report);
    if (vm == NULL)
        return false;
    worker->vm = vm;
    return true;
}

static void *MP_NULLABLE run_worker(void *ctx)
{
    mp_worker *worker = ctx;
    mp_worker_shared *shared = worker->shared;
    mp_crash_thread("worker", worker->number + 1);
    mp_stat_thread();
    mp_where_watch(&worker->where);
    report_state(worker, load_vm(worker) ? LOADED : FAILED);
    if (await_release(worker)) {
        worker->rpc = mp_rpc_new(&worker->settings->rpc, shared->table, worker->loop, &mp_lib_hooks, worker->vm);
        mp_lib_attach(worker->vm, worker->loop, worker->rpc, worker->client, worker->upstreams);
        report_state(worker, SERVING);
        worker->departures = (mp_departures){.loop = worker->loop, .server = worker->server, .rpc = worker->rpc};
        mp_loop_on_turn(worker->loop, turn_worker, has_work, worker);
        if (worker->pipe != NULL)
            mp_rpc_serve_pipe(worker->rpc, worker->pipe, on_pipe_end, worker);
        mp_loop_run(worker->loop);
        mp_profile_end();
    }
    mp_upstream_host_over(worker->upstreams);
    atomic_store(&worker->has_ended, true);
    uint64_t one = 1;
    while (write(shared->ended_fd, &one, sizeof one) < 0)
        continue;
    return NULL;
}

int mp_worker_start(mp_worker *worker, mp_err *err)
{
    int code = pthread_create(&worker->thread, NULL, run_worker, worker);
    if (code != 0)
        return mp_err_set(err, "cannot start a worker thread: %s", strerror(code));
    worker->has_thread = true;
    return 0;
}

int mp_worker_await(mp_worker *worker, mp_buf *report)
{
    pthread_mutex_lock(&worker->lock);
    while (worker->state == LOADING)
        pthread_cond_wait(&worker->changed, &worker->lock);
    bool failed = worker->state == FAILED;
    pthread_mutex_unlock(&worker->lock);
    if (failed)
        mp_buf_put(report, mp_buf_str(&worker->report));
    return failed ? -1 : 0;
}

void mp_worker_release(mp_worker *worker, bool serves)
{
    MP_LOCKED(&worker->lock);
    if (worker->state != FAILED)
        worker->state = serves ? RELEASED : UNUSED;
    pthread_cond_broadcast(&worker->changed);
    while (worker->state == RELEASED)
        pthread_cond_wait(&worker->changed, &worker->lock);
}

/* -- a new generation ---------------------------------------------------------------------------------------------- */

/* A VM that waits in mp_worker.next. While it does, mp_worker.take is on its way. */
typedef struct delivery {
    mp_vm *vm;
    mp_swap *swap;
} delivery;

static void end_generation(generation *before)
{
    before->is_over = true;
    mp_lib_end(before->vm);
}

static void on_old_deadline(mp_timer *timer)
{
    end_generation(mp_container(timer, generation, deadline));
}

/* Moves the VM to the draining generations. If there are more than MAX_GENERATIONS, the oldest one's calls are
 * cancelled. */
static void retire_vm(mp_worker *worker, mp_vm *vm)
{
    const mp_config *config = worker->settings->config;
    generation *last = mp_new(sizeof *last);
    last->vm = vm;
    mp_link_put(&worker->draining, &last->link);
    worker->old_count++;
    mp_stat_add(&mp_stat_vms_draining, 1);
    last->number = atomic_load(&worker->generation_number);
    mp_reload_past_retire(worker->shared->past, last->number, mp_rpc_index(worker->rpc), mp_loop_now_us(worker->loop));
    mp_lib_retire(vm);
    mp_timer_start(worker->loop, &last->deadline, config->scripts_drain, on_old_deadline);
    int64_t over = worker->old_count - MAX_GENERATIONS;
    for (mp_link *link = mp_link_first(&worker->draining); over > 0; link = link->next, over--) {
        generation *before = mp_container(link, generation, link);
        if (!before->is_over)
            end_generation(before);
    }
}

static void use_settings(mp_worker *worker, mp_runtime_config *settings)
{
    mp_runtime_config *before = worker->settings;
    if (settings == before)
        return;
    worker->settings = mp_runtime_config_ref(settings);
    mp_rpc_configure(worker->rpc, &settings->rpc);
    mp_server_configure(worker->server, &settings->http);
    for (size_t i = 0; i < settings->listen_count; i++)
        mp_server_trust(worker->server, i, settings->proxies[i]);
    mp_outgoing_limit(settings->outgoing);
    mp_client_configure(worker->client, &settings->client);
    mp_upstream_host_configure(worker->upstreams, &settings->client);
    mp_runtime_config_unref(before);
}

static void take_over(mp_worker *worker, mp_vm *vm, mp_runtime_config *settings)
{
    mp_loop_measure(worker->loop, MP_MEASURE_RELOAD);
    use_settings(worker, settings);
    retire_vm(worker, worker->vm);
    worker->vm = vm;
    mp_lib_attach(vm, worker->loop, worker->rpc, worker->client, worker->upstreams);
    mp_rpc_hand_to(worker->rpc, vm);
}

static void settle_delivery(delivery *news)
{
    news->swap->taken(news->swap);
    free(news);
}

static void take(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_worker *worker = mp_container(message, mp_worker, take);
    delivery *news = MP_NEVER_NULL(atomic_exchange(&worker->next, NULL)); /* the message is sent for the first one */
    if (loop != NULL) {
        take_over(worker, news->vm, news->swap->settings);
        atomic_store(&worker->generation_number, news->swap->generation);
    } else {
        worker->shared->free_vm(worker->shared->reload, news->vm);
    }
    settle_delivery(news);
}

void mp_worker_swap(mp_worker *worker, mp_vm *vm, mp_swap *swap)
{
    delivery *news = mp_new(sizeof *news);
    *news = (delivery){vm, swap};
    delivery *before = atomic_exchange(&worker->next, news);
    if (before != NULL) {
        worker->shared->free_vm(worker->shared->reload, before->vm);
        settle_delivery(before);
        return;
    }
    worker->take.deliver = take;
    mp_loop_post(worker->loop, &worker->take);
}

int64_t mp_worker_generation(const mp_worker *worker)
{
    return atomic_load(&worker->generation_number);
}

mp_vm *mp_worker_vm(const mp_worker *worker)
{
    return worker->vm;
}

mp_loop *mp_worker_loop(mp_worker *worker)
{
    return worker->loop;
}

bool mp_worker_profile(mp_worker *worker, mp_profile *profile)
{
    bool began = mp_profile_begin(profile);
    mp_vm_sample_memory(worker->vm);
    MP_EACH(generation, each, &worker->draining, link)
        mp_vm_sample_memory(each->vm);
    return began;
}

/* -- the watchdog -------------------------------------------------------------------------------------------------- */

uint64_t mp_worker_turns(const mp_worker *worker)
{
    return mp_loop_turns(worker->loop);
}

void mp_worker_wake(mp_worker *worker)
{
    mp_loop_wake(worker->loop);
}

void mp_worker_suspend(mp_worker *worker, mp_worker *MP_NULLABLE to)
{
    mp_server_suspend(worker->server, to == NULL ? NULL : to->server);
}

void mp_worker_recover(mp_worker *worker)
{
    mp_server_recover(worker->server);
}

bool mp_worker_has_ended(const mp_worker *worker)
{
    return atomic_load(&worker->has_ended);
}

mp_where *mp_worker_where(mp_worker *worker)
{
    return &worker->where;
}

/* -- ending -------------------------------------------------------------------------------------------------------- */

static void on_drained(void *ctx)
{
    mp_worker *worker = ctx;
    worker->is_drained = true; /* the bottom of this turn checks whether anything is left to do */
}

static void on_grace_over(mp_timer *timer)
{
    mp_loop_stop(mp_container(timer, mp_worker, deadline)->loop);
}

/* Milliseconds until `before_ms` before the end of the process. */
static uint64_t left_until(const mp_worker *worker, uint64_t before_ms)
{
    uint64_t at = atomic_load(&worker->shared->end_at) - before_ms, now = mp_monotonic_ms();
    return at > now ? at - now : 0;
}

/* The last errors reach their clients, and <close> handlers may wait, until the loop stops. */
static void on_deadline(mp_timer *timer)
{
    mp_worker *worker = mp_container(timer, mp_worker, deadline);
    mp_rpc_abort(worker->rpc, "the gateway is stopping");
    mp_timer_start(worker->loop, timer, left_until(worker, MP_CUT_MS), on_grace_over);
}

static void begin_drain(void *ctx)
{
    mp_worker *worker = ctx;
    mp_timer_start(worker->loop, &worker->deadline, left_until(worker, MP_ENDING_MS), on_deadline);
    mp_rpc_drain(worker->rpc, left_until(worker, 0));
    if (worker->vm != NULL)
        mp_lib_drain(worker->vm); /* a job may hold a connection, and a worker without calls ends its loop at once */
    mp_server_drain(worker->server, on_drained, worker);
}

static void stop_now(void *ctx)
{
    mp_worker *worker = ctx;
    if (mp_rpc_is_draining(worker->rpc))
        on_deadline(&worker->deadline);
    else
        begin_drain(worker);
}

/* The client closed its end of stdin. This starts a drain, so a signal that follows counts as the second one: clients
 * that leave send one after some seconds. */
static void input_is_over(void *ctx)
{
    mp_worker *worker = ctx;
    if (mp_begin_drain(worker->shared))
        return;
    atomic_store(&worker->shared->end_at, mp_monotonic_ms() + worker->settings->config->drain + MP_ENDING_MS);
    mp_log(worker->shared->own_level, "draining", mp_log_str("why", MP_STR("end of input")));
    begin_drain(worker);
}

/* The client closed its end of stdout. <close> handlers of its calls may still finish. */
static void client_left(void *ctx)
{
    mp_worker *worker = ctx;
    mp_rpc_abort(worker->rpc, "the client disconnected");
    worker->is_lost = worker->is_drained = true;
    mp_timer_start(worker->loop, &worker->deadline, MP_CLEANUP_MS + CLEANUP_GRACE_MS, on_grace_over);
}

static void on_pipe_end(void *ctx, int error)
{
    mp_worker *worker = ctx;
    if (error != 0 && error != EPIPE) {
        mp_log(MP_ERROR, "cannot write to stdout", mp_log_str("why", mp_str_of(strerror(error))));
        atomic_store(&worker->shared->failed, true);
    }
    mp_loop_call(worker->loop, error == 0 ? input_is_over : client_left, worker);
}

void mp_worker_drain(mp_worker *worker)
{
    mp_loop_call(worker->loop, begin_drain, worker);
}

void mp_worker_stop(mp_worker *worker)
{
    mp_loop_call(worker->loop, stop_now, worker);
}

void mp_worker_join(mp_worker *worker)
{
    if (worker->has_thread)
        pthread_join(worker->thread, NULL);
    worker->has_thread = false;
}

void mp_worker_unwind(mp_worker *worker)
{
    uint64_t end_at = atomic_load(&worker->shared->end_at), until = end_at == 0 ? UINT64_MAX : end_at - MP_LEAVE_MS;
    if (worker->rpc != NULL)
        mp_rpc_abort(worker->rpc, "the gateway is stopping");
    MP_EACH(const generation, each, &worker->draining, link)
        mp_lib_unwind(each->vm, until);
    if (worker->vm != NULL)
        mp_lib_unwind(worker->vm, until);
}

void mp_worker_free_vms(mp_worker *worker)
{
    while (!mp_link_is_alone(&worker->draining)) {
        generation *before = mp_container(worker->draining.next, generation, link);
        mp_vm *vm = before->vm;
        mp_link_drop(&before->link);
        mp_timer_stop(worker->loop, &before->deadline);
        free(before);
        mp_lib_free(vm);
    }
    if (worker->vm != NULL)
        mp_lib_free(worker->vm);
    worker->vm = MP_UNSET;
    mp_upstream_host_settle(worker->upstreams);
}

void mp_worker_free(mp_worker *worker)
{
    if (worker->vm != NULL)
        mp_lib_free(worker->vm);
    if (worker->rpc != NULL)
        mp_rpc_free(worker->rpc);
    if (worker->pipe != NULL)
        mp_pipe_free(worker->pipe);
    if (worker->server != NULL)
        mp_server_free(worker->server);
    mp_upstream_host_free(worker->upstreams);
    mp_client_free(worker->client);
    mp_loop_free(worker->loop);
    mp_runtime_config_unref(worker->settings);
    mp_buf_clear(&worker->report);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->changed);
    free(worker->servers);
    free(worker);
}

bool mp_begin_drain(mp_worker_shared *shared)
{
    atomic_store(&shared->leaving, true);
    return atomic_exchange(&shared->draining, true);
}

bool mp_serves_nothing(void)
{
    static const char *const families[] = {
        "sessions",         "requests_in_flight", "listeners",         "jobs", "hops", "streams_open",
        "kept_connections", "upstream_pending",   "task_message_bytes"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (mp_stat_sum(families[i]) > 0)
            return false;
    return mp_stat_sum("store_outgoing_bytes") == 0;
}
