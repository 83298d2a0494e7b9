/* index_depth.c: a scanner for Lua tokens that counts indexings. It accepts more than Lua does; the compiler refuses
 * what is not Lua. */
#include "vm/index_depth.h"

#define NESTING 256 /* nested brackets; Lua's parser refuses more than 200 */

typedef enum { NOTHING, NAME, DOT, OTHER } token; /* the kind of the last token; NAME: a token that a call may follow */

typedef struct {
    const char *at, *end;
    int line;
    token last;
    unsigned run;            /* number of indexings of the expression that is being read */
    unsigned depth;          /* number of open brackets of all kinds */
    unsigned outer[NESTING]; /* value of `run` before each open bracket */
    bool is_call[NESTING];   /* for each open bracket: true if it is a call's, whose result is another expression */
} scanner;

static bool is_name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

/* The level of the long bracket that opens at s->at; -1 if there is none. */
static int long_level(const scanner *s)
{
    const char *p = s->at + 1;
    while (p < s->end && *p == '=')
        p++;
    return p < s->end && *p == '[' ? (int)(p - s->at) - 1 : -1;
}

static void skip_long(scanner *s, int level)
{
    for (s->at += level + 2; s->at < s->end; s->at++) {
        s->line += *s->at == '\n';
        if (*s->at != ']')
            continue;
        const char *p = s->at + 1;
        while (p < s->end && *p == '=')
            p++;
        if (p < s->end && *p == ']' && p - s->at - 1 == level) {
            s->at = p + 1;
            return;
        }
    }
}

static void skip_text(scanner *s)
{
    char quote = *s->at++;
    for (; s->at < s->end && *s->at != quote; s->at++) {
        if (*s->at == '\\' && s->at + 1 < s->end)
            s->at++;
        s->line += *s->at == '\n';
    }
    s->at += s->at < s->end;
}

static void skip_comment(scanner *s)
{
    s->at += 2;
    int level = s->at < s->end && *s->at == '[' ? long_level(s) : -1;
    if (level >= 0) {
        skip_long(s, level);
        return;
    }
    while (s->at < s->end && *s->at != '\n')
        s->at++;
}

static void open_bracket(scanner *s, bool is_call)
{
    if (s->depth < NESTING) {
        s->outer[s->depth] = s->run;
        s->is_call[s->depth] = is_call;
    }
    s->depth++;
    s->run = 0;
    s->last = OTHER;
}

/* Continues the expression after a closing bracket: of a call, of parentheses, or of an index. */
static void close_bracket(scanner *s, char bracket)
{
    s->last = NAME;
    if (s->depth == 0)
        return;
    if (--s->depth >= NESTING)
        return;
    if (bracket == ']')
        s->run += s->outer[s->depth] + 1;
    else if (bracket == '}' || s->is_call[s->depth])
        s->run = 0;
}

static void read_name(scanner *s)
{
    if (s->last != DOT)
        s->run = 0; /* a new expression, a keyword or a number */
    while (s->at < s->end && is_name_byte(*s->at))
        s->at++;
    s->last = NAME;
}

static void read_dot(scanner *s)
{
    bool is_field = s->at + 1 == s->end || s->at[1] != '.';
    if (is_field) {
        s->run++;
        s->last = DOT;
        s->at++;
        return;
    }
    while (s->at < s->end && *s->at == '.')
        s->at++;
    s->run = 0;
    s->last = OTHER;
}

static void read_token(scanner *s)
{
    char c = *s->at;
    if (c == '\n' || c == ' ' || c == '\t' || c == '\r' || c == '\f' || c == '\v') {
        s->line += c == '\n';
        s->at++;
    } else if (is_name_byte(c)) {
        read_name(s);
    } else if (c == '-' && s->at + 1 < s->end && s->at[1] == '-') {
        skip_comment(s);
    } else if (c == '"' || c == '\'' || (c == '[' && long_level(s) >= 0)) {
        if (c == '[')
            skip_long(s, long_level(s));
        else
            skip_text(s);
        s->run = 0;
        s->last = NAME;
    } else if (c == '.') {
        read_dot(s);
    } else if (c == '(' || c == '[' || c == '{') {
        open_bracket(s, c == '(' && s->last == NAME);
        s->at++;
    } else if (c == ')' || c == ']' || c == '}') {
        close_bracket(s, c);
        s->at++;
    } else {
        s->run = 0;
        s->last = OTHER;
        s->at++;
    }
}

int mp_chain_find(mp_str text)
{
    scanner s = {.at = text.ptr, .end = text.ptr + text.len, .line = 1};
    while (s.at < s.end) {
        read_token(&s);
        if (s.run > MP_MAX_CHAIN)
            return s.line;
    }
    return 0;
}
