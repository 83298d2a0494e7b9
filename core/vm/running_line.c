/* running_line.c: the line of Lua that a thread runs, read by another thread. Only the thread itself may walk its Lua
 * stack, so it writes the line from its count hook, and only when it was asked to. */
#include "vm/running_line.h"
#include "vm/preempt.h"
#include "vm/schedule.h"

/* The values of mp_where.state. `text` belongs to the watched thread from ASKED to ANSWERED, to the asking thread
 * otherwise. */
enum { QUIET, ASKED, ANSWERED };

static __thread mp_where *MP_NULLABLE watched; /* the mp_where of this thread; NULL: it is not watched */
static atomic_bool is_stopped;

/* Answers with the call that is in a function of C, which may be changing Lua's frames. In the signal handler. */
static void answer_call(void)
{
    mp_where *where = watched;
    const mp_task *running = mp_task_running_here();
    if (where == NULL || running == NULL || atomic_load_explicit(&where->state, memory_order_acquire) != ASKED)
        return;
    const mp_task *payer = running->payer;
    mp_str method = mp_task_label(payer), name = MP_STR_NONE;
    /* the URI of a resource may have arguments */
    if (payer->work->subject != NULL && (mp_str_is(method, "tools/call") || mp_str_is(method, "prompts/get")))
        name = payer->work->subject(payer);
    snprintf(where->text, sizeof where->text, "a function of C, in %.*s%s%.*s", MP_STR_ARG(method),
             name.len > 0 ? " " : "", MP_STR_ARG(name));
    atomic_store_explicit(&where->state, ANSWERED, memory_order_release);
}

void mp_where_watch(mp_where *MP_NULLABLE where)
{
    watched = where;
    mp_preempt_on_long_call(where == NULL ? NULL : answer_call);
}

bool mp_vm_where(mp_where *where, char *room, size_t size)
{
    int quiet = QUIET;
    if (atomic_compare_exchange_strong(&where->state, &quiet, ASKED))
        return false;
    if (atomic_load_explicit(&where->state, memory_order_acquire) != ANSWERED)
        return false;
    snprintf(room, size, "%s", where->text);
    atomic_store_explicit(&where->state, QUIET, memory_order_release);
    return true;
}

void mp_where_forget(mp_where *where)
{
    int answered = ANSWERED;
    atomic_compare_exchange_strong(&where->state, &answered, QUIET);
}

bool mp_vm_find_place(lua_State *L, lua_Debug *at)
{
    const mp_source *source = mp_vm_of(L)->source;
    for (int level = 0; lua_getstack(L, level, at) != 0; level++) {
        lua_getinfo(L, "Sl", at);
        if (at->source[0] == '@' && mp_source_has(source, at->source + 1) && at->currentline > 0)
            return true;
    }
    return false;
}

mp_str mp_vm_running_place(int *line)
{
    lua_State *L = mp_preempt_running();
    lua_Debug at;
    if (L == NULL || !mp_vm_find_place(L, &at))
        return MP_STR_NONE;
    *line = at.currentline;
    return mp_str_of(at.source + 1);
}

void mp_where_answer(lua_State *L)
{
    mp_where *where = watched;
    if (where == NULL || atomic_load_explicit(&where->state, memory_order_acquire) != ASKED)
        return;
    lua_Debug at;
    if (mp_vm_find_place(L, &at))
        snprintf(where->text, sizeof where->text, "%s:%d", at.source + 1, at.currentline);
    else if (lua_getstack(L, 0, &at) != 0 && lua_getinfo(L, "Sl", &at) != 0)
        snprintf(where->text, sizeof where->text, "%s:%d", at.short_src, at.currentline);
    else
        snprintf(where->text, sizeof where->text, "unknown");
    atomic_store_explicit(&where->state, ANSWERED, memory_order_release);
}

void mp_vm_stop_loading(void)
{
    atomic_store(&is_stopped, true);
}

bool mp_loading_is_stopped(void)
{
    return atomic_load(&is_stopped);
}
