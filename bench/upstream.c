/* upstream.c: an MCP server that does almost nothing, for the bench of upstreams: it answers each request with the
 * result in the file of its method, over libh2o with one loop per thread, or over stdio.
 *   upstream PORT THREADS FOLDER | upstream stdio FOLDER
 * FOLDER/tools_call has the result of tools/call. A method without a file gets the error -32601, a notification 202. */
#define _GNU_SOURCE
#include "server.h"

typedef struct {
    char name[64]; /* as in the message: "tools/call" */
    char *result;
    size_t len;
} method;

static method methods[16];
static size_t method_count;

static void read_method(const char *folder, const char *name)
{
    char path[512];
    method *it = &methods[method_count];
    snprintf(it->name, sizeof it->name, "%s", name);
    snprintf(path, sizeof path, "%s/%s", folder, name);
    for (char *at = path + strlen(folder) + 1; *at != '\0'; at++)
        if (*at == '/')
            *at = '_';
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        return;
    it->result = NULL;
    size_t cap = 0;
    it->len = 0;
    ssize_t len = getdelim(&it->result, &cap, '\0', file);
    it->len = len < 0 ? 0 : (size_t)len;
    fclose(file);
    method_count++;
}

static const char *find(const char *text, size_t len, const char *what)
{
    return memmem(text, len, what, strlen(what));
}

/* The answer to a message in memory of malloc; its length is 0 for a notification. `*method_of` is the method, or
 * NULL. */
static char *answer_of(const char *body, size_t len, size_t *size, const method **method_of)
{
    *size = 0;
    *method_of = NULL;
    const char *end = body + len, *id = find(body, len, "\"id\":"), *name = find(body, len, "\"method\":\"");
    if (id == NULL || name == NULL)
        return NULL;
    id += 5;
    const char *id_end = id;
    while (id_end < end && *id_end != ',' && *id_end != '}')
        id_end++;
    name += 10;
    for (size_t i = 0; i < method_count; i++) {
        size_t length = strlen(methods[i].name);
        if ((size_t)(end - name) > length && memcmp(name, methods[i].name, length) == 0 && name[length] == '"')
            *method_of = &methods[i];
    }
    const method *it = *method_of;
    size_t cap = (size_t)(id_end - id) + 128 + (it == NULL ? 0 : it->len);
    char *answer = malloc(cap);
    int n = snprintf(answer, cap, "{\"jsonrpc\":\"2.0\",\"id\":%.*s,", (int)(id_end - id), id);
    if (it == NULL) {
        n += snprintf(answer + n, cap - (size_t)n, "\"error\":{\"code\":-32601,\"message\":\"unknown method\"}}");
        *size = (size_t)n;
        return answer;
    }
    n += snprintf(answer + n, cap - (size_t)n, "\"result\":");
    memcpy(answer + n, it->result, it->len);
    answer[(size_t)n + it->len] = '}';
    *size = (size_t)n + it->len + 1;
    return answer;
}

static int on_request(h2o_handler_t *self, h2o_req_t *req)
{
    (void)self;
    size_t size;
    const method *it;
    char *answer = answer_of(req->entity.base == NULL ? "" : req->entity.base, req->entity.len, &size, &it);
    req->res.status = size > 0 ? 200 : 202;
    req->res.reason = size > 0 ? "OK" : "Accepted";
    if (size > 0)
        h2o_add_header(&req->pool, &req->res.headers, H2O_TOKEN_CONTENT_TYPE, NULL, H2O_STRLIT("application/json"));
    if (it != NULL && strcmp(it->name, "initialize") == 0)
        h2o_add_header_by_str(&req->pool, &req->res.headers, H2O_STRLIT("mcp-session-id"), 0, NULL,
                              H2O_STRLIT("0123456789abcdef"));
    h2o_send_inline(req, size > 0 ? answer : "", size);
    free(answer);
    return 0;
}

static int serve_stdio(void)
{
    char *line = NULL;
    size_t cap = 0, size;
    const method *it;
    for (ssize_t len; (len = getline(&line, &cap, stdin)) > 0;) {
        char *answer = answer_of(line, (size_t)len, &size, &it);
        if (size > 0) {
            fwrite(answer, 1, size, stdout);
            fputc('\n', stdout);
            fflush(stdout);
        }
        free(answer);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv)
{
    static const char *const names[] = {"initialize", "ping", "server/discover", "tools/list", "tools/call"};
    int is_stdio = argc == 3 && strcmp(argv[1], "stdio") == 0;
    if (!is_stdio && argc != 4 && argc != 5) {
        fprintf(stderr, "usage: upstream PORT THREADS FOLDER [PEM] | upstream stdio FOLDER\n");
        return 2;
    }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        read_method(argv[is_stdio ? 2 : 3], names[i]);
    if (is_stdio)
        return serve_stdio();
    if (argc == 5)
        encrypt(argv[4]);
    serve_for_ever(argv[1], argv[2], on_request);
    return 0;
}
