/* principal.h: the Lua side of principals. An auth script returns a principal as a Lua table. The calls of that request
 * get the same table, which never leaves its VM. A principal reference (userdata) links the table to the mp_principal
 * of C, and holds the facts about the principal that C needs to serve a call without Lua. */
#ifndef MP_LIB_PRINCIPAL_H
#define MP_LIB_PRINCIPAL_H

#include "lib/bindings.h"

/* Adds auth.principal_ref() and the functions about sign-ins that have ended to the host table on top of the stack.
 * [-0, +0, throws] */
void mp_lib_principals(lua_State *L);
/* Refs the principal of the principal reference at `index`, and makes its table available to mp_principal_push().  [-0,
 * +0, throws] */
mp_principal *mp_principal_ref_at(lua_State *L, int index);
/* mp_principal_ref_at, but NULL for a principal that has expired.  [-0, +0, throws] */
mp_principal *MP_NULLABLE mp_principal_ref_valid(lua_State *L, int index);

/* True if this VM made the principal, or it is one of the two constants: false for a call that was authenticated by
 * another generation. */
bool mp_principal_is_of(const mp_lib *lib, const mp_principal *principal);
/* The issuer that the auth script named; empty if it named none. The principal is one of this VM. */
mp_str mp_principal_issuer(const mp_principal *principal);
/* Keeps the rights of a principal in the snapshot of this generation; the audience is on top of the stack. Nothing
 * happens for a principal of another VM, or if later rights are known.  [-1, +0, throws memory] */
void mp_principal_set_rights(lua_State *L, const mp_principal *principal, uint64_t generation, uint64_t scopes);
/* The rights of the principal; NULL if they are not known for the snapshot of the registry that is served now. */
const mp_rights *MP_NULLABLE mp_principal_rights(mp_lib *lib, const mp_principal *principal);

/* Appends the principal as text, from which another process makes one; nothing if that fails, or the principal is of
 * another VM. */
void mp_principal_put_packed(mp_vm *vm, const mp_principal *principal, mp_buf *out);

#endif
