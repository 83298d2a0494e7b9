/* audit_line.c: see audit_line.h. */
#include "lib/shortcut/audit_line.h"
#include "lib/principal.h"
#include <math.h>
#include <time.h>

#define MAX_TEXT_BYTES 256 /* as in audit.lua: longer texts are cut */

mp_audit_mode mp_audit_mode_of(const char *MP_NULLABLE choice)
{
    if (choice == NULL)
        return MP_AUDIT_MODE_OFF;
    if (strcmp(choice, "none") == 0)
        return MP_AUDIT_MODE_NONE;
    return strcmp(choice, "names") == 0 ? MP_AUDIT_MODE_NAMES : MP_AUDIT_MODE_VALUES;
}

bool mp_audit_can_write(const mp_lib *lib, const mp_call *call)
{
    if (lib->audit == MP_AUDIT_MODE_OFF)
        return true;
    if (lib->audit == MP_AUDIT_MODE_VALUES || !mp_principal_is_of(lib, mp_call_principal(call)))
        return false;
    size_t count;
    const mp_flat *arguments = mp_call_flat(call, &count);
    for (size_t i = 0; arguments != NULL && i < count; i++)
        if (arguments[i].name.len > MAX_TEXT_BYTES)
            return false;
    return true;
}

/* -- members ------------------------------------------------------------------------------------------------------- */

/* Appends a text of valid UTF-8 without quotes, at most MAX_TEXT_BYTES of it, and "…" where it was cut. */
static void put_cut(mp_buf *line, mp_str text)
{
    size_t len = text.len;
    if (len > MAX_TEXT_BYTES)
        for (len = MAX_TEXT_BYTES; len > 0 && ((unsigned char)text.ptr[len] & 0xc0) == 0x80;)
            len--;
    mp_json_put_text(line, (mp_str){text.ptr, len});
    if (len < text.len)
        mp_buf_put(line, MP_STR("…"));
}

/* Appends a member whose value is a text. `key` has the comma, the quotes and the colon. */
static void put_text(mp_buf *line, mp_str key, mp_str text)
{
    mp_buf_put(line, key);
    mp_buf_putc(line, '"');
    put_cut(line, text);
    mp_buf_putc(line, '"');
}

/* A value in an object: its first token, and all of its bytes. */
typedef struct {
    mp_json_token token;
    mp_str span;
} json_value;

static json_value take_value(mp_json_cursor *cursor)
{
    json_value value = {.token = mp_json_next(cursor)};
    int depth = 0;
    for (mp_json_token token = value.token;; token = mp_json_next(cursor)) {
        depth += token.type == MP_JSON_T_OPEN_ARRAY || token.type == MP_JSON_T_OPEN_OBJECT;
        depth -= token.type == MP_JSON_T_CLOSE_ARRAY || token.type == MP_JSON_T_CLOSE_OBJECT;
        if (depth == 0)
            break;
    }
    value.span = (mp_str){value.token.span.ptr, (size_t)(cursor->at - value.token.span.ptr)};
    return value;
}

/* The member of an object, whose keys have no escapes but "\/"; END if it has none. `object` may be empty. */
static json_value find_member(mp_str object, mp_str name, mp_str escaped_name)
{
    const json_value none = {.token = {.type = MP_JSON_T_END}};
    if (object.len == 0)
        return none;
    mp_json_cursor cursor = {object.ptr + 1, object.ptr + object.len};
    for (mp_json_token key; (key = mp_json_next(&cursor)).type == MP_JSON_T_STRING;) {
        json_value value = take_value(&cursor);
        if (mp_str_eq(key.span, name) || mp_str_eq(key.span, escaped_name))
            return value;
    }
    return none;
}

static mp_str object_in(mp_str object, mp_str name, mp_str escaped_name)
{
    json_value value = find_member(object, name, escaped_name);
    return value.token.type == MP_JSON_T_OPEN_OBJECT ? value.span : MP_STR_NONE;
}

/* Appends a string of JSON as put_cut() does. */
static void put_json_text(mp_buf *line, mp_json_token text)
{
    if (!text.escaped) {
        put_cut(line, text.span);
        return;
    }
    mp_buf plain = {0};
    mp_json_unescape(&plain, (mp_str){text.span.ptr - 1, text.span.len + 2});
    put_cut(line, mp_buf_str(&plain));
    mp_buf_clear(&plain);
}

/* Appends "name version" of the client, from a JSON object that describes it, or is empty. */
static void put_client(mp_buf *line, mp_str client)
{
    mp_json_token name = find_member(client, MP_STR("name"), MP_STR("name")).token,
                  version = find_member(client, MP_STR("version"), MP_STR("version")).token;
    if (name.type != MP_JSON_T_STRING)
        return;
    mp_buf_put(line, MP_STR(",\"client\":\""));
    put_json_text(line, name);
    if (version.type == MP_JSON_T_STRING) {
        mp_buf_putc(line, ' ');
        put_json_text(line, version);
    }
    mp_buf_putc(line, '"');
}

static bool is_before(mp_str a, mp_str b)
{
    int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order != 0 ? order < 0 : a.len < b.len;
}

/* Appends the names of the arguments, sorted. Nothing if the client sent no arguments. */
static void put_names(mp_buf *line, const mp_call *call)
{
    size_t count;
    const mp_flat *arguments = mp_call_flat(call, &count);
    if (arguments == NULL ||
        (count == 0 && object_in(mp_call_params(call), MP_STR("arguments"), MP_STR("arguments")).len == 0))
        return;
    mp_str names[MP_FLAT_MAX];
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        for (; at > 0 && is_before(arguments[i].name, names[at - 1]); at--)
            names[at] = names[at - 1];
        names[at] = arguments[i].name;
    }
    mp_buf_put(line, MP_STR(",\"arguments\":["));
    for (size_t i = 0; i < count; i++)
        put_text(line, i == 0 ? MP_STR("") : MP_STR(","), names[i]);
    mp_buf_putc(line, ']');
}

/* -- a line -------------------------------------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

void mp_audit_begin(mp_audit_line *line, const mp_lib *lib, mp_call *call, mp_str name)
{
    if (lib->audit == MP_AUDIT_MODE_OFF || !mp_audit_is_on())
        return;
    const mp_era *era = mp_call_era(call);
    const mp_session *session = mp_call_session(call);
    const mp_principal *principal = mp_call_principal(call);
    mp_str issuer = mp_principal_issuer(principal), address = mp_call_address(call);
    mp_str meta = object_in(mp_call_params(call), MP_STR("_meta"), MP_STR("_meta"));
    mp_buf *text = &line->text;
    line->began_s = now_s();
    mp_buf_put(text, MP_STR("\"event\":\"call\""));
    put_text(text, MP_STR(",\"id\":"), mp_str_of(mp_mark_text_of(mp_call_mark(call)).text));
    mp_buf_put(text, MP_STR(",\"principal\":"));
    mp_json_put_string(text, mp_principal_id(principal));
    if (issuer.len > 0) {
        mp_buf_put(text, MP_STR(",\"issuer\":"));
        mp_json_put_string(text, issuer);
    }
    put_client(text, session != NULL ? mp_session_client(session)
                                     : object_in(meta, MP_STR("io.modelcontextprotocol/clientInfo"),
                                                 MP_STR("io.modelcontextprotocol\\/clientInfo")));
    if (mp_call_operator(call).len > 0) {
        mp_buf_put(text, MP_STR(",\"caller\":"));
        mp_json_put_string(text, mp_call_operator(call));
    }
    if (address.len > 0)
        put_text(text, MP_STR(",\"address\":"), address);
    if (session != NULL) {
        mp_session_mark mark = mp_session_mark_of(mp_session_id(session));
        put_text(text, MP_STR(",\"session\":"), mp_str_of(mark.text));
    }
    if (era != NULL)
        put_text(text, MP_STR(",\"revision\":"), mp_str_of(era->date));
    put_text(text, MP_STR(",\"method\":"), mp_call_method(call));
    if (name.len > 0)
        put_text(text, MP_STR(",\"name\":"), name);
    line->head = text->len;
    if (lib->audit == MP_AUDIT_MODE_NAMES)
        put_names(text, call);
    const mp_trace *spans = mp_call_trace(call);
    mp_json_token trace = find_member(meta, MP_STR("traceparent"), MP_STR("traceparent")).token;
    if (trace.type == MP_JSON_T_STRING) {
        mp_buf_put(text, MP_STR(",\"trace\":\""));
        put_json_text(text, trace);
        mp_buf_putc(text, '"');
    } else if (spans != NULL) {
        char id[MP_TRACE_ID_DIGITS + 1];
        mp_trace_put_id(spans, id);
        if (id[0] != '\0')
            put_text(text, MP_STR(",\"trace\":"), mp_str_of(id));
    }
}

void mp_audit_end(mp_audit_line *line, const mp_audit_outcome *outcome)
{
    if (!mp_audit_is_begun(line))
        return;
    mp_buf whole = {0};
    mp_buf_put(&whole, (mp_str){line->text.ptr, line->head});
    put_text(&whole, MP_STR(",\"outcome\":"), mp_str_of(outcome->outcome));
    if (outcome->has_code) {
        mp_buf_put(&whole, MP_STR(",\"code\":"));
        mp_json_put_int(&whole, outcome->code);
    }
    if (outcome->why.len > 0) {
        mp_buf_put(&whole, MP_STR(",\"why\":"));
        mp_buf_put(&whole, outcome->why);
    }
    if (outcome->policy.len > 0) {
        mp_buf_put(&whole, MP_STR(",\"policy\":"));
        mp_buf_put(&whole, outcome->policy);
    }
    mp_buf_put(&whole, MP_STR(",\"ms\":"));
    mp_json_put_double(&whole, floor((now_s() - line->began_s) * 1e5 + 0.5) / 1e2);
    mp_buf_put(&whole, mp_str_from(mp_buf_str(&line->text), line->head));
    if (strcmp(outcome->outcome, "ok") == 0)
        mp_audit_write_ok(mp_buf_str(&whole));
    else
        mp_audit_write(mp_buf_str(&whole));
    mp_buf_clear(&whole);
    mp_audit_discard(line);
}

void mp_audit_discard(mp_audit_line *line)
{
    mp_buf_clear(&line->text);
}
