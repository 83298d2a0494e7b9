/* shown.c: the configuration as operators see it: each key with its value, where the value comes from, the default and
 * the description. Values are those of the file before ${…} is expanded; every value with ${…}, and every one that may
 * be a secret, is "***". */
#include "read.h"
#include "expand.h"
#include "json/json.h"

#define MAX_TEXT 1024 /* bytes of one text that are shown */

struct mp_config_shown {
    char *MP_NULLABLE json;         /* NULL: the file does not set the key */
    size_t line;                    /* line in the file */
    const char *MP_NULLABLE option; /* of the command line that set the key; NULL: none did */
    bool is_pending;                /* the value takes effect at a restart */
};

/* -- values -------------------------------------------------------------------------------------------------------- */

static const char hidden[] = "\"***\"";

/* True if a part of the text may be a key, as the last part of https://host/mcp/4f9a…: 20 characters or more of letters
 * and digits, 4 of them digits. */
static bool looks_random(mp_str text)
{
    size_t run = 0, digits = 0;
    bool found = false;
    for (size_t i = 0; i < text.len && !found; i++) {
        char c = text.ptr[i];
        bool is_digit = c >= '0' && c <= '9';
        bool is_part = is_digit || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-';
        run = is_part ? run + 1 : 0;
        digits = is_part ? digits + is_digit : 0;
        found = run >= 20 && digits >= 4;
    }
    return found;
}

static void put_text(mp_buf *out, mp_str text, bool is_secret)
{
    if (is_secret || (text.len > 0 && (mp_expand_has(text) || mp_config_is_secret(text) || mp_config_has_secret(text) ||
                                       looks_random(text)))) {
        mp_buf_put(out, mp_str_of(hidden));
        return;
    }
    size_t len = text.len < MAX_TEXT ? text.len : MAX_TEXT;
    while (len < text.len && len > 0 && ((unsigned char)text.ptr[len] & 0xc0) == 0x80)
        len--; /* cut at the end of a character */
    mp_json_put_string(out, (mp_str){text.ptr, len});
}

/* True if the values of a key of this name are secrets, wherever it is. `is_map`: they have names, as variables and
 * headers have. */
static bool is_secret_key(mp_str name, bool is_map)
{
    return mp_config_names_secret(name) || mp_str_is(name, "seal_keys") || mp_str_is(name, "bearer") ||
           mp_str_is(name, "basic") || mp_str_is(name, "header") ||
           (is_map && (mp_str_is(name, "env") || mp_str_is(name, "headers") || mp_str_is(name, "tokens")));
}

/* The depth of recursion is limited by the YAML parser. */
static void put_node(mp_buf *out, const mp_yaml_node *node, bool is_secret)
{
    bool is_map = node->kind == MP_YAML_MAP, is_next = false;
    if (node->kind == MP_YAML_SCALAR) {
        put_text(out, node->text, is_secret);
        return;
    }
    mp_buf_putc(out, is_map ? '{' : '[');
    for (const mp_yaml_node *one = node->first; one != NULL; one = one->next) {
        if (one != node->first)
            mp_buf_putc(out, ',');
        if (is_map) {
            mp_json_put_string(out, one->key);
            mp_buf_putc(out, ':');
        }
        put_node(out, one, is_secret || is_next || (is_map && is_secret_key(one->key, one->kind == MP_YAML_MAP)));
        /* in an argv, the value after an option such as --token is a secret, too */
        is_next = !is_map && one->kind == MP_YAML_SCALAR && mp_str_starts(one->text, MP_STR("-")) &&
                  memchr(one->text.ptr, '=', one->text.len) == NULL && mp_config_names_secret(one->text);
    }
    mp_buf_putc(out, is_map ? '}' : ']');
}

/* True if the key's values are secrets: a number or a choice is none. */
static bool has_secrets(const mp_config_key *key)
{
    mp_str rest = mp_str_of(key->path);
    bool is_text = key->type == MP_KEY_TEXT || key->type == MP_KEY_LIST || key->type == MP_KEY_PAIRS, found = false;
    while (is_text && rest.ptr != NULL)
        found = is_secret_key(mp_str_cut(&rest, '.'), key->type == MP_KEY_PAIRS) || found;
    return found;
}

static char *text_of(mp_buf *json)
{
    char *text = mp_dup(mp_buf_str(json));
    mp_buf_clear(json);
    return text;
}

/* -- keeping ------------------------------------------------------------------------------------------------------- */

static struct mp_config_shown *shown_of(mp_config *config, const mp_config_key *key)
{
    if (config->shown == NULL)
        config->shown = mp_new(mp_config_key_count * sizeof *config->shown);
    return &config->shown[key - mp_config_keys];
}

void mp_config_keep_shown(mp_config_reader *r)
{
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        const mp_yaml_node *node = r->seen[i];
        mp_buf json = {0};
        if (node == NULL || key->type == MP_KEY_SECTION || mp_config_key_list(key) != NULL)
            continue;
        put_node(&json, node, has_secrets(key));
        struct mp_config_shown *one = shown_of(r->config, key);
        one->json = text_of(&json);
        one->line = node->key_at.line != 0 ? node->key_at.line : node->at.line;
    }
}

void mp_config_keep_option(mp_config *config, const mp_config_key *key, const char *const *values, size_t count,
                           const char *option)
{
    struct mp_config_shown *one = shown_of(config, key);
    bool is_list = key->type == MP_KEY_LIST;
    mp_buf json = {0};
    if (is_list)
        mp_buf_putc(&json, '[');
    for (size_t i = 0; i < (is_list ? count : 1); i++) {
        if (i > 0)
            mp_buf_putc(&json, ',');
        put_text(&json, mp_str_of(values[i]), has_secrets(key));
    }
    if (is_list)
        mp_buf_putc(&json, ']');
    free(one->json);
    one->json = text_of(&json);
    one->option = option;
}

void mp_config_keep_pending(mp_config *config, const mp_config_key *key)
{
    shown_of(config, key)->is_pending = true;
}

void mp_config_free_shown(mp_config *config)
{
    for (size_t i = 0; config->shown != NULL && i < mp_config_key_count; i++)
        free(config->shown[i].json);
    free(config->shown);
}

/* -- showing ------------------------------------------------------------------------------------------------------- */

const char *MP_NULLABLE mp_config_shown(const mp_config *config, const mp_config_key *key)
{
    return config->shown == NULL ? NULL : config->shown[key - mp_config_keys].json;
}

static void put_preset(mp_buf *out, const mp_config_key *key)
{
    if (key->preset == NULL)
        mp_buf_put(out, MP_STR("null"));
    else
        mp_json_put_string(out, mp_str_of(key->preset));
}

/* A member "value" says what is in effect; "pending" what the file has, where that waits for a restart. */
static void put_key(mp_buf *out, const mp_config_key *key, const struct mp_config_shown *MP_NULLABLE one)
{
    mp_buf_put(out, MP_STR("{\"key\":"));
    mp_json_put_string(out, mp_str_of(key->path));
    if (one != NULL && one->is_pending) {
        mp_buf_put(out, MP_STR(",\"value\":null,\"pending\":"));
        if (one->json != NULL)
            mp_buf_put(out, mp_str_of(one->json));
        else
            put_preset(out, key);
    } else {
        mp_buf_put(out, MP_STR(",\"value\":"));
        if (one != NULL && one->json != NULL)
            mp_buf_put(out, mp_str_of(one->json));
        else
            put_preset(out, key);
    }
    if (one != NULL && one->option != NULL)
        mp_buf_printf(out, ",\"source\":\"option\",\"option\":\"%s\"", one->option);
    else if (one != NULL && one->json != NULL)
        mp_buf_printf(out, ",\"source\":\"file\",\"line\":%zu", one->line);
    else
        mp_buf_put(out, MP_STR(",\"source\":\"default\""));
    mp_buf_put(out, MP_STR(",\"default\":"));
    put_preset(out, key);
    mp_buf_printf(out, ",\"restarts\":%s,\"doc\":", key->restarts ? "true" : "false");
    mp_json_put_string(out, mp_str_of(key->doc));
    mp_buf_putc(out, '}');
}

void mp_config_put_shown(mp_buf *out, const mp_config *config)
{
    bool is_first = true;
    mp_buf_put(out, MP_STR("{\"file\":"));
    mp_json_put_string(out, mp_str_of(config->name == NULL ? "" : config->name));
    mp_buf_put(out, MP_STR(",\"keys\":["));
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        if (key->type == MP_KEY_SECTION || mp_config_key_list(key) != NULL)
            continue;
        if (!is_first)
            mp_buf_putc(out, ',');
        is_first = false;
        put_key(out, key, config->shown == NULL ? NULL : &config->shown[i]);
    }
    mp_buf_put(out, MP_STR("]}"));
}
