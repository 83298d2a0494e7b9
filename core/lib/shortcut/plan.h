/* plan.h: call plans. A plan is a C structure with the facts about a tool that C needs to serve a call. A tools/call
 * that is plain in every respect is served by the plan of its tool: C checks the arguments, runs the handler, and
 * writes the answer. Every other call takes the general path through lua/moonpool/methods/dispatch.lua, before anything
 * has happened. Where arguments do not fit, the library in Lua words why, and the plan answers with it.
 *
 *   plan.c            a planned call from its start to its end
 *   plan_make.c       the plans of a VM, from the rows that Lua makes
 *   plan_arguments.c  checking the arguments, and pushing them
 *   plan_answer.c     results: texts, numbers, booleans and tables
 *   plan_proof.c      in builds for specs: planned calls and general ones give the same
 *
 * lua/moonpool/registry/plan.lua decides which tools have a plan. */
#ifndef MP_LIB_SHORTCUT_PLAN_H
#define MP_LIB_SHORTCUT_PLAN_H

#include "lib/shortcut/shortcut.h"

#define MP_PLAN_FIELDS MP_FLAT_MAX /* fields of one object: MAX_FIELDS in registry/plan.lua */
#define MP_PLAN_INNER 4            /* objects inside the arguments of a call */

typedef enum {
    MP_FIELD_NUMBER,
    MP_FIELD_INTEGER,
    MP_FIELD_STRING,
    MP_FIELD_BOOLEAN,
    MP_FIELD_OBJECT, /* of scalars */
    MP_FIELD_TREE,   /* an object that has objects or lists in it, and no default values */
    MP_FIELD_LIST,
    MP_FIELD_ANY
} mp_field_kind;

/* An object that C checks: `count` fields from plan->fields[first] on. */
typedef struct {
    uint16_t first;
    uint8_t count, default_count;
    bool is_closed;                   /* the schema admits no other members */
    uint32_t required;                /* bit set of fields, counted from `first` */
    uint8_t defaults[MP_PLAN_FIELDS]; /* fields with default values, in the order in which Lua adds them */
} mp_plan_object;

/* The texts are Lua strings that the plan's userdata holds. */
typedef struct {
    mp_str name;
    int name_slot; /* user value of the plan */
    mp_field_kind kind;
    bool has_bounds; /* true if the schema limits numbers or lengths by one of the members below */
    double least, most, above,
        below;        /* bounds of a number; `least` and `most` also of the number of characters or items */
    int default_slot; /* user value of the plan, or 0 */
    int inside_slot;  /* of a field inside an argument: user value with the check of its schema */
    uint16_t choices,
        choice_count;     /* for an enum: index of its first text in plan->choices, and the number of its texts */
    mp_plan_object inner; /* OBJECT, TREE; LIST: one field, which all items fit */
} mp_plan_field;

/* The content of a userdata. A call holds the userdata on the stack of its coroutine, so that a plan may be replaced
 * while its calls run. */
typedef struct mp_plan {
    mp_node node;        /* its key is the name of the tool */
    int ref;             /* registry reference of the userdata */
    uint64_t timeout_ms; /* time limit of the tool; 0: none */
    mp_thing_metrics *metrics;
    uint64_t scopes;    /* bit set of the scopes that the tool requires; mp_rights.scopes has the principal's */
    bool is_positional; /* the handler is f(a, b); false: f(args) */
    bool is_checked;    /* the library in Lua checks the arguments; false: C checks them by `input` */
    bool knows_fields;  /* of a tool whose arguments Lua checks: `input` tells C which of them it can check itself */
    bool has_output;    /* the tool has an output schema */
    bool knows_output;  /* C checks the result by `output`; else the library in Lua does */
    bool has_policies;  /* the spans of the policies and of the handler are made in Lua */
    bool ends_in_lua; /* the library in Lua ends each call, since the audit line shows decisions of the tool's policies
                       */
    int call_place;   /* position of `call` among the handler's parameters, from 1; 0: the handler does not take it */
    mp_plan_object input, output; /* `input` of a positional handler: in the order of its parameters */
    mp_plan_field *fields;        /* `fields` and `choices` lie in the same allocation, behind this struct */
    mp_str *choices;
} mp_plan;

/* The user values of a plan's userdata; names, default values and choices follow. */
enum { MP_PLAN_HANDLER = 1, MP_PLAN_TOOL, MP_PLAN_CHECK, MP_PLAN_FILL, MP_PLAN_OUTPUT, MP_PLAN_NAME, MP_PLAN_FIRST };

/* The members of an object of a call, each with its field of the plan. */
typedef struct {
    const mp_flat *values;
    uint8_t count;
    uint8_t fields[MP_PLAN_FIELDS]; /* of each value, counted from the object's `first` */
    uint8_t inner[MP_PLAN_FIELDS];  /* OBJECT: its place in mp_plan_given.inner */
} mp_plan_members;

/* The arguments of a call that fit a plan. */
typedef struct {
    mp_plan_members top, inner[MP_PLAN_INNER];
    size_t inner_count, span_count;
    mp_flat spans[MP_PLAN_INNER * MP_PLAN_FIELDS]; /* the values of `inner` */
} mp_plan_given;

/* The JSON around the value in a result of one revision. */
typedef struct {
    mp_str before, after; /* JSON before and after the value, if that is a text; `before.ptr` NULL: calls of this
                             revision have no plans */
    mp_str object[3]; /* before the text of a structured result that is an object, before its value, after; [1] empty:
                         without the value */
    mp_str other[3];  /* JSON around a structured result that is no object */
    /* around the text of a failed result; [0].ptr NULL: wrong arguments are an error of JSON-RPC */
    mp_str failed[3];
} mp_plan_frame;

/* The plans of a VM. */
typedef struct mp_plans {
    mp_map by_name;
    int finish; /* registry references: the function of Lua that ends a call */
    /* as `finish`, for a call whose audit line is begun: it ends the line, too; LUA_REFNIL without an audit */
    int finish_audited;
    int refuse, refuse_some; /* say why arguments do not fit: all, and those that mp_plan_push_faults() gives */
    int handler;             /* the message handler that gives an error its trace */
    int frame_table;         /* the table that holds the texts of `frames` */
    mp_plan_frame frames[MP_PLAIN_ERAS];
    mp_buf proof; /* where plans are proven (plan_proof.c): the structured result that was sent last */
} mp_plans;

/* -- plan.c -------------------------------------------------------------------------------------------------------- */

/* Serves the call of a task by a plan. The task's coroutine runs with nothing but the task on its stack. Where the call
 * is not plain for a plan, nothing has happened. Otherwise the body of the coroutine returns `*count`.  [-0, +n,
 * throws, parks] */
mp_general mp_plan_run(lua_State *L, mp_lib_task *task, const mp_plain *it, int *count);

/* -- plan_make.c: making plans ------------------------------------------------------------------------------------- */

mp_plans *mp_plans_new(void);
void mp_plans_free(mp_plans *plans);
const mp_plan *MP_NULLABLE mp_plan_find(const mp_plans *plans, mp_str name);
/* Replaces all plans by those of the rows at index `rows`. Calls that run keep their plans. If memory is short, tools
 * are left without a plan.  [-0, +0, throws memory] */
void mp_plans_set(lua_State *L, mp_plans *plans, int rows);

/* -- plan_arguments.c ---------------------------------------------------------------------------------------------- */

/* True if a number or text is within the bounds of the field, and among its choices. Numbers are exact up to 2^53. */
bool mp_field_allows_number(const mp_plan_field *field, double n);
bool mp_field_allows_text(const mp_plan *plan, const mp_plan_field *field, mp_str text);
/* True if the arguments fit plan->input. Fills `given`. */
bool mp_plan_fits(const mp_plan *plan, const mp_flat *values, size_t count, mp_plan_given *given);
/* Pushes the arguments of the handler, without `call`: in the order of its parameters, or as one table. Returns their
 * number. `plan` is also the userdata at index `at`.  [-0, +n, throws memory] */
int mp_plan_push(lua_State *L, const mp_plan *plan, int at, const mp_plan_given *given);
/* True if a null is in the arguments, at any level, or may be. */
bool mp_plan_has_null(const mp_plain *it);
/* True if, as far as C knows the schema, an argument is missing, unknown or may be wrong. For arguments without a null:
 * see mp_plan_has_null(). */
bool mp_plan_sees_fault(const mp_plan *plan, const mp_plain *it);
/* Pushes what is wrong with arguments: a list { name, value, way, ... } of those that C does not see to fit, a list of
 * the names of those that are missing, or false, and one of those that are unknown, or nil. Where C has found a `value`
 * inside an argument, `way` is a list of the `inside` of its field's row, and of the keys that lead to it; else nil.
 * `args`: the index of a table of the arguments, or 0. False, pushing nothing, where all arguments have to be looked at
 * together: for a null in an object, or a number that would lose digits.  [-0, +0|3, throws memory] */
bool mp_plan_push_faults(lua_State *L, const mp_plan *plan, int at, const mp_plain *it, int args);
/* Pushes all values as one table. False, pushing nothing, if a number in them would lose digits: the general path keeps
 * them.
 * [-0, +0|1, throws memory] */
bool mp_plan_push_all(lua_State *L, const mp_flat *values, size_t count);

/* -- plan_answer.c ------------------------------------------------------------------------------------------------- */

/* Appends the result of a handler's value at `index` that is a short text, a number or a boolean. False, appending
 * nothing, for every other value.  [-0, +0] */
bool mp_plan_put_scalar(lua_State *L, int index, const mp_plan_frame *frame, mp_buf *out);
/* True if the value at `index` is a table that becomes a structured result, and fits plan->output if C checks it.
 * `plan` is also the userdata at index `at`.  [-0, +0] */
bool mp_plan_is_structured(lua_State *L, const mp_plan *plan, int at, int index);
/* Appends the result of a value whose JSON is `text`. */
void mp_plan_put_structured(mp_str text, const mp_plan_frame *frame, mp_buf *out);

/* -- plan_proof.c -------------------------------------------------------------------------------------------------- */

#ifdef MP_SPEC_BUILD
/* Compares the `count` arguments on top, which mp_plan_push made of a call with these `params`, with the arguments of
 * the general path. `at` is the index of the plan's userdata.  [-0, +0, throws] */
void mp_plan_prove_arguments(lua_State *L, const mp_plan *plan, int at, mp_str params, int count);
/* Compares `result` with the JSON that the general path makes of the handler's values, from index `results` to the top.
 * `finish` is the registry reference of the function that ends calls; `call` the index of the call.  [-0, +0, throws
 * memory] */
void mp_plan_prove_result(lua_State *L, const mp_plan *plan, int at, int finish, const char *revision, int call,
                          int results, mp_str result);
#endif

#endif
