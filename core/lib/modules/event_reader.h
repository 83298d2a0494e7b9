/* event_reader.h: the Lua module "moonpool.events": events of text/event-stream, as a client reads them (core/mcp). */
#ifndef MP_LIB_EVENT_READER_H
#define MP_LIB_EVENT_READER_H

#include <lua.h>

/* Pushes the module's table. Its one function is
 *     new(most) -> reader     `most`: limit of the bytes of a line, and of the data of an event
 *     reader:feed(bytes)      parses the next bytes: a list of the events that they complete, each { event, data, id };
 *                             or nil, why
 *     reader:last_id()        the id that applies to the last event; nil if there is none
 *     reader:retry()          milliseconds after which a client reconnects; nil if the stream did not say
 * [-0, +1, throws] */
int mp_lib_event_reader(lua_State *L);
/* mp_lib_event_reader for the Lua state of a VM, which counts the readers' memory.  [-0, +1, throws] */
int mp_lib_event_reader_of_vm(lua_State *L);

#endif
