/* store.c: the listening sockets that the service manager stores, so that the next process after a crash listens on
 * them: until then connections wait in the kernel and are not refused. */
#include "listeners.h"
#include "gateway/notify.h"

static bool is_among(const mp_bound *one, const mp_address *list, int count)
{
    bool found = false;
    for (int i = 0; i < count && !found; i++)
        found = strcmp(list[i].text, one->address.text) == 0;
    return found;
}

/* Sets in `shares` how many sockets of each wanted address are stored. One stored socket is enough for an address to
 * take connections after a crash, so each address gets one before any gets a second. A crash resets the connections
 * that wait, or are being made, at sockets which are not stored. */
static void share_out(const mp_listeners *listeners, const bool *wanted, int *shares)
{
    int left = MP_NOTIFY_SOCKETS;
    for (bool has_more = true; has_more && left > 0;) {
        has_more = false;
        for (int i = 0; i < listeners->count && left > 0; i++)
            if (wanted[i] && shares[i] < listeners->all[i].sockets) {
                shares[i]++;
                left--;
                has_more = true;
            }
    }
}

static void store_one(mp_listeners *listeners, int i, int most)
{
    int fds[MP_NOTIFY_SOCKETS], count = mp_listeners_sockets(listeners, i, fds, most);
    mp_bound *one = &listeners->all[i];
    if (count < most)
        mp_log(MP_WARN, "socket not stored", mp_log_str("address", mp_str_of(one->address.text)),
               mp_log_str("why", MP_STR("no descriptor is free, or the gateway drains")));
    if (count == 0)
        return;
    atomic_store(&one->is_stored, true);
    mp_notify_store(one->name, fds, count);
}

void mp_listeners_store(mp_listeners *listeners, const mp_config *config)
{
    if (!listeners->may_store)
        return;
    int configured;
    mp_address *list = mp_listeners_addresses(config, &configured);
    bool *wanted = mp_new((size_t)(listeners->count + 1) * sizeof *wanted);
    int *shares = mp_new((size_t)(listeners->count + 1) * sizeof *shares);
    for (int i = 0; i < listeners->count; i++) {
        mp_bound *one = &listeners->all[i];
        wanted[i] = one->name[0] != '\0' && is_among(one, list, configured);
        if (!wanted[i] && atomic_exchange(&one->is_stored, false))
            mp_notify_remove(one->name);
    }
    share_out(listeners, wanted, shares);
    for (int i = 0; i < listeners->count; i++)
        if (wanted[i] && shares[i] > 0 && !atomic_load(&listeners->all[i].is_stored))
            store_one(listeners, i, shares[i]);
    free(list);
    free(wanted);
    free(shares);
}

void mp_listeners_ready(mp_listeners *listeners, const mp_config *config)
{
    mp_notify_ready();
    listeners->may_store = mp_notify_can_store();
    mp_listeners_store(listeners, config);
}
