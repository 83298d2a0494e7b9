/* modules.h: modules of core/ for specs: `require "modules"` returns a table of tables, one per module. To add a
 * module: a file module_<name>.c with one function that pushes its table, and a line below. */
#ifndef MODULES_H
#define MODULES_H

#include <lauxlib.h>
#include <lua.h>

/* X(name): the function `int module_<name>(lua_State *L)` must exist. */
#define MODULES(X)                                                                                                     \
    X(account)                                                                                                         \
    X(edit_distance)                                                                                                   \
    X(envelope)                                                                                                        \
    X(error_codes)                                                                                                     \
    X(events)                                                                                                          \
    X(h2o)                                                                                                             \
    X(hysteresis) X(json) X(keys) X(regex) X(net) X(pace) X(processes) X(revisions) X(sql) X(sqlite) X(string) X(system)

#define MODULE_DECLARE(name) int module_##name(lua_State *L);
MODULES(MODULE_DECLARE)
#undef MODULE_DECLARE

#endif
