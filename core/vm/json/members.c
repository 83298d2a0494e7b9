/* members.c: the order in which the members of an object are written. */
#include "vm/json/encode.h"
#include <lauxlib.h>
#include <limits.h>

/* The first 8 bytes of a name as a number in the order of names. */
static uint64_t head_of(mp_str name)
{
    unsigned char bytes[8] = {0};
    memcpy(bytes, name.ptr, name.len < 8 ? name.len : 8);
    uint64_t head;
    memcpy(&head, bytes, 8);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    head = __builtin_bswap64(head);
#endif
    return head;
}

static int compare_names(const member *a, const member *b)
{
    if (a->head != b->head)
        return a->head < b->head ? -1 : 1;
    int order = memcmp(a->name.ptr, b->name.ptr, a->name.len < b->name.len ? a->name.len : b->name.len);
    return order != 0 ? order : (a->name.len > b->name.len) - (a->name.len < b->name.len);
}

static int compare_members(const void *one, const void *two)
{
    const member *a = one, *b = two;
    if (a->rank != b->rank)
        return a->rank < b->rank ? -1 : 1;
    return compare_names(a, b);
}

static void sort_members(member *members, size_t count)
{
    if (count > SORT_BY_HAND) {
        qsort(members, count, sizeof *members, compare_members);
        return;
    }
    for (size_t i = 1; i < count; i++) {
        member moved = members[i];
        size_t at = i;
        for (; at > 0 && compare_members(&members[at - 1], &moved) > 0; at--)
            members[at] = members[at - 1];
        members[at] = moved;
    }
}

/* Merges the sorted runs [from, middle) and [middle, end) of `members`; `scratch` has room for both. */
static void merge_members(member *members, member *scratch, size_t from, size_t middle, size_t end)
{
    size_t left = from, right = middle, to = from;
    while (left < middle && right < end)
        scratch[to++] = compare_members(&members[right], &members[left]) < 0 ? members[right++] : members[left++];
    memcpy(scratch + to, members + left, (middle - left) * sizeof *members);
    memcpy(members + from, scratch + from, (to + middle - left - from) * sizeof *members);
}

/* Finds a name among members that are sorted by name, without their ranks; NULL if it is not there. */
static member *MP_NULLABLE find_member(member *members, size_t count, mp_str name)
{
    uint64_t head = head_of(name);
    size_t low = 0, high = count;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        int order = compare_names(&members[middle], &(member){.name = name, .head = head});
        if (order == 0)
            return &members[middle];
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return NULL;
}

static void add_member(encoder *e)
{
    lua_State *L = e->L;
    if (e->count == e->cap) {
        member *more = lua_newuserdatauv(L, e->cap * 2 * sizeof *more, 0);
        memcpy(more, e->members, e->count * sizeof *more);
        lua_replace(L, e->base + MORE);
        e->members = more;
        e->cap *= 2;
    }
    member *m = &e->members[e->count++];
    m->name.ptr = lua_tolstring(L, -2, &m->name.len);
    m->head = head_of(m->name);
    m->slot = lua_gettop(L);
    m->rank = INT_MAX;
}

/* True if the table of names at `names` has the name below the top.  [-0, +0] */
static bool is_in_source(lua_State *L, int names)
{
    lua_pushvalue(L, -2);
    bool is_there = lua_rawget(L, names) != LUA_TNIL;
    lua_pop(L, 1);
    return is_there;
}

/* The first name and value are on top of the stack, where lua_next continues. */
void mp_encode_gather(encoder *e, frame *f)
{
    lua_State *L = e->L;
    do {
        if (lua_type(L, -2) != LUA_TSTRING)
            mp_encode_fail_at(e, e->depth - 1, "a table whose keys are neither all strings nor exactly 1..n,");
        if (!lua_checkstack(L, LUA_MINSTACK))
            mp_encode_fail_at(e, e->depth - 1, "a table with more names than the stack holds");
        if (f->keep.names != 0 && is_in_source(L, f->keep.names)) {
            lua_pop(L, 1);
        } else {
            add_member(e);
            lua_pushvalue(L, -2);
        }
        if (!lua_next(L, f->slot)) {
            f->members = e->count - f->first;
            f->phase = SORT;
            f->width = f->from = 0;
            return;
        }
    } while (!mp_encode_should_look(e));
}

static void end_sort(frame *f)
{
    f->phase = f->order != 0 ? RANK : MEMBERS;
    f->index = 0;
}

/* Sorts one run, or merges two runs. If there are several runs, the memory for merging is in a userdata on top of
 * the stack. */
void mp_encode_sort(encoder *e, frame *f)
{
    member *members = e->members + f->first;
    size_t count = f->members;
    if (count <= RUN) {
        sort_members(members, count);
        end_sort(f);
        return;
    }
    e->look = e->look < 0 ? -1 : 0; /* after a merge, which takes long, check at once whether other tasks wait */
    if (f->width == 0) {
        if (f->from == 0)
            lua_newuserdatauv(e->L, count * sizeof(member), 0);
        size_t run = count - f->from < RUN ? count - f->from : RUN;
        sort_members(members + f->from, run);
        f->from += run;
        if (f->from == count) {
            f->width = RUN;
            f->from = 0;
        }
        return;
    }
    size_t middle = f->from + f->width, end = middle + f->width < count ? middle + f->width : count;
    if (middle < count)
        merge_members(members, lua_touserdata(e->L, -1), f->from, middle, end);
    f->from = end;
    if (middle < count && end < count)
        return;
    f->from = 0;
    f->width *= 2;
    if (f->width >= count) {
        lua_pop(e->L, 1);
        end_sort(f);
    }
}

/* Gives ranks to the members that the list of __order names; then the members are sorted again. */
void mp_encode_rank(encoder *e, frame *f)
{
    lua_State *L = e->L;
    int most = (int)f->members;
    do {
        if (lua_rawgeti(L, f->order, ++f->index) != LUA_TSTRING) {
            lua_pop(L, 1);
            f->order = 0;
            f->phase = SORT;
            f->width = f->from = 0;
            return;
        }
        mp_str name;
        name.ptr = lua_tolstring(L, -1, &name.len);
        member *m = name.len > RANKED_NAME ? NULL : find_member(e->members + f->first, f->members, name);
        if (m != NULL && m->rank == INT_MAX)
            m->rank = f->index <= INT_MAX - most ? (int)f->index : INT_MAX - 1;
        lua_pop(L, 1);
    } while (!mp_encode_should_look(e));
}
