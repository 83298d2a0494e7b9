#include "address_policy.h"
#include <arpa/inet.h>
#include <netinet/in.h>

typedef struct {
    unsigned char bytes[16];
    int bits;
    mp_address_policy_kind kind;
} range;

/* IPv4 ranges that are not public, from IANA's registry of special-purpose addresses. */
static const range v4[] = {
    {{127}, 8, MP_ADDRESS_POLICY_LOOPBACK},         {{10}, 8, MP_ADDRESS_POLICY_PRIVATE},
    {{172, 16}, 12, MP_ADDRESS_POLICY_PRIVATE},     {{192, 168}, 16, MP_ADDRESS_POLICY_PRIVATE},
    {{100, 64}, 10, MP_ADDRESS_POLICY_PRIVATE},     {{0}, 8, MP_ADDRESS_POLICY_ADDRESS},
    {{169, 254}, 16, MP_ADDRESS_POLICY_ADDRESS},    {{192, 0, 0}, 24, MP_ADDRESS_POLICY_ADDRESS},
    {{192, 0, 2}, 24, MP_ADDRESS_POLICY_ADDRESS},   {{192, 88, 99}, 24, MP_ADDRESS_POLICY_ADDRESS},
    {{198, 18}, 15, MP_ADDRESS_POLICY_ADDRESS},     {{198, 51, 100}, 24, MP_ADDRESS_POLICY_ADDRESS},
    {{203, 0, 113}, 24, MP_ADDRESS_POLICY_ADDRESS}, {{224}, 3, MP_ADDRESS_POLICY_ADDRESS},
};

/* IPv6: 2000::/3 is public, except these ranges. */
static const range v6[] = {
    {{[15] = 1}, 128, MP_ADDRESS_POLICY_LOOPBACK}, {{0xfc}, 7, MP_ADDRESS_POLICY_PRIVATE},
    {{0x20, 0x01}, 23, MP_ADDRESS_POLICY_ADDRESS}, {{0x20, 0x01, 0x0d, 0xb8}, 32, MP_ADDRESS_POLICY_ADDRESS},
    {{0x20, 0x02}, 16, MP_ADDRESS_POLICY_ADDRESS}, {{0x3f, 0xff}, 20, MP_ADDRESS_POLICY_ADDRESS},
    {{0x20}, 3, MP_ADDRESS_POLICY_PUBLIC},
};

static bool is_in(const unsigned char *address, const range *where)
{
    int whole = where->bits / 8, rest = where->bits % 8;
    return memcmp(address, where->bytes, (size_t)whole) == 0 &&
           (rest == 0 || (address[whole] ^ where->bytes[whole]) >> (8 - rest) == 0);
}

static mp_address_policy_kind kind_of_v4(const unsigned char *address)
{
    for (size_t i = 0; i < sizeof v4 / sizeof *v4; i++)
        if (is_in(address, &v4[i]))
            return v4[i].kind;
    return MP_ADDRESS_POLICY_PUBLIC;
}

static mp_address_policy_kind kind_of_v6(const unsigned char *address)
{
    static const range mapped = {{[10] = 0xff, 0xff}, 96, 0}, translated = {{0x00, 0x64, 0xff, 0x9b}, 96, 0};
    if (is_in(address, &mapped) || is_in(address, &translated))
        return kind_of_v4(address + 12);
    for (size_t i = 0; i < sizeof v6 / sizeof *v6; i++)
        if (is_in(address, &v6[i]))
            return v6[i].kind;
    return MP_ADDRESS_POLICY_ADDRESS;
}

static bool allows_address(const mp_address_policy *policy, int family, const unsigned char *address)
{
    unsigned char named[16];
    if (policy->kind == MP_ADDRESS_POLICY_ADDRESS)
        return inet_pton(family, policy->address, named) == 1 &&
               memcmp(named, address, family == AF_INET ? 4 : 16) == 0;
    mp_address_policy_kind kind = family == AF_INET ? kind_of_v4(address) : kind_of_v6(address);
    if (policy->kind == MP_ADDRESS_POLICY_LOOPBACK)
        return kind == MP_ADDRESS_POLICY_LOOPBACK;
    return kind == MP_ADDRESS_POLICY_PUBLIC ||
           (policy->kind == MP_ADDRESS_POLICY_PRIVATE && kind != MP_ADDRESS_POLICY_ADDRESS);
}

bool mp_address_policy_allows(const mp_address_policy *policy, const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return allows_address(policy, AF_INET,
                              (const void *)&((const struct sockaddr_in *)(const void *)address)->sin_addr);
    if (address->sa_family == AF_INET6)
        return allows_address(policy, AF_INET6,
                              (const void *)&((const struct sockaddr_in6 *)(const void *)address)->sin6_addr);
    return false;
}

bool mp_address_policy_allows_text(const mp_address_policy *policy, const char *address)
{
    unsigned char bytes[16];
    int family = strchr(address, ':') == NULL ? AF_INET : AF_INET6;
    return inet_pton(family, address, bytes) == 1 && allows_address(policy, family, bytes);
}

bool mp_address_canonical(const char *text, char room[MP_ADDRESS_TEXT])
{
    unsigned char bytes[16];
    int family = strchr(text, ':') == NULL ? AF_INET : AF_INET6;
    return inet_pton(family, text, bytes) == 1 && inet_ntop(family, bytes, room, MP_ADDRESS_TEXT) != NULL;
}
