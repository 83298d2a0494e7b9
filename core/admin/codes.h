/* codes.h: links that open the dashboard. A link has a code, which is valid once and for a minute; the page changes it
 * for the token of a session, which is valid for twelve hours. Both are random, kept in memory as hashes, and bounded
 * in number: a new one takes the place of the oldest. Any thread may call these functions. */
#ifndef MP_ADMIN_CODES_H
#define MP_ADMIN_CODES_H

#include "access.h"

#define MP_CODE_S 60
#define MP_CODE_SESSION_S (12 * 3600)
#define MP_CODE_SIZE 65 /* of the text of a code or token, with its NUL */

typedef struct mp_admin_codes mp_admin_codes;

mp_admin_codes *mp_admin_codes_new(void);
void mp_admin_codes_free(mp_admin_codes *MP_NULLABLE codes);
/* Makes a code for `maker`, whose role the session will have. The session of a maker that has one itself ends with
 * that. */
void mp_admin_code_make(mp_admin_codes *codes, const mp_admin_caller *maker, char text[MP_CODE_SIZE]);
/* Changes a code for the token of a session; fills `caller`. False if the code is unknown, used or too old. */
bool mp_admin_code_change(mp_admin_codes *codes, mp_str code, char token[MP_CODE_SIZE], mp_admin_caller *caller);
/* Fills `caller` if a session has this token. */
bool mp_admin_code_session(mp_admin_codes *codes, const mp_secret_hash *token, mp_admin_caller *caller);
/* Ends the codes and sessions of makers whose token is refused now: `is_valid` is called for each maker. */
void mp_admin_codes_review(mp_admin_codes *codes, bool (*is_valid)(const void *ctx, const mp_secret_hash *token),
                           const void *ctx);

/* At an upgrade: hands the codes and sessions to the process that takes the listener over, as hashes. `send` gets texts
 * of at most MP_CODES_HANDED bytes. */
#define MP_CODES_HANDED 16384
void mp_admin_codes_hand(mp_admin_codes *codes, void (*send)(void *ctx, mp_str text), void *ctx);
/* Takes the text that the process before this one has sent. Entries whose makers have lost their role are ended by the
 * next mp_admin_codes_review. */
void mp_admin_codes_take(mp_admin_codes *codes, mp_str text);

#endif
