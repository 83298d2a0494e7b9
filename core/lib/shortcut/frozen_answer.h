/* frozen_answer.h: answers whose bytes are known before their request arrives: the first page of a list that is the
 * same for every principal, and a resource that is a fixed text. The library in Lua makes the bytes for the first such
 * request of a revision; C keeps them, and answers later requests without a task. A request that is not plain in every
 * respect is left to Lua. One table per VM, used on the VM's thread alone. */
#ifndef MP_LIB_FROZEN_ANSWER_H
#define MP_LIB_FROZEN_ANSWER_H

#include "lib/shortcut/shortcut.h"

mp_frozen_answers *mp_frozen_answers_new(void);
void mp_frozen_answers_free(mp_frozen_answers *answers);
/* Forgets all answers. */
void mp_frozen_thaw(mp_frozen_answers *answers);
/* Answers the call from the VM's table. Where the table has no answer, or the call is not plain, nothing has happened.
 */
mp_general mp_frozen_answer(mp_lib *lib, mp_call *call);
/* In builds for specs with MOONPOOL_PLANS=both: aborts if the table's answer to the call differs from `result`,
 * which Lua made. */
void mp_frozen_compare(mp_lib *lib, mp_call *call, mp_str result);

#endif
