/* encode.h: declarations that the files of the encoder share: a value that is being written, the members of its
 * objects, and errors. */
#ifndef MP_VM_JSON_ENCODE_H
#define MP_VM_JSON_ENCODE_H

#include "vm/json/source.h"
#include "vm/json/lua_json.h"

enum {
    MEMBERS_INLINE = 64,
    SORT_BY_HAND = 12,
    RUN = 1024,
    STEPS_SHOWN = 16,
    NAME_SHOWN = 40,
    LOOK = 32,
    PIECE = 65536,
    RANKED_NAME = 256,
    FREE_TABLES = 8,
    SLACK_US = 50000,
    BYTE_NS = 50
};

/* A member of an object that is being written. */
typedef struct {
    mp_str name;
    uint64_t head; /* the first 8 bytes of the name, so that most comparisons are one */
    int slot;      /* slot of the value on the Lua stack; the name is below it */
    int rank;      /* position in the list of __order; INT_MAX: not in the list */
} member;

/* The next step for an open table. An array begins with ELEMENTS; if lua_next does not give 1..n in order, COUNT and
 * FETCH follow. An object takes GATHER and SORT; with __order also RANK and again SORT; then MEMBERS.
 * A byte-preserving array takes KEPT_ELEMENTS, ADDED_ELEMENTS and COUNT_ELEMENTS; a byte-preserving object KEPT_MEMBERS
 * and COUNT_MEMBERS, and, if it has members that its source does not have, LIST_NAMES, GATHER, SORT and MEMBERS. */
typedef enum {
    ELEMENTS,
    COUNT,
    FETCH,
    GATHER,
    SORT,
    RANK,
    MEMBERS,
    KEPT_MEMBERS,
    COUNT_MEMBERS,
    LIST_NAMES,
    KEPT_ELEMENTS,
    ADDED_ELEMENTS,
    COUNT_ELEMENTS
} phase;

/* How far a byte-preserving table is written. Offsets are in the text of its source. Of an ordinary table only `kept`
 * and `names` are used, which are 0. */
typedef struct {
    mp_json_source *source;
    bool is_inner;  /* the table is in its original place in an outer byte-preserving table, which continues after it */
    bool has_gap;   /* what lies between `end` and `at` is left out, and all before `end` is written */
    bool has_inner; /* the value on top of the stack is an inner table, which has ended */
    uint32_t from;  /* bytes from here on are not written yet */
    uint32_t end;   /* behind the last member that is kept, or behind the opening bracket */
    uint32_t at;    /* where the next member is read */
    uint32_t close; /* offset of the closing bracket */
    uint32_t next;  /* number of the next array or object in the source */
    uint32_t first, to; /* of the table: number of its first inner array or object; offset of its end */
    uint32_t start;     /* offset of the opening bracket */
    lua_Integer kept;   /* number of members that are written */
    int bottom;         /* height of the stack between two members */
    int names;          /* slot of a table with the names that the source has; 0: none */
} keeping;

/* A table that is being written. */
typedef struct {
    int slot;  /* slot of the table on the Lua stack */
    int top;   /* height of the stack before the table */
    int order; /* slot of the list of __order; 0: the table has none, or the list has been read */
    phase phase;
    bool is_preserving;
    bool has_value;             /* ELEMENTS, FETCH: the value on top of the stack has been written */
    lua_Integer index;          /* arrays: index of the last element; RANK: index in the list */
    lua_Integer count, largest; /* COUNT, FETCH: number of keys, and the largest key */
    size_t first, members, at;  /* GATHER and later steps: number of members; number of members written */
    size_t width, from;         /* SORT: members per sorted run, and the first member that this pass has not merged */
    keeping keep;
} frame;

typedef struct {
    lua_State *L;
    mp_buf *out;
    size_t start, most; /* position in `out` where the text begins; limit of the text's bytes */
    bool counts;        /* beyond the limit: counts the bytes, and keeps none */
    size_t counted;
    const void *array_mt, *object_mt;
    unsigned tables;
    uint64_t look_at_us; /* us of CLOCK_MONOTONIC; from then on, the thread's processor time is read */
    uint64_t began_us;   /* us of the thread's processor time */
    int base;            /* height of the stack before encoding; the slots SAVED and MORE follow */
    int look;            /* number of values until the next check whether other tasks wait; negative: never yields */
    size_t count, cap;
    member *members; /* members of all open objects, outermost object first: in `few`, or in a userdata in slot `base +
                        MORE` */
    mp_str rest;  /* the remainder of a long string that is written in pieces; the string is in the slot of the current
                     value */
    size_t limit; /* limit of the bytes that may be written */
    size_t kept, kept_cap; /* bytes of earlier turns, in the userdata in slot KEPT, and the size of that userdata */
    mp_lua_encoded done;
    void *MP_NULLABLE done_ctx;
    member few[MEMBERS_INLINE];
    unsigned depth; /* number of frames in use */
    frame frames[MP_JSON_DEPTH];
} encoder;

/* Slots above `base`. SAVED and KEPT: nil; or, after a yield, userdata with the encoder and with the text so far.
 * Memory of Lua counts for limits.call.memory, and is freed whichever way the task ends. */
enum { SAVED = 1, KEPT, MORE };

/* fault.c: throw "cannot encode <what> at <path>". */
/* The path leads through the first `depth` frames. */
_Noreturn void mp_encode_fail_at(encoder *e, unsigned depth, const char *what);
/* The table at `index` is nested too deep, most likely because it contains itself: throws an error with the path of
 * the first repetition. */
_Noreturn void mp_encode_fail_deep(encoder *e, int index);

/* encode.c: */
/* Writes a value. True if it is not complete: a table, whose frame was opened, or a long string, whose remainder is
 * `rest`. */
bool mp_encode_value(encoder *e, int index);
/* The text would exceed the limit by the `more` bytes: throws; or, with `counts`, drops the text and only counts
 * from then on. */
void mp_encode_overflow(encoder *e, size_t more);
/* Checks the time and the depth before a table is opened, and that the Lua stack has room. */
void mp_encode_check_table(encoder *e, int index);

/* preserving.c: opens a frame for the byte-preserving table at `index`; `top` is the height of the stack before the
 * table. The source is on top. False if the table must be written as an ordinary one. [-0, +0, throws] */
bool mp_encode_open_preserving(encoder *e, int index, int top, mp_json_source *source, bool is_array);
void mp_encode_kept_members(encoder *e, frame *f);
void mp_encode_count_members(encoder *e, frame *f);
void mp_encode_list_names(encoder *e, frame *f);
void mp_encode_kept_elements(encoder *e, frame *f);
void mp_encode_added_elements(encoder *e, frame *f);
void mp_encode_count_elements(encoder *e, frame *f);
/* All members of the byte-preserving table are written: writes its end, and closes the frame. */
void mp_encode_end_preserving(encoder *e, frame *f);

/* members.c: the steps that sort the members of an object: by rank, then by the bytes of their names. */
void mp_encode_gather(encoder *e, frame *f);
void mp_encode_sort(encoder *e, frame *f);
void mp_encode_rank(encoder *e, frame *f);

/* True if enough values were written to check whether other tasks wait. */
static inline bool mp_encode_should_look(encoder *e)
{
    if (e->look <= 0)
        return e->look == 0;
    e->look--;
    return false;
}

#endif
