/* expiry.c: at the time at which credentials expire, ends the event streams that they opened; the client
 * reconnects with new credentials. A call in flight continues. Also the table of sign-ins that were ended earlier, by
 * a revocation or an operator. */
#include "state.h"

#define DAY_MS ((uint64_t)86400000)

/* Milliseconds until the credentials expire, at most a day, because the clock may be set meanwhile. */
static uint64_t ms_until(int64_t expires)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    int64_t seconds = expires - (int64_t)now.tv_sec;
    if (seconds <= 0)
        return 0;
    uint64_t ms = (uint64_t)seconds > DAY_MS / 1000 ? DAY_MS : (uint64_t)seconds * 1000;
    return ms - (uint64_t)now.tv_nsec / 1000000;
}

void mp_expiry_start(mp_rpc *rpc, mp_timer *timer, int64_t expires, void (*fire)(mp_timer *timer))
{
    if (expires != 0 && rpc->config->streams_expire)
        mp_timer_start(rpc->loop, timer, ms_until(expires), fire);
}

bool mp_expiry_is_over(int64_t expires)
{
    return ms_until(expires) == 0;
}

/* -- sign-ins that have ended -------------------------------------------------------------------------------------- */

#define WAYS 16
/* The store has at most 100,000 endings (store_rooms.c), six of a bucket on average. Ids are random: nobody chooses the
 * bucket. Only where all places of a bucket are taken the store has to be asked. */
#define BUCKETS 16384
#define SWEPT 16 /* buckets in one sweep */

MP_ACCOUNT(sign_ins_ended, "sign_ins_ended", "", "",
           "sign-ins that have ended, as long as access tokens of them may be left")

static struct {
    pthread_mutex_t lock; /* guards `until` and `next`; `ids` are changed under it, and read without */
    size_t next;
    uint32_t until[BUCKETS][WAYS];       /* seconds of the monotonic clock */
    _Atomic uint64_t ids[BUCKETS][WAYS]; /* 0: a free place */
    _Atomic uint64_t doubts, known;
    atomic_bool is_short; /* a bucket had no place */
} ended;

static uint32_t now_s(void)
{
    return (uint32_t)(mp_monotonic_ms() / 1000);
}

/* The caller holds the lock. */
static void sweep_bucket(size_t bucket, uint32_t now)
{
    for (size_t i = 0; i < WAYS; i++) {
        if (atomic_load_explicit(&ended.ids[bucket][i], memory_order_relaxed) == 0 || ended.until[bucket][i] > now)
            continue;
        atomic_store_explicit(&ended.ids[bucket][i], 0, memory_order_relaxed);
        mp_account_give(&mp_account_sign_ins_ended, 1);
    }
}

static _Atomic uint64_t *MP_NULLABLE place_of(uint64_t id, uint64_t wanted)
{
    _Atomic uint64_t *bucket = ended.ids[id % BUCKETS];
    for (size_t i = 0; i < WAYS; i++)
        if (atomic_load_explicit(&bucket[i], memory_order_relaxed) == wanted)
            return &bucket[i];
    return NULL;
}

bool mp_ended_put(uint64_t id, uint32_t seconds)
{
    size_t bucket = id % BUCKETS;
    uint32_t now = now_s();
    MP_LOCKED(&ended.lock);
    sweep_bucket(bucket, now);
    _Atomic uint64_t *place = place_of(id, id);
    bool is_new = place == NULL;
    if (is_new && (place = place_of(id, 0)) == NULL) {
        atomic_store(&ended.is_short, true);
        return false;
    }
    ended.until[bucket][place - ended.ids[bucket]] = now + seconds;
    if (is_new) {
        mp_account_add(&mp_account_sign_ins_ended, 1);
        atomic_store(place, id);
    }
    return is_new;
}

bool mp_ended_has(uint64_t id)
{
    return id != 0 && place_of(id, id) != NULL;
}

void mp_ended_sweep(void)
{
    if (mp_account_used(&mp_account_sign_ins_ended) == 0 || pthread_mutex_trylock(&ended.lock) != 0)
        return;
    for (uint32_t i = 0, now = now_s(); i < SWEPT; i++)
        sweep_bucket(ended.next++ % BUCKETS, now);
    pthread_mutex_unlock(&ended.lock);
}

bool mp_ended_are_known(void)
{
    uint64_t doubts = atomic_load(&ended.doubts);
    return doubts != 0 && atomic_load(&ended.known) == doubts && !atomic_load(&ended.is_short);
}

uint64_t mp_sign_ins_doubt(bool is_again)
{
    return !is_again && mp_ended_are_known() ? 0 : atomic_fetch_add(&ended.doubts, 1) + 1;
}

void mp_sign_ins_know(uint64_t doubt)
{
    MP_LOCKED(&ended.lock);
    if (doubt > atomic_load(&ended.known))
        atomic_store(&ended.known, doubt);
}
