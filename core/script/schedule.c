/* schedule.c: when scheduled work begins. The store of the process says who begins it, and whether it still runs: so it is one
 * worker, whichever looks first, and a VM that takes over from another goes on where that was. */
#include "script/schedule.h"
#include "script/store.h"
#include "script/task.h"
#include <stdlib.h>

#define LEAST_TICK 20
#define MOST_TICK 1000
#define ENDING_MS 5000 /* what closers may still do after the time limit */

static mp_str key(mp_buf *to, const char *what, const mp_scheduled *job)
{
    to->len = 0;
    mp_buf_printf(to, "job:%s:%s", what, job->name);
    return mp_buf_str(to);
}

static bool is_due(mp_scheduled *job)
{
    mp_store *store = job->vm->store;
    mp_buf name = {0}, text = {0};
    bool is_running = mp_store_get(store, key(&name, "running", job), &text);
    bool due =
        !is_running && mp_store_set(store, key(&name, "last", job), MP_STR(""), job->every_ms, true) == MP_STORE_DONE;
    if (due &&
        mp_store_set(store, key(&name, "running", job), MP_STR(""), job->limit_ms + ENDING_MS, true) != MP_STORE_DONE)
        due = false;
    mp_buf_clear(&name);
    mp_buf_clear(&text);
    return due;
}

static void begin(mp_scheduled *job)
{
    mp_buf name = {0}, principal = {0};
    mp_buf_printf(&principal, "job:%s", job->name);
    mp_principal *itself = mp_principal_new(mp_buf_str(&principal), mp_buf_str(&principal), 0);
    mp_call *call = mp_call_spawn_alone(job->vm->rpc, itself, job->limit_ms);
    mp_principal_unref(itself);
    if (call != NULL) {
        mp_task_start_scheduled(job->vm, call, job);
    } else {
        mp_store_delete(job->vm->store, key(&name, "running", job));
        mp_log(MP_WARN, "job not started", mp_log_str("name", mp_str_of(job->name)),
               mp_log_str("why", MP_STR("more background work than tasks.max")));
    }
    mp_buf_clear(&name);
    mp_buf_clear(&principal);
}

static void on_tick(mp_timer *timer);

static void wait(mp_scheduled *job)
{
    uint64_t tick = job->every_ms / 10;
    tick = tick < LEAST_TICK ? LEAST_TICK : tick > MOST_TICK ? MOST_TICK : tick;
    mp_timer_start(job->vm->loop, &job->timer, tick, on_tick);
}

static void on_tick(mp_timer *timer)
{
    mp_scheduled *job = mp_container(timer, mp_scheduled, timer);
    if (mp_rpc_is_draining(job->vm->rpc))
        return;
    wait(job);
    if (is_due(job))
        begin(job);
}

void mp_schedule_start(mp_vm *vm)
{
    vm->keeps_schedule = true;
    for (mp_scheduled *job = vm->schedule; job != NULL; job = job->next)
        wait(job);
}

void mp_schedule_stop(mp_vm *vm)
{
    if (!vm->keeps_schedule)
        return;
    vm->keeps_schedule = false;
    for (mp_scheduled *job = vm->schedule; job != NULL; job = job->next)
        mp_timer_stop(vm->loop, &job->timer);
}

void mp_schedule_free(mp_vm *vm)
{
    while (vm->schedule != NULL) {
        mp_scheduled *job = vm->schedule;
        vm->schedule = job->next;
        free(job->name);
        free(job);
    }
}
