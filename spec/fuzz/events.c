/* events.c: an event stream gives the same events in one piece and cut anywhere, and no buffer grows over the limit.
 * The first byte chooses the limit and how the bytes are cut. */
#include "mcp/mcp.h"
#include <stdlib.h>

#define MUST(condition) ((condition) ? (void)0 : abort())

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* Appends all that the reader says about the bytes. */
static mp_event_result read_piece(mp_event_reader *reader, mp_str bytes, mp_buf *found)
{
    mp_event event;
    mp_event_result result;
    while ((result = mp_event_read(reader, &bytes, &event)) == MP_EVENT_COMPLETE) {
        MUST(event.data.len <= reader->most && event.kind.len > 0 &&
             (event.kind.len <= reader->most || mp_str_is(event.kind, "message")));
        mp_buf_printf(found, "%zu %zu %zu:", event.kind.len, event.data.len, reader->id.len);
        mp_buf_put(found, event.kind);
        mp_buf_put(found, event.data);
        mp_buf_put(found, mp_buf_str(&reader->id));
    }
    MUST(result != MP_EVENT_NONE || bytes.len == 0);
    size_t most = 2 * reader->most + 2 * bytes.len + 512;
    MUST(reader->line.cap <= most && reader->data.cap <= most && reader->kind.cap <= most && reader->id.cap <= most);
    return result;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    if (size == 0)
        return 0;
    mp_str text = {(const char *)data + 1, size - 1};
    size_t step = 1 + data[0] % 7, limit = data[0] >= 128 ? 1 << 20 : 1 + data[0] / 8;
    mp_event_reader whole = {.most = limit}, cut = {.most = limit};
    mp_buf one = {0}, other = {0};
    mp_event_result first = read_piece(&whole, text, &one), second = MP_EVENT_NONE;
    for (size_t at = 0; at < text.len && second == MP_EVENT_NONE; at += step) {
        mp_str piece = mp_str_from(text, at);
        piece.len = piece.len < step ? piece.len : step;
        second = read_piece(&cut, piece, &other);
    }
    MUST(first == second && mp_str_eq(mp_buf_str(&one), mp_buf_str(&other)));
    MUST(first != MP_EVENT_NONE || (whole.has_retry == cut.has_retry && whole.retry_ms == cut.retry_ms));
    mp_event_reader_clear(&whole);
    mp_event_reader_clear(&cut);
    mp_buf_clear(&one);
    mp_buf_clear(&other);
    return 0;
}
