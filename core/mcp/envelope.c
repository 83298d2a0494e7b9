/* envelope.c: reads one JSON-RPC message in one scan. */
#include "mcp.h"

MP_REFUSED(refused_values, "values", MP_FAULT,
           "messages with more than 100,000 values, of upstreams with more than 1,000,000")
MP_REFUSED(refused_ids, "ids", MP_FAULT, "messages whose id or progressToken is longer than 4 KiB")

/* Members that the scan has found. The message may still turn out to be broken or invalid. */
typedef struct {
    mp_envelope *envelope;
    bool in_params, in_meta;
    bool has_jsonrpc, has_method, has_params, has_answer, has_id, bad_id, long_id, long_token;
    mp_json_type params_type;
    mp_str names[3]; /* spans of params.name, params.uri, params.taskId */
    mp_str method, version;
} scan_state;

static const char *const name_members[3] = {"name", "uri", "taskId"};

static bool enter_object(void *ctx, unsigned level, mp_str key)
{
    scan_state *seen = ctx;
    if (level == 1)
        return seen->in_params = mp_str_is(key, "params");
    return level == 2 && mp_str_is(key, "_meta");
}

static void see_message(scan_state *seen, mp_str key, mp_json_type type, mp_str value)
{
    mp_envelope *envelope = seen->envelope;
    if (mp_str_is(key, "jsonrpc")) {
        seen->has_jsonrpc = type == MP_JSON_STRING && mp_json_string_is(value, MP_STR("2.0"));
    } else if (mp_str_is(key, "id")) {
        seen->bad_id = !mp_json_is_id(type, value);
        seen->has_id = type != MP_JSON_NULL;
        seen->long_id = !seen->bad_id && value.len > MP_ENVELOPE_ID;
        if (!seen->bad_id && !seen->long_id)
            envelope->id = value;
    } else if (mp_str_is(key, "method")) {
        seen->has_method = true;
        if (type == MP_JSON_STRING)
            seen->method = value;
    } else if (mp_str_is(key, "params")) {
        seen->has_params = true;
        seen->params_type = type;
        envelope->params = value;
    } else if (mp_str_is(key, "result") || mp_str_is(key, "error")) {
        seen->has_answer = true;
        envelope->answer = value;
        envelope->is_error = key.ptr[0] == 'e';
    }
}

static void see_params(scan_state *seen, mp_str key, mp_json_type type, mp_str value)
{
    if (mp_str_is(key, "requestId") && mp_json_is_id(type, value))
        seen->envelope->cancels = value;
    for (int i = 0; i < 3; i++)
        if (type == MP_JSON_STRING && mp_str_is(key, name_members[i]))
            seen->names[i] = value;
}

void mp_envelope_take_trace(mp_envelope *envelope, mp_str key, mp_str value)
{
    mp_str *to = mp_str_is(key, "traceparent")  ? &envelope->traceparent
                 : mp_str_is(key, "tracestate") ? &envelope->tracestate
                                                : NULL;
    if (to != NULL && memchr(value.ptr, '\\', value.len) == NULL)
        *to = (mp_str){value.ptr + 1, value.len - 2};
}

static void see_meta(scan_state *seen, mp_str key, mp_json_type type, mp_str value)
{
    mp_envelope *envelope = seen->envelope;
    if (mp_str_is(key, "progressToken")) {
        seen->long_token = value.len > MP_ENVELOPE_ID;
        if (mp_json_is_id(type, value) && !seen->long_token)
            envelope->progress_token = value;
    } else if (mp_str_is(key, "io.modelcontextprotocol/protocolVersion")) {
        envelope->has_version = true;
        envelope->version_is_string = type == MP_JSON_STRING;
        seen->version = value;
    } else if (mp_str_is(key, "io.modelcontextprotocol/clientCapabilities")) {
        envelope->has_capabilities = type == MP_JSON_OBJECT;
    } else if (type == MP_JSON_STRING) {
        mp_envelope_take_trace(envelope, key, value);
    }
}

static int see_member(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    scan_state *seen = ctx;
    if (level == 1)
        see_message(seen, key, type, value);
    else if (level == 2)
        see_params(seen, key, type, value);
    else
        see_meta(seen, key, type, value);
    return 0;
}

/* The text of a string span: a slice of it, or, if it has escapes, a copy in `scratch`, which has room for the whole
 * body. */
static mp_str unescape_span(mp_buf *scratch, mp_str span)
{
    mp_str inner = {span.ptr + 1, span.len - 2};
    if (memchr(inner.ptr, '\\', inner.len) == NULL)
        return inner;
    size_t start = scratch->len;
    mp_json_unescape(scratch, span);
    return (mp_str){scratch->ptr + start, scratch->len - start};
}

static void set_invalid(mp_envelope *envelope, const char *problem)
{
    envelope->kind = MP_KIND_INVALID;
    envelope->problem = problem;
    envelope->code = MP_CODE_INVALID_REQUEST;
}

/* True if the id or the token of progress is longer than what may outlive its message. */
static bool is_too_long(const scan_state *seen)
{
    if (!seen->long_id && !seen->long_token)
        return false;
    mp_stat_add(&mp_stat_refused_ids, 1);
    if (seen->long_id) {
        set_invalid(seen->envelope, "\"id\" must have at most 4096 bytes");
    } else {
        set_invalid(seen->envelope, "\"_meta.progressToken\" must have at most 4096 bytes");
        seen->envelope->code = MP_CODE_INVALID_PARAMS;
    }
    return true;
}

/* Bytes that Lua needs for a table with its metatable and first slots, and for a member with the header of its name.
 * The bytes of texts and names are counted with the body. */
#define TABLE_BYTES 72
#define VALUE_BYTES 64

size_t mp_envelope_weight(size_t bytes, size_t values, size_t tables)
{
    return bytes + TABLE_BYTES * tables + VALUE_BYTES * values;
}

static void set_too_many(mp_envelope *envelope, size_t max_values)
{
    envelope->has_many = true;
    mp_stat_add(&mp_stat_refused_values, 1);
    mp_buf_printf(&envelope->scratch, "more than %zu values in one body: send less at once, or many values as one text",
                  max_values);
    mp_buf_putc(&envelope->scratch, '\0');
    set_invalid(envelope, envelope->scratch.ptr);
}

/* The problem of an object as a JSON-RPC message; NULL: it has none, and is a response if it has no method. */
static const char *MP_NULLABLE problem_of(const scan_state *seen)
{
    if (!seen->has_jsonrpc)
        return "\"jsonrpc\" must be \"2.0\"";
    if (seen->bad_id)
        return "\"id\" must be a string or an integer";
    if (!seen->has_method && seen->has_answer && seen->envelope->id.len > 0)
        return NULL;
    if (!seen->has_method)
        return "a message must have a \"method\", or an \"id\" with a \"result\" or an \"error\"";
    if (seen->method.len <= 2)
        return "\"method\" must be a string that is not empty";
    if (seen->has_answer)
        return "a message with a \"method\" must have neither \"result\" nor \"error\"";
    if (seen->has_params && seen->params_type != MP_JSON_OBJECT)
        return "\"params\" must be an object";
    return NULL;
}

void mp_envelope_clear(mp_envelope *envelope, size_t size)
{
    mp_buf scratch = envelope->scratch;
    memset(envelope, 0, offsetof(mp_envelope, flat));
    envelope->scratch = scratch;
    envelope->scratch.len = 0;
    envelope->size = size;
}

void mp_envelope_read(mp_envelope *envelope, mp_str body, size_t max_values)
{
    if (!mp_envelope_read_quickly(envelope, body, max_values))
        mp_envelope_read_any(envelope, body, max_values);
}

void mp_envelope_read_any(mp_envelope *envelope, mp_str body, size_t max_values)
{
    mp_envelope_clear(envelope, body.len);
    scan_state seen = {.envelope = envelope};
    mp_json_tally tally = {.most = max_values};
    mp_json_visitor visitor = {enter_object, see_member, &seen, &tally};
    mp_json_type type;
    mp_json_fault fault;
    switch (mp_json_scan(body, &visitor, &type, &fault)) {
    case MP_JSON_OK:
        break;
    case MP_JSON_REPEATED:
        set_invalid(envelope, "an object repeats a key, or has more than 256 keys");
        return;
    case MP_JSON_MANY:
        if (seen.bad_id)
            envelope->id = MP_STR_NONE;
        set_too_many(envelope, max_values);
        envelope->may_answer = !seen.has_method;
        return;
    default:
        envelope->is_broken_answer = seen.has_jsonrpc && !seen.has_method;
        if (seen.bad_id || !envelope->is_broken_answer)
            envelope->id = MP_STR_NONE;
        envelope->kind = MP_KIND_BROKEN;
        envelope->code = MP_CODE_PARSE_ERROR;
        envelope->problem = fault.what;
        envelope->offset = fault.offset;
        return;
    }
    envelope->weight = mp_envelope_weight(body.len, tally.values, tally.tables);
    if (type == MP_JSON_ARRAY) {
        envelope->kind = MP_KIND_ARRAY;
        envelope->code = MP_CODE_INVALID_REQUEST;
        return;
    }
    if (type != MP_JSON_OBJECT)
        return set_invalid(envelope, "a message must be an object");
    const char *problem = problem_of(&seen);
    if (is_too_long(&seen))
        return;
    if (problem != NULL) {
        envelope->is_broken_answer = seen.has_jsonrpc && !seen.has_method;
        envelope->is_nameless = seen.has_jsonrpc && !seen.has_method && envelope->is_error && !seen.has_id;
        return set_invalid(envelope, problem);
    }
    if (!seen.has_method) {
        envelope->kind = MP_KIND_RESPONSE;
        return;
    }

    mp_buf_room(&envelope->scratch, body.len);
    envelope->kind = envelope->id.len > 0 ? MP_KIND_REQUEST : MP_KIND_NOTE;
    envelope->method = unescape_span(&envelope->scratch, seen.method);
    if (envelope->version_is_string)
        envelope->version = unescape_span(&envelope->scratch, seen.version);
    const char *mirrored = mp_era_mirrored_member(envelope->method);
    for (int i = 0; mirrored != NULL && i < 3; i++)
        if (strcmp(mirrored, name_members[i]) == 0 && seen.names[i].len > 0) {
            envelope->name = unescape_span(&envelope->scratch, seen.names[i]);
            envelope->has_name = true;
        }
}

const char *mp_envelope_problem(const mp_envelope *envelope)
{
    if (envelope->kind == MP_KIND_ARRAY)
        return "a body must be one message, not an array";
    return envelope->problem == NULL ? "the JSON is not a message" : envelope->problem;
}

void mp_put_envelope_error(mp_buf *out, const mp_envelope *envelope, const char *unit)
{
    mp_scoped_buf text = {0};
    if (envelope->kind == MP_KIND_BROKEN)
        mp_buf_printf(&text, "the %s is not JSON: %s at byte %zu", unit, envelope->problem, envelope->offset);
    else if (envelope->kind == MP_KIND_ARRAY)
        mp_buf_printf(&text, "a %s must be one message, not an array", unit);
    else
        mp_buf_put(&text, mp_str_of(envelope->problem));
    mp_str id = envelope->kind == MP_KIND_INVALID ? envelope->id : MP_STR_NONE;
    mp_put_error(out, id, envelope->code, mp_buf_str(&text), MP_STR_NONE);
}
