/* yaml_secrets.c: which bytes of a configuration file no report may quote: values of keys whose names say that they are
 * secret, users, passwords and queries of URLs, values of options such as --token, and texts that look like the keys of
 * known services. Reads the text itself and not its tree, because a file that is no valid YAML has none. It hides too
 * much where it cannot tell. */
#define _GNU_SOURCE 1 /* for memmem */
#include "read.h"

#define LEAST_KEY 19 /* bytes of a text that may be the key of a known service */

typedef struct {
    mp_str text;
    char *hidden;  /* one for each byte of `text` */
    size_t depth;  /* number of open { and [ */
    size_t column; /* column of the first character of the line that is not a space; in a list item, of the first one
                      after '-' */
} scan;

static bool is_break(char c)
{
    return c == '\n' || c == '\r';
}

static bool is_word(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '-' ||
           c == '.';
}

static bool is_quote(char c)
{
    return c == '"' || c == '\'';
}

static char at(const scan *s, size_t i)
{
    return i < s->text.len ? s->text.ptr[i] : '\n';
}

static size_t skip_spaces(const scan *s, size_t i)
{
    while (i < s->text.len && (s->text.ptr[i] == ' ' || s->text.ptr[i] == '\t'))
        i++;
    return i;
}

static size_t end_of_line(const scan *s, size_t i)
{
    while (i < s->text.len && !is_break(s->text.ptr[i]))
        i++;
    return i;
}

/* The place of the quote that ends the text whose first quote is at `i`; the end of the file if there is none. */
static size_t end_of_quoted(const scan *s, size_t i)
{
    char quote = s->text.ptr[i];
    for (i++; i < s->text.len; i++) {
        if (quote == '"' && s->text.ptr[i] == '\\')
            i++;
        else if (s->text.ptr[i] == quote && quote == '\'' && at(s, i + 1) == quote)
            i++;
        else if (s->text.ptr[i] == quote)
            return i;
    }
    return s->text.len;
}

static void hide_span(scan *s, size_t from, size_t to)
{
    for (size_t i = from; i < to && i < s->text.len; i++)
        s->hidden[i] = !is_break(s->text.ptr[i]);
}

/* The place behind the ':' of a key that begins at `i`, and its name; 0 if there is no key. */
static size_t read_key(const scan *s, size_t i, mp_str *name)
{
    size_t from = i, end = i;
    if (is_quote(at(s, i))) {
        from++;
        end = end_of_quoted(s, i);
        i = end + 1;
    } else {
        while (i < s->text.len && is_word(s->text.ptr[i]))
            i++;
        end = i;
    }
    if (end <= from || end > s->text.len)
        return 0;
    i = skip_spaces(s, i);
    char next = at(s, i + 1);
    if (at(s, i) != ':' || i >= s->text.len || !(next == ' ' || next == '\t' || is_break(next)))
        return 0;
    *name = (mp_str){s->text.ptr + from, end - from};
    return i + 1;
}

static bool is_end(const scan *s, char c)
{
    return is_break(c) || (s->depth > 0 && (c == ',' || c == '}' || c == ']'));
}

/* True for a time such as 10m, as below sign_in.tokens: no secret is that short. */
static bool is_time(mp_str text)
{
    size_t digits = 0;
    while (digits < text.len && text.ptr[digits] >= '0' && text.ptr[digits] <= '9')
        digits++;
    mp_str unit = mp_str_from(text, digits);
    return digits > 0 && digits <= 4 &&
           (mp_str_is(unit, "ms") || (unit.len == 1 && memchr("smhd", *unit.ptr, 4) != NULL));
}

/* Hides the scalar at `i`; the place behind it. */
static size_t hide_scalar(scan *s, size_t i)
{
    size_t end = i;
    if (is_quote(at(s, i))) {
        end = end_of_quoted(s, i);
        hide_span(s, i + 1, end);
        return end + 1;
    }
    while (!is_end(s, at(s, end)) && !(end > i && at(s, end) == '#' && at(s, end - 1) == ' '))
        end++;
    if (!is_time(mp_str_trim((mp_str){s->text.ptr + i, end - i})))
        hide_span(s, i, end);
    return end;
}

/* Hides the scalars of the list or map at `i`, but no keys; the place behind it. */
static size_t hide_flow(scan *s, size_t i)
{
    size_t before = s->depth;
    mp_str name;
    do {
        char c = at(s, i);
        size_t behind;
        if (i >= s->text.len) {
            break;
        } else if (c == '{' || c == '[') {
            s->depth++;
            i++;
        } else if (c == '}' || c == ']') {
            s->depth--;
            i++;
        } else if (c == ' ' || c == ',' || c == '\t' || is_break(c)) {
            i++;
        } else {
            behind = read_key(s, i, &name);
            i = behind > 0 ? skip_spaces(s, behind) : i;
            if (at(s, i) != '{' && at(s, i) != '[' && !is_end(s, at(s, i)))
                i = hide_scalar(s, i);
        }
    } while (s->depth > before);
    return i;
}

/* Hides the values of the lines after that of `i` which are further in than `column`, or are items of a list at it. */
static size_t hide_block(scan *s, size_t i, size_t column)
{
    mp_str name;
    for (i = end_of_line(s, i); i < s->text.len;) {
        size_t begin = i + 1, first = skip_spaces(s, begin);
        bool is_empty = first >= s->text.len || is_break(at(s, first));
        bool is_item = at(s, first) == '-' && (at(s, first + 1) == ' ' || is_break(at(s, first + 1)));
        if (!is_empty && first - begin < column + (is_item ? 0 : 1))
            return i;
        while (at(s, first) == '-' && at(s, first + 1) == ' ')
            first = skip_spaces(s, first + 1);
        size_t behind = is_empty ? 0 : read_key(s, first, &name);
        first = behind > 0 ? skip_spaces(s, behind) : first;
        if (at(s, first) == '{' || at(s, first) == '[')
            first = hide_flow(s, first);
        else if (!is_empty && !is_break(at(s, first)))
            first = hide_scalar(s, first);
        i = end_of_line(s, first);
    }
    return i;
}

static bool is_one_of(mp_str name, const char *const *list)
{
    while (*list != NULL && !mp_str_is(name, *list))
        list++;
    return *list != NULL;
}

/* Continues after the ':' of a key, and hides its value if the key's name is a secret's. */
static size_t take_value(scan *s, mp_str name, size_t i)
{
    static const char *const lists[] = {"seal_keys", "bearer", "basic", "header", NULL}, *const maps[] = {
                                                                                             "tokens", "env", "headers",
                                                                                             NULL};
    bool is_secret = mp_config_names_secret(name) || is_one_of(name, lists), is_map = is_one_of(name, maps);
    i = skip_spaces(s, i);
    char c = at(s, i);
    if (!is_secret && !is_map)
        return i;
    if (c == '{' || c == '[')
        return (c == '{' && is_map) || (c == '[' && is_secret) ? hide_flow(s, i) : i;
    if (is_break(c) || c == '#' || c == '|' || c == '>') {
        size_t next = skip_spaces(s, end_of_line(s, i) + 1);
        bool is_list = at(s, next) == '-' && at(s, next + 1) == ' ';
        return s->depth == 0 && (c == '|' || c == '>' || (is_list ? is_secret : is_map)) ? hide_block(s, i, s->column)
                                                                                         : i;
    }
    return is_secret ? hide_scalar(s, i) : i;
}

/* Hides the scalar after the option of a program that is called so, as in "--token", "value". */
static size_t hide_next(scan *s, size_t i)
{
    while (i < s->text.len && (is_quote(s->text.ptr[i]) || s->text.ptr[i] == ',' || s->text.ptr[i] == ' ' ||
                               is_break(s->text.ptr[i]) || (s->text.ptr[i] == '-' && at(s, i + 1) == ' ')))
        i++;
    size_t end = i;
    while (end < s->text.len && !is_quote(s->text.ptr[end]) && s->text.ptr[end] != ',' && s->text.ptr[end] != ']' &&
           !is_break(s->text.ptr[end]))
        end++;
    hide_span(s, i, end);
    return end;
}

static void scan_keys(scan *s)
{
    bool begins = true; /* a scalar or a key can begin here */
    size_t line = 0;
    s->column = 0;
    for (size_t i = 0; i < s->text.len;) {
        char c = s->text.ptr[i];
        mp_str name;
        size_t behind;
        if (is_break(c)) {
            begins = true;
            line = ++i;
            s->column = skip_spaces(s, i) - line;
        } else if (c == ' ' || c == '\t' || c == ',' || (c == '-' && at(s, i + 1) == ' ')) {
            if (c == '-' && s->depth == 0)
                s->column = skip_spaces(s, i + 1) - line;
            begins = true;
            i++;
        } else if (c == '#' && begins) {
            i = end_of_line(s, i);
        } else if (c == '{' || c == '[') {
            s->depth++;
            i++;
        } else if (c == '}' || c == ']') {
            s->depth -= s->depth > 0;
            i++;
        } else if (begins && (behind = read_key(s, i, &name)) > 0) {
            i = take_value(s, name, behind);
            begins = true;
        } else {
            size_t end = is_quote(c) && begins ? end_of_quoted(s, i) : i;
            if (end == i)
                while (end < s->text.len && is_word(s->text.ptr[end]))
                    end++;
            mp_str word = {s->text.ptr + i + is_quote(c), end - i - (end > i && is_quote(c) ? 1 : 0)};
            bool is_option = mp_str_starts(word, MP_STR("-")) && at(s, end) != '=' && mp_config_names_secret(word) &&
                             memchr(word.ptr, '=', word.len) == NULL;
            i = is_option ? hide_next(s, end) : end > i ? end + (is_quote(c) && end < s->text.len) : i + 1;
            begins = false;
        }
    }
}

static bool ends_url(char c)
{
    return is_break(c) || c == ' ' || is_quote(c);
}

/* Hides the query at each '?' that a name and '=' follow: text without a scheme may be a URL, too. */
static void hide_queries(scan *s)
{
    for (size_t i = 0, end; i < s->text.len; i = end + 1) {
        for (end = i; end < s->text.len && s->text.ptr[end] != '?'; end++)
            ;
        size_t from = end + 1, name = from;
        while (is_word(at(s, name)))
            name++;
        if (name == from || at(s, name) != '=')
            continue;
        for (end = name; end < s->text.len && !ends_url(s->text.ptr[end]); end++)
            ;
        hide_span(s, from, end);
    }
}

/* Hides what may be user and password in an address with an '@' at `at_sign`. Without a scheme it is an address if
 * there is a ':' before the '@', or a port or a path behind it: a mail address is shown. */
static void hide_user(scan *s, size_t from, size_t at_sign, size_t end)
{
    while (from < at_sign && strchr("\"'[{(,", s->text.ptr[from]) != NULL)
        from++;
    mp_str user = {s->text.ptr + from, at_sign - from};
    const char *scheme = memmem(user.ptr, user.len, "://", 3);
    bool is_address = scheme != NULL || memchr(user.ptr, ':', user.len) != NULL || mp_str_starts(user, MP_STR("//"));
    for (size_t i = at_sign + 1; i < end && !is_address; i++)
        is_address = s->text.ptr[i] == '/' || (s->text.ptr[i] == ':' && at(s, i + 1) >= '0' && at(s, i + 1) <= '9');
    if (scheme != NULL)
        from = (size_t)(scheme - s->text.ptr) + 3;
    else if (mp_str_starts(user, MP_STR("//")))
        from += 2;
    if (is_address)
        hide_span(s, from, at_sign);
}

/* Hides users and passwords of addresses, with and without a scheme. A space ends an address, unless it is in quotes:
 * a password may have any character. */
static void hide_users(scan *s)
{
    for (size_t i = 0, end; i < s->text.len; i = end + 1) {
        size_t at_sign = i;
        char quote = '\0', before = ' ', c;
        for (end = i; end < s->text.len && !is_break(c = s->text.ptr[end]) && (quote != '\0' || c != ' '); end++) {
            if (quote == '\0' && is_quote(c) && !is_word(before))
                quote = c;
            else if (c == quote && !is_word(at(s, end + 1)))
                quote = '\0';
            if (c == '@')
                at_sign = end;
            before = c;
        }
        if (at_sign > i)
            hide_user(s, i, at_sign, end);
    }
}

/* Hides user, password and query of addresses, and what looks like the key of a known service. */
static void scan_texts(scan *s)
{
    mp_str all = s->text;
    const char *found = all.ptr;
    while (found != NULL && (found = memmem(found, all.len - (size_t)(found - all.ptr), "://", 3)) != NULL) {
        size_t end = (size_t)(found - all.ptr) + 3, query = 0;
        for (; end < all.len && !ends_url(all.ptr[end]); end++)
            if (all.ptr[end] == '?' && query == 0)
                query = end;
        if (query > 0)
            hide_span(s, query + 1, end);
        found = all.ptr + end;
    }
    hide_users(s);
    hide_queries(s);
    for (size_t i = 0, end; i < all.len; i = end + 1) {
        for (end = i; end < all.len && (is_word(all.ptr[end]) || all.ptr[end] == '='); end++)
            ;
        if (end - i >= LEAST_KEY && mp_config_is_secret((mp_str){all.ptr + i, end - i}))
            hide_span(s, i, end);
    }
}

/* Shows the names of variables and files again, as in ${NAME} and ${file:/path}, but no text to use where there is
 * none, as in ${NAME:-text}. */
static void show_names(scan *s)
{
    mp_str all = s->text;
    for (const char *found = all.ptr; (found = memmem(found, all.len - (size_t)(found - all.ptr), "${", 2)) != NULL;) {
        size_t from = (size_t)(found - all.ptr), end = from + 2;
        while (end < all.len &&
               (is_word(all.ptr[end]) || all.ptr[end] == '/' || (all.ptr[end] == ':' && at(s, end + 1) != '-')))
            end++;
        if (at(s, end) == '}')
            memset(s->hidden + from, 0, end + 1 - from);
        found = all.ptr + end;
    }
}

char *mp_yaml_secrets(mp_str text)
{
    scan s = {.text = text, .hidden = mp_new(text.len + 1)};
    if (text.len > 0) {
        scan_keys(&s);
        scan_texts(&s);
        show_names(&s);
    }
    return s.hidden;
}

bool mp_config_has_secret(mp_str text)
{
    if (text.len == 0)
        return false;
    scan s = {.text = text, .hidden = mp_new(text.len + 1)};
    scan_texts(&s);
    bool found = memchr(s.hidden, 1, text.len) != NULL;
    free(s.hidden);
    /* scan_texts ends a URL at a space, which a password may have */
    return found || (memmem(text.ptr, text.len, "://", 3) != NULL && memchr(text.ptr, '@', text.len) != NULL);
}

/* True if `part` is the beginning of the hidden text at a place of the line. An escape in the file, such as \n, may
 * stand for any byte that follows. */
static bool is_hidden_part(mp_str line, const char *hidden, mp_str part)
{
    for (size_t i = 0; part.len > 0 && i < line.len; i++) {
        size_t same = 0;
        if (!hidden[i] || (i > 0 && hidden[i - 1]))
            continue;
        while (same < part.len && i + same < line.len && line.ptr[i + same] == part.ptr[same])
            same++;
        if (same == part.len || (i + same < line.len && (line.ptr[i + same] == '\\' || line.ptr[i + same] == '\'')))
            return true;
    }
    return false;
}

void mp_yaml_put_message(mp_buf *out, mp_str message, mp_str line, const char *hidden)
{
    scan s = {.text = message, .hidden = mp_new(message.len + 1)};
    scan_texts(&s);
    for (size_t i = 0; i < message.len;) {
        const char *end = message.ptr[i] == '\'' ? memrchr(message.ptr + i + 1, '\'', message.len - i - 1) : NULL;
        for (; end != NULL && end > message.ptr + i;
             end = memrchr(message.ptr + i, '\'', (size_t)(end - message.ptr) - i))
            if (is_hidden_part(line, hidden, (mp_str){message.ptr + i + 1, (size_t)(end - message.ptr) - i - 1}))
                break;
        if (end != NULL && end > message.ptr + i) {
            mp_buf_put(out, MP_STR("'***'"));
            i = (size_t)(end - message.ptr) + 1;
            continue;
        }
        size_t from = i++;
        bool is_secret = s.hidden[from];
        while (i < message.len && message.ptr[i] != '\'' && (bool)s.hidden[i] == is_secret)
            i++;
        if (is_secret)
            mp_buf_put(out, MP_STR("***"));
        else
            mp_put_visible(out, (mp_str){message.ptr + from, i - from});
    }
    free(s.hidden);
}
