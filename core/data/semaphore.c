/* semaphore.c: which passes hold a place and which wait. One lock guards all semaphores. When a waiting pass gets
 * its place, its loop gets a message. */
#include "data/semaphore.h"
#include <pthread.h>
#include <stdlib.h>

MP_GAUGE(calls_waiting, "calls_waiting", "", "",
         "calls that wait because of the concurrency limit of their tool, or for their turn at an upstream")
MP_COUNTER(refused_waiting, "refused", "reason", "waiting", "calls over limits.call.waiting")

typedef struct {
    mp_node node;
    int64_t most, through, waiting;
    mp_link waiters;
} semaphore;

typedef enum {
    WAITS,
    CALLED, /* the pass has a place, and the message to its loop is on the way */
    THROUGH,
    LEFT, /* the pass was given back while its message was on the way; `deliver` of the message frees the pass */
    LOST  /* the message came back because the loop had ended; the owner frees the pass */
} state;

struct mp_pass {
    mp_message message;
    mp_link link; /* link in semaphore->waiters, or in the list of passes that just got a place */
    mp_semaphores *semaphores;
    semaphore *MP_NULLABLE semaphore; /* NULL once LEFT or LOST: it may have been freed */
    mp_loop *loop;
    void (*granted)(void *ctx);
    void *ctx;
    state state;
};

struct mp_semaphores {
    pthread_mutex_t lock;
    mp_map by_name;
    int64_t most_waiting; /* link in the passes of one semaphore */
};

mp_semaphores *mp_semaphores_new(int64_t most_waiting)
{
    mp_semaphores *semaphores = mp_new(sizeof *semaphores);
    pthread_mutex_init(&semaphores->lock, NULL);
    mp_map_init(&semaphores->by_name);
    semaphores->most_waiting = most_waiting;
    return semaphores;
}

void mp_semaphores_free(mp_semaphores *semaphores)
{
    mp_map_clear(&semaphores->by_name);
    pthread_mutex_destroy(&semaphores->lock);
    free(semaphores);
}

/* -- under the lock ---------------------------------------------------------------------------------------------- */

static void stop_waiting(mp_pass *pass, semaphore *g)
{
    mp_link_drop(&pass->link);
    g->waiting--;
    mp_stat_add(&mp_stat_calls_waiting, -1);
}

/* Gives free places to waiting passes, and moves these to `called`. Frees a semaphore that has no pass. */
static void admit_waiting(mp_semaphores *semaphores, semaphore *g, mp_link *called)
{
    while (g->through < g->most && g->waiting > 0) {
        mp_pass *next = mp_container(g->waiters.next, mp_pass, link);
        stop_waiting(next, g);
        next->state = CALLED;
        g->through++;
        mp_link_put(called, &next->link);
    }
    if (g->through > 0 || g->waiting > 0)
        return;
    mp_map_drop(&semaphores->by_name, &g->node);
    free(g);
}

/* The pass gives its place, or the place for which it waits, back to the semaphore `g`. */
static void give_back(mp_pass *pass, semaphore *g, state after, mp_link *called)
{
    if (pass->state == WAITS)
        stop_waiting(pass, g);
    else
        g->through--;
    pass->state = after;
    pass->semaphore = NULL;
    admit_waiting(pass->semaphores, g, called);
}

/* -- functions that do not take the lock ------------------------------------------------------------------------- */

static void deliver(mp_message *message, mp_loop *MP_NULLABLE loop);

/* Called without the lock: if the loop has ended, the message is delivered at once, on this thread. */
static void call(mp_link *called)
{
    mp_link *link;
    while ((link = mp_link_take(called)) != NULL) {
        mp_pass *pass = mp_container(link, mp_pass, link);
        pass->message.deliver = deliver;
        mp_loop_post(pass->loop, &pass->message);
    }
}

static void deliver(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_pass *pass = mp_container(message, mp_pass, message);
    mp_link called;
    mp_link_init(&called);
    pthread_mutex_lock(&pass->semaphores->lock);
    semaphore *g = pass->semaphore;
    if (g != NULL && loop == NULL)
        give_back(pass, g, LOST, &called);
    else if (g != NULL)
        pass->state = THROUGH;
    pthread_mutex_unlock(&pass->semaphores->lock);
    if (g == NULL)
        free(pass);
    else if (loop != NULL)
        pass->granted(pass->ctx);
    call(&called);
}

mp_pass *MP_NULLABLE mp_semaphore_enter(mp_semaphores *semaphores, mp_str name, int64_t most, mp_loop *loop,
                                        void (*granted)(void *ctx), void *ctx, bool *waits)
{
    mp_pass *pass = mp_new(sizeof *pass);
    *pass = (mp_pass){.semaphores = semaphores, .loop = loop, .granted = granted, .ctx = ctx, .state = THROUGH};
    mp_link called;
    mp_link_init(&called);
    pthread_mutex_lock(&semaphores->lock);
    bool is_new;
    semaphore *g = mp_map_need(&semaphores->by_name, name, sizeof *g, &is_new);
    pass->semaphore = g;
    if (is_new)
        mp_link_init(&g->waiters);
    g->most = most;
    if (g->waiting > 0)
        admit_waiting(semaphores, g, &called); /* `most`, the number of places, may have grown */
    *waits = g->waiting > 0 || g->through >= most;
    bool is_refused = *waits && g->waiting >= semaphores->most_waiting;
    if (!*waits) {
        g->through++;
    } else if (!is_refused) {
        pass->state = WAITS;
        mp_link_put(&g->waiters, &pass->link);
        g->waiting++;
        mp_stat_add(&mp_stat_calls_waiting, 1);
    }
    pthread_mutex_unlock(&semaphores->lock);
    call(&called);
    if (!is_refused)
        return pass;
    mp_stat_add(&mp_stat_refused_waiting, 1);
    free(pass);
    return NULL;
}

void mp_pass_leave(mp_pass *pass)
{
    mp_link called;
    mp_link_init(&called);
    mp_semaphores *semaphores = pass->semaphores;
    pthread_mutex_lock(&semaphores->lock);
    state was = pass->state;
    semaphore *g = pass->semaphore;
    if (g != NULL)
        give_back(pass, g, LEFT, &called);
    pthread_mutex_unlock(&semaphores->lock);
    if (was != CALLED) /* `deliver` of the message frees the pass */
        free(pass);
    call(&called);
}
