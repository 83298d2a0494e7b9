/* store_driver.c: a program for a spec that tries a store which several processes use (core/data/store.h). The first
 * argument names the case, the second a folder. It forks before it starts threads, and prints "ok" and numbers, or what
 * went wrong; then its status is 1. */
#define _GNU_SOURCE
#include "data/semaphore.h"
#include "data/store_wire.h"
#include "os/os.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PATIENCE_US 60000000
#define PROCESSES 4
#define WRITERS 2 /* threads of a process */
#define KEYS 100  /* of a writer */
#define CLAIMS 200000
#define TOKENS 3000

/* What the processes share beside the store. */
static struct {
    atomic_int state[PROCESSES]; /* what a process has reached, see `reach` */
    atomic_int operation;        /* what all shall do next */
    atomic_int is_stopped;       /* the writers end */
    atomic_int claims;           /* the next one */
    atomic_uchar won[CLAIMS];
    atomic_long done, away, taken, maybe_taken;
    atomic_long published[2]; /* the last value that a process has set, and been told so */
    atomic_long longest_us[PROCESSES];
    atomic_int inside, visits[PROCESSES]; /* of guests, who hold places of a semaphore */
} *shared;

static const char *folder;
static int me;
static pid_t pids[PROCESSES];

static void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("process %d: ", me);
    vprintf(format, args);
    printf("\n");
    va_end(args);
    fflush(stdout);
    for (int i = 0; i < PROCESSES; i++)
        if (me == 0 && pids[i] > 0)
            kill(pids[i], SIGKILL);
    _exit(1);
}

#define CHECK(fact, ...)                                                                                               \
    do                                                                                                                 \
        if (!(fact))                                                                                                   \
            fail(__VA_ARGS__);                                                                                         \
    while (0)

static void pause_us(long us)
{
    nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
}

#define WAIT_FOR(fact)                                                                                                 \
    do {                                                                                                               \
        uint64_t until_ = mp_monotonic_us() + PATIENCE_US;                                                             \
        while (!(fact)) {                                                                                              \
            CHECK(mp_monotonic_us() < until_, "waited in vain for %s", #fact);                                         \
            pause_us(500);                                                                                             \
        }                                                                                                              \
    } while (0)

static void reach(int state)
{
    atomic_store(&shared->state[me], state);
}

static const char *path_of(int process)
{
    static char paths[PROCESSES][MP_STORE_PATH];
    snprintf(paths[process], sizeof paths[process], "%s/%d.store.sock", folder, process);
    return paths[process];
}

static const char *file_path(void)
{
    static char path[200];
    snprintf(path, sizeof path, "%s/store.db", folder);
    return path;
}

/* A child runs `body`, and ends with status 0. */
static void spawn(int process, void (*body)(void))
{
    pid_t parent = getpid();
    CHECK((pids[process] = fork()) >= 0, "fork: %s", strerror(errno));
    if (pids[process] > 0)
        return;
    me = process;
    alarm(2 * PATIENCE_US / 1000000);
    if (getppid() != parent)
        _exit(1);
    body();
    fflush(stdout);
    _exit(0);
}

static void wait_child(int process)
{
    int status;
    CHECK(waitpid(pids[process], &status, 0) == pids[process], "waitpid: %s", strerror(errno));
    pids[process] = 0;
    CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0, "process %d ended with status %x", process, (unsigned)status);
}

/* -- what threads wait for ----------------------------------------------------------------------------------------- */

/* For which the threads of this process, and this thread, have waited for sockets: at most what they asked for,
 * whatever the scheduler adds. */
static atomic_long waited_us;
static __thread long waited_here_us;

/* The locks that this thread holds: while it waits for a socket, at most that of the link, or of the store whose last
 * entries are handed over. */
static __thread const pthread_mutex_t *held_locks[8];
static __thread int held_count;

int __real_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask);
int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask);
int __real_pthread_mutex_lock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_lock(pthread_mutex_t *lock);
int __real_pthread_mutex_unlock(pthread_mutex_t *lock);
int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock);

int __wrap_ppoll(struct pollfd *fds, nfds_t count, const struct timespec *time, const sigset_t *mask)
{
    uint64_t began = mp_monotonic_us();
    int ready = __real_ppoll(fds, count, time, mask);
    long asked = time == NULL ? 0 : time->tv_sec * 1000000 + time->tv_nsec / 1000,
         us = (long)(mp_monotonic_us() - began);
    us = us < asked ? us : asked;
    CHECK(asked == 0 || held_count < 2, "waits for a socket with %d locks", held_count);
    atomic_fetch_add(&waited_us, us);
    waited_here_us += us;
    return ready;
}

/* How long a store's lock was held at most: the processor time of its holder, and what that has waited for sockets. */
static _Atomic(pthread_mutex_t *) watched;
static atomic_long held_us;
static __thread long held_since_us;

static long worked_us(void)
{
    struct timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return time.tv_sec * 1000000 + time.tv_nsec / 1000 + waited_here_us;
}

int __wrap_pthread_mutex_lock(pthread_mutex_t *lock)
{
    int code = __real_pthread_mutex_lock(lock);
    if (held_count < (int)(sizeof held_locks / sizeof *held_locks))
        held_locks[held_count++] = lock;
    if (lock == atomic_load(&watched))
        held_since_us = worked_us();
    return code;
}

int __wrap_pthread_mutex_unlock(pthread_mutex_t *lock)
{
    for (int i = held_count; i-- > 0;)
        if (held_locks[i] == lock) {
            held_locks[i] = held_locks[--held_count];
            break;
        }
    if (lock == atomic_load(&watched) && held_since_us != 0) {
        long held = worked_us() - held_since_us, most = atomic_load(&held_us);
        held_since_us = 0;
        while (held > most && !atomic_compare_exchange_weak(&held_us, &most, held))
            continue;
    }
    return __real_pthread_mutex_unlock(lock);
}

/* -- stores -------------------------------------------------------------------------------------------------------- */

#define MOST_ENTRIES 1000000
#define MOST_BYTES ((size_t)128 << 20)

static mp_store *new_store(void)
{
    return mp_store_new(MOST_ENTRIES, MOST_BYTES);
}

static void serve_store(mp_store *store)
{
    mp_err err;
    CHECK(mp_store_serve(store, path_of(me), &err) == 0, "serve: %s", err.text);
}

static void follow_store(mp_store *store, int process)
{
    mp_err err;
    CHECK(mp_store_follow(store, path_of(process), &err) == 0, "follow: %s", err.text);
}

typedef struct {
    atomic_int is_done; /* 1: handed over. -1: not */
    char why[1024];
} handing;

static void on_done(void *ctx, const mp_err *MP_NULLABLE err)
{
    handing *it = ctx;
    if (err != NULL)
        snprintf(it->why, sizeof it->why, "%s", err->text);
    atomic_store(&it->is_done, err == NULL ? 1 : -1);
}

static void hand_over(mp_store *store, int process)
{
    static handing it;
    atomic_store(&it.is_done, 0);
    mp_store_hand_over(store, path_of(process), on_done, &it);
    WAIT_FOR(atomic_load(&it.is_done) != 0);
    CHECK(it.is_done == 1, "%s", it.why);
}

/* Entries of `size` bytes, "fill:NUMBER". */
static void fill(mp_store *store, int count, size_t size)
{
    char key[40], *text = malloc(size);
    memset(text, 'x', size);
    for (int i = 0; i < count; i++) {
        int len = snprintf(key, sizeof key, "fill:%08d", i);
        memcpy(text, key, (size_t)len);
        CHECK(mp_store_set(store, (mp_str){key, (size_t)len}, (mp_str){text, size}, MP_STORE_FOREVER, false) ==
                  MP_STORE_DONE,
              "not filled");
    }
    free(text);
}

static bool is_answered(mp_store_result result)
{
    return result != MP_STORE_AWAY && result != MP_STORE_UNKNOWN;
}

/* Repeats an operation that may be AWAY or UNKNOWN on a slow machine. */
#define TRY(result, call) WAIT_FOR(is_answered(result = (call)))

static int64_t number_at(mp_store *store, const char *key)
{
    mp_buf text = {0};
    mp_store_result result;
    TRY(result, mp_store_get(store, mp_str_of(key), &text));
    mp_buf_putc(&text, '\0');
    int64_t n = result == MP_STORE_DONE ? strtoll(text.ptr, NULL, 10) : -1;
    mp_buf_clear(&text);
    return n;
}

static int64_t count_keys(mp_store *store, const char *prefix)
{
    mp_buf keys = {0};
    char last[100];
    mp_str after = MP_STR_NONE;
    int64_t all = 0, count = 1;
    while (count > 0) {
        mp_store_result result;
        keys.len = 0;
        TRY(result, mp_store_keys(store, mp_str_of(prefix), after, UINT64_MAX, &keys, &count));
        uint32_t len = 0;
        for (size_t at = 0; at < keys.len; at += sizeof len + len) {
            memcpy(&len, keys.ptr + at, sizeof len);
            CHECK(len < sizeof last, "a long key");
            memcpy(last, keys.ptr + at + sizeof len, len);
        }
        after = (mp_str){last, len};
        all += count;
    }
    mp_buf_clear(&keys);
    return all;
}

static void check_filled(mp_store *store, int count)
{
    int64_t found = count_keys(store, "fill:");
    CHECK(found == count, "%d entries were filled in, %lld are there", count, (long long)found);
}

/* -- writers: operations whose results are compared with a model --------------------------------------------------- */

typedef struct {
    mp_store *store;
    int id;
    pthread_t thread;
    int64_t values[KEYS]; /* -1: none; -2: nobody knows */
    uint64_t chance;
    int64_t sums_done, sums_away;
    uint64_t longest_us;
} writer;

static uint64_t random_of(writer *w)
{
    w->chance ^= w->chance << 13;
    w->chance ^= w->chance >> 7;
    w->chance ^= w->chance << 17;
    return w->chance;
}

static mp_str key_of(const writer *w, int i, char to[40])
{
    return (mp_str){to, (size_t)snprintf(to, 40, "s:k:%d:%d:%d", me, w->id, i)};
}

/* What the model has after a write: what was AWAY is never found. */
static void note_value(writer *w, int i, mp_store_result result, int64_t value)
{
    if (result != MP_STORE_AWAY)
        w->values[i] = result == MP_STORE_DONE ? value : -2;
}

static void write_one(writer *w, int i)
{
    char key[40], text[40];
    int64_t value = (int64_t)(random_of(w) % 1000000000);
    int len = snprintf(text, sizeof text, "%lld", (long long)value);
    mp_store_result result =
        mp_store_set(w->store, key_of(w, i, key), (mp_str){text, (size_t)len}, MP_STORE_FOREVER, false);
    CHECK(result == MP_STORE_DONE || !is_answered(result), "set: %d", (int)result);
    note_value(w, i, result, value);
}

static void delete_one(writer *w, int i)
{
    char key[40];
    note_value(w, i, mp_store_delete(w->store, key_of(w, i, key)), -1);
}

/* Replaces a value, or sets the first one, if it is what the model has; or fails if the model has another one. */
static void swap_one(writer *w, int i)
{
    char key[40], old[40], text[40];
    int64_t was = w->values[i], value = (int64_t)(random_of(w) % 1000000000);
    bool is_right = random_of(w) % 4 != 0;
    if (was == -2)
        return;
    int old_len = snprintf(old, sizeof old, "%lld", (long long)(is_right ? was : was + 2));
    int len = snprintf(text, sizeof text, "%lld", (long long)value);
    mp_store_result result =
        mp_store_cas(w->store, key_of(w, i, key), is_right && was < 0 ? MP_STR_NONE : (mp_str){old, (size_t)old_len},
                     (mp_str){text, (size_t)len}, random_of(w) % 2 == 0 ? MP_STORE_FOREVER : MP_STORE_SAME_LIFE);
    CHECK(result == (is_right ? MP_STORE_DONE : MP_STORE_THERE) || !is_answered(result), "cas: %d", (int)result);
    if (is_right)
        note_value(w, i, result, value);
}

static void read_one(writer *w, int i)
{
    char key[40];
    mp_buf text = {0};
    mp_store_result result = mp_store_get(w->store, key_of(w, i, key), &text);
    mp_buf_putc(&text, '\0');
    int64_t value = result == MP_STORE_DONE ? strtoll(text.ptr, NULL, 10) : -1;
    mp_buf_clear(&text);
    if (result == MP_STORE_AWAY)
        return;
    CHECK(w->values[i] == -2 || w->values[i] == value, "key %d of writer %d has %lld instead of %lld", i, w->id,
          (long long)value, (long long)w->values[i]);
    w->values[i] = value;
}

static void add_one(writer *w)
{
    char key[40];
    int64_t sum = 0;
    int len = snprintf(key, sizeof key, "s:sum:%d:%d", me, w->id);
    mp_store_result own = mp_store_incr(w->store, (mp_str){key, (size_t)len}, 1, MP_STORE_FOREVER, &sum);
    w->sums_done += own == MP_STORE_DONE;
    w->sums_away += own == MP_STORE_UNKNOWN;
    CHECK(own != MP_STORE_DONE || (sum >= w->sums_done && sum <= w->sums_done + w->sums_away),
          "a sum of %lld after %lld", (long long)sum, (long long)w->sums_done);
    mp_store_result all = mp_store_incr(w->store, MP_STR("s:sum"), 1, MP_STORE_FOREVER, &sum);
    if (all != MP_STORE_AWAY)
        atomic_fetch_add(all == MP_STORE_DONE ? &shared->done : &shared->away, 1);
}

/* A claim is won at most once, by all writers together. All try the same ones. */
static void claim_one(const writer *w)
{
    char key[40];
    int claim = atomic_fetch_add(&shared->claims, 1) / 2;
    int len = snprintf(key, sizeof key, "s:claim:%d", claim);
    if (claim < CLAIMS &&
        mp_store_set(w->store, (mp_str){key, (size_t)len}, MP_STR("x"), MP_STORE_FOREVER, true) == MP_STORE_DONE)
        CHECK(atomic_fetch_add(&shared->won[claim], 1) == 0, "claim %d was won twice", claim);
}

static void take_one(const writer *w)
{
    uint64_t wait_us = 0;
    mp_store_result result = mp_store_take(w->store, MP_STR("bucket"), 3600000000, TOKENS, &wait_us);
    if (result == MP_STORE_DONE)
        atomic_fetch_add(&shared->taken, 1);
    if (result == MP_STORE_UNKNOWN)
        atomic_fetch_add(&shared->maybe_taken, 1);
}

static void do_one(writer *w)
{
    int i = (int)(random_of(w) % KEYS);
    switch (random_of(w) % 9) {
    case 0:
    case 1:
        write_one(w, i);
        break;
    case 2:
        delete_one(w, i);
        break;
    case 3:
    case 4:
        read_one(w, i);
        break;
    case 5:
        add_one(w);
        break;
    case 6:
        claim_one(w);
        break;
    case 7:
        swap_one(w, i);
        break;
    default:
        take_one(w);
    }
}

/* Some 2,500 operations a second. */
static void *MP_NULLABLE write_on(void *arg)
{
    writer *w = arg;
    for (int i = 0; i < KEYS; i++)
        w->values[i] = -1;
    while (!atomic_load(&shared->is_stopped)) {
        for (int i = 0; i < 5; i++) {
            uint64_t began = mp_monotonic_us();
            do_one(w);
            uint64_t needed = mp_monotonic_us() - began;
            w->longest_us = needed > w->longest_us ? needed : w->longest_us;
        }
        pause_us(2000);
    }
    return NULL;
}

static writer writers[WRITERS];

static void start_writers(mp_store *store)
{
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (writer){.store = store, .id = i, .chance = (uint64_t)(me * 100 + i + 1) * 0x9e3779b97f4a7c15u};
        CHECK(pthread_create(&writers[i].thread, NULL, write_on, &writers[i]) == 0, "no thread");
    }
}

/* After the writers of all processes have ended. */
static void check_writers(mp_store *store)
{
    char key[40];
    for (int i = 0; i < WRITERS; i++) {
        writer *w = &writers[i];
        pthread_join(w->thread, NULL);
        for (int k = 0; k < KEYS; k++)
            read_one(w, k);
        snprintf(key, sizeof key, "s:sum:%d:%d", me, i);
        int64_t sum = w->sums_done + w->sums_away == 0 ? 0 : number_at(store, key);
        CHECK(sum >= w->sums_done && sum <= w->sums_done + w->sums_away,
              "%lld was added and %lld perhaps, the sum is %lld", (long long)w->sums_done, (long long)w->sums_away,
              (long long)sum);
        if ((long)w->longest_us > atomic_load(&shared->longest_us[me]))
            atomic_store(&shared->longest_us[me], (long)w->longest_us);
    }
}

/* After check_writers of all. */
static void check_all(mp_store *store)
{
    int64_t sum = number_at(store, "s:sum");
    CHECK(sum >= shared->done && sum <= shared->done + shared->away, "%ld was added and %ld perhaps, the sum is %lld",
          shared->done, shared->away, (long long)sum);
    uint64_t wait_us;
    mp_store_result result = MP_STORE_DONE;
    for (long left = TOKENS + 1; left > 0 && result == MP_STORE_DONE; left--) {
        TRY(result, mp_store_take(store, MP_STR("bucket"), 3600000000, TOKENS, &wait_us));
        shared->taken += result == MP_STORE_DONE;
    }
    CHECK(shared->taken <= TOKENS && shared->taken >= TOKENS - shared->maybe_taken, "%ld tokens were taken of %d",
          shared->taken, TOKENS);
    CHECK(shared->done > 100, "only %ld were added", shared->done);
}

static void run_until_stopped(mp_store *store)
{
    WAIT_FOR(atomic_load(&shared->is_stopped));
    check_writers(store);
    reach(9);
}

/* -- the cases ----------------------------------------------------------------------------------------------------- */

#define MOST_HELD_US 20000
#define FILLED 65536
#define FILLED_BYTES 1000

static void follower(void)
{
    WAIT_FOR(shared->state[0] >= 1);
    mp_store *store = new_store();
    follow_store(store, 0);
    serve_store(store);
    start_writers(store);
    reach(1);
    run_until_stopped(store);
    WAIT_FOR(shared->operation >= 1);
    mp_store_free(store);
}

static void check_life(mp_store *store, uint64_t until_us)
{
    mp_buf text = {0};
    mp_store_result result;
    TRY(result, mp_store_get(store, MP_STR("mortal"), &text));
    CHECK(result == MP_STORE_DONE || mp_monotonic_us() > until_us - 100000, "an entry has ended early");
    WAIT_FOR(mp_monotonic_us() > until_us);
    TRY(result, mp_store_get(store, MP_STR("mortal"), &text));
    CHECK(result == MP_STORE_NONE, "an entry did not end");
    mp_buf_clear(&text);
}

/* A store of 64 MiB is handed over while both processes use it. */
static void move(void)
{
    spawn(1, follower);
    mp_store *store = new_store();
    serve_store(store);
    fill(store, FILLED, FILLED_BYTES);
    reach(1);
    WAIT_FOR(shared->state[1] >= 1);
    uint64_t until_us = mp_monotonic_us() + 4000000;
    mp_store_set(store, MP_STR("mortal"), MP_STR("x"), 4000, false);
    start_writers(store);
    pause_us(300000);
    int64_t bytes = mp_stat_read(&mp_stat_store_bytes);
    atomic_store(&watched, &store->lock);
    hand_over(store, 1);
    atomic_store(&watched, NULL);
    CHECK(!mp_store_is_own(store), "it is still owned here");
    CHECK(bytes > FILLED * FILLED_BYTES && mp_stat_read(&mp_stat_store_bytes) == 0, "the gauge is not 0");
    pause_us(300000);
    atomic_store(&shared->is_stopped, 1);
    check_writers(store);
    WAIT_FOR(shared->state[1] == 9);
    check_life(store, until_us);
    check_filled(store, FILLED);
    check_all(store);
    atomic_store(&shared->operation, 1);
    wait_child(1);
    mp_buf text = {0};
    CHECK(mp_store_get(store, MP_STR("x"), &text) == MP_STORE_AWAY, "the owner has ended, and it is not AWAY");
    printf("held %ld longest %ld away %ld done %ld\n", held_us, shared->longest_us[0], shared->away, shared->done);
    CHECK(held_us > 0 && held_us < MOST_HELD_US, "operations stood still for %ld us", held_us);
    mp_store_free(store);
}

/* Process 0 follows 1, which hands over to 2 and ends; 2 hands over to 3 and ends. */
static void chain_owner(void)
{
    mp_store *store = new_store();
    if (me > 1) {
        WAIT_FOR(shared->operation >= me - 1);
        follow_store(store, me - 1);
    }
    serve_store(store);
    if (me == 1)
        fill(store, 2000, 1000);
    reach(1);
    WAIT_FOR(shared->operation >= me);
    if (me < 3) {
        WAIT_FOR(shared->state[me + 1] >= 1);
        hand_over(store, me + 1);
        reach(2);
        WAIT_FOR(shared->operation > me);
    }
    mp_store_free(store);
}

static void chain(void)
{
    for (int i = 1; i < PROCESSES; i++)
        spawn(i, chain_owner);
    mp_store *store = new_store();
    WAIT_FOR(shared->state[1] >= 1);
    follow_store(store, 1);
    start_writers(store);
    for (int i = 1; i < 3; i++) {
        pause_us(100000);
        atomic_store(&shared->operation, i);
        WAIT_FOR(shared->state[i] >= 2);
    }
    pause_us(100000);
    atomic_store(&shared->is_stopped, 1);
    check_writers(store);
    check_filled(store, 2000);
    atomic_store(&shared->operation, 3);
    wait_child(1);
    wait_child(2);
    wait_child(3);
    printf("away %ld done %ld\n", shared->away, shared->done);
    mp_store_free(store);
}

/* Each process sets a value, and says so; the other one must read it then. */
static void *MP_NULLABLE see_each_other(void *arg)
{
    mp_store *store = arg;
    const char *keys[] = {"seen:0", "seen:1"};
    char text[24];
    for (long n = 1; !atomic_load(&shared->is_stopped); n++) {
        int len = snprintf(text, sizeof text, "%ld", n);
        if (mp_store_set(store, mp_str_of(keys[me]), (mp_str){text, (size_t)len}, MP_STORE_FOREVER, false) ==
            MP_STORE_DONE)
            atomic_store(&shared->published[me], n);
        long least = atomic_load(&shared->published[1 - me]);
        int64_t seen = number_at(store, keys[1 - me]);
        CHECK(least == 0 || seen >= least, "%ld was set, %lld is seen", least, (long long)seen);
        if (n % 5 == 0)
            pause_us(1000);
    }
    return NULL;
}

static void owner(void)
{
    mp_store *store = new_store();
    serve_store(store);
    fill(store, 100, 1000);
    reach(1);
    see_each_other(store);
    reach(2);
    WAIT_FOR(shared->operation >= 1);
    mp_store_free(store);
}

static atomic_int is_running, unknown_incrs;

/* A loop that uses a store whose owner is stopped. */
static void *MP_NULLABLE use_stopped(void *store)
{
    int64_t sum = 0;
    mp_buf text = {0};
    while (atomic_load(&is_running)) {
        mp_store_result result = mp_store_incr(store, MP_STR("count"), 1, MP_STORE_FOREVER, &sum);
        CHECK(!is_answered(result), "incr of a stopped owner");
        atomic_fetch_add(&unknown_incrs, result == MP_STORE_UNKNOWN);
        CHECK(mp_store_get(store, MP_STR("count"), &text) == MP_STORE_AWAY, "get of a stopped owner");
    }
    mp_buf_clear(&text);
    return NULL;
}

static void use_for_a_second(mp_store *store)
{
    pthread_t loops[2];
    atomic_store(&is_running, 1);
    for (int i = 0; i < 2; i++)
        CHECK(pthread_create(&loops[i], NULL, use_stopped, store) == 0, "no thread");
    pause_us(1000000);
    atomic_store(&is_running, 0);
    for (int i = 0; i < 2; i++)
        pthread_join(loops[i], NULL);
}

/* One thread waits for the owner, and the other one for that thread: so long do the loops stand still. */
static void stop_owner(mp_store *store)
{
    int status;
    mp_store_result result;
    int64_t sum = 0;
    TRY(result, mp_store_set(store, MP_STR("count"), MP_STR("5"), MP_STORE_FOREVER, false));
    kill(pids[1], SIGSTOP);
    CHECK(waitpid(pids[1], &status, WUNTRACED) == pids[1] && WIFSTOPPED(status), "not stopped");
    atomic_store(&waited_us, 0);
    use_for_a_second(store);
    long waited = atomic_load(&waited_us);
    kill(pids[1], SIGCONT);
    printf("stood still for %ld us\n", waited);
    CHECK(waited <= 50000, "loops stood still for %ld us", waited);
    CHECK(unknown_incrs <= 1, "%d operations were sent to a stopped owner", unknown_incrs);
    int64_t count = number_at(store, "count");
    CHECK(count == 5, "an operation that was AWAY was done: %lld", (long long)count);
    TRY(result, mp_store_incr(store, MP_STR("count"), 1, MP_STORE_FOREVER, &sum));
    CHECK(result == MP_STORE_DONE && sum >= 6, "the owner answers again, and does not add");
}

static void frozen(void)
{
    spawn(1, owner);
    mp_store *store = new_store();
    WAIT_FOR(shared->state[1] >= 1);
    follow_store(store, 1);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, see_each_other, store) == 0, "no thread");
    WAIT_FOR(shared->published[0] > 2000 && shared->published[1] > 2000);
    atomic_store(&shared->is_stopped, 1);
    pthread_join(thread, NULL);
    WAIT_FOR(shared->state[1] == 2);
    stop_owner(store);
    atomic_store(&shared->operation, 1);
    wait_child(1);
    mp_store_free(store);
}

/* -- ends at a bad moment ------------------------------------------------------------------------------------------ */

#define KILLS 25
#define KILLED_FILL 3000

static void receiver(void)
{
    WAIT_FOR(shared->state[0] >= 1);
    mp_store *store = new_store();
    follow_store(store, 0);
    serve_store(store);
    reach(1);
    WAIT_FOR(shared->operation >= 1);
    check_filled(store, KILLED_FILL);
    mp_store_free(store);
}

static void giver(void)
{
    mp_store *store = new_store();
    serve_store(store);
    fill(store, KILLED_FILL, 1000);
    reach(1);
    WAIT_FOR(shared->state[0] >= 1);
    reach(2);
    handing it = {0};
    mp_store_hand_over(store, path_of(0), on_done, &it);
    WAIT_FOR(false);
}

static void begin_to_give(mp_store *store, handing *it)
{
    serve_store(store);
    fill(store, KILLED_FILL, 1000);
    reach(1);
    WAIT_FOR(shared->state[1] >= 1);
    mp_store_hand_over(store, path_of(1), on_done, it);
}

static void begin_to_take(mp_store *store)
{
    WAIT_FOR(shared->state[1] >= 1);
    follow_store(store, 1);
    serve_store(store);
    reach(1);
    WAIT_FOR(shared->state[1] >= 2);
}

/* The other process is killed in the middle of a hand-over, KILLS times. This one owns the whole store then, or has
 * none of it. Returns how often it owns it. */
static int kill_the_other(bool is_giver)
{
    int owned = 0;
    for (int i = 0; i < KILLS; i++) {
        handing it = {0};
        mp_buf text = {0};
        atomic_store(&shared->state[0], 0);
        atomic_store(&shared->state[1], 0);
        spawn(1, is_giver ? receiver : giver);
        mp_store *store = new_store();
        if (is_giver)
            begin_to_give(store, &it);
        else
            begin_to_take(store);
        pause_us(i * 400);
        kill(pids[1], SIGKILL);
        waitpid(pids[1], NULL, 0);
        if (is_giver)
            WAIT_FOR(it.is_done != 0);
        else
            WAIT_FOR(mp_store_is_own(store) || mp_stat_read(&mp_stat_store_bytes) == 0);
        CHECK(!is_giver || mp_store_is_own(store) == (it.is_done == -1), "is_own is not what was said");
        if (mp_store_is_own(store))
            check_filled(store, KILLED_FILL), owned++;
        else
            CHECK(mp_store_get(store, MP_STR("fill:00000000"), &text) == MP_STORE_AWAY, "nobody owns it");
        mp_buf_clear(&text);
        mp_store_free(store);
        unlink(path_of(1));
    }
    return owned;
}

/* The process that takes the store over is killed: this one owns it, or has handed it over whole. */
static void kill_receiver(void)
{
    printf("kept %d of %d\n", kill_the_other(true), KILLS);
}

/* The process that hands the store over is killed: this one has none of it, or all. */
static void kill_giver(void)
{
    printf("got %d of %d\n", kill_the_other(false), KILLS);
}

/* The process that takes the store over is stopped for a time: operations here go on, and the hand-over afterwards. */
static void stop_receiver(void)
{
    int status;
    spawn(1, receiver);
    mp_store *store = new_store();
    serve_store(store);
    fill(store, KILLED_FILL, 1000);
    reach(1);
    WAIT_FOR(shared->state[1] >= 1);
    kill(pids[1], SIGSTOP);
    CHECK(waitpid(pids[1], &status, WUNTRACED) == pids[1] && WIFSTOPPED(status), "not stopped");
    handing it = {0};
    mp_store_hand_over(store, path_of(1), on_done, &it);
    int64_t sum = 0;
    for (int i = 1; i <= 200; i++) {
        CHECK(mp_store_incr(store, MP_STR("count"), 1, MP_STORE_FOREVER, &sum) == MP_STORE_DONE && sum == i,
              "incr of an own store");
        pause_us(1000);
    }
    CHECK(it.is_done == 0, "handed over to a stopped process");
    kill(pids[1], SIGCONT);
    WAIT_FOR(it.is_done != 0);
    CHECK(it.is_done == 1, "%s", it.why);
    CHECK(number_at(store, "count") == 200, "the count is another one");
    atomic_store(&shared->operation, 1);
    wait_child(1);
    mp_store_free(store);
}

/* A hand-over that is not possible, and a store that is freed while it is handed over. */
static void refused(void)
{
    mp_err err;
    mp_store *store = new_store(), *other = new_store();
    me = 1;
    serve_store(other);
    me = 0;
    handing it = {0};
    mp_store_hand_over(store, path_of(1), on_done, &it);
    WAIT_FOR(it.is_done != 0);
    CHECK(it.is_done == -1 && strstr(it.why, "does not take the store") != NULL && mp_store_is_own(store), "%s",
          it.why);
    it = (handing){0};
    mp_store_hand_over(store, path_of(2), on_done, &it);
    WAIT_FOR(it.is_done != 0);
    CHECK(it.is_done == -1 && mp_store_is_own(store), "handed over to nobody");
    CHECK(mp_store_follow(store, path_of(2), &err) == -1 && mp_store_is_own(store), "follows nobody");
    char path[200];
    memset(path, 'x', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    CHECK(mp_store_serve(store, path, &err) == -1, "serves at a long path");
    mp_store_free(other);
    mp_store_free(store);
}

/* -- strangers ----------------------------------------------------------------------------------------------------- */

static int dial(int process)
{
    int fd;
    WAIT_FOR((fd = mp_wire_connect(path_of(process))) >= 0 || errno != EAGAIN);
    CHECK(fd >= 0, "connect: %s", strerror(errno));
    return fd;
}

/* Sends bytes. Returns the kind of the answer; 0: the connection was closed. */
static uint32_t answer_to(int fd, const void *bytes, size_t len)
{
    mp_buf in = {0};
    CHECK(send(fd, bytes, len, MSG_NOSIGNAL) == (ssize_t)len, "send: %s", strerror(errno));
    int got = mp_wire_read(fd, &in, mp_monotonic_us() + PATIENCE_US);
    CHECK(got != 0, "no answer");
    uint32_t kind = got == 1 ? mp_wire_frame(&in).kind : 0;
    mp_buf_clear(&in);
    return kind;
}

static uint32_t answer_to_frame(int process, mp_store_frame frame)
{
    int fd = dial(process);
    uint32_t kind = answer_to(fd, &frame, sizeof frame);
    close(fd);
    return kind;
}

static void stranger_owner(void)
{
    mp_store *store = new_store();
    serve_store(store);
    reach(1);
    WAIT_FOR(shared->operation >= 1);
    mp_store_free(store);
}

static void try_frames(int process)
{
    char garbage[1000];
    memset(garbage, 0xa5, sizeof garbage);
    int fd = dial(process);
    CHECK(answer_to(fd, garbage, sizeof garbage) == 0, "garbage was answered");
    close(fd);
    const uint64_t late = UINT64_MAX;
    CHECK(answer_to_frame(process, (mp_store_frame){.kind = MP_WIRE_ORDER, .key_len = UINT64_MAX, .text_len = 5}) == 0,
          "2^64 bytes");
    CHECK(answer_to_frame(process, (mp_store_frame){.kind = MP_WIRE_PIECE, .text_len = 0}) == 0, "a piece");
    CHECK(answer_to_frame(process, (mp_store_frame){.kind = MP_WIRE_COMMIT}) == 0, "a commit");
    CHECK(answer_to_frame(process, (mp_store_frame){.kind = MP_WIRE_HELLO, .number = 77}) == MP_WIRE_REFUSED,
          "version 77");
    CHECK(answer_to_frame(process, (mp_store_frame){.kind = MP_WIRE_MOVE}) == MP_WIRE_REFUSED, "a store for an owner");
    CHECK(answer_to_frame(process, (mp_store_frame){.kind = MP_WIRE_ORDER, .what = MP_STORE_DELETE, .until_us = 1}) ==
              MP_WIRE_EXPIRED,
          "an old order");
    CHECK(answer_to_frame(process, (mp_store_frame){.kind = MP_WIRE_ORDER, .what = 99, .until_us = late}) ==
              MP_WIRE_REFUSED,
          "an unknown order");
}

static void strangers(void)
{
    spawn(1, stranger_owner);
    WAIT_FOR(shared->state[1] >= 1);
    mp_store *store = new_store();
    follow_store(store, 1);
    try_frames(1);
    int fds[100];
    for (int i = 0; i < 100; i++)
        fds[i] = dial(1);
    mp_store_result result;
    TRY(result, mp_store_set(store, MP_STR("a"), MP_STR("b"), MP_STORE_FOREVER, false));
    CHECK(result == MP_STORE_DONE, "not set among strangers");
    for (int i = 0; i < 100; i++)
        close(fds[i]);
    mp_buf large = {0}, got = {0};
    size_t size = MOST_BYTES + 100000;
    memset(mp_buf_room(&large, size), 'x', size);
    for (large.len = 1; large.len < size; large.len = large.len * 7 < size ? large.len * 7 : size) {
        do
            result = mp_store_set(store, MP_STR("large"), mp_buf_str(&large), MP_STORE_FOREVER, false);
        while (!is_answered(result) && large.len < 100000);
        CHECK(result == MP_STORE_DONE || (!is_answered(result) && large.len > 100000), "%zu bytes: %d", large.len,
              (int)result);
        got.len = 0;
        if (result != MP_STORE_DONE)
            continue;
        TRY(result, mp_store_get(store, MP_STR("large"), &got));
        CHECK(result == MP_STORE_DONE && mp_str_eq(mp_buf_str(&got), mp_buf_str(&large)), "other bytes");
    }
    large.len = size;
    result = mp_store_set(store, MP_STR("large"), mp_buf_str(&large), MP_STORE_FOREVER, false);
    CHECK(result == MP_STORE_FULL || !is_answered(result), "more than fits: %d", (int)result);
    TRY(result, mp_store_get(store, MP_STR("a"), &got));
    CHECK(result == MP_STORE_DONE, "not there after a large value");
    mp_buf_clear(&large);
    mp_buf_clear(&got);
    atomic_store(&shared->operation, 1);
    wait_child(1);
    mp_store_free(store);
}

/* -- places of semaphores ------------------------------------------------------------------------------------------ */

#define MOST_INSIDE 3
#define GUESTS 5 /* of a process, at once */
#define VISITS 40
#define STAY_MS 5

typedef struct {
    mp_timer timer;
    mp_pass *MP_NULLABLE pass;
    int left; /* visits */
} guest;

static mp_loop *places_loop;
static mp_semaphores *places;
static guest guests[GUESTS];
static int guests_left, taken_places;

static void visit(guest *it);

static void on_stayed(mp_timer *timer)
{
    guest *it = mp_container(timer, guest, timer);
    atomic_fetch_sub(&shared->inside, 1);
    mp_pass_leave(it->pass);
    if (--it->left > 0)
        visit(it);
    else if (--guests_left == 0)
        mp_loop_stop(places_loop);
}

static void on_inside(void *ctx)
{
    guest *it = ctx;
    int inside = atomic_fetch_add(&shared->inside, 1) + 1;
    CHECK(inside <= MOST_INSIDE, "%d hold %d places", inside, MOST_INSIDE);
    atomic_fetch_add(&shared->visits[me], 1);
    mp_timer_start(places_loop, &it->timer, STAY_MS, on_stayed);
}

static void visit(guest *it)
{
    bool waits;
    it->pass =
        mp_semaphore_enter(places, MP_STR("tool:x"), MOST_INSIDE, true, INT64_MAX, places_loop, on_inside, it, &waits);
    CHECK(it->pass != NULL, "nobody may wait");
    if (!waits)
        on_inside(it);
}

static void share_places(mp_store *store)
{
    mp_err err;
    places = mp_semaphores_new(100);
    CHECK((places_loop = mp_loop_new(&err)) != NULL, "loop: %s", err.text);
    CHECK(mp_semaphores_share(places, store, (uint16_t)(me + 1), &err) == 0, "share: %s", err.text);
}

static void visit_all(void)
{
    guests_left = GUESTS;
    for (int i = 0; i < GUESTS; i++) {
        guests[i].left = VISITS;
        visit(&guests[i]);
    }
    mp_loop_run(places_loop);
    mp_loop_free(places_loop);
}

static void on_taken(MP_UNUSED void *ctx)
{
    if (++taken_places == MOST_INSIDE)
        reach(2);
}

static void other_places(void)
{
    WAIT_FOR(shared->state[0] >= 1);
    mp_store *store = new_store();
    follow_store(store, 0);
    share_places(store);
    reach(1);
    visit_all();
    bool waits; /* and is killed with all places */
    share_places(store);
    for (int i = 0; i < MOST_INSIDE; i++)
        CHECK(mp_semaphore_enter(places, MP_STR("tool:y"), MOST_INSIDE, true, INT64_MAX, places_loop, on_taken, NULL,
                                 &waits) != NULL,
              "nobody may wait");
    mp_loop_run(places_loop);
}

/* Both processes together have no more places than one has. Those of a process that was killed are free some seconds
 * later. */
static void share_all_places(void)
{
    spawn(1, other_places);
    mp_store *store = new_store();
    serve_store(store);
    share_places(store);
    reach(1);
    WAIT_FOR(shared->state[1] >= 1);
    visit_all();
    WAIT_FOR(shared->state[1] >= 2);
    CHECK(shared->visits[0] == GUESTS * VISITS && shared->visits[1] == GUESTS * VISITS, "not all were inside");
    kill(pids[1], SIGKILL);
    waitpid(pids[1], NULL, 0);
    mp_err err;
    CHECK((places_loop = mp_loop_new(&err)) != NULL, "loop: %s", err.text);
    guests[0].left = guests_left = 1;
    bool waits;
    guests[0].pass = mp_semaphore_enter(places, MP_STR("tool:y"), MOST_INSIDE, true, INT64_MAX, places_loop, on_inside,
                                        &guests[0], &waits);
    CHECK(guests[0].pass != NULL, "nobody may wait");
    if (!waits) /* this process has waited that long for a processor */
        on_inside(&guests[0]);
    mp_loop_run(places_loop);
    mp_loop_free(places_loop);
    mp_semaphores_free(places);
    mp_store_free(store);
}

/* -- answers that are lost ----------------------------------------------------------------------------------------- */

#define LOST_DONE 300
#define LOST_MOST 20000

static void pass_on(int to, const char *bytes, ssize_t len)
{
    struct pollfd fd = {to, POLLOUT, 0};
    for (ssize_t put; len > 0 && poll(&fd, 1, -1) > 0; bytes += put, len -= put)
        if ((put = send(to, bytes, (size_t)len, MSG_NOSIGNAL)) < 0)
            return;
}

/* True if the answer is lost: then the connection is closed, at once or when no operation waits any more. */
static bool loses(int *answers)
{
    if (++*answers % 7 != 0)
        return false;
    if (*answers % 2 == 0)
        pause_us(60000);
    return true;
}

static void pass_connection(int client, int *answers)
{
    char bytes[65536];
    int owner_fd = dial(1);
    ssize_t got = 1;
    while (got > 0) {
        struct pollfd fds[2] = {{client, POLLIN, 0}, {owner_fd, POLLIN, 0}};
        if (poll(fds, 2, -1) < 0)
            continue;
        int from = fds[0].revents != 0 ? client : owner_fd;
        got = read(from, bytes, sizeof bytes);
        if (got <= 0 || (from == owner_fd && loses(answers)))
            break;
        pass_on(from == client ? owner_fd : client, bytes, got);
    }
    close(owner_fd);
    close(client);
}

/* Between a follower and the owner: each seventh answer of the owner is lost. */
static void lossy(void)
{
    struct sockaddr_un address;
    int listener = socket(AF_UNIX, SOCK_STREAM, 0), answers = 0;
    CHECK(mp_wire_address(path_of(2), &address) == 0 &&
              bind(listener, (const struct sockaddr *)&address, sizeof address) == 0 && listen(listener, 8) == 0,
          "listen: %s", strerror(errno));
    reach(1);
    for (int client; (client = accept(listener, NULL, NULL)) >= 0;)
        pass_connection(client, &answers);
}

/* What was sent and has no answer is UNKNOWN, never AWAY; and what is AWAY is never found. */
static void lose_answers(void)
{
    static mp_store_result results[LOST_MOST];
    char key[40];
    int count = 0, done = 0, unknown = 0;
    spawn(1, stranger_owner);
    WAIT_FOR(shared->state[1] >= 1);
    spawn(2, lossy);
    WAIT_FOR(shared->state[2] >= 1);
    mp_store *store = new_store();
    mp_buf got = {0};
    follow_store(store, 2);
    for (; count < LOST_MOST && done < LOST_DONE; count++) {
        snprintf(key, sizeof key, "lost:%d", count);
        results[count] = mp_store_set(store, mp_str_of(key), MP_STR("x"), MP_STORE_FOREVER, true);
        done += results[count] == MP_STORE_DONE;
        unknown += results[count] == MP_STORE_UNKNOWN;
        if (results[count] == MP_STORE_AWAY)
            pause_us(1000);
    }
    CHECK(done == LOST_DONE && unknown >= LOST_DONE / 10, "%d done, %d unknown of %d", done, unknown, count);
    follow_store(store, 1);
    for (int i = 0, found = 0; i < count; i++) {
        mp_store_result result;
        snprintf(key, sizeof key, "lost:%d", i);
        TRY(result, mp_store_get(store, mp_str_of(key), &got));
        found += result == MP_STORE_DONE;
        CHECK(results[i] != MP_STORE_DONE || result == MP_STORE_DONE, "%s was done, and is not there", key);
        CHECK(results[i] != MP_STORE_AWAY || result == MP_STORE_NONE, "%s was AWAY, and is there", key);
        CHECK(i < count - 1 || found > done, "none of %d unknown ones was done", unknown);
    }
    mp_buf_clear(&got);
    kill(pids[2], SIGKILL);
    waitpid(pids[2], NULL, 0);
    atomic_store(&shared->operation, 1);
    wait_child(1);
    mp_store_free(store);
}

/* -- places, and an owner that is stopped ----------------------------------------------------------------------------
 */

static void next_loop(void)
{
    mp_err err;
    mp_loop_free(places_loop);
    CHECK((places_loop = mp_loop_new(&err)) != NULL, "loop: %s", err.text);
}

/* The owner is stopped: a loop that enters and leaves semaphores, and turns to another owner, waits for nothing, and
 * gets its place once the owner goes on. */
static void enter_while_stopped(void)
{
    int status;
    bool waits, waits_too;
    spawn(1, stranger_owner);
    mp_store *store = new_store();
    WAIT_FOR(shared->state[1] >= 1);
    follow_store(store, 1);
    share_places(store);
    guests[0].left = guests_left = 1;
    guests[0].pass = mp_semaphore_enter(places, MP_STR("tool:x"), MOST_INSIDE, true, INT64_MAX, places_loop, on_inside,
                                        &guests[0], &waits);
    CHECK(waits, "the owner was asked while the loop waited");
    mp_loop_run(places_loop);
    next_loop();
    kill(pids[1], SIGSTOP);
    CHECK(waitpid(pids[1], &status, WUNTRACED) == pids[1] && WIFSTOPPED(status), "not stopped");
    long before = waited_here_us;
    guests[0].left = guests_left = 1;
    guests[0].pass = mp_semaphore_enter(places, MP_STR("tool:x"), MOST_INSIDE, true, INT64_MAX, places_loop, on_inside,
                                        &guests[0], &waits);
    mp_pass *other = mp_semaphore_enter(places, MP_STR("tool:z"), 1, true, INT64_MAX, places_loop, on_inside,
                                        &guests[1], &waits_too);
    mp_pass_leave(other);
    mp_store_turn(store, path_of(1));
    CHECK(waits && waits_too && waited_here_us == before, "a loop waited %ld us", waited_here_us - before);
    kill(pids[1], SIGCONT);
    mp_loop_run(places_loop);
    mp_loop_free(places_loop);
    mp_semaphores_free(places);
    atomic_store(&shared->operation, 1);
    wait_child(1);
    mp_store_free(store);
}

/* -- the file ------------------------------------------------------------------------------------------------------ */

static bool has_full_disk;

static void limit_files(rlim_t bytes)
{
    const struct rlimit limit = {bytes, RLIM_INFINITY};
    CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0, "setrlimit: %s", strerror(errno));
}

static void file_receiver(void)
{
    WAIT_FOR(shared->state[0] >= 1);
    if (has_full_disk)
        limit_files(4096);
    mp_store *store = new_store();
    follow_store(store, 0);
    mp_store_keep_later(store, file_path());
    serve_store(store);
    start_writers(store);
    reach(1);
    if (has_full_disk) {
        WAIT_FOR(mp_store_is_own(store) && mp_stat_read(&mp_stat_store_unsaved) > 100);
        limit_files(RLIM_INFINITY);
    }
    run_until_stopped(store);
    WAIT_FOR(shared->operation == 1);
    mp_store_free(store);
}

/* What the file has, loaded by a new store, equals what the store has. */
static void compare_file(mp_buf *expected)
{
    mp_err err;
    mp_store *store = new_store();
    mp_buf found = {0};
    int64_t count;
    CHECK(mp_store_keep(store, file_path(), &err) == 0, "the file: %s", err.text);
    for (size_t at = 0, next; at < expected->len; at = next) {
        const char *key = expected->ptr + at, *text = key + strlen(key) + 1;
        next = (size_t)(text + strlen(text) + 1 - expected->ptr);
        found.len = 0;
        CHECK(mp_store_get(store, mp_str_of(key), &found) == MP_STORE_DONE, "the file does not have %s", key);
        CHECK(mp_str_is(mp_buf_str(&found), text), "the file has another value of %s", key);
        mp_store_delete(store, mp_str_of(key));
    }
    found.len = 0;
    mp_store_keys(store, MP_STR("s:"), MP_STR_NONE, 1, &found, &count);
    CHECK(count == 0, "the file has %.*s, too", (int)(found.len - 4), found.ptr + 4);
    mp_buf_clear(&found);
    mp_store_free(store);
}

/* Appends all keys with "s:" and their values. */
static void copy_all(mp_store *store, mp_buf *all)
{
    mp_buf keys = {0};
    char last[100] = "";
    mp_str after = MP_STR_NONE;
    for (int64_t count = 1; count > 0;) {
        mp_store_result result;
        keys.len = 0;
        TRY(result, mp_store_keys(store, MP_STR("s:"), after, 1, &keys, &count));
        if (count == 0)
            break;
        memcpy(last, keys.ptr + 4, keys.len - 4);
        after = (mp_str){last, keys.len - 4};
        mp_buf_put(all, after);
        mp_buf_putc(all, '\0');
        TRY(result, mp_store_get(store, after, all));
        mp_buf_putc(all, '\0');
    }
    mp_buf_clear(&keys);
}

static void file_case(void)
{
    mp_err err;
    spawn(1, file_receiver);
    mp_store *store = new_store();
    CHECK(mp_store_keep(store, file_path(), &err) == 0, "the file: %s", err.text);
    serve_store(store);
    for (int i = 0; i < 3000; i++) {
        char key[40];
        int len = snprintf(key, sizeof key, "s:old:%d", i);
        mp_store_set(store, (mp_str){key, (size_t)len}, MP_STR("before"), i % 3 == 0 ? 3600000 : MP_STORE_FOREVER,
                     false);
    }
    reach(1);
    WAIT_FOR(shared->state[1] >= 1);
    start_writers(store);
    WAIT_FOR(shared->done > 200);
    for (int i = 0; i < 100; i++) { /* what the file has, and the store no longer */
        char key[40];
        int len = snprintf(key, sizeof key, "s:old:%d", i * 7);
        mp_store_delete(store, (mp_str){key, (size_t)len});
    }
    hand_over(store, 1);
    long before = shared->done;
    WAIT_FOR(shared->done > before + 200);
    atomic_store(&shared->is_stopped, 1);
    check_writers(store);
    WAIT_FOR(shared->state[1] == 9);
    mp_buf all = {0};
    copy_all(store, &all);
    CHECK(all.len > 30000, "few entries");
    atomic_store(&shared->operation, 1);
    wait_child(1);
    compare_file(&all);
    mp_buf_clear(&all);
    mp_store_free(store);
}

static void full_disk(void)
{
    signal(SIGXFSZ, SIG_IGN);
    has_full_disk = true;
    file_case();
}

/* -- records of sessions and their events -------------------------------------------------------------------------- */

#define OWNER_DIGITS "0a0a0a0a"
#define POSTED 3000

static mp_loop *tick_loop;
static mp_store *ticked;
static mp_timer tick_timer;
static atomic_int told;
static atomic_long unsaved_then;

static void on_tick(mp_timer *timer)
{
    mp_store_send_outgoing(ticked, tick_loop);
    mp_timer_start(tick_loop, timer, 1, on_tick);
}

static void *MP_NULLABLE run_loop(MP_UNUSED void *arg)
{
    mp_timer_start(tick_loop, &tick_timer, 1, on_tick);
    mp_loop_run(tick_loop);
    return NULL;
}

static void on_told(MP_UNUSED void *content, MP_UNUSED mp_loop *MP_NULLABLE loop)
{
    atomic_store(&unsaved_then, (long)mp_stat_read(&mp_stat_store_unsaved));
    atomic_store(&told, 1);
}

static mp_str key_of_session(int i, char to[100])
{
    return (mp_str){to, (size_t)snprintf(to, 100, "session:%036x%s", (unsigned)i, OWNER_DIGITS)};
}

static mp_store *file_store(void)
{
    mp_err err;
    mp_store *store = new_store();
    mp_store_save_sessions(store);
    CHECK(mp_store_keep(store, file_path(), &err) == 0, "the file: %s", err.text);
    return store;
}

static void file_owner(void)
{
    serve_store(file_store());
    reach(1);
    WAIT_FOR(false);
}

static void stop_child(int process)
{
    int status;
    kill(pids[process], SIGSTOP);
    CHECK(waitpid(pids[process], &status, WUNTRACED) == pids[process] && WIFSTOPPED(status), "not stopped");
}

/* Of three sessions one is set, one is set and ended, and one is ended and set again. */
static void post_all(mp_store *store)
{
    char key[100];
    for (int i = 0; i < POSTED; i++) {
        CHECK(mp_store_post(store, key_of_session(i, key), MP_STR("first"), 3600000) == MP_STORE_DONE, "not posted");
        if (i % 3 > 0)
            CHECK(mp_store_post(store, key_of_session(i, key), MP_STR_NONE, 0) == MP_STORE_DONE, "no end was posted");
        if (i % 3 > 1)
            CHECK(mp_store_post(store, key_of_session(i, key), MP_STR("again"), 3600000) == MP_STORE_DONE, "not again");
    }
}

static void check_posted(mp_store *store)
{
    char key[100];
    for (int i = 0; i < POSTED; i++) {
        mp_buf text = {0};
        mp_store_result result = mp_store_get(store, key_of_session(i, key), &text);
        const char *expected = i % 3 == 0 ? "first" : i % 3 == 1 ? "" : "again";
        CHECK(result == (i % 3 == 1 ? MP_STORE_NONE : MP_STORE_DONE), "session %d: %d", i, (int)result);
        CHECK(mp_str_is(mp_buf_str(&text), expected), "session %d is %.*s", i, (int)text.len, text.ptr);
        mp_buf_clear(&text);
    }
}

static mp_store *begin_outgoing(pthread_t *thread)
{
    mp_err err;
    WAIT_FOR(shared->state[1] >= 1);
    mp_store *store = ticked = new_store();
    follow_store(store, 1);
    mp_pool_start();
    CHECK((tick_loop = mp_loop_new(&err)) != NULL, "loop: %s", err.text);
    CHECK(pthread_create(thread, NULL, run_loop, NULL) == 0, "no thread");
    return store;
}

static void end_outgoing(mp_store *store, pthread_t thread)
{
    kill(pids[1], SIGKILL);
    waitpid(pids[1], NULL, 0);
    mp_loop_stop(tick_loop);
    pthread_join(thread, NULL);
    mp_pool_stop();
    mp_store_free(store);
    mp_loop_free(tick_loop);
}

/* Changes are posted while the owner is stopped: that takes no time, and none is lost. Once it was said that they are
 * saved, they are in the file of an owner that is killed. */
static void outgoing(void)
{
    pthread_t thread;
    char key[100];
    spawn(1, file_owner);
    mp_store *store = begin_outgoing(&thread);
    mp_store_post(store, key_of_session(1, key), MP_STR("before"), 3600000);
    WAIT_FOR(mp_stat_sum("store_outgoing_bytes") == 0);
    stop_child(1);
    long waited = waited_here_us;
    post_all(store);
    mp_store_when_saved(store, tick_loop, on_told, NULL);
    CHECK(waited_here_us == waited, "who posts has waited");
    CHECK(mp_stat_sum("store_outgoing_bytes") > 0, "nothing is counted");
    CHECK(told == 0, "told before the owner has anything");
    kill(pids[1], SIGCONT);
    WAIT_FOR(told == 1);
    end_outgoing(store, thread);
    store = file_store();
    check_posted(store);
    mp_store_free(store);
}

/* The thread of the file stands still while this is set. */
static atomic_bool is_disk_stopped, has_disk_stopped;

int __real_mp_store_database_begin(void *database);
int __wrap_mp_store_database_begin(void *database);

int __wrap_mp_store_database_begin(void *database)
{
    while (atomic_load(&is_disk_stopped)) {
        atomic_store(&has_disk_stopped, true);
        pause_us(500);
    }
    return __real_mp_store_database_begin(database);
}

#define OTHERS 200000

/* A session is in the file before all that was deleted earlier. */
static void urgent(void)
{
    mp_err err;
    char key[100];
    mp_store *store = file_store();
    for (int i = 0; i < OTHERS; i++) {
        int len = snprintf(key, sizeof key, "s:%d", i);
        mp_store_set(store, (mp_str){key, (size_t)len}, MP_STR("x"), MP_STORE_FOREVER, false);
    }
    WAIT_FOR(mp_stat_read(&mp_stat_store_unsaved) == 0);
    CHECK((tick_loop = mp_loop_new(&err)) != NULL, "loop: %s", err.text);
    mp_loop_stop(tick_loop);
    mp_loop_run(tick_loop); /* has ended: messages are delivered by who sends them */
    atomic_store(&is_disk_stopped, true);
    mp_store_set(store, MP_STR("s:one"), MP_STR("x"), MP_STORE_FOREVER, false);
    WAIT_FOR(has_disk_stopped);
    for (int i = 0; i < OTHERS; i++) {
        int len = snprintf(key, sizeof key, "s:%d", i);
        mp_store_delete(store, (mp_str){key, (size_t)len});
    }
    mp_store_post(store, key_of_session(1, key), MP_STR("a session"), 3600000);
    mp_store_when_saved(store, tick_loop, on_told, NULL);
    atomic_store(&is_disk_stopped, false);
    WAIT_FOR(told == 1);
    CHECK(unsaved_then > OTHERS / 2, "%ld changes were left", (long)unsaved_then);
    mp_store_free(store);
    mp_loop_free(tick_loop);
}

static void set_events(mp_store *store, int session, int count)
{
    char key[200];
    for (int i = 0; i < count; i++) {
        int len = snprintf(key, sizeof key, "event:%036x%016x%016x%s", (unsigned)session, 0, (unsigned)i, OWNER_DIGITS);
        CHECK(mp_store_post(store, (mp_str){key, (size_t)len}, MP_STR("x"), MP_STORE_FOREVER) == MP_STORE_DONE,
              "event");
    }
}

static int64_t events_of(mp_store *store, int session)
{
    char prefix[100];
    mp_store_sweep(store);
    snprintf(prefix, sizeof prefix, "event:%036x", (unsigned)session);
    return count_keys(store, prefix);
}

/* A session begins, has events and ends while the owner is stopped: the owner keeps none of them. */
static void ended(void)
{
    pthread_t thread;
    char key[100];
    spawn(1, file_owner);
    mp_store *store = begin_outgoing(&thread);
    stop_child(1);
    for (int i = 1; i <= 3; i++) {
        if (i < 3) /* that of the third one is never taken */
            mp_store_post(store, key_of_session(i, key), MP_STR("x"), 3600000);
        set_events(store, i, 10);
        if (i > 1)
            mp_store_post(store, key_of_session(i, key), MP_STR_NONE, 0);
    }
    kill(pids[1], SIGCONT);
    WAIT_FOR(mp_stat_sum("store_outgoing_bytes") == 0);
    for (int i = 1; i <= 3; i++)
        CHECK(events_of(store, i) == (i == 1 ? 10 : 0), "session %d has %d events", i, (int)events_of(store, i));
    end_outgoing(store, thread);
}

static void late_owner(void)
{
    mp_store *store = file_store();
    atomic_store(&is_disk_stopped, true);
    mp_store_set(store, MP_STR("s:one"), MP_STR("x"), MP_STORE_FOREVER, false);
    WAIT_FOR(has_disk_stopped);
    serve_store(store);
    reach(1);
    WAIT_FOR(false);
}

/* Nobody hears that the owner's file has what it does not have: neither while its disk stands still, nor while the
 * owner does; after a second that is said to be late. */
static void late(void)
{
    pthread_t thread;
    char key[100];
    spawn(1, late_owner);
    mp_store *store = begin_outgoing(&thread);
    mp_store_post(store, key_of_session(1, key), MP_STR("x"), 3600000);
    mp_store_when_saved(store, tick_loop, on_told, NULL);
    WAIT_FOR(mp_stat_sum("store_outgoing_bytes") == 0);
    CHECK(!mp_store_await_saved(store), "the file is said to have a session"); /* the job waits as long */
    stop_child(1);
    CHECK(!mp_store_await_saved(store), "a stopped owner is said to have a session");
    CHECK(told == 0, "told before the file has anything");
    kill(pids[1], SIGCONT);
    mp_store_tell_late(store);
    WAIT_FOR(told == 1);
    CHECK(mp_stat_sum("store_late") == 1, "not said to be late");
    atomic_store(&told, 0);
    mp_store_post(store, key_of_session(2, key), MP_STR("x"), 3600000);
    mp_store_when_saved(store, tick_loop, on_told, NULL);
    CHECK(told == 1, "waits though the owner is late");
    end_outgoing(store, thread);
}

static void small_owner(void)
{
    serve_store(mp_store_new(1000, 1024));
    reach(1);
    WAIT_FOR(false);
}

static atomic_int refused_records[2]; /* of sessions that had no record before, and had one */

static void on_refused(MP_UNUSED void *ctx, MP_UNUSED mp_str key, bool is_there)
{
    atomic_fetch_add(&refused_records[is_there], 1);
}

/* Who has posted the record of a session hears that the owner had no place for it. */
static void without_place(void)
{
    static char large[128 << 10]; /* more than its owner takes at once */
    pthread_t thread;
    char key[100];
    spawn(1, small_owner);
    mp_store *store = begin_outgoing(&thread);
    mp_store_on_refused(store, on_refused, NULL);
    mp_store_post(store, key_of_session(1, key), MP_STR("small"), 3600000);
    WAIT_FOR(mp_stat_sum("store_outgoing_bytes") == 0);
    for (int i = 1; i <= 2; i++)
        mp_store_post(store, key_of_session(i, key), (mp_str){large, sizeof large}, 3600000);
    mp_store_post(store, MP_STR("event:"), (mp_str){large, sizeof large}, 3600000);
    WAIT_FOR(mp_stat_sum("store_outgoing_bytes") == 0);
    CHECK(refused_records[0] == 1 && refused_records[1] == 1, "%d and %d were refused", refused_records[0],
          refused_records[1]);
    end_outgoing(store, thread);
}

/* Events end with the record of their session, and one owner cannot fill the room of records. */
static void records(void)
{
    char key[100];
    mp_store *store = new_store();
    for (int i = 1; i <= 2; i++) {
        mp_store_post(store, key_of_session(i, key), MP_STR("x"), i == 1 ? 100 : 3600000);
        set_events(store, i, 1000);
    }
    WAIT_FOR(events_of(store, 1) == 0);
    CHECK(events_of(store, 2) == 1000, "events of another session are gone");
    mp_store_post(store, key_of_session(2, key), MP_STR_NONE, 0);
    CHECK(events_of(store, 2) == 0, "events without a session");
    mp_store_free(store);

    mp_room rooms[MP_ROOMS] = {[MP_ROOM_SESSIONS] = {.most_entries = 10, .most_bytes = 1000}};
    mp_room *room = &rooms[MP_ROOM_SESSIONS];
    int own = 0;
    while (mp_room_takes(room, MP_ROOM_SESSIONS, key_of_session(own, key), 1, 50)) {
        mp_room_count(room, MP_ROOM_SESSIONS, key_of_session(own, key), 1, 50);
        own++;
    }
    CHECK(own == 5, "one owner has %d of 10 records", own);
    int len = snprintf(key, sizeof key, "session:%036x%s", 99, "0b0b0b0b");
    CHECK(mp_room_takes(room, MP_ROOM_SESSIONS, (mp_str){key, (size_t)len}, 1, 50), "another owner has none");

    mp_room full = {.most_entries = 100, .most_bytes = 1000, .entries = 90, .bytes = 500};
    CHECK(!mp_room_takes(&full, MP_ROOM_SIGN_IN, MP_STR("signin:family:x"), 1, 1), "a sign-in in the room of endings");
    CHECK(mp_room_takes(&full, MP_ROOM_SIGN_IN, MP_STR("signin:ended:x"), 1, 1), "no room for an ending");
    CHECK(mp_room_takes(&full, MP_ROOM_SIGN_IN, MP_STR("signin:family:x"), 0, 0), "a record that does not grow");
    mp_rooms_clear(rooms);
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } cases[] = {{"move", move},
                 {"chain", chain},
                 {"frozen", frozen},
                 {"kill-receiver", kill_receiver},
                 {"kill-giver", kill_giver},
                 {"stop-receiver", stop_receiver},
                 {"refused", refused},
                 {"strangers", strangers},
                 {"places", share_all_places},
                 {"places-stopped", enter_while_stopped},
                 {"lost", lose_answers},
                 {"file", file_case},
                 {"full-disk", full_disk},
                 {"outgoing", outgoing},
                 {"ended", ended},
                 {"without-place", without_place},
                 {"late", late},
                 {"urgent", urgent},
                 {"records", records}};
    if (argc != 3)
        return 2;
    folder = argv[2];
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return 2;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) != 0)
            continue;
        cases[i].run();
        printf("ok\n");
        return 0;
    }
    return 2;
}
