/* fault.c: composes the error that names the value that cannot be encoded, and its path. */
#include "vm/json/encode.h"
#include <lauxlib.h>

static bool is_name(mp_str s)
{
    if (s.len == 0 || s.len > NAME_SHOWN || (s.ptr[0] >= '0' && s.ptr[0] <= '9'))
        return false;
    for (size_t i = 0; i < s.len; i++) {
        char c = s.ptr[i];
        if (c != '_' && (c < '0' || c > '9') && ((c | 0x20) < 'a' || (c | 0x20) > 'z'))
            return false;
    }
    return true;
}

static void add_name(luaL_Buffer *text, mp_str name)
{
    lua_State *L = text->L;
    if (is_name(name)) {
        lua_pushfstring(L, ".%s", name.ptr);
    } else {
        /* "%.40s" would stop at a NUL, so the text is cut first */
        lua_pushlstring(L, name.ptr, name.len < NAME_SHOWN ? name.len : NAME_SHOWN);
        lua_pushfstring(L, "[\"%s%s\"]", lua_tostring(L, -1), name.len > NAME_SHOWN ? "…" : "");
        lua_remove(L, -2);
    }
    luaL_addvalue(text);
}

_Noreturn void mp_encode_fail_at(encoder *e, unsigned depth, const char *what)
{
    lua_State *L = e->L;
    luaL_checkstack(L, LUA_MINSTACK, "JSON");
    e->out->len = e->start; /* freed here, because the buffer belongs to the worker and errors can be caught */
    luaL_Buffer text;
    luaL_buffinit(L, &text);
    luaL_where(L, 1);
    luaL_addvalue(&text);
    luaL_addstring(&text, "cannot encode ");
    luaL_addstring(&text, what);
    luaL_addstring(&text, depth == 0 ? " at the top" : " at ");
    for (unsigned i = 0; i < depth && i < STEPS_SHOWN; i++) {
        const frame *f = &e->frames[i];
        if (f->phase == MEMBERS) {
            add_name(&text, e->members[f->first + f->at - 1].name);
        } else if (f->phase == KEPT_MEMBERS) {
            mp_str name;
            name.ptr = lua_tolstring(L, f->keep.bottom + 1, &name.len);
            add_name(&text, name);
        } else if (f->index > 0) { /* 0: no element has been written */
            lua_pushfstring(L, "[%I]", (LUAI_UACINT)f->index);
            luaL_addvalue(&text);
        }
    }
    if (depth > STEPS_SHOWN)
        luaL_addstring(&text, "…");
    luaL_pushresult(&text);
    lua_error(L);
    abort();
}

_Noreturn void mp_encode_fail_deep(encoder *e, int index)
{
    for (unsigned inner = 1; inner <= e->depth; inner++) {
        int slot = inner < e->depth ? e->frames[inner].slot : index;
        for (unsigned outer = 0; outer < inner; outer++)
            if (lua_rawequal(e->L, slot, e->frames[outer].slot))
                mp_encode_fail_at(e, inner, "a table inside itself");
    }
    mp_encode_fail_at(e, e->depth, "a table nested deeper than 128 levels");
}
