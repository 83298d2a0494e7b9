/* number.c: converts numbers to text and back. Doubles take a fast path where it is provably exact: 15 decimal
 * digits and powers of ten up to 22 are exact doubles, so that one multiplication or division rounds once, as strtod
 * would. */
#include "json/json.h"
#include <float.h>
#include <math.h>

static const double powers[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Writes the digits of `n` so that they end before `end`. Returns where they begin. */
static char *digits_before(char *end, uint64_t n)
{
    do {
        *--end = (char)('0' + n % 10);
        n /= 10;
    } while (n != 0);
    return end;
}

mp_str mp_json_int_text(int64_t n, char room[MP_JSON_INT_BYTES])
{
    char *end = room + MP_JSON_INT_BYTES, *at = digits_before(end, n < 0 ? 0 - (uint64_t)n : (uint64_t)n);
    if (n < 0)
        *--at = '-';
    return (mp_str){at, (size_t)(end - at)};
}

void mp_json_put_int(mp_buf *out, int64_t n)
{
    char room[MP_JSON_INT_BYTES];
    mp_buf_put(out, mp_json_int_text(n, room));
}

/* Appends `n` as a decimal with at most 15 digits, 6 of them after the point. False, appending nothing, if that
 * would not be exact. */
static bool put_short(mp_buf *out, double n)
{
    double size = fabs(n);
    if (size >= 1e15 || (size < 1e-4 && n != 0) || (n == 0 && signbit(n)))
        return false;
    for (int places = 0; places <= 6 && size * powers[places] < 1e15 - 1; places++) {
        uint64_t scaled = (uint64_t)(size * powers[places] + 0.5);
        if ((double)scaled / powers[places] != size)
            continue;
        char text[32], *end = text + sizeof text, *at = digits_before(end, scaled);
        while (end - at <= places)
            *--at = '0';
        size_t whole = (size_t)(end - at) - (size_t)places;
        if (n < 0)
            mp_buf_putc(out, '-');
        mp_buf_put(out, (mp_str){at, whole});
        mp_buf_putc(out, '.');
        mp_buf_put(out, places == 0 ? MP_STR("0") : (mp_str){at + whole, (size_t)places});
        return true;
    }
    return false;
}

int mp_json_put_double(mp_buf *out, double n)
{
    if (!isfinite(n))
        return -1;
    if (put_short(out, n))
        return 0;
    char text[40];
    int length = snprintf(text, sizeof text, "%.15g", n);
    if (strtod(text, NULL) != n)
        length = snprintf(text, sizeof text, "%.17g", n);
    mp_buf_put(out, (mp_str){text, (size_t)length});
    if (text[strcspn(text, ".e")] == '\0')
        mp_buf_put(out, MP_STR(".0"));
    return 0;
}

bool mp_json_int(mp_str lexeme, int64_t *n)
{
    bool negative = lexeme.len > 0 && lexeme.ptr[0] == '-';
    uint64_t size = 0, most = negative ? (uint64_t)1 << 63 : INT64_MAX;
    for (size_t i = negative; i < lexeme.len; i++) {
        uint64_t digit = (uint64_t)(unsigned char)lexeme.ptr[i] - '0';
        if (digit > 9 || size > (most - digit) / 10)
            return false;
        size = size * 10 + digit;
    }
    *n = (int64_t)(negative ? 0 - size : size);
    return true;
}

/* Converts by the exact fast path; false if it does not apply. */
static bool short_double(mp_str lexeme, double *n)
{
    const char *at = lexeme.ptr, *end = at + lexeme.len;
    bool negative = *at == '-';
    int64_t digits = 0;
    int seen = 0, power = 0;
    for (at += negative; at < end && *at != 'e' && *at != 'E'; at++) {
        if (*at == '.') {
            power = -(int)(end - at - 1);
            continue;
        }
        if (++seen > 15)
            return false;
        digits = digits * 10 + (*at - '0');
    }
    if (at < end || power < -22)
        return false;
    double value = power == 0 ? (double)digits : (double)digits / powers[-power];
    *n = negative ? -value : value;
    return true;
}

double mp_json_double(mp_str lexeme)
{
    double n;
    if (short_double(lexeme, &n))
        return n;
    char text[64];
    if (lexeme.len < sizeof text) {
        memcpy(text, lexeme.ptr, lexeme.len);
        text[lexeme.len] = '\0';
        return strtod(text, NULL);
    }
    char *copy = mp_dup(lexeme);
    n = strtod(copy, NULL);
    free(copy);
    return n;
}

/* Copies the digits of a lexeme from the first to the last that is not zero. Returns their number, or `most` + 1 if
 * there are more than `most`. */
static int significant_digits(mp_str lexeme, char *digits, int most)
{
    int count = 0;
    size_t zeros = 0; /* zeros that count only if another digit follows */
    for (size_t i = 0; i < lexeme.len && lexeme.ptr[i] != 'e' && lexeme.ptr[i] != 'E'; i++) {
        char c = lexeme.ptr[i];
        if (c == '0') {
            zeros += count > 0;
        } else if (c != '.' && c != '-') {
            if (zeros >= (size_t)(most - count))
                return most + 1;
            for (; zeros > 0; zeros--)
                digits[count++] = '0';
            digits[count++] = c;
        }
    }
    return count;
}

bool mp_json_is_exact(mp_str lexeme, double n)
{
    char digits[DBL_DECIMAL_DIG], text[40];
    int count = significant_digits(lexeme, digits, DBL_DECIMAL_DIG);
    if (!isfinite(n) || count > DBL_DECIMAL_DIG)
        return false;
    if (count <= DBL_DIG)
        return count == 0 || fabs(n) >= DBL_MIN;
    snprintf(text, sizeof text, "%.*e", count - 1, fabs(n)); /* d.ddd…e±xx */
    return text[0] == digits[0] && memcmp(text + 2, digits + 1, (size_t)count - 1) == 0;
}
