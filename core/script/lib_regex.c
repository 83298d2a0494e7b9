/* lib_regex.c: `pattern` of JSON Schema: ECMA-262 in Unicode mode, as near as PCRE2 comes to it.
 *
 *   compile(pattern)   -> regex | nil, why
 *   regex:test(text)   -> boolean | nil, "limit" | nil, "not UTF-8"
 *   regex:exec(text, n)  -> { first, last, first of capture 1, … } | false | nil, why: the first match from byte n on
 *
 * A pattern may be foolish and a text hostile: backtracking, memory and time of one test are all bounded. */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "lib_regex.h"
#include "base/base.h"

#include <lauxlib.h>
#include <pcre2.h>
#include <stdint.h>
#include <time.h>

#define REGEX "moonpool.regex"
#define MATCHER "moonpool.regex.matcher"

#define PATTERN_MAX 4096
#define MATCH_LIMIT 20000
#define HEAP_KIB 4096
/* A search that is tied to no place tries every start, so its worst case is quadratic, which PCRE2 does not count. It is
 * made in windows of starts, each about this much scanning, until its time is used up. */
#define WINDOW_WORK ((size_t)1 << 22)
#define WINDOW_NS ((int64_t)50 * 1000 * 1000)

typedef struct {
    pcre2_code *code;
    bool tied;         /* matches at the start of the text or nowhere */
    bool picky;        /* a match begins with a byte of `first`, and is not empty */
    uint8_t first[32]; /* a bit per byte */
    uint32_t pairs;    /* its captures, and the whole match */
} regex;

/* What it needs to run. One for all regexes of a Lua state: its frames are what costs memory. */
typedef struct {
    pcre2_match_data *data, *captures; /* of test, and of exec, once that ran */
    uint32_t pairs;                    /* that `captures` has room for */
    pcre2_match_context *context;
} matcher;

/* Long names of General_Category, which PCRE2 10.42 does not know. */
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

/* The name between the braces of \p{…} as PCRE2 knows it: perhaps shorter, else as it stands. */
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

static void translate(mp_buf *out, mp_str pattern)
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

/* What a match can begin with. A single byte counts in both cases: PCRE2 does not say whether it minds. */
static void learn_start(regex *re)
{
    uint32_t options = 0, type = 0, unit = 0;
    const uint8_t *bitmap = NULL;
    pcre2_pattern_info(re->code, PCRE2_INFO_ALLOPTIONS, &options);
    re->tied = (options & PCRE2_ANCHORED) != 0;
    pcre2_pattern_info(re->code, PCRE2_INFO_FIRSTCODETYPE, &type);
    pcre2_pattern_info(re->code, PCRE2_INFO_FIRSTCODEUNIT, &unit);
    pcre2_pattern_info(re->code, PCRE2_INFO_FIRSTBITMAP, &bitmap);
    if (type == 1 && unit < 0x80) {
        re->picky = true;
        re->first[unit / 8] |= (uint8_t)(1u << unit % 8);
        if ((unit | 0x20) >= 'a' && (unit | 0x20) <= 'z')
            re->first[(unit ^ 0x20) / 8] |= (uint8_t)(1u << (unit ^ 0x20) % 8);
    } else if (type == 0 && bitmap != NULL) {
        re->picky = true;
        memcpy(re->first, bitmap, sizeof re->first);
    }
}

/* What PCRE2 made of a short pattern may be large, and lies where Lua does not count: the regex on top of the stack holds as much
 * of what it does.  [-0, +0, throws] */
static void weigh(lua_State *L, const regex *re)
{
    size_t size = 0;
    pcre2_pattern_info(re->code, PCRE2_INFO_SIZE, &size);
    lua_newuserdatauv(L, size, 0);
    lua_setiuservalue(L, -2, 1);
}

/* compile(pattern) -> regex | nil, why  [throws] */
static int l_compile(lua_State *L)
{
    mp_str pattern;
    pattern.ptr = luaL_checklstring(L, 1, &pattern.len);
    if (pattern.len > PATTERN_MAX) {
        lua_pushnil(L);
        lua_pushfstring(L, "it is longer than %d bytes", PATTERN_MAX);
        return 2;
    }

    regex *re = lua_newuserdatauv(L, sizeof *re, 1);
    *re = (regex){.code = NULL};
    luaL_setmetatable(L, REGEX);

    int code = PCRE2_ERROR_NOMEMORY;
    PCRE2_SIZE offset = 0;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context != NULL) {
        mp_buf text = {0};
        translate(&text, pattern);
        pcre2_set_compile_extra_options(context, PCRE2_EXTRA_ALT_BSUX);
        re->code = pcre2_compile((PCRE2_SPTR)(text.ptr == NULL ? "" : text.ptr), text.len,
                                 PCRE2_UTF | PCRE2_MATCH_UNSET_BACKREF | PCRE2_DOLLAR_ENDONLY |
                                     PCRE2_ALLOW_EMPTY_CLASS | PCRE2_NEVER_BACKSLASH_C | PCRE2_USE_OFFSET_LIMIT,
                                 &code, &offset, context);
        pcre2_compile_context_free(context);
        mp_buf_clear(&text);
    }
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
    learn_start(re);
    weigh(L, re);
    return 1;
}

static int64_t cpu_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The next place from `at` on where a match may begin. */
static size_t next_start(const regex *re, mp_str text, size_t at)
{
    while (at < text.len) {
        unsigned byte = (unsigned char)text.ptr[at];
        if (re->picky ? (re->first[byte / 8] >> byte % 8 & 1) != 0 : (byte & 0xC0) != 0x80)
            break;
        at++;
    }
    return at;
}

/* What pcre2_match gives, or PCRE2_ERROR_MATCHLIMIT when all windows together took too long. */
static int search(const regex *re, const matcher *m, pcre2_match_data *data, mp_str text, size_t from)
{
    size_t window = WINDOW_WORK / (text.len + 1) + 1;
    if (re->tied || window > text.len) {
        pcre2_set_offset_limit(m->context, PCRE2_UNSET);
        return pcre2_match(re->code, (PCRE2_SPTR)text.ptr, text.len, from, 0, data, m->context);
    }
    int64_t deadline = cpu_now() + WINDOW_NS;
    uint32_t options = 0;
    for (size_t start = from; start <= text.len;) {
        size_t last = start + window < text.len ? start + window : text.len;
        pcre2_set_offset_limit(m->context, last);
        int rc = pcre2_match(re->code, (PCRE2_SPTR)text.ptr, text.len, start, options, data, m->context);
        if (rc != PCRE2_ERROR_NOMATCH)
            return rc;
        if (last < text.len && cpu_now() > deadline)
            return PCRE2_ERROR_MATCHLIMIT;
        options = PCRE2_NO_UTF_CHECK; /* the first window looked at all of it */
        start = last == text.len ? last + 1 : next_start(re, text, last + 1);
    }
    return PCRE2_ERROR_NOMATCH;
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
    const regex *re = luaL_checkudata(L, 1, REGEX);
    mp_str text;
    text.ptr = luaL_checklstring(L, 2, &text.len);
    const matcher *m = lua_touserdata(L, lua_upvalueindex(1));
    luaL_argcheck(L, re->code != NULL, 1, "not a compiled regex");

    int rc = search(re, m, m->data, text, 0);
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH) {
        lua_pushboolean(L, rc >= 0);
        return 1;
    }
    return push_failure(L, rc);
}

/* An index of Lua's, or false for a group that took no part.  [-0, +1, throws] */
static void push_index(lua_State *L, PCRE2_SIZE offset, lua_Integer more)
{
    if (offset == PCRE2_UNSET)
        lua_pushboolean(L, 0);
    else
        lua_pushinteger(L, (lua_Integer)offset + more);
}

static bool has_room(matcher *m, uint32_t pairs)
{
    if (m->captures != NULL && m->pairs >= pairs)
        return true;
    pcre2_match_data_free(m->captures);
    m->captures = pcre2_match_data_create(pairs, NULL);
    m->pairs = pairs;
    return m->captures != NULL;
}

/* regex:exec(text, n) -> { first, last, … } | false | nil, why  [throws] */
static int l_exec(lua_State *L)
{
    const regex *re = luaL_checkudata(L, 1, REGEX);
    mp_str text;
    text.ptr = luaL_checklstring(L, 2, &text.len);
    lua_Integer from = luaL_checkinteger(L, 3);
    matcher *m = lua_touserdata(L, lua_upvalueindex(1));
    luaL_argcheck(L, re->code != NULL, 1, "not a compiled regex");
    luaL_argcheck(L, from >= 1, 3, "a byte of the text");
    if ((size_t)from > text.len + 1) {
        lua_pushboolean(L, 0);
        return 1;
    }
    lua_createtable(L, (int)re->pairs * 2,
                    0); /* first: from here on nothing allocates, so no finalizer matches anything */
    if (!has_room(m, re->pairs))
        return luaL_error(L, "not enough memory");
    int rc = search(re, m, m->captures, text, (size_t)from - 1);
    if (rc == PCRE2_ERROR_NOMATCH) {
        lua_pushboolean(L, 0);
        return 1;
    }
    if (rc < 0)
        return push_failure(L, rc);
    const PCRE2_SIZE *offsets = pcre2_get_ovector_pointer(m->captures);
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
    re->code = NULL;
    return 0;
}

static int matcher_gc(lua_State *L)
{
    matcher *m = luaL_checkudata(L, 1, MATCHER);
    pcre2_match_data_free(m->data);
    pcre2_match_data_free(m->captures);
    pcre2_match_context_free(m->context);
    *m = (matcher){.data = NULL};
    return 0;
}

static void push_matcher(lua_State *L)
{
    matcher *m = lua_newuserdatauv(L, sizeof *m, 0);
    *m = (matcher){.data = NULL};
    if (luaL_newmetatable(L, MATCHER)) {
        lua_pushcfunction(L, matcher_gc);
        lua_setfield(L, -2, "__gc");
    }
    lua_setmetatable(L, -2);
    m->data = pcre2_match_data_create(1, NULL);
    m->context = pcre2_match_context_create(NULL);
    if (m->data == NULL || m->context == NULL)
        luaL_error(L, "not enough memory");
    pcre2_set_match_limit(m->context, MATCH_LIMIT);
    pcre2_set_depth_limit(m->context, MATCH_LIMIT);
    pcre2_set_heap_limit(m->context, HEAP_KIB);
}

int mp_lib_regex(lua_State *L)
{
    if (luaL_newmetatable(L, REGEX)) {
        lua_pushcfunction(L, regex_gc);
        lua_setfield(L, -2, "__gc");
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
    lua_pushcfunction(L, l_compile);
    lua_setfield(L, -2, "compile");
    return 1;
}
