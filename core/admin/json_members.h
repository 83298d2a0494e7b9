/* json_members.h: finds members of a JSON object by their names, as spans of its text. Pure functions.
 *
 *     mp_body_member list[] = {{.name = "id"}, {.name = "result"}};
 *     mp_body_members found = {list, 2, false};
 *     if (!mp_body_members_read(text, &found)) ... no object
 */
#ifndef MP_ADMIN_JSON_MEMBERS_H
#define MP_ADMIN_JSON_MEMBERS_H

#include "json/json.h"

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

#endif
