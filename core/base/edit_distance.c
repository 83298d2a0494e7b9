#include "edit_distance.h"
#include <ctype.h>
#include <limits.h>

static int least_of(int a, int b)
{
    return a < b ? a : b;
}

static int letter(mp_str s, size_t i)
{
    return tolower((unsigned char)s.ptr[i]);
}

int mp_edit_distance(mp_str a, mp_str b)
{
    if (a.len > MP_EDIT_BYTES || b.len > MP_EDIT_BYTES)
        return INT_MAX;
    int rows[3][MP_EDIT_BYTES + 1];
    int *before = rows[0], *above = rows[1], *row = rows[2];
    for (size_t j = 0; j <= b.len; j++)
        above[j] = (int)j;
    for (size_t i = 1; i <= a.len; i++) {
        row[0] = (int)i;
        for (size_t j = 1; j <= b.len; j++) {
            int x = letter(a, i - 1), y = letter(b, j - 1);
            row[j] = least_of(least_of(above[j], row[j - 1]) + 1, above[j - 1] + (x != y));
            if (i > 1 && j > 1 && x == letter(b, j - 2) && y == letter(a, i - 2))
                row[j] = least_of(row[j], before[j - 2] + 1);
        }
        int *spare = before;
        before = above;
        above = row;
        row = spare;
    }
    return above[b.len];
}
