/* account.h: a number that all threads share and that has a limit, such as the bytes of all answers. What is to be
 * added is compared and added in one step: two threads that read the sum first and add later would both find room for
 * the same bytes.
 *     MP_ACCOUNT(fs_bytes, "fs_bytes", "", "", "bytes of file reads and writes in progress")
 *     if (!mp_account_take(&mp_account_fs_bytes, bytes, most))
 *         return "too many bytes";
 *     mp_account_give(&mp_account_fs_bytes, bytes);
 * The account is its own gauge, mp_stat_fs_bytes: what is shown is what is compared. */
#ifndef MP_TELEMETRY_ACCOUNT_H
#define MP_TELEMETRY_ACCOUNT_H

#include "stats.h"
#include <stdbool.h>

typedef struct {
    _Atomic int64_t used;
} mp_account;

/* Declares mp_account_<id>, and the gauge mp_stat_<id> (stats.h), which is read and never added to. No two accounts
 * share a cache line. */
#define MP_ACCOUNT(id, family, label, value, text)                                                                     \
    mp_account mp_account_##id __attribute__((aligned(64)));                                                           \
    MP_STAT_ROW(id, &mp_account_##id.used, MP_STAT_GAUGE, family, label, value, text, MP_SHOWN_AS_COUNTED, 0)

/* Adds `n` unless the sum would then be above `most`. False: nothing was added. */
static inline bool mp_account_take(mp_account *account, int64_t n, int64_t most)
{
    int64_t used = atomic_load_explicit(&account->used, memory_order_relaxed);
    do
        if (n > most - used)
            return false;
    while (!atomic_compare_exchange_weak_explicit(&account->used, &used, used + n, memory_order_relaxed,
                                                  memory_order_relaxed));
    return true;
}

/* The most bytes of posted messages of one kind that may wait for one thread, which may be stuck. For messages of up to
 * MP_POSTED_SMALL bytes, such as an operator's switch or a cancellation, the limit is an eighth higher: larger
 * messages, as clients can send them, leave them room. */
#define MP_POSTED_MOST ((int64_t)64 << 20)
#define MP_POSTED_SMALL 1024

/* Adds the `n` bytes of a message that is about to be posted, unless they do not fit. False: nothing was added. */
static inline bool mp_account_take_posted(mp_account *account, size_t n)
{
    int64_t most = MP_POSTED_MOST + (n <= MP_POSTED_SMALL ? MP_POSTED_MOST / 8 : 0);
    return mp_account_take(account, (int64_t)n, most);
}

/* Adds an amount that is held already, whether it fits or not. */
static inline void mp_account_add(mp_account *account, int64_t n)
{
    atomic_fetch_add_explicit(&account->used, n, memory_order_relaxed);
}

static inline void mp_account_give(mp_account *account, int64_t n)
{
    atomic_fetch_sub_explicit(&account->used, n, memory_order_relaxed);
}

/* The owner of `*held` bytes has `bytes` from now on. False, and nothing has changed, if `most` has no room for
 * more. */
static inline bool mp_account_hold(mp_account *account, size_t *held, size_t bytes, int64_t most)
{
    if (bytes > *held && !mp_account_take(account, (int64_t)(bytes - *held), most))
        return false;
    if (bytes < *held)
        mp_account_give(account, (int64_t)(*held - bytes));
    *held = bytes;
    return true;
}

/* The sum at this moment. No reason to add anything: mp_account_take() compares and adds. */
static inline int64_t mp_account_used(const mp_account *account)
{
    return atomic_load_explicit(&account->used, memory_order_relaxed);
}

/* How many places of a room each client holds. Clients whose numbers have the same remainder are one. */
typedef struct {
    _Atomic int64_t of[1024], holders; /* `holders`: clients that hold any */
} mp_holdings;
/* True if one of `holders` clients with `all` places, that has `held`, may have one more: of the last `kept`, too? */
bool mp_may_hold_one_more(int64_t held, int64_t holders, int64_t all, int64_t free_places, int64_t kept);
/* Counts `more` places of the client, and says whether it may have them; or, with none, one more. */
bool mp_holdings_add(mp_holdings *holdings, unsigned client, int64_t more, int64_t all, int64_t free, int64_t kept);
int64_t mp_holdings_change(mp_holdings *holdings, unsigned client, int64_t more); /* returns what it holds now */
/* Adds `n` that the client is about to hold, as mp_account_take, unless the last `kept` of `most` forbid it. */
bool mp_holdings_take(mp_holdings *all, mp_account *account, unsigned client, int64_t n, int64_t most, int64_t kept);
void mp_holdings_give(mp_holdings *all, mp_account *account, unsigned client, int64_t n);
unsigned mp_holder_number(const char *name, size_t len); /* of a holder that has a name, such as a script; never 0 */

#endif
