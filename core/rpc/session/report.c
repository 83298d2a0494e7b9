/* report.c: sessions as operators see them. A session's id is half a credential: a mark stands for it. */
#include "state.h"
#include "json/json.h"

MP_COUNTER(closed_operator, "sessions_closed", "reason", "operator", "ended through the admin listener")

#define MAX_CLIENT_BYTES 1024 /* of the client's description of itself; a longer one is left out */

static void put_member(mp_buf *out, const char *name, mp_str text)
{
    mp_buf_printf(out, ",\"%s\":", name);
    mp_json_put_string(out, text);
}

static void put_session(mp_buf *out, mp_session *session, uint64_t now)
{
    const mp_era *era = mp_session_era(session);
    mp_str client = mp_session_client(session);
    uint64_t used_at = atomic_load(&session->used_at);
    pthread_mutex_lock(&session->lock);
    bool has_stream = session->reader != NULL, is_closed = session->closed;
    pthread_mutex_unlock(&session->lock);
    if (is_closed)
        return;
    if (out->len > 0 && out->ptr[out->len - 1] == '}')
        mp_buf_putc(out, ',');
    mp_buf_printf(out, "{\"session\":\"%s\"", mp_session_mark_of(session->node.key).text);
    put_member(out, "transport", mp_str_of(session->transport->name));
    if (era != NULL)
        put_member(out, "revision", mp_str_of(era->date));
    put_member(out, "principal", session->user == NULL ? mp_principal_id(mp_nobody) : mp_str_of(session->user));
    put_member(out, "address", mp_str_of(session->peer));
    if (client.len > 0 && client.len <= MAX_CLIENT_BYTES) {
        mp_buf_put(out, MP_STR(",\"client\":"));
        mp_buf_put(out, client);
    }
    mp_buf_printf(out, ",\"age_ms\":%llu,\"idle_ms\":%llu,\"calls\":%d,\"has_stream\":%s}",
                  (unsigned long long)(now > session->opened_at ? now - session->opened_at : 0),
                  (unsigned long long)(now > used_at ? now - used_at : 0), atomic_load(&session->calls),
                  has_stream ? "true" : "false");
}

static void give_back(mp_session_list *all)
{
    for (size_t i = 0; i < all->count; i++)
        mp_session_unref(all->list[i]);
    free(all->list);
}

void mp_session_table_put_sessions(mp_session_table *table, unsigned page, uint64_t now_ms, mp_buf *out)
{
    mp_session_list all = {0};
    mp_session_table_take_shard(table, page % MP_SESSION_PAGES, &all);
    for (size_t i = 0; i < all.count; i++)
        put_session(out, all.list[i], now_ms);
    give_back(&all);
}

int mp_session_table_end_session(mp_session_table *table, mp_str mark)
{
    int count = 0;
    mp_session *found = NULL;
    for (unsigned shard = 0; shard < MP_SESSION_PAGES; shard++) {
        mp_session_list all = {0};
        mp_session_table_take_shard(table, shard, &all);
        for (size_t i = 0; i < all.count; i++)
            if (mp_str_is(mark, mp_session_mark_of(all.list[i]->node.key).text) && count++ == 0)
                found = mp_session_ref(all.list[i]);
        give_back(&all);
    }
    if (count == 1 && !mp_session_close(found, &mp_stat_closed_operator))
        count = 0;
    if (found != NULL)
        mp_session_unref(found);
    return count;
}
