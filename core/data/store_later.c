/* store_later.c: an operation on a store that is elsewhere, for a task that waits. A thread of the pool asks, so that
 * the loop goes on meanwhile. */
#include "data/store_wire.h"
#include "os/os.h"

MP_GAUGE(store_later_bytes, "store_later_bytes", "", "",
         "bytes of operations of scripts that wait for the process which owns the store, and of their results")

struct mp_store_later {
    mp_job super;
    mp_store *store;
    mp_loop *loop;
    mp_store_operation operation; /* owns its texts */
    mp_store_answer answer;
    bool is_over;
    int64_t bytes;                       /* its part of store_later_bytes */
    mp_timer at_once;                    /* ends what the pool has not taken */
    void (*MP_NULLABLE done)(void *ctx); /* NULL: nobody waits any more */
    void *ctx;
};

static void free_text(mp_str text)
{
    free((char *)(uintptr_t)text.ptr);
}

static mp_str copied(mp_str text)
{
    return text.ptr == NULL ? text : (mp_str){mp_dup(text), text.len};
}

static void count_bytes(mp_store_later *later, int64_t more)
{
    later->bytes += more;
    mp_stat_add(&mp_stat_store_later_bytes, more);
}

static void free_later(mp_store_later *later)
{
    count_bytes(later, -later->bytes);
    mp_timer_stop(later->loop, &later->at_once);
    free_text(later->operation.key);
    free_text(later->operation.text);
    free_text(later->operation.old);
    mp_buf_clear(&later->answer.text);
    free(later);
}

/* The answer is there. `loop` is NULL if the loop has ended: no task goes on there, and the one that waits frees
 * `later` when it is cancelled. */
static void end_later(mp_store_later *later, mp_loop *MP_NULLABLE loop)
{
    later->is_over = true;
    count_bytes(later, (int64_t)later->answer.text.len);
    if (later->done == NULL)
        free_later(later);
    else if (loop != NULL)
        later->done(later->ctx);
}

static void on_work(mp_job *job)
{
    mp_store_later *later = mp_container(job, mp_store_later, super);
    mp_store_answer *answer = &later->answer;
    answer->result = mp_store_do(later->store, &later->operation, &answer->text, &answer->n);
}

static void on_done(mp_job *job, mp_loop *MP_NULLABLE loop)
{
    end_later(mp_container(job, mp_store_later, super), loop);
}

static void on_refused(mp_timer *timer)
{
    mp_store_later *later = mp_container(timer, mp_store_later, at_once);
    end_later(later, later->loop);
}

void mp_store_later_run_on_pool(mp_store_later *later)
{
    later->super.work = on_work;
    later->super.done = on_done;
    if (mp_pool_run(later->loop, &later->super) != 0)
        mp_timer_start(later->loop, &later->at_once, 0, on_refused); /* the queue of the pool is full: AWAY */
}

mp_store_later *mp_store_begin(mp_store *store, mp_loop *loop, const mp_store_operation *operation,
                               void (*done)(void *ctx), void *ctx)
{
    mp_store_later *later = mp_new(sizeof *later);
    later->store = store;
    later->loop = loop;
    later->operation = *operation;
    later->operation.key = copied(operation->key);
    later->operation.text = copied(operation->text);
    later->operation.old = copied(operation->old);
    later->answer.result = MP_STORE_AWAY;
    later->done = done;
    later->ctx = ctx;
    count_bytes(later, (int64_t)(sizeof *later + operation->key.len + operation->text.len + operation->old.len));
    store->elsewhere->begin(later);
    return later;
}

mp_store_answer mp_store_later_take(mp_store_later *later)
{
    mp_store_answer answer = later->answer;
    later->answer.text = (mp_buf){0};
    free_later(later);
    return answer;
}

void mp_store_later_drop(mp_store_later *later)
{
    later->done = NULL;
    if (later->is_over || later->at_once.slot != 0 || mp_pool_take_back(&later->super))
        free_later(later);
}
