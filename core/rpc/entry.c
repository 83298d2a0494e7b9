/* entry.c: an HTTP request while the language above finds out who sent it. The stream keeps all of the request; nothing of it
 * has been read but its head, and no session or call is made before it is admitted. */
#include "house.h"
#include <stdlib.h>

struct mp_entry {
    mp_link link; /* in rpc->entries */
    mp_rpc *rpc;
    mp_stream *stream; /* counted */
    bool is_parked;    /* it has a place, and `limit` runs */
    mp_timer limit;
    void *user;
};

/* Frees it. What it was for has its stream again. */
static void end(mp_entry *entry)
{
    mp_rpc *rpc = entry->rpc;
    mp_link_drop(&entry->link);
    mp_timer_stop(rpc->loop, &entry->limit);
    if (entry->is_parked)
        mp_table_give_place(rpc->table, MP_PLACE_ENTRY);
    mp_stream_on_gone(entry->stream, NULL, NULL);
    mp_stream_unref(entry->stream);
    free(entry);
}

/* It is called off, from wherever its task stands. */
static void cancel(mp_entry *entry)
{
    entry->rpc->hooks->on_entry_cancel(entry->rpc->ctx, entry);
    end(entry);
}

static void on_gone(void *ctx, mp_stream *stream)
{
    (void)stream;
    cancel(ctx);
}

static void refuse_busy(mp_entry *entry, const char *why)
{
    mp_rpc *rpc = entry->rpc;
    mp_stream *stream = mp_stream_ref(entry->stream);
    cancel(entry);
    mp_audit_request(stream, &(mp_decision){.event = "refused", .status = 503, .why = mp_str_of(why)});
    mp_refuse_with(rpc, stream, 503, (mp_header){"retry-after", MP_STR("1")}, why);
    mp_stream_unref(stream);
}

static void on_limit(mp_timer *timer)
{
    mp_stat_add(MP_STAT_REFUSED_ENTRIES, 1);
    refuse_busy(mp_container(timer, mp_entry, limit), "finding out who asks took too long: try again later");
}

void mp_entry_begin(mp_rpc *rpc, mp_stream *stream)
{
    mp_entry *entry = mp_new(sizeof *entry);
    *entry = (mp_entry){.rpc = rpc, .stream = mp_stream_ref(stream)};
    mp_link_init(&entry->link);
    mp_link_put(&rpc->entries, &entry->link);
    mp_stream_on_gone(stream, on_gone, entry);
    rpc->hooks->on_entry(rpc->ctx, entry);
}

void mp_entry_park(mp_entry *entry)
{
    mp_rpc *rpc = entry->rpc;
    if (entry->is_parked)
        return;
    if (!mp_table_take_place(rpc->table, MP_PLACE_ENTRY)) {
        refuse_busy(entry, "too many requests wait until it is known who asks: try again later");
        return;
    }
    entry->is_parked = true;
    mp_timer_start(rpc->loop, &entry->limit, rpc->config->entry_ms, on_limit);
    mp_stream_watch(entry->stream);
}

void mp_entry_admit(mp_entry *entry, mp_principal *principal)
{
    mp_rpc *rpc = entry->rpc;
    mp_stream *stream = mp_stream_ref(entry->stream);
    end(entry);
    mp_serve_as(rpc, stream, principal);
    mp_stream_unref(stream);
}

/* Says nothing of what was asked for: not whether the path, the session or the tool exists. */
void mp_entry_refuse(mp_entry *entry, const mp_refusal *refusal)
{
    mp_rpc *rpc = entry->rpc;
    mp_stream *stream = mp_stream_ref(entry->stream);
    end(entry);
    mp_audit_request(stream, &(mp_decision){.event = "refused",
                                            .status = refusal->status,
                                            .why = refusal->reason.len > 0 ? refusal->reason : refusal->message});
    mp_header headers[2];
    size_t count = 0;
    mp_buf challenge = {0}, seconds = {0};
    if (refusal->status == 401) {
        mp_stat_add(MP_STAT_REFUSED_AUTH, 1);
        mp_put_challenge(rpc, stream, &challenge, refusal->has_token ? "invalid_token" : NULL,
                         rpc->hooks->auth(rpc->ctx)->scopes);
        headers[count++] = (mp_header){"www-authenticate", mp_buf_str(&challenge)};
    }
    if (refusal->retry > 0) {
        mp_buf_printf(&seconds, "%d", refusal->retry);
        headers[count++] = (mp_header){"retry-after", mp_buf_str(&seconds)};
    }
    rpc->scratch.len = 0;
    mp_put_error(&rpc->scratch, MP_STR_NONE, -32600, refusal->message, MP_STR_NONE);
    mp_stream_answer(stream, refusal->status, "application/json", mp_buf_str(&rpc->scratch), headers, count);
    mp_buf_clear(&challenge);
    mp_buf_clear(&seconds);
    mp_stream_unref(stream);
}

void mp_entries_restart(mp_rpc *rpc, void *old)
{
    mp_link all;
    mp_link_init(&all);
    for (mp_link *link; (link = mp_link_take(&rpc->entries)) != NULL;)
        mp_link_put(&all, link);
    for (mp_link *link; (link = mp_link_take(&all)) != NULL;) {
        mp_entry *entry = mp_container(link, mp_entry, link);
        mp_link_put(&rpc->entries, link);
        rpc->hooks->on_entry_cancel(old, entry);
        if (rpc->hooks->auth(rpc->ctx)->is_asked)
            rpc->hooks->on_entry(rpc->ctx, entry);
        else /* it brought credentials to be looked at, which nobody does now */
            refuse_busy(entry, "the rules of who may come in have changed: try again");
    }
}

void mp_entries_call_off(mp_rpc *rpc, const char *why)
{
    while (!mp_link_is_alone(&rpc->entries))
        refuse_busy(mp_container(rpc->entries.next, mp_entry, link), why);
}

mp_stream *mp_entry_stream(const mp_entry *entry)
{
    return entry->stream;
}

void *mp_entry_user(const mp_entry *entry)
{
    return entry->user;
}

void mp_entry_set_user(mp_entry *entry, void *user)
{
    entry->user = user;
}
