/* module_net.c: modules.net, the functions of core/net that need no socket.
 *   reach(kind, address)   whether a connection of that kind may lead there; `kind` as host.http takes it
 *   canonical(text)        an address as it is usually written, or nil
 *   framing(head)          the error of a request's framing, or nil
 *   blocks(kind, count, steps, seed)   takes and gives back blocks of "pages" or "slabs", `count` at once, and returns memory meanwhile;
 *                          the number of bytes that were not as their block's owner wrote them
 *   is_page(kind)          true if a block of that kind, "pages" or "malloc", is taken back as one of pages */
#include "net/http.h"
#include "net/net.h"
#include "net/address_policy.h"
#include "net/pages.h"
#include "modules.h"
#include <stdlib.h>

static int l_reach(lua_State *L)
{
    static const char *const kinds[] = {"public", "loopback", "private", NULL};
    mp_address_policy reach = {.kind = MP_ADDRESS_POLICY_ADDRESS};
    const char *kind = luaL_checkstring(L, 1);
    for (int i = 0; kinds[i] != NULL; i++)
        if (strcmp(kind, kinds[i]) == 0)
            reach.kind = (mp_address_policy_kind)i;
    if (reach.kind == MP_ADDRESS_POLICY_ADDRESS && !mp_address_canonical(kind, reach.address))
        return luaL_error(L, "no address: %s", kind);
    lua_pushboolean(L, mp_address_policy_allows_text(&reach, luaL_checkstring(L, 2)));
    return 1;
}

static int l_canonical(lua_State *L)
{
    char address[MP_ADDRESS_TEXT];
    lua_pushstring(L, mp_address_canonical(luaL_checkstring(L, 1), address) ? address : NULL);
    return 1;
}

static int l_framing(lua_State *L)
{
    mp_str head;
    head.ptr = luaL_checklstring(L, 1, &head.len);
    lua_pushstring(L, mp_framing_fault(head, 1));
    return 1;
}

typedef struct {
    unsigned char *bytes;
    size_t size;
    unsigned char mark;
} held_block;

static lua_Integer release_block(held_block *block, bool is_slab)
{
    lua_Integer wrong = 0;
    for (size_t i = 0; block->bytes != NULL && i < block->size; i++)
        wrong += block->bytes[i] != block->mark;
    if (is_slab)
        mp_slab_free(block->bytes, block->size);
    else if (block->bytes != NULL)
        wrong += !mp_pages_give(block->bytes);
    block->bytes = NULL;
    return wrong;
}

static lua_Integer take_block(held_block *block, bool is_slab, unsigned chance)
{
    lua_Integer wrong = 0;
    block->size = is_slab ? 1 + chance % 2200 : (1 + chance % MP_PAGES_MAX) * MP_PAGE;
    block->bytes = is_slab ? mp_slab_new(block->size) : mp_pages_take(block->size / MP_PAGE);
    for (size_t i = 0; is_slab && i < block->size; i++)
        wrong += block->bytes[i] != 0;
    block->mark = (unsigned char)(chance >> 8);
    memset(block->bytes, block->mark, block->size);
    return wrong;
}

static int l_blocks(lua_State *L)
{
    bool is_slab = strcmp(luaL_checkstring(L, 1), "slabs") == 0;
    size_t count = (size_t)luaL_checkinteger(L, 2);
    held_block *held = mp_new(count * sizeof *held);
    lua_Integer wrong = 0;
    unsigned seed = (unsigned)luaL_checkinteger(L, 4);
    for (lua_Integer step = luaL_checkinteger(L, 3); step > 0; step--) {
        held_block *block = &held[(size_t)rand_r(&seed) % count];
        if (block->bytes == NULL)
            wrong += take_block(block, is_slab, (unsigned)rand_r(&seed));
        else
            wrong += release_block(block, is_slab);
        if (step % 64 == 0)
            mp_pages_return((size_t)rand_r(&seed) % 300);
    }
    for (size_t i = 0; i < count; i++)
        wrong += release_block(&held[i], is_slab);
    free(held);
    while (mp_pages_return(1000))
        ;
    lua_pushinteger(L, wrong);
    return 1;
}

static int l_is_page(lua_State *L)
{
    bool is_page = strcmp(luaL_checkstring(L, 1), "pages") == 0;
    void *block = is_page ? mp_pages_take(1) : malloc(MP_PAGE);
    bool found = mp_pages_give(block);
    if (!found)
        free(block);
    lua_pushboolean(L, found);
    return 1;
}

int module_net(lua_State *L)
{
    static const luaL_Reg functions[] = {{"reach", l_reach},   {"canonical", l_canonical}, {"framing", l_framing},
                                         {"blocks", l_blocks}, {"is_page", l_is_page},     {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
