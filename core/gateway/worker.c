/* worker.c: a thread's loop, server or pipe, server role and VM, from their making to their end. */
#include "reload.h"
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#define ABORT_GRACE_MS 500 /* for the last errors to reach their clients */
#define ADMIN_RESERVE 16   /* connections: who looks into a gateway that is full gets in */

typedef enum { STARTING, SERVING, FAILED } state;

/* A generation before. */
typedef struct {
    mp_link link;
    mp_vm *vm;
    mp_timer deadline;
    bool is_over; /* what it had was called off */
} old;

struct mp_worker {
    mp_shared *shared;
    mp_loop *loop;
    mp_server *server;
    mp_client *client;
    mp_rpc *rpc;
    mp_vm *vm;
    const mp_settings *settings;
    mp_link olds; /* generations before, the oldest first: they end the calls they have */
    int64_t old_count;
    mp_pipe *pipe; /* NULL: it serves listeners */
    pthread_t thread;
    bool has_thread;
    bool is_drained; /* no connection is left; calls that need none may still run */
    mp_timer deadline;
    pthread_mutex_t lock; /* guards the two below */
    pthread_cond_t told;
    state state;
    mp_buf report;
};

mp_worker *mp_worker_new(mp_shared *shared, mp_vm *vm, mp_err *err)
{
    mp_worker *worker = mp_new(sizeof *worker);
    worker->shared = shared;
    worker->settings = shared->settings;
    mp_link_init(&worker->olds);
    worker->vm = vm;
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->told, NULL);
    worker->loop = mp_loop_new(err);
    worker->server = worker->loop == NULL ? NULL : mp_server_new(worker->loop, &worker->settings->http, err);
    if (worker->server == NULL) {
        mp_worker_free(worker);
        return NULL;
    }
    worker->client = mp_client_new(worker->loop, &worker->settings->client);
    return worker;
}

/* The listeners lead to the rpc, which exists only once the thread runs. */
static void serve(void *ctx, mp_stream *stream)
{
    mp_worker *worker = ctx;
    mp_rpc_serve(worker->rpc, stream);
}

int mp_worker_listen(mp_worker *worker, int fd, mp_tls_slot *tls, mp_err *err)
{
    return mp_server_listen(worker->server, fd, &(mp_door){serve, worker, 0, tls}, err);
}

int mp_worker_listen_admin(mp_worker *worker, int fd, mp_tls_slot *tls, mp_err *err)
{
    return mp_server_listen(worker->server, fd, &(mp_door){mp_admin_serve, worker, ADMIN_RESERVE, tls}, err);
}

int mp_worker_serve_pipe(mp_worker *worker, int in, int out, mp_err *err)
{
    const mp_config *config = worker->settings->config;
    worker->pipe = mp_pipe_new(worker->loop, in, out, config->body, config->stream_queue, err);
    return worker->pipe == NULL ? -1 : 0;
}

/* Taking a large state apart takes a while: the main thread has it. */
static void forget(mp_worker *worker, old *before)
{
    mp_timer_stop(worker->loop, &before->deadline);
    mp_link_drop(&before->link);
    worker->old_count--;
    mp_stat_add(MP_STAT_VMS_DRAINING, -1);
    mp_vm_detach(before->vm);
    mp_reload_bury(worker->shared->reload, before->vm);
    free(before);
}

static bool turn_olds(mp_worker *worker)
{
    bool more = false;
    for (mp_link *link = worker->olds.next, *next; link != &worker->olds; link = next) {
        next = link->next;
        old *before = mp_container(link, old, link);
        more = mp_vm_turn(before->vm) || more;
        if (mp_vm_is_idle(before->vm)) {
            mp_loop_measure(worker->loop);
            forget(worker, before);
        }
    }
    return more;
}

static bool turn(void *ctx)
{
    mp_worker *worker = ctx;
    bool more = mp_vm_turn(worker->vm);
    more = turn_olds(worker) || more;
    more = mp_rpc_sweep(worker->rpc) || more;
    if (worker->pipe != NULL)
        mp_pipe_flush(worker->pipe);
    bool is_flushed = worker->pipe == NULL || mp_pipe_queued(worker->pipe) == 0;
    if (worker->is_drained && is_flushed && mp_rpc_calls(worker->rpc) == 0)
        mp_loop_stop(worker->loop);
    return more;
}

static void tell(mp_worker *worker, state now)
{
    pthread_mutex_lock(&worker->lock);
    worker->state = now;
    pthread_cond_signal(&worker->told);
    pthread_mutex_unlock(&worker->lock);
}

static void on_pipe_end(void *ctx, int error);

static void *run(void *ctx)
{
    mp_worker *worker = ctx;
    mp_shared *shared = worker->shared;
    mp_stat_thread();
    if (worker->vm == NULL)
        worker->vm = mp_vm_new(shared->source, &worker->settings->vm, &worker->report);
    if (worker->vm == NULL) {
        tell(worker, FAILED);
    } else {
        worker->rpc = mp_rpc_new(&worker->settings->rpc, shared->table, worker->loop, &mp_vm_hooks, worker->vm);
        mp_vm_attach(worker->vm, worker->loop, worker->rpc, worker->client);
        mp_loop_on_turn(worker->loop, turn, worker);
        if (worker->pipe != NULL)
            mp_rpc_serve_pipe(worker->rpc, worker->pipe, on_pipe_end, worker);
        tell(worker, SERVING);
        mp_loop_run(worker->loop);
    }
    uint64_t one = 1;
    while (write(shared->ended_fd, &one, sizeof one) < 0)
        continue;
    return NULL;
}

int mp_worker_start(mp_worker *worker, mp_err *err)
{
    int code = pthread_create(&worker->thread, NULL, run, worker);
    if (code != 0)
        return mp_err_set(err, "cannot start a worker thread: %s", strerror(code));
    worker->has_thread = true;
    return 0;
}

int mp_worker_await(mp_worker *worker, mp_buf *report)
{
    pthread_mutex_lock(&worker->lock);
    while (worker->state == STARTING)
        pthread_cond_wait(&worker->told, &worker->lock);
    bool failed = worker->state == FAILED;
    pthread_mutex_unlock(&worker->lock);
    if (failed)
        mp_buf_put(report, mp_buf_str(&worker->report));
    return failed ? -1 : 0;
}

/* -- a new generation ---------------------------------------------------------------------------------------------- */

typedef struct {
    mp_message super;
    mp_worker *worker;
    mp_vm *vm;
    mp_swap *swap;
} delivery;

static void end_old(old *before)
{
    before->is_over = true;
    mp_vm_end(before->vm);
}

static void on_old_deadline(mp_timer *timer)
{
    end_old(mp_container(timer, old, deadline));
}

/* Of those that still may go on there are as many as the configuration says, at most. */
static void retire(mp_worker *worker, mp_vm *vm)
{
    const mp_config *config = worker->settings->config;
    old *last = mp_new(sizeof *last);
    last->vm = vm;
    mp_link_init(&last->link);
    mp_link_put(&worker->olds, &last->link);
    worker->old_count++;
    mp_stat_add(MP_STAT_VMS_DRAINING, 1);
    mp_vm_retire(vm);
    mp_timer_start(worker->loop, &last->deadline, config->scripts_drain, on_old_deadline);
    int64_t over = worker->old_count - config->scripts_generations;
    for (mp_link *link = worker->olds.next; over > 0; link = link->next, over--) {
        old *before = mp_container(link, old, link);
        if (!before->is_over)
            end_old(before);
    }
}

static void use_settings(mp_worker *worker, const mp_settings *settings)
{
    if (settings == worker->settings)
        return;
    worker->settings = settings;
    mp_rpc_configure(worker->rpc, &settings->rpc);
    mp_server_configure(worker->server, &settings->http);
    mp_client_configure(worker->client, &settings->client);
}

static void take_over(mp_worker *worker, mp_vm *vm, const mp_settings *settings)
{
    mp_loop_measure(worker->loop);
    use_settings(worker, settings);
    retire(worker, worker->vm);
    worker->vm = vm;
    mp_vm_attach(vm, worker->loop, worker->rpc, worker->client);
    mp_rpc_hand_to(worker->rpc, vm);
}

static void deliver_vm(mp_message *message, mp_loop *loop)
{
    delivery *news = mp_container(message, delivery, super);
    if (loop != NULL) {
        take_over(news->worker, news->vm, news->swap->settings);
    } else {
        mp_vm_free(news->vm);
        atomic_store(&news->swap->is_missed, true);
    }
    if (atomic_fetch_sub(&news->swap->left, 1) == 1)
        news->swap->done(news->swap, loop == NULL ? NULL : news->vm);
    free(news);
}

void mp_worker_swap(mp_worker *worker, mp_vm *vm, mp_swap *swap)
{
    delivery *news = mp_new(sizeof *news);
    *news = (delivery){{.deliver = deliver_vm}, worker, vm, swap};
    mp_loop_post(worker->loop, &news->super);
}

const mp_settings *mp_worker_settings(const mp_worker *worker)
{
    return worker->settings;
}

mp_shared *mp_worker_shared(mp_worker *worker)
{
    return worker->shared;
}

mp_loop *mp_worker_loop(mp_worker *worker)
{
    return worker->loop;
}

/* -- ending ------------------------------------------------------------------------------------------------------- */

typedef struct {
    mp_message super;
    mp_worker *worker;
    void (*act)(mp_worker *worker);
} order;

static void deliver(mp_message *message, mp_loop *loop)
{
    order *given = mp_container(message, order, super);
    if (loop != NULL)
        given->act(given->worker);
    free(given);
}

static void command(mp_worker *worker, void (*act)(mp_worker *worker))
{
    order *given = mp_new(sizeof *given);
    *given = (order){{.deliver = deliver}, worker, act};
    mp_loop_post(worker->loop, &given->super);
}

static void on_drained(void *ctx)
{
    mp_worker *worker = ctx;
    worker->is_drained = true; /* and the bottom of this turn looks whether that is all */
}

static void on_grace_over(mp_timer *timer)
{
    mp_loop_stop(mp_container(timer, mp_worker, deadline)->loop);
}

static void on_deadline(mp_timer *timer)
{
    mp_worker *worker = mp_container(timer, mp_worker, deadline);
    mp_rpc_abort(worker->rpc, "the gateway is stopping");
    mp_timer_start(worker->loop, timer, ABORT_GRACE_MS, on_grace_over);
}

static void begin_drain(mp_worker *worker)
{
    mp_timer_start(worker->loop, &worker->deadline, worker->settings->config->drain, on_deadline);
    mp_rpc_drain(worker->rpc);
    mp_server_drain(worker->server, on_drained, worker);
}

static void stop_now(mp_worker *worker)
{
    mp_rpc_abort(worker->rpc, "the gateway is stopping");
    mp_loop_stop(worker->loop);
}

/* The client said all it had to say: a signal that comes now is the second one. */
static void input_is_over(mp_worker *worker)
{
    if (atomic_exchange(&worker->shared->draining, true))
        return;
    mp_log(worker->shared->own_level, "draining", mp_log_str("why", MP_STR("end of input")));
    begin_drain(worker);
}

static void client_left(mp_worker *worker)
{
    mp_rpc_abort(worker->rpc, "the client left");
    mp_loop_stop(worker->loop);
}

static void on_pipe_end(void *ctx, int error)
{
    mp_worker *worker = ctx;
    if (error != 0 && error != EPIPE) {
        mp_log(MP_ERROR, "cannot write", mp_log_str("why", mp_str_of(strerror(error))));
        atomic_store(&worker->shared->failed, true);
    }
    command(worker, error == 0 ? input_is_over : client_left);
}

void mp_worker_drain(mp_worker *worker)
{
    command(worker, begin_drain);
}

void mp_worker_stop(mp_worker *worker)
{
    command(worker, stop_now);
}

void mp_worker_join(mp_worker *worker)
{
    if (worker->has_thread)
        pthread_join(worker->thread, NULL);
    worker->has_thread = false;
}

void mp_worker_unwind(mp_worker *worker)
{
    if (worker->rpc != NULL)
        mp_rpc_abort(worker->rpc, "the gateway is stopping");
    while (!mp_link_is_alone(&worker->olds)) {
        old *before = mp_container(worker->olds.next, old, link);
        mp_vm *vm = before->vm;
        mp_link_drop(&before->link);
        mp_timer_stop(worker->loop, &before->deadline);
        free(before);
        mp_vm_free(vm); /* which unwinds what still runs in it */
    }
    if (worker->vm != NULL)
        mp_vm_free(worker->vm);
    worker->vm = NULL;
}

void mp_worker_free(mp_worker *worker)
{
    if (worker->vm != NULL)
        mp_vm_free(worker->vm);
    if (worker->rpc != NULL)
        mp_rpc_free(worker->rpc);
    if (worker->pipe != NULL)
        mp_pipe_free(worker->pipe);
    if (worker->server != NULL)
        mp_server_free(worker->server);
    mp_client_free(worker->client);
    if (worker->loop != NULL)
        mp_loop_free(worker->loop);
    mp_buf_clear(&worker->report);
    pthread_mutex_destroy(&worker->lock);
    pthread_cond_destroy(&worker->told);
    free(worker);
}
