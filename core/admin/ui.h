/* ui.h: the dashboard: the files of core/admin/ui, which are part of the binary. They have no data, so they need no
 * role; the page asks for data with the token of its reader. */
#ifndef MP_ADMIN_UI_H
#define MP_ADMIN_UI_H

#include "admin.h"

/* GET / and GET /ui/FILE; `rest` is the name of the file, or empty. */
void mp_admin_ui(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest);

#endif
