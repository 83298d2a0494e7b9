/* ui.c: serves the dashboard. The files are stored compressed, and are sent so to every client that takes gzip. */
#include "ui.h"
#include <inttypes.h>
#include <zlib.h>

#define GZIP_HEAD (16 + MAX_WBITS) /* for inflateInit2: the bytes begin with gzip's header */

/* Made by ui.cmake. */
typedef struct {
    const char *name, *bytes;
    size_t size;
} ui_file;
extern const ui_file mp_ui_files[] __attribute__((visibility("hidden")));
extern const size_t mp_ui_file_count __attribute__((visibility("hidden")));

/* The page may load its own files and ask its own listener; scripts and styles inside the page do not run. */
static const char policy[] =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri "
    "'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'";

static const ui_file *MP_NULLABLE find_file(mp_str name)
{
    for (size_t i = 0; i < mp_ui_file_count; i++)
        if (mp_str_is(name, mp_ui_files[i].name))
            return &mp_ui_files[i];
    return NULL;
}

static const char *type_of(const char *name)
{
    const char *ending = strrchr(name, '.');
    if (ending != NULL && strcmp(ending, ".js") == 0)
        return "text/javascript; charset=utf-8";
    if (ending != NULL && strcmp(ending, ".svg") == 0)
        return "image/svg+xml";
    return ending != NULL && strcmp(ending, ".css") == 0 ? "text/css; charset=utf-8" : "text/html; charset=utf-8";
}

/* True for the value of a parameter q that refuses a coding: 0, 0.0, 0.000. */
static bool is_zero(mp_str q)
{
    bool is_digits = q.len > 0;
    for (size_t i = 0; i < q.len; i++)
        is_digits = is_digits && (q.ptr[i] == '0' || q.ptr[i] == '.');
    return is_digits;
}

/* True if the client takes answers that are compressed as by gzip. In Accept-Encoding, gzip itself counts before
 * '*'. */
static bool takes_gzip(const mp_stream *stream)
{
    bool has_name = false, takes_name = false, takes_any = false;
    size_t at = 0;
    for (mp_str value; (value = mp_stream_next_header(stream, "accept-encoding", &at)).ptr != NULL;)
        while (value.ptr != NULL) {
            mp_str weight = mp_str_cut(&value, ','), coding = mp_str_trim(mp_str_cut(&weight, ';'));
            weight = mp_str_trim(weight);
            bool is_taken = !(mp_str_starts(weight, MP_STR("q=")) && is_zero(mp_str_from(weight, 2)));
            if (mp_str_is_nocase(coding, "gzip") || mp_str_is_nocase(coding, "x-gzip")) {
                has_name = true;
                takes_name = takes_name || is_taken;
            } else if (mp_str_is(coding, "*")) {
                takes_any = is_taken;
            }
        }
    return has_name ? takes_name : takes_any;
}

/* The file as it was before the build compressed it: a copy in `room`. */
static mp_str plain_text(const ui_file *file, mp_buf *room)
{
    const unsigned char *end = (const unsigned char *)file->bytes + file->size; /* the size is in the last 4 bytes */
    size_t size = end[-4] | (size_t)end[-3] << 8 | (size_t)end[-2] << 16 | (size_t)end[-1] << 24;
    z_stream from = {.next_in = (Bytef *)(uintptr_t)file->bytes,
                     .avail_in = (uInt)file->size,
                     .next_out = (Bytef *)mp_buf_room(room, size),
                     .avail_out = (uInt)size};
    if (inflateInit2(&from, GZIP_HEAD) != Z_OK || inflate(&from, Z_FINISH) != Z_STREAM_END)
        abort(); /* only without memory: the bytes come from the build */
    inflateEnd(&from);
    room->len = size;
    return mp_buf_str(room);
}

void mp_admin_ui(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)admin, (void)caller;
    const ui_file *file = find_file(rest.len == 0 ? MP_STR("index.html") : rest);
    if (file == NULL) {
        mp_stream_answer(stream, 404, "text/plain", MP_STR("not found\n"), NULL, 0);
        return;
    }
    bool is_packed = takes_gzip(stream);
    char tag[28]; /* hash of the bytes that are sent: compressed and uncompressed forms have different tags */
    snprintf(tag, sizeof tag, "\"%016" PRIx64 "%s\"", mp_hash_fnv(0, (mp_str){file->bytes, file->size}),
             is_packed ? "" : "-p");
    const mp_header headers[] = {{"etag", mp_str_of(tag)},
                                 {"cache-control", MP_STR("no-cache")},
                                 {"vary", MP_STR("accept-encoding")},
                                 {"content-security-policy", MP_STR(policy)},
                                 {"x-content-type-options", MP_STR("nosniff")},
                                 {"referrer-policy", MP_STR("no-referrer")},
                                 {"cross-origin-opener-policy", MP_STR("same-origin")},
                                 {"cross-origin-resource-policy", MP_STR("same-origin")},
                                 {"content-encoding", MP_STR("gzip")}};
    size_t count = sizeof headers / sizeof *headers;
    mp_scoped_buf room = {0};
    if (mp_str_is(mp_stream_header(stream, "if-none-match", NULL), tag))
        mp_stream_answer(stream, 304, NULL, MP_STR_NONE, headers, count - 1);
    else if (is_packed)
        mp_stream_answer(stream, 200, type_of(file->name), (mp_str){file->bytes, file->size}, headers, count);
    else
        mp_stream_answer(stream, 200, type_of(file->name), plain_text(file, &room), headers, count - 1);
}
