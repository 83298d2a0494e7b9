/* processes.c: which processes the gateway consists of, and ids that carry the number of the process that made them. */
#include "processes.h"
#include "inside.h"
#include "data/data.h"
#include <sys/random.h>

#define MOST_PATH 100 /* bytes of a socket's path: some systems take no more */

typedef struct {
    mp_process_facts facts;
    uint64_t heard_ms; /* when it last answered that it lives; 0: it was not asked */
    bool is_silent;
} other_process;

/* The keys that are derived from seal_keys. They never change; those of earlier seal_keys (`before`) stay until the
 * processes are freed, since another thread may still read them. */
typedef struct node_keys {
    struct node_keys *MP_NULLABLE before;
    int count;
    unsigned char of_ids[MP_SEAL_KEYS + 1][MP_PROCESS_KEY]; /* the last one is the key of this gateway alone */
    mp_seal_key of_hops[MP_SEAL_KEYS + 1];                  /* ends with one that is not set */
} node_keys;

struct mp_processes {
    unsigned char key[MP_PROCESS_KEY]; /* like `nodes` and `tls`, set before other threads use it */
    _Atomic uint16_t number;
    mp_places *places;
    mp_nodes *MP_NULLABLE nodes;
    mp_tls_slot *MP_NULLABLE tls;
    _Atomic(node_keys *MP_NULLABLE) node_keys; /* NULL: ids have the key of this gateway alone */
    atomic_uint newest, expected;              /* expected: 0 if there is none */
    atomic_int count;
    _Atomic(char *MP_NULLABLE) folder;
    pthread_mutex_t lock; /* guards `others`, and changes of `count` */
    other_process others[MP_OLDER_MOST + 1];
};

static void fill_random(void *bytes, size_t size)
{
    if (getrandom(bytes, size, 0) != (ssize_t)size)
        abort(); /* an id that can be guessed is worse than no service */
}

static int find_process(const mp_processes *processes, uint16_t number)
{
    int count = atomic_load(&processes->count);
    for (int i = 0; i < count; i++)
        if (processes->others[i].facts.number == number)
            return i;
    return -1;
}

static void take_number(mp_processes *processes)
{
    uint16_t number, before = processes->number;
    do
        fill_random(&number, sizeof number);
    while (number == 0 || number == before || find_process(processes, number) >= 0);
    processes->number = number;
    atomic_store(&processes->newest, number);
}

mp_processes *mp_processes_new(void)
{
    mp_processes *processes = mp_new(sizeof *processes);
    pthread_mutex_init(&processes->lock, NULL);
    processes->places = mp_places_new();
    fill_random(processes->key, sizeof processes->key);
    take_number(processes);
    processes->number = (uint16_t)MP_LIMIT(process_number, processes->number);
    atomic_store(&processes->newest, processes->number);
    return processes;
}

/* Frees the keys, and those before them, down to `kept`. */
static void free_keys(node_keys *MP_NULLABLE keys, const node_keys *MP_NULLABLE kept)
{
    for (node_keys *before; keys != kept && keys != NULL; keys = before) {
        before = keys->before;
        explicit_bzero(keys, sizeof *keys);
        free(keys);
    }
}

void mp_processes_free(mp_processes *processes)
{
    free_keys(atomic_load(&processes->node_keys), NULL);
    mp_nodes_free(processes->nodes);
    mp_places_free(processes->places);
    pthread_mutex_destroy(&processes->lock);
    free(atomic_load(&processes->folder));
    explicit_bzero(processes->key, sizeof processes->key);
    free(processes);
}

void mp_processes_join(mp_processes *processes, const unsigned char key[MP_PROCESS_KEY], const char *folder,
                       const mp_process_facts *others, int count)
{
    memcpy(processes->key, key, MP_PROCESS_KEY);
    mp_processes_set_folder(processes, folder);
    for (int i = 0; i < count; i++)
        mp_processes_add(processes, &others[i]);
    take_number(processes);
}

mp_places *mp_processes_places(const mp_processes *processes)
{
    return processes->places;
}

uint16_t mp_processes_number(const mp_processes *processes)
{
    return atomic_load_explicit(&processes->number, memory_order_relaxed);
}

void mp_processes_set_nodes(mp_processes *processes, mp_nodes *nodes, mp_tls_slot *MP_NULLABLE tls)
{
    processes->nodes = nodes;
    processes->tls = tls;
}

mp_tls_slot *MP_NULLABLE mp_processes_tls(const mp_processes *processes)
{
    return processes->tls;
}

mp_nodes *MP_NULLABLE mp_processes_nodes(const mp_processes *processes)
{
    return processes->nodes;
}

const unsigned char *mp_processes_key(const mp_processes *processes)
{
    return processes->key;
}

void mp_processes_use_seal_keys(mp_processes *processes, const mp_seal_key *seal_keys)
{
    unsigned char hash[MP_SHA256_BYTES];
    if (processes->nodes == NULL)
        return;
    node_keys *keys = mp_new(sizeof *keys);
    for (; seal_keys[keys->count].is_set && keys->count < MP_SEAL_KEYS; keys->count++) {
        mp_seal_key_hash(&seal_keys[keys->count], MP_STR("moonpool ids 1"), hash);
        memcpy(keys->of_ids[keys->count], hash, MP_PROCESS_KEY);
        mp_seal_key_hash(&seal_keys[keys->count], MP_STR("moonpool hops 1"), hash);
        mp_seal_key_make(&keys->of_hops[keys->count], (mp_str){(const char *)hash, sizeof hash});
    }
    explicit_bzero(hash, sizeof hash);
    memcpy(keys->of_ids[keys->count++], processes->key, MP_PROCESS_KEY);
    const node_keys *before = keys->before = atomic_load(&processes->node_keys);
    if (before == NULL || memcmp(before->of_ids, keys->of_ids, sizeof keys->of_ids) != 0)
        atomic_store(&processes->node_keys, keys);
    else
        free_keys(keys, before);
}

const mp_seal_key *MP_NULLABLE mp_processes_node_keys(const mp_processes *processes)
{
    const node_keys *keys = atomic_load_explicit(&processes->node_keys, memory_order_acquire);
    return keys == NULL ? NULL : keys->of_hops;
}

void mp_processes_set_folder(mp_processes *processes, const char *folder)
{
    MP_LOCKED(&processes->lock); /* from now on the number stays: see mp_processes_renumber() */
    if (atomic_load(&processes->folder) == NULL)
        atomic_store(&processes->folder, mp_dup(mp_str_of(folder)));
}

const char *MP_NULLABLE mp_processes_folder(const mp_processes *processes)
{
    return atomic_load(&processes->folder);
}

/* -- the others ---------------------------------------------------------------------------------------------------- */

/* Returns the lock, of which readers of a const table may ignore that it changes. */
static pthread_mutex_t *lock_of(const mp_processes *processes)
{
    return &((mp_processes *)(uintptr_t)processes)->lock;
}

static void expect_no_more(mp_processes *processes, uint16_t number)
{
    unsigned expected = number;
    atomic_compare_exchange_strong(&processes->expected, &expected, 0);
}

void mp_processes_expect(mp_processes *processes, uint16_t number)
{
    atomic_store(&processes->expected, number);
}

void mp_processes_add(mp_processes *processes, const mp_process_facts *other)
{
    pthread_mutex_lock(&processes->lock);
    int count = atomic_load(&processes->count);
    if (count <= MP_OLDER_MOST && find_process(processes, other->number) < 0) {
        processes->others[count] = (other_process){.facts = *other};
        atomic_store(&processes->count, count + 1);
    }
    pthread_mutex_unlock(&processes->lock);
    expect_no_more(processes, other->number);
}

void mp_processes_remove(mp_processes *processes, uint16_t number)
{
    pthread_mutex_lock(&processes->lock);
    int i = find_process(processes, number), last = atomic_load(&processes->count) - 1;
    if (i >= 0) {
        processes->others[i] = processes->others[last];
        atomic_store(&processes->count, last);
    }
    pthread_mutex_unlock(&processes->lock);
    expect_no_more(processes, number);
}

int mp_processes_list(const mp_processes *processes, mp_process_facts others[MP_OLDER_MOST + 1])
{
    MP_LOCKED(lock_of(processes));
    int count = atomic_load(&processes->count);
    for (int i = 0; i < count; i++)
        others[i] = processes->others[i].facts;
    return count;
}

uint16_t mp_processes_first(const mp_processes *processes)
{
    MP_LOCKED(lock_of(processes));
    int count = atomic_load(&processes->count);
    for (int i = 0; i < count; i++)
        if (processes->others[i].facts.order == 1)
            return processes->others[i].facts.number;
    return 0;
}

bool mp_processes_has(const mp_processes *processes, uint16_t number)
{
    MP_LOCKED(lock_of(processes));
    bool has = find_process(processes, number) >= 0;
    return has || (number != 0 && number == atomic_load(&processes->expected));
}

bool mp_processes_note_heard(mp_processes *processes, uint16_t number, uint64_t asked_ms, bool has_answered)
{
    bool has_changed = false;
    MP_LOCKED(&processes->lock);
    int i = find_process(processes, number);
    other_process *other = i >= 0 ? &processes->others[i] : NULL;
    if (other != NULL && has_answered) {
        other->heard_ms = mp_monotonic_ms();
        other->is_silent = false;
    } else if (other != NULL && other->heard_ms < asked_ms) {
        has_changed = !other->is_silent;
        other->is_silent = true;
    }
    return has_changed;
}

uint64_t mp_processes_heard(const mp_processes *processes, uint16_t number, bool *is_silent)
{
    MP_LOCKED(lock_of(processes));
    int i = find_process(processes, number);
    uint64_t heard_ms = i >= 0 ? processes->others[i].heard_ms : 0;
    *is_silent = i >= 0 && processes->others[i].is_silent;
    return heard_ms;
}

bool mp_processes_renumber(mp_processes *processes)
{
    MP_LOCKED(&processes->lock);
    if (mp_processes_folder(processes) != NULL || mp_processes_are_several(processes))
        return false;
    take_number(processes);
    return true;
}

bool mp_processes_are_several(const mp_processes *processes)
{
    return atomic_load_explicit(&processes->count, memory_order_relaxed) > 0 ||
           atomic_load_explicit(&processes->expected, memory_order_relaxed) != 0;
}

void mp_processes_set_newest(mp_processes *processes, uint16_t number)
{
    atomic_store(&processes->newest, number);
}

uint16_t mp_processes_newest(const mp_processes *processes)
{
    return (uint16_t)atomic_load(&processes->newest);
}

bool mp_processes_is_newest(const mp_processes *processes)
{
    return mp_processes_newest(processes) == mp_processes_number(processes);
}

bool mp_processes_path(const mp_processes *processes, uint16_t number, const char *kind, char path[MP_PROCESS_PATH])
{
    const char *folder = mp_processes_folder(processes);
    if (folder == NULL)
        return false;
    int len = snprintf(path, MP_PROCESS_PATH, "%s/%u.%s.sock", folder, (unsigned)number, kind);
    return len <= MOST_PATH;
}

/* -- ids ----------------------------------------------------------------------------------------------------------- */

/* Computes the mask of the number in an id: one block of SHA-256, which takes 0.1 us on processors with instructions
 * for it. */
static uint16_t mask_of(const unsigned char key[MP_PROCESS_KEY], const char *random)
{
    char bytes[MP_PROCESS_KEY + MP_ID_RANDOM];
    unsigned char hash[MP_SHA256_BYTES];
    memcpy(bytes, key, MP_PROCESS_KEY);
    memcpy(bytes + MP_PROCESS_KEY, random, MP_ID_RANDOM);
    mp_sha256((mp_str){bytes, sizeof bytes}, hash);
    explicit_bzero(bytes, MP_PROCESS_KEY);
    return (uint16_t)(hash[0] << 8 | hash[1]);
}

#define OWNER_BYTES 4

void mp_id_make(const mp_processes *processes, mp_str owner, char id[MP_ID + 1])
{
    unsigned char bits[MP_ID_RANDOM / 2], hash[MP_SHA256_BYTES];
    fill_random(bits, sizeof bits);
    if (owner.ptr != NULL) {
        mp_sha256(owner, hash);
        memcpy(bits + sizeof bits - OWNER_BYTES, hash, OWNER_BYTES);
    }
    mp_hex_put(id, bits, sizeof bits);
    const node_keys *keys = atomic_load_explicit(&processes->node_keys, memory_order_acquire);
    uint16_t masked = mp_processes_number(processes) ^ mask_of(keys == NULL ? processes->key : keys->of_ids[0], id);
    const unsigned char last[] = {(unsigned char)(masked >> 8), (unsigned char)masked};
    *mp_hex_put(id + MP_ID_RANDOM, last, sizeof last) = '\0';
}

bool mp_id_is(mp_str id)
{
    static const bool is_digit[256] = {['0' ... '9'] = true, ['a' ... 'f'] = true};
    if (id.len != MP_ID)
        return false;
    for (size_t i = 0; i < MP_ID; i++)
        if (!is_digit[(unsigned char)id.ptr[i]])
            return false;
    return true;
}

/* True if a process has the number, of this node or of another one. */
static bool is_known(const mp_processes *processes, uint16_t number)
{
    mp_node_record record;
    const mp_nodes *nodes = processes->nodes;
    return number == mp_processes_number(processes) || mp_processes_has(processes, number) ||
           (nodes != NULL && mp_nodes_find(nodes, number, &record) != MP_NODE_NONE);
}

static unsigned masked_of(mp_str id)
{
    unsigned masked = 0;
    for (int i = MP_ID_RANDOM; i < MP_ID; i++)
        masked = masked * 16 + (unsigned)(id.ptr[i] <= '9' ? id.ptr[i] - '0' : id.ptr[i] - 'a' + 10);
    return masked;
}

int mp_id_numbers(const mp_processes *processes, mp_str id, uint16_t numbers[MP_SEAL_KEYS])
{
    const node_keys *keys = atomic_load_explicit(&processes->node_keys, memory_order_acquire);
    unsigned masked = masked_of(id);
    int count = keys == NULL ? 0 : keys->count - 1; /* without the last key, which other nodes do not have */
    for (int i = 0; i < count; i++)
        numbers[i] = (uint16_t)(masked ^ mask_of(MP_NEVER_NULL(keys)->of_ids[i], id.ptr));
    return count;
}

uint16_t mp_id_number(const mp_processes *processes, mp_str id)
{
    const node_keys *keys = atomic_load_explicit(&processes->node_keys, memory_order_acquire);
    unsigned masked = masked_of(id);
    if (keys == NULL)
        return (uint16_t)(masked ^ mask_of(processes->key, id.ptr));
    uint16_t first = (uint16_t)(masked ^ mask_of(keys->of_ids[0], id.ptr)), number = first;
    for (int i = 1; i < keys->count && !is_known(processes, number); i++)
        number = (uint16_t)(masked ^ mask_of(keys->of_ids[i], id.ptr));
    return is_known(processes, number) ? number : first;
}
