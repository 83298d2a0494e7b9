/* pack.c: compresses a module for the binary: `pack DICTIONARY FROM TO`. What it writes is raw deflate, and then the
 * size of FROM in four bytes, least byte first. The dictionary is a module that is in the binary as it is: texts and
 * instructions of one module are much like those of another (core/lib/embed.cmake, core/lib/modules/embedded.c). */
#include <stdio.h>
#include <stdlib.h>
#include <zlib.h>

#define MOST (1 << 20) /* bytes of a module */

static void give_up(const char *path)
{
    fprintf(stderr, "pack: %s cannot be read, written or compressed\n", path);
    exit(1);
}

static uInt read_file(const char *path, Bytef *to)
{
    FILE *file = fopen(path, "rb");
    size_t len = file == NULL ? MOST : fread(to, 1, MOST, file);
    if (len == MOST || ferror(file))
        give_up(path);
    fclose(file);
    return (uInt)len;
}

int main(int argc, char **argv)
{
    static Bytef dictionary[MOST], from[MOST], to[MOST];
    if (argc != 4)
        return 2;
    uInt known = read_file(argv[1], dictionary), len = read_file(argv[2], from);
    z_stream stream = {.next_in = from, .avail_in = len, .next_out = to, .avail_out = MOST - 4};
    if (deflateInit2(&stream, Z_BEST_COMPRESSION, Z_DEFLATED, -MAX_WBITS, MAX_MEM_LEVEL, Z_DEFAULT_STRATEGY) != Z_OK ||
        deflateSetDictionary(&stream, dictionary, known) != Z_OK || deflate(&stream, Z_FINISH) != Z_STREAM_END)
        give_up(argv[2]);
    for (int shift = 0; shift < 32; shift += 8)
        to[stream.total_out++] = (Bytef)(len >> shift);
    FILE *file = fopen(argv[3], "wb");
    if (file == NULL || fwrite(to, 1, stream.total_out, file) != stream.total_out || fclose(file) != 0)
        give_up(argv[3]);
    return 0;
}
