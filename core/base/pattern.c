/* SPDX-License-Identifier: Apache-2.0 */
/* Comparing names: shell-like patterns that choose parameters by their path, and edit distance for "did you
 * mean". Bytes only; no classes, no escapes. */
#include "config.h"

#include <limits.h>
#include <string.h>

#include "base/base.h"

int syi_pattern_stars(const char *pattern, const char *name, struct syi_star star[SYI_STARS])
{
    const char *last = NULL,
               *resume = NULL; /* last `*` seen and where its run may grow to: no recursion needed */
    int n = 0;                 /* stars that stand for something */
    while (*name) {
        if (*pattern == '*') {
            if (n && n <= SYI_STARS) star[n - 1].end = resume;
            if (n < SYI_STARS) star[n].begin = name;
            n++;
            last = pattern++;
            resume = name;
        } else if (*pattern == '?' || (*pattern && *pattern == *name)) {
            pattern++;
            name++;
        } else if (last) {
            pattern = last + 1;
            name = ++resume;
        } else {
            return 0;
        }
    }
    if (n && n <= SYI_STARS) star[n - 1].end = resume;
    for (; *pattern == '*'; pattern++, n++)
        if (n < SYI_STARS) star[n] = (struct syi_star){name, name};
    return *pattern == 0;
}

int syi_pattern_match(const char *pattern, const char *name)
{
    struct syi_star star[SYI_STARS];
    return syi_pattern_stars(pattern, name, star);
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

int syi_edit_distance(const char *a, const char *b)
{
    size_t n = strlen(a), m = strlen(b);
    int row[3][256]; /* by i modulo 3: distances of the first i bytes of a to every prefix of b */
    if (n > 255 || m > 255) return INT_MAX;
    for (size_t j = 0; j <= m; j++) row[0][j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int *now = row[i % 3];
        const int *above = row[(i + 2) % 3], *two_above = row[(i + 1) % 3];
        now[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            now[j] = smaller(above[j - 1] + (a[i - 1] != b[j - 1]), smaller(above[j], now[j - 1]) + 1);
            if (swapped) now[j] = smaller(now[j], two_above[j - 2] + 1);
        }
    }
    return row[n % 3][m];
}

int syi_is_near(const char *name, const char *known)
{
    int length = (int)strnlen(name, 256), third = (length + 1) / 3, distance = syi_edit_distance(name, known);
    return distance < length && distance <= (third > 1 ? third : 1);
}

void syi_nearest_offer(struct syi_nearest *nearest, const char *word, size_t length)
{
    char known[sizeof nearest->known];
    if (length >= sizeof known) return;
    snprintf(known, sizeof known, "%.*s", (int)length, word);
    int distance = syi_edit_distance(nearest->name, known);
    if (!syi_is_near(nearest->name, known) || (*nearest->known && distance >= nearest->distance)) return;
    memcpy(nearest->known, known, sizeof known);
    nearest->distance = distance;
}
