/* plan.h: call plans. A plan is what a VM knows of a tool, as a C structure. A tools/call that is plain in every respect is served by the
 * plan of its tool: C checks the arguments, runs the handler, and writes the answer. Every other call takes the general path through
 * lua/moonpool/methods/dispatch.lua, before anything has happened; refusals are made there alone.
 *
 *   plan.c            which tools have plans, and a planned call from its start to its end
 *   plan_arguments.c  checking the arguments and pushing them
 *   plan_answer.c     the answer of a handler that returned a text, a number or a boolean
 *   plan_proof.c      in builds for specs: planned calls and general ones give the same
 *
 * lua/moonpool/registry/plan.lua decides which tools have a plan. */
#ifndef MP_LIB_MCP_PLAN_H
#define MP_LIB_MCP_PLAN_H

#include "lib/bindings.h"

#define MP_PLAN_ARGS MP_FLAT_MAX /* arguments that C checks, at most: MAX_ARGUMENTS in registry/plan.lua */
#define MP_PLAN_CHOICES 32       /* texts of one enum: MAX_CHOICES there */
#define MP_PLAN_BYTES (64 << 10) /* of the params of a planned call, at most */

typedef enum { MP_ARG_NUMBER, MP_ARG_INTEGER, MP_ARG_STRING, MP_ARG_BOOLEAN } mp_arg_kind;

/* An argument that C checks. The texts are those of Lua strings that the plan's userdata holds. */
typedef struct {
    mp_str name;
    mp_arg_kind kind;
    bool has_bounds;                  /* one of the next four was given */
    double least, most, above, below; /* of a number; least and most also of the characters of a text */
    int default_slot;                 /* user value with the default, or 0 */
    uint16_t choices, choice_count;   /* of an enum: where its texts begin in plan->choices, and how many there are */
} mp_plan_arg;

/* The content of a userdata. Its user values: see plan.c. A call holds the userdata on the stack of its coroutine, so that a plan may be
 * replaced while its calls run. */
typedef struct mp_plan {
    struct mp_plan *next; /* in its bucket */
    mp_str name;
    uint32_t hash;
    int ref;             /* registry reference of the userdata */
    uint64_t timeout_ms; /* of the tool; 0: none */
    bool is_positional;  /* f(a, b); else f(args) */
    bool is_checked;     /* Lua decodes and checks the arguments; else `args` does */
    bool has_output;     /* the tool has an output schema */
    int call_place;      /* of `call` among the handler's parameters, from 1; 0: it takes none */
    int arg_count, default_count;
    uint32_t required;              /* bit set of indexes in `args` */
    uint8_t defaults[MP_PLAN_ARGS]; /* the arguments with defaults, in the order in which they are added */
    mp_str *choices;                /* behind the structure */
    mp_plan_arg args[MP_PLAN_ARGS]; /* of a positional handler: in the order of its parameters */
} mp_plan;

/* The user values of a plan's userdata; the names of the arguments, their defaults and their choices follow. */
enum { MP_PLAN_HANDLER = 1, MP_PLAN_TOOL, MP_PLAN_CHECK, MP_PLAN_NAME, MP_PLAN_FIRST };

/* The plans of a VM. */
typedef struct mp_plans mp_plans;

/* -- plan.c ------------------------------------------------------------------------------------------------------- */

mp_plans *mp_plans_new(void);
void mp_plans_free(mp_plans *plans);
/* Serves the call of the task, whose coroutine runs and has nothing but the task on its stack, by a plan. False if it has none, and
 * nothing has happened. Else `*count` is for the body of the coroutine to return.  [-0, +n, throws, parks] */
bool mp_plan_run(lua_State *L, mp_lib_task *task, int *count);

/* -- plan_arguments.c ---------------------------------------------------------------------------------------------- */

/* True if the arguments fit the plan, which is not `is_checked`. `places` receives the index in plan->args of each of the `count` values. */
bool mp_plan_fits(const mp_plan *plan, const mp_flat *values, size_t count, uint8_t *places);
/* Pushes the arguments of the handler, without `call`: in the order of its parameters, or as one table. Returns their number. `plan` is also
 * the userdata at index `at`.  [-0, +n, throws memory] */
int mp_plan_push(lua_State *L, const mp_plan *plan, int at, const mp_flat *values, size_t count, const uint8_t *places);
/* Pushes all values as one table.  [-0, +1, throws memory] */
void mp_plan_push_all(lua_State *L, const mp_flat *values, size_t count);

/* -- plan_answer.c ------------------------------------------------------------------------------------------------- */

/* Appends the result for the handler's first value, at `index`, between the bytes that the revision has before and behind a text. False,
 * appending nothing, if the value is not a short text, a number or a boolean.  [-0, +0] */
bool mp_plan_put_result(lua_State *L, int index, mp_str before, mp_str after, mp_buf *out);

/* -- plan_proof.c -------------------------------------------------------------------------------------------------- */

#ifdef MP_SPEC_BUILD
/* Compares the `count` arguments on top, which mp_plan_push made of a call with these `params`, with the arguments of the general path. `at` is the
 * index of the plan's userdata.  [-0, +0, throws] */
void mp_plan_prove_arguments(lua_State *L, const mp_plan *plan, int at, mp_str params, int count);
/* Compares `result` with the JSON that the general path makes of the handler's values, from index `results` to the top. `finish` is the
 * registry reference of the function that ends calls; `call` the index of the call.  [-0, +0, throws memory] */
void mp_plan_prove_result(lua_State *L, const mp_plan *plan, int at, int finish, const char *revision, int call,
                          int results, mp_str result);
#endif

#endif
