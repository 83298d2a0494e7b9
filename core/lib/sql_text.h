/* sql_text.h: SQL for spans, without the values that are written in it. */
#ifndef MP_LIB_SQL_TEXT_H
#define MP_LIB_SQL_TEXT_H

#include "base/base.h"

#define MP_SQL_OPERATION 16

/* Appends about `most` bytes of the statement, with '?' for each text, blob and number, and without comments. */
void mp_sql_put_plain(mp_buf *out, mp_str sql, size_t most);
/* The first word of the statement in upper case, written to `room`. */
mp_str mp_sql_operation(mp_str sql, char room[MP_SQL_OPERATION]);

#endif
