/* grants.c: reads scripts.grants, the only map of moonpool.yaml whose keys the operator chooses: paths of
 * scripts. */
#include "config.h"
#include "read.h"

static int shown_len(mp_str text)
{
    return (int)(text.len > MP_CONFIG_SHOWN ? MP_CONFIG_SHOWN : text.len);
}

static bool has_step_up(mp_str path)
{
    while (path.ptr != NULL) {
        mp_str name = mp_str_cut(&path, '/');
        if (mp_str_is(name, "..") || mp_str_is(name, "."))
            return true;
    }
    return false;
}

/* What authors call the kinds of grants who know other tools, and the libraries of scripts. */
static const char *const other_kinds[][2] = {
    {"secret", "env"},   {"secrets", "env"},    {"environment", "env"}, {"http", "net"},   {"https", "net"},
    {"host", "net"},     {"hosts", "net"},      {"network", "net"},     {"exec", "run"},   {"command", "run"},
    {"program", "run"},  {"programs", "run"},   {"file", "read"},       {"files", "read"}, {"fs", "read"},
    {"sqlite", "write"}, {"database", "write"},
};

static int check_path(mp_str path, mp_err *err)
{
    bool is_file = path.len > 4 && mp_str_is(mp_str_from(path, path.len - 4), ".lua");
    if (path.len > 0 && path.ptr[0] != '/' && !has_step_up(path) && (is_file || path.ptr[path.len - 1] == '/'))
        return 0;
    mp_err_set(err, "'%.*s' is neither a script nor a folder of scripts", shown_len(path), path.ptr);
    if (path.len == 0)
        return mp_err_hint(err, "grants for all scripts belong in scripts.allow");
    if (path.ptr[0] == '/' || has_step_up(path))
        return mp_err_hint(err, "the path starts in the scripts folder, as in tools/orders.lua or tools/orders/");
    if (memchr(path.ptr, '/', path.len) == NULL)
        return mp_err_hint(err, "the path of a script, as in tools/%.*s.lua, or of a folder, as in tools/",
                           shown_len(path), path.ptr);
    return mp_err_hint(err, "write '%.*s/' for a folder, or '%.*s.lua' for a file", shown_len(path), path.ptr,
                       shown_len(path), path.ptr);
}

/* The row of scripts.allow that defines this kind of list. Returns NULL and reports an error if there is no such
 * kind. */
static const mp_config_key *MP_NULLABLE kind_of(mp_config_reader *r, const mp_yaml_node *node, mp_grant_kind *kind)
{
    static const char *const names[] = {"net", "read", "write", "run", "env", "store"};
    const mp_config_key *key = mp_config_key_find(mp_config_key_at("scripts.allow"), node->key);
    mp_err err;
    for (int i = 0; i < MP_GRANT_KINDS; i++)
        if (mp_str_is(node->key, names[i])) {
            *kind = (mp_grant_kind)i;
            return key;
        }
    const char *near = mp_suggest(node->key, names, MP_GRANT_KINDS);
    for (size_t i = 0; i < sizeof other_kinds / sizeof *other_kinds && near == NULL; i++)
        if (mp_str_is(node->key, other_kinds[i][0]))
            near = other_kinds[i][1];
    mp_err_set(&err, "unknown key '%.*s' in a grant", shown_len(node->key), node->key.ptr);
    if (near != NULL)
        mp_err_hint(&err, "did you mean '%s'?", near);
    else
        mp_err_hint(&err, "the keys are: net, read, write, run, env, store");
    mp_yaml_error(&r->yaml, node->key_at, &err);
    return NULL;
}

static void report_error(mp_config_reader *r, mp_yaml_mark at, const char *what, mp_str name)
{
    mp_err err = {"", ""};
    mp_err_set(&err, "%s '%.*s'", what, shown_len(name), name.ptr);
    mp_yaml_error(&r->yaml, at, &err);
}

static void take_one(mp_config_reader *r, mp_grant *grant, const mp_yaml_node *node)
{
    mp_err err;
    if (check_path(node->key, &err) != 0)
        mp_yaml_error(&r->yaml, node->key_at, &err);
    if (node->kind != MP_YAML_MAP) {
        mp_err_set(&err, "a grant must be keys and values");
        mp_err_hint(&err, "as in '%.*s: {net: [\"api.example.com:443\"]}'", shown_len(node->key), node->key.ptr);
        mp_yaml_error(&r->yaml, node->at, &err);
        return;
    }
    for (const mp_yaml_node *list = node->first; list != NULL; list = list->next) {
        mp_grant_kind kind;
        const mp_config_key *key = kind_of(r, list, &kind);
        if (key == NULL)
            continue;
        if (grant->lists[kind] != NULL)
            report_error(r, list->key_at, "duplicate key", list->key);
        else if (list->kind == MP_YAML_MAP)
            report_error(r, list->at, "expected a single value or a list in", list->key);
        else
            mp_config_read_list(r, key, list, &grant->lists[kind]);
        grant->lines[kind] = (int)list->key_at.line;
    }
}

void mp_config_read_grants(mp_config_reader *r, const mp_yaml_node *map)
{
    size_t count = 0;
    for (const mp_yaml_node *node = map->first; node != NULL; node = node->next)
        count++;
    mp_grant *all = mp_new((count + 1) * sizeof *all), *grants = all;
    r->config->grants = all;
    for (const mp_yaml_node *node = map->first; node != NULL; node = node->next) {
        for (mp_grant *before = all; before < grants; before++)
            if (mp_str_is(node->key, MP_NEVER_NULL(before->path))) /* only the last one has none */
                report_error(r, node->key_at, "duplicate key", node->key);
        grants->path = mp_dup(node->key);
        grants->line = (int)node->key_at.line;
        take_one(r, grants++, node);
    }
}
