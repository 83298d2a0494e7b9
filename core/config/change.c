/* change.c: compares two configurations key by key, and copies the values of keys from one to the other. */
#include "config.h"

/* `in` is a configuration, or an item of a list that has keys. */
static const void *slot_in(const void *in, const mp_config_key *key)
{
    return (const char *)in + key->slot;
}

/* The array of a list's map items, or NULL. */
static char *MP_NULLABLE items_of(const mp_config *config, const mp_config_key *list)
{
    char *items = NULL;
    if (list->item_size > 0)
        memcpy(&items, (const char *)config + list->item_slot, sizeof items);
    return items;
}

/* True if `key` belongs to the items of `list` and has a slot there. */
static bool is_in_items(const mp_config_key *key, const mp_config_key *list)
{
    return mp_config_key_list(key) == list && strcmp(key->path, list->bare) != 0;
}

/* Appends each item with a NUL, and a final NUL. */
static void put_list(mp_buf *out, char *const *MP_NULLABLE list)
{
    for (; list != NULL && *list != NULL; list++)
        mp_buf_put(out, (mp_str){*list, strlen(*list) + 1});
    mp_buf_putc(out, '\0');
}

static void put_entry(mp_buf *out, const mp_upstream_entry *entry, const mp_config_key *map);

/* Appends the value in a canonical form: equal values give equal bytes. */
static void put_value(mp_buf *out, const void *in, const mp_config_key *key)
{
    const void *slot = slot_in(in, key);
    switch (key->type) {
    case MP_KEY_SECTION:
        break;
    case MP_KEY_TEXT:
    case MP_KEY_PATH:
        put_list(out, (char *[]){*(char *const *)slot, NULL});
        break;
    case MP_KEY_LIST:
        put_list(out, *(char **const *)slot);
        break;
    case MP_KEY_CHOICE:
        mp_buf_put(out, (mp_str){slot, sizeof(int)});
        break;
    case MP_KEY_TIMES:
        mp_buf_put(out, (mp_str){slot, 2 * sizeof(uint64_t)});
        break;
    case MP_KEY_PAIRS:
        for (const mp_pair *pair = *(mp_pair *const *)slot; pair != NULL && pair->name != NULL; pair++)
            put_list(out, (char *[]){pair->name, pair->value, NULL});
        mp_buf_putc(out, '\0');
        break;
    case MP_KEY_MAP:
        for (mp_upstream_entry **one = *(mp_upstream_entry * *const *)slot; one != NULL && *one != NULL; one++)
            put_entry(out, *one, key);
        break;
    case MP_KEY_GRANTS:
        for (const mp_grant *grant = *(mp_grant *const *)slot; grant != NULL && grant->path != NULL; grant++) {
            mp_buf_put(out, (mp_str){grant->path, strlen(grant->path) + 1});
            for (int i = 0; i < MP_GRANT_KINDS; i++)
                put_list(out, grant->lists[i]);
        }
        break;
    default:
        mp_buf_put(out, (mp_str){slot, sizeof(int64_t)});
    }
}

/* Appends the name and the values of one entry of a map. */
static void put_entry(mp_buf *out, const mp_upstream_entry *entry, const mp_config_key *map)
{
    put_list(out, (char *[]){entry->core.name, NULL});
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_key_list(&mp_config_keys[i]) == map)
            put_value(out, entry, &mp_config_keys[i]);
}

/* The texts of a list. */
static char *const *texts_of(const mp_config *config, const mp_config_key *list)
{
    return *(char **const *)slot_in(config, list);
}

/* The item at `index` of a list. */
static const char *item_at(const mp_config *config, const mp_config_key *list, size_t index)
{
    static const mp_config_tls presets; /* presets of an item of `listen`, the only list whose items have keys */
    const char *items = items_of(config, list);
    return items == NULL ? (const char *)&presets : items + index * list->item_size;
}

/* Appends the values of an item; `restarts` selects the keys that need a restart, or the others. */
static void put_item(mp_buf *out, const char *item, const mp_config_key *list, bool restarts)
{
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (is_in_items(&mp_config_keys[i], list) && mp_config_keys[i].restarts == restarts)
            put_value(out, item, &mp_config_keys[i]);
}

static void put_items(mp_buf *out, const mp_config *config, const mp_config_key *list, bool restarts)
{
    size_t count = mp_count_texts(texts_of(config, list));
    for (size_t k = 0; k < count; k++)
        put_item(out, item_at(config, list, k), list, restarts);
}

/* What is in effect after a reload for the item at `index` of the list of `serving`: the item of `config` with the same
 * text, if nothing in it needs a restart; else the serving one. An item does not change in part. Several items may have
 * one text (127.0.0.1:0): that at the same index is preferred. */
static const char *live_item(const mp_config *config, const mp_config *serving, const mp_config_key *list, size_t index)
{
    const char *text = texts_of(serving, list)[index], *item = item_at(serving, list, index);
    char *const *texts = texts_of(config, list);
    size_t count = mp_count_texts(texts), at = 0;
    if (index < count && strcmp(texts[index], text) == 0)
        at = index;
    while (at < count && strcmp(texts[at], text) != 0)
        at++;
    if (at == count)
        return item;
    mp_scoped_buf one = {0}, other = {0};
    put_item(&one, item, list, true);
    put_item(&other, item_at(config, list, at), list, true);
    bool is_same = mp_str_eq(mp_buf_str(&one), mp_buf_str(&other));
    return is_same ? item_at(config, list, at) : item;
}

/* Appends the value of a key of the configuration itself: of a list without those keys of its items that a reload
 * changes. */
static void put_listed(mp_buf *out, const mp_config *config, const mp_config_key *key)
{
    put_value(out, config, key);
    if (key->item_size > 0)
        put_items(out, config, key, true);
}

static void put_whole(mp_buf *out, const mp_config *config, const mp_config_key *key)
{
    put_listed(out, config, key);
    if (key->item_size > 0)
        put_items(out, config, key, false);
}

/* Appends the values that the key `key` of each item of `list` has once `config` replaces `serving`. The items stay
 * those of `serving` until a restart. */
static void put_live(mp_buf *out, const mp_config *config, const mp_config *serving, const mp_config_key *list,
                     const mp_config_key *key)
{
    size_t count = mp_count_texts(texts_of(serving, list));
    for (size_t k = 0; k < count; k++)
        put_value(out, live_item(config, serving, list, k), key);
}

/* The list in whose items a reload changes this key. NULL: the key is not in items, or needs a restart. */
static const mp_config_key *MP_NULLABLE live_list_of(const mp_config_key *key)
{
    const mp_config_key *list = mp_config_key_list(key);
    bool is_live = list != NULL && list->item_size > 0 && is_in_items(key, list) && !key->restarts;
    return is_live ? list : NULL;
}

void mp_config_put_all(mp_buf *out, const mp_config *config)
{
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_key_list(&mp_config_keys[i]) == NULL)
            put_whole(out, config, &mp_config_keys[i]);
    put_list(out, (char *[]){config->lock, NULL});
}

void mp_config_compare(const mp_config *before, const mp_config *after, bool restarts, mp_buf *names)
{
    mp_scoped_buf one = {0}, other = {0};
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        const mp_config_key *list = live_list_of(key);
        if ((mp_config_key_list(key) != NULL && list == NULL) || key->type == MP_KEY_MAP)
            continue;
        one.len = other.len = 0;
        if (list != NULL) {
            put_live(&one, before, before, list, key);
            put_live(&other, after, before, list, key);
        } else {
            put_listed(&one, before, key);
            put_listed(&other, after, key);
        }
        if (key->restarts == restarts && !mp_str_eq(mp_buf_str(&one), mp_buf_str(&other)))
            mp_buf_printf(names, "%s%s", names->len == 0 ? "" : ", ", key->path);
    }
}

bool mp_config_has_lock_of(const mp_config *config, const mp_config *other)
{
    const char *one = config->lock == NULL ? "" : config->lock, *two = other->lock == NULL ? "" : other->lock;
    return strcmp(one, two) == 0;
}

/* -- upstreams ----------------------------------------------------------------------------------------------------- */

static const mp_upstream_entry *MP_NULLABLE find_upstream(mp_upstream_entry *const *MP_NULLABLE list, const char *name)
{
    for (; list != NULL && *list != NULL; list++)
        if (strcmp((*list)->core.name, name) == 0)
            return *list;
    return NULL;
}

/* The first key below the entry: "process" of "upstreams.NAME.process.env". */
static mp_str key_of_entry(const mp_config_key *key)
{
    mp_str rest = mp_str_of(key->path);
    mp_str_cut(&rest, '.');
    mp_str_cut(&rest, '.');
    return mp_str_cut(&rest, '.');
}

/* Appends the keys of an entry that differ, as in "auth, timeout". */
static void put_changed_keys(mp_buf *out, const mp_upstream_entry *before, const mp_upstream_entry *after)
{
    const mp_config_key *map = mp_config_key_at("upstreams");
    mp_scoped_buf one = {0}, other = {0};
    mp_str last = MP_STR_NONE;
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        if (mp_config_key_list(key) != map)
            continue;
        one.len = other.len = 0;
        put_value(&one, before, key);
        put_value(&other, after, key);
        mp_str name = key_of_entry(key);
        if (mp_str_eq(mp_buf_str(&one), mp_buf_str(&other)) || mp_str_eq(name, last))
            continue;
        mp_buf_printf(out, "%s%.*s", out->len == 0 ? "" : ", ", MP_STR_ARG(name));
        last = name;
    }
}

/* True if the upstreams that both lists have are in the same order. */
static bool is_in_order(mp_upstream_entry *const *MP_NULLABLE before, mp_upstream_entry *const *after)
{
    mp_upstream_entry *const *next = after;
    for (; before != NULL && *before != NULL; before++) {
        if (find_upstream(after, (*before)->core.name) == NULL)
            continue;
        while (*next != NULL && strcmp((*next)->core.name, (*before)->core.name) != 0)
            next++;
        if (*next == NULL)
            return false;
    }
    return true;
}

static void put_part(mp_buf *plan, const char *sign, const char *name)
{
    mp_buf_printf(plan, "%s%s %s", plan->len == 0 ? "" : "  ", sign, name);
}

void mp_config_compare_upstreams(const mp_config *before, const mp_config *after, mp_buf *plan)
{
    for (mp_upstream_entry **one = after->upstreams; one != NULL && *one != NULL; one++) {
        const mp_upstream_entry *old = find_upstream(before->upstreams, (*one)->core.name);
        mp_scoped_buf keys = {0};
        if (old == NULL)
            put_part(plan, "+", (*one)->core.name);
        else
            put_changed_keys(&keys, old, *one);
        if (keys.len > 0) {
            put_part(plan, "~", (*one)->core.name);
            mp_buf_printf(plan, " (%.*s)", MP_STR_ARG(mp_buf_str(&keys)));
        }
    }
    for (mp_upstream_entry **one = before->upstreams; one != NULL && *one != NULL; one++)
        if (find_upstream(after->upstreams, (*one)->core.name) == NULL)
            put_part(plan, "-", (*one)->core.name);
    if (!is_in_order(before->upstreams, after->upstreams))
        put_part(plan, "~", "upstreams (order)");
}

/* -- keys that need a restart -------------------------------------------------------------------------------------- */

static char **MP_NULLABLE copy_list(char *const *MP_NULLABLE list)
{
    if (list == NULL)
        return NULL;
    size_t count = mp_count_texts(list);
    char **copy = mp_new((count + 1) * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = mp_dup(mp_str_of(list[i]));
    return copy;
}

/* Copies a value into an empty slot. */
static void copy_value(void *to, const void *from, const mp_config_key *key)
{
    const void *source = slot_in(from, key);
    void *slot = (char *)to + key->slot;
    switch (key->type) {
    case MP_KEY_TEXT:
    case MP_KEY_PATH: {
        const char *text = *(char *const *)source;
        *(char **)slot = mp_dup_text(text);
        break;
    }
    case MP_KEY_LIST:
        *(char ***)slot = copy_list(*(char **const *)source);
        break;
    case MP_KEY_CHOICE:
        memcpy(slot, source, sizeof(int));
        break;
    case MP_KEY_TIME:
    case MP_KEY_SIZE:
    case MP_KEY_COUNT:
        memcpy(slot, source, sizeof(int64_t));
        break;
    default:
        break; /* sections have no value, and grants never need a restart */
    }
}

/* The items of the list of `from`, with what `to` changes in them. NULL: all have the presets. */
static char *MP_NULLABLE copy_items(const mp_config *to, const mp_config *from, const mp_config_key *list)
{
    if (list->item_size == 0 || (items_of(from, list) == NULL && items_of(to, list) == NULL))
        return NULL;
    size_t count = mp_count_texts(texts_of(from, list));
    char *copies = mp_new((count + 1) * list->item_size);
    for (size_t k = 0; k < count; k++)
        for (size_t i = 0; i < mp_config_key_count; i++)
            if (is_in_items(&mp_config_keys[i], list))
                copy_value(copies + k * list->item_size, live_item(to, from, list, k), &mp_config_keys[i]);
    return copies;
}

static void carry_value(mp_config *to, const mp_config *from, const mp_config_key *key)
{
    char *items = copy_items(to, from, key);
    mp_config_unset(to, key);
    copy_value(to, from, key);
    if (items != NULL)
        mp_config_set_items(to, key, items);
}

void mp_config_carry(mp_config *to, const mp_config *from)
{
    mp_scoped_buf one = {0}, other = {0};
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        if (!key->restarts || mp_config_key_list(key) != NULL)
            continue;
        one.len = other.len = 0;
        put_listed(&one, from, key);
        put_listed(&other, to, key);
        if (!mp_str_eq(mp_buf_str(&one), mp_buf_str(&other)))
            mp_config_keep_pending(to, key);
        carry_value(to, from, key);
    }
}
