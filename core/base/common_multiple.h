/* SPDX-License-Identifier: Apache-2.0 */
/* Least common multiple: widths of tiles that are whole blocks of several outputs. */
#ifndef SYI_COMMON_MULTIPLE_H
#define SYI_COMMON_MULTIPLE_H

#include <stdint.h>

/* Of two numbers above 0 that both divide one of 63 bits, as an extent. */
static inline int64_t syi_common_multiple(int64_t a, int64_t b)
{
    int64_t n = a;
    while (n % b) n += a;
    return n;
}

#endif
