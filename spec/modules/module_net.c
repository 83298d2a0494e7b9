/* module_net.c: modules.net, the functions of core/net that need no socket.
 *   reach(kind, address)   whether a connection of that kind may lead there; `kind` as host.http takes it
 *   canonical(text)        an address as it is usually written, or nil
 *   framing(head)          the error of a request's framing, or nil
 *   proxy(item)            nil if it may be in trusted_proxies; else the error and the hint
 *   client(proxies, common, rfc7239)   the client by the lines of X-Forwarded-For and of Forwarded; "" if it is the
 *                                      peer; true if it is unclear
 *   proxy_header(bytes)    "partial"; "broken" and why; "whole", the length of the header and the address, or nil
 *   blocks(kind, count, steps, seed)   takes and gives back blocks of "pages" or "slabs", `count` at once, and returns
 *                                      memory meanwhile;
 *                          the number of bytes that were not as their block's owner wrote them
 *   is_page(kind)          true if a block of that kind, "pages" or "malloc", is taken back as one of pages */
#include "net/server/http.h"
#include "net/server/forwarded.h"
#include "net/net.h"
#include "net/client/address_policy.h"
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

static int l_proxy(lua_State *L)
{
    mp_str item;
    mp_err err = {"", ""};
    item.ptr = luaL_checklstring(L, 1, &item.len);
    if (mp_proxies_check(item, &err) == 0)
        return 0;
    lua_pushstring(L, err.text);
    lua_pushstring(L, err.hint);
    return 2;
}

/* Reads the list of lines at `index`, from the last one on. */
static mp_forwarded read_list(lua_State *L, int index, const mp_proxies *proxies, bool is_rfc7239)
{
    mp_forwarded list = {.proxies = proxies};
    for (lua_Integer i = luaL_len(L, index); i > 0 && !list.is_over; i--) {
        mp_str line;
        lua_rawgeti(L, index, i);
        line.ptr = luaL_checklstring(L, -1, &line.len);
        mp_forwarded_take(&list, line, is_rfc7239);
        lua_pop(L, 1);
    }
    return list;
}

static int l_client(lua_State *L)
{
    char text[MP_ADDRESS_TEXT] = "", *items[64] = {NULL};
    for (lua_Integer i = 1; i <= luaL_len(L, 1) && i < 64; i++) {
        lua_rawgeti(L, 1, i);
        items[i - 1] = mp_dup(mp_str_of(lua_tostring(L, -1)));
        lua_pop(L, 1);
    }
    mp_proxies *proxies = mp_proxies_new(items);
    if (proxies == NULL)
        return luaL_error(L, "no proxies");
    mp_forwarded common = read_list(L, 2, proxies, false), rfc7239 = read_list(L, 3, proxies, true);
    mp_forwarded found = luaL_len(L, 3) == 0   ? common
                         : luaL_len(L, 2) == 0 ? rfc7239
                                               : mp_forwarded_agree(&common, &rfc7239);
    if (found.has_ip)
        mp_ip_write(&found.ip, text);
    mp_proxies_free(proxies);
    for (int i = 0; items[i] != NULL; i++)
        free(items[i]);
    lua_pushstring(L, text);
    lua_pushboolean(L, found.is_unclear);
    return 2;
}

static int l_counted(lua_State *L)
{
    char room[MP_COUNTED_TEXT];
    mp_str text;
    text.ptr = luaL_checklstring(L, 1, &text.len);
    mp_str counted = mp_address_counted(text, room);
    lua_pushlstring(L, counted.ptr, counted.len);
    return 1;
}

static int l_proxy_header(lua_State *L)
{
    mp_str input;
    mp_proxy_header header;
    char text[MP_ADDRESS_TEXT];
    input.ptr = luaL_checklstring(L, 1, &input.len);
    mp_proxy_result result = mp_proxy_header_read(input, &header);
    lua_pushstring(L, result == MP_PROXY_WHOLE ? "whole" : result == MP_PROXY_PARTIAL ? "partial" : "broken");
    if (result == MP_PROXY_BROKEN)
        lua_pushstring(L, header.why);
    if (result != MP_PROXY_WHOLE)
        return result == MP_PROXY_BROKEN ? 2 : 1;
    lua_pushinteger(L, (lua_Integer)header.bytes);
    if (header.has_ip)
        mp_ip_write(&header.ip, text);
    lua_pushstring(L, header.has_ip ? text : NULL);
    return 3;
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
    static const luaL_Reg functions[] = {
        {"reach", l_reach},   {"canonical", l_canonical}, {"framing", l_framing},
        {"blocks", l_blocks}, {"is_page", l_is_page},     {"proxy", l_proxy},
        {"client", l_client}, {"counted", l_counted},     {"proxy_header", l_proxy_header},
        {NULL, NULL}};
    luaL_newlib(L, functions);
    return 1;
}
