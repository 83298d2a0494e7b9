/* owners.c: the number of sessions of each principal, or of each address of clients without one. While a gateway has
 * several processes, the older ones report changes of their numbers to the newest one. */
#include "state.h"
#include "json/json.h"
#include "net/net.h"

#define NAME_MOST 128 /* bytes of a name: a key of MP_PRINCIPAL_KEY bytes, or the text of an address */

struct mp_owner {
    mp_node node;
    mp_link news; /* in the list of owners whose number is to be sent; alone: the number was sent */
    uint16_t number;
    int64_t sessions;
    char name[];
};

/* The number of sessions that another process has. */
typedef struct {
    uint16_t number;
    mp_map owners;
} other;

struct mp_owners {
    pthread_mutex_t lock;
    uint16_t number;
    mp_map own;
    mp_owners_said said;
    mp_link news;
    int count;
    other others[MP_OLDER_MOST + 1];
};

mp_owners *mp_owners_new(uint16_t number)
{
    mp_owners *owners = mp_new(sizeof *owners);
    pthread_mutex_init(&owners->lock, NULL);
    owners->number = number;
    mp_map_init(&owners->own);
    return owners;
}

static mp_owner *MP_NULLABLE find_owner(const mp_map *map, mp_str name)
{
    mp_node *node = mp_map_find(map, name);
    return node == NULL ? NULL : mp_container(node, mp_owner, node);
}

static mp_owner *add_owner(mp_map *map, uint16_t number, mp_str name)
{
    mp_owner *owner = mp_slab_new(sizeof *owner + name.len + 1);
    owner->number = number;
    if (name.len > 0) /* the address of a client that is gone is empty */
        memcpy(owner->name, name.ptr, name.len);
    owner->node.key = (mp_str){owner->name, name.len};
    mp_map_put(map, &owner->node);
    return owner;
}

static void drop_owner(mp_map *map, mp_owner *owner)
{
    mp_link_drop(&owner->news);
    mp_map_drop(map, &owner->node);
    mp_slab_free(owner, sizeof *owner + owner->node.key.len + 1);
}

static void drop_each(mp_node *node, void *map)
{
    drop_owner(map, mp_container(node, mp_owner, node));
}

void mp_owners_free(mp_owners *owners)
{
    for (int i = 0; i <= owners->count; i++) {
        mp_map *map = i < owners->count ? &owners->others[i].owners : &owners->own;
        mp_map_each(map, drop_each, map);
        mp_map_clear(map);
    }
    pthread_mutex_destroy(&owners->lock);
    free(owners);
}

/* The owner's number has changed. Frees one without sessions, unless that has to be said first. */
static void changed(mp_owners *owners, mp_map *map, mp_owner *owner)
{
    bool is_said = owners->said == MP_OWNERS_ALL || (owners->said == MP_OWNERS_OWN && map == &owners->own);
    if (is_said && mp_link_is_alone(&owner->news))
        mp_link_put(&owners->news, &owner->news);
    else if (!is_said && owner->sessions == 0)
        drop_owner(map, owner);
}

mp_owner *MP_NULLABLE mp_owners_count(mp_owners *owners, mp_str name, int64_t most)
{
    MP_LOCKED(&owners->lock);
    mp_owner *owner = find_owner(&owners->own, name);
    int64_t sum = owner == NULL ? 0 : owner->sessions;
    for (int i = 0; i < owners->count; i++) {
        const mp_owner *elsewhere = find_owner(&owners->others[i].owners, name);
        sum += elsewhere == NULL ? 0 : elsewhere->sessions;
    }
    if (sum >= most) {
        owner = NULL;
    } else {
        if (owner == NULL)
            owner = add_owner(&owners->own, owners->number, name);
        owner->sessions++;
        changed(owners, &owners->own, owner);
    }
    return owner;
}

bool mp_owners_may_have(mp_owners *owners, const mp_owner *owner, int64_t all, int64_t free_places, int64_t kept)
{
    MP_LOCKED(&owners->lock);
    return mp_may_hold_one_more(owner->sessions - 1, (int64_t)owners->own.count, all, free_places, kept);
}

mp_str mp_owner_name(const mp_owner *owner)
{
    return owner->node.key;
}

void mp_owners_uncount(mp_owners *owners, mp_owner *owner)
{
    MP_LOCKED(&owners->lock);
    owner->sessions--;
    changed(owners, &owners->own, owner);
}

/* -- several processes --------------------------------------------------------------------------------------------- */

typedef struct {
    mp_owners *owners;
    mp_map *map;
} all;

/* Marks the number of sessions of an owner to be reported again, or no longer to be reported. */
static void begin_saying(mp_node *node, void *arg)
{
    const all *of = arg;
    mp_owner *owner = mp_container(node, mp_owner, node);
    mp_link_drop(&owner->news);
    if (of->map == &of->owners->own)
        owner->number = of->owners->number;
    changed(of->owners, of->map, owner);
}

void mp_owners_say(mp_owners *owners, mp_owners_said which, uint16_t number)
{
    MP_LOCKED(&owners->lock);
    owners->said = which;
    owners->number = number;
    all own = {owners, &owners->own};
    mp_map_each(&owners->own, begin_saying, &own);
    for (int i = 0; i < owners->count; i++) {
        all of = {owners, &owners->others[i].owners};
        mp_map_each(of.map, begin_saying, &of);
    }
}

static other *MP_NULLABLE find_other(mp_owners *owners, uint16_t number)
{
    for (int i = 0; i < owners->count; i++)
        if (owners->others[i].number == number)
            return &owners->others[i];
    return NULL;
}

/* Returns the place for the numbers of process `number`; that of a process without sessions may be used again. NULL:
 * there are too many processes. */
static other *MP_NULLABLE need_other(mp_owners *owners, uint16_t number)
{
    other *found = find_other(owners, number);
    for (int i = 0; i < owners->count && found == NULL; i++)
        if (owners->others[i].owners.count == 0)
            found = &owners->others[i];
    if (found == NULL && owners->count <= MP_OLDER_MOST) {
        found = &owners->others[owners->count++];
        mp_map_init(&found->owners);
    }
    if (found != NULL)
        found->number = number;
    return found;
}

static void end_each(mp_node *node, void *arg)
{
    const all *of = arg;
    mp_owner *owner = mp_container(node, mp_owner, node);
    owner->sessions = 0;
    changed(of->owners, of->map, owner);
}

void mp_owners_forget(mp_owners *owners, uint16_t number)
{
    MP_LOCKED(&owners->lock);
    for (int i = 0; i < owners->count; i++)
        if (number == 0 || owners->others[i].number == number) {
            all of = {owners, &owners->others[i].owners};
            mp_map_each(of.map, end_each, &of);
        }
}

static mp_map *map_of(mp_owners *owners, uint16_t number)
{
    return number == owners->number ? &owners->own : &MP_NEVER_NULL(find_other(owners, number))->owners;
}

/* Each owner as three texts that end with a NUL: the process, the name in hex digits, the number of its sessions. */
void mp_owners_put(mp_owners *owners, mp_buf *out, size_t room)
{
    mp_link *link;
    MP_LOCKED(&owners->lock);
    while (out->len + 2 * NAME_MOST + 32 <= room && (link = mp_link_take(&owners->news)) != NULL) {
        mp_owner *owner = mp_container(link, mp_owner, news);
        mp_str name = owner->node.key;
        if (name.len > 0 && name.len <= NAME_MOST) {
            mp_buf_printf(out, "%u%c", (unsigned)owner->number, 0);
            mp_hex_put(mp_buf_room(out, 2 * name.len), (const unsigned char *)name.ptr, name.len);
            out->len += 2 * name.len;
            mp_buf_printf(out, "%c%lld%c", 0, (long long)owner->sessions, 0);
        }
        if (owner->sessions == 0)
            drop_owner(map_of(owners, owner->number), owner);
    }
}

/* Reads hex digits. The number of bytes; 0: they are no name. */
static size_t read_name(mp_str digits, char bytes[NAME_MOST])
{
    unsigned value;
    if (digits.len == 0 || digits.len % 2 != 0 || digits.len > (size_t)2 * NAME_MOST)
        return 0;
    for (size_t i = 0; i < digits.len / 2; i++) {
        if (sscanf(digits.ptr + 2 * i, "%2x", &value) != 1)
            return 0;
        bytes[i] = (char)value;
    }
    return digits.len / 2;
}

static void take_count(mp_owners *owners, uint16_t number, mp_str name, int64_t sessions)
{
    other *one = number == owners->number ? NULL : need_other(owners, number);
    if (one == NULL)
        return; /* the message has returned this process's own number */
    mp_owner *owner = find_owner(&one->owners, name);
    if (owner == NULL && sessions == 0)
        return;
    if (owner == NULL)
        owner = add_owner(&one->owners, number, name);
    owner->sessions = sessions;
    changed(owners, &one->owners, owner);
}

void mp_owners_take(mp_owners *owners, mp_str body)
{
    MP_LOCKED(&owners->lock);
    while (body.len > 0) {
        char bytes[NAME_MOST];
        int64_t number = 0, sessions = 0;
        mp_str process = mp_str_cut(&body, '\0'), digits = mp_str_cut(&body, '\0'), count = mp_str_cut(&body, '\0');
        size_t len = read_name(digits, bytes);
        if (len == 0 || !mp_json_int(process, &number) || number <= 0 || number > UINT16_MAX ||
            !mp_json_int(count, &sessions) || sessions < 0)
            break; /* the text is from a process of another version */
        take_count(owners, (uint16_t)number, (mp_str){bytes, len}, sessions);
    }
}

/* -- the gateway itself -------------------------------------------------------------------------------------------- */

MP_ACCOUNT(own_jobs, "own_jobs", "", "", "running background tasks of the gateway itself")
MP_REFUSED(refused_own_jobs, "own_jobs", MP_LIMIT_REACHED, "background tasks of the gateway itself over 1,024")

/* Neither clients nor scripts determine their number: a Lua state has ten of them or so at once, there are 64 Lua
 * states, and as many again while a reload takes place. */
#define MOST_OWN MP_LIMIT(own_jobs, 1024)

bool mp_own_job_take(void)
{
    bool is_taken = mp_account_take(&mp_account_own_jobs, 1, MOST_OWN);
    mp_stat_add(&mp_stat_refused_own_jobs, !is_taken);
    return is_taken;
}

void mp_own_job_give(void)
{
    mp_account_give(&mp_account_own_jobs, 1);
}
