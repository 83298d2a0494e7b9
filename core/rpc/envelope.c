#include "envelope.h"
#include "era.h"

/* What the scan saw, before anything is known to be valid. */
typedef struct {
    mp_envelope *envelope;
    bool in_params, in_meta;
    bool has_jsonrpc, has_method, has_params, has_answer, bad_id;
    mp_json_type params_type;
    mp_str names[3]; /* spans of params.name, params.uri, params.taskId */
    mp_str method, version;
} sight;

static const char *const name_members[3] = {"name", "uri", "taskId"};

static bool enter(void *ctx, unsigned level, mp_str key)
{
    sight *seen = ctx;
    if (level == 1)
        return seen->in_params = mp_str_is(key, "params");
    return level == 2 && mp_str_is(key, "_meta");
}

static void see_message(sight *seen, mp_str key, mp_json_type type, mp_str value)
{
    mp_envelope *envelope = seen->envelope;
    if (mp_str_is(key, "jsonrpc")) {
        seen->has_jsonrpc = type == MP_JSON_STRING && mp_json_string_is(value, MP_STR("2.0"));
    } else if (mp_str_is(key, "id")) {
        seen->bad_id = !mp_json_is_id(type, value);
        if (!seen->bad_id)
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

static void see_params(sight *seen, mp_str key, mp_json_type type, mp_str value)
{
    if (mp_str_is(key, "requestId") && mp_json_is_id(type, value))
        seen->envelope->cancels = value;
    for (int i = 0; i < 3; i++)
        if (type == MP_JSON_STRING && mp_str_is(key, name_members[i]))
            seen->names[i] = value;
}

static void see_meta(sight *seen, mp_str key, mp_json_type type, mp_str value)
{
    mp_envelope *envelope = seen->envelope;
    if (mp_str_is(key, "progressToken")) {
        if (mp_json_is_id(type, value))
            envelope->progress_token = value;
    } else if (mp_str_is(key, "io.modelcontextprotocol/protocolVersion")) {
        envelope->has_version = true;
        envelope->version_is_string = type == MP_JSON_STRING;
        seen->version = value;
    } else if (mp_str_is(key, "io.modelcontextprotocol/clientCapabilities")) {
        envelope->has_capabilities = type == MP_JSON_OBJECT;
    }
}

static int member(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    sight *seen = ctx;
    if (level == 1)
        see_message(seen, key, type, value);
    else if (level == 2)
        see_params(seen, key, type, value);
    else
        see_meta(seen, key, type, value);
    return 0;
}

/* What a string span says: a slice of it, unless it holds escapes. `scratch` was given room for the whole body before. */
static mp_str say(mp_buf *scratch, mp_str span)
{
    mp_str inner = {span.ptr + 1, span.len - 2};
    if (memchr(inner.ptr, '\\', inner.len) == NULL)
        return inner;
    size_t start = scratch->len;
    mp_json_unescape(scratch, span);
    return (mp_str){scratch->ptr + start, scratch->len - start};
}

static void refuse(mp_envelope *envelope, const char *problem)
{
    envelope->kind = MP_KIND_INVALID;
    envelope->problem = problem;
}

void mp_envelope_read(mp_envelope *envelope, mp_str body)
{
    mp_buf scratch = envelope->scratch;
    scratch.len = 0;
    *envelope = (mp_envelope){.scratch = scratch};

    sight seen = {.envelope = envelope};
    mp_json_visitor visitor = {enter, member, &seen};
    mp_json_type type;
    mp_json_fault fault;
    switch (mp_json_scan(body, &visitor, &type, &fault)) {
    case MP_JSON_OK:
        break;
    case MP_JSON_REPEATED:
        refuse(envelope, "a key appears twice in one object, or an object has too many");
        return;
    default:
        envelope->id = MP_STR_NONE;
        envelope->kind = MP_KIND_BROKEN;
        envelope->problem = fault.what;
        envelope->offset = fault.offset;
        return;
    }
    if (type == MP_JSON_ARRAY) {
        envelope->kind = MP_KIND_ARRAY;
        return;
    }
    if (type != MP_JSON_OBJECT)
        return refuse(envelope, "a message is an object");
    if (!seen.has_jsonrpc)
        return refuse(envelope, "\"jsonrpc\" must be \"2.0\"");
    if (seen.bad_id)
        return refuse(envelope, "\"id\" must be a string or an integer");
    if (!seen.has_method) {
        if (seen.has_answer && envelope->id.len > 0)
            envelope->kind = MP_KIND_RESPONSE;
        else
            refuse(envelope, "a message has a \"method\", or an \"id\" with a \"result\" or an \"error\"");
        return;
    }
    if (seen.method.len <= 2)
        return refuse(envelope, "\"method\" must be a string that is not empty");
    if (seen.has_answer)
        return refuse(envelope, "a message with a \"method\" has neither \"result\" nor \"error\"");
    if (seen.has_params && seen.params_type != MP_JSON_OBJECT)
        return refuse(envelope, "\"params\" must be an object");

    mp_buf_room(&envelope->scratch, body.len);
    envelope->kind = envelope->id.len > 0 ? MP_KIND_REQUEST : MP_KIND_NOTE;
    envelope->method = say(&envelope->scratch, seen.method);
    if (envelope->version_is_string)
        envelope->version = say(&envelope->scratch, seen.version);
    const char *mirrored = mp_era_mirrored_member(envelope->method);
    for (int i = 0; mirrored != NULL && i < 3; i++)
        if (strcmp(mirrored, name_members[i]) == 0 && seen.names[i].len > 0) {
            envelope->name = say(&envelope->scratch, seen.names[i]);
            envelope->has_name = true;
        }
}
