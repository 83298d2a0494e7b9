/* audit_line.h: the audit lines of calls. What Lua knows of a call that the dispatcher serves,
 * lua/moonpool/methods/audit.lua gives; of one that C serves by a call plan or from kept bytes it is read from the
 * params. The members that are known before a call runs are written when it begins: a client that leaves takes its
 * address with it. */
#ifndef MP_LIB_SHORTCUT_AUDIT_LINE_H
#define MP_LIB_SHORTCUT_AUDIT_LINE_H

#include "lib/state.h"

/* The mode of a choice of log.audit_arguments; NULL: no audit. */
mp_audit_mode mp_audit_mode_of(const char *MP_NULLABLE choice);
/* Facts of a call that Lua adds; a text without `ptr` has no member in the line. */
typedef struct {
    mp_str principal, issuer, client, version; /* the principal and its issuer; name and version of the client */
    mp_str name, upstream, upstream_name;
    mp_str arguments; /* the arguments as JSON */
    mp_str trace, definition, approved;
} mp_audit_facts;
/* Begins the line of a call that Lua serves. */
void mp_audit_begin(mp_audit_line *line, mp_call *call, const mp_audit_facts *facts);
/* Begins the line of a plain call (shortcut.h), if an audit is written. `name` is the tool's name,
 * or the resource's URI; without `ptr` for a list. */
void mp_audit_begin_plain(mp_audit_line *line, const mp_lib *lib, mp_call *call, mp_str name);

/* The same for a thing of an upstream. `thing` has name, upstream, upstream_name, definition and approved. */
void mp_audit_begin_thing(mp_audit_line *line, const mp_lib *lib, mp_call *call, const mp_audit_facts *thing);

/* True if the line is begun and not yet written. */
static inline bool mp_audit_is_begun(const mp_audit_line *line)
{
    return line->text.len > 0;
}

typedef struct {
    const char *outcome;
    bool has_code;
    int64_t code;       /* code of a JSON-RPC error */
    mp_str why, policy; /* `why` and `policy`: without `ptr` the line has no such member */
    mp_str channel;     /* of the upstream to which the call was sent last */
    int64_t retries;    /* how often the call was sent again */
} mp_audit_outcome;
/* Writes a line that is begun, and empties it. Does nothing to an empty line. */
void mp_audit_end(mp_audit_line *line, const mp_audit_outcome *outcome);
/* Empties a line that will not be written. */
void mp_audit_discard(mp_audit_line *line);

#endif
