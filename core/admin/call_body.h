/* call_body.h: the body of POST /api/call: which request an operator runs, at which revision and as whom; and what
 * finds members of JSON objects. */
#ifndef MP_ADMIN_CALL_BODY_H
#define MP_ADMIN_CALL_BODY_H

#include "json/json.h"
#include "rpc/observe.h"

/* Members of a JSON object by their names, as spans of its text.
 *
 *     mp_body_member list[] = {{.name = "id"}, {.name = "result"}};
 *     mp_body_members found = {list, 2, false};
 *     if (!mp_body_members_read(text, &found)) ... no object
 */
typedef struct {
    const char *name;
    mp_str value; /* JSON; empty: the object has no such member. Of two, the last one */
    mp_json_type type;
} mp_body_member;

typedef struct {
    mp_body_member *list;
    size_t count;
    bool has_other; /* the object has a member that is not in `list` */
} mp_body_members;

/* False if the text is no object. */
bool mp_body_members_read(mp_str text, mp_body_members *of);
bool mp_body_member_is_text(const mp_body_member *one);

/* -- the body ------------------------------------------------------------------------------------------------------ */

/* Zeroed before it is read. */
typedef struct {
    mp_buf method, params;          /* JSON: a string and an object */
    mp_buf principal, principal_id; /* JSON of its id, scopes and claims, and the id; empty: `local` */
    const mp_era *era;
} mp_call_body;

/* Reads the body of a request into `to`, which gets copies. NULL, or why the body is not valid. */
const char *MP_NULLABLE mp_call_body_read(mp_str body, mp_call_body *to);
/* Appends the method, and the tool, prompt or URI that params name: a text for the audit. */
void mp_call_body_put_name(mp_buf *out, const mp_call_body *of);
/* Frees the texts. */
void mp_call_body_clear(mp_call_body *of);

#endif
