/* json_encode.h: what the files of the encoder share: a value that is being written, the members of its objects, and errors. */
#ifndef MP_VM_JSON_ENCODE_H
#define MP_VM_JSON_ENCODE_H

#include "vm/lua_json.h"

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
    int slot;      /* of the value on the Lua stack; the name is below it */
    int rank;      /* its place in the list of __order; INT_MAX: it is not there */
} member;

/* What is done with a table next. An array is ELEMENTS, and where lua_next does not give 1..n in order COUNT and FETCH; an object
 * is GATHER, SORT, with __order also RANK and once more SORT, then MEMBERS. */
typedef enum { ELEMENTS, COUNT, FETCH, GATHER, SORT, RANK, MEMBERS } phase;

/* A table that is being written. */
typedef struct {
    int slot;  /* of the table on the Lua stack */
    int top;   /* the stack's height before it */
    int order; /* slot of the list of __order; 0: none, or it has been looked through */
    phase phase;
    bool has_value;             /* ELEMENTS, FETCH: the value on top of the stack has been written */
    lua_Integer index;          /* arrays: of the last element; RANK: in the list */
    lua_Integer count, largest; /* COUNT, FETCH: how many keys there are, and the largest */
    size_t first, members, at;  /* GATHER and on: its members; how many are written */
    size_t width, from;         /* SORT: members per sorted run, and the first that this pass has not merged */
} frame;

typedef struct {
    lua_State *L;
    mp_buf *out;
    size_t start, most; /* where it begins in `out`, and what that may grow to */
    bool counts;        /* beyond: counts what there is, and keeps none */
    size_t counted;
    const void *array_mt, *object_mt;
    unsigned tables;
    uint64_t look_at_us; /* of CLOCK_MONOTONIC: then the thread's processor time is asked for */
    uint64_t began_us;   /* of the latter */
    int base;            /* the stack's height before; SAVED and MORE follow */
    int look;            /* values until it asks whether other tasks wait; negative: never yields */
    size_t count, cap;
    member *members; /* of all objects being written, outermost first: `few`, or a userdata in slot `base + MORE` */
    mp_str rest;     /* of a long string that is written in pieces; its slot is that of the value at hand */
    size_t limit;    /* bytes that may be written in all */
    size_t kept, kept_cap; /* bytes of earlier turns, in the userdata in slot KEPT, and what that has room for */
    mp_lua_encoded done;
    void *done_ctx;
    member few[MEMBERS_INLINE];
    unsigned depth; /* frames in use */
    frame frames[MP_JSON_DEPTH];
} encoder;

/* Slots above `base`. SAVED and KEPT: nil, or, once it has yielded, userdata with the encoder and with what is written so far. Memory of
 * Lua counts for limits.call.memory, and is freed whichever way the task ends. */
enum { SAVED = 1, KEPT, MORE };

/* json_fault.c: throw "cannot encode <what> at <path>". */
/* The path leads through the first `depth` frames. */
_Noreturn void mp_encode_fail_at(encoder *e, unsigned depth, const char *what);
/* The table at `index` is one too deep, most likely because it is inside itself: then says where it first is so. */
_Noreturn void mp_encode_fail_deep(encoder *e, int index);

/* json_members.c: the steps that put the members of an object in order: by rank, then by the bytes of their names. */
void mp_encode_gather(encoder *e, frame *f);
void mp_encode_sort(encoder *e, frame *f);
void mp_encode_rank(encoder *e, frame *f);

/* Whether enough was done to ask whether other tasks wait. */
static inline bool mp_encode_should_look(encoder *e)
{
    if (e->look <= 0)
        return e->look == 0;
    e->look--;
    return false;
}

#endif
