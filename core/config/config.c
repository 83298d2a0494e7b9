/* config.c: converts the tree of moonpool.yaml to an mp_config. Reports every error, in the order of the file. */
#define _GNU_SOURCE 1
#include "read.h"
#include "expand.h"
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#define ITEMS_CAP 256 /* maximum items of a list */

_Static_assert(sizeof(uint64_t) == sizeof(size_t) && sizeof(mp_log_level) == sizeof(int) &&
                   sizeof(mp_trust) == sizeof(int),
               "numbers are written to their slots as int64_t, choices as int");

typedef mp_config_reader reader;

static void report_error(reader *r, mp_yaml_mark at, const mp_err *err)
{
    mp_yaml_error(&r->yaml, at, err);
}

static int shown_len(mp_str text)
{
    return (int)(text.len > MP_CONFIG_SHOWN ? MP_CONFIG_SHOWN : text.len);
}

/* -- reading a value ----------------------------------------------------------------------------------------------- */

bool mp_config_read_value(reader *r, const mp_yaml_node *node, mp_buf *room, mp_config_value *value)
{
    mp_err err;
    mp_str where = node->text;
    *value = (mp_config_value){node->text, {node->text.ptr, (size_t)shown_len(node->text)}, node->is_plain, false};
    if (!mp_expand_has(node->text))
        return true;
    if (r->keeps_variables)
        return false;
    value->is_expanded = true;
    if (mp_expand(node->text, r->folder, room, &where, &err) != 0) {
        report_error(r, mp_yaml_place_of(&r->yaml, node, where), &err);
        return false;
    }
    value->text = room->len == 0 ? MP_STR("") : mp_buf_str(room);
    return true;
}

static const char *const kinds[] = {"a single value", "a list", "keys and values"};

static void report_kind(reader *r, const mp_config_key *key, const mp_yaml_node *node)
{
    mp_err err;
    bool is_list = key->type == MP_KEY_LIST;
    mp_err_set(&err, "'%s' must be %s, not %s", mp_config_key_name(key),
               is_list                                                   ? "a single value or a list"
               : key->type == MP_KEY_GRANTS || key->type == MP_KEY_PAIRS ? kinds[MP_YAML_MAP]
                                                                         : kinds[MP_YAML_SCALAR],
               kinds[node->kind]);
    if (key->preset != NULL)
        mp_err_hint(&err, is_list ? "as in '%s: [%s]'" : "as in '%s: %s'", mp_config_key_name(key), key->preset);
    report_error(r, node->at, &err);
}

static void take_map(reader *r, const mp_config_key *MP_NULLABLE section, const mp_yaml_node *map);

/* Reads a map in a list: its keys go to `into`. Returns the scalar that represents the map in the list; NULL, with
 * an error reported, if there is none. */
static const mp_yaml_node *MP_NULLABLE read_item(reader *r, const mp_config_key *list, const mp_yaml_node *map,
                                                 void *into)
{
    const mp_config_key *bare = mp_config_key_at(MP_NEVER_NULL(list->bare)); /* each list of maps has one */
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_key_list(&mp_config_keys[i]) == list)
            r->seen[i] = NULL;
    r->item = into;
    take_map(r, list, map);
    mp_config_end_tls(r, "listen.tls", into);
    r->item = NULL;
    const mp_yaml_node *scalar = r->seen[bare - mp_config_keys];
    mp_err err;
    if (scalar == NULL) {
        mp_err_set(&err, "an item of '%s' needs '%s'", list->path, mp_config_key_name(bare));
        mp_err_hint(&err, "as in '{%s: \"%s\"}'", mp_config_key_name(bare), list->preset);
        report_error(r, map->at, &err);
    }
    return scalar;
}

/* Stores the items even of a list with errors, so that their memory is freed with the config. */
static void keep_items(reader *r, const mp_config_key *list, void *items, size_t count)
{
    char ***scalars = mp_config_list_of(r->config, list);
    if (count == 0) {
        free(items);
        return;
    }
    if (*scalars == NULL)
        *scalars = mp_new((count + 1) * sizeof **scalars);
    for (size_t i = 0; i < count; i++)
        if ((*scalars)[i] == NULL)
            (*scalars)[i] = mp_dup(MP_STR(""));
    mp_config_set_items(r->config, list, items);
}

void mp_config_read_list(reader *r, const mp_config_key *key, const mp_yaml_node *node, char ***list)
{
    const mp_yaml_node *nodes[ITEMS_CAP];
    mp_config_value values[ITEMS_CAP] = {0};
    mp_buf rooms[ITEMS_CAP] = {0};
    size_t count = 0, bad = 0;
    bool is_good = true, has_items = false;
    char *rest = key->item_size == 0 ? NULL : mp_new(ITEMS_CAP * key->item_size);
    mp_err err;
    for (const mp_yaml_node *item = node->kind == MP_YAML_LIST ? node->first : node; item != NULL; item = item->next) {
        if (count == ITEMS_CAP) {
            mp_err_set(&err, "'%s' has more than %d items", mp_config_key_name(key), ITEMS_CAP);
            report_error(r, item->at, &err);
            is_good = false;
            break;
        }
        nodes[count] = item;
        if (item->kind == MP_YAML_MAP && rest != NULL) {
            has_items = true;
            nodes[count] = read_item(r, key, item, rest + count * key->item_size);
        }
        if (nodes[count] == NULL) {
            nodes[count] = item;
            is_good = false;
        } else if (nodes[count]->kind != MP_YAML_SCALAR) {
            mp_err_set(&err, "an item of '%s' must be %s, not %s", mp_config_key_name(key), kinds[MP_YAML_SCALAR],
                       kinds[nodes[count]->kind]);
            report_error(r, nodes[count]->at, &err);
            is_good = false;
        } else if (!mp_config_read_value(r, nodes[count], &rooms[count], &values[count])) {
            is_good = false;
        } else if (mp_config_check_text(key, &values[count], &err) != 0) {
            report_error(r, nodes[count]->at, &err);
            is_good = false;
        }
        count++;
        if (node->kind != MP_YAML_LIST)
            break;
    }
    if (rest != NULL)
        mp_config_unset(r->config, key);
    if (is_good && mp_config_set_list(list, key, values, count, &bad, &err) != 0)
        report_error(r, bad == count ? node->at : nodes[bad]->at, &err);
    if (rest != NULL)
        keep_items(r, key, rest, has_items ? count : 0);
    for (size_t i = 0; i < count; i++)
        mp_buf_clear(&rooms[i]);
}

/* The struct that gets the value of `key`: the config, or the item that is being read. */
static void *place_of_values(reader *r, const mp_config_key *key)
{
    return mp_config_key_list(key) == NULL
               ? (void *)r->config
               : MP_NEVER_NULL(r->item); /* keys of items are read between its begin and its end */
}

static void take_scalar(reader *r, const mp_config_key *key, const mp_yaml_node *node)
{
    mp_scoped_buf room = {0};
    mp_config_value value;
    mp_err err;
    if (mp_config_read_value(r, node, &room, &value) &&
        mp_config_set(place_of_values(r, key), key, &value, r->folder, &err) != 0)
        report_error(r, node->at, &err);
}

/* -- keys ---------------------------------------------------------------------------------------------------------- */

static void report_unknown(reader *r, const mp_config_key *MP_NULLABLE section, const mp_yaml_node *node)
{
    const char *instead = mp_config_hint_of_removed(section, node->key);
    if (instead != NULL) {
        mp_buf *warnings = &r->config->warnings;
        mp_put_visible(warnings, mp_str_of(r->yaml.name));
        mp_buf_printf(warnings, ":%zu:%zu: '%s%s%.*s' is no key any more\n  hint: %s\n", node->key_at.line,
                      node->key_at.column, section == NULL ? "" : section->path, section == NULL ? "" : ".",
                      MP_STR_ARG(node->key), instead);
        return;
    }
    mp_err err;
    mp_err_set(&err, "unknown key '%.*s'%s%s%s", shown_len(node->key), node->key.ptr, section == NULL ? "" : " in '",
               section == NULL ? "" : section->path, section == NULL ? "" : "'");
    mp_config_hint_of_unknown(section, node->key, &err);
    report_error(r, node->key_at, &err);
}

static void read_list(reader *r, const mp_config_key *key, const mp_yaml_node *node)
{
    char ***list = mp_config_list_of(place_of_values(r, key), key);
    for (int kind = 0; kind < MP_GRANT_KINDS; kind++)
        if (list == &r->config->allow.lists[kind])
            r->config->allow.lines[kind] = (int)node->key_at.line;
    mp_config_read_list(r, key, node, list);
}

static void take_value(reader *r, const mp_config_key *key, const mp_yaml_node *node);

/* Reads the keys of one map. The depth of recursion is limited by the table. */
static void take_map(reader *r, const mp_config_key *MP_NULLABLE section, const mp_yaml_node *map)
{
    for (const mp_yaml_node *node = map->first; node != NULL; node = node->next) {
        const mp_config_key *key = mp_config_key_find(section, node->key);
        if (key == NULL) {
            report_unknown(r, section, node);
            continue;
        }
        const mp_yaml_node **seen = &r->seen[key - mp_config_keys];
        if (*seen != NULL) {
            mp_err err;
            mp_err_set(&err, "duplicate key '%s'", mp_config_key_name(key));
            mp_err_hint(&err, "it is already set in line %zu", (*seen)->key_at.line);
            report_error(r, node->key_at, &err);
            continue;
        }
        *seen = node;
        take_value(r, key, node);
    }
}

void mp_config_read_section(reader *r, const mp_config_key *section, const mp_yaml_node *node)
{
    mp_err err;
    const mp_config_key *bare = section->bare == NULL ? NULL : mp_config_key_at(section->bare);
    bool is_bare = bare != NULL && (node->kind == MP_YAML_SCALAR || bare->type == MP_KEY_LIST);
    if (node->kind == MP_YAML_MAP) {
        take_map(r, section, node);
    } else if (node->kind == MP_YAML_SCALAR && node->is_plain && mp_yaml_type_of(node->text) == MP_YAML_NULL) {
        /* all keys of the section are commented out: treated as absent */
    } else if (is_bare) {
        r->seen[bare - mp_config_keys] = node;
        take_value(r, bare, node);
    } else {
        mp_err_set(&err, "'%s' must be %s, not %s", section->path, kinds[MP_YAML_MAP], kinds[node->kind]);
        mp_config_hint_of_section(section, node->text, &err);
        report_error(r, node->at, &err);
    }
}

static void take_value(reader *r, const mp_config_key *key, const mp_yaml_node *node)
{
    const mp_config_key *list = mp_config_key_list(key);
    if (list != NULL && mp_str_is(mp_str_of(list->bare), key->path))
        return; /* the key belongs to a list: handled with the list */
    if (key->type == MP_KEY_SECTION)
        mp_config_read_section(r, key, node);
    else if (key->type == MP_KEY_MAP)
        mp_config_read_upstreams(r, key, node);
    else if (key->type == MP_KEY_GRANTS && node->kind == MP_YAML_MAP)
        mp_config_read_grants(r, node);
    else if (key->type == MP_KEY_PAIRS && node->kind == MP_YAML_MAP)
        mp_config_read_pairs(r, key, node, (mp_pair **)(void *)((char *)place_of_values(r, key) + key->slot));
    else if (key->type == MP_KEY_LIST && (node->kind != MP_YAML_MAP || key->item_size > 0))
        read_list(r, key, node);
    else if (node->kind == MP_YAML_SCALAR && key->type != MP_KEY_GRANTS && key->type != MP_KEY_PAIRS)
        take_scalar(r, key, node);
    else
        report_kind(r, key, node);
}

/* -- the whole configuration --------------------------------------------------------------------------------------- */

/* The place of `path` if the file has it, else of a related key. */
static mp_yaml_mark place_of(const reader *r, const char *path)
{
    const mp_config_key *blamed = mp_config_key_at(path);
    size_t prefix = strcspn(path, ".");
    if (r->seen[blamed - mp_config_keys] != NULL)
        return r->seen[blamed - mp_config_keys]->at;
    for (size_t i = mp_config_key_count; i-- > 0;)
        if (r->seen[i] != NULL && strncmp(mp_config_keys[i].path, path, prefix + 1) == 0)
            return r->seen[i]->at;
    const mp_yaml_node *listen = r->seen[mp_config_key_at("listen") - mp_config_keys];
    return listen == NULL ? (mp_yaml_mark){0, 0} : listen->at;
}

static int64_t processors(void)
{
    cpu_set_t set;
    int count = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    return count < 1 ? 1 : count > 64 ? 64 : count;
}

static void finish_config(mp_config *config)
{
    const char *cluster = config->lib.cluster.name;
    if (cluster != NULL && config->cluster_tls_name == NULL) {
        mp_scoped_buf name = {0};
        mp_buf_printf(&name, "moonpool-%s", cluster);
        config->cluster_tls_name = mp_dup(mp_buf_str(&name));
    }
    config->lib.cluster.listens = config->cluster_listen != NULL;
    if (config->workers == 0)
        config->workers = processors();
    if (config->endpoint_sse == NULL)
        mp_config_unset(config, mp_config_key_at("endpoints.messages"));
}

static char *folder_of(const char *path)
{
    const char *slash = strrchr(path, '/');
    if (slash == NULL)
        return mp_dup(MP_STR("."));
    return mp_dup((mp_str){path, slash == path ? 1 : (size_t)(slash - path)});
}

static mp_config *MP_NULLABLE parse_config(mp_str text, const char *name, bool keeps_variables, mp_buf *report)
{
    reader r = {.config = mp_new(sizeof *r.config), .folder = folder_of(name), .keeps_variables = keeps_variables};
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_key_list(&mp_config_keys[i]) == NULL)
            mp_config_set_preset(r.config, &mp_config_keys[i], r.folder);

    const mp_yaml_node *root = mp_yaml_parse(&r.yaml, text, name, report) == 0 ? r.yaml.root : NULL;
    if (root != NULL) {
        bool is_empty = root->kind == MP_YAML_SCALAR && root->is_plain && mp_yaml_type_of(root->text) == MP_YAML_NULL;
        mp_err err;
        const char *blamed;
        if (root->kind == MP_YAML_MAP) {
            take_map(&r, NULL, root);
        } else if (!is_empty) {
            mp_err_set(&err, "a configuration must be %s, not %s", kinds[MP_YAML_MAP], kinds[root->kind]);
            mp_err_hint(&err, "as in 'listen: %s'", mp_config_key_at("listen")->preset);
            report_error(&r, root->at, &err);
        }
        mp_config_end_tls(&r, "admin.tls", &r.config->admin_tls);
        mp_config_end_tls(&r, "cluster.tls", &r.config->cluster_tls);
        if (r.yaml.errors == 0 && !keeps_variables && mp_config_check_whole(r.config, &blamed, &err) != 0)
            report_error(&r, place_of(&r, blamed), &err);
    }
    mp_yaml_end_report(&r.yaml);
    if (r.yaml.errors == 0) {
        r.config->folder = mp_dup(mp_str_of(r.folder));
        r.config->name = mp_dup(mp_str_of(name));
        r.config->text = mp_dup(text);
        finish_config(r.config);
        mp_config_keep_shown(&r);
    }
    bool is_good = r.yaml.errors == 0;
    mp_yaml_clear(&r.yaml);
    free(r.folder);
    if (is_good)
        return r.config;
    mp_config_free(r.config);
    return NULL;
}

mp_config *MP_NULLABLE mp_config_parse(mp_str text, const char *name, mp_buf *report)
{
    return parse_config(text, name, false, report);
}

mp_config *MP_NULLABLE mp_config_parse_unexpanded(mp_str text, const char *name, mp_buf *report)
{
    return parse_config(text, name, true, report);
}

int mp_config_read_file(const char *path, mp_buf *text)
{
    struct stat info;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return -1;
    if (fstat(fd, &info) == 0 && S_ISDIR(info.st_mode)) {
        close(fd);
        errno = EISDIR;
        return -1;
    }
    ssize_t n = 0;
    while (text->len <= MP_YAML_CAP &&
           ((n = read(fd, mp_buf_room(text, 16384), 16384)) > 0 || (n < 0 && errno == EINTR)))
        text->len += n > 0 ? (size_t)n : 0;
    int why = errno;
    close(fd);
    errno = why;
    return n < 0 ? -1 : 0;
}

mp_config *MP_NULLABLE mp_config_load(const char *path, mp_buf *report)
{
    mp_scoped_buf text = {0};
    mp_config *config = NULL;
    if (mp_config_read_file(path, &text) == 0) {
        config = mp_config_parse(mp_buf_str(&text), path, report);
        if (config != NULL && mp_config_read_lock(config, report) != 0) {
            mp_config_free(config);
            config = NULL;
        }
    } else {
        int why = errno;
        mp_put_visible(report, mp_str_of(path));
        mp_buf_printf(report, ": cannot read the configuration: %s\n", strerror(why));
        if (why == ENOENT)
            mp_buf_put(report, MP_STR("  hint: is the path right? An empty file is a valid configuration\n"));
        if (why == EISDIR) {
            mp_buf_put(report, MP_STR("  hint: this is a folder; name the file in it, as in "));
            mp_put_visible(report, mp_str_of(path));
            mp_buf_put(report, MP_STR("/moonpool.yaml\n"));
        }
        if (why == EACCES || why == EPERM)
            mp_buf_put(
                report,
                MP_STR("  hint: the user that runs moonpool needs permission to read the file and its folders\n"));
    }
    return config;
}

void mp_config_free(mp_config *MP_NULLABLE config)
{
    if (config == NULL)
        return;
    for (size_t i = 0; i < mp_config_key_count; i++)
        if (mp_config_key_list(&mp_config_keys[i]) == NULL)
            mp_config_unset(config, &mp_config_keys[i]);
    mp_config_free_shown(config);
    free(config->folder);
    free(config->name);
    free(config->text);
    free(config->lock);
    mp_buf_clear(&config->warnings);
    free(config);
}

int mp_config_override(mp_config *config, const char *path, const char *const *values, size_t count, const char *option,
                       mp_buf *report)
{
    const mp_config_key *key = mp_config_key_at(path);
    mp_config_value items[ITEMS_CAP];
    mp_err err = {"", ""};
    const char *blamed;
    size_t bad;
    if (count > ITEMS_CAP)
        count = ITEMS_CAP;
    for (size_t i = 0; i < count; i++)
        items[i] =
            (mp_config_value){.text = mp_str_of(values[i]), .shown = {values[i], strnlen(values[i], MP_CONFIG_SHOWN)}};
    if (key->item_size > 0)
        mp_config_unset(config, key); /* a repeated key is reported as a duplicate and otherwise ignored */
    int result = key->type == MP_KEY_LIST
                     ? mp_config_set_list(mp_config_list_of(config, key), key, items, count, &bad, &err)
                     : mp_config_set(config, key, items, ".", &err);
    if (result == 0)
        mp_config_keep_option(config, key, values, count, option);
    if (result == 0)
        result = mp_config_check_whole(config, &blamed, &err);
    if (result != 0) {
        mp_buf_printf(report, "moonpool: %s: ", option);
        mp_put_visible(report, mp_str_of(err.text));
        if (err.hint[0] != '\0') {
            mp_buf_put(report, MP_STR("\n  hint: "));
            mp_put_visible(report, mp_str_of(err.hint));
        }
        mp_buf_putc(report, '\n');
    }
    return result;
}
