#define _GNU_SOURCE /* memmem */
#include "replies.h"
#include <hiredis/hiredis.h>

#define MAX_DEPTH 7                 /* lists in lists: hiredis 0.14 reads no more, and later ones set no limit */
#define VALUE_BYTES 64              /* what a value counts at least: about what it takes in Lua */
#define MAX_LINE ((size_t)64 << 10) /* bytes of a status or an error */

MP_REFUSED(refused_replies, "redis_replies", MP_FAULT,
           "replies of Redis servers above 16 MiB or 7 lists in lists, and what is no reply")

struct mp_replies {
    redisReader *reader;
    mp_buf values;
    size_t size; /* of the reply that is being read, as it counts for the limit */
    const char *MP_NULLABLE wrong;
    bool awaits_line; /* behind the last reply is a line without its end: hiredis, which would scan it again, waits */
};

static const char too_large[] = "the server's reply is larger than 16 MiB",
                  no_resp2[] = "the server sent something that is no reply of RESP2";

/* The functions by which hiredis tells what it has read. NULL ends the reading; any other pointer will do. */

static mp_replies *replies_of(const redisReadTask *task)
{
    return task->privdata;
}

static void *MP_NULLABLE put(mp_replies *it, char tag, const void *bytes, size_t len)
{
    it->size += VALUE_BYTES + len;
    if (it->size > MP_REDIS_REPLY_BYTES) {
        it->wrong = too_large;
        return NULL;
    }
    mp_buf_putc(&it->values, tag);
    mp_buf_put(&it->values, (mp_str){bytes, len});
    return it;
}

static void *MP_NULLABLE on_string(const redisReadTask *task, char *bytes, size_t len)
{
    mp_replies *it = replies_of(task);
    uint32_t size = (uint32_t)len;
    bool is_known =
        task->type == REDIS_REPLY_STRING || task->type == REDIS_REPLY_STATUS || task->type == REDIS_REPLY_ERROR;
    if (!is_known || len > MP_REDIS_REPLY_BYTES) {
        it->wrong = is_known ? too_large : no_resp2;
        return NULL;
    }
    if (put(it, task->type == REDIS_REPLY_ERROR ? 'e' : 's', &size, sizeof size) == NULL)
        return NULL;
    it->size += len;
    mp_buf_put(&it->values, (mp_str){bytes, len});
    return it;
}

/* `count` is an int in hiredis 0.14, and a size_t later. */
#if HIREDIS_MAJOR >= 1
static void *MP_NULLABLE on_array(const redisReadTask *task, size_t count)
#else
static void *MP_NULLABLE on_array(const redisReadTask *task, int count)
#endif
{
    mp_replies *it = replies_of(task);
    int depth = 1;
    uint32_t size = (uint32_t)count;
    for (const redisReadTask *up = task->parent; up != NULL; up = up->parent)
        depth++;
    if (task->type != REDIS_REPLY_ARRAY || depth > MAX_DEPTH)
        it->wrong = depth > MAX_DEPTH ? "the server's reply has more than 7 lists in lists" : no_resp2;
    else if ((size_t)count > MP_REDIS_REPLY_BYTES / VALUE_BYTES)
        it->wrong = too_large;
    return it->wrong != NULL ? NULL : put(it, 'l', &size, sizeof size);
}

static void *MP_NULLABLE on_integer(const redisReadTask *task, long long value)
{
    int64_t integer = value;
    return put(replies_of(task), 'i', &integer, sizeof integer);
}

static void *MP_NULLABLE on_nil(const redisReadTask *task)
{
    return put(replies_of(task), 'n', "", 0);
}

#if HIREDIS_MAJOR >= 1 /* values of RESP3, which nobody has asked for */
static void *MP_NULLABLE on_double(const redisReadTask *task, MP_UNUSED double value, MP_UNUSED char *text,
                                   MP_UNUSED size_t len)
{
    replies_of(task)->wrong = no_resp2;
    return NULL;
}

static void *MP_NULLABLE on_bool(const redisReadTask *task, MP_UNUSED int value)
{
    replies_of(task)->wrong = no_resp2;
    return NULL;
}
#endif

static void on_free(MP_UNUSED void *object) {}

static const redisReplyObjectFunctions functions = {
    .createString = on_string,
    .createArray = on_array,
    .createInteger = on_integer,
    .createNil = on_nil,
#if HIREDIS_MAJOR >= 1
    .createDouble = on_double,
    .createBool = on_bool,
#endif
    .freeObject = on_free,
};

mp_replies *mp_replies_new(void)
{
    mp_replies *it = mp_new(sizeof *it);
    redisReader *reader = redisReaderCreateWithFunctions((redisReplyObjectFunctions *)(uintptr_t)&functions);
    if (reader == NULL)
        abort();
    reader->privdata = it;
    it->reader = reader;
    return it;
}

void mp_replies_free(mp_replies *MP_NULLABLE it)
{
    if (it == NULL)
        return;
    redisReaderFree(it->reader);
    mp_buf_clear(&it->values);
    free(it);
}

void mp_replies_feed(mp_replies *it, mp_str bytes)
{
    const redisReader *reader = it->reader;
    bool ends_line = it->awaits_line && bytes.len > 0 && bytes.ptr[0] == '\n' && reader->buf[reader->len - 1] == '\r';
    if (ends_line || (bytes.len > 0 && memmem(bytes.ptr, bytes.len, "\r\n", 2) != NULL))
        it->awaits_line = false;
    redisReaderFeed(it->reader, bytes.ptr, bytes.len);
}

/* Finds what would be collected without end: hiredis waits for the end of a line, and for all bytes of a text. */
static void check_rest(mp_replies *it)
{
    const redisReader *reader = it->reader;
    size_t rest = reader->len - reader->pos, looked = rest < MAX_LINE ? rest : MAX_LINE;
    it->awaits_line = rest > 0 && (it->awaits_line || memmem(reader->buf + reader->pos, looked, "\r\n", 2) == NULL);
    if (rest > MP_REDIS_REPLY_BYTES + MAX_LINE)
        it->wrong = too_large;
    else if (rest > MAX_LINE && it->awaits_line)
        it->wrong = no_resp2;
}

int mp_replies_next(mp_replies *it, mp_err *err)
{
    void *found = NULL;
    if (it->size == 0)
        it->values.len = 0;
    int status = it->awaits_line ? REDIS_OK : redisReaderGetReply(it->reader, &found);
    if (status == REDIS_OK && found == NULL)
        check_rest(it);
    if (status == REDIS_OK && it->wrong == NULL) {
        it->size = found == NULL ? it->size : 0;
        return found != NULL;
    }
    mp_stat_add(&mp_stat_refused_replies, 1);
    mp_err_set(err, "%s", it->wrong != NULL ? it->wrong : no_resp2);
    return -1;
}

mp_buf *mp_replies_last(mp_replies *it)
{
    return &it->values;
}

const char *mp_redis_next(const char *at, mp_redis_value *value)
{
    uint32_t size = 0;
    char tag = *at++;
    *value = (mp_redis_value){.kind = MP_REDIS_NIL};
    if (tag == 'n')
        return at;
    if (tag == 'i') {
        value->kind = MP_REDIS_INTEGER;
        memcpy(&value->integer, at, sizeof value->integer);
        return at + sizeof value->integer;
    }
    memcpy(&size, at, sizeof size);
    at += sizeof size;
    value->integer = size;
    if (tag == 'l') {
        value->kind = MP_REDIS_LIST;
        return at;
    }
    value->kind = tag == 'e' ? MP_REDIS_ERROR : MP_REDIS_TEXT;
    value->text = (mp_str){at, size};
    return at + size;
}

#define TEXT(number) #number
#define NUMBERS(major, minor, patch) TEXT(major) "." TEXT(minor) "." TEXT(patch)

const char *mp_redis_version(void)
{
    return NUMBERS(HIREDIS_MAJOR, HIREDIS_MINOR, HIREDIS_PATCH);
}
