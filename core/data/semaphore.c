/* semaphore.c: which passes hold a place and which wait. One lock guards all semaphores. When a waiting pass gets
 * its place, its loop gets a message. A store that another process owns is asked by a thread, without the lock: until
 * it has answered, passes wait. */
#include "data/semaphore.h"
#include "data/store_later.h"
#include "os/os.h"

MP_GAUGE(calls_waiting, "calls_waiting", "", "",
         "calls that wait because of the concurrency limit of their tool, or for their turn at an upstream")
MP_REFUSED(refused_waiting, "waiting", MP_LIMIT_REACHED,
           "calls above 256 that wait for a tool with concurrency, and above 32 for a password to be checked")

typedef struct {
    mp_node node;
    int64_t most, through, waiting;
    bool is_shared;
    bool is_asked; /* the thread is asking the store, without the lock; until it has the answer, no other thread asks */
    bool is_due;   /* the store is to be told again how many places this process holds */
    mp_link waiters;
    mp_link turn; /* link in semaphores->turns: the thread is to ask the store */
} semaphore;

typedef enum {
    WAITS,
    CALLED, /* the pass has a place, and the message to its loop is on the way */
    THROUGH,
    LEFT, /* the pass was given back while its message was on the way; `deliver` of the message frees the pass */
    LOST  /* the loop had ended before the message arrived; the owner frees the pass */
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
    int64_t most_waiting; /* limit of the passes that wait for one semaphore */

    mp_store *MP_NULLABLE store; /* NULL: this process shares its semaphores with no other one */
    char who[8];                 /* the number of this process */
    pthread_t thread;
    pthread_cond_t news; /* `turns` has one, a pass waits for a shared semaphore, or the semaphores are freed */
    bool is_ending;
    int64_t awaiting;            /* passes that wait for shared semaphores */
    uint64_t looked_us, said_us; /* when all semaphores were last looked at, and all held places last reported */
    mp_link turns;               /* of semaphores for which the thread is to ask the store */
};

mp_semaphores *mp_semaphores_new(int64_t most_waiting)
{
    mp_semaphores *semaphores = mp_new(sizeof *semaphores);
    pthread_mutex_init(&semaphores->lock, NULL);
    mp_map_init(&semaphores->by_name);
    semaphores->most_waiting = most_waiting;
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&semaphores->news, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return semaphores;
}

static void free_unused(mp_semaphores *semaphores, semaphore *g)
{
    if (g->through > 0 || g->waiting > 0 || g->is_asked || !mp_link_is_alone(&g->turn))
        return;
    mp_map_drop(&semaphores->by_name, &g->node);
    free(g);
}

void mp_semaphores_free(mp_semaphores *semaphores)
{
    if (semaphores->store != NULL) {
        pthread_mutex_lock(&semaphores->lock);
        semaphores->is_ending = true;
        pthread_cond_signal(&semaphores->news);
        pthread_mutex_unlock(&semaphores->lock);
        pthread_join(semaphores->thread, NULL);
    }
    for (mp_link *turn; (turn = mp_link_take(&semaphores->turns)) != NULL;)
        free_unused(semaphores, mp_container(turn, semaphore, turn));
    pthread_cond_destroy(&semaphores->news);
    mp_map_clear(&semaphores->by_name);
    pthread_mutex_destroy(&semaphores->lock);
    free(semaphores);
}

/* -- under the lock ---------------------------------------------------------------------------------------------- */

static void put_turn(mp_semaphores *semaphores, semaphore *g)
{
    if (!mp_link_is_alone(&g->turn))
        return;
    mp_link_put(&semaphores->turns, &g->turn);
    pthread_cond_signal(&semaphores->news);
}

static mp_store_operation report_of(const mp_semaphores *semaphores, const semaphore *g, int64_t count, int64_t most)
{
    return (mp_store_operation){.kind = MP_STORE_PLACE,
                                .key = g->node.key,
                                .text = mp_str_of(semaphores->who),
                                .number = (uint64_t)most,
                                .n = count};
}

/* Reports how many places this process holds, if it owns the store. False: the store has fewer free places, or another
 * process owns it, which the thread is to ask. */
static bool say_places(mp_semaphores *semaphores, semaphore *g, int64_t count, int64_t most)
{
    int64_t n;
    mp_buf nothing = {0};
    mp_store_result result = MP_STORE_AWAY;
    if (semaphores->store == NULL || !g->is_shared)
        return true;
    mp_store_operation it = report_of(semaphores, g, count, most);
    if (!g->is_asked)
        result = mp_store_run(MP_NEVER_NULL(semaphores->store), &it, &nothing, &n);
    if (result == MP_STORE_AWAY)
        put_turn(semaphores, g);
    return result == MP_STORE_DONE;
}

static bool take_place(mp_semaphores *semaphores, semaphore *g)
{
    if (g->through >= g->most || !say_places(semaphores, g, g->through + 1, g->most))
        return false;
    g->through++;
    return true;
}

static void start_waiting(mp_pass *pass, semaphore *g)
{
    pass->state = WAITS;
    mp_link_put(&g->waiters, &pass->link);
    g->waiting++;
    mp_stat_add(&mp_stat_calls_waiting, 1);
    if (g->is_shared && pass->semaphores->awaiting++ == 0)
        pthread_cond_signal(&pass->semaphores->news);
}

static void stop_waiting(mp_pass *pass, semaphore *g)
{
    mp_link_drop(&pass->link);
    g->waiting--;
    pass->semaphores->awaiting -= g->is_shared;
    mp_stat_add(&mp_stat_calls_waiting, -1);
}

/* The pass has a place: moves it to `called`. */
static void admit_pass(mp_pass *pass, semaphore *g, mp_link *called)
{
    stop_waiting(pass, g);
    pass->state = CALLED;
    mp_link_put(called, &pass->link);
}

static mp_pass *first_waiting(const semaphore *g)
{
    return mp_container(g->waiters.next, mp_pass, link);
}

/* Gives free places to waiting passes, and moves these to `called`. Frees a semaphore that has no pass. */
static void admit_waiting(mp_semaphores *semaphores, semaphore *g, mp_link *called)
{
    while (g->waiting > 0 && take_place(semaphores, g))
        admit_pass(first_waiting(g), g, called);
    free_unused(semaphores, g);
}

/* The pass gives its place, or the place for which it waits, back to the semaphore `g`. */
static void give_back(mp_pass *pass, semaphore *g, state after, mp_link *called)
{
    if (pass->state == WAITS)
        stop_waiting(pass, g);
    else if (!say_places(pass->semaphores, g, --g->through, INT64_MAX))
        g->is_due = true;
    pass->state = after;
    pass->semaphore = NULL;
    admit_waiting(pass->semaphores, g, called);
}

/* -- functions that do not take the lock ------------------------------------------------------------------------- */

static void deliver_pass(mp_message *message, mp_loop *MP_NULLABLE loop);

/* Called without the lock: if the loop has ended, the message is delivered at once, on this thread. */
static void call_granted(mp_link *called)
{
    mp_link *link;
    while ((link = mp_link_take(called)) != NULL) {
        mp_pass *pass = mp_container(link, mp_pass, link);
        pass->message.deliver = deliver_pass;
        mp_loop_post(pass->loop, &pass->message);
    }
}

static void deliver_pass(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_pass *pass = mp_container(message, mp_pass, message);
    mp_link called = {0};
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
    call_granted(&called);
}

mp_pass *MP_NULLABLE mp_semaphore_enter(mp_semaphores *semaphores, mp_str name, int64_t most, bool is_shared,
                                        int64_t most_waiting, mp_loop *loop, void (*granted)(void *ctx), void *ctx,
                                        bool *waits)
{
    if (most_waiting > semaphores->most_waiting)
        most_waiting = semaphores->most_waiting;
    mp_pass *pass = mp_new(sizeof *pass);
    *pass = (mp_pass){.semaphores = semaphores, .loop = loop, .granted = granted, .ctx = ctx, .state = THROUGH};
    mp_link called = {0};
    pthread_mutex_lock(&semaphores->lock);
    bool is_new;
    semaphore *g = mp_map_need(&semaphores->by_name, name, sizeof *g, &is_new);
    pass->semaphore = g;
    if (is_new) {
        g->is_shared = is_shared;
    }
    g->most = most;
    if (g->waiting > 0)
        admit_waiting(semaphores, g, &called); /* `most`, the number of places, may have grown */
    *waits = g->waiting > 0 || !take_place(semaphores, g);
    int64_t open = g->most > g->through ? g->most - g->through : 0; /* places for which the thread may be asking */
    bool is_refused = *waits && g->waiting >= most_waiting + open;
    if (*waits && !is_refused)
        start_waiting(pass, g);
    if (is_refused && g->through == 0 && g->waiting == 0)
        admit_waiting(semaphores, g, &called); /* frees it */
    pthread_mutex_unlock(&semaphores->lock);
    call_granted(&called);
    if (!is_refused)
        return pass;
    mp_stat_add(&mp_stat_refused_waiting, 1);
    free(pass);
    return NULL;
}

void mp_pass_leave(mp_pass *pass)
{
    mp_link called = {0};
    mp_semaphores *semaphores = pass->semaphores;
    pthread_mutex_lock(&semaphores->lock);
    state was = pass->state;
    semaphore *g = pass->semaphore;
    if (g != NULL)
        give_back(pass, g, LEFT, &called);
    pthread_mutex_unlock(&semaphores->lock);
    if (was != CALLED) /* `deliver` of the message frees the pass */
        free(pass);
    call_granted(&called);
}

/* -- several processes --------------------------------------------------------------------------------------------- */

/* between two looks at semaphores that are full elsewhere */
#define LOOK_US 20000
/* time between two reports of the places that are held */
#define SAY_US (MP_STORE_PLACE_MS * (uint64_t)1000 / 4)

/* Asks the store for `more` places than this process holds; 0: reports those that it holds. Gives the lock back while
 * it waits. */
static mp_store_result ask_for(mp_semaphores *semaphores, semaphore *g, int64_t more)
{
    mp_buf nothing = {0};
    int64_t n, count = g->through + more;
    mp_store_operation it = report_of(semaphores, g, count, more > 0 ? g->most : INT64_MAX);
    g->is_asked = true;
    g->is_due = false;
    pthread_mutex_unlock(&semaphores->lock);
    mp_store_result result = mp_store_do(MP_NEVER_NULL(semaphores->store), &it, &nothing, &n);
    pthread_mutex_lock(&semaphores->lock);
    g->is_asked = false;
    g->is_due = g->is_due || result == MP_STORE_UNKNOWN;
    return result;
}

/* Admits waiting passes for which the store has places, and reports what is held. A report that fails is repeated when
 * all places are next reported (SAY_US). The caller holds the lock, which is given back meanwhile. */
static void ask_store(mp_semaphores *semaphores, semaphore *g, mp_link *called)
{
    int64_t open = g->most - g->through, more = open < g->waiting ? open : g->waiting;
    mp_store_result result = more > 0 ? ask_for(semaphores, g, more) : MP_STORE_THERE;
    if (result == MP_STORE_THERE && more > 1)
        result = ask_for(semaphores, g, more = 1);
    for (; result == MP_STORE_DONE && more > 0 && g->waiting > 0; more--, g->through++)
        admit_pass(first_waiting(g), g, called);
    if (g->is_due || (result == MP_STORE_DONE && more > 0))
        ask_for(semaphores, g, 0);
    free_unused(semaphores, g);
}

static void look_at(mp_node *node, void *arg)
{
    mp_semaphores *semaphores = arg;
    semaphore *g = mp_container(node, semaphore, node);
    bool is_due = semaphores->said_us == semaphores->looked_us && g->through > 0;
    if (!g->is_shared || !(is_due || (g->waiting > 0 && g->through < g->most)))
        return;
    g->is_due = g->is_due || is_due;
    put_turn(semaphores, g);
}

static void look_at_all(mp_semaphores *semaphores)
{
    uint64_t now = mp_monotonic_us();
    if (now - semaphores->looked_us < LOOK_US)
        return;
    semaphores->looked_us = now;
    if (now - semaphores->said_us >= SAY_US)
        semaphores->said_us = now;
    mp_map_each(&semaphores->by_name, look_at, semaphores);
}

/* Waits for a change. The caller holds the lock. */
static void await_news(mp_semaphores *semaphores)
{
    uint64_t until = mp_monotonic_us() + (semaphores->awaiting > 0 ? LOOK_US : SAY_US);
    struct timespec time = {(time_t)(until / 1000000), (long)(until % 1000000) * 1000};
    pthread_cond_timedwait(&semaphores->news, &semaphores->lock, &time);
}

static void *MP_NULLABLE share_pool(void *arg)
{
    mp_semaphores *semaphores = arg;
    mp_crash_thread("places", 0);
    pthread_mutex_lock(&semaphores->lock);
    while (!semaphores->is_ending) {
        look_at_all(semaphores);
        mp_link called = {0}, *turn = mp_link_take(&semaphores->turns);
        if (turn == NULL) {
            await_news(semaphores);
            continue;
        }
        ask_store(semaphores, mp_container(turn, semaphore, turn), &called);
        pthread_mutex_unlock(&semaphores->lock);
        call_granted(&called);
        pthread_mutex_lock(&semaphores->lock);
    }
    pthread_mutex_unlock(&semaphores->lock);
    return NULL;
}

int mp_semaphores_share(mp_semaphores *semaphores, mp_store *store, uint16_t number, mp_err *err)
{
    pthread_mutex_lock(&semaphores->lock);
    snprintf(semaphores->who, sizeof semaphores->who, "%u", (unsigned)number);
    semaphores->store = store;
    int code = mp_thread_start(&semaphores->thread, share_pool, semaphores);
    if (code != 0)
        semaphores->store = NULL;
    pthread_mutex_unlock(&semaphores->lock);
    return code == 0 ? 0 : mp_err_set(err, "limits of concurrency: cannot start a thread: %s", strerror(code));
}
