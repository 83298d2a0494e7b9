/* shortcut.c: asks whether a call is plain; see shortcut.h. */
#include "lib/shortcut/shortcut.h"
#include "lib/principal.h"

/* True if C can write the audit line of the call, or none is wanted: the audit shows no values of arguments, the
 * principal belongs to the VM, and no argument has a name that the line cuts. Lines of other requests repeat texts of
 * the params, which have no escapes. */
static bool is_auditable(const mp_lib *lib, const mp_call *call)
{
    if (lib->audit == MP_AUDIT_MODE_OFF)
        return true;
    if (lib->audit == MP_AUDIT_MODE_VALUES || !mp_principal_is_of(lib, mp_call_principal(call)))
        return false;
    size_t count;
    mp_str params = mp_call_params(call);
    const mp_flat *arguments = mp_call_flat(call, &count);
    if (arguments == NULL)
        return params.len == 0 || memchr(params.ptr, '\\', params.len) == NULL;
    for (size_t i = 0; i < count; i++)
        if (arguments[i].name.len > MP_AUDIT_TEXT)
            return false;
    return true;
}

mp_general mp_shortcut_ask(mp_lib *lib, mp_call *call, mp_plain *it)
{
    static const mp_rights all = {.scopes = UINT64_MAX}, none = {0};
    const mp_era *era = mp_call_era(call);
    mp_session *session = mp_call_session(call);
    if (lib->is_general)
        return MP_GENERAL_MODE;
    if (era == NULL || era >= mp_eras + MP_PLAIN_ERAS || (session != NULL) != era->has_sessions ||
        (session != NULL && mp_session_era(session) == NULL))
        return MP_GENERAL_NOT_READY;
    const mp_rights *rights = lib->has_private ? mp_principal_rights(lib, mp_call_principal(call)) : &all;
    if (rights == NULL && session != NULL)
        return MP_GENERAL_RIGHTS; /* the general way makes them known (access.lua) */
    *it = (mp_plain){.lib = lib, .call = call, .era = era, .place = (size_t)(era - mp_eras), .session = session};
    it->rights = rights == NULL ? &none : rights;
    return is_auditable(lib, call) ? MP_PLAIN : MP_GENERAL_AUDIT;
}

mp_general mp_shortcut_ask_of_tool(mp_lib *lib, mp_call *call, mp_plain *it)
{
    size_t count;
    const mp_flat *values = mp_call_flat(call, &count);
    if (values == NULL)
        return MP_GENERAL_MESSAGE;
    if (mp_call_params(call).len > MP_PLAIN_BYTES)
        return MP_GENERAL_LENGTH;
    mp_general why = mp_shortcut_ask(lib, call, it);
    it->values = values;
    it->value_count = count;
    return why;
}
