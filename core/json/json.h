/* json.h: JSON as bytes. Nothing here builds a tree: a scan proves a text and shows where its members are, a
 * writer appends to a buffer. RFC 8259, strictly: UTF-8 without a mark, no lone surrogates, nothing before or behind.
 *
 *   span     a value's bytes inside the text that was scanned; lives as long as that text
 *   level    1 is inside the outermost object, 2 inside an object in it, and so on */
#ifndef MP_JSON_H
#define MP_JSON_H

#include "base/base.h"

#define MP_JSON_DEPTH 128 /* arrays and objects inside each other; one more is refused */

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
    MP_JSON_BROKEN = -1,   /* not JSON, not UTF-8, or too deep */
    MP_JSON_REPEATED = -2, /* JSON, but an object that was looked into has a key twice, or more than 256 keys;
                              members that repeat a key, or are too many, were not shown */
    MP_JSON_STOPPED = -3   /* the visitor gave non-zero */
} mp_json_result;

typedef struct {
    const char *what; /* a literal: "unexpected character", "lone surrogate", … */
    size_t offset;    /* of the byte it was found at */
} mp_json_fault;

/* Which objects to look into, and what is in them. Both are called while scanning, so a text may yet turn out broken. */
typedef struct {
    /* `key` (unescaped; valid during the call) at `level` holds an object: true shows its members, at level + 1. May be NULL. */
    bool (*enter)(void *ctx, unsigned level, mp_str key);
    /* A member is complete. `value` is its span. Non-zero stops the scan. */
    int (*member)(void *ctx, unsigned level, mp_str key, mp_json_type type, mp_str value);
    void *ctx;
} mp_json_visitor;

/* Scans all of `text` once. `visitor` may be NULL; without one, or when the text is no object, no keys are compared.
 * `type` gets what the outermost value is, `fault` what is wrong; either may be NULL. */
mp_json_result mp_json_scan(mp_str text, const mp_json_visitor *visitor, mp_json_type *type, mp_json_fault *fault);

/* Writes the text that a string span (quotes included, already scanned) stands for to `to`, which has room for
 * span.len - 2 bytes: it is never longer. Gives its length. */
size_t mp_json_copy_string(char *to, mp_str span);
/* Appends the same. */
void mp_json_unescape(mp_buf *out, mp_str span);
/* Whether a string span, unescaped, is `text`. */
bool mp_json_string_is(mp_str span, mp_str text);
/* Whether two ids (string or integer spans) are the same id: by type and by value, whatever their spelling (G-3). */
bool mp_json_id_eq(mp_str a, mp_str b);
/* Whether a span may be a JSON-RPC id: a string, or an integer without fraction and exponent (G-2). */
bool mp_json_is_id(mp_json_type type, mp_str span);

/* Appends `s` as a JSON string, quotes included. Bytes that are not UTF-8 become U+FFFD. */
void mp_json_put_string(mp_buf *out, mp_str s);
void mp_json_put_int(mp_buf *out, int64_t n);
/* Shortest of 15 and 17 digits that reads back; keeps ".0". -1, appending nothing, for NaN and infinities. */
int mp_json_put_double(mp_buf *out, double n);
/* Reads an integer lexeme; false when it does not fit. */
bool mp_json_int(mp_str lexeme, int64_t *n);
/* Reads any number lexeme; infinite when it does not fit. */
double mp_json_double(mp_str lexeme);

/* A cursor over a text that a scan found good: for building values without checking twice (script/lib_json). */
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
    mp_str span;  /* of strings without the quotes; of numbers the lexeme */
    bool escaped; /* a string with escapes in it: mp_json_copy_string, with the quotes around it, before use */
} mp_json_token;

/* The next token; commas and colons are skipped. Undefined on a text that no scan has passed. */
mp_json_token mp_json_next(mp_json_cursor *cursor);

#endif
