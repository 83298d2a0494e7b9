/* yaml.h: parses one YAML document into a tree whose nodes know their place in the file. Refused, with their place:
 * anchors, aliases, tags, a second document, keys that are not text, and more than 1 MiB, 16 levels or 20,000
 * values. */
#ifndef MP_CONFIG_YAML_H
#define MP_CONFIG_YAML_H

#include "telemetry/telemetry.h"

#define MP_YAML_CAP ((size_t)1 << 20)

typedef struct {
    size_t line, column; /* both start at 1; column in characters; line 0: no place */
} mp_yaml_mark;

typedef enum { MP_YAML_SCALAR, MP_YAML_LIST, MP_YAML_MAP } mp_yaml_kind;

typedef struct mp_yaml_node {
    mp_yaml_kind kind;
    bool is_plain; /* a scalar without quotes */
    mp_yaml_mark at, key_at;
    mp_str key, text; /* key: in a child of a map; text: of a scalar */
    struct mp_yaml_node *MP_NULLABLE first, *MP_NULLABLE next;
    struct mp_yaml_node *older; /* links all nodes of the tree, for mp_yaml_clear */
} mp_yaml_node;

typedef struct {
    mp_str text;
    const char *name;
    mp_buf *report;
    size_t errors;
    mp_yaml_node *MP_NULLABLE root; /* NULL: the document is empty */
    mp_yaml_node *newest;
} mp_yaml;

/* `text`, `name` and `report` are borrowed until mp_yaml_clear. Returns -1 and a report if the text is not valid
 * YAML or is refused. */
int mp_yaml_parse(mp_yaml *yaml, mp_str text, const char *name, mp_buf *report);
void mp_yaml_clear(mp_yaml *yaml);

/* The type of a plain scalar by YAML 1.2's core schema. */
typedef enum { MP_YAML_TEXT, MP_YAML_NULL, MP_YAML_BOOL, MP_YAML_INT, MP_YAML_FLOAT } mp_yaml_type;
mp_yaml_type mp_yaml_type_of(mp_str plain);

/* mp_yaml_line: a line by its number, without its line break. mp_yaml_mark_of: the place of the byte at `offset`. */
mp_str mp_yaml_line(mp_str text, size_t line);
mp_yaml_mark mp_yaml_mark_of(mp_str text, size_t offset);

/* Appends "name:line:column: text", the line with a caret below it, and the hint. After 100 errors, further ones are
 * only counted. */
void mp_yaml_error(mp_yaml *yaml, mp_yaml_mark at, const mp_err *err);
/* Call it after the last error: appends the number of errors that were not printed. */
void mp_yaml_end_report(mp_yaml *yaml);
/* The place in the file of `part` of a scalar. Exact only in the scalar's first line. */
mp_yaml_mark mp_yaml_place_of(const mp_yaml *yaml, const mp_yaml_node *node, mp_str part);

/* One byte for each of a configuration file, not 0 for those that no report may quote. The caller frees it. */
char *mp_yaml_secrets(mp_str text);
/* Appends a message without the secrets that it quotes: of URLs, and what `hidden` has of the line that it is about. */
void mp_yaml_put_message(mp_buf *out, mp_str message, mp_str line, const char *hidden);

/* Appends `text`, with '?' for characters that a terminal could interpret and for invalid UTF-8. */
void mp_put_visible(mp_buf *out, mp_str text);

#endif
