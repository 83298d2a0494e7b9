#include "pages.h"
#include "json/json.h"
#include <inttypes.h>

#define PAGE 200

/* Answers with `out`, or with 304 if the client has these bytes; frees it. */
static void answer_page(mp_stream *stream, mp_buf *out)
{
    char tag[24];
    snprintf(tag, sizeof tag, "\"%016" PRIx64 "\"", mp_hash_fnv(0, mp_buf_str(out)));
    const mp_header headers[] = {{"etag", mp_str_of(tag)}, {"cache-control", MP_STR("no-cache")}};
    if (mp_str_is(mp_stream_header(stream, "if-none-match", NULL), tag))
        mp_stream_answer(stream, 304, NULL, MP_STR_NONE, headers, 2);
    else
        mp_stream_answer(stream, 200, "application/json", mp_buf_str(out), headers, 2);
    mp_buf_clear(out);
}

/* Reads page=N; false if the query has anything else. */
static bool read_page(mp_str query, size_t *page)
{
    int64_t n = 0;
    mp_str name = MP_STR("page=");
    *page = 0;
    if (query.len == 0)
        return true;
    if (!mp_str_starts(query, name) || !mp_json_int(mp_str_from(query, name.len), &n) || n < 0 || n > 1000)
        return false;
    *page = (size_t)n;
    return true;
}

/* "allow": the grants of all scripts as the file has them, "grants": those of some scripts. */
static void put_grants(mp_buf *out, const mp_config *config)
{
    static const char *const kinds[] = {"net", "read", "write", "run", "env", "store"};
    bool is_first = true;
    mp_buf_put(out, MP_STR(",\"allow\":{"));
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char path[32];
        snprintf(path, sizeof path, "scripts.allow.%s", kinds[i]);
        const char *value = mp_config_shown(config, mp_config_key_at(path));
        if (value == NULL)
            continue;
        mp_buf_printf(out, "%s\"%s\":%s", is_first ? "" : ",", kinds[i], value);
        is_first = false;
    }
    const char *grants = mp_config_shown(config, mp_config_key_at("scripts.grants"));
    mp_buf_printf(out, "},\"grants\":%s", grants == NULL ? "{}" : grants);
}

void mp_api_scripts(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    size_t page, count;
    if (!read_page(mp_stream_request(stream)->query, &page)) {
        mp_stream_answer(stream, 400, "application/json", MP_STR("{\"error\":\"the query is page=N, from 0\"}\n"), NULL,
                         0);
        return;
    }
    mp_source *source = gateway->source(gateway->self);
    const mp_source_file *files = mp_source_files(source, &count);
    mp_buf out = {0};
    mp_buf_put(&out, MP_STR("{\"folder\":"));
    mp_json_put_string(&out, mp_str_of(mp_source_dir(source)));
    mp_buf_printf(&out, ",\"count\":%zu,\"files\":[", count);
    for (size_t i = page * PAGE; i < count && i < (page + 1) * PAGE; i++) {
        mp_buf_put(&out, i == page * PAGE ? MP_STR("{\"path\":") : MP_STR(",{\"path\":"));
        mp_json_put_string(&out, mp_str_of(files[i].path));
        mp_buf_printf(&out, ",\"bytes\":%zu}", files[i].len);
    }
    mp_buf_putc(&out, ']');
    if ((page + 1) * PAGE < count)
        mp_buf_printf(&out, ",\"next\":%zu", page + 1);
    mp_source_unref(source);
    put_grants(&out, mp_admin_settings(admin)->config);
    mp_buf_put(&out, MP_STR(",\"status\":"));
    gateway->describe_reload(gateway->self, &out);
    mp_buf_put(&out, MP_STR(",\"draining\":"));
    gateway->put_generations(gateway->self, &out);
    mp_buf_put(&out, MP_STR("}\n"));
    answer_page(stream, &out);
}

void mp_api_reloads(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    mp_buf out = {0};
    mp_buf_put(&out, MP_STR("{\"reloads\":"));
    gateway->put_reloads(gateway->self, &out);
    mp_buf_put(&out, MP_STR("}\n"));
    answer_page(stream, &out);
}

void mp_api_put_jobs(mp_buf *out, bool is_joined)
{
    mp_buf_put(out, MP_STR("{\"jobs\":"));
    mp_lib_put_jobs(out, is_joined);
    mp_buf_put(out, MP_STR("}\n"));
}

void mp_api_jobs(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)admin, (void)caller, (void)rest;
    mp_buf out = {0};
    mp_api_put_jobs(&out, false);
    answer_page(stream, &out);
}

void mp_api_certificates(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    const mp_admin_gateway *gateway = mp_admin_gateway_of(admin);
    mp_buf out = {0};
    mp_buf_put(&out, MP_STR("{\"certificates\":"));
    gateway->describe_certificates(gateway->self, true, &out);
    mp_buf_put(&out, MP_STR("}\n"));
    answer_page(stream, &out);
}

void mp_api_config(mp_admin *admin, mp_stream *stream, const mp_admin_caller *caller, mp_str rest)
{
    (void)caller, (void)rest;
    mp_buf out = {0};
    mp_config_put_shown(&out, mp_admin_settings(admin)->config);
    mp_buf_putc(&out, '\n');
    answer_page(stream, &out);
}
