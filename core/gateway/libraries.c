/* libraries.c: the libraries that this binary consists of or loads, with their versions. */
#include "libraries.h"
#include "lib/lib.h"
#include "net/net.h"
#include "postgres/postgres.h"
#include "redis/redis.h"
#include <gnu/libc-version.h>
#include <yaml.h>
#include <zlib.h>

/* What was linked in, with the number of our patches on top (cmake/dependencies.cmake). */
static const struct {
    const char *name, *version;
    int patches;
} linked[] = {
#define LINKED(name, version, patches) {name, version, patches},
#include <moonpool/linked.def>
#undef LINKED
};

static void put_line(mp_buf *out, const char *name, const char *version)
{
    mp_buf_printf(out, "  %-10s %s\n", name, version);
}

void mp_gateway_put_libraries(mp_buf *out)
{
    char pcre2[MP_REGEX_VERSION];
    mp_regex_version(pcre2);
    mp_buf_put(out, MP_STR("linked in:\n"));
    for (size_t i = 0; i < sizeof linked / sizeof *linked; i++)
        mp_buf_printf(out, "  %-10s %s, patches: %d\n", linked[i].name, linked[i].version, linked[i].patches);
    put_line(out, "hiredis", mp_redis_version());
#ifndef MP_PORTABLE
    mp_buf_put(out, MP_STR("of this system:\n"));
#endif
    put_line(out, "OpenSSL", mp_tls_version());
    put_line(out, "zlib", zlibVersion());
    put_line(out, "libyaml", yaml_get_version_string());
    put_line(out, "PCRE2", pcre2);
    put_line(out, "libcurl", mp_client_version());
#ifdef MP_PORTABLE
    mp_buf_put(out, MP_STR("of this system:\n"));
#endif
    put_line(out, "glibc", gnu_get_libc_version());
    int libpq = mp_postgres_version();
    if (libpq > 0)
        mp_buf_printf(out, "  %-10s %d.%d\n", "libpq", libpq / 10000, libpq % 10000);
}
