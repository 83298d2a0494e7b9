/* running_line.h: two requests from other threads: to report the line that a thread runs, and to stop loading. */
#ifndef MP_VM_RUNNING_LINE_H
#define MP_VM_RUNNING_LINE_H

#include "base/base.h"
#include <lua.h>

/* Called from the count hook: answers a pending mp_vm_where of this thread.  [-0, +0] */
void mp_where_answer(lua_State *L);
/* True after mp_vm_stop_loading. */
bool mp_loading_is_stopped(void);

#endif
