/* print.c: prints the table of keys as help, manual page and JSON Schema. */
#include "config.h"

static int depth_of(const mp_config_key *key)
{
    int depth = 0;
    for (const char *c = key->path; *c != '\0'; c++)
        depth += *c == '.';
    return depth;
}

/* Appends a short form of the allowed values, as in "100ms to 30d" or "strict, full"; may append nothing. */
static void put_values(mp_buf *out, const mp_config_key *key)
{
    char range[96];
    if (key->word != NULL)
        mp_buf_printf(out, "%s or ", key->word);
    if (key->type == MP_KEY_CHOICE)
        for (size_t i = 0; key->choices[i] != NULL; i++)
            mp_buf_printf(out, "%s%s", i == 0 ? "" : key->choices[i + 1] == NULL ? " or " : ", ", key->choices[i]);
    else if (key->type == MP_KEY_TIME || key->type == MP_KEY_SIZE || key->type == MP_KEY_COUNT)
        mp_buf_printf(out, "%s", mp_config_range(key, range, sizeof range));
    else if (key->type == MP_KEY_LIST)
        mp_buf_printf(out, "%s, or a list", key->form);
    else if (key->type == MP_KEY_TIMES)
        mp_buf_printf(out, "%s, or a range of times", mp_config_range(key, range, sizeof range));
    else if (key->type == MP_KEY_MAP || key->type == MP_KEY_PAIRS)
        mp_buf_printf(out, "names and %s", key->form);
    else
        mp_buf_printf(out, "%s", key->form != NULL ? key->form : key->type == MP_KEY_PATH ? "a path" : "a text");
}

static const char *restarts_of(const mp_config_key *key)
{
    return key->restarts ? " Changing this needs a restart." : "";
}

/* -- `moonpool config` --------------------------------------------------------------------------------------------- */

/* Appends `text` in lines of at most 100 characters, each with `indent` spaces. */
static void put_wrapped(mp_buf *out, const char *text, int indent)
{
    mp_str rest = mp_str_of(text);
    int column = 0;
    while (rest.ptr != NULL) {
        mp_str word = mp_str_cut(&rest, ' ');
        bool starts = column == 0 || column + 1 + (int)word.len > 100;
        if (starts)
            mp_buf_printf(out, "%s%*s# ", column == 0 ? "" : "\n", indent, "");
        mp_buf_printf(out, "%s%.*s", starts ? "" : " ", MP_STR_ARG(word));
        column = starts ? indent + 2 + (int)word.len : column + 1 + (int)word.len;
    }
    mp_buf_putc(out, '\n');
}

void mp_config_print_help(mp_buf *out)
{
    mp_buf_put(out, MP_STR("# Every key of moonpool.yaml with its default. See also moonpool.yaml(5).\n"
                           "# Values may contain ${NAME}, ${NAME:-default}, ${NAME:?message} and ${file:path}; write "
                           "$$ for a dollar.\n"));
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        int indent = 2 * depth_of(key);
        if (indent == 0)
            mp_buf_putc(out, '\n');
        mp_scoped_buf doc = {0};
        mp_buf_printf(&doc, "%s%s%c", key->doc, restarts_of(key), '\0');
        put_wrapped(out, doc.ptr, indent);
        bool is_comment = (key->preset == NULL && key->type != MP_KEY_SECTION) || mp_config_key_list(key) != NULL;
        mp_buf_printf(out, "%*s%s%s:", indent, "", is_comment ? "# " : "", mp_config_key_name(key));
        if (key->type != MP_KEY_SECTION) {
            bool is_list = key->type == MP_KEY_LIST && key->preset != NULL && strchr(key->preset, ',') != NULL;
            const char *preset = key->preset == NULL ? "" : key->preset;
            if (is_list) { /* an IPv6 address in brackets must be quoted inside a YAML list */
                mp_str rest = mp_str_of(preset);
                for (const char *mark = " ["; rest.ptr != NULL; mark = ", ") {
                    mp_str item = mp_str_trim(mp_str_cut(&rest, ','));
                    mp_buf_printf(out, "%s\"%.*s\"", mark, MP_STR_ARG(item));
                }
                mp_buf_putc(out, ']');
            } else {
                mp_buf_printf(out, "%s%s", preset[0] == '\0' ? "" : " ", preset);
            }
            mp_buf_put(out, MP_STR("  # "));
            put_values(out, key);
        }
        mp_buf_putc(out, '\n');
    }
}

/* -- moonpool.yaml(5) ---------------------------------------------------------------------------------------------- */

/* Escapes the characters that are special in scdoc. */
static void put_scdoc(mp_buf *out, const char *text)
{
    for (; *text != '\0'; text++) {
        if (strchr("*_\\[]|#~<>`", *text) != NULL)
            mp_buf_putc(out, '\\');
        mp_buf_putc(out, *text);
    }
}

void mp_config_print_man(mp_buf *out)
{
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        mp_scoped_buf values = {0};
        mp_buf_put(out, MP_STR("*"));
        put_scdoc(out, key->path);
        mp_buf_put(out, MP_STR("*"));
        if (key->type != MP_KEY_SECTION) {
            put_values(&values, key);
            mp_buf_putc(&values, '\0');
            mp_buf_put(out, MP_STR(": "));
            put_scdoc(out, values.ptr);
            mp_buf_put(out, key->preset == NULL ? MP_STR("; no default") : MP_STR("; default "));
            put_scdoc(out, key->preset == NULL ? "" : key->preset);
        }
        mp_buf_put(out, MP_STR("\n\t"));
        put_scdoc(out, key->doc);
        put_scdoc(out, restarts_of(key));
        mp_buf_put(out, MP_STR("\n\n"));
    }
}

/* -- the JSON Schema ----------------------------------------------------------------------------------------------- */

static void put_json(mp_buf *out, const char *text)
{
    mp_buf_putc(out, '"');
    for (; *text != '\0'; text++) {
        if (*text == '"' || *text == '\\')
            mp_buf_putc(out, '\\');
        mp_buf_putc(out, *text);
    }
    mp_buf_putc(out, '"');
}

static const char expansion[] = "\\$\\{"; /* allows any ${…}: an editor cannot know its value */

static void put_pattern(mp_buf *out, const char *pattern, const char *MP_NULLABLE word)
{
    mp_scoped_buf whole = {0};
    mp_buf_printf(&whole, "%s%s%s%s|%s", word == NULL ? "" : "^", word == NULL ? "" : word, word == NULL ? "" : "$|",
                  pattern, expansion);
    mp_buf_putc(&whole, '\0');
    mp_buf_put(out, MP_STR("{\"type\": \"string\", \"pattern\": "));
    put_json(out, whole.ptr);
    mp_buf_putc(out, '}');
}

/* Appends the schema of one value without its description. The loader alone checks ranges of times and sizes. */
static void put_value_schema(mp_buf *out, const mp_config_key *key)
{
    mp_scoped_buf pattern = {0};
    switch (key->type) {
    case MP_KEY_TIME:
        put_pattern(out, "^[0-9]+(ms|s|m|h|d)$", key->word);
        break;
    case MP_KEY_TIMES:
        put_pattern(out, "^[0-9]+(ms|s|m|h|d)([.][.][0-9]+(ms|s|m|h|d))?$", key->word);
        break;
    case MP_KEY_PAIRS:
        mp_buf_put(out, MP_STR("{\"type\": \"object\", \"additionalProperties\": {\"type\": \"string\"}}"));
        break;
    case MP_KEY_SIZE:
        put_pattern(out, "^[0-9]+(B|KiB|MiB|GiB)$", key->word);
        break;
    case MP_KEY_COUNT:
        mp_buf_printf(out, "{\"anyOf\": [{\"type\": \"integer\", \"minimum\": %lld, \"maximum\": %lld}, ",
                      (long long)key->least, (long long)key->most);
        mp_buf_printf(&pattern, "^%s$", key->word == NULL ? "" : key->word);
        mp_buf_putc(&pattern, '\0');
        put_pattern(out, key->word == NULL ? expansion : pattern.ptr, NULL);
        mp_buf_put(out, MP_STR("]}"));
        break;
    case MP_KEY_CHOICE:
        for (size_t i = 0; key->choices[i] != NULL; i++)
            mp_buf_printf(&pattern, "%s%s", i == 0 ? "^(" : "|", key->choices[i]);
        mp_buf_put(&pattern, MP_STR(")$"));
        mp_buf_putc(&pattern, '\0');
        put_pattern(out, pattern.ptr, NULL);
        break;
    default:
        if (key->is_number) {
            mp_buf_put(out, MP_STR("{\"anyOf\": [{\"type\": \"number\"}, "));
            put_pattern(out, expansion, NULL);
            mp_buf_put(out, MP_STR("]}"));
        } else if (key->pattern != NULL)
            put_pattern(out, key->pattern, key->word);
        else
            mp_buf_printf(out, "{\"type\": \"string\", \"minLength\": %lld}", (long long)key->least);
    }
}

static void put_schema(mp_buf *out, const mp_config_key *key, int indent);

/* Appends the schema of all keys below `section`, without the enclosing braces. */
static void put_object(mp_buf *out, const mp_config_key *MP_NULLABLE section, int indent)
{
    mp_buf_printf(out, "\"type\": [\"object\", \"null\"], \"additionalProperties\": false, \"properties\": {");
    bool first = true;
    for (size_t i = 0; i < mp_config_key_count; i++) {
        const mp_config_key *key = &mp_config_keys[i];
        if (!mp_config_key_is_in(key, section))
            continue;
        mp_buf_printf(out, "%s\n%*s", first ? "" : ",", indent + 2, "");
        put_json(out, mp_config_key_name(key));
        mp_buf_put(out, MP_STR(": "));
        put_schema(out, key, indent + 2);
        first = false;
    }
    mp_buf_printf(out, "\n%*s}", indent, "");
}

/* Appends the schema of one item of a list: a value, or a value or a map. */
static void put_items(mp_buf *out, const mp_config_key *list, int indent)
{
    put_value_schema(out, list);
    if (list->item_size == 0)
        return;
    mp_buf_put(out, MP_STR(", {"));
    put_object(out, list, indent);
    mp_buf_putc(out, '}');
}

/* Appends the schema of an array of items. */
static void put_array(mp_buf *out, const mp_config_key *list, int indent)
{
    mp_buf_put(out, MP_STR("{\"type\": \"array\", \"minItems\": 1, \"uniqueItems\": true, \"items\": "));
    mp_buf_put(out, list->item_size == 0 ? MP_STR("") : MP_STR("{\"anyOf\": ["));
    put_items(out, list, indent);
    mp_buf_put(out, list->item_size == 0 ? MP_STR("}") : MP_STR("]}}"));
}

/* The section below a map that has the keys of each entry. */
static const mp_config_key *entry_of(const mp_config_key *map)
{
    const mp_config_key *entry = map + 1;
    while (!mp_config_key_is_in(entry, map))
        entry++;
    return entry;
}

static void put_schema(mp_buf *out, const mp_config_key *key, int indent)
{
    mp_scoped_buf doc = {0};
    mp_buf_printf(&doc, "%s%s%c", key->doc, restarts_of(key), '\0');
    mp_buf_put(out, MP_STR("{\"description\": "));
    put_json(out, doc.ptr);
    mp_buf_put(out, MP_STR(", "));
    if (key->preset != NULL && key->type != MP_KEY_LIST) {
        bool is_number = key->type == MP_KEY_COUNT && key->preset[0] >= '0' && key->preset[0] <= '9';
        mp_buf_put(out, MP_STR("\"default\": "));
        if (is_number)
            mp_buf_put(out, mp_str_of(key->preset));
        else
            put_json(out, key->preset);
        mp_buf_put(out, MP_STR(", "));
    }
    if (key->type == MP_KEY_GRANTS) {
        mp_buf_put(out, MP_STR("\"type\": \"object\", \"propertyNames\": {\"pattern\": \"/$|\\\\.lua$\"}, "
                               "\"additionalProperties\": {"));
        put_object(out, mp_config_key_at("scripts.allow"), indent);
        mp_buf_putc(out, '}');
    } else if (key->type == MP_KEY_MAP) {
        mp_buf_put(out, MP_STR("\"type\": [\"object\", \"null\"], \"propertyNames\": {\"pattern\": "));
        put_json(out, MP_NEVER_NULL(key->pattern)); /* each map has one */
        mp_buf_put(out, MP_STR("}, \"additionalProperties\": "));
        put_schema(out, entry_of(key), indent);
    } else if (key->type == MP_KEY_SECTION && key->bare == NULL) {
        put_object(out, key, indent);
    } else if (key->type == MP_KEY_SECTION) {
        mp_buf_put(out, MP_STR("\"anyOf\": ["));
        const mp_config_key *bare = mp_config_key_at(key->bare);
        put_value_schema(out, bare);
        mp_buf_put(out, MP_STR(", {"));
        put_object(out, key, indent);
        mp_buf_putc(out, '}');
        if (bare->type == MP_KEY_LIST) {
            mp_buf_put(out, MP_STR(", "));
            put_array(out, bare, indent);
        }
        mp_buf_putc(out, ']');
    } else if (key->type == MP_KEY_LIST) {
        mp_buf_put(out, MP_STR("\"anyOf\": ["));
        put_items(out, key, indent);
        mp_buf_put(out, MP_STR(", "));
        put_array(out, key, indent);
        mp_buf_putc(out, ']');
    } else {
        mp_buf_put(out, MP_STR("\"allOf\": ["));
        put_value_schema(out, key);
        mp_buf_put(out, MP_STR("]"));
    }
    mp_buf_putc(out, '}');
}

void mp_config_print_schema(mp_buf *out)
{
    mp_buf_put(out,
               MP_STR("{\"$schema\": \"http://json-schema.org/draft-07/schema#\", \"title\": \"moonpool.yaml\",\n "));
    put_object(out, NULL, 1);
    mp_buf_put(out, MP_STR("}\n"));
}
