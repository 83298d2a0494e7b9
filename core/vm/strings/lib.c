/* lib.c: string.find, match, gmatch and gsub on the matcher of match.c. The state of a search is on the C stack until
 * the task yields, and then in a userdata. */
#include "vm/strings/match.h"
#include <lauxlib.h>

#define MAX_MARKS 500000 /* "%" in a replacement, which is read in one step: 30 ms */
#define MARKS_A_STEP 4   /* of them take about as long as a step of the search */
#define SLOTS 8          /* stack slots for captures that Lua guarantees */

static mp_str check_text(lua_State *L, int arg)
{
    mp_str text;
    text.ptr = luaL_checklstring(L, arg, &text.len);
    return text;
}

/* Where to begin: the optional `arg` counts from 1, or from the end if it is negative. Beyond the end the result is
 * len + 1. */
static size_t check_start(lua_State *L, int arg, size_t len)
{
    lua_Integer at = luaL_optinteger(L, arg, 1);
    if (at > 0)
        return (lua_Unsigned)at - 1 > len ? len + 1 : (size_t)at - 1;
    if (at == 0 || at < -(lua_Integer)len)
        return 0;
    return len - (size_t)-at;
}

/* -- captures ---------------------------------------------------------------------------------------------------- */

/* Returns capture `which`, counted from 0; the whole match if the pattern has no captures. A position capture has
 * the length MP_CAPTURE_POSITION. [-0, +0, throws] */
static mp_pattern_capture get_capture(mp_pattern *m, int which, const char *start, const char *end)
{
    if (which >= m->level) {
        if (which != 0) {
            mp_pattern_charge(m);
            luaL_error(m->L, "invalid capture index %%%d", which + 1);
        }
        return (mp_pattern_capture){start, end - start};
    }
    if (m->captures[which].len == MP_CAPTURE_OPEN) {
        mp_pattern_charge(m);
        luaL_error(m->L, "unfinished capture");
    }
    return m->captures[which];
}

static void push_capture(mp_pattern *m, int which, const char *start, const char *end)
{
    mp_pattern_capture capture = get_capture(m, which, start, end);
    if (capture.len == MP_CAPTURE_POSITION)
        lua_pushinteger(m->L, capture.from - m->text + 1);
    else
        lua_pushlstring(m->L, capture.from, (size_t)capture.len);
}

/* Pushes all captures, and returns their number. Without captures, pushes the whole match if `counts` is true. [-0,
 * +n, throws] */
static int push_captures(mp_pattern *m, const char *start, const char *end, bool counts)
{
    int count = m->level == 0 && counts ? 1 : m->level;
    if (count > SLOTS)
        luaL_checkstack(m->L, count, "too many captures");
    for (int i = 0; i < count; i++)
        push_capture(m, i, start, end);
    return count;
}

/* -- a search ---------------------------------------------------------------------------------------------------- */

/* Pushes the results of a search. `end` is NULL if nothing was found.  [-0, +n, throws] */
typedef int search_end(mp_pattern *m, const char *start, const char *MP_NULLABLE end);

/* A search during which other tasks may run. */
typedef struct {
    mp_pattern m;
    mp_pattern_capture captures[MP_PATTERN_CAPTURES];
    const char *start, *MP_NULLABLE last;
    search_end *then;
} long_search;

static int go_on(MP_UNUSED lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    long_search *search = (long_search *)context;
    const char *end = mp_pattern_search(&search->m, &search->start, search->last);
    if (end == mp_pattern_paused)
        return mp_pattern_yield(&search->m, context, go_on);
    mp_pattern_charge(&search->m);
    return search->then(&search->m, search->start, end);
}

/* Copies the search from the C stack to a userdata, and yields.  [-0, +n, throws, yields] */
static int leave_search(const mp_pattern *m, const char *start, const char *MP_NULLABLE last, search_end *then)
{
    long_search *search = lua_newuserdatauv(m->L, sizeof *search, 0);
    search->m = *m;
    search->m.captures = memcpy(search->captures, m->captures, (size_t)m->level * sizeof *m->captures);
    search->start = start;
    search->last = last;
    search->then = then;
    return mp_pattern_yield(&search->m, (lua_KContext)search, go_on);
}

/* -- find and match ---------------------------------------------------------------------------------------------- */

static int push_place(lua_State *L, const char *text, const char *start, const char *end)
{
    lua_pushinteger(L, start - text + 1);
    lua_pushinteger(L, end - text);
    return 2;
}

static int end_find(mp_pattern *m, const char *start, const char *MP_NULLABLE end)
{
    if (end == NULL) {
        lua_pushnil(m->L);
        return 1;
    }
    return push_place(m->L, m->text, start, end) + push_captures(m, start, end, false);
}

static int end_match(mp_pattern *m, const char *start, const char *MP_NULLABLE end)
{
    if (end == NULL) {
        lua_pushnil(m->L);
        return 1;
    }
    return push_captures(m, start, end, true);
}

static int find_pattern(lua_State *L, bool wants_place)
{
    mp_str text = check_text(L, 1), pattern = check_text(L, 2);
    size_t at = check_start(L, 3, text.len);
    if (at > text.len) {
        lua_pushnil(L);
        return 1;
    }
    if (wants_place && (mp_pattern_is_literal(pattern) || lua_toboolean(L, 4))) {
        const char *start = mp_pattern_find_plain(text, at, pattern);
        if (start != NULL)
            return push_place(L, text.ptr, start, start + pattern.len);
        lua_pushnil(L);
        return 1;
    }
    mp_pattern m;
    mp_pattern_capture captures[MP_PATTERN_CAPTURES];
    mp_pattern_init(&m, mp_string_limits_of(L), text, pattern, true);
    mp_pattern_begin(&m, L, captures);
    const char *start = text.ptr + at, *end = mp_pattern_search(&m, &start, NULL);
    search_end *then = wants_place ? end_find : end_match;
    if (end == mp_pattern_paused)
        return leave_search(&m, start, NULL, then);
    mp_pattern_charge(&m);
    return then(&m, start, end);
}

/* string.find(s, pattern [, init [, plain]])  [-0, +n, throws] */
static int l_find(lua_State *L)
{
    return find_pattern(L, true);
}

/* string.match(s, pattern [, init])  [-0, +n, throws] */
static int l_match(lua_State *L)
{
    return find_pattern(L, false);
}

/* -- gmatch ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const char *at, *MP_NULLABLE last; /* position where the search continues; end of the last match */
    mp_pattern m;
} iterator;

/* Several coroutines may use one iterator at once: the iterator does not change while a search is suspended. */
static int end_gmatch(mp_pattern *m, const char *start, const char *MP_NULLABLE end)
{
    if (end == NULL)
        return 0;
    iterator *it = lua_touserdata(m->L, lua_upvalueindex(4));
    it->at = it->last = end;
    return push_captures(m, start, end, true);
}

static int gmatch_next(lua_State *L)
{
    iterator *it = lua_touserdata(L, lua_upvalueindex(4));
    if (it->at > it->m.text_end)
        return 0;
    mp_pattern_capture captures[MP_PATTERN_CAPTURES];
    mp_pattern_begin(&it->m, L, captures);
    const char *start = it->at, *end = mp_pattern_search(&it->m, &start, it->last);
    if (end == mp_pattern_paused)
        return leave_search(&it->m, start, it->last, end_gmatch);
    mp_pattern_charge(&it->m);
    return end_gmatch(&it->m, start, end);
}

/* string.gmatch(s, pattern [, init])  [-0, +1, throws] */
static int l_gmatch(lua_State *L)
{
    mp_str text = check_text(L, 1), pattern = check_text(L, 2);
    size_t at = check_start(L, 3, text.len);
    lua_settop(L, 2);
    lua_pushvalue(L, lua_upvalueindex(1));
    lua_insert(L, 1);
    iterator *it = lua_newuserdatauv(L, sizeof *it, 0);
    mp_pattern_init(&it->m, mp_string_limits_of(L), text, pattern, false);
    it->at = text.ptr + at;
    it->last = NULL;
    lua_pushcclosure(L, gmatch_next, 4);
    return 1;
}

/* -- gsub -------------------------------------------------------------------------------------------------------- */

/* The slots of gsub's stack: behind the arguments, the text that is being built. If the replacement is a function,
 * which may wait, and after a yield, the substitution is in a userdata behind that. */
enum { TEXT = 1, PATTERN, BY, MOST, BOX, LASTING };

typedef struct {
    mp_pattern m;
    mp_pattern_capture captures[MP_PATTERN_CAPTURES];
    const char *at, *MP_NULLABLE last; /* position where the search continues; end of the last match */
    const char *copied;                /* the text is in `out` up to this position */
    const char *match, *behind;        /* the match that is being replaced */
    lua_Integer count, most;
    int by;
    int marks; /* "%" in the text of the replacement */
    bool is_changed, is_lasting;
    mp_string_out out;
} substitution;

/* A substitution that survives a yield, in the slot LASTING. The second upvalue caches one for the next call. [-0,
 * +1, throws] */
static substitution *take_lasting(lua_State *L)
{
    substitution *kept = lua_touserdata(L, lua_upvalueindex(2));
    if (kept == NULL)
        return lua_newuserdatauv(L, sizeof *kept, 0);
    lua_pushvalue(L, lua_upvalueindex(2));
    lua_pushnil(L);
    lua_replace(L, lua_upvalueindex(2));
    return kept;
}

static void give_lasting(lua_State *L)
{
    lua_pushvalue(L, LASTING);
    lua_replace(L, lua_upvalueindex(2));
}

/* Moves the substitution from the C stack to the userdata. [-0, +1, throws] */
static substitution *make_lasting(lua_State *L, const substitution *here)
{
    substitution *sub = take_lasting(L);
    lua_insert(L, LASTING);
    *sub = *here;
    sub->m.captures = sub->captures;
    if (here->out.ptr == here->out.start)
        sub->out.ptr = sub->out.start;
    sub->is_lasting = true;
    return sub;
}

/* Appends the text between the last replacement and the match. */
static void keep_substitution(lua_State *L, substitution *sub)
{
    mp_string_out_put(L, &sub->out, sub->copied, (size_t)(sub->match - sub->copied));
    sub->copied = sub->behind;
    sub->is_changed = true;
}

/* The number of "%" in the text of the replacement.  [-0, +0, throws] */
static int count_marks(lua_State *L)
{
    mp_str by = check_text(L, BY);
    int count = 0;
    for (const char *at; (at = memchr(by.ptr, '%', by.len)) != NULL; by = mp_str_from(by, (size_t)(at - by.ptr) + 1))
        if (++count > MAX_MARKS)
            luaL_error(L, "a replacement may have at most %d times \"%%\"", MAX_MARKS);
    return count;
}

/* The replacement is a text with %0 to %9. */
static void put_text(lua_State *L, substitution *sub)
{
    sub->m.left -= sub->marks / MARKS_A_STEP;
    mp_str by;
    by.ptr = lua_tolstring(L, BY, &by.len);
    keep_substitution(L, sub);
    for (const char *mark; (mark = memchr(by.ptr, '%', by.len)) != NULL;) {
        size_t before = (size_t)(mark - by.ptr);
        char which = mark[1]; /* a zero at the end of the text */
        mp_string_out_put(L, &sub->out, by.ptr, before);
        by = mp_str_from(by, before + 1);
        if (which == '%') {
            mp_string_out_put(L, &sub->out, "%", 1);
        } else if (which == '0') {
            mp_string_out_put(L, &sub->out, sub->match, (size_t)(sub->behind - sub->match));
        } else if (which >= '1' && which <= '9') {
            mp_pattern_capture capture = get_capture(&sub->m, which - '1', sub->match, sub->behind);
            if (capture.len == MP_CAPTURE_POSITION) {
                char number[24];
                int len = snprintf(number, sizeof number, "%td", capture.from - sub->m.text + 1);
                mp_string_out_put(L, &sub->out, number, (size_t)len);
            } else {
                mp_string_out_put(L, &sub->out, capture.from, (size_t)capture.len);
            }
        } else {
            mp_pattern_charge(&sub->m);
            luaL_error(L, "invalid use of '%c' in replacement string", '%');
        }
        by = mp_str_from(by, 1);
    }
    mp_string_out_put(L, &sub->out, by.ptr, by.len);
}

/* Appends the replacement that a table or a function gave, on top: a text; or false or nil, and then the match stays
 * unchanged. [-1, +0, throws] */
static void put_value(lua_State *L, substitution *sub)
{
    if (lua_isstring(L, -1)) {
        size_t len;
        const char *text = lua_tolstring(L, -1, &len);
        keep_substitution(L, sub);
        mp_string_out_put(L, &sub->out, text, len);
    } else if (lua_toboolean(L, -1)) {
        luaL_error(L, "invalid replacement value (a %s)", luaL_typename(L, -1));
    }
    lua_pop(L, 1);
}

static int gsub_back(lua_State *L, int status, lua_KContext context);
static int gsub_again(lua_State *L, int status, lua_KContext context);

/* Continues the substitution to its end.  [-0, +2, throws, parks] */
static int substitute_matches(lua_State *L, substitution *sub)
{
    while (sub->count < sub->most && !(sub->m.is_anchored && sub->last != NULL)) {
        const char *start = sub->at, *end = mp_pattern_search(&sub->m, &start, sub->last);
        if (end == mp_pattern_paused) {
            sub->at = start;
            if (!sub->is_lasting)
                sub = make_lasting(L, sub);
            return mp_pattern_yield(&sub->m, (lua_KContext)sub, gsub_again);
        }
        if (end == NULL)
            break;
        sub->count++;
        sub->match = start;
        sub->at = sub->last = sub->behind = end;
        if (sub->by == LUA_TFUNCTION) {
            mp_pattern_charge(&sub->m);
            lua_pushvalue(L, BY);
            lua_callk(L, push_captures(&sub->m, start, end, true), 1, (lua_KContext)sub, gsub_back);
            put_value(L, sub);
        } else if (sub->by == LUA_TTABLE) {
            push_capture(&sub->m, 0, start, end);
            lua_gettable(L, BY);
            put_value(L, sub);
        } else {
            put_text(L, sub);
        }
    }
    mp_pattern_charge(&sub->m);
    if (sub->is_lasting)
        give_lasting(L);
    if (sub->is_changed) {
        mp_string_out_put(L, &sub->out, sub->copied, (size_t)(sub->m.text_end - sub->copied));
        lua_pushlstring(L, sub->out.ptr, sub->out.len);
    } else {
        lua_pushvalue(L, TEXT);
    }
    lua_pushinteger(L, sub->count);
    return 2;
}

static int gsub_back(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    substitution *sub = (substitution *)context;
    put_value(L, sub);
    return substitute_matches(L, sub);
}

static int gsub_again(lua_State *L, MP_UNUSED int status, lua_KContext context)
{
    return substitute_matches(L, (substitution *)context);
}

/* string.gsub(s, pattern, by [, most])  [-0, +2, throws, parks] */
static int l_gsub(lua_State *L)
{
    mp_str text = check_text(L, TEXT), pattern = check_text(L, PATTERN);
    int by = lua_type(L, BY);
    lua_Integer most = luaL_optinteger(L, MOST, (lua_Integer)text.len + 1);
    luaL_argexpected(L, by == LUA_TNUMBER || by == LUA_TSTRING || by == LUA_TTABLE || by == LUA_TFUNCTION, BY,
                     "string/function/table");
    lua_settop(L, MOST);
    lua_pushnil(L);
    substitution here, *sub = &here;
    if (by == LUA_TFUNCTION)
        sub = take_lasting(L);
    sub->is_lasting = by == LUA_TFUNCTION;
    mp_pattern_init(&sub->m, mp_string_limits_of(L), text, pattern, true);
    mp_pattern_begin(&sub->m, L, sub->captures);
    mp_string_out_init(&sub->out, BOX);
    sub->at = sub->copied = text.ptr;
    sub->last = NULL;
    sub->count = 0;
    sub->most = most;
    sub->by = by;
    sub->marks = by == LUA_TSTRING ? count_marks(L) : 0;
    sub->m.budget += sub->marks / MARKS_A_STEP; /* one replacement may be of any length */
    sub->m.left += sub->marks / MARKS_A_STEP;
    sub->is_changed = false;
    return substitute_matches(L, sub);
}

/* -- opening ----------------------------------------------------------------------------------------------------- */

mp_string_limits *mp_lib_string(lua_State *L, int strings, int tables, int64_t steps, size_t bytes)
{
    static const mp_string_turns none = {.every = INT64_MAX};
    static const luaL_Reg functions[] = {{"find", l_find}, {"match", l_match}, {"gmatch", l_gmatch}, {NULL, NULL}};
    strings = lua_absindex(L, strings);
    tables = lua_absindex(L, tables);
    mp_string_limits *limits = lua_newuserdatauv(L, sizeof *limits, 0);
    *limits = (mp_string_limits){steps, bytes, 0, &none};
    lua_pushvalue(L, strings);
    lua_pushvalue(L, -2);
    luaL_setfuncs(L, functions, 1);
    lua_pushvalue(L, -2);
    lua_pushnil(L);
    lua_pushcclosure(L, l_gsub, 2);
    lua_setfield(L, -2, "gsub");
    lua_pop(L, 1);
    mp_lib_string_make(L, strings, tables, lua_gettop(L));
    lua_pop(L, 1);
    return limits;
}
