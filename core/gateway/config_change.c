/* config_change.c: two configurations compared, key by key of the table; and a key's value carried from one to the other. */
#include "config.h"
#include <stdlib.h>

static const void *slot_in(const mp_config *config, const mp_config_key *key)
{
    return (const char *)config + key->slot;
}

/* Behind each item a NUL, behind the list one more. */
static void put_list(mp_buf *out, char *const *list)
{
    for (; list != NULL && *list != NULL; list++)
        mp_buf_put(out, (mp_str){*list, strlen(*list) + 1});
    mp_buf_putc(out, '\0');
}

/* The value in a form that is the same for the same value. */
static void put_value(mp_buf *out, const mp_config *config, const mp_config_key *key)
{
    const void *slot = slot_in(config, key);
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

void mp_config_put_all(mp_buf *out, const mp_config *config)
{
    for (size_t i = 0; i < mp_config_key_count; i++)
        put_value(out, config, &mp_config_keys[i]);
}

void mp_config_compare(const mp_config *before, const mp_config *after, bool restarts, mp_buf *names)
{
    mp_buf one = {0}, other = {0};
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        one.len = other.len = 0;
        put_value(&one, before, key);
        put_value(&other, after, key);
        if (key->restarts == restarts && !mp_str_eq(mp_buf_str(&one), mp_buf_str(&other)))
            mp_buf_printf(names, "%s%s", names->len == 0 ? "" : ", ", key->path);
    }
    mp_buf_clear(&one);
    mp_buf_clear(&other);
}

static char **copy_list(char *const *list)
{
    size_t count = 0;
    while (list != NULL && list[count] != NULL)
        count++;
    char **copy = list == NULL ? NULL : mp_new((count + 1) * sizeof *copy);
    for (size_t i = 0; i < count; i++)
        copy[i] = mp_dup(mp_str_of(list[i]));
    return copy;
}

static void carry(mp_config *to, const mp_config *from, const mp_config_key *key)
{
    const void *source = slot_in(from, key);
    void *slot = (char *)to + key->slot;
    mp_config_unset(to, key);
    switch (key->type) {
    case MP_KEY_TEXT:
    case MP_KEY_PATH: {
        const char *text = *(char *const *)source;
        *(char **)slot = text == NULL ? NULL : mp_dup(mp_str_of(text));
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
        break; /* no section has a value, and grants never wait */
    }
}

void mp_config_carry(mp_config *to, const mp_config *from)
{
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_keys[i].restarts)
            carry(to, from, &mp_config_keys[i]);
}
