/* shortcut.h: the gate before the three quick ways in which C serves a call: kept bytes (frozen_answer.h), the plan of
 * a tool (plan.h), the route to an upstream (forward.h). A call is asked once whether it is plain, allowed, auditable
 * and ready; each way adds what it alone has to know. A call that is not takes the general way through
 * lua/moonpool/methods/dispatch.lua, before anything has happened. Refusals are made there; those of plans are
 * plan.h's. */
#ifndef MP_LIB_SHORTCUT_SHORTCUT_H
#define MP_LIB_SHORTCUT_SHORTCUT_H

#include "lib/bindings.h"

#define MP_PLAIN_BYTES (64 << 10) /* bytes of the params of a tools/call, and of the JSON of the result of a plan */
#define MP_PLAIN_ERAS 16 /* number of revisions that the quick ways know; calls of later revisions are not plain */

/* Why a call takes the general way: all that is not plain. docs/dev/call-plans.md says what each reason stands for. */
typedef enum {
    MP_PLAIN,
    /* asked of every call, and of the message of a tools/call (shortcut.c) */
    MP_GENERAL_MODE,
    MP_GENERAL_MESSAGE,
    MP_GENERAL_LENGTH,
    MP_GENERAL_NOT_READY,
    MP_GENERAL_RIGHTS,
    MP_GENERAL_AUDIT,
    /* kept bytes, plans and routes */
    MP_GENERAL_NOT_KEPT,
    MP_GENERAL_NO_PLAN,
    MP_GENERAL_ARGUMENTS,
    MP_GENERAL_NO_ROUTE,
    MP_GENERAL_LOG_LEVEL,
    MP_GENERAL_HOPS,
    MP_GENERAL_NO_CHANNEL,
    MP_GENERAL_NOT_SENT
} mp_general;

/* A call that is plain. */
typedef struct {
    mp_lib *lib;
    mp_call *call;
    const mp_era *era;
    size_t place; /* index of the revision in mp_eras */
    mp_session *MP_NULLABLE session;
    const mp_rights *rights; /* of the principal: all, where nothing that is served is private */
    const mp_flat *values;   /* the arguments of a tools/call, as mp_call_flat gives them */
    size_t value_count;
} mp_plain;

/* Checks whether a call is plain: MP_PLAIN, and fills `it` for the quick ways; else the reason for the general way. */
mp_general mp_shortcut_ask(mp_lib *lib, mp_call *call, mp_plain *it);
/* mp_shortcut_ask for a tools/call, whose message has to be plain, too. */
mp_general mp_shortcut_ask_of_tool(mp_lib *lib, mp_call *call, mp_plain *it);
/* Makes subscriptions of a session see what the principal of its latest request may see, as access.lua does for calls
 * of Lua. */
static inline void mp_shortcut_subscribe_as(const mp_plain *it)
{
    if (it->session != NULL && it->rights->audience.ptr != NULL)
        mp_session_subscribe_as(it->session, it->rights->audience);
}

#endif
