/* SPDX-License-Identifier: Apache-2.0 */
/* Arrays of counts to bytes and back. */
#include "config.h"

#include "metrics/counts.h"

size_t syi_counts_encode(const int64_t *count, int n, unsigned char *out)
{
    unsigned char *at = out;

    for (int i = 0; i < n; i++) {
        uint64_t rest = (uint64_t)count[i];
        for (; rest >= 128; rest >>= 7) *at++ = (unsigned char)(rest | 128);
        *at++ = (unsigned char)rest;
    }
    return (size_t)(at - out);
}

int syi_counts_next(const unsigned char **at, const unsigned char *end, int64_t *count)
{
    uint64_t value = 0;

    for (int shift = 0; *at < end && shift < 63; shift += 7) {
        unsigned char byte = *(*at)++;
        value |= (uint64_t)(byte & 127) << shift;
        if (byte & 128) continue;
        *count = (int64_t)value;
        return 1;
    }
    return 0;
}
