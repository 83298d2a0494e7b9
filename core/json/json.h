/* json.h: JSON as bytes, without a tree. A scan validates a text and reports the spans of its members; a writer appends
 * to a buffer. Strict RFC 8259: UTF-8 without a byte order mark, no lone surrogates, only white space around the value.
 *
 *   span   the bytes of one value inside the scanned text; valid as long as that text
 *   level  1 for members of the outermost object, 2 for members of an object in it, and so on */
#ifndef MP_JSON_H
#define MP_JSON_H

#include "base/base.h"

#define MP_JSON_DEPTH 128 /* maximum nesting of arrays and objects; deeper texts are refused */

typedef enum {
    MP_JSON_NULL,
    MP_JSON_FALSE,
    MP_JSON_TRUE,
    MP_JSON_NUMBER,
    MP_JSON_STRING,
    MP_JSON_ARRAY,
    MP_JSON_OBJECT
} mp_json_type;

typedef enum {
    MP_JSON_OK = 0,
    MP_JSON_BROKEN = -1, /* invalid JSON, invalid UTF-8, or nested too deeply */
    /* valid JSON, but an entered object repeats a key or has more than 256 keys; such members were not passed to the
     * visitor */
    MP_JSON_REPEATED = -2,
    MP_JSON_STOPPED = -3, /* the visitor returned non-zero */
    MP_JSON_MANY = -4     /* more values than the tally of the visitor allows; the text after them was not scanned */
} mp_json_result;

typedef struct {
    const char *MP_NULLABLE what; /* a literal: "unexpected character", "lone surrogate", … */
    size_t offset;                /* where the fault was found, in bytes from the start */
} mp_json_fault;

/* Counts the values of a text: all elements and members, and arrays and objects themselves. */
typedef struct {
    size_t most; /* limit of `values`: the scan stops at the next value */
    size_t values;
    size_t tables; /* how many of the values are arrays or objects */
} mp_json_tally;

/* Selects the objects to enter and receives their members. Both functions run during the scan, so the rest of the
 * text may still turn out to be invalid. */
typedef struct {
    /* The member `key` (unescaped; valid during the call) at `level` is an object. Return true to receive its
     * members at level + 1. May be NULL. */
    bool (*MP_NULLABLE enter)(void *ctx, unsigned level, mp_str key);
    /* A member is complete; `value` is its span. Return non-zero to stop the scan. */
    int (*MP_NULLABLE member)(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value);
    void *ctx;
    mp_json_tally *MP_NULLABLE tally; /* NULL: values are not counted */
} mp_json_visitor;

/* Scans all of `text` once. `visitor` may be NULL. Repeated keys are detected only in objects that the visitor
 * enters; with a visitor, the outermost object is always entered. `type` receives the type of the outermost value,
 * `fault` the reason of a failure; both may be NULL. */
mp_json_result mp_json_scan(mp_str text, const mp_json_visitor *MP_NULLABLE visitor, mp_json_type *MP_NULLABLE type,
                            mp_json_fault *MP_NULLABLE fault);

/* Checks a text as mp_json_scan does, without a visitor, in parts, between which the caller may do something else. A
 * check lies in mp_json_check_size() bytes of the caller, needs no end, and borrows the text. */
typedef struct mp_json_check mp_json_check;
size_t mp_json_check_size(void);
void mp_json_check_begin(mp_json_check *check, mp_str text);
/* Scans about `bytes` more: MP_JSON_STOPPED if there is more, else the result and the fault of the scan. */
mp_json_result mp_json_check_part(mp_json_check *check, size_t bytes, mp_json_fault *fault);

/* Finds the closing quote of a string; `at` is behind the opening one, `end` behind the text. Sets `*escaped` if the
 * string has escapes, else leaves it. NULL if the string is not valid, and if it has a \u escape, which only the scan
 * reads: a caller that gets NULL scans the text from its start. */
const char *MP_NULLABLE mp_json_string_end(const char *at, const char *end, bool *escaped);
/* Unescapes a string span (scanned, with its quotes) into `to`, which needs span.len - 2 bytes. Returns the number
 * of bytes written. */
size_t mp_json_copy_string(char *to, mp_str span);
/* Unescapes a string span and appends it to `out`. */
void mp_json_unescape(mp_buf *out, mp_str span);
/* True if a string span, unescaped, equals `text`. */
bool mp_json_string_is(mp_str span, mp_str text);
/* True if two ids (spans of strings or integers) are equal: same type and same value, however they are written
 * (G-3). */
bool mp_json_id_eq(mp_str a, mp_str b);
/* True if a span may be a JSON-RPC id: a string, or an integer without fraction and exponent (G-2). */
bool mp_json_is_id(mp_json_type type, mp_str span);

/* Appends `s` as a JSON string with quotes. Bytes that are not valid UTF-8 become U+FFFD. */
void mp_json_put_string(mp_buf *out, mp_str s);
/* Like mp_json_put_string, without the quotes, for a string that is written in pieces. */
void mp_json_put_text(mp_buf *out, mp_str s);
/* Appends `s` as a JSON string with quotes, if it is valid UTF-8; else appends nothing and gives false. */
bool mp_json_put_utf8(mp_buf *out, mp_str s);
void mp_json_put_int(mp_buf *out, int64_t n);
#define MP_JSON_INT_BYTES 20 /* of the longest integer: INT64_MIN */
/* The integer as text, in `room`, without a NUL. */
mp_str mp_json_int_text(int64_t n, char room[MP_JSON_INT_BYTES]);
/* Appends `n` with 15 digits if these read back as the same number, otherwise with 17; an integral number gets ".0".
 * Returns -1 and appends nothing for NaN and infinities. */
int mp_json_put_double(mp_buf *out, double n);
/* Converts an integer lexeme; false if it does not fit. */
bool mp_json_int(mp_str lexeme, int64_t *n);
/* Converts any number lexeme; infinite if it does not fit. */
double mp_json_double(mp_str lexeme);
/* True if `n`, which mp_json_double made of the lexeme, written with as many digits gives the digits of the lexeme
 * again. False for 25 digits, 1e400 and 1e-400; true for whatever a program has written that has doubles itself. */
bool mp_json_is_exact(mp_str lexeme, double n);

/* -- splice.c: changes of an object in its bytes ------------------------------------------------------------------- */

typedef enum {
    MP_JSON_DROP,  /* removes the member, if there is one */
    MP_JSON_SET,   /* replaces the value in its place; appends the member if the object lacks it */
    MP_JSON_RENAME /* replaces the key, if there is such a member */
} mp_json_edit_kind;

#define MP_JSON_EDITS 32 /* limit of the edits of one object */

/* One change of a member. No two edits of a list have the same place and name. */
typedef struct {
    mp_json_edit_kind kind;
    bool in_meta; /* a member of the member `_meta`, which MP_JSON_SET makes if it is absent; else of the object itself
                   */
    mp_str name;  /* the key, unescaped */
    mp_str value; /* MP_JSON_SET: JSON text; MP_JSON_RENAME: the new key, unescaped */
} mp_json_edit;

/* Appends `object`, JSON text of an object that need not be scanned, with the edits. All other bytes are kept, but
 * white space around the object, and what separates members that are removed or appended. Appends nothing, and
 * returns another value, if
 * - MP_JSON_BROKEN: the text is not JSON, or not an object, or has a `_meta` that is no object and is to be changed;
 * - MP_JSON_REPEATED: the object or its `_meta` repeats a key, or would after a renaming, or has more than 256 keys;
 * - MP_JSON_MANY: there are more than MP_JSON_EDITS edits.
 * `fault` may be NULL. */
mp_json_result mp_json_splice(mp_buf *out, mp_str object, const mp_json_edit *edits, size_t count,
                              mp_json_fault *MP_NULLABLE fault);

/* A cursor over a text that mp_json_scan accepted: reads its tokens without validating again. */
typedef struct {
    const char *at, *end;
} mp_json_cursor;

typedef enum {
    MP_JSON_T_NULL,
    MP_JSON_T_FALSE,
    MP_JSON_T_TRUE,
    MP_JSON_T_INTEGER,
    MP_JSON_T_FLOAT,
    MP_JSON_T_STRING,
    MP_JSON_T_OPEN_ARRAY,
    MP_JSON_T_CLOSE_ARRAY,
    MP_JSON_T_OPEN_OBJECT,
    MP_JSON_T_CLOSE_OBJECT,
    MP_JSON_T_END
} mp_json_token_type;

typedef struct {
    mp_json_token_type type;
    mp_str span;  /* strings: without the quotes; numbers: the lexeme */
    bool escaped; /* a string with escapes: unescape it with mp_json_copy_string, whose span includes the quotes */
} mp_json_token;

/* Returns the next token; skips commas and colons. The text must have passed mp_json_scan. */
mp_json_token mp_json_next(mp_json_cursor *cursor);
/* Moves behind the value that begins with `token`, the last one, and returns its span. */
mp_str mp_json_skip(mp_json_cursor *cursor, mp_json_token token);

typedef struct {
    mp_str key;          /* as it is written, without quotes */
    mp_json_token value; /* the first token of the value */
    mp_str span;
} mp_json_member;

/* The next member of the object in which the cursor is. False at its end. */
bool mp_json_next_member(mp_json_cursor *cursor, mp_json_member *it);
/* Finds a member of an object by its name, unescaped. False if it has none, or is empty text. */
bool mp_json_find_member(mp_str object, mp_str name, mp_json_member *it);

#endif
