/* yaml.h: one YAML document as a small tree in which everything knows its place in the file.
 * Refused, each with its place: anchors, aliases, tags, a second document, keys that are not text, more than 1 MiB,
 * 16 levels or 20,000 values. */
#ifndef MP_GATEWAY_YAML_H
#define MP_GATEWAY_YAML_H

#include "base/base.h"

#define MP_YAML_CAP ((size_t)1 << 20)

typedef struct {
    size_t line, column; /* from 1, in characters; line 0: nowhere */
} mp_yaml_mark;

typedef enum { MP_YAML_SCALAR, MP_YAML_LIST, MP_YAML_MAP } mp_yaml_kind;

typedef struct mp_yaml_node {
    mp_yaml_kind kind;
    bool is_plain; /* a scalar without quotes */
    mp_yaml_mark at, key_at;
    mp_str key, text; /* key: where the parent is a map; text: of a scalar */
    struct mp_yaml_node *first, *next;
    struct mp_yaml_node *older; /* all nodes of the tree, for clear */
} mp_yaml_node;

typedef struct {
    mp_str text;
    const char *name;
    mp_buf *report;
    size_t errors;
    mp_yaml_node *root; /* NULL: the document is empty */
    mp_yaml_node *newest;
} mp_yaml;

/* `text`, `name` and `report` are borrowed until clear. -1 and a report when it is not YAML, or refused. */
int mp_yaml_parse(mp_yaml *yaml, mp_str text, const char *name, mp_buf *report);
void mp_yaml_clear(mp_yaml *yaml);

/* What a plain scalar is by YAML 1.2's core schema. */
typedef enum { MP_YAML_TEXT, MP_YAML_NULL, MP_YAML_BOOL, MP_YAML_INT, MP_YAML_FLOAT } mp_yaml_type;
mp_yaml_type mp_yaml_type_of(mp_str plain);

/* The line of this number, without its break; the place of the byte at `offset`. */
mp_str mp_yaml_line(mp_str text, size_t line);
mp_yaml_mark mp_yaml_mark_of(mp_str text, size_t offset);

/* Appends "name:line:column: text", the line with a caret below it, and the hint. The first 100 errors are told, the rest counted. */
void mp_yaml_error(mp_yaml *yaml, mp_yaml_mark at, const mp_err *err);
/* After the last error: how many were not told. */
void mp_yaml_end_report(mp_yaml *yaml);
/* Where `part` of a scalar stands in the file, as far as it stands on the scalar's first line. */
mp_yaml_mark mp_yaml_place_of(const mp_yaml *yaml, const mp_yaml_node *node, mp_str part);

/* Appends `text` with everything that could command a terminal, or is not UTF-8, as '?'. */
void mp_put_visible(mp_buf *out, mp_str text);

#endif
