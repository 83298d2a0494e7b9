/* pool.c: threads that take jobs from one queue and post them back to the loops that submitted them. */
#include "pool.h"
#include <signal.h>

MP_GAUGE(pool_jobs, "pool_jobs", "", "", "blocking jobs that wait for a thread or run")
MP_REFUSED(refused_pool, "pool", MP_LIMIT_REACHED, "blocking jobs above 1,024 that wait")

#define MAX_THREADS 64

static struct {
    pthread_mutex_t lock;
    pthread_cond_t given;
    mp_link queue; /* jobs that have not begun */
    int64_t queued, max_queued;
    int64_t idle, threads, max_threads;
    bool is_stopping;
    pthread_t ids[MAX_THREADS];
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .given = PTHREAD_COND_INITIALIZER};

static void deliver_job(mp_message *message, mp_loop *MP_NULLABLE loop)
{
    mp_job *job = mp_container(message, mp_job, message);
    mp_stat_add(&mp_stat_pool_jobs, -1);
    job->done(job, loop);
}

/* Removes the oldest job from the queue; NULL if the queue is empty. */
static mp_job *MP_NULLABLE take_job(void)
{
    mp_link *link = pool.queued == 0 ? NULL : mp_link_take(&pool.queue);
    if (link == NULL)
        return NULL;
    pool.queued--;
    return mp_container(link, mp_job, link);
}

static void *MP_NULLABLE run_jobs(MP_UNUSED void *ctx)
{
    mp_crash_thread("pool", 0);
    pthread_mutex_lock(&pool.lock);
    while (!pool.is_stopping) {
        mp_job *job = take_job();
        if (job == NULL) {
            pool.idle++;
            pthread_cond_wait(&pool.given, &pool.lock);
            pool.idle--;
            continue;
        }
        pthread_mutex_unlock(&pool.lock);
        job->work(job);
        mp_loop_post(job->loop, &job->message);
        pthread_mutex_lock(&pool.lock);
    }
    pthread_mutex_unlock(&pool.lock);
    return NULL;
}

int mp_thread_start(pthread_t *thread, void *MP_NULLABLE (*run)(void *arg), void *MP_NULLABLE arg)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int code = pthread_create(thread, NULL, run, arg);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return code;
}

/* Starts one more thread if all are busy. */
static void start_thread(void)
{
    if (pool.queued < pool.idle || pool.threads == pool.max_threads)
        return;
    if (mp_thread_start(&pool.ids[pool.threads], run_jobs, NULL) == 0)
        pool.threads++;
}

void mp_pool_start(void)
{
    MP_LOCKED(&pool.lock);
    pool.max_threads = MP_POOL_THREADS < MAX_THREADS ? MP_POOL_THREADS : MAX_THREADS;
    pool.max_queued = MP_POOL_QUEUE;
    pool.is_stopping = false;
}

void mp_pool_stop(void)
{
    pthread_mutex_lock(&pool.lock);
    pool.is_stopping = true;
    pool.max_queued = 0;
    pthread_cond_broadcast(&pool.given);
    pthread_mutex_unlock(&pool.lock);
    for (; pool.threads > 0; pool.threads--)
        pthread_join(pool.ids[pool.threads - 1], NULL);
    for (mp_job *job; (job = take_job()) != NULL;)
        mp_loop_post(job->loop, &job->message);
}

int mp_pool_run(mp_loop *loop, mp_job *job)
{
    job->loop = loop;
    job->message.deliver = deliver_job;
    pthread_mutex_lock(&pool.lock);
    bool is_taken = pool.queued < pool.max_queued;
    if (is_taken)
        start_thread();
    is_taken = is_taken && pool.threads > 0;
    if (is_taken) {
        mp_link_put(&pool.queue, &job->link);
        pool.queued++;
        pthread_cond_signal(&pool.given);
    }
    pthread_mutex_unlock(&pool.lock);
    mp_stat_add(is_taken ? &mp_stat_pool_jobs : &mp_stat_refused_pool, 1);
    return is_taken ? 0 : -1;
}

bool mp_pool_take_back(mp_job *job)
{
    pthread_mutex_lock(&pool.lock);
    bool is_waiting = !mp_link_is_alone(&job->link);
    if (is_waiting) {
        mp_link_drop(&job->link);
        pool.queued--;
    }
    pthread_mutex_unlock(&pool.lock);
    if (is_waiting)
        mp_stat_add(&mp_stat_pool_jobs, -1);
    return is_waiting;
}
