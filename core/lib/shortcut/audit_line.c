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

/* Appends a text without quotes, at most MP_AUDIT_TEXT of it, and "…" where it was cut. */
static void put_cut(mp_buf *line, mp_str text)
{
    size_t len = text.len;
    if (len > MP_AUDIT_TEXT)
        for (len = MP_AUDIT_TEXT; len > 0 && ((unsigned char)text.ptr[len] & 0xc0) == 0x80;)
            len--;
    mp_json_put_text(line, (mp_str){text.ptr, len});
    if (len < text.len)
        mp_buf_put(line, MP_STR("…"));
}

/* Appends a member whose value is a text, of which the line has no more than MP_AUDIT_TEXT. `key` has the comma, the
 * quotes and the colon. */
static void put_text(mp_buf *line, mp_str key, mp_str text)
{
    if (text.ptr == NULL)
        return;
    mp_buf_put(line, key);
    mp_buf_putc(line, '"');
    put_cut(line, text);
    mp_buf_putc(line, '"');
}

/* Appends a member whose value is a whole text. */
static void put_whole(mp_buf *line, mp_str key, mp_str text)
{
    if (text.ptr == NULL)
        return;
    mp_buf_put(line, key);
    mp_json_put_string(line, text);
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

/* The text of a member that is a string; without `ptr` if it is none. Appended to `*kept` if it has escapes. */
static mp_str text_of(const mp_json_member *it, mp_buf *kept)
{
    if (it->span.ptr == NULL || it->value.type != MP_JSON_T_STRING)
        return MP_STR_NONE;
    if (!it->value.escaped)
        return it->value.span;
    size_t start = kept->len;
    mp_json_unescape(kept, it->span);
    return mp_str_from(mp_buf_str(kept), start);
}

static bool is_before(mp_str a, mp_str b)
{
    int order = memcmp(a.ptr, b.ptr, a.len < b.len ? a.len : b.len);
    return order != 0 ? order < 0 : a.len < b.len;
}

/* Appends the names of the arguments, sorted, as a list of JSON. Nothing if the client sent no arguments. */
static void put_names(mp_buf *list, const mp_call *call)
{
    size_t count;
    const mp_flat *arguments = mp_call_flat(call, &count);
    if (arguments == NULL || (count == 0 && object_in(mp_call_params(call), MP_STR("arguments")).len == 0))
        return;
    mp_str names[MP_FLAT_MAX];
    for (size_t i = 0; i < count; i++) {
        size_t at = i;
        for (; at > 0 && is_before(arguments[i].name, names[at - 1]); at--)
            names[at] = names[at - 1];
        names[at] = arguments[i].name;
    }
    for (size_t i = 0; i < count; i++)
        put_text(list, i == 0 ? MP_STR("[") : MP_STR(","), names[i]);
    mp_buf_put(list, count == 0 ? MP_STR("[]") : MP_STR("]"));
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

/* Appends the members before the outcome. */
static void put_head(mp_buf *text, mp_call *call, const mp_audit_facts *facts)
{
    const mp_era *era = mp_call_era(call);
    const mp_session *session = mp_call_session(call);
    mp_buf_put(text, MP_STR("\"event\":\"call\""));
    put_text(text, MP_STR(",\"id\":"), mp_str_of(mp_mark_text_of(mp_call_mark(call)).text));
    put_whole(text, MP_STR(",\"principal\":"), facts->principal);
    put_whole(text, MP_STR(",\"issuer\":"), facts->issuer);
    if (facts->client.ptr != NULL) {
        mp_buf_put(text, MP_STR(",\"client\":\""));
        put_cut(text, facts->client);
        if (facts->version.ptr != NULL) {
            mp_buf_putc(text, ' ');
            put_cut(text, facts->version);
        }
        mp_buf_putc(text, '"');
    }
    put_whole(text, MP_STR(",\"caller\":"), some(mp_call_operator(call)));
    put_text(text, MP_STR(",\"address\":"), some(mp_call_address(call)));
    if (session != NULL) {
        mp_session_mark mark = mp_session_mark_of(mp_session_id(session));
        put_text(text, MP_STR(",\"session\":"), mp_str_of(mark.text));
    }
    if (era != NULL)
        put_text(text, MP_STR(",\"revision\":"), mp_str_of(era->date));
    put_text(text, MP_STR(",\"method\":"), mp_call_method(call));
    put_text(text, MP_STR(",\"name\":"), facts->name);
    put_whole(text, MP_STR(",\"upstream\":"), facts->upstream);
    put_whole(text, MP_STR(",\"upstream_name\":"), facts->upstream_name);
}

void mp_audit_begin(mp_audit_line *line, mp_call *call, const mp_audit_facts *facts)
{
    mp_buf *text = &line->text;
    char trace[MP_TRACE_ID_DIGITS + 1] = "";
    text->len = 0;
    line->began_s = now_s();
    put_head(text, call, facts);
    line->head = text->len;
    if (facts->arguments.ptr != NULL) {
        mp_buf_put(text, MP_STR(",\"arguments\":"));
        mp_buf_put(text, facts->arguments);
    }
    if (facts->trace.ptr == NULL && mp_call_trace(call) != NULL)
        mp_trace_put_id(mp_call_trace(call), trace);
    put_text(text, MP_STR(",\"trace\":"), trace[0] != '\0' ? mp_str_of(trace) : facts->trace);
    put_whole(text, MP_STR(",\"definition\":"), facts->definition);
    put_whole(text, MP_STR(",\"approved\":"), facts->approved);
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
    mp_str meta = object_in(mp_call_params(call), MP_STR("_meta"));
    mp_json_member of_meta[2], of_client[2];
    find_both(meta, MP_STR("io.modelcontextprotocol/clientInfo"), MP_STR("traceparent"), of_meta);
    mp_str info = of_meta[0].value.type == MP_JSON_T_OPEN_OBJECT ? of_meta[0].span : MP_STR_NONE;
    find_both(session != NULL ? mp_session_client(session) : info, MP_STR("name"), MP_STR("version"), of_client);
    mp_buf kept[4] = {0};
    if (lib->audit == MP_AUDIT_MODE_NAMES)
        put_names(&kept[3], call);
    const mp_audit_facts facts = {.principal = mp_principal_id(principal),
                                  .issuer = some(mp_principal_issuer(principal)),
                                  .client = text_of(&of_client[0], &kept[0]),
                                  .version = text_of(&of_client[1], &kept[1]),
                                  .name = thing->name,
                                  .upstream = thing->upstream,
                                  .upstream_name = thing->upstream_name,
                                  .definition = thing->definition,
                                  .approved = thing->approved,
                                  .arguments = some(mp_buf_str(&kept[3])),
                                  .trace = text_of(&of_meta[1], &kept[2])};
    mp_audit_begin(line, call, &facts);
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++)
        mp_buf_clear(&kept[i]);
}

void mp_audit_end(mp_audit_line *line, const mp_audit_outcome *outcome)
{
    if (!mp_audit_is_begun(line))
        return;
    mp_scoped_buf whole = {0};
    mp_buf_put(&whole, (mp_str){line->text.ptr, line->head});
    put_whole(&whole, MP_STR(",\"channel\":"), outcome->channel);
    if (outcome->retries > 0) {
        mp_buf_put(&whole, MP_STR(",\"retries\":"));
        mp_json_put_int(&whole, outcome->retries);
    }
    put_text(&whole, MP_STR(",\"outcome\":"), mp_str_of(outcome->outcome));
    if (outcome->has_code) {
        mp_buf_put(&whole, MP_STR(",\"code\":"));
        mp_json_put_int(&whole, outcome->code);
    }
    put_text(&whole, MP_STR(",\"why\":"), outcome->why);
    put_whole(&whole, MP_STR(",\"policy\":"), outcome->policy);
    mp_buf_put(&whole, MP_STR(",\"ms\":"));
    mp_json_put_double(&whole, floor((now_s() - line->began_s) * 1e5 + 0.5) / 1e2);
    mp_buf_put(&whole, mp_str_from(mp_buf_str(&line->text), line->head));
    if (strcmp(outcome->outcome, "ok") == 0)
        mp_audit_write_ok(mp_buf_str(&whole));
    else
        mp_audit_write(mp_buf_str(&whole));
    mp_audit_discard(line);
}

void mp_audit_discard(mp_audit_line *line)
{
    mp_buf_clear(&line->text);
}
