/* bare.c: libh2o alone, the yardstick of the bench: answers every request with the bytes of a file, one loop per
 * thread.
 *   bare PORT THREADS FILE */
#include "server.h"

static char answer[4096];
static size_t answer_len;

static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
    (void)self;
    req->res.status = 200;
    req->res.reason = "OK";
    h2o_add_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, H2O_STRLIT("application/json"));
    h2o_send_inline(req, answer, answer_len);
    return 0;
}

int main(int argc, char **argv)
{
    FILE *file = argc == 4 ? fopen(argv[3], "rb") : NULL;
    if (file == NULL) {
        fprintf(stderr, "usage: bare PORT THREADS FILE\n");
        return 2;
    }
    answer_len = fread(answer, 1, sizeof answer, file);
    fclose(file);
    serve_for_ever(argv[1], argv[2], on_request);
    return 0;
}
