/* suggest.c: "did you mean": finds the name with the least edit distance. */
#include "config.h"

#define MAX_WORD_BYTES 40

const char *MP_NULLABLE mp_suggest(mp_str word, const char *const *names, size_t count)
{
    const char *best = NULL;
    int best_distance = 0;
    if (word.len == 0 || word.len > MAX_WORD_BYTES)
        return NULL;
    for (size_t i = 0; i < count; i++) {
        size_t len = strlen(names[i]);
        if (len > MAX_WORD_BYTES)
            continue;
        int far = mp_edit_distance(word, mp_str_of(names[i]));
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
