/* value.c: converts one value from text: times, sizes, counts, choices, texts, lists. */
#include "config.h"
#include "yaml.h"

typedef struct {
    const char *name;
    int64_t worth;
} unit;

/* The largest unit is last. */
static const unit times[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}, {"d", 86400000}, {NULL, 0}};
static const unit sizes[] = {{"B", 1}, {"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {NULL, 0}};
static const unit plain_number[] = {{"", 1}, {NULL, 0}};

static bool is_time(const mp_config_key *key)
{
    return key->type == MP_KEY_TIME || key->type == MP_KEY_TIMES;
}

static const unit *units_of(const mp_config_key *key)
{
    return is_time(key) ? times : key->type == MP_KEY_SIZE ? sizes : plain_number;
}

static size_t put_number(char *room, size_t size, int64_t number, const unit *units)
{
    const unit *best = number == 0 && units[1].name != NULL ? &units[1] : units; /* 0s is easier to read than 0ms */
    for (const unit *u = units; u->name != NULL; u++)
        if (number != 0 && number % u->worth == 0)
            best = u;
    int n = snprintf(room, size, "%lld%s", (long long)(number / best->worth), best->name);
    return n < 0 ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}

const char *mp_config_range(const mp_config_key *key, char *room, size_t size)
{
    const unit *units = units_of(key);
    size_t n = put_number(room, size, key->least, units);
    if (n + 4 < size) {
        memcpy(room + n, " to ", 5);
        put_number(room + n + 4, size - n - 4, key->most, units);
    }
    return room;
}

char *mp_config_join(const char *folder, mp_str path)
{
    mp_buf joined = {0};
    if ((path.len == 0 || path.ptr[0] != '/') && !mp_str_is(mp_str_of(folder), "."))
        mp_buf_printf(&joined, "%s%s", folder, mp_str_is(mp_str_of(folder), "/") ? "" : "/");
    mp_buf_put(&joined, path);
    mp_buf_putc(&joined, '\0');
    return joined.ptr;
}

/* -- numbers ------------------------------------------------------------------------------------------------------- */

/* Cuts the digits off the start of `*s`. Returns INT64_MAX on overflow, -1 if there are none. */
static int64_t cut_digits(mp_str *s, unsigned base)
{
    int64_t number = 0;
    size_t i = 0;
    for (; i < s->len; i++) {
        char c = s->ptr[i];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                         : c >= 'A' && c <= 'F' ? (unsigned)(c - 'A') + 10
                                                : 16;
        if (digit >= base)
            break;
        if (__builtin_mul_overflow(number, (int64_t)base, &number) ||
            __builtin_add_overflow(number, (int64_t)digit, &number))
            number = INT64_MAX;
    }
    *s = mp_str_from(*s, i);
    return i == 0 ? -1 : number;
}

static int bad_number(const mp_config_key *key, const mp_config_value *value, mp_err *err)
{
    char range[96];
    const char *kind = is_time(key) ? "a time" : key->type == MP_KEY_SIZE ? "a size" : "a whole number";
    mp_err_set(err, "'%s' is not %s: '%.*s'", mp_config_key_name(key), kind, MP_STR_ARG(value->shown));
    mp_config_range(key, range, sizeof range);
    if (is_time(key))
        mp_err_hint(err, "write a whole number with a unit (ms, s, m, h, d), as in %s; %s", key->preset, range);
    else if (key->type == MP_KEY_SIZE)
        mp_err_hint(err, "write a whole number with a unit (B, KiB, MiB, GiB), as in %s; %s", key->preset, range);
    else
        mp_err_hint(err, "%s%s%s", key->word == NULL ? "" : key->word, key->word == NULL ? "" : ", or ", range);
    return -1;
}

/* Reports a missing or wrong unit, as in "30", "30 s" or "4MB", with a suggestion. */
static int bad_unit(const mp_config_key *key, int64_t number, mp_str rest, const mp_config_value *value, mp_err *err)
{
    static const char *const size_slips[][2] = {
        {"k", "KiB"},   {"kb", "KiB"}, {"ki", "KiB"}, {"kib", "KiB"}, {"m", "MiB"},   {"mb", "MiB"}, {"mi", "MiB"},
        {"mib", "MiB"}, {"g", "GiB"},  {"gb", "GiB"}, {"gi", "GiB"},  {"gib", "GiB"}, {"b", "B"}};
    static const char *const time_slips[][2] = {{"sec", "s"},  {"secs", "s"},  {"second", "s"},  {"seconds", "s"},
                                                {"min", "m"},  {"mins", "m"},  {"minute", "m"},  {"minutes", "m"},
                                                {"hour", "h"}, {"hours", "h"}, {"hr", "h"},      {"day", "d"},
                                                {"days", "d"}, {"msec", "ms"}, {"millis", "ms"}, {"s", "s"},
                                                {"m", "m"},    {"h", "h"},     {"d", "d"},       {"ms", "ms"}};
    bool has_time = is_time(key);
    const char *const(*slips)[2] = has_time ? time_slips : size_slips;
    size_t count = has_time ? sizeof time_slips / sizeof *time_slips : sizeof size_slips / sizeof *size_slips;
    mp_str name = mp_str_trim(rest);
    if (name.len == 0) {
        mp_err_set(err, "'%s' needs a unit: '%.*s'", mp_config_key_name(key), MP_STR_ARG(value->shown));
        return value->is_expanded || number == INT64_MAX
                   ? mp_err_hint(err, "add a unit: %s", has_time ? "ms, s, m, h, d" : "B, KiB, MiB, GiB")
                   : mp_err_hint(err, "add a unit: %s, as in %lld%s", has_time ? "ms, s, m, h, d" : "B, KiB, MiB, GiB",
                                 (long long)number, has_time ? "s" : "MiB");
    }
    bad_number(key, value, err);
    for (size_t i = 0; i < count && !value->is_expanded && number != INT64_MAX; i++)
        if (mp_str_is_nocase(name, slips[i][0]))
            return mp_err_hint(err, "did you mean '%lld%s'?", (long long)number, slips[i][1]);
    return -1;
}

static int read_number(const mp_config_key *key, const mp_config_value *value, int64_t *number, mp_err *err)
{
    mp_str rest = value->text;
    int64_t worth = 1;
    if (key->word != NULL && mp_str_is(rest, key->word)) {
        *number = 0;
        return 0;
    }
    if (key->type == MP_KEY_COUNT) {
        /* a quoted number is text, as in all YAML; the value of ${…} counts as unquoted */
        if ((!value->is_plain && !value->is_expanded) || mp_yaml_type_of(rest) != MP_YAML_INT)
            return bad_number(key, value, err);
        bool is_negative = rest.ptr[0] == '-';
        rest = mp_str_from(rest, is_negative || rest.ptr[0] == '+');
        unsigned base = mp_str_starts(rest, MP_STR("0x")) ? 16 : mp_str_starts(rest, MP_STR("0o")) ? 8 : 10;
        rest = mp_str_from(rest, base == 10 ? 0 : 2);
        *number = cut_digits(&rest, base) * (is_negative ? -1 : 1);
    } else {
        *number = cut_digits(&rest, 10);
        if (*number < 0)
            return bad_number(key, value, err);
        const unit *u = units_of(key);
        while (u->name != NULL && !mp_str_is(rest, u->name))
            u++;
        if (u->name == NULL)
            return bad_unit(key, *number, rest, value, err);
        worth = u->worth;
    }
    if (__builtin_mul_overflow(*number, worth, number))
        *number = INT64_MAX;
    if (*number >= key->least && *number <= key->most)
        return 0;
    char range[96];
    mp_err_set(err, "'%s' is too %s: '%.*s'", mp_config_key_name(key), *number < key->least ? "small" : "large",
               MP_STR_ARG(value->shown));
    return mp_err_hint(err, "%s", mp_config_range(key, range, sizeof range));
}

/* "1s..60s", or one time for both ends. */
static int read_times(const mp_config_key *key, const mp_config_value *value, uint64_t range[2], mp_err *err)
{
    mp_config_value least = *value, most = *value;
    int64_t shortest = 0, longest = 0;
    for (size_t i = 0; i + 1 < value->text.len; i++)
        if (value->text.ptr[i] == '.' && value->text.ptr[i + 1] == '.') {
            least.text.len = i;
            most.text = mp_str_from(value->text, i + 2);
            break;
        }
    if (read_number(key, &least, &shortest, err) != 0 || read_number(key, &most, &longest, err) != 0)
        return -1;
    if (shortest > longest) {
        mp_err_set(err, "'%s' begins above its end: '%.*s'", mp_config_key_name(key), MP_STR_ARG(value->shown));
        return mp_err_hint(err, "write the shorter time first, as in %s", key->preset);
    }
    range[0] = (uint64_t)shortest;
    range[1] = (uint64_t)longest;
    return 0;
}

/* -- texts --------------------------------------------------------------------------------------------------------- */

static int bad_text(const mp_config_key *key, const mp_config_value *value, const char *what, mp_err *err)
{
    mp_err_set(err, "'%s' must be text, not %s", mp_config_key_name(key), what);
    if (key->word != NULL && mp_str_is_nocase(value->text, "false"))
        return mp_err_hint(err, "did you mean '%s'?", key->word);
    return mp_err_hint(err, "put quotes around it to make it text: \"%.*s\"", MP_STR_ARG(value->shown));
}

int mp_config_check_text(const mp_config_key *key, const mp_config_value *value, mp_err *err)
{
    static const char *const names[] = {"text", "nothing", "true or false", "a number", "a number"};
    mp_yaml_type type = value->is_plain && !value->is_expanded ? mp_yaml_type_of(value->text) : MP_YAML_TEXT;
    /* a number is accepted as text if `check` decides: `listen: 7300` then gets a better error than "a number" */
    if (type == MP_YAML_NULL || type == MP_YAML_BOOL ||
        (type != MP_YAML_TEXT && key->check == NULL && !key->may_repeat))
        return bad_text(key, value, names[type], err);
    if ((int64_t)value->text.len < key->least || (int64_t)value->text.len > key->most) {
        mp_err_set(err,
                   value->text.len == 0                    ? "'%s' is empty"
                   : (int64_t)value->text.len < key->least ? "'%s' is too short"
                                                           : "'%s' is too long",
                   mp_config_key_name(key));
        return mp_err_hint(err, "%lld to %lld bytes", (long long)key->least, (long long)key->most);
    }
    mp_err why = {"", ""};
    if (key->check == NULL || key->check(value->text, &why) == 0)
        return 0;
    mp_err_set(err, "'%.*s' is not %s%s%s", MP_STR_ARG(value->shown), key->form, why.text[0] == '\0' ? "" : ": ",
               why.text);
    return mp_err_hint(err, "%s", why.hint);
}

static int read_choice(const mp_config_key *key, const mp_config_value *value, int *choice, mp_err *err)
{
    mp_scoped_buf all = {0};
    size_t count = 0;
    for (; key->choices[count] != NULL; count++) {
        if (mp_str_is(value->text, key->choices[count])) {
            *choice = (int)count;
            return 0;
        }
        mp_buf_printf(&all, "%s%s", count == 0 ? "" : ", ", key->choices[count]);
    }
    const char *near = value->is_expanded ? NULL : mp_suggest(value->text, key->choices, count);
    mp_err_set(err, "'%s' cannot be '%.*s'", key->path, MP_STR_ARG(value->shown));
    if (near != NULL)
        mp_err_hint(err, "did you mean '%s'? allowed: %.*s", near, MP_STR_ARG(mp_buf_str(&all)));
    else
        mp_err_hint(err, "allowed: %.*s", MP_STR_ARG(mp_buf_str(&all)));
    return -1;
}

/* -- slots --------------------------------------------------------------------------------------------------------- */

static void *slot_of(void *in, const mp_config_key *key)
{
    return (char *)in + key->slot;
}

static void free_grants(mp_grant *grants)
{
    for (mp_grant *grant = grants; grant != NULL && grant->path != NULL; grant++) {
        free(grant->path);
        for (int i = 0; i < MP_GRANT_KINDS; i++)
            mp_free_texts(grant->lists[i]);
    }
    free(grants);
}

/* The array has as many items as the list. */
static void free_items(mp_config *config, const mp_config_key *list)
{
    char **scalars = *mp_config_list_of(config, list);
    char **items = (char **)(void *)((char *)config + list->item_slot);
    for (size_t i = 0; *items != NULL && scalars != NULL && scalars[i] != NULL; i++)
        for (size_t k = 0; k < mp_config_key_count; k++)
            if (mp_config_key_list(&mp_config_keys[k]) == list &&
                !mp_str_is(mp_str_of(list->bare), mp_config_keys[k].path))
                mp_config_unset(*items + i * list->item_size, &mp_config_keys[k]);
    free(*items);
    *items = NULL;
}

void mp_config_set_items(mp_config *config, const mp_config_key *list, void *MP_NULLABLE items)
{
    memcpy((char *)config + list->item_slot, &items, sizeof items);
}

void mp_config_unset(void *config, const mp_config_key *key)
{
    if (key->type == MP_KEY_TEXT || key->type == MP_KEY_PATH) {
        char **text = slot_of(config, key);
        free(*text);
        *text = NULL;
    } else if (key->type == MP_KEY_LIST) {
        char ***list = slot_of(config, key);
        if (key->item_size > 0)
            free_items(config, key);
        mp_free_texts(*list);
        *list = NULL;
    } else if (key->type == MP_KEY_GRANTS) {
        mp_grant **grants = slot_of(config, key);
        free_grants(*grants);
        *grants = NULL;
    } else if (key->type == MP_KEY_PAIRS) {
        mp_pair **pairs = slot_of(config, key);
        mp_pairs_free(*pairs);
        *pairs = NULL;
    } else if (key->type == MP_KEY_MAP) {
        mp_upstream_entry ***upstreams = slot_of(config, key);
        for (mp_upstream_entry **one = *upstreams; one != NULL && *one != NULL; one++)
            mp_upstream_entry_free(*one);
        free(*upstreams);
        *upstreams = NULL;
    }
}

int mp_config_set(void *config, const mp_config_key *key, const mp_config_value *value, const char *folder, mp_err *err)
{
    int64_t number = 0;
    uint64_t range[2];
    int choice = 0;
    void *slot = slot_of(config, key);
    /* a plain null is reported as null; an expanded value that is empty is an empty text */
    if (value->is_plain && !value->is_expanded && mp_yaml_type_of(value->text) == MP_YAML_NULL) {
        mp_err_set(err, "'%s' has no value", mp_config_key_name(key));
        return key->preset == NULL ? -1 : mp_err_hint(err, "remove the line to use the default: %s", key->preset);
    }
    switch (key->type) {
    case MP_KEY_TEXT:
    case MP_KEY_PATH: {
        bool is_off = key->word != NULL && mp_str_is(value->text, key->word);
        if (!is_off && mp_config_check_text(key, value, err) != 0)
            return -1;
        mp_config_unset(config, key);
        *(char **)slot = is_off                     ? NULL
                         : key->type == MP_KEY_PATH ? mp_config_join(folder, value->text)
                                                    : mp_dup(value->text);
        return 0;
    }
    case MP_KEY_CHOICE:
        if (read_choice(key, value, &choice, err) != 0)
            return -1;
        memcpy(slot, &choice, sizeof choice); /* every enum has the size of an int */
        return 0;
    case MP_KEY_TIMES:
        if (read_times(key, value, range, err) != 0)
            return -1;
        memcpy(slot, range, sizeof range);
        return 0;
    default:
        if (read_number(key, value, &number, err) != 0)
            return -1;
        memcpy(slot, &number, sizeof number);
        return 0;
    }
}

char ***mp_config_list_of(void *in, const mp_config_key *key)
{
    return slot_of(in, key);
}

int mp_config_set_list(char ***slot, const mp_config_key *key, const mp_config_value *items, size_t count, size_t *bad,
                       mp_err *err)
{
    *bad = count;
    if (count == 0) {
        mp_err_set(err, "'%s' is empty", mp_config_key_name(key));
        return mp_err_hint(err, "remove the line to use the default: %s",
                           key->preset == NULL ? "nothing" : key->preset);
    }
    for (size_t i = 0; i < count; i++) {
        bool is_twice = false;
        *bad = i;
        if (mp_config_check_text(key, &items[i], err) != 0)
            return -1;
        for (size_t k = 0; k < i && !key->may_repeat; k++)
            is_twice = is_twice || (mp_str_eq(items[k].text, items[i].text) && !mp_config_is_any_port(items[i].text));
        if (is_twice)
            return mp_err_set(err, "'%.*s' is named twice", MP_STR_ARG(items[i].shown));
    }
    mp_free_texts(*slot);
    char **list = mp_new((count + 1) * sizeof *list);
    for (size_t i = 0; i < count; i++)
        list[i] = mp_dup(items[i].text);
    *slot = list;
    return 0;
}

void mp_config_set_preset(void *config, const mp_config_key *key, const char *folder)
{
    if (key->preset == NULL)
        return;
    mp_config_value items[8];
    mp_str rest = mp_str_of(key->preset);
    size_t count = 0, bad;
    mp_err err;
    while (rest.ptr != NULL && count < sizeof items / sizeof *items) {
        mp_str item = key->type == MP_KEY_LIST ? mp_str_trim(mp_str_cut(&rest, ',')) : rest;
        items[count++] = (mp_config_value){.text = item, .shown = item, .is_plain = true};
        if (key->type != MP_KEY_LIST)
            break;
    }
    int result = key->type == MP_KEY_LIST
                     ? mp_config_set_list(mp_config_list_of(config, key), key, items, count, &bad, &err)
                     : mp_config_set(config, key, items, folder, &err);
    if (result != 0) {
        fprintf(stderr, "moonpool: the table of keys contradicts itself: %s: %s\n", key->path, err.text);
        abort();
    }
}
