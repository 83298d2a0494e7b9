/* call.h: the userdata `call` of scripts and its fields, for the files that implement `call`. */
#ifndef MP_LIB_WORK_CALL_H
#define MP_LIB_WORK_CALL_H

#include "lib/bindings.h"

/* The user values of the userdata. Client, capabilities and meta are read-only views, created when a script first reads
 * them. */
enum {
    MP_CALL_PARAMS = 1, /* the decoded params, or nil if there are none; false until a planned call decodes them */
    MP_CALL_TASK,
    MP_CALL_PRINCIPAL,
    MP_CALL_CLIENT,
    MP_CALL_CAPABILITIES,
    MP_CALL_META,
    MP_CALL_TURN, /* with an audit: the turn of its policies (policy.c) */
    MP_CALL_VALUES = MP_CALL_TURN
};

/* Pushes the decoded params of the call at index 1; nil if it has none.  [-0, +1, throws] */
void mp_call_push_params(lua_State *L);
/* Sets __index of the metatable on top of the stack. `host` and `methods` are the stack indexes of the tables of that
 * name.  [-0, +0, throws] */
void mp_call_set_index(lua_State *L, int host, int methods);

#endif
