/* regex.c: the regular expressions of JSON Schema's `pattern`: ECMA-262 in Unicode mode, as closely as PCRE2 supports
 * it.
 *
 *   compile(pattern)   -> regex | nil, why
 *   regex:test(text)   -> boolean | nil, "limit" | nil, "not UTF-8"
 *   regex:exec(text, n)  -> { first, last, first of capture 1, … } | false | nil, why: the first match from byte n on
 *
 * A pattern may be careless and a text hostile, so backtracking, memory and time of one match are bounded. PCRE2 limits
 * its backtracking steps but not the bytes that it scans. So a pattern is compiled with callouts before each of its
 * items, which check the processor time. A short text is first matched without callouts and with few steps.
 *
 * The file is longer than 400 lines because of the table of Unicode categories. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "lib/modules/regex.h"
#include "lib/fields.h"
#include "lib/lib.h"

#include <lauxlib.h>
#include <pcre2.h>

#define REGEX "moonpool.regex"
#define MATCHER "moonpool.regex.matcher"

#define MAX_PATTERN_BYTES 4096
/* caseless ranges beyond ASCII in a pattern: PCRE2 10.42 takes up to 4 ms to compile each */
#define MAX_CASELESS_RANGES 8
/* one item of a pattern may scan the whole text without interruption */
#define MAX_TEXT_BYTES ((size_t)4 << 20)
/* Characters of a text times the members of a class with which PCRE2 compares each of them: 1 ns each. A class has one
 * table for the characters below 256, and a list of its other characters, ranges and properties. */
#define MAX_COMPARED (MAX_TEXT_BYTES * 8)
#define MEMBER_BYTES 3              /* minimum bytes of a member of such a list in a compiled pattern */
#define CASELESS_RANGE_MEMBERS 1500 /* members that a caseless range becomes: the other cases of its characters */
#define MAX_MATCH_STEPS 20000       /* backtracking steps of one match */
#define MAX_HEAP_KIB 4096           /* memory of one match */
#define SHORT_TEXT_BYTES 128        /* texts up to this size are first matched without callouts */
#define SHORT_MATCH_STEPS 200       /* steps of a match without callouts */
#define MAX_CPU_US 50000            /* processor time of one match */
/* callouts between two reads of the clock, unless another task is ready */
#define CALLOUTS_PER_CHECK 64
#define SCAN_BYTES_PER_CHECK 4096 /* bytes between two callouts after which the clock is read, too */

typedef struct {
    pcre2_code *MP_NULLABLE code,
        *MP_NULLABLE guarded; /* compiled without and with callouts; NULL until it is needed */
    uint32_t pairs;           /* captures of the pattern, plus one for the whole match */
    size_t most_text;         /* bytes of the longest text that it is matched with */
} regex;

enum { WEIGHT = 1, TEXT, GUARDED_WEIGHT, USER_VALUES = GUARDED_WEIGHT }; /* user values of a regex */

/* Memory for matching. All regexes of a Lua state share one matcher, because its frames are large. */
typedef struct {
    pcre2_match_data *data;                 /* for `test` */
    pcre2_match_data *MP_NULLABLE captures; /* for `exec`; NULL until it is first called */
    uint32_t pairs;                         /* capacity of `captures` */
    pcre2_match_context *context;
} matcher;

/* Long names of General_Category values, which PCRE2 10.42 does not support. */
static const struct {
    const char *name, *category;
} categories[] = {
    {"Letter", "L"},
    {"Cased_Letter", "L&"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Titlecase_Letter", "Lt"},
    {"Modifier_Letter", "Lm"},
    {"Other_Letter", "Lo"},
    {"Mark", "M"},
    {"Combining_Mark", "M"},
    {"Nonspacing_Mark", "Mn"},
    {"Spacing_Mark", "Mc"},
    {"Enclosing_Mark", "Me"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"digit", "Nd"},
    {"Letter_Number", "Nl"},
    {"Other_Number", "No"},
    {"Punctuation", "P"},
    {"punct", "P"},
    {"Connector_Punctuation", "Pc"},
    {"Dash_Punctuation", "Pd"},
    {"Open_Punctuation", "Ps"},
    {"Close_Punctuation", "Pe"},
    {"Initial_Punctuation", "Pi"},
    {"Final_Punctuation", "Pf"},
    {"Other_Punctuation", "Po"},
    {"Symbol", "S"},
    {"Math_Symbol", "Sm"},
    {"Currency_Symbol", "Sc"},
    {"Modifier_Symbol", "Sk"},
    {"Other_Symbol", "So"},
    {"Separator", "Z"},
    {"Space_Separator", "Zs"},
    {"Line_Separator", "Zl"},
    {"Paragraph_Separator", "Zp"},
    {"Other", "C"},
    {"Control", "Cc"},
    {"cntrl", "Cc"},
    {"Format", "Cf"},
    {"Surrogate", "Cs"},
    {"Private_Use", "Co"},
    {"Unassigned", "Cn"},
};

/* PCRE2's name of the Unicode category `name` of \p{name}; `name` itself if it has no other. */
static mp_str category_of(mp_str name)
{
    static const mp_str prefixes[] = {{"General_Category=", 17}, {"gc=", 3}};
    for (size_t i = 0; i < sizeof prefixes / sizeof prefixes[0]; i++)
        if (mp_str_starts(name, prefixes[i]))
            name = mp_str_from(name, prefixes[i].len);
    for (size_t i = 0; i < sizeof categories / sizeof categories[0]; i++)
        if (mp_str_is(name, categories[i].name))
            return mp_str_of(categories[i].category);
    return name;
}

/* Appends the pattern to `out` with PCRE2's names in \p{…}. */
static void put_translated(mp_buf *out, mp_str pattern)
{
    while (pattern.len > 0) {
        size_t step = pattern.ptr[0] == '\\' && pattern.len > 1 ? 2 : 1;
        const char *close = NULL;
        if (step == 2 && pattern.len > 2 && (pattern.ptr[1] == 'p' || pattern.ptr[1] == 'P') && pattern.ptr[2] == '{')
            close = memchr(pattern.ptr, '}', pattern.len);
        if (close != NULL) {
            mp_buf_put(out, (mp_str){pattern.ptr, 3});
            mp_buf_put(out, category_of((mp_str){pattern.ptr + 3, (size_t)(close - pattern.ptr) - 3}));
            step = (size_t)(close - pattern.ptr);
        } else {
            mp_buf_put(out, (mp_str){pattern.ptr, step});
        }
        pattern = mp_str_from(pattern, step);
    }
}

/* Makes the collector count the memory of a compiled pattern, which PCRE2 allocates: the regex at `index` holds a Lua
 * block of the same size in its user value `user_value`.  [-0, +0, throws] */
static void account_code(lua_State *L, int index, const pcre2_code *code, int user_value)
{
    size_t size = 0;
    pcre2_pattern_info(code, PCRE2_INFO_SIZE, &size);
    lua_newuserdatauv(L, size, 0);
    lua_setiuservalue(L, index, user_value);
}

/* Compiles a pattern. On error returns NULL, with PCRE2's error in `code` and its place in `offset`. */
static pcre2_code *MP_NULLABLE compile_pattern(mp_str text, uint32_t options, int *code, PCRE2_SIZE *offset)
{
    *code = PCRE2_ERROR_NOMEMORY;
    *offset = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context == NULL)
        return NULL;
    pcre2_set_compile_extra_options(context, PCRE2_EXTRA_ALT_BSUX);
    pcre2_code *made = pcre2_compile((PCRE2_SPTR)text.ptr, text.len,
                                     options | PCRE2_UTF | PCRE2_MATCH_UNSET_BACKREF | PCRE2_DOLLAR_ENDONLY |
                                         PCRE2_ALLOW_EMPTY_CLASS | PCRE2_NEVER_BACKSLASH_C,
                                     code, offset, context);
    pcre2_compile_context_free(context);
    return made;
}

/* True if a group or the whole pattern may be caseless: "(?i)", "(?im:". */
static bool has_caseless(mp_str pattern)
{
    for (size_t i = 0; i + 2 < pattern.len; i++) {
        if (pattern.ptr[i] != '(' || pattern.ptr[i + 1] != '?')
            continue;
        for (size_t at = i + 2; at < pattern.len && memchr("^-imsxnJaDPrSTUW", pattern.ptr[at], 16) != NULL; at++)
            if (pattern.ptr[at] == 'i')
                return true;
    }
    return false;
}

/* An upper bound of the number of ranges beyond ASCII, such as "à-ý". A range that ends with an escape counts,
 * because the escape may be any character. */
static size_t count_wide_ranges(mp_str pattern)
{
    size_t count = 0;
    for (size_t i = 1; i + 1 < pattern.len; i++)
        count += pattern.ptr[i] == '-' && pattern.ptr[i - 1] != '\\' &&
                 ((unsigned char)pattern.ptr[i + 1] >= 0x80 || pattern.ptr[i + 1] == '\\');
    return count;
}

/* An upper bound of the members of the largest class of a pattern, beside its table: what the pattern could write
 * there, and what fits into its code. */
static size_t count_members(mp_str pattern, const pcre2_code *code)
{
    size_t count = 1, size = 0;
    if (memchr(pattern.ptr, '[', pattern.len) == NULL)
        return count;
    for (size_t i = 0; i < pattern.len; i++)
        count += (unsigned char)pattern.ptr[i] >= 0xc0 || pattern.ptr[i] == '\\';
    if (has_caseless(pattern))
        count += CASELESS_RANGE_MEMBERS * count_wide_ranges(pattern);
    pcre2_pattern_info(code, PCRE2_INFO_SIZE, &size);
    return count < size / MEMBER_BYTES ? count : size / MEMBER_BYTES;
}

/* Pushes the pattern in PCRE2's syntax.  [-0, +1, throws] */
static void push_translated(lua_State *L, mp_str pattern)
{
    mp_buf text = {0};
    put_translated(&text, pattern);
    char *block =
        lua_newuserdatauv(L, text.len + 1, 0); /* may raise an error, and the memory of `text` would be lost */
    memcpy(block, text.ptr == NULL ? "" : text.ptr, text.len);
    size_t len = text.len;
    mp_buf_clear(&text);
    lua_pushlstring(L, block, len);
    lua_remove(L, -2);
}

/* compile(pattern) -> regex | nil, why  [throws] */
static int l_compile(lua_State *L)
{
    mp_str pattern, text;
    pattern.ptr = luaL_checklstring(L, 1, &pattern.len);
    if (pattern.len > MAX_PATTERN_BYTES) {
        lua_pushnil(L);
        lua_pushfstring(L, "the pattern is longer than %d bytes", MAX_PATTERN_BYTES);
        return 2;
    }
    if (has_caseless(pattern) && count_wide_ranges(pattern) > MAX_CASELESS_RANGES) {
        lua_pushnil(L);
        lua_pushfstring(L, "the pattern has more than %d caseless ranges of characters beyond ASCII",
                        MAX_CASELESS_RANGES);
        return 2;
    }
    lua_settop(L, 1);
    regex *re = lua_newuserdatauv(L, sizeof *re, USER_VALUES);
    *re = (regex){.code = NULL};
    luaL_setmetatable(L, REGEX);
    push_translated(L, pattern);
    text.ptr = lua_tolstring(L, -1, &text.len);
    lua_setiuservalue(L, 2, TEXT);

    int code;
    PCRE2_SIZE offset;
    re->code = compile_pattern(text, 0, &code, &offset);
    if (re->code == NULL) {
        char why[160];
        if (pcre2_get_error_message(code, (PCRE2_UCHAR *)why, sizeof why) < 0)
            memcpy(why, "unknown error", sizeof "unknown error");
        lua_pushnil(L);
        lua_pushfstring(L, "%s at byte %d", why, (int)offset + 1);
        return 2;
    }
    uint32_t captures = 0;
    pcre2_pattern_info(re->code, PCRE2_INFO_CAPTURECOUNT, &captures);
    re->pairs = captures + 1;
    re->most_text = MAX_COMPARED / count_members(pattern, re->code);
    if (re->most_text > MAX_TEXT_BYTES)
        re->most_text = MAX_TEXT_BYTES;
    account_code(L, 2, re->code, WEIGHT);
    return 1;
}

/* -- matching ------------------------------------------------------------------------------------------------------ */

/* The time limit of one match. */
typedef struct {
    lua_State *L;
    unsigned left;        /* callouts before the next read of the clock */
    size_t at;            /* position in the text at the last callout */
    uint64_t check_at_us; /* CLOCK_MONOTONIC, which is cheap to read: processor time is read from then on */
    uint64_t end_us;      /* processor time of the thread at which the match ends */
} deadline;

/* PCRE2 calls this before each item of the pattern. When another task is ready, the alarm of preempt.h sets a hook:
 * from then on each callout reads the clock, since one item may scan the whole text. */
static int on_callout(pcre2_callout_block *block, void *context)
{
    deadline *d = context;
    bool has_scanned = block->current_position > d->at + SCAN_BYTES_PER_CHECK ||
                       d->at > block->current_position + SCAN_BYTES_PER_CHECK;
    d->at = block->current_position;
    if (--d->left > 0 && !has_scanned && lua_gethook(d->L) == NULL)
        return 0;
    d->left = CALLOUTS_PER_CHECK;
    uint64_t now = mp_monotonic_us();
    if (now < d->check_at_us)
        return 0;
    uint64_t spent_at = mp_clock_us(CLOCK_THREAD_CPUTIME_ID);
    if (spent_at >= d->end_us)
        return PCRE2_ERROR_MATCHLIMIT;
    d->check_at_us = now + d->end_us - spent_at;
    return 0;
}

static int search_guarded(lua_State *L, const regex *re, const matcher *m, pcre2_match_data *data, mp_str text,
                          size_t from)
{
    deadline d = {L, CALLOUTS_PER_CHECK, from, mp_monotonic_us() + MAX_CPU_US,
                  mp_clock_us(CLOCK_THREAD_CPUTIME_ID) + MAX_CPU_US};
    pcre2_set_match_limit(m->context, MAX_MATCH_STEPS);
    pcre2_set_callout(m->context, on_callout, &d);
    int rc = pcre2_match(re->guarded, (PCRE2_SPTR)text.ptr, text.len, from, 0, data, m->context);
    pcre2_set_callout(m->context, NULL, NULL);
    return rc;
}

/* Compiles the regex at 1 with callouts, unless that was done before. False if PCRE2 has no memory.  [-0, +0,
 * throws] */
static bool compile_guarded(lua_State *L, regex *re)
{
    if (re->guarded != NULL)
        return true;
    mp_str text;
    int code;
    PCRE2_SIZE offset;
    lua_getiuservalue(L, 1, TEXT);
    text.ptr = lua_tolstring(L, -1, &text.len);
    re->guarded = compile_pattern(text, PCRE2_AUTO_CALLOUT, &code, &offset);
    lua_pop(L, 1);
    if (re->guarded != NULL)
        account_code(L, 1, re->guarded, GUARDED_WEIGHT);
    return re->guarded != NULL;
}

static regex *check_regex(lua_State *L)
{
    regex *re = luaL_checkudata(L, 1, REGEX);
    luaL_argcheck(L, re->code != NULL, 1, "not a compiled regex");
    return re;
}

/* Matches the regex at 1. Returns the result of pcre2_match; PCRE2_ERROR_MATCHLIMIT also if the match took too long or
 * the text is too long.  [-0, +0, throws] */
static int search_text(lua_State *L, regex *re, const matcher *m, pcre2_match_data *data, mp_str text, size_t from)
{
    if (text.len <= SHORT_TEXT_BYTES) {
        pcre2_set_match_limit(m->context, SHORT_MATCH_STEPS);
        int rc = pcre2_match(re->code, (PCRE2_SPTR)text.ptr, text.len, from, 0, data, m->context);
        if (rc != PCRE2_ERROR_MATCHLIMIT)
            return rc;
    }
    if (text.len > re->most_text || !compile_guarded(L, re))
        return PCRE2_ERROR_MATCHLIMIT;
    return search_guarded(L, re, m, data, text, from);
}

/* nil, why  [-0, +2, throws] */
static int push_failure(lua_State *L, int rc)
{
    bool text_is_bad = (rc <= PCRE2_ERROR_UTF8_ERR1 && rc >= PCRE2_ERROR_UTF8_ERR21) || rc == PCRE2_ERROR_BADUTFOFFSET;
    lua_pushnil(L);
    lua_pushstring(L, text_is_bad ? "not UTF-8" : "limit");
    return 2;
}

/* regex:test(text) -> boolean | nil, why  [throws] */
static int l_test(lua_State *L)
{
    mp_str text;
    text.ptr = luaL_checklstring(L, 2, &text.len);
    regex *re = check_regex(L);
    const matcher *m = lua_touserdata(L, lua_upvalueindex(1));
    int rc = search_text(L, re, m, m->data, text, 0);
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) {
        lua_pushboolean(L, rc >= 0);
        return 1;
    }
    return push_failure(L, rc);
}

/* Pushes `offset` + `more`, or false if the capture group did not take part in the match.  [-0, +1, throws] */
static void push_index(lua_State *L, PCRE2_SIZE offset, lua_Integer more)
{
    if (offset == PCRE2_UNSET)
        lua_pushboolean(L, 0);
    else
        lua_pushinteger(L, (lua_Integer)offset + more);
}

/* `captures`, enlarged to `pairs`. NULL if there is no memory. */
static pcre2_match_data *MP_NULLABLE reserve_captures(matcher *m, uint32_t pairs)
{
    if (m->captures != NULL && m->pairs >= pairs)
        return m->captures;
    pcre2_match_data_free(m->captures);
    m->captures = pcre2_match_data_create(pairs, NULL);
    m->pairs = pairs;
    return m->captures;
}

/* regex:exec(text, n) -> { first, last, … } | false | nil, why  [throws] */
static int l_exec(lua_State *L)
{
    mp_str text;
    text.ptr = luaL_checklstring(L, 2, &text.len);
    lua_Integer from = luaL_checkinteger(L, 3);
    regex *re = check_regex(L);
    matcher *m = lua_touserdata(L, lua_upvalueindex(1));
    luaL_argcheck(L, from >= 1, 3, "the byte position must be 1 or more");
    if ((size_t)from > text.len + 1) {
        lua_pushboolean(L, 0);
        return 1;
    }
    lua_createtable(
        L, (int)re->pairs * 2,
        0); /* created before the match: nothing below allocates, so no finalizer runs that uses the matcher */
    pcre2_match_data *captures = reserve_captures(m, re->pairs);
    if (captures == NULL)
        return luaL_error(L, "not enough memory");
    int rc = search_text(L, re, m, captures, text, (size_t)from - 1);
    if (rc == PCRE2_ERROR_NOMATCH) {
        lua_pushboolean(L, 0);
        return 1;
    }
    if (rc < 0)
        return push_failure(L, rc);
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(captures);
    for (uint32_t i = 0; i < re->pairs; i++) {
        push_index(L, offsets[2 * i], 1);
        lua_rawseti(L, -2, 2 * (lua_Integer)i + 1);
        push_index(L, offsets[2 * i + 1], 0);
        lua_rawseti(L, -2, 2 * (lua_Integer)i + 2);
    }
    return 1;
}

static int regex_gc(lua_State *L)
{
    regex *re = luaL_checkudata(L, 1, REGEX);
    pcre2_code_free(re->code);
    pcre2_code_free(re->guarded);
    re->code = re->guarded = NULL;
    return 0;
}

static int matcher_gc(lua_State *L)
{
    matcher *m = luaL_checkudata(L, 1, MATCHER);
    pcre2_match_data_free(m->data);
    pcre2_match_data_free(m->captures);
    pcre2_match_context_free(m->context);
    *m = (matcher){0};
    return 0;
}

static void push_matcher(lua_State *L)
{
    matcher *m = lua_newuserdatauv(L, sizeof *m, 0);
    *m = (matcher){0};
    if (luaL_newmetatable(L, MATCHER)) {
        mp_field_function(L, "__gc", matcher_gc);
    }
    lua_setmetatable(L, -2);
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    m->data = data;
    pcre2_match_context *context = pcre2_match_context_create(NULL);
    m->context = context;
    if (data == NULL || context == NULL)
        luaL_error(L, "not enough memory");
    pcre2_set_match_limit(m->context, MAX_MATCH_STEPS);
    pcre2_set_depth_limit(m->context, MAX_MATCH_STEPS);
    pcre2_set_heap_limit(m->context, MAX_HEAP_KIB);
}

int mp_lib_regex(lua_State *L)
{
    if (luaL_newmetatable(L, REGEX)) {
        mp_field_function(L, "__gc", regex_gc);
        lua_pushliteral(L, "regex");
        lua_setfield(L, -2, "__metatable");
        lua_createtable(L, 0, 2);
        push_matcher(L);
        lua_pushvalue(L, -1);
        lua_pushcclosure(L, l_test, 1);
        lua_setfield(L, -3, "test");
        lua_pushcclosure(L, l_exec, 1);
        lua_setfield(L, -2, "exec");
        lua_setfield(L, -2, "__index");
    }
    lua_pop(L, 1);

    lua_createtable(L, 0, 1);
    mp_field_function(L, "compile", l_compile);
    return 1;
}

void mp_regex_version(char text[MP_REGEX_VERSION])
{
    if (pcre2_config(PCRE2_CONFIG_VERSION, NULL) > MP_REGEX_VERSION || pcre2_config(PCRE2_CONFIG_VERSION, text) < 0)
        text[0] = '\0';
}
