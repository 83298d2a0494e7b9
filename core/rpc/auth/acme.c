/* acme.c: answers to the challenge HTTP-01 (RFC 8555, section 8.3): an ACME client on this machine, such as certbot,
 * puts a file for each token into a folder, and the certificate authority asks for it at the domain's port 80. */
#include "auth.h"
#include "os/os.h"

#define PATH MP_STR("/.well-known/acme-challenge/")
#define TOKEN_CAP 128
#define FILE_CAP 1024
#define PENDING MP_LIMIT(acme_pending, 64) /* authorities ask from a few places at once, for some names at a time */

MP_ACCOUNT(acme_pending, "acme_pending", "", "", "files of ACME challenges being read")
MP_REFUSED(refused_acme, "acme", MP_FAULT, "requests for ACME challenges while too many were answered")

typedef struct {
    mp_job super;
    mp_stream *stream;
    char *folder, token[TOKEN_CAP + 1];
    mp_buf text;
    bool is_counted, is_found;
} answer;

/* The token of a request for a challenge; empty: it is for something else. */
static mp_str token_of(const mp_stream *stream)
{
    const mp_request *request = mp_stream_request(stream);
    mp_str token = mp_str_starts(request->path, PATH) ? mp_str_from(request->path, PATH.len) : MP_STR_NONE;
    if (!mp_str_is(request->method, "GET") || token.len > TOKEN_CAP)
        return MP_STR_NONE;
    for (size_t i = 0; i < token.len; i++)
        if (memchr("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", token.ptr[i], 64) == NULL)
            return MP_STR_NONE;
    return token;
}

static bool may_hold(MP_UNUSED void *ctx, MP_UNUSED size_t bytes)
{
    return true;
}

static void read_file(mp_job *job)
{
    answer *it = mp_container(job, answer, super);
    const mp_file_room room = {.most = FILE_CAP, .may_hold = may_hold, .ctx = it};
    it->is_found = mp_file_read(it->folder, it->token, &room, &it->text) == 0;
}

static void answer_free(answer *it)
{
    if (it->is_counted)
        mp_account_give(&mp_account_acme_pending, 1);
    mp_stream_unref(it->stream);
    mp_buf_clear(&it->text);
    free(it->folder);
    free(it);
}

static void put_text(mp_stream *stream, int status, mp_str text)
{
    mp_stream_answer(stream, status, "text/plain; charset=utf-8", text, NULL, 0);
}

static void on_read(mp_job *job, mp_loop *MP_NULLABLE loop)
{
    answer *it = mp_container(job, answer, super);
    if (loop != NULL && it->is_found)
        put_text(it->stream, 200, mp_buf_str(&it->text));
    else if (loop != NULL)
        put_text(it->stream, 404, MP_STR("there is no such challenge\n"));
    answer_free(it);
}

bool mp_serve_challenge(mp_rpc *rpc, mp_stream *stream)
{
    mp_str token = token_of(stream);
    if (token.len == 0)
        return false;
    answer *it = mp_new(sizeof *it);
    it->super = (mp_job){.work = read_file, .done = on_read};
    it->stream = mp_stream_ref(stream);
    it->folder = mp_dup(mp_str_of(MP_NEVER_NULL(rpc->config->challenges)));
    memcpy(it->token, token.ptr, token.len);
    it->is_counted = mp_account_take(&mp_account_acme_pending, 1, PENDING);
    if (it->is_counted && mp_pool_run(rpc->loop, &it->super) == 0)
        return true;
    mp_stat_add(&mp_stat_refused_acme, 1);
    put_text(stream, 503, MP_STR("too many challenges at once\n"));
    answer_free(it);
    return true;
}
