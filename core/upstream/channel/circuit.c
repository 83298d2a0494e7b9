/* circuit.c: the circuit of an upstream: when an upstream that fails is called again, and when a channel whose
 * opening failed is opened again. Pure functions on structs; the caller has the upstream's lock. */
#include "upstream/state.h"
#include <sys/random.h>

#define HALF_MS 15000  /* half of the window: a result counts until the half after its own has ended */
#define MIN_RESULTS 20 /* with fewer results in the window, their share of failures does not open the circuit */

uint64_t mp_backoff_ms(unsigned count, uint64_t least, uint64_t most)
{
    uint32_t chance = 0;
    if (getrandom(&chance, sizeof chance, GRND_NONBLOCK) != sizeof chance)
        chance = UINT32_MAX / 2;
    uint64_t ms = least;
    for (unsigned i = 1; i < count && ms < most; i++)
        ms *= 2;
    if (ms > most)
        ms = most;
    uint64_t fifth = ms / 5;
    return ms - fifth + (uint64_t)chance * (2 * fifth) / UINT32_MAX;
}

static void turn_window(mp_circuit *circuit, uint64_t now)
{
    if (now < circuit->window_at + HALF_MS)
        return;
    bool is_next = now < circuit->window_at + 2 * HALF_MS;
    circuit->done[1] = is_next ? circuit->done[0] : 0;
    circuit->bad[1] = is_next ? circuit->bad[0] : 0;
    circuit->done[0] = circuit->bad[0] = 0;
    circuit->window_at = now;
}

mp_circuit_answer mp_circuit_ask(const mp_circuit *circuit, uint64_t now, uint64_t probe_ms, uint64_t *wait_ms)
{
    *wait_ms = 0;
    if (!circuit->is_open)
        return MP_CIRCUIT_PASS;
    if (now < circuit->retry_at) {
        *wait_ms = circuit->retry_at - now;
        return MP_CIRCUIT_REFUSE;
    }
    if (circuit->is_probed && now < circuit->probed_at + probe_ms) {
        *wait_ms = circuit->probed_at + probe_ms - now;
        return MP_CIRCUIT_REFUSE;
    }
    return MP_CIRCUIT_PROBE;
}

void mp_circuit_begin_probe(mp_circuit *circuit, uint64_t now)
{
    circuit->is_probed = true;
    circuit->probed_at = now;
}

void mp_circuit_give_up_probe(mp_circuit *circuit, uint64_t now, const mp_upstream_config *config)
{
    if (!circuit->is_open || !circuit->is_probed)
        return;
    circuit->is_probed = false;
    circuit->retry_at = now + config->circuit_open_min_ms;
}

void mp_circuit_success(mp_circuit *circuit, uint64_t now)
{
    turn_window(circuit, now);
    circuit->done[0]++;
    if (circuit->is_open) {
        circuit->changed_at = now;
        circuit->done[0] = circuit->bad[0] = circuit->done[1] = circuit->bad[1] = 0;
    }
    circuit->is_open = circuit->is_probed = false;
    circuit->in_row = 0;
    circuit->openings = 0;
}

void mp_circuit_failure(mp_circuit *circuit, uint64_t now, const mp_upstream_config *config)
{
    turn_window(circuit, now);
    circuit->done[0]++;
    circuit->bad[0]++;
    circuit->in_row++;
    int64_t done = circuit->done[0] + circuit->done[1], bad = circuit->bad[0] + circuit->bad[1];
    bool was_probe = circuit->is_open && circuit->is_probed;
    bool opens =
        !circuit->is_open && (circuit->in_row >= config->circuit_failures || (done >= MIN_RESULTS && bad * 2 >= done));
    if (!opens && !was_probe)
        return;
    if (!circuit->is_open)
        circuit->changed_at = now;
    circuit->is_open = true;
    circuit->is_probed = false;
    circuit->openings++;
    circuit->retry_at =
        now + mp_backoff_ms(circuit->openings, config->circuit_open_min_ms, config->circuit_open_max_ms);
}

bool mp_channel_key_rests(const mp_channel_key *key, uint64_t now)
{
    return (key->state == MP_KEY_RESTING || key->state == MP_KEY_BARRED) && now < key->retry_at;
}

uint64_t mp_channel_key_wait_ms(const mp_upstream *upstream, const mp_channel_key *key)
{
    uint64_t now = mp_monotonic_ms(), circuit_ms = 0;
    uint64_t key_ms = mp_channel_key_rests(key, now) ? key->retry_at - now : 0;
    (void)mp_circuit_ask(&upstream->circuit, now, upstream->part->it.open_ms, &circuit_ms);
    return key_ms > circuit_ms ? key_ms : circuit_ms;
}
