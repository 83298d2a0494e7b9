/* suggest.c: "did you mean": finds the name with the fewest insertions, deletions, replacements and swaps of
 * adjacent letters. */
#include "config.h"
#include <ctype.h>

#define MAX_WORD_BYTES 40

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

static int distance(mp_str a, const char *b, size_t b_len)
{
    int rows[3][MAX_WORD_BYTES + 1];
    int *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b_len; j++)
        above[j] = (int)j;
    for (size_t i = 1; i <= a.len; i++) {
        row[0] = (int)i;
        for (size_t j = 1; j <= b_len; j++) {
            int x = tolower((unsigned char)a.ptr[i - 1]), y = tolower((unsigned char)b[j - 1]);
            row[j] = least_of(least_of(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == tolower((unsigned char)b[j - 2]) && y == tolower((unsigned char)a.ptr[i - 2]))
                row[j] = least_of(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[b_len];
}

const char *mp_suggest(mp_str word, const char *const *names, size_t count)
{
    const char *best = NULL;
    int best_distance = 0;
    if (word.len == 0 || word.len > MAX_WORD_BYTES)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(names[i]);
        if (len > MAX_WORD_BYTES)
            continue;
        int far = distance(word, names[i], len);
        /* typos have about one change per three letters; a prefix of a name is likely an abbreviation */
        bool is_near = far * 3 <= (int)(word.len > len ? word.len : len) ||
                       (word.len >= 3 && len > word.len && memcmp(word.ptr, names[i], word.len) == 0);
        if (is_near && (best == NULL || far < best_distance)) {
            best = names[i];
            best_distance = far;
        }
    }
    return best;
}
