#include "lib/work/listening.h"
#include <lauxlib.h>

#define MAX_MESSAGES MP_LIMIT(job_messages, 1024) /* what a job that takes a millisecond does in a second */
#define MAX_BYTES ((size_t)16 << 20)

typedef struct {
    mp_link link;
    bool is_gap;
    size_t channel_len, text_len;
    char texts[]; /* the name of the channel, and the text */
} message;

static message *MP_NULLABLE take_first(mp_listening *source)
{
    mp_link *link = mp_link_take(&source->messages);
    if (link == NULL)
        return NULL;
    message *first = mp_container(link, message, link);
    if (mp_link_is_alone(&source->messages))
        source->is_behind = false;
    if (first->is_gap)
        return first;
    source->count--;
    source->bytes -= first->channel_len + first->text_len;
    mp_stat_add(source->kind->waiting, -1);
    return first;
}

void *mp_listening_new(lua_State *L, size_t size, const mp_listening_kind *kind, const char *metatable)
{
    void *made = lua_newuserdatauv(L, size, 2);
    memset(made, 0, size);
    ((mp_listening *)made)->kind = kind;
    luaL_setmetatable(L, metatable);
    for (int i = 1; i <= 2; i++) {
        lua_pushvalue(L, i);
        lua_setiuservalue(L, -2, i);
    }
    return made;
}

bool mp_listening_open(mp_listening *source, mp_loop *loop, void (*ready)(void *ctx), void *ctx)
{
    source->ready = ready;
    source->ctx = ctx;
    return source->kind->open(source, loop);
}

void mp_listening_close(mp_listening *source)
{
    message *first;
    source->kind->close(source);
    while ((first = take_first(source)) != NULL)
        free(first);
}

bool mp_listening_has_message(const mp_listening *source)
{
    return !mp_link_is_alone(&source->messages);
}

void mp_listening_take(lua_State *L, mp_listening *source)
{
    mp_link *link = mp_link_first(&source->messages);
    const message *first = mp_container(link, message, link);
    if (!mp_listening_has_message(source) || first->is_gap) {
        lua_pushnil(L);
        lua_pushnil(L);
    } else {
        lua_pushlstring(L, first->texts + first->channel_len, first->text_len);
        lua_pushlstring(L, first->texts, first->channel_len);
    }
    free(take_first(source));
}

void mp_listening_put_gap(void *ctx)
{
    mp_listening *source = ctx;
    mp_link *last = mp_link_last(&source->messages);
    if (last == &source->messages || !mp_container(last, message, link)->is_gap) {
        message *gap = mp_new(sizeof *gap);
        gap->is_gap = true;
        mp_link_put(&source->messages, &gap->link);
    }
    source->ready(source->ctx);
}

void mp_listening_put(void *ctx, mp_str channel, mp_str text)
{
    mp_listening *source = ctx;
    size_t bytes = channel.len + text.len;
    bool was_behind = source->is_behind;
    source->is_behind = was_behind || source->count >= MAX_MESSAGES || source->bytes + bytes > MAX_BYTES;
    if (source->is_behind) {
        source->kind->dropped(source, !was_behind);
        if (!was_behind)
            mp_listening_put_gap(source);
        return;
    }
    message *one = mp_new(sizeof *one + bytes);
    one->channel_len = channel.len;
    one->text_len = text.len;
    memcpy(one->texts, channel.ptr, channel.len);
    memcpy(one->texts + channel.len, text.ptr, text.len);
    mp_link_put(&source->messages, &one->link);
    source->count++;
    source->bytes += bytes;
    mp_stat_add(source->kind->waiting, 1);
    source->ready(source->ctx);
}
