/* proxies.c: sets of addresses and networks: which proxies are trusted. */
#include "proxies.h"
#include "net/net.h"
#include "json/json.h"
#include <arpa/inet.h>

#define MAPPED_BITS 96 /* of an IPv4 address in IPv6, before its own */

static const mp_ip mapped = {{[10] = 0xff, 0xff}};

typedef struct {
    mp_ip base;
    unsigned bits;
} network;

struct mp_proxies {
    bool has_unix;
    size_t count;
    network all[];
};

/* -- addresses ----------------------------------------------------------------------------------------------------- */

bool mp_ip_read(mp_str text, mp_ip *ip)
{
    char copy[MP_ADDRESS_TEXT] = "";
    if (text.len == 0 || text.len >= sizeof copy || memchr(text.ptr, '\0', text.len) != NULL)
        return false;
    memcpy(copy, text.ptr, text.len);
    if (strchr(copy, ':') != NULL)
        return inet_pton(AF_INET6, copy, ip->bytes) == 1;
    *ip = mapped;
    return inet_pton(AF_INET, copy, ip->bytes + MAPPED_BITS / 8) == 1;
}

mp_ip mp_ip_of(const unsigned char *bytes, size_t count)
{
    mp_ip ip = mapped;
    memcpy(ip.bytes + sizeof ip.bytes - count, bytes, count);
    return ip;
}

static bool is_v4(const mp_ip *ip)
{
    return memcmp(ip->bytes, mapped.bytes, MAPPED_BITS / 8) == 0;
}

void mp_ip_write(const mp_ip *ip, char room[MP_ADDRESS_TEXT])
{
    if (is_v4(ip))
        inet_ntop(AF_INET, ip->bytes + MAPPED_BITS / 8, room, MP_ADDRESS_TEXT);
    else
        inet_ntop(AF_INET6, ip->bytes, room, MP_ADDRESS_TEXT);
}

_Static_assert(MP_COUNTED_TEXT >= MP_ADDRESS_TEXT + sizeof "/64" - 1, "a network is an address with its length");

mp_str mp_address_counted(mp_str address, char room[MP_COUNTED_TEXT])
{
    mp_ip ip;
    if (address.len == 0 || memchr(address.ptr, ':', address.len) == NULL || !mp_ip_read(address, &ip))
        return address;
    bool is_link_local = ip.bytes[0] == 0xfe && (ip.bytes[1] & 0xc0) == 0x80;
    if (!is_v4(&ip) && !is_link_local)
        memset(ip.bytes + sizeof ip.bytes / 2, 0, sizeof ip.bytes / 2);
    mp_ip_write(&ip, room);
    if (!is_v4(&ip) && !is_link_local)
        strcat(room, "/64");
    return mp_str_of(room);
}

bool mp_digits_read(mp_str text, unsigned most, unsigned *number)
{
    int64_t read;
    if (text.len == 0 || text.ptr[0] == '-' || (text.len > 1 && text.ptr[0] == '0') || !mp_json_int(text, &read) ||
        read > most)
        return false;
    *number = (unsigned)read;
    return true;
}

/* -- networks ------------------------------------------------------------------------------------------------------ */

static mp_ip masked(const mp_ip *ip, unsigned bits)
{
    mp_ip base = {{0}};
    memcpy(base.bytes, ip->bytes, bits / 8);
    if (bits % 8 > 0)
        base.bytes[bits / 8] = (unsigned char)(ip->bytes[bits / 8] & (0xff00 >> bits % 8));
    return base;
}

static int refuse_host_bits(const network *given, mp_err *err)
{
    char text[MP_ADDRESS_TEXT];
    mp_ip base = masked(&given->base, given->bits);
    mp_ip_write(&base, text);
    mp_err_set(err, "its host bits are not 0");
    return mp_err_hint(err, "the network is %s/%u; a single address has no '/'", text,
                       is_v4(&base) ? given->bits - MAPPED_BITS : given->bits);
}

static int read_network(mp_str text, network *to, mp_err *err)
{
    mp_str rest = text, address = mp_str_cut(&rest, '/');
    if (!mp_ip_read(address, &to->base)) {
        mp_err_set(err, "%s", "");
        return mp_err_hint(err, "as in 10.1.2.3, 10.1.0.0/16, fd00::/8, or unix for the peers of a Unix socket");
    }
    bool has_colon = memchr(address.ptr, ':', address.len) != NULL;
    unsigned most = has_colon ? 128 : 32;
    to->bits = most;
    if (rest.ptr != NULL && !mp_digits_read(rest, most, &to->bits))
        return mp_err_set(err, "after the '/' there is a number from 0 to %u", most);
    to->bits += has_colon ? 0 : MAPPED_BITS;
    mp_ip base = masked(&to->base, to->bits);
    return memcmp(&base, &to->base, sizeof base) == 0 ? 0 : refuse_host_bits(to, err);
}

int mp_proxies_check(mp_str item, mp_err *err)
{
    network unused;
    mp_err_set(err, "%s", "");
    return mp_str_is(item, "unix") ? 0 : read_network(item, &unused, err);
}

mp_proxies *MP_NULLABLE mp_proxies_new(char *const *MP_NULLABLE items)
{
    size_t count = mp_count_texts(items);
    mp_err err;
    if (items == NULL || count == 0)
        return NULL;
    mp_proxies *proxies = mp_new(sizeof *proxies + count * sizeof *proxies->all);
    for (size_t i = 0; i < count; i++) {
        mp_str item = mp_str_of(items[i]);
        if (mp_str_is(item, "unix"))
            proxies->has_unix = true;
        else if (read_network(item, &proxies->all[proxies->count], &err) == 0)
            proxies->count++;
    }
    return proxies;
}

void mp_proxies_free(mp_proxies *MP_NULLABLE proxies)
{
    free(proxies);
}

bool mp_proxies_have(const mp_proxies *proxies, const mp_ip *ip)
{
    for (size_t i = 0; i < proxies->count; i++) {
        const network *one = &proxies->all[i];
        size_t whole = one->bits / 8, rest = one->bits % 8;
        if (memcmp(ip->bytes, one->base.bytes, whole) == 0 &&
            (rest == 0 || (ip->bytes[whole] ^ one->base.bytes[whole]) >> (8 - rest) == 0))
            return true;
    }
    return false;
}

bool mp_proxies_have_unix(const mp_proxies *proxies)
{
    return proxies->has_unix;
}
