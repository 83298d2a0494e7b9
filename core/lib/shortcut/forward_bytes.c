/* forward_bytes.c: the message to the upstream, and the result for the client, by changing members of the other one's
 * bytes. */
#include "lib/shortcut/forward.h"

#define PREFIX "io.modelcontextprotocol/"
/* prefix of members that only this gateway may write: the members of other gateways are removed in lua/moonpool */
#define OWN "dev.moonpool/"
#define MAX_EDITS 24 /* edits of one message or result, at most MP_JSON_EDITS */

/* -- members ------------------------------------------------------------------------------------------------------- */

/* The span of a member; empty: there is none. */
static mp_str find_member(mp_str object, mp_str name)
{
    mp_json_member it;
    return mp_json_find_member(object, name, &it) ? it.span : MP_STR_NONE;
}

/* The name of a member of the protocol in `_meta`, without its prefix, whose slash may be escaped; empty for another
 * member. */
static mp_str protocol_name(mp_str key)
{
    mp_str plain = MP_STR(PREFIX), escaped = MP_STR("io.modelcontextprotocol\\/");
    if (mp_str_starts(key, plain))
        return mp_str_from(key, plain.len);
    return mp_str_starts(key, escaped) ? mp_str_from(key, escaped.len) : MP_STR_NONE;
}

typedef struct {
    mp_json_edit list[MAX_EDITS];
    size_t count;
} edits;

static void add_edit(edits *to, mp_json_edit_kind kind, bool in_meta, mp_str name, mp_str value)
{
    to->list[to->count++] = (mp_json_edit){kind, in_meta, name, value};
}

/* -- the message to the upstream ----------------------------------------------------------------------------------- */

mp_str mp_forward_capabilities(mp_str params)
{
    return find_member(find_member(params, MP_STR("_meta")), MP_STR(PREFIX "clientCapabilities"));
}

/* True if a header can repeat the text. */
static bool fits_header(mp_str text)
{
    for (size_t i = 0; i < text.len; i++)
        if ((unsigned char)text.ptr[i] < ' ' + (i == 0) || text.ptr[i] > '~')
            return false;
    return text.len > 0 && text.len <= 512;
}

/* True if a member of a request's `_meta` could be of this gateway, or has a key that is written with an escape. */
static bool is_for_lua(mp_str key)
{
    return mp_str_starts(key, MP_STR(OWN)) || memchr(key.ptr, '\\', key.len) != NULL;
}

/* Reads `_meta`: takes its trace context into `traces`, and sets `*has_own` if it has members that do not belong to
 * this hop. False if Lua has to read this `_meta`. */
static bool read_meta(mp_str meta, mp_str traces[2], bool *has_own)
{
    if (meta.len == 0)
        return true;
    mp_json_cursor cursor = {meta.ptr + 1, meta.ptr + meta.len};
    for (mp_json_member it; mp_json_next_member(&cursor, &it);) {
        if (protocol_name(it.key).len > 0 || mp_str_is(it.key, "progressToken"))
            continue;
        if (is_for_lua(it.key))
            return false;
        *has_own = true;
        int trace = mp_str_is(it.key, "traceparent") ? 0 : mp_str_is(it.key, "tracestate") ? 1 : -1;
        if (trace < 0 || it.value.type != MP_JSON_T_STRING)
            continue;
        if (it.value.escaped)
            return false;
        if (fits_header(it.value.span))
            traces[trace] = it.value.span;
    }
    return true;
}

static const mp_str own_names[] = {{PREFIX "protocolVersion", sizeof PREFIX "protocolVersion" - 1},
                                   {PREFIX "clientInfo", sizeof PREFIX "clientInfo" - 1},
                                   {PREFIX "clientCapabilities", sizeof PREFIX "clientCapabilities" - 1}};

bool mp_forward_put_message(mp_buf *out, const mp_forwards *forwards, const mp_call *call,
                            const mp_forward_target *target, mp_str traces[2])
{
    mp_str params = mp_call_params(call), meta = find_member(params, MP_STR("_meta"));
    bool has_own = false;
    if (!read_meta(meta, traces, &has_own))
        return false;
    char room[MP_JSON_INT_BYTES];
    mp_str id = mp_json_int_text(target->id, room), date = mp_str_of(target->era->date);
    char revision[] = "\"2026-07-28\""; /* all dates have as many letters */
    memcpy(revision + 1, date.ptr, sizeof revision - 3);
    bool is_modern = !target->era->has_sessions;
    edits to = {.count = 0};
    add_edit(&to, MP_JSON_SET, false, MP_STR("name"), target->route->json_name);
    if (target->arguments.ptr != NULL)
        add_edit(&to, MP_JSON_SET, false, MP_STR("arguments"), target->arguments);
    else if (find_member(params, MP_STR("arguments")).len == 0)
        add_edit(&to, MP_JSON_SET, false, MP_STR("arguments"), MP_STR("{}"));
    bool has_trace = target->traceparent.len > 0;
    mp_str values[] = {{revision, sizeof revision - 1}, forwards->client, target->able};
    for (size_t i = 0; i < 3; i++)
        add_edit(&to, is_modern ? MP_JSON_SET : MP_JSON_DROP, true, own_names[i], values[i]);
    /* always: progress of the upstream keeps the request alive */
    add_edit(&to, MP_JSON_SET, true, MP_STR("progressToken"), id);
    if (has_trace) {
        bool has_state = target->tracestate.len > 0;
        add_edit(&to, MP_JSON_SET, true, MP_STR("traceparent"), target->traceparent);
        add_edit(&to, has_state ? MP_JSON_SET : MP_JSON_DROP, true, MP_STR("tracestate"), target->tracestate);
    }
    size_t start = out->len;
    mp_buf_put(out, MP_STR("{\"jsonrpc\":\"2.0\",\"id\":"));
    mp_buf_put(out, id);
    mp_buf_put(out, MP_STR(",\"method\":\"tools/call\",\"params\":"));
    bool is_done = mp_json_splice(out, params, to.list, to.count, NULL) == MP_JSON_OK;
    mp_buf_putc(out, '}');
    if (!is_done)
        out->len = start;
    return is_done;
}

/* -- the result for the client ------------------------------------------------------------------------------------- */

#define MAX_KEYS 64   /* keys of all open objects together */
#define MAX_LEVELS 16 /* levels of arrays and objects inside each other */

/* Bits of the members of content blocks. */
enum { BLOCK_TEXT = 1, BLOCK_DATA = 2, BLOCK_MIME = 4 };

/* Reads a result once: no object in it may repeat a key, as Lua would refuse such a result. */
typedef struct {
    mp_str keys[MAX_KEYS];
    size_t count;
    size_t first[MAX_LEVELS]; /* for each open array or object, the index in `keys` of its first key */
    bool is_object[MAX_LEVELS];
    size_t depth;
    size_t top; /* index of the latest key of the first level */
    bool has_content, has_meta, has_structured, has_type, has_text, is_failed;
    unsigned block_texts; /* members of the current element of `content` that are texts, as bits */
    unsigned block_needs; /* bits of those that its type requires; 0: it has no type yet */
    bool has_blocks;
    const mp_forward_step *step;
    edits edits;
} reader;

static bool add_key(reader *r, mp_str key)
{
    if (r->count == MAX_KEYS)
        return false;
    for (size_t i = r->first[r->depth - 1]; i < r->count; i++)
        if (mp_str_eq(r->keys[i], key))
            return false;
    r->keys[r->count++] = key;
    return true;
}

static bool open_level(reader *r, bool is_object)
{
    if (r->depth == MAX_LEVELS)
        return false;
    r->first[r->depth] = r->count;
    r->is_object[r->depth++] = is_object;
    return true;
}

/* A member of the result. */
static bool see_member(reader *r, mp_str key, mp_json_token value)
{
    bool is_object = value.type == MP_JSON_T_OPEN_OBJECT;
    if (mp_str_is(key, "content")) {
        r->has_content = true;
        return value.type == MP_JSON_T_OPEN_ARRAY;
    }
    if (mp_str_is(key, "isError")) {
        r->is_failed = value.type == MP_JSON_T_TRUE;
        return value.type == MP_JSON_T_TRUE || value.type == MP_JSON_T_FALSE;
    }
    if (mp_str_is(key, "_meta")) {
        r->has_meta = true;
        return is_object;
    }
    if (mp_str_is(key, "structuredContent")) {
        r->has_structured = true;
        if (r->step->has_none)
            add_edit(&r->edits, MP_JSON_DROP, false, key, MP_STR_NONE);
        return is_object || !r->step->has_objects;
    }
    bool is_type = mp_str_is(key, "resultType");
    r->has_type = r->has_type || is_type;
    if (is_type && !(value.type == MP_JSON_T_STRING && mp_str_is(value.span, "complete")))
        return false;
    if (!r->step->is_base && (is_type || mp_str_is(key, "ttlMs") || mp_str_is(key, "cacheScope")))
        add_edit(&r->edits, MP_JSON_DROP, false, key, MP_STR_NONE);
    return true;
}

/* A member of `_meta`: those of the protocol belong to this hop. The library in Lua changes the URI of a page (MCP
 * Apps). */
static bool see_meta(reader *r, mp_str key)
{
    if (mp_str_is(key, "ui") || mp_str_starts(key, MP_STR("ui/")) || mp_str_starts(key, MP_STR(OWN)))
        return false;
    if (!mp_str_starts(key, MP_STR(PREFIX))) {
        r->has_text = true; /* something is left in _meta */
        return true;
    }
    if (r->edits.count + 8 > MAX_EDITS)
        return false;
    if (!(r->step->is_base && mp_str_is(key, PREFIX "serverInfo")))
        add_edit(&r->edits, MP_JSON_DROP, true, key, MP_STR_NONE);
    return true;
}

/* The bit of a member of a content block that has to be a text; 0 for another member. */
static unsigned text_bit(mp_str key)
{
    if (mp_str_is(key, "text"))
        return BLOCK_TEXT;
    return mp_str_is(key, "data") ? BLOCK_DATA : mp_str_is(key, "mimeType") ? BLOCK_MIME : 0;
}

/* The bits that a type of content block requires; 0 for a type that the library in Lua reads: it changes the URIs of
 * resources and of links to them, remembers links, and replaces blocks of no known type. */
static unsigned needs_of(mp_str type)
{
    if (mp_str_is(type, "text"))
        return BLOCK_TEXT;
    return mp_str_is(type, "image") || mp_str_is(type, "audio") ? BLOCK_DATA | BLOCK_MIME : 0;
}

/* A member of an element of `content`. The library in Lua reads a block with members of other types than its own has,
 * and one with annotations or `_meta`, whose members it checks (lua/moonpool/upstream/shape.lua). */
static bool see_block(reader *r, mp_str key, mp_json_token value)
{
    if (mp_str_is(key, "type")) {
        if (value.type != MP_JSON_T_STRING || value.escaped ||
            (r->step->is_text_alone && !mp_str_is(value.span, "text")))
            return false;
        r->block_needs = needs_of(value.span);
        return r->block_needs != 0;
    }
    unsigned bit = text_bit(key);
    r->block_texts |= bit;
    if (bit != 0)
        return value.type == MP_JSON_T_STRING;
    return !mp_str_is(key, "annotations") && !mp_str_is(key, "_meta");
}

static bool is_in(const reader *r, const char *name)
{
    return r->depth >= 2 && mp_str_is(r->keys[r->top], name);
}

static bool see_key(reader *r, mp_json_token key, mp_json_token value)
{
    if (key.escaped || !add_key(r, key.span))
        return false;
    if (r->depth == 1) {
        r->top = r->count - 1;
        return see_member(r, key.span, value);
    }
    if (r->depth == 2 && is_in(r, "_meta"))
        return see_meta(r, key.span);
    return r->depth != 3 || !is_in(r, "content") || see_block(r, key.span, value);
}

static bool close_level(reader *r)
{
    r->count = r->first[--r->depth];
    if (r->depth == 2 && is_in(r, "content"))
        return r->block_needs != 0 && (r->block_texts & r->block_needs) == r->block_needs;
    return true;
}

/* A value begins, or an array or object ends. */
static bool see_token(reader *r, mp_json_token_type type)
{
    bool is_block = r->depth == 2 && is_in(r, "content");
    switch (type) {
    case MP_JSON_T_CLOSE_ARRAY:
    case MP_JSON_T_CLOSE_OBJECT:
        return close_level(r);
    case MP_JSON_T_OPEN_OBJECT:
        r->has_blocks = r->has_blocks || is_block;
        if (is_block)
            r->block_texts = r->block_needs = 0;
        return open_level(r, true);
    case MP_JSON_T_OPEN_ARRAY:
        return !is_block && open_level(r, false);
    default:
        return !is_block && type != MP_JSON_T_END;
    }
}

/* True if the whole result is one that C can convert. */
static bool read_result(reader *r, mp_str result)
{
    mp_json_cursor cursor = {result.ptr, result.ptr + result.len};
    mp_json_token token = mp_json_next(&cursor);
    if (token.type != MP_JSON_T_OPEN_OBJECT)
        return false;
    while (see_token(r, token.type)) {
        if (r->depth == 0)
            return true;
        token = mp_json_next(&cursor);
        if (!r->is_object[r->depth - 1] || token.type != MP_JSON_T_STRING)
            continue; /* an element, or the end of the object */
        mp_json_token value = mp_json_next(&cursor);
        if (!see_key(r, token, value))
            return false;
        token = value;
    }
    return false;
}

bool mp_forward_put_result(mp_buf *out, const mp_forwards *forwards, const mp_forward_step *step, mp_str result,
                           bool *has_failed)
{
    reader r = {.step = step};
    if (result.len > MP_FORWARD_BYTES || !read_result(&r, result) || !r.has_content)
        return false;
    if (step->has_none && r.has_structured && !r.has_blocks)
        return false; /* the structured content becomes a text */
    if (step->is_base) {
        add_edit(&r.edits, MP_JSON_SET, true, MP_STR(PREFIX "serverInfo"), forwards->server);
        if (!r.has_type)
            add_edit(&r.edits, MP_JSON_SET, false, MP_STR("resultType"), MP_STR("\"complete\""));
    } else if (r.has_meta && !r.has_text) {
        size_t kept = 0;
        for (size_t i = 0; i < r.edits.count; i++)
            if (!r.edits.list[i].in_meta)
                r.edits.list[kept++] = r.edits.list[i];
        r.edits.count = kept;
        add_edit(&r.edits, MP_JSON_DROP, false, MP_STR("_meta"), MP_STR_NONE);
    }
    *has_failed = r.is_failed;
    if (r.edits.count > 0)
        return mp_json_splice(out, result, r.edits.list, r.edits.count, NULL) == MP_JSON_OK;
    mp_buf_put(out, result);
    return true;
}
