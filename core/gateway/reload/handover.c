#include "handover.h"
#include "gateway/watchdog.h"

#define MAX_SWITCH_MS 2000 /* time for the workers to switch: that of many turns of a busy worker */
#define MAX_KEPT 32        /* configurations that are kept for workers that have not switched */

/* One generation on its way to the workers. */
typedef struct change {
    mp_swap super;
    mp_handover *handover;
    struct change *next; /* the previous generation, which some worker may still use */
    mp_vm **vms;         /* one for each worker; swap_all() hands them over and frees the list */
    size_t asked;
    mp_buf plan, lists;
    uint64_t until; /* monotonic ms: the reload does not wait any longer */
    bool is_over;
} change;

struct mp_handover {
    mp_worker **workers;
    int count;
    mp_admin *MP_NULLABLE admin;
    mp_watchdog *watchdog;
    mp_reload_status *status;
    void (*ended)(void *ctx, const mp_handed_over *done, mp_str late);
    void (*taken)(void *ctx);
    void *ctx;
    change *changes; /* generations, newest first */
    bool *is_late;   /* for each worker: true if it did not switch in time, which was logged */
};

mp_handover *mp_handover_new(mp_worker **workers, int count, mp_admin *MP_NULLABLE admin, mp_watchdog *watchdog,
                             mp_reload_status *status,
                             void (*ended)(void *ctx, const mp_handed_over *done, mp_str late),
                             void (*taken)(void *ctx), void *ctx)
{
    mp_handover *handover = mp_new(sizeof *handover);
    *handover = (mp_handover){.workers = workers,
                              .count = count,
                              .admin = admin,
                              .watchdog = watchdog,
                              .status = status,
                              .ended = ended,
                              .taken = taken,
                              .ctx = ctx,
                              .is_late = mp_new((size_t)count * sizeof(bool))};
    return handover;
}

static void change_free(change *made)
{
    mp_runtime_config_unref(made->super.settings);
    mp_buf_clear(&made->plan);
    mp_buf_clear(&made->lists);
    free(made);
}

void mp_handover_free(mp_handover *MP_NULLABLE handover)
{
    if (handover == NULL)
        return;
    for (change *made = handover->changes, *next; made != NULL; made = next) {
        next = made->next;
        change_free(made);
    }
    free(handover->is_late);
    free(handover);
}

/* `left` reaches 0 last: the main thread may free the change then. */
static void on_taken(mp_swap *swap)
{
    mp_handover *handover = mp_container(swap, change, super)->handover;
    atomic_fetch_sub(&swap->left, 1);
    handover->taken(handover->ctx);
}

/* The admin thread uses the new settings. */
static void swap_all(void *ctx)
{
    change *made = ctx;
    mp_handover *handover = made->handover;
    mp_vm **vms = made->vms; /* the main thread may free `made` after the last worker has switched */
    for (int i = 0; i < handover->count; i++)
        mp_worker_swap(handover->workers[i], vms[i], &made->super);
    free(vms);
}

void mp_handover_begin(mp_handover *handover, mp_vm **vms, mp_runtime_config *settings, int64_t generation,
                       size_t asked, mp_buf plan, mp_buf lists)
{
    change *made = mp_new(sizeof *made);
    *made =
        (change){.super = {.settings = mp_runtime_config_ref(settings), .generation = generation, .taken = on_taken},
                 .handover = handover,
                 .next = handover->changes,
                 .vms = vms,
                 .asked = asked,
                 .plan = plan,
                 .lists = lists,
                 .until = mp_monotonic_ms() + MAX_SWITCH_MS};
    atomic_init(&made->super.left, handover->count);
    handover->changes = made;
    mp_admin *admin = handover->admin;
    if (admin != NULL)
        mp_admin_configure(admin, settings, swap_all, made);
    else
        swap_all(made);
}

/* -- workers that switch late -------------------------------------------------------------------------------------- */

static bool serves(const mp_handover *handover, int i, int64_t generation)
{
    return mp_worker_generation(handover->workers[i]) >= generation || mp_worker_has_ended(handover->workers[i]);
}

/* Logs the workers that do not serve `made` yet, and appends them to `out`, for people. */
static void note_late(mp_handover *handover, const change *made, mp_buf *out)
{
    for (int i = 0; i < handover->count; i++) {
        if (serves(handover, i, made->super.generation))
            continue;
        int64_t before = mp_worker_generation(handover->workers[i]);
        handover->is_late[i] = true;
        mp_log(
            MP_WARN, "worker not reloaded", mp_log_int("worker", i + 1), mp_log_int("generation", before),
            mp_log_str("why",
                       MP_STR("the worker's loop has not run; the worker switches to the new scripts when it does")));
        mp_buf_printf(out, "%sworker %d serves generation %lld until its loop runs", out->len == 0 ? "" : "; ", i + 1,
                      (long long)before);
    }
}

/* Logs the workers that have switched late. */
static void note_caught_up(mp_handover *handover, int64_t generation)
{
    bool has_news = false;
    for (int i = 0; i < handover->count; i++) {
        if (!handover->is_late[i] || !serves(handover, i, generation))
            continue;
        handover->is_late[i] = false;
        has_news = true;
        mp_log(MP_INFO, "worker reloaded", mp_log_int("worker", i + 1), mp_log_int("generation", generation));
    }
    if (has_news)
        mp_reload_status_keep_behind(handover->status, handover->workers, handover->count, generation);
}

typedef struct {
    mp_worker *worker;
    size_t len;
    char lists[];
} reloaded_message;

static void deliver_reloaded(void *content, mp_loop *MP_NULLABLE loop)
{
    const reloaded_message *message = content;
    if (loop != NULL)
        mp_vm_bus_deliver(mp_worker_vm(message->worker), MP_STR("reloaded"), (mp_str){message->lists, message->len});
}

/* Lets a worker that serves the change notify the clients: a worker that does not would show them the earlier lists. */
static void notify_worker(const mp_handover *handover, change *made)
{
    for (int i = 0; made->lists.len > 0 && i < handover->count; i++) {
        if (mp_worker_generation(handover->workers[i]) < made->super.generation)
            continue;
        const reloaded_message message = {handover->workers[i], made->lists.len};
        mp_loop_send(mp_worker_loop(message.worker), deliver_reloaded, &message, sizeof message,
                     mp_buf_str(&made->lists));
        return;
    }
}

static void end_change(mp_handover *handover, change *made)
{
    mp_scoped_buf late = {0};
    made->is_over = true;
    note_late(handover, made, &late);
    mp_reload_status_keep_behind(handover->status, handover->workers, handover->count, made->super.generation);
    notify_worker(handover, made);
    mp_handed_over done = {made->super.generation, made->asked, mp_buf_str(&made->plan)};
    handover->ended(handover->ctx, &done, mp_buf_str(&late));
    mp_buf_clear(&made->plan);
    mp_buf_clear(&made->lists);
}

static bool all_serve(const mp_handover *handover, int64_t generation)
{
    bool do_all = true;
    for (int i = 0; i < handover->count && do_all; i++)
        do_all = serves(handover, i, generation);
    return do_all;
}

/* Frees the changes that no worker refers to, except the newest. A worker reads the settings of the newest change
 * through the session table, too, so the settings of a change are kept until every worker has switched to a later one.
 * Where a later change has the same settings, it keeps them. */
static void free_taken(mp_handover *handover)
{
    const mp_runtime_config *later = handover->changes->super.settings;
    for (change **at = &handover->changes->next; *at != NULL;) {
        change *made = *at;
        bool is_kept = made->super.settings != later && !all_serve(handover, made->super.generation + 1);
        later = made->super.settings;
        if (atomic_load(&made->super.left) > 0 || is_kept) {
            at = &made->next;
            continue;
        }
        *at = made->next;
        change_free(made);
    }
}

bool mp_handover_has_room(const mp_handover *handover)
{
    int kept = 0;
    for (const change *made = handover->changes; made != NULL; made = made->next)
        kept++;
    return kept < MAX_KEPT;
}

bool mp_handover_is_running(const mp_handover *MP_NULLABLE handover, int *wait_ms, uint64_t now)
{
    const change *made = handover == NULL ? NULL : handover->changes;
    if (made == NULL || made->is_over)
        return false;
    *wait_ms = made->until > now ? (int)(made->until - now) : 0;
    return true;
}

/* True if only stuck workers have not switched. */
static bool has_no_other(const mp_handover *handover, const change *made)
{
    bool found = false;
    for (int i = 0; i < handover->count && !found; i++)
        found = !serves(handover, i, made->super.generation) && !mp_watchdog_is_stuck(handover->watchdog, i);
    return !found;
}

bool mp_handover_run(mp_handover *MP_NULLABLE handover, uint64_t now)
{
    change *made = handover == NULL ? NULL : handover->changes;
    if (made == NULL)
        return false;
    if (!made->is_over && (has_no_other(handover, made) || now >= made->until))
        end_change(handover, made);
    if (made->is_over)
        note_caught_up(handover, made->super.generation);
    free_taken(handover);
    return !made->is_over;
}
