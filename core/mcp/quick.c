/* quick.c: reads a plain request of tools/call in one pass, by recursive descent, without callbacks and without a table
 * of keys. It knows the members that such a request usually has, and that some encoders escape slashes. It never
 * refuses: at a member, an escape, a depth or a number of keys that it does not know it returns false, and the general
 * reader (envelope.c) starts at the first byte. A key that its object repeats is among what it does not know, at every
 * depth: so a message that this reader takes is one that every decoder takes. */
#include "mcp.h"

#define MAX_KEYS 16  /* limit of the keys of one object; comparing more keys with each other takes too long */
#define MAX_DEPTH 12 /* limit of the values in the arguments and in _meta */

typedef struct {
    const char *end;
    size_t values, tables; /* counted in the same way as by mp_json_tally */
    mp_envelope *envelope;
} reader;

/* True if the text continues with these bytes. */
#define GOES_ON(at, end, literal)                                                                                      \
    ((size_t)((end) - (at)) >= sizeof(literal) - 1 && memcmp((at), (literal), sizeof(literal) - 1) == 0)

/* Each function below takes the start of a syntax element and returns the byte behind it, or NULL: the quick reader
 * gives up. */

static inline const char *skip_space(const char *at, const char *end)
{
    while (at < end && (unsigned char)*at <= ' ' && (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t'))
        at++;
    return at;
}

static const char *MP_NULLABLE skip_digits(const char *at, const char *end)
{
    const char *from = at;
    while (at < end && *at >= '0' && *at <= '9')
        at++;
    return at == from ? NULL : at;
}

static const char *MP_NULLABLE read_number(const char *at, const char *end, bool *is_float)
{
    *is_float = false;
    if (at < end && *at == '-')
        at++;
    if (at < end && *at == '0')
        at++;
    else if ((at = skip_digits(at, end)) == NULL)
        return NULL;
    if (at < end && *at == '.') {
        *is_float = true;
        if ((at = skip_digits(at + 1, end)) == NULL)
            return NULL;
    }
    return at < end && (*at == 'e' || *at == 'E') ? NULL : at;
}

/* A string without escapes; `at` is at its opening quote. */
static const char *MP_NULLABLE read_text(const char *at, const char *end, mp_str *text)
{
    bool escaped = false;
    if (at == end || *at != '"')
        return NULL;
    const char *close = mp_json_string_end(at + 1, end, &escaped);
    if (close == NULL || escaped)
        return NULL;
    *text = (mp_str){at + 1, (size_t)(close - at) - 1};
    return close + 1;
}

/* Reads the colon after a key, and the white space around it. */
static inline const char *MP_NULLABLE read_colon(const char *at, const char *end)
{
    at = skip_space(at, end);
    if (at == end || *at != ':')
        return NULL;
    at = skip_space(at + 1, end);
    return at == end ? NULL : at;
}

/* Reads a key of any name, up to its value. */
static const char *MP_NULLABLE read_key(const char *at, const char *end, mp_str *key)
{
    return (at = read_text(at, end, key)) == NULL ? NULL : read_colon(at, end);
}

/* Reads an expected key, with its quotes. */
#define READ_NAME(at, end, name) (GOES_ON(at, end, name) ? read_colon((at) + sizeof(name) - 1, end) : NULL)

/* Reads an expected word or string, which is a value. */
#define READ_WORD(at, end, word) (GOES_ON(at, end, word) ? (at) + sizeof(word) - 1 : NULL)

/* Reads the text after a member: sets `*more` at a comma, and returns the start of the next key; clears it at the
 * closing brace. */
static inline const char *MP_NULLABLE read_separator(const char *at, const char *end, bool *more)
{
    at = skip_space(at, end);
    if (at == end || (*at != ',' && *at != '}'))
        return NULL;
    *more = *at == ',';
    return *more ? skip_space(at + 1, end) : at + 1;
}

/* Opens an object. `*more` is false if it is empty; then it is closed as well. */
static inline const char *open_object(reader *r, const char *at, bool *more)
{
    r->values++;
    r->tables++;
    at = skip_space(at + 1, r->end);
    *more = at == r->end || *at != '}';
    return *more ? at : at + 1;
}

/* Adds a key to those of its object. False if the object has it already, or has too many. */
static inline bool add_key(mp_str *keys, unsigned *count, mp_str key)
{
    if (*count == MAX_KEYS)
        return false;
    for (unsigned i = 0; i < *count; i++)
        if (mp_str_eq(keys[i], key))
            return false;
    keys[(*count)++] = key;
    return true;
}

static const char *MP_NULLABLE skip_value(reader *r, const char *at, unsigned depth);

static const char *MP_NULLABLE skip_object(reader *r, const char *at, unsigned depth)
{
    mp_str keys[MAX_KEYS];
    unsigned count = 0;
    bool more;
    for (at = open_object(r, at, &more); more;) {
        mp_str key;
        if ((at = read_key(at, r->end, &key)) == NULL || !add_key(keys, &count, key) ||
            (at = skip_value(r, at, depth)) == NULL || (at = read_separator(at, r->end, &more)) == NULL)
            return NULL;
    }
    return at;
}

static const char *MP_NULLABLE skip_array(reader *r, const char *at, unsigned depth)
{
    const char *end = r->end;
    r->values++;
    r->tables++;
    at = skip_space(at + 1, end);
    if (at < end && *at == ']')
        return at + 1;
    for (;; at = skip_space(at + 1, end)) {
        if (at == end || (at = skip_value(r, at, depth)) == NULL)
            return NULL;
        at = skip_space(at, end);
        if (at == end || (*at != ',' && *at != ']'))
            return NULL;
        if (*at == ']')
            return at + 1;
    }
}

/* A value that is neither array nor object: `*type` and `*value` get the members of an mp_flat. */
static const char *MP_NULLABLE read_scalar(reader *r, const char *at, uint8_t *type, mp_str *value)
{
    const char *from = at, *end = r->end;
    bool is_set = false; /* stays false if the string has escapes, or the number is a float */
    r->values++;
    switch (*at) {
    case '"':
        if ((at = mp_json_string_end(at + 1, end, &is_set)) == NULL)
            return NULL;
        at++;
        *type = is_set ? MP_FLAT_ESCAPED : MP_JSON_T_STRING;
        *value = is_set ? (mp_str){from, (size_t)(at - from)} : (mp_str){from + 1, (size_t)(at - from) - 2};
        return at;
    case 't':
        at = READ_WORD(at, end, "true");
        *type = MP_JSON_T_TRUE;
        break;
    case 'f':
        at = READ_WORD(at, end, "false");
        *type = MP_JSON_T_FALSE;
        break;
    case 'n':
        at = READ_WORD(at, end, "null");
        *type = MP_JSON_T_NULL;
        break;
    default:
        at = read_number(at, end, &is_set);
        *type = is_set ? MP_JSON_T_FLOAT : MP_JSON_T_INTEGER;
    }
    *value = (mp_str){from, at == NULL ? 0 : (size_t)(at - from)};
    return at;
}

/* Reads any value, at most `depth` levels deep. */
static const char *MP_NULLABLE skip_value(reader *r, const char *at, unsigned depth)
{
    uint8_t type;
    mp_str value;
    if (*at != '{' && *at != '[')
        return read_scalar(r, at, &type, &value);
    if (depth == 0)
        return NULL;
    return *at == '{' ? skip_object(r, at, depth - 1) : skip_array(r, at, depth - 1);
}

static const char *MP_NULLABLE read_arguments(reader *r, const char *at)
{
    mp_envelope *envelope = r->envelope;
    mp_str keys[MAX_KEYS];
    unsigned count = 0;
    bool more;
    for (at = open_object(r, at, &more); more;) {
        mp_flat *flat = &envelope->flat[count];
        mp_str key;
        if ((at = read_key(at, r->end, &key)) == NULL || !add_key(keys, &count, key))
            return NULL;
        flat->name = key;
        const char *from = at;
        if (*at == '{' || *at == '[') {
            flat->type = *at == '{' ? MP_JSON_T_OPEN_OBJECT : MP_JSON_T_OPEN_ARRAY;
            if ((at = skip_value(r, at, MAX_DEPTH)) == NULL)
                return NULL;
            flat->value = (mp_str){from, (size_t)(at - from)};
        } else if ((at = read_scalar(r, at, &flat->type, &flat->value)) == NULL) {
            return NULL;
        }
        if ((at = read_separator(at, r->end, &more)) == NULL)
            return NULL;
    }
    envelope->flat_count = (uint8_t)count;
    return at;
}

/* A string without escapes, or an integer: the id of a message or of its progress. */
static const char *MP_NULLABLE read_id(reader *r, const char *at, mp_str *id)
{
    const char *from = at;
    bool is_float = false;
    mp_str text;
    r->values++;
    at = *at == '"' ? read_text(at, r->end, &text) : read_number(at, r->end, &is_float);
    if (at == NULL || is_float || at - from > MP_ENVELOPE_ID)
        return NULL;
    *id = (mp_str){from, (size_t)(at - from)};
    return at;
}

/* The members of _meta that belong to the protocol, as bits: each may come once. */
enum { VERSION = 1, CLIENT = 2, CAPABILITIES = 4, PROGRESS = 8 };

/* Takes a member of _meta whose value is a string. */
static void take_text(mp_envelope *envelope, mp_str key, mp_str value)
{
    mp_envelope_take_trace(envelope, key, value);
    if (mp_str_is(key, "traceparent"))
        envelope->trace = value;
}

/* Reads a member of _meta. Members of the protocol that this reader does not list may change the meaning of the
 * call, so they are left to the general reader. `at` is at the key; `*seen` has the bits of the earlier keys. */
static const char *MP_NULLABLE read_meta_member(reader *r, const char *at, unsigned *seen, mp_str *others,
                                                unsigned *count)
{
    static const char plain[] = "\"io.modelcontextprotocol/", escaped[] = "\"io.modelcontextprotocol\\/";
    mp_envelope *envelope = r->envelope;
    const char *end = r->end;
    unsigned before = *seen;
    mp_str key;
    if (GOES_ON(at, end, plain)) {
        at += sizeof plain - 1;
    } else if (GOES_ON(at, end, escaped)) {
        at += sizeof escaped - 1;
    } else if (GOES_ON(at, end, "\"progressToken\"")) {
        *seen |= PROGRESS;
        at = (before & PROGRESS) != 0 ? NULL : READ_NAME(at, end, "\"progressToken\"");
        return at == NULL ? NULL : read_id(r, at, &envelope->progress_token);
    } else {
        const char *from = at = read_key(at, end, &key);
        if (at == NULL || !add_key(others, count, key) || (at = skip_value(r, at, MAX_DEPTH)) == NULL)
            return NULL;
        if (*from == '"')
            take_text(envelope, key, (mp_str){from, (size_t)(at - from)});
        return at;
    }
    if (GOES_ON(at, end, "protocolVersion\"")) {
        *seen |= VERSION;
        envelope->has_version = envelope->version_is_string = true;
        r->values++;
        at = (before & VERSION) != 0 ? NULL : READ_NAME(at, end, "protocolVersion\"");
        return at == NULL ? NULL : read_text(at, end, &envelope->version);
    }
    if (GOES_ON(at, end, "clientCapabilities\"")) {
        *seen |= CAPABILITIES;
        envelope->has_capabilities = true;
        at = (before & CAPABILITIES) != 0 ? NULL : READ_NAME(at, end, "clientCapabilities\"");
    } else {
        *seen |= CLIENT;
        at = (before & CLIENT) != 0 ? NULL : READ_NAME(at, end, "clientInfo\"");
    }
    const char *from = at;
    if (at == NULL || *at != '{' || (at = skip_value(r, at, MAX_DEPTH)) == NULL)
        return NULL;
    if ((*seen & ~before) == CLIENT)
        envelope->client = (mp_str){from, (size_t)(at - from)};
    return at;
}

static const char *MP_NULLABLE read_meta(reader *r, const char *at)
{
    mp_str others[MAX_KEYS];
    unsigned count = 0, seen = 0;
    bool more;
    for (at = open_object(r, at, &more); more;)
        if ((at = read_meta_member(r, at, &seen, others, &count)) == NULL ||
            (at = read_separator(at, r->end, &more)) == NULL)
            return NULL;
    return at;
}

/* Reads a member of params; `at` is at its key. */
static const char *MP_NULLABLE read_param(reader *r, const char *at, bool *has_meta)
{
    mp_envelope *envelope = r->envelope;
    const char *end = r->end;
    switch (end - at < 2 ? '\0' : at[1]) {
    case 'n':
        if (envelope->has_name || (at = READ_NAME(at, end, "\"name\"")) == NULL)
            return NULL;
        envelope->has_name = true;
        r->values++;
        return read_text(at, end, &envelope->name);
    case 'a':
        if (envelope->has_arguments || (at = READ_NAME(at, end, "\"arguments\"")) == NULL || *at != '{')
            return NULL;
        envelope->has_arguments = true;
        return read_arguments(r, at);
    case '_':
        if (*has_meta || (at = READ_NAME(at, end, "\"_meta\"")) == NULL || *at != '{')
            return NULL;
        *has_meta = true;
        return read_meta(r, at);
    default:
        return NULL;
    }
}

static const char *MP_NULLABLE read_params(reader *r, const char *at)
{
    const char *from = at;
    bool has_meta = false, more;
    for (at = open_object(r, at, &more); more;)
        if ((at = read_param(r, at, &has_meta)) == NULL || (at = read_separator(at, r->end, &more)) == NULL)
            return NULL;
    r->envelope->params = (mp_str){from, (size_t)(at - from)};
    return at;
}

/* Reads a member of the message; `at` is at its key. */
static const char *MP_NULLABLE read_member(reader *r, const char *at, bool *has_jsonrpc)
{
    mp_envelope *envelope = r->envelope;
    const char *end = r->end;
    switch (end - at < 2 ? '\0' : at[1]) {
    case 'j':
        if (*has_jsonrpc || (at = READ_NAME(at, end, "\"jsonrpc\"")) == NULL)
            return NULL;
        *has_jsonrpc = true;
        r->values++;
        return READ_WORD(at, end, "\"2.0\"");
    case 'i':
        if (envelope->id.len > 0 || (at = READ_NAME(at, end, "\"id\"")) == NULL)
            return NULL;
        return read_id(r, at, &envelope->id);
    case 'm':
        if (envelope->method.len > 0 || (at = READ_NAME(at, end, "\"method\"")) == NULL)
            return NULL;
        envelope->method = MP_STR("tools/call");
        r->values++;
        return GOES_ON(at, end, "\"tools/call\"") ? at + sizeof "\"tools/call\"" - 1
                                                  : READ_WORD(at, end, "\"tools\\/call\"");
    case 'p':
        if (envelope->params.len > 0 || (at = READ_NAME(at, end, "\"params\"")) == NULL || *at != '{')
            return NULL;
        return read_params(r, at);
    default:
        return NULL;
    }
}

/* Reads the message; `at` is at its opening brace. */
static const char *MP_NULLABLE read_message(reader *r, const char *at)
{
    const mp_envelope *envelope = r->envelope;
    bool has_jsonrpc = false, more;
    for (at = open_object(r, at, &more); more;)
        if ((at = read_member(r, at, &has_jsonrpc)) == NULL || (at = read_separator(at, r->end, &more)) == NULL)
            return NULL;
    return has_jsonrpc && envelope->id.len > 0 && envelope->method.len > 0 && envelope->has_name ? at : NULL;
}

bool mp_envelope_read_quickly(mp_envelope *envelope, mp_str body, size_t max_values)
{
    mp_envelope_clear(envelope, body.len);
    if (body.len == 0)
        return false;
    reader r = {.end = body.ptr + body.len, .envelope = envelope};
    const char *at = skip_space(body.ptr, r.end);
    if (at == r.end || *at != '{' || (at = read_message(&r, at)) == NULL || skip_space(at, r.end) != r.end ||
        r.values > max_values)
        return false;
    envelope->kind = MP_KIND_REQUEST;
    envelope->weight = mp_envelope_weight(body.len, r.values, r.tables);
    envelope->is_flat = true;
    return true;
}
