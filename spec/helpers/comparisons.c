/* comparisons.c: counts the comparisons of secrets, preloaded into the gateway. CRYPTO_memcmp is OpenSSL's comparison
 * whose time does not depend on the bytes. The file MOONPOOL_COMPARISONS holds two numbers of 64 bits: comparisons, and
 * bytes that were compared. */
#define _GNU_SOURCE 1
#include <fcntl.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static _Atomic uint64_t unused[2], *counts = unused;

__attribute__((constructor)) static void begin(void)
{
    const char *path = getenv("MOONPOOL_COMPARISONS");
    int fd = path == NULL ? -1 : open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return;
    void *shared = ftruncate(fd, sizeof unused) == 0
                       ? mmap(NULL, sizeof unused, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
                       : MAP_FAILED;
    close(fd);
    if (shared != MAP_FAILED)
        counts = shared;
}

int CRYPTO_memcmp(const void *a, const void *b, size_t len)
{
    const volatile unsigned char *one = a, *other = b;
    unsigned char differs = 0;
    for (size_t i = 0; i < len; i++)
        differs = (unsigned char)(differs | (one[i] ^ other[i]));
    atomic_fetch_add(&counts[0], 1);
    atomic_fetch_add(&counts[1], len);
    return differs;
}
