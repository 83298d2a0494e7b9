/* ui.c: serves the dashboard. The files are stored compressed and are sent so, since every browser takes gzip. */
#include "ui.h"
#include <inttypes.h>
#include <stdio.h>

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

static const ui_file *find_file(mp_str name)
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
    return ending != NULL && strcmp(ending, ".css") == 0 ? "text/css; charset=utf-8" : "text/html; charset=utf-8";
}

/* FNV-1a: tells versions of a file apart. */
static uint64_t hash_of(const ui_file *file)
{
    uint64_t hash = UINT64_C(14695981039346656037);
    for (size_t i = 0; i < file->size; i++)
        hash = (hash ^ (unsigned char)file->bytes[i]) * UINT64_C(1099511628211);
    return hash;
}

void mp_admin_ui(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)admin, (void)caller;
    const ui_file *file = find_file(rest.len == 0 ? MP_STR("index.html") : rest);
    if (file == NULL) {
        mp_stream_answer(stream, 404, "text/plain", MP_STR("not found\n"), NULL, 0);
        return;
    }
    char tag[24];
    snprintf(tag, sizeof tag, "\"%016" PRIx64 "\"", hash_of(file));
    const mp_header headers[] = {{"etag", mp_str_of(tag)},
                                 {"cache-control", MP_STR("no-cache")},
                                 {"content-security-policy", MP_STR(policy)},
                                 {"x-content-type-options", MP_STR("nosniff")},
                                 {"referrer-policy", MP_STR("no-referrer")},
                                 {"cross-origin-opener-policy", MP_STR("same-origin")},
                                 {"cross-origin-resource-policy", MP_STR("same-origin")},
                                 {"content-encoding", MP_STR("gzip")}};
    size_t count = sizeof headers / sizeof *headers;
    if (mp_str_is(mp_stream_header(stream, "if-none-match", NULL), tag))
        mp_stream_answer(stream, 304, NULL, MP_STR_NONE, headers, count - 1);
    else
        mp_stream_answer(stream, 200, type_of(file->name), (mp_str){file->bytes, file->size}, headers, count);
}
