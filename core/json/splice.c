/* splice.c: changes members of an object in its bytes. One scan validates the text and finds the members; bytes between
 * two changes are copied unchanged. */
#include "json/json.h"

typedef struct {
    const mp_json_edit *edits;
    size_t count;
    bool in_meta; /* the object is the `_meta` of another one */
    mp_buf *out;
    const char *from; /* bytes from here on are not copied yet */
    const char *end;  /* behind the last member that is kept, or behind the opening brace */
    const char *at;   /* behind the last member that was read, or behind the opening brace */
    size_t kept;      /* members that are kept */
    bool has_gap;     /* members behind `end` were removed, and everything before it is copied */
    bool is_clashing, is_broken, has_meta;
    uint64_t found;    /* bit i: the object has a member with the name of edit i */
    uint64_t occupied; /* bit i: the object keeps a member with the new name of edit i */
} splice;

static void copy_to(splice *s, const char *to)
{
    mp_buf_put(s->out, (mp_str){s->from, (size_t)(to - s->from)});
    s->from = to;
}

/* The opening quote of the key behind `at`. */
static const char *find_key(const char *at)
{
    while (*at != '"')
        at++;
    return at;
}

/* Behind the key whose opening quote is at `at`. */
static const char *end_key(const char *at)
{
    for (at++; *at != '"'; at++)
        at += *at == '\\';
    return at + 1;
}

/* Begins to remove the member behind `end`. */
static void open_gap(splice *s)
{
    if (s->has_gap)
        return;
    copy_to(s, s->end);
    s->has_gap = true;
}

/* Keeps the member whose key is at `key`. */
static void close_gap(splice *s, const char *key)
{
    if (s->has_gap) {
        if (s->kept > 0)
            mp_buf_putc(s->out, ',');
        s->from = key;
        s->has_gap = false;
    }
    s->kept++;
}

static const mp_json_edit *MP_NULLABLE find_edit(splice *s, mp_str name)
{
    for (size_t i = 0; i < s->count; i++) {
        const mp_json_edit *edit = &s->edits[i];
        if (edit->in_meta == s->in_meta && mp_str_eq(edit->name, name)) {
            s->found |= (uint64_t)1 << i;
            return edit;
        }
    }
    return NULL;
}

/* Notes that the result has a member `name`: one of the text (`by` is NULL), or one that the edit `by` made. */
static void note_kept(splice *s, mp_str name, const mp_json_edit *MP_NULLABLE by)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->edits[i].kind == MP_JSON_RENAME && &s->edits[i] != by && s->edits[i].in_meta == s->in_meta &&
            mp_str_eq(s->edits[i].value, name))
            s->occupied |= (uint64_t)1 << i;
}

static bool has_meta_edits(const splice *s)
{
    for (size_t i = 0; i < s->count; i++)
        if (s->edits[i].in_meta)
            return true;
    return false;
}

static void splice_meta(splice *s, mp_str meta);

/* Handles a member whose key is at `key` and whose value is `value`. */
static void take_member(splice *s, const char *key, mp_str name, mp_json_type type, mp_str value)
{
    const mp_json_edit *edit = find_edit(s, name);
    const char *end = value.ptr + value.len;
    if (edit != NULL && edit->kind == MP_JSON_DROP) {
        open_gap(s);
        s->at = end;
        return;
    }
    close_gap(s, key);
    note_kept(s, edit != NULL && edit->kind == MP_JSON_RENAME ? edit->value : name, edit);
    s->has_meta = s->has_meta || (mp_str_is(name, "_meta") && (edit == NULL || edit->kind == MP_JSON_SET));
    if (edit != NULL && edit->kind == MP_JSON_SET) {
        copy_to(s, value.ptr);
        mp_buf_put(s->out, edit->value);
        s->from = end;
    } else if (edit != NULL) {
        copy_to(s, key);
        mp_json_put_string(s->out, edit->value);
        s->from = end_key(key);
    } else if (!s->in_meta && mp_str_is(name, "_meta") && has_meta_edits(s)) {
        s->is_broken = s->is_broken || type != MP_JSON_OBJECT;
        if (type == MP_JSON_OBJECT)
            splice_meta(s, value);
    }
    s->end = s->at = end;
}

/* Appends the members that MP_JSON_SET names and the object does not have. */
static void append_members(splice *s)
{
    for (size_t i = 0; i < s->count; i++) {
        const mp_json_edit *edit = &s->edits[i];
        if (edit->kind != MP_JSON_SET || edit->in_meta != s->in_meta || (s->found >> i & 1) != 0)
            continue;
        open_gap(s);
        if (s->kept++ > 0)
            mp_buf_putc(s->out, ',');
        mp_json_put_string(s->out, edit->name);
        mp_buf_putc(s->out, ':');
        mp_buf_put(s->out, edit->value);
        note_kept(s, edit->name, edit);
    }
    for (size_t i = 0; i < s->count; i++)
        s->is_clashing = s->is_clashing || ((s->found & s->occupied) >> i & 1) != 0;
}

/* Changes the object `meta`, in which no key is repeated. */
static void splice_meta(splice *outer, mp_str meta)
{
    splice s = {.edits = outer->edits, .count = outer->count, .in_meta = true, .out = outer->out, .from = outer->from};
    s.end = s.at = meta.ptr + 1;
    mp_json_cursor cursor = {meta.ptr + 1, meta.ptr + meta.len};
    mp_scoped_buf plain = {0};
    for (mp_json_token key; (key = mp_json_next(&cursor)).type == MP_JSON_T_STRING;) {
        mp_str name = key.span, span = {key.span.ptr - 1, key.span.len + 2};
        if (key.escaped) {
            plain.len = 0;
            mp_json_unescape(&plain, span);
            name = mp_buf_str(&plain);
        }
        mp_json_token value = mp_json_next(&cursor);
        take_member(&s, span.ptr, name, MP_JSON_NULL, mp_json_skip(&cursor, value));
    }
    append_members(&s);
    outer->from = s.has_gap ? meta.ptr + meta.len - 1 : s.from;
    outer->is_clashing = outer->is_clashing || s.is_clashing;
}

static bool enter_meta(MP_UNUSED void *ctx, unsigned level, mp_str key)
{
    return level == 1 && mp_str_is(key, "_meta");
}

/* Members of `_meta` come before the member `_meta` itself, which splice_meta() reads. */
static int see_member(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value)
{
    splice *s = ctx;
    if (level == 1)
        take_member(s, find_key(s->at), key, type, value);
    return 0;
}

/* Adds a `_meta` with the members that MP_JSON_SET names, if there is none. */
static void add_meta(splice *s)
{
    size_t added = 0;
    for (size_t i = 0; i < s->count && !s->has_meta; i++) {
        const mp_json_edit *edit = &s->edits[i];
        if (edit->kind != MP_JSON_SET || !edit->in_meta)
            continue;
        if (added++ == 0) {
            open_gap(s);
            mp_buf_put(s->out, s->kept++ > 0 ? MP_STR(",\"_meta\":{") : MP_STR("\"_meta\":{"));
        } else {
            mp_buf_putc(s->out, ',');
        }
        mp_json_put_string(s->out, edit->name);
        mp_buf_putc(s->out, ':');
        mp_buf_put(s->out, edit->value);
    }
    if (added > 0)
        mp_buf_putc(s->out, '}');
}

static mp_json_result fail_with(mp_json_fault *MP_NULLABLE fault, mp_json_result result, const char *what)
{
    if (fault != NULL)
        *fault = (mp_json_fault){what, 0};
    return result;
}

static mp_json_result splice_object(splice *s, mp_str object, mp_json_fault *fault)
{
    mp_json_visitor visitor = {enter_meta, see_member, s, NULL};
    mp_json_type type;
    mp_json_result result = mp_json_scan(object, &visitor, &type, fault);
    if (result != MP_JSON_OK)
        return result;
    if (type != MP_JSON_OBJECT)
        return fail_with(fault, MP_JSON_BROKEN, "not an object");
    const char *brace = object.ptr + object.len - 1;
    while (*brace != '}')
        brace--;
    append_members(s);
    add_meta(s);
    if (s->has_gap)
        s->from = brace;
    copy_to(s, brace + 1);
    if (s->is_broken)
        return fail_with(fault, MP_JSON_BROKEN, "\"_meta\" is not an object");
    return s->is_clashing ? fail_with(fault, MP_JSON_REPEATED, "repeated key") : MP_JSON_OK;
}

mp_json_result mp_json_splice(mp_buf *out, mp_str object, const mp_json_edit *edits, size_t count,
                              mp_json_fault *MP_NULLABLE fault)
{
    if (count > MP_JSON_EDITS)
        return fail_with(fault, MP_JSON_MANY, "too many edits");
    size_t start = out->len, space = 0;
    while (space < object.len && memchr(" \t\r\n", object.ptr[space], 4) != NULL)
        space++;
    splice s = {.edits = edits, .count = count, .out = out, .from = object.ptr + space};
    s.end = s.at = object.ptr + space + 1; /* behind the brace; not used if there is none */
    mp_json_result result = splice_object(&s, object, fault);
    if (result != MP_JSON_OK)
        out->len = start;
    return result;
}
