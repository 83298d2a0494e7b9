/* engine.h: the engine with its Lua states, for the libraries that scripts call. Only core/lib includes it. */
#ifndef MP_VM_ENGINE_H
#define MP_VM_ENGINE_H

#include "vm/libs.h"
#include "vm/json/lua_json.h"
#include "vm/luax.h"
#include "vm/op.h"
#include "vm/state.h"
#include "vm/task.h"

#endif
