/* suggest.c: "did you mean": finds the name with the least edit distance; hints about keys that moonpool.yaml does not
 * have, and about a single value in place of a section. */
#include "read.h"

#define MAX_WORD_BYTES 40

const char *MP_NULLABLE mp_suggest(mp_str word, const char *const *names, size_t count)
{
    const char *best = NULL;
    int best_distance = 0;
    if (word.len == 0 || word.len > MAX_WORD_BYTES)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(names[i]);
        if (len > MAX_WORD_BYTES)
            continue;
        int far = mp_edit_distance(word, mp_str_of(names[i]));
        /* typos have about one change per three letters; a prefix of a name is likely an abbreviation */
        bool is_near = far * 3 <= (int)(word.len > len ? word.len : len) ||
                       (word.len >= 3 && len > word.len && memcmp(word.ptr, names[i], word.len) == 0);
        if (is_near && (best == NULL || far < best_distance)) {
            best = names[i];
            best_distance = far;
        }
    }
    return best;
}

/* -- keys ---------------------------------------------------------------------------------------------------------- */

static const char *const removed[][2] = {
#define REMOVED(path, instead) {path, instead},
#include "removed.def"
#undef REMOVED
};

static const struct {
    const char *section, *names, *hint; /* path of the section, "" for the top level; names with spaces between them */
} foreign[] = {
#define FOREIGN(section, names, instead) {section, names, instead},
#include "foreign.def"
#undef FOREIGN
};

static const char *path_of(const mp_config_key *MP_NULLABLE section)
{
    return section == NULL ? "" : section->path;
}

const char *MP_NULLABLE mp_config_hint_of_removed(const mp_config_key *MP_NULLABLE section, mp_str name)
{
    const char *before = path_of(section);
    size_t len = strlen(before), dot = section != NULL;
    for (size_t i = 0; i < sizeof removed / sizeof *removed; i++)
        if (strncmp(removed[i][0], before, len) == 0 && (!dot || removed[i][0][len] == '.') &&
            mp_str_is(name, removed[i][0] + len + dot))
            return removed[i][1];
    return NULL;
}

static const char *MP_NULLABLE hint_of_foreign(const char *section, mp_str name)
{
    for (size_t i = 0; i < sizeof foreign / sizeof *foreign; i++) {
        mp_str names = mp_str_of(foreign[i].names);
        while (strcmp(foreign[i].section, section) == 0 && names.ptr != NULL)
            if (mp_str_eq(mp_str_cut(&names, ' '), name))
                return foreign[i].hint;
    }
    return NULL;
}

static size_t common_len(const char *a, const char *b)
{
    size_t len = 0;
    while (a[len] != '\0' && a[len] == b[len])
        len++;
    return len;
}

/* The key of another section that has this name; of several the one whose section is nearest. */
static const mp_config_key *MP_NULLABLE elsewhere(const char *section, mp_str name)
{
    const mp_config_key *best = NULL;
    size_t best_len = 0;
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        size_t len = common_len(section, key->path);
        if (mp_str_is(name, mp_config_key_name(key)) && (best == NULL || len > best_len)) {
            best = key;
            best_len = len;
        }
    }
    return best;
}

void mp_config_hint_of_unknown(const mp_config_key *MP_NULLABLE section, mp_str name, mp_err *err)
{
    const char *names[MP_CONFIG_KEYS_CAP];
    size_t count = 0;
    mp_scoped_buf all = {0};
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_key_is_in(&mp_config_keys[i], section)) {
            names[count] = mp_config_key_name(&mp_config_keys[i]);
            mp_buf_printf(&all, "%s%s", count == 0 ? "" : ", ", names[count]);
            count++;
        }
    const char *known = hint_of_foreign(path_of(section), name), *near = mp_suggest(name, names, count);
    const mp_config_key *other = elsewhere(path_of(section), name);
    if (known != NULL)
        mp_err_hint(err, "%s", known);
    else if (near != NULL)
        mp_err_hint(err, "did you mean '%s'?", near);
    else if (other == NULL)
        mp_err_hint(err, "the keys %s are: %.*s", section == NULL ? "at the top level" : "here",
                    MP_STR_ARG(mp_buf_str(&all)));
    else if (strrchr(other->path, '.') == NULL)
        mp_err_hint(err, "'%s' belongs at the top level", other->path);
    else
        mp_err_hint(err, "'%s' belongs in '%.*s'", mp_config_key_name(other),
                    (int)(strrchr(other->path, '.') - other->path), other->path);
}

static bool has_choice(const mp_config_key *key, mp_str text)
{
    for (size_t i = 0; key->type == MP_KEY_CHOICE && key->choices[i] != NULL; i++)
        if (mp_str_is(text, key->choices[i]))
            return true;
    return false;
}

void mp_config_hint_of_section(const mp_config_key *section, mp_str text, mp_err *err)
{
    const mp_config_key *preset = NULL, *fits = NULL;
    bool is_path = text.len > 0 && (memchr(text.ptr, '.', text.len) != NULL || memchr(text.ptr, '/', text.len) != NULL);
    for (size_t i = mp_config_key_count; i-- > 0;) {
        const mp_config_key *key = &mp_config_keys[i];
        if (!mp_config_key_is_in(key, section))
            continue;
        if (key->preset != NULL)
            preset = key;
        if (has_choice(key, text) || (is_path && key->type == MP_KEY_PATH))
            fits = key;
    }
    if (fits != NULL)
        mp_err_hint(err, "as in '%s: {%s: %.*s}'", mp_config_key_name(section), mp_config_key_name(fits),
                    (int)(text.len > MP_CONFIG_SHOWN ? MP_CONFIG_SHOWN : text.len), text.ptr);
    else if (preset != NULL)
        mp_err_hint(err, "as in '%s: {%s: \"%s\"}'", mp_config_key_name(section), mp_config_key_name(preset),
                    MP_NEVER_NULL(preset->preset));
}
