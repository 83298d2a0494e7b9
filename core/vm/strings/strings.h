/* strings.h: the functions of `string` and `table` that can take long without running Lua, with limits: find, match,
 * gmatch, gsub, rep, format and concat. Results and errors are those of Lua 5.4. In addition, patterns take a
 * bounded number of steps and yield to other tasks, the length of a text is limited, and a function that gsub calls
 * may wait. */
#ifndef MP_VM_STRINGS_STRINGS_H
#define MP_VM_STRINGS_STRINGS_H

#include "telemetry/telemetry.h"
#include <lua.h>
#include <stdint.h>

#define MP_STRING_STEPS 5000000 /* limit of one call; about 50 ms */
#define MP_STRING_BYTES ((size_t)64 << 20)

/* How a long match yields: after every `every` steps it calls `is_wanted`, and yields if the result is true. */
typedef struct {
    int64_t every;
    bool (*MP_NULLABLE is_wanted)(lua_State *L); /* true if another task has to run, and the coroutine can yield */
    void (*prepare)(lua_State *L);               /* called right before the yield */
} mp_string_turns;

typedef struct {
    int64_t steps;  /* limit of one call; a step takes a few ns */
    size_t bytes;   /* limit of the bytes of a text */
    uint64_t taken; /* steps that all calls have taken */
    const mp_string_turns *turns;
} mp_string_limits;

/* Puts find, match, gmatch, gsub, rep and format into the table at `strings`, concat into the one at `tables`.
 * Returns the limits of these functions, which live as long as one of the functions. The functions do not yield
 * until `turns` is set. [-0, +0, throws] */
mp_string_limits *mp_lib_string(lua_State *L, int strings, int tables, int64_t steps, size_t bytes);

/* -- for the files of this library ----------------------------------------------------------------------------- */

/* The limits, which are the first upvalue of each function. */
static inline mp_string_limits *mp_string_limits_of(lua_State *L)
{
    return lua_touserdata(L, lua_upvalueindex(1));
}

/* The number of steps that a call which begins now in `L` may take. */
static inline int64_t mp_string_budget(MP_UNUSED lua_State *L, const mp_string_limits *limits)
{
    return limits->steps;
}

/* Counts steps that a call has taken. */
static inline void mp_string_charge(MP_UNUSED lua_State *L, mp_string_limits *limits, int64_t steps)
{
    limits->taken += (uint64_t)steps;
}

/* A text that is being built. A small one is in `start`; a larger one is in a userdata in the slot `box` of the
 * stack. */
typedef struct {
    char *ptr;
    size_t len, cap;
    int box;
    char start[512];
} mp_string_out;

static inline void mp_string_out_init(mp_string_out *out, int box)
{
    out->ptr = out->start;
    out->len = 0;
    out->cap = sizeof out->start;
    out->box = box;
}

/* Makes room for `len` more bytes.  [-0, +0, throws] */
void mp_string_out_grow(lua_State *L, mp_string_out *out, size_t len);

static inline void mp_string_out_put(lua_State *L, mp_string_out *out, const char *text, size_t len)
{
    if (len > out->cap - out->len)
        mp_string_out_grow(L, out, len);
    memcpy(out->ptr + out->len, text, len);
    out->len += len;
}

void mp_lib_string_make(lua_State *L, int strings, int tables, int limits);
/* Bounds the texts among the arguments of a function of a global library.  [-0, +0, throws memory] */
void mp_lib_string_operands(lua_State *L, const char *library, const char *name);

#endif
