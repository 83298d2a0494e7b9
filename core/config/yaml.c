/* yaml.c: builds a tree from libyaml's events. */
#define _GNU_SOURCE 1
#include "yaml.h"
#include <yaml.h>

#define DEPTH_CAP 16
#define NODE_CAP 20000

/* The open maps and lists, outermost first; `tail` is where the next child is linked. */
typedef struct {
    mp_yaml_node *node, **tail;
    mp_yaml_node *MP_NULLABLE pending; /* in a map: a node whose key has been read but not its value */
} level;

typedef struct {
    mp_yaml *yaml;
    level open[DEPTH_CAP];
    size_t depth, nodes;
    bool had_document;
} builder;

static mp_yaml_mark mark_of(yaml_mark_t mark)
{
    return (mp_yaml_mark){mark.line + 1, mark.column + 1};
}

static int refuse_text(mp_yaml *yaml, yaml_mark_t at, const char *text, const char *hint)
{
    mp_err err;
    mp_err_set(&err, "%s", text);
    mp_err_hint(&err, "%s", hint);
    mp_yaml_error(yaml, mark_of(at), &err);
    return -1;
}

static mp_yaml_node *new_node(mp_yaml *yaml)
{
    mp_yaml_node *node = mp_new(sizeof *node);
    node->older = yaml->newest;
    return yaml->newest = node;
}

/* Makes the node for a value that begins here and links it; NULL if the event is the key of a map. */
static mp_yaml_node *MP_NULLABLE place_value(builder *b, yaml_mark_t at)
{
    mp_yaml_node *node;
    if (b->depth == 0) {
        node = new_node(b->yaml);
    } else {
        level *in = &b->open[b->depth - 1];
        mp_yaml_node *pending = in->pending; /* the key of the map that was read last */
        bool is_map = in->node->kind == MP_YAML_MAP;
        if (is_map && pending == NULL)
            return NULL;
        node = is_map && pending != NULL ? pending : new_node(b->yaml);
        in->pending = NULL;
        *in->tail = node;
        in->tail = &node->next;
    }
    node->at = mark_of(at);
    if (b->depth == 0)
        b->yaml->root = node;
    return node;
}

static int take_scalar(builder *b, const yaml_event_t *event)
{
    mp_str text = {(const char *)event->data.scalar.value, event->data.scalar.length};
    if (memchr(text.ptr, '\0', text.len) != NULL)
        return refuse_text(b->yaml, event->start_mark, "a NUL byte in a value", "");
    mp_yaml_node *node = place_value(b, event->start_mark);
    if (node == NULL) {
        level *in = &b->open[b->depth - 1];
        node = new_node(b->yaml);
        node->key = (mp_str){mp_dup(text), text.len};
        node->key_at = mark_of(event->start_mark);
        in->pending = node;
        return 0;
    }
    node->kind = MP_YAML_SCALAR;
    node->is_plain = event->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
    node->text = (mp_str){mp_dup(text), text.len};
    return 0;
}

static int take_opening(builder *b, const yaml_event_t *event, mp_yaml_kind kind)
{
    if (b->depth == DEPTH_CAP)
        return refuse_text(b->yaml, event->start_mark, "nested deeper than 16 levels", "");
    mp_yaml_node *node = place_value(b, event->start_mark);
    if (node == NULL)
        return refuse_text(b->yaml, event->start_mark, kind == MP_YAML_MAP ? "a mapping as a key" : "a list as a key",
                           "keys must be plain text; put quotes around ${...} inside { }");
    node->kind = kind;
    b->open[b->depth++] = (level){node, &node->first, NULL};
    return 0;
}

static const char decorated[] = "anchors, aliases and tags (&, *, !) are not supported";
static const char quote_it[] = "put quotes around the value to make it text: \"...\"";

static int take_event(builder *b, const yaml_event_t *event)
{
    switch (event->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->had_document)
            return refuse_text(b->yaml, event->start_mark, "a second YAML document",
                               "a file contains one configuration; remove '---'");
        b->had_document = true;
        return 0;
    case YAML_ALIAS_EVENT:
        return refuse_text(b->yaml, event->start_mark, decorated, quote_it);
    case YAML_SCALAR_EVENT:
        if (++b->nodes > NODE_CAP)
            return refuse_text(b->yaml, event->start_mark, "more than 20,000 values", "");
        if (event->data.scalar.anchor != NULL || event->data.scalar.tag != NULL)
            return refuse_text(b->yaml, event->start_mark, decorated, quote_it);
        return take_scalar(b, event);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT: {
        bool is_map = event->type == YAML_MAPPING_START_EVENT;
        if (++b->nodes > NODE_CAP)
            return refuse_text(b->yaml, event->start_mark, "more than 20,000 values", "");
        if (is_map ? event->data.mapping_start.anchor != NULL || event->data.mapping_start.tag != NULL
                   : event->data.sequence_start.anchor != NULL || event->data.sequence_start.tag != NULL)
            return refuse_text(b->yaml, event->start_mark, decorated, quote_it);
        return take_opening(b, event, is_map ? MP_YAML_MAP : MP_YAML_LIST);
    }
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        b->depth--;
        return 0;
    default:
        return 0;
    }
}

/* Reports an error of libyaml's parser, reworded where its own text is unclear. */
static void report_syntax(mp_yaml *yaml, const yaml_parser_t *parser)
{
    mp_err err;
    const char *problem = parser->problem != NULL ? parser->problem : "not YAML";
    mp_yaml_mark at = parser->error == YAML_READER_ERROR ? mp_yaml_mark_of(yaml->text, parser->problem_offset)
                                                         : mark_of(parser->problem_mark);
    mp_str line = mp_yaml_line(yaml->text, at.line);
    size_t indent = 0;
    while (indent < line.len && line.ptr[indent] == ' ')
        indent++;
    mp_err_set(&err, "not valid YAML: %s", problem);
    if (indent < line.len && line.ptr[indent] == '\t')
        mp_err_hint(&err, "YAML indents with spaces, not with tabs");
    else if (memmem(line.ptr, line.len, "${", 2) != NULL && parser->error == YAML_PARSER_ERROR)
        mp_err_hint(&err, "inside { } and [ ] put quotes around ${...}");
    else if (parser->error == YAML_READER_ERROR)
        mp_err_hint(&err, "the file must be UTF-8 without control characters");
    else if (strstr(problem, "mapping values are not allowed") != NULL)
        mp_err_hint(&err, "check whether this line is indented too far, or the line above lacks its ':'");
    else if (strstr(problem, "block mapping") != NULL || strstr(problem, "block end") != NULL ||
             strstr(problem, "block sequence") != NULL || strstr(problem, "expected ':'") != NULL)
        mp_err_hint(&err, "keys of one level must begin in the same column, each followed by ':' and a space");
    mp_yaml_error(yaml, at, &err);
    if (parser->context != NULL && parser->error != YAML_READER_ERROR && parser->context_mark.line + 1 != at.line) {
        mp_err_set(&err, "the error occurred %s that begins here", parser->context);
        mp_yaml_error(yaml, mark_of(parser->context_mark), &err);
    }
}

int mp_yaml_parse(mp_yaml *yaml, mp_str text, const char *name, mp_buf *report)
{
    if (mp_str_starts(text, MP_STR("\xef\xbb\xbf")))
        text = mp_str_from(text, 3);
    *yaml = (mp_yaml){.text = text, .name = name, .report = report};
    if (text.len > MP_YAML_CAP) {
        mp_err err;
        mp_err_set(&err, "larger than 1MiB: not a configuration file");
        mp_yaml_error(yaml, (mp_yaml_mark){0, 0}, &err);
        return -1;
    }

    yaml_parser_t parser;
    if (!yaml_parser_initialize(&parser))
        abort();
    yaml_parser_set_encoding(&parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser, (const unsigned char *)(text.ptr == NULL ? "" : text.ptr), text.len);

    builder b = {.yaml = yaml};
    int result = 0;
    for (bool ended = false; result == 0 && !ended;) {
        yaml_event_t event;
        if (!yaml_parser_parse(&parser, &event)) {
            if (parser.error == YAML_MEMORY_ERROR)
                abort();
            report_syntax(yaml, &parser);
            result = -1;
            break;
        }
        ended = event.type == YAML_STREAM_END_EVENT;
        result = take_event(&b, &event);
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return result;
}

void mp_yaml_clear(mp_yaml *yaml)
{
    for (mp_yaml_node *node = yaml->newest, *older; node != NULL; node = older) {
        older = node->older;
        free((char *)node->key.ptr);
        free((char *)node->text.ptr);
        free(node);
    }
    yaml->root = yaml->newest = NULL;
}

static bool all_digits(mp_str s, const char *digits)
{
    for (size_t i = 0; i < s.len; i++)
        if (s.ptr[i] == '\0' || strchr(digits, s.ptr[i]) == NULL)
            return false;
    return s.len > 0;
}

static bool is_one_of(mp_str s, const char *const *names)
{
    for (; *names != NULL; names++)
        if (mp_str_is(s, *names))
            return true;
    return false;
}

static const char decimal[] = "0123456789";

/* [-+]? ( \. [0-9]+ | [0-9]+ ( \. [0-9]* )? ) ( [eE] [-+]? [0-9]+ )?, with the sign cut off already */
static bool is_float(mp_str s)
{
    size_t i = 0, whole = 0, part = 0;
    for (; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++)
        whole++;
    if (i < s.len && s.ptr[i] == '.')
        for (i++; i < s.len && s.ptr[i] >= '0' && s.ptr[i] <= '9'; i++)
            part++;
    if (whole + part == 0)
        return false;
    if (i == s.len)
        return true;
    if (s.ptr[i] != 'e' && s.ptr[i] != 'E')
        return false;
    i++;
    if (i < s.len && (s.ptr[i] == '-' || s.ptr[i] == '+'))
        i++;
    return all_digits(mp_str_from(s, i), decimal);
}

mp_yaml_type mp_yaml_type_of(mp_str plain)
{
    static const char *const nulls[] = {"", "~", "null", "Null", "NULL", NULL};
    static const char *const bools[] = {"true", "True", "TRUE", "false", "False", "FALSE", NULL};
    static const char *const floats[] = {".inf",  ".Inf",  ".INF", "-.inf", "-.Inf", "-.INF", "+.inf",
                                         "+.Inf", "+.INF", ".nan", ".NaN",  ".NAN",  NULL};
    if (is_one_of(plain, nulls))
        return MP_YAML_NULL;
    if (is_one_of(plain, bools))
        return MP_YAML_BOOL;
    if (is_one_of(plain, floats))
        return MP_YAML_FLOAT;
    if (mp_str_starts(plain, MP_STR("0o")) && all_digits(mp_str_from(plain, 2), "01234567"))
        return MP_YAML_INT;
    if (mp_str_starts(plain, MP_STR("0x")) && all_digits(mp_str_from(plain, 2), "0123456789abcdefABCDEF"))
        return MP_YAML_INT;
    mp_str number = mp_str_from(plain, plain.ptr[0] == '-' || plain.ptr[0] == '+');
    if (all_digits(number, decimal))
        return MP_YAML_INT;
    return is_float(number) ? MP_YAML_FLOAT : MP_YAML_TEXT;
}
