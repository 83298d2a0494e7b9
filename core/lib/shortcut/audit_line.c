/* audit_line.c: see audit_line.h. */
#include "lib/shortcut/audit_line.h"
#include "lib/principal.h"
#include <math.h>

mp_audit_mode mp_audit_mode_of(const char *MP_NULLABLE choice)
{
    if (choice == NULL)
        return MP_AUDIT_MODE_OFF;
    if (strcmp(choice, "none") == 0)
        return MP_AUDIT_MODE_NONE;
    return strcmp(choice, "names") == 0 ? MP_AUDIT_MODE_NAMES : MP_AUDIT_MODE_VALUES;
}

/* -- members ------------------------------------------------------------------------------------------------------- */

/* Bytes that a line takes at least: most have less. */
#define LINE_ROOM 512

#define EACH_BYTE UINT64_C(0x0101010101010101)

/* The high bit of each byte of `bytes` that is no visible ASCII, a quote or a backslash. Bytes above the first of these
 * may have it, too. */
static inline uint64_t unusual_in(uint64_t bytes)
{
    uint64_t quote = bytes ^ EACH_BYTE * '"', backslash = bytes ^ EACH_BYTE * '\\';
    return (bytes | (bytes + EACH_BYTE) | (bytes - EACH_BYTE * ' ') | ((quote - EACH_BYTE) & ~quote) |
            ((backslash - EACH_BYTE) & ~backslash)) &
           EACH_BYTE * 0x80;
}

static inline uint64_t eight_at(const char *at)
{
    uint64_t bytes;
    memcpy(&bytes, at, sizeof bytes);
    return bytes;
}

/* True if a text has nothing that JSON or a terminal could interpret: visible ASCII without quotes and backslashes. */
static inline bool is_usual(mp_str text)
{
    char few[8] = "        ";
    if (text.len < sizeof few) {
        for (size_t i = 0; i < text.len; i++)
            few[i] = text.ptr[i];
        return unusual_in(eight_at(few)) == 0;
    }
    size_t last = text.len - sizeof few;
    for (size_t i = 0; i < last; i += sizeof few)
        if (unusual_in(eight_at(text.ptr + i)) != 0)
            return false;
    return unusual_in(eight_at(text.ptr + last)) == 0;
}

/* Appends a text without quotes. */
static void put_escaped(mp_buf *line, mp_str text)
{
    if (is_usual(text)) {
        mp_buf_put(line, text);
        return;
    }
    mp_scoped_buf json = {0};
    mp_json_put_text(&json, text);
    mp_audit_put(line, mp_buf_str(&json));
}

/* Appends a text without quotes, at most MP_AUDIT_TEXT of it, and "…" where it was cut. */
static void put_cut(mp_buf *line, mp_str text)
{
    size_t len = text.len;
    if (len > MP_AUDIT_TEXT)
        for (len = MP_AUDIT_TEXT; len > 0 && ((unsigned char)text.ptr[len] & 0xc0) == 0x80;)
            len--;
    put_escaped(line, (mp_str){text.ptr, len});
    if (len < text.len)
        mp_buf_put(line, MP_STR("…"));
}

/* The `key` of each member below has the comma, its quotes, the colon and the quote before the value. A text without
 * `ptr` has no member. */

/* Appends a member whose value needs no escapes. */
static void put_known(mp_buf *line, mp_str key, mp_str text)
{
    mp_buf_put(line, key);
    mp_buf_put(line, text);
    mp_buf_putc(line, '"');
}

/* Appends a member whose value is a text, of which the line has no more than MP_AUDIT_TEXT. */
static void put_text(mp_buf *line, mp_str key, mp_str text)
{
    if (text.ptr == NULL)
        return;
    mp_buf_put(line, key);
    put_cut(line, text);
    mp_buf_putc(line, '"');
}

/* Appends a member whose value is a whole text. */
static void put_whole(mp_buf *line, mp_str key, mp_str text)
{
    if (text.ptr == NULL)
        return;
    mp_buf_put(line, key);
    put_escaped(line, text);
    mp_buf_putc(line, '"');
}

static mp_str object_in(mp_str object, mp_str name)
{
    mp_json_member it;
    return mp_json_find_member(object, name, &it) && it.value.type == MP_JSON_T_OPEN_OBJECT ? it.span : MP_STR_NONE;
}

/* The first member of either name in an object, by one pass; without a span where there is none. */
static void find_both(mp_str object, mp_str first, mp_str second, mp_json_member found[2])
{
    const mp_str names[2] = {first, second};
    found[0] = found[1] = (mp_json_member){0};
    if (object.len == 0)
        return;
    mp_json_cursor cursor = {object.ptr + 1, object.ptr + object.len};
    for (mp_json_member it; mp_json_next_member(&cursor, &it);)
        for (int i = 0; i < 2; i++)
            if (found[i].span.ptr == NULL && mp_json_string_is((mp_str){it.key.ptr - 1, it.key.len + 2}, names[i]))
                found[i] = it;
}

/* The text of the span of a string; without `ptr` if there is none. Appended to `*kept` if it has escapes. */
static mp_str text_in(mp_str span, mp_buf *kept)
{
    if (span.ptr == NULL)
        return MP_STR_NONE;
    if (memchr(span.ptr, '\\', span.len) == NULL)
        return (mp_str){span.ptr + 1, span.len - 2};
    size_t start = kept->len;
    mp_json_unescape(kept, span);
    return mp_str_from(mp_buf_str(kept), start);
}

/* The span of a member that begins with a token of this type, else none. */
static mp_str span_of(const mp_json_member *it, mp_json_token_type type)
{
    return it->span.ptr != NULL && it->value.type == type ? it->span : MP_STR_NONE;
}

static bool is_before(mp_str a, mp_str b)
{
    int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order != 0 ? order < 0 : a.len < b.len;
}

/* Appends the names of the arguments, sorted, as a member. */
static void put_names(mp_buf *line, const mp_call *call)
{
    size_t count;
    const mp_flat *arguments = mp_call_flat(call, &count);
    if (arguments == NULL)
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
        put_text(line, i == 0 ? MP_STR("\"") : MP_STR(",\""), names[i]);
    mp_buf_putc(line, ']');
}

/* -- a line -------------------------------------------------------------------------------------------------------- */

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static mp_str some(mp_str text)
{
    return text.len > 0 ? text : MP_STR_NONE;
}

/* Begins a line with the members before the outcome. */
static void begin_line(mp_audit_line *line, mp_call *call, const mp_audit_facts *facts)
{
    mp_buf *text = &line->text;
    const mp_era *era = mp_call_era(call);
    const mp_session *session = mp_call_session(call);
    mp_str caller = mp_call_operator(call), address = mp_call_address(call);
    text->len = 0;
    mp_buf_room(text, LINE_ROOM);
    text->len = MP_AUDIT_HEAD;
    line->began_s = now_s();
    put_known(text, MP_STR("\"event\":\"call\",\"id\":\""), mp_str_of(mp_mark_text_of(mp_call_mark(call)).text));
    put_whole(text, MP_STR(",\"principal\":\""), facts->principal);
    put_whole(text, MP_STR(",\"issuer\":\""), facts->issuer);
    if (facts->client.ptr != NULL) {
        mp_buf_put(text, MP_STR(",\"client\":\""));
        put_cut(text, facts->client);
        if (facts->version.ptr != NULL) {
            mp_buf_putc(text, ' ');
            put_cut(text, facts->version);
        }
        mp_buf_putc(text, '"');
    }
    put_whole(text, MP_STR(",\"caller\":\""), some(caller));
    put_text(text, MP_STR(",\"address\":\""), some(address));
    if (session != NULL) {
        mp_session_mark mark = mp_session_mark_of(mp_session_id(session));
        put_known(text, MP_STR(",\"session\":\""), mp_str_of(mark.text));
    }
    if (era != NULL)
        put_known(text, MP_STR(",\"revision\":\""), mp_str_of(era->date));
    put_text(text, MP_STR(",\"method\":\""), mp_call_method(call));
    put_text(text, MP_STR(",\"name\":\""), facts->name);
    put_whole(text, MP_STR(",\"upstream\":\""), facts->upstream);
    put_whole(text, MP_STR(",\"upstream_name\":\""), facts->upstream_name);
    line->head = text->len;
}

/* Appends the id of the call's trace, or what its client says about its own. */
static void put_trace(mp_buf *text, const mp_call *call, mp_str said)
{
    char id[MP_TRACE_ID_DIGITS + 1] = "";
    if (said.ptr == NULL && mp_call_trace(call) != NULL)
        mp_trace_put_id(mp_call_trace(call), id);
    put_text(text, MP_STR(",\"trace\":\""), id[0] != '\0' ? mp_str_of(id) : said);
}

static void put_hashes(mp_buf *text, const mp_audit_facts *facts)
{
    put_whole(text, MP_STR(",\"definition\":\""), facts->definition);
    put_whole(text, MP_STR(",\"approved\":\""), facts->approved);
}

void mp_audit_begin(mp_audit_line *line, mp_call *call, const mp_audit_facts *facts)
{
    mp_buf *text = &line->text;
    begin_line(line, call, facts);
    if (facts->arguments.ptr != NULL) {
        mp_buf_put(text, MP_STR(",\"arguments\":"));
        mp_audit_put(text, facts->arguments);
    }
    put_trace(text, call, facts->trace);
    put_hashes(text, facts);
}

/* What the client of a plain call says in _meta: the spans of the object clientInfo and of the string traceparent. True
 * if the call is a tools/call with arguments. */
static bool find_said(const mp_call *call, mp_str *client, mp_str *trace)
{
    size_t count;
    mp_json_member found[2];
    if (mp_call_flat(call, &count) != NULL)
        return mp_call_said(call, client, trace);
    find_both(object_in(mp_call_params(call), MP_STR("_meta")), MP_STR("io.modelcontextprotocol/clientInfo"),
              MP_STR("traceparent"), found);
    *client = span_of(&found[0], MP_JSON_T_OPEN_OBJECT);
    *trace = span_of(&found[1], MP_JSON_T_STRING);
    return false;
}

void mp_audit_begin_plain(mp_audit_line *line, const mp_lib *lib, mp_call *call, mp_str name)
{
    mp_audit_begin_thing(line, lib, call, &(mp_audit_facts){.name = name});
}

void mp_audit_begin_thing(mp_audit_line *line, const mp_lib *lib, mp_call *call, const mp_audit_facts *thing)
{
    if (lib->audit == MP_AUDIT_MODE_OFF || !mp_audit_is_on())
        return;
    const mp_session *session = mp_call_session(call);
    const mp_principal *principal = mp_call_principal(call);
    mp_str client, trace;
    mp_json_member of_client[2];
    bool has_arguments = find_said(call, &client, &trace);
    find_both(session != NULL ? mp_session_client(session) : client, MP_STR("name"), MP_STR("version"), of_client);
    mp_buf kept[3] = {0};
    const mp_audit_facts facts = {.principal = mp_principal_id(principal),
                                  .issuer = some(mp_principal_issuer(principal)),
                                  .client = text_in(span_of(&of_client[0], MP_JSON_T_STRING), &kept[0]),
                                  .version = text_in(span_of(&of_client[1], MP_JSON_T_STRING), &kept[1]),
                                  .name = thing->name,
                                  .upstream = thing->upstream,
                                  .upstream_name = thing->upstream_name};
    begin_line(line, call, &facts);
    if (lib->audit == MP_AUDIT_MODE_NAMES && has_arguments)
        put_names(&line->text, call);
    put_trace(&line->text, call, text_in(trace, &kept[2]));
    put_hashes(&line->text, thing);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        mp_buf_clear(&kept[i]);
}

/* Moves what is behind the outcome, the bytes of the line from `head` to `tail`, to its end. */
static void move_tail(mp_buf *text, size_t head, size_t tail)
{
    size_t len = tail - head, end = text->len;
    mp_buf_room(text, len);
    memcpy(text->ptr + end, text->ptr + head, len);
    memmove(text->ptr + head, text->ptr + tail, end - head);
}

void mp_audit_end(mp_audit_line *line, const mp_audit_outcome *outcome)
{
    if (!mp_audit_is_begun(line))
        return;
    mp_buf *text = &line->text;
    size_t tail = text->len;
    put_whole(text, MP_STR(",\"channel\":\""), outcome->channel);
    if (outcome->retries > 0) {
        mp_buf_put(text, MP_STR(",\"retries\":"));
        mp_json_put_int(text, outcome->retries);
    }
    put_known(text, MP_STR(",\"outcome\":\""), mp_str_of(outcome->outcome));
    if (outcome->has_code) {
        mp_buf_put(text, MP_STR(",\"code\":"));
        mp_json_put_int(text, outcome->code);
    }
    put_text(text, MP_STR(",\"why\":\""), outcome->why);
    put_whole(text, MP_STR(",\"policy\":\""), outcome->policy);
    mp_buf_put(text, MP_STR(",\"ms\":"));
    mp_json_put_double(text, floor((now_s() - line->began_s) * 1e5 + 0.5) / 1e2);
    move_tail(text, line->head, tail);
    mp_audit_write_line(text, strcmp(outcome->outcome, "ok") == 0);
    mp_audit_discard(line);
}

void mp_audit_discard(mp_audit_line *line)
{
    mp_buf_clear(&line->text);
}
