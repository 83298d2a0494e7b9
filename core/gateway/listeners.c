/* listeners.c: binds addresses and hands out their sockets. */
#define _GNU_SOURCE
#include "listeners.h"
#include "gateway/admin/codes.h"
#include "terminal.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Binds the address `where`, which the configuration key `key` names. */
static int bind_one(mp_listeners *listeners, const char *key, const char *where, mp_tls_slot *MP_NULLABLE tls,
                    int count, const mp_config *config, const mp_socket_file *file, mp_err *err)
{
    mp_bound *one = &listeners->all[listeners->count];
    one->fds = mp_new((size_t)count * sizeof *one->fds);
    one->count = count;
    one->tls = tls;
    if (mp_listen(where, count, config->dead_peer, file, one->fds, &one->address, err) != 0) {
        free(one->fds);
        mp_err cause = *err;
        return mp_err_set(err, "%s: %.900s", key, cause.text), mp_err_hint(err, "%s", cause.hint);
    }
    listeners->count++;
    return 0;
}

int mp_listeners_bind(mp_listeners *listeners, const mp_config *config, const mp_certificates *certificates,
                      int workers, mp_err *err)
{
    size_t count = 0;
    while (config->listen[count] != NULL)
        count++;
    listeners->all = mp_new((count + 1) * sizeof *listeners->all);
    for (size_t i = 0; i < count; i++) {
        listeners->all[i].http2 = mp_config_http2_of(config, i);
        if (bind_one(listeners, "listen", config->listen[i], mp_certificates_of(certificates, i), workers, config, NULL,
                     err) != 0)
            return -1;
    }
    mp_socket_file file = {(uint32_t)strtoul(config->admin_mode, NULL, 8), config->admin_group};
    if (config->admin_listen != NULL && bind_one(listeners, "admin.listen", config->admin_listen,
                                                 mp_certificates_of_admin(certificates), 1, config, &file, err) != 0)
        return -1;
    listeners->has_admin = config->admin_listen != NULL;
    return 0;
}

static bool is_admin(const mp_listeners *listeners, int i)
{
    return listeners->has_admin && i == listeners->count - 1;
}

int mp_listeners_hand_out(mp_listeners *listeners, mp_worker **workers, mp_shared *shared, mp_admin *MP_NULLABLE *admin,
                          mp_err *err)
{
    for (int i = 0; i < listeners->count; i++) {
        mp_bound *one = &listeners->all[i];
        if (is_admin(listeners, i)) {
            *admin = mp_admin_new(shared, one->fds[0], one->tls, &one->address, err);
            if (*admin == NULL)
                return -1;
            one->fds[0] = -1;
            continue;
        }
        for (int k = 0; k < one->count; k++) {
            int fd = one->fds[k];
            one->fds[k] = -1;
            if (mp_worker_listen(workers[k], fd, one->tls, one->http2, err) != 0)
                return -1;
        }
    }
    return 0;
}

void mp_listeners_unlink(mp_listeners *listeners, bool with_admin)
{
    for (int i = 0; i < listeners->count; i++)
        if (with_admin || !is_admin(listeners, i))
            mp_unlink_address(&listeners->all[i].address);
}

void mp_listeners_close(mp_listeners *listeners)
{
    for (int i = 0; i < listeners->count; i++) {
        mp_unlisten(&listeners->all[i].address, listeners->all[i].fds, listeners->all[i].count);
        free(listeners->all[i].fds);
    }
    free(listeners->all);
}

static const char *scheme_of(const mp_bound *one)
{
    return one->address.is_unix ? "" : one->tls == NULL ? "http://" : "https://";
}

void mp_listeners_put_ready(const mp_listeners *listeners, const mp_config *config, mp_buf *line)
{
    const mp_bound *first = &listeners->all[0], *admin = &listeners->all[listeners->count - 1];
    if (config->endpoint_mcp != NULL)
        mp_buf_printf(line, " mcp=%s%s%s", scheme_of(first), first->address.text, config->endpoint_mcp);
    if (config->endpoint_sse != NULL)
        mp_buf_printf(line, " sse=%s%s%s", scheme_of(first), first->address.text, config->endpoint_sse);
    if (listeners->has_admin)
        mp_buf_printf(line, " admin=%s%s", scheme_of(admin), admin->address.text);
}

static bool has_tokens(const mp_config *config)
{
    bool has = false;
    for (int i = 0; i < MP_ADMIN_TOKEN_ROLES; i++)
        has = has || (config->admin_tokens[i] != NULL && config->admin_tokens[i]->name != NULL);
    return has;
}

void mp_listeners_show_dashboard(const mp_listeners *listeners, const mp_config *config, mp_admin *admin)
{
    const mp_bound *at = &listeners->all[listeners->count - 1];
    if (!listeners->has_admin || at->address.is_unix || !isatty(STDOUT_FILENO))
        return;
    char code[MP_CODE_SIZE] = "";
    bool has_code = !has_tokens(config) && at->address.is_loopback;
    mp_buf line = {0};
    if (has_code)
        mp_admin_own_code(mp_admin_access_of(admin), code);
    mp_buf_printf(&line, "dashboard: %s%s/%s%s%s", scheme_of(at), at->address.text, has_code ? "#code=" : "", code,
                  has_code ? "  (once, within a minute; later: moonpool dashboard)" : "");
    mp_terminal_print(mp_buf_str(&line));
    explicit_bzero(code, sizeof code);
    explicit_bzero(line.ptr, line.len);
    mp_buf_clear(&line);
}

void mp_listeners_log(const mp_listeners *listeners, mp_log_level level)
{
    for (int i = 0; i < listeners->count; i++)
        mp_log(level, "listening", mp_log_str("address", mp_str_of(listeners->all[i].address.text)),
               mp_log_str("for", is_admin(listeners, i) ? MP_STR("admin") : MP_STR("mcp")));
}
