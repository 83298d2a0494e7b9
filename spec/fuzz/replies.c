/* replies.c: any bytes as the replies of a Redis server. Cut anywhere they give the same replies and the same end, and
 * what is stored of a reply can be read to its end. The first byte chooses how they are cut. */
#include "redis/replies.h"

#define MUST(condition) ((condition) ? (void)0 : abort())

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

/* Reads a value with all that is in it. Returns where it ends. */
static const char *walk(const char *at, const char *end, int depth)
{
    mp_redis_value value;
    MUST(at < end && depth <= 8);
    at = mp_redis_next(at, &value);
    MUST(at <= end);
    if (value.text.len > 0)
        MUST(value.text.ptr >= at - value.text.len && value.text.ptr + value.text.len <= end);
    for (int64_t i = 0; value.kind == MP_REDIS_LIST && i < value.integer; i++)
        at = walk(at, end, depth + 1);
    return at;
}

/* Appends the replies in `text`, which come `step` bytes at once. False: they do not go on. */
static bool read_all(mp_str text, size_t step, mp_buf *out)
{
    mp_replies *replies = mp_replies_new();
    int found = 0;
    for (size_t at = 0; at < text.len && found >= 0; at += step) {
        size_t part = step < text.len - at ? step : text.len - at;
        char *piece = mp_new(part); /* of its size, so that a sanitizer sees a read behind it */
        memcpy(piece, text.ptr + at, part);
        mp_replies_feed(replies, (mp_str){piece, part});
        free(piece);
        while ((found = mp_replies_next(replies, NULL)) > 0) {
            mp_str reply = mp_buf_str(mp_replies_last(replies));
            MUST(walk(reply.ptr, reply.ptr + reply.len, 0) == reply.ptr + reply.len);
            mp_buf_put(out, reply);
        }
    }
    mp_replies_free(replies);
    return found >= 0;
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    if (size == 0)
        return 0;
    mp_str text = {(const char *)data + 1, size - 1};
    mp_scoped_buf whole = {0}, cut = {0};
    bool goes_on = read_all(text, text.len + 1, &whole), in_parts = read_all(text, data[0] % 7 + 1, &cut);
    MUST(goes_on == in_parts);
    MUST(mp_str_eq(mp_buf_str(&whole), mp_buf_str(&cut)));
    return 0;
}
