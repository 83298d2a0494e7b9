/* others_events.c: joins the event streams of several processes into one, as for a tap. Whole events are sent on as
 * they arrive. If the client's stream has no room, no more is read from the processes: they drop events themselves and
 * count them. */
#define _GNU_SOURCE /* for memmem */
#include "others.h"
#include "query_slots.h"
#include "run.h"

#define PAUSE_MS 20                 /* ms until a reader without room is looked at again */
#define MOST_READ ((size_t)1 << 20) /* bytes of one process that wait here: an event has at most 64 KiB */

typedef struct joined joined;

typedef struct {
    joined *of;
    mp_transfer *MP_NULLABLE transfer;
    mp_buf in; /* bytes that have arrived and were not sent on yet */
} source;

struct joined {
    mp_link link;
    mp_admin *admin;
    mp_stream *stream; /* counted reference */
    mp_admin_caller caller;
    mp_timer next;
    bool is_open;      /* the answer has begun */
    bool is_passed_on; /* another process is the newest, and answers for all */
    mp_buf body;       /* body of the request */
    size_t count;
    source list[]; /* the first is this process, or the only one */
};

static void close_joined(joined *of)
{
    mp_timer_stop(mp_admin_loop(of->admin), &of->next);
    for (size_t i = 0; i < of->count; i++) {
        mp_transfer_free(of->list[i].transfer);
        mp_buf_clear(&of->list[i].in);
    }
    mp_stream_on_gone(of->stream, NULL, NULL);
    mp_stream_unref(of->stream);
    mp_link_drop(&of->link);
    mp_buf_clear(&of->body);
    free(of);
}

static void on_gone(void *ctx, MP_UNUSED mp_stream *stream)
{
    close_joined(ctx);
}

static void end_joined(joined *of)
{
    mp_stream *stream = mp_stream_ref(of->stream);
    close_joined(of);
    mp_stream_end(stream);
    mp_stream_unref(stream);
}

/* The whole events at the beginning of the bytes that have arrived, as far as they fit into `room`. */
static mp_str events_of(mp_str all, size_t room)
{
    mp_str events = {all.ptr, all.len < room ? all.len : room};
    while (events.len >= 2 && memcmp(events.ptr + events.len - 2, "\n\n", 2) != 0)
        events.len--;
    return events.len < 2 ? MP_STR_NONE : events;
}

/* True for events in which a process describes its own tap: the client gets only one of them. */
static bool is_of_tap(mp_str event)
{
    mp_str name = MP_STR("data: {\"event\":\"tap ");
    return mp_str_starts(event, name) || event.ptr[0] == ':';
}

static void put_events(mp_buf *out, mp_str events, bool is_own)
{
    while (events.len > 0) {
        const char *end = memmem(events.ptr, events.len, "\n\n", 2);
        size_t len = end == NULL ? events.len : (size_t)(end - events.ptr) + 2;
        mp_str event = {events.ptr, len};
        if (is_own || !is_of_tap(event))
            mp_buf_put(out, event);
        events = mp_str_from(events, len);
    }
}

/* Reads from one process as much as may wait here. True if it has ended and all of it has been read. */
static bool read_source(source *from)
{
    mp_transfer *transfer = from->transfer;
    if (transfer == NULL)
        return true;
    bool is_over = mp_transfer_is_over(transfer);
    if (from->in.len < MOST_READ && mp_transfer_status(transfer) == 200) {
        mp_buf_put(&from->in, mp_transfer_body(transfer));
        mp_transfer_take(transfer); /* frees bytes in the transfer: more may have arrived meanwhile */
    }
    return is_over && mp_transfer_body(transfer).len == 0;
}

/* Moves events of one process to the reader. False: they have no room. */
static bool move_events(source *from, mp_buf *out, size_t room, bool is_own)
{
    mp_str all = mp_buf_str(&from->in), events = events_of(all, room);
    put_events(out, events, is_own);
    from->in.len -= events.len;
    if (events.len > 0)
        memmove(from->in.ptr, from->in.ptr + events.len, from->in.len);
    return events_of(mp_buf_str(&from->in), SIZE_MAX).len == 0;
}

static void on_next(mp_timer *timer);

static void pump_events(joined *of)
{
    mp_scoped_buf out = {0};
    bool is_over = false, has_room = true;
    for (size_t i = 0; i < of->count; i++) {
        bool ended = read_source(&of->list[i]);
        size_t room = mp_stream_room(of->stream);
        bool has_moved = move_events(&of->list[i], &out, room > out.len ? room - out.len : 0, i == 0);
        has_room = has_room && has_moved;
        is_over = is_over || (i == 0 && ended && has_moved); /* no further event of the other processes can arrive */
    }
    if (!has_room)
        mp_timer_start(mp_admin_loop(of->admin), &of->next, PAUSE_MS, on_next);
    if (mp_stream_send(of->stream, mp_buf_str(&out)) == 0 && is_over) /* a failed send has closed the stream */
        end_joined(of);
}

/* The own process refuses it: as it would be refused alone. */
static void refuse_reader(joined *of, int status, mp_str body)
{
    mp_stream *stream = mp_stream_ref(of->stream);
    mp_stream_on_gone(stream, NULL, NULL);
    if (status == 0)
        mp_admin_refuse(stream, 503, MP_STR("try again"));
    else
        mp_stream_answer(stream, status, "application/json", body, NULL, 0);
    close_joined(of);
    mp_stream_unref(stream);
}

static void on_next(mp_timer *timer)
{
    joined *of = mp_container(timer, joined, next);
    mp_transfer *own = of->list[0].transfer;
    mp_loop_measure(mp_admin_loop(of->admin), MP_MEASURE_ADMIN);
    if (!of->is_open) {
        int status = own == NULL ? 0 : mp_transfer_status(own);
        bool is_over = own == NULL || mp_transfer_is_over(own);
        if (status != 200 && is_over) {
            refuse_reader(of, status, own == NULL ? MP_STR_NONE : mp_transfer_body(own));
            return;
        }
        if (status != 200)
            return;
        of->is_open = true;
        if (mp_stream_open_events(of->stream, NULL, 0) != 0) { /* the client has left */
            close_joined(of);
            return;
        }
    }
    pump_events(of);
}

/* Called when bytes of a stream have arrived. */
static void on_ready(MP_UNUSED mp_transfer *transfer, void *ctx)
{
    joined *of = ((source *)ctx)->of;
    mp_timer_start(mp_admin_loop(of->admin), &of->next, 0, on_next);
}

void mp_others_open_events(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller,
                           const mp_process_facts *processes, size_t count)
{
    const mp_request *request = mp_stream_request(stream);
    mp_scoped_buf target = {0};
    joined *of = mp_new(sizeof *of + count * sizeof *of->list);
    of->admin = admin;
    of->stream = mp_stream_ref(stream);
    of->caller = *caller;
    of->is_passed_on = !mp_processes_is_newest(mp_admin_gateway_of(admin)->processes);
    mp_link_put(mp_others_streams(admin), &of->link);
    mp_buf_put(&of->body, request->body);
    mp_buf_printf(&target, "%.*s?%.*s", MP_STR_ARG(request->path), MP_STR_ARG(request->query));
    for (size_t i = 0; i < count; i++) {
        source *from = &of->list[of->count++];
        from->of = of;
        const mp_outgoing how = {.method = mp_str_is(request->method, "POST") ? "POST" : "GET",
                                 .body = of->body.len > 0 ? mp_buf_str(&of->body) : MP_STR_NONE,
                                 .is_stream = true,
                                 .most = SIZE_MAX,
                                 .ready = on_ready,
                                 .ctx = from};
        from->transfer =
            mp_others_ask(admin, processes[i].number, &how,
                          &(mp_others_question){mp_buf_str(&target), mp_str_of(caller->name), false, of->is_passed_on});
    }
    mp_stream_on_gone(stream, on_gone, of);
    mp_timer_start(mp_admin_loop(admin), &of->next, 0, on_next);
    mp_stream_detect_close(stream); /* may close the stream */
}

void mp_others_review_events(mp_admin *admin, bool ends_all)
{
    mp_link *all = mp_others_streams(admin);
    bool is_newest = mp_processes_is_newest(mp_admin_gateway_of(admin)->processes);
    for (mp_link *link = mp_link_first(all); link != all;) {
        joined *of = mp_container(link, joined, link);
        bool is_allowed =
            !ends_all && (is_newest || of->is_passed_on) && mp_admin_access_has(mp_admin_access_of(admin), &of->caller);
        link = is_allowed ? link->next
                          : all->next; /* searched from the start again: writing for one reader may end others */
        if (!is_allowed)
            end_joined(of);
    }
}
